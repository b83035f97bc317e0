"""Scores go in: one log-score for every local decision.

``node[n, j]`` scores label j at node n; a table ``edge[k, i, j]`` scores label i at the tail (in a chain: the
earlier end) and j at the head of every edge that uses table k. ``table[e]`` says which one edge e uses. Most models
share: one table for all transitions of a chain, one for each relation of a graph. Where scores depend on the
position every edge has its own. A score of −∞ forbids; +∞ and NaN are refused. Scores of the first and the last
step of a chain are simply part of ``node`` there, and where nodes have different label sets the labels that a node
does not have are −∞ in its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Potentials:
    """Local scores of a batch of chains or graphs.

    Without ``table`` there is one edge table for all edges, or one for each in their order.

    >>> import numpy as np
    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2, 1]))
    >>> scores.n_labels, scores.shared, scores.tables.tolist()
    (2, True, [0])
    """

    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (T, L, L)
    topology: Chains | Graphs
    table: np.ndarray | None = None  # (E,) int64, each below T

    def __post_init__(self) -> None:
        node = np.ascontiguousarray(self.node, dtype=np.float64)
        edge = np.ascontiguousarray(self.edge, dtype=np.float64)
        if node.ndim != 2 or len(node) != self.topology.n_nodes:
            raise ShapeError(
                f"node scores must be ({self.topology.n_nodes}, n_labels), one row per node, got {node.shape}."
            )
        labels = node.shape[1]
        if edge.ndim != 3 or edge.shape[1:] != (labels, labels):
            raise ShapeError(
                f"edge scores must be (n_edges, {labels}, {labels}) to match {labels} labels, got {edge.shape}."
            )
        if self.table is not None:
            table = np.ascontiguousarray(self.table, dtype=np.int64)
            if table.shape != (self.topology.n_edges,):
                raise ShapeError(
                    f"table must name one edge table for each of {self.topology.n_edges} edges, got {table.shape}."
                )
            if len(table) and (table.min() < 0 or table.max() >= len(edge)):
                raise ShapeError(
                    f"there are {len(edge)} edge tables, but edges ask for {table.min()} … {table.max()}."
                )
            object.__setattr__(self, "table", table)
        elif len(edge) not in (1, self.topology.n_edges):
            raise ShapeError(
                f"edge scores must be one shared table or one for each of {self.topology.n_edges} edges, "
                f"got {len(edge)}."
            )
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "edge", edge)

    @property
    def n_labels(self) -> int:
        """L."""
        return int(self.node.shape[1])

    @property
    def shared(self) -> bool:
        """Whether one edge table serves every position."""
        return len(self.edge) == 1

    @property
    def tables(self) -> np.ndarray:
        """(E,) the edge table of every edge."""
        if self.table is not None:
            return self.table
        edges = self.topology.n_edges
        return np.zeros(edges, np.int64) if self.shared else np.arange(edges)

    def each(self) -> Potentials:
        """The same scores with a table of its own for every edge, so that beliefs come edge by edge.

        >>> import numpy as np
        >>> Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([3])).each().edge.shape
        (2, 2, 2)
        """
        return Potentials(self.node, self.edge[self.tables], self.topology, np.arange(self.topology.n_edges))
