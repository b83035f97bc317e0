"""Windows, codes and histograms against loops that say what they mean."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from crfield.errors import ShapeError
from crfield.kernels import choice, families
from tests.cases.chains import native_level

KINDS = {"max": max, "min": min, "mean": lambda v: sum(v) / len(v)}


@pytest.mark.parametrize("width", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_windows_never_look_over_the_start_of_a_sequence(body: str, kind: str, width: int) -> None:
    rng = np.random.default_rng(width)
    offsets = np.array([0, 0, 1, 24, 24, 31])
    values = rng.normal(size=31)
    found = families.slide(values, offsets, width=width, kind=kind)
    for start, end in pairwise(offsets.tolist()):
        for t in range(start, end):
            wanted = KINDS[kind](values[max(start, t - width + 1) : t + 1].tolist())
            assert found[t] == pytest.approx(wanted, abs=1e-13)


def test_windows_are_the_same_bits_on_both_bodies() -> None:
    pytest.importorskip("crfield.kernels._families")
    rng = np.random.default_rng(1)
    values = rng.normal(size=500) * 10.0 ** rng.integers(-8, 8, 500)
    for kind in KINDS:
        for width in (2, 5, 64):
            found = []
            for name in ("numpy", "native"):
                with choice.use(name):
                    found.append(families.slide(values, np.array([0, 321, 500]), width=width, kind=kind))
            assert np.array_equal(*found)


def test_means_of_nothing_are_exactly_nothing(body: str) -> None:
    """Sums that were subtracted would leave dust behind a large value, and tests at 0 would answer for it."""
    values = np.concatenate([[1e17, 0.1], np.zeros(30)])
    assert (families.slide(values, np.array([0, 32]), width=6, kind="mean")[8:] == 0).all()


def test_codes_tell_between_from_on(body: str) -> None:
    grid = np.array([-1.0, 0.0, 2.5])
    values = np.array([-2.0, -1.0, -0.5, 0.0, -0.0, 1.0, 2.5, 9.0, -1.0])
    assert families.codes(values, grid).tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 1]
    assert families.codes(values, np.zeros(0)).tolist() == [0] * 9
    assert families.codes(np.zeros(0), grid).tolist() == []


@pytest.mark.parametrize("columns", [1, 2, 3, 9, 7, 16, 25, 36])
def test_histograms(body: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    codes = rng.integers(0, 5, (3, 60)).astype(np.uint16)
    codes[1] = np.sort(codes[1])
    rows = rng.integers(0, 60, (2, 40))
    gradient = rng.normal(size=(40, columns))
    found = families.histograms(codes, rows, gradient, n_bins=6)
    for s in range(3):
        for q in range(2):
            for b in range(6):
                wanted = gradient[codes[s, rows[q]] == b].sum(axis=0)
                assert found[s, q, b] == pytest.approx(wanted, abs=1e-12)
    assert np.array_equal(found, families.histograms(codes, rows, gradient, n_bins=6, n_jobs=4))


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (3, 1), (1500, 9), (1030, 2), (1024, 17), (2, 70)])
def test_histograms_of_every_level(level: int, rows: int, columns: int) -> None:
    pytest.importorskip("crfield.kernels._chain")
    rng = np.random.default_rng(rows)
    codes = rng.integers(0, 9, (2, rows)).astype(np.uint16)
    lists = np.stack([np.maximum(np.arange(rows) - lag, 0) for lag in (0, 1, 5)])
    gradient = rng.normal(size=(rows, columns))
    with choice.use("numpy"):
        wanted = families.histograms(codes, lists, gradient, n_bins=9)
    with native_level(level):
        found = families.histograms(codes, lists, gradient, n_bins=9, n_jobs=2)
    assert np.abs(found - wanted).max() < 1e-10


def test_codes_on_uneven_grids_and_far_away(body: str) -> None:
    rng = np.random.default_rng(0)
    for grid in (
        np.sort(rng.normal(size=30)),
        np.arange(-1, 1.001, 0.05),
        np.array([0.1, 0.2, 0.3]),
        np.array([1e-300, 1e300]),
        np.linspace(0, 1, 41) ** 1.02,
        np.array([5.0]),
    ):
        values = np.concatenate([grid, np.nextafter(grid, -np.inf), np.nextafter(grid, np.inf), rng.normal(size=50)])
        values = np.concatenate([values, [-1e308, 1e308, 0.0]])
        wanted = [(grid < v).sum() + (grid <= v).sum() for v in values]
        assert families.codes(values, grid).tolist() == wanted


def test_empty_histograms(body: str) -> None:
    none = families.histograms(np.zeros((1, 0)), np.zeros((1, 0), int), np.zeros((0, 3)), n_bins=2)
    assert none.shape == (1, 1, 2, 3)
    assert not none.any()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: families.slide(np.zeros(3), np.array([0, 4]), width=2, kind="max"),
        lambda: families.slide(np.zeros(3), np.array([0, 2, 1, 3]), width=2, kind="max"),
        lambda: families.slide(np.zeros(3), np.array([0, 3]), width=0, kind="max"),
        lambda: families.slide(np.zeros(3), np.array([0, 3]), width=2, kind="median"),
        lambda: families.codes(np.array([np.nan]), np.array([1.0])),
        lambda: families.codes(np.zeros(2), np.array([1.0, 1.0])),
        lambda: families.histograms(np.array([[5]]), np.array([[0]]), np.ones((1, 1)), n_bins=5),
        lambda: families.histograms(np.array([[0]]), np.array([[1]]), np.ones((1, 1)), n_bins=5),
        lambda: families.histograms(np.array([[0]]), np.array([[0, 0]]), np.ones((1, 1)), n_bins=5),
    ],
)
def test_refusals(body: str, wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ShapeError):
        wrong()


def test_the_compiled_body_looks_for_itself() -> None:
    native = pytest.importorskip("crfield.kernels._families")
    codes, out = np.zeros((1, 1), np.uint16), np.zeros((1, 1, 1, 1))
    with pytest.raises(ValueError, match="does not exist"):
        native.histograms(codes, np.array([[3]]), np.ones((1, 1)), 1, out, 1)
    with pytest.raises(ValueError, match="out of range"):
        native.histograms(codes + np.uint16(4), np.array([[0]]), np.ones((1, 1)), 1, out, 1)
    with pytest.raises(ValueError, match="width"):
        native.slide(np.zeros(2), np.array([0, 2]), 0, 0, np.zeros(2))
    with pytest.raises(ValueError, match="rise"):
        native.codes(np.zeros(2), np.array([2.0, 1.0]), np.zeros(2, np.uint16))
