"""Filters of dense fields: both bodies and every level alike, near the sum over all pairs, exact transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice, dense
from tests.cases.chains import native_level

DIMENSIONS = (1, 2, 3, 5, 8)


def features(d: int, n: int = 150, *, seed: int = 0) -> np.ndarray:
    return (2.0 * np.random.default_rng(seed).normal(size=(d, n))).astype(np.float32)


def all_pairs(f: np.ndarray) -> np.ndarray:
    f = f.astype(np.float64)
    return np.exp(-0.5 * ((f[:, :, None] - f[:, None, :]) ** 2).sum(axis=0))


def image_features(rng: np.random.Generator, shape: tuple[int, int], widths: tuple[float, float]) -> np.ndarray:
    """x, y and three channels of patches of colour with noise."""
    colour = np.kron(rng.integers(0, 256, (*(-(-s // 10) for s in shape), 3)), np.ones((10, 10, 1)))
    colour = colour[: shape[0], : shape[1]] + rng.normal(scale=6.0, size=(*shape, 3))
    y, x = np.mgrid[: shape[0], : shape[1]]
    return np.stack([x / widths[0], y / widths[0], *np.moveaxis(colour / widths[1], 2, 0)]).reshape(5, -1)


def matrix(kernel: dense.Kernel, *, reverse: bool = False) -> np.ndarray:
    return dense.apply(kernel, np.eye(kernel.n_points), reverse=reverse).astype(np.float64)


def outcomes(f: np.ndarray, labels: int, *, halo: bool) -> dict[str, Any]:
    """All that the kernels compute of some features."""
    rng = np.random.default_rng(1)
    n = f.shape[1]
    values, other = rng.random((n, labels)), rng.normal(size=(n, labels))
    plain = dense.lattice(f, halo=halo)
    kernels = [dense.normalised(plain, how) for how in ("symmetric", "before")]
    table = rng.normal(size=(labels, labels))
    related = [2.0, table + table.T]
    options: dict[str, Any] = {"steps": 4, "watch": True, "damping": 0.4, "symmetric": True}
    q, trace = dense.mean_field(3 * values, kernels, related, **options)
    return {
        "at": plain.at,
        "neighbours": plain.neighbours,
        "sums": plain.sums,
        "filtered": dense.apply(plain, values),
        "backwards": dense.apply(kernels[1], values, reverse=True),
        "slopes": dense.feature_gradient(plain, f, values, other),
        "damped": q,
        "trace": trace,
        "plain": dense.mean_field(3 * values, kernels, [1.5, rng.random(labels)], steps=3)[0],
        "energies": dense.mean_field(-values.T.copy().T, kernels[:1], [1.0], steps=2, negated=True)[0],
        "started": dense.mean_field(values, kernels[:1], [1.0], steps=1, start=q)[0],
    }


def compare(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in one.items():
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(value, other[name], err_msg=name)
        else:
            size = np.abs(other[name]).max()
            np.testing.assert_allclose(value, other[name], atol=1e-5 * max(size, 1.0), rtol=0, err_msg=name)


@pytest.mark.parametrize("labels", [1, 3, 4, 7, 21, 40])
@pytest.mark.parametrize("halo", [False, True])
def test_bodies_agree(labels: int, halo: bool) -> None:
    for d in DIMENSIONS if labels == 3 else (5,):
        found = {}
        for body in ("native", "numpy"):
            with choice.use(body):
                found[body] = outcomes(features(d), labels, halo=halo)
        compare(found["native"], found["numpy"])


@pytest.mark.parametrize("level", [2, 3, 4])
def test_levels_agree(level: int) -> None:
    with choice.use("numpy"):
        wanted = [outcomes(features(d), labels, halo=False) for d, labels in ((2, 3), (5, 21))]
    with native_level(level):
        for (d, labels), one in zip(((2, 3), (5, 21)), wanted):
            compare(outcomes(features(d), labels, halo=False), one)


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 3, 4, 5, 8, 13, 21, 32, 40])
def test_two_kernels_are_taken_together(level: int, labels: int) -> None:
    """Position with position and colour, as images have them: labels or points first, whole blocks and a rest."""
    rng = np.random.default_rng(labels)
    scores = 3 * rng.normal(size=(197, labels)).astype(np.float32)
    asked = [(f, how) for f in ((2, 5), (5, 3)) for how in ("symmetric", "after")]

    def found(scores: np.ndarray, widths: tuple[int, int], how: str, *, watch: bool) -> np.ndarray:
        kernels = [dense.lattice(features(d, 197, seed=d), how) for d in widths]
        return dense.mean_field(scores, kernels, [1.5, 2.0], steps=3, watch=watch)[0]

    with choice.use("numpy"):
        wanted = [found(scores, *own, watch=False) for own in asked]
    with native_level(level):
        for own, one in zip(asked, wanted):
            for given in (scores, np.asfortranarray(scores), np.repeat(scores, 2, axis=1)[:, ::2]):
                for watch in (False, True):
                    np.testing.assert_allclose(found(given, *own, watch=watch), one, atol=1e-5)


@pytest.mark.parametrize("labels", [1, 3, 8, 21])
def test_odd_scores_are_found_wherever_they_are(labels: int) -> None:
    rng = np.random.default_rng(0)
    for bad in (np.nan, np.inf, -np.inf, 2e30):
        for place in (0, 63, 130, 199):
            scores = rng.normal(size=(200, labels)).astype(np.float32)
            scores[place, -1] = bad
            for given in (scores, np.asfortranarray(scores)):
                with choice.use("native"), pytest.raises(InputError, match="finite"):
                    dense.mean_field(given, [], [], steps=0)


def test_threads_change_the_last_bits_only() -> None:
    rng = np.random.default_rng(0)
    f = image_features(rng, (120, 90), (20.0, 20.0))
    one, two = (dense.lattice(f, "symmetric", n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.at, two.at)
    np.testing.assert_array_equal(one.neighbours, two.neighbours)
    np.testing.assert_allclose(one.share, two.share, rtol=1e-4)
    scores = rng.normal(size=(10800, 6))
    found = [dense.mean_field(scores, [one], [2.0], steps=4, n_jobs=jobs)[0] for jobs in (1, 2)]
    np.testing.assert_allclose(*found, atol=1e-5)
    np.testing.assert_array_equal(found[0], dense.mean_field(scores, [one], [2.0], steps=4)[0])


def test_the_lattice_is_near_the_gaussian(body: str) -> None:
    """Symmetric normalisation, in the plane and in five dimensions; a halo halves the error and more."""
    rng = np.random.default_rng(3)
    f = image_features(rng, (18, 20), (10.0, 8.0)).astype(np.float32)
    q = rng.random((360, 2)) * 2 - 1
    for rows, rough, fine in ((f[:2] * 4, 0.15, 0.15), (f, 0.3, 0.15)):
        exact = all_pairs(rows)
        factor = 1 / np.sqrt(exact.sum(axis=1))
        wanted = factor[:, None] * (exact @ (factor[:, None] * q))
        errors = []
        for halo, most in ((False, rough), (True, fine)):
            kernel = dense.lattice(rows * (1.05 if halo else 1.0), "symmetric", halo=halo)
            errors.append(np.linalg.norm(dense.apply(kernel, q) - wanted) / np.linalg.norm(wanted))
            assert errors[-1] < most
    assert errors[1] < 0.6 * errors[0]  # in five dimensions


@pytest.mark.parametrize("widths", [(1.0, 1.0), (3.0, 3.0), (5.0, 2.0), (10.0, 10.0)])
def test_the_grid_is_nearly_exact(body: str, widths: tuple[float, float]) -> None:
    shape = (30, 24)
    y, x = np.mgrid[: shape[0], : shape[1]]
    exact = all_pairs(np.stack([y / widths[0], x / widths[1]]).reshape(2, -1))
    found = matrix(dense.grid(shape, widths))
    assert np.abs(found - exact).max() < 0.03
    np.testing.assert_allclose(found, found.T, atol=1e-6)


def test_volumes_have_grids_too(body: str) -> None:
    z, y, x = np.mgrid[:5, :6, :4]
    exact = all_pairs(np.stack([z, y, x]).reshape(3, -1) / 1.5)
    np.testing.assert_allclose(matrix(dense.grid((5, 6, 4), (1.5, 1.5, 1.5))), exact, atol=2e-3)


@pytest.mark.parametrize("how", dense.NORMALISATIONS)
def test_reverse_is_the_transpose(body: str, how: str) -> None:
    for kernel in (dense.lattice(features(3, 40)), dense.grid((5, 8), (2.0, 4.0))):
        made = dense.normalised(kernel, how)
        np.testing.assert_allclose(matrix(made, reverse=True), matrix(made).T, atol=1e-5)
        unfolded = dense.normalised(kernel, how, fold=False)
        np.testing.assert_allclose(matrix(unfolded), matrix(made), atol=1e-5)


@pytest.mark.parametrize("how", dense.NORMALISATIONS)
def test_normalised_as_said(body: str, how: str) -> None:
    plain = dense.lattice(features(2, 40))
    k = matrix(plain)
    n = k.sum(axis=1)
    np.testing.assert_allclose(plain.sums, n, rtol=1e-4)
    wanted = {
        "none": k,
        "before": k / n,
        "after": k / n[:, None],
        "symmetric": k / np.sqrt(n * n[:, None]),
    }
    np.testing.assert_allclose(matrix(dense.lattice(features(2, 40), how)), wanted[how], atol=1e-5)


def test_feature_slopes_are_differences() -> None:
    rng = np.random.default_rng(0)
    with choice.use("numpy"):
        for d in (1, 2, 5):
            f = 2.0 * rng.normal(size=(d, 20))
            left, right = rng.normal(size=(2, 20, 3))

            def value(f: np.ndarray, left: np.ndarray = left, right: np.ndarray = right) -> float:
                return float((left * dense.apply(dense.lattice(f), right)).sum())

            slopes = dense.feature_gradient(dense.lattice(f), f, left, right)
            for j, i in ((0, 0), (d - 1, 7), (d // 2, 13)):
                step = np.zeros_like(f)
                step[j, i] = 1e-6
                assert slopes[j, i] == pytest.approx((value(f + step) - value(f - step)) / 2e-6, abs=1e-6)


@pytest.mark.parametrize(
    "related", [1.5, np.array([1.0, 0.0, 2.0]), np.array([[2.0, 0.5, 0], [0.5, 1, -1], [0, -1, 1]])]
)
def test_a_step_is_the_formula(body: str, related: Any) -> None:
    rng = np.random.default_rng(0)
    kernel = dense.lattice(features(2, 30), "symmetric")
    scores = rng.normal(size=(30, 3))
    q = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    k, bounds = matrix(kernel), []
    for _ in range(3):
        sent = (k @ q) @ (np.diag(np.ones(3) * related) if np.ndim(related) < 2 else related)
        bounds.append((q * (scores + 0.5 * sent - np.log(q))).sum())
        q = np.exp(scores + sent)
        q /= q.sum(axis=1, keepdims=True)
    found, trace = dense.mean_field(scores, [kernel], [related], steps=3, watch=True)
    np.testing.assert_allclose(found, q, atol=1e-5)
    assert trace is not None
    np.testing.assert_allclose(trace[:3, 0], bounds, rtol=1e-4)
    np.testing.assert_allclose(dense.mean_field(scores, [kernel], [related], steps=3)[0], q, atol=1e-5)


def test_scores_of_any_size(body: str) -> None:
    kernel = dense.lattice(features(2, 70), "symmetric")
    scores = np.zeros((70, 9))
    scores[:, 2] = 1e6
    scores[5] = -1e9
    for related in (1e4, -1e4, 50.0):
        found = dense.mean_field(scores, [kernel], [related], steps=5)[0]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-5)
        assert found[0, 2] > 0.99


def test_wrong_arguments_are_refused(body: str) -> None:
    kernel = dense.lattice(features(2, 10))
    scores = np.zeros((10, 2))
    for bad in (np.nan, np.inf, 1e31):
        wrong = scores.copy()
        wrong[3, 1] = bad
        with pytest.raises(InputError, match="finite"):
            dense.mean_field(wrong, [kernel], [1.0], steps=1)
    with pytest.raises(InputError, match="finite and within"):
        dense.lattice(np.array([[0.0, np.nan]]))
    with pytest.raises(InputError, match="larger widths"):
        dense.lattice(np.array([[0.0, 1e7]]))
    with pytest.raises(ShapeError, match="dimensions"):
        dense.lattice(np.zeros((16, 3)))
    with pytest.raises(ShapeError, match="points"):
        dense.mean_field(np.zeros((9, 2)), [kernel], [1.0], steps=1)
    with pytest.raises(ShapeError, match="compatibility"):
        dense.mean_field(scores, [kernel], [np.ones(3)], steps=1)
    with pytest.raises(InputError, match="normalisation"):
        dense.lattice(features(2, 10), "both")
    with pytest.raises(ShapeError, match="values must be"):
        dense.apply(kernel, np.ones((9, 2)))


def test_compiled_doors_check_indices() -> None:
    from dataclasses import replace

    with choice.use("native"):
        kernel = dense.lattice(features(2, 10))
        assert kernel.neighbours is not None
        for bad in (-1, kernel.n_nodes):
            at = kernel.at.copy()
            at[3, 1] = bad
            with pytest.raises(ValueError, match="node is out of range"):
                dense.apply(replace(kernel, at=at), np.ones((10, 1)))
        pairs = kernel.neighbours.copy()
        pairs[0, 0, 0] = kernel.n_nodes + 1
        with pytest.raises(ValueError, match="neighbour is out of range"):
            dense.apply(replace(kernel, neighbours=pairs), np.ones((10, 1)))


def test_empty(body: str) -> None:
    kernel = dense.lattice(np.zeros((3, 0)))
    assert dense.apply(kernel, np.zeros((0, 2))).shape == (0, 2)
    assert dense.mean_field(np.zeros((0, 2)), [kernel], [1.0], steps=2)[0].shape == (0, 2)
