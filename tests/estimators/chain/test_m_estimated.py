"""The centred M-estimator: value and gradient, the table of centred features, rounds, and the estimator."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, MEstimatedCRF
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.objectives.contrast import Contrast
from crfield.objectives.m_estimator import Blocks, Centre, MEstimator, log_mean_exp
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training import m_estimate as rounds
from crfield.training.likelihood import FusedChain, fit_likelihood
from crfield.training.m_estimate import Criterion, centred_table, m_estimate, markov_weights
from tests.cases.estimators import as_arrays, as_dicts, as_strings, world

LENGTHS = [5, 0, 1, 7, 2, 4]


def scores(seed: int, chains: Chains, labels: int = 3, *, shared: bool) -> Potentials:
    rng = np.random.default_rng(seed)
    edges = 1 if shared else chains.n_edges
    return Potentials(rng.normal(size=(chains.n_nodes, labels)), rng.normal(size=(edges, labels, labels)), chains)


def truth(chains: Chains, labels: int = 3, *, partial: bool = False, weighted: bool = False) -> Target:
    rng = np.random.default_rng(9)
    codes = rng.integers(labels, size=chains.n_nodes)
    allowed = None
    if partial:
        codes = np.where(rng.random(chains.n_nodes) < 0.4, -1, codes)
        allowed = rng.random((chains.n_nodes, labels)) < 0.6
        allowed[:, 0] = True
    weight = rng.uniform(0.2, 2.0, chains.n_sequences) if weighted else None
    return Target(chains, labels, codes, allowed, weight)


# ------------------------------------------------------------------------------------------------------- criterion


@pytest.mark.parametrize("length", [1, 3, None])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["plain", "partial", "weighted"])
def test_the_gradient_is_that_of_the_value(length: int | None, shared: bool, kind: str) -> None:
    chains = Chains.from_lengths(LENGTHS)
    target = truth(chains, partial=kind == "partial", weighted=kind == "weighted")
    objective = MEstimator(scores(1, chains, shared=shared), target, block=length)
    here = scores(2, chains, shared=shared)
    found = objective.evaluate(here)
    rng = np.random.default_rng(3)
    for _ in range(4):
        node, edge = rng.normal(size=here.node.shape), rng.normal(size=here.edge.shape)
        step = 1e-6
        ends = [
            objective.evaluate(Potentials(here.node + s * step * node, here.edge + s * step * edge, chains)).value
            for s in (1, -1)
        ]
        wanted = float((found.node * node).sum() + (found.edge * edge).sum())
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", ["plain", "partial", "weighted"])
def test_at_the_reference_the_gradient_is_that_of_the_likelihood(kind: str) -> None:
    chains = Chains.from_lengths(LENGTHS)
    target = truth(chains, partial=kind == "partial", weighted=kind == "weighted")
    reference = scores(1, chains, shared=False)
    found = MEstimator(reference, target, block=2).evaluate(reference)
    wanted = Contrast().evaluate(reference, target, ChainEngine())
    assert found.value == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(found.node, wanted.node, atol=1e-12)
    np.testing.assert_allclose(found.edge, wanted.edge, atol=1e-12)
    log_prob = Centre.of(reference, target).log_prob
    weight = np.ones(len(log_prob)) if target.weight is None else target.weight
    assert -float(weight @ log_prob) == pytest.approx(wanted.value, abs=1e-10)


def test_the_value_by_enumeration() -> None:
    """n log(1/n Σ exp(−(score of the truth − its mean under q))), q summed over all labellings."""
    chains = Chains.from_lengths([3, 4])
    target, q, other = truth(chains, 2), scores(1, chains, 2, shared=True), scores(2, chains, 2, shared=True)
    beliefs = BruteEngine().infer(q.each(), crfield.core.semiring.Semiring.LOG)
    eta = []
    for s in range(2):
        nodes = slice(chains.offsets[s], chains.offsets[s + 1])
        edges = slice(chains.edge_offsets[s], chains.edge_offsets[s + 1])
        gap_node, gap_edge = other.node[nodes] - q.node[nodes], other.edge[0] - q.edge[0]
        own = target.labels[nodes]
        score = gap_node[np.arange(len(own)), own].sum() + gap_edge[own[:-1], own[1:]].sum()
        mean = (beliefs.node[nodes] * gap_node).sum() + (beliefs.edge[edges] * gap_edge).sum()
        eta.append(score - mean)
    wanted = 2 * np.log(np.mean(np.exp(-np.array(eta))))
    assert MEstimator(q, target, block=None).evaluate(other).value == pytest.approx(wanted, rel=1e-12)


def test_large_scores_do_not_overflow() -> None:
    value, slope = log_mean_exp(np.array([-5000.0, 0.0, 5000.0]), np.ones(3))
    assert value == pytest.approx(3 * (5000 - np.log(3)))
    np.testing.assert_allclose(slope, [-3.0, 0.0, 0.0], atol=1e-300)


def test_blocks_cover_everything_once() -> None:
    chains = Chains.from_lengths([0, 10, 1, 2, 61, 0])
    for length in (1, 2, 3, 30, 100, None):
        blocks = Blocks.cut(chains, length)
        assert blocks.nodes[0] == 0
        assert blocks.nodes[-1] == chains.n_nodes
        assert blocks.edges[-1] == chains.n_edges
        assert (np.diff(blocks.nodes) > 0).all()
        assert (np.diff(blocks.edges) >= 0).all()
        heads = np.repeat(np.arange(len(blocks)), np.diff(blocks.edges))
        owner = np.repeat(np.arange(len(blocks)), np.diff(blocks.nodes))
        np.testing.assert_array_equal(heads, owner[chains.heads])
        np.testing.assert_array_equal(blocks.sequence[owner], chains.sequence_of_node)
    with pytest.raises(InputError, match="at least one step"):
        Blocks.cut(chains, 0)


def test_graphs_and_other_shapes_are_refused() -> None:
    chains = Chains.from_lengths([3])
    graphs = crfield.core.graphs.Graphs.from_chains(chains)
    q = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), graphs)
    with pytest.raises(InputError, match="reads chains"):
        MEstimator(q, Target(graphs, 2, np.zeros(3, int))).evaluate(q)
    plain = scores(1, chains, 2, shared=True)
    with pytest.raises(ShapeError, match="shape of the reference"):
        MEstimator(plain, truth(chains, 2)).evaluate(scores(1, chains, 3, shared=True))


# ------------------------------------------------------------------------------------------------------ the table


def encoded(kind: str, *, n: int = 20, weighted: bool = False) -> tuple[Layout, Batch, Target]:
    """Every part of a layout: sparse and dense columns, on steps and on edges."""
    X, y = world(n, seed=4)
    options: dict[str, Any] = {"transition_features": "all"} if kind != "arrays" else {"transition_features": (0,)}
    write = {"dicts": as_dicts, "strings": as_strings, "arrays": as_arrays}[kind]
    if kind == "dicts":
        options = {"transition_features": ("speed", "word", "vector"), "standardize": True}
    model = ChainCRF(feature_pairs="observed" if kind != "arrays" else "all", **options)
    coder = crfield.data.labels.LabelCoder().fit(y)
    weight = np.linspace(0.5, 2.0, len(X)) if weighted else None
    inner, batch, target, _ = model.read_training(coder, write(X), y, weight, None)
    return inner.layout, batch, target


@pytest.mark.parametrize("kind", ["dicts", "strings", "arrays"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_table_is_the_plain_objective(kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, batch, target = encoded(kind, weighted=weighted)
    rng = np.random.default_rng(0)
    start, delta = rng.normal(size=(2, layout.n_weights)) * 0.3
    scorer = LinearScorer(layout)
    plain = MEstimator(scorer.score(start, batch), target, block=3)
    wanted = plain.evaluate(scorer.score(start + delta, batch))
    slope = scorer.pull(wanted.node, wanted.edge, batch)
    for chunk in (1 << 21, 40):
        monkeypatch.setattr(rounds, "CHUNK", chunk)
        table = centred_table(layout, batch, target, start, block=3)
        value, by_block = log_mean_exp(table.dot(delta), table.weight)
        assert value == pytest.approx(wanted.value, rel=1e-10)
        np.testing.assert_allclose(table.back(by_block), slope, atol=1e-9)
        likelihood = FusedChain(layout, batch, target).evaluate(start, np.empty(layout.n_weights))
        assert -table.log_prob == pytest.approx(likelihood, rel=1e-10)


def test_a_table_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, batch, target = encoded("arrays")
    monkeypatch.setattr(rounds, "MOST", 10)
    with pytest.raises(InputError, match="longer blocks"):
        m_estimate(layout, batch, target)


# --------------------------------------------------------------------------------------------------------- rounds


def test_refreshing_ends_at_the_maximum_of_the_likelihood() -> None:
    layout, batch, target = encoded("arrays", n=300)
    result = m_estimate(layout, batch, target, block=None, l2=1.0, refreshes=60, tol=1e-7)
    exact = fit_likelihood(
        FusedChain(layout, batch, target), Penalty(l2=1.0), tol=1e-12, max_iter=2000, rng=np.random.default_rng(0)
    )
    assert result.value == pytest.approx(exact.value, rel=1e-6)
    np.testing.assert_allclose(result.weights, exact.weights, atol=5e-3)
    assert result.n_iter < 60
    assert result.reason == "tolerance"


def test_no_round_loses_ground() -> None:
    layout, batch, target = encoded("dicts")
    for ridge in (0.0, 1e-3, 1.0):
        values = [step.value for step in m_estimate(layout, batch, target, ridge=ridge, l2=0.1, refreshes=4).history]
        assert all(later < earlier for earlier, later in pairwise(values))


def test_one_shot_is_taken_whole() -> None:
    """The minimum of its criterion, though it is surer than the likelihood likes and a refresh would be shortened."""
    rng = np.random.default_rng(3)
    labels = np.repeat(rng.integers(2, size=40), 20)
    columns = np.repeat(labels[::20] + rng.normal(size=40), 20)[:, None]
    batch = Batch(Chains.from_lengths([800]), Columns(np.zeros(801, int), [], 0, dense=columns))
    target = Target(batch.topology, 2, labels)
    layout = Layout.observe(batch, target)
    start = markov_weights(layout, target)
    table = centred_table(layout, batch, target, start, block=2)
    found = m_estimate(layout, batch, target, block=2, ridge=1e-4, tol=1e-10)
    slope = np.empty(layout.n_weights)
    criterion = Criterion(table, start, ridge=1e-4, l2=np.zeros(layout.n_weights))
    criterion.evaluate((found.weights - start) * table.scale, slope)
    assert np.abs(slope).max() < 1e-3
    assert found.value > -table.log_prob, "less likely than where it began, as blocks that repeat themselves are"


def test_what_never_occurs_stays_small() -> None:
    """A column that is nearly always zero has Φ of one sign; without the floor 1/n it would get the largest step."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    columns = np.stack([labels + rng.normal(size=400), np.zeros(400)], axis=1)
    columns[7, 1] = 1e-3
    batch = Batch(Chains.from_lengths([400]), Columns(np.zeros(401, int), [], 0, dense=columns))
    target = Target(batch.topology, 2, labels)
    layout = Layout.observe(batch, target)
    weights = m_estimate(layout, batch, target, block=1, ridge=0.1).weights[layout.part["dense"]].reshape(2, 2)
    assert np.abs(weights[1]).max() < 0.05 * np.abs(weights[0]).max()


def test_markov_weights_give_the_chain_of_labels() -> None:
    target = Target(Chains.from_lengths([400]), 3, np.repeat(np.random.default_rng(1).integers(3, size=80), 5))
    layout = Layout(3, pairs=np.arange(9, dtype=np.int32), boundaries=True)
    weights = markov_weights(layout, target, smoothing=0.0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (target.labels[:-1], target.labels[1:]), 1)
    table = layout.transitions(weights)
    wanted = np.log(counts / counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(table, wanted - wanted.mean(), atol=1e-12)
    some = Layout(3, pairs=np.array([0, 4, 8], np.int32))
    assert (markov_weights(some, target) > 0).all(), "pairs without a weight score 0 and must be the least likely"


def test_options_are_checked() -> None:
    layout, batch, target = encoded("arrays")
    with pytest.raises(InputError, match="reference must be one of"):
        m_estimate(layout, batch, target, reference="prior")
    with pytest.raises(InputError, match="ridge and refreshes"):
        m_estimate(layout, batch, target, ridge=-1.0)
    for options, word in (({"block": 0}, "block"), ({"refreshes": -1}, "refreshes"), ({"ridge": np.inf}, "ridge")):
        with pytest.raises(InputError, match=word):
            MEstimatedCRF(**options).fit(as_arrays(world(4)[0]), world(4)[1])


# ------------------------------------------------------------------------------------------------------- estimator


@pytest.mark.parametrize("write", [as_dicts, as_strings, as_arrays])
def test_the_estimator_nears_the_chain(write: Any) -> None:
    X, y = world(40, seed=2)
    data = write(X)
    model = MEstimatedCRF(refreshes=20, block=None, standardize=True, tol=1e-6).fit(data, y)
    chain = ChainCRF(standardize=True, tol=1e-10, max_iter=3000).fit(data, y)
    assert model.objective_ == pytest.approx(chain.objective_, rel=1e-3)
    assert model.coef_.shape == chain.coef_.shape
    assert [item.name for item in model.top_features(3)] == [item.name for item in chain.top_features(3)]


def test_weights_can_be_handed_on(tmp_path: Path) -> None:
    X, y = world(30, seed=3)
    data = as_arrays(X)
    guess = MEstimatedCRF(refreshes=2, block=3).fit(data, y)
    chain = guess.to_chain(l2=1.0, tol=1e-10, max_iter=3000)
    assert chain.score(data, y) == pytest.approx(guess.score(data, y), abs=0.05)
    chain.save(tmp_path / "chain.crfield")
    assert type(crfield.load(tmp_path / "chain.crfield")) is ChainCRF
    chain.fit(data, y)
    exact = ChainCRF(l2=1.0, tol=1e-10, max_iter=3000).fit(data, y)
    assert chain.objective_ == pytest.approx(exact.objective_, rel=1e-8)
    assert guess.coef_.tolist() != chain.coef_.tolist(), "the guess keeps its own weights"


def test_one_label_short_sequences_and_unknown_labels() -> None:
    X = [np.array([[1.0], [2.0]]), np.zeros((0, 1)), np.array([[3.0]])]
    only = MEstimatedCRF().fit(X, [["a", "a"], [], ["a"]])
    assert only.predict(X)[0].tolist() == ["a", "a"]
    some = MEstimatedCRF(block=1).fit(X, [["a", "b"], [], [None]])
    assert some.score(X[:1], [["a", "b"]]) == 1.0
    with pytest.raises(crfield.errors.FeatureError, match="finite"):
        MEstimatedCRF().fit([np.array([[np.nan]])], [["a"]])


def test_a_callback_sees_rounds_and_may_stop() -> None:
    X, y = world(20, seed=1)
    seen: list[int] = []
    model = MEstimatedCRF(
        refreshes=5, callback=lambda step, weights: bool(seen.append(step.n_iter)) or len(seen) == 2
    )
    model.fit(as_arrays(X), y)
    assert seen == [1, 2]
    assert model.stop_reason_ == "callback"
