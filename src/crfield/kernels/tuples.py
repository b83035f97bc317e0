"""Contract of the kernels for chains that remember more than one label.

What is remembered of the labels so far is a state. There are S of them, the first L of which remember one label each
and are those of a first step; ``label`` (S,) is the last label a state remembers. From state p the label y leads to
the state ``after[p, y]`` (whose last label is y) with the score ``score[p, y]``, finite or −∞:

    score(y | x) = Σ_t node_t(y_t) + Σ_{t>0} score(p_{t-1}, y_t)        p_0 = y_0,  p_t = after(p_{t-1}, y_t)

So a labelling has one path of states, every labelling has one, and S · L numbers tell all edges. ``offsets`` (B + 1,)
are those of sequences lying end to end, ``node`` (N, L) scores of labels. Cost: O(N S L) time; beliefs come back in
the shapes of the scores.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice


def sum_product(
    offsets: np.ndarray,
    node: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Z (B,), the probabilities (N, L) of labels, and the expected uses (S, L) of every edge.

    Uses are summed over the batch, each sequence times its ``weight`` (B,). A sequence in which every labelling is
    forbidden has the total −∞ and beliefs of zero.

    >>> import numpy as np
    >>> after, label = np.array([[0, 1], [0, 1]]), np.array([0, 1])
    >>> node = np.log([[1.0, 3.0], [1.0, 1.0]])
    >>> total, p, uses = sum_product(np.array([0, 2]), node, after, label, np.zeros((2, 2)))
    >>> float(np.exp(total[0]).round(12)), p.round(12).tolist(), uses.round(12).tolist()
    (8.0, [[0.25, 0.75], [0.5, 0.5]], [[0.125, 0.125], [0.375, 0.375]])
    """
    offsets, node, after, label, score = _checked(offsets, node, after, label, score)
    sequences = len(offsets) - 1
    factor = np.ones(sequences) if weight is None else np.ascontiguousarray(weight, np.float64)
    if factor.shape != (sequences,) or not np.isfinite(factor).all():
        raise ShapeError(f"weight must be one finite number for each of {sequences} sequences, got {factor.shape}.")
    total, node_out, uses = np.zeros(sequences), np.zeros_like(node), np.zeros_like(score)
    body = choice.body("tuples")
    body.sum_product(offsets, node, after, label, score, factor, total, node_out, uses, max(1, int(n_jobs)))
    return total, node_out, uses


def max_product(
    offsets: np.ndarray,
    node: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    *,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Score (B,) and labels (N,) of the best labelling of every sequence.

    >>> import numpy as np
    >>> after, label = np.array([[0, 1], [0, 1]]), np.array([0, 1])
    >>> score = np.array([[0.0, 5.0], [0.0, 0.0]])
    >>> max_product(np.array([0, 2]), np.array([[1.0, 3.0], [1.0, 1.0]]), after, label, score)
    (array([7.]), array([0, 1], dtype=int32))
    """
    offsets, node, after, label, score = _checked(offsets, node, after, label, score)
    total, path = np.zeros(len(offsets) - 1), np.zeros(len(node), np.int32)
    choice.body("tuples").max_product(offsets, node, after, label, score, total, path, max(1, int(n_jobs)))
    return total, path


def _checked(
    offsets: np.ndarray, node: np.ndarray, after: np.ndarray, label: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.ascontiguousarray(offsets, np.int64)
    node, score = np.ascontiguousarray(node, np.float64), np.ascontiguousarray(score, np.float64)
    after, label = np.ascontiguousarray(after, np.int32), np.ascontiguousarray(label, np.int32)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ShapeError("offsets must be (B + 1,) and rise from 0.")
    if node.ndim != 2 or node.shape[1] < 1 or len(node) != offsets[-1]:
        raise ShapeError(f"node scores must be ({offsets[-1]}, L), got {node.shape}.")
    labels, states = node.shape[1], len(label)
    if label.ndim != 1 or after.shape != (states, labels) or score.shape != after.shape or states < labels:
        raise ShapeError(
            f"after and score must be (S, {labels}) and label (S,) with S ≥ {labels}, got {after.shape}, "
            f"{score.shape} and {label.shape}."
        )
    if after.min() < 0 or after.max() >= states or (label[after] != np.arange(labels)).any():
        raise InputError("after must name states, and the state after a label must remember it last.")
    if (label[:labels] != np.arange(labels)).any():
        raise InputError("the first states must be those of single labels, in their order.")
    for name, scores in (("node", node), ("edge", score)):
        if scores.size and not scores.max() < np.inf:
            raise InputError(f"{name} scores must be finite or -inf (forbidden), got NaN or +inf.")
    return offsets, node, after, label, score
