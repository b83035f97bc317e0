"""The virtual-evidence kernels to read: whole arrays of messages at a stroke.

The contract is in `crfield.kernels.virtual`. Exponentials are taken of nodes only; a message is divided out of a
product, for which it must not be zero.
"""

from __future__ import annotations

import numpy as np

FLOOR = 1e-30


def softmax(scores: np.ndarray) -> np.ndarray:
    """(N, L) exp(scores) / Σ exp(scores); a row of −∞ alone becomes zero."""
    top = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))


def advance(
    indptr: np.ndarray,
    other: np.ndarray,
    mate: np.ndarray,
    group: np.ndarray,
    local: np.ndarray,
    total: np.ndarray,
    messages: np.ndarray,
    factors: np.ndarray,
    evidence: np.ndarray,
    arriving: np.ndarray,
    total_out: np.ndarray,
    beliefs: np.ndarray,
    maximise: bool,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.virtual.advance`; ``factors`` are exp of the tables, from ``evidence`` on results."""
    evidence[:] = normalised(softmax(total)[other] / np.maximum(messages[mate], FLOOR))
    for number, factor in enumerate(factors):
        some = group == number
        sent = evidence[some]
        arriving[some] = (sent[:, :, None] * factor).max(axis=1) if maximise else sent @ factor
    arriving[:] = normalised(np.maximum(normalised(arriving), FLOOR))
    total_out[:] = local
    receiver = np.repeat(np.arange(len(local)), np.diff(indptr))
    logs = np.log(arriving)
    for label in range(local.shape[1]):
        total_out[:, label] += np.bincount(receiver, logs[:, label], len(local))
    beliefs[:] = softmax(total_out)


def couple(
    indptr: np.ndarray,
    other: np.ndarray,
    mate: np.ndarray,
    group: np.ndarray,
    evidence: np.ndarray,
    weight: np.ndarray,
    response: np.ndarray,
    moment: np.ndarray,
    mass: np.ndarray,
    square: np.ndarray | None,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.virtual.couple`; the last arrays are the results."""
    receiver = np.repeat(np.arange(len(weight)), np.diff(indptr))
    labels = weight.shape[1]
    for number in range(len(moment)):
        some = group == number
        sent, to = evidence[some], receiver[some]
        count = np.stack([np.bincount(to, sent[:, d], len(weight)) for d in range(labels)], axis=1)
        moment[number] = (weight * response).T @ count
        mass[number] = weight.T @ count
        if square is not None:
            for c in range(labels):
                own, at = weight[:, c, None], weight[to, c, None]
                square[number, c] = (own * count).T @ count - (at * sent).T @ sent


def normalised(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their sums; rows of zeros become equal shares."""
    sums = rows.sum(axis=1, keepdims=True)
    return np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), 1.0 / max(rows.shape[1], 1))
