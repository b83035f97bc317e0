"""Sums and shares of exponentials, and the Newton step of a logistic loss, as formulas over whole NumPy arrays.

Both the readable bodies and the callers of kernels use them, so they belong to no body: there is nothing to compile
where one call does all the work.
"""

from __future__ import annotations

import numpy as np

LEAST_WEIGHT = 1e-6


def log_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """log Σ exp x along an axis, −∞ where everything is −∞.

    >>> log_sum(np.array([[0.0, 0.0], [-np.inf, -np.inf]]), axis=1).round(6).tolist()
    [0.693147, -inf]
    """
    top = x.max(axis=axis, keepdims=True)
    shift = np.where(top == -np.inf, 0.0, top)
    powers = x - shift
    with np.errstate(divide="ignore"):
        out: np.ndarray = np.log(np.exp(powers, out=powers).sum(axis=axis)) + shift.squeeze(axis=axis)
    return out


def softmax(scores: np.ndarray) -> np.ndarray:
    """(N, L) exp(scores) / Σ exp(scores); a row of −∞ alone becomes zero.

    >>> softmax(np.array([[0.0, np.log(3.0)], [-np.inf, -np.inf]])).round(6).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    top = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))


def working_pairs(
    beliefs: np.ndarray, labels: np.ndarray, weight: np.ndarray, possible: np.ndarray, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """(N, L) w and w z; 0 for unknown labels and for labels that a node does not have."""
    curvature = np.maximum(beliefs * (1.0 - beliefs), LEAST_WEIGHT)
    truth = labels[:, None] == np.arange(beliefs.shape[1])
    response = np.clip((truth - beliefs) / curvature, -limit, limit)
    w = np.where(possible & (labels >= 0)[:, None], weight[:, None] * curvature, 0.0)
    return w, w * response
