"""Weights to scores of graphs and back: against loops over the definition, and against the scorer of chains."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from crfield.core.graphs import Graphs
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind, Relation
from crfield.data.graphs.builders import chain, grid
from crfield.data.graphs.graph import Edges, Graph
from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.features.graphs.encoder import GraphEncoder
from crfield.inference.graphs.brute import BruteEngine
from crfield.objectives.contrast import Contrast
from crfield.scoring.graph_layout import GraphLayout, PairTable
from crfield.scoring.graph_linear import GraphScorer
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from tests.cases.chains import examples

# A few random numbers in a column may happen to lie close together, which is no matter here.
pytestmark = pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")


@dataclass(frozen=True)
class Case:
    """A random model and random graphs."""

    batch: GraphBatch
    layout: GraphLayout
    target: Target
    rng: np.random.Generator


def features(rng: np.random.Generator, form: str, rows: int) -> Any:
    if form == "none":
        return rows
    if form == "dense":
        return rng.normal(size=(rows, 2))
    if form == "sparse":
        return csr_array(rng.normal(size=(rows, 4)) * (rng.random((rows, 4)) < 0.5))
    return [
        {"a": rng.choice(["x", "y", "z"]).item(), "b": float(rng.normal()), "v": rng.normal(size=2)}
        for _ in range(rows)
    ]


def case(seed: int, *, several: bool, feature_pairs: str) -> Case:
    rng = np.random.default_rng(seed)
    forms = rng.choice(["none", "dense", "sparse", "records"], size=4).tolist()
    names = ["a", "b"] if several else ["a"]
    graphs = []
    for count in rng.integers(0, 5, size=int(rng.integers(1, 4))).tolist() + [4]:
        kinds = {name: features(rng, form, count) for name, form in zip(names, forms)}
        free = [(i, j) for i in range(count) for j in range(count) if i != j]
        some = [[free[k] for k in rng.integers(0, len(free), int(rng.integers(0, 5)))] if free else [] for _ in "123"]
        if count == 4:
            some = [pairs or [(0, 1)] for pairs in some]
        made = [features(rng, form, len(pairs)) for form, pairs in zip(forms[2:], some)]
        made = [None if isinstance(x, int) else x for x in made]
        last = names[-1]
        graphs.append(
            Graph(
                kinds,
                {
                    "to": Edges(some[0], made[0], between=("a", last)),
                    "like": Edges(some[1], made[1], symmetric=True, between=("a", "a")),
                    "plain": Edges(some[2], between=(last, last)),
                },
            )
        )
    encoder = GraphEncoder()
    batch = encoder.fit(graphs)
    sizes = [int(rng.integers(1, 4)) for _ in names]
    largest = max(sizes)
    allowed = rng.random((batch.topology.n_nodes, largest)) < 0.6
    allowed &= np.arange(largest) < np.array(sizes)[batch.kind][:, None]
    labels = rng.integers(0, np.array(sizes)[batch.kind])
    allowed[np.arange(len(labels)), labels] = True
    labels = np.where(rng.random(len(labels)) < 0.5, labels, -1)
    target = Target(batch.topology, largest, labels, allowed)
    forbidden = [
        (r, 0, int(rng.integers(0, sizes[encoder.schema.relations[r].head]))) for r in range(3) if rng.random() < 0.4
    ]
    tables = {"plain": str(rng.choice(["full", "potts"])), "like": str(rng.choice(["full", "potts"]))}
    layout = GraphLayout.observe(
        encoder.schema,
        sizes,
        batch,
        target,
        feature_pairs=feature_pairs,
        bias=bool(rng.integers(0, 2)),
        tables=tables,
        forbidden=forbidden,
    )
    return Case(batch, layout, target, rng)


def full_rows(columns: Columns | None, rows: int) -> np.ndarray:
    """(R, K + D), sparse columns first."""
    if columns is None:
        return np.zeros((rows, 0))
    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    sparse = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width)).toarray()
    return np.hstack([sparse, np.zeros((rows, 0)) if columns.dense is None else columns.dense])


def by_hand(case: Case, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N, L) and (E, L, L), node by node and edge by edge."""
    layout, batch = case.layout, case.batch
    schema, labels = layout.schema, layout.n_labels
    node = np.full((batch.topology.n_nodes, labels), -np.inf)
    x = full_rows(batch.node, batch.topology.n_nodes)
    for n, k in enumerate(batch.kind):
        kind, inner = schema.kinds[k], layout.nodes[k]
        w = {part: weights[layout.part[f"{kind.name}/{part}"]] for part in ("node", "dense", "bias")}
        for j in range(inner.n_labels):
            node[n, j] = w["bias"][j] if inner.bias else 0.0
            for d in range(inner.n_dense):
                node[n, j] += x[n, batch.node.width + kind.dense[0] + d] * w["dense"][d * inner.n_labels + j]
        for f, (column, label) in enumerate(zip(*inner.node_features())):
            node[n, label] += x[n, kind.columns[0] + column] * w["node"][f]
    edge = np.zeros((batch.topology.n_edges, labels, labels))
    for r, (relation, table) in enumerate(zip(schema.relations, layout.tables)):
        rows = full_rows(batch.edge[r], len(batch.edges_of(r)))
        tied = np.concatenate(
            [weights[layout.part[f"{relation.name}/{part}"]] for part in ("table", "edge", "edge_dense")]
        ).reshape(1 + relation.n_columns + relation.n_dense, table.n_weights)
        for row, e in enumerate(batch.edges_of(r)):
            for i, j in np.ndindex(*table.tie.shape):
                if table.tie[i, j] >= 0:
                    column = tied[:, table.tie[i, j]]
                    edge[e, i, j] = column[0] + rows[row] @ column[1:]
                if table.forbidden[i, j]:
                    edge[e, i, j] = -np.inf
    return node, edge


@examples(60)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from(["observed", "all"]))
def test_scores_are_sums_of_weights(seed: int, several: bool, feature_pairs: str) -> None:
    some = case(seed, several=several, feature_pairs=feature_pairs)
    scorer = GraphScorer(some.layout)
    weights = some.rng.normal(size=scorer.n_weights)
    scores = scorer.score(weights, some.batch)
    node, edge = by_hand(some, weights)
    np.testing.assert_allclose(scores.node, node, atol=1e-12)
    np.testing.assert_allclose(scores.edge[scores.tables], edge, atol=1e-12)
    plain = sum(1 for r in some.layout.schema.relations if not r.has_features)
    own = sum(len(some.batch.edges_of(n)) for n, r in enumerate(some.layout.schema.relations) if r.has_features)
    assert len(scores.edge) == plain + own


@examples(60)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from(["observed", "all"]))
def test_pull_is_the_adjoint_of_score(seed: int, several: bool, feature_pairs: str) -> None:
    """And what stands where the score is −∞ is never looked at."""
    some = case(seed, several=several, feature_pairs=feature_pairs)
    scorer = GraphScorer(some.layout)
    work = scorer.prepare(some.batch)
    direction = some.rng.normal(size=scorer.n_weights)
    scores = scorer.score(direction, work)
    node, edge = some.rng.normal(size=scores.node.shape), some.rng.normal(size=scores.edge.shape)
    left = (np.where(np.isfinite(scores.node), scores.node, 0) * node).sum()
    left += (np.where(np.isfinite(scores.edge), scores.edge, 0) * edge).sum()
    node[~np.isfinite(scores.node)] = np.nan
    edge[~np.isfinite(scores.edge)] = np.inf
    pulled = scorer.pull(node, edge, work)
    assert np.isfinite(pulled).all()
    scale = 1 + np.abs(direction * pulled).sum()
    assert abs(left - direction @ pulled) <= 1e-12 * scale
    np.testing.assert_array_equal(pulled, scorer.pull(node, edge, some.batch))


@examples(30)
@given(st.integers(0, 2**32), st.booleans())
def test_observed_pairs_are_those_that_occur(seed: int, several: bool) -> None:
    some = case(seed, several=several, feature_pairs="observed")
    met: set[tuple[int, int, int]] = set()
    for n, k in enumerate(some.batch.kind.tolist()):
        allowed = np.flatnonzero(some.target.mask[n]).tolist()
        if some.target.labels[n] < 0 and len(allowed) == some.layout.sizes[k]:
            continue
        columns = some.batch.node.indices[some.batch.node.indptr[n] : some.batch.node.indptr[n + 1]]
        first = some.layout.schema.kinds[k].columns[0]
        met |= {(k, int(column) - first, label) for column in columns for label in allowed}
    found = {
        (k, int(column), int(label))
        for k, layout in enumerate(some.layout.nodes)
        for column, label in zip(*layout.node_features())
    }
    assert found == met


def test_gradient_of_the_likelihood_by_finite_differences() -> None:
    for seed in range(6):
        some = case(seed, several=bool(seed % 2), feature_pairs="all")
        states = np.arange(some.layout.n_labels) < np.array(some.layout.sizes)[some.batch.kind][:, None]
        assert (some.target.mask <= states).all()
        layout = GraphLayout.full(some.layout.schema, some.layout.sizes)
        scorer = GraphScorer(layout)
        problem = FullBatch(
            scorer, scorer.prepare(some.batch), some.target, objective=Contrast(), engine=BruteEngine()
        )
        weights, gradient = 0.3 * some.rng.normal(size=layout.n_weights), np.zeros(layout.n_weights)
        problem.evaluate(weights, gradient)
        direction, unused = some.rng.normal(size=layout.n_weights), np.zeros(layout.n_weights)
        step = 1e-5
        slope = problem.evaluate(weights + step * direction, unused) - problem.evaluate(
            weights - step * direction, unused
        )
        assert slope / (2 * step) == pytest.approx(gradient @ direction, abs=1e-7)


@pytest.mark.parametrize("edge_columns", [False, True])
def test_a_chain_given_as_a_graph_scores_like_a_chain(edge_columns: bool) -> None:
    rng = np.random.default_rng(3)
    lengths, labels, width = [3, 1, 4], 3, 5
    rows = [[[f"f{k}" for k in range(width) if rng.random() < 0.5] or ["f0"] for _ in range(n)] for n in lengths]
    extra = [rng.normal(size=(max(0, n - 1), 2)) for n in lengths]
    graphs = [
        Graph(x, {"next": Edges(chain(len(x)).edges["+1"].pairs, e if edge_columns else None)})
        for x, e in zip(rows, extra)
    ]
    encoder = GraphEncoder()
    batch = encoder.fit(graphs)
    chains = Chains.from_lengths(lengths)
    y = rng.integers(0, labels, chains.n_nodes)
    flat = Batch(chains, batch.node, batch.edge[0])
    for pairs in ("observed", "all"):
        layout = GraphLayout.observe(
            encoder.schema, [labels], batch, Target(batch.topology, labels, y), feature_pairs=pairs
        )
        plain = Layout.observe(
            flat, Target(chains, labels, y), feature_pairs=pairs, transition_pairs="all", bias=True, boundaries=False
        )
        assert layout.n_weights == plain.n_weights
        weights = rng.normal(size=layout.n_weights)
        on_graph = GraphScorer(layout).score(weights, batch)
        on_chain = LinearScorer(plain).score(weights, flat)
        np.testing.assert_allclose(on_graph.node, on_chain.node, atol=1e-13)
        np.testing.assert_allclose(on_graph.edge, on_chain.edge, atol=1e-13)
        gradient = [rng.normal(size=x.shape) for x in (on_graph.node, on_graph.edge)]
        np.testing.assert_allclose(
            GraphScorer(layout).pull(*gradient, batch), LinearScorer(plain).pull(*gradient, flat), atol=1e-12
        )


def test_all_forms_of_features_give_the_same_scores() -> None:
    rng = np.random.default_rng(4)
    image = rng.normal(size=(3, 4, 2))
    rows = image.reshape(12, 2)
    same = [
        grid(image, directed=True, edge_features="both"),
        grid(csr_array(rows), shape=(3, 4), directed=True, edge_features="both"),
        grid([{"p": a, "q": b} for a, b in rows.tolist()], shape=(3, 4), directed=True, edge_features="both"),
    ]
    found = []
    weights = None
    for graph in same:
        encoder = GraphEncoder()
        batch = encoder.fit([graph])
        scorer = GraphScorer(GraphLayout.full(encoder.schema, [3]))
        weights = rng.normal(size=scorer.n_weights) if weights is None else weights
        found.append(scorer.score(weights, batch))
    for other in found[1:]:
        np.testing.assert_allclose(other.node, found[0].node, atol=1e-13)
        np.testing.assert_allclose(other.edge, found[0].edge, atol=1e-13)


def test_many_rows_score_like_few() -> None:
    rng = np.random.default_rng(5)
    image = rng.normal(size=(13, 11, 2))
    encoder = GraphEncoder()
    batch = encoder.fit([grid(image, edge_features="difference")])
    scorer = GraphScorer(GraphLayout.full(encoder.schema, [2]))
    weights = rng.normal(size=scorer.n_weights)
    scores = scorer.score(weights, batch)
    np.testing.assert_allclose(
        scores.node, image.reshape(-1, 2) @ weights[:4].reshape(2, 2) + weights[4:6], rtol=0, atol=1e-13
    )
    tables = weights[6:].reshape(3, 3)[:, [0, 1, 1, 2]]
    assert batch.edge[0] is not None
    expected = batch.edge[0].dense @ tables[1:] + tables[0]
    np.testing.assert_allclose(scores.edge.reshape(-1, 4), expected, rtol=0, atol=1e-13)


def test_ties_of_tables() -> None:
    like, to = Relation("like", symmetric=True), Relation("to", tail=0, head=1)
    assert PairTable.of(like, 3, 3).tie.tolist() == [[0, 1, 2], [1, 3, 4], [2, 4, 5]]
    assert PairTable.of(like, 3, 3, form="potts").tie.tolist() == [[0, -1, -1], [-1, 0, -1], [-1, -1, 0]]
    closed = PairTable.of(like, 3, 3, forbidden=[(0, 1)])
    assert closed.tie.tolist() == [[0, -1, 1], [-1, 2, 3], [1, 3, 4]]
    assert closed.forbidden.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    assert PairTable.of(to, 2, 3).tie.tolist() == [[0, 1, 2], [3, 4, 5]]
    nothing = PairTable.of(Relation("r"), 1, 1, forbidden=[(0, 0)])
    assert nothing.n_weights == 0
    for make, words in (
        (lambda: PairTable.of(to, 2, 2, form="potts"), "joins two kinds"),
        (lambda: PairTable.of(like, 2, 2, form="ising"), "'full' or 'potts'"),
        (lambda: PairTable.of(like, 2, 2, forbidden=[(0, 2)]), r"pair \(0, 2\) cannot be forbidden"),
    ):
        with pytest.raises(InputError, match=words):
            make()


def test_a_relation_without_weights_still_scores() -> None:
    schema = GraphSchema((NodeKind("node"),), (Relation("r", n_dense=1),))
    layout = GraphLayout.full(schema, [1], forbidden=[(0, 0, 0)])
    columns = Columns([0, 0], [], 0, dense=np.ones((1, 1)))
    batch = GraphBatch(Graphs([0, 2], [0], [1]), Columns([0, 0, 0], [], 0), [0, 0], [0], (columns,))
    scores = GraphScorer(layout).score(np.zeros(1), batch)
    assert scores.edge.tolist() == [[[-np.inf]]]
    assert GraphScorer(layout).pull(np.ones((2, 1)), np.full((1, 1, 1), np.nan), batch).tolist() == [2.0]


def test_no_edges_and_no_relations() -> None:
    encoder = GraphEncoder()
    batch = encoder.fit([Graph(np.eye(2)), Graph(0)])
    scorer = GraphScorer(GraphLayout.full(encoder.schema, [2]))
    scores = scorer.score(np.arange(6.0), batch)
    assert scores.edge.shape == (1, 2, 2)
    assert scores.node.tolist() == [[4.0, 6.0], [6.0, 8.0]]
    assert scorer.pull(scores.node, scores.edge, batch).shape == (6,)
    empty = encoder.encode([])
    assert scorer.score(np.arange(6.0), empty).node.shape == (0, 2)


def test_reading_tables_and_intercepts() -> None:
    schema = GraphSchema((NodeKind("a", dense=(0, 1)), NodeKind("b")), (Relation("to", 0, 1), Relation("on", 1, 1)))
    layout = GraphLayout.full(schema, [2, 3], tables={"on": "potts"}, forbidden=[(0, 1, 2)])
    weights = np.arange(float(layout.n_weights))
    np.testing.assert_array_equal(layout.table(weights, "to"), [[7, 8, 9], [10, 11, -np.inf]])
    np.testing.assert_array_equal(np.diag(layout.table(weights, "on")), [12.0] * 3)
    assert np.isnan(layout.table(weights, "on")[0, 1])
    assert layout.n_weights == 13
    assert np.flatnonzero(layout.intercepts).tolist() == [2, 3, 4, 5, 6]
    with pytest.raises(InputError, match="unknown relation 'near'"):
        GraphLayout.full(schema, [2, 3], tables={"near": "potts"})
    with pytest.raises(InputError, match="number of labels"):
        GraphLayout.full(schema, [2])


def test_batches_of_another_encoder_are_refused() -> None:
    one, other, third = GraphEncoder(), GraphEncoder(), GraphEncoder()
    one.fit([Graph(np.eye(2), [(0, 1)])])
    scorer = GraphScorer(GraphLayout.full(one.schema, [2]))
    weights = np.zeros(scorer.n_weights)
    with pytest.raises(ShapeError, match="0 sparse and 3 dense node columns, expected 0 and 2"):
        scorer.score(weights, other.fit([Graph(np.eye(3), [(0, 1)])]))
    with pytest.raises(ShapeError, match="the edges of relation 'edge' have 0 sparse and 1 dense"):
        scorer.score(weights, third.fit([Graph(np.eye(2), {"edge": Edges([(0, 1)], [[1.0]])})]))
    batch = one.encode([Graph(np.eye(2), [(0, 1)])])
    with pytest.raises(ShapeError, match=f"{scorer.n_weights} weights"):
        scorer.score(weights[1:], batch)
    with pytest.raises(ShapeError, match="the gradient must be"):
        scorer.pull(np.zeros((2, 2)), np.zeros((3, 2, 2)), batch)


@pytest.mark.parametrize("seed", range(8))
def test_layouts_come_back_from_their_state(seed: int) -> None:
    some = case(seed, several=bool(seed % 2), feature_pairs="observed")
    header, arrays = some.layout.state()
    again = GraphLayout.from_state(json.loads(json.dumps(header)), arrays, some.layout.schema)
    assert again.part == some.layout.part
    weights = some.rng.normal(size=again.n_weights)
    one, other = (GraphScorer(layout).score(weights, some.batch) for layout in (some.layout, again))
    np.testing.assert_array_equal(one.node, other.node)
    np.testing.assert_array_equal(one.edge, other.edge)


def test_damaged_states_of_layouts_are_refused() -> None:
    encoder = GraphEncoder()
    encoder.fit([Graph([["a"], ["b"]], {"r": [(0, 1)]})])
    layout = GraphLayout.full(encoder.schema, [3], forbidden=[(0, 1, 2)])
    header, arrays = layout.state()
    text = json.dumps(header)
    for old, new in (
        ('"n_labels": 3', '"n_labels": 0'),
        ('"n_columns": 2', '"n_columns": 3'),
        ('"boundaries": false', '"boundaries": true'),
        ('"n_edge_dense": 0', '"n_edge_dense": 1'),
        ('"full"', '"ising"'),
        ('"full"', "7"),
        ('["full"]', "[]"),
    ):
        assert old in text
        with pytest.raises(ModelFileError):
            GraphLayout.from_state(json.loads(text.replace(old, new)), arrays, encoder.schema)
    wrong: list[np.ndarray] = [
        np.array([9], np.int32),
        np.array([-1], np.int32),
        np.array([1.0]),
        np.zeros((1, 1), np.int32),
    ]
    for closed in wrong:
        with pytest.raises(ModelFileError):
            GraphLayout.from_state(header, {**arrays, "relation0/forbidden": closed}, encoder.schema)
    for bad in ({}, {"kinds": None, "tables": []}):
        with pytest.raises(ModelFileError):
            GraphLayout.from_state(bad, arrays, encoder.schema)
    with pytest.raises(ModelFileError):
        GraphLayout.from_state(header, {}, encoder.schema)
