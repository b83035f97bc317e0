"""What boosting learns: an ordinary conditional random field whose node scores are sums of weak learners.

    node_n(c) = prior_kind(c) + Σ_m values_m(leaf_m(x_n), c)        edge_e = table of the edge's relation

Only nodes of a learner's own kind have its columns, so every learner belongs to a kind, and to the sparse or the
dense part of its columns. Relations that were never taken have no table and their edges are left out, so that
inference is exact wherever the relations that matter allow it.

A learner with l leaves can be read as l − 1 columns of zeros and ones (`indicators`), which makes the same model a
linear one; the verified mode refits it in that form.

In a model file what the learners ask stands in the header, and what all their leaves score in one array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.boosting.weak_learners.state import Learner, learner_from_json, learner_to_json
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, take_rows
from crfield.storage.state import State, refuse

PARTS = ("dense", "sparse")


@dataclass(frozen=True, eq=False)
class LocalStep:
    """One weak learner on the columns of a kind: where it reads, what it asks, and what its leaves score."""

    kind: int
    part: str  # "dense" or "sparse"
    learner: Learner
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

    def state(self) -> State:
        """Header and arrays."""
        state = scores_state(self.prior, self.steps)
        return State(state.header, {**state.arrays, "tables": np.ascontiguousarray(self.tables)})

    @classmethod
    def from_state(cls, state: State, schema: GraphSchema, sizes: tuple[int, ...]) -> Self:
        """The sum whose `state` this is; ModelFileError for whatever does not fit."""
        prior, steps = scores_from_state(state, schema, sizes)
        return cls(
            schema, sizes, prior, steps, state.array("tables", (len(schema.relations), max(sizes), max(sizes)))
        )

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


def scores_state(prior: Iterable[np.ndarray], steps: Iterable[LocalStep]) -> State:
    """The prior of every kind, what weak learners ask, and what their leaves score, end to end."""
    listed = list(steps)
    values = np.concatenate([np.zeros(0), *(step.values.reshape(-1) for step in listed)])
    told = [[step.kind, step.part, len(step.values), learner_to_json(step.learner)] for step in listed]
    priors = {f"prior{kind}": np.ascontiguousarray(scores) for kind, scores in enumerate(prior)}
    return State({"steps": told}, {**priors, "values": values})


def scores_from_state(
    state: State, schema: GraphSchema, sizes: tuple[int, ...]
) -> tuple[tuple[np.ndarray, ...], tuple[LocalStep, ...]]:
    """Prior and weak learners whose `scores_state` this is; ModelFileError for whatever does not fit."""
    prior = tuple(state.array(f"prior{kind}", (size,)) for kind, size in enumerate(sizes))
    flat, steps = ValueRun(state, "values"), []
    for item in state.listed("steps"):
        if not isinstance(item, list) or len(item) != 4 or item[1] not in PARTS:
            refuse("a weak learner of the model file is damaged")
        kind, part, leaves, told = item
        if type(kind) is not int or not 0 <= kind < len(sizes):
            refuse("a weak learner of the model file is for a kind of nodes that does not exist")
        start, stop = schema.kinds[kind].dense if part == "dense" else schema.kinds[kind].columns
        learner = learner_from_json(told, stop - start, leaves)
        steps.append(LocalStep(kind, part, learner, flat.take(leaves, sizes[kind])))
    flat.finish()
    return prior, tuple(steps)


class ValueRun:
    """An array of a file that holds tables end to end."""

    def __init__(self, state: State, name: str) -> None:
        self._flat, self._at, self._name = state.array(name, (None,)), 0, name

    def take(self, rows: int, columns: int) -> np.ndarray:
        """The next table."""
        start, self._at = self._at, self._at + rows * columns
        if self._at > len(self._flat):
            refuse(f"{self._name!r} of the model file holds too few numbers")
        return self._flat[start : self._at].reshape(rows, columns)

    def finish(self) -> None:
        """ModelFileError where something is left."""
        if self._at != len(self._flat):
            refuse(f"{self._name!r} of the model file holds more numbers than its weak learners have")


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
