"""Gradient check: minimising a value that may not agree with its gradient.

With an approximate engine the value (a Bethe or tree-reweighted total) and the gradient (its beliefs) belong
together only at a fixed point of the messages. Where propagation does not settle, or jumps from one fixed point to
another between two evaluations, the optimiser meets a function that falls along no direction the gradient names. A
quasi-Newton method then ends early and takes the place for the optimum.

Nothing here repairs that. It is found out and said: at the end the engine must have settled, and the value must
change along the gradient as the gradient says. Otherwise the result is not converged, whatever the optimiser thought.
The usual remedy is a better start, so the pseudo-likelihood solution is one by default, or an objective that needs no
inference at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point

UNSETTLED = "inference had not settled"
DISAGREE = "value and gradient disagree"
LARGEST_ERROR = 0.05  # of the slope that the gradient promises
SMALLEST_SLOPE = 1e-7  # relative to |F|: below it the difference of two values is rounding

Callback = Callable[[Step, np.ndarray], bool | None]


class Doubtful(Protocol):
    """A function of weights that knows whether the engine behind its last value had settled."""

    settled: bool

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        ...


def minimize_checked(
    problem: Doubtful,
    start: np.ndarray,
    penalty: Penalty,
    *,
    tol: float,
    max_iter: int,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """As `optimize.lbfgs.minimize`; the result is converged only if value and gradient could be trusted at its end.

    >>> import numpy as np
    >>> from crfield.core.beliefs import Evaluation
    >>> class Wrong:
    ...     n_weights, settled = 1, True
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = -1.0
    ...         return 1.0 + abs(float(weights[0]))
    >>> minimize_checked(Wrong(), np.zeros(1), Penalty(l2=1.0), tol=1e-4, max_iter=50).converged
    False
    """
    result = minimize(problem, start, penalty, tol=tol, max_iter=max_iter, n_jobs=n_jobs, callback=callback)
    if result.reason == INTERRUPTED:
        return result
    fault = find_fault(problem, penalty, result.weights, tol=tol)
    return result if fault is None else replace(result, converged=False, reason=fault)


def find_fault(problem: Doubtful, penalty: Penalty, weights: np.ndarray, *, tol: float) -> str | None:
    """Why value and gradient cannot be trusted here, or None.

    Along the direction d of steepest descent the slope −|g| is compared with (F(w + hd) − F(w − hd)) / 2h. A slope so
    small that the remaining fall could not matter at ``tol`` is not compared.
    """
    smooth = Penalised(problem, Penalty(l2=penalty.l2, penalised=penalty.penalised))
    here, there = Point(weights.copy(), np.empty_like(weights)), Point(np.empty_like(weights), np.empty_like(weights))
    smooth.evaluate(here)
    if not problem.settled:
        return UNSETTLED
    norm = float(np.sqrt(here.squared_norm))
    scale = max(1.0, float(np.abs(weights).max(initial=0.0)))
    if norm * scale <= max(tol, SMALLEST_SLOPE) * abs(here.value):
        return None
    size, values = 1e-4 * scale, []
    for sign in (1.0, -1.0):
        there.weights[:] = weights - sign * size / norm * here.gradient
        smooth.evaluate(there)
        if not problem.settled:
            return UNSETTLED
        values.append(there.value)
    found = (values[0] - values[1]) / (2 * size)
    return None if abs(found + norm) <= LARGEST_ERROR * norm else DISAGREE
