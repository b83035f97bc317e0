"""Brute force, the oracle: every labelling enumerated.

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
        """Total of each chain or graph and its gradient with respect to the scores."""
        topology, labels, tables = potentials.topology, potentials.n_labels, potentials.tables
        node, edge = np.zeros_like(potentials.node), np.zeros_like(potentials.edge)
        total = np.zeros(topology.n_sequences)
        for s, length in enumerate(topology.lengths.tolist()):
            if labels**length > 1_000_000:
                raise InputError(f"{labels} labels over {length} nodes are too many labellings to enumerate.")
            first = int(topology.offsets[s])
            edges = range(int(topology.edge_offsets[s]), int(topology.edge_offsets[s + 1]))
            joints = [(int(tables[e]), int(topology.tails[e]) - first, int(topology.heads[e]) - first) for e in edges]
            paths = list(product(range(labels), repeat=length))
            scores = np.array(
                [
                    sum(float(potentials.node[first + n, label]) for n, label in enumerate(path))
                    + sum(float(potentials.edge[k, path[tail], path[head]]) for k, tail, head in joints)
                    for path in paths
                ]
            )
            total[s], weights = _weigh(scores, semiring)
            for path, weight in zip(paths, weights):
                for n, label in enumerate(path):
                    node[first + n, label] += weight
                for k, tail, head in joints:
                    edge[k, path[tail], path[head]] += weight
        return Beliefs(total, node, edge)


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
