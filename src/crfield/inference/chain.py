"""The exact engine for chains: forward–backward and Viterbi behind one interface.

Cost O(N L²) time; a batch is split over threads by sequences. See ``native/chain/sweep.cpp`` for how the
recursion stays exact for any finite scores and for forbidden ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.kernels import chain


@dataclass(frozen=True)
class ChainEngine:
    """Exact totals and marginals of chains.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> beliefs = ChainEngine().infer(scores, Semiring.LOG)
    >>> round(float(np.exp(beliefs.total[0])), 12), beliefs.node[0].round(12).tolist(), beliefs.exact
    (8.0, [0.25, 0.75], True)
    """

    n_jobs: int = 1

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total of each sequence and its gradient with respect to the scores."""
        check_scores(potentials)
        if semiring is Semiring.LOG:
            total, node, edge = chain.sum_product(
                potentials.topology.offsets, potentials.node, potentials.edge, n_jobs=self.n_jobs
            )
            return Beliefs(total, node, edge)
        total, path = self.best_path(potentials)
        return Beliefs(total, *one_hot(potentials, path, possible=~np.isneginf(total)))

    def best_path(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """Score (B,) and labels (N,) of the best path of each sequence."""
        check_scores(potentials)
        return chain.max_product(potentials.topology.offsets, potentials.node, potentials.edge, n_jobs=self.n_jobs)

    def edge_marginals(self, potentials: Potentials) -> np.ndarray:
        """(E, L, L) probabilities of every pair of neighbouring labels."""
        check_scores(potentials)
        return chain.sum_product(
            potentials.topology.offsets, potentials.node, potentials.edge, each=True, n_jobs=self.n_jobs
        )[2]


def check_scores(potentials: Potentials) -> None:
    """Refuse NaN and +∞: the first has no meaning, the second no total."""
    for name, scores in (("node", potentials.node), ("edge", potentials.edge)):
        # One pass: a sum is NaN or +∞ only if an entry is, or if finite entries overflow.
        if scores.size and not scores.max() < np.inf:
            place = np.argwhere(~(scores < np.inf))[0].tolist()
            raise InputError(
                f"{name} scores must be finite or -inf (forbidden), got {scores[tuple(place)]} at {place}. "
                "Check the features and weights they come from."
            )


def path_scores(potentials: Potentials, path: np.ndarray) -> np.ndarray:
    """(B,) Σ_t node_t(y_t) + Σ_t edge_t(y_{t-1}, y_t) for given labels (N,).

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.eye(2), np.full((1, 2, 2), 0.5), Chains.from_lengths([2]))
    >>> path_scores(scores, np.array([0, 1])).tolist()
    [2.5]
    """
    chains = potentials.topology
    local = potentials.node[np.arange(chains.n_nodes), path]
    heads = chains.heads
    table = np.zeros(len(heads), np.int64) if potentials.shared else np.arange(len(heads))
    joint = np.zeros(chains.n_nodes)
    joint[heads] = potentials.edge[table, path[heads - 1], path[heads]]
    return segment_sums(local + joint, chains.offsets)


def segment_sums(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(B,) sums of consecutive stretches, zero for empty ones; each stretch is summed on its own."""
    out = np.zeros(len(offsets) - 1)
    filled = np.diff(offsets) > 0
    if filled.any():
        out[filled] = np.add.reduceat(x, offsets[:-1][filled])
    return out


def one_hot(
    potentials: Potentials, path: np.ndarray, *, possible: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A path as zeros and ones in the shape of the scores; all zeros for sequences that are not ``possible`` (B,)."""
    chains, labels = potentials.topology, potentials.n_labels
    nodes, heads, numbers = np.arange(chains.n_nodes), chains.heads, np.arange(chains.n_edges)
    if possible is not None and not possible.all():
        kept = possible[chains.sequence_of_node]
        nodes, heads, numbers = nodes[kept], heads[kept[heads]], numbers[kept[heads]]
    node = np.zeros_like(potentials.node)
    node[nodes, path[nodes]] = 1.0
    edge = np.zeros_like(potentials.edge)
    if potentials.shared:
        counts = np.bincount(path[heads - 1].astype(np.int64) * labels + path[heads], minlength=labels * labels)
        edge[0] = counts.reshape(labels, labels)
    else:
        edge[numbers, path[heads - 1], path[heads]] = 1.0
    return node, edge
