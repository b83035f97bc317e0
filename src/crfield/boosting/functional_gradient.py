"""Gradient tree boosting of a chain CRF: trees follow the slope of the likelihood, step by step.

The log-likelihood of a chain is a function of its scores, and its slope in them is what was wanted less what is
believed (Dietterich, Ashenfelter & Bulatov 2004, *Training conditional random fields via gradient tree boosting*):

    g_t(c)    = 1[y_t = c] − p(c at t | x)              with curvature   w = |g| (1 − |g|) = p (1 − p)
    g_e(b, c) = 1[y_e = (b, c)] − p((b, c) at e | x)

Beliefs are exact, by forward–backward, once a round. The round then grows one regression tree on the slopes of all
labels at once and gives every leaf a Newton step for each label,

    value = learning_rate · Σ g / (Σ w + ridge),

and so do the tables: each pair of labels is the leaf of a tree whose cut is the pair itself, with the expected number
of uses for its curvature and an ℓ2 penalty; the scores of first and last steps likewise. Transitions may also depend
on x (``edge_trees``), by a second tree with a table at each leaf.

The paper grows one tree for each label and each label before it. One tree with values for all labels costs one search
instead of K (or K²), and its rows are read once. Partly known labels need no special case: what is wanted is then the
belief among the labelings that are allowed.

A round costs one forward–backward, N K², and one search for each level of the tree, N F K additions or fewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.boosting.candidates import Candidates
from crfield.boosting.responses import LEAST_WEIGHT, centred
from crfield.boosting.round_table import Round
from crfield.boosting.subsamples import regrouped, some_columns, some_rows
from crfield.boosting.tree_field import TreeField
from crfield.boosting.tree_scorer import FlatTree, TreeSum
from crfield.boosting.trees import fit_tree
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import one_hot, path_scores
from crfield.optimize.history import CALLBACK, INTERRUPTED, Step

LIMIT = 4.0  # of a leaf's Newton step before the learning rate: where beliefs are sure and wrong, curvature vanishes
DEEP, SMALL_TABLES = 4, 64  # levels from which most nodes have few rows, and joint bins for these
TRANSITIONS = ("table", "trees", "none")
ALL_ROUNDS, HELD_OUT = "all rounds", "held-out loss"


@dataclass(frozen=True)
class Growth:
    """How trees are grown and how far each round goes."""

    n_rounds: int = 100
    learning_rate: float = 0.1
    max_depth: int = 4
    min_leaf: int = 5
    ridge: float = 1.0
    l2: float = 1.0
    subsample: float = 1.0
    max_features: float = 1.0
    max_bins: int = 32
    patience: int = 10
    transitions: str = "table"  # one of TRANSITIONS
    n_jobs: int = 1


@dataclass(frozen=True, eq=False)
class Grown:
    """The field after the last round that is kept, what the rounds did, and why they ended."""

    field: TreeField
    rounds: list[Round]
    objective: float  # Σ weight · (−log p) of the training data, of the field as kept
    reason: str


@dataclass(frozen=True, eq=False)
class Slopes:
    """What is wanted less what is believed, and how it curves."""

    value: float  # Σ weight · (−log p)
    node: np.ndarray  # (N, K), not weighted
    edge: np.ndarray  # (K, K), weighted and summed over edges
    mass: np.ndarray  # (K, K) expected uses of each pair, weighted
    each: np.ndarray | None  # (E, K²), not weighted; None where edges share their table


class Labelled:
    """Columns (N, F) of chains with their target: the sums of trees so far, and slopes there."""

    def __init__(self, columns: Any, target: Target, field: TreeField, *, n_jobs: int = 1) -> None:
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


def grow_field(
    columns: Any,
    target: Target,
    growth: Growth,
    *,
    rng: np.random.Generator,
    held_out: tuple[Any, Target] | None = None,
    watch: Callable[[Step], bool | None] | None = None,
    name_of: Callable[[int], str] = "x[{}]".format,
) -> Grown:
    """Boost a field on chains with columns (N, F), dense or sparse, and their target.

    With ``held_out`` columns and target, rounds end when their loss has not fallen for ``patience`` rounds, and those
    after the best are taken back. ``watch`` sees every round and may end it by True.

    >>> chains = Chains.from_lengths([3, 3])
    >>> x = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [0.0]])
    >>> target, rng = Target(chains, 2, x[:, 0].astype(int)), np.random.default_rng(0)
    >>> grown = grow_field(x, target, Growth(min_leaf=1), rng=rng)
    >>> len(grown.rounds), grown.rounds[0].pick, grown.field.potentials(x, chains).node.argmax(axis=1).tolist()
    (100, 'x[0] > 0.5 (2 leaves)', [0, 0, 1, 1, 1, 0])
    """
    field = _empty(columns.shape[1], target, edges=growth.transitions == "trees")
    data = Labelled(columns, target, field, n_jobs=growth.n_jobs)
    outside = None if held_out is None else Labelled(*held_out, field, n_jobs=growth.n_jobs)
    search = Search(columns, growth, rng)
    edge_search = Search(columns[data.chains.heads], growth, rng) if growth.transitions == "trees" else None
    rounds: list[Round] = []
    best, best_loss, began, reason = field, np.inf, time.perf_counter(), ALL_ROUNDS
    slopes = data.slopes(field)
    steps = max(float(data.row_weight.sum()), 1.0)
    kept = 0
    try:
        for number in range(1, growth.n_rounds + 1):
            trees, edge_trees = field.trees, field.edge_trees
            gain, pick, moved = _add_tree(trees, search, data, outside, slopes.node, "node", growth, name_of)
            if edge_search is not None and edge_trees is not None and slopes.each is not None:
                gain += _add_tree(edge_trees, edge_search, data, outside, slopes.each, "edge", growth, name_of)[0]
            if growth.transitions != "none":
                field = _with_tables(field, data, slopes, growth)
            slopes = data.slopes(field)
            loss = None if outside is None else outside.value(field) / max(outside.row_weight.sum(), 1e-300)
            rounds.append(Round(number, "tree", pick, gain, slopes.value / steps, loss))
            if loss is None or loss < best_loss:
                best, best_loss, kept = field, (np.inf if loss is None else loss), number
            seconds = time.perf_counter() - began
            step = Step(number, number, slopes.value, moved, growth.learning_rate, len(trees), seconds)
            if watch is not None and watch(step):
                reason = CALLBACK
                break
            if outside is not None and number - kept >= growth.patience:
                reason = HELD_OUT
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    rounds = [replace(r, kept=r.number <= kept) for r in rounds]
    objective = slopes.value if kept == len(rounds) else rounds[kept - 1].nll * steps
    edges = None if best.edge_trees is None else best.edge_trees.cut_to(kept)
    return Grown(replace(best, trees=best.trees.cut_to(kept), edge_trees=edges), rounds, objective, reason)


class Search:
    """Candidates, and the part of them that a round looks at."""

    def __init__(self, columns: Any, growth: Growth, rng: np.random.Generator) -> None:
        self.candidates = Candidates.of(columns, max_bins=growth.max_bins, n_jobs=growth.n_jobs)
        if growth.max_depth >= DEEP:
            self.candidates = regrouped(self.candidates, joint_bins=SMALL_TABLES)
        self.growth, self.rng = growth, rng

    def grow(self, slope: np.ndarray, curvature: np.ndarray) -> tuple[FlatTree, float]:
        """A tree for slopes and curvatures (N, V), on a sample of rows and columns."""
        growth, part, columns = self.growth, self.candidates, None
        if growth.subsample < 1.0 and part.n_rows > 1:
            n = max(1, round(growth.subsample * part.n_rows))
            rows = np.sort(self.rng.choice(part.n_rows, n, replace=False))
            part, slope, curvature = some_rows(part, rows), slope[rows], curvature[rows]
        if growth.max_features < 1.0 and part.n_columns > 1:
            n = max(1, round(growth.max_features * part.n_columns))
            columns = np.sort(self.rng.choice(part.n_columns, n, replace=False))
            part = some_columns(part, columns)
        tree = fit_tree(
            part,
            curvature,
            slope / curvature,
            max_depth=growth.max_depth,
            min_leaf=growth.min_leaf,
            ridge=growth.ridge,
            n_jobs=growth.n_jobs,
        )
        return FlatTree.of(tree, columns), tree.gain


def _empty(n_columns: int, target: Target, *, edges: bool) -> TreeField:
    """Log shares of the labels, and nothing else; a label without steps of its own counts as half a step."""
    labels = target.n_labels
    known = target.labels[target.labels >= 0]
    prior = np.log(np.maximum(np.bincount(known, minlength=labels), 0.5))
    prior -= prior.mean()
    zeros = np.zeros(labels)
    edge_trees = TreeSum(n_columns, labels * labels) if edges else None
    return TreeField(TreeSum(n_columns, labels), prior, zeros, zeros, np.zeros((labels, labels)), edge_trees)


def _add_tree(
    trees: TreeSum,
    search: Search,
    data: Labelled,
    outside: Labelled | None,
    slope: np.ndarray,
    part: str,
    growth: Growth,
    name_of: Callable[[int], str],
) -> tuple[float, str, float]:
    """One more tree for slopes (N, V); its values are added to the sums of the data and of those held out."""
    weight = data.row_weight if part == "node" else data.edge_weight
    if slope.shape[1] == 2:  # exactly mirrored, so that one class is searched for both
        slope = np.stack([slope[:, 0] - slope[:, 1], slope[:, 1] - slope[:, 0]], axis=1) / 2
    size = np.abs(slope)
    curvature = np.maximum(size * (1.0 - size), LEAST_WEIGHT) * weight[:, None]
    slope = slope * weight[:, None]
    tree, gain = search.grow(slope, curvature)
    leaf = tree.leaves(_rows(data, part))
    sums = [_sums(leaf, tree.n_leaves, values) for values in (slope, curvature)]
    step = np.clip(sums[0] / (sums[1] + growth.ridge), -LIMIT, LIMIT)
    values = growth.learning_rate * centred(step)
    trees.add(tree, values)
    moved = float(np.sqrt((values[leaf] ** 2).sum()))
    for some in (data, outside):
        if some is not None:
            scores = some.node if part == "node" else some.edge
            scores += values[leaf if some is data else tree.leaves(_rows(some, part))]
    leaves = f"({tree.n_leaves} {'leaf' if tree.n_leaves == 1 else 'leaves'})"
    root = "" if tree.left[0] < 0 else f"{name_of(int(tree.column[0]))} > {tree.threshold[0]:.4g} "
    return gain, root + leaves, moved


def _rows(data: Labelled, part: str) -> Any:
    return data.columns if part == "node" else data.columns[data.chains.heads]


def _sums(leaf: np.ndarray, n_leaves: int, values: np.ndarray) -> np.ndarray:
    """(leaves, V) sums of values (N, V) by leaf."""
    return np.stack([np.bincount(leaf, column, minlength=n_leaves) for column in values.T], axis=1)


def _with_tables(field: TreeField, data: Labelled, slopes: Slopes, growth: Growth) -> TreeField:
    """Newton steps of the table and of the scores of first and last steps, each entry on its own."""
    chains, some = data.chains, data.chains.lengths > 0
    rate, l2 = growth.learning_rate, growth.l2
    below = slopes.mass + l2 + growth.ridge
    table = field.table + rate * np.clip((slopes.edge - l2 * field.table) / below, -LIMIT, LIMIT)
    ends = []
    for scores, nodes in ((field.start, chains.offsets[:-1][some]), (field.end, chains.offsets[1:][some] - 1)):
        slope, heavy = slopes.node[nodes], data.row_weight[nodes][:, None]
        curvature = np.abs(slope) * (1.0 - np.abs(slope)) * heavy
        step = ((slope * heavy).sum(axis=0) - l2 * scores) / (curvature.sum(axis=0) + l2 + growth.ridge)
        ends.append(scores + rate * np.clip(step, -LIMIT, LIMIT))
    return replace(field, table=table, start=ends[0], end=ends[1])
