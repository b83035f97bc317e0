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
from crfield.inference.tangent import ChainCovariance
from crfield.objectives.margin import raise_by_cost


class ContrastCurvature:
    """H of the likelihood, or with ``costs`` of the softmax margin, at given scores.

    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([1])
    >>> scores = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains)
    >>> up = Potentials(np.array([[1.0, 0.0]]), np.zeros((1, 2, 2)), chains)
    >>> ContrastCurvature(scores, Target(chains, 2, np.array([0]))).times(up)[0].tolist()
    [[0.25, -0.25]]
    """

    def __init__(self, potentials: Potentials, target: Target, *, costs: bool = False, n_jobs: int = 1) -> None:
        raised = raise_by_cost(potentials, target) if costs else potentials
        self._weight = target.weight
        self._free = ChainCovariance(raised, n_jobs=n_jobs, keep=True)
        self._clamped: ChainCovariance | None = None
        if not target.complete.all():
            masked = np.where(target.mask, raised.node, -np.inf)
            allowed = Potentials(masked, raised.edge, potentials.topology, potentials.table)
            self._clamped = ChainCovariance(allowed, n_jobs=n_jobs, keep=True)

    def times(self, direction: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """H d in the shapes of the potentials."""
        node, edge = self._free.times(direction.node, direction.edge, weight=self._weight)
        if self._clamped is None:
            return node, edge
        less_node, less_edge = self._clamped.times(direction.node, direction.edge, weight=self._weight)
        return node - less_node, edge - less_edge
