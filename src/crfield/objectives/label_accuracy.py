"""Objectives of single labels: expected accuracy (minimum risk), and the likelihood of each label's marginal.

    accuracy:    Σ_s weight_s Σ_t (1 − p(y_t allowed | x))         expected number of wrong labels
    likelihood:  −Σ_s weight_s Σ_t log p(y_t allowed | x)

The likelihood of a labelling asks that all of its labels be right at once. A user who counts labels asks for less,
and the first form says just that: it is what a labeller that draws each label from its marginal gets wrong on the
average (Gross, Russakovsky, Do & Batzoglou 2006, *Training CRFs for maximum labelwise accuracy*). It is bounded, so
that hopeless labels pull no weights, but it has many minima: start from the likelihood. The second (Kakade, Teh &
Roweis 2002, *An alternate objective function for Markovian fields*) lies between the two and is not convex either.

Where the target has costs, the first form is the expected cost Σ_t Σ_l p(y_t = l | x) cost_t(l), and the second
weighs each step by the largest cost of an error there, which is what class weights mean in a classifier.

Both are functions of node marginals, and their gradient is one product with the covariance of the labels
(`inference.tangent`): the direction has, for each label, what it is worth to the objective. Cost: two sum-products
and a sweep, about three times that of the likelihood. Steps where everything is allowed are worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.inference.tangent import chain_tangent


@dataclass(frozen=True)
class LabelAccuracy:
    """The objective of the module's essay, for chains: expected errors, or with ``log`` the sum of −log marginals.

    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), chains)
    >>> result = LabelAccuracy().evaluate(scores, Target(chains, 2, np.array([0, 1])), ChainEngine())
    >>> result.value, result.node.tolist()
    (1.0, [[-0.25, 0.25], [0.25, -0.25]])
    """

    log: bool = False

    def evaluate(self, potentials: Potentials, target: Target, engine: Any) -> Evaluation:
        """Value, and gradient in the shape of the potentials.

        With ``log``, a step whose allowed labels are all impossible is a LabelError.
        """
        topology = potentials.topology
        beliefs = engine.infer(potentials, Semiring.LOG)
        mask = target.mask
        right = np.where(mask, beliefs.node, 0.0).sum(axis=1)  # (N,)
        weight = np.ones(topology.n_sequences) if target.weight is None else target.weight
        size = weight[topology.sequence_of_node]
        if self.log:
            if target.cost is not None:
                size = size * target.cost.max(axis=1)
            counts = size != 0
            if (counts & (right <= 0)).any():
                node = int(np.argmax(counts & (right <= 0)))
                sequence = int(topology.sequence_of_node[node])
                raise LabelError(
                    f"sequence {sequence}, step {node - int(topology.offsets[sequence])}: the scores forbid "
                    "every label that the target allows, so its likelihood is 0. Correct the labels or relax the "
                    "constraints."
                )
            right = np.where(counts, np.minimum(right, 1.0), 1.0)
            value = -float(size @ np.log(right))
            worth = np.where(mask, -1.0 / right[:, None], 0.0)
            if target.cost is not None:
                worth *= target.cost.max(axis=1)[:, None]
        elif target.cost is not None:
            value = float(size @ (beliefs.node * target.cost).sum(axis=1))
            worth = target.cost
        else:
            value = float(size @ np.maximum(1.0 - right, 0.0))
            worth = np.where(mask, -1.0, 0.0)
        node_out, edge_out = chain_tangent(potentials, worth, weight=weight, n_jobs=int(getattr(engine, "n_jobs", 1)))
        return Evaluation(value, node_out, edge_out, beliefs.converged)
