"""The chain kernels to read: plain logs, all running sequences advanced together.

    α_0 = node_0        α_t(j) = log Σ_i exp(α_{t-1}(i) + edge_t(i, j)) + node_t(j)
    β_{T-1} = 0         β_{t-1}(i) = log Σ_j exp(edge_t(i, j) + node_t(j) + β_t(j))
    p(y_t = j) ∝ exp(α_t(j) + β_t(j))
    p(y_{t-1} = i, y_t = j) ∝ exp(α_{t-1}(i) + edge_t(i, j) + node_t(j) + β_t(j))

Both messages are shifted to a maximum of zero at every step, the shifts of α adding up to log Z, and marginals
are normalised where they stand: so hundred thousands of steps with scores of any size lose no digits. The
compiled body gets the same answers in probabilities, see ``native/chain/sweep.cpp`` for when that is allowed.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels.probabilities import log_sum


def _normalised(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """exp(x) / Σ exp(x) over the axes, zero where everything is −∞."""
    top = x.max(axis=axes, keepdims=True)
    y = x - np.where(top == -np.inf, 0.0, top)
    np.exp(y, out=y)
    total = y.sum(axis=axes, keepdims=True)
    return np.divide(y, total, out=np.zeros_like(y), where=total > 0)


def check_chains(offsets: np.ndarray, node: np.ndarray, edge: np.ndarray) -> None:
    """Refuse offsets, node scores (N, L) and edge scores (1 | E, L, L) that do not fit each other."""
    check_offsets(offsets)
    labels = node.shape[1]
    if len(node) != offsets[-1] or labels < 1:
        raise ValueError("node scores do not fit")
    if edge.shape[1:] != (labels, labels):
        raise ValueError("edge scores do not fit the labels")
    if len(edge) not in (1, np.maximum(np.diff(offsets) - 1, 0).sum()):
        raise ValueError("edge scores do not fit the edges")


def check_offsets(offsets: np.ndarray) -> None:
    """Refuse offsets that do not start at 0 or that fall."""
    if len(offsets) < 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must start at 0 and not fall")


def check_rows(indptr: np.ndarray, indices: np.ndarray, rows: int, columns: int) -> None:
    """Refuse sparse rows that point outside themselves or to columns that do not exist."""
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError("indptr does not fit the rows, or falls")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise ValueError("a column index is out of range")


def _running(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Sequences from long to short, their first nodes, and how many still run at each step."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    longest = int(lengths.max(initial=0))
    counts = np.searchsorted(-lengths[order], -np.arange(longest), side="left")
    return order, np.asarray(offsets)[order], [int(c) for c in counts]


def _edges_of(edge: np.ndarray, first_edge: np.ndarray, step: int, count: int) -> np.ndarray:
    """(count | 1, L, L) tables of the edges into this step."""
    return edge if len(edge) == 1 else edge[first_edge[:count] + step - 1]


def sum_product(
    offsets: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    node_out: np.ndarray,
    edge_out: np.ndarray,
    each: bool,
    n_jobs: int,
    weight: np.ndarray | None = None,
) -> None:
    """Body of `crfield.kernels.chain.sum_product`; results go to the last arrays before ``each``."""
    check_chains(offsets, node, edge)
    if weight is None:
        weight = np.ones(len(total))
    if weight.shape != total.shape:
        raise ValueError("weight does not fit the sequences")
    order, first, running = _running(offsets)
    first_edge = (np.concatenate([[0], np.cumsum(np.maximum(np.diff(offsets) - 1, 0))]))[order]
    alpha = np.empty_like(node)
    total[:] = 0.0
    parts: list[np.ndarray] = []  # shifts of α, summed exactly below: they may be large and many
    for t, count in enumerate(running):
        rows = first[:count] + t
        if t == 0:
            a = node[rows]
        else:
            a = log_sum(alpha[rows - 1][:, :, None] + _edges_of(edge, first_edge, t, count), axis=1) + node[rows]
        top = a.max(axis=1)
        parts.append(top)
        alpha[rows] = a - np.where(top == -np.inf, 0.0, top)[:, None]
    last = first + np.diff(offsets)[order] - 1
    ends = log_sum(alpha[last], axis=1) if len(last) else np.zeros(0)
    total[order] = _exact_sums(parts, len(order)) + ends

    beta = np.zeros_like(node)
    edge_out[:] = 0.0
    for t in range(len(running) - 1, 0, -1):
        count = running[t]
        rows = first[:count] + t
        table = _edges_of(edge, first_edge, t, count)
        later = table + (node[rows] + beta[rows])[:, None, :]  # (count, L, L)
        b = log_sum(later, axis=2)
        top = b.max(axis=1, keepdims=True)
        beta[rows - 1] = b - np.where(top == -np.inf, 0.0, top)
        pairs = _normalised(alpha[rows - 1][:, :, None] + later, axes=(1, 2)) * weight[order[:count], None, None]
        if each:
            edge_out[first_edge[:count] + t - 1] = pairs
        else:
            edge_out[0] += pairs.sum(axis=0)
    node_out[:] = _normalised(alpha + beta, axes=(1,)) * np.repeat(weight, np.diff(offsets))[:, None]


def _exact_sums(parts: list[np.ndarray], width: int) -> np.ndarray:
    """Compensated sums (Neumaier 1974) down the ragged list of shifts."""
    total, rest = np.zeros(width), np.zeros(width)
    for part in parts:
        n = len(part)
        with np.errstate(invalid="ignore"):
            new = total[:n] + part
            swap = np.abs(total[:n]) >= np.abs(part)
            rest[:n] += np.where(swap, (total[:n] - new) + part, (part - new) + total[:n])
        total[:n] = new
    return np.where(np.isneginf(total), -np.inf, total + np.where(np.isneginf(total), 0.0, rest))


def max_product(
    offsets: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    path: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.chain.max_product`; results go to the last arrays.

    δ_t(j) = max_i [δ_{t-1}(i) + edge_t(i, j)] + node_t(j), shifted to a maximum of zero at every step.
    """
    check_chains(offsets, node, edge)
    order, first, running = _running(offsets)
    first_edge = (np.concatenate([[0], np.cumsum(np.maximum(np.diff(offsets) - 1, 0))]))[order]
    best = np.empty_like(node)
    back = np.zeros(node.shape, dtype=np.int32)
    total[:] = 0.0
    for t, count in enumerate(running):
        rows = first[:count] + t
        now = node[rows]
        if t:
            choices = best[rows - 1][:, :, None] + _edges_of(edge, first_edge, t, count)
            back[rows] = choices.argmax(axis=1)
            now = now + choices.max(axis=1)
        top = now.max(axis=1)
        total[order[:count]] += top
        best[rows] = now - np.where(top == -np.inf, 0.0, top)[:, None]
    for t in range(len(running) - 1, -1, -1):
        count = running[t]
        later = running[t + 1] if t + 1 < len(running) else 0
        rows = first[:count] + t
        path[rows[later:]] = np.argmax(best[rows[later:]], axis=1)
        path[rows[:later]] = back[rows[:later] + 1, path[rows[:later] + 1]]
