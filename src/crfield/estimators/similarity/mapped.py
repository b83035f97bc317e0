"""Mapped columns as those of a linear graph model: how batches get them, and which of its weights are theirs.

A field of similarities in training is `GraphScorer` on columns φ(x), with what else it has, tables of relations and
scores of first and last steps, beside them. A fitted one scores without these columns (`model.SimilarityField`), so
weights are split into those of φ and the rest, and joined again where a training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.data.batch import Columns, matrix_of
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import ADVICE, largest_cell
from crfield.errors import FeatureError
from crfield.features.graphs.sequences_as_graphs import StepsOrGraphs
from crfield.scoring.graph_layout import GraphLayout

ENDS = 2  # columns that tell the first and the last step


def refuse_far(batch: GraphBatch, reader: StepsOrGraphs, nodes: np.ndarray) -> None:
    """FeatureError with the largest cell of the first of these nodes, whose similarities are no finite numbers."""
    if len(nodes):
        cell = largest_cell(batch, reader.encoder, int(nodes[0]), sequences=not reader.of_graphs)
        raise FeatureError(f"{cell}, too large for this similarity, which is no finite number there. {ADVICE}.")


def rows_of(batch: GraphBatch, schema: GraphSchema, number: int) -> tuple[np.ndarray, Any]:
    """Numbers of the nodes of a kind, and their own columns as a matrix."""
    rows = matrix_of(batch.node)
    if len(schema.kinds) == 1:
        return np.arange(batch.topology.n_nodes), rows
    kind, at = schema.kinds[number], batch.nodes_of(number)
    width = batch.node.width
    own = np.concatenate([np.arange(*kind.columns), width + np.arange(*kind.dense)]).astype(np.int64)
    return at, rows[at][:, own]


def with_columns(batch: GraphBatch, columns: Sequence[np.ndarray], *, ends: bool) -> GraphBatch:
    """The batch with mapped columns (nodes of the kind, D) instead of its own, kind beside kind.

    With ``ends`` every kind has two more: whether a node is the first of its sequence, and whether it is the last.
    """
    extra = ENDS * ends
    dense = np.zeros((batch.topology.n_nodes, sum(some.shape[1] + extra for some in columns)))
    first, behind = 0, []
    for number, some in enumerate(columns):
        at: Any = slice(None) if len(columns) == 1 else batch.nodes_of(number)
        dense[at, first : first + some.shape[1]] = some[: len(dense[at])]
        first += some.shape[1]
        behind.append(first)
        first += extra
    return with_table(batch, dense, behind if ends else [])


def with_table(batch: GraphBatch, dense: np.ndarray, ends: Sequence[int]) -> GraphBatch:
    """The batch with the columns ``dense`` (N, D), changed at each of ``ends`` to tell first and last steps."""
    topology = batch.topology
    starts, stops = topology.offsets[:-1], topology.offsets[1:]
    filled = starts < stops
    for first in ends:
        dense[starts[filled], first] = 1.0
        dense[stops[filled] - 1, first + 1] = 1.0
    none = Columns(np.zeros(topology.n_nodes + 1, np.int64), np.zeros(0, np.int32), 0, None, dense)
    return GraphBatch(topology, none, batch.kind, batch.relation, batch.edge)


@dataclass(frozen=True, eq=False)
class MappedShape:
    """Everything about the weights of a field but how many columns its nodes are mapped to."""

    schema: GraphSchema
    sizes: tuple[int, ...]  # labels of each kind
    ends: bool  # whether first and last steps have columns of their own
    bias: bool
    tables: dict[str, str]  # form of the weights of relations
    forbidden: list[tuple[int, int, int]]

    def layout(self, widths: Sequence[int]) -> GraphLayout:
        """The layout of a model on ``widths`` mapped columns for each kind."""
        kinds, first = [], 0
        for kind, width in zip(self.schema.kinds, widths):
            last = first + width + ENDS * self.ends
            kinds.append(NodeKind(kind.name, dense=(first, last)))
            first = last
        schema = replace(self.schema, kinds=tuple(kinds))
        return GraphLayout.full(schema, self.sizes, bias=self.bias, tables=self.tables, forbidden=self.forbidden)


def shape_of(schema: GraphSchema, labels: GraphLabels, parameters: Mapping[str, Any], *, ends: bool) -> MappedShape:
    """What the parameters ``intercept``, ``relations`` and ``forbidden`` ask for with these kinds and labels."""
    tables, forbidden = dict(parameters["relations"] or {}), labels.pairs(parameters["forbidden"], schema)
    return MappedShape(schema, labels.sizes, ends, bool(parameters["intercept"]), tables, list(forbidden))


def split_weights(
    layout: GraphLayout, weights: np.ndarray, widths: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The weights of mapped columns (D, L) of each kind, and all others in their order."""
    mapped = mapped_places(layout, widths)
    inside = np.zeros(layout.n_weights, bool)
    coefs = []
    for size, place in zip(layout.sizes, mapped):
        coefs.append(weights[place].reshape(-1, size).copy())
        inside[place] = True
    return tuple(coefs), weights[~inside]


def joined_weights(layout: GraphLayout, coef: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The inverse of `split_weights` for one kind; new columns, behind those of ``coef`` (D, L), begin at zero."""
    start = layout.part[f"{layout.schema.kinds[0].name}/dense"].start
    out = np.zeros(layout.n_weights)
    mapped = np.zeros(layout.n_weights, bool)
    mapped[start : start + layout.n_weights - len(rest)] = True
    out[start : start + coef.size] = coef.reshape(-1)
    out[~mapped] = rest
    return out


def mapped_places(layout: GraphLayout, widths: Sequence[int]) -> list[slice]:
    """Where the weights of mapped columns are, for each kind; the ends' come right behind them."""
    places = []
    for kind, size, width in zip(layout.schema.kinds, layout.sizes, widths):
        start = layout.part[f"{kind.name}/dense"].start
        places.append(slice(start, start + width * size))
    return places


def principal_axes(columns: np.ndarray) -> np.ndarray:
    """(D, D) the rotation after which columns (N, D) are uncorrelated, or nearly so: it looks at some rows only.

    Columns that Gram and Schmidt made one after another overlap on the data, and a diagonal says little about their
    curvature. The rotated ones span the same functions with the same norm, and a diagonal fits them.

    >>> columns = np.array([[1.0, 1.0], [2.0, 2.0], [-1.0, -1.0]])
    >>> np.abs((columns @ principal_axes(columns)).round(3)).tolist()
    [[0.0, 1.414], [0.0, 2.828], [0.0, 1.414]]
    """
    some = columns[:: max(1, len(columns) // (4 * max(columns.shape[1], 256)))]
    return np.asarray(np.linalg.eigh(some.T @ some)[1]) if columns.shape[1] else np.zeros((0, 0))


def turned(turn: np.ndarray, coef: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (d, L) of the first d columns as weights of all columns after the rotation (D, D); the rest stays.

    >>> turned(np.eye(2), np.ones((1, 1)), np.zeros(0))[0].tolist()
    [[1.0], [0.0]]
    """
    return turn[: len(coef)].T @ coef, rest
