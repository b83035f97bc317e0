"""Engines keep their promises: totals, beliefs in the shape of the scores, paths, and no probability above one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield import ChainCRF
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.decode import best_marginals, check_decoder
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.labellings import one_hot, path_scores, segment_sums
from tests.cases.chains import (
    INF,
    assert_totals,
    examples,
    magnitude,
    path_score,
    random_potentials,
    small_potentials,
)

pytestmark = pytest.mark.usefixtures("body")
ENGINES = [ChainEngine(), ChainEngine(n_jobs=3)]
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=repr)


@every_engine
@examples(40)
@given(small_potentials())
def test_log_beliefs_equal_enumeration(engine: ChainEngine, potentials: Potentials) -> None:
    beliefs, oracle = engine.infer(potentials, Semiring.LOG), BruteEngine().infer(potentials, Semiring.LOG)
    assert beliefs.exact
    assert beliefs.converged
    assert beliefs.node.shape == potentials.node.shape
    assert beliefs.edge.shape == potentials.edge.shape
    assert_totals(beliefs.total, oracle.total, potentials)
    np.testing.assert_allclose(beliefs.node, oracle.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(beliefs.edge, oracle.edge, rtol=0, atol=1e-10)


@every_engine
@examples(40)
@given(small_potentials())
def test_max_beliefs_equal_enumeration(engine: ChainEngine, potentials: Potentials) -> None:
    """Random scores have one best path, so its zeros and ones are those of the oracle; none where none is allowed."""
    beliefs, oracle = engine.infer(potentials, Semiring.MAX), BruteEngine().infer(potentials, Semiring.MAX)
    assert_totals(beliefs.total, oracle.total, potentials)
    np.testing.assert_array_equal(beliefs.node, oracle.node)
    np.testing.assert_array_equal(beliefs.edge, oracle.edge)


@every_engine
@examples(30)
@given(small_potentials(scales=(1.0,)))
def test_beliefs_are_the_gradient_of_the_total(engine: ChainEngine, potentials: Potentials) -> None:
    """The sentence in `core.beliefs`, by central differences along one direction of the finite scores."""
    rng, step = np.random.default_rng(0), 1e-5
    node = np.where(np.isfinite(potentials.node), rng.standard_normal(potentials.node.shape), 0.0)
    edge = np.where(np.isfinite(potentials.edge), rng.standard_normal(potentials.edge.shape), 0.0)

    def total(by: float) -> float:
        moved = Potentials(potentials.node + by * node, potentials.edge + by * edge, potentials.topology)
        found = engine.infer(moved, Semiring.LOG).total
        return float(found[np.isfinite(found)].sum())

    beliefs = engine.infer(potentials, Semiring.LOG)
    slope = (total(step) - total(-step)) / (2 * step)
    np.testing.assert_allclose(slope, (beliefs.node * node).sum() + (beliefs.edge * edge).sum(), rtol=1e-6, atol=1e-7)


@examples(30)
@given(small_potentials())
def test_every_edge_has_its_marginals(potentials: Potentials) -> None:
    chains, labels = potentials.topology, potentials.n_labels
    each = np.broadcast_to(potentials.edge, (chains.n_edges, labels, labels))
    oracle = BruteEngine().infer(Potentials(potentials.node, each, chains), Semiring.LOG)
    found = ChainEngine().edge_marginals(potentials)
    np.testing.assert_allclose(found, oracle.edge.reshape(found.shape), rtol=0, atol=1e-10)


@examples(30)
@given(small_potentials(scales=(1.0, 1e5)), st.integers(0, 2**32))
def test_path_scores_are_sums(potentials: Potentials, seed: int) -> None:
    chains = potentials.topology
    path = np.random.default_rng(seed).integers(0, potentials.n_labels, chains.n_nodes)
    expected = [
        path_score(potentials, int(first), int(edge), tuple(path[first : first + length].tolist()))
        for first, edge, length in zip(chains.offsets, chains.edge_offsets, chains.lengths)
    ]
    assert_totals(path_scores(potentials, path), np.array(expected).reshape(-1), potentials, rel=1e-15)
    node, edge = one_hot(potentials, path)
    assert node.sum() == chains.n_nodes
    assert edge.sum() == chains.n_edges
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(
            np.nansum(node * potentials.node) + np.nansum(edge * potentials.edge),
            sum(expected),
            rtol=1e-9,
            atol=1e-9,
        )


@examples(40)
@given(small_potentials(scales=(1.0, 30.0, 2_000.0, 1e5)))
def test_the_best_path_scores_its_total(potentials: Potentials) -> None:
    total, path = ChainEngine().best_path(potentials)
    possible = np.isfinite(total)
    followed = path_scores(potentials, path)
    assert_totals(followed[possible], total[possible], _only(potentials, possible), rel=1e-14)
    free = ChainEngine().infer(potentials, Semiring.LOG).total
    assert (followed[possible] <= free[possible] + 1e-14 * magnitude(potentials)[possible]).all()


def _only(potentials: Potentials, keep: np.ndarray) -> Potentials:
    """Some of the sequences."""
    chains = potentials.topology
    rows = keep[chains.sequence_of_node]
    edge = potentials.edge
    if len(edge) == chains.n_edges:
        edge = edge[keep[chains.sequence_of_node[chains.heads]]]
    kept = Chains.from_lengths(chains.lengths[keep])
    return Potentials(potentials.node[rows], edge if len(edge) in (1, kept.n_edges) else edge[:1], kept)


# ------------------------------------------------------------------------------------------ probabilities


@pytest.mark.parametrize("scale", [1.0, 30.0, 2_000.0, 1e5])
def test_no_log_probability_above_zero(scale: float) -> None:
    """All labellings of short sequences whose features are far from anything seen in training."""
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((length, 3)) for length in (5, 4, 6, 3)]
    y = [[("a", "b", "c")[int(np.argmax(row))] for row in x] for x in X]
    model = ChainCRF(l2=0.1).fit(X, y)
    far = [scale * rng.standard_normal((length, 3)) for length in (1, 2, 4)]
    for x in far:
        labellings = [list(labels) for labels in product("abc", repeat=len(x))]
        log_p = model.log_prob([x] * len(labellings), labellings)
        assert (log_p <= 0).all()
        np.testing.assert_allclose(np.exp(log_p).sum(), 1, atol=max(1e-10, 1e-12 * scale))
        every = model.log_prob([x, x], [[None] * len(x), [{"a", "b", "c"}] * len(x)])
        assert (every <= 0).all()
        np.testing.assert_allclose(every, 0, atol=1e-14 * max(1.0, scale))
        some = model.log_prob([x], [[{"a", "b"}] + [None] * (len(x) - 1)])
        assert some[0] <= 0
        np.testing.assert_allclose(
            np.exp(some[0]), np.exp(log_p)[[labels[0] != "c" for labels in labellings]].sum(), atol=1e-9
        )


@pytest.mark.parametrize("scale", [1.0, 2_000.0, 1e5])
def test_the_best_labelling_is_not_more_than_certain(scale: float) -> None:
    """Far from the data the best path has all the weight; its score and log Z are sums of the same large numbers."""
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((length, 4)) for length in (5, 4, 6, 3)]
    y = [[("a", "b", "c")[int(np.argmax(row[:3]))] for row in x] for x in X]
    model = ChainCRF(l2=0.1).fit(X, y)
    far = [scale * rng.standard_normal((int(length), 4)) for length in rng.integers(1, 30, 300)]
    best = model.predict(far)
    log_p = model.log_prob(far, best)
    assert (log_p <= 0).all()
    if scale > 1e4:
        np.testing.assert_allclose(log_p, 0, atol=1e-2)
    # one known step and the rest open: a part of the whole
    some = [[labels[0]] + [None] * (len(labels) - 1) for labels in best]
    assert (model.log_prob(far, some) <= 0).all()


# ------------------------------------------------------------------------------------------------ errors


@every_engine
@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("semiring", list(Semiring))
def test_nan_and_infinity_are_refused(engine: ChainEngine, bad: float, semiring: Semiring) -> None:
    potentials = random_potentials(np.random.default_rng(2), [3, 2], 2)
    for name, place in (("node", (3, 1)), ("edge", (0, 1, 0))):
        scores = {"node": potentials.node.copy(), "edge": potentials.edge.copy()}
        scores[name][place] = bad
        changed = Potentials(scores["node"], scores["edge"], potentials.topology)
        with pytest.raises(InputError, match=rf"{name} scores must be finite or -inf.*{bad} at \[{place[0]}"):
            engine.infer(changed, semiring)
        with pytest.raises(InputError, match=name):
            engine.best_path(changed)
        with pytest.raises(InputError, match=name):
            engine.edge_marginals(changed)


@pytest.mark.parametrize(
    ("node", "edge"),
    [
        ((4, 2), (1, 2, 2)),
        ((5, 2), (1, 3, 3)),
        ((5, 2), (2, 2, 2)),
        ((5,), (1, 2, 2)),
        ((5, 2), (2, 2)),
        ((5, 2), (0, 2, 2)),
    ],
)
def test_scores_must_fit_the_topology(node: tuple[int, ...], edge: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        Potentials(np.zeros(node), np.zeros(edge), Chains.from_lengths([3, 2]))


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 3, 2], [[0, 1]]])
def test_offsets_start_at_zero_and_never_fall(offsets: list[int]) -> None:
    with pytest.raises(ShapeError):
        Chains(np.array(offsets, np.int64))


def test_the_oracle_refuses_too_many_paths() -> None:
    with pytest.raises(InputError, match="too many labellings"):
        BruteEngine().infer(random_potentials(np.random.default_rng(3), [30], 2), Semiring.LOG)


def test_decoding_by_marginals() -> None:
    potentials = random_potentials(np.random.default_rng(4), [4, 0, 3], 3)
    marginals = ChainEngine().infer(potentials, Semiring.LOG).node
    np.testing.assert_array_equal(best_marginals(marginals), np.argmax(marginals, axis=1))
    with pytest.raises(InputError, match=r"'viterbi', 'map', 'marginal'.*'greedy'"):
        check_decoder("greedy")


@examples(30)
@given(st.lists(st.integers(0, 4), max_size=6))
def test_segment_sums(lengths: list[int]) -> None:
    chains = Chains.from_lengths(lengths)
    x = np.arange(1.0, chains.n_nodes + 1)
    expected = [x[a : a + n].sum() for a, n in zip(chains.offsets, lengths)]
    np.testing.assert_array_equal(segment_sums(x, chains.offsets), expected)
