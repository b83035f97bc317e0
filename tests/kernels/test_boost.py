"""The boosting kernels: both bodies against brute force and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from crfield.boosting.weak_learners.candidates import Candidates
from crfield.errors import ShapeError
from crfield.kernels import choice
from crfield.kernels.boost import add_by_code, best_cuts, bin_codes, histograms, logit_pairs, packed
from tests.cases.chains import native_level, needs_native


def mixed_table(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Continuous, graded, binary, constant and half-missing columns."""
    table = np.concatenate(
        [
            rng.normal(size=(rows, 3)),
            rng.integers(0, 5, (rows, 2)),
            rng.integers(0, 2, (rows, 9)),
            np.full((rows, 1), 7.0),
            rng.normal(size=(rows, 2)),
        ],
        axis=1,
    )
    table[rng.random(rows) < 0.3, -1] = np.nan
    return table


def brute_sums(cut: Candidates, pairs: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Sums by bin from the codes of each column alone."""
    chosen = np.arange(cut.n_rows) if rows is None else rows
    out = np.zeros((len(pairs), int(cut.packed.offsets[-1]), 2))
    for f in range(cut.n_columns):
        codes = cut.packed.column(f).astype(int) + cut.packed.offsets[f]
        for c in range(len(pairs)):
            for i in chosen:
                out[c, codes[i]] += pairs[c, i]
    return out


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_histograms_are_sums_by_bin(body: str, form: str) -> None:
    rng = np.random.default_rng(0)
    table = mixed_table(rng, 150)
    if form == "sparse":
        table[rng.random(table.shape) < 0.6] = 0.0
        cut = Candidates.of(sparse.csr_matrix(table), max_bins=8, discrete=[3])
    else:
        cut = Candidates.of(table, max_bins=8, discrete=[3])
    pairs = rng.normal(size=(2, 150, 2))
    np.testing.assert_allclose(histograms(cut.packed, pairs), brute_sums(cut, pairs), atol=1e-12)
    for rows in (np.flatnonzero(rng.random(150) < 0.4), np.arange(0), np.array([149])):
        np.testing.assert_allclose(histograms(cut.packed, pairs, rows), brute_sums(cut, pairs, rows), atol=1e-12)


def test_sparse_and_dense_columns_are_binned_alike(body: str) -> None:
    rng = np.random.default_rng(1)
    table = np.where(rng.random((300, 6)) < 0.2, rng.normal(size=(300, 6)).round(1), 0.0)
    table[:, 5] = 0.0
    table[7, 2] = np.nan
    one, other = Candidates.of(table), Candidates.of(sparse.csc_matrix(table))
    for f in range(6):
        np.testing.assert_array_equal(one.thresholds[f], other.thresholds[f])
        np.testing.assert_array_equal(one.packed.column(f), other.packed.column(f))
    assert one.missing.tolist() == other.missing.tolist()


def brute_cut(
    own: np.ndarray, missing: bool, ridge: float, counts: np.ndarray, least: float
) -> tuple[float, int, int]:
    """The best cut of a numeric column by trying all; own (C, bins, 2)."""
    best, n = (-np.inf, -1, 1), own.shape[1] - missing
    for cut in range(n - 1 + missing):
        for side in (1, 0) if missing and cut < n - 1 else (1,):
            left = [b for b in range(own.shape[1]) if (side == 0 if b >= n else b <= cut)]
            right = [b for b in range(own.shape[1]) if b not in left]
            sums = [own[:, part].sum(axis=1) for part in (left, right)]
            if any((s[:, 0] <= 0).any() for s in sums) or any(counts[part].sum() < least for part in (left, right)):
                continue
            gain = sum(float((s[:, 1] ** 2 / (s[:, 0] + ridge)).sum()) for s in sums)
            if gain > best[0] + 1e-9:
                best = (gain, cut, side)
    return best


@pytest.mark.parametrize(("ridge", "least"), [(0.0, 0.0), (2.0, 0.0), (0.0, 12.0)])
def test_cuts_are_the_best_of_all(body: str, ridge: float, least: float) -> None:
    rng = np.random.default_rng(2)
    cut = Candidates.of(mixed_table(rng, 80), max_bins=7)
    pairs = np.stack([rng.random((3, 80)), rng.normal(size=(3, 80))], axis=2)
    pairs[:, ::3, 0] = pairs[:, ::3, 1] = 0.0  # some rows count nothing
    sums = histograms(cut.packed, pairs)
    counts = histograms(cut.packed, np.ones((1, 80, 2)))[0, :, 0]
    found = best_cuts(
        sums,
        cut.packed.offsets,
        cut.discrete,
        cut.missing,
        ridge=ridge,
        counts=counts if least else None,
        least=least,
    )
    for f in range(cut.n_columns):
        part = slice(cut.packed.offsets[f], cut.packed.offsets[f + 1])
        gain, at, side = brute_cut(sums[:, part], bool(cut.missing[f]), ridge, counts[part], least)
        assert (found.cut[f], found.side[f]) == (at, side)
        assert found.gain[f] == pytest.approx(gain, rel=1e-12)
    assert not np.isfinite(found.gain[14])  # constant
    assert found.column == int(np.argmax(found.gain))


def test_nominal_columns_have_a_leaf_for_each_category(body: str) -> None:
    sums = np.array([[[1.0, 2.0], [0.0, 0.0], [4.0, -2.0]]])
    offsets, no, yes = np.array([0, 3]), np.array([False]), np.array([True])
    assert best_cuts(sums, offsets, yes, no).gain.tolist() == [5.0]
    assert best_cuts(sums, offsets, yes, no, ridge=1.0).gain.tolist() == [4.0 / 2 + 4.0 / 5]
    sums[0, 0] = 0.0
    assert best_cuts(sums, offsets, yes, no).gain.tolist() == [-np.inf]


def test_codes_count_the_thresholds_below(body: str) -> None:
    rng = np.random.default_rng(3)
    for dtype in (np.float64, np.float32):
        table = rng.normal(size=(100, 4)).astype(dtype)
        table[5, 1] = np.nan
        table[6, 2] = np.inf
        cuts = [np.sort(rng.normal(size=n)) for n in (0, 1, 31, 254)]
        cuts[1][0] = table[9, 1]  # a value that is its own threshold lies below the cut
        codes, missing, infinite = bin_codes(table, cuts)
        for f, own in enumerate(cuts):
            for i in range(100):
                value = float(table[i, f])
                assert codes[f, i] == (len(own) + 1 if np.isnan(value) else sum(own < value)) & 255
        assert missing.tolist() == [False, True, False, False]
        assert infinite.tolist() == [False, False, True, False]


def plain_pairs(scores: np.ndarray, labels: np.ndarray, weight: np.ndarray, limit: float) -> tuple[np.ndarray, float]:
    """Working pairs row by row and class by class."""
    out, loss = np.zeros((scores.shape[1], len(scores), 2)), 0.0
    for i, row in enumerate(scores):
        if labels[i] < 0:
            continue
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        loss -= weight[i] * (row[labels[i]] - row.max() - np.log(np.exp(row - row.max()).sum()))
        for c in range(len(row)):
            w = max(p[c] * (1 - p[c]), 1e-6)
            z = min(max(((labels[i] == c) - p[c]) / w, -limit), limit)
            out[c, i] = weight[i] * w, weight[i] * w * z
    return out, loss


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_of_scores(body: str, classes: int, weighted: bool) -> None:
    rng = np.random.default_rng(classes)
    scores = rng.normal(scale=6.0, size=(600, classes))
    scores[0] = 0.0
    scores[1, 0] = 900.0
    labels = rng.integers(-1, classes, 600)
    weight = rng.random(600) if weighted else None
    pairs, loss = logit_pairs(scores, labels, weight, limit=4.0)
    wanted, sum_of_logs = plain_pairs(scores, labels, np.ones(600) if weight is None else weight, 4.0)
    np.testing.assert_allclose(pairs, wanted[1:] if classes == 2 else wanted, rtol=1e-9, atol=1e-13)
    assert loss == pytest.approx(sum_of_logs, rel=1e-12, abs=1e-12)
    # weights of at least 1/limit leave the slope 1[y = c] − p as it is
    slopes = logit_pairs(scores, labels, weight, limit=4.0, least=0.25)[0][..., 1]
    free = logit_pairs(scores, labels, weight, limit=np.inf)[0][..., 1]
    np.testing.assert_allclose(slopes, free, atol=1e-12)


def test_values_are_added_by_code(body: str) -> None:
    rng = np.random.default_rng(4)
    for classes in (1, 2, 5):
        scores, values = rng.normal(size=(50, classes)), rng.normal(size=(9, classes))
        codes = rng.integers(0, 9, 50).astype(np.uint16)
        wanted = scores + values[codes]
        add_by_code(scores, codes, values)
        np.testing.assert_array_equal(scores, wanted)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_bodies_levels_and_threads_agree(level: int) -> None:
    rng = np.random.default_rng(5)
    table = mixed_table(rng, 20_000)
    scores, labels = rng.normal(size=(20_000, 3)), rng.integers(0, 3, 20_000)

    def everything(jobs: int) -> list[np.ndarray]:
        cut = Candidates.of(table, n_jobs=jobs)
        pairs, loss = logit_pairs(scores, labels, n_jobs=jobs)
        sums = histograms(cut.packed, pairs, n_jobs=jobs)
        cuts = best_cuts(sums, cut.packed.offsets, cut.discrete, cut.missing)
        moved = scores.copy()
        add_by_code(moved, cut.packed.joint[0], np.arange(3072.0).reshape(1024, 3), n_jobs=jobs)
        return [cut.packed.joint, pairs, np.array(loss), sums, cuts.gain, cuts.cut, cuts.side, moved]

    with native_level(level):
        found = everything(1)
        for one, other in zip(found, everything(3), strict=True):
            np.testing.assert_array_equal(one, other)
    with choice.use("numpy"):
        for one, other in zip(found, everything(1), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_words_hold_as_many_columns_as_fit() -> None:
    rng = np.random.default_rng(6)
    many = Candidates.of(rng.integers(0, 2, (5000, 50)))
    assert len(many.packed.sizes) == 5
    assert many.packed.sizes.max() == 1024
    wide = Candidates.of(rng.normal(size=(5000, 6)))
    assert wide.packed.sizes.tolist() == [1024] * 3
    assert len(Candidates.of(rng.normal(size=(100, 2)), max_bins=255).packed.sizes) == 2


def test_what_does_not_fit_is_refused(body: str) -> None:
    cut = Candidates.of(np.arange(6.0).reshape(3, 2))
    good = np.ones((1, 3, 2))
    with pytest.raises(ShapeError, match="pairs"):
        histograms(cut.packed, np.ones((1, 4, 2)))
    with pytest.raises(ShapeError, match="rows"):
        histograms(cut.packed, good, np.array([3]))
    with pytest.raises(ShapeError, match="sums"):
        best_cuts(np.ones((1, 5, 2)), cut.packed.offsets, cut.discrete, cut.missing)
    with pytest.raises(ShapeError, match="labels"):
        logit_pairs(np.zeros((2, 2)), np.array([0, 2]))
    with pytest.raises(ShapeError, match="code lies outside"):
        packed(1, np.array([2]), np.array([[2]], np.uint8), np.array([0]))
    with pytest.raises(ShapeError, match="thresholds"):
        bin_codes(np.ones((1, 1)), [np.arange(255.0)])


@needs_native
def test_the_compiled_body_checks_for_itself() -> None:
    from crfield.kernels import _boost  # type: ignore[attr-defined]

    cut = Candidates.of(np.arange(6.0).reshape(3, 2)).packed
    pairs, out = np.ones((1, 3, 2)), np.zeros((1, int(cut.offsets[-1]), 2))
    given = {
        "joint": cut.joint,
        "sizes": cut.sizes,
        "word": cut.word,
        "stride": cut.stride,
        "offsets": cut.offsets,
        "indptr": cut.indptr,
        "entries": cut.entries,
        "codes": cut.codes,
        "sparse": cut.sparse,
        "zero": cut.zero,
        "pairs": pairs,
        "rows": None,
        "out": out,
        "n_jobs": 1,
    }
    _boost.histograms(**given)
    for name, value in {
        "joint": cut.joint[:, :2].copy(),
        "sizes": cut.sizes + 1,
        "word": cut.word + 5,
        "stride": cut.stride * 0,
        "offsets": cut.offsets[::-1].copy(),
        "indptr": np.array([0, 4]),
        "sparse": np.array([9]),
        "rows": np.array([-1], np.int32),
        "out": out[:, 1:].copy(),
    }.items():
        with pytest.raises(ValueError, match=r"\w"):
            _boost.histograms(**{**given, name: value})
    _boost.histograms(**{**given, "joint": np.full_like(cut.joint, 65535)})  # nonsense in, nonsense out, no crash
    with pytest.raises(ValueError, match="code"):
        _boost.add_by_code(np.zeros((2, 2)), np.array([0, 3], np.uint16), np.zeros((3, 2)), 1)
