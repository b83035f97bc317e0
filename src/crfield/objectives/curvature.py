"""Products with the second derivative of *free total − clamped total*.

The second derivative of a log-total in the scores is the covariance of the labels, so that of the objective is the
covariance under the model minus that under what the target allows:

    H d = Σ_s weight_s [ Cov(y | x) − Cov(y | x, allowed) ] d

With one allowed label everywhere the second term is nothing and H is positive semidefinite. Costs of a softmax margin
only raise the scores of the first term. Each product is two sweeps, no more than a gradient, and is exact
(`inference.tangent`), where a difference of gradients would lose half of the digits.
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.inference.tangent import chain_tangent
from crfield.objectives.margin import raise_by_cost


def contrast_product(
    potentials: Potentials, direction: Potentials, target: Target, *, costs: bool = False, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """H d for the likelihood, or with ``costs`` for the softmax margin, in the shapes of the potentials.

    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([1])
    >>> scores = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains)
    >>> up = Potentials(np.array([[1.0, 0.0]]), np.zeros((1, 2, 2)), chains)
    >>> contrast_product(scores, up, Target(chains, 2, np.array([0])))[0].tolist()
    [[0.25, -0.25]]
    """
    raised = raise_by_cost(potentials, target) if costs else potentials
    node, edge = chain_tangent(raised, direction.node, direction.edge, weight=target.weight, n_jobs=n_jobs)
    if target.complete.all():
        return node, edge
    masked = Potentials(
        np.where(target.mask, raised.node, -np.inf), raised.edge, potentials.topology, potentials.table
    )
    less_node, less_edge = chain_tangent(masked, direction.node, direction.edge, weight=target.weight, n_jobs=n_jobs)
    return node - less_node, edge - less_edge
