"""Pseudo-likelihood and piecewise training: by enumeration, by finite differences, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import LabelError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.labellings import path_scores
from crfield.objectives.contrast import Contrast
from crfield.objectives.local import PseudoLikelihood, counted
from crfield.objectives.piecewise import Piecewise, _log_sum
from tests.cases.chains import examples
from tests.cases.sites import fields, graph_target, random_field

pytestmark = pytest.mark.usefixtures("body")
OBJECTIVES = [PseudoLikelihood(), Piecewise()]


def weights_of(target: Target) -> np.ndarray:
    return np.ones(target.topology.n_sequences) if target.weight is None else target.weight


def pseudo_by_enumeration(potentials: Potentials, target: Target) -> float:
    """−Σ w log p(y_n | y_rest) from scores of whole labellings, in which only node n changes."""
    topology, value = potentials.topology, 0.0
    gold = target.mask.argmax(axis=1)  # any label of an unknown node, whose part cancels, will do
    neighbour_unknown = np.zeros(topology.n_nodes, bool)
    for tail, head in zip(topology.tails, topology.heads):
        neighbour_unknown[tail] |= target.labels[head] < 0
        neighbour_unknown[head] |= target.labels[tail] < 0
    for n in np.flatnonzero(~neighbour_unknown).tolist():
        graph = topology.sequence_of_node[n]
        scores = []
        for label in range(potentials.n_labels):
            y = gold.copy()
            y[n] = label
            scores.append(path_scores(potentials, y)[graph])
        free, clamped = np.logaddexp.reduce(scores), np.logaddexp.reduce(np.array(scores)[target.mask[n]])
        value += weights_of(target)[graph] * (free - clamped)
    return value


def piecewise_by_engine(potentials: Potentials, target: Target) -> float:
    """Each node and each edge as a graph of its own, by the exact objective and the oracle."""
    topology, value = potentials.topology, 0.0
    for n in range(topology.n_nodes):
        free = np.logaddexp.reduce(potentials.node[n])
        clamped = np.logaddexp.reduce(potentials.node[n][target.mask[n]])
        value += weights_of(target)[topology.sequence_of_node[n]] * (free - clamped)
    pair = Chains.from_lengths([2])
    for e, k in enumerate(potentials.tables.tolist()):
        ends = np.array([topology.tails[e], topology.heads[e]])
        has = np.where(np.isneginf(potentials.node[ends]), -np.inf, 0.0)
        alone = Potentials(has, potentials.edge[k : k + 1], pair)
        inner = Target(pair, potentials.n_labels, target.labels[ends], target.mask[ends])
        weight = weights_of(target)[topology.sequence_of_edge[e]]
        value += weight * Contrast().evaluate(alone, inner, BruteEngine()).value
    return value


BY_HAND: dict[type, Callable[[Potentials, Target], float]] = {
    PseudoLikelihood: pseudo_by_enumeration,
    Piecewise: piecewise_by_engine,
}
every_objective = pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)


def only_possible(potentials: Potentials, target: Target) -> Potentials:
    """Whatever the target asks for gets a score; what it does not may stay forbidden."""
    topology = potentials.topology
    node = np.where(target.mask & np.isneginf(potentials.node), 0.25, potentials.node)
    edge = potentials.edge.copy()
    for e, k in enumerate(potentials.tables.tolist()):
        wanted = target.mask[topology.tails[e]][:, None] & target.mask[topology.heads[e]]
        edge[k][wanted & np.isneginf(edge[k])] = -0.5
    return Potentials(node, edge, topology, potentials.table)


def enough(target: Target) -> bool:
    return bool(not target.topology.n_nodes or counted(target).any())


@every_objective
@examples(50)
@given(fields(), st.sampled_from([0.0, 0.0, 0.4]), st.booleans(), st.integers(0, 2**32))
def test_values(
    objective: PseudoLikelihood | Piecewise, potentials: Potentials, partial: float, weighted: bool, seed: int
) -> None:
    target = graph_target(np.random.default_rng(seed), potentials, partial=partial, weighted=weighted)
    potentials = only_possible(potentials, target)
    if not enough(target):
        return
    result = objective.evaluate(potentials, target)
    with np.errstate(invalid="ignore"):
        expected = BY_HAND[type(objective)](potentials, target)
    np.testing.assert_allclose(result.value, expected, rtol=1e-10, atol=1e-10)
    assert result.converged
    assert result.node.shape == potentials.node.shape
    assert result.edge.shape == potentials.edge.shape
    np.testing.assert_allclose(result.node.sum(axis=1), 0, atol=1e-12)


@every_objective
@pytest.mark.parametrize("partial", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_gradients(objective: PseudoLikelihood | Piecewise, partial: float, seed: int) -> None:
    """Central differences along every single score that is finite; some pairs and labels are forbidden."""
    rng = np.random.default_rng(seed)
    potentials = random_field(rng, [4, 0, 1, 3], 2 + seed % 3, tables=3, forbidden=0.1)
    target = graph_target(rng, potentials, partial=partial, weighted=seed % 2 == 0)
    potentials = only_possible(potentials, target)
    result, step = objective.evaluate(potentials, target), 1e-5
    for name in ("node", "edge"):
        scores = {"node": potentials.node.copy(), "edge": potentials.edge.copy()}
        slopes = np.zeros(scores[name].shape)
        for place in np.ndindex(*slopes.shape):
            kept, ends = scores[name][place], []
            if np.isneginf(kept):
                continue
            for move in (step, -step):
                scores[name][place] = kept + move
                moved = Potentials(scores["node"], scores["edge"], potentials.topology, potentials.tables)
                ends.append(objective.evaluate(moved, target).value)
            scores[name][place] = kept
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(getattr(result, name), slopes, rtol=1e-6, atol=1e-8)


@every_objective
def test_weights_and_tables(objective: PseudoLikelihood | Piecewise) -> None:
    """A graph of weight 2 counts as two of it; a table of its own for every edge gives the same, edge by edge."""
    rng = np.random.default_rng(7)
    potentials = random_field(rng, [5, 4], 3)
    labels = rng.integers(0, 3, 9)
    topology = potentials.topology
    both = objective.evaluate(potentials, Target(topology, 3, labels, weight=np.array([2.0, 0.0])))
    first = objective.evaluate(potentials, Target(topology, 3, labels, weight=np.array([1.0, 0.0])))
    np.testing.assert_allclose(both.value, 2 * first.value)
    assert (both.node[5:] == 0).all()
    plain = objective.evaluate(potentials, Target(topology, 3, labels))
    each = objective.evaluate(potentials.each(), Target(topology, 3, labels))
    np.testing.assert_allclose(each.value, plain.value)
    edge = np.zeros_like(plain.edge)
    np.add.at(edge, potentials.tables, each.edge)
    np.testing.assert_allclose(edge, plain.edge, atol=1e-12)


def test_piecewise_bounds_the_likelihood() -> None:
    """Sutton & McCallum's proposition: the sum of the pieces bounds the likelihood."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        potentials = random_field(rng, [6], 2, density=1.5)
        target = graph_target(rng, potentials, partial=0.0, weighted=False)
        # nodes' and edges' own totals are a bound of log Z, as each is a sum over its labels
        local = np.logaddexp.reduce(potentials.node, axis=1).sum()
        pairs = np.logaddexp.reduce(potentials.edge.reshape(2, -1), axis=1)[potentials.tables].sum()
        assert BruteEngine().infer(potentials, Semiring.LOG).total[0] <= local + pairs + 1e-9
        likelihood = Contrast().evaluate(potentials, target, BruteEngine()).value
        assert Piecewise().evaluate(potentials, target).value >= likelihood - 1e-9


def test_without_edges_all_are_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    potentials = random_field(rng, [4, 2], 3, density=0.0)
    target = graph_target(rng, potentials, partial=0.0, weighted=True)
    expected = Contrast().evaluate(potentials, target, BruteEngine())
    for objective in OBJECTIVES:
        found = objective.evaluate(potentials, target, engine=None)
        np.testing.assert_allclose(found.value, expected.value)
        np.testing.assert_allclose(found.node, expected.node, atol=1e-12)


@every_objective
def test_what_cannot_be_is_an_error(objective: PseudoLikelihood | Piecewise) -> None:
    chains = Chains.from_lengths([2, 3])
    edge = np.array([[[0.0, -np.inf], [0.0, 0.0]]])
    target = Target(chains, 2, np.array([0, 0, 1, 0, 1]))
    with pytest.raises(LabelError, match=r"sequence 1.*node 1|nodes 3 and 4"):
        objective.evaluate(Potentials(np.zeros((5, 2)), edge, chains), target)
    node = np.zeros((5, 2))
    node[4, 1] = -np.inf
    with pytest.raises(LabelError, match=r"sequence 1.*node 2|node 4"):
        objective.evaluate(Potentials(node, np.zeros((1, 2, 2)), chains), target)
    light = Target(chains, 2, target.labels, weight=np.array([1.0, 0.0]))
    assert np.isfinite(objective.evaluate(Potentials(node, np.zeros((1, 2, 2)), chains), light).value)


def test_pseudo_likelihood_needs_known_neighbours() -> None:
    chains = Chains.from_lengths([3])
    scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), chains)
    nobody = Target(chains, 2, np.full(3, -1), np.ones((3, 2), bool))
    with pytest.raises(LabelError, match="neighbours' labels are all known"):
        PseudoLikelihood().evaluate(scores, nobody)
    alone = Target(Chains.from_lengths([1]), 2, np.array([-1]), np.array([[True, True]]))
    lonely = Potentials(np.array([[1.0, 2.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([1]))
    assert PseudoLikelihood().evaluate(lonely, alone).value == pytest.approx(0, abs=1e-15)


def test_a_row_where_all_is_forbidden_has_no_probabilities() -> None:
    total, p = _log_sum(np.array([[-np.inf, -np.inf], [0.0, np.log(3.0)]]))
    assert np.isneginf(total[0])
    np.testing.assert_allclose(total[1], np.log(4.0))
    np.testing.assert_allclose(p, [[0.0, 0.0], [0.25, 0.75]])
