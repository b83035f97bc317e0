"""Steps in single precision: only far from the end, and nothing that is told or claimed comes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.optimize.resume import State

N = 40


class Valley:
    """A badly scaled valley, log cosh along each axis, with evaluations that are off by as much as they say."""

    n_weights = N
    rough = True

    def __init__(self, error: float = 1e-6, *, told: float | None = None) -> None:
        self.error, self.told = error, error if told is None else told
        self.scales, self.goal = np.geomspace(1.0, 300.0, N), np.linspace(-3, 3, N)
        self.calls: list[str] = []

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        self.calls.append("double")
        return self._exact(weights, gradient)

    def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
        self.calls.append("single")
        value = self._exact(weights, gradient)
        turn = np.sin(1e6 * weights)  # off in a way that depends on the place alone
        gradient += self.error * turn
        return value * (1 + self.error * float(turn.sum()) / N), self.told * abs(value)

    def _exact(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        there = weights - self.goal
        gradient[:] = self.scales * np.tanh(there)
        return float(self.scales @ np.logaddexp(there, -there)) + 5.0


class Plain(Valley):
    """The same without single precision."""

    rough = False


def exact(problem: Valley, penalty: Penalty, weights: np.ndarray) -> float:
    value = problem._exact(weights, np.empty(N))
    return value + penalty.l1 * float(np.abs(weights).sum()) + 0.5 * penalty.l2 * float(weights @ weights)


PENALTIES = [Penalty(l2=0.1), Penalty(l1=0.5), Penalty(l1=0.3, l2=0.1)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=["ridge", "l1", "both"])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
def test_it_begins_rough_and_ends_in_double(penalty: Penalty, tol: float) -> None:
    problem = Valley()
    found = minimize(problem, np.zeros(N), penalty, tol=tol)
    best = minimize(Plain(), np.zeros(N), penalty, tol=1e-13, max_iter=3000).value
    kinds = problem.calls
    turn = kinds.index("double")
    assert turn > 3
    assert set(kinds[turn:]) == {"double"}  # one way
    assert len(kinds) == found.n_evaluations
    assert found.value == pytest.approx(exact(problem, penalty, found.weights), rel=1e-14)
    assert found.converged
    assert (found.value - best) / best <= tol


@pytest.mark.parametrize("penalty", PENALTIES, ids=["ridge", "l1", "both"])
def test_steps_are_as_many(penalty: Penalty) -> None:
    rough = minimize(Valley(), np.zeros(N), penalty, tol=1e-5)
    plain = minimize(Plain(), np.zeros(N), penalty, tol=1e-5)
    assert rough.n_iter <= 1.2 * plain.n_iter + 3


def test_claims_are_made_of_double_precision_alone() -> None:
    """The last three steps at least, which is what an estimate of the gap asks for."""
    problem = Valley()
    found = minimize(problem, np.zeros(N), Penalty(l2=1e-9), tol=1e-4)
    assert found.converged
    assert problem.calls.count("double") > 3


@pytest.mark.parametrize("max_iter", [0, 1, 4])
def test_a_run_that_is_broken_off_tells_the_exact_value(max_iter: int) -> None:
    problem, penalty = Valley(1e-4), Penalty(l2=0.1)
    found = minimize(problem, np.zeros(N), penalty, max_iter=max_iter)
    assert (found.converged, found.n_iter) == (False, max_iter)
    assert "single" in problem.calls
    assert found.value == pytest.approx(exact(problem, penalty, found.weights), rel=1e-14)


def test_large_errors_are_not_used() -> None:
    problem = Valley(1e-2)
    assert minimize(problem, np.zeros(N), Penalty(l2=0.1)).converged
    assert problem.calls.count("single") == 1


def test_errors_larger_than_told_cost_steps_and_nothing_else() -> None:
    """A value that is worse than it says ends a line search or two; the run goes on in double precision."""
    penalty = Penalty(l2=0.1)
    best = minimize(Plain(), np.zeros(N), penalty, tol=1e-13, max_iter=3000).value
    for error in (1e-4, 1e-2, 0.3):
        problem = Valley(error, told=1e-7)
        found = minimize(problem, np.zeros(N), penalty, tol=1e-6)
        assert found.converged
        assert (found.value - best) / best <= 1e-6


def test_a_problem_that_finds_nothing_to_round_is_not_evaluated_twice() -> None:
    problem, plain = Valley(0.0), Plain()
    found, expected = (minimize(p, np.zeros(N), Penalty(l2=0.1)) for p in (problem, plain))
    assert found.n_evaluations == expected.n_evaluations
    assert found.value == expected.value


def test_what_another_solver_began_goes_on_in_double() -> None:
    problem = Valley()
    assert minimize(problem, np.zeros(N), Penalty(l2=0.1), tol=1e-4, age=40).converged
    assert set(problem.calls) == {"double"}


def test_a_start_at_the_minimum() -> None:
    plain = minimize(Plain(), np.zeros(N), Penalty(l2=0.1), tol=1e-14, max_iter=3000)
    found = minimize(Valley(), plain.weights, Penalty(l2=0.1))
    assert found.converged
    assert found.value <= plain.value * (1 + 1e-4)


class Kept:
    """A run's state after so many offers."""

    def __init__(self, after: int, state: State | None = None) -> None:
        self.after, self.state, self.offers = after, state, 0

    def found(self, phase: str) -> State | None:
        return self.state if phase == "lbfgs" and self.after < 0 else None

    def offer(self, phase: str, state: object) -> None:
        self.offers += 1
        if self.offers == self.after:
            header, arrays = state()  # type: ignore[operator]
            self.state = header, {name: part.copy() for name, part in arrays.items()}


@pytest.mark.parametrize("after", [2, 60])
def test_a_run_resumed_has_the_same_bits(after: int) -> None:
    penalty, kept = Penalty(l2=0.1), Kept(after)
    whole = minimize(Valley(), np.zeros(N), penalty, tol=1e-7, run_state=kept)  # type: ignore[arg-type]
    assert kept.state is not None
    assert kept.state[0]["rough"] is (after == 2)
    resumed = minimize(Valley(), np.zeros(N), penalty, tol=1e-7, run_state=Kept(-1, kept.state))  # type: ignore[arg-type]
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert (resumed.value, resumed.n_iter, resumed.n_evaluations) == (whole.value, whole.n_iter, whole.n_evaluations)


def test_states_of_older_versions_go_on_in_double() -> None:
    penalty, kept = Penalty(l2=0.1), Kept(2)
    minimize(Plain(), np.zeros(N), penalty, run_state=kept)  # type: ignore[arg-type]
    assert kept.state is not None
    del kept.state[0]["rough"]
    problem = Valley()
    assert minimize(problem, np.zeros(N), penalty, run_state=Kept(-1, kept.state)).converged  # type: ignore[arg-type]
    assert "single" not in problem.calls


def test_infinite_values_are_too_long_in_either_precision() -> None:
    class Walled(Valley):
        def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
            value, error = super().evaluate_single(weights, gradient)
            return (math.nan, math.nan) if np.abs(weights).max() > 50 else (value, error)

    found = minimize(Walled(), np.zeros(N), Penalty(l2=0.1), first_step=100.0)
    assert found.converged
