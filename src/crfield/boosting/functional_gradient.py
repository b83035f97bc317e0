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

A round whose whole step would raise the loss takes half of it, or less. It costs one forward–backward, N K², and one
search for each level of the tree, N F K additions or fewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from crfield.boosting.chain_slopes import Labelled, Slopes
from crfield.boosting.round_table import Round
from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.candidates import Candidates, Table
from crfield.boosting.weak_learners.responses import LEAST_WEIGHT, centred
from crfield.boosting.weak_learners.subsamples import regrouped, some_columns, some_rows
from crfield.boosting.weak_learners.tree_scorer import FlatTree, TreeSum
from crfield.boosting.weak_learners.trees import fit_tree
from crfield.core.target import Target
from crfield.optimize.history import CALLBACK, INTERRUPTED, Step
from crfield.training.segment_memory import SegmentMemory

LIMIT = 4.0  # of a leaf's Newton step before the learning rate: where beliefs are sure and wrong, curvature vanishes
DEEP, SMALL_TABLES = 4, 64  # levels from which most nodes have few rows, and joint bins for these
TRANSITIONS = ("table", "trees", "none")
SHORTEST = 1 / 64  # share of a step below which it is taken whatever comes of it
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


def grow_field(
    columns: Table,
    target: Target,
    growth: Growth,
    *,
    rng: np.random.Generator,
    held_out: tuple[Table, Target] | None = None,
    memory: SegmentMemory | None = None,
    watch: Callable[[Step], bool | None] | None = None,
    name_of: Callable[[int], str] = "x[{}]".format,
) -> Grown:
    """Boost a field on chains with columns (N, F), dense or sparse, and their target.

    With ``held_out`` columns and target, rounds end when their loss has not fallen for ``patience`` rounds, and those
    after the best are taken back. A ``memory`` has transitions between its states. ``watch`` sees every round and may
    end it by True.

    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([3, 3])
    >>> x = np.array([[0.0], [0.0], [1.0], [1.0], [1.0], [0.0]])
    >>> target, rng = Target(chains, 2, x[:, 0].astype(int)), np.random.default_rng(0)
    >>> grown = grow_field(x, target, Growth(min_leaf=1), rng=rng)
    >>> len(grown.rounds), grown.rounds[0].pick, grown.field.potentials(x, chains).node.argmax(axis=1).tolist()
    (100, 'x[0] > 0.5 (2 leaves)', [0, 0, 1, 1, 1, 0])
    """
    field = _empty(columns.shape[1], target, memory, edges=growth.transitions == "trees")
    data = Labelled(columns, target, field, n_jobs=growth.n_jobs)
    outside = None if held_out is None else Labelled(*held_out, field, n_jobs=growth.n_jobs)
    searches = {"node": Search(columns, growth, rng)}
    if growth.transitions == "trees":
        searches["edge"] = Search(data.rows("edge"), growth, rng)
    rounds: list[Round] = []
    best, best_loss, kept = field, np.inf, 0
    began, reason = time.perf_counter(), ALL_ROUNDS
    slopes = data.slopes(field)
    steps = max(float(data.row_weight.sum()), 1.0)
    try:
        for number in range(1, growth.n_rounds + 1):
            moves = [grow_tree(search, data, slopes, part, growth) for part, search in searches.items()]
            field, slopes, scale = _take(moves, data, field, slopes, growth)
            for move in moves:
                trees = field.trees if move.part == "node" else field.edge_trees
                if trees is not None:
                    trees.add(move.tree, scale * move.values)
                if outside is not None:
                    outside.add(move.part, scale * move.values[move.tree.leaves(outside.rows(move.part))])
            loss = None if outside is None else outside.value(field) / max(outside.row_weight.sum(), 1e-300)
            gain = sum(move.gain for move in moves)
            pick = moves[0].tree.told(name_of, searches["node"].candidates.missing)
            rounds.append(Round(number, "tree", pick, gain, slopes.value / steps, loss))
            if loss is None or loss < best_loss:
                best, best_loss, kept = field, (np.inf if loss is None else loss), number
            moved = float(np.sqrt((slopes.node**2).sum()))
            seconds = time.perf_counter() - began
            step = Step(number, number, slopes.value, moved, scale * growth.learning_rate, len(field.trees), seconds)
            if watch is not None and watch(step):
                reason = CALLBACK
                break
            if outside is not None and number - kept >= growth.patience:
                reason = HELD_OUT
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    rounds = [replace(r, kept=r.number <= kept) for r in rounds]
    objective = rounds[kept - 1].nll * steps if kept else slopes.value
    edges = None if best.edge_trees is None else best.edge_trees.cut_to(kept)
    return Grown(replace(best, trees=best.trees.cut_to(kept), edge_trees=edges), rounds, objective, reason)


def _take(
    moves: list[Move], data: Labelled, field: TreeField, slopes: Slopes, growth: Growth
) -> tuple[TreeField, Slopes, float]:
    """Go along trees and tables at once, half as far as long as the penalised loss would rise.

    Curvature is taken step by step, as if neighbours were independent. Where transitions are strong whole stretches
    change their labels together, and a full step may overshoot.
    """
    there = field if growth.transitions == "none" else _with_tables(field, data, slopes, growth)
    before, scale, done = slopes.value + _penalty(field, growth), 1.0, 0.0
    while True:
        for move in moves:
            data.add(move.part, (scale - done) * move.values[move.leaf])
        done = scale
        trial = field.towards(there, scale)
        found = data.slopes(trial)
        if scale <= SHORTEST or found.value + _penalty(trial, growth) <= before:
            return trial, found, scale
        scale /= 2


def _penalty(field: TreeField, growth: Growth) -> float:
    return 0.5 * growth.l2 * sum(float((part**2).sum()) for part in (field.table, field.start, field.end))


@dataclass(frozen=True, eq=False)
class Move:
    """A tree, what its leaves would add to the scores, and the leaf of every row."""

    part: str  # "node" or "edge"
    tree: FlatTree
    values: np.ndarray  # (leaves, V)
    leaf: np.ndarray  # (N,) or (E,)
    gain: float


class Search:
    """Candidates, and the part of them that a round looks at."""

    def __init__(self, columns: Table, growth: Growth, rng: np.random.Generator) -> None:
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


def _empty(n_columns: int, target: Target, memory: SegmentMemory | None, *, edges: bool) -> TreeField:
    """Log shares of the labels (or states), and nothing else; one without steps of its own counts as half a step."""
    truth = target if memory is None else memory.target(target)
    labels, known = truth.n_labels, truth.labels[truth.labels >= 0]
    prior = np.log(np.maximum(np.bincount(known, minlength=labels), 0.5))
    prior -= prior.mean()
    zeros = np.zeros(labels)
    edge_trees = TreeSum(n_columns, labels * labels) if edges else None
    table = np.zeros((labels, labels))
    return TreeField(TreeSum(n_columns, labels), prior, zeros, zeros, table, edge_trees, memory)


def grow_tree(search: Search, data: Labelled, slopes: Slopes, part: str, growth: Growth) -> Move:
    """A tree for the slopes of nodes or edges, with a Newton step for every leaf and label."""
    slope = slopes.node if part == "node" or slopes.each is None else slopes.each
    if slope.shape[1] == 2:  # exactly mirrored, so that one class is searched for both
        slope = np.stack([slope[:, 0] - slope[:, 1], slope[:, 1] - slope[:, 0]], axis=1) / 2
    size, weight = np.abs(slope), data.weight_of(part)[:, None]
    curvature = np.maximum(size * (1.0 - size), LEAST_WEIGHT) * weight
    slope = slope * weight
    tree, gain = search.grow(slope, curvature)
    leaf = tree.leaves(data.rows(part))
    wanted, curved = (_sums(leaf, tree.n_leaves, values) for values in (slope, curvature))
    step = np.clip(wanted / (curved + growth.ridge), -LIMIT, LIMIT)
    return Move(part, tree, growth.learning_rate * centred(step), leaf, gain)


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
