"""Scores of single steps from stumps, categories and trees.

What boosting learns is a sum of weak learners, each of which sends a row to one of its leaves:

    score(c) = bias(c) + Σ_m values_m(leaf_m(x), c)

Here all of them lie in one table of binary cuts (`TreeTable`), whatever they were: a stump is a tree of one cut,
and a learner on categories a row of cuts that ask for one category after the other. Cut n reads ``column[n]`` and
leads to ``below[n]`` where the value is at most ``threshold[n]`` (or equal to it, where ``equal[n]``), to
``above[n]`` otherwise, and to ``missing[n]`` where it is NaN; a negative number −1 − k is leaf k. A step walks the
table by a loop of a few lines in any language, and the sums are added up in the order of the rounds: scores are the
same bits in NumPy, in the exported C and in the exported Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.boosting.weak_learners.state import Learner
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.tree_scorer import TreeSum
from crfield.estimators.export.step_scores import hashed, observed_or_missing
from crfield.estimators.export.written import Written

CUTS = ("column", "threshold", "equal", "below", "above", "missing")

_LEAF = """
/* The leaf where row x ends: cut n reads a column and leads on, -1 - k is leaf k, and NaN has a way of its own. */
static inline int NAME_leaf(int n, const double *x) {
  while (n >= 0) {
    double value = x[NAME_column[n]];
    int on = @test@ ? NAME_above[n] : NAME_below[n];
    n = isnan(value) ? NAME_missing[n] : on;
  }
  return -1 - n;
}
"""
_ABOVE = "value > NAME_threshold[n]"
_OTHER = "(NAME_equal[n] ? value != NAME_threshold[n] : value > NAME_threshold[n])"

_SCALED = """\
  double z[NAME_COLUMNS];
  for (int d = 0; d < NAME_COLUMNS; d++) z[d] = (x[d] - NAME_mean[d]) / NAME_deviation[d];"""

_NODES = """\
  for (int j = 0; j < NAME_SCORES; j++) score[j] = @first@;
  for (int m = 0; m < NAME_TREES; m++) {
    const double *leaf = NAME_values + NAME_leaf(NAME_roots[m], @x@) * NAME_SCORES;
    for (int j = 0; j < NAME_SCORES; j++) score[j] += leaf[j];
  }@last@"""
_LAST = "\n  for (int j = 0; j < NAME_SCORES; j++) score[j] += NAME_bias[j];"

_EDGES = """\
  double table[NAME_STATES * NAME_STATES] = {0.0};
  for (int m = 0; m < NAME_EDGE_TREES; m++) {
    const double *leaf = NAME_edge_values + NAME_leaf(NAME_edge_roots[m], @x@) * NAME_STATES * NAME_STATES;
    for (int p = 0; p < NAME_STATES * NAME_STATES; p++) table[p] += leaf[p];
  }
  for (int p = 0; p < NAME_STATES * NAME_STATES; p++) table[p] += NAME_transitions[p];
  edge = table;"""

_PYTHON_LEAF = """

def leaf(n, x):
    while n >= 0:
        value = x[COLUMN[n]]
        if value != value:
            n = MISSING[n]
        elif @test@:
            n = ABOVE[n]
        else:
            n = BELOW[n]
    return -1 - n
"""

_PYTHON_ABOVE = "value > THRESHOLD[n]"
_PYTHON_OTHER = "(value != THRESHOLD[n] if EQUAL[n] else value > THRESHOLD[n])"

_PYTHON_SCALED = """\
    x = [(value - m) / d for value, m, d in zip(x, MEAN, DEVIATION)]"""

_PYTHON_NODES = """\
    score = @first@
    for root in ROOTS:
        score = [total + value for total, value in zip(score, VALUES[leaf(root, x)])]"""
_PYTHON_LAST = "\n    score = [total + value for total, value in zip(score, BIAS)]"

_PYTHON_EDGES = """\
    flat = [0.0] * (STATES * STATES)
    for root in EDGE_ROOTS:
        flat = [total + value for total, value in zip(flat, EDGE_VALUES[leaf(root, x)])]
    edge = [[TRANSITIONS[i][j] + flat[i * STATES + j] for j in range(STATES)] for i in range(STATES)]"""


@dataclass(frozen=True, eq=False)
class TreeTable:
    """Cuts of all trees, end to end, and the first of each.

    >>> stump = Stump(0, 1.5, np.zeros((2, 1)), 1.0)
    >>> kinds = Categories(0, np.array([1.0, 3.0]), np.zeros((3, 1)), 1.0)
    >>> table = TreeTable.of_learners([(stump, np.array([[1.0], [2.0]])), (kinds, np.array([[3.0], [4.0], [5.0]]))])
    >>> table.leaves(np.array([[1.0], [3.0], [2.0], [np.nan]])).tolist()
    [[0, 2], [1, 3], [1, 4], [1, 4]]
    """

    column: np.ndarray  # (M,) int32
    threshold: np.ndarray  # (M,)
    equal: np.ndarray  # (M,) int32, 1 where the cut asks whether the value is the threshold
    below: np.ndarray  # (M,) int32
    above: np.ndarray  # (M,) int32
    missing: np.ndarray  # (M,) int32
    roots: np.ndarray  # (T,) int32
    values: np.ndarray  # (leaves, V) of all trees
    depth: int  # cuts on the longest way

    @classmethod
    def of_learners(cls, learners: Iterable[tuple[Learner, np.ndarray]], *, n_values: int = 1) -> TreeTable:
        """Stumps, categories and trees with the values (leaves, V) that they add; V where there are none."""
        cuts: list[tuple[int, float, int, list[int]]] = []
        roots, depth, first, values = [], 0, 0, []
        for learner, own in learners:
            root, deep = _laid(learner, first, cuts)
            roots.append(root)
            values.append(own)
            depth, first = max(depth, deep), first + len(own)
        return cls._of_cuts(cuts, roots, values or [np.zeros((0, n_values))], depth)

    @classmethod
    def of_trees(cls, trees: TreeSum) -> TreeTable:
        """Flat trees, whose node n leads to ``left[n]`` and the one after it."""
        cuts: list[tuple[int, float, int, list[int]]] = []
        roots, first, values = [], 0, []
        for tree, own in trees.trees:
            inner = np.flatnonzero(tree.left >= 0)
            place = np.full(len(tree.left), -1)
            place[inner] = len(cuts) + np.arange(len(inner))
            place[tree.left < 0] = tree.left[tree.left < 0] - first  # −1 − leaf, behind the leaves before
            missing = getattr(tree, "missing", None)  # the side of NaN, where trees know one
            for n in inner.tolist():
                ways = place[tree.left[n] : tree.left[n] + 2].tolist()
                side = 0 if missing is None else int(missing[n])
                cuts.append((int(tree.column[n]), float(tree.threshold[n]), 0, [*ways, ways[side]]))
            roots.append(int(place[0]))
            values.append(own)
            first += len(own)
        depth = max((tree.depth for tree, _ in trees.trees), default=0)
        return cls._of_cuts(cuts, roots, values or [np.zeros((0, trees.n_values))], depth)

    @classmethod
    def _of_cuts(
        cls,
        cuts: list[tuple[int, float, int, list[int]]],
        roots: list[int],
        values: list[np.ndarray],
        depth: int,
    ) -> TreeTable:
        below, above, missing = np.array([ways for *_, ways in cuts], np.int32).reshape(-1, 3).T.copy()
        return cls(
            np.array([column for column, *_ in cuts], np.int32),
            np.array([threshold for _, threshold, *_ in cuts], np.float64),
            np.array([equal for _, _, equal, _ in cuts], np.int32),
            below,
            above,
            missing,
            np.array(roots, np.int32),
            np.concatenate(values),
            depth,
        )

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """(k, T) rows of ``values`` where rows x (k, D) end."""
        at = np.tile(self.roots.astype(np.int64), (len(x), 1))
        rows = np.arange(len(x))[:, None]
        for _ in range(self.depth):
            inside = at >= 0
            n = np.where(inside, at, 0)
            value = x[rows, self.column[n]]
            over = np.where(self.equal[n] == 1, value != self.threshold[n], value > self.threshold[n])
            on = np.where(over, self.above[n], self.below[n])
            at = np.where(inside, np.where(np.isnan(value), self.missing[n], on), at)
        return -1 - at

    def sums(self, x: np.ndarray, first: np.ndarray) -> np.ndarray:
        """(k, V) ``first`` (V,) and the values of all trees, added up one after the other."""
        terms = np.concatenate([np.tile(first, (len(x), 1, 1)), self.values[self.leaves(x)]], axis=1)
        return np.add.accumulate(terms, axis=1)[:, -1]

    def tables(self) -> dict[str, np.ndarray]:
        """The cuts and the first of each tree, by name; ``equal`` only where categories are asked for."""
        own = {name: getattr(self, name) for name in (*CUTS, "roots")}
        return own if self.equal.any() else {name: table for name, table in own.items() if name != "equal"}

    def behind(self, other: TreeTable) -> TreeTable:
        """The cuts of both in one table: those of ``other``, then these; roots and values are these trees' own."""
        shift = len(other.column)
        moved = {
            name: np.where((way := getattr(self, name)) >= 0, way + shift, way).astype(np.int32)
            for name in ("below", "above", "missing", "roots")
        }
        joined = {name: np.concatenate([getattr(other, name), moved.get(name, getattr(self, name))]) for name in CUTS}
        return TreeTable(**joined, roots=moved["roots"], values=self.values, depth=self.depth)


def _laid(learner: Learner, first: int, cuts: list[Any]) -> tuple[int, int]:
    """Lay a learner's cuts behind those there are; the number of its root, and its depth.

    Leaf k of the learner is leaf ``first + k`` of all.
    """
    if isinstance(learner, Stump | Categories):
        count = 2 if isinstance(learner, Stump) else len(learner.categories) + 1
        return _branched(learner, [-1 - first - k for k in range(count)], cuts), count - 1
    numbers: dict[int, int] = {}
    depths: dict[int, int] = {}
    for node in range(len(learner.cuts) - 1, -1, -1):  # children come after their parents
        cut, below = learner.cuts[node], learner.children[node]
        if cut is None:
            numbers[node], depths[node] = -1 - first - learner.leaf[node], 0
            continue
        numbers[node] = _branched(cut, [numbers[child] for child in below], cuts)
        depths[node] = max(depths[child] for child in below) + len(below) - 1
    return numbers[0], depths[0]


def _branched(cut: Stump | Categories, ways: list[int], cuts: list[Any]) -> int:
    """A cut that leads to ``ways``: one binary cut, or one for each category; the number of the first."""
    if isinstance(cut, Stump):
        cuts.append((cut.column, cut.threshold, 0, [ways[0], ways[1], ways[cut.missing]]))
        return len(cuts) - 1
    other = ways[-1]
    number = other
    for category, way in zip(cut.categories[::-1].tolist(), ways[-2::-1]):
        cuts.append((cut.column, category, 1, [way, number, other]))
        number = len(cuts) - 1
    return number


@dataclass(frozen=True, eq=False)
class TreeSteps:
    """Sums of weak learners on the numbers of a step; NaN is a missing value.

    >>> table = TreeTable.of_learners([(Stump(0, 1.0, np.zeros((2, 2)), 1.0), np.array([[1.0, -1.0], [-1.0, 1.0]]))])
    >>> steps = TreeSteps(table, np.zeros(2), np.zeros((2, 2)), np.zeros(2), np.zeros(2), names=("speed",))
    >>> steps.score([[0.5], [3.0]], [[], []])[0].tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    trees: TreeTable
    bias: np.ndarray  # (L,)
    transitions: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)
    names: tuple[str, ...] = ()  # of the D columns
    bias_last: bool = False  # whether the bias is added to the sum, instead of the sum to it
    edge_trees: TreeTable | None = None  # L² values at a leaf
    mean: np.ndarray | None = None  # (D,) where columns are scaled first
    deviation: np.ndarray | None = None  # (D,)

    states = None  # scores are of labels

    @property
    def reach(self) -> int:
        """Nothing is looked back at."""
        return 0

    @property
    def varied(self) -> bool:
        """Whether trees score transitions."""
        return self.edge_trees is not None

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.names)

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns are asked by a cut.

        >>> table = TreeTable.of_learners([(Stump(1, 1.0, np.zeros((2, 1)), 1.0), np.zeros((2, 1)))])
        >>> one = np.zeros(1)
        >>> TreeSteps(table, one, np.zeros((1, 1)), one, one, names=("a", "b")).columns_read.tolist()
        [False, True]
        """
        cuts = [self.trees] if self.edge_trees is None else [self.trees, self.edge_trees]
        return np.isin(np.arange(self.n_columns), np.concatenate([trees.column for trees in cuts]))

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows (k, D)."""
        x = observed_or_missing(rows, self.n_columns)
        if self.mean is not None:
            x = (x - self.mean) / self.deviation
        nothing = np.zeros_like(self.bias)
        node = self.trees.sums(x, nothing if self.bias_last else self.bias)
        if self.bias_last:
            node = node + self.bias
        if self.edge_trees is None:
            return node, None
        edge = self.edge_trees.sums(x, np.zeros(self.transitions.size))
        return node, self.transitions + edge.reshape(-1, *self.transitions.shape)

    def digest(self) -> str:
        """A word that differs between models."""
        return hashed(["trees", self.bias_last], list(self.tables().values()))

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        trees, edges, made = self.trees, None, {}
        if self.edge_trees is not None:
            edges = self.edge_trees.behind(trees)
            made = {"edge_roots": edges.roots, "edge_values": edges.values}
        cuts = (edges or trees).tables()
        own = {"roots": trees.roots, "values": trees.values, "bias": self.bias}
        chain = {"start": self.start, "end": self.end, "transitions": self.transitions}
        if self.mean is not None and self.deviation is not None:
            made |= {"mean": self.mean, "deviation": self.deviation}
        return {**cuts, **own, **made, **chain}

    def written(self) -> Written:
        """How a step is scored."""
        trees, edges, labels = self.trees, self.edge_trees, len(self.bias)
        asks = "equal" in self.tables()
        scaled, row = self.mean is not None, "x" if self.mean is None else "z"
        last = self.bias_last
        c = _NODES.replace("@first@", "0.0" if last else "NAME_bias[j]").replace("@last@", _LAST if last else "")
        python = _PYTHON_NODES.replace("@first@", "[0.0] * SCORES" if last else "list(BIAS)")
        if scaled:
            c, python = f"{_SCALED}\n{c}", f"{_PYTHON_SCALED}\n{python}"
        count = len(trees.roots)
        made = Written(
            c.replace("@x@", row),
            python + (_PYTHON_LAST if last else ""),
            count * (2 * trees.depth + labels) + last * labels + scaled * 2 * self.n_columns,
            {"TREES": count},
            c_functions=_LEAF.replace("@test@", _OTHER if asks else _ABOVE),
            python_functions=_PYTHON_LEAF.replace("@test@", _PYTHON_OTHER if asks else _PYTHON_ABOVE),
            missing=True,
        )
        if edges is None:
            return made
        count, pairs = len(edges.roots), labels * labels
        cost = count * (2 * edges.depth + pairs) + pairs
        return made.then(_EDGES.replace("@x@", row), _PYTHON_EDGES, cost, {"EDGE_TREES": count})
