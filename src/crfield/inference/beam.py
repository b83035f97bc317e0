"""Beam search with a bound: labels of large label sets without looking at all pairs, and how much that may have cost.

Viterbi looks at L² pairs of labels at every step. A beam goes on from the ``width`` best labels alone, which costs
O(T · width · L), and may lose the best labelling when its beginning looks poor. How much it may have lost is known: a
beginning that was dropped at step t with score d can at best become

    d + Σ_{s > t} max_j [ node_s(j) + max_i edge_{s-1}(i, j) ],

so the score of the answer is within

    bound = max(0, the largest such sum − score of the answer)

of the best score. A bound of 0 proves the answer to be a best one. The maxima of edge tables are taken once for all
sequences where one table serves all.
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.inference.n_best import sequences


def beam_paths(potentials: Potentials, *, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels (N,) int32, scores (B,) and bounds (B,) of every sequence by a beam of ``width`` labels.

    Where everything that the beam kept is forbidden the score is −∞ and the bound +∞: a wider beam may find a way.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> node = np.array([[1.0, 0.9, 0.0], [0.0, 0.0, 0.0]])
    >>> edge = np.array([[[0.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    >>> scores = Potentials(node, edge, Chains.from_lengths([2]))
    >>> path, total, bound = beam_paths(scores, width=1)
    >>> path.tolist(), total.tolist(), bound.round(12).tolist()
    ([0, 0], [1.0], [0.4])
    >>> beam_paths(scores, width=2)[2].tolist()
    [0.0]
    """
    topology = potentials.topology
    path = np.zeros(topology.n_nodes, dtype=np.int32)
    total, bound = np.zeros(topology.n_sequences), np.zeros(topology.n_sequences)
    into = potentials.edge.max(axis=1) if potentials.shared else None  # (1, L), the best way into each label
    for s, (node, edge) in enumerate(sequences(potentials)):
        first = int(topology.offsets[s])
        labels, total[s], bound[s] = _beam(node, edge, width, edge.max(axis=1) if into is None else into)
        path[first : first + len(node)] = labels
    return path, total, bound


def _beam(node: np.ndarray, edge: np.ndarray, width: int, into: np.ndarray) -> tuple[np.ndarray, float, float]:
    steps, labels = node.shape
    if not steps:
        return np.zeros(0, np.int64), 0.0, 0.0
    width = min(width, labels)
    ahead = np.zeros(steps)  # the most that the steps behind t can bring
    if steps > 1:
        ahead[:-1] = np.cumsum((node[1:] + into).max(axis=1)[::-1])[::-1]
    kept: list[np.ndarray] = []
    back: list[np.ndarray] = []
    score, held, dropped = node[0], node[0], -np.inf
    for t in range(steps):
        if t:
            ways = held[:, None] + edge[t - 1][kept[-1]]  # (width, L)
            back.append(ways.argmax(axis=0))
            score = ways[back[-1], np.arange(labels)] + node[t]
        own = np.arange(labels) if t + 1 == steps else np.sort(np.argpartition(-score, width - 1)[:width])
        if len(own) < labels:
            rest = np.delete(score, own)
            dropped = max(dropped, float(rest.max()) + float(ahead[t]))
        kept.append(own)
        held = score[own]
    label = int(np.argmax(score))
    found = float(score[label])
    path = np.zeros(steps, np.int64)
    for t in range(steps - 1, 0, -1):
        path[t] = label
        label = int(kept[t - 1][back[t - 1][label]])
    path[0] = label
    if np.isneginf(found):
        return path, found, np.inf if dropped > -np.inf else 0.0
    return path, found, max(0.0, dropped - found)
