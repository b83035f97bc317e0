"""Stumps: the weak learners of one attribute, and the search for the best.

A stump cuts one column in two; an attribute with categories has a leaf for each. In both the best constants are
weighted means of the responses, and what they explain is the gain:

    α_lc = Σ_{i∈l} w_ic z_ic / (Σ_{i∈l} w_ic + ridge)          gain = Σ_c Σ_l (Σ w z)² / (Σ w + ridge)

That is the fall of Σ w (z − f)² (exactly so without ridge), so stumps, categories, trees and couplings are compared
on one scale. The cut is shared by all classes, as in the many-class form of Friedman, Hastie & Tibshirani (2000);
leaf values are raw here, and rounds apply `crfield.boosting.weak_learners.responses.centred`.

A search costs N · F additions for each class, or for one of two classes (see `crfield.kernels.boost`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.boosting.weak_learners.candidates import Candidates, Table, category_codes
from crfield.errors import ShapeError
from crfield.kernels.boost import best_cuts, histograms


@dataclass(frozen=True, eq=False)
class Stump:
    """One column, cut in two.

    >>> stump = Stump(0, 1.5, np.array([[-1.0, 1.0], [2.0, -2.0]]), 3.0)
    >>> stump.leaves(np.array([[1.0], [2.0], [np.nan]])).tolist()
    [0, 1, 1]
    >>> stump.apply(np.array([[1.0], [2.0]])).tolist()
    [[-1.0, 1.0], [2.0, -2.0]]
    """

    column: int
    threshold: float  # +∞ where known values stand against missing ones
    values: np.ndarray  # (2, K): at most the threshold, above it
    gain: float
    missing: int = 1  # the leaf of missing values

    def leaves(self, columns: Table | Candidates) -> np.ndarray:
        """0 or 1 for every row of columns (N, F), dense, sparse or as `Candidates`."""
        if isinstance(columns, Candidates):
            return _leaves_of_bins(columns, self)[columns.packed.column(self.column)]
        values = values_of(columns, self.column)
        above = values > self.threshold
        return np.where(np.isnan(values), self.missing, above).astype(np.int64)

    def apply(self, columns: Table | Candidates) -> np.ndarray:
        """Values (N, K)."""
        return self.values[self.leaves(columns)]

    def by_word(self, columns: Candidates) -> tuple[np.ndarray, np.ndarray]:
        """Values as codes (N,) and a table, where the column is dense."""
        return _by_word(columns, self.column, self.values[_leaves_of_bins(columns, self)])


@dataclass(frozen=True, eq=False)
class Categories:
    """One discrete column, with a leaf for each category and a last one for missing and unseen ones.

    >>> kinds = Categories(0, np.array([1.0, 3.0]), np.array([[-1.0, 1.0], [2.0, -2.0], [0.0, 0.0]]), 3.0)
    >>> kinds.leaves(np.array([[3.0], [1.0], [2.0]])).tolist()
    [1, 0, 2]
    """

    column: int
    categories: np.ndarray  # (C,)
    values: np.ndarray  # (C + 1, K)
    gain: float

    def leaves(self, columns: Table | Candidates) -> np.ndarray:
        """0 … C for every row of columns (N, F), dense, sparse or as `Candidates`."""
        if isinstance(columns, Candidates):
            return columns.packed.column(self.column).astype(np.int64)
        return category_codes(values_of(columns, self.column), self.categories)

    def apply(self, columns: Table | Candidates) -> np.ndarray:
        """Values (N, K)."""
        return self.values[self.leaves(columns)]

    def by_word(self, columns: Candidates) -> tuple[np.ndarray, np.ndarray]:
        """Values as codes (N,) and a table, where the column is dense."""
        return _by_word(columns, self.column, self.values)


def side_names(column: str, threshold: float, missing: int | None = None) -> tuple[str, str]:
    """Both sides of a cut in words; ``missing`` is the side of missing values where there were any.

    >>> side_names("speed", 1.5), side_names("speed", 1.5, missing=0)
    (('speed <= 1.5', 'speed > 1.5'), ('speed <= 1.5 or missing', 'speed > 1.5'))
    >>> side_names("speed", np.inf, missing=1)
    ('speed is known', 'speed is missing')
    """
    if np.isposinf(threshold):
        return f"{column} is known", f"{column} is missing"
    words = [f"{column} <= {threshold:.6g}", f"{column} > {threshold:.6g}"]
    if missing is not None:
        words[missing] += " or missing"
    return words[0], words[1]


def _by_word(columns: Candidates, column: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The joint codes that hold a dense column, and the values (…, K) of each from those of its bins (bins, K)."""
    packed = columns.packed
    word, bins = int(packed.word[column]), len(values)
    return packed.joint[word], values[np.arange(packed.sizes[word]) // packed.stride[column] % bins]


def values_of(columns: Table, column: int) -> np.ndarray:
    """One column (N,) of a dense or sparse table."""
    if column >= columns.shape[1]:
        raise ShapeError(f"the learner reads column {column}, but there are {columns.shape[1]} columns.")
    values = columns[:, [column]]
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64).reshape(-1)


def _leaves_of_bins(columns: Candidates, stump: Stump) -> np.ndarray:
    """The leaf of every bin of the stump's column."""
    thresholds = columns.thresholds[stump.column]
    bins = np.arange(len(thresholds) + 1 + int(columns.missing[stump.column]))
    leaf = (bins > np.searchsorted(thresholds, stump.threshold)).astype(np.int64)
    leaf[len(thresholds) + 1 :] = stump.missing
    return leaf


def pairs_of(weight: np.ndarray, response: np.ndarray, n_rows: int) -> tuple[np.ndarray, bool]:
    """(w, w z) as the kernels read them, (C, N, 2); with two mirrored classes the second alone, and True."""
    weight, response = np.asarray(weight, np.float64), np.asarray(response, np.float64)
    if response.ndim != 2 or len(response) != n_rows or weight.shape != response.shape or response.shape[1] < 1:
        raise ShapeError(
            f"weight and response must be ({n_rows}, n_classes), got {weight.shape} and {response.shape}."
        )
    mirrored = (
        response.shape[1] == 2
        and bool(np.array_equal(weight[:, 0], weight[:, 1]))
        and bool(np.array_equal(response[:, 0], -response[:, 1]))
    )
    first = 1 if mirrored else 0
    pairs = np.empty((response.shape[1] - first, n_rows, 2))
    pairs[:, :, 0] = weight[:, first:].T
    np.multiply(weight[:, first:].T, response[:, first:].T, out=pairs[:, :, 1])
    return pairs, mirrored


def leaf_values(sums: np.ndarray, ridge: float, *, mirrored: bool) -> np.ndarray:
    """Σ w z / (Σ w + ridge), 0 without weight, as (leaves, K) from sums (C, leaves, 2)."""
    below = sums[..., 0] + ridge
    values = np.divide(sums[..., 1], below, out=np.zeros_like(below), where=sums[..., 0] > 0).T
    return np.concatenate([-values, values], axis=1) if mirrored else np.ascontiguousarray(values)


def best_stump(
    candidates: Candidates, weight: np.ndarray, response: np.ndarray, *, ridge: float = 0.0, n_jobs: int = 1
) -> Stump | Categories | None:
    """The stump of largest gain for weights and responses (N, K), with raw leaf values; None if nothing can be cut.

    >>> cut = Candidates.of([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0]])
    >>> z = np.array([[2.0], [-1.0], [-3.0]])
    >>> best = best_stump(cut, np.ones((3, 1)), z)
    >>> best.column, best.threshold, best.values.tolist(), best.gain
    (0, 0.5, [[2.0], [-2.0]], 12.0)
    """
    pairs, mirrored = pairs_of(weight, response, candidates.n_rows)
    sums = histograms(candidates.packed, pairs, n_jobs=n_jobs)
    return stump_of(candidates, sums, ridge=ridge, mirrored=mirrored)


def stump_of(
    candidates: Candidates, sums: np.ndarray, *, ridge: float = 0.0, mirrored: bool = False
) -> Stump | Categories | None:
    """The best stump from sums by bin (C, T, 2)."""
    packed = candidates.packed
    cuts = best_cuts(sums, packed.offsets, candidates.discrete, candidates.missing, ridge=ridge)
    f = cuts.column
    if f is None:
        return None
    gain = float(cuts.gain[f]) * (2 if mirrored else 1)
    own = sums[:, packed.offsets[f] : packed.offsets[f + 1]]
    if candidates.discrete[f]:
        return Categories(f, candidates.thresholds[f], leaf_values(own, ridge, mirrored=mirrored), gain)
    threshold, leaves, missing = cut_leaves(candidates, own, f, int(cuts.cut[f]), int(cuts.side[f]))
    return Stump(f, threshold, leaf_values(leaves, ridge, mirrored=mirrored), gain, missing)


def cut_leaves(candidates: Candidates, own: np.ndarray, f: int, cut: int, side: int) -> tuple[float, np.ndarray, int]:
    """Threshold, sums of the two leaves (C, 2, 2), and the leaf of missing values, of one column's cut."""
    thresholds = candidates.thresholds[f]
    n = len(thresholds) + 1
    leaves = np.stack([own[:, : cut + 1].sum(axis=1), own[:, cut + 1 : n].sum(axis=1)], axis=1)
    if candidates.missing[f]:
        leaves[:, side] += own[:, n:].sum(axis=1)
    else:  # none were seen: they go where most rows went
        side = int(leaves[:, 1, 0].sum() >= leaves[:, 0, 0].sum())
    return (float(thresholds[cut]) if cut < n - 1 else np.inf), leaves, side
