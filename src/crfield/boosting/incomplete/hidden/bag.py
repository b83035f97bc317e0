"""A bag of points, each of which may lie on the object or not: visual words with hidden foreground.

An image is a count n_j of each word j, t = Σ_j n_j points in all. h says of every point whether it is in the
foreground; m_j of the n_j are. Columns are n_j / t, always seen, and those that depend on h: m_j / t (foreground)
and (n_j − m_j) / t (background). The prior takes points as independent, π_j for a point of word j, so with
d_o, d_b = the score of one point of word j in the foreground, in the background,

    Σ_h q₀(h) e^s = Π_j [π_j e^{d_o} + (1 − π_j) e^{d_b}]^{n_j}         r_j = π_j e^{d_o} / [ … ]

and r_j is the share of the foreground under the tilted prior: 2^t terms for O(words) of work. Where the foreground of
a word is known, r_j = m_j / n_j and the bracket is e^{r d_o + (1 − r) d_b}. It may be known for some words of an
image and not for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.boosting.incomplete.cells import Cells
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.kernels import incomplete


@dataclass(frozen=True, eq=False)
class BagPart:
    """Counts (N, K) in CSR form, the known foreground counts of its entries (NaN: hidden), and π (K,).

    >>> import scipy.sparse as sp
    >>> bag = BagPart(sp.csr_array([[2.0, 0.0], [1.0, 1.0]]), np.array([np.nan, 1.0, 0.0]), np.array([0.5, 0.5]))
    >>> bag.observed.tolist(), bag.prior_columns().toarray().tolist()
    ([False, True], [[0.5, 0.0, 0.5, 0.0], [0.5, 0.0, 0.0, 0.5]])
    """

    counts: Any  # (N, K) CSR
    foreground: np.ndarray  # (nnz,)
    prior: np.ndarray  # (K,)

    @property
    def n_columns(self) -> int:
        """2K: foreground, then background."""
        return 2 * int(self.counts.shape[1])

    @cached_property
    def points(self) -> np.ndarray:
        """(N,) t, at least 1."""
        return np.maximum(np.asarray(self.counts.sum(axis=1)).ravel(), 1.0)

    @property
    def mass(self) -> np.ndarray:
        """(N,) Σ_j n_j / t."""
        return np.asarray(self.counts.sum(axis=1)).ravel() / self.points

    @cached_property
    def rows(self) -> np.ndarray:
        """(nnz,) the datum of each entry."""
        return np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))

    @cached_property
    def observed(self) -> np.ndarray:
        """(N,) whether the foreground of all words of a datum is known."""
        return np.bincount(self.rows, np.isnan(self.foreground), self.counts.shape[0]) == 0

    @cached_property
    def shares(self) -> np.ndarray:
        """(nnz,) expected share of the foreground: π where hidden."""
        known = self.foreground / self.counts.data
        return np.where(np.isnan(known), self.prior[self.counts.indices], known)

    def scaled(self) -> Any:
        """(N, K) n_j / t: the columns that are always seen."""
        return self._like(self.counts.data / self.points[self.rows])

    def prior_columns(self) -> Any:
        """(N, 2K) expected columns under the prior."""
        return self.columns_of(self.shares * self.counts.data)

    def columns_of(self, foreground: np.ndarray) -> Any:
        """(N, 2K) columns of given foreground counts (nnz,)."""
        from scipy.sparse import csr_array, hstack

        share = self.points[self.rows]
        both = self._like(foreground / share), self._like((self.counts.data - foreground) / share)
        return csr_array(hstack(both, format="csr"))

    def sums(self, table: np.ndarray, labels: np.ndarray | None = None) -> BagSums:
        """Sums over all foregrounds for a table of weights (2K, Y)."""
        logs, tilted = incomplete.bag_sums(
            self.counts, self._per_point, self.shares, self._hidden, *self._log_prior, table, labels
        )
        return BagSums(self, np.ascontiguousarray(logs.T), tilted)

    @cached_property
    def _hidden(self) -> np.ndarray:
        return np.isnan(self.foreground)

    @cached_property
    def _per_point(self) -> np.ndarray:
        return 1.0 / self.points[self.rows]

    @cached_property
    def _log_prior(self) -> tuple[np.ndarray, np.ndarray]:
        at = self.counts.indices
        with np.errstate(divide="ignore"):
            return np.log(self.prior)[at], np.log1p(-self.prior)[at]

    def draw(self, n_samples: int, rng: np.random.Generator) -> Cells:
        """Cells of ``n_samples`` foregrounds drawn from the prior for every datum that is not observed."""
        from scipy.sparse import csr_array, hstack

        hidden, size = np.isnan(self.foreground), self.counts.data
        if (size[hidden] != np.floor(size[hidden])).any():
            raise InputError("samples of a bag need integer counts of points, got fractions in X.")
        n, words = self.counts.shape
        runs = np.where(self.observed, 1, n_samples)
        offsets = np.concatenate([[0], np.cumsum(runs)])
        owner = np.repeat(np.arange(n), runs)
        # The entries of a datum, once for each of its cells.
        lengths = np.diff(self.counts.indptr)[owner]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entry = np.repeat(self.counts.indptr[owner] - indptr[:-1], lengths) + np.arange(indptr[-1])
        drawn = rng.binomial(np.floor(size[entry]).astype(np.int64), self.shares[entry])
        on = np.where(hidden[entry], drawn, np.where(hidden, 0.0, self.foreground)[entry])
        share, at, shape = self.points[self.rows[entry]], self.counts.indices[entry], (len(owner), words)
        both = (csr_array((m / share, at, indptr), shape) for m in (on, size[entry] - on))
        return Cells(offsets, 1.0 / runs[owner], csr_array(hstack(list(both), format="csr")))

    def _like(self, values: np.ndarray) -> Any:
        from scipy.sparse import csr_array

        return csr_array((values, self.counts.indices, self.counts.indptr), self.counts.shape)


@dataclass(frozen=True, eq=False)
class BagSums:
    """Sums over the foregrounds of a bag."""

    part: BagPart
    logs: np.ndarray  # (Y, N)
    tilted: np.ndarray  # (nnz, Y) r_j

    def expected(self, weight: np.ndarray, *, by_label: np.ndarray | None = None) -> np.ndarray:
        """(2K, Y) Σ_i weight(y, i) · E[columns | i, y], gathered by y or by the label of i."""
        part, rows = self.part, np.ascontiguousarray(weight.T)
        return incomplete.bag_expected(part.counts, part._per_point, self.tilted, rows, by_label)


def foreground_of(hidden: Any, counts: Any) -> np.ndarray:
    """(nnz,) foreground counts of the entries of ``counts`` (N, K), NaN where hidden.

    ``hidden`` is None, or has one row for each datum: None, or foreground counts (K,) with NaN for words of which
    nothing is known; also as one table (N, K), dense or sparse.

    >>> import scipy.sparse as sp
    >>> foreground_of([None, [1, 0]], sp.csr_array([[2.0, 0.0], [1.0, 1.0]])).tolist()
    [nan, 1.0, 0.0]
    """
    n, words = counts.shape
    if hidden is None:
        return np.full(counts.nnz, np.nan)
    if hasattr(hidden, "toarray"):
        hidden = hidden.toarray()
    if len(hidden) != n:
        raise ShapeError(
            f"hidden must have one row for each of {n} data, None where it is unknown, got {len(hidden)}."
        )
    out = np.full(counts.nnz, np.nan)
    for i, row in enumerate(hidden):
        start, stop = counts.indptr[i], counts.indptr[i + 1]
        if row is None:
            continue
        row = row.toarray().ravel() if hasattr(row, "toarray") else np.asarray(row, dtype=np.float64)
        if row.shape != (words,):
            raise ShapeError(f"hidden[{i}] must be the foreground counts of {words} words, got shape {row.shape}.")
        found = row[counts.indices[start:stop]]
        if (found < 0).any() or (found > counts.data[start:stop]).any() or np.nansum(row) != np.nansum(found):
            raise FeatureError(f"hidden[{i}]: foreground counts must lie between 0 and the counts in X[{i}].")
        out[start:stop] = found
    return out
