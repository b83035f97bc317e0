"""Counting: the Markov chain of labels, from labels that are known.

    p(first = c) ∝ smoothing + weight of the sequences that begin with c
    p(c | b)     ∝ smoothing + weight of the pairs b, c

Steps of unknown label count nowhere, and neither do pairs with one. Every hidden Markov model here begins with these
tables, and so does the reference of the M-estimator. One pass over the labels.
"""

from __future__ import annotations

import numpy as np

from crfield.core.target import Target


def counted(target: Target, *, smoothing: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of first labels (L,), of transitions (L, L), and shares of the labels (L,).

    A row without any count is uniform.

    >>> from crfield.core.topology import Chains
    >>> start, transition, part = counted(Target(Chains.from_lengths([3]), 2, np.array([0, 0, 1])), smoothing=0)
    >>> start.tolist(), transition.tolist(), part.round(3).tolist()
    ([1.0, 0.0], [[0.5, 0.5], [0.5, 0.5]], [0.667, 0.333])
    """
    chains, size, labels = target.topology, target.n_labels, target.labels.astype(np.int64)
    weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
    first = chains.offsets[:-1][chains.lengths > 0]
    first = first[labels[first] >= 0]
    starts = np.bincount(labels[first], weight[chains.sequence_of_node[first]], size)
    before, after = labels[chains.tails], labels[chains.heads]
    both = (before >= 0) & (after >= 0)
    place = before[both] * size + after[both]
    pairs = np.bincount(place, weight[chains.sequence_of_edge[both]], size * size).reshape(size, size)
    known = labels >= 0
    own = np.bincount(labels[known], weight[chains.sequence_of_node[known]], size)
    return shares(starts + smoothing), shares(pairs + smoothing), shares(own)


def shares(counts: np.ndarray) -> np.ndarray:
    """Rows that sum to one; uniform where there is no count.

    >>> shares(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1.0 / counts.shape[-1]))
