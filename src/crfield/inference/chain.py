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
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.labellings import check_scores, one_hot
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
        if potentials.table is not None:
            each = self.infer(_one_each(potentials), semiring)
            edge = np.zeros_like(potentials.edge)
            np.add.at(edge, potentials.tables, each.edge)
            return Beliefs(each.total, each.node, edge)
        _check(potentials)
        if semiring is Semiring.LOG:
            total, node, edge = chain.sum_product(
                potentials.topology.offsets, potentials.node, potentials.edge, n_jobs=self.n_jobs
            )
            return Beliefs(total, node, edge)
        total, path = self.best_path(potentials)
        return Beliefs(total, *one_hot(potentials, path, possible=~np.isneginf(total)))

    def best_path(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """Score (B,) and labels (N,) of the best path of each sequence."""
        potentials = _one_each(potentials)
        _check(potentials)
        return chain.max_product(potentials.topology.offsets, potentials.node, potentials.edge, n_jobs=self.n_jobs)

    def edge_marginals(self, potentials: Potentials) -> np.ndarray:
        """(E, L, L) probabilities of every pair of neighbouring labels."""
        potentials = _one_each(potentials)
        _check(potentials)
        return chain.sum_product(
            potentials.topology.offsets, potentials.node, potentials.edge, each=True, n_jobs=self.n_jobs
        )[2]


def _one_each(potentials: Potentials) -> Potentials:
    """Scores with one shared table or one for each edge in order, as the kernels want them."""
    if potentials.table is None:
        return potentials
    return Potentials(potentials.node, potentials.edge[potentials.table], potentials.topology)


def _check(potentials: Potentials) -> None:
    if not isinstance(potentials.topology, Chains):
        raise InputError(
            "the chain engine reads chains, got graphs. Use ForestEngine for graphs without loops, or one of the "
            "engines for general graphs."
        )
    check_scores(potentials)
