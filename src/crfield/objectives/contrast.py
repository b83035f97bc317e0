"""Free total minus clamped total: one formula for most of the family.

    value = Σ_s weight_s [ total_s(everything) − total_s(what the target allows) ]

Under LOG with one gold path it is the negative log-likelihood; with several allowed labels a step it is the
likelihood of partial labels, and hidden states are the same thing. Its gradient in the scores is the difference
of two beliefs. With one allowed label everywhere the clamped total is the score of a path, so no second sweep
is run for it.

A target that allows only forbidden labellings (−∞) has no finite value and no slope that leads out of it, so it is
an error that names the sequence; of a sequence that does not count (weight 0) nothing is asked. Engines refuse
nothing here: their total is −∞, and so it should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crfield.core.beliefs import Beliefs, Evaluation
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.inference.labellings import one_hot, path_scores


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
        """Value, and gradient in the shape of the potentials; LabelError where the target is impossible."""
        topology = potentials.topology
        own = potentials.table is None and len(potentials.edge) == topology.n_edges
        if target.weight is not None and not own:
            # A shared table sums over sequences before they can be weighed: one table for every edge instead.
            each = Potentials(potentials.node, potentials.edge[potentials.tables], topology)
            full = self.evaluate(each, target, engine)
            edge = np.zeros_like(potentials.edge)
            np.add.at(edge, potentials.tables, full.edge)
            return Evaluation(full.value, full.node, edge, full.converged)
        weight = np.ones(topology.n_sequences) if target.weight is None else target.weight
        free = engine.infer(potentials, self.semiring)
        converged = free.converged
        if target.complete.all():
            clamped_total = path_scores(potentials, target.labels)
            clamped_node, clamped_edge = one_hot(potentials, target.labels)
        else:
            masked = Potentials(
                np.where(target.mask, potentials.node, -np.inf), potentials.edge, topology, potentials.table
            )
            clamped = engine.infer(masked, self.semiring)
            clamped_total, clamped_node, clamped_edge = clamped.total, clamped.node, clamped.edge
            converged &= clamped.converged
        impossible = np.isneginf(clamped_total) & (weight != 0)
        if impossible.any():
            raise LabelError(_impossible(potentials, target, impossible))
        node = (free.node - clamped_node) * weight[topology.sequence_of_node][:, None]
        edge = free.edge - clamped_edge
        if target.weight is not None:
            edge = edge * weight[topology.sequence_of_edge][:, None, None]
        gap = np.subtract(free.total, clamped_total, out=np.zeros(len(weight)), where=weight != 0)
        if free.exact:
            # Two large numbers that may round past each other; no part weighs more than the whole.
            gap = np.maximum(gap, 0.0)
        return Evaluation(float(weight @ gap), node, edge, converged)


def _impossible(potentials: Potentials, target: Target, impossible: np.ndarray) -> str:
    """What to say of sequences (B,) whose target cannot be: the first of them, and its step if one is to blame."""
    topology, sequence = potentials.topology, int(np.argmax(impossible))
    first, last = topology.offsets[sequence : sequence + 2]
    stuck = ~(target.mask[first:last] & (potentials.node[first:last] > -np.inf)).any(axis=1)
    reason = (
        f"at step {int(np.argmax(stuck))} every label it allows is forbidden (-inf)"
        if stuck.any()
        else "every labelling it allows uses a forbidden pair of labels (-inf)"
    )
    more = f" ({int(impossible.sum())} sequences are like this)" if impossible.sum() > 1 else ""
    return (
        f"the target must allow a labelling that the scores do not forbid, but in sequence {sequence} "
        f"{reason}{more}. Correct its labels, forbid less, or give it the weight 0."
    )
