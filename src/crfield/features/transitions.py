"""Features that also look at a pair of neighbouring labels.

A feature linked to transitions, w(y₋₁, y) · g(x, t), needs a column on the edges: that of step t on the
edge that leads to it. `EdgeChoice` holds which node columns are edge columns too, and copies them from the
rows of the later nodes; values are the same as on the nodes, standardised if those are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crfield.core.topology import Chains
from crfield.data.batch import Columns
from crfield.errors import InputError, ModelFileError
from crfield.features.columns.select import drop_rare, renumber, take_rows


@dataclass(frozen=True, eq=False)
class EdgeChoice:
    """The node columns that are edge columns as well, both kinds in rising order.

    >>> import numpy as np
    >>> nodes = Columns.from_rows([[0], [0, 1], [1]], width=2)
    >>> choice = EdgeChoice(np.array([1]), np.array([], int))
    >>> choice.take(Chains.from_lengths([2, 1]), nodes).indices.tolist()
    [0]
    """

    columns: np.ndarray  # (J,) int32, sparse
    dense: np.ndarray  # (G,) int32

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", np.ascontiguousarray(self.columns, np.int32))
        object.__setattr__(self, "dense", np.ascontiguousarray(self.dense, np.int32))

    @property
    def widths(self) -> tuple[int, int]:
        """How many columns of edges there are, sparse and dense."""
        return len(self.columns), len(self.dense)

    def learn(self, topology: Chains, node: Columns, min_count: int) -> tuple[EdgeChoice, Columns]:
        """The choice without the columns seen on fewer than ``min_count`` edges, and the edge columns."""
        edge, remap = drop_rare(self.take(topology, node), max(min_count, 1))
        return EdgeChoice(self.columns[remap >= 0], self.dense), edge

    def take(self, topology: Chains, node: Columns) -> Columns:
        """Columns of the E edges: the chosen columns of the later node of each."""
        rows = take_rows(node, topology.heads)
        if len(self.columns) < node.width:
            remap = np.full(node.width, -1, np.int32)
            remap[self.columns] = np.arange(len(self.columns), dtype=np.int32)
            rows = renumber(rows, remap)
        dense = None if rows.dense is None or not len(self.dense) else rows.dense[:, self.dense]
        return Columns(rows.indptr, rows.indices, rows.width, rows.values, dense)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the choice, by name."""
        return {"edge_columns": self.columns, "edge_dense": self.dense}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, width: int, n_dense: int) -> EdgeChoice:
        """The choice whose `to_arrays` this is; ModelFileError when the arrays cannot be one."""
        return cls(rising(arrays, "edge_columns", width), rising(arrays, "edge_dense", n_dense))


def rising(arrays: Mapping[str, np.ndarray], name: str, limit: int) -> np.ndarray:
    """A stored int32 array of rising numbers in 0 … limit − 1, or ModelFileError.

    >>> rising({"kept": np.array([0, 2], np.int32)}, "kept", 3).tolist()
    [0, 2]
    """
    array = np.asarray(arrays[name]) if name in arrays else None
    if (
        array is None
        or array.dtype != np.int32
        or array.ndim != 1
        or (array[1:] <= array[:-1]).any()
        or (len(array) and (array[0] < 0 or array[-1] >= limit))
    ):
        raise ModelFileError(
            f"the array {name!r} must hold rising column numbers below {limit}. Was the file damaged?"
        )
    return array


class NamedEdges:
    """What encoders with an `EdgeChoice` share: edge columns have the names of their node columns."""

    _edges: EdgeChoice | None

    def node_name(self, column: int) -> str:
        """Name of a sparse node column."""
        raise NotImplementedError

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the nodes."""
        raise NotImplementedError

    def edge_name(self, column: int) -> str:
        """Name of a sparse edge column, the same as on the nodes."""
        return self.node_name(int(self._edge_choice().columns[column]))

    def edge_dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the edges, the same as on the nodes."""
        return self.dense_name(int(self._edge_choice().dense[column]))

    def _edge_choice(self) -> EdgeChoice:
        if self._edges is None:
            raise InputError("this encoder has no edge columns. Fit one with transition_features.")
        return self._edges
