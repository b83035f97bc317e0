"""What fitted boosted fields hold, their place in a model file, and how they score, name and become a linear model.

BoostedModel   weak learners on columns, and tables of relations: an ordinary model of graphs
BeliefModel    rounds to be replayed, which end in beliefs of nodes
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from crfield.boosting.random_field import FieldModel
from crfield.boosting.round_table import RoundTable
from crfield.boosting.virtual_evidence.additive import Additive, LocalStep, columns_of
from crfield.boosting.weak_learners.stumps import Categories, Stump, side_names
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Edges, Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import InputError, LabelError
from crfield.estimators.graph.model import GraphModel, graph_parts, graph_state
from crfield.features.graphs.encoder import GraphEncoder
from crfield.report.weights import FeatureList, FeatureWeight, TransitionTable
from crfield.scoring.graph_layout import GraphLayout
from crfield.storage.state import State
from crfield.training.graph.plan import Plan


class Stored(Protocol):
    """Scores that can write themselves down."""

    def state(self) -> State:
        """Header and arrays."""
        ...


S = TypeVar("S", bound=Stored)


@dataclass(frozen=True, eq=False)
class FieldValue(Generic[S]):
    """Encoder, labels, what scores nodes and edges, and how it came about."""

    encoder: GraphEncoder
    labels: GraphLabels
    scores: S
    rounds: RoundTable

    def state(self) -> State:
        """Header and arrays."""
        parts, own = graph_state(self.encoder, self.labels), self.scores.state()
        header = {**parts.header, **own.header, "rounds": self.rounds.to_json()}
        return State(header, {**parts.arrays, **own.arrays})


@dataclass(frozen=True, eq=False)
class BeliefModel(FieldValue[FieldModel]):
    """Rounds that end in beliefs; nodes are independent of each other given these."""

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        encoder, labels = graph_parts(state)
        field = FieldModel.from_state(state, encoder.schema, labels.sizes)
        return cls(encoder, labels, field, RoundTable.from_json(state.header.get("rounds")))

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Logs of the beliefs without any edges, and the encoding of the graphs."""
        batch = self.encoder.encode(graphs)
        with np.errstate(divide="ignore"):
            node = np.log(np.maximum(self.scores.beliefs(batch), 1e-300))
        node[~self.labels.states(batch)] = -np.inf
        none, size = np.zeros(0, np.int64), self.labels.n_labels
        return Potentials(node, np.zeros((1, size, size)), Graphs(batch.topology.offsets, none, none)), batch


@dataclass(frozen=True, eq=False)
class BoostedModel(FieldValue[Additive]):
    """A sum of weak learners with tables of relations."""

    trained_by: str

    def state(self) -> State:
        """Header and arrays."""
        state = super().state()
        return State(state.header | {"trained_by": self.trained_by}, state.arrays)

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        encoder, labels = graph_parts(state)
        additive = Additive.from_state(state, encoder.schema, labels.sizes)
        rounds = RoundTable.from_json(state.header.get("rounds"))
        return cls(encoder, labels, additive, rounds, state.word("trained_by"))

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Scores of graphs, and their encoding."""
        batch = self.encoder.encode(graphs)
        return self.scores.score(batch), batch

    def relation_weights(self, name: str) -> TransitionTable:
        """Scores of the label pairs of a relation."""
        schema = self.encoder.schema
        number = schema.relation(name)
        relation, coders = schema.relations[number], self.labels.coders
        tail, head = coders[relation.tail].labels, coders[relation.head].labels
        return TransitionTable(tail, self.scores.tables[number, : len(tail), : len(head)], columns=head)

    def top_features(self, n: int, label: Hashable | None) -> FeatureList:
        """The n leaves of largest absolute weight, each against the first leaf of its learner."""
        if n < 0:
            raise InputError(f"n must not be negative, got {n}.")
        known = [name for coder in self.labels.coders for name in coder.labels]
        if label is not None and label not in known:
            raise LabelError(f"label {label!r} is unknown; the model knows {known[:20]}.")
        found = []
        for kind, coder in enumerate(self.labels.coders):
            names, weights, _ = self.linear(kind)
            for name, row in zip(names, weights):
                found += [
                    FeatureWeight(name, own, float(weight))
                    for own, weight in zip(coder.labels, row)
                    if weight and (label is None or own == label)
                ]
        found.sort(key=lambda one: -abs(one.weight))
        return FeatureList(found[:n])

    # ---------------------------------------------------------------- the linear form

    def linear(self, kind: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Names (D) and weights (D, L) of the leaves of a kind, equal ones added up, and the bias (L,)."""
        bias = self.scores.prior[kind].copy()
        place: dict[str, int] = {}
        rows: list[np.ndarray] = []
        for step in self._steps(kind):
            bias += step.values[0]
            for name, row in zip(leaf_names(step, self.encoder), step.values[1:] - step.values[0]):
                if name in place:
                    rows[place[name]] = rows[place[name]] + row
                else:
                    place[name] = len(rows)
                    rows.append(row)
        return list(place), np.array(rows).reshape(len(rows), len(bias)), bias

    def indicators(self, batch: GraphBatch, kind: int) -> np.ndarray:
        """(n, D) zeros and ones: the leaves of `linear` on the nodes of a kind."""
        read: dict[str, Any] = {}
        made: dict[str, np.ndarray] = {}
        for step in self._steps(kind):
            if step.part not in read:
                read[step.part] = columns_of(batch, self.encoder.schema, kind, step.part)
            names = leaf_names(step, self.encoder)
            if any(name not in made for name in names):
                made |= dict(zip(names, step.indicators(read[step.part]).T))
        count = int((batch.kind == kind).sum())
        return np.stack(list(made.values()), axis=1) if made else np.zeros((count, 0))

    def transformed(self, graphs: list[Graph]) -> list[Graph]:
        """Graphs with the leaves as columns, and the relations that the model uses."""
        batch = self.encoder.encode(graphs)
        schema = self.encoder.schema
        used = [schema.relations[number] for number in self.scores.relations]
        tables = [self.indicators(batch, kind) for kind in range(len(schema.kinds))]
        first = [0] * len(tables)
        out = []
        for number, graph in enumerate(graphs):
            nodes: dict[str, Any] = {}
            for place, name in enumerate(graph.kinds):
                kind, count = schema.kind(name), int((graph.kind_of_node == place).sum())
                rows = tables[kind][first[kind] : first[kind] + count]
                nodes[name] = rows if rows.shape[1] else count
                first[kind] += count
            if (np.diff(graph.kind_of_node) < 0).any():
                raise InputError(f"graph {number} mixes kinds of nodes; list its nodes kind after kind.")
            edges = {
                relation.name: Edges(graph.edges[relation.name].pairs, None, relation.symmetric)
                for relation in used
                if relation.name in graph.edges and graph.edges[relation.name].n_edges
            }
            out.append(Graph(nodes, edges))
        return out

    def graph_model(self, plan: Plan) -> GraphModel:
        """The linear model on `transformed` graphs, which was trained as the plan says."""
        schema = self.encoder.schema
        parts = [self.linear(kind) for kind in range(len(schema.kinds))]
        header = {
            "kind": GraphEncoder.kind,
            "standardize": False,
            "kinds": [{"name": kind.name, **_columns(names)} for kind, (names, _, _) in zip(schema.kinds, parts)],
            "relations": [
                {"name": r.name, "tail": r.tail, "head": r.head, "symmetric": r.symmetric, **_columns([])}
                for r in (schema.relations[number] for number in self.scores.relations)
            ],
        }
        encoder = GraphEncoder.from_state(header, {})
        layout = GraphLayout.full(encoder.schema, self.scores.sizes)
        weights = np.zeros(layout.n_weights)
        for kind, (_, rows, bias) in zip(schema.kinds, parts):
            weights[layout.part[f"{kind.name}/dense"]] = rows.reshape(-1)
            weights[layout.part[f"{kind.name}/bias"]] = bias
        for relation, pair, number in zip(encoder.schema.relations, layout.tables, self.scores.relations):
            tail, head = np.nonzero(pair.tie >= 0)
            own = np.zeros(pair.n_weights)
            own[pair.tie[tail, head]] = self.scores.tables[number][tail, head]
            weights[layout.part[f"{relation.name}/table"]] = own
        return GraphModel(encoder, self.labels, layout, weights, plan)

    def _steps(self, kind: int) -> list[LocalStep]:
        return [step for step in self.scores.steps if step.kind == kind]


def _columns(names: list[str]) -> dict[str, Any]:
    if not names:
        return {"form": "none", "encoder": None}
    matrix = {
        "kind": "matrix",
        "transition_features": None,
        "standardize": False,
        "feature_names": names,
        "width": len(names),
        "sparse": False,
        "scaled": False,
    }
    return {"form": "dense", "encoder": matrix, "width": 0, "n_dense": len(names)}


def step_name(step: LocalStep, encoder: GraphEncoder) -> str:
    """What a weak learner asks, in words."""
    if isinstance(step.learner, Categories):
        return f"{_column(step, step.learner.column, encoder)} = …"
    names = leaf_names(step, encoder)
    return names[0] if isinstance(step.learner, Stump) else f"tree: {' | '.join(names)}"


def leaf_names(step: LocalStep, encoder: GraphEncoder) -> list[str]:
    """What it takes to be in each leaf but the first."""
    learner = step.learner
    if isinstance(learner, Stump | Categories):
        return _parts(step, learner, encoder)[1:]
    way: dict[int, list[str]] = {0: []}
    found: dict[int, str] = {}
    for node, cut in enumerate(learner.cuts):
        if cut is None:
            found[learner.leaf[node]] = " & ".join(way[node]) or "always"
            continue
        for child, part in zip(learner.children[node], _parts(step, cut, encoder)):
            way[child] = [*way[node], part]
    return [found[leaf] for leaf in range(1, len(found))]


def _parts(step: LocalStep, cut: Stump | Categories, encoder: GraphEncoder) -> list[str]:
    column = _column(step, cut.column, encoder)
    if isinstance(cut, Stump):
        kind = encoder.schema.kinds[step.kind]
        first = (kind.dense if step.part == "dense" else kind.columns)[0]
        gaps = encoder.had_gaps(first + cut.column, step.part)
        return list(side_names(column, cut.threshold, cut.missing if gaps else None))
    return [*(f"{column} = {value:.6g}" for value in cut.categories), f"{column} = other"]


def _column(step: LocalStep, column: int, encoder: GraphEncoder) -> str:
    kind = encoder.schema.kinds[step.kind]
    if step.part == "dense":
        return encoder.dense_name(kind.dense[0] + column)
    return encoder.node_name(kind.columns[0] + column)
