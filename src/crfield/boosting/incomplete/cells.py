"""What the hidden part of each datum may be, listed one by one.

A *cell* is a datum together with one possible value of what is hidden in it. A datum with everything observed has one
cell; one whose part of speech is unknown among five has five; one that lacks two attributes of three values has nine.
Cells of one datum stand together, so that sums over h are sums over runs of an array, and data with nothing hidden
cost no more than they do in an ordinary classifier: M cells take O(nnz Y) per evaluation, not N times the most
values.

A cell of prior zero is not listed at all, which makes a prior that is a point mass the same thing as an observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class Cells:
    """M cells of N data: ``offsets`` (N + 1,) runs, ``prior`` (M,) of each in its run, ``columns`` (M, D₂).

    >>> import scipy.sparse as sp
    >>> cells = Cells(np.array([0, 1, 3]), np.array([1.0, 0.25, 0.75]), sp.csr_array(np.eye(3)))
    >>> cells.owner.tolist(), cells.n_columns
    ([0, 1, 1], 3)
    >>> cells.expected().columns.toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.25, 0.75]]
    """

    offsets: np.ndarray  # (N + 1,) int64
    prior: np.ndarray  # (M,)
    columns: Any  # (M, D₂) scipy.sparse CSR

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        prior = np.ascontiguousarray(self.prior, dtype=np.float64)
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(prior):
            raise ShapeError(f"offsets of cells must run from 0 to {len(prior)}, the number of cells.")
        if self.columns.shape[0] != len(prior):
            raise ShapeError(f"cells need one row of columns each: {len(prior)} cells, {self.columns.shape[0]} rows.")
        empty = np.flatnonzero(np.diff(offsets) < 1)
        if len(empty):
            raise InputError(
                f"datum {int(empty[0])} has no possible value of its hidden part: its prior is zero everywhere. "
                "Give every datum some value of positive prior."
            )
        if len(prior) and not (prior > 0).all():
            raise InputError("every cell must have a positive prior; leave out the others.")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "prior", prior)

    @classmethod
    def nothing_hidden(cls, n_data: int) -> Cells:
        """One cell without columns for each datum: an ordinary classifier.

        >>> Cells.nothing_hidden(3).n_cells
        3
        """
        from scipy.sparse import csr_array

        return cls(np.arange(n_data + 1), np.ones(n_data), csr_array((n_data, 0)))

    @property
    def n_data(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def n_cells(self) -> int:
        """M."""
        return len(self.prior)

    @property
    def n_columns(self) -> int:
        """D₂, the columns that depend on h."""
        return int(self.columns.shape[1])

    @cached_property
    def owner(self) -> np.ndarray:
        """(M,) the datum of each cell."""
        return np.repeat(np.arange(self.n_data), np.diff(self.offsets))

    @cached_property
    def log_prior(self) -> np.ndarray:
        """(M,) log q₀(h | x)."""
        return np.log(self.prior)

    @cached_property
    def single(self) -> bool:
        """Whether every datum has one cell only."""
        return self.n_cells == self.n_data

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Σ over the cells of each datum along the last axis, (…, M) to (…, N)."""
        if self.single:
            return values
        return np.add.reduceat(values, self.offsets[:-1], axis=-1)

    def log_sums(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log Σ_h exp v of each datum, (M,) to (N,), and exp v as shares of it (M,)."""
        if self.single:
            return values, np.ones(self.n_cells)
        top = np.maximum.reduceat(values, self.offsets[:-1])
        shares = np.exp(values - top[self.owner])
        total = self.sums(shares)
        shares /= total[self.owner]
        return top + np.log(total), shares

    def expected(self) -> Cells:
        """One cell for each datum with the expected columns Σ_h q₀(h | x) f₂(x, h)."""
        from scipy.sparse import csr_array

        mean = csr_array((self.prior, np.arange(self.n_cells), self.offsets), (self.n_data, self.n_cells))
        return Cells(np.arange(self.n_data + 1), np.ones(self.n_data), csr_array(mean @ self.columns))
