"""Forests: equal to enumeration and to chains, at any depth and width, for any scores, on any number of threads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.forest import ForestEngine
from crfield.kernels import choice, forest
from tests.cases.chains import examples, native_level, needs_native, random_potentials, small_potentials
from tests.cases.exact import (
    INF,
    assert_gradient,
    assert_log_as_enumerated,
    assert_max_as_enumerated,
    assert_same_beliefs,
    assert_same_totals,
    graph_potentials,
    random_graphs,
    steep_graphs,
)

ENGINES = [ForestEngine(), ForestEngine(n_jobs=3)]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=repr)


@every_engine
@examples(60)
@given(graph_potentials())
def test_sums_equal_enumeration(body: str, engine: ForestEngine, potentials: Potentials) -> None:
    assert_log_as_enumerated(engine, potentials)


@every_engine
@examples(60)
@given(graph_potentials())
def test_maxima_equal_enumeration(body: str, engine: ForestEngine, potentials: Potentials) -> None:
    assert_max_as_enumerated(engine, potentials)


@examples(25)
@given(graph_potentials(scales=(1.0,)))
def test_beliefs_are_the_gradient_of_the_total(body: str, potentials: Potentials) -> None:
    assert_gradient(ForestEngine(), potentials)


@examples(30)
@given(small_potentials(scales=(1.0, 30.0, 2_000.0)))
def test_a_chain_is_a_forest(body: str, potentials: Potentials) -> None:
    """As `Chains` and as `Graphs`."""
    expected = ChainEngine().infer(potentials, Semiring.LOG)
    chains = potentials.topology
    graphs = Potentials(potentials.node, potentials.edge, Graphs.from_chains(chains), potentials.tables)
    assert_same_beliefs(ForestEngine().infer(potentials, Semiring.LOG), expected, potentials)
    assert_same_beliefs(ForestEngine().infer(graphs, Semiring.LOG), expected, potentials)
    assert_same_totals(
        ForestEngine().best_labelling(potentials)[0], ChainEngine().best_path(potentials)[0], potentials
    )


@pytest.mark.parametrize("labels", [2, 7, 17])
def test_long_chains_equal_the_chain_engine(body: str, labels: int) -> None:
    potentials = random_potentials(np.random.default_rng(labels), [400, 1, 250, 399], labels)
    expected = ChainEngine().infer(potentials, Semiring.LOG)
    found = ForestEngine(n_jobs=2).infer(potentials, Semiring.LOG)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-13)
    np.testing.assert_allclose(found.node, expected.node, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.edge, expected.edge, rtol=1e-12)


# --------------------------------------------------------------------------------------------- large scores


@pytest.mark.parametrize("scale", [2_000.0, 1e5])
@pytest.mark.parametrize("forbidden", [0.0, 0.15])
def test_any_finite_scores(body: str, scale: float, forbidden: float) -> None:
    """Whole numbers, so that sums are exact; the oracle then has no rounding either."""
    rng = np.random.default_rng(3)
    for _ in range(15):
        graphs = random_graphs(rng, [6, 5], loops=0.0)
        node = np.rint(scale * rng.standard_normal((11, 3)))
        edge = np.rint(scale * rng.standard_normal((3, 3, 3)))
        node[:, 1:] += node[:, :1] * (rng.random((11, 1)) < 0.3)  # and some ties in the sums
        for scores in (node, edge):
            scores[rng.random(scores.shape) < forbidden] = -INF
        potentials = Potentials(node, edge, graphs, rng.integers(0, 3, graphs.n_edges))
        assert_log_as_enumerated(ForestEngine(), potentials)
        assert_max_as_enumerated(ForestEngine(), potentials)


@examples(120)
@given(steep_graphs())
def test_scores_where_exp_leaves_the_double_numbers(body: str, potentials: Potentials) -> None:
    assert_log_as_enumerated(ForestEngine(), potentials)


@pytest.mark.parametrize("own", [False, True])
def test_what_underflows_may_be_most_of_the_answer(body: str, own: bool) -> None:
    """From below label 1 is ahead, 2 is kept and 0 is lost; then 1 turns out to be impossible and 2 to be worse."""
    path = Graphs(np.array([0, 3]), np.array([0, 1]), np.array([1, 2]))
    node = np.array([[-750.0, 0.0, -700.0], [0.0, 0.0, 0.0], [0.0, -INF, -53.0]])
    edge = np.where(np.eye(3) > 0, 0.0, -INF)[None]
    potentials = Potentials(node, np.repeat(edge, 2, axis=0) if own else edge, path)
    beliefs = ForestEngine().infer(potentials, Semiring.LOG)
    p = 1 / (1 + np.exp(-3.0))
    np.testing.assert_allclose(beliefs.total, [-750.0 - np.log(p)], rtol=1e-14)
    np.testing.assert_allclose(beliefs.node, np.tile([p, 0.0, 1 - p], (3, 1)), rtol=0, atol=1e-13)


def test_a_hub_reads_no_message_that_lost_its_digits(body: str) -> None:
    """Two leaves say e^-730 to opposite labels of a hub: such numbers have lost digits."""
    leaves = 12
    star = Graphs(np.array([0, leaves + 1]), np.zeros(leaves, int), np.arange(1, leaves + 1))
    edge = np.full((1, 3, 3), -INF)
    edge[0, 0, 0] = edge[0, 1, 1] = -290.0
    edge[0, 2, 2] = 0.0
    node = np.zeros((leaves + 1, 3))
    node[:, 2] = -INF
    node[1, 0], node[2, 1] = -440.3, -441.7
    beliefs = ForestEngine().infer(Potentials(node, edge, star), Semiring.LOG)
    p = 1 / (1 + np.exp(-1.4))
    np.testing.assert_allclose(beliefs.node[0], [p, 1 - p, 0.0], rtol=0, atol=1e-12)


def test_beliefs_add_up_to_one_at_any_depth(body: str) -> None:
    """In logs of large scores every step rounds; the errors must not add up over the depth of a tree."""
    nodes, rng = 1_000, np.random.default_rng(13)
    node = rng.standard_normal((nodes, 2))
    node[0, 1] = -500.0  # with a table that is not safe, this sends the tree to the logs
    edge = 1e7 + rng.standard_normal((1, 2, 2))
    potentials = Potentials(
        node,
        np.concatenate([edge, edge + np.array([[0.0, 0.0], [-400.0, 0.0]])]),
        Chains.from_lengths([nodes]),
        (np.arange(nodes - 1) == 5).astype(np.int64),
    )
    beliefs = ForestEngine().infer(potentials, Semiring.LOG)
    np.testing.assert_allclose(beliefs.node.sum(axis=1), 1, rtol=0, atol=1e-13)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("height", [50.0, 400.0, 800.0, 1e5])
def test_the_only_labelling_survives(body: str, height: float, own: bool) -> None:
    """A star of chains; at every node but the last of each, label 1 is far ahead and leads nowhere."""
    arms, steps = 4, 5
    tails = [0 if t == 0 else a * steps + t for a in range(arms) for t in range(steps)]
    heads = [a * steps + t + 1 for a in range(arms) for t in range(steps)]
    graphs = Graphs(np.array([0, arms * steps + 1]), np.array(tails), np.array(heads))
    node = np.zeros((graphs.n_nodes, 2))
    node[:, 1] = height
    node[steps::steps, 1] = -INF
    edge = np.array([[[-0.25, -INF], [-INF, 0.0]]])
    table = np.zeros(graphs.n_edges, np.int64)
    if own:
        edge, table = np.repeat(edge, graphs.n_edges, axis=0), np.arange(graphs.n_edges)
    beliefs = ForestEngine().infer(Potentials(node, edge, graphs, table), Semiring.LOG)
    np.testing.assert_allclose(beliefs.total, [-0.25 * graphs.n_edges], rtol=1e-13)
    np.testing.assert_allclose(beliefs.node, np.tile([1.0, 0.0], (graphs.n_nodes, 1)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("leaves", [3, 40, 3_000])
@pytest.mark.parametrize("strength", [1.0, 20.0, 37.0, 290.0])
def test_hubs_lose_nothing(body: str, leaves: int, strength: float) -> None:
    """Half of the leaves pull the hub one way and half the other: partial products leave the double numbers."""
    rng, hub = np.random.default_rng(0), leaves // 2
    leaf = np.setdiff1d(np.arange(leaves + 1), [hub])
    turned = rng.random(leaves) < 0.5
    graphs = Graphs(np.array([0, leaves + 1]), np.where(turned, leaf, hub), np.where(turned, hub, leaf))
    up = np.arange(leaves) < leaves // 2
    node = np.zeros((leaves + 1, 2))
    node[leaf, 1] = np.where(up, 2_000.0, -2_000.0)  # leaves are certain: their messages are columns of the table
    node[hub, 1] = 0.75
    edge = np.array([[[strength, 0.0], [0.0, strength]]])
    beliefs = ForestEngine().infer(Potentials(node, edge, graphs, np.zeros(leaves, np.int64)), Semiring.LOG)
    p = 1 / (1 + np.exp(-0.75 - strength * (2.0 * up.sum() - leaves)))
    np.testing.assert_allclose(beliefs.node[hub], [1 - p, p], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(beliefs.node.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(beliefs.edge[0].trace(), up.sum() * p + (~up).sum() * (1 - p), rtol=1e-11)


@pytest.mark.parametrize("depth", [100, 250, 299, 301, 353, 464, 601])
def test_a_low_label_between_high_edges(body: str, depth: int) -> None:
    """One label of score 0 behind edges of −depth, one far lower behind free ones: worth as much in the end."""
    graphs = Graphs(np.array([0, 4]), np.array([0, 1, 3]), np.array([1, 2, 1]))
    for below in (3 * depth - 3, 3 * depth, 3 * depth + 3):
        edge = np.zeros((2, 4, 4))
        edge[0, 0, 1] = edge[0, 1, 3] = edge[1, 2, 1] = -depth
        node = np.full((4, 4), -INF)
        node[0, 0] = node[1, 1] = node[2, 3] = node[3, 2] = 0.0
        node[1, 2] = -below
        beliefs = ForestEngine().infer(Potentials(node, edge, graphs, np.array([0, 0, 1])), Semiring.LOG)
        np.testing.assert_allclose(beliefs.total, [np.logaddexp(-3 * depth, -below)], rtol=1e-14)
        odds = 1 / (1 + np.exp(float(3 * depth - below)))
        np.testing.assert_allclose(beliefs.node[1], [0, odds, 1 - odds, 0], rtol=0, atol=1e-12)


def test_one_impossible_tree_makes_its_graph_impossible(body: str) -> None:
    """Other trees of that graph have no beliefs, and do not count in shared tables; other graphs are untouched."""
    graphs = Graphs(np.array([0, 5, 8]), np.array([0, 2, 5, 6]), np.array([1, 3, 6, 7]))
    node = np.random.default_rng(1).standard_normal((8, 2))
    node[4] = -INF
    for tables in (1, 4):
        edge = np.random.default_rng(2).standard_normal((tables, 2, 2))
        potentials = Potentials(node, edge, graphs, np.arange(4) % tables)
        for jobs in (1, 2):
            beliefs = ForestEngine(n_jobs=jobs).infer(potentials, Semiring.LOG)
            assert np.isneginf(beliefs.total[0])
            assert not beliefs.node[:5].any()
            assert_log_as_enumerated(ForestEngine(n_jobs=jobs), potentials)
            assert_max_as_enumerated(ForestEngine(n_jobs=jobs), potentials)


# ---------------------------------------------------------------------------------------- sizes and threads


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_a_path_of_a_hundred_thousand_nodes(scale: float) -> None:
    """No recursion, no loss of digits; the nodes in any order, compared with the chain."""
    nodes = 100_000
    rng = np.random.default_rng(7)
    chain = Potentials(
        scale * rng.standard_normal((nodes, 2)), scale * rng.standard_normal((1, 2, 2)), Chains.from_lengths([nodes])
    )
    name = rng.permutation(nodes)
    node = np.empty_like(chain.node)
    node[name] = chain.node
    path = Potentials(node, chain.edge, Graphs(np.array([0, nodes]), name[:-1], name[1:]))
    found, expected = ForestEngine().infer(path, Semiring.LOG), ChainEngine().infer(chain, Semiring.LOG)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-13)
    np.testing.assert_allclose(found.node[name], expected.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.node.sum(axis=1), 1, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.edge, expected.edge, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ForestEngine().best_labelling(path)[0], ChainEngine().best_path(chain)[0], rtol=1e-13)


def test_the_readable_body_goes_deep_too() -> None:
    nodes = 1_000
    potentials = random_potentials(np.random.default_rng(8), [nodes], 2)
    with choice.use("numpy"):
        found, expected = (
            ForestEngine().infer(potentials, Semiring.LOG),
            ChainEngine().infer(potentials, Semiring.LOG),
        )
    assert_same_beliefs(found, expected, potentials)


@st.composite
def larger(draw: st.DrawFn) -> Potentials:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    graphs = random_graphs(rng, draw(st.lists(st.integers(0, 60), max_size=12)), loops=0.0, split=0.1)
    labels = draw(st.sampled_from([1, 2, 3, 8, 9]))
    tables = draw(st.sampled_from([1, 4, max(1, graphs.n_edges)]))
    node = rng.standard_normal((graphs.n_nodes, labels))
    edge = draw(st.sampled_from([1.0, 10.0])) * rng.standard_normal((tables, labels, labels))
    edge[rng.random(edge.shape) < draw(st.sampled_from([0.0, 0.2]))] = -INF
    return Potentials(node, edge, graphs, np.arange(graphs.n_edges) % tables)


@needs_native
@examples(40)
@given(larger())
def test_both_bodies_agree(potentials: Potentials) -> None:
    answers = []
    for name in ("native", "numpy"):
        with choice.use(name):
            answers.append(
                (ForestEngine().infer(potentials, Semiring.LOG), ForestEngine().best_labelling(potentials))
            )
    (a, best_a), (b, best_b) = answers
    assert_same_totals(a.total, b.total, potentials)
    np.testing.assert_allclose(a.node, b.node, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(a.edge, b.edge, rtol=1e-12, atol=1e-13)
    assert_same_totals(best_a[0], best_b[0], potentials)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_every_level_of_the_processor(level: int) -> None:
    rng = np.random.default_rng(level)
    for labels in (2, 5):
        graphs = random_graphs(rng, [30, 4, 17], loops=0.0)
        potentials = Potentials(
            rng.standard_normal((51, labels)),
            rng.standard_normal((2, labels, labels)),
            graphs,
            np.arange(graphs.n_edges) % 2,
        )
        with choice.use("numpy"):
            expected = ForestEngine().infer(potentials, Semiring.LOG)
            best = ForestEngine().best_labelling(potentials)
        with native_level(level):
            assert_same_beliefs(ForestEngine().infer(potentials, Semiring.LOG), expected, potentials, atol=1e-13)
            assert_same_totals(ForestEngine().best_labelling(potentials)[0], best[0], potentials)


@pytest.mark.parametrize("jobs", [2, 3, 7])
def test_threads_give_the_same_numbers(body: str, jobs: int) -> None:
    """One graph of interleaved chains is divided by its trees; the same number of threads gives the same bits."""
    rng, nodes, skip = np.random.default_rng(9), 600, 5
    graphs = Graphs(np.array([0, nodes]), np.arange(nodes - skip), np.arange(skip, nodes))
    potentials = Potentials(rng.standard_normal((nodes, 3)), rng.standard_normal((1, 3, 3)), graphs)
    engine = ForestEngine(n_jobs=jobs)
    one, many = ForestEngine().infer(potentials, Semiring.LOG), engine.infer(potentials, Semiring.LOG)
    np.testing.assert_allclose(many.total, one.total, rtol=1e-14)
    np.testing.assert_allclose(many.node, one.node, rtol=1e-12)
    np.testing.assert_allclose(many.edge, one.edge, rtol=1e-12)
    again = engine.infer(Potentials(potentials.node, potentials.edge, Graphs(*_ends(graphs))), Semiring.LOG)
    for name in ("total", "node", "edge"):
        np.testing.assert_array_equal(getattr(many, name), getattr(again, name))
    np.testing.assert_array_equal(engine.best_labelling(potentials)[1], ForestEngine().best_labelling(potentials)[1])


def _ends(graphs: Graphs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return graphs.offsets, graphs.tails, graphs.heads


@needs_native
def test_trees_of_one_graph_are_enough_for_all_threads() -> None:
    nodes, skip = 600, 5
    ends = np.array([0, nodes]), np.arange(nodes - skip), np.arange(skip, nodes)
    with choice.use("native"):
        plan = forest.order(*ends, n_jobs=5)[1]
    assert plan is not None
    assert (plan.parent[plan.level[:-1]] < 0).sum() == 5


# ------------------------------------------------------------------------------------------------ refusals


def test_a_loop_is_refused_by_name(body: str) -> None:
    graphs = Graphs(np.array([0, 2, 5, 8]), np.array([0, 1, 2, 3, 4, 5, 6, 7]), np.array([1, 0, 3, 4, 2, 6, 7, 5]))
    potentials = Potentials(np.zeros((8, 2)), np.zeros((1, 2, 2)), graphs)
    for ask in (
        lambda: ForestEngine().infer(potentials, Semiring.LOG),
        lambda: ForestEngine().best_labelling(potentials),
    ):
        with pytest.raises(InputError, match=r"graph 1 has one\. Use JunctionTreeEngine .* loopy"):
            ask()


@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("semiring", list(Semiring))
def test_nan_and_infinity_are_refused(body: str, bad: float, semiring: Semiring) -> None:
    node = np.zeros((3, 2))
    node[1, 1] = bad
    potentials = Potentials(node, np.zeros((1, 2, 2)), Chains.from_lengths([3]))
    with pytest.raises(InputError, match="node scores must be finite"):
        ForestEngine().infer(potentials, semiring)


def test_engines_are_values(body: str) -> None:
    assert pickle.loads(pickle.dumps(ForestEngine(n_jobs=2))) == ForestEngine(n_jobs=2)
    assert hash(ForestEngine()) == hash(ForestEngine(n_jobs=1))


def test_brute_force_is_what_it_says(body: str) -> None:
    """The oracle on two nodes by hand, so that engine and oracle cannot be wrong together."""
    pair = Graphs(np.array([0, 2]), np.array([1, 0]), np.array([0, 1]))
    node, edge = np.log([[1.0, 2.0], [3.0, 1.0]]), np.log([[[1.0, 5.0], [2.0, 1.0]], [[1.0, 1.0], [4.0, 1.0]]])
    potentials = Potentials(node, edge, pair, np.array([0, 1]))
    # weight(y0, y1) = node0 node1 · edge0[y1, y0] · edge1[y0, y1]
    weights = np.array([[1 * 3 * 1 * 1, 1 * 1 * 2 * 1], [2 * 3 * 5 * 4, 2 * 1 * 1 * 1]], float)
    for engine in (BruteEngine(), ForestEngine()):
        beliefs = engine.infer(potentials, Semiring.LOG)
        np.testing.assert_allclose(beliefs.total, [np.log(weights.sum())], rtol=1e-14)
        np.testing.assert_allclose(beliefs.edge[1], weights / weights.sum(), rtol=1e-13)
        np.testing.assert_allclose(beliefs.edge[0], weights.T / weights.sum(), rtol=1e-13)
