"""Scores of single steps of graph models whose graphs are chains over time, or layers of them.

The builders `chain` and `layers` call a relation after what it joins: "+2" two steps of a chain, "motion+1" two
steps of a layer, "motion-place" two layers at one step. A model whose relations are all of these is a chain over
states, the labels of the last steps of all layers, and a stream runs the exact filter over them, however many loops
the graph has (`crfield.estimators.export.states`). Other graphs have no order in time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.data.graphs.batch import GraphSchema
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError
from crfield.estimators.base.fitted import Model
from crfield.estimators.export.states import StateSteps, remembered
from crfield.estimators.export.step_scores import DenseSteps, StepScorer, hashed, joined_steps
from crfield.estimators.export.trees import TreeSteps
from crfield.estimators.graph.model import GraphModel
from crfield.features.graphs.encoder import GraphEncoder

Tables = dict[tuple[int, int], np.ndarray]


class NodeSteps:
    """Scores of the nodes of one step, which a model scores as a graph of its own.

    ``potentials`` scores graphs of one step each, whose nodes are one of every kind; a row holds the scores of all
    kinds, one after the other.
    """

    varied, reach = False, 0
    states: StateSpace | None = None

    def __init__(self, potentials: Callable[[Sequence[Any]], Potentials], sizes: Sequence[int], digest: str) -> None:
        self.potentials, self.sizes, self._digest = potentials, tuple(sizes), digest
        size = sum(self.sizes)
        self.start, self.end, self.transitions = np.zeros(size), np.zeros(size), np.zeros((size, size))

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores (k, Σ L) of one step of k streams."""
        node = self.potentials(rows).node.reshape(len(rows), len(self.sizes), -1)
        return np.concatenate([node[:, p, :size] for p, size in enumerate(self.sizes)], axis=1), None

    def digest(self) -> str:
        """A word that differs between models."""
        return self._digest


def over_time(
    inner: DenseSteps | TreeSteps | NodeSteps,
    schema: GraphSchema,
    sizes: Sequence[int],
    tables: Mapping[int, np.ndarray],
) -> StepScorer:
    """The chain over scores of nodes and the tables (L, L) of relations, by number; over labels where they do."""
    made = over_states(inner, schema, sizes, tables)
    if not made.states.plain or len(sizes) > 1 or isinstance(inner, NodeSteps):
        return made
    if isinstance(inner, TreeSteps):  # two calls, for types
        return replace(inner, start=made.start, end=made.end, transitions=made.transitions)
    return replace(inner, start=made.start, end=made.end, transitions=made.transitions)


def over_states(
    inner: DenseSteps | TreeSteps | NodeSteps,
    schema: GraphSchema,
    sizes: Sequence[int],
    tables: Mapping[int, np.ndarray],
) -> StateSteps:
    """The chain over states, the labels of the last steps of all layers."""
    along, beside = _in_time(schema, tables)
    memory = remembered(sizes, along, beside)
    chain = {"start": memory.start, "end": np.zeros(len(memory.start)), "transitions": memory.transitions}
    return StateSteps(inner, memory.states, parts=memory.parts, offset=memory.offset, **chain)


def _in_time(schema: GraphSchema, tables: Mapping[int, np.ndarray]) -> tuple[Tables, Tables]:
    """Tables of relations along layers, by (layer, distance), and between layers at one step, by (layer, layer)."""
    along: Tables = {}
    beside: Tables = {}
    for number, table in tables.items():
        relation = schema.relations[number]
        tail, head = schema.kinds[relation.tail].name, schema.kinds[relation.head].name
        if relation.has_features:
            raise InputError(
                f"a stream needs relations without features of their own, and {relation.name!r} has some. Put what "
                "they say on the nodes, or answer whole graphs with predict."
            )
        if tail != head and relation.name == f"{tail}-{head}":
            beside[relation.tail, relation.head] = table
        else:
            along[relation.tail, distance_of(schema, number)] = table
    return along, beside


def distance_of(schema: GraphSchema, number: int) -> int:
    """How many steps apart a relation joins, by its name; InputError where it does not say.

    >>> from crfield.data.graphs.batch import NodeKind, Relation
    >>> distance_of(GraphSchema((NodeKind("step"),), (Relation("+2"),)), 0)
    2
    """
    relation = schema.relations[number]
    kind = schema.kinds[relation.tail].name
    found = re.fullmatch(r"(.*)\+([1-9][0-9]{0,3})", relation.name)
    if found is None or relation.tail != relation.head or found[1] not in ("", kind):
        raise InputError(
            f"a stream needs graphs that are chains over time, and relation {relation.name!r} does not say how far "
            "apart in time it reaches. Train on sequences, on graphs of crfield.chain or crfield.layers, or answer "
            "whole graphs with predict."
        )
    return int(found[2])


def dense_kinds(encoder: GraphEncoder) -> bool:
    """Whether the nodes of every kind have arrays of plain numbers."""
    return all(kind["form"] == "dense" for kind in encoder.state()[0]["kinds"])


def linear_steps(model: GraphModel, *, shared: bool = False) -> DenseSteps:
    """Weights times numbers, of every kind; columns are those of all kinds, or the same for all if ``shared``.

    >>> from crfield import Graph, GraphCRF, chain
    >>> model = GraphCRF().fit([chain([[0.5], [2.0]])], [["a", "b"]])
    >>> linear_steps(model._fitted).weights.shape
    (1, 2)
    """
    layout, weights, encoder = model.layout, model.weights, model.encoder
    arrays = encoder.state()[1]
    sizes, widths = layout.sizes, [layout_.n_dense for layout_ in layout.nodes]
    size, width = sum(sizes), widths[0] if shared else sum(widths)
    table, bias = np.zeros((width, size)), np.zeros(size)
    mean, deviation = np.zeros(width), np.ones(width)
    ends = list(pairwise([0, *np.cumsum(sizes).tolist()]))
    rows = [(0, width)] * len(sizes) if shared else list(pairwise([0, *np.cumsum(widths).tolist()]))
    for number, (kind, (a, b), (first, last)) in enumerate(zip(encoder.schema.kinds, ends, rows)):
        table[first:last, a:b] = weights[layout.part[f"{kind.name}/dense"]].reshape(last - first, b - a)
        own = weights[layout.part[f"{kind.name}/bias"]]
        bias[a:b] = own if len(own) else 0.0
        if f"kind{number}/scale_dense_mean" in arrays:
            mean[first:last] = arrays[f"kind{number}/scale_dense_mean"]
            deviation[first:last] = arrays[f"kind{number}/scale_dense_deviation"]
    names = tuple([encoder.dense_name(k) for k in range(width)])
    if shared:
        names = tuple([name.removeprefix(f"{encoder.schema.kinds[0].name}: ") for name in names])
    return DenseSteps(table, np.zeros((size, size)), bias=bias, mean=mean, deviation=deviation, names=names)


def relation_tables(model: GraphModel) -> dict[int, np.ndarray]:
    """The table (L, L) of every relation: 0 where a pair has no weight, −∞ where it is forbidden."""
    relations = enumerate(model.encoder.schema.relations)
    return {
        n: np.nan_to_num(model.layout.table(model.weights, r.name), nan=0.0, neginf=-np.inf) for n, r in relations
    }


def model_digest(model: Model) -> str:
    """A word that differs between fitted models of graphs."""
    state = model.state()
    return hashed([state.header], list(state.arrays.values()))


def one_step_graphs(rows: Sequence[Any]) -> list[Graph]:
    """Graphs of one node each."""
    return [Graph(joined_steps([row])) for row in rows]
