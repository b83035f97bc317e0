"""L-BFGS and OWL-QN: known optima, other solvers' optima, optimality conditions, and every way to end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from crfield.errors import InputError, ShapeError
from crfield.optimize.history import Step
from crfield.optimize.lbfgs import history_size, minimize
from crfield.optimize.line_search import wolfe_search
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.stopping import Stopping
from tests.cases.optimize_problems import Logistic, Quadratic, dense, text


def objective(problem: Any, weights: np.ndarray, penalty: Penalty) -> tuple[float, np.ndarray]:
    """F and the gradient of its smooth part, by the formula."""
    gradient = np.empty(len(weights))
    on = np.ones(len(weights)) if penalty.penalised is None else penalty.penalised
    value = problem.evaluate(weights, gradient)
    value += penalty.l1 * np.sum(on * np.abs(weights)) + 0.5 * penalty.l2 * np.sum(on * weights**2)
    return value, gradient + penalty.l2 * on * weights


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_quadratics_are_solved_exactly(body: str, n: int, l2: float) -> None:
    problem = Quadratic(seed=n, n=n)
    optimum = np.linalg.solve(problem.matrix + l2 * np.eye(n), problem.linear)
    result = minimize(problem, np.zeros(n), Penalty(l2=l2), tol=1e-14)
    np.testing.assert_allclose(result.weights, optimum, rtol=1e-6, atol=1e-7)
    assert result.converged
    assert result.value == pytest.approx(objective(problem, optimum, Penalty(l2=l2))[0], rel=1e-13)


def test_logistic_regression_as_scipy_and_sklearn_have_it(body: str) -> None:
    from scipy.optimize import minimize as scipy_minimize
    from sklearn.linear_model import LogisticRegression

    problem, l2 = dense(seed=1, spread=1.0), 0.8

    def both(w: np.ndarray) -> tuple[float, np.ndarray]:
        return objective(problem, w, Penalty(l2=l2))

    theirs = scipy_minimize(
        both,
        np.zeros(problem.n_weights),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 9000, "ftol": 1e-15, "gtol": 1e-7},
    )
    result = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=l2), tol=1e-11, max_iter=3000)
    assert result.converged
    assert result.value == pytest.approx(theirs.fun, rel=1e-8)
    fitted = LogisticRegression(C=1 / l2, fit_intercept=False, tol=1e-10, max_iter=5000, solver="newton-cholesky")
    coefficients = fitted.fit(problem.rows, problem.sign).coef_[0]
    np.testing.assert_allclose(result.weights, coefficients, rtol=1e-4, atol=1e-5)
    assert result.value == pytest.approx(both(coefficients)[0], rel=1e-8)


@pytest.mark.parametrize(("l1", "l2"), [(1.0, 0.0), (0.2, 0.0), (0.5, 0.3)])
@pytest.mark.parametrize("kind", ["dense", "text"])
def test_owlqn_meets_the_optimality_conditions(body: str, kind: str, l1: float, l2: float) -> None:
    problem: Any = dense(seed=2) if kind == "dense" else text(seed=2, rows=500, width=600)
    penalty = Penalty(l1, l2)
    diagonal = 1 / (problem.curvature(np.zeros(problem.n_weights)) + l2 + 0.1)
    result = minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-12, max_iter=3000, diagonal=diagonal)
    value, gradient = objective(problem, result.weights, penalty)
    assert result.value == pytest.approx(value, rel=1e-12)
    zero = result.weights == 0
    assert 0 < zero.sum() < len(zero) or kind == "dense"
    assert np.abs(gradient[zero]).max(initial=0.0) <= l1 * (1 + 1e-4)
    np.testing.assert_allclose(gradient[~zero], -l1 * np.sign(result.weights[~zero]), atol=1e-4)
    assert result.history[-1].n_active == np.count_nonzero(result.weights)


def test_owlqn_is_as_low_as_sklearn(body: str) -> None:
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.fixes import parse_version

    problem, penalty = text(seed=3, rows=300, width=200), Penalty(l1=0.7)
    result = minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-9, max_iter=3000)
    recent = parse_version(sklearn.__version__) >= parse_version("1.8")  # the penalty is a ratio since then
    lasso: dict[str, Any] = {"l1_ratio": 1} if recent else {"penalty": "l1"}
    fitted = LogisticRegression(**lasso, C=1 / 0.7, solver="liblinear", fit_intercept=False, tol=1e-7, max_iter=5000)
    theirs = objective(problem, fitted.fit(problem.rows, problem.sign).coef_[0], penalty)[0]
    assert result.converged
    assert result.value <= theirs * (1 + 1e-8)
    assert result.value == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_free_weights_are_not_penalised(body: str, l1: float) -> None:
    problem = dense(seed=4)
    free = np.zeros(problem.n_weights, bool)
    free[:3] = True
    penalty = Penalty(l1, 5.0, ~free)
    result = minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-12, max_iter=2000)
    value, gradient = objective(problem, result.weights, penalty)
    assert result.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient[free], 0.0, atol=1e-4)
    everything = minimize(problem, np.zeros(problem.n_weights), Penalty(l1, 5.0), tol=1e-12, max_iter=2000)
    assert np.abs(result.weights[free]).sum() > np.abs(everything.weights[free]).sum()


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_single_precision_history_has_the_same_optimum(body: str, l1: float) -> None:
    problem = text(seed=5)
    penalty = Penalty(l1, 0.1)
    start = np.zeros(problem.n_weights)
    runs = [minimize(problem, start, penalty, memory=10, single=s, tol=1e-8) for s in (False, True)]
    assert all(run.converged for run in runs)
    assert runs[0].value == pytest.approx(runs[1].value, rel=1e-7)
    assert abs(runs[0].n_evaluations - runs[1].n_evaluations) < 0.2 * runs[0].n_evaluations


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_threads_and_repetition_do_not_change_a_bit(body: str, l1: float) -> None:
    problem = text(seed=6, rows=500, width=40_000)
    runs = [
        minimize(problem, np.zeros(problem.n_weights), Penalty(l1, 0.5), n_jobs=jobs, single=True)
        for jobs in (1, 2, 4, 1)
    ]
    for other in runs[1:]:
        assert np.array_equal(other.weights, runs[0].weights)
        assert other.value == runs[0].value


def test_a_diagonal_helps_a_badly_scaled_problem(body: str) -> None:
    problem, penalty = dense(seed=7, spread=4.0), Penalty(l2=0.01)
    start = np.zeros(problem.n_weights)
    plain = minimize(problem, start, penalty, max_iter=300)
    diagonal = (problem.curvature(start) + 0.01) ** -0.7
    helped = minimize(problem, start, penalty, max_iter=300, diagonal=diagonal)
    assert helped.converged
    assert helped.n_evaluations < 0.3 * plain.n_evaluations
    assert not plain.converged  # a run far from the optimum does not claim to have arrived


def test_start_at_the_optimum_and_no_weights(body: str) -> None:
    problem = Quadratic(seed=1, n=3)
    at = minimize(problem, np.linalg.solve(problem.matrix, problem.linear), tol=1e-6)
    assert at.converged
    assert at.n_evaluations <= 14  # four steps in a row must say that it is the end
    np.testing.assert_allclose(problem.matrix @ at.weights, problem.linear, atol=1e-12)
    flat = Logistic(np.zeros((4, 2)), np.array([1.0, -1.0, 1.0, 1.0]))
    still = minimize(flat, np.zeros(2), Penalty(l2=1.0))
    assert (still.converged, still.reason, still.n_iter, still.n_evaluations) == (True, "tolerance", 0, 1)
    none = minimize(Logistic(np.zeros((4, 0)), np.ones(4)), np.zeros(0), Penalty(l1=1.0))
    assert none.converged
    assert none.weights.shape == (0,)


def test_start_is_left_alone_and_zeros_stay(body: str) -> None:
    problem = dense(seed=8)
    start = np.ones(problem.n_weights)
    minimize(problem, start, Penalty(l2=1.0))
    assert np.array_equal(start, np.ones(problem.n_weights))
    heavy = minimize(problem, np.zeros(problem.n_weights), Penalty(l1=1e6))
    assert heavy.converged
    assert not heavy.weights.any()
    assert minimize(problem, start, Penalty(l1=1e6)).history[-1].n_active == 0


def test_a_bracket_that_closes_ends_the_search() -> None:
    """Values that depend on the evaluations before them, as with messages that are kept: low once, then high."""

    class Fickle:
        n_weights = 1

        def __init__(self) -> None:
            self.calls = 0

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            self.calls += 1
            gradient[:] = -1.0 if self.calls == 1 else -10.0
            return (10.0, 5.0)[self.calls - 1] if self.calls < 3 else 1e9

    result = minimize(Fickle(), np.zeros(1), Penalty(), max_iter=3)
    assert np.isfinite(result.weights).all()
    assert not result.converged


@pytest.mark.parametrize("l1", [0.0, 0.1])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_undefined_trials_shorten_the_step(body: str, l1: float, bad: float) -> None:
    class Walled:
        """−log(1 − w) + w², defined left of a wall at one."""

        n_weights = 1

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            w = weights[0]
            gradient[0] = (1 / (1 - w) + 2 * w - 4) if w < 1 else np.nan
            return -np.log(1 - w) + w**2 - 4 * w if w < 1 else bad

    result = minimize(Walled(), np.array([-30.0]), Penalty(l1), first_step=1000.0, tol=1e-12, max_iter=200)
    w = result.weights[0]
    assert 1 / (1 - w) + 2 * w - 4 + l1 == pytest.approx(0.0, abs=1e-5)


def test_steps_are_recorded_and_callback_may_stop(body: str) -> None:
    problem, same = dense(seed=9, spread=2.0), dense(seed=9, spread=2.0)
    seen: list[Step] = []

    def callback(step: Step, weights: np.ndarray) -> bool:
        seen.append(step)
        assert objective(same, weights, Penalty(l2=0.1))[0] == pytest.approx(step.value, rel=1e-12)
        with pytest.raises(ValueError, match="read-only"):
            weights[0] = 0.0
        return step.n_iter == 7

    result = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=0.1), callback=callback)
    assert (result.reason, result.converged, result.n_iter) == ("callback", False, 7)
    assert seen == result.history
    assert [step.n_iter for step in seen] == list(range(1, 8))
    assert all(a.value > b.value for a, b in pairwise(seen))
    assert result.value == seen[-1].value
    assert result.n_evaluations == seen[-1].n_evaluations == problem.n_evaluations


def test_where_values_are_blurred_slopes_decide(body: str) -> None:
    """Raw columns far from zero: F is off by more than its last digits, its gradient is not."""

    class Blurred(Quadratic):
        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            value = super().evaluate(weights, gradient)
            return value + (3e-9 if weights.sum() > self.middle else -3e-9)

    problem = Blurred(seed=3, n=30)
    best = np.linalg.solve(problem.matrix, problem.linear)
    near = best - 1e-6
    problem.middle = float(0.5 * (best + near).sum())
    needed = {}
    for blur in (0.0, 1e-8):
        objective = Penalised(problem, Penalty())
        here, there = (Point(near.copy(), np.empty(30)) for _ in range(2))
        objective.evaluate(here)
        direction = best - near
        slope = float(here.gradient @ direction)
        assert 0 < -slope < 3e-9
        needed[blur] = wolfe_search(objective, here, there, direction, slope=slope, size=1.0, blur=blur)
    assert needed[1e-8] == 1.0
    assert needed[0.0] != 1.0


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_running_out_of_steps_is_said(body: str, l1: float) -> None:
    problem = dense(seed=9, spread=2.0)
    result = minimize(problem, np.zeros(problem.n_weights), Penalty(l1, 0.1), max_iter=4)
    assert (result.reason, result.converged, result.n_iter) == ("max_iter", False, 4)
    only = minimize(problem, np.zeros(problem.n_weights), Penalty(l1, 0.1), max_iter=0)
    assert (only.reason, only.converged, only.n_evaluations) == ("max_iter", False, 1)


@pytest.mark.parametrize("at", [1, 2, 9])
@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_interrupts_end_with_the_best_weights(body: str, at: int, l1: float) -> None:
    class Interrupted(Logistic):
        pressed = False

        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            if self.n_evaluations == at - 1 and not self.pressed:
                self.pressed = True
                gradient[:] = np.nan
                raise KeyboardInterrupt
            return super().evaluate(weights, gradient)

    plain = dense(seed=10, spread=2.0)
    problem = Interrupted(plain.rows, plain.sign)
    penalty = Penalty(l1, 0.1)
    result = minimize(problem, np.zeros(problem.n_weights), penalty)
    assert (result.reason, result.converged) == ("interrupted", False)
    if at == 1:
        assert not result.weights.any()
    assert result.value == pytest.approx(objective(plain, result.weights, penalty)[0], rel=1e-12)
    assert result.n_iter == len(result.history)

    def callback(step: Step, weights: np.ndarray) -> None:
        if step.n_iter == at:
            raise KeyboardInterrupt

    stopped = minimize(plain, np.zeros(problem.n_weights), penalty, callback=callback)
    assert (stopped.reason, stopped.n_iter) == ("interrupted", at)
    assert stopped.value == pytest.approx(objective(plain, stopped.weights, penalty)[0], rel=1e-12)


def test_rounding_ends_a_run_that_asks_for_too_much(body: str) -> None:
    problem = dense(seed=11)
    result = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=1.0), tol=0.0, max_iter=2000)
    assert result.reason == "line search could not improve"
    assert result.converged
    assert result.n_iter < 200


@pytest.mark.parametrize("copied", [False, True])
def test_a_lasso_that_rounding_stops_is_proved(copied: bool, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that remember a long way keep the estimate high after a fast end; the second derivative decides."""
    monkeypatch.setattr(Stopping, "_trend", lambda self: np.inf)
    plain = dense(seed=11)
    rows = np.column_stack([plain.rows, plain.rows[:, 0]]) if copied else plain.rows  # a direction that does not bend
    zeros = np.zeros(rows.shape[1])
    result = minimize(Logistic(rows, plain.sign), zeros, Penalty(l1=1.0), tol=1e-9)
    assert (result.reason, result.converged) == ("line search could not improve", True)

    class Coarse(Logistic):
        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            return round(super().evaluate(weights, gradient) / 10) * 10.0

    stuck = minimize(Coarse(rows, plain.sign), zeros, Penalty(l1=1.0), tol=1e-9)
    assert (stuck.reason, stuck.converged) == ("line search could not improve", False)


def test_a_wrong_gradient_does_not_pass_for_convergence(body: str) -> None:
    class Uphill(Logistic):
        def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
            value = super().evaluate(weights, gradient)
            gradient *= -1
            return value

    plain = dense(seed=12)
    result = minimize(Uphill(plain.rows, plain.sign), np.zeros(plain.n_weights))
    assert (result.reason, result.converged) == ("line search could not improve", False)
    np.testing.assert_allclose(result.weights, 0.0, atol=1e-9)


def test_mistakes_are_named() -> None:
    problem = Quadratic(seed=0, n=3)
    with pytest.raises(ShapeError, match="start"):
        minimize(problem, np.zeros(4))
    with pytest.raises(ShapeError, match="penalised"):
        minimize(problem, np.zeros(3), Penalty(l2=1.0, penalised=np.array([1, 0])))
    with pytest.raises(InputError, match="finite at the start"):
        minimize(problem, np.full(3, np.nan))
    with pytest.raises(InputError, match="diagonal"):
        minimize(problem, np.zeros(3), diagonal=np.array([1.0, 0.0, 1.0]))
    with pytest.raises(InputError, match="first_step"):
        minimize(problem, np.zeros(3), first_step=0.0)
    with pytest.raises(InputError, match="tol"):
        minimize(problem, np.zeros(3), tol=float("nan"))
    with pytest.raises(InputError, match="l1"):
        Penalty(l1=-1.0)
    with pytest.raises(InputError, match="l2"):
        Penalty(l2=float("inf"))


def test_default_history_fits_memory() -> None:
    for n in (0, 10, 10**5, 10**6, 8 * 10**6, 10**8):
        memory, single = history_size(n)
        assert 3 <= memory <= 10
        assert memory * n * (8 if single else 16) <= max(256e6, 24.0 * n)
    assert history_size(10, memory=5, single=True) == (5, True)


@pytest.mark.parametrize(("single", "bytes_of_a_weight", "most"), [(False, 16, 10), (True, 8, 4)])
def test_a_default_history_has_as_many_pairs_as_fit(single: bool, bytes_of_a_weight: int, most: int) -> None:
    met = set()
    for n in range(1_600_000, 11_200_000, 160_000):
        memory = history_size(n, single=single)[0]
        met.add(memory)
        assert memory in (3, most) or memory * n * bytes_of_a_weight <= 256e6 < (memory + 1) * n * bytes_of_a_weight
    assert met == set(range(3, most + 1))
