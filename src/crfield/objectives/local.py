"""Pseudo-likelihood: every node given its neighbours.

    value = −Σ_n weight_n log p(y_n | gold labels of the neighbours of n)

No sum over labellings is taken, so no engine is needed and any graph will do: the cost is O(N L + E L), about that of
a logistic regression whose columns include the neighbours' labels. In the limit of much data it finds the true
weights if the model is true (Besag 1975, *Statistical analysis of non-lattice data*), while for strong couplings it
sees little of how labels far apart hang together and tends to overrate edges; it is a good start for likelihood.

A node that may take several labels counts with the sum over those. What its *neighbours* see of it is unknown,
so the terms of a node beside a node of unknown label are left out; the nodes that remain are said by
`counted`. Weights of sequences apply to all terms of their nodes. A gold label that is forbidden, by itself or
beside a neighbour's gold label, is an error that names the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.target import UNKNOWN, Target
from crfield.errors import LabelError
from crfield.inference.labellings import check_scores
from crfield.kernels import sites


@dataclass(frozen=True)
class PseudoLikelihood:
    """The objective of the module's essay.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), chains)
    >>> result = PseudoLikelihood().evaluate(scores, Target(chains, 2, np.array([0, 1])))
    >>> round(result.value, 6), result.node.tolist()
    (1.386294, [[-0.5, 0.5], [0.5, -0.5]])
    """

    def evaluate(self, potentials: Potentials, target: Target, engine: Any = None) -> Evaluation:
        """Value, and gradient in the shape of the potentials; LabelError where the target is impossible.

        ``engine`` is not used.
        """
        check_scores(potentials)
        topology = potentials.topology
        weight, allowed = None, None
        if target.weight is not None:
            weight = target.weight[topology.sequence_of_node]
        if (target.labels == UNKNOWN).any():
            counts = counted(target)
            if len(counts) and not counts.any():
                raise LabelError(
                    "pseudo-likelihood needs nodes whose neighbours' labels are all known, and here there are none. "
                    "Use an objective that sums over unknown labels (likelihood), or label more nodes."
                )
            weight, allowed = counts if weight is None else weight * counts, target.mask
        value, node, edge = sites.pseudo_likelihood(
            potentials.node,
            potentials.edge,
            topology.tails,
            topology.heads,
            potentials.tables,
            target.labels,
            allowed=allowed,
            weight=weight,
        )
        if value == np.inf:
            raise LabelError(_impossible(potentials, target, counted(target) if weight is None else weight != 0))
        return Evaluation(value, node, edge)


def counted(target: Target) -> np.ndarray:
    """(N,) bool, the nodes whose neighbours all have known labels.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> target = Target(Chains.from_lengths([4]), 2, np.array([0, 1, 1, -1]), np.ones((4, 2), bool))
    >>> counted(target).tolist()
    [True, True, False, True]
    """
    topology, unknown = target.topology, target.labels == UNKNOWN
    out = np.ones(topology.n_nodes, dtype=bool)
    out[topology.tails[unknown[topology.heads]]] = False
    out[topology.heads[unknown[topology.tails]]] = False
    return out


def _impossible(potentials: Potentials, target: Target, counts: np.ndarray) -> str:
    """What to say of the first node that counts and can take none of its allowed labels beside its neighbours."""
    topology, labels = potentials.topology, target.labels
    open_labels = target.mask & ~np.isneginf(potentials.node)
    for own, far, tables in (
        (topology.tails, topology.heads, potentials.edge.transpose(0, 2, 1)),
        (topology.heads, topology.tails, potentials.edge),
    ):
        known = labels[far] != UNKNOWN
        rows = tables[potentials.tables[known], labels[far[known]]]
        np.logical_and.at(open_labels, own[known], ~np.isneginf(rows))
    node = int(np.argmax(counts & ~open_labels.any(axis=1)))
    sequence = int(topology.sequence_of_node[node])
    return (
        f"sequence {sequence}: what the target allows at node {node - int(topology.offsets[sequence])} is forbidden "
        "(-inf) by its own scores or beside its neighbours' labels, so it has no probability. Correct the labels or "
        "allow the pair."
    )
