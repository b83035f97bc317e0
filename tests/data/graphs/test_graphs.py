"""Graphs as users write them: records, builders, encoding and labels."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from crfield.core.target import Target
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.builders import chain, edge_list, from_networkx, grid, layers
from crfield.data.graphs.graph import Edges, Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import FeatureError, InputError, LabelError, ModelFileError, NotFittedError, ShapeError
from crfield.features.graphs.encoder import GraphEncoder


def same_columns(one: GraphBatch, other: GraphBatch) -> None:
    for left, right in zip((one.node, *one.edge), (other.node, *other.edge), strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            assert left.width == right.width
            np.testing.assert_array_equal(left.indptr, right.indptr)
            np.testing.assert_array_equal(left.indices, right.indices)
            values = [np.ones(len(c.indices)) if c.values is None else c.values for c in (left, right)]
            np.testing.assert_array_equal(*values)
            assert left.n_dense == right.n_dense
            if left.n_dense:
                np.testing.assert_array_equal(left.dense, right.dense)
    for name in ("offsets", "tails", "heads"):
        np.testing.assert_array_equal(getattr(one.topology, name), getattr(other.topology, name))
    np.testing.assert_array_equal(one.kind, other.kind)
    np.testing.assert_array_equal(one.relation, other.relation)


def day(steps: int, seed: int = 0) -> Graph:
    """Two kinds of nodes, with records and with numbers, and edge features on one relation."""
    rng = np.random.default_rng(seed)
    words = [{"speed": float(rng.normal()), "mode": "fast" if rng.random() < 0.5 else "slow"} for _ in range(steps)]
    along = np.stack([np.arange(steps - 1), np.arange(1, steps)], axis=1)
    return Graph(
        {"state": words, "place": rng.normal(size=(steps, 2))},
        {
            "next": Edges(along, features=rng.normal(size=(steps - 1, 3)), between=("state", "state")),
            "at": Edges(np.repeat(np.arange(steps), 2).reshape(-1, 2), between=("state", "place")),
            "near": Edges(along, symmetric=True, between=("place", "place")),
        },
    )


WRONG = [
    (lambda: Graph(3, [(0, 3)]), ShapeError, r"relation 'edge', row 0: node 3 does not exist"),
    (lambda: Graph(3, {"a": [(0, 1), (1, -1)]}), ShapeError, r"relation 'a', row 1: node -1"),
    (lambda: Graph(3, {"a": [(0, 1), (2, 2)]}), ShapeError, r"relation 'a', row 1 joins node 2 to itself"),
    (lambda: Graph(3, {"a": [(0.5, 1.0)]}), InputError, r"relation 'a': pairs must be integers"),
    (lambda: Graph(3, {"a": [[0, 1, 2]]}), ShapeError, r"relation 'a': pairs must be \(M, 2\)"),
    (lambda: Graph(3, {"a": np.zeros((2, 5), int)}), ShapeError, "Transpose it"),
    (lambda: Graph(3, {1: [(0, 1)]}), InputError, "relation is named by a non-empty string"),
    (lambda: Graph(np.zeros(3)), ShapeError, r"must be 2-D"),
    (lambda: Graph(np.array([[1.0], [np.nan]])), FeatureError, "nodes, row 1: column 0 must be a finite number"),
    (lambda: Graph(csr_array([[0.0, np.inf]])), FeatureError, "nodes, row 0: column 1 must be a finite number"),
    (lambda: Graph(2, {"a": Edges([(0, 1)], features=[[1.0], [2.0]])}), ShapeError, "'a': there are 1 edges but 2"),
    (lambda: Graph(2, {"a": Edges([(0, 1)], features=[[np.nan]])}), FeatureError, "relation 'a', row 0: column 0"),
    (lambda: Graph([[1.0], [1.0, 2.0]]), ShapeError, "Are all rows equally long"),
    (lambda: Graph("abc"), FeatureError, "nodes cannot be a str"),
    (lambda: Graph(-1), ShapeError, "cannot be -1"),
    (lambda: Graph(np.array([["a"]])), FeatureError, "must be real numbers"),
    (lambda: Graph({}), InputError, "empty dict"),
    (lambda: Graph(3, kinds=["a"]), ShapeError, "kind of each of 3 nodes, got 1"),
    (lambda: Graph({"a": 1}, kinds=["a"]), InputError, "Leave out kinds"),
    (lambda: Graph({"a": 2, "b": 2}, {"r": [(0, 2), (0, 1)]}), InputError, r"from 'a' to 'a' in row 1"),
    (lambda: Graph({"a": 1, "b": 1}, {"r": Edges([(0, 1)], symmetric=True)}), InputError, "symmetric but joins two"),
    (lambda: Graph({"a": 1, "b": 1}, {"r": Edges([(0, 1)], between=("a", "b"))}), ShapeError, "kind 'b' has 1 nodes"),
    (lambda: Graph(1, {"r": Edges([], between=("a", "b"))}), InputError, "no nodes of kind 'a'"),
    (lambda: grid(np.zeros(4)), ShapeError, "image"),
    (lambda: grid([[1.0], [1.0, 2.0]]), ShapeError, "equally long"),
    (lambda: grid(np.zeros((2, 2)), neighbours=6), InputError, "4 or 8"),
    (lambda: grid(5, shape=(2, 2)), ShapeError, "4 nodes but 5"),
    (lambda: grid(np.zeros((2, 2)), edge_features="both"), InputError, "symmetric"),
    (lambda: grid(np.zeros((2, 2)), edge_features="nearness"), InputError, "edge_features must be"),
    (lambda: chain(3, edge_features="difference"), FeatureError, "needs features of the nodes"),
    (lambda: chain(3, distances=(0,)), InputError, "integers ≥ 1"),
    (lambda: layers({"a": 2, "b": 3}), ShapeError, "same number of steps"),
    (lambda: layers({"a": 2, "b": 2}, between=[("a", "c")]), InputError, "two different layers"),
    (lambda: edge_list(2, [(0, 1)], features=np.zeros((3, 1))), ShapeError, "2 nodes but 3"),
    (lambda: from_networkx([(0, 1)]), InputError, "expected a networkx graph"),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG, ids=range(len(WRONG)))
def test_wrong_graphs_are_refused_in_words(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_kinds_in_a_dict_and_in_a_list_are_the_same() -> None:
    x = np.arange(8.0).reshape(4, 2)
    by_dict = Graph({"a": x[:2], "b": x[2:]}, {"r": [(0, 2)]})
    by_list = Graph(x, {"r": [(0, 2)]}, kinds=["a", "a", "b", "b"])
    assert by_dict.kinds == by_list.kinds == ("a", "b")
    same_columns(GraphEncoder().fit([by_dict]), GraphEncoder().fit([by_list]))
    mixed = Graph([["x"], ["y"], ["z"]], kinds=["a", "b", "a"])
    assert mixed.nodes == {"a": [["x"], ["z"]], "b": [["y"]]}
    assert mixed.nodes_of("a").tolist() == [0, 2]


@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (4, 1), (1, 1), (0, 3)])
def test_a_grid_joins_the_cells_that_touch(shape: tuple[int, int], neighbours: int) -> None:
    cells = list(itertools.product(range(shape[0]), range(shape[1])))
    expected = set()
    for one, other in itertools.combinations(cells, 2):
        apart = sorted((abs(one[0] - other[0]), abs(one[1] - other[1])))
        if apart == [0, 1] or (neighbours == 8 and apart == [1, 1]):
            expected.add(frozenset((one, other)))
    plain = grid(np.zeros(shape), neighbours=neighbours)
    directed = grid(np.zeros((*shape, 2)), neighbours=neighbours, directed=True)
    moves = {"right": (0, 1), "down": (1, 0), "down_right": (1, 1), "down_left": (1, -1)}
    for graph in (plain, directed):
        found = [frozenset(cells[n] for n in pair) for e in graph.edges.values() for pair in e.pairs]
        assert len(found) == len(expected)
        assert set(found) == expected
    for name, edges in directed.edges.items():
        assert not edges.symmetric
        for tail, head in edges.pairs:
            assert tuple(np.subtract(cells[head], cells[tail])) == moves[name]
    assert all(edges.symmetric for edges in plain.edges.values())


def test_an_image_is_read_row_by_row_and_keeps_its_columns() -> None:
    image = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(grid(image).nodes["node"], image.reshape(6, 2))
    np.testing.assert_array_equal(grid(image[:, :, 0]).nodes["node"], image[:, :, :1].reshape(6, 1))
    flat = grid(csr_array(image.reshape(6, 2)), shape=(2, 3))
    np.testing.assert_array_equal(flat.nodes["node"].toarray(), image.reshape(6, 2))


def test_edge_features_from_the_two_ends() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 2))
    rows = x.reshape(6, 2)
    for name in ("difference", "both"):
        dense = grid(x, directed=True, edge_features=name).edges["down"]
        sparse = grid(csr_array(rows), shape=(2, 3), directed=True, edge_features=name).edges["down"]
        tails, heads = dense.pairs.T
        expected = abs(rows[tails] - rows[heads]) if name == "difference" else np.hstack([rows[tails], rows[heads]])
        np.testing.assert_array_equal(dense.features, expected)
        np.testing.assert_array_equal(sparse.features.toarray(), expected)
    product = chain(rows, edge_features=lambda f, tails, heads: f[tails] * f[heads]).edges["+1"]
    np.testing.assert_array_equal(product.features, rows[:-1] * rows[1:])
    words = chain([["a"], ["b"]], edge_features="both").edges["+1"]
    assert words.features == [["tail:a", "head:b"]]
    dicts = chain([{"w": "a"}, {"w": "b"}], edge_features="both").edges["+1"]
    assert dicts.features == [{"tail:w": "a", "head:w": "b"}]


def test_chains_and_layers() -> None:
    long = chain(5, distances=(1, 3))
    assert long.edges["+1"].pairs.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert long.edges["+3"].pairs.tolist() == [[0, 3], [1, 4]]
    assert chain(2, distances=(5,)).n_edges == 0
    three = layers({"a": 2, "b": 2, "c": 2}, between=[("c", "a")])
    assert {name: e.pairs.tolist() for name, e in three.edges.items()} == {
        "a+1": [[0, 1]],
        "b+1": [[2, 3]],
        "c+1": [[4, 5]],
        "c-a": [[4, 0], [5, 1]],
    }
    batch = GraphEncoder().fit([layers({"a": 1, "b": 1}), layers({"a": 3, "b": 3})])
    assert batch.n_graphs == 2
    schema = (encoder := GraphEncoder()).fit([layers({"a": 1, "b": 1})]) and encoder.schema
    assert [(r.tail, r.head) for r in schema.relations] == [(0, 0), (1, 1), (0, 1)]


class Network:
    """What the builder uses of networkx."""

    def __init__(self, nodes: list[Any], edges: list[Any], directed: bool) -> None:
        self._nodes, self._edges, self._directed = nodes, edges, directed

    def nodes(self, data: bool) -> list[Any]:
        return self._nodes

    def edges(self, data: bool) -> list[Any]:
        return self._edges

    def is_directed(self) -> bool:
        return self._directed


def test_networks() -> None:
    nodes = [("u", {"x": 1.0, "w": 7}), ("v", {"x": 2.0, "w": 8}), ("t", {"x": 3.0, "w": 9, "kind": "tag"})]
    edges = [("u", "v", {"e": [1.0]}), ("v", "u", {"e": [2.0]}), ("t", "u", {"relation": "has", "e": [3.0]})]
    graph = from_networkx(Network(nodes, edges, directed=False), edge_features="e")
    assert graph.kinds == ("node", "tag")
    assert graph.edges["edge"].symmetric
    assert graph.edges["edge"].pairs.tolist() == [[0, 1], [1, 0]]  # parallel edges stay
    assert graph.edges["has"].pairs.tolist() == [[0, 2]]  # from the kind that comes first
    assert not graph.edges["has"].symmetric
    assert graph.edges["edge"].features.tolist() == [[1.0], [2.0]]
    assert graph.nodes["tag"].tolist() == [[3.0]]
    directed = from_networkx(Network(nodes[:2], edges[:2], directed=True), node_features="w")
    assert not directed.edges["edge"].symmetric
    assert directed.nodes["node"].tolist() == [[7.0], [8.0]]
    assert from_networkx(Network(nodes, edges[:1], directed=True), node_features=None, kind="none").nodes == {
        "node": None
    }
    with pytest.raises(FeatureError, match="node 'u' has no attribute 'z'"):
        from_networkx(Network(nodes, edges, directed=False), node_features="z")
    words = [("u", {"x": {"w": "a"}}), ("v", {"x": {"w": "b"}})]
    assert from_networkx(Network(words, [], directed=True)).nodes["node"] == [{"w": "a"}, {"w": "b"}]


def test_real_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    network = networkx.MultiGraph()
    network.add_node("a", x=[1.0, 0.0])
    network.add_node("b", x=[0.0, 1.0])
    network.add_edge("a", "b", relation="near")
    network.add_edge("a", "b", relation="near")
    assert repr(from_networkx(network)) == "Graph(2 nodes, 2 edges: near 2 symmetric)"


def test_all_forms_of_features_give_the_same_numbers() -> None:
    rng = np.random.default_rng(1)
    tables = [rng.normal(size=(n, 3)) for n in (4, 1, 3)]
    pairs = [[(0, 1), (2, 3)], [], [(2, 0)]]
    forms = {
        "dense": lambda x: x,
        "list": lambda x: x.tolist(),
        "sparse": csr_array,
        "dicts": lambda x: [{f"c{k}": v for k, v in enumerate(row)} for row in x.tolist()],
        "vectors": lambda x: [{"c": row} for row in x],
    }
    made = {}
    for name, write in forms.items():
        encoder = GraphEncoder()
        graphs = [Graph(write(x), {"r": Edges(p, write(x[: len(p)]))}) for x, p in zip(tables, pairs)]
        made[name] = batch = encoder.fit(graphs)
        same_columns(batch, encoder.encode(graphs))
        full = []
        for columns in (batch.node, batch.edge[0]):
            assert columns is not None
            values = np.ones(len(columns.indices)) if columns.values is None else columns.values
            matrix = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
            full.append(
                np.hstack(
                    [matrix.toarray(), np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense]
                )
            )
        np.testing.assert_array_equal(full[0], np.concatenate(tables))
        np.testing.assert_array_equal(full[1], np.concatenate([x[: len(p)] for x, p in zip(tables, pairs)]))
    assert made["dense"].topology.tails.tolist() == [0, 2, 7]
    assert made["dense"].topology.heads.tolist() == [1, 3, 5]


def test_edges_lie_by_graph_then_relation() -> None:
    graphs = [
        Graph(3, {"a": [(0, 1)], "b": [(1, 2), (0, 2)]}),
        Graph(0, {"b": []}),
        Graph(2, {"b": [(1, 0)], "a": [(0, 1), (0, 1)]}),
    ]
    batch = GraphEncoder().fit(graphs)
    assert batch.relation.tolist() == [0, 1, 1, 0, 0, 1]
    assert batch.topology.tails.tolist() == [0, 1, 0, 3, 3, 4]
    assert batch.topology.edge_offsets.tolist() == [0, 3, 3, 6]
    assert batch.edges_of(1).tolist() == [1, 2, 5]


@pytest.mark.parametrize("chosen", [[2, 0], [1], [], slice(0, 2), np.array([True, False, True]), -1, [1, 1]])
def test_taking_graphs_is_encoding_them_alone(chosen: Any) -> None:
    graphs = [day(3, 0), day(2, 1), day(4, 2)]
    encoder = GraphEncoder()
    batch = encoder.fit(graphs)
    numbers = np.atleast_1d(np.arange(3)[np.zeros(0, int) if isinstance(chosen, list) and not chosen else chosen])
    same_columns(batch.take(chosen), encoder.encode([graphs[n] for n in numbers]))


def test_kinds_have_columns_of_their_own_and_names() -> None:
    encoder = GraphEncoder()
    batch = encoder.fit([day(3), day(2, 5)])
    schema = encoder.schema
    assert [(k.name, k.columns, k.dense) for k in schema.kinds] == [
        ("state", (0, 3), (0, 0)),
        ("place", (3, 3), (0, 2)),
    ]
    assert batch.node.dense is not None
    assert not batch.node.dense[batch.kind == 0].any()
    assert (np.diff(batch.node.indptr)[batch.kind == 1] == 0).all()
    assert sorted(encoder.node_name(k) for k in range(3)) == ["state: mode=fast", "state: mode=slow", "state: speed"]
    assert encoder.dense_name(1) == "place: x[1]"
    assert encoder.edge_dense_name("next", 2) == encoder.edge_dense_name(0, 2) == "x[2]"
    with pytest.raises(InputError, match="have no features"):
        encoder.edge_name("at", 0)
    with pytest.raises(IndexError):
        encoder.dense_name(2)
    two = (both := GraphEncoder()).fit([Graph({"a": [["p"], ["q"]], "b": [["p"]]}, kinds=None)])
    assert two.node.indices.tolist() == [0, 1, 2]
    assert [both.node_name(k) for k in range(3)] == ["a: p", "a: q", "b: p"]


def test_standardisation_and_rare_columns_reach_the_encoders() -> None:
    x = np.random.default_rng(2).normal(3.0, 5.0, (50, 2))
    batch = GraphEncoder(standardize=True).fit([Graph(x, {"r": Edges([(0, 1), (1, 2)], features=x[:2])})])
    assert batch.node.dense is not None
    np.testing.assert_allclose(batch.node.dense.std(axis=0), 1.0)
    assert GraphEncoder().fit([Graph([["a"], ["a"], ["b"]])], min_count=2).node.width == 1


def test_what_training_never_saw_is_dropped_or_refused() -> None:
    encoder = GraphEncoder()
    encoder.fit([day(3)])
    assert encoder.encode([Graph({"state": [{"mode": "jump"}]})]).node.indices.tolist() == []
    assert encoder.encode([]).n_graphs == 0
    wrong = [
        (
            Graph({"state": [{"mode": "a"}], "car": 1}),
            InputError,
            r"graph 0: unknown kind 'car': the model knows 'state', 'p",
        ),
        (Graph({"state": [{"mode": "a"}]}, {"far": []}), InputError, r"graph 0: unknown relation 'far'"),
        (
            Graph({"place": np.zeros((1, 3))}),
            ShapeError,
            r"graph 0: the nodes of kind 'place' have 3 columns, expect",
        ),
        (Graph({"place": 1}), FeatureError, r"the nodes of kind 'place' have no features, expected a dense matrix"),
        (Graph({"place": [["a"]]}), FeatureError, r"have records, expected a dense"),
        (
            Graph({"state": [{"mode": "a"}] * 2}, {"near": [(0, 1)]}),
            InputError,
            "'near' is directed here and symmetric",
        ),
        (
            Graph({"state": [{"mode": "a"}] * 2}, {"near": Edges([(0, 1)], symmetric=True)}),
            InputError,
            r"'near' joins the kinds \('state', 'state'\) here and \('place', 'place'\)",
        ),
        (
            Graph({"state": [{"mode": "a"}] * 2}, {"next": [(0, 1)]}),
            FeatureError,
            "edges of relation 'next' have no feat",
        ),
        (Graph({"state": [["a"], {"s": np.nan}]}), FeatureError, "nodes of kind 'state': graph 0, node 1"),
    ]
    for graph, error, words in wrong:
        with pytest.raises(error, match=words):
            encoder.encode([graph])
    with pytest.raises(InputError, match=r"graph 1 is a int"):
        encoder.encode([day(2), 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"Write \[graph\]"):
        encoder.encode(day(2))  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        GraphEncoder().encode([day(2)])


def test_graphs_that_do_not_agree_cannot_be_fitted() -> None:
    pair = Edges([(0, 1)], symmetric=True)
    wrong = [
        ([Graph(2, {"r": pair}), Graph(2, {"r": [(0, 1)]})], "graph 1: relation 'r' is directed here and symmetric"),
        ([Graph(np.eye(2)), Graph(2)], "nodes of kind 'node': graph 0 has a dense matrix, graph 1 no features"),
        ([Graph(np.eye(2)), Graph(np.eye(3))], "graph 1: the nodes of kind 'node' have 3 columns, expected 2"),
        ([Graph({"a": 1, "b": 1}, {"r": []})], "relation 'r' has no edge in any of 1 graphs"),
        ([], "no graph to learn from"),
    ]
    for graphs, words in wrong:
        with pytest.raises(InputError, match=words):
            GraphEncoder().fit(graphs)
    # An empty list of pairs says nothing of the nature of a relation.
    encoder = GraphEncoder()
    encoder.fit([Graph(1, {"r": []}), Graph(2, {"r": pair})])
    assert encoder.schema.relations[0].symmetric


@pytest.mark.parametrize("standardize", [False, True])
def test_encoders_come_back_from_their_state(standardize: bool) -> None:
    graphs = [day(4), day(3, 7)]
    encoder = GraphEncoder(standardize=standardize)
    batch = encoder.fit(graphs)
    header, arrays = encoder.state()
    again = GraphEncoder.from_state(json.loads(json.dumps(header)), arrays)
    assert again.schema == encoder.schema
    same_columns(again.encode(graphs), batch)
    assert again.node_name(0) == encoder.node_name(0)
    same_columns(pickle.loads(pickle.dumps(encoder)).encode(graphs), batch)


def test_damaged_states_of_encoders_are_refused() -> None:
    encoder = GraphEncoder(standardize=True)
    encoder.fit([day(4), Graph({"state": [["a"]]})])
    header, arrays = encoder.state()
    text = json.dumps(header)
    damages = [
        ('"kind": "graph"', '"kind": "chain"'),
        ('"name": "place"', '"name": "state"'),
        ('"name": "place"', '"name": 3'),
        ('"tail": 0', '"tail": 9'),
        ('"tail": 0', '"tail": true'),
        ('"symmetric": true', '"symmetric": 1'),
        ('"head": 1, "symmetric": false', '"head": 1, "symmetric": true'),
        ('"form": "records"', '"form": "dense"'),
        ('"form": "records"', '"form": []'),
        ('"n_dense": 3', '"n_dense": 4'),
        ('"n_dense": 3', '"n_dense": -1'),
    ]
    for old, new in damages:
        assert old in text, old
        with pytest.raises(ModelFileError):
            GraphEncoder.from_state(json.loads(text.replace(old, new)), arrays)
    for name in arrays:
        with pytest.raises(ModelFileError):
            GraphEncoder.from_state(header, {key: value for key, value in arrays.items() if key != name})
    for wrong in ({}, {**header, "kinds": []}, {**header, "relations": None}):
        with pytest.raises(ModelFileError):
            GraphEncoder.from_state(wrong, arrays)


def test_labels_of_one_kind() -> None:
    batch = GraphEncoder().fit([grid(np.zeros((2, 2))), grid(np.zeros((1, 1)))])
    images: list[Any] = [np.array([["x", "y"], ["y", "x"]]), ["z"]]
    labels = GraphLabels(["node"]).fit(images, batch)
    codes, allowed = labels.encode(images, batch)
    assert codes.tolist() == [0, 1, 1, 0, 2]
    assert allowed is None
    back = labels.decode(codes, batch)
    assert [part.tolist() for part in back] == [["x", "y", "y", "x"], ["z"]]
    codes, allowed = labels.encode([["x", None, {"y", "z"}, {"y"}], [None]], batch)
    assert codes.tolist() == [0, -1, -1, 1, -1]
    assert allowed is not None
    assert allowed.astype(int).tolist() == [[1, 0, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0], [1, 1, 1]]
    Target(batch.topology, labels.n_labels, codes, allowed)


def test_labels_of_several_kinds() -> None:
    graphs = [Graph(3, {"r": [(0, 1)]}, kinds=["s", "p", "s"]), Graph(1, kinds=["p"])]
    batch = GraphEncoder().fit(graphs)
    y = [["walk", 5, "ride"], {"p": [6]}]
    labels = GraphLabels(["s", "p"]).fit(y, batch)
    assert {kind: found.tolist() for kind, found in labels.classes.items()} == {"s": ["ride", "walk"], "p": [5, 6]}
    codes, allowed = labels.encode(y, batch)
    assert codes.tolist() == [1, 0, 0, 1]
    assert allowed is None
    assert [part.tolist() for part in labels.decode(codes, batch)] == [["walk", 5, "ride"], [6]]
    third = GraphLabels(["s", "p"]).fit([["a", 1, "b"], {"p": [{2, 3}]}], batch)
    assert third.sizes == (2, 3)
    assert third.states(batch).astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]]
    codes, allowed = third.encode([[None, None, "b"], {"p": [{1, 3}]}], batch)
    assert codes.tolist() == [-1, -1, 1, -1]
    assert allowed is not None
    assert allowed.astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1]]
    again = GraphLabels.from_json(json.loads(json.dumps(third.to_json())))
    assert again.kinds == third.kinds
    assert again.encode([["a", 1, "b"], {"p": [2]}], batch)[0].tolist() == [0, 0, 1, 1]
    schema = (encoder := GraphEncoder()).fit(graphs) and encoder.schema
    assert third.pairs([("r", "b", 3)], schema) == [(0, 1, 2)]
    with pytest.raises(LabelError, match="3, which is no label of kind 's'"):
        third.pairs([("r", 3, "b")], schema)
    with pytest.raises(InputError, match="unknown relation 'q'"):
        third.pairs([("q", "a", 1)], schema)


def test_wrong_labels_are_refused_in_words() -> None:
    batch = GraphEncoder().fit([Graph(3, kinds=["s", "p", "s"]), Graph(1, kinds=["p"])])
    labels = GraphLabels(["s", "p"]).fit([["a", 1, "b"], [2]], batch)
    wrong: list[tuple[Any, type[Exception], str]] = [
        ([["a", 1, "c"], [2]], LabelError, "unknown label 'c' at graph 0, node 1 of kind 's'"),
        ([["a", 1], [2]], ShapeError, r"graph 0 has 3 nodes and y\[0\] has 2 labels"),
        ([["a", 1, "b"]], ShapeError, "2 graphs and y has 1"),
        ([{"s": ["a"], "p": [1]}, [2]], ShapeError, "2 nodes of kind 's'"),
        ([{"q": ["a"]}, [2]], LabelError, "names the kind 'q'"),
        ([{"s": "ab", "p": [1]}, [2]], LabelError, "not a list of labels"),
        (["abc", [2]], LabelError, r"pass \[y\]"),
        ("ab", LabelError, "got str"),
        ({"s": []}, LabelError, "got dict"),
        ([["a", 1, set()], [2]], LabelError, "graph 0, node 1 of kind 's'"),
    ]
    for y, error, words in wrong:
        with pytest.raises(error, match=words):
            labels.encode(y, batch)
    with pytest.raises(LabelError, match="graphs and 2 nodes of kind 's': every node is None"):
        GraphLabels(["s", "p"]).fit([[None, 1, None], [2]], batch)
    with pytest.raises(LabelError, match="codes of kind 's' must lie in 0 … 1"):
        labels.decode([2, 0, 0, 0], batch)
    with pytest.raises(ShapeError):
        labels.decode([0], batch)
    with pytest.raises(NotFittedError):
        GraphLabels(["s"]).encode([[1]], batch)
    for value in (None, [], [["s"]], [["s", ["a"]], ["s", ["b"]]], [["s", []]]):
        with pytest.raises(ModelFileError):
            GraphLabels.from_json(value)
