"""Graphs to a `GraphBatch`: the encoders of sequences, one for each kind of nodes and each relation with features.

A table of features is the same thing whether its rows are steps of a sentence, cells of an image or edges of a
relation, so a graph encoder owns no alphabet. It holds a `RecordEncoder` or a `MatrixEncoder` for every kind of nodes
and for every relation with edge features, hands them the graphs as if they were sequences, and puts the columns side
by side: kind k has a range of columns of its own, of which nodes of other kinds have none.

``fit`` also learns the schema: which kinds and relations there are, in order of first appearance, which kinds a
relation joins, and whether it is symmetric. All graphs must agree. Later graphs may lack kinds and relations, but one
that the model has never seen has no weights and is refused.

With ``missing`` NaN in the matrices of nodes is a missing value, for models that only compare numbers.

Cost: that of the encoders, and one sort of the edges by graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind, Relation
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, ModelFileError, NotFittedError
from crfield.features.columns.select import check_min_count
from crfield.features.graphs.table import FeatureTable, side_by_side
from crfield.features.matrices import MatrixEncoder

__all__ = ["GraphEncoder"]


class GraphEncoder:
    """Encoder of a list of `Graph`.

    >>> graphs = [Graph([["a"], ["b"], ["a"]], {"next": [(0, 1), (1, 2)]}), Graph([["b"]], {"next": []})]
    >>> encoder = GraphEncoder()
    >>> encoder.fit(graphs)
    GraphBatch(2 graphs, 4 nodes, 2 edges, 2 + 0 columns)
    >>> encoder.node_name(1), encoder.schema.relations
    ('b', (Relation(name='next', tail=0, head=0, symmetric=False, n_columns=0, n_dense=0),))
    >>> encoder.encode([Graph(2, {"near": [(0, 1)]})])
    Traceback (most recent call last):
    crfield.errors.InputError: graph 0: unknown relation 'near': the model knows 'next'. ...
    """

    kind = "graph"

    def __init__(self, *, standardize: bool = False, missing: bool = False) -> None:
        self.standardize, self.missing = bool(standardize), bool(missing)
        self._schema: GraphSchema | None = None
        self._nodes: list[FeatureTable] = []  # one for each kind
        self._edges: list[FeatureTable] = []  # one for each relation

    def __repr__(self) -> str:
        return f"GraphEncoder(standardize={self.standardize})"

    @property
    def schema(self) -> GraphSchema:
        """Kinds and relations, and where their columns are."""
        if self._schema is None:
            raise NotFittedError("this GraphEncoder knows no graphs yet. Call fit(graphs) first.")
        return self._schema

    def fit(self, graphs: Sequence[Graph], *, min_count: int = 1) -> GraphBatch:
        """Learn kinds, relations and columns, and encode; columns on fewer than ``min_count`` rows are dropped."""
        min_count = check_min_count(min_count)
        graphs = _listed(graphs)
        if not graphs:
            raise InputError("there is no graph to learn from: expected a list with at least one Graph.")
        kinds = list(dict.fromkeys(kind for graph in graphs for kind in graph.kinds))
        relations = _relations(graphs, kinds)
        nodes = [FeatureTable(f"nodes of kind {kind!r}", "node", missing=self.missing) for kind in kinds]
        edges = [FeatureTable(f"edges of relation {relation.name!r}", "edge") for relation in relations]
        node_columns = [
            table.fit(_node_features(graphs, kind), self.standardize, min_count) for table, kind in zip(nodes, kinds)
        ]
        edge_columns = [
            table.fit(_edge_features(graphs, relation.name), self.standardize, min_count)
            for table, relation in zip(edges, relations)
        ]
        self._nodes, self._edges = nodes, edges
        self._schema = _schema(kinds, relations, nodes, edges)
        return self._batch(graphs, node_columns, edge_columns)

    def encode(self, graphs: Sequence[Graph]) -> GraphBatch:
        """Encode graphs with the kinds, relations and columns learnt in ``fit``."""
        schema, graphs = self.schema, _listed(graphs)
        self._check(graphs, schema)
        node_columns = [
            table.encode(_node_features(graphs, kind.name)) for table, kind in zip(self._nodes, schema.kinds)
        ]
        edge_columns = [
            table.encode(_edge_features(graphs, relation.name))
            for table, relation in zip(self._edges, schema.relations)
        ]
        return self._batch(graphs, node_columns, edge_columns)

    def node_name(self, column: int) -> str:
        """Name of a sparse node column; with several kinds, "kind: name"."""
        return self._node_name(column, "columns")

    def dense_name(self, column: int) -> str:
        """Name of a dense node column; with several kinds, "kind: name"."""
        return self._node_name(column, "dense")

    def had_gaps(self, column: int, part: str) -> bool:
        """Whether values of a node column of a part, "sparse" or "dense", were missing in ``fit``.

        >>> encoder = GraphEncoder(missing=True)
        >>> _ = encoder.fit([Graph([[1.0, float("nan")]], missing=True)])
        >>> encoder.had_gaps(0, "dense"), encoder.had_gaps(1, "dense")
        (False, True)
        """
        table, own = self._node_table(column, "columns" if part == "sparse" else "dense")
        return isinstance(table.encoder, MatrixEncoder) and table.encoder.had_gaps(own)

    def edge_name(self, relation: int | str, column: int) -> str:
        """Name of a sparse column of the edges of a relation, given by number or name."""
        return str(self._edge_table(relation).encoder.node_name(column))

    def edge_dense_name(self, relation: int | str, column: int) -> str:
        """Name of a dense column of the edges of a relation, given by number or name."""
        return str(self._edge_table(relation).encoder.dense_name(column))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and the arrays from which ``from_state`` makes the same encoder again."""
        schema = self.schema
        arrays: dict[str, np.ndarray] = {}
        headers = [
            table.state(f"{group}{number}/", arrays)
            for group, tables in (("kind", self._nodes), ("relation", self._edges))
            for number, table in enumerate(tables)
        ]
        header = {
            "kind": self.kind,
            "standardize": self.standardize,
            "kinds": [{"name": kind.name, **headers.pop(0)} for kind in schema.kinds],
            "relations": [
                {"name": r.name, "tail": r.tail, "head": r.head, "symmetric": r.symmetric, **headers.pop(0)}
                for r in schema.relations
            ],
        }
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> GraphEncoder:
        """The encoder whose ``state`` this is; ModelFileError when it cannot be one.

        >>> encoder = GraphEncoder()
        >>> _ = encoder.fit([Graph([["a"], ["b"]], [(0, 1)])])
        >>> GraphEncoder.from_state(*encoder.state()).node_name(0)
        'a'
        """
        if not isinstance(header, dict) or header.get("kind") != cls.kind or "standardize" not in header:
            raise ModelFileError("the header is not one of an encoder of graphs. Was the file edited?")
        made = cls(standardize=bool(header["standardize"]))
        kinds = _named(header.get("kinds"), "kinds")
        relations = _named(header.get("relations"), "relations")
        if not kinds:
            raise ModelFileError("the encoder of graphs knows no kind of nodes. Was the file edited?")
        plain = []
        for item in relations:
            tail, head, symmetric = (item.get(key) for key in ("tail", "head", "symmetric"))
            if (
                any(type(end) is not int or not 0 <= end < len(kinds) for end in (tail, head))
                or type(symmetric) is not bool
                or (symmetric and tail != head)
            ):
                raise ModelFileError(f"relation {item['name']!r} in the model file is damaged: {tail}, {head}.")
            plain.append(Relation(item["name"], tail, head, symmetric))  # type: ignore[arg-type]
        made._nodes = [
            FeatureTable.from_state(f"nodes of kind {item['name']!r}", "node", item, f"kind{number}/", arrays)
            for number, item in enumerate(kinds)
        ]
        made._edges = [
            FeatureTable.from_state(f"edges of relation {item['name']!r}", "edge", item, f"relation{number}/", arrays)
            for number, item in enumerate(relations)
        ]
        made._schema = _schema([item["name"] for item in kinds], plain, made._nodes, made._edges)
        return made

    def _node_name(self, column: int, part: str) -> str:
        table, own = self._node_table(column, part)
        name = str(getattr(table.encoder, "node_name" if part == "columns" else "dense_name")(own))
        kind = self.schema.kinds[self._nodes.index(table)]
        return name if len(self._nodes) == 1 else f"{kind.name}: {name}"

    def _node_table(self, column: int, part: str) -> tuple[FeatureTable, int]:
        """The table of the kind that has a column, and the column's number there."""
        for kind, table in zip(self.schema.kinds, self._nodes):
            start, stop = getattr(kind, part)
            if start <= column < stop:
                return table, column - start
        raise IndexError(f"there is no node column {column}")

    def _edge_table(self, relation: int | str) -> FeatureTable:
        number = self.schema.relation(relation) if isinstance(relation, str) else relation
        table = self._edges[number]
        if table.encoder is None:
            raise InputError(f"the {table.what} have no features, so their columns have no names.")
        return table

    def _check(self, graphs: list[Graph], schema: GraphSchema) -> None:
        for number, graph in enumerate(graphs):
            try:
                for name in graph.kinds:
                    schema.kind(name)
                for name, edges in graph.edges.items():
                    known = schema.relations[schema.relation(name)]
                    if edges.n_edges:
                        _check_nature(name, edges.symmetric, known.symmetric)
                        expected = (schema.kinds[known.tail].name, schema.kinds[known.head].name)
                        _check_ends(name, graph.ends(name), expected)
            except InputError as error:
                raise InputError(f"graph {number}: {error}") from None

    def _batch(
        self, graphs: list[Graph], node_columns: list[Columns], edge_columns: list[Columns | None]
    ) -> GraphBatch:
        schema = self.schema
        offsets = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum([graph.n_nodes for graph in graphs], dtype=np.int64)]
        )
        kind = [_renumbered(graph.kind_of_node, [schema.kind(name) for name in graph.kinds]) for graph in graphs]
        pairs, owner, relation = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for number, wanted in enumerate(schema.relations):
            for g, graph in enumerate(graphs):
                edges = graph.edges.get(wanted.name)
                if edges is not None and edges.n_edges:
                    pairs.append(edges.pairs + offsets[g])
                    owner.append(np.full(edges.n_edges, g))
                    relation.append(np.full(edges.n_edges, number, np.int32))
        ends, graph_of_edge, relation_of_edge = np.concatenate(pairs), np.concatenate(owner), np.concatenate(relation)
        if len(graphs) > 1:
            # Stable: within a graph the edges keep the order of relations, and within a relation that of the user.
            order = np.argsort(graph_of_edge, kind="stable")
            ends, relation_of_edge = ends[order], relation_of_edge[order]
        codes = np.concatenate([np.zeros(0, np.int32), *kind])
        node = side_by_side(node_columns, codes)
        topology = Graphs(offsets, ends[:, 0], ends[:, 1])
        return GraphBatch(topology, node, codes, relation_of_edge, tuple(edge_columns))


def _listed(graphs: Any) -> list[Graph]:
    if isinstance(graphs, Graph):
        raise InputError("expected a list of graphs, got a single Graph. Write [graph].")
    if isinstance(graphs, str | bytes | dict) or not hasattr(graphs, "__iter__"):
        raise InputError(f"expected a list of graphs, got {type(graphs).__name__}.")
    listed = list(graphs)
    for number, graph in enumerate(listed):
        if not isinstance(graph, Graph):
            raise InputError(
                f"graph {number} is a {type(graph).__name__}, expected a Graph. Make it with Graph(nodes, edges) or "
                "a builder such as grid(image)."
            )
    return listed


def _relations(graphs: list[Graph], kinds: list[str]) -> list[Relation]:
    ends: dict[str, tuple[str, str]] = {}
    symmetric: dict[str, bool] = {}
    names: dict[str, bool] = {}  # what graphs without an edge of the relation say of its symmetry
    for number, graph in enumerate(graphs):
        for name, edges in graph.edges.items():
            names[name] = names.get(name, False) or edges.symmetric
            found = graph.ends(name)
            try:
                if found is not None:
                    _check_ends(name, found, ends.setdefault(name, found))
                if edges.n_edges:
                    _check_nature(name, edges.symmetric, symmetric.setdefault(name, edges.symmetric))
            except InputError as error:
                raise InputError(f"graph {number}: {error}") from None
    made = []
    for name, said in names.items():
        if name not in ends and len(kinds) > 1:
            raise InputError(
                f"relation {name!r} has no edge in any of {len(graphs)} graphs, so the kinds that it joins cannot be "
                "told. Leave it out, or write Edges([], between=(kind, other))."
            )
        tail, head = (kinds.index(kind) for kind in ends.get(name, (kinds[0], kinds[0])))
        made.append(Relation(name, tail, head, symmetric.get(name, said) and tail == head))
    return made


def _check_nature(name: str, found: bool, expected: bool) -> None:
    if found != expected:
        words = {True: "symmetric", False: "directed"}
        raise InputError(
            f"relation {name!r} is {words[found]} here and {words[expected]} in the graphs before. Make it the same "
            "in all graphs, or give the two relations different names."
        )


def _check_ends(name: str, found: tuple[str, str] | None, expected: tuple[str, str]) -> None:
    if found != expected:
        raise InputError(
            f"relation {name!r} joins the kinds {found} here and {expected} in the graphs before. A relation joins "
            "the same kinds everywhere: use one for each."
        )


def _schema(
    kinds: list[str], relations: list[Relation], nodes: list[FeatureTable], edges: list[FeatureTable]
) -> GraphSchema:
    columns = np.cumsum([0, *(table.width for table in nodes)]).tolist()
    dense = np.cumsum([0, *(table.n_dense for table in nodes)]).tolist()
    return GraphSchema(
        tuple(NodeKind(*parts) for parts in zip(kinds, pairwise(columns), pairwise(dense))),
        tuple(
            Relation(r.name, r.tail, r.head, r.symmetric, table.width, table.n_dense)
            for r, table in zip(relations, edges)
        ),
    )


def _node_features(graphs: list[Graph], kind: str) -> list[tuple[Any, int]]:
    found = []
    for graph in graphs:
        rows = 0 if kind not in graph.kinds else int((graph.kind_of_node == graph.kinds.index(kind)).sum())
        found.append((graph.nodes.get(kind), rows))
    return found


def _edge_features(graphs: list[Graph], relation: str) -> list[tuple[Any, int]]:
    edges = [graph.edges.get(relation) for graph in graphs]
    return [(None, 0) if some is None else (some.features, some.n_edges) for some in edges]


def _renumbered(codes: np.ndarray, numbers: list[int]) -> np.ndarray:
    return np.asarray(numbers, np.int32)[codes]


def _named(items: Any, what: str) -> list[dict[str, Any]]:
    if (
        not isinstance(items, list)
        or not all(isinstance(item, dict) and isinstance(item.get("name"), str) and item["name"] for item in items)
        or len({item["name"] for item in items}) != len(items)
    ):
        raise ModelFileError(f"the {what} of the graph encoder are damaged. Was the file edited?")
    return items
