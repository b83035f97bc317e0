"""Free total minus clamped total: one formula for most of the family.

    value = Σ_s weight_s [ total_s(everything) − total_s(what the target allows) ]

Under LOG with one gold path it is the negative log-likelihood; with several allowed labels a step it is the
likelihood of partial labels, and hidden states are the same thing. Its gradient in the scores is the difference
of two beliefs. With one allowed label everywhere the clamped total is the score of a path, so no second sweep
is run for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crfield.core.beliefs import Beliefs, Evaluation
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.inference.chain import one_hot, path_scores


class Engine(Protocol):
    """Whatever turns potentials into beliefs."""

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total and marginals."""
        ...


@dataclass(frozen=True)
class Contrast:
    """The objective of the module's essay under a semiring.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> chains = Chains.from_lengths([1])
    >>> scores = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains)
    >>> result = Contrast().evaluate(scores, Target(chains, 2, np.array([0])), ChainEngine())
    >>> round(result.value, 6), result.node.tolist()
    (0.693147, [[-0.5, 0.5]])
    """

    semiring: Semiring = Semiring.LOG

    def evaluate(self, potentials: Potentials, target: Target, engine: Engine) -> Evaluation:
        """Value, and gradient in the shape of the potentials."""
        chains = potentials.topology
        if target.weight is not None and potentials.shared and chains.n_edges != 1:
            # A shared table sums over sequences before they can be weighed: one table for every edge instead.
            labels = potentials.n_labels
            each = np.broadcast_to(potentials.edge, (chains.n_edges, labels, labels))
            full = self.evaluate(Potentials(potentials.node, each, chains), target, engine)
            return Evaluation(full.value, full.node, full.edge.sum(axis=0, keepdims=True))
        weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
        free = engine.infer(potentials, self.semiring)
        if target.complete.all():
            clamped_total = path_scores(potentials, target.labels)
            clamped_node, clamped_edge = one_hot(potentials, target.labels)
        else:
            masked = Potentials(np.where(target.mask, potentials.node, -np.inf), potentials.edge, chains)
            clamped = engine.infer(masked, self.semiring)
            clamped_total, clamped_node, clamped_edge = clamped.total, clamped.node, clamped.edge
        node = (free.node - clamped_node) * np.repeat(weight, chains.lengths)[:, None]
        edge = free.edge - clamped_edge
        if len(edge) == chains.n_edges:
            edge = edge * np.repeat(weight, np.maximum(chains.lengths - 1, 0))[:, None, None]
        gap = free.total - clamped_total
        if free.exact:
            # Two large numbers that may round past each other; no part weighs more than the whole.
            gap = np.maximum(gap, 0.0)
        return Evaluation(float(weight @ gap), node, edge)
