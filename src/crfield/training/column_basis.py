"""Preconditioning of numeric columns: what the optimiser has to know of them to be independent of their units.

Metres above the sea, seconds since 1970, twelve statistics of one signal: columns with large means, sizes that differ
by orders of magnitude, and strong correlations are what makes training by gradients slow. The data stay as they are
and so does the penalty; the optimiser works in coordinates in which the columns are centred, of one size and without
correlation (`optimize.basis`), and gives back weights of the user's columns.

Centring needs an intercept, which takes up what the means leave: x w = (x − m) w + m w. Where a model has none, the
mean stays, as one direction among the others. Two passes over the data are made for it, the second over what is left
of each column once its mean is taken off: the squares of Unix times would hold no digit of their deviations.

Columns of which every value is one (words, in dicts that also hold numbers) have a size already and are left alone.

Cost: N C² for C numeric columns; above ``MIXED`` only means and sizes are used, at N C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from crfield.data.batch import Batch, Columns
from crfield.optimize.basis import Basis, whitening
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout

MIXED = 512  # columns up to which correlations are taken into account
LARGE = 100.0  # mean square of a column that asks for another scale
ROWS = 8192  # of the data at a time

AnyProblem = TypeVar("AnyProblem")


@dataclass(frozen=True, eq=False)
class Moments:
    """What a training set says of its numeric columns, the sparse ones before the dense ones.

    >>> from crfield.core.topology import Chains
    >>> table = np.array([[1e9, 0.0], [1e9 + 2, 4.0]])
    >>> batch = Batch(Chains.from_lengths([2]), Columns(np.zeros(3), np.zeros(0), 0, dense=table))
    >>> moments = Moments.of(batch)
    >>> moments.mean.tolist(), moments.gram.tolist()
    ([1000000001.0, 2.0], [[2.0, 4.0], [4.0, 8.0]])
    """

    count: float  # rows, as they are weighted
    mean: np.ndarray  # (C,)
    gram: np.ndarray  # (C, C) Σ weight (x − mean)(x − mean)ᵀ, or only its diagonal (C,)
    sparse: np.ndarray  # which of the sparse columns are among them
    squares: np.ndarray  # (width,) Σ weight x² of every sparse column
    edge_squares: np.ndarray  # (DE + width,) the same for columns of edges, sparse before dense
    n_sequences: float
    n_edges: float

    @classmethod
    def of(cls, batch: Batch, weight: np.ndarray | None = None, *, whole: bool = True) -> Moments:
        """Those of a batch, whose sequences may have weights (B,).

        Unless it is the ``whole`` data, any sparse column may hold numbers elsewhere.
        """
        topology, node = batch.topology, batch.node
        by_sequence = np.ones(topology.n_sequences) if weight is None else np.asarray(weight, dtype=np.float64)
        rows = by_sequence[topology.sequence_of_node]
        edges = rows[topology.heads]
        sparse = np.zeros(0, dtype=np.int64)
        if node.values is not None:
            sparse = np.unique(node.indices[node.values != 1.0]) if whole else np.arange(node.width)
        if len(sparse) + node.n_dense > MIXED:
            sparse = sparse[:0]
        size = len(sparse) + node.n_dense
        count = float(rows.sum())
        mean = np.zeros(size)
        for block, part in numeric_blocks(node, sparse):
            mean += rows[part] @ block
        mean /= max(count, 1e-300)
        gram = np.zeros((size, size) if size <= MIXED else size)
        for block, part in numeric_blocks(node, sparse):
            block -= mean
            gram += (rows[part, None] * block).T @ block if gram.ndim == 2 else rows[part] @ block**2
        return cls(
            count,
            mean,
            gram,
            sparse,
            _squares(node, rows),
            np.zeros(0) if batch.edge is None else _squares(batch.edge, edges, dense=True),
            float(by_sequence.sum()),
            float(edges.sum()),
        )

    @property
    def even(self) -> bool:
        """Whether no column is to be mixed with others, and none is in units far from one."""
        return not len(self.mean) and not self.far

    @property
    def far(self) -> bool:
        """Whether a sparse column, or one of edges, is in units far from one."""
        squares = np.concatenate([self.squares, self.edge_squares])
        return float(squares.max(initial=0.0)) > LARGE * max(self.count, 1e-300)

    def merged(self, other: Moments) -> Moments:
        """Those of two parts of the data together (Chan, Golub & LeVeque 1983).

        >>> from crfield.core.topology import Chains
        >>> one, two = (Columns(np.zeros(2), np.zeros(0), 0, dense=np.array([[x]])) for x in (1.0, 5.0))
        >>> one, two = (Moments.of(Batch(Chains.from_lengths([1]), columns)) for columns in (one, two))
        >>> one.merged(two).mean.tolist(), one.merged(two).gram.tolist()
        ([3.0], [[8.0]])
        """
        count = self.count + other.count
        share = other.count / count if count else 0.0
        apart = other.mean - self.mean
        spread = np.outer(apart, apart) if self.gram.ndim == 2 else apart**2
        return replace(
            self,
            count=count,
            mean=self.mean + share * apart,
            gram=self.gram + other.gram + self.count * share * spread,
            squares=self.squares + other.squares,
            edge_squares=self.edge_squares + other.edge_squares,
            n_sequences=self.n_sequences + other.n_sequences,
            n_edges=self.n_edges + other.n_edges,
        )


def numeric(batch: Any) -> bool:
    """Whether there are columns with values, of steps or of edges."""
    parts = [part for part in (getattr(batch, "node", None), getattr(batch, "edge", None)) if part is not None]
    return any(part.values is not None or part.n_dense for part in parts)


def measured(problem: AnyProblem, layout: Any, batch: Any, target: Any) -> AnyProblem:
    """The problem, told what its numeric columns are like, where it has some (``columns``, ``moments``)."""
    told: Any = problem
    if layout is not None and numeric(batch):
        told.columns, told.moments = layout, Moments.of(batch, target.weight)
    return problem


def column_basis(layout: Any, moments: Moments, penalty: Penalty) -> Basis:
    """The coordinates for weights of this layout: about those in which the objective is round at zero weights.

    A step that knows nothing bends by 1/L in the score of each label, one that leaves from or leads to a pair of
    labels by 1/L². ``penalty`` adds its ridge. Weights of longer
    runs of labels (`scoring.higher_order.HigherOrderLayout`) lie behind those of a plain ``layout``.
    """
    n_weights, layout = layout.n_weights, getattr(layout, "plain", layout)
    labels, part = layout.n_labels, layout.part
    ridge = penalty.ridge(n_weights)
    bend = np.full(n_weights, moments.n_edges / labels**3)
    column, _ = layout.node_features()
    bend[part["node"]] = moments.squares[column] / labels
    bend[part["bias"]] = moments.count / labels
    bend[part["start"]] = bend[part["end"]] = moments.n_sequences / labels
    bend[part["transitions"]] = moments.n_edges / labels**2
    if layout.n_edge_columns or layout.n_edge_dense:
        bend[part["edge"]] = moments.edge_squares[layout.edge_features()[0]] / labels**2
        dense = moments.edge_squares[layout.n_edge_columns :]
        bend[part["edge_dense"]] = np.repeat(dense, labels**2) / labels**2
    scale = 1.0 / np.sqrt(np.maximum(bend + ridge, 1e-3))
    intercepts = np.arange(part["bias"].start, part["bias"].stop).reshape(-1, labels)
    return Basis(scale, tuple(mixed(column_places(layout, moments), intercepts, moments, labels, ridge)))


def column_places(layout: Layout, moments: Moments) -> np.ndarray:
    """(C, L) the weight of every numeric column and label; −1 where there is none."""
    labels, (column, label), dense = layout.n_labels, layout.node_features(), layout.part["dense"]
    places = np.full((len(moments.mean), labels), -1)
    rank = np.full(max(len(moments.squares), layout.n_columns), -1)
    rank[moments.sparse] = np.arange(len(moments.sparse))
    known = np.flatnonzero(rank[column] >= 0)
    places[rank[column[known]], label[known]] = known
    places[len(places) - layout.n_dense :] = np.arange(dense.start, dense.stop).reshape(-1, labels)
    return places


def mixed(
    places: np.ndarray,
    intercepts: np.ndarray,
    moments: Moments,
    share: float,
    ridge: np.ndarray,
    *,
    shares: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of a `Basis` for weights ``places`` (C, M) of columns and groups, with their ``intercepts`` (J, M).

    A row counts in one of the J intercepts of a group, ``shares`` (J,) of them in each, and bends the objective by
    1 / ``share``.
    """
    kinds, of_group = np.unique(places >= 0, axis=1, return_inverse=True)
    for kind in range(kinds.shape[1] if len(places) else 0):
        known, group = np.flatnonzero(kinds[:, kind]), np.flatnonzero(of_group.ravel() == kind)
        if not len(known):
            continue
        block = np.concatenate([places[np.ix_(known, group)], intercepts[:, group]])
        gram = moments.gram[np.ix_(known, known)] if moments.gram.ndim == 2 else moments.gram[known]
        yield (
            block,
            whitening(
                moments.mean[known],
                gram / share,
                moments.count / share,
                ridge=ridge[block[:, 0]],
                intercepts=len(intercepts),
                shares=shares,
            ),
        )


def numeric_blocks(columns: Columns, sparse: np.ndarray) -> Iterator[tuple[np.ndarray, slice]]:
    """The ``sparse`` columns chosen and all dense ones behind them: tables of some rows each, and which these are."""
    rank = np.full(columns.width, -1)
    rank[sparse] = np.arange(len(sparse))
    for begin in range(0, columns.n_rows, ROWS):
        part = slice(begin, min(begin + ROWS, columns.n_rows))
        rows = part.stop - part.start
        pieces = [] if columns.dense is None else [columns.dense[part]]
        if len(sparse):
            assert columns.values is not None
            taken = slice(columns.indptr[part.start], columns.indptr[part.stop])
            at = rank[columns.indices[taken]]
            row = np.repeat(np.arange(rows), np.diff(columns.indptr[part.start : part.stop + 1]))
            kept = at >= 0
            cell = row[kept] * len(sparse) + at[kept]
            table = np.bincount(cell, columns.values[taken][kept], minlength=rows * len(sparse))
            pieces.insert(0, table.reshape(rows, -1))
        yield np.concatenate([np.zeros((rows, 0)), *pieces], axis=1), part


def column_table(columns: Columns) -> np.ndarray:
    """(N, C) all columns as numbers, the sparse ones before the dense ones.

    >>> column_table(Columns.from_rows([[1], [0, 1]], width=2)).tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """
    if columns.values is None and columns.width:
        columns = replace(columns, values=np.ones(len(columns.indices)))
    none = np.zeros((0, columns.width + columns.n_dense))
    return np.concatenate([none, *(rows for rows, _ in numeric_blocks(columns, np.arange(columns.width)))])


def _squares(columns: Columns, rows: np.ndarray, *, dense: bool = False) -> np.ndarray:
    """Σ weight x² of every sparse column, and of the dense ones behind them if asked for."""
    weighed = np.ones(len(columns.indices)) if columns.values is None else columns.values**2
    if (rows != 1.0).any():
        weighed *= np.repeat(rows, np.diff(columns.indptr))
    squares = np.bincount(columns.indices, weighed, minlength=columns.width)
    if dense and columns.dense is not None:
        squares = np.concatenate([squares, rows @ columns.dense**2])
    return squares
