"""Candidates: the columns of one data set, cut into bins once, for all rounds to search.

A stump that may cut anywhere must sort; one that chooses among 31 quantiles reads sums of 32 bins, and is as good in
practice. A column with at most ``max_bins`` different values is cut between each two of them, so nothing is lost for
binary or graded columns. Cuts lie halfway between two values that occur.

Missing values (NaN) are a bin of their own, and a stump sends them to the side where they do less harm, or makes them
a side. Infinity is refused: no halfway exists. Discrete columns are not cut: every category is a leaf; missing values
and, beyond the most frequent 255, rare ones share another, which is also where unseen categories go.

Cutting sorts each column, or a sample of 32,768 rows if there are more than twice as many; a column that shows few
values there is checked for others. A row takes 2 bytes for each word of columns (see `crfield.kernels.boost`). Sparse
matrices keep their entries alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from crfield.core.checks import integer
from crfield.errors import FeatureError, ShapeError
from crfield.kernels.boost import MOST_BINS, PackedColumns, bin_codes, packed

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Table: TypeAlias = "np.ndarray | csr_array"  # (N, F) columns of rows, dense or sparse
SAMPLE = 1 << 15  # rows whose quantiles stand for those of more than twice as many
COLUMNS_AT_ONCE = 64
BINS = integer(2, most=MOST_BINS - 1)  # what ``max_bins`` must be


class Candidates:
    """Columns (N, F) cut into bins.

    >>> cut = Candidates.of([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    >>> cut.n_rows, cut.n_columns, [t.tolist() for t in cut.thresholds]
    (3, 2, [[1.5, 3.0], [0.5]])
    """

    def __init__(
        self, columns: PackedColumns, thresholds: list[np.ndarray], discrete: np.ndarray, missing: np.ndarray
    ) -> None:
        self.packed = columns
        self.thresholds = thresholds  # of each column; of a discrete one its categories
        self.discrete = discrete  # (F,) bool
        self.missing = missing  # (F,) bool: the last bin holds missing values

    @property
    def n_rows(self) -> int:
        """N."""
        return self.packed.n_rows

    @property
    def n_columns(self) -> int:
        """F."""
        return self.packed.n_columns

    @classmethod
    def of(cls, columns: Any, *, max_bins: int = 32, discrete: Iterable[int] = (), n_jobs: int = 1) -> Self:
        """Cut columns, (N, F) numbers or a scipy sparse matrix; ``discrete`` lists those that hold categories."""
        BINS("max_bins", max_bins)
        sparse = hasattr(columns, "tocsc")
        table = columns.tocsc() if sparse else _numbers(columns)
        n_rows, n_columns = table.shape
        chosen = np.zeros(n_columns, bool)
        for f in discrete:
            if not -n_columns <= f < n_columns:
                raise ShapeError(f"discrete names column {f}, but there are {n_columns} columns.")
            chosen[f] = True
        if sparse:
            return cls._of_sparse(table, chosen, max_bins)
        cuts, known = _thresholds(table, chosen, max_bins)
        codes, missing, infinite = bin_codes(table, [at[: MOST_BINS - 2] for at in cuts], n_jobs=n_jobs)
        if infinite.any():
            f = int(np.flatnonzero(infinite)[0])
            raise _infinite(f, int(np.flatnonzero(np.isinf(table[:, f]))[0]))
        bins = np.array([len(at) + 1 for at in cuts], np.int64) + (missing & ~chosen)
        for f, values in known.items():
            column = table[:, f].astype(np.float64)
            if chosen[f]:
                codes[f] = category_codes(column, values)
            elif not (np.append(values, np.nan)[np.minimum(codes[f], len(values))] == column)[
                ~np.isnan(column)
            ].all():
                # the sample missed some of the few values
                whole = np.sort(column[~np.isnan(column)])
                cuts[f] = thresholds_of(whole, max_bins)
                codes[f] = bin_codes(column[:, None], [cuts[f]])[0][0]
                bins[f] = len(cuts[f]) + 1 + int(missing[f])
        missing &= ~chosen
        return cls(packed(n_rows, bins, codes, np.arange(n_columns), n_jobs=n_jobs), cuts, chosen, missing)

    @classmethod
    def _of_sparse(cls, table: Any, discrete: np.ndarray, max_bins: int) -> Self:
        table = table.copy() if not table.has_canonical_format else table
        table.sum_duplicates()
        n_rows, n_columns = table.shape
        bins, missing, cuts = np.ones(n_columns, np.int64), np.zeros(n_columns, bool), []
        codes, zero = np.empty(len(table.data), np.uint8), np.zeros(n_columns, np.int64)
        for f in range(n_columns):
            place = slice(table.indptr[f], table.indptr[f + 1])
            values = table.data[place].astype(np.float64)
            if np.isinf(values).any():
                raise _infinite(f, int(table.indices[place][np.isinf(values)][0]))
            gaps = np.isnan(values)
            missing[f] = bool(gaps.any())
            kinds, counts = _with_zeros(values[~gaps], n_rows - len(values))
            # one more value, zero, tells the bin of the rows that have no entry
            asked = np.append(values, 0.0)
            if discrete[f]:
                at = _frequent(kinds, counts)
                some, bins[f] = category_codes(asked, at), len(at) + 1
            else:
                at = _between(kinds, np.cumsum(counts), max_bins)
                some = np.where(np.isnan(asked), len(at) + 1, np.searchsorted(at, asked, side="left"))
                bins[f] = len(at) + 1 + int(missing[f])
            codes[place], zero[f] = some[:-1], some[-1]
            cuts.append(at)
        missing &= ~discrete
        columns = packed(
            n_rows,
            bins,
            np.empty((0, n_rows), np.uint8),
            np.arange(0),
            indptr=table.indptr,
            entries=table.indices,
            entry_codes=codes,
            zero=zero,
        )
        return cls(columns, cuts, discrete, missing)


def _numbers(columns: Any) -> np.ndarray:
    table = np.asarray(columns)
    if table.ndim != 2:
        raise ShapeError(f"columns must be (n_rows, n_columns), got {table.shape}.")
    if table.dtype.kind not in "biuf":
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError):
            raise FeatureError(f"columns must be numbers, got an array of {table.dtype}.") from None
    return table


def _thresholds(
    table: np.ndarray, discrete: np.ndarray, max_bins: int
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """Thresholds of each column, or its categories; and the values of columns that have few, as far as seen."""
    n_rows, n_columns = table.shape
    sampled = n_rows > 2 * SAMPLE
    rows = np.sort(np.random.default_rng(0).choice(n_rows, SAMPLE, replace=False)) if sampled else slice(None)
    cuts, known = [], {}
    for first in range(0, n_columns, COLUMNS_AT_ONCE):
        some = table[:, first : first + COLUMNS_AT_ONCE][rows]
        for f, values in enumerate(np.sort(np.ascontiguousarray(some.T, np.float64), axis=1), start=first):
            if discrete[f]:
                known[f] = _categories(table[:, f].astype(np.float64))
                cuts.append(known[f])
                continue
            values = values[: np.searchsorted(values, np.nan)]
            cuts.append(thresholds_of(values, max_bins))
            if sampled:
                kinds = np.unique(values[np.append(np.diff(values) > 0, True)]) if len(values) else values
                if len(kinds) <= max_bins:
                    known[f] = kinds
    return cuts, known


def _infinite(column: int, entry: int) -> FeatureError:
    return FeatureError(
        f"column {column} is infinite at its entry {entry}. Use NaN where a value is missing, or clip it."
    )


def _categories(values: np.ndarray) -> np.ndarray:
    """The different values, or the most frequent ones if there are too many, sorted."""
    return _frequent(*np.unique(values[~np.isnan(values)], return_counts=True))


def _frequent(kinds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    if len(kinds) < MOST_BINS:
        return kinds
    return np.sort(kinds[np.argsort(-counts, kind="stable")[: MOST_BINS - 1]])


def category_codes(values: np.ndarray, categories: np.ndarray) -> np.ndarray:
    """Places of values among the sorted categories; their number where missing or unseen."""
    place = np.searchsorted(categories, values)
    place[place == len(categories)] = 0
    seen = categories[place] == values if len(categories) else np.zeros(len(values), bool)
    return np.where(seen, place, len(categories))


def thresholds_of(values: np.ndarray, max_bins: int) -> np.ndarray:
    """At most ``max_bins − 1`` cuts of sorted values: between all different ones if few, else at quantiles.

    >>> thresholds_of(np.array([1.0, 1.0, 2.0, 4.0]), 8).tolist()
    [1.5, 3.0]
    >>> thresholds_of(np.arange(100.0), 4).tolist()
    [24.5, 49.5, 74.5]
    """
    if not len(values):
        return np.zeros(0)
    last = np.append(np.flatnonzero(values[1:] > values[:-1]), len(values) - 1)  # the last place of each value
    return _between(values[last], last + 1, max_bins)


def _with_zeros(values: np.ndarray, n_zeros: int) -> tuple[np.ndarray, np.ndarray]:
    """Different values and how often each occurs, with so many zeros more."""
    kinds, counts = np.unique(values, return_counts=True)
    place = int(np.searchsorted(kinds, 0.0))
    if place < len(kinds) and kinds[place] == 0.0:
        counts[place] += n_zeros
    elif n_zeros:
        kinds, counts = np.insert(kinds, place, 0.0), np.insert(counts, place, n_zeros)
    return kinds, counts


def _between(kinds: np.ndarray, up_to: np.ndarray, max_bins: int) -> np.ndarray:
    """Cuts between different values, where ``up_to`` counts the values up to each."""
    cut = np.arange(len(kinds) - 1)  # a cut lies above the value of this number
    if len(kinds) > max_bins:
        # The value at each quantile and those equal to it lie below the cut.
        wanted = np.ceil(np.arange(1, max_bins) * (up_to[-1] / max_bins)).astype(np.int64)
        cut = np.unique(np.minimum(np.searchsorted(up_to, wanted), len(kinds) - 2))
    below, above = kinds[cut], kinds[cut + 1]
    middle = below / 2 + above / 2
    return np.where((middle >= below) & (middle < above), middle, below)
