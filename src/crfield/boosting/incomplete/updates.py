"""The updates of boosting: all weights in parallel, or one after the other.

Both go down a bound on the loss (Collins, Schapire & Singer 2002; Lebanon & Lafferty 2002) and so never raise it,
whatever the step size that a user might have chosen: there is none. What they minimise is decided by the weights W of
the loss (`losses`); with those of *jensen* it is the paper's algorithm 1 to the letter, with those of *mix* it is the
likelihood that the paper states.

    parallel     Δ = root of A⁺ e^{CΔ} − A⁻ e^{−CΔ} + l2 (λ + Δ) for all weights at once, C = max Σ_k |g_k|
    sequential   the same for one weight with all others fixed; C is the largest value of that column only

Steps shrink as 1 / C, so parallel updates are slow where many columns are active at once (C = 36 for words in a
window). Sequential updates do not suffer from it. L-BFGS on the same loss is the default elsewhere for good reason.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.boosting.incomplete.enumerated import EnumeratedLoss
from crfield.boosting.incomplete.losses import cell_weights
from crfield.errors import InputError
from crfield.kernels import incomplete
from crfield.optimize.history import MAX_ITER, TOLERANCE, Result, Step

Callback = Callable[[Step, np.ndarray], Any]


class _Course:
    """The objective pass by pass, and whether it still falls."""

    def __init__(self, tol: float, callback: Callback | None) -> None:
        self.tol, self.callback = tol, callback
        self.steps: list[Step] = []
        self.before = math.inf
        self.began = time.perf_counter()

    def ends(self, value: float, gradient_norm: float, weights: np.ndarray) -> bool:
        """Record one pass; True when it lowered the objective by less than ``tol`` of it."""
        number, seconds = len(self.steps) + 1, time.perf_counter() - self.began
        fall = (self.before - value) / max(abs(value), 1e-300)
        step = Step(number, number, value, gradient_norm, 1.0, int(np.count_nonzero(weights)), seconds, fall)
        self.steps.append(step)
        self.before = value
        if self.callback is not None:
            self.callback(step, weights)
        return fall <= self.tol

    def result(self, weights: np.ndarray, value: float, *, converged: bool) -> Result:
        reason = TOLERANCE if converged else MAX_ITER
        return Result(weights, value, len(self.steps), len(self.steps) + 1, converged, reason, self.steps)


def parallel(
    problem: Any,
    start: np.ndarray,
    *,
    l2: float = 0.0,
    smoothing: float = 1e-10,
    tol: float = 1e-6,
    max_iter: int = 500,
    callback: Callback | None = None,
) -> Result:
    """Parallel updates of an `EnumeratedLoss` or a `FactoredLoss` (algorithm 1 of the paper).

    Stops when a pass lowers loss + ½ l2 |λ|² by no more than ``tol`` of it.

    >>> from crfield.boosting.incomplete.cells import Cells
    >>> cells, labels = Cells.nothing_hidden(3), np.array([0, 1, 1])
    >>> problem = EnumeratedLoss(np.ones((3, 1)), cells, labels, loss="mix", n_labels=2)
    >>> found = parallel(problem, np.zeros(2), tol=1e-15)
    >>> round(float(np.exp(found.weights[1] - found.weights[0])), 6)
    2.0
    """
    _refuse_hcrf(problem)
    weights = np.array(start, dtype=np.float64)
    course = _Course(tol, callback)
    scale = problem.scale
    value, plus, minus = problem.counts(weights)
    value += 0.5 * l2 * float(weights @ weights)
    course.before = value
    if scale == 0:
        return course.result(weights, value, converged=True)
    converged = False
    for _ in range(max_iter):
        weights = weights + incomplete.map_step(plus, minus, weights, scale, l2=l2, smoothing=smoothing)
        value, plus, minus = problem.counts(weights)
        value += 0.5 * l2 * float(weights @ weights)
        if course.ends(value, float(np.linalg.norm(plus - minus + l2 * weights)), weights):
            converged = True
            break
    return course.result(weights, value, converged=converged)


def sequential(
    problem: EnumeratedLoss,
    start: np.ndarray,
    *,
    tight: bool = True,
    l2: float = 0.0,
    smoothing: float = 1e-10,
    tol: float = 1e-6,
    max_iter: int = 500,
    callback: Callback | None = None,
) -> Result:
    """Sequential updates of an `EnumeratedLoss` (algorithm 2): one pass is one step of every weight.

    ``tight=False`` takes the bound as printed in the paper, which counts every datum in every step; with sparse
    columns it hardly moves.

    >>> from crfield.boosting.incomplete.cells import Cells
    >>> cells, labels = Cells.nothing_hidden(3), np.array([0, 1, 1])
    >>> problem = EnumeratedLoss(np.ones((3, 1)), cells, labels, loss="exp", n_labels=2)
    >>> found = sequential(problem, np.zeros(2))
    >>> round(float(np.exp(2 * (found.weights[1] - found.weights[0]))), 6)
    2.0
    """
    _refuse_hcrf(problem)
    weights = np.array(start, dtype=np.float64)
    course = _Course(tol, callback)
    value = problem.value(weights) + 0.5 * l2 * float(weights @ weights)
    course.before = value
    cells = problem.cells
    blocks = [(problem.columns.rows.tocsc(), cells.offsets), (cells.columns.tocsc(), np.arange(cells.n_cells + 1))]
    converged = False
    for _ in range(max_iter):
        # Scores are made afresh each pass, so that rounding does not pile up over thousands of steps.
        scores = np.ascontiguousarray(problem.scores(weights).T)
        heavy = np.ascontiguousarray(
            cell_weights(problem.loss, problem.contrast(weights), cells, problem.weight)[1].T
        )
        for (columns, rows), table in zip(blocks, problem.tables(weights), strict=True):
            if columns.shape[1]:
                incomplete.sweep(
                    columns,
                    rows,
                    cells.offsets,
                    problem.labels,
                    cells.prior,
                    problem.weight,
                    scores,
                    heavy,
                    table,
                    loss=problem.loss,
                    l2=l2,
                    smoothing=smoothing,
                    tight=tight,
                )
        gradient = np.empty(problem.n_weights)
        value = problem.evaluate(weights, gradient) + 0.5 * l2 * float(weights @ weights)
        if course.ends(value, float(np.linalg.norm(gradient + l2 * weights)), weights):
            converged = True
            break
    return course.result(weights, value, converged=converged)


def _refuse_hcrf(problem: Any) -> None:
    if problem.loss == "hcrf":
        raise InputError(
            "the loss 'hcrf' has no counts A⁺ and A⁻, so boosting's updates do not apply to it. Use solver='lbfgs'."
        )
