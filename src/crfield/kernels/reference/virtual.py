"""The virtual-evidence kernel to read: whole arrays of messages at a stroke.

The contract is in `crfield.kernels.virtual`. A message is divided out of a product, for which it must not be zero.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels.probabilities import softmax, working_pairs

FLOOR = 1e-30


class Wires:
    """Who hears whom, with all numbers in range; see `crfield.kernels.virtual.Wiring`."""

    def __init__(self, indptr: np.ndarray, other: np.ndarray, mate: np.ndarray, group: np.ndarray) -> None:
        nodes, messages = len(indptr) - 1, len(other)
        if nodes < 0 or indptr[0] != 0 or indptr[-1] != messages or (np.diff(indptr) < 0).any():
            raise ValueError("indptr must rise from 0 to the messages")
        if not len(other) == len(mate) == len(group):
            raise ValueError("every message needs a sender, a mate and a group")
        for numbers, most in ((other, nodes), (mate, messages), (group, 2**31)):
            if messages and not 0 <= numbers.min() <= numbers.max() < most:
                raise ValueError("a message names a node, a mate or a group that does not exist")
        self.other, self.mate, self.group = other, mate, group
        self.receiver = np.repeat(np.arange(nodes), np.diff(indptr))


def listen(
    wires: Wires,
    local: np.ndarray,
    before: np.ndarray,
    messages: np.ndarray,
    factors: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    held: np.ndarray,
    arriving: np.ndarray,
    beliefs: np.ndarray,
    pairs: np.ndarray,
    loss: np.ndarray,
    moment: np.ndarray,
    mass: np.ndarray,
    square: np.ndarray | None,
    limit: float,
    maximise: bool,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.virtual.listen`; ``factors`` are exp of the tables, from ``arriving`` on results."""
    if len(labels) and not -1 <= labels.min() <= labels.max() < local.shape[1]:
        raise ValueError("a label is out of range")
    group, receiver = wires.group, wires.receiver
    evidence = normalised(before[wires.other] / np.maximum(messages[wires.mate], FLOOR))
    for number, factor in enumerate(factors):
        some = group == number
        sent = evidence[some]
        arriving[some] = (sent[:, :, None] * factor).max(axis=1) if maximise else sent @ factor
    arriving[:] = normalised(np.maximum(normalised(arriving), FLOOR))
    logs = np.log(arriving)
    heard = [np.bincount(receiver, logs[:, label], len(local)) for label in range(local.shape[1])]
    with np.errstate(divide="ignore"):
        beliefs[:] = softmax(np.log(local) + np.stack(heard, axis=1))
    w, moved = working_pairs(beliefs, labels, weight * (held == 0), local > 0, limit)
    first = 1 if len(pairs) < w.shape[1] else 0
    pairs[..., 0], pairs[..., 1] = w[:, first:].T, moved[:, first:].T
    known = np.flatnonzero(labels >= 0)
    costs = -weight[known] * np.log(np.maximum(beliefs[known, labels[known]], 1e-300))
    loss[:] = costs[held[known] == 0].sum(), costs[held[known] != 0].sum()
    couple(receiver, group, evidence, w, moved, moment, mass, square)


def scale(local: np.ndarray, beliefs: np.ndarray, codes: np.ndarray, factors: np.ndarray) -> None:
    """Body of `crfield.kernels.virtual.scale`."""
    if len(codes) and not 0 <= codes.min() <= codes.max() < len(factors):
        raise ValueError("a code is out of range")
    step = factors[codes]
    local *= step
    beliefs *= step


def couple(
    receiver: np.ndarray,
    group: np.ndarray,
    evidence: np.ndarray,
    w: np.ndarray,
    moved: np.ndarray,
    moment: np.ndarray,
    mass: np.ndarray,
    square: np.ndarray | None,
) -> None:
    """Sums of the regression on the neighbours, into the last three."""
    labels = w.shape[1]
    for number in range(len(moment)):
        some = group == number
        sent, to = evidence[some], receiver[some]
        count = np.stack([np.bincount(to, sent[:, d], len(w)) for d in range(labels)], axis=1)
        moment[number] = moved.T @ count
        mass[number] = w.T @ count
        if square is not None:
            for c in range(labels):
                own, at = w[:, c, None], w[to, c, None]
                square[number, c] = (own * count).T @ count - (at * sent).T @ sent


def normalised(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their sums; rows of zeros become equal shares."""
    sums = rows.sum(axis=1, keepdims=True)
    return np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), 1.0 / max(rows.shape[1], 1))
