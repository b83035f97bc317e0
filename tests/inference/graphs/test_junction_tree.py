"""Graphs with loops, exactly: equal to enumeration, planned beforehand, refused when too wide."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import InputError, ShapeError, WidthError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs import elimination
from crfield.inference.graphs.elimination import plan
from crfield.inference.graphs.forest import ForestEngine
from crfield.inference.graphs.junction_tree import JunctionTreeEngine
from crfield.kernels import choice, forest
from crfield.objectives.contrast import Contrast
from tests.cases.chains import examples, native_level, needs_native, small_potentials
from tests.cases.exact import (
    INF,
    assert_gradient,
    assert_log_as_enumerated,
    assert_max_as_enumerated,
    assert_same_beliefs,
    assert_same_totals,
    dense_graphs,
    graph_potentials,
    random_graphs,
    steep_graphs,
)

ENGINES = [JunctionTreeEngine(), JunctionTreeEngine(n_jobs=2)]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=["one", "two"])


def grid(rows: int, columns: int) -> Graphs:
    at = np.arange(rows * columns).reshape(rows, columns)
    tails = np.concatenate([at[:-1].ravel(), at[:, :-1].ravel()])
    return Graphs(np.array([0, rows * columns]), tails, np.concatenate([at[1:].ravel(), at[:, 1:].ravel()]))


def far_chain(nodes: int, distance: int, batch: int = 1) -> tuple[Graphs, np.ndarray]:
    """Chains with links to all of the last steps, and the relation of every edge."""
    ends = [(b * nodes + t, b * nodes + t + d, d - 1) for b in range(batch) for d in range(1, distance + 1)
            for t in range(nodes - d)]  # fmt: skip
    tails, heads, relation = np.array(ends).T
    return Graphs(np.arange(batch + 1) * nodes, tails, heads), relation


@every_engine
@examples(60)
@given(graph_potentials(loops=True))
def test_sums_equal_enumeration(body: str, engine: JunctionTreeEngine, potentials: Potentials) -> None:
    assert_log_as_enumerated(engine, potentials)


@every_engine
@examples(60)
@given(graph_potentials(loops=True))
def test_maxima_equal_enumeration(body: str, engine: JunctionTreeEngine, potentials: Potentials) -> None:
    assert_max_as_enumerated(engine, potentials)


@examples(25)
@given(graph_potentials(loops=True, scales=(1.0,)))
def test_beliefs_are_the_gradient_of_the_total(body: str, potentials: Potentials) -> None:
    assert_gradient(JunctionTreeEngine(), potentials)


@examples(20)
@given(graph_potentials(), small_potentials())
def test_forests_and_chains_are_graphs(body: str, trees: Potentials, chains: Potentials) -> None:
    for potentials, engine in ((trees, ForestEngine()), (chains, ChainEngine())):
        expected = engine.infer(potentials, Semiring.LOG)
        assert_same_beliefs(JunctionTreeEngine().infer(potentials, Semiring.LOG), expected, potentials)


@examples(60)
@given(steep_graphs(loops=True))
def test_scores_where_exp_leaves_the_double_numbers(body: str, potentials: Potentials) -> None:
    assert_log_as_enumerated(JunctionTreeEngine(), potentials)


@pytest.mark.parametrize("seed", range(6))
def test_dense_graphs_equal_enumeration(body: str, seed: int) -> None:
    """Cliques that share some of their axes with their parents and not others."""
    rng = np.random.default_rng(seed)
    graphs = dense_graphs(rng, 9, 15)
    potentials = Potentials(rng.standard_normal((9, 2)), rng.standard_normal((15, 2, 2)), graphs)
    assert_log_as_enumerated(JunctionTreeEngine(), potentials)
    assert_max_as_enumerated(JunctionTreeEngine(), potentials)


@pytest.mark.parametrize("scale", [2_000.0, 1e5])
@pytest.mark.parametrize("forbidden", [0.0, 0.15])
def test_any_finite_scores(body: str, scale: float, forbidden: float) -> None:
    """Whole numbers, so that sums are exact; the oracle then has no rounding either."""
    rng = np.random.default_rng(4)
    for _ in range(12):
        graphs = random_graphs(rng, [6, 4], loops=0.8)
        node = np.rint(scale * rng.standard_normal((10, 3)))
        edge = np.rint(scale * rng.standard_normal((3, 3, 3)))
        for scores in (node, edge):
            scores[rng.random(scores.shape) < forbidden] = -INF
        potentials = Potentials(node, edge, graphs, rng.integers(0, 3, graphs.n_edges))
        assert_log_as_enumerated(JunctionTreeEngine(), potentials)
        assert_max_as_enumerated(JunctionTreeEngine(), potentials)


def test_one_impossible_component_makes_its_graph_impossible(body: str) -> None:
    graphs = Graphs(np.array([0, 4, 7]), np.array([0, 1, 2, 4, 5, 6]), np.array([1, 2, 0, 5, 6, 4]))
    node = np.random.default_rng(1).standard_normal((7, 2))
    node[3] = -INF
    for tables in (1, 6):
        edge = np.random.default_rng(2).standard_normal((tables, 2, 2))
        potentials = Potentials(node, edge, graphs, np.arange(6) % tables)
        for engine in ENGINES:
            beliefs = engine.infer(potentials, Semiring.LOG)
            assert np.isneginf(beliefs.total[0])
            assert not beliefs.node[:4].any()
            assert_log_as_enumerated(engine, potentials)


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_a_grid_by_transfer_matrices(body: str, labels: int) -> None:
    """log Z of a grid three wide is that of a chain whose labels are whole rows."""
    rows, columns, rng = 6, 3, np.random.default_rng(labels)
    graphs = grid(rows, columns)
    node, edge = rng.standard_normal((rows * columns, labels)), rng.standard_normal((2, labels, labels))
    table = (np.abs(graphs.tails - graphs.heads) == 1).astype(np.int64)  # 0 downwards, 1 sideways
    found = JunctionTreeEngine().infer(Potentials(node, edge, graphs, table), Semiring.LOG).total
    states = np.stack(np.meshgrid(*[np.arange(labels)] * columns, indexing="ij"), axis=-1).reshape(-1, columns)
    within = edge[1][states[:, :-1], states[:, 1:]].sum(axis=1)
    step = edge[0][states[:, None, :], states[None, :, :]].sum(axis=2)
    message = np.zeros(len(states))
    for r in range(rows):
        if r:
            joint = message[:, None] + step
            message = joint.max() + np.log(np.exp(joint - joint.max()).sum(axis=0))
        message = message + within + node[r * columns + np.arange(columns), states].sum(axis=1)
    np.testing.assert_allclose(found, [message.max() + np.log(np.exp(message - message.max()).sum())], rtol=1e-12)


# --------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("graphs", "width"),
    [
        (Graphs(np.array([0, 3]), np.array([], int), np.array([], int)), 0),
        (Graphs(np.array([0, 3]), np.array([0, 0, 1]), np.array([1, 2, 0])), 1),
        (grid(1, 9), 1),
        (grid(2, 9), 2),
        (grid(4, 4), 4),
        (grid(9, 9), 9),
        (grid(7, 40), 7),
        (grid(40, 7), 7),
        (far_chain(60, 5)[0], 5),
        (Graphs(np.array([0, 6]), *np.triu_indices(6, 1)), 5),
        (Graphs(np.array([0, 7]), np.arange(7), (np.arange(7) + 1) % 7), 2),
    ],
    ids=[
        "points",
        "tree",
        "path",
        "ladder",
        "grid",
        "larger grid",
        "low grid",
        "high grid",
        "far chain",
        "clique",
        "ring",
    ],
)
def test_widths_of_known_graphs(body: str, graphs: Graphs, width: int) -> None:
    found = plan(graphs, 3)
    assert found.width == width
    assert found.complete
    assert sorted(found.order.tolist()) == list(range(graphs.n_nodes))
    assert sum(3 ** len(c) for c in found.cliques()) + sum(3 ** (len(c) - 1) for c in found.cliques()) >= (
        found.n_bytes / 8
    )


@examples(40)
@given(graph_potentials(loops=True), st.integers(0, 2**32))
def test_plans_hold_every_edge_and_count_their_bytes(body: str, potentials: Potentials, seed: int) -> None:
    graphs = potentials.topology
    counts = np.random.default_rng(seed).integers(1, 5, graphs.n_nodes)
    found = plan(graphs, counts)
    cliques = [set(c) for c in found.cliques()]
    for a, b in zip(graphs.tails.tolist(), graphs.heads.tolist()):
        assert any({a, b} <= c for c in cliques)
    # running intersection: what a clique leaves behind lies in a later one
    for k, clique in enumerate(found.cliques()):
        assert len(clique) == 1 or any(set(clique[1:]) <= c for c in cliques[k + 1 :])
    e = found.elimination
    sizes = [sum(np.prod(counts[list(c)]) + np.prod(counts[list(c[1:])]) for c in found.cliques()[a:b])
             for a, b in zip(e.unit[:-1], e.unit[1:])]  # fmt: skip
    assert found.n_bytes == 8 * max(sizes, default=0)


def test_both_bodies_eliminate_alike() -> None:
    rng = np.random.default_rng(11)
    for _ in range(25):
        graphs = random_graphs(rng, rng.integers(0, 25, 3).tolist(), loops=0.9)
        if rng.random() < 0.5:
            graphs = dense_graphs(rng, 14, 25)
        ends = graphs.offsets, graphs.tails, graphs.heads
        found = []
        for name in ("numpy", "native"):
            with choice.use(name):
                found.append(vars(forest.eliminate(*ends)))
        for key, value in found[0].items():
            np.testing.assert_array_equal(found[1][key], value, err_msg=key)


@needs_native
def test_both_bodies_give_up_alike() -> None:
    """A star has a hub of many neighbours but width 1; a dense graph of three hundred nodes is hopeless.

    What is hopeless does not stop the rest: the square beside it is eliminated all the same.
    """
    star = np.array([0, 401]), np.zeros(400, int), np.arange(1, 401)
    rows, columns = np.triu_indices(300, 1)
    square = np.array([300, 301, 302, 303]), np.array([301, 302, 303, 300])
    dense = np.array([0, 300, 304]), np.append(rows, square[0]), np.append(columns, square[1])
    for ends, complete in ((star, True), (dense, False)):
        answers = []
        for name in ("numpy", "native"):
            with choice.use(name):
                found = forest.eliminate(*ends)
            answers.append(vars(found))
            assert found.complete is complete
            assert np.diff(found.scope_ptr).max() == (1 if complete else 299)
            if not complete:
                assert np.diff(found.scope_ptr)[300:].tolist() == [2, 2, 1, 0]
        for key, value in answers[0].items():
            np.testing.assert_array_equal(answers[1][key], value, err_msg=key)


def test_a_plan_is_found_once(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    once = forest.eliminate
    monkeypatch.setattr(elimination.forest, "eliminate", lambda *ends: asked.append(1) or once(*ends))
    graphs = grid(3, 3)
    for scale in (1.0, 2.0):
        JunctionTreeEngine().infer(Potentials(np.full((9, 2), scale), np.zeros((1, 2, 2)), graphs), Semiring.LOG)
    plan(graphs, 5)
    assert len(asked) == 1


# ------------------------------------------------------------------------------------------------ refusals


def test_a_wide_graph_is_refused_with_width_and_memory(body: str) -> None:
    graphs = Graphs(np.array([0, 2, 12]), *(2 + np.array(ends) for ends in np.triu_indices(10, 1)))
    potentials = Potentials(np.zeros((12, 4)), np.zeros((1, 4, 4)), graphs)
    need = 8 * sum(4**k + 4 ** (k - 1) for k in range(1, 11))
    assert plan(graphs, 4).n_bytes == need
    engine = JunctionTreeEngine(max_bytes=need - 1)
    for ask in (lambda: engine.infer(potentials, Semiring.LOG), lambda: engine.best_labelling(potentials)):
        with pytest.raises(WidthError, match=r"^graph 1 needs 14 MB .*\(width 9\).*may take 14 MB\. Raise max_bytes"):
            ask()
    assert np.isfinite(JunctionTreeEngine(max_bytes=need).infer(potentials, Semiring.LOG).total).all()


def test_a_hopeless_graph_is_refused_at_once(body: str) -> None:
    dense = Graphs(np.array([0, 300]), *np.triu_indices(300, 1))
    with pytest.raises(
        WidthError, match=r"at least 2\.44e\+82 GB .*at least width 299.*take 1\.07 GB\. Use .* loopy"
    ):
        JunctionTreeEngine().infer(Potentials(np.zeros((300, 2)), np.zeros((1, 2, 2)), dense), Semiring.LOG)
    with pytest.raises(InputError, match="width"):
        JunctionTreeEngine().best_labelling(Potentials(np.zeros((300, 9)), np.zeros((1, 9, 9)), dense))


def test_labels_that_nodes_lack_take_no_room(body: str) -> None:
    """Ten nodes of eight labels all joined need gigabytes; with two labels each they need kilobytes."""
    rng = np.random.default_rng(5)
    graphs = Graphs(np.array([0, 10]), *np.triu_indices(10, 1))
    node, edge = rng.standard_normal((10, 8)), rng.standard_normal((1, 8, 8))
    engine = JunctionTreeEngine(max_bytes=100_000)
    with pytest.raises(WidthError, match=r"width 9"):
        engine.infer(Potentials(node, edge, graphs), Semiring.LOG)
    kept = np.stack([rng.choice(8, 2, replace=False) for _ in range(10)])
    kept.sort(axis=1)
    masked = np.full_like(node, -INF)
    np.put_along_axis(masked, kept, np.take_along_axis(node, kept, axis=1), axis=1)
    found = engine.infer(Potentials(masked, edge, graphs), Semiring.LOG)
    small = np.take_along_axis(node, kept, axis=1)
    tables = np.stack([edge[0][np.ix_(kept[a], kept[b])] for a, b in zip(graphs.tails, graphs.heads)])
    expected = engine.infer(Potentials(small, tables, graphs), Semiring.LOG)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-13)
    np.testing.assert_allclose(np.take_along_axis(found.node, kept, axis=1), expected.node, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.edge.sum(), graphs.n_edges, rtol=1e-12)


@pytest.mark.parametrize("labels", [0, np.array([2, 2]), np.array([2, 2, 0])], ids=str)
def test_plans_need_labels_for_every_node(labels: int | np.ndarray) -> None:
    with pytest.raises(ShapeError):
        plan(grid(1, 3), labels)


def test_engines_are_values() -> None:
    engine = JunctionTreeEngine(max_bytes=123, n_jobs=2)
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert hash(engine) == hash(JunctionTreeEngine(max_bytes=123, n_jobs=2))


# --------------------------------------------------------------------------------------- bodies and sizes


@st.composite
def larger(draw: st.DrawFn) -> Potentials:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels = draw(st.sampled_from([1, 2, 3, 5]))
    if draw(st.booleans()):
        graphs = random_graphs(rng, draw(st.lists(st.integers(0, 14), max_size=5)), loops=0.4)
    else:
        nodes = draw(st.integers(4, 18))
        graphs = dense_graphs(rng, nodes, nodes * 7 // 4)
    node, edge = rng.standard_normal((graphs.n_nodes, labels)), 3 * rng.standard_normal((4, labels, labels))
    node[rng.random(node.shape) < draw(st.sampled_from([0.0, 0.3]))] = -INF
    edge[rng.random(edge.shape) < draw(st.sampled_from([0.0, 0.1]))] = -INF
    return Potentials(node, edge, graphs, rng.integers(0, 4, graphs.n_edges))


@needs_native
@examples(30)
@given(larger())
def test_both_bodies_agree(potentials: Potentials) -> None:
    answers = []
    for name in ("native", "numpy"):
        with choice.use(name):
            engine = JunctionTreeEngine()
            answers.append((engine.infer(potentials, Semiring.LOG), engine.best_labelling(potentials)))
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
        graphs = grid(3, 5)
        potentials = Potentials(rng.standard_normal((15, labels)), rng.standard_normal((1, labels, labels)), graphs)
        with choice.use("numpy"):
            expected = JunctionTreeEngine().infer(potentials, Semiring.LOG)
            best = JunctionTreeEngine().best_labelling(potentials)
        with native_level(level):
            assert_same_beliefs(
                JunctionTreeEngine().infer(potentials, Semiring.LOG), expected, potentials, atol=1e-13
            )
            assert_same_totals(JunctionTreeEngine().best_labelling(potentials)[0], best[0], potentials)


@needs_native
def test_long_thin_graphs_are_consistent() -> None:
    """Nine chains of two thousand steps with links to the last five: distributions, and threads agree."""
    graphs, relation = far_chain(2_000, 5, batch=9)
    rng = np.random.default_rng(6)
    potentials = Potentials(
        rng.standard_normal((graphs.n_nodes, 2)), 0.5 * rng.standard_normal((5, 2, 2)), graphs, relation
    )
    one = JunctionTreeEngine().infer(potentials, Semiring.LOG)
    assert plan(graphs, 2).width == 5
    np.testing.assert_allclose(one.node.sum(axis=1), 1, rtol=0, atol=1e-12)
    for d in range(5):
        pairs = one.edge[d]
        ends = graphs.tails[relation == d], graphs.heads[relation == d]
        np.testing.assert_allclose(pairs.sum(axis=1), one.node[ends[0]].sum(axis=0), rtol=1e-11)
        np.testing.assert_allclose(pairs.sum(axis=0), one.node[ends[1]].sum(axis=0), rtol=1e-11)
    many, again = (JunctionTreeEngine(n_jobs=4).infer(potentials, Semiring.LOG) for _ in range(2))
    np.testing.assert_allclose(many.total, one.total, rtol=1e-14)
    np.testing.assert_array_equal(many.node, one.node)
    np.testing.assert_allclose(many.edge, one.edge, rtol=1e-12)
    np.testing.assert_array_equal(many.edge, again.edge)
    # the score of the best labelling is below log Z, and above that of any single change
    total, labels = JunctionTreeEngine().best_labelling(potentials)
    assert (total < one.total).all()
    hot = np.eye(2)[labels]
    pull = potentials.node.copy()
    for d in range(5):
        tail, head = graphs.tails[relation == d], graphs.heads[relation == d]
        np.add.at(pull, tail, hot[head] @ potentials.edge[d].T)
        np.add.at(pull, head, hot[tail] @ potentials.edge[d])
    assert (np.take_along_axis(pull, labels[:, None], axis=1)[:, 0] >= pull.max(axis=1) - 1e-12).all()


def test_likelihood_of_partly_labelled_graphs(body: str) -> None:
    """The objective's two sweeps, free and clamped, on one topology."""
    rng = np.random.default_rng(12)
    graphs = grid(2, 3)
    potentials = Potentials(rng.standard_normal((6, 3)), rng.standard_normal((1, 3, 3)), graphs)
    allowed = np.ones((6, 3), bool)
    allowed[2] = [True, False, False]
    target = Target(graphs, 3, np.array([0, -1, -1, 2, -1, 1]), allowed)
    found = Contrast().evaluate(potentials, target, JunctionTreeEngine())
    masked = Potentials(np.where(target.mask, potentials.node, -INF), potentials.edge, graphs)
    both = [JunctionTreeEngine().infer(p, Semiring.LOG) for p in (potentials, masked)]
    np.testing.assert_allclose(found.value, both[0].total[0] - both[1].total[0], rtol=1e-12)
    np.testing.assert_allclose(found.node, both[0].node - both[1].node, rtol=0, atol=1e-13)
