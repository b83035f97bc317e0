"""The tolerance keeps its word: at the stop, F is within tol of the optimum, and not absurdly closer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.optimize.stopping import Stopping
from tests.contracts.optimize_problems import Logistic, correlated, dense, text

CASES: dict[str, tuple[Callable[[], Logistic], Penalty, bool]] = {
    "dense": (lambda: dense(seed=21), Penalty(l2=1.0), False),
    "dense, spread": (lambda: dense(seed=22, spread=2.0), Penalty(l2=1.0), False),
    "dense, wide spread": (lambda: dense(seed=23, spread=4.0), Penalty(l2=0.01), True),
    "dense, extreme spread": (lambda: dense(seed=24, spread=6.0), Penalty(l2=1e-3), True),
    "dense, l1": (lambda: dense(seed=25, spread=2.0), Penalty(l1=3.0), False),
    "correlated": (lambda: correlated(seed=26), Penalty(l2=0.1), False),
    "correlated, no penalty": (lambda: correlated(seed=27), Penalty(), False),
    "correlated, l1": (lambda: correlated(seed=28), Penalty(l1=1.0), False),
    "correlated, weak l1": (lambda: correlated(seed=29), Penalty(l1=0.05), True),
    "text": (lambda: text(seed=30), Penalty(l2=1.0), False),
    "text, weak l2": (lambda: text(seed=31), Penalty(l2=1e-3), False),
    "text, weak l2, diagonal": (lambda: text(seed=32), Penalty(l2=1e-3), True),
    "text, strong l2": (lambda: text(seed=33), Penalty(l2=100.0), False),
    "text, wide": (lambda: text(seed=34, rows=3000, width=100_000), Penalty(l2=0.1), True),
    "text, l1": (lambda: text(seed=35), Penalty(l1=1.0), False),
    "text, l1, diagonal": (lambda: text(seed=36), Penalty(l1=0.3), True),
    "text, wide, both": (lambda: text(seed=37, rows=3000, width=100_000), Penalty(l1=0.3, l2=0.1), True),
}


def test_the_gap_at_the_stop() -> None:
    ratios = {}
    for name, (make, penalty, scaled) in CASES.items():
        problem = make()
        start = np.zeros(problem.n_weights)
        diagonal = (problem.curvature(start) + penalty.l2 + 1e-3) ** -0.7 if scaled else None
        stopped = minimize(problem, start, penalty, diagonal=diagonal)
        assert (stopped.converged, stopped.reason) == (True, "tolerance"), name
        best = minimize(problem, stopped.weights, penalty, diagonal=diagonal, tol=1e-9, max_iter=1500)
        gap = (stopped.value - best.value) / best.value
        assert gap <= 1e-4, f"{name}: {gap:.1e}"
        assert best.value * stopped.history[-1].gap >= 0.0
        ratios[name] = gap / 1e-4
    typical = float(np.median(list(ratios.values())))
    assert typical >= 1 / 30, ratios


def test_from_a_warm_start() -> None:
    """Small first steps, as after a stochastic warm start, are not taken for the end."""
    for seed in range(40, 46):
        problem, penalty = text(seed=seed), Penalty(l2=0.05)
        rng = np.random.default_rng(seed)
        begun = minimize(problem, np.zeros(problem.n_weights), penalty, max_iter=15).weights
        start = begun * (1 + 0.1 * rng.standard_normal(len(begun)))
        diagonal = (problem.curvature(start) + 0.05) ** -0.7
        stopped = minimize(problem, start, penalty, diagonal=diagonal)
        best = minimize(problem, start, penalty, diagonal=diagonal, tol=1e-9)
        assert stopped.converged
        assert (stopped.value - best.value) / best.value <= 1e-4


def test_the_bound_is_a_bound() -> None:
    """With every weight under a ridge, |g|² / (2 l2) is never below the true gap."""
    problem, penalty = dense(seed=46), Penalty(l2=2.0)
    best = minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-13).value
    for step in minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-10).history:
        assert step.value - best <= step.gradient_norm**2 / (2 * penalty.l2) * (1 + 1e-9) + 1e-9


def test_geometric_falls_are_extrapolated() -> None:
    """F = 100 + 0.8^k: three times what is left, as soon as the windows are full."""
    stopping = Stopping(1e-4)
    for k in range(40):
        gap = stopping.update(100 + 0.8**k, 1.0, -1e-9)
        if k < 8:
            assert gap == np.inf
    left = 0.8**37 / (100 + 0.8**39)  # the largest of three steps in a row
    assert gap == pytest.approx(3 * left, rel=1e-6)
    assert not stopping.stalled


def test_steady_falls_are_not_the_end() -> None:
    """A run that falls by the same small amount at every step is not near any end it could know of."""
    stopping = Stopping(1e-4)
    gaps = [stopping.update(100 - 1e-4 * k, 1.0, -1e-9) for k in range(200)]
    assert min(gaps[20:]) > 1e-4


def test_a_minimum_of_zero_is_met() -> None:
    """Separable data without a penalty: F goes to zero, and that is enough."""
    rows = np.array([[1.0, 0.5], [-1.0, -0.3], [2.0, 1.0]])
    result = minimize(Logistic(rows, np.array([1.0, -1.0, 1.0])), np.zeros(2))
    assert result.value < 1e-6
    assert result.converged
