"""Import vectors: the few training rows that a kernel logistic regression needs.

The representer theorem gives every training row a coefficient and, unlike the hinge loss, the logistic loss makes
none of them zero. Import vectors are chosen one after the other, each the row that lowers the penalised loss most,
until another would lower it by no more than a small fraction (Zhu & Hastie 2005, *Kernel logistic regression and the
import vector machine*; 2002 for a short form). Their number hardly depends on that of the rows.

Candidates are compared by the decrease that a Newton step along their own new direction promises. What is new in a
candidate is its kernel column less its part in the span of those chosen (the Gram–Schmidt process in the kernel's
space, kept up to date for all candidates at once), divided by its length:

    u = (k(·, c) − Π k(·, c)) / ‖…‖
    promise(c) = ½ Σ_k (Σ_n r_nk u_n)² / (Σ_n weight_n p_nk (1 − p_nk) u_n² + l2)

A round costs N · M for M candidates, and a fit of the model so far, from its last weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crfield.optimize.penalty import Penalty
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows

FLAT = 1e-8  # a candidate with less than this share of its square outside the span brings nothing new
ROUND_STEPS = 4  # Newton steps between two choices


@dataclass(frozen=True, eq=False)
class Imports:
    """Chosen candidates in their order, and the penalised loss after each."""

    chosen: np.ndarray  # (Q,) places among the candidates
    losses: list[float]


def select_imports(
    gram: np.ndarray,
    own: np.ndarray,
    candidates: np.ndarray,
    labels: np.ndarray,
    n_labels: int,
    *,
    weight: np.ndarray | None,
    l2: float,
    intercept: bool,
    most: int,
    least_gain: float,
    progress: Callable[[int, float], None] | None = None,
) -> Imports:
    """Choose among candidates, rows ``candidates`` (M,) of N, with kernel columns ``gram`` (N, M) and k(c, c) (M,).

    >>> x = np.linspace(-2, 2, 41)
    >>> gram = np.exp(-((x[:, None] - x) ** 2))
    >>> found = select_imports(gram, np.ones(41), np.arange(41), (np.abs(x) > 1).astype(int), 2, weight=None, l2=0.1,
    ...     intercept=True, most=10, least_gain=1e-2)
    >>> len(found.chosen) < 8, found.losses[-1] < 0.5 * found.losses[0]
    (True, True)
    """
    left, size, columns = gram.copy(), own.copy(), np.zeros((len(gram), 0))
    rows = ColumnRows(columns, labels, n_labels, weight=weight, intercept=intercept)
    weights = np.zeros(rows.n_weights)
    chosen: list[int] = []
    losses: list[float] = []
    while True:
        penalty = Penalty(l2=l2, penalised=rows.penalised.astype(np.uint8))
        found = fit_newton(rows, penalty, start=weights, tol=1e-6, max_iter=ROUND_STEPS)
        weights = found.weights
        losses.append(float(found.value))
        if progress is not None:
            progress(len(chosen), losses[-1])
        small = len(losses) > 1 and losses[-2] - losses[-1] <= least_gain * abs(losses[-1])
        open_ones = size > FLAT * np.maximum(own, 1e-300)
        if small or len(chosen) >= most or not open_ones.any():
            break
        table, _ = rows.probabilities(weights)
        residual = rows.residual(weights)
        curve = table * (1.0 - table) * rows.weight[:, None]
        slope = left.T @ residual
        bend = (left * left).T @ curve + l2 * np.maximum(size, 0.0)[:, None]
        promise = np.where(open_ones, 0.5 * (slope * slope / np.maximum(bend, 1e-300)).sum(axis=1), -1.0)
        best = int(promise.argmax())
        if promise[best] <= 0:
            break
        column = left[:, best] / np.sqrt(size[best])
        part = column[candidates]
        left -= column[:, None] * part
        size = size - part * part
        size[best] = 0.0
        chosen.append(best)
        columns = np.column_stack([columns, column])
        inner = (columns.shape[1] - 1) * n_labels
        weights = np.concatenate([weights[:inner], np.zeros(n_labels), weights[inner:]])
        rows = ColumnRows(columns, labels, n_labels, weight=weight, intercept=intercept)
    return Imports(np.array(chosen, dtype=np.int64), losses)
