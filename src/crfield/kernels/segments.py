"""Contract of the segment kernels: semi-Markov sums and maxima over ragged batches.

Segments of d = 1 … D steps that end with node n have the scores ``segment[n, d - 1]`` (L,); those that would begin
before their sequence are not looked at. ``edge`` (1 | E, L, L) scores the labels of two segments that meet, by one
table or by that of the edge on which they meet. Scores are finite or −∞. Cost O(N (D L + L²)) time.

Most models sum a segment's score from parts in the shape of nodes, and `expectations` goes from these parts to their
gradients without writing (N, D, L) numbers out: a sequence's scores are made in scratch, used and dropped.

    segment(n, d, j) = Σ_{m = n-d+1}^{n} node_m(j) + 1/d Σ_m mean_m(j) + first_{n-d+1}(j) + last_n(j) + length_d(j)
                       + Σ_{items of (n, d)} weight(item, j)                       −∞ where d > limit_j

Sums over a segment are built step by step from the shorter one, and their gradients likewise: one addition for each
(n, d, j). The compiled body needs none: without means the ends of a segment and its length are factors, and sums over
lengths convolutions (`native/segments/products.cpp`). *Marked* segments carry items, say their text: those that end
with node n are the places ``ptr[n]:ptr[n+1]`` of ``steps`` (their d) and ``item``; item k has the labels
``item_label[item_ptr[k]:item_ptr[k+1]]``, a weight each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice


def sum_product(
    offsets: np.ndarray, segment: np.ndarray, edge: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log Z of every sequence, the probability of every segment (N, D, L), and of pairs in the shape of ``edge``.

    Summed over the batch where one table is shared. A sequence in which every segmentation is forbidden has the total
    −∞ and probabilities of zero.

    >>> total, p, pairs = sum_product(np.array([0, 2]), np.zeros((2, 2, 1)), np.zeros((1, 1, 1)))
    >>> float(np.exp(total[0]).round(12)), p[:, :, 0].round(12).tolist(), pairs.round(12).tolist()
    (2.0, [[0.5, 0.0], [0.5, 0.5]], [[[0.5]]])
    """
    offsets, segment, edge = _arrays(offsets, segment, edge)
    total = np.empty(len(offsets) - 1)
    segment_out, edge_out = np.empty_like(segment), np.empty_like(edge)
    choice.body("segments").sum_product(offsets, segment, edge, total, segment_out, edge_out, max(1, n_jobs))
    return total, segment_out, edge_out


def max_product(
    offsets: np.ndarray, segment: np.ndarray, edge: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best segmentation: ``total`` (B,), ``length`` (N,) and ``label`` (N,) int32.

    ``length`` has the steps of a segment at its last step and 0 elsewhere; ``label`` stands at every step.

    >>> max_product(np.array([0, 2]), np.array([[[1.0]], [[1.0]]]).repeat(2, axis=1), np.full((1, 1, 1), 0.5))
    (array([2.5]), array([1, 1], dtype=int32), array([0, 0], dtype=int32))
    """
    offsets, segment, edge = _arrays(offsets, segment, edge)
    total = np.empty(len(offsets) - 1)
    length, label = np.zeros(len(segment), dtype=np.int32), np.zeros(len(segment), dtype=np.int32)
    choice.body("segments").max_product(offsets, segment, edge, total, length, label, max(1, n_jobs))
    return total, length, label


def _arrays(offsets: np.ndarray, segment: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.ascontiguousarray(offsets, np.int64)
    return offsets, np.ascontiguousarray(segment, np.float64), np.ascontiguousarray(edge, np.float64)


@dataclass(frozen=True, eq=False)
class Marks:
    """Which segments carry which items, and the labels with which an item has a weight; see the module's essay.

    >>> Marks.none(3).n_weights
    0
    """

    ptr: np.ndarray  # (N + 1,) int64
    steps: np.ndarray  # (M,) int32
    item: np.ndarray  # (M,) int32
    item_ptr: np.ndarray  # (K + 1,) int64
    item_label: np.ndarray  # (F,) int32

    @classmethod
    def none(cls, n_nodes: int) -> Marks:
        """No marked segment."""
        empty = np.zeros(0, np.int32)
        return cls(np.zeros(n_nodes + 1, np.int64), empty, empty, np.zeros(1, np.int64), empty)

    @property
    def n_weights(self) -> int:
        """F."""
        return len(self.item_label)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """The five arrays as the kernels read them."""
        return (
            np.ascontiguousarray(self.ptr, np.int64),
            np.ascontiguousarray(self.steps, np.int32),
            np.ascontiguousarray(self.item, np.int32),
            np.ascontiguousarray(self.item_ptr, np.int64),
            np.ascontiguousarray(self.item_label, np.int32),
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """What segment scores are summed from, or the gradient in the same shapes."""

    node: np.ndarray  # (N, L)
    length: np.ndarray  # (D, L)
    first: np.ndarray | None = None  # (N, L)
    last: np.ndarray | None = None  # (N, L)
    mean: np.ndarray | None = None  # (N, L)
    weight: np.ndarray | None = None  # (F,) of items
    states: bool = False  # whether lengths are those of states, (D, S), and the others those of labels

    def __post_init__(self) -> None:
        for name in ("node", "length", "first", "last", "mean", "weight"):
            value = getattr(self, name)
            if value is not None:
                value = np.ascontiguousarray(value, np.float64)
                object.__setattr__(self, name, value)
            if value is not None and name not in ("length", "weight") and value.shape != self.node.shape:
                raise ShapeError(f"{name} must be {self.node.shape} as node is, got {value.shape}.")
        fits = self.node.ndim == 2 and self.length.ndim == 2
        if not fits or not (self.states or self.length.shape[1] == self.node.shape[1]):
            raise ShapeError(f"node must be (N, L) and length (D, L), got {self.node.shape}, {self.length.shape}.")


def expand(offsets: np.ndarray, limit: np.ndarray, parts: Parts, marks: Marks, *, n_jobs: int = 1) -> np.ndarray:
    """(N, D, L) scores of all segments; −∞ where they are too long for their label or begin before their sequence.

    >>> parts = Parts(np.array([[1.0], [2.0]]), np.array([[0.5], [0.25]]))
    >>> expand(np.array([0, 2]), np.array([2]), parts, Marks.none(2))[:, :, 0].tolist()
    [[1.5, -inf], [2.5, 3.25]]
    """
    out = np.empty((len(parts.node), *parts.length.shape))
    choice.body("segments").expand(*_asked(offsets, limit, parts, marks), out, max(1, n_jobs))
    return out


def expectations(
    offsets: np.ndarray,
    limit: np.ndarray,
    parts: Parts,
    marks: Marks,
    edge: np.ndarray,
    *,
    factor: np.ndarray | None = None,
    space: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[np.ndarray, Parts, np.ndarray]:
    """Log Z (B,) and its gradient in the parts and in ``edge``; sequence s counts ``factor[s]`` times in these.

    With ``space`` (S,), the label of each of S states, limits, lengths, marks and edges are those of states, and the
    parts in the shape of nodes, which the states of a label share, those of labels; so are their gradients.

    >>> parts = Parts(np.zeros((2, 1)), np.zeros((2, 1)))
    >>> total, found, pairs = expectations(np.array([0, 2]), np.array([2]), parts, Marks.none(2), np.zeros((1, 1, 1)))
    >>> float(np.exp(total[0]).round(12)), found.length.round(12).tolist(), pairs.round(12).tolist()
    (2.0, [[1.0], [0.5]], [[[0.5]]])
    """
    edge = np.ascontiguousarray(edge, np.float64)
    offsets, limit, *asked = _asked(offsets, limit, parts, marks)  # type: ignore[assignment]
    space = np.zeros(0, np.int32) if space is None else np.ascontiguousarray(space, np.int32)
    total = np.empty(len(offsets) - 1)
    weights = np.ones(len(total)) if factor is None else np.ascontiguousarray(factor, np.float64)
    if weights.shape != total.shape:
        raise ShapeError(f"factor must have one number for each of {len(total)} sequences, got {weights.shape}.")
    node = np.zeros_like(parts.node)
    first, last, mean = (
        None if part is None else np.zeros_like(part) for part in (parts.first, parts.last, parts.mean)
    )
    length, weight, edge_out = np.zeros_like(parts.length), np.zeros(marks.n_weights), np.zeros_like(edge)
    choice.body("segments").expectations(
        offsets,
        limit,
        space,
        *asked,
        edge,
        weights,
        total,
        node,
        first,
        last,
        mean,
        length,
        weight,
        edge_out,
        max(1, n_jobs),
    )
    return total, Parts(node, length, first, last, mean, weight, states=len(space) > 0), edge_out


def _asked(offsets: np.ndarray, limit: np.ndarray, parts: Parts, marks: Marks) -> tuple[np.ndarray | None, ...]:
    weight = np.zeros(marks.n_weights) if parts.weight is None else parts.weight
    return (
        np.ascontiguousarray(offsets, np.int64),
        np.ascontiguousarray(limit, np.int32),
        parts.node,
        parts.first,
        parts.last,
        parts.mean,
        parts.length,
        *marks.arrays(),
        weight,
    )
