"""Association and interaction: the scores of a discriminative random field.

With labels y ∈ {−1, +1}, a local classifier's opinion A_i(y_i) = log P(y_i | x) and a description g_ij of what lies
between two sites (Kumar & Hebert 2006, *Discriminative random fields*; the form of the interaction is that of their
2003 paper):

    score(y) = a Σ_i A_i(y_i) + b Σ_ij [ k y_i y_j + (1 − k) (2 σ(y_i y_j μ·g_ij) − 1) ]

The first half of the interaction smooths whatever the data say; the second is a logistic opinion on whether the two
sites agree. Since 2 σ(−z) − 1 = −(2 σ(z) − 1), an edge's table is y_i y_j · c_ij with one number

    c_ij = b [ k + (1 − k) tanh(μ·g_ij / 2) ].

The weights are [log a, log b, logit k, μ]: any real vector is a model, a and b are positive and 0 < k < 1. Zero is
the middle: a = b = 1, k = ½ and no opinion of the second half. The scores are not linear in these weights, so the way
back, ``pull_at``, is the transpose of the derivative at given weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.errors import ShapeError

AGREE = np.array([[1.0, -1.0], [-1.0, 1.0]])  # y_i y_j for codes 0 (−1) and 1 (+1)
FIXED = 3  # weights before μ


@dataclass(frozen=True, eq=False)
class Sites:
    """What the scorer reads: opinions of the local classifier and descriptions of the edges.

    >>> import numpy as np
    >>> sites = Sites(Graphs(np.array([0, 2]), np.array([0]), np.array([1])), np.log([[0.5, 0.5], [0.2, 0.8]]),
    ...               np.ones((1, 3)))
    >>> sites.topology.n_edges
    1
    """

    topology: Graphs
    association: np.ndarray  # (N, 2) log P(y | x), finite
    between: np.ndarray  # (E, D) g_ij

    def __post_init__(self) -> None:
        if self.association.shape != (self.topology.n_nodes, 2):
            raise ShapeError(f"association must be ({self.topology.n_nodes}, 2), got {self.association.shape}.")
        if self.between.ndim != 2 or len(self.between) != self.topology.n_edges:
            raise ShapeError(
                f"between must have a row for each of {self.topology.n_edges} edges, got {self.between.shape}."
            )


@dataclass(frozen=True)
class InteractionScorer:
    """Scores of the module's essay for ``n_between`` edge columns.

    >>> import numpy as np
    >>> sites = Sites(Graphs(np.array([0, 2]), np.array([0]), np.array([1])), np.log(np.full((2, 2), 0.5)),
    ...               np.ones((1, 1)))
    >>> scorer = InteractionScorer(1)
    >>> scorer.score(np.zeros(scorer.n_weights), sites).edge[0].tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """

    n_between: int

    @property
    def n_weights(self) -> int:
        """W = 3 + D."""
        return FIXED + self.n_between

    def score(self, weights: np.ndarray, batch: Sites) -> Potentials:
        """Potentials, one table for each edge."""
        scale, strength, mix, opinion = self._parts(weights, batch)
        coupling = strength * (mix + (1 - mix) * opinion)  # (E,)
        node = scale * batch.association
        return Potentials(node, coupling[:, None, None] * AGREE, batch.topology, np.arange(batch.topology.n_edges))

    def pull_at(self, weights: np.ndarray, node: np.ndarray, edge: np.ndarray, batch: Sites) -> np.ndarray:
        """Gradient of the potentials to gradient of the weights (W,), at the weights given.

        ∂c/∂log b = c     ∂c/∂logit k = b k (1 − k) (1 − t)     ∂c/∂μ = b (1 − k) ½ (1 − t²) g     t = tanh(μ·g/2)
        """
        scale, strength, mix, opinion = self._parts(weights, batch)
        along = np.einsum("eij,ij->e", edge, AGREE)  # (E,) gradient in c
        out = np.empty(self.n_weights)
        out[0] = scale * float((node * batch.association).sum())
        out[1] = strength * float(along @ (mix + (1 - mix) * opinion))
        out[2] = strength * mix * (1 - mix) * float(along @ (1 - opinion))
        out[FIXED:] = strength * (1 - mix) * 0.5 * ((along * (1 - opinion**2)) @ batch.between)
        return out

    def _parts(self, weights: np.ndarray, batch: Sites) -> tuple[float, float, float, np.ndarray]:
        opinion = np.tanh(0.5 * (batch.between @ weights[FIXED:]))
        return (
            float(np.exp(weights[0])),
            float(np.exp(weights[1])),
            float(0.5 * (1 + np.tanh(0.5 * weights[2]))),
            opinion,
        )
