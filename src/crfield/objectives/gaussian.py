"""The likelihood of real-valued labels: free total minus clamped total, of quadratic scores.

    value = Σ_g weight_g [ log ∫ exp(score(y)) dy − log ∫ exp(score) over the labels that are not known ]

With all labels known the second is the score of the labels; a label that is unknown (NaN) is integrated out, as
`Contrast` sums over the labels that a target leaves open. The gradient is the difference of two sets of moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crfield.core.quadratic import Gaussian, Quadratic, QuadraticEvaluation
from crfield.errors import ShapeError


class GaussianInference(Protocol):
    """Whatever turns a quadratic into moments."""

    def infer(self, field: Quadratic) -> Gaussian:
        """Totals and moments."""
        ...


@dataclass(frozen=True)
class GaussianLikelihood:
    """Negative log-density of labels.

    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.gaussian import GaussianEngine
    >>> field = Quadratic(np.array([1.0]), np.zeros(0), np.array([0.0]), Chains.from_lengths([1]))
    >>> found = GaussianLikelihood().evaluate(field, np.array([2.0]), GaussianEngine())
    >>> round(found.value, 6), found.linear.tolist(), found.node.tolist()
    (2.918939, [-2.0], [1.5])
    """

    def evaluate(
        self, field: Quadratic, y: np.ndarray, engine: GaussianInference, weight: np.ndarray | None = None
    ) -> QuadraticEvaluation:
        """Value, and gradient in the shape of the field, for labels y (N,), NaN where unknown; weights are (B,)."""
        topology = field.topology
        if y.shape != (topology.n_nodes,):
            raise ShapeError(f"there must be one label for each of {topology.n_nodes} nodes, got {y.shape}.")
        clamped = clamp(field, y, engine)
        centre = clamped.mean
        # Around the labels both totals are small; taken as they are, they could be large numbers with a small gap.
        moved = Quadratic(field.node, field.edge, field.linear - field.times(centre), topology)
        free = engine.infer(moved)
        gap = free.total if not np.isnan(y).any() else free.total + field.score(centre) - clamped.total
        (tails, heads), off = (topology.tails, topology.heads), free.mean
        node = 0.5 * (clamped.variance - free.variance - off * (2.0 * centre + off))
        edge = clamped.covariance - free.covariance
        edge -= centre[tails] * off[heads] + off[tails] * centre[heads] + off[tails] * off[heads]
        linear = off
        if weight is not None:
            of_node = weight[topology.sequence_of_node]
            node, linear, edge = node * of_node, linear * of_node, edge * weight[topology.sequence_of_edge]
            gap = gap * weight
        return QuadraticEvaluation(float(gap.sum()), node, edge, linear)


def clamp(field: Quadratic, y: np.ndarray, engine: GaussianInference) -> Gaussian:
    """The field with the known labels held: totals (B,) and moments; a known label has itself as mean, variance 0.

    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.gaussian import GaussianEngine
    >>> field = Quadratic(np.array([2.0, 2.0]), np.array([-1.0]), np.zeros(2), Chains.from_lengths([2]))
    >>> clamp(field, np.array([np.nan, 4.0]), GaussianEngine()).mean.round(12).tolist()
    [2.0, 4.0]
    """
    topology, known = field.topology, ~np.isnan(y)
    if known.all():
        return Gaussian(field.score(y), y, np.zeros(len(y)), np.zeros(topology.n_edges))
    rest, held = field.given(y, known)
    found = engine.infer(rest)
    n_known = np.bincount(topology.sequence_of_node, known, minlength=topology.n_sequences)
    total = held + found.total - 0.5 * float(np.log(2.0 * np.pi)) * n_known
    free = ~(known[topology.tails] | known[topology.heads])
    return Gaussian(
        total,
        np.where(known, y, found.mean),
        np.where(known, 0.0, found.variance),
        np.where(free, found.covariance, 0.0),
    )
