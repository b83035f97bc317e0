"""Kernel fields on columns that lie far from zero, such as clocks and maps in metres."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import crfield
from crfield import KernelCRF
from crfield.errors import DataWarning, ModelFileError
from crfield.features.columns.random_features import (
    Landmarks,
    Waves,
    map_from_arrays,
    map_to_arrays,
)
from crfield.scoring.similarity import Similarity, similarity_of, spread

FAR = [1.7e9, 5.4e6, 0.0]  # a clock, a map in metres, and a plain column


def far_rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@pytest.mark.parametrize("form", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("shift", [1e6, 1e9, 1e12])
def test_an_rbf_does_not_see_where_columns_lie(form: str, shift: float) -> None:
    a, b = (np.round(far_rows(n, n) * 8) / 8 for n in (30, 12))  # exact after a shift, so that nothing else is lost
    like = Similarity("rbf", 1 / spread(b))
    one, other = a + shift, b + shift
    rows: Any = one if form == "dense" else sp.csr_array(one)
    others: Any = sp.csr_array(other) if form == "sparse" else other
    np.testing.assert_allclose(like.gram(rows, others), like.gram(a, b), atol=1e-9)
    assert spread(rows) == pytest.approx(spread(a))
    assert spread(rows, weight=np.ones(30)) == pytest.approx(spread(a))
    found = Landmarks.of(like, others).columns(others)  # an inner product, as it is about zero
    np.testing.assert_allclose(found @ found.T, like.gram(b, b), atol=1e-6)


def test_rows_too_far_for_a_product_are_compared_pair_by_pair() -> None:
    """Two clusters 1e9 apart with a width of one: about no middle are both near."""
    rows = np.concatenate([far_rows(8, 0), far_rows(8, 1) + 1e9])
    exact = np.exp(-0.5 * ((rows[:, None] - rows) ** 2).sum(axis=2))
    for some in (rows, sp.csr_array(rows)):
        np.testing.assert_allclose(Similarity("rbf", 0.5).gram(some, some), exact, atol=1e-12)
    far = np.array([[1e308, 0.0, 0.0], [0.0, -1e200, 0.0], [0.0, 0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("rbf", "laplacian"):
            for some in (far, sp.csr_array(far)):
                assert Similarity(kind, 0.5).gram(some, far).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("basis", ["exact", "nystroem", "greedy", "fourier"])
@pytest.mark.parametrize("form", ["arrays", "dicts"])
def test_a_field_does_not_see_where_columns_lie(tmp_path: Path, basis: str, form: str) -> None:
    X = [np.round(far_rows(6, seed) * 8) / 8 for seed in range(12)]
    y = [["in" if row[0] ** 2 + row[2] ** 2 < 1.4 else "out" for row in x] for x in X]

    def written(shift: Any) -> Any:
        moved = [x + shift for x in X]
        if form == "arrays":
            return moved
        return [[{"clock": a, "metres": b, "plain": c} for a, b, c in x.tolist()] for x in moved]

    def model(shift: Any) -> Any:
        return KernelCRF(basis=basis, n_components=20, l2=0.5, tol=1e-9).fit(written(shift), y)

    near, far = model(0.0), model(FAR)
    assert far.score(written(FAR), y) > 0.8
    for a, b in zip(near.predict_proba(written(0.0)), far.predict_proba(written(FAR))):
        np.testing.assert_allclose(a, b, atol=2e-3 if basis == "greedy" else 1e-4)
    far.save(tmp_path / "far.crfield")
    again = crfield.load(tmp_path / "far.crfield")
    assert all((a == b).all() for a, b in zip(again.predict_proba(written(FAR)), far.predict_proba(written(FAR))))


def test_waves_of_older_files_have_no_middle() -> None:
    waves = Waves.draw("rbf", 3, 8, gamma=0.5, rng=np.random.default_rng(0), middle=np.array(FAR))
    arrays = map_to_arrays(waves)
    rows = far_rows(5, 0)
    np.testing.assert_array_equal(map_from_arrays(arrays, None).columns(rows), waves.columns(rows))  # type: ignore[arg-type]
    plain = map_from_arrays({"omega": arrays["omega"]}, None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(plain.columns(rows), Waves(waves.omega).columns(rows))
    for middle in (np.zeros(2), np.array([np.nan, 0.0, 0.0])):
        with pytest.raises(ModelFileError):
            map_from_arrays({**arrays, "middle": middle}, None)  # type: ignore[arg-type]


def test_products_of_columns_far_from_zero_are_told_of() -> None:
    rows = far_rows(20, 0)
    for kind in ("linear", "polynomial"):
        with pytest.warns(DataWarning, match=f"similarity='{kind}' is a product"):
            similarity_of(kind, rows + 1e9)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            similarity_of(kind, rows + 100.0)
