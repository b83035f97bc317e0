"""Encoded data: columns and a topology, without labels.

An encoder (room `features`) turns whatever the user has into `Columns`: for each node a sparse row of active
column numbers, with values where the features are numeric, and beside it a dense block for arrays such as
sensor channels or embeddings. A `Batch` is the columns of the nodes, optionally columns of the edges (for
features that look at a pair of neighbouring labels), and the chains they lie on. One sequence is a batch of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Columns:
    """R rows of features: a sparse part of ``width`` columns and a dense part of D columns.

    ``values`` is None when every active sparse column has the value one. Both parts may be empty.

    >>> import numpy as np
    >>> columns = Columns.from_rows([[0, 2], [], [1]], width=3)
    >>> columns.n_rows, columns.indices.tolist(), columns.n_dense
    (3, [0, 2, 1], 0)
    """

    indptr: np.ndarray  # (R + 1,) int64
    indices: np.ndarray  # (nnz,) int32, each below width
    width: int
    values: np.ndarray | None = None  # (nnz,) float64
    dense: np.ndarray | None = None  # (R, D) float64, C-contiguous; None when D = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "indptr", np.ascontiguousarray(self.indptr, dtype=np.int64))
        object.__setattr__(self, "indices", np.ascontiguousarray(self.indices, dtype=np.int32))
        rows = len(self.indptr) - 1
        if self.values is not None:
            object.__setattr__(self, "values", np.ascontiguousarray(self.values, dtype=np.float64))
            if self.values.shape != self.indices.shape:
                raise ShapeError(f"values must match {self.indices.shape} indices, got {self.values.shape}.")
        if self.dense is not None:
            object.__setattr__(self, "dense", np.ascontiguousarray(self.dense, dtype=np.float64))
            if self.dense.ndim != 2 or len(self.dense) != rows:
                raise ShapeError(f"the dense block must have {rows} rows, got {self.dense.shape}.")

    @classmethod
    def from_rows(cls, rows: list[list[int]], width: int) -> Columns:
        """Columns of value one from a list of index lists."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(indptr, np.array([k for row in rows for k in row], np.int32), width)

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.indptr) - 1

    @property
    def n_dense(self) -> int:
        """D."""
        return 0 if self.dense is None else int(self.dense.shape[1])

    @property
    def numeric(self) -> bool:
        """Whether some column has values other than one."""
        return self.values is not None or self.dense is not None


@dataclass(frozen=True, eq=False)
class Batch:
    """Columns of the nodes, optionally of the edges, and the chains they lie on."""

    topology: Chains
    node: Columns  # N rows
    edge: Columns | None = None  # E rows, in the order of Chains.heads

    def __post_init__(self) -> None:
        if self.node.n_rows != self.topology.n_nodes:
            raise ShapeError(f"node columns have {self.node.n_rows} rows for {self.topology.n_nodes} nodes.")
        if self.edge is not None and self.edge.n_rows != self.topology.n_edges:
            raise ShapeError(f"edge columns have {self.edge.n_rows} rows for {self.topology.n_edges} edges.")

    @property
    def numeric(self) -> bool:
        """Whether some column has values other than one, of nodes or of edges."""
        return self.node.numeric or (self.edge is not None and self.edge.numeric)


def matrix_of(columns: Columns) -> Any:
    """Sparse and dense columns as one matrix (R, K), CSR if there are sparse ones.

    >>> matrix_of(Columns.from_rows([[0], [1]], width=2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if columns.width == 0:
        return np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense
    from scipy.sparse import csr_array, hstack

    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    sparse = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
    return sparse if columns.dense is None else hstack([sparse, columns.dense], format="csr")
