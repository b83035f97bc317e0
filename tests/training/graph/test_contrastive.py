"""Contrastive divergence comes close to exact likelihood, repeats, and says when it has not settled."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.errors import InputError, LabelError
from crfield.inference.graphs.gibbs import Advanced
from crfield.inference.labellings import one_hot
from crfield.objectives.contrast import Contrast
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.training.full_batch import FullBatch
from crfield.training.graph.averaged_steps import AdaptiveSteps
from crfield.training.graph.contrastive import fit_contrastive
from tests.cases.grid_worlds import GridWorld, grid_world, oracle


def most_likely(world: GridWorld, target: Target, penalty: Penalty) -> np.ndarray:
    """Weights of the exact likelihood."""
    problem = FullBatch(world.scorer, world.batch, target, objective=Contrast(), engine=oracle(3))
    result = minimize(problem, np.zeros(world.scorer.n_weights), penalty, tol=1e-8)
    assert result.converged
    return result.weights


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def test_averaged_weights_come_close_to_exact_likelihood() -> None:
    world, penalty = grid_world(60, np.random.default_rng(2)), Penalty(l2=1.0)
    exact = most_likely(world, world.target, penalty)
    result = fit_contrastive(
        world.scorer, world.batch, world.target, penalty, max_iter=512, rng=np.random.default_rng(1)
    )
    assert result.converged
    assert result.reason == TOLERANCE
    assert distance(result.weights, exact) <= 0.03
    assert np.isnan(result.value)


def test_weights_of_graphs_count() -> None:
    """Graphs counted by weight: those of weight zero as if they were not there."""
    world, penalty = grid_world(60, np.random.default_rng(0)), Penalty(l2=1.0)
    weight = np.tile([3.0, 0.0, 0.5], 20)
    target = Target(world.batch.topology, 2, world.target.labels, None, weight)
    exact, plain = most_likely(world, target, penalty), most_likely(world, world.target, penalty)
    result = fit_contrastive(world.scorer, world.batch, target, penalty, max_iter=256, rng=np.random.default_rng(1))
    assert distance(plain, exact) > 0.1
    assert distance(result.weights, exact) <= 0.05


def test_unknown_labels_have_chains_of_their_own() -> None:
    world, penalty = grid_world(60, np.random.default_rng(0)), Penalty(l2=1.0)
    labels = world.target.labels.copy()
    labels[::4] = -1
    target = Target(world.batch.topology, 2, labels, np.ones((len(labels), 2), bool))
    exact = most_likely(world, target, penalty)
    result = fit_contrastive(world.scorer, world.batch, target, penalty, max_iter=256, rng=np.random.default_rng(1))
    assert distance(result.weights, exact) <= 0.08


def test_an_l1_penalty_sets_weights_to_zero() -> None:
    world = grid_world(30, np.random.default_rng(4))
    result = fit_contrastive(
        world.scorer, world.batch, world.target, Penalty(l1=1e4), max_iter=80, rng=np.random.default_rng(1)
    )
    assert not result.weights.any()
    assert result.history[-1].n_active == 0


def test_runs_repeat_whatever_the_number_of_threads() -> None:
    world = grid_world(5, np.random.default_rng(5))
    runs = [
        fit_contrastive(
            world.scorer,
            world.batch,
            world.target,
            Penalty(l2=1.0),
            max_iter=10,
            n_jobs=jobs,
            rng=np.random.default_rng(seed),
        )
        for seed, jobs in ((1, 1), (1, 2), (2, 1))
    ]
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
    assert (runs[0].weights != runs[2].weights).any()
    assert runs[0].reason == MAX_ITER
    assert not runs[0].converged


def test_it_stops_when_told_and_keeps_what_it_has() -> None:
    world = grid_world(5, np.random.default_rng(6))
    seen = []

    def stop(step: Step, weights: np.ndarray) -> bool:
        seen.append(weights)
        return step.n_iter == 7

    def interrupt(step: Step, weights: np.ndarray) -> None:
        if step.n_iter == 7:
            raise KeyboardInterrupt

    results = [
        fit_contrastive(
            world.scorer,
            world.batch,
            world.target,
            Penalty(l2=1.0),
            rng=np.random.default_rng(1),
            callback=callback,  # type: ignore[arg-type]
        )
        for callback in (stop, interrupt)
    ]
    assert [result.reason for result in results] == [CALLBACK, INTERRUPTED]
    assert [result.n_iter for result in results] == [7, 7]
    np.testing.assert_array_equal(results[0].weights, results[1].weights)
    np.testing.assert_array_equal(results[0].weights, seen[-1])


def test_any_sampler_will_do() -> None:
    """With labellings drawn from the very distribution, chains have nothing to do with what is left of the error."""
    world, penalty, engine = grid_world(30, np.random.default_rng(0)), Penalty(l2=1.0), oracle(3)
    seeds = []

    def perfect(
        potentials: Potentials, labels: np.ndarray, *, n_sweeps: int, random_state: int, n_jobs: int
    ) -> Advanced:
        seeds.append(random_state)
        chances = engine.probabilities(potentials).cumsum(axis=1)
        draws = np.random.default_rng(random_state).random((len(labels), len(chances), 1))
        drawn = engine.labellings[(chances[None] < draws).sum(axis=2)].reshape(len(labels), -1)
        seen = [one_hot(potentials, path) for path in drawn]
        return Advanced(drawn, *(np.mean([part[k] for part in seen], axis=0) for k in (0, 1)))

    result = fit_contrastive(
        world.scorer,
        world.batch,
        world.target,
        penalty,
        max_iter=256,
        sampler=perfect,
        rng=np.random.default_rng(1),
    )
    assert len(set(seeds)) == result.n_iter
    assert distance(result.weights, most_likely(world, world.target, penalty)) <= 0.03


def test_steps_take_the_penalties_exactly() -> None:
    """The first step by hand: hold = |g| / rate, then shrink by l1 and divide by hold + l2."""
    steps = AdaptiveSteps(
        np.array([1.0, 1.0, 0.0]), Penalty(l1=0.5, l2=2.0, penalised=np.array([1, 0, 1])), share=0.5, rate=0.25
    )
    steps.take(np.array([2.0, 2.0, 0.0]))
    np.testing.assert_allclose(steps.weights, [(8 * 1 - 2 - 0.25) / (8 + 1), (8 * 1 - 2) / 8, 0.0])
    assert [steps.trail.end_round() for _ in range(8)] == [True, True, False, True, False, False, False, True]


def test_what_cannot_be_sampled_is_refused() -> None:
    world, rng = grid_world(2, np.random.default_rng(0), side=2), np.random.default_rng(0)
    with pytest.raises(InputError, match="even n_sweeps"):
        fit_contrastive(world.scorer, world.batch, world.target, Penalty(), n_sweeps=3, rng=rng)

    class Forbidding:
        n_weights = world.scorer.n_weights

        def score(self, weights, batch):  # type: ignore[no-untyped-def]
            scores = world.scorer.score(weights, batch)
            scores.node[5, world.target.labels[5]] = -np.inf
            return scores

        def pull(self, node, edge, batch):  # type: ignore[no-untyped-def]
            return world.scorer.pull(node, edge, batch)

    with pytest.raises(LabelError, match="graph 1 has none"):
        fit_contrastive(Forbidding(), world.batch, world.target, Penalty(), rng=rng)
