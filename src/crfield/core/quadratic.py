"""Scores of real-valued labels: a quadratic form for every graph.

    score(y) = Σ_n linear_n y_n − ½ Σ_n node_n y_n² − Σ_e edge_e y_tail y_head  =  bᵀy − ½ yᵀQy

Where labels are numbers, a table of scores becomes a function, and the only one that every question can be answered
about is the quadratic: Q must be positive definite, and the field is Gaussian with precision Q. ``node`` is the
diagonal of Q, ``edge`` its other entries, one for each edge (parallel edges add up); where no edge is, Q is zero.
`Gaussian` is the answer in the same shape: its total log ∫ exp(score), and means, variances and covariances of
neighbours, from which the gradient of the total follows term by term.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Precision and linear term of a batch of chains or graphs.

    >>> field = Quadratic(np.array([2.0, 2.0]), np.array([-1.0]), np.array([1.0, 0.0]), Chains.from_lengths([2]))
    >>> field.dense(0).tolist(), field.score(np.array([1.0, 1.0])).tolist()
    ([[2.0, -1.0], [-1.0, 2.0]], [0.0])
    """

    node: np.ndarray  # (N,) diagonal of the precision
    edge: np.ndarray  # (E,) its entry for the two ends of each edge
    linear: np.ndarray  # (N,)
    topology: Chains | Graphs

    def __post_init__(self) -> None:
        sizes = {"node": self.topology.n_nodes, "edge": self.topology.n_edges, "linear": self.topology.n_nodes}
        for name, size in sizes.items():
            value = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if value.shape != (size,):
                raise ShapeError(f"{name} must have {size} entries, got {value.shape}.")
            if not np.isfinite(value).all():
                raise InputError(f"{name} must be finite, got {value[~np.isfinite(value)][0]}.")
            object.__setattr__(self, name, value)

    def score(self, y: np.ndarray) -> np.ndarray:
        """(B,) bᵀy − ½ yᵀQy of each graph for labels y (N,)."""
        graphs, topology = self.topology.n_sequences, self.topology
        own = np.bincount(topology.sequence_of_node, y * (self.linear - 0.5 * self.node * y), minlength=graphs)
        joint = self.edge * y[topology.tails] * y[topology.heads]
        return own - np.bincount(topology.sequence_of_edge, joint, minlength=graphs)

    def times(self, y: np.ndarray) -> np.ndarray:
        """(N,) Qy."""
        tails, heads, n = self.topology.tails, self.topology.heads, self.topology.n_nodes
        out = self.node * y
        out += np.bincount(tails, self.edge * y[heads], minlength=n)
        return out + np.bincount(heads, self.edge * y[tails], minlength=n)

    def dense(self, graph: int) -> np.ndarray:
        """The precision Q of one graph as a matrix."""
        first, last = self.topology.offsets[graph : graph + 2].tolist()
        matrix = np.diag(self.node[first:last])
        own = self.topology.sequence_of_edge == graph
        tails, heads = self.topology.tails[own] - first, self.topology.heads[own] - first
        np.add.at(matrix, (tails, heads), self.edge[own])
        np.add.at(matrix, (heads, tails), self.edge[own])
        return matrix

    def given(self, y: np.ndarray, known: np.ndarray) -> tuple[Quadratic, np.ndarray]:
        """The field of the nodes that are not ``known`` (N,) bool, the others held at y; and what these score (B,).

        Known nodes stay as nodes of their own, cut off, with precision 1 and mean 0, whose total is ½ log 2π each.
        """
        topology, graphs = self.topology, self.topology.n_sequences
        held = np.where(known, y, 0.0)
        linear = np.where(known, 0.0, self.linear)
        tails, heads = topology.tails, topology.heads
        np.add.at(linear, tails, np.where(known[tails], 0.0, -self.edge * held[heads]))
        np.add.at(linear, heads, np.where(known[heads], 0.0, -self.edge * held[tails]))
        free = ~(known[tails] | known[heads])
        rest = Quadratic(np.where(known, 1.0, self.node), np.where(free, self.edge, 0.0), linear, topology)
        own = np.bincount(topology.sequence_of_node, held * (self.linear - 0.5 * self.node * held), minlength=graphs)
        joint = np.where(known[tails] & known[heads], self.edge * held[tails] * held[heads], 0.0)
        return rest, own - np.bincount(topology.sequence_of_edge, joint, minlength=graphs)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """What is known of a Gaussian field: totals, means, variances, and covariances of neighbours."""

    total: np.ndarray  # (B,) log ∫ exp(score)
    mean: np.ndarray  # (N,)
    variance: np.ndarray  # (N,)
    covariance: np.ndarray  # (E,) of the two ends of each edge


@dataclass(frozen=True, eq=False)
class QuadraticEvaluation:
    """The value of an objective and its gradient in the shape of a `Quadratic`."""

    value: float
    node: np.ndarray  # (N,)
    edge: np.ndarray  # (E,)
    linear: np.ndarray  # (N,)
