"""Padded chains to read: the kept steps are packed end to end and handed to the chain's own kernels."""

from __future__ import annotations

import numpy as np

from crfield.kernels.padded import Packed, pack
from crfield.kernels.reference import chain

FINE, SCORE, TAG, IMPOSSIBLE = range(4)


def _trouble(score: np.ndarray, packed: Packed, tags: np.ndarray | None, unknown: int) -> tuple[int, int]:
    """What is wrong with the kept steps, and where."""
    labels, place = score.shape[2], packed.place
    if tags is not None:
        tag = tags.reshape(-1)[place]
        wrong = (tag != unknown) & ((tag < 0) | (tag >= labels))
        if wrong.any():
            return TAG, int(place[np.argmax(wrong)])
    bad = ~(score.reshape(-1, labels)[place] < np.inf)
    if bad.any():
        n, j = np.argwhere(bad)[0].tolist()
        return SCORE, int(place[n]) * labels + j
    return FINE, 0


def padded_sums(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edge: np.ndarray,
    mask: np.ndarray | None,
    tags: np.ndarray | None,
    allowed: np.ndarray | None,
    unknown: int,
    contrast: bool,
    weight: np.ndarray | None,
    total: np.ndarray,
    score_out: np.ndarray,
    edge_out: np.ndarray,
    start_out: np.ndarray,
    end_out: np.ndarray,
    n_jobs: int,
) -> tuple[int, int]:
    """Body of `crfield.kernels.padded.padded_sums`; says what is wrong and where, or (0, 0)."""
    packed = pack(score, start, end, mask, tags, allowed, unknown)
    offsets, node, place = packed.offsets, packed.node, packed.place
    trouble = _trouble(score, packed, tags, unknown)
    if trouble[0] != FINE:
        return trouble
    clamped = np.where(packed.left, node, -np.inf)
    beliefs, pairs = np.empty_like(node), np.zeros((1, *edge.shape))
    chain.sum_product(offsets, clamped, edge[None], total, beliefs, pairs, False, 1, weight)
    if contrast:
        free, all_beliefs, all_pairs = np.empty_like(total), np.empty_like(node), np.zeros_like(pairs)
        chain.sum_product(offsets, node, edge[None], free, all_beliefs, all_pairs, False, 1, weight)
        if np.isneginf(total).any():
            return IMPOSSIBLE, int(np.argmax(np.isneginf(total)))
        total[:] = np.minimum(total - free, 0.0)
        beliefs -= all_beliefs
        pairs -= all_pairs
    score_out[:] = 0.0
    score_out.reshape(-1, score.shape[2])[place] = beliefs
    edge_out[:] = pairs[0]
    filled = np.diff(offsets) > 0
    start_out[:] = beliefs[offsets[:-1][filled]].sum(axis=0)
    end_out[:] = beliefs[offsets[1:][filled] - 1].sum(axis=0)
    return FINE, 0


def padded_best(
    score: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    edge: np.ndarray,
    mask: np.ndarray | None,
    tags: np.ndarray | None,
    allowed: np.ndarray | None,
    unknown: int,
    total: np.ndarray,
    path: np.ndarray,
    n_jobs: int,
) -> tuple[int, int]:
    """Body of `crfield.kernels.padded.padded_best`; says what is wrong and where, or (0, 0)."""
    packed = pack(score, start, end, mask, tags, allowed, unknown)
    offsets, node, place = packed.offsets, packed.node, packed.place
    trouble = _trouble(score, packed, tags, unknown)
    if trouble[0] != FINE:
        return trouble
    found = np.zeros(len(node), np.int32)
    chain.max_product(offsets, np.where(packed.left, node, -np.inf), edge[None], total, found, 1)
    path.reshape(-1)[place] = found
    return FINE, 0
