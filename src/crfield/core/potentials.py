"""Scores go in: one log-score for every local decision.

``node[n, j]`` scores label j at node n; ``edge[e, i, j]`` scores label i at the earlier and j at the later end
of edge e. When the edge scores do not depend on the position they are one shared table with E = 1. A score of
−∞ forbids; +∞ and NaN are refused. Scores of the first and the last step of a sequence are simply part of
``node`` there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Potentials:
    """Local scores of a batch of chains.

    >>> import numpy as np
    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2, 1]))
    >>> scores.n_labels, scores.shared
    (2, True)
    """

    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (1, L, L) shared, or (E, L, L)
    topology: Chains

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
        if len(edge) not in (1, self.topology.n_edges):
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
