"""Sums of regression trees, laid flat: what a boosted model keeps and scores with.

    F(x) = Σ_m values_m[leaf_m(x)]

The trees of `crfield.boosting.weak_learners.trees` are objects made for growing. What remains when they are grown is
a few arrays: for every node the column it asks, the threshold and its two children, for every leaf a row of values.
All trees lie end to end, so that a model file is these arrays and nothing else, and a row walks all trees without a
Python object being touched. Walking costs one comparison for each tree and level; rows go in blocks that stay in the
cache.

Node n sends a row to ``left[n]`` if ``x[column[n]] <= threshold[n]`` and to ``left[n] + 1`` otherwise; where the
value is missing (NaN) to ``left[n] + missing[n]``, the side that was better in training, or, where nothing was
missing then, the side of more weight. A threshold of +∞ asks whether the value is missing. A leaf has
``left[n] < 0`` and the value row ``-1 - left[n]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.boosting.weak_learners.candidates import Table
from crfield.boosting.weak_learners.stumps import Stump, side_names
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.errors import InputError, ShapeError
from crfield.storage.state import State, refuse

BLOCK = 4096  # rows that walk together


@dataclass(frozen=True, eq=False)
class FlatTree:
    """The cuts of one tree as arrays; leaves are numbered from 0.

    >>> from crfield.boosting.weak_learners.candidates import Candidates
    >>> from crfield.boosting.weak_learners.trees import fit_tree
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> tree = FlatTree.of(fit_tree(Candidates.of(x), np.ones((3, 1)), np.array([[0.0], [1.0], [1.0]]), max_depth=1))
    >>> tree.n_leaves, tree.leaves(x).tolist()
    (2, [0, 1, 1])
    """

    column: np.ndarray  # (M,) int32
    threshold: np.ndarray  # (M,)
    left: np.ndarray  # (M,) int32
    depth: int
    missing: Any = None  # (M,) int8, 0 or 1: the child of a missing value; the left one where nobody said
    gain: Any = None  # (M,) what each cut adds to the gain of the tree, 0 at leaves; None in files of before

    def __post_init__(self) -> None:
        if self.missing is None:
            object.__setattr__(self, "missing", np.zeros(len(self.column), np.int8))

    @classmethod
    def of(cls, tree: RegressionTree, columns: np.ndarray | None = None) -> FlatTree:
        """The arrays of a grown tree; ``columns`` says which columns it was grown on, all in order if None."""
        n = len(tree.cuts)
        column, threshold, left = np.zeros(n, np.int32), np.zeros(n), np.zeros(n, np.int32)
        depth, missing, gain = np.zeros(n, np.int64), np.zeros(n, np.int8), np.zeros(n)
        for k, cut in enumerate(tree.cuts):
            if cut is None:
                left[k] = -1 - tree.leaf[k]
                continue
            if not isinstance(cut, Stump):
                raise InputError("flat trees cut numbers; a discrete column must be given as indicator columns.")
            column[k] = cut.column if columns is None else columns[cut.column]
            threshold[k], left[k] = cut.threshold, tree.children[k][0]
            missing[k], gain[k] = cut.missing, cut.gain
            depth[list(tree.children[k])] = depth[k] + 1
        return cls(column, threshold, left, int(depth.max()), missing, gain)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int((self.left < 0).sum())

    def told(self, name_of: Callable[[int], str], gaps: np.ndarray | None = None) -> str:
        """The first cut and the number of leaves, in words; ``gaps`` (F,) tells the columns with missing values.

        >>> FlatTree(np.zeros(1, np.int32), np.zeros(1), np.array([-1]), 0).told(str)
        '(1 leaf)'
        >>> node, sides = np.zeros(3, np.int32), np.array([1, 0, 0])
        >>> cut = FlatTree(node, np.array([0.5, 0, 0]), np.array([1, -1, -2]), 1, sides)
        >>> cut.told("x[{}]".format), cut.told("x[{}]".format, np.array([True]))
        ('x[0] > 0.5 (2 leaves)', 'x[0] > 0.5 or missing (2 leaves)')
        """
        leaves = f"({self.n_leaves} {'leaf' if self.n_leaves == 1 else 'leaves'})"
        if self.left[0] < 0:
            return leaves
        column, threshold = int(self.column[0]), float(f"{self.threshold[0]:.4g}")
        side = int(self.missing[0]) if gaps is not None and gaps[column] else None
        return f"{side_names(name_of(column), threshold, side)[1]} {leaves}"

    def leaves(self, columns: Table) -> np.ndarray:
        """The leaf (N,) of every row of columns (N, F), dense or sparse."""
        out = np.empty(columns.shape[0], np.int64)
        used, place = np.unique(self.column, return_inverse=True)
        for start, block in _blocks(columns, used):
            out[start : start + len(block)] = _walk(block, place, self, gaps=bool(np.isnan(block).any()))
        return out


@dataclass
class TreeSum:
    """F (N, V) as a sum of trees over F columns; V values at every leaf.

    >>> x = np.array([[0.0], [1.0]])
    >>> trees = TreeSum(n_columns=1, n_values=2)
    >>> trees.add(FlatTree(np.zeros(3, np.int32), np.array([0.5, 0, 0]), np.array([1, -1, -2]), 1), np.eye(2))
    >>> trees.add(FlatTree(np.zeros(1, np.int32), np.zeros(1), np.array([-1]), 0), np.array([[0.0, 5.0]]))
    >>> len(trees), trees.score(x).tolist(), trees.cut_to(1).score(x).tolist()
    (2, [[1.0, 5.0], [0.0, 6.0]], [[1.0, 0.0], [0.0, 1.0]])
    """

    n_columns: int
    n_values: int
    trees: list[tuple[FlatTree, np.ndarray]] = field(default_factory=list)  # each with its values (leaves, V)

    def __len__(self) -> int:
        return len(self.trees)

    def add(self, tree: FlatTree, values: np.ndarray) -> None:
        """One more tree, with values (leaves, V)."""
        values = np.ascontiguousarray(values, np.float64)
        if values.shape != (tree.n_leaves, self.n_values):
            raise ShapeError(f"values must be ({tree.n_leaves}, {self.n_values}), got {values.shape}.")
        self.trees.append((tree, values))

    def cut_to(self, n_trees: int) -> TreeSum:
        """The first trees alone."""
        return TreeSum(self.n_columns, self.n_values, self.trees[:n_trees])

    def score(self, columns: Table) -> np.ndarray:
        """F (N, V) for columns (N, F), dense or sparse."""
        if columns.shape[1] != self.n_columns:
            raise ShapeError(f"the trees read {self.n_columns} columns, got {columns.shape[1]}.")
        out = np.zeros((columns.shape[0], self.n_values))
        if not self.trees:
            return out
        asked = np.concatenate([tree.column for tree, _ in self.trees])
        used, place = np.unique(asked, return_inverse=True)
        places = np.split(place, np.cumsum([len(tree.column) for tree, _ in self.trees])[:-1])
        for start, block in _blocks(columns, used):
            part, gaps = out[start : start + len(block)], bool(np.isnan(block).any())
            for (tree, values), own in zip(self.trees, places, strict=True):
                part += values[_walk(block, own, tree, gaps=gaps)]
        return out

    def leaves(self, columns: Table) -> np.ndarray:
        """(N, trees) the leaf of every row in every tree."""
        out = np.empty((columns.shape[0], len(self.trees)), np.int64)
        for m, (tree, _) in enumerate(self.trees):
            out[:, m] = tree.leaves(columns)
        return out

    def usage(self) -> np.ndarray:
        """(F,) how many cuts read each column."""
        counts = np.zeros(self.n_columns, np.int64)
        for tree, _ in self.trees:
            counts += np.bincount(tree.column[tree.left >= 0], minlength=self.n_columns)
        return counts

    def importances(self) -> np.ndarray:
        """(F,) what the cuts of each column added to the gains; their number where a file tells no gains."""
        if any(tree.gain is None for tree, _ in self.trees):
            return self.usage().astype(np.float64)
        total = np.zeros(self.n_columns)
        for tree, _ in self.trees:
            total += np.bincount(tree.column, tree.gain, minlength=self.n_columns)
        return total

    # ------------------------------------------------------------------ storage

    def state(self) -> State:
        """All trees as a few arrays; children and leaves count from the first of their own tree."""
        sizes = [len(tree.column) for tree, _ in self.trees]
        arrays: dict[str, np.ndarray] = {
            "column": np.concatenate([np.zeros(0, np.int32), *(tree.column for tree, _ in self.trees)]),
            "threshold": np.concatenate([np.zeros(0), *(tree.threshold for tree, _ in self.trees)]),
            "left": np.concatenate([np.zeros(0, np.int32), *(tree.left for tree, _ in self.trees)]),
            "roots": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            "values": np.concatenate([np.zeros((0, self.n_values)), *(values for _, values in self.trees)]),
            "missing": np.concatenate([np.zeros(0, np.int8), *(tree.missing for tree, _ in self.trees)]),
        }
        if all(tree.gain is not None for tree, _ in self.trees):
            arrays["gain"] = np.concatenate([np.zeros(0), *(tree.gain for tree, _ in self.trees)])
        return State({}, arrays)

    @classmethod
    def from_state(cls, state: State, *, n_columns: int, n_values: int) -> TreeSum:
        """The sum whose `state` this is; ModelFileError where the arrays cannot be one.

        >>> trees = TreeSum(n_columns=1, n_values=1)
        >>> trees.add(FlatTree(np.zeros(1, np.int32), np.zeros(1), np.array([-1], np.int32), 0), np.ones((1, 1)))
        >>> TreeSum.from_state(trees.state(), n_columns=1, n_values=1).score(np.zeros((2, 1))).tolist()
        [[1.0], [1.0]]
        """
        roots, column = state.array("roots", (None,), np.int64), state.array("column", (None,), np.int32)
        threshold = state.array("threshold", column.shape, finite=False)
        left = state.array("left", column.shape, np.int32)
        values = state.array("values", (int((left < 0).sum()), n_values))
        # Files of before have neither: their models read no missing values.
        missing = state.array("missing", column.shape, np.int8) if "missing" in state.arrays else np.zeros_like(left)
        gain = state.array("gain", column.shape) if "gain" in state.arrays else None
        if (
            not len(roots)
            or roots[0] != 0
            or (np.diff(roots) < 1).any()
            or len(column) != roots[-1]
            or (len(column) and not (column.min() >= 0 and column.max() < max(n_columns, 1)))
            or np.isnan(threshold).any()
            or not np.isin(missing, (0, 1)).all()
        ):
            refuse("the arrays of the trees do not fit together")
        made, first = cls(n_columns, n_values), 0
        for start, stop in zip(roots[:-1].tolist(), roots[1:].tolist()):
            own = slice(start, stop)
            gains = None if gain is None else gain[own]
            sides = missing[own].astype(np.int8)
            tree = FlatTree(column[own], threshold[own], left[own], _depth(left[own]), sides, gains)
            made.add(tree, values[first : first + tree.n_leaves])
            first += tree.n_leaves
        return made


def _depth(left: np.ndarray) -> int:
    """Cuts on the longest path; ModelFileError unless every node but the root is the child of one before it."""
    depth = np.full(len(left), -1, np.int64)
    depth[0] = 0
    for node, child in enumerate(left.tolist()):
        if depth[node] < 0 or (child >= 0 and not (node < child < len(left) - 1 and depth[child] < 0)):
            refuse("the nodes of a tree do not hang together")
        if child >= 0:
            depth[child : child + 2] = depth[node] + 1
    ends = np.sort(-1 - left[left < 0])
    if not np.array_equal(ends, np.arange(len(ends))):
        refuse("the leaves of a tree are not numbered 0, 1, …")
    return int(depth.max())


def _blocks(columns: Table, used: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Dense blocks of the columns that are asked, with their first row."""
    table = columns if isinstance(columns, np.ndarray) else columns.tocsr()
    if not table.shape[1]:
        table, used = np.zeros((table.shape[0], 1)), np.zeros(1, np.int64)
    for start in range(0, table.shape[0], BLOCK):
        some = table[start : start + BLOCK][:, used]
        yield start, np.ascontiguousarray(some if isinstance(some, np.ndarray) else some.toarray())


def _walk(block: np.ndarray, column: np.ndarray, tree: FlatTree, *, gaps: bool) -> np.ndarray:
    """The leaf of each row of a block, which may have ``gaps``; a row that has arrived stays where it is."""
    flat, rows = block.reshape(-1), np.arange(len(block)) * block.shape[1]
    node = np.zeros(len(block), np.int64)
    for _ in range(tree.depth):
        child, values = tree.left[node], flat[rows + column[node]]
        above = values > tree.threshold[node]
        if gaps:
            above = np.where(np.isnan(values), tree.missing[node], above)
        node = np.where(child < 0, node, child + above)
    return -1 - tree.left[node].astype(np.int64)
