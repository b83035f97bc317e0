"""Scores of a discriminative random field: the formula, and the way back by finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.graphs import Graphs
from crfield.core.target import Target
from crfield.errors import ShapeError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.objectives.contrast import Contrast
from crfield.optimize.penalty import Penalty
from crfield.scoring.interaction import InteractionScorer, Sites
from crfield.training.gradient_check import UNSETTLED
from crfield.training.graph.interaction import InteractionProblem, fit_interaction


def square(rng: np.random.Generator, columns: int) -> Sites:
    """Four sites in a ring, so that there is a loop."""
    graph = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    share = rng.uniform(0.1, 0.9, 4)
    return Sites(graph, np.log(np.stack([1 - share, share], axis=1)), rng.normal(size=(4, columns)))


def test_scores_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    sites, weights = square(rng, 2), np.array([0.3, -0.4, 0.7, 1.1, -0.8])
    scores = InteractionScorer(2).score(weights, sites)
    a, b, k = np.exp(0.3), np.exp(-0.4), 1 / (1 + np.exp(-0.7))
    np.testing.assert_allclose(scores.node, a * sites.association, rtol=1e-14)
    for e, g in enumerate(sites.between):
        for i, yi in enumerate((-1, 1)):
            for j, yj in enumerate((-1, 1)):
                sigmoid = 1 / (1 + np.exp(-yi * yj * float(weights[3:] @ g)))
                expected = b * (k * yi * yj + (1 - k) * (2 * sigmoid - 1))
                assert scores.edge[e, i, j] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("columns", [0, 3])
def test_gradient_by_finite_differences(columns: int) -> None:
    rng = np.random.default_rng(1)
    sites = square(rng, columns)
    problem = InteractionProblem(sites, Target(sites.topology, 2, np.array([1, 0, 1, 1])), Contrast(), BruteEngine())
    weights = rng.normal(size=problem.n_weights) * 0.7
    gradient, scratch = np.empty(problem.n_weights), np.empty(problem.n_weights)
    problem.evaluate(weights, gradient)
    for k in range(problem.n_weights):
        step = np.zeros(problem.n_weights)
        step[k] = 1e-5
        slope = (problem.evaluate(weights + step, scratch) - problem.evaluate(weights - step, scratch)) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=1e-7, abs=1e-9)


def rings(count: int) -> tuple[Sites, Target]:
    """Rings of four sites that mostly agree, seen through noise."""
    rng = np.random.default_rng(2)
    labels = np.where(rng.random(4 * count) < 0.15, 1, 0) ^ np.repeat(rng.integers(0, 2, count), 4)
    first = np.arange(4 * count)
    graph = Graphs(4 * np.arange(count + 1), first, np.where(first % 4 == 3, first - 3, first + 1))
    logit = 2.0 * labels - 1 + rng.normal(scale=1.5, size=4 * count)
    share = 1 / (1 + np.exp(-logit))
    sites = Sites(graph, np.log(np.stack([1 - share, share], axis=1)), np.ones((4 * count, 1)))
    return sites, Target(graph, 2, labels)


def test_likelihood_goes_on_from_pseudo_likelihood() -> None:
    sites, target = rings(40)
    penalty, options = Penalty(l2=0.1), {"tol": 1e-9, "max_iter": 500}
    problem = InteractionProblem(sites, target, Contrast(), BruteEngine())
    before = fit_interaction(sites, target, penalty, **options)
    after = fit_interaction(sites, target, penalty, BruteEngine(), **options)
    assert after.converged
    ridge = [0.05 * float(found.weights @ found.weights) for found in (before, after)]
    values = [problem.evaluate(found.weights, np.empty(4)) for found in (before, after)]
    assert values[1] + ridge[1] < values[0] + ridge[0] - 1e-3
    gradient = np.empty(4)
    problem.evaluate(after.weights, gradient)
    np.testing.assert_allclose(gradient + 0.1 * after.weights, 0, atol=1e-3)


def test_likelihood_says_when_propagation_had_not_settled() -> None:
    sites, target = rings(10)
    found = fit_interaction(sites, target, Penalty(l2=0.1), LoopyEngine(max_sweeps=1), tol=1e-6, max_iter=50)
    assert (found.converged, found.reason) == (False, UNSETTLED)


def test_shapes_are_checked() -> None:
    graph = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    with pytest.raises(ShapeError, match="association must be"):
        Sites(graph, np.zeros((3, 2)), np.zeros((1, 1)))
    with pytest.raises(ShapeError, match="a row for each of 1 edges"):
        Sites(graph, np.zeros((2, 2)), np.zeros((2, 1)))
