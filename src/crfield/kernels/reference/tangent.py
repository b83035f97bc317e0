"""The tangent kernel to read: all running chains advanced together."""

from __future__ import annotations

import numpy as np

from crfield.kernels.reference.chain import check_offsets

SMALLEST = 1e-200  # probabilities below it count for nothing, and sums above it have lost nothing that counts


def belief_tangent(
    offsets: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    node_dot: np.ndarray,
    edge_dot: np.ndarray,
    weight: np.ndarray,
    node_out: np.ndarray,
    edge_out: np.ndarray,
    each: bool,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.tangent.belief_tangent`; results go to the last arrays."""
    check_offsets(offsets)
    lengths = np.diff(offsets)
    edges, labels = int(np.maximum(lengths - 1, 0).sum()), node.shape[1]
    if labels < 1 or node.shape != (offsets[-1], labels) or node_dot.shape != node.shape:
        raise ValueError("node marginals and directions do not fit the chains")
    if (
        edge.shape != (edges, labels, labels)
        or len(edge_dot) not in (1, edges)
        or edge_dot.shape[1:] != edge.shape[1:]
    ):
        raise ValueError("edge marginals and directions do not fit the chains")
    if weight.shape != lengths.shape or node_out.shape != node.shape or len(edge_out) != (edges if each else 1):
        raise ValueError("weights or results do not fit the chains")
    order = np.argsort(-lengths, kind="stable")
    first = np.asarray(offsets)[:-1][order]
    first_edge = np.concatenate([[0], np.cumsum(np.maximum(lengths - 1, 0))])[:-1][order]
    counts = [int(np.searchsorted(-lengths[order], -t, side="left")) for t in range(int(lengths.max(initial=0)))]
    inverse = np.divide(1.0, node, out=np.zeros_like(node), where=node > SMALLEST)
    before = np.zeros_like(node)  # a
    for t, count in enumerate(counts):
        rows = first[:count] + t
        now = node_dot[rows].copy()
        if t:
            at = first_edge[:count] + t - 1
            dot = edge_dot[0] if len(edge_dot) == 1 else edge_dot[at]
            now += (edge[at] * (before[rows - 1][:, :, None] + dot)).sum(axis=1) * inverse[rows]
        before[rows] = now - (node[rows] * now).sum(axis=1, keepdims=True)
    after = np.zeros_like(node)  # b
    for t in range(len(counts) - 1, -1, -1):
        rows = first[: counts[t]] + t
        size = weight[order[: counts[t]]]
        both = before[rows] + after[rows]
        both -= (node[rows] * both).sum(axis=1, keepdims=True)
        node_out[rows] = size[:, None] * node[rows] * both
        if t == 0:
            continue
        at = first_edge[: counts[t]] + t - 1
        pairs = edge[at]
        later = (edge_dot[0] if len(edge_dot) == 1 else edge_dot[at]) + (node_dot[rows] + after[rows])[:, None, :]
        passed = (pairs * later).sum(axis=2) * inverse[rows - 1]
        after[rows - 1] = passed - (node[rows - 1] * passed).sum(axis=1, keepdims=True)
        whole = before[rows - 1][:, :, None] + later
        whole -= (pairs * whole).sum(axis=(1, 2), keepdims=True)
        found = size[:, None, None] * pairs * whole
        if each:
            edge_out[at] = found
        else:
            edge_out[0] += found.sum(axis=0)


def pair_marginals(
    offsets: np.ndarray,
    score: np.ndarray,
    table: np.ndarray,
    node: np.ndarray,
    edge_out: np.ndarray,
    hard: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.tangent.pair_marginals`; results go to the last arrays."""
    check_offsets(offsets)
    lengths, labels = np.diff(offsets), node.shape[1]
    fits = labels >= 1 and node.shape == score.shape == (offsets[-1], labels) and table.shape == (labels, labels)
    if not fits or len(edge_out) != np.maximum(lengths - 1, 0).sum():
        raise ValueError("scores and marginals do not fit the chains")
    weights = _exponentials(table.reshape(1, -1)).reshape(labels, labels)
    psi = _exponentials(score)
    first_edge = np.concatenate([[0], np.cumsum(np.maximum(lengths - 1, 0))])
    for s in np.flatnonzero(lengths > 1).tolist():
        begin, at = int(offsets[s]), int(first_edge[s])
        if not node[begin].any():
            edge_out[at : at + lengths[s] - 1] = 0.0
            continue
        alpha = psi[begin]
        for t in range(1, int(lengths[s])):
            total, p = alpha @ weights, node[begin + t]
            ahead = total * psi[begin + t]
            if (total[p > 0] < SMALLEST).any() or not ahead.sum() >= SMALLEST:
                hard[s] = 1
                break
            share = np.divide(p, total, out=np.zeros_like(p), where=p > 0)
            edge_out[at + t - 1] = alpha[:, None] * weights * share
            alpha = ahead / ahead.sum()


def _exponentials(x: np.ndarray) -> np.ndarray:
    """exp(x − max of its row), zero where everything is forbidden."""
    top = x.max(axis=1, keepdims=True, initial=-np.inf)
    return np.exp(x - np.where(np.isneginf(top), 0.0, top))
