"""`GraphModel`: what a fitted `GraphCRF` holds, its place in a model file, and how it scores, names and describes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.typing import Parameters
from crfield.data.graphs.batch import GraphBatch, Relation
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_unbearable
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.features.graphs.encoder import GraphEncoder
from crfield.report.weights import FeatureList, FeatureWeight, TransitionTable
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.storage.state import State, check_table
from crfield.training.graph.plan import Plan


def graph_state(encoder: GraphEncoder, labels: GraphLabels) -> State:
    """What the file of every model of graphs has: its labels and its encoder."""
    return State({"labels": labels.to_json()}).with_part("encoder", encoder.state())


def graph_parts(state: State) -> tuple[GraphEncoder, GraphLabels]:
    """The encoder and the labels whose `graph_state` this is; ModelFileError unless they are of the same kinds."""
    part = state.part("encoder")
    encoder, labels = (
        GraphEncoder.from_state(part.header, part.arrays),
        GraphLabels.from_json(state.header.get("labels")),
    )
    if tuple(kind.name for kind in encoder.schema.kinds) != labels.kinds:
        raise ModelFileError("the labels of the model file do not fit its features: the file is damaged.")
    return encoder, labels


@dataclass(frozen=True, eq=False)
class GraphModel:
    """Encoder, labels, layout and weights, and how they were trained."""

    encoder: GraphEncoder
    labels: GraphLabels
    layout: GraphLayout
    weights: np.ndarray  # (W,)
    plan: Plan

    def state(self) -> State:
        """Header and arrays."""
        state = graph_state(self.encoder, self.labels).with_part("layout", self.layout.state())
        return State(state.header, {"weights": self.weights, **state.arrays}).with_part("plan", self.plan.state())

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        plan = Plan.from_state(state.part("plan"))
        encoder, labels = graph_parts(state)
        held = (state.arrays["weights"].nbytes if "weights" in state.arrays else 0) + 32 * sum(labels.sizes)
        check_table(8 * labels.n_labels**2, held, f"the pairs of {labels.n_labels:,} labels")
        part = state.part("layout")
        layout = GraphLayout.from_state(part.header, part.arrays, encoder.schema, labels.sizes)
        if labels.sizes != layout.sizes:
            raise ModelFileError("the labels of the model file do not fit its weights: the file is damaged.")
        return cls(encoder, labels, layout, state.array("weights", (layout.n_weights,)), plan)

    def potentials(self, graphs: Sequence[Graph]) -> tuple[Potentials, GraphBatch]:
        """Scores of graphs, and their encoding."""
        batch = self.encoder.encode(graphs)
        refuse_unbearable(batch, self.encoder, self.weights)
        return GraphScorer(self.layout).score(self.weights, batch), batch

    def describe(self, relation: Relation) -> str:
        """A relation in a line."""
        kinds = [kind.name for kind in self.encoder.schema.kinds]
        table = self.layout.tables[self.encoder.schema.relation(relation.name)]
        ends = "" if len(kinds) == 1 else f" {kinds[relation.tail]} → {kinds[relation.head]},"
        nature = "symmetric" if relation.symmetric else "directed"
        columns = relation.n_columns + relation.n_dense
        more = f", {columns} edge columns" if columns else ""
        return f"{relation.name}:{ends} {nature}, {table.form} table of {table.n_weights} weights{more}"

    def relation_weights(self, name: str) -> TransitionTable:
        """Weights of the plain table of a relation."""
        schema = self.encoder.schema
        relation = schema.relations[schema.relation(name)]
        coders = self.labels.coders
        return TransitionTable(
            coders[relation.tail].labels, self.layout.table(self.weights, name), columns=coders[relation.head].labels
        )

    def top_features(self, n: int, label: Hashable | None) -> FeatureList:
        """The n node features of largest absolute weight, strongest first."""
        if n < 0:
            raise InputError(f"n must not be negative, got {n}.")
        found: list[tuple[float, FeatureWeight]] = []
        known = [name for coder in self.labels.coders for name in coder.labels]
        if label is not None and label not in known:
            raise LabelError(f"label {label!r} is unknown; the model knows {known[:20]}.")
        for kind, inner, coder in zip(self.encoder.schema.kinds, self.layout.nodes, self.labels.coders):
            for part in ("node", "dense", "bias"):
                weights = self.weights[self.layout.part[f"{kind.name}/{part}"]]
                column, code = self._places(inner, part)
                kept = np.flatnonzero(weights)
                if label is not None:
                    kept = kept[[coder.labels[c] == label for c in code[kept]]] if len(kept) else kept
                kept = kept[np.argsort(-np.abs(weights[kept]), kind="stable")[:n]]
                for k in kept.tolist():
                    name = self._name(kind, part, int(column[k]))
                    found.append((abs(weights[k]), FeatureWeight(name, coder.labels[code[k]], float(weights[k]))))
        found.sort(key=lambda item: -item[0])
        return FeatureList([feature for _, feature in found[:n]])

    def _places(self, inner: Any, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Column and label of every weight of a part."""
        if part == "node":
            return inner.node_features()
        rows = inner.n_dense if part == "dense" else int(inner.bias)
        return np.repeat(np.arange(rows), inner.n_labels), np.tile(np.arange(inner.n_labels), rows)

    def _name(self, kind: Any, part: str, column: int) -> str:
        if part == "bias":
            return "(bias)" if len(self.encoder.schema.kinds) == 1 else f"{kind.name}: (bias)"
        if part == "node":
            return self.encoder.node_name(kind.columns[0] + column)
        return self.encoder.dense_name(kind.dense[0] + column)
