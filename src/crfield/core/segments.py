"""Labels that belong to stretches of steps: scores of segments, answers in their shape, and a segmentation.

A chain decides step by step; a semi-Markov model decides where a segment begins, where it ends and what it is, so a
score may look at the whole of it: how long it is, what it contains, how it begins and ends (Sarawagi & Cohen 2005,
*Semi-Markov conditional random fields for information extraction*). A segmentation cuts a sequence into segments that
touch, and its score is

    Σ_k segment(segment k) + Σ_k edge(label of k − 1, label of k)

``segment[n, d - 1, j]`` scores a segment of label j whose d steps end with node n. Entries of segments that would
begin before their sequence mean nothing, whatever they hold. A label that may last fewer than D steps has −∞ in the
rest of its column. With D = 1 this is a chain.

Memory is N · D · L numbers. Whoever trains never writes them out (`training.segments`): the parts that they are
summed from have the shape of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import LabelError, ShapeError


@dataclass(frozen=True, eq=False)
class SegmentPotentials:
    """Scores of all segments of a batch of chains, and of neighbouring segments' labels.

    ``edge`` is one table for all, or one for each edge of the chains: that of the edge on which two segments meet.

    >>> scores = SegmentPotentials(np.zeros((4, 3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([4]))
    >>> scores.max_length, scores.n_labels, scores.shared
    (3, 2, True)
    """

    segment: np.ndarray  # (N, D, L)
    edge: np.ndarray  # (1 | E, L, L)
    topology: Chains

    def __post_init__(self) -> None:
        segment = np.ascontiguousarray(self.segment, dtype=np.float64)
        edge = np.ascontiguousarray(self.edge, dtype=np.float64)
        if segment.ndim != 3 or len(segment) != self.topology.n_nodes or min(segment.shape[1:]) < 1:
            raise ShapeError(
                f"segment scores must be ({self.topology.n_nodes}, longest segment, n_labels), got {segment.shape}."
            )
        labels = segment.shape[2]
        if edge.ndim != 3 or edge.shape[1:] != (labels, labels) or len(edge) not in (1, self.topology.n_edges):
            raise ShapeError(
                f"edge scores must be (1, {labels}, {labels}) or ({self.topology.n_edges}, {labels}, {labels}) to "
                f"match {labels} labels, got {edge.shape}."
            )
        object.__setattr__(self, "segment", segment)
        object.__setattr__(self, "edge", edge)

    @property
    def max_length(self) -> int:
        """D, the most steps of a segment."""
        return int(self.segment.shape[1])

    @property
    def n_labels(self) -> int:
        """L."""
        return int(self.segment.shape[2])

    @property
    def shared(self) -> bool:
        """Whether one table serves every edge."""
        return len(self.edge) == 1


@dataclass(frozen=True, eq=False)
class SegmentBeliefs:
    """What an engine found, in the shape of the scores: totals, and the probability of every segment.

    Under MAX the best segmentation as zeros and ones. ``edge`` is summed over the batch where a table is shared.

    >>> beliefs = SegmentBeliefs(np.zeros(1), np.array([[[0.5], [0.0]], [[0.5], [0.5]]]), np.zeros((1, 1, 1)))
    >>> beliefs.node.tolist(), beliefs.starts.tolist()
    ([[1.0], [1.0]], [[1.0], [0.5]])
    """

    total: np.ndarray  # (B,)
    segment: np.ndarray  # (N, D, L)
    edge: np.ndarray  # (1 | E, L, L)
    exact: bool = True

    @cached_property
    def node(self) -> np.ndarray:
        """(N, L) probability that the step lies in a segment of the label."""
        return _carried(np.cumsum(self.segment[:, ::-1], axis=1)[:, ::-1])

    @cached_property
    def starts(self) -> np.ndarray:
        """(N, L) probability that a segment of the label begins at the step."""
        return _carried(self.segment)

    @property
    def ends(self) -> np.ndarray:
        """(N, L) probability that a segment of the label ends with the step."""
        return np.asarray(self.segment.sum(axis=1))


def _carried(table: np.ndarray) -> np.ndarray:
    """(N, L) Σ_d table[n + d - 1, d - 1]: what segments that end later say of step n."""
    out = np.zeros((table.shape[0], table.shape[2]))
    for back in range(min(table.shape[1], len(table))):
        out[: len(table) - back] += table[back:, back]
    return out


@dataclass(frozen=True, eq=False)
class Segmentation:
    """M segments that tile the nodes of a batch of chains, in order: nodes ``start[k]:stop[k]`` have label k.

    >>> cut = Segmentation(Chains.from_lengths([3, 2]), [0, 2, 3], [2, 3, 5], [1, 0, 1])
    >>> cut.lengths.tolist(), cut.node_labels.tolist(), cut.sequence.tolist()
    ([2, 1, 2], [1, 1, 0, 1, 1], [0, 0, 1])
    >>> short, n_split = cut.limited(np.array([1, 1]))
    >>> short.lengths.tolist(), n_split
    ([1, 1, 1, 1, 1], 2)
    """

    topology: Chains
    start: np.ndarray  # (M,) int64
    stop: np.ndarray  # (M,) int64
    label: np.ndarray  # (M,) int32

    def __post_init__(self) -> None:
        start, stop = (np.ascontiguousarray(x, dtype=np.int64) for x in (self.start, self.stop))
        label = np.ascontiguousarray(self.label, dtype=np.int32)
        if start.ndim != 1 or start.shape != stop.shape or start.shape != label.shape:
            raise ShapeError(
                f"start, stop and label must be 1-D and equally long, got {start.shape}, {stop.shape}, {label.shape}."
            )
        filled = self.topology.offsets[:-1][self.topology.lengths > 0]
        tiled = (start < stop).all() and np.array_equal(np.append(start, self.topology.n_nodes)[1:], stop)
        if (len(start) == 0) != (self.topology.n_nodes == 0) or (len(start) and (start[0] != 0 or not tiled)):
            raise ShapeError("segments must be in order, touch, and cover every step of every sequence.")
        if not np.isin(filled, start).all():
            raise ShapeError("a segment reaches over the end of its sequence.")
        if len(label) and label.min() < 0:
            raise LabelError(f"labels of segments must be codes ≥ 0, got {label.min()}.")
        for name, value in (("start", start), ("stop", stop), ("label", label)):
            object.__setattr__(self, name, value)

    @classmethod
    def of_runs(cls, topology: Chains, codes: np.ndarray) -> Segmentation:
        """Longest runs of one label (N,) within each sequence.

        >>> Segmentation.of_runs(Chains.from_lengths([3, 1]), np.array([0, 0, 1, 1])).stop.tolist()
        [2, 3, 4]
        """
        begins = np.ones(len(codes), dtype=bool)
        begins[1:] = codes[1:] != codes[:-1]
        begins[topology.offsets[:-1][topology.lengths > 0]] = True
        start = np.flatnonzero(begins)
        return cls(topology, start, np.append(start, len(codes))[1:], np.asarray(codes)[start])

    @property
    def lengths(self) -> np.ndarray:
        """(M,) steps of each segment."""
        return self.stop - self.start

    @property
    def sequence(self) -> np.ndarray:
        """(M,) the chain of each segment."""
        return self.topology.sequence_of_node[self.start]

    @property
    def node_labels(self) -> np.ndarray:
        """(N,) the label of each step."""
        return np.repeat(self.label, self.lengths)

    @cached_property
    def follows(self) -> np.ndarray:
        """(M,) bool: whether another segment of the same sequence stands before."""
        out = np.ones(len(self.start), dtype=bool)
        out[np.isin(self.start, self.topology.offsets)] = False
        return out

    def limited(self, most: np.ndarray) -> tuple[Segmentation, int]:
        """The same with segments of label j cut into pieces of at most ``most[j]`` steps; and how many were cut."""
        limit = np.asarray(most, dtype=np.int64)[self.label]
        pieces = -(-self.lengths // limit)
        if not len(pieces) or pieces.max() == 1:
            return self, 0
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start = np.repeat(self.start, pieces) + number * np.repeat(limit, pieces)
        stop = np.minimum(start + np.repeat(limit, pieces), np.repeat(self.stop, pieces))
        cut = Segmentation(self.topology, start, stop, np.repeat(self.label, pieces))
        return cut, int((pieces > 1).sum())

    def joined(self) -> Segmentation:
        """Neighbours of one label made one."""
        return Segmentation.of_runs(self.topology, self.node_labels)
