"""Candidate features that are computed lazily, when asked for.

Selection looks at many more features than a model will ever hold: a column of the data times a label, or times a
pair of labels. Nothing here keeps them. `LazyColumns` says how many there are and what they are called, computes the
columns that are asked for, and scores all candidates against a gradient,

    score(k, j)    = Σ_n column_k(n) · node(n, j)                        state-linked
    score(k, i, j) = Σ_e column_k(head of e) · edge(e, i, j)             transition-linked

which is what grafting ranks by (Perkins, Lacker & Theiler 2003, *Grafting*). A transition-linked column is read at
the later step of an edge. How a score is found is the owner's affair: `MatrixColumns` multiplies, the relational
language scores all thresholds of one function by a histogram. Memory is that of the answer and of one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import FeatureError, InputError, ShapeError

STATE, TRANSITION = 0, 1


class Places(NamedTuple):
    """What candidates are made of; ``previous`` is −1 for those that are linked to one label."""

    column: np.ndarray  # (n,) int64
    previous: np.ndarray  # (n,) int64
    label: np.ndarray  # (n,) int64


class LazyColumns(Protocol):
    """Candidates over the N steps of ``chains``; see the module."""

    @property
    def chains(self) -> Chains:
        """The sequences that the columns are computed on."""

    @property
    def n_labels(self) -> int:
        """L."""

    @property
    def n_columns(self) -> int:
        """Distinct columns."""

    @property
    def n_candidates(self) -> int:
        """Columns times the labels, or pairs of labels, that each is linked to."""

    @property
    def link(self) -> np.ndarray:
        """(n_columns,) 0 for state-linked, 1 for transition-linked columns."""

    def name(self, candidate: int) -> str:
        """Name of a candidate, labels included."""

    def column_name(self, column: int) -> str:
        """Name of a column."""

    def places(self, candidates: np.ndarray | None = None) -> Places:
        """Column and labels of some candidates, or of all."""

    def chunk(self, columns: np.ndarray) -> np.ndarray:
        """(N, len(columns)) values of all steps, computed now."""

    def scores(self, node: np.ndarray | None, edge: np.ndarray | None, *, n_jobs: int = 1) -> np.ndarray:
        """(n_candidates,) inner products with a gradient (N, L) and (E, L, L)."""


def check_gradient(
    chains: Chains,
    n_labels: int,
    node: np.ndarray | None,
    edge: np.ndarray | None,
    *,
    states: bool,
    transitions: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The gradient as float64 (N, L) and (E, L, L); a part that no candidate needs may be missing."""
    shapes = ((chains.n_nodes, n_labels), (chains.n_edges, n_labels, n_labels))
    found = []
    for what, array, shape, needed in zip(("node", "edge"), (node, edge), shapes, (states, transitions), strict=True):
        if array is None:
            if needed and shape[0]:
                raise ShapeError(f"candidates are linked to the {what} scores, so a gradient {shape} is needed.")
            array = np.zeros(shape)
        array = np.ascontiguousarray(array, dtype=np.float64)
        if array.shape != shape and (needed or array.size):
            hint = " A table that edges share has lost what each of them has to say." if what == "edge" else ""
            raise ShapeError(f"the {what} gradient must be {shape}, got {array.shape}.{hint}")
        found.append(array)
    return found[0], found[1]


def check_columns(columns: np.ndarray, n_columns: int, *, what: str = "columns") -> np.ndarray:
    """Column numbers as int64 (n,), all of them there."""
    columns = np.asarray(columns)
    if columns.ndim != 1 or (columns.size and columns.dtype.kind not in "iu"):
        raise InputError(f"{what} must be a 1-D array of numbers, got {columns.dtype} {columns.shape}.")
    columns = columns.astype(np.int64)
    if columns.size and (columns.min() < 0 or columns.max() >= n_columns):
        raise InputError(f"{what} must lie in 0 … {n_columns - 1}, got {columns.min()} … {columns.max()}.")
    return columns


class MatrixColumns:
    """The columns of a dense or sparse matrix as candidates, each with every label or pair of labels.

    ``state`` (N, K) are linked to labels, ``transition`` (N, M) to pairs; a column that is to be both is given twice.
    Columns are numbered in this order, and the candidates of a column lie side by side: labels, or pairs with the
    later label running fastest.

    >>> columns = MatrixColumns(np.array([[1.0], [2.0], [3.0]]), chains=Chains.from_lengths([2, 1]), n_labels=2,
    ...                         transition=np.ones((3, 1)), names=["speed"], labels=["go", "stay"])
    >>> columns.n_columns, columns.n_candidates, columns.name(1), columns.name(3)
    (2, 6, 'speed | stay', 't0 | go→stay')
    >>> columns.scores(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    array([4., 5., 1., 2., 3., 4.])
    """

    def __init__(
        self,
        state: Any = None,
        *,
        chains: Chains,
        n_labels: int,
        transition: Any = None,
        names: Sequence[str] | None = None,
        transition_names: Sequence[str] | None = None,
        labels: Sequence[object] | None = None,
    ) -> None:
        self.chains, self.n_labels = chains, int(n_labels)
        self._state = _matrix(state, chains.n_nodes, "state")
        self._transition = _matrix(transition, chains.n_nodes, "transition")
        widths = self._state.shape[1], self._transition.shape[1]
        self.link = np.repeat(np.array([STATE, TRANSITION], np.int8), widths)
        self._names = [
            *_named(names, widths[0], "s"),
            *_named(transition_names, widths[1], "t"),
        ]
        self._labels = [str(label) for label in (range(self.n_labels) if labels is None else labels)]
        if self.n_labels < 1 or len(self._labels) != self.n_labels:
            raise InputError(f"n_labels must be ≥ 1 and match labels, got {n_labels} and {len(self._labels)}.")
        counts = np.where(self.link == STATE, self.n_labels, self.n_labels**2)
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def __repr__(self) -> str:
        return f"MatrixColumns({self.n_columns} columns, {self.n_candidates} candidates)"

    @property
    def n_columns(self) -> int:
        """K + M."""
        return len(self.link)

    @property
    def n_candidates(self) -> int:
        """K L + M L²."""
        return int(self._starts[-1])

    def column_name(self, column: int) -> str:
        """Name of a column."""
        return self._names[column]

    def name(self, candidate: int) -> str:
        """``column | label`` or ``column | previous→label``."""
        place = self.places(np.array([candidate]))
        previous, label = int(place.previous[0]), self._labels[int(place.label[0])]
        link = label if previous < 0 else f"{self._labels[previous]}→{label}"
        return f"{self._names[int(place.column[0])]} | {link}"

    def places(self, candidates: np.ndarray | None = None) -> Places:
        """Column and labels of some candidates, or of all."""
        if candidates is None:
            candidates = np.arange(self.n_candidates)
        candidates = check_columns(candidates, self.n_candidates, what="candidates")
        column = np.searchsorted(self._starts, candidates, side="right") - 1
        rest = candidates - self._starts[column]
        previous = np.where(self.link[column] == TRANSITION, rest // self.n_labels, -1)
        return Places(column, previous, rest % self.n_labels)

    def chunk(self, columns: np.ndarray) -> np.ndarray:
        """(N, len(columns)) values of all steps."""
        columns = check_columns(columns, self.n_columns)
        out = np.empty((self.chains.n_nodes, len(columns)))
        width = self._state.shape[1]
        for part, first, here in ((self._state, 0, columns < width), (self._transition, width, columns >= width)):
            if here.any():
                chosen = part[:, columns[here] - first]
                out[:, here] = chosen.toarray() if hasattr(chosen, "toarray") else chosen
        return out

    def scores(self, node: np.ndarray | None, edge: np.ndarray | None = None, *, n_jobs: int = 1) -> np.ndarray:
        """(n_candidates,) two products of matrices; ``n_jobs`` is left to them."""
        states, transitions = self._state.shape[1] > 0, self._transition.shape[1] > 0
        node, edge = check_gradient(self.chains, self.n_labels, node, edge, states=states, transitions=transitions)
        parts = []
        if states:
            parts.append(np.asarray(self._state.T @ node).ravel())
        if transitions:
            at_heads = self._transition[self.chains.heads]
            parts.append(np.asarray(at_heads.T @ edge.reshape(len(edge), self.n_labels**2)).ravel())
        return np.concatenate(parts) if parts else np.zeros(0)


def _matrix(matrix: Any, rows: int, what: str) -> Any:
    if matrix is None:
        return np.zeros((rows, 0))
    if hasattr(matrix, "tocsc"):
        from scipy.sparse import csr_array

        found: Any = csr_array(matrix, dtype=np.float64)
        values = found.data
    else:
        found = values = np.asarray(matrix, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != rows:
        raise ShapeError(f"{what} must be (n_steps, n_columns) with {rows} steps, got {found.shape}.")
    if not np.isfinite(values).all():
        raise FeatureError(f"{what} holds NaN or infinite values. Fill or drop them first.")
    return found


def _named(names: Sequence[str] | None, width: int, letter: str) -> list[str]:
    if names is None:
        return [f"{letter}{k}" for k in range(width)]
    if len(names) != width:
        raise InputError(f"there are {width} columns of this link but {len(names)} names.")
    return [str(name) for name in names]
