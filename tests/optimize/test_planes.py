"""Planes: a bound that is never above the minimum, runs of L-BFGS that end by it, and states that keep it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from crfield.errors import ModelFileError
from crfield.optimize import planes as subject
from crfield.optimize.basis import Basis
from crfield.optimize.history import Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty, Point
from crfield.optimize.planes import Planes, Proof
from crfield.optimize.resume import Found, State
from tests.cases.optimize_problems import Logistic, Quadratic, correlated, dense, text
from tests.optimize.test_resume import Memory


@pytest.mark.parametrize("seed", range(8))
def test_planes_in_single_precision_prove_nothing_that_is_not_so(seed: int) -> None:
    # f(w) = aᵀw is its own plane, and F* = −‖a‖² / (2 l2): rounding a may shorten it
    rng = np.random.default_rng(seed)
    a, l2 = rng.normal(size=40_000) * np.exp(rng.normal(size=40_000)), 0.7
    planes = Planes(l2)
    planes.add(a, 0.0)
    planes.add(a.copy(), 0.0)
    exact = -float(a @ a) / (2 * l2)
    assert exact * (1 + 1e-6) <= planes.bound() <= exact


def test_planes_bound_the_minimum_of_a_convex_function() -> None:
    rng = np.random.default_rng(3)
    X, l2 = rng.normal(size=(60, 20)), 0.5

    def f(w: np.ndarray) -> tuple[float, np.ndarray]:
        p = 1 / (1 + np.exp(-X @ w))
        return float(np.logaddexp(0, X @ w).sum()), X.T @ p

    w = np.zeros(20)
    for _ in range(3000):
        w -= 0.02 * (f(w)[1] + l2 * w)
    least = f(w)[0] + 0.5 * l2 * float(w @ w)
    planes, bounds = Planes(l2, capacity=5), []
    for distance in np.geomspace(1.0, 1e-3, 12):
        here = w + distance * rng.normal(size=20)
        value, slope = f(here)
        planes.add(slope, value - float(slope @ here))
        bounds.append(planes.bound())
    assert max(bounds) <= least * (1 + 1e-9)
    assert bounds[-1] == pytest.approx(least, rel=1e-4)


# ------------------------------------------------------------------------------------------------ runs of L-BFGS


def paying(problem: Any) -> Any:
    problem.planes_pay = True
    return problem


PROBLEMS: dict[str, Callable[[], Any]] = {
    "bowl": lambda: Quadratic(seed=1, n=40),
    "even": lambda: dense(seed=2),
    "spread": lambda: dense(seed=8, spread=2.0),
    "correlated": lambda: correlated(seed=4),
    "words": lambda: text(seed=5),
    "more words": lambda: text(seed=6, rows=3000, width=20_000, per_row=20),
}


@cache
def optimum(name: str, l2: float) -> float:
    """The least value of a problem, found once for all tolerances."""
    problem = PROBLEMS[name]()
    start, penalty = np.zeros(problem.n_weights), Penalty(l2=l2)
    result: Result = minimize(problem, start, penalty, memory=30, tol=1e-13, max_iter=5000)
    return result.value


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float, float]]:
    """Value, bound and proved gap, whenever planes are asked."""
    asked, gap = [], Proof.gap

    def noted(self: Proof, here: Point, scratch: np.ndarray) -> float:
        proved = gap(self, here, scratch)
        asked.append((here.value, self.bound, proved))
        return proved

    monkeypatch.setattr(Proof, "gap", noted)
    return asked


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_proved_is_so(name: str, tol: float, proofs: list[tuple[float, float, float]]) -> None:
    problem = PROBLEMS[name]()
    for l2 in (0.05, 1.0, 10.0):
        penalty = Penalty(l2=l2)
        least = optimum(name, l2)
        proofs.clear()
        start = np.zeros(problem.n_weights)
        plain = minimize(problem, start, penalty, memory=4, tol=tol, max_iter=2000)
        assert not proofs
        result = minimize(paying(problem), start, penalty, memory=4, tol=tol, max_iter=2000)
        problem.planes_pay = False
        for value, bound, proved in proofs:
            assert bound <= least * (1 + 1e-12)
            assert proved >= value / least - 1 - 1e-12
        assert result.converged
        assert result.n_evaluations <= plain.n_evaluations
        if proofs and proofs[-1][2] <= tol:
            assert result.value <= least * (1 + tol)


@pytest.mark.parametrize(("name", "tol"), [("spread", 1e-4), ("words", 1e-4), ("more words", 1e-5)])
def test_a_proof_ends_a_run_before_the_estimate_does(name: str, tol: float) -> None:
    problem, penalty = PROBLEMS[name](), Penalty(l2=1.0)
    start = np.zeros(problem.n_weights)
    plain = minimize(problem, start, penalty, memory=4, tol=tol)
    proved = minimize(paying(problem), start, penalty, memory=4, tol=tol)
    assert (plain.converged, proved.converged) == (True, True)
    assert proved.n_evaluations < plain.n_evaluations
    assert proved.value <= optimum(name, 1.0) * (1 + tol)
    assert [step.value for step in proved.history] == [step.value for step in plain.history[: proved.n_iter]]


class Rough(Logistic):
    """Offers single precision that is as good as double, and says how far off it might be."""

    rough = True

    def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
        self.n_single = getattr(self, "n_single", 0) + 1
        return self.evaluate(weights, gradient), 1e-7


def test_planes_are_asked_for_only_where_they_are_proofs(proofs: list[tuple[float, float, float]]) -> None:
    problem = paying(text(seed=5))
    n = problem.n_weights
    start, free = np.zeros(n), np.arange(n) > 0
    for penalty, options in (
        (Penalty(l1=0.1, l2=1.0), {}),
        (Penalty(), {"max_iter": 40}),
        (Penalty(l2=1.0, penalised=free), {}),
        (Penalty(l2=1.0), {"basis": Basis(np.full(n, 2.0))}),
        (Penalty(l2=1.0), {"tol": 1e-8}),
    ):
        minimize(problem, start, penalty, memory=4, **options)  # type: ignore[arg-type]
        assert not proofs, options
    minimize(paying(dense(seed=2)), np.zeros(30), Penalty(l2=0.05), memory=3, renew=True)
    assert not proofs
    minimize(problem, start, Penalty(l2=1.0), memory=4)
    assert proofs


def test_planes_are_of_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    held = text(seed=5)
    problem, points = paying(Rough(held.rows, held.sign)), []
    gap = Proof.gap

    def noted(self: Proof, here: Point, scratch: np.ndarray) -> float:
        points.append(here.error)
        return gap(self, here, scratch)

    monkeypatch.setattr(Proof, "gap", noted)
    minimize(problem, np.zeros(problem.n_weights), Penalty(l2=1.0), memory=4, tol=1e-3)
    assert problem.n_single > 3
    assert points
    assert not any(points)


def test_a_function_that_is_not_convex_is_found_out() -> None:
    proof, scratch = Proof(1.0, 1), np.empty(1)
    assert proof.gap(Point(np.array([1.0]), np.array([0.0]), value=5.0), scratch) == pytest.approx(0.0, abs=1e-6)
    assert proof.gap(Point(np.array([2.0]), np.array([0.0]), value=4.0), scratch) == np.inf
    assert proof.gap(Point(np.array([2.0]), np.array([0.0]), value=4.0), scratch) == np.inf
    again = Proof(1.0, 1)
    again.restore(Found(proof.state()), Point(np.array([2.0]), np.array([0.0]), value=4.0))
    assert again.gap(Point(np.array([2.0]), np.array([0.0]), value=4.0), scratch) == np.inf


# ------------------------------------------------------------------------------------------------------- resuming


def kept(state: State) -> bool:
    return "heights" in state[0]


def test_every_step_with_planes_can_be_gone_on_from(body: str) -> None:
    problem, penalty = paying(text(seed=5)), Penalty(l2=0.05)
    start, run_state = np.zeros(problem.n_weights), Memory()
    options: dict[str, Any] = {"tol": 1e-5, "memory": 4}
    whole = minimize(problem, start, penalty, run_state=run_state, **options)
    with_planes = [k for k, state in enumerate(run_state.states) if kept(state)]
    counts = [len(run_state.states[k][0]["heights"]) for k in with_planes]
    assert max(counts) == 8  # so that some gave way
    assert len(with_planes) > 10
    for k in (0, with_planes[0] - 1, *with_planes[::9], with_planes[-1]):
        again = minimize(problem, start + 7.0, penalty, run_state=Memory(run_state.states[k]), **options)
        assert again.weights.tobytes() == whole.weights.tobytes()
        assert (again.value, again.reason, again.n_evaluations) == (whole.value, whole.reason, whole.n_evaluations)
        assert [s.gap for s in again.history] == [s.gap for s in whole.history]


def test_states_of_older_versions_have_no_planes() -> None:
    problem, penalty = paying(text(seed=5)), Penalty(l2=1.0)
    start, run_state = np.zeros(problem.n_weights), Memory()
    whole = minimize(problem, start, penalty, run_state=run_state, memory=4)
    header, arrays = run_state.states[-2]
    assert kept((header, arrays))
    header = {name: part for name, part in header.items() if name not in ("heights", "errors", "lower_bound")}
    arrays = {name: part for name, part in arrays.items() if not name.startswith(("plane/", "shares"))}
    again = minimize(problem, start, penalty, run_state=Memory((header, arrays)), memory=4)
    assert again.converged
    assert again.value <= whole.value
    assert again.n_evaluations >= whole.n_evaluations


WRONG: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "planes above F": lambda header, _: header.update(heights=[h + 1.0 for h in header["heights"]]),
    "a bound above F": lambda header, _: header.update(lower_bound=header["point"][0] + 1.0),
    "no bound": lambda header, _: header.update(lower_bound=None),
    "a height of words": lambda header, _: header.update(heights=["a", *header["heights"][1:]]),
    "heights that are none": lambda header, _: header.update(heights=7),
    "too many planes": lambda header, _: header.update(heights=[0.0] * 1000, errors=[0.0] * 1000),
    "no slopes": lambda _, arrays: arrays.pop("plane/0"),
    "short slopes": lambda _, arrays: arrays.update({"plane/0": np.ones(3)}),
    "negative errors": lambda header, _: header.update(errors=[-1.0 for _ in header["errors"]]),
    "shares of more than all": lambda _, arrays: arrays.update(shares=arrays["shares"] * 2),
    "negative shares": lambda _, arrays: arrays.update(shares=np.eye(len(arrays["shares"]))[:3].T @ [2, -2, 1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_planes_that_no_run_left(name: str) -> None:
    problem, penalty = paying(text(seed=5)), Penalty(l2=1.0)
    start, run_state = np.zeros(problem.n_weights), Memory()
    minimize(problem, start, penalty, run_state=run_state, memory=4, tol=1e-5)
    header, arrays = run_state.states[-2]
    assert len(header["heights"]) > 2
    WRONG[name](header, arrays)
    with pytest.raises(ModelFileError, match="Delete it to begin anew"):
        minimize(problem, start, penalty, run_state=Memory((header, arrays)), memory=4, tol=1e-5)


def test_the_gap_is_relative_to_the_least_that_the_minimum_can_be() -> None:
    assert subject.relative_gap(-1.0, -2.0) == 1.0
    assert subject.relative_gap(0.0, -1.0) == np.inf
    assert subject.relative_gap(1.0, 1.0 + 1e-16) == 0.0
