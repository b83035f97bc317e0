"""Newton's method for rows with one label each, also with an l1 penalty.

Each step writes down the second derivative (`softmax_rows`) and goes to the minimum of the quadratic model, or part
of the way there; with an l1 penalty that minimum is found orthant by orthant, so zeros are exact
(`optimize.dense_newton`, of which every step here is a run of one step with the true matrix). Near the optimum the
number of right digits doubles with each step, which is why expected and observed feature counts agree to rounding
after a few. A step costs N W² for the matrix and W³ for the solution: for hundreds of weights, not for thousands.

Weights without a penalty may have directions in which nothing changes: all intercepts together, a function that does
not look at the class. Such a direction is given the largest curvature that there is (`braced`); since the slope along
it is nothing, no step changes by that, while rounding no longer drives it far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.optimize.dense_newton import minimize_dense
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty

FLAT = 1e-12  # curvature below this share of the largest is rounding
VANISHED = 1e-6
Callback = Callable[[Step, np.ndarray], bool | None]


def fit_newton(
    problem: Any,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-8,
    max_iter: int = 100,
    callback: Callback | None = None,
) -> Result:
    """Minimise F(w) + l1 Σ|w_k| + ½ l2 Σ w_k² until the model promises less than ``tol`` |F|.

    >>> from crfield.training.rows.softmax import ColumnRows
    >>> rows = ColumnRows(np.array([[-1.0], [0.0], [0.5], [1.0]]), np.array([0, 1, 0, 1]), 2, intercept=False)
    >>> found = fit_newton(rows, Penalty(l2=1.0), tol=1e-15)
    >>> found.converged, found.n_iter < 6, round(float(found.weights.sum()), 12) + 0.0
    (True, True, 0.0)
    """
    weights = np.zeros(problem.n_weights) if start is None else start.copy()
    mask = np.ones(len(weights)) if penalty.penalised is None else penalty.penalised.astype(np.float64)
    l1, l2 = penalty.l1 * mask, penalty.l2 * mask
    free = np.flatnonzero((l1 == 0) & (l2 == 0))
    steps: list[Step] = []
    began, evaluations, value, first = time.perf_counter(), 0, math.nan, math.nan
    reason, converged = MAX_ITER, False
    try:
        while len(steps) < max_iter:
            matrix = braced(problem.hessian(weights), free)
            settled = minimize_dense(problem.evaluate, weights, hessian=matrix, l1=l1, l2=l2, gap=tol, max_iter=1)
            evaluations += settled.n_evaluations
            moved = not np.array_equal(settled.weights, weights)
            fall = value - settled.value  # NaN at the first step
            weights, value = settled.weights, settled.value
            first = value if math.isnan(first) else first
            if moved:
                active = int(np.count_nonzero(weights)) if penalty.l1 else len(weights)
                norm, taken = settled.violation, time.perf_counter() - began
                steps.append(Step(len(steps) + 1, evaluations, value, norm, 1.0, active, taken))
                if callback is not None and callback(steps[-1], weights.copy()):
                    reason = CALLBACK
                    break
            # Without a penalty classes that can be told apart have no optimum, and values fall towards nothing.
            if settled.converged or (abs(value) <= VANISHED * abs(first) and fall <= tol * abs(first)):
                reason, converged = TOLERANCE, True
                break
            if not moved:
                reason = NO_IMPROVEMENT
                converged = settled.violation <= 1e-9 * max(1.0, abs(value))
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if math.isnan(value):
        value = _value(problem, weights, l1, l2)
    return Result(weights, value, len(steps), evaluations, converged, reason, steps)


def braced(matrix: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The matrix (W, W) with curvature where the block of the weights ``free`` has none.

    >>> (braced(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.arange(2)).round(12) + 0.0).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    if not len(free):
        return matrix
    block = matrix[np.ix_(free, free)]
    values, vectors = np.linalg.eigh(0.5 * (block + block.T))
    flat = vectors[:, values <= FLAT * max(float(values[-1]), 1e-300)]
    if flat.shape[1]:
        size = float(values[-1]) if values[-1] > 0 else 1.0
        matrix[np.ix_(free, free)] = block + size * (flat @ flat.T)
    return matrix


def _value(problem: Any, weights: np.ndarray, l1: np.ndarray, l2: np.ndarray) -> float:
    loss = problem.evaluate(weights, np.empty_like(weights))
    return float(loss + l1 @ np.abs(weights) + 0.5 * (l2 @ (weights * weights)))
