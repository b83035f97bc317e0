"""Margin objectives against enumeration and finite differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.cuts import CutEngine
from crfield.inference.labellings import one_hot, path_scores
from crfield.objectives.contrast import Contrast
from crfield.objectives.margin import Margin, Perceptron, SoftMargin, raise_by_cost
from tests.cases.chains import examples, paths_of
from tests.cases.grid_worlds import grid_world, oracle
from tests.inference.graphs.test_cuts import random_graphs

TABLE = ((0.0, 2.0, 0.5), (1.0, 0.0, 3.0), (0.25, 1.5, 0.0))
OBJECTIVES = [
    Margin(),
    Margin(scale=0.3),
    Margin(cost="mean_hamming", scale=2.0),
    Margin(cost=TABLE),
    Perceptron(),
    SoftMargin(),
    SoftMargin(cost=TABLE, scale=0.5),
]


@dataclass(frozen=True, eq=False)
class Case:
    """Scores and a target that fit together."""

    potentials: Potentials
    target: Target


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Three labels on small graphs; some nodes with several allowed labels, some graphs weighted."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    graphs = random_graphs(rng, draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    tables = draw(st.integers(1, 3))
    potentials = Potentials(
        rng.standard_normal((graphs.n_nodes, 3)),
        rng.standard_normal((tables, 3, 3)),
        graphs,
        rng.integers(0, tables, graphs.n_edges),
    )
    labels, allowed = rng.integers(0, 3, graphs.n_nodes), None
    if draw(st.booleans()):
        allowed = rng.random((graphs.n_nodes, 3)) < 0.5
        allowed[np.arange(graphs.n_nodes), labels] = True
        labels = np.where(rng.random(graphs.n_nodes) < 0.5, labels, -1)
    weight = rng.random(graphs.n_sequences) + 0.5 if draw(st.booleans()) else None
    return Case(potentials, Target(graphs, 3, labels, allowed, weight))


def by_enumeration(case: Case, objective: Margin | Perceptron | SoftMargin) -> float:
    """The formula of the essay, labelling by labelling."""
    potentials, target, value = case.potentials, case.target, 0.0
    topology, weight = potentials.topology, case.target.weight
    for s, length in enumerate(topology.lengths):
        first = topology.offsets[s]
        free, clamped = [], []
        for path in paths_of(3, int(length)):
            labels = np.zeros(topology.n_nodes, int)
            labels[first : first + length] = path
            score = path_scores(potentials, labels)[s]
            cost = 0.0
            for n, label in enumerate(path):
                golds = np.flatnonzero(target.mask[first + n])
                if isinstance(objective, Perceptron):
                    continue
                if objective.cost == "hamming":
                    cost += objective.scale * (label not in golds)
                elif objective.cost == "mean_hamming":
                    cost += objective.scale * (label not in golds) / length
                else:
                    cost += objective.scale * min(TABLE[gold][label] for gold in golds)
            free.append(score + cost)
            if all(target.mask[first + n, label] for n, label in enumerate(path)):
                clamped.append(score)
        add = np.logaddexp.reduce if isinstance(objective, SoftMargin) else np.max
        value += (1.0 if weight is None else weight[s]) * (add(free) - add(clamped))
    return value


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@examples(12)
@given(case=cases())
def test_values_are_those_of_the_formula(objective: Margin | Perceptron | SoftMargin, case: Case) -> None:
    result = objective.evaluate(case.potentials, case.target, BruteEngine())
    np.testing.assert_allclose(result.value, by_enumeration(case, objective), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@examples(12)
@given(case=cases(), seed=st.integers(0, 2**32))
def test_gradients_are_those_of_the_value(objective: Margin | Perceptron | SoftMargin, case: Case, seed: int) -> None:
    """Random scores are away from ties, so a short step along any direction changes the value as the slope says."""
    potentials, rng = case.potentials, np.random.default_rng(seed)
    node, edge = rng.standard_normal(potentials.node.shape), rng.standard_normal(potentials.edge.shape)
    result = objective.evaluate(potentials, case.target, BruteEngine())
    values = [
        objective.evaluate(
            Potentials(potentials.node + h * node, potentials.edge + h * edge, potentials.topology, potentials.table),
            case.target,
            BruteEngine(),
        ).value
        for h in (1e-6, -1e-6)
    ]
    slope = float((result.node * node).sum() + (result.edge * edge).sum())
    np.testing.assert_allclose((values[0] - values[1]) / 2e-6, slope, rtol=1e-6, atol=1e-6)


def test_the_family_is_ordered() -> None:
    """Perceptron ≤ hinge ≤ soft margin, likelihood ≤ soft margin; at scale 0 each pair is one."""
    world, engine = grid_world(5, np.random.default_rng(0), side=2), oracle(2)
    scores = world.scorer.score(np.random.default_rng(1).standard_normal(world.scorer.n_weights), world.batch)

    def value(objective: Margin | Perceptron | SoftMargin | Contrast) -> float:
        return objective.evaluate(scores, world.target, engine).value

    assert value(Perceptron()) <= value(Margin()) <= value(SoftMargin())
    assert value(Contrast()) <= value(SoftMargin())
    assert value(Margin(scale=0.0)) == value(Perceptron())
    assert value(SoftMargin(scale=0.0)) == value(Contrast())


def test_a_cut_serves_the_hinge() -> None:
    """Attractive scores stay so when node scores are raised by the cost."""
    world = grid_world(6, np.random.default_rng(2), side=3)
    scores = world.scorer.score(np.array([-1.0, 1.0, 0.5, -0.5, 0.0, 0.0, 0.8, 0.0, 0.8]), world.batch)
    by_cut = Margin().evaluate(scores, world.target, CutEngine())
    best = Margin().evaluate(scores, world.target, oracle(3))
    np.testing.assert_allclose(by_cut.value, best.value, rtol=1e-12)
    np.testing.assert_array_equal(by_cut.node, best.node)


class Lazy:
    """An engine that gives every node label 0, whatever the scores, and says that it is not exact."""

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        path = np.zeros(potentials.topology.n_nodes, int)
        return Beliefs(path_scores(potentials, path), *one_hot(potentials, path), exact=False, bound="lower")


def test_an_engine_that_misses_the_truth_does_not_make_a_loss_negative() -> None:
    chains = Chains.from_lengths([2, 2])
    scores = Potentials(np.array([[0, 3.0], [0, 3.0], [5.0, 0], [0, 2.0]]), np.zeros((1, 2, 2)), chains)
    result = Margin().evaluate(scores, Target(chains, 2, np.array([1, 1, 0, 1])), Lazy())
    assert result.value == 0.0
    assert not result.node.any()
    weighted = Margin().evaluate(
        scores, Target(chains, 2, np.array([1, 1, 1, 0]), None, np.array([2.0, 3.0])), Lazy()
    )
    assert weighted.value == 3.0 * (5.0 + 1.0)
    assert weighted.node.tolist() == [[0, 0], [0, 0], [3, -3], [0, 0]]


def test_costs_that_mean_nothing_are_refused() -> None:
    chains = Chains.from_lengths([1])
    scores, target = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains), Target(chains, 2, np.array([0]))
    with pytest.raises(InputError, match="'hamming', 'mean_hamming' or a table"):
        Margin(cost="zero-one")
    with pytest.raises(InputError, match="scale"):
        SoftMargin(scale=-1.0)
    with pytest.raises(InputError, match="0 on the diagonal"):
        Margin(cost=((1.0, 0.0), (0.0, 0.0)))
    with pytest.raises(InputError, match="square"):
        Margin(cost=((0.0, 1.0),))
    with pytest.raises(InputError, match=r"must be \(2, 2\), got \(3, 3\)"):
        raise_by_cost(scores, target, cost=TABLE)
    forbidden = Potentials(np.array([[-np.inf, 0.0]]), scores.edge, chains)
    with pytest.raises(LabelError, match="sequence 0"):
        Margin().evaluate(forbidden, target, BruteEngine())
