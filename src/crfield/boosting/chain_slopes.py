"""The functional gradient of a chain's likelihood: the truth less the marginals.

    slope_t(c) = q(c at t) − p(c at t | x)                slope_e(b, c) = q((b, c) at e) − p((b, c) at e | x)

p is the belief among all labellings and q that among those the target allows: zeros and ones where all labels are
known, and a belief as well where some are not. Both come from the exact engine, one forward–backward each (the second
only if it is needed).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.candidates import Table
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import one_hot, path_scores


@dataclass(frozen=True, eq=False)
class Slopes:
    """The functional gradient, truth less marginals, and its curvature."""

    value: float  # Σ weight · (−log p)
    node: np.ndarray  # (N, K), not weighted
    edge: np.ndarray  # (K, K), weighted and summed over edges
    mass: np.ndarray  # (K, K) expected uses of each pair, weighted
    each: np.ndarray | None  # (E, K²), not weighted; None where edges share their table


class Labelled:
    """Columns (N, F) of chains with their target: the sums of trees so far, and slopes there.

    >>> from crfield.boosting.weak_learners.tree_scorer import TreeSum
    >>> field = TreeField(TreeSum(1, 2), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((2, 2)))
    >>> data = Labelled(np.zeros((2, 1)), Target(Chains.from_lengths([2]), 2, np.array([0, 1])), field)
    >>> slopes = data.slopes(field)
    >>> round(slopes.value, 4), slopes.node.tolist(), slopes.edge.tolist()
    (1.3863, [[0.5, -0.5], [-0.5, 0.5]], [[-0.25, 0.75], [-0.25, -0.25]])
    """

    def __init__(self, columns: Table, target: Target, field: TreeField, *, n_jobs: int = 1) -> None:
        if not isinstance(target.topology, Chains):
            raise InputError("trees are boosted on chains, got graphs. Give sequences.")
        self.columns, self.target, self.chains = columns, target, target.topology
        labels = target.n_labels
        self.node = np.zeros((self.chains.n_nodes, labels))
        self.edge = np.zeros((self.chains.n_edges, labels * labels)) if field.edge_trees is not None else None
        self.engine = ChainEngine(n_jobs)
        self.weight = np.ones(self.chains.n_sequences) if target.weight is None else target.weight
        self.row_weight = self.weight[self.chains.sequence_of_node]
        self.edge_weight = self.weight[self.chains.sequence_of_edge]
        self.complete = bool(target.complete.all())

    def potentials(self, field: TreeField) -> Potentials:
        """Scores with the field's tables; a table for each edge where edges must be weighed apart."""
        scores = field.assemble(self.node, self.edge, self.chains)
        if self.target.weight is not None and scores.shared and self.chains.n_edges > 1:
            return Potentials(scores.node, scores.edge[scores.tables], self.chains)
        return scores

    def value(self, field: TreeField) -> float:
        """Σ weight · (−log p)."""
        scores = self.potentials(field)
        gap = self.engine.infer(scores, Semiring.LOG).total - self._wanted(scores)[0]
        return float(self.weight @ np.maximum(gap, 0.0))

    def slopes(self, field: TreeField) -> Slopes:
        """Slope of the log-likelihood in the scores."""
        scores = self.potentials(field)
        free = self.engine.infer(scores, Semiring.LOG)
        total, node, edge = self._wanted(scores)
        each, mass = edge - free.edge, free.edge
        slope = each
        if self.target.weight is not None and self.chains.n_edges:
            slope, mass = (some * self.edge_weight[:, None, None] for some in (each, mass))
        each = None if self.edge is None else each.reshape(self.edge.shape)
        gap = np.maximum(free.total - total, 0.0)
        return Slopes(float(self.weight @ gap), node - free.node, slope.sum(axis=0), mass.sum(axis=0), each)

    def _wanted(self, scores: Potentials) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.complete:
            return path_scores(scores, self.target.labels), *one_hot(scores, self.target.labels)
        masked = Potentials(np.where(self.target.mask, scores.node, -np.inf), scores.edge, self.chains)
        clamped = self.engine.infer(masked, Semiring.LOG)
        return clamped.total, clamped.node, clamped.edge

    def rows(self, part: str) -> Table:
        """The columns that trees of a part read: those of all steps, or of the later step of every edge."""
        return self.columns if part == "node" else self.columns[self.chains.heads]

    def weight_of(self, part: str) -> np.ndarray:
        """The weights of a part's rows."""
        return self.row_weight if part == "node" else self.edge_weight

    def add(self, part: str, scores: np.ndarray) -> None:
        """Add to the sums of trees of a part."""
        if part == "node":
            self.node += scores
        elif self.edge is not None:
            self.edge += scores
