"""Stochastic gradient steps for rows with one label each, with the noise taken out.

Plain stochastic descent stops well before the optimum, since the noise of its steps does not end. Here an epoch
begins with the whole gradient at a reference point v, and each small batch corrects it:

    g = (N / b) Σ_{n in batch} [∇f_n(w) − ∇f_n(v)] + ∇f(v) + l2 w          w ← shrink(w − step · g, step · l1)

(Johnson & Zhang 2013, *Accelerating stochastic gradient descent using predictive variance reduction*; Xiao & Zhang
2014 for the l1 term, whose zeros are exact.) As w and v approach each other the noise vanishes, so the step may stay
constant and convergence is linear. The step comes from the bound of the batch's second derivative (Gower et al. 2019,
*SGD: general analysis and improved rates*): nothing has to be tuned. Columns of very unequal size make it slow, as
they do any method of first order. An epoch costs three passes over the rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.optimize.dense_newton import subgradient
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.optimize.stopping import Stopping

Callback = Callable[[Step, np.ndarray], bool | None]
ROUNDING = 1e-11  # a gap that values which no longer change cannot tell from none
BATCH = 32
CAUTION = 3.0  # a step is 1 / (CAUTION · bound)


def fit_stochastic(
    problem: Any,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int = 500,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Result:
    """Minimise F(w) + l1 Σ|w_k| + ½ l2 Σ w_k² in at most ``max_iter`` epochs.

    >>> from crfield.training.rows.softmax import ColumnRows
    >>> rows = ColumnRows(np.array([[-1.0], [0.0], [0.5], [1.0]]), np.array([0, 1, 0, 1]), 2, intercept=False)
    >>> found = fit_stochastic(rows, Penalty(l2=1.0), tol=1e-12, rng=np.random.default_rng(0))
    >>> found.converged, round(float(found.weights.sum()), 9) + 0.0
    (True, 0.0)
    """
    weights = np.zeros(problem.n_weights) if start is None else start.copy()
    mask = np.ones(len(weights)) if penalty.penalised is None else penalty.penalised.astype(np.float64)
    l1, l2 = penalty.l1 * mask, penalty.l2 * mask
    rows, size = problem.n_rows, min(BATCH, problem.n_rows)
    whole, worst = problem.steepness()
    share = (rows - size) / (size * max(rows - 1, 1))
    bound = (1.0 - share) * whole + share * worst + penalty.l2
    step = 1.0 / (CAUTION * bound) if bound > 0 else 1.0
    stopping = Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0)
    steps: list[Step | None] = []
    gradient, began = np.empty(len(weights)), time.perf_counter()
    best, least, reason, converged, evaluations = weights.copy(), math.inf, MAX_ITER, False, 0
    try:
        while True:
            loss = problem.evaluate(weights, gradient)
            evaluations += 1
            value = loss + float(l1 @ np.abs(weights)) + 0.5 * float(l2 @ (weights * weights))
            slope = subgradient(weights, gradient + l2 * weights, l1)
            square = float(slope @ slope)
            if value <= least:
                best, least = weights.copy(), value
            gap = 0.0 if square == 0 else stopping.update(value, square, -step * square)
            if steps or square == 0:
                if steps:
                    taken, active = time.perf_counter() - began, int(np.count_nonzero(weights))
                    shown = Step(len(steps), evaluations, value, math.sqrt(square), step, active, taken, gap)
                    steps[-1] = shown
                    if callback is not None and callback(shown, weights.copy()):
                        reason = CALLBACK
                        break
                if gap <= tol or stopping.stalled:
                    converged = gap <= (max(tol, ROUNDING) if stopping.stalled else tol)
                    reason = TOLERANCE if converged else NO_IMPROVEMENT
                    break
            if len(steps) >= max_iter:
                break
            weights = _epoch(problem, weights, gradient, step=step, l1=l1, l2=l2, size=size, rng=rng)
            steps.append(None)
    except KeyboardInterrupt:
        reason = INTERRUPTED
    history = [one for one in steps if one is not None]
    return Result(best, least, len(history), evaluations, converged, reason, history)


def _epoch(
    problem: Any,
    reference: np.ndarray,
    gradient: np.ndarray,
    *,
    step: float,
    l1: np.ndarray,
    l2: np.ndarray,
    size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """The weights after one pass over the rows in random order."""
    weights, rows = reference.copy(), problem.n_rows
    order = rng.permutation(rows)
    for at in range(0, rows, size):
        batch = np.sort(order[at : at + size])
        change = problem.residual(weights, batch) - problem.residual(reference, batch)
        slope = problem.pull(change, batch) * (rows / len(batch)) + gradient + l2 * weights
        moved = weights - step * slope
        weights = np.sign(moved) * np.maximum(np.abs(moved) - step * l1, 0.0) if l1.any() else moved
    return weights
