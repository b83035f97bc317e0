"""A run that is interrupted after any step, and resumed by another one, ends with the bits of the whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crfield.errors import ShapeError
from crfield.kernels import choice, vectors
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.optimize.resume import State
from tests.cases.optimize_problems import correlated


class Memory:
    """Keeps copies of all states, as a file would."""

    def __init__(self, state: State | None = None) -> None:
        self.state, self.states = state, []  # type: State | None, list[State]

    def found(self, phase: str) -> State | None:
        return self.state if phase == "lbfgs" else None

    def offer(self, phase: str, state: Callable[[], State]) -> None:
        header, arrays = state()
        self.states.append((header, {name: part.copy() for name, part in arrays.items()}))


@pytest.mark.parametrize("case", ["ridge", "lasso", "single", "diagonal"])
def test_every_step_can_be_gone_on_from(case: str, body: str) -> None:
    problem = correlated(seed=1, rows=60, width=12)
    options: dict[str, Any] = {"tol": 1e-9, "memory": 4}
    penalty = Penalty(l1=0.5 if case == "lasso" else 0.0, l2=0.1)
    if case == "single":
        options["single"] = True
    if case == "diagonal":
        options["diagonal"] = np.linspace(0.5, 2.0, problem.n_weights)
    start, run_state = np.zeros(problem.n_weights), Memory()
    whole = minimize(problem, start, penalty, run_state=run_state, **options)
    assert whole.converged
    assert len(run_state.states) == whole.n_iter >= 8
    options.pop("diagonal", None)  # it comes back with the state
    for k in (0, 3, 7, whole.n_iter - 2, whole.n_iter - 1):
        again = minimize(problem, start + 7.0, penalty, run_state=Memory(run_state.states[k]), **options)
        assert again.weights.tobytes() == whole.weights.tobytes()
        assert (again.value, again.reason, again.n_evaluations) == (whole.value, whole.reason, whole.n_evaluations)
        assert [s.value for s in again.history] == [s.value for s in whole.history]


def test_a_longer_run_goes_on_from_a_short_one(body: str) -> None:
    problem = correlated(seed=2, rows=60, width=12)
    run_state, penalty, start = Memory(), Penalty(l2=0.1), np.zeros(12)
    whole = minimize(problem, start, penalty, tol=1e-9)
    short = minimize(problem, start, penalty, tol=1e-9, max_iter=5, run_state=run_state)
    assert short.reason == "max_iter"
    longer = minimize(problem, start, penalty, tol=1e-9, run_state=Memory(run_state.states[-1]))
    assert longer.weights.tobytes() == whole.weights.tobytes()


def test_bodies_take_each_others_pairs() -> None:
    pytest.importorskip("crfield.kernels._vectors")
    rng = np.random.default_rng(0)
    directions = {}
    for first, second in (("native", "numpy"), ("numpy", "native"), ("native", "native")):
        rng = np.random.default_rng(0)
        with choice.use(first):
            history = vectors.History(50, 3, diagonal=np.linspace(1, 2, 50))
            for _ in range(5):
                step = rng.standard_normal(50)
                history.push(step, np.zeros(50), 2 * step + 0.1 * rng.standard_normal(50), np.zeros(50))
        with choice.use(second):
            other = vectors.History(50, 3, diagonal=np.linspace(1, 2, 50))
            other.restore(history.state())
            directions[first, second] = np.empty(50)
            other.direction(rng.standard_normal(50), directions[first, second])
    first, *rest = directions.values()
    for other in rest:
        np.testing.assert_allclose(other, first, rtol=1e-10, atol=1e-12)


def test_foreign_pairs_are_refused(body: str) -> None:
    history = vectors.History(4, 2)
    history.push(np.ones(4), np.zeros(4), np.ones(4), np.zeros(4))
    good = history.state()
    for name, bad in (
        ("s", good["s"][:, :3]),
        ("y", good["y"].astype(np.float32)),
        ("s_y", np.zeros((2, 2))),
        ("y_dy", None),
        ("s", np.zeros((3, 4))),
    ):
        with pytest.raises(ShapeError, match="history"):
            history.restore({**good, name: bad})
    assert len(history) == 1
