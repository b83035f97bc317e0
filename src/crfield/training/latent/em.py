"""EM for an objective that is the difference of two convex functions, F(w) = free(w) − clamped(w) + penalty(w).

The clamped half is replaced by its tangent at the present weights, which lies below it (that is the E step: the slope
c are the expected features under the states that the labels allow), and free(w) − c·w + penalty(w) is made smaller, a
convex problem (the M step; Dempster, Laird & Rubin 1977; McLachlan & Krishnan 2008 for steps that do not go to the
end). Since the tangent touches where the step begins, F never rises, however short the M step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point

M_STEPS = 10  # steps of the optimiser in one M step
SMALL = 3  # M steps in a row whose fall is within the tolerance

Callback = Callable[[Step, np.ndarray], bool | None]


class Halves(Protocol):
    """An objective that is the difference of two convex functions."""

    n_jobs: int

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        ...

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        ...

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over what the labels allow, and its gradient."""
        ...


class _Tilted:
    """free(w) − c·w, the problem of an M step."""

    def __init__(self, problem: Halves, slope: np.ndarray) -> None:
        self.problem, self.slope, self.n_weights = problem, slope, problem.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        value = self.problem.free(weights, gradient)
        gradient -= self.slope
        return value - float(self.slope @ weights)


def fit_em(
    problem: Halves,
    penalty: Penalty,
    start: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    m_steps: int = M_STEPS,
    callback: Callback | None = None,
) -> Result:
    """Make F small by EM; a step of the history is one E step with its M step.

    It ends when F has fallen by at most ``tol`` of itself in three steps in a row. Its value is computed from both
    halves at every step, so that a rise would be seen; there is none.
    """
    here = Point(np.array(start, np.float64), np.empty(len(start)))
    whole, began = Penalised(problem, penalty, n_jobs=problem.n_jobs), time.perf_counter()
    steps: list[Step] = []
    evaluations, small, reason = 1, 0, MAX_ITER
    whole.evaluate(here)
    slope = np.empty(len(start))
    try:
        for number in range(1, max_iter + 1):
            problem.clamped(here.weights, slope)
            inner = minimize(
                _Tilted(problem, slope), here.weights, penalty, tol=0.0, max_iter=m_steps, n_jobs=problem.n_jobs
            )
            evaluations += inner.n_evaluations + 2
            if inner.reason == INTERRUPTED:
                raise KeyboardInterrupt
            there = Point(inner.weights, np.empty(len(start)))
            whole.evaluate(there)
            fall = here.value - there.value
            if not inner.n_iter or fall <= 0:  # nothing left but rounding
                reason = NO_IMPROVEMENT if not steps else TOLERANCE
                break
            here = there
            gap = fall / max(abs(here.value), 1e-300)
            small = small + 1 if gap <= tol else 0
            norm, active = math.sqrt(here.squared_norm), int(np.count_nonzero(here.weights))
            steps.append(Step(number, evaluations, here.value, norm, 1.0, active, time.perf_counter() - began, gap))
            if callback is not None and callback(steps[-1], here.weights):
                reason = CALLBACK
                break
            if small == SMALL:
                reason = TOLERANCE
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    converged = reason in (TOLERANCE, NO_IMPROVEMENT)
    return Result(here.weights, here.value, len(steps), evaluations, converged, reason, steps)
