"""The parts of a step by themselves: the cubic of the line search, and the inner loop of truncated Newton."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.optimize.history import History
from crfield.optimize.line_search import _lowest, orthant_search, wolfe_search
from crfield.optimize.newton_cg import _direction, minimize_newton_cg
from crfield.optimize.penalty import Penalised, Penalty, Point
from tests.cases.optimize_problems import Quadratic


@pytest.mark.parametrize(("least", "steps"), [(0.7, (0.0, 2.5)), (3.0, (0.5, 8.0)), (3.0, (8.0, 0.5))])
@pytest.mark.parametrize("bend", [0.0, 0.4])
def test_the_cubic_through_two_points_is_the_function_itself(
    least: float, steps: tuple[float, float], bend: float
) -> None:
    """(t − m)² and a cubic term with the same minimum m: found exactly from values and slopes at any two steps."""

    def known(t: float) -> tuple[float, float, float]:
        far = t - least
        return t, 5.0 + far**2 + bend * far**3 / 3, 2 * far + bend * far**2

    np.testing.assert_allclose(_lowest(known(steps[0]), known(steps[1])), least, rtol=1e-12)


@pytest.mark.parametrize(("blind", "taken"), [(False, 0.5 * 7.6 / 16.0), (True, 0.1)])
def test_a_trial_without_a_gradient_tells_nothing_of_the_next(blind: bool, taken: float) -> None:
    """(w − 1)² and 0.1 |w|, first tried at 4: the next trial is where a parabola has its minimum, or a tenth."""

    class Problem:
        n_weights = 1

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            gradient[0] = np.inf if blind and weights[0] > 2 else 2 * (weights[0] - 1)
            return float((weights[0] - 1) ** 2)

    objective = Penalised(Problem(), Penalty(l1=0.1))
    here, there = (Point(np.zeros(1), np.empty(1)) for _ in range(2))
    objective.evaluate(here)
    assert orthant_search(objective, here, there, np.array([4.0]), size=1.0) == pytest.approx(taken)
    assert objective.n_evaluations == 3


@pytest.mark.parametrize("preconditioned", [False, True])
def test_the_inner_loop_solves_to_what_is_asked(preconditioned: bool) -> None:
    """|(H + ridge) d + g| ≤ least, in about as many products as weights at most; a rough answer takes fewer."""
    problem = Quadratic(seed=2, n=20)
    gradient, ridge = np.linspace(-1.0, 2.0, 20), np.where(np.arange(20) < 5, 0.0, 3.0)
    whole = problem.matrix + np.diag(ridge)
    diagonal = np.diag(problem.matrix).copy() if preconditioned else None
    made = []
    for least in (1.0, 1e-3, 1e-9):
        direction, products = _direction(lambda v: problem.matrix @ v, gradient, ridge, diagonal, least=least)
        assert np.linalg.norm(whole @ direction + gradient) <= least * (1 + 1e-6) + 1e-12
        made.append(products)
    assert made[0] < made[1] < made[2] <= 22


def test_the_inner_loop_ends_where_the_function_bends_downwards() -> None:
    """The first direction is down the gradient; later, what was solved for so far is kept."""
    gradient, none = np.array([1.0, 2.0]), np.zeros(2)
    first, products = _direction(lambda v: -v, gradient, none, None, least=1e-9)
    assert (first.tolist(), products) == ([-1.0, -2.0], 1)
    saddle, gradient = np.diag([1.0, -0.1]), np.array([1.0, 0.5])
    later, products = _direction(lambda v: saddle @ v, gradient, none, None, least=0.0)
    assert products == 2
    np.testing.assert_allclose(later, -gradient * (gradient @ gradient) / (gradient @ saddle @ gradient))


def test_truncated_newton_that_starts_at_the_optimum_stays_for_any_tolerance() -> None:
    class Level:
        n_weights = 3

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            gradient[:] = 0.0
            return 1.0

        def curvature_at(self, weights: np.ndarray) -> Any:
            return lambda v: v, None

    result = minimize_newton_cg(Level(), np.ones(3), tol=0.0)
    assert (result.converged, result.reason, result.history) == (True, "tolerance", [])
    np.testing.assert_array_equal(result.weights, 1.0)


def test_a_step_tells_the_seconds_since_the_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 101.5, 104.0])
    monkeypatch.setattr("crfield.optimize.history.time.perf_counter", lambda: next(clock))
    history = History(1e-4, None)
    for _ in range(2):
        history.note(np.zeros(1), 1.0, gradient_norm=1.0, step_size=1.0, n_evaluations=1, gap=1.0)
    assert [step.seconds for step in history.steps] == [1.5, 4.0]


def test_steps_that_are_too_short_lead_to_the_minimum_of_a_parabola() -> None:
    """(w − 30)² from 0, tried at 1: ten times as far at most, then where two slopes say that it is level."""

    class Problem:
        n_weights = 1

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            gradient[0] = 2 * (weights[0] - 30)
            return float((weights[0] - 30) ** 2)

    objective = Penalised(Problem(), Penalty())
    here, there = (Point(np.zeros(1), np.empty(1)) for _ in range(2))
    objective.evaluate(here)
    taken = wolfe_search(objective, here, there, np.ones(1), slope=-60.0, size=1.0, flatter=0.1)
    assert taken == pytest.approx(30.0, rel=1e-12)
    assert objective.n_evaluations == 4
