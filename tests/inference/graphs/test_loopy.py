"""Loopy and tree-reweighted engines: exact where they say so, bounds, gradients at fixed points, parallel edges."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.loopy import LoopyEngine, links_of
from crfield.inference.graphs.tree_reweighted import TreeReweightedEngine, tree_shares
from crfield.inference.labellings import path_scores
from tests.cases.chains import INF, assert_totals, examples, random_potentials

pytestmark = pytest.mark.usefixtures("body")
Engine = LoopyEngine | TreeReweightedEngine
ENGINES: list[Engine] = [
    LoopyEngine(),
    LoopyEngine(schedule="synchronous", n_jobs=2),
    LoopyEngine(schedule="residual"),
    TreeReweightedEngine(),
    TreeReweightedEngine(schedule="synchronous", damping=0.5),
]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=repr)


def random_field(
    rng: np.random.Generator,
    sizes: list[int],
    labels: int,
    *,
    density: float,
    scale: float = 1.0,
    forbidden: float = 0.0,
    twice: float = 0.0,
    tables: int = 0,
) -> Potentials:
    """Trees with a share ``density`` of all other pairs, and a share ``twice`` of the edges a second time."""
    pairs: list[tuple[int, int]] = []
    first = 0
    for n in sizes:
        inner = [(int(rng.integers(0, i)), i) for i in range(1, n)]
        inner += [pair for pair in combinations(range(n), 2) if pair not in inner and rng.random() < density]
        inner += [pair for pair in inner if rng.random() < twice]
        pairs += [(first + a, first + b) if rng.random() < 0.5 else (first + b, first + a) for a, b in inner]
        first += n
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    table = rng.integers(0, tables, len(ends)) if tables else np.arange(len(ends))
    node = rng.standard_normal((first, labels))
    edge = scale * rng.standard_normal((tables or len(ends), labels, labels))
    for scores in (node, edge):
        scores[rng.random(scores.shape) < forbidden] = -INF
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Potentials(node, edge, Graphs(offsets, ends[:, 0], ends[:, 1]), table)


@st.composite
def fields(draw: st.DrawFn, density: tuple[float, ...], scales: tuple[float, ...] = (1.0,)) -> Potentials:
    """Small enough to enumerate; with and without forbidden, parallel and shared edges."""
    labels = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(0, {1: 6, 2: 6, 3: 4}[labels]), min_size=1, max_size=3))
    return random_field(
        np.random.default_rng(draw(st.integers(0, 2**32))),
        sizes,
        labels,
        density=draw(st.sampled_from(density)),
        scale=draw(st.sampled_from(scales)),
        forbidden=draw(st.sampled_from([0.0, 0.0, 0.2])),
        twice=draw(st.sampled_from([0.0, 0.5])),
        tables=draw(st.sampled_from([0, 1, 2])),
    )


def assert_same(beliefs: Beliefs, oracle: Beliefs, atol: float = 1e-10) -> None:
    np.testing.assert_allclose(beliefs.total, oracle.total, rtol=1e-11, atol=atol)
    np.testing.assert_allclose(beliefs.node, oracle.node, rtol=0, atol=atol)
    np.testing.assert_allclose(beliefs.edge, oracle.edge, rtol=0, atol=atol)


# ---------------------------------------------------------------------------------------------------- forests


@every_engine
@examples(12)
@given(fields(density=(0.0,), scales=(1.0, 20.0)))
def test_forests_are_exact(engine: Engine, potentials: Potentials) -> None:
    """Also with parallel edges, which as two edges would be a loop."""
    for semiring in Semiring:
        beliefs = engine.infer(potentials, semiring)
        assert (beliefs.exact, beliefs.converged, beliefs.bound) == (True, True, "exact")
        assert_same(beliefs, BruteEngine().infer(potentials, semiring))


@every_engine
def test_chains_are_graphs_too(engine: Engine) -> None:
    for shared in (True, False):
        potentials = random_potentials(np.random.default_rng(1), [7, 0, 1, 3], 3, shared=shared, forbidden=0.1)
        for semiring in Semiring:
            beliefs, oracle = engine.infer(potentials, semiring), ChainEngine().infer(potentials, semiring)
            assert beliefs.exact
            assert_totals(beliefs.total, oracle.total, potentials)
            assert_same(beliefs, oracle)


@every_engine
@pytest.mark.parametrize("sizes", [[], [0], [1, 0], [1, 1]])
def test_next_to_nothing(engine: Engine, sizes: list[int]) -> None:
    none = np.zeros(0, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for tables in (0, 2):
        potentials = Potentials(np.ones((sum(sizes), 2)), np.zeros((tables, 2, 2)), Graphs(offsets, none, none), none)
        for semiring in Semiring:
            beliefs = engine.infer(potentials, semiring)
            assert_same(beliefs, BruteEngine().infer(potentials, semiring))
            assert beliefs.exact
            assert beliefs.converged


# ------------------------------------------------------------------------------------------------------ loops


@pytest.mark.parametrize("maker", [LoopyEngine, TreeReweightedEngine])
def test_beliefs_are_the_gradient_of_the_settled_total(maker: type[Engine]) -> None:
    """Finite differences of the total, each from a run that settles anew; edges share tables, some are parallel."""
    potentials = random_field(np.random.default_rng(2), [5, 4], 2, density=0.4, scale=0.7, twice=0.3, tables=2)
    engine = maker(schedule="synchronous", damping=0.3, max_sweeps=3000, tol=1e-13)
    beliefs = engine.infer(potentials, Semiring.LOG)
    assert beliefs.converged
    assert not beliefs.exact
    step = 1e-4
    for part in ("node", "edge"):
        scores = getattr(potentials, part)
        slope = np.zeros_like(scores)
        for place in np.ndindex(scores.shape):
            totals = []
            for sign in (1, -1):
                moved = scores.copy()
                moved[place] += sign * step
                totals.append(engine.infer(replace(potentials, **{part: moved}), Semiring.LOG).total.sum())
            slope[place] = (totals[0] - totals[1]) / (2 * step)
        np.testing.assert_allclose(slope, getattr(beliefs, part), rtol=1e-6, atol=1e-7)


@examples(40)
@given(fields(density=(0.3, 1.0), scales=(0.5, 2.0, 5.0)))
def test_tree_reweighting_bounds_the_total_from_above(potentials: Potentials) -> None:
    engine = TreeReweightedEngine(schedule="synchronous", damping=0.5, max_sweeps=2000)
    beliefs = engine.infer(potentials, Semiring.LOG)
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    if beliefs.converged:
        assert beliefs.bound in ("upper", "exact")
        possible = np.isfinite(oracle.total)
        assert (beliefs.total[possible] >= oracle.total[possible] - 1e-9).all()
    else:
        assert beliefs.bound == "estimate"


@every_engine
@examples(12)
@given(fields(density=(0.3, 1.0), scales=(1.0, 4.0)))
def test_labellings_score_what_they_say(engine: Engine, potentials: Potentials) -> None:
    beliefs, oracle = engine.infer(potentials, Semiring.MAX), BruteEngine().infer(potentials, Semiring.MAX)
    assert (beliefs.total <= oracle.total + 1e-9).all()
    np.testing.assert_array_equal(
        beliefs.node.sum(axis=1), np.isfinite(beliefs.total)[potentials.topology.sequence_of_node]
    )
    score = path_scores(potentials, beliefs.node.argmax(axis=1))
    found = np.isfinite(beliefs.total)
    np.testing.assert_allclose(score[found], beliefs.total[found], rtol=1e-12, atol=1e-12)
    assert beliefs.edge.sum() == found[potentials.topology.sequence_of_edge].sum()
    assert beliefs.bound == ("exact" if beliefs.exact else "lower")
    if beliefs.exact:
        np.testing.assert_allclose(beliefs.total, oracle.total, rtol=1e-9, atol=1e-9)


def test_agreement_on_trees_proves_a_labelling_best() -> None:
    """Attractive couplings: the bound is met, and ``exact`` is claimed although there are loops."""
    rng = np.random.default_rng(3)
    potentials = random_field(rng, [7], 2, density=0.4, tables=1)
    attractive = Potentials(potentials.node, np.eye(2)[None], potentials.topology, potentials.table)
    beliefs = TreeReweightedEngine().infer(attractive, Semiring.MAX)
    assert beliefs.exact
    assert not links_of(attractive.topology).forest.all()
    np.testing.assert_allclose(beliefs.total, BruteEngine().infer(attractive, Semiring.MAX).total)


def test_bethe_total_of_a_ring() -> None:
    """One loop of equal nodes has the largest eigenvalue of the edge's matrix for every node, log Z all of them."""
    n, table = 6, np.array([[0.9, -0.3], [-0.3, 0.4]])
    ring = Graphs(np.array([0, n]), np.arange(n), (np.arange(n) + 1) % n)
    beliefs = LoopyEngine(tol=1e-13).infer(Potentials(np.zeros((n, 2)), table[None], ring), Semiring.LOG)
    values = np.linalg.eigvalsh(np.exp(table))
    np.testing.assert_allclose(beliefs.total, n * np.log(values.max()), rtol=1e-12)
    np.testing.assert_allclose(
        BruteEngine().infer(Potentials(np.zeros((n, 2)), table[None], ring), Semiring.LOG).total,
        np.log((values**n).sum()),
    )


@every_engine
def test_parallel_edges_are_added_up(engine: Engine) -> None:
    """Three edges between the same nodes, one of them against the others, on a graph with a loop."""
    rng = np.random.default_rng(4)
    tables = rng.standard_normal((3, 2, 2))
    several = Graphs(np.array([0, 3]), np.array([0, 1, 0, 2, 1]), np.array([1, 2, 1, 0, 0]))
    once = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    node = rng.standard_normal((3, 2))
    many = Potentials(node, tables, several, np.array([0, 1, 2, 1, 2]))
    one = Potentials(node, np.stack([tables[0] + tables[2] + tables[2].T, tables[1]]), once, np.array([0, 1, 1]))
    beliefs, expected = engine.infer(many, Semiring.LOG), engine.infer(one, Semiring.LOG)
    np.testing.assert_allclose(beliefs.total, expected.total, rtol=1e-12)
    np.testing.assert_allclose(beliefs.node, expected.node, atol=1e-12)
    joint = expected.edge[0]
    np.testing.assert_allclose(beliefs.edge, [joint, expected.edge[1], joint + joint.T], atol=1e-12)
    np.testing.assert_allclose(engine.infer(many, Semiring.MAX).total, engine.infer(one, Semiring.MAX).total)


# ------------------------------------------------------------------------------------------------ spanning trees


@examples(40)
@given(st.integers(2, 7), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([1, 2, 16]), st.integers(0, 2**32))
def test_shares_are_those_of_trees(nodes: int, density: float, n_trees: int, seed: int) -> None:
    """In the spanning-tree polytope: no set of nodes holds more of a tree than one less than its size."""
    graphs = random_field(np.random.default_rng(seed), [nodes], 2, density=density, twice=0.3).topology
    rho, links = tree_shares(graphs, n_trees=n_trees, seed=seed), links_of(graphs)
    assert rho.shape == links.tails.shape
    assert ((rho > 0) & (rho <= 1)).all()
    for size in range(2, nodes + 1):
        for chosen in combinations(range(nodes), size):
            inside = np.isin(links.tails, chosen) & np.isin(links.heads, chosen)
            assert rho[inside].sum() <= size - 1 + 1e-9
    np.testing.assert_array_equal(
        rho, tree_shares(Graphs(graphs.offsets, graphs.tails, graphs.heads), n_trees=n_trees, seed=seed)
    )


def test_too_few_trees_for_a_dense_graph() -> None:
    """Four trees cannot cover twelve nodes that are all joined; forests of the degeneracy order fill in."""
    tails, heads = np.array(list(combinations(range(12), 2))).T
    rho = tree_shares(Graphs(np.array([0, 12]), tails, heads), n_trees=1)
    assert rho.min() == pytest.approx(0.5 / 11)
    assert rho.sum() == pytest.approx(0.5 * 11 + 0.5 * 66 / 11)
    for size in range(2, 13):
        inside = np.isin(tails, range(size)) & np.isin(heads, range(size))
        assert rho[inside].sum() <= size - 1 + 1e-9


# ------------------------------------------------------------------------------------------- honesty, options


@pytest.mark.parametrize("maker", [LoopyEngine, TreeReweightedEngine])
def test_what_has_not_settled_says_so(maker: type[Engine]) -> None:
    potentials = random_field(np.random.default_rng(5), [8], 2, density=0.6, scale=3.0)
    for semiring in Semiring:
        beliefs = maker(max_sweeps=2).infer(potentials, semiring)
        assert not beliefs.converged
        assert not beliefs.exact
        assert beliefs.sweeps == 2
        assert beliefs.bound == ("lower" if semiring is Semiring.MAX else "estimate")


@every_engine
def test_a_run_goes_on_where_another_stopped(engine: Engine) -> None:
    potentials = random_field(np.random.default_rng(6), [6], 2, density=0.4, twice=0.4)
    first, messages = engine.run(potentials, Semiring.LOG)
    again, same = engine.run(potentials, Semiring.LOG, messages)
    assert first.converged
    assert again.sweeps < first.sweeps
    assert messages.shape == same.shape == (len(links_of(potentials.topology).tails), 2, 2)
    np.testing.assert_allclose(again.total, first.total, rtol=1e-9)
    with pytest.raises(ShapeError, match="of other graphs"):
        engine.run(potentials, Semiring.LOG, messages[:-1])


@every_engine
def test_engines_are_values(engine: Engine) -> None:
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert len({engine, replace(engine)}) == 1


def test_wrong_scores_and_options_are_refused() -> None:
    pair = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    good = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), pair)
    for bad in (np.nan, INF):
        for engine in (LoopyEngine(), TreeReweightedEngine()):
            with pytest.raises(InputError, match="finite or -inf"):
                engine.infer(Potentials(np.full((2, 2), bad), good.edge, pair), Semiring.LOG)
    for options, words in (
        ({"schedule": "best"}, "schedule"),
        ({"damping": 1.5}, "damping"),
        ({"max_sweeps": 0}, "max"),
    ):
        with pytest.raises(InputError, match=words):
            LoopyEngine(**options).infer(
                Potentials(
                    np.zeros((3, 2)), good.edge, Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
                ),
                Semiring.LOG,
            )
    with pytest.raises(InputError, match="n_trees"):
        TreeReweightedEngine(n_trees=0).infer(good, Semiring.LOG)
    assert tree_shares(Chains.from_lengths([3])).tolist() == [1.0, 1.0]
