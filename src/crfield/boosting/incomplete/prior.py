"""q₀(h | x): what is believed of the hidden part before a label is seen.

A constant prior says that every value is as likely as any other. That is not modest: data with h hidden then say that
h does not matter, and pull the weights of its columns towards zero. Where h is known for part of the data, a
classifier of h given x, trained on that part, says more: it keeps those weights alive and lets hidden data teach
them.

    value, attributes   multinomial logistic regression of each attribute on the columns
    chain               the same for each place, times link(s, t) = p(s, t) / p(s) p(t) of neighbouring tags, counted
                        with one added to each pair: a Markov chain where the columns say nothing
    bag                 π_j = (foreground of word j + ½) / (points of word j + 1)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import Enumerated, EnumeratedLoss
from crfield.errors import InputError, ShapeError
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty


def learn_values(columns: Any, codes: np.ndarray, n_values: int, *, l2: float = 1.0, tol: float = 1e-4) -> np.ndarray:
    """Weights (D, H) of logistic regression of codes (N,) on columns (N, D), by the data whose code is not −1.

    >>> weights = learn_values(np.array([[1.0], [1.0], [1.0]]), np.array([0, 0, 1]), 2, l2=1e-9, tol=1e-9)
    >>> believed(weights, np.ones((1, 1))).round(3).tolist()
    [[0.667, 0.333]]
    """
    known = np.flatnonzero(codes >= 0)
    if not len(known):
        raise InputError(
            "prior='learnt' learns what is hidden from data in which it is known, and hidden gives none. Use "
            "prior='constant', or give a prior."
        )
    problem = EnumeratedLoss(
        columns[known], Cells.nothing_hidden(len(known)), codes[known], loss="mix", n_labels=n_values
    )
    result = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=l2), tol=tol)
    return result.weights.reshape(-1, n_values)


def believed(weights: np.ndarray, columns: Any) -> np.ndarray:
    """(N, H) probabilities of the values of h, softmax of columns · weights."""
    n_values = weights.shape[1]
    model = Enumerated(columns, Cells.nothing_hidden(columns.shape[0]), n_labels=n_values)
    return np.ascontiguousarray(model.mixture(np.ascontiguousarray(weights).ravel()))


def learn_links(codes: np.ndarray, n_tags: int) -> np.ndarray:
    """(S, S) log p(s, t) − log p(s) − log p(t) of neighbouring known tags in windows of codes (N, T).

    >>> learn_links(np.zeros((5, 1), int), 2).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    before, after = codes[:, :-1].ravel(), codes[:, 1:].ravel()
    both = (before >= 0) & (after >= 0)
    pairs = np.bincount(before[both] * n_tags + after[both], minlength=n_tags**2).reshape(n_tags, n_tags) + 1.0
    pairs /= pairs.sum()
    return np.log(pairs) - np.log(pairs.sum(axis=1))[:, None] - np.log(pairs.sum(axis=0))


def learn_foreground(counts: Any, foreground: np.ndarray) -> np.ndarray:
    """(K,) π from the entries of counts (N, K) whose foreground (nnz,) is known.

    >>> import scipy.sparse as sp
    >>> learn_foreground(sp.csr_array([[3.0, 1.0]]), np.array([3.0, np.nan])).tolist()
    [0.875, 0.5]
    """
    known = ~np.isnan(foreground)
    if not known.any():
        raise InputError(
            "prior='learnt' learns the foreground from images in which it is known, and hidden gives none. Use "
            "prior='constant', or give a prior."
        )
    words = counts.shape[1]
    on = np.bincount(counts.indices[known], foreground[known], words)
    return (on + 0.5) / (np.bincount(counts.indices[known], counts.data[known], words) + 1.0)


def check_beliefs(given: Any, shape: tuple[int, ...], *, what: str = "prior") -> np.ndarray:
    """Beliefs as an array of ``shape``, rows of the last axis normalised; leading axes may be left out.

    >>> check_beliefs([1.0, 3.0], (2, 2)).tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """
    try:
        found = np.asarray(given, dtype=np.float64)
        found = np.broadcast_to(found, shape)
    except (TypeError, ValueError):
        got = getattr(given, "shape", type(given).__name__)
        raise ShapeError(f"{what} must be numbers of shape {shape}, or its last axes only, got {got}.") from None
    if not np.isfinite(found).all() or (found < 0).any():
        raise InputError(f"{what} must hold finite numbers ≥ 0.")
    total = found.sum(axis=-1, keepdims=True)
    if (total <= 0).any():
        raise InputError(f"{what} must give some value a positive probability in every row; a row is all zeros.")
    return found / total
