"""What boosting learns: an ordinary conditional random field whose node scores are sums of weak learners.

    node_n(c) = prior_kind(c) + Σ_m values_m(leaf_m(x_n), c)        edge_e = table of the edge's relation

Only nodes of a learner's own kind have its columns, so every learner belongs to a kind, and to the sparse or the
dense part of its columns. Relations that were never taken have no table and their edges are left out, so that
inference is exact wherever the relations that matter allow it.

A learner with l leaves can be read as l − 1 columns of zeros and ones (`indicators`), which makes the same model a
linear one; the verified mode refits it in that form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, take_rows

PARTS = ("dense", "sparse")


@dataclass(frozen=True, eq=False)
class LocalStep:
    """One weak learner on the columns of a kind: where it reads, what it asks, and what its leaves score."""

    kind: int
    part: str  # "dense" or "sparse"
    learner: Any  # Stump, Categories or RegressionTree
    values: np.ndarray  # (leaves, L_kind)

    def indicators(self, columns: Any) -> np.ndarray:
        """(N, leaves − 1) zeros and ones: whether a row is in each leaf but the first."""
        return (self.learner.leaves(columns)[:, None] == np.arange(1, len(self.values))).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Additive:
    """Prior, weak learners and tables.

    >>> from crfield.boosting.weak_learners.stumps import Stump
    >>> from crfield.data.graphs.graph import Edges, Graph
    >>> from crfield.features.graphs.encoder import GraphEncoder
    >>> encoder = GraphEncoder()
    >>> batch = encoder.fit([Graph(np.array([[0.0], [2.0]]), {"near": Edges([(0, 1)], symmetric=True)})])
    >>> stump = Stump(0, 1.0, np.zeros((2, 2)), 1.0)
    >>> step = LocalStep(0, "dense", stump, np.array([[-1.0, 1.0], [3.0, -3.0]]))
    >>> model = Additive(encoder.schema, (2,), (np.zeros(2),), (step,), np.zeros((1, 2, 2)))
    >>> scores = model.score(batch)
    >>> scores.node.tolist(), scores.topology.n_edges
    ([[-1.0, 1.0], [3.0, -3.0]], 0)
    """

    schema: GraphSchema
    sizes: tuple[int, ...]  # L_k of each kind
    prior: tuple[np.ndarray, ...]  # (L_k,) of each kind
    steps: tuple[LocalStep, ...]
    tables: np.ndarray  # (R, L, L), rows for the tail's label

    @property
    def n_labels(self) -> int:
        """L."""
        return max(self.sizes)

    @property
    def relations(self) -> tuple[int, ...]:
        """Numbers of the relations whose tables say something."""
        return tuple(np.flatnonzero(self.tables.any(axis=(1, 2))).tolist())

    def score(self, batch: GraphBatch) -> Potentials:
        """Potentials of a batch, without the edges of relations that were not taken."""
        node = start_scores(batch, self.sizes, self.prior)
        read: dict[tuple[int, str], Any] = {}
        for step in self.steps:
            key = (step.kind, step.part)
            if key not in read:
                read[key] = columns_of(batch, self.schema, *key)
            rows = rows_of(batch, self.schema, step.kind)
            node[rows, : step.values.shape[1]] += step.values[step.learner.leaves(read[key])]
        return Potentials(node, *self._edges(batch))

    def _edges(self, batch: GraphBatch) -> tuple[np.ndarray, Graphs, np.ndarray | None]:
        used, topology = self.relations, batch.topology
        if not used:
            bare = Graphs(topology.offsets, np.zeros(0, np.int64), np.zeros(0, np.int64))
            return np.zeros((1, self.n_labels, self.n_labels)), bare, None
        table = np.full(len(self.tables), -1)
        table[list(used)] = np.arange(len(used))
        of_edge = table[batch.relation]
        kept = np.flatnonzero(of_edge >= 0)
        if len(kept) < topology.n_edges:
            topology = Graphs(topology.offsets, topology.tails[kept], topology.heads[kept])
        return self.tables[list(used)], topology, of_edge[kept]


def start_scores(batch: GraphBatch, sizes: tuple[int, ...], prior: tuple[np.ndarray, ...]) -> np.ndarray:
    """(N, L) the prior of each node's kind, −∞ for labels that it does not have."""
    table = np.full((len(sizes), max(sizes)), -np.inf)
    for number, scores in enumerate(prior):
        table[number, : sizes[number]] = scores
    return table[batch.kind]


def rows_of(batch: GraphBatch, schema: GraphSchema, kind: int) -> Any:
    """The nodes of a kind: numbers, or a slice if there is one kind."""
    return slice(0, len(batch.kind)) if len(schema.kinds) == 1 else batch.nodes_of(kind)


def columns_of(batch: GraphBatch, schema: GraphSchema, kind: int, part: str) -> Any:
    """The own columns of a kind: an array (n, D), or a CSC matrix (n, K) of the sparse ones."""
    rows = rows_of(batch, schema, kind)
    if part == "dense":
        start, stop = schema.kinds[kind].dense
        dense = batch.node.dense
        count = len(batch.kind) if isinstance(rows, slice) else len(rows)
        return np.zeros((count, 0)) if dense is None else dense[rows, start:stop]
    from scipy.sparse import csr_array

    start, stop = schema.kinds[kind].columns
    columns: Columns = batch.node if isinstance(rows, slice) else take_rows(batch.node, rows)
    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    shape = (columns.n_rows, stop - start)
    return csr_array((values, columns.indices - np.int32(start), columns.indptr), shape=shape).tocsc()
