"""The exact engine for segments: semi-Markov forward sums and Viterbi behind one interface.

Cost O(N (D L + L²)) for segments of up to D steps; a batch is split over threads by sequences. Offsets run along with
the sums, so neither the length of a sequence nor the size of its scores costs digits: see
``kernels/reference/segments.py`` for the recursion (Sarawagi & Cohen 2005; for the backward pass, which is the
gradient of the forward one, Eisner 2016, *Inside-outside and forward-backward algorithms are just backprop*).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.segments import Segmentation, SegmentBeliefs, SegmentPotentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.labellings import segment_sums
from crfield.kernels import segments


@dataclass(frozen=True)
class SegmentEngine:
    """Exact totals, marginals and best segmentations.

    >>> scores = SegmentPotentials(np.zeros((3, 2, 1)), np.zeros((1, 1, 1)), Chains.from_lengths([3]))
    >>> beliefs = SegmentEngine().infer(scores, Semiring.LOG)  # 1+1+1, 1+2, 2+1
    >>> round(float(np.exp(beliefs.total[0])), 12), beliefs.starts[:, 0].round(4).tolist()
    (3.0, [1.0, 0.6667, 0.6667])
    """

    n_jobs: int = 1

    def infer(self, potentials: SegmentPotentials, semiring: Semiring) -> SegmentBeliefs:
        """Total of each sequence and its gradient with respect to the scores."""
        if semiring is Semiring.MAX:
            total, cut = self.best(potentials)
            return one_hot(potentials, cut, total)
        _check(potentials)
        return SegmentBeliefs(
            *segments.sum_product(
                potentials.topology.offsets, potentials.segment, potentials.edge, n_jobs=self.n_jobs
            )
        )

    def best(self, potentials: SegmentPotentials) -> tuple[np.ndarray, Segmentation]:
        """Score (B,) and segments of the best segmentation; where all are forbidden −∞, and some segmentation.

        >>> scores = SegmentPotentials(np.array([[[0.0], [0.0]], [[0.0], [1.0]]]), np.zeros((1, 1, 1)),
        ...     Chains.from_lengths([2]))
        >>> total, cut = SegmentEngine().best(scores)
        >>> total.tolist(), cut.lengths.tolist()
        ([1.0], [2])
        """
        _check(potentials)
        chains = potentials.topology
        total, length, label = segments.max_product(
            chains.offsets, potentials.segment, potentials.edge, n_jobs=self.n_jobs
        )
        last = np.flatnonzero(length)
        return total, Segmentation(chains, last + 1 - length[last], last + 1, label[last])


def segmentation_scores(potentials: SegmentPotentials, cut: Segmentation) -> np.ndarray:
    """(B,) the score of a segmentation, −∞ where it is forbidden.

    >>> scores = SegmentPotentials(np.ones((3, 2, 1)), np.full((1, 1, 1), 0.5), Chains.from_lengths([3]))
    >>> segmentation_scores(scores, Segmentation(scores.topology, [0, 2], [2, 3], [0, 0])).tolist()
    [2.5]
    """
    chains = potentials.topology
    place, long, label = _places(potentials, cut)
    fits = long < potentials.max_length
    own = np.full(len(place), -np.inf)
    own[fits] = potentials.segment[place[fits], long[fits], label[fits]]
    later = np.flatnonzero(cut.follows)
    own[later] += potentials.edge[_tables(potentials, cut, later), label[later - 1], label[later]]
    return segment_sums(own, np.searchsorted(cut.start, chains.offsets))


def one_hot(potentials: SegmentPotentials, cut: Segmentation, total: np.ndarray) -> SegmentBeliefs:
    """A segmentation as zeros and ones in the shape of the scores; all zeros where the total is −∞."""
    place, long, label = _places(potentials, cut)
    possible = ~np.isneginf(total)[cut.sequence]
    segment, edge = np.zeros_like(potentials.segment), np.zeros_like(potentials.edge)
    segment[place[possible], long[possible], label[possible]] = 1.0
    later = np.flatnonzero(cut.follows & possible)
    np.add.at(edge, (_tables(potentials, cut, later), label[later - 1], label[later]), 1.0)
    return SegmentBeliefs(total, segment, edge)


def _places(potentials: SegmentPotentials, cut: Segmentation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if len(cut.label) and cut.label.max() >= potentials.n_labels:
        raise LabelError(f"segments have labels up to {cut.label.max()}, scores are for {potentials.n_labels}.")
    return cut.stop - 1, cut.lengths - 1, cut.label


def _tables(potentials: SegmentPotentials, cut: Segmentation, later: np.ndarray) -> np.ndarray:
    """The edge table on which these segments meet the ones before."""
    if potentials.shared:
        return np.zeros(len(later), np.int64)
    # Edges are numbered as nodes are, without the first node of every sequence.
    return cut.start[later] - 1 - _empty_before(potentials.topology)[cut.sequence[later]]


def _empty_before(chains: Chains) -> np.ndarray:
    """(B,) how many nodes without an edge into them lie before each sequence."""
    return np.cumsum(chains.lengths > 0) - (chains.lengths > 0)


def _check(potentials: SegmentPotentials) -> None:
    for name, scores in (("segment", potentials.segment), ("edge", potentials.edge)):
        if scores.size and not scores.max() < np.inf:
            place = np.argwhere(~(scores < np.inf))[0].tolist()
            raise InputError(
                f"{name} scores must be finite or -inf (forbidden), got {scores[tuple(place)]} at {place}. "
                "Check the features and weights they come from."
            )
