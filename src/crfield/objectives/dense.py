"""The likelihood of labels under so many steps of mean field, and its gradient.

    value = − Σ_i weight_i · log Σ_{l allowed at i} q_i(l)        q: beliefs after T steps

The steps are part of the model: what is trained is what answers (Domke 2013, *Learning graphical model parameters
with approximate marginal inference*; Krähenbühl & Koltun 2013). The gradient goes through them from the last to the
first. With g the slope in q_t and a = q_t ∘ (g − Σ_l q_t g) that in its scores,

    slope in scores += a      in C_k += a (K_k q_{t−1})ᵀ      in K_k: left C_k a, right q_{t−1}      g ← Σ_k K_kᵀ C_k
    a

Compatibilities may be a number, one for each label, or a table; slopes come in the same form, that of a table as if
all of its entries were free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crfield.inference.dense import Compatibility, DenseField
from crfield.kernels import dense

LEAST = 1e-30  # of a probability whose logarithm is taken


@dataclass(frozen=True, eq=False)
class DenseEvaluation:
    """Value, and slopes in the scores (N, L), in the compatibilities, and whatever ``pull`` made of the kernels."""

    value: float
    scores: np.ndarray
    compatibilities: list[np.ndarray]
    kernels: list[np.ndarray]
    beliefs: np.ndarray


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows of scores to probabilities."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def related(compatibility: Compatibility, rows: np.ndarray) -> np.ndarray:
    """(N, L) C applied to rows; C is symmetric."""
    return rows @ compatibility if np.ndim(compatibility) == 2 else rows * compatibility


def loss_of(beliefs: np.ndarray, allowed: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """The value, and its slope in beliefs (N, L); ``allowed`` (N, L) bool, ``weight`` (N,)."""
    kept = np.maximum((beliefs * allowed).sum(axis=1, dtype=np.float64), LEAST)
    slope = (-(weight / kept)[:, None] * allowed).astype(beliefs.dtype)
    return -float(weight @ np.log(kept)), slope


def unrolled(
    field: DenseField,
    allowed: np.ndarray,
    weight: np.ndarray,
    *,
    steps: int,
    pull: Callable[[int, np.ndarray, np.ndarray], np.ndarray] | None = None,
    n_jobs: int = 1,
) -> DenseEvaluation:
    """Value and slopes of one field; ``pull(k, left, right)`` makes of each kernel what it likes.

    It gets left and right of all steps side by side, (N, T L), as Σ left · (K right) is the sum over the steps.

    >>> near = dense.lattice(np.zeros((1, 2)), "symmetric")
    >>> field = DenseField(np.zeros((2, 2), np.float32), [near], [1.0])
    >>> round(unrolled(field, np.eye(2, dtype=bool), np.ones(2), steps=3).value, 3)
    1.386
    """
    scores = field.scores
    kernels, compatibilities = field.kernels, [np.asarray(c, scores.dtype) for c in field.compatibilities]
    q = [softmax(scores)]
    filtered: list[list[np.ndarray]] = []
    for _ in range(steps):
        filtered.append([dense.apply(kernel, q[-1], n_jobs=n_jobs) for kernel in kernels])
        q.append(softmax(sum((related(c, k) for c, k in zip(compatibilities, filtered[-1])), start=scores)))
    value, g = loss_of(q[-1], allowed, weight)
    in_scores = np.zeros_like(scores)
    slopes = [np.zeros(c.shape) for c in compatibilities]
    lefts: list[list[np.ndarray]] = [[] for _ in kernels]
    for t in range(steps, -1, -1):
        a = q[t] * (g - (q[t] * g).sum(axis=1, keepdims=True))
        in_scores += a
        if not t:
            break
        g = np.zeros_like(scores)
        for number, (kernel, c, k) in enumerate(zip(kernels, compatibilities, filtered[t - 1])):
            if c.ndim == 2:
                slopes[number] += a.T @ k
            else:
                each = np.einsum("nl,nl->l", a, k)
                slopes[number] += each if c.ndim else each.sum()
            left = related(c, a)
            if pull is not None:
                lefts[number].append(left)
            g += dense.apply(kernel, left, reverse=True, n_jobs=n_jobs)
    pulled = []
    if pull is not None and steps:
        right = np.concatenate(q[steps - 1 :: -1], axis=1)
        pulled = [pull(number, np.concatenate(own, axis=1), right) for number, own in enumerate(lefts)]
    return DenseEvaluation(value, in_scores, slopes, pulled, q[-1])
