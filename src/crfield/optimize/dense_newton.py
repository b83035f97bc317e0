"""A quasi-Newton method with the whole matrix, for few weights that are fitted again and again.

Selection fits a model, adds a weight or two, and fits again, hundreds of times. What one fit learns of the curvature
is what the next one needs, so the matrix B ≈ ∇²f (W, W) is handed from fit to fit: a start with a good B needs a few
evaluations where L-BFGS, which begins every run knowing nothing, needs dozens. For a weight that is new, one more
evaluation gives its row of the matrix exactly (`curvature_row`).

    F(w) = f(w) + Σ l1_k |w_k| + ½ Σ l2_k w_k²

Every step minimises the model gᵀd + ½ dᵀ(B + diag l2)d + Σ l1 |w + d| and goes there, or part of the way (proximal
quasi-Newton: Lee, Sun & Saunders 2014, *Proximal Newton-type methods*). The model is minimised orthant by orthant,
with Newton steps over the weights that are not zero or wish not to be (Andrew & Gao 2007), so zeros are exact. Then
B learns from what it met (BFGS). Where that is not enough, because the curvature changes by orders of magnitude on
the way, the matrix is computed anew once in a while, at one evaluation for each weight. A step costs one evaluation
and O(W³) arithmetic: for hundreds of weights, not more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Evaluate = Callable[[np.ndarray, np.ndarray], float]

DECREASE = 1e-4  # of what the model promises
TRIALS = 20
MODEL_STEPS = 60
FRESH = 12  # steps, and half as many as there are weights, after which the matrix is computed anew
ROUNDING = 1e-13
LEAST = 1e-12  # curvature, as a share of the largest


@dataclass(frozen=True, eq=False)
class Settled:
    """Where a run ended: ``gradient`` of f alone, ``violation`` the largest entry of the shortest subgradient."""

    weights: np.ndarray  # (W,)
    value: float  # F
    loss: float  # f
    gradient: np.ndarray  # (W,)
    hessian: np.ndarray  # (W, W) of f
    violation: float
    n_iter: int
    n_evaluations: int
    converged: bool


def subgradient(weights: np.ndarray, gradient: np.ndarray, l1: np.ndarray) -> np.ndarray:
    """(W,) the shortest subgradient of f + Σ l1 |w|.

    >>> subgradient(np.array([2.0, 0.0, 0.0]), np.array([1.0, 3.0, 0.5]), np.ones(3)).tolist()
    [2.0, 2.0, 0.0]
    """
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(weights != 0, gradient + l1 * np.sign(weights), at_zero)


def curvature_row(evaluate: Evaluate, weights: np.ndarray, gradient: np.ndarray, k: int) -> np.ndarray:
    """(W,) row k of ∇²f at ``weights``, by one difference of gradients."""
    # Small against the width of the steepest valleys, yet the gradient of a long recording is exact enough for it.
    size = 1e-7 * max(1.0, abs(float(weights[k])))
    there, slope = weights.copy(), np.empty_like(weights)
    there[k] += size
    evaluate(there, slope)
    return (slope - gradient) / size


def extended(
    evaluate: Evaluate, weights: np.ndarray, gradient: np.ndarray, known: np.ndarray, place: np.ndarray
) -> np.ndarray:
    """(W, W) a matrix whose rows ``place`` are ``known`` (P, P); the others are computed, one evaluation each.

    A computed row that would make the matrix indefinite, because the known part is only about right, keeps its
    diagonal and loses some of the rest.
    """
    size = len(weights)
    whole = np.zeros((size, size))
    whole[np.ix_(place, place)] = known
    done = place.tolist()
    for k in np.setdiff1d(np.arange(size), place).tolist():
        row = curvature_row(evaluate, weights, gradient, k)
        whole[k, done], whole[done, k] = row[done], row[done]
        whole[k, k] = max(float(row[k]), 1e-8)
        if done:
            inner = whole[np.ix_(done, done)]
            below = float(row[done] @ _solved(inner, row[done]))
            if below > 0.95 * whole[k, k]:
                shrunk = math.sqrt(0.95 * whole[k, k] / below)
                whole[k, done] *= shrunk
                whole[done, k] *= shrunk
        done.append(k)
    return whole


def minimize_dense(
    evaluate: Evaluate,
    start: np.ndarray,
    *,
    hessian: np.ndarray,
    l1: np.ndarray | float = 0.0,
    l2: np.ndarray | float = 0.0,
    gap: float = 1e-6,
    violation: float = 0.0,
    max_iter: int = 100,
    noise: float = 0.0,
) -> Settled:
    """Make F small from ``start`` (W,) with the guess ``hessian`` (W, W) of ∇²f.

    ``evaluate(weights, gradient)`` gives f and overwrites the gradient. It ends when the model promises a decrease of
    at most ``gap`` |F|, when no entry of the shortest subgradient exceeds ``violation``, or after ``max_iter`` steps.
    ``noise`` is the rounding error of f, where it is more than that of a single number: values that differ by less
    are taken for equal.

    >>> def bowl(w, g):
    ...     g[:] = [4 * (w[0] - 1), w[1] - 1]
    ...     return 2 * (w[0] - 1) ** 2 + 0.5 * (w[1] - 1) ** 2
    >>> minimize_dense(bowl, np.zeros(2), hessian=np.eye(2), gap=1e-12).weights.round(6).tolist()
    [1.0, 1.0]
    >>> minimize_dense(bowl, np.zeros(2), hessian=np.eye(2), l1=2.0, gap=1e-12).weights.round(6).tolist()
    [0.5, 0.0]
    """
    weights, matrix = np.array(start, dtype=np.float64), _definite(np.array(hessian, dtype=np.float64))
    size = len(weights)
    l1, l2 = np.broadcast_to(np.asarray(l1, float), (size,)), np.broadcast_to(np.asarray(l2, float), (size,))
    gradient, ahead = np.empty(size), np.empty(size)
    loss = evaluate(weights, gradient)
    n_evaluations, n_iter, since, converged, fallen = 1, 0, 0, False, math.inf

    def whole(loss: float, w: np.ndarray) -> float:
        return loss + float(l1 @ np.abs(w)) + 0.5 * float(l2 @ (w * w))

    value = first = whole(loss, weights)
    steepest = subgradient(weights, gradient + l2 * weights, l1)
    while True:
        worst = float(np.abs(steepest).max(initial=0.0))
        if worst <= violation or worst == 0:
            converged = True
            break
        step, promised = _model_step(weights, gradient + l2 * weights, matrix + np.diag(l2), l1)
        enough = gap * max(abs(value), 1e-6 * abs(first))
        # A matrix that is too steep promises little; what the last step gave is the witness, and a fresh matrix.
        done = violation == 0 and 0.5 * promised <= enough and fallen <= 10 * enough
        if (done and since == 0) or n_iter >= max_iter:
            converged = done
            break
        if done or since >= max(FRESH, size // 2):
            free = np.flatnonzero((weights != 0) | (steepest != 0))
            matrix = _definite(_renewed(evaluate, weights, gradient, matrix, free))
            n_evaluations, since = n_evaluations + len(free), 0
            step, promised = _model_step(weights, gradient + l2 * weights, matrix + np.diag(l2), l1)
            if violation == 0 and 0.5 * promised <= enough and fallen <= 10 * enough:
                converged = True
                break
        n_iter, since = n_iter + 1, since + 1
        length, found = 1.0, False
        for _ in range(TRIALS):
            there = weights + length * step
            new_loss = evaluate(there, ahead)
            n_evaluations += 1
            new_value = whole(new_loss, there)
            usable = math.isfinite(new_value) and bool(np.isfinite(ahead).all())
            if usable and new_value <= value - DECREASE * length * promised:
                found = True
                break
            if usable and new_value <= value + max(noise, ROUNDING * abs(value)):
                # Values no longer tell the points apart, but slopes do (Hager & Zhang 2005).
                slope = ahead + l2 * there
                if slope_along(there, slope, step, l1) <= (1 - 2 * DECREASE) * promised:
                    found = True
                    break
            excess = new_value - value + length * promised
            guess = 0.5 * promised * length / excess if math.isfinite(excess) and excess > 0 else 0.1
            length *= min(max(guess, 0.1), 0.5)
        if not found:
            break
        matrix = learnt(matrix, there - weights, ahead - gradient)
        weights, loss, value, fallen = there, new_loss, new_value, value - new_value
        gradient, ahead = ahead, gradient
        steepest = subgradient(weights, gradient + l2 * weights, l1)
    return Settled(weights, value, loss, gradient.copy(), matrix, worst, n_iter, n_evaluations, converged)


def _renewed(
    evaluate: Evaluate, weights: np.ndarray, gradient: np.ndarray, matrix: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """The matrix with the block of the free weights computed again."""
    block = np.array([curvature_row(evaluate, weights, gradient, int(k))[free] for k in free])
    known = matrix.copy()
    known[np.ix_(free, free)] = 0.5 * (block + block.T)
    # What is left of the old rows may not fit the new ones; those weights are at zero and stay out of it.
    others = np.setdiff1d(np.arange(len(weights)), free)
    known[np.ix_(others, free)] = known[np.ix_(free, others)] = 0.0
    return known


def _definite(matrix: np.ndarray) -> np.ndarray:
    """The matrix if it is positive definite; otherwise what is left of it when negative curvature is cut off.

    Rows found by differences have rounding errors, which flat directions show as slight bends downwards: a model
    that follows them has no minimum.

    >>> _definite(np.array([[2.0, 0.0], [0.0, -1e-9]])).round(12).tolist()
    [[2.0, 0.0], [0.0, 2e-12]]
    """
    try:
        np.linalg.cholesky(matrix)
        return matrix
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        cut = np.maximum(values, max(LEAST * float(values[-1]), 1e-300))
        return np.asarray((vectors * cut) @ vectors.T)


def slope_along(weights: np.ndarray, gradient: np.ndarray, step: np.ndarray, l1: np.ndarray) -> float:
    """The one-sided derivative of the objective along a step."""
    return float(gradient @ step + l1 @ np.where(weights != 0, np.sign(weights) * step, np.abs(step)))


def learnt(matrix: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """BFGS: the nearest matrix that maps the step to the change of the gradient."""
    bent = matrix @ step
    curve, known = float(step @ change), float(step @ bent)
    if curve <= 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)) or known <= 0:
        return matrix
    return matrix + np.outer(change, change / curve) - np.outer(bent, bent / known)


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix⁻¹ right, with a diagonal raised until the matrix is positive definite."""
    from scipy.linalg import cho_factor, cho_solve

    raised = 1e-12 * max(float(np.trace(matrix)) / len(matrix), 1e-300)
    for _ in range(30):
        try:
            factor = cho_factor(matrix + raised * np.eye(len(matrix)), check_finite=False)
        except np.linalg.LinAlgError:
            raised *= 10.0
            continue
        return cho_solve(factor, right, check_finite=False)
    return right / np.maximum(np.diag(matrix), 1e-12)


def _model_step(
    weights: np.ndarray, gradient: np.ndarray, matrix: np.ndarray, l1: np.ndarray
) -> tuple[np.ndarray, float]:
    """The step that minimises gᵀd + ½ dᵀMd + Σ l1 |w + d|, and −gᵀd − Σ l1 (|w + d| − |w|), which it promises."""
    if not l1.any():
        step = -_solved(matrix, gradient)
        return step, float(-gradient @ step)
    here = weights.copy()
    slope = gradient.copy()
    enough = 1e-3 * float(np.abs(subgradient(weights, gradient, l1)).max())
    low, above = 0.0, np.maximum(np.abs(matrix).sum(axis=1), 1e-300)
    for _ in range(MODEL_STEPS):
        steepest = subgradient(here, slope, l1)
        if float(np.abs(steepest).max()) <= enough:
            break
        orthant = np.where((here != 0) | (l1 == 0), np.sign(here), -np.sign(steepest))
        free = (here != 0) | (steepest != 0)
        move = np.zeros_like(here)
        for _ in range(5):
            at = np.flatnonzero(free)
            move[:] = 0.0
            move[at] = -_solved(matrix[np.ix_(at, at)], steepest[at])
            wrong = free & (here == 0) & (l1 > 0) & (move * orthant < 0)
            if not wrong.any():
                break
            free &= ~wrong
        else:
            move[wrong] = 0.0
        length, moved = 1.0, False
        for _ in range(TRIALS):
            there = here + length * move
            crossed = (l1 > 0) & (there * orthant <= 0) & ((here != 0) | (move != 0))
            there[crossed] = 0.0
            gone = there - weights
            curved = matrix @ gone
            value = float(gradient @ gone + 0.5 * gone @ curved + l1 @ grown(weights, gone))
            # A whole Newton step within the orthant is the minimum there, also where rounding hides the decrease.
            hidden = length == 1.0 and not crossed.any() and value <= low + 1e-9 * abs(low)
            if value < low or hidden:
                moved = True
                break
            length *= 0.5
        if not moved:
            # Cut off at the orthant, no part of the step may help; one with a diagonal above the matrix does.
            raw = here - slope / above
            there = np.sign(raw) * np.maximum(np.abs(raw) - l1 / above, 0.0)
            gone = there - weights
            curved = matrix @ gone
            value = float(gradient @ gone + 0.5 * gone @ curved + l1 @ grown(weights, gone))
            if value >= low:
                break
        here, slope, low = there, gradient + curved, value
    step = here - weights
    return step, float(-gradient @ step - l1 @ grown(weights, step))


def grown(weights: np.ndarray, step: np.ndarray) -> np.ndarray:
    """|w + d| − |w|, to the last digit where the sign stays."""
    there = weights + step
    return np.where(weights * there > 0, np.sign(weights) * step, np.abs(there) - np.abs(weights))
