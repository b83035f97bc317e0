"""Small grids with a linear model on them, and an engine that writes all their labellings out at once.

For the tests of training on graphs: real scorer and real batches, and an oracle fast enough to train with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind, Relation
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer

TRUE = np.array([-0.5, 0.5, 0.4, -0.4, 0.1, -0.1, 0.4, -0.4, 0.4])  # dense (2, 2), bias (2,), table (3,)


@dataclass(frozen=True, eq=False)
class GridWorld:
    """A scorer, a batch of grids and labels drawn from the model with the weights TRUE."""

    scorer: GraphScorer
    batch: GraphBatch
    target: Target


@dataclass(frozen=True, eq=False)
class EveryLabelling:
    """The exact engine for graphs that are all alike: one matrix product over all labellings."""

    length: int
    joints: tuple[tuple[int, int], ...]
    n_labels: int = 2

    @cached_property
    def labellings(self) -> np.ndarray:
        """(M, length)."""
        return np.array(list(product(range(self.n_labels), repeat=self.length)))

    @cached_property
    def nodes(self) -> np.ndarray:
        """(M, length · L) zeros and ones."""
        return np.eye(self.n_labels)[self.labellings].reshape(len(self.labellings), -1)

    @cached_property
    def edges(self) -> np.ndarray:
        """(M, joints · L²) zeros and ones."""
        tail, head = np.array(self.joints).T
        pair = self.labellings[:, tail] * self.n_labels + self.labellings[:, head]
        return np.eye(self.n_labels**2)[pair].reshape(len(self.labellings), -1)

    def probabilities(self, potentials: Potentials) -> np.ndarray:
        """(B, M) of all labellings of every graph."""
        scores = self.scores(potentials)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def scores(self, potentials: Potentials) -> np.ndarray:
        """(B, M)."""
        graphs = potentials.topology.n_sequences
        # one shared table is summed over edges by the product itself
        pairs = potentials.edge[potentials.tables].reshape(graphs, -1)
        low = [np.maximum(scores, -1e9) for scores in (potentials.node.reshape(graphs, -1), pairs)]
        return low[0] @ self.nodes.T + low[1] @ self.edges.T

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Totals and their gradients."""
        scores = self.scores(potentials)
        top = scores.max(axis=1)
        if semiring is Semiring.MAX:
            total, weight = top, np.eye(len(self.labellings))[scores.argmax(axis=1)]
        else:
            total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
            weight = np.exp(scores - total[:, None])
        edge = np.zeros_like(potentials.edge)
        size = (potentials.topology.n_edges, self.n_labels, self.n_labels)
        np.add.at(edge, potentials.tables, (weight @ self.edges).reshape(size))
        return Beliefs(total, (weight @ self.nodes).reshape(potentials.node.shape), edge)


def grid_edges(side: int) -> tuple[tuple[int, int], ...]:
    """Neighbours on a square grid."""
    at = np.arange(side * side).reshape(side, side)
    rows, columns = np.stack([at[:, :-1], at[:, 1:]], -1), np.stack([at[:-1], at[1:]], -1)
    return tuple((int(a), int(b)) for a, b in np.concatenate([rows.reshape(-1, 2), columns.reshape(-1, 2)]))


def oracle(side: int) -> EveryLabelling:
    """The engine for grids of that side."""
    return EveryLabelling(side * side, grid_edges(side))


def grid_world(
    n_graphs: int, rng: np.random.Generator, *, side: int = 3, truth: np.ndarray = TRUE, separable: bool = False
) -> GridWorld:
    """Grids with two random columns a node; labels drawn from the model, or its best ones where ``separable``."""
    size, joints = side * side, np.array(grid_edges(side))
    offsets = np.arange(n_graphs + 1) * size
    ends = (joints[None] + offsets[:-1, None, None]).reshape(-1, 2)
    topology = Graphs(offsets, ends[:, 0], ends[:, 1])
    columns = Columns(
        np.zeros(topology.n_nodes + 1, np.int64),
        np.zeros(0, np.int32),
        0,
        None,
        rng.standard_normal((topology.n_nodes, 2)),
    )
    schema = GraphSchema((NodeKind("node", dense=(0, 2)),), (Relation("near", symmetric=True),))
    batch = GraphBatch(topology, columns, np.zeros(topology.n_nodes), np.zeros(topology.n_edges), (None,))
    scorer = GraphScorer(GraphLayout.full(schema, [2]))
    engine, scores = oracle(side), scorer.score(truth, batch)
    if separable:
        chosen = engine.scores(scores).argmax(axis=1)
    else:
        chances = engine.probabilities(scores).cumsum(axis=1)
        chosen = (chances < rng.random((n_graphs, 1))).sum(axis=1)
    labels = engine.labellings[chosen].reshape(-1)
    return GridWorld(scorer, batch, Target(topology, 2, labels))
