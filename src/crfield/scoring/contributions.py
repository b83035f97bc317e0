"""The difference of two labellings' scores, weight by weight.

    score(y) − score(y') = Σ over features and steps of  value · (weight on y − weight on y')

The score of a labelling is a sum of weights, so a margin between two of them is one too: where they agree, node
features cancel; where they differ, every active feature of the step gives its value times the difference of its two
weights. Transitions, longer runs of labels, boundaries and fixed scores are further terms. Nothing is estimated or
sampled: the terms add up to the margin. O(active features of the steps that differ), whatever the number of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crfield.data.batch import Batch, Columns
from crfield.scoring.higher_order import HigherOrderLayout
from crfield.scoring.layout import Layout


class Term(NamedTuple):
    """One part of a difference of scores: value · (weight − other).

    ``kind`` is a part of the layout ("node", "dense", "bias", "start", "end", "transitions", "edge", "edge_dense",
    "runs") or "fixed_edge", "fixed_start", "fixed_end"; ``step`` the later one of a pair of steps; ``column`` that of
    a feature, the number of labels of a run, −1 for others.

    >>> Term("node", 3, 17, 2.0, 0.5, -0.25).amount
    1.5
    """

    kind: str
    step: int
    column: int
    value: float
    weight: float
    other: float

    @property
    def amount(self) -> float:
        """What it adds to the difference."""
        return self.value * (self.weight - self.other)


@dataclass(frozen=True, eq=False)
class WeightedColumns:
    """Columns of nodes or of edges beside their weights: for each of L labels, or of L² pairs of labels.

    >>> columns = Columns.from_rows([[1, 0, 1]], width=2)
    >>> met = np.array([0, 1, 3]), np.array([1, 0, 1])
    >>> own = WeightedColumns(columns, 2, np.array([5.0, 6, 7]), np.zeros(0), *met)
    >>> own.sparse(np.array([1, 0])).tolist(), own.lookup(np.array([0, 1]), np.array([0, 1])).tolist()
    ([[6.0, 7.0], [0.0, 5.0]], [0.0, 7.0])
    >>> [part.tolist() for part in own.active(0)]
    [[0, 1], [1.0, 2.0]]
    """

    columns: Columns
    width: int  # L or L²
    weights: np.ndarray  # of the sparse columns
    dense_weights: np.ndarray  # (D · width,)
    ptr: np.ndarray | None = None  # of the pairs (column, label) that have a weight; None: all
    item: np.ndarray | None = None

    @classmethod
    def of_nodes(cls, layout: Layout, weights: np.ndarray, batch: Batch) -> WeightedColumns:
        """Those of the nodes of a batch."""
        own = weights[layout.part["node"]], weights[layout.part["dense"]]
        return cls(batch.node, layout.n_labels, *own, layout.feature_ptr, layout.feature_label)

    @classmethod
    def of_edges(cls, layout: Layout, weights: np.ndarray, batch: Batch) -> WeightedColumns | None:
        """Those of the edges of a batch, if there are such columns."""
        if batch.edge is None:
            return None
        own = weights[layout.part["edge"]], weights[layout.part["edge_dense"]]
        return cls(batch.edge, layout.n_labels**2, *own, layout.edge_ptr, layout.edge_pair)

    def sparse(self, columns: np.ndarray) -> np.ndarray:
        """(n, width) weights of n sparse columns, 0 where there is none."""
        if self.ptr is None or self.item is None:
            return self.weights.reshape(-1, self.width)[columns]
        counts = self.ptr[columns + 1] - self.ptr[columns]
        row = np.repeat(np.arange(len(columns)), counts)
        place = np.arange(len(row)) + np.repeat(self.ptr[columns] - (np.cumsum(counts) - counts), counts)
        out = np.zeros((len(columns), self.width))
        out[row, self.item[place]] = self.weights[place]
        return out

    @property
    def dense(self) -> np.ndarray:
        """(D, width) weights of the dense columns."""
        return self.dense_weights.reshape(-1, self.width)

    def lookup(self, columns: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(n,) weights of sparse columns, each for one label (or pair), 0 where there is none."""
        wanted = columns.astype(np.int64) * self.width + items
        if self.ptr is None or self.item is None:
            return self.weights[wanted]
        if not len(self.item):
            return np.zeros(len(wanted))
        keys = np.repeat(np.arange(len(self.ptr) - 1) * self.width, np.diff(self.ptr)) + self.item
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, self.weights[place], 0.0)

    def active(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The different sparse columns of a row, and their values added up."""
        first, last = self.columns.indptr[row : row + 2]
        found, inverse = np.unique(self.columns.indices[first:last], return_inverse=True)
        values = None if self.columns.values is None else self.columns.values[first:last]
        return found, np.bincount(inverse, weights=values, minlength=len(found)).astype(np.float64)

    def terms(self, kinds: tuple[str, str], row: int, step: int, item: int, other: int) -> Iterator[Term]:
        """What the active columns of a row, sparse and dense, give to the label ``item`` rather than ``other``."""
        found, values = self.active(row)
        table = self.sparse(found)
        for k, column in enumerate(found.tolist()):
            yield Term(kinds[0], step, column, float(values[k]), float(table[k, item]), float(table[k, other]))
        if self.columns.dense is not None:
            for k, value in enumerate(self.columns.dense[row].tolist()):
                yield Term(kinds[1], step, k, value, float(self.dense[k, item]), float(self.dense[k, other]))


def path_difference(
    layout: Layout, weights: np.ndarray, batch: Batch, path: np.ndarray, other: np.ndarray
) -> list[Term]:
    """The terms of score(path) − score(other), for one sequence and two labellings (T,) that are not forbidden.

    Terms of nothing are left out.

    >>> from crfield.core.topology import Chains
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> layout = Layout(n_labels=2, n_columns=2, pairs=np.array([1], np.int32))
    >>> terms = path_difference(layout, np.array([1.0, 2, 3, 4, 0.5]), batch, np.array([0, 1]), np.array([0, 0]))
    >>> [(term.kind, term.step, term.amount) for term in terms]
    [('node', 1, 1.0), ('transitions', 1, 0.5)]
    """
    path, other = path.astype(np.int64), other.astype(np.int64)
    steps = np.flatnonzero(path != other).tolist()
    edges = np.flatnonzero((path[1:] != other[1:]) | (path[:-1] != other[:-1])).tolist()
    size, part = layout.n_labels, layout.part
    pair, other_pair = path[:-1] * size + path[1:], other[:-1] * size + other[1:]
    terms: list[Term] = []
    nodes = WeightedColumns.of_nodes(layout, weights, batch)
    for t in steps:
        terms += nodes.terms(("node", "dense"), t, t, int(path[t]), int(other[t]))
    joints = WeightedColumns.of_edges(layout, weights, batch)
    if joints is not None:
        for e in edges:
            terms += joints.terms(("edge", "edge_dense"), e, e + 1, int(pair[e]), int(other_pair[e]))

    def constants(kind: str, at: list[int], table: np.ndarray, own: np.ndarray, less: np.ndarray, shift: int) -> None:
        terms.extend(Term(kind, k + shift, -1, 1.0, float(table[own[k]]), float(table[less[k]])) for k in at)

    ends = {"start": [0][: len(path)], "end": [len(path) - 1][: len(path)]}
    if layout.bias:
        constants("bias", steps, weights[part["bias"]], path, other, 0)
    if layout.boundaries:
        for name, at in ends.items():
            constants(name, at, weights[part[name]], path, other, 0)
    constants("transitions", edges, np.nan_to_num(layout.transitions(weights)).ravel(), pair, other_pair, 1)
    if layout.fixed is not None:
        for name, at in ends.items():
            constants(f"fixed_{name}", at, getattr(layout.fixed, name), path, other, 0)
        constants("fixed_edge", edges, layout.fixed.edge.ravel(), pair, other_pair, 1)
    if isinstance(layout, HigherOrderLayout):
        terms += _run_terms(layout, weights[part["runs"]], batch, path, other)
    return [term for term in terms if term.amount != 0.0]


def _run_terms(
    layout: HigherOrderLayout, weights: np.ndarray, batch: Batch, path: np.ndarray, other: np.ndarray
) -> list[Term]:
    runs = layout.runs
    states = [runs.walk(labels, batch.topology) for labels in (path, other)]
    terms = []
    for k, number in enumerate(runs.weight_of):
        for t in range(1, len(path)):
            met = [int(number[own[t - 1], labels[t]]) for own, labels in zip(states, (path, other))]
            if met[0] != met[1]:
                weight, less = (float(weights[m]) if m >= 0 else 0.0 for m in met)
                terms.append(Term("runs", t, k + 3, 1.0, weight, less))
    return terms
