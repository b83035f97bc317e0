"""The n best labellings of a chain, exact and in order, as many as one asks for.

Viterbi's forward pass leaves for every step t and label j the score of the best beginning that ends there,

    best_t(j) = node_t(j) + max_i [ best_{t-1}(i) + edge_{t-1}(i, j) ],

so the best completion of any *end* of a labelling y_s … y_T is known at once: best_{s-1}(j) + edge(j, y_s) + the
score of the end. The labellings other than the best one fall apart into disjoint sets, by the last step at which they
differ from it; the best of each set is one maximum over labels, and the second best labelling is the best of these.
Its own set, without it, is split the same way (Lawler 1972; for chains, Soong & Huang 1991). A heap holds the best of
every set: each labelling costs one pass over its steps and labels, O(T L), after the O(T L²) of Viterbi, and nothing
must be said beforehand about how many will be wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice

import numpy as np

from crfield.core.potentials import Potentials


def n_best_paths(potentials: Potentials, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of every sequence the ``n`` best labellings (k, T) int32 and their scores (k,), best first.

    There are fewer where there are no more labellings, or where the rest is forbidden; an empty sequence has one,
    of no steps. Ties come in an order that depends on nothing but the scores.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.array([[2.0, 1.0], [0.0, 3.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> paths, totals = n_best_paths(scores, 3)[0]
    >>> paths.tolist(), totals.tolist()
    ([[0, 1], [1, 1], [0, 0]], [5.0, 4.0, 2.0])
    """
    out = []
    for node, edge in sequences(potentials):
        found = list(islice(best_first(node, edge), n))
        paths = np.array([path for path, _ in found], dtype=np.int32).reshape(len(found), len(node))
        out.append((paths, np.array([score for _, score in found])))
    return out


def sequences(potentials: Potentials) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of every sequence its node scores (T, L) and one edge table for each of its pairs of steps (T − 1, L, L).

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([3]))
    >>> [edge.shape for _, edge in sequences(scores)]
    [(2, 2, 2)]
    """
    topology, tables = potentials.topology, potentials.tables
    edge_offsets = topology.edge_offsets.tolist()
    for s, (start, stop) in enumerate(zip(topology.offsets[:-1].tolist(), topology.offsets[1:].tolist())):
        own = slice(edge_offsets[s], edge_offsets[s + 1])
        if potentials.shared:
            size = own.stop - own.start
            edge = np.broadcast_to(potentials.edge[0], (size, *potentials.edge.shape[1:]))
        else:
            edge = potentials.edge[tables[own]]
        yield potentials.node[start:stop], edge


def best_first(node: np.ndarray, edge: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """All possible labellings (T,) of one chain with their scores, best first; made one by one.

    >>> import numpy as np
    >>> [(path.tolist(), score) for path, score in best_first(np.array([[1.0, 0.0]]), np.zeros((0, 2, 2)))]
    [([0], 1.0), ([1], 0.0)]
    """
    steps, labels = node.shape
    if not steps:
        yield np.zeros(0, np.int64), 0.0
        return
    best, back = _forward(node, edge)

    def beginning(path: np.ndarray, at: int, label: int) -> np.ndarray:
        """The end of ``path`` after step ``at``, ``label`` there, and the best beginning before it."""
        new = path.copy()
        for t in range(at, 0, -1):
            new[t], label = label, int(back[t - 1, label])
        new[0] = label
        return new

    ticket = count()  # equal scores leave the heap in the order in which they were found
    heap: list[tuple[float, int, int, int, np.ndarray, np.ndarray]] = []

    def offer(score: float, at: int, label: int, banned: np.ndarray, path: np.ndarray) -> None:
        if score > -np.inf:
            heappush(heap, (-score, next(ticket), at, label, banned, path))

    nothing = np.zeros(labels, dtype=bool)
    last = int(np.argmax(best[-1]))
    offer(float(best[-1, last]), steps - 1, last, nothing, np.zeros(steps, np.int64))
    while heap:
        negative, _, at, label, banned, parent = heappop(heap)
        path = beginning(parent, at, label)
        yield path, -negative
        # after[s]: score of the steps behind s, with the edge that leads to them left out.
        local = node[np.arange(steps), path]
        joint = edge[np.arange(steps - 1), path[:-1], path[1:]]
        after = np.append(np.cumsum((local[1:] + np.append(joint[1:], 0.0))[::-1])[::-1], 0.0)
        own = best[: at + 1] + after[: at + 1, None]  # (at + 1, L), all ways to turn at each step
        inner = min(at + 1, steps - 1)
        own[:inner] += edge[np.arange(inner), :, path[1 : inner + 1]]
        own[np.arange(at + 1), path[: at + 1]] = -np.inf
        own[at, banned] = -np.inf
        turn = own.argmax(axis=1)
        more = banned.copy()
        more[path[at]] = True
        for s, j in enumerate(turn.tolist()):
            ban = more if s == at else _only(path[s], labels)
            offer(float(own[s, j]), s, j, ban, path)


def _forward(node: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``best`` (T, L) of the module's formula, and the label before, (T − 1, L)."""
    best, back = np.empty_like(node), np.zeros((max(len(node) - 1, 0), node.shape[1]), np.int64)
    best[0] = node[0]
    for t in range(1, len(node)):
        ways = best[t - 1][:, None] + edge[t - 1]
        back[t - 1] = ways.argmax(axis=0)
        best[t] = ways[back[t - 1], np.arange(node.shape[1])] + node[t]
    return best, back


def _only(label: int, labels: int) -> np.ndarray:
    mask = np.zeros(labels, dtype=bool)
    mask[label] = True
    return mask
