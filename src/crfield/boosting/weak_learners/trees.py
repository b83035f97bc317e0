"""Regression trees of a few leaves: conjunctions of stumps.

A stump sees one attribute; a tree of depth d gives a value to conjunctions of up to d of them, which the paper on
virtual evidence names as its next step. The structure is shared by all classes and leaves hold a value for each, so a
tree costs little more than its first cut: every level reads each row once, and of two siblings only the smaller is
added up, the other is the parent less it.

    gain = Σ_c Σ_leaf (Σ w z)² / (Σ w + ridge)

on the scale of stumps. A node is cut if that raises the gain and both parts keep ``min_leaf`` rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.boosting.weak_learners.candidates import Candidates, Table
from crfield.boosting.weak_learners.stumps import Categories, Stump, cut_leaves, leaf_values, pairs_of
from crfield.kernels.boost import TIE, best_cuts, histograms


@dataclass(frozen=True, eq=False)
class RegressionTree:
    """Cuts with the nodes they lead to, and a value for each leaf and class.

    Node 0 is the root. ``cuts[n]`` is the stump or the categories that node n asks, without values and with what the
    cut adds to the gain, None at a leaf; ``children[n]`` are the nodes of its leaves, and ``leaf[n]`` the row of
    ``values`` at a leaf.
    """

    cuts: tuple[Stump | Categories | None, ...]
    children: tuple[tuple[int, ...], ...]
    leaf: tuple[int, ...]
    values: np.ndarray  # (leaves, K)
    gain: float

    def leaves(self, columns: Table | Candidates) -> np.ndarray:
        """The leaf of every row of columns (N, F), dense, sparse or as `Candidates`."""
        n_rows = columns.n_rows if isinstance(columns, Candidates) else columns.shape[0]
        found = np.zeros(n_rows, np.int64)
        where = np.zeros(n_rows, np.int64)
        for node, cut in enumerate(self.cuts):  # children come after their parents
            here = where == node
            if cut is None:
                found[here] = self.leaf[node]
            else:
                where[here] = np.asarray(self.children[node])[cut.leaves(columns)[here]]
        return found

    def apply(self, columns: Table | Candidates) -> np.ndarray:
        """Values (N, K)."""
        return self.values[self.leaves(columns)]


@dataclass
class _Node:
    rows: np.ndarray | None  # None: all
    sums: np.ndarray  # (C, T, 2)
    counts: np.ndarray | None  # (T,)
    total: np.ndarray  # (C, 2)


def _worth(total: np.ndarray, ridge: float) -> float:
    below = total[:, 0] + ridge
    return float(np.divide(total[:, 1] ** 2, below, out=np.zeros_like(below), where=below > 0).sum())


def fit_tree(
    candidates: Candidates,
    weight: np.ndarray,
    response: np.ndarray,
    *,
    max_depth: int = 2,
    min_leaf: int = 1,
    ridge: float = 0.0,
    n_jobs: int = 1,
) -> RegressionTree:
    """A tree of at most ``max_depth`` cuts on each path, for weights and responses (N, K); one leaf if none helps.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> tree = fit_tree(Candidates.of(x), np.ones((4, 1)), np.array([[0.0], [0.1], [0.0], [1.0]]))
    >>> tree.apply(x).ravel().tolist()
    [0.0, 0.1, 0.0, 1.0]
    """
    pairs, mirrored = pairs_of(weight, response, candidates.n_rows)
    return tree_of(
        candidates, pairs, mirrored=mirrored, max_depth=max_depth, min_leaf=min_leaf, ridge=ridge, n_jobs=n_jobs
    )


def tree_of(
    candidates: Candidates,
    pairs: np.ndarray,
    *,
    mirrored: bool = False,
    max_depth: int = 2,
    min_leaf: int = 1,
    ridge: float = 0.0,
    n_jobs: int = 1,
) -> RegressionTree:
    """The tree for working pairs (C, N, 2) of (w, w z); ``mirrored`` pairs are those of the second of two classes."""
    packed = candidates.packed
    counting = min_leaf > 1
    if counting:
        ones = np.zeros((1, packed.n_rows, 2))
        ones[0, :, 0] = 1.0
        pairs = np.concatenate([pairs, ones])

    def node_of(rows: np.ndarray | None, sums: np.ndarray) -> _Node:
        some = pairs if rows is None else pairs[:, rows]
        total = some.sum(axis=1)
        if counting:
            return _Node(rows, sums[:-1], sums[-1, :, 0], total[:-1])
        return _Node(rows, sums, None, total)

    cuts: list[Stump | Categories | None] = []
    children: list[tuple[int, ...]] = []
    totals: list[np.ndarray] = []
    level = [node_of(None, histograms(packed, pairs, n_jobs=n_jobs))] if packed.n_columns else []
    if not level:
        level = [node_of(None, np.zeros((len(pairs), 0, 2)))]
    for depth in range(max_depth + 1):
        below: list[_Node] = []
        first = len(cuts) + len(level)
        for node in level:
            cut = _best(candidates, node, ridge, min_leaf) if depth < max_depth else None
            cuts.append(cut)
            totals.append(node.total)
            if cut is None:
                children.append(())
                continue
            parts = _parts(candidates, cut, node.rows)
            children.append(tuple(range(first + len(below), first + len(below) + len(parts))))
            below += _split(node, parts, pairs, candidates, node_of, n_jobs, last=depth + 1 == max_depth)
        level = below
        if not level:
            break
    leaf = np.cumsum([cut is None for cut in cuts]) - 1
    ends = np.stack([total for total, cut in zip(totals, cuts, strict=True) if cut is None], axis=1)  # (C, leaves, 2)
    gain = sum(_worth(ends[:, k], ridge) for k in range(ends.shape[1])) * (2 if mirrored else 1)
    values = leaf_values(ends, ridge, mirrored=mirrored)
    return RegressionTree(tuple(cuts), tuple(children), tuple(leaf.tolist()), values, gain)


def _best(candidates: Candidates, node: _Node, ridge: float, min_leaf: int) -> Stump | Categories | None:
    packed = candidates.packed
    if not packed.n_columns:
        return None
    cuts = best_cuts(
        node.sums,
        packed.offsets,
        candidates.discrete,
        candidates.missing,
        ridge=ridge,
        counts=node.counts,
        least=min_leaf,
    )
    f = cuts.column
    here = _worth(node.total, ridge)
    # Rounding alone must not cut: a node whose rows all ask for the same has the gain of its parts.
    if f is None or not cuts.gain[f] > here * (1.0 + TIE):
        return None
    if candidates.discrete[f]:
        return Categories(f, candidates.thresholds[f], np.zeros((0, 0)), float(cuts.gain[f]) - here)
    own = node.sums[:, packed.offsets[f] : packed.offsets[f + 1]]
    threshold, _, missing = cut_leaves(candidates, own, f, int(cuts.cut[f]), int(cuts.side[f]))
    return Stump(f, threshold, np.zeros((0, 0)), float(cuts.gain[f]) - here, missing)


def _parts(candidates: Candidates, cut: Stump | Categories, rows: np.ndarray | None) -> list[np.ndarray]:
    leaves = cut.leaves(candidates)
    n_parts = 2 if isinstance(cut, Stump) else len(cut.categories) + 1
    if rows is None:
        return [np.flatnonzero(leaves == k).astype(np.int32) for k in range(n_parts)]
    own = leaves[rows]
    return [rows[own == k] for k in range(n_parts)]


def _split(
    node: _Node,
    parts: list[np.ndarray],
    pairs: np.ndarray,
    candidates: Candidates,
    node_of: Any,
    n_jobs: int,
    *,
    last: bool,
) -> list[_Node]:
    if last:  # leaves are never cut: their totals are enough
        return [node_of(rows, np.zeros((len(pairs), 0, 2))) for rows in parts]
    whole = node.sums if node.counts is None else np.concatenate([node.sums, _counts(node)])
    largest = int(np.argmax([len(rows) for rows in parts]))
    made = [
        None if k == largest else histograms(candidates.packed, pairs, rows, n_jobs=n_jobs)
        for k, rows in enumerate(parts)
    ]
    rest = whole.copy()
    for sums in made:
        if sums is not None:
            rest -= sums
    return [node_of(rows, rest if sums is None else sums) for rows, sums in zip(parts, made, strict=True)]


def _counts(node: _Node) -> np.ndarray:
    table = np.zeros((1, node.sums.shape[1], 2))
    table[0, :, 0] = node.counts
    return table
