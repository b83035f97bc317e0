"""Nonlinear conjugate gradients: L-BFGS with a memory of one direction.

    d = −g + β d_before        Polak–Ribière+   β = max(0, gᵀy / |g_before|²)
                               Hager–Zhang      β = (y − 2 d |y|² / dᵀy)ᵀ g / dᵀy, not below −1 / (|d| min(0.01, |g|))

with y the change of the gradient. On a quadratic bowl with exact line searches both are the conjugate gradients of
Hestenes & Stiefel 1952 and end after as many steps as there are weights. Polak & Ribière 1969, cut at zero, starts
again by itself where the function is not like a bowl (Gilbert & Nocedal 1992); Hager & Zhang 2005 choose β so that d
always leads downhill, whatever the line search. Both also start again after as many steps as there are weights.

It was a usual trainer of CRFs when memory was dear (Sha & Pereira 2003): few vectors and no history. It has to look
for its step length, about two evaluations a step, and needs more steps than L-BFGS; so take it to compare, or where
even a short history is too much.
"""

from __future__ import annotations

import math

import numpy as np

from crfield.errors import InputError
from crfield.optimize.history import (
    CALLBACK,
    INTERRUPTED,
    MAX_ITER,
    NO_IMPROVEMENT,
    TOLERANCE,
    Callback,
    History,
    Result,
    check_first,
    check_run,
    no_l1,
)
from crfield.optimize.line_search import wolfe_search
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.problem import Problem
from crfield.optimize.stopping import Stopping

UPDATES = ("hager_zhang", "polak_ribiere")
FLAT = 0.1  # of the slope; directions stay conjugate only where line searches are good
FLOOR = 0.01  # of the norms in Hager and Zhang's lower bound
DOWNHILL = 1e-8  # least cosine between direction and gradient; below, start again


def minimize_cg(
    problem: Problem,
    start: np.ndarray,
    penalty: Penalty | None = None,
    *,
    update: str = "hager_zhang",
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """Minimise f(w) + ½ l2 ‖w‖² from ``start``; tolerance, callback and result as for L-BFGS.

    >>> class Valley:
    ...     n_weights = 2
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = (weights - [3.0, 0.1]) * [1.0, 50.0]
    ...         return 0.5 * float(gradient @ (weights - [3.0, 0.1])) + 1.0
    >>> minimize_cg(Valley(), np.zeros(2), Penalty(l2=1.0), tol=1e-9).weights.round(4).tolist()
    [1.5, 0.098]
    """
    if update not in UPDATES:
        raise InputError(f"update must be one of {', '.join(map(repr, UPDATES))}, got {update!r}.")
    penalty = Penalty() if penalty is None else penalty
    no_l1("conjugate gradient", penalty)
    weights = check_run(int(problem.n_weights), start, penalty, tol=tol, max_iter=max_iter)
    objective = Penalised(problem, penalty, n_jobs=n_jobs)
    here = Point(weights, np.empty_like(weights))
    there = Point(np.empty_like(weights), np.empty_like(weights))
    stopping = Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0)
    history = History(tol, callback)
    reason = MAX_ITER
    try:
        objective.evaluate(here)
        check_first(here.value, here.squared_norm)
        if here.squared_norm == 0:
            history.gap = 0.0
            return history.result(TOLERANCE, here.weights, here.value, n_evaluations=objective.n_evaluations)
        direction, slope, fresh, since = -here.gradient, -here.squared_norm, True, 0
        size = min(1.0, 1.0 / math.sqrt(here.squared_norm))
        while len(history.steps) < max_iter:
            taken = wolfe_search(objective, here, there, direction, slope=slope, size=size, flatter=FLAT)
            if taken is None:
                if fresh:
                    reason = NO_IMPROVEMENT
                    break
                direction, slope, fresh, since = -here.gradient, -here.squared_norm, True, 0
                size = min(1.0, 1.0 / math.sqrt(here.squared_norm))
                continue
            here, there = there, here
            before = slope
            beta = _beta(update, here.gradient, there.gradient, direction, there.squared_norm)
            direction *= beta
            direction -= here.gradient
            slope, since = float(here.gradient @ direction), since + 1
            length = math.sqrt(float(direction @ direction) * here.squared_norm)
            fresh = not slope < -DOWNHILL * length or since >= len(weights)
            if fresh:
                direction, slope, since = -here.gradient, -here.squared_norm, 0
            # A step like the last one promises the same decrease to first order.
            size = taken * min(max(before / slope, 0.01), 100.0) if slope else taken
            gap = stopping.update(here.value, here.squared_norm, size * slope) if here.squared_norm else 0.0
            enough = history.note(
                here.weights,
                here.value,
                gradient_norm=math.sqrt(here.squared_norm),
                step_size=taken,
                n_evaluations=objective.n_evaluations,
                gap=gap,
            )
            if gap <= tol:
                reason = TOLERANCE
                break
            if enough:
                reason = CALLBACK
                break
            if stopping.stalled:
                reason = NO_IMPROVEMENT
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
        if math.isnan(here.value):
            objective.evaluate(here)
    return history.result(reason, here.weights, here.value, n_evaluations=objective.n_evaluations)


def _beta(update: str, new: np.ndarray, old: np.ndarray, direction: np.ndarray, old_squared: float) -> float:
    """How much of the direction before is kept."""
    change = new - old
    if update == "polak_ribiere":
        return max(0.0, float(new @ change) / old_squared)
    curve = float(direction @ change)
    if curve <= 0:
        return 0.0
    beta = (float(change @ new) - 2 * float(change @ change) * float(direction @ new) / curve) / curve
    size = math.sqrt(float(direction @ direction))
    return max(beta, -1.0 / (size * min(FLOOR, math.sqrt(old_squared))))
