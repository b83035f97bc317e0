"""The hinge loss by logistic losses that grow sharper.

    Σ_n weight_n max(0, 1 + max_{k ≠ y_n} s_nk − s_{n, y_n}) + ½ l2 ‖w‖²

(Crammer & Singer 2001; for two classes the support vector machine.) It has corners, at which smooth methods stall.
The losses of `softmax_rows` with a cost of 1 lie above it by at most t · log K for each row, so minimising them for
t = 1, ⅓, … ends within Σ weight · t · log K of the optimum: t falls until that is the tolerance asked for, and each
run starts where the last one ended. The result says how close it is, as a dual solver would.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crfield.optimize.history import CALLBACK, INTERRUPTED, TOLERANCE, Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.training.rows.newton import Callback, fit_newton
from crfield.training.rows.softmax import ColumnRows

SHARPER = 1.0 / 3.0
FEW_WEIGHTS = 400


def fit_hinge(
    rows: ColumnRows,
    penalty: Penalty,
    *,
    tol: float = 1e-3,
    max_iter: int = 500,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """Minimise the hinge loss to within about twice the fraction ``tol``; ``value`` is that of the hinge itself.

    ``max_iter`` are the most steps of one temperature. ``rows`` must have a cost; its temperature is changed.

    >>> rows = ColumnRows(np.array([[-2.0], [-1.0], [1.0], [3.0]]), np.array([0, 0, 1, 1]), 2, cost=1.0)
    >>> found = fit_hinge(rows, Penalty(l2=1.0, penalised=rows.penalised), tol=1e-4)
    >>> table, bias = rows.split(found.weights)
    >>> (table[0, 1] - table[0, 0]).round(2), round(found.value, 2)
    (np.float64(1.0), 0.25)
    """
    weights = np.zeros(rows.n_weights)
    rows.temperature, steps, evaluations = 1.0, [], 0
    spread = float(rows.weight.sum()) * math.log(max(rows.n_labels, 2))
    while True:
        if rows.n_weights <= FEW_WEIGHTS:
            found = fit_newton(rows, penalty, start=weights, tol=tol, max_iter=max_iter, callback=callback)
        else:
            found = minimize(
                rows, weights, penalty, memory=50, tol=tol, max_iter=max_iter, n_jobs=n_jobs, callback=callback
            )
        weights, evaluations = found.weights, evaluations + found.n_evaluations
        steps += found.history
        value = hinge_value(rows, weights, penalty)
        gap = spread * rows.temperature
        if found.reason in (INTERRUPTED, CALLBACK):
            return Result(weights, value, len(steps), evaluations, False, found.reason, steps)
        if gap <= tol * max(abs(value), 1e-6 * spread) or rows.temperature < 1e-9:
            return Result(weights, value, len(steps), evaluations, found.converged, found.reason or TOLERANCE, steps)
        rows.temperature *= SHARPER


def hinge_value(rows: Any, weights: np.ndarray, penalty: Penalty) -> float:
    """The hinge objective itself.

    >>> rows = ColumnRows(np.zeros((3, 1)), np.array([0, 1, 1]), 2, cost=1.0)
    >>> hinge_value(rows, np.zeros(4), Penalty())
    3.0
    """
    scores = rows.scores(weights) + rows.cost
    at = np.arange(len(scores))
    scores[at, rows.labels] -= rows.cost
    loss = scores.max(axis=1) - scores[at, rows.labels]
    mask = np.ones(len(weights)) if penalty.penalised is None else penalty.penalised
    return float(loss @ rows.weight + 0.5 * penalty.l2 * (mask @ (weights * weights)))
