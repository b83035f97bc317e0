"""The functional gradient of a chain's likelihood: the truth less the marginals.

    slope_t(c) = q(c at t) − p(c at t | x)                slope_e(b, c) = q((b, c) at e) − p((b, c) at e | x)

p is the belief among all labellings and q that among those the target allows: zeros and ones where all labels are
known, and a belief as well where some are not. Both come from the exact engine, one forward–backward each (the second
only if it is needed).

Where the target has costs (`crfield.core.costs`), p is the belief with the costs added to the scores: the slope is
then that of the softmax margin, in which a wrong label must lose by its cost (Gimpel & Smith 2010, *Softmax-margin
CRFs*).

With a memory K is the number of states. p is then the belief among all paths of states, also those that no labelling
has: which state follows which is learnt as which label follows which is. Among the legal ones alone the rest of each
segment hangs on its first step, so that whole segments turn over at every step of training (and sums of them need
logs); inner folds of people prefer what is learnt without. Answers are among legal paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.candidates import Table
from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.flat import chosen_nodes
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
        self.truth = target if field.memory is None else field.memory.target(target)
        self.cost = target.cost
        if self.cost is not None and field.memory is not None:
            self.cost = self.cost[:, field.memory.space.label_of_state]
        labels = self.truth.n_labels
        self.node = np.zeros((self.chains.n_nodes, labels))
        self.edge = np.zeros((self.chains.n_edges, labels * labels)) if field.edge_trees is not None else None
        self.engine = ChainEngine(n_jobs)
        self.weight = np.ones(self.chains.n_sequences) if target.weight is None else target.weight
        self.row_weight = self.weight[self.chains.sequence_of_node]
        self.edge_weight = self.weight[self.chains.sequence_of_edge]
        self.vague = np.flatnonzero(~self.truth.complete)  # sequences of which labels are not all known
        self.vague_chains, self.vague_nodes = chosen_nodes(self.chains, self.vague)
        self.vague_edges = np.flatnonzero(~self.truth.complete[self.chains.sequence_of_edge])
        self._gold: tuple[np.ndarray, np.ndarray] | None = None  # what is wanted of the others, which never changes

    def potentials(self, field: TreeField) -> Potentials:
        """Scores with the field's tables; a table for each edge where edges must be weighed apart."""
        scores = field.assemble(self.node, self.edge, self.chains, legal=False)
        if self.target.weight is not None and scores.shared and self.chains.n_edges > 1:
            return Potentials(scores.node, scores.edge[scores.tables], self.chains)
        return scores

    def value(self, field: TreeField) -> float:
        """Σ weight · (−log p)."""
        scores = self.potentials(field)
        gap = self._free(scores).total - self._wanted(scores)[0]
        return float(self.weight @ np.maximum(gap, 0.0))

    def slopes(self, field: TreeField) -> Slopes:
        """Slope of the log-likelihood in the scores."""
        scores = self.potentials(field)
        free = self._free(scores)
        total, node, edge = self._wanted(scores)
        each, mass = edge - free.edge, free.edge
        slope = each
        if self.target.weight is not None and self.chains.n_edges:
            slope, mass = (some * self.edge_weight[:, None, None] for some in (each, mass))
        each = None if self.edge is None else each.reshape(self.edge.shape)
        gap = np.maximum(free.total - total, 0.0)
        return Slopes(float(self.weight @ gap), node - free.node, slope.sum(axis=0), mass.sum(axis=0), each)

    def _free(self, scores: Potentials) -> Beliefs:
        """Beliefs among all labellings, raised by what they cost."""
        if self.cost is not None:
            scores = Potentials(scores.node + self.cost, scores.edge, self.chains)
        return self.engine.infer(scores, Semiring.LOG)

    def _wanted(self, scores: Potentials) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Total, node and edge beliefs among what is allowed: the labelling itself where there is one only."""
        labels, rows = self.truth.labels, self.vague_nodes
        if self._gold is None:
            self._gold = one_hot(scores, labels, possible=self.truth.complete)
        total = path_scores(scores, np.maximum(labels, 0))
        if not len(self.vague):
            return total, *self._gold
        node, edge = (part.copy() for part in self._gold)
        tables = scores.edge if scores.shared else scores.edge[self.vague_edges]
        masked = np.where(self.truth.mask[rows], scores.node[rows], -np.inf)
        clamped = self.engine.infer(Potentials(masked, tables, self.vague_chains), Semiring.LOG)
        total[self.vague], node[rows] = clamped.total, clamped.node
        if scores.shared:
            edge += clamped.edge
        else:
            edge[self.vague_edges] = clamped.edge
        return total, node, edge

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
