"""Gibbs sampling within its own error bars, the ladder's totals, starts under rules, and searches for the best."""

from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.feasible import forbids_pairs, possible_labelling
from crfield.inference.graphs.gibbs import BATCHES, GibbsEngine, Samples, advance
from crfield.inference.graphs.ladder import climb
from crfield.inference.graphs.site_search import AnnealingEngine, IcmEngine
from crfield.inference.labellings import path_scores
from tests.cases.chains import examples, needs_native
from tests.cases.sites import fields, local_scores, random_field

QUICK = GibbsEngine(n_sweeps=8, burn_in=2, n_chains=2, n_rungs=5)
DIFFER = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)[None]


def ring(n: int) -> Graphs:
    return Graphs(np.array([0, n]), np.arange(n), (np.arange(n) + 1) % n)


# --------------------------------------------------------------------------------------------- error bars


@needs_native
def test_marginals_lie_within_their_error_bars() -> None:
    """Twelve loopy graphs: all nodes within the band that 999 of 1,000 such tests keep, and bars that are no excuse.

    Batch means have a t distribution; Bonferroni over all nodes and graphs. Were the bars three times too wide or
    too narrow, the mean square of the deviations in units of them would leave its range.
    """
    deviations = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        potentials = random_field(rng, [9, 6], 2, density=1.5, tables=4, scale=0.7)
        exact = BruteEngine().infer(potentials, Semiring.LOG)
        engine = GibbsEngine(n_sweeps=1000, random_state=seed)
        samples = engine.sample(potentials)
        assert samples.converged
        moving = samples.standard_error[:, 0] > 0
        deviations.append((samples.node - exact.node)[moving, 0] / samples.standard_error[moving, 0])
        np.testing.assert_allclose(samples.node[~moving], exact.node[~moving], atol=1e-12)
        np.testing.assert_allclose(samples.node.sum(axis=1), 1, atol=1e-12)
        # pairs: at most a few percent of an edge each, and exactly one pair an edge
        np.testing.assert_allclose(
            samples.edge.sum(axis=(1, 2)), np.bincount(potentials.tables, minlength=4), atol=1e-9
        )
        assert np.abs(samples.edge - exact.edge).max() < 0.05 * potentials.topology.n_edges
    z = np.concatenate(deviations)
    band = stats.t(engine.n_chains * BATCHES - 1).ppf(1 - 0.0005 / len(z))
    assert np.abs(z).max() < band
    assert 0.4 < (z**2).mean() < 1.3


@needs_native
def test_pairs_are_within_error_bars_over_seeds() -> None:
    """The mean over independent runs is that of enumeration: no bias from averaging what the draws came from."""
    potentials = random_field(np.random.default_rng(3), [6], 3, density=1.5, tables=2, scale=0.8)
    exact = BruteEngine().infer(potentials, Semiring.LOG)
    runs = np.array([GibbsEngine(n_sweeps=200, random_state=seed).sample(potentials).edge for seed in range(40)])
    z = (runs.mean(axis=0) - exact.edge) / (runs.std(axis=0, ddof=1) / np.sqrt(len(runs)))
    assert np.abs(z).max() < stats.t(len(runs) - 1).ppf(1 - 0.0005 / z.size)


@needs_native
def test_totals_are_near() -> None:
    errors, told = [], []
    for seed in range(20):
        potentials = random_field(np.random.default_rng(seed), [7], 3, density=1.5, scale=0.7)
        samples = GibbsEngine(n_sweeps=20, random_state=seed).sample(potentials)
        errors.append(samples.total[0] - BruteEngine().infer(potentials, Semiring.LOG).total[0])
        told.append(samples.total_error[0])
    assert np.sqrt(np.mean(np.square(errors))) < 0.15
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) / np.sqrt(np.mean(np.square(told))) < 2
    chain = Potentials(*_chain_scores(2000), Chains.from_lengths([2000]))
    found = GibbsEngine(n_sweeps=20).infer(chain, Semiring.LOG).total[0]
    np.testing.assert_allclose(found, ChainEngine().infer(chain, Semiring.LOG).total[0], rtol=2e-3)


def _chain_scores(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 3)), rng.standard_normal((1, 3, 3))


@needs_native
def test_diagnostics_tell_good_from_bad() -> None:
    """Free nodes mix at once; ferromagnets far below their critical temperature never do, and it is said."""
    free = Potentials(np.random.default_rng(0).standard_normal((50, 3)), np.zeros((1, 3, 3)), ring(50))
    good = GibbsEngine().sample(free)
    assert good.converged
    assert good.r_hat.max() < 1.02
    assert (good.effective_size == good.n_draws).all()
    assert good.n_draws == 4000
    stuck = Potentials(np.zeros((40, 2)), 6 * np.eye(2)[None], _grid(5, 8))
    bad = GibbsEngine(n_sweeps=200, n_rungs=20, n_chains=8).sample(stuck)
    assert not bad.converged
    assert bad.r_hat.max() > 1.5
    assert bad.effective_size.min() < 20
    assert not GibbsEngine(n_sweeps=200, n_rungs=20, n_chains=8).infer(stuck, Semiring.LOG).converged


def _grid(rows: int, columns: int) -> Graphs:
    at = np.arange(rows * columns).reshape(rows, columns)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    return Graphs(np.array([0, at.size]), tails, np.concatenate([at[:, 1:].ravel(), at[1:].ravel()]))


# ----------------------------------------------------------------------------------------------- contract


def parts(samples: Samples) -> list[np.ndarray]:
    return [np.asarray(value) for value in vars(samples).values()]


@needs_native
def test_the_same_seed_gives_the_same_bits() -> None:
    potentials = random_field(np.random.default_rng(1), [8, 0, 5], 3, forbidden=0.1)
    first = GibbsEngine(n_sweeps=60).sample(potentials)
    for engine in (GibbsEngine(n_sweeps=60), GibbsEngine(n_sweeps=60, n_jobs=3)):
        for mine, other in zip(parts(first), parts(engine.sample(potentials))):
            np.testing.assert_array_equal(mine, other)
    another = GibbsEngine(n_sweeps=60, random_state=1).sample(potentials)
    assert (another.labels != first.labels).any()
    assert pickle.loads(pickle.dumps(GibbsEngine(random_state=7))) == GibbsEngine(random_state=7)
    assert hash(GibbsEngine()) == hash(GibbsEngine())


@examples(40)
@given(fields(), st.sampled_from(list(Semiring)))
def test_any_graph_gets_an_answer(body: str, potentials: Potentials, semiring: Semiring) -> None:
    """Shapes, no NaN, forbidden labels never, and −∞ exactly where nothing is possible."""
    oracle = BruteEngine().infer(potentials, semiring)
    engines = [QUICK] if semiring is Semiring.LOG else [QUICK, IcmEngine(2), AnnealingEngine(6, restarts=2)]
    for engine in engines:
        beliefs = engine.infer(potentials, semiring)
        assert not beliefs.exact
        assert beliefs.bound == ("estimate" if semiring is Semiring.LOG else "lower")
        np.testing.assert_array_equal(np.isneginf(beliefs.total), np.isneginf(oracle.total))
        assert not np.isnan(beliefs.total).any()
        assert (beliefs.node[np.isneginf(potentials.node)] == 0).all()
        assert (beliefs.edge[np.isneginf(potentials.edge)] == 0).all()
        possible = ~np.isneginf(oracle.total)[potentials.topology.sequence_of_node]
        np.testing.assert_allclose(beliefs.node.sum(axis=1), possible, atol=1e-12)
        edges = ~np.isneginf(oracle.total)[potentials.topology.sequence_of_edge]
        per_table = np.bincount(potentials.tables, edges, minlength=len(potentials.edge))
        np.testing.assert_allclose(beliefs.edge.sum(axis=(1, 2)), per_table, atol=1e-9)
        if semiring is Semiring.MAX:
            alive = np.flatnonzero(np.isfinite(beliefs.total))
            scores = path_scores(potentials, beliefs.node.argmax(axis=1))
            np.testing.assert_allclose(beliefs.total[alive], scores[alive], atol=1e-9)
            assert (beliefs.total <= oracle.total + 1e-9).all()


def test_chains_go_on(body: str) -> None:
    """`advance` is one run cut in pieces in what it means, if not in its numbers."""
    potentials = random_field(np.random.default_rng(2), [4, 3], 2)
    labels = np.zeros((3, 7), np.int32)
    seen = []
    for turn in range(150):
        labels, node, edge = advance(potentials, labels, n_sweeps=1 + turn % 2, random_state=turn)
        np.testing.assert_allclose(node.sum(axis=1), 1)
        np.testing.assert_allclose(edge.sum(), potentials.topology.n_edges)
        seen.append(node)
    exact = BruteEngine().infer(potentials, Semiring.LOG).node
    assert np.abs(np.mean(seen[10:], axis=0) - exact).max() < 0.1
    with pytest.raises(InputError, match="n_sweeps must be ≥ 1"):
        advance(potentials, labels, n_sweeps=0)


@pytest.mark.parametrize(
    "wrong", [{"n_sweeps": 3}, {"n_chains": 0}, {"burn_in": -1}, {"n_rungs": 1}], ids=lambda wrong: next(iter(wrong))
)
def test_options_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="Gibbs sampling needs"):
        GibbsEngine(**wrong)
    for make in (lambda: IcmEngine(0), lambda: AnnealingEngine(hot=1.0, cold=2.0), lambda: AnnealingEngine(cold=0.0)):
        with pytest.raises(InputError, match="needs"):
            make()


def test_the_least_that_options_allow_is_an_answer() -> None:
    potentials = random_field(np.random.default_rng(0), [3], 2)
    found = GibbsEngine(n_sweeps=4, n_chains=1, burn_in=0, n_rungs=2).infer(potentials, Semiring.LOG)
    np.testing.assert_allclose(found.node.sum(axis=1), 1.0)


# ------------------------------------------------------------------------------------------ rules and starts


@examples(60)
@given(fields())
def test_a_possible_labelling_or_the_proof(potentials: Potentials) -> None:
    total = BruteEngine().infer(potentials, Semiring.MAX).total
    for graph, best in enumerate(total):
        found = possible_labelling(potentials, graph)
        assert (found is None) == np.isneginf(best)
        if found is not None:
            y = np.zeros(potentials.topology.n_nodes, np.int32)
            y[potentials.topology.offsets[graph] : potentials.topology.offsets[graph + 1]] = found
            assert path_scores(potentials, y)[graph] > -np.inf


def test_a_search_that_gives_up_says_so() -> None:
    """A clique of nine nodes and eight colours: no proof within a few trials."""
    pairs = np.array([(i, j) for i, j in product(range(9), repeat=2) if i < j])
    clique = Graphs(np.array([0, 9]), pairs[:, 0], pairs[:, 1])
    differ = np.where(np.eye(8, dtype=bool), -np.inf, 0.0)[None]
    with pytest.raises(InputError, match="graph 0 was found, nor a proof"):
        possible_labelling(Potentials(np.zeros((9, 8)), differ, clique), 0, trials=20)


@needs_native
def test_colourings_are_sampled() -> None:
    """Three colours on a ring of eight: all start possible, stay possible, and all colours are met alike."""
    potentials = Potentials(np.zeros((8, 3)), DIFFER, ring(8))
    samples = GibbsEngine(n_sweeps=2000).sample(potentials)
    exact = BruteEngine().infer(potentials, Semiring.LOG)
    assert np.isfinite(samples.trace).all()
    assert (np.abs(samples.node - exact.node) < 5 * samples.standard_error + 1e-12).all()
    assert (np.diagonal(samples.edge[0]) == 0).all()
    np.testing.assert_allclose(samples.total, exact.total, atol=0.5)


def test_rules_that_only_a_search_finds() -> None:
    """Two nodes at the far ends fix what a long chain of equalities must be, against what its scores say."""
    n = 30
    node = np.zeros((n, 2))
    node[:, 1] = 5.0
    node[0, 1] = -np.inf
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)[None]
    potentials = Potentials(node, equal, Chains.from_lengths([n]))
    assert forbids_pairs(potentials)
    ladder = climb(potentials, n_chains=3, n_rungs=2, seed=0)
    assert ladder.possible.all()
    np.testing.assert_array_equal(ladder.labels, 0)
    for engine in (IcmEngine(2), AnnealingEngine(5), QUICK):
        np.testing.assert_array_equal(engine.infer(potentials, Semiring.MAX).node[:, 0], 1)


# -------------------------------------------------------------------------------------------------- search


@examples(30)
@given(fields(), st.integers(0, 1000))
def test_icm_is_a_local_optimum_and_annealing_no_worse(body: str, potentials: Potentials, seed: int) -> None:
    icm = IcmEngine(2, random_state=seed).infer(potentials, Semiring.MAX)
    assert icm.converged
    y = icm.node.argmax(axis=1)
    for n in np.flatnonzero(icm.node.any(axis=1)).tolist():
        assert local_scores(potentials, n, y)[y[n]] >= local_scores(potentials, n, y).max() - 1e-12
    annealed = AnnealingEngine(5, restarts=2, random_state=seed).infer(potentials, Semiring.MAX)
    assert (annealed.total >= icm.total - 1e-12).all()


@needs_native
def test_annealing_beats_icm_on_frustrated_grids() -> None:
    """Couplings of random sign: one ICM run is poor; annealing finds what enumeration finds."""
    gains = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        grid = _grid(3, 4) if seed < 6 else _grid(12, 12)
        sign = rng.choice([-1.0, 1.0], grid.n_edges)
        edge = sign[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
        potentials = Potentials(0.1 * rng.standard_normal((grid.n_nodes, 2)), edge, grid)
        annealed = AnnealingEngine(random_state=seed).infer(potentials, Semiring.MAX).total[0]
        gains.append(annealed - IcmEngine(1, random_state=seed).infer(potentials, Semiring.MAX).total[0])
        if seed < 6:
            np.testing.assert_allclose(annealed, BruteEngine().infer(potentials, Semiring.MAX).total[0], atol=1e-9)
    assert min(gains) >= 0
    assert min(gains[6:]) > 5


@pytest.mark.parametrize("engine", [IcmEngine(), AnnealingEngine()])
def test_searches_have_no_marginals(engine: IcmEngine | AnnealingEngine) -> None:
    with pytest.raises(InputError, match=r"Semiring\.MAX.*Use GibbsEngine"):
        engine.infer(Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([1])), Semiring.LOG)


@pytest.mark.parametrize("engine", [QUICK, IcmEngine(), AnnealingEngine(4)])
def test_nan_is_refused(engine: GibbsEngine) -> None:
    node = np.array([[0.0, np.nan]])
    with pytest.raises(InputError, match="finite or -inf"):
        engine.infer(Potentials(node, np.zeros((1, 2, 2)), Chains.from_lengths([1])), Semiring.MAX)
