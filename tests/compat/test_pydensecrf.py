"""Scripts written for pydensecrf run, and give what they gave there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import crfield.compat.pydensecrf.densecrf as dcrf
from crfield.compat.pydensecrf import utils
from crfield.errors import DataWarning, InputError, ShapeError

H, W, L = 23, 31, 3


def world(seed: int = 0, labels: int = L) -> tuple[np.ndarray, np.ndarray]:
    """An image of patches, and energies (L, N)."""
    rng = np.random.default_rng(seed)
    patches = np.kron(rng.integers(0, 256, (4, 4, 3)), np.ones((8, 8, 1)))[:H, :W]
    image = np.clip(patches + rng.normal(scale=8.0, size=(H, W, 3)), 0, 255).astype(np.uint8)
    energies = -np.log(rng.dirichlet(np.ones(labels), H * W).T).astype(np.float32)
    return image, np.ascontiguousarray(energies)


def script(package: Any, **options: Any) -> np.ndarray:
    """What scripts do, with either package."""
    image, energies = world()
    crf = package.DenseCRF2D(W, H, L)
    crf.setUnaryEnergy(energies)
    crf.addPairwiseGaussian(sxy=(3, 2), compat=3, **options)
    crf.addPairwiseBilateral(sxy=(20, 30), srgb=(13, 15, 20), rgbim=image, compat=10, **options)
    return np.array(crf.inference(5))


@pytest.fixture
def theirs() -> Any:
    pytest.importorskip("pydensecrf.densecrf")
    return import_module("pydensecrf.densecrf")


@pytest.mark.parametrize(
    "how", ["NO_NORMALIZATION", "NORMALIZE_BEFORE", "NORMALIZE_AFTER", "NORMALIZE_SYMMETRIC", None]
)
def test_same_marginals(theirs: Any, how: str | None) -> None:
    found = [
        script(p, **({} if how is None else {"normalization": getattr(p, how), "kernel": p.FULL_KERNEL}))
        for p in (dcrf, theirs)
    ]
    np.testing.assert_allclose(*found, atol=1e-4)
    assert (found[0].argmax(axis=0) == found[1].argmax(axis=0)).mean() > 0.999


COMPATS = [3, -2.0, np.array([-3.0, -1.0, 0.5], np.float32), 3 * (1 - np.eye(3, dtype=np.float32))]


@pytest.mark.parametrize("compat", COMPATS, ids=["attracts", "repels", "diagonal", "table"])
def test_same_compatibilities(theirs: Any, compat: Any) -> None:
    _, energies = world()
    features = utils.create_pairwise_gaussian((3, 3), (H, W))
    found, divergences = [], []
    for package in (dcrf, theirs):
        crf = package.DenseCRF(H * W, L)
        crf.setUnaryEnergy(energies)
        crf.addPairwiseEnergy(features, compat)
        found.append(np.array(crf.inference(3)))
        q, one, two = crf.startInference()
        for _ in range(3):
            crf.stepInference(q, one, two)
        np.testing.assert_allclose(np.array(q), found[-1], atol=1e-5)
        divergences.append(crf.klDivergence(q) / (H * W))
    np.testing.assert_allclose(*found, atol=1e-4)
    assert divergences[0] == pytest.approx(divergences[1], abs=1e-3)


def test_same_utils() -> None:
    theirs = pytest.importorskip("pydensecrf.utils")
    rng = np.random.default_rng(0)
    labels, soft = rng.integers(0, 4, (5, 6)), rng.dirichlet(np.ones(3), 30).T.reshape(3, 5, 6)
    for unsure, n in ((True, 3), (False, 4)):
        ours = utils.unary_from_labels(labels, n, 0.7, zero_unsure=unsure)
        np.testing.assert_allclose(ours, theirs.unary_from_labels(labels, n, 0.7, zero_unsure=unsure), rtol=1e-6)
        assert ours.dtype == np.float32
    for options in ({}, {"scale": 0.5}, {"clip": None}):
        np.testing.assert_allclose(
            utils.unary_from_softmax(soft, **options), theirs.unary_from_softmax(soft, **options), rtol=1e-5
        )
    image = rng.integers(0, 255, (5, 6, 3))
    for schan, chdim in (((10, 20, 30), 2), (10, 2)):
        np.testing.assert_allclose(
            utils.create_pairwise_bilateral((3, 4), schan, image, chdim),
            theirs.create_pairwise_bilateral((3, 4), schan, image, chdim),
            rtol=1e-6,
        )
    np.testing.assert_allclose(
        utils.create_pairwise_bilateral((3, 4), 9, image[..., 0]),
        theirs.create_pairwise_bilateral((3, 4), 9, image[..., 0]),
    )
    np.testing.assert_allclose(
        utils.create_pairwise_gaussian((3, 4, 5), (2, 3, 4)), theirs.create_pairwise_gaussian((3, 4, 5), (2, 3, 4))
    )


def test_same_names(theirs: Any) -> None:
    for ours, other in ((dcrf, theirs), (utils, import_module("pydensecrf.utils"))):
        public = {name for name in dir(other) if not name.startswith("_")}
        assert public - {"Number", "eigen", "np", "warning"} <= set(ours.__all__)
    for name in dcrf.__all__:
        if isinstance(getattr(theirs, name), int):
            assert int(getattr(dcrf, name)) == int(getattr(theirs, name))


def test_any_array_will_do() -> None:
    image, energies = world()
    wanted = script(dcrf)
    frozen = energies.copy()
    frozen.flags.writeable = False
    for form in (energies.astype(np.float64), np.asfortranarray(energies), frozen, energies.reshape(L, H, W)):
        crf = dcrf.DenseCRF2D(W, H, L, n_jobs=2)
        crf.setUnaryEnergy(form)
        crf.addPairwiseGaussian((3, 2), 3)
        crf.addPairwiseBilateral((20, 30), (13, 15, 20), image[..., ::-1].copy()[..., ::-1].astype(float), 10)
        np.testing.assert_allclose(crf.inference(5), wanted, atol=1e-5)
    labels = np.array([[0, 1], [2, 2]], np.uint8)  # 0 − 1 is 255 there
    assert utils.unary_from_labels(labels, 2, 0.9).shape == (2, 4)
    transposed = np.moveaxis(np.full((4, 5, 2), 0.5), 2, 0)
    assert utils.unary_from_softmax(transposed).flags.c_contiguous


def test_gradient_is_that_of_the_loss() -> None:
    image, energies = world()
    labels = np.random.default_rng(1).integers(-1, L, H * W)

    def made(weight: float, first: float = 0.0) -> tuple[float, np.ndarray, list[np.ndarray]]:
        crf = dcrf.DenseCRF2D(W, H, L)
        shifted = energies.copy()
        shifted[0, 7] += first
        crf.setUnaryEnergy(shifted)
        crf.addPairwiseGaussian(2, weight)
        crf.addPairwiseBilateral(20, 20, image, np.diag([-1.0, -2.0, 0.0]))
        return crf.gradient(3, labels)

    _, unary, (weight, table) = made(1.5)
    assert unary.shape == (L, H * W)
    assert table.shape == (L, L)
    assert weight == pytest.approx((made(1.51)[0] - made(1.49)[0]) / 0.02, rel=0.02)
    assert unary[0, 7] == pytest.approx((made(1.5, 0.5)[0] - made(1.5, -0.5)[0]), abs=0.02)


def test_what_is_wrong_is_refused() -> None:
    crf = dcrf.DenseCRF2D(W, H, L)
    with pytest.raises(ShapeError, match="Bad shape for unary energy"):
        crf.setUnaryEnergy(np.zeros((L, 5)))
    with pytest.raises(ShapeError, match="compat must be"):
        crf.addPairwiseGaussian(3, np.ones(L + 1))
    with pytest.raises(ShapeError, match="bilateral"):
        crf.addPairwiseBilateral(3, 3, np.zeros((W, H, 3)), 3)
    with pytest.raises(InputError, match="sxy"):
        crf.addPairwiseGaussian((1, 2, 3), 3)
    with pytest.raises(ShapeError, match="pairwise energy"):
        crf.addPairwiseEnergy(np.zeros((2, 5)), 3)
    with pytest.raises(InputError, match="gt_prob"):
        utils.unary_from_labels(np.zeros(3), 2, 1.5)
    with pytest.raises(InputError, match="labels must lie"):
        utils.unary_from_labels(np.array([7]), 2, 0.5)
    with pytest.warns(DataWarning, match="deprecated"):
        utils.compute_unary(np.ones(3, int), 2)
