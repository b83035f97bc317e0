"""The oracle: every labelling written out.

Exponential, and right by inspection; engines are tested against it. It refuses more than a million paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError


@dataclass(frozen=True)
class BruteEngine:
    """Totals and marginals by enumeration, for tests and for teaching.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.zeros((2, 3)), np.zeros((1, 3, 3)), Chains.from_lengths([2]))
    >>> round(float(np.exp(BruteEngine().infer(scores, Semiring.LOG).total[0])), 12)
    9.0
    """

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total of each sequence and its gradient with respect to the scores."""
        chains, labels = potentials.topology, potentials.n_labels
        node, edge = np.zeros_like(potentials.node), np.zeros_like(potentials.edge)
        total = np.zeros(chains.n_sequences)
        for s, length in enumerate(chains.lengths.tolist()):
            if labels**length > 1_000_000:
                raise InputError(f"{labels} labels over {length} steps are too many paths to enumerate.")
            first, first_edge = int(chains.offsets[s]), int(chains.edge_offsets[s])
            paths = list(product(range(labels), repeat=length))
            scores = np.array([path_score(potentials, first, first_edge, path) for path in paths])
            total[s], weights = _weigh(scores, semiring)
            for path, weight in zip(paths, weights):
                for t, label in enumerate(path):
                    node[first + t, label] += weight
                    if t:
                        edge[0 if potentials.shared else first_edge + t - 1, path[t - 1], label] += weight
        return Beliefs(total, node, edge)


def path_score(potentials: Potentials, first: int, first_edge: int, path: tuple[int, ...]) -> float:
    """Score of one path of the sequence that starts at node ``first`` and edge ``first_edge``."""
    score = 0.0
    for t, label in enumerate(path):
        score += float(potentials.node[first + t, label])
        if t:
            table = potentials.edge[0 if potentials.shared else first_edge + t - 1]
            score += float(table[path[t - 1], label])
    return score


def _weigh(scores: np.ndarray, semiring: Semiring) -> tuple[float, np.ndarray]:
    top = scores.max()
    if np.isneginf(top):
        return -np.inf, np.zeros(len(scores))
    if semiring is Semiring.MAX:
        weights = np.zeros(len(scores))
        weights[int(np.argmax(scores))] = 1.0
        return float(top), weights
    weights = np.exp(scores - top)
    return float(top + np.log(weights.sum())), weights / weights.sum()
