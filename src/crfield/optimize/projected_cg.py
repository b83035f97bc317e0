"""The l1 penalty as a smooth problem with bounds, by projected conjugate gradients.

    w = w⁺ − w⁻,  w⁺ ≥ 0,  w⁻ ≥ 0:        F = f(w⁺ − w⁻) + l1 Σ (w⁺ + w⁻) + ½ l2 ‖w⁺ − w⁻‖²

|w| is not smooth at zero, where an l1 penalty puts most weights, but w⁺ + w⁻ is, at the price of twice as many
variables that must not be negative (Goodman 2004 for log-linear models; Vail 2008, section 2.4.3, for chains of
activities). A variable that is zero and would go below it is held; conjugate gradients (Polak–Ribière+,
`conjugate_gradient`) run over the others; steps are bent at the bounds: x ← max(0, x + t d), with t shortened until
F falls enough (Bertsekas 1976, *On the Goldstein–Levitin–Polyak gradient projection method*). Where the set of
variables that are held changes, the direction starts again for those that changed. After a step the smaller of w⁺, w⁻
is taken off both, which leaves w alone and lowers F.

This is how l1 was done before OWL-QN, which has the same orthants but a model of the curvature; expect several times
as many evaluations here. Weights that are not penalised have no bounds.
"""

from __future__ import annotations

import math

import numpy as np

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
)
from crfield.optimize.penalty import Penalty
from crfield.optimize.problem import Problem
from crfield.optimize.stopping import Stopping

DECREASE = 1e-4
TRIALS = 30


class _Split:
    """F over x = (w⁺, w⁻); for weights without a penalty w⁺ is free and w⁻ is held at zero."""

    def __init__(self, problem: Problem, penalty: Penalty) -> None:
        self.problem, self.n = problem, int(problem.n_weights)
        mask = np.ones(self.n) if penalty.penalised is None else penalty.penalised.astype(np.float64)
        self.l1, self.l2 = penalty.l1 * mask, penalty.l2 * mask
        bound = (self.l1 > 0).astype(bool)
        self.bounded = np.concatenate([bound, np.ones(self.n, dtype=bool)])
        self.dead = np.concatenate([np.zeros(self.n, dtype=bool), ~bound])
        self.n_evaluations = 0
        self._inner = np.empty(self.n)

    def weights(self, x: np.ndarray) -> np.ndarray:
        """w⁺ − w⁻."""
        return x[: self.n] - x[self.n :]

    def evaluate(self, x: np.ndarray, gradient: np.ndarray) -> float:
        """F at x; its gradient is written to ``gradient`` (2 W,)."""
        self.n_evaluations += 1
        w = self.weights(x)
        value = float(self.problem.evaluate(w, self._inner))
        slope = self._inner + self.l2 * w
        gradient[: self.n] = slope + self.l1
        gradient[self.n :] = self.l1 - slope
        gradient[self.dead] = 0.0
        return value + float(self.l1 @ (x[: self.n] + x[self.n :])) + 0.5 * float(self.l2 @ (w * w))

    def project(self, x: np.ndarray) -> np.ndarray:
        """The nearest point within the bounds, with nothing in both halves."""
        np.maximum(x, 0.0, out=x, where=self.bounded)
        both = np.minimum(x[: self.n], x[self.n :])
        both[~self.bounded[: self.n]] = 0.0
        x[: self.n] -= both
        x[self.n :] -= both
        return x


def minimize_projected_cg(
    problem: Problem,
    start: np.ndarray,
    penalty: Penalty | None = None,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    callback: Callback | None = None,
) -> Result:
    """Minimise f(w) + l1 ‖w‖₁ + ½ l2 ‖w‖² from ``start``; tolerance, callback and result as for OWL-QN.

    >>> class Valley:
    ...     n_weights = 2
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = (weights - [3.0, 0.1]) * [1.0, 50.0]
    ...         return 0.5 * float(gradient @ (weights - [3.0, 0.1])) + 1.0
    >>> minimize_projected_cg(Valley(), np.zeros(2), Penalty(l1=2.0), tol=1e-9).weights.round(4).tolist()
    [1.0, 0.06]
    >>> minimize_projected_cg(Valley(), np.zeros(2), Penalty(l1=6.0)).weights.tolist()
    [0.0, 0.0]
    """
    penalty = Penalty() if penalty is None else penalty
    weights = check_run(int(problem.n_weights), start, penalty, tol=tol, max_iter=max_iter)
    split = _Split(problem, penalty)
    bound = split.bounded[: split.n]
    x = np.concatenate(
        [np.where(bound, np.maximum(weights, 0.0), weights), np.where(bound, np.maximum(-weights, 0.0), 0)]
    )
    gradient, ahead = np.empty_like(x), np.empty_like(x)
    stopping = Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0)
    history, reason = History(tol, callback), MAX_ITER
    value = math.nan
    try:
        value = split.evaluate(x, gradient)
        steepest, square = _free(split, x, gradient)
        check_first(value, square)
        if square == 0:
            history.gap = 0.0
            return history.result(TOLERANCE, split.weights(x), value, n_evaluations=split.n_evaluations)
        direction, size, fresh = steepest.copy(), min(1.0, 1.0 / math.sqrt(square)), True
        while len(history.steps) < max_iter:
            found = _bent_search(split, x, value, gradient, direction, ahead, size)
            if found is None:
                if fresh:
                    reason = NO_IMPROVEMENT
                    break
                direction, size, fresh = steepest.copy(), min(1.0, 1.0 / math.sqrt(square)), True
                continue
            taken, x, value = found
            gradient, ahead = ahead, gradient
            before, before_square, before_slope = steepest, square, float(direction @ steepest)
            steepest, square = _free(split, x, gradient)
            kept = (before != 0) & (steepest != 0)
            beta = max(0.0, float(steepest @ np.where(kept, steepest - before, steepest)) / before_square)
            direction = np.where(kept, beta * direction, 0.0) + steepest
            slope = float(direction @ steepest)
            fresh = not slope > 0
            if fresh:
                direction, slope = steepest.copy(), square
            size = taken * min(max(before_slope / slope, 0.1), 10.0) if slope > 0 else taken
            gap = stopping.update(value, square, -size * slope) if square else 0.0
            w = split.weights(x)
            enough = history.note(
                w,
                value,
                gradient_norm=math.sqrt(square),
                step_size=taken,
                n_evaluations=split.n_evaluations,
                gap=gap,
                n_active=int(np.count_nonzero(w)),
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
        if math.isnan(value):
            value = split.evaluate(x, gradient)
    return history.result(reason, split.weights(x), value, n_evaluations=split.n_evaluations)


def _free(split: _Split, x: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, float]:
    """The way steepest downhill within the bounds, and its squared norm."""
    steepest = -gradient
    steepest[split.bounded & (x <= 0) & (steepest < 0)] = 0.0
    return steepest, float(steepest @ steepest)


def _bent_search(
    split: _Split,
    x: np.ndarray,
    value: float,
    gradient: np.ndarray,
    direction: np.ndarray,
    ahead: np.ndarray,
    size: float,
) -> tuple[float, np.ndarray, float] | None:
    """(t, x, F) with F(x) enough below along the bent path; the gradient there is left in ``ahead``.

    A step that falls as much as its slope promises may be too timid: the secant says how far to go, once.
    """
    grown = False
    for _ in range(TRIALS):
        there = split.project(x + size * direction)
        moved = there - x
        promise = float(gradient @ moved)
        if not promise < 0:
            return None
        new = split.evaluate(there, ahead)
        if math.isfinite(new) and new <= value + DECREASE * promise:
            slope = float(ahead @ moved)
            if not grown and slope < 0.5 * promise:  # still steep: try the secant's step
                longer = size * min(promise / min(promise - slope, 0.1 * promise), 10.0)
                grown = True
                kept = ahead.copy()
                further = split.project(x + longer * direction)
                high = split.evaluate(further, ahead)
                if math.isfinite(high) and high < new and float(gradient @ (further - x)) < 0:
                    return longer, further, high
                ahead[:] = kept
            return size, there, new
        excess = new - value - promise
        guess = -0.5 * promise / excess if math.isfinite(excess) and excess > 0 else 0.1
        size *= min(max(guess, 0.1), 0.5)
        grown = True
    return None
