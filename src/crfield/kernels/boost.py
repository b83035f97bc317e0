"""Contract of the boosting kernels: sums by bin, and the best cut of every column.

Columns were cut into bins beforehand. A weak learner needs, for every column f, bin b and class c,

    H[c, f, b] = ( Σ_{i in b} w_ic ,  Σ_{i in b} w_ic z_ic )

and nothing else about the data: the best cut is found among the sums. Adding up is the whole cost of a round, N · F
additions for each class, and two things keep it down:

- **Joint codes.** Several columns share one 16-bit word per row, with as many joint bins as the product of theirs
  (at most `JOINT_BINS`, so that the table stays in the nearest cache). One addition serves all of them, and the sums
  of each are the margins of the joint table: two columns of 32 bins at once, ten binary ones.
- **Sparse columns** keep the rows that are not zero; the bin of zero is the total less the rest.

``pairs`` (C, N, 2) hold w and w z. Sums are in double precision and their order depends on nothing but the data, so
threads, which share out words and columns, do not show in the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels.choice import body

JOINT_BINS = 1024
MOST_BINS = 256  # of one column
NO_WEIGHT = 1e-12
LEAST_WEIGHT = 1e-6
TIE = 1e-10  # gains that differ by less are equal, so that rounding does not choose


def bin_codes(
    table: np.ndarray, thresholds: list[np.ndarray], *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes (F, N) of a table (N, F): the number of thresholds below a value, T + 1 for NaN with T thresholds.

    Also tells which columns (F,) have missing values, and which infinite ones.

    >>> codes, missing, infinite = bin_codes(np.array([[1.0], [2.0], [np.nan]]), [np.array([1.5])])
    >>> codes.tolist(), missing.tolist(), infinite.tolist()
    ([[0, 1, 2]], [True], [False])
    """
    table = np.ascontiguousarray(table, np.float32 if table.dtype == np.float32 else np.float64)
    if table.ndim != 2 or len(thresholds) != table.shape[1]:
        raise ShapeError(f"a table of {table.shape} needs thresholds for each column, got {len(thresholds)}.")
    lengths = np.array([len(own) for own in thresholds], np.int64)
    if len(lengths) and lengths.max() > MOST_BINS - 2:
        raise ShapeError(f"a column has at most {MOST_BINS - 2} thresholds, got {lengths.max()}.")
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int64)
    cuts = np.concatenate([np.zeros(0), *thresholds]).astype(np.float64)
    codes, seen = np.empty(table.shape[::-1], np.uint8), np.zeros(table.shape[1], np.uint8)
    body("boost").bin_codes(table, begin, cuts, codes, seen, n_jobs)
    return codes, (seen & 1).astype(bool), (seen & 2).astype(bool)


@dataclass(frozen=True, eq=False)
class PackedColumns:
    """Binned columns: dense ones as joint codes, sparse ones by entry. Made by `packed`."""

    n_rows: int
    offsets: np.ndarray  # (F + 1,) int64, where each column's bins begin among all T bins
    word: np.ndarray  # (F,) int32, the word that holds the column, -1 where sparse
    stride: np.ndarray  # (F,) int32, code = joint // stride % bins
    sizes: np.ndarray  # (G,) int64, joint bins of each word
    joint: np.ndarray  # (G, N) uint16
    sparse: np.ndarray  # (S,) int64, which columns are sparse
    indptr: np.ndarray  # (S + 1,) int64
    entries: np.ndarray  # (Z,) int32, rows
    codes: np.ndarray  # (Z,) uint8
    zero: np.ndarray  # (S,) int64, the bin of zero

    @property
    def n_columns(self) -> int:
        """F."""
        return len(self.offsets) - 1

    def column(self, f: int) -> np.ndarray:
        """Bins (N,) of one column."""
        if self.word[f] >= 0:
            bins = self.offsets[f + 1] - self.offsets[f]
            joint = self.joint[self.word[f]]
            divided = joint if self.stride[f] == 1 else joint // np.uint16(self.stride[f])
            return divided if self.stride[f] * bins >= self.sizes[self.word[f]] else divided % np.uint16(bins)
        s = int(np.searchsorted(self.sparse, f))
        found = np.full(self.n_rows, self.zero[s], np.uint16)
        place = slice(self.indptr[s], self.indptr[s + 1])
        found[self.entries[place]] = self.codes[place]
        return found


def packed(
    n_rows: int,
    bins: np.ndarray,
    codes: np.ndarray,
    dense: np.ndarray,
    *,
    indptr: np.ndarray | None = None,
    entries: np.ndarray | None = None,
    entry_codes: np.ndarray | None = None,
    zero: np.ndarray | None = None,
    joint_bins: int = JOINT_BINS,
    n_jobs: int = 1,
) -> PackedColumns:
    """Columns with ``bins`` (F,) bins each; codes (D, N) of the columns ``dense`` (D,), the others by entry.

    >>> two = packed(3, np.array([2, 3]), np.array([[0, 1, 1], [2, 1, 0]], np.uint8), np.array([0, 1]))
    >>> two.joint.tolist(), two.column(1).tolist()
    ([[4, 3, 1]], [2, 1, 0])
    """
    bins, dense = np.asarray(bins, np.int64), np.asarray(dense, np.int64)
    codes = np.ascontiguousarray(codes, np.uint8)
    if len(bins) and (bins.min() < 1 or bins.max() > MOST_BINS):
        raise ShapeError(f"a column has 1 to {MOST_BINS} bins, got {bins.min()} … {bins.max()}.")
    if codes.shape != (len(dense), n_rows):
        raise ShapeError(f"codes of {len(dense)} columns must be ({len(dense)}, {n_rows}), got {codes.shape}.")
    if codes.size and (codes.max(axis=1) >= bins[dense]).any():
        raise ShapeError("a code lies outside its column's bins.")
    word, stride = np.full(len(bins), -1, np.int32), np.ones(len(bins), np.int32)
    sizes: list[int] = []
    # A joint table is emptied and read for every call, so small data get small tables.
    most = min(joint_bins, max(64, n_rows // 4))
    # Columns with few bins first: they share words among themselves, at ten or so a word.
    for f in dense[np.argsort(bins[dense], kind="stable")]:
        if not sizes or sizes[-1] * bins[f] > most:
            sizes.append(1)
        word[f], stride[f] = len(sizes) - 1, sizes[-1]
        sizes[-1] *= int(bins[f])
    joint = np.zeros((len(sizes), n_rows), np.uint16)
    body("boost").code_words(codes, stride[dense], word[dense], joint, n_jobs)
    sparse = np.setdiff1d(np.arange(len(bins)), dense)
    return PackedColumns(
        n_rows,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(bins)]).astype(np.int64),
        word,
        stride,
        np.array(sizes, np.int64),
        joint,
        sparse.astype(np.int64),
        np.zeros(1, np.int64) if indptr is None else np.ascontiguousarray(indptr, np.int64),
        np.zeros(0, np.int32) if entries is None else np.ascontiguousarray(entries, np.int32),
        np.zeros(0, np.uint8) if entry_codes is None else np.ascontiguousarray(entry_codes, np.uint8),
        np.zeros(0, np.int64) if zero is None else np.ascontiguousarray(zero, np.int64),
    )


def histograms(
    columns: PackedColumns, pairs: np.ndarray, rows: np.ndarray | None = None, *, n_jobs: int = 1
) -> np.ndarray:
    """Sums (C, T, 2) of pairs (C, N, 2) by bin, over all rows or the given ones (each at most once).

    >>> two = packed(3, np.array([2, 3]), np.array([[0, 1, 1], [2, 1, 0]], np.uint8), np.array([0, 1]))
    >>> pairs = np.array([[[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]]])
    >>> histograms(two, pairs)[0].tolist()
    [[1.0, 5.0], [5.0, 13.0], [3.0, 7.0], [2.0, 6.0], [1.0, 5.0]]
    >>> histograms(two, pairs, np.array([0, 2]))[0, :2].tolist()
    [[1.0, 5.0], [3.0, 7.0]]
    """
    pairs = np.ascontiguousarray(pairs, np.float64)
    if pairs.ndim != 3 or pairs.shape[1:] != (columns.n_rows, 2):
        raise ShapeError(f"pairs must be (n_classes, {columns.n_rows}, 2), got {pairs.shape}.")
    if rows is not None:
        rows = np.ascontiguousarray(rows, np.int32)
        if rows.ndim != 1 or (len(rows) and (rows.min() < 0 or rows.max() >= columns.n_rows)):
            raise ShapeError(f"rows must be numbers in 0 … {columns.n_rows - 1}.")
    out = np.zeros((len(pairs), int(columns.offsets[-1]), 2))
    body("boost").histograms(
        columns.joint,
        columns.sizes,
        columns.word,
        columns.stride,
        columns.offsets,
        columns.indptr,
        columns.entries,
        columns.codes,
        columns.sparse,
        columns.zero,
        pairs,
        rows,
        out,
        n_jobs,
    )
    return out


@dataclass(frozen=True, eq=False)
class Cuts:
    """The best cut of every column: gain (F,), −∞ where none; last bin of the lower side; where missing values go."""

    gain: np.ndarray  # (F,)
    cut: np.ndarray  # (F,) int32
    side: np.ndarray  # (F,) int32, 0 or 1

    @property
    def column(self) -> int | None:
        """The first column whose gain is the largest, up to `TIE`; None if nothing can be cut.

        >>> Cuts(np.array([2.0, 3.0, 3.0 + 1e-15]), np.zeros(3, int), np.zeros(3, int)).column
        1
        """
        if not len(self.gain) or not np.isfinite(self.gain).any():
            return None
        return int(np.argmax(self.gain >= self.gain.max() * (1.0 - TIE)))


def best_cuts(
    sums: np.ndarray,
    offsets: np.ndarray,
    nominal: np.ndarray,
    missing: np.ndarray,
    *,
    ridge: float = 0.0,
    counts: np.ndarray | None = None,
    least: float = 0.0,
    n_jobs: int = 1,
) -> Cuts:
    """The cut of every column with the largest gain Σ_c Σ_leaf (Σ w z)² / (Σ w + ridge), from sums (C, T, 2).

    A numeric column's leaves are bins up to the cut and bins above it; its last bin may hold missing values
    (``missing`` (F,)), which go with the better side or stand alone. A ``nominal`` column has a leaf for every bin.
    Leaves must have weight (more than `NO_WEIGHT` of all: less is the rounding of differences), and ``counts`` (T,)
    of at least ``least`` rows if given. Ties (up to `TIE`) go to the first cut.

    >>> sums = np.array([[[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]]])
    >>> cuts = best_cuts(sums, np.array([0, 3]), np.array([False]), np.array([False]))
    >>> cuts.gain.tolist(), cuts.cut.tolist()
    ([3.0], [1])
    """
    sums, offsets = np.ascontiguousarray(sums, np.float64), np.ascontiguousarray(offsets, np.int64)
    columns = len(offsets) - 1
    nominal, missing = np.ascontiguousarray(nominal, np.uint8), np.ascontiguousarray(missing, np.uint8)
    counted = np.zeros(0) if counts is None else np.ascontiguousarray(counts, np.float64)
    if sums.ndim != 3 or sums.shape[1:] != (offsets[-1], 2) or offsets[0] or (np.diff(offsets) < 1).any():
        raise ShapeError(f"sums must be (n_classes, {offsets[-1]}, 2), got {sums.shape}.")
    if nominal.shape != (columns,) or missing.shape != (columns,) or len(counted) not in (0, sums.shape[1]):
        raise ShapeError(
            f"nominal and missing must have an entry for each of {columns} columns, counts for each bin."
        )
    found = Cuts(np.empty(columns), np.empty(columns, np.int32), np.empty(columns, np.int32))
    body("boost").best_cuts(
        sums,
        offsets,
        nominal,
        missing,
        float(ridge),
        counted,
        float(least),
        found.gain,
        found.cut,
        found.side,
        n_jobs,
    )
    return found


def logit_pairs(
    scores: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    limit: float = 4.0,
    least: float = LEAST_WEIGHT,
    out: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[np.ndarray, float]:
    """Working pairs (C, N, 2) of scores (N, K), and Σ −log p(label); rows may have a ``weight`` (N,).

        p = softmax(scores)   w = max(p (1 − p), least)   z = (1[y = c] − p) / w, clipped to ±limit

    With two classes C = 1: the pair is that of class 1, and class 0 has (w, −w z). A label of −1 is unknown, and its
    row counts nothing.

    >>> pairs, loss = logit_pairs(np.zeros((2, 2)), np.array([1, 0]))
    >>> pairs.tolist(), round(loss, 4)
    ([[[0.25, 0.5], [0.25, -0.5]]], 1.3863)
    """
    scores, labels = np.ascontiguousarray(scores, np.float64), np.ascontiguousarray(labels, np.int32)
    if scores.ndim != 2 or scores.shape[1] < 1 or labels.shape != scores.shape[:1]:
        raise ShapeError(
            f"scores must be (n_rows, n_classes) and labels (n_rows,), got {scores.shape}, {labels.shape}."
        )
    rows, classes = scores.shape
    if rows and (labels.min() < -1 or labels.max() >= classes):
        raise ShapeError(f"labels must lie in -1 … {classes - 1}, got {labels.min()} … {labels.max()}.")
    if weight is not None:
        weight = np.ascontiguousarray(weight, np.float64)
        if weight.shape != (rows,):
            raise ShapeError(f"weight must have one entry for each of {rows} rows, got {weight.shape}.")
    if out is None:
        out = np.empty((1 if classes == 2 else classes, rows, 2))
    loss = body("boost").logit_pairs(scores, labels, weight, float(limit), float(least), out, n_jobs)
    return out, float(loss)


def add_by_code(scores: np.ndarray, codes: np.ndarray, values: np.ndarray, *, n_jobs: int = 1) -> None:
    """scores (N, K) += values[codes], in place, for codes (N,) of 16 bits.

    >>> scores = np.zeros((2, 2))
    >>> add_by_code(scores, np.array([1, 0], np.uint16), np.array([[1.0, -1.0], [2.0, -2.0]]))
    >>> scores.tolist()
    [[2.0, -2.0], [1.0, -1.0]]
    """
    values = np.ascontiguousarray(values, np.float64)
    if scores.ndim != 2 or values.ndim != 2 or values.shape[1] != scores.shape[1] or len(codes) != len(scores):
        raise ShapeError(f"scores {scores.shape}, codes {codes.shape} and values {values.shape} do not fit.")
    body("boost").add_by_code(scores, codes, values, n_jobs)
