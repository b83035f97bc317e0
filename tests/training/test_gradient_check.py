"""An optimiser that is lied to must say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.optimize.history import INTERRUPTED, Result
from crfield.optimize.penalty import Penalty
from crfield.training.gradient_check import DISAGREE, UNSETTLED, find_fault, minimize_checked


class Bowl:
    """½ |w − 1|² + 3, with the faults asked for."""

    n_weights = 3

    def __init__(self, *, tilt: float = 0.0, settles: bool = True) -> None:
        self.tilt, self.settles, self.settled, self.n_unsettled = tilt, settles, True, 0

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        gradient[:] = weights - 1.0 + self.tilt
        self.settled = self.settles
        self.n_unsettled += not self.settles
        return 3.0 + 0.5 * float((weights - 1.0) @ (weights - 1.0))


def run(problem: Bowl, **options: Any) -> Result:
    return minimize_checked(problem, np.zeros(3), Penalty(l2=0.1), tol=1e-6, max_iter=100, **options)  # type: ignore[arg-type]


def test_an_honest_problem_converges() -> None:
    result = run(Bowl())
    assert result.converged
    assert result.reason == "tolerance"
    np.testing.assert_allclose(result.weights, 1 / 1.1, rtol=1e-3)


def test_an_engine_that_does_not_settle_is_named() -> None:
    result = run(Bowl(settles=False))
    assert not result.converged
    assert result.reason == UNSETTLED


@pytest.mark.parametrize("tilt", [0.5, -2.0])
def test_a_gradient_of_another_function_is_named(tilt: float) -> None:
    problem = Bowl(tilt=tilt)
    assert find_fault(problem, Penalty(), np.full(3, 0.2), tol=1e-6) == DISAGREE  # type: ignore[arg-type]
    assert find_fault(Bowl(), Penalty(), np.full(3, 0.2), tol=1e-6) is None  # type: ignore[arg-type]
    assert not run(problem).converged


def test_an_interrupted_run_stays_one() -> None:
    def stop(step: object, weights: np.ndarray) -> bool:
        raise KeyboardInterrupt

    assert run(Bowl(settles=False), callback=stop).reason == INTERRUPTED
