"""Chains that remember more than one label, to read: forward, backward and Viterbi in logarithms, step by step.

    α_0(y) = node_0(y)        α_t(s) = log Σ_{p, y: after(p, y) = s} exp[ α_{t-1}(p) + score(p, y) ] + node_t(y)
    β_{T-1} = 0               β_{t-1}(p) = log Σ_y exp[ score(p, y) + node_t(y) + β_t(after(p, y)) ]

The compiled body does the same in scaled probabilities for eight sequences side by side.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from crfield.kernels.reference import chain as chain_numpy


def sum_product(
    offsets: np.ndarray,
    node: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    factor: np.ndarray,
    total: np.ndarray,
    node_out: np.ndarray,
    uses: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.tuples.sum_product`; outputs begin as zeros."""
    chain_numpy.check_offsets(offsets)
    for s, (first, stop) in enumerate(pairwise(offsets)):
        if stop > first:
            total[s] = _one(node[first:stop], after, label, score, factor[s], node_out[first:stop], uses)


def _one(
    node: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    factor: float,
    node_out: np.ndarray,
    uses: np.ndarray,
) -> float:
    steps, labels = node.shape
    alpha = np.full((steps, len(label)), -np.inf)
    alpha[0, :labels] = node[0]
    total = 0.0
    for t in range(steps):
        if t:
            alpha[t] = _gathered(alpha[t - 1][:, None] + score, after) + node[t][label]
        top = float(alpha[t].max())
        if top == -np.inf:
            return top
        alpha[t] -= top  # relative to the step's best, so that one huge score costs the others no digits
        total += top
    beta = np.zeros(len(label))
    for t in range(steps - 1, -1, -1):
        node_out[t] = np.bincount(label, _shares(alpha[t] + beta), minlength=labels)
        if t:
            ahead = score + (node[t][label] + beta)[after]
            uses += factor * _shares(alpha[t - 1][:, None] + ahead)
            beta = _log_sum(ahead, axis=1)
            beta -= beta.max()
    return total + float(_log_sum(alpha[-1], axis=0))


def _shares(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def _log_sum(x: np.ndarray, *, axis: int) -> np.ndarray:
    top = x.max(axis=axis)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - np.expand_dims(top, axis)).sum(axis=axis)) + top


def _gathered(x: np.ndarray, after: np.ndarray) -> np.ndarray:
    """log Σ exp x over the edges into each state."""
    top = np.full(len(after), -np.inf)
    np.maximum.at(top, after, x)
    shift = np.where(np.isneginf(top), 0.0, top)
    sums = np.zeros(len(after))
    np.add.at(sums, after, np.exp(x - shift[after]))
    with np.errstate(divide="ignore"):
        return np.log(sums) + shift


def max_product(
    offsets: np.ndarray,
    node: np.ndarray,
    after: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    total: np.ndarray,
    path: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.tuples.max_product`; of equal predecessors the first wins."""
    chain_numpy.check_offsets(offsets)
    states, labels = after.shape
    entered = [np.flatnonzero(after.reshape(-1) == s) // labels for s in range(states)]  # states before each
    for s, (first, stop) in enumerate(pairwise(offsets)):
        if stop == first:
            continue
        delta = np.full(states, -np.inf)
        delta[:labels] = node[first]
        came = np.zeros((stop - first, states), np.int64)
        for n in range(first + 1, stop):
            joint, now = delta[:, None] + score, np.full(states, -np.inf)
            for state, before in enumerate(entered):
                if len(before):
                    best = before[np.argmax(joint[before, label[state]])]
                    now[state] = joint[best, label[state]] + node[n, label[state]]
                    came[n - first, state] = best
            delta = now
        state = int(np.argmax(delta))
        total[s] = delta[state]
        for n in range(stop - 1, first - 1, -1):
            path[n] = label[state]
            state = int(came[n - first, state])
