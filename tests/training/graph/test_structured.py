"""Perceptron and hinge, graph by graph: against a quadratic program, with proofs where there are any."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.inference.labellings import one_hot
from crfield.objectives.margin import Margin, Perceptron
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, Step
from crfield.optimize.penalty import Penalty
from crfield.training.graph.by_graph import GraphByGraph, take_target
from crfield.training.graph.frank_wolfe import UNPROVEN, minimize_hinge
from crfield.training.graph.structured import averaged_perceptron, averaged_subgradient, fit_structured
from tests.cases.grid_worlds import EveryLabelling, GridWorld, grid_world, oracle


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
    with pytest.raises(InputError, match="l2 must be > 0"):
        minimize_hinge(problem, l2=0.0, rng=rng)
