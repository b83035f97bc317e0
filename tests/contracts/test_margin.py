"""Margin objectives against enumeration and finite differences, and the training that uses them."""

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
from crfield.inference.brute import BruteEngine
from crfield.inference.cuts import CutEngine
from crfield.inference.labellings import one_hot, path_scores
from crfield.objectives.contrast import Contrast
from crfield.objectives.margin import Margin, Perceptron, SoftMargin, raise_by_cost
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, Step
from crfield.optimize.penalty import Penalty
from crfield.training.frank_wolfe import UNPROVEN, minimize_hinge
from crfield.training.graph_by_graph import GraphByGraph, take_target
from crfield.training.online_structured import averaged_perceptron, averaged_subgradient, fit_structured
from tests.contracts.cases import examples, paths_of
from tests.contracts.grid_worlds import EveryLabelling, GridWorld, grid_world, oracle
from tests.contracts.test_cuts import random_graphs

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
    tables = draw(st.integers(1, 3)) if graphs.n_edges != 1 else 1
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


# ------------------------------------------------------------------------------------------- training


def quadratic_program(world: GridWorld, engine: EveryLabelling, l2: float) -> float:
    """The smallest ½ l2 |w|² + Σ slack with a constraint for every labelling of every graph, by SciPy."""
    from scipy.optimize import minimize

    graphs, width = world.batch.n_graphs, world.scorer.n_weights
    planes, costs = [], []
    for graph in range(graphs):
        piece = world.batch.take([graph])
        goal = take_target(world.target, np.array([graph]), piece.topology)
        scores = world.scorer.score(np.zeros(width), piece)
        truth = one_hot(scores, goal.labels)
        for path in engine.labellings:
            node, edge = one_hot(scores, path)
            planes.append(world.scorer.pull(node - truth[0], edge - truth[1], piece))
            costs.append(float((path != goal.labels).sum()))
    slope, cost = np.array(planes), np.array(costs)
    owner = np.repeat(np.eye(graphs), len(engine.labellings), axis=0)
    jacobian = np.hstack([-slope, owner])
    answer = minimize(
        lambda v: 0.5 * l2 * v[:width] @ v[:width] + v[width:].sum(),
        np.concatenate([np.zeros(width), cost.reshape(graphs, -1).max(axis=1)]),
        jac=lambda v: np.concatenate([l2 * v[:width], np.ones(graphs)]),
        constraints={"type": "ineq", "fun": lambda v: jacobian @ v - cost, "jac": lambda v: jacobian},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert answer.success
    return float(answer.fun)


@pytest.mark.parametrize(("separable", "l2"), [(True, 1.0), (True, 0.1), (False, 0.3)])
def test_the_hinge_reaches_the_solution_of_its_quadratic_program(separable: bool, l2: float) -> None:
    world, engine = grid_world(8, np.random.default_rng(0), side=2, separable=separable), oracle(2)
    result = fit_structured(
        world.scorer,
        world.batch,
        world.target,
        Penalty(l2=l2),
        "hinge",
        engine,
        tol=1e-5,
        rng=np.random.default_rng(0),
    )
    assert result.converged
    best = quadratic_program(world, engine, l2)
    assert best <= result.value * (1 + 1e-7)
    assert result.value <= best * (1 + 1e-5) + 1e-7
    loss = Margin().evaluate(world.scorer.score(result.weights, world.batch), world.target, engine).value
    np.testing.assert_allclose(result.value, loss + 0.5 * l2 * result.weights @ result.weights, rtol=1e-10)


def test_gaps_close_and_separable_grids_are_learnt() -> None:
    world, engine = grid_world(10, np.random.default_rng(3), side=2, separable=True), oracle(2)
    result = fit_structured(
        world.scorer,
        world.batch,
        world.target,
        Penalty(l2=0.05),
        Margin(),
        engine,
        tol=1e-3,
        rng=np.random.default_rng(0),
    )
    assert result.converged
    assert result.history[-1].gap < 0.05 * result.history[0].gap
    scores = world.scorer.score(result.weights, world.batch)
    found = engine.infer(scores, Semiring.MAX).node.argmax(axis=1)
    assert (found == world.target.labels).mean() >= 0.95


def test_the_perceptron_separates_what_can_be_separated() -> None:
    world, engine = grid_world(12, np.random.default_rng(4), separable=True), oracle(3)
    result = fit_structured(
        world.scorer, world.batch, world.target, Penalty(), "perceptron", engine, rng=np.random.default_rng(0)
    )
    assert result.converged
    found = engine.infer(world.scorer.score(result.weights, world.batch), Semiring.MAX).node.argmax(axis=1)
    np.testing.assert_array_equal(found, world.target.labels)
    noisy = grid_world(6, np.random.default_rng(5))
    result = fit_structured(
        noisy.scorer,
        noisy.batch,
        noisy.target,
        Penalty(),
        "perceptron",
        engine,
        max_iter=3,
        rng=np.random.default_rng(0),
    )
    assert (result.reason, result.converged, result.n_iter) == (MAX_ITER, False, 3)


def test_the_perceptron_gives_the_average_of_all_weights_it_met() -> None:
    world, engine = grid_world(4, np.random.default_rng(5), side=2), oracle(2)
    met = []

    class Watched(GraphByGraph):
        def evaluate_part(self, part: int, weights: np.ndarray, gradient: np.ndarray) -> float:
            value = super().evaluate_part(part, weights, gradient)
            met.append((weights.copy(), gradient.copy()))
            return value

    problem = Watched(world.scorer, world.batch, world.target, objective=Perceptron(), engine=engine)
    result = averaged_perceptron(problem, max_iter=3, rng=np.random.default_rng(0))
    visits = met[:12]
    last = visits[-1][0] - visits[-1][1]
    np.testing.assert_allclose(result.weights, np.mean([*(weights for weights, _ in visits), last], axis=0))


def test_an_inexact_engine_proves_nothing() -> None:
    world = grid_world(4, np.random.default_rng(0), side=2, separable=True)

    class Modest(EveryLabelling):
        def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
            found = super().infer(potentials, semiring)
            return Beliefs(found.total, found.node, found.edge, exact=False, bound="lower")

    engine = Modest(oracle(2).length, oracle(2).joints)
    for objective in ("hinge", "perceptron"):
        result = fit_structured(
            world.scorer, world.batch, world.target, Penalty(l2=1.0), objective, engine, rng=np.random.default_rng(0)
        )
        assert (result.converged, result.reason) == (False, UNPROVEN)


def test_penalties_without_a_dual_are_met_by_averaged_steps() -> None:
    """Both methods on the same ridge; and an l1 penalty that switches everything off."""
    world, engine = grid_world(8, np.random.default_rng(0), side=2), oracle(2)
    problem = GraphByGraph(world.scorer, world.batch, world.target, objective=Margin(), engine=engine)
    proven = minimize_hinge(problem, l2=1.0, tol=1e-4, rng=np.random.default_rng(0))
    steps = averaged_subgradient(problem, Penalty(l2=1.0), tol=1e-3, max_iter=64, rng=np.random.default_rng(0))
    assert proven.value * (1 - 1e-4) <= steps.value <= proven.value * 1.02
    heavy = fit_structured(
        world.scorer, world.batch, world.target, Penalty(l1=50.0), "hinge", engine, rng=np.random.default_rng(0)
    )
    assert not heavy.weights.any()
    assert heavy.converged
    assert heavy.history[-1].n_active == 0


def test_hidden_labels_are_trained_by_averaged_steps() -> None:
    world, engine = grid_world(8, np.random.default_rng(6), side=2, separable=True), oracle(2)
    labels = world.target.labels.copy()
    labels[::3] = -1
    target = Target(world.batch.topology, 2, labels, np.ones((len(labels), 2), bool))
    result = fit_structured(
        world.scorer, world.batch, target, Penalty(l2=0.1), "hinge", engine, max_iter=32, rng=np.random.default_rng(0)
    )
    found = engine.infer(world.scorer.score(result.weights, world.batch), Semiring.MAX).node.argmax(axis=1)
    assert (found == world.target.labels).mean() >= 0.85


@pytest.mark.parametrize("objective", ["hinge", "perceptron", "l1"])
def test_runs_repeat_and_stop_when_told(objective: str) -> None:
    world, engine = grid_world(5, np.random.default_rng(7), side=2), oracle(2)
    penalty = Penalty(l2=0.5, l1=0.1 * (objective == "l1"))
    name = "hinge" if objective == "l1" else objective

    def run(callback: object = None, seed: int = 0) -> tuple[str, np.ndarray, float]:
        result = fit_structured(
            world.scorer,
            world.batch,
            world.target,
            penalty,
            name,
            engine,
            max_iter=6,
            tol=0.0,
            rng=np.random.default_rng(seed),
            callback=callback,  # type: ignore[arg-type]
        )
        return result.reason, result.weights, result.value

    def stop(step: Step, weights: np.ndarray) -> bool:
        return step.n_iter == 2

    def interrupt(step: Step, weights: np.ndarray) -> None:
        if step.n_iter == 3:
            raise KeyboardInterrupt

    first, again = run(), run()
    np.testing.assert_array_equal(first[1], again[1])
    assert first[0] == MAX_ITER
    assert run(stop)[0] == CALLBACK
    reason, weights, value = run(interrupt)
    assert reason == INTERRUPTED
    assert np.isfinite(value)
    assert weights.any()


def test_parts_add_up_to_the_whole() -> None:
    world, engine = grid_world(7, np.random.default_rng(8), side=2), oracle(2)
    target = Target(world.batch.topology, 2, world.target.labels, None, np.arange(1.0, 8.0))
    weights = np.random.default_rng(9).standard_normal(world.scorer.n_weights)
    result = Margin().evaluate(world.scorer.score(weights, world.batch), target, engine)
    expected = world.scorer.pull(result.node, result.edge, world.batch)
    for size in (1, 3, 7):
        problem = GraphByGraph(
            world.scorer, world.batch, target, objective=Margin(), engine=engine, graphs_per_part=size
        )
        gradient = np.empty(world.scorer.n_weights)
        assert problem.n_parts == -(-7 // size)
        np.testing.assert_allclose(problem.evaluate(weights, gradient), result.value, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_what_cannot_be_trained_is_refused() -> None:
    world = grid_world(2, np.random.default_rng(0), side=2)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="take"):
        fit_structured(world.scorer, object(), world.target, Penalty(), "hinge", oracle(2), rng=rng)
    with pytest.raises(InputError, match="'perceptron', 'hinge'"):
        fit_structured(world.scorer, world.batch, world.target, Penalty(), "ramp", oracle(2), rng=rng)
    problem = GraphByGraph(world.scorer, world.batch, world.target, objective=Margin(), engine=oracle(2))
    with pytest.raises(InputError, match="l2 must be above 0"):
        minimize_hinge(problem, l2=0.0, rng=rng)
