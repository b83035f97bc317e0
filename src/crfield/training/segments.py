"""The training problem of a semi-Markov model: negative log-likelihood of gold segmentations.

    value(w) = Σ_s weight_s log Z_s(w) − w · counts          gradient = pull(expectations) − counts

The score of the gold segmentation is linear in the weights, so its features are counted once and every evaluation
costs one gather, one fused sum over segmentations (`kernels.segments.expectations`, which never writes N · D · L
numbers out) and one scatter.
"""

from __future__ import annotations

import numpy as np

from crfield.core.segments import Segmentation
from crfield.errors import InputError, LabelError
from crfield.kernels import segments
from crfield.scoring.segments import SegmentData, SegmentLayout, SegmentScorer


class FusedSegments:
    """Negative log-likelihood of segmentations, as a function of the weights.

    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> chains = Chains.from_lengths([3])
    >>> data = SegmentData(Batch(chains, Columns.from_rows([[0], [0], [1]], width=2)), segments.Marks.none(3))
    >>> gold = Segmentation(chains, [0, 2], [2, 3], [0, 1])
    >>> layout = SegmentLayout.observe(data.batch, gold, limit=np.array([2, 2]), bins=np.arange(2, dtype=np.int32))
    >>> problem = FusedSegments(layout, data, gold)
    >>> gradient = np.empty(problem.n_weights)
    >>> round(float(np.exp(problem.evaluate(np.zeros(problem.n_weights), gradient))), 6)  # 2³ + 2 · 2² segmentations
    16.0
    """

    def __init__(
        self,
        layout: SegmentLayout,
        data: SegmentData,
        gold: Segmentation,
        *,
        weight: np.ndarray | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.scorer, self.data, self.n_jobs = SegmentScorer(layout), data, n_jobs
        chains = data.batch.topology
        if not np.array_equal(gold.topology.offsets, chains.offsets):
            raise InputError("the gold segmentation must be of the sequences of the data.")
        longer = np.flatnonzero(gold.lengths > layout.limit[gold.label])
        if len(longer):
            raise LabelError(
                f"a gold segment has {int(gold.lengths[longer[0]])} steps, but its label may last "
                f"{int(layout.limit[gold.label[longer[0]]])}. Cut it first (Segmentation.limited)."
            )
        self.weight = np.ones(chains.n_sequences) if weight is None else np.asarray(weight, np.float64)
        self.counts = self.scorer.counts(gold, data, weight=self.weight)

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        parts, edge = self.scorer.parts(weights, self.data, n_jobs=self.n_jobs)
        total, found, pairs = segments.expectations(
            self.data.batch.topology.offsets,
            self.scorer.layout.limit,
            parts,
            self.data.marks,
            edge,
            factor=self.weight,
            n_jobs=self.n_jobs,
        )
        gradient[:] = self.scorer.pull(found, pairs, self.data)
        gradient -= self.counts
        return float(self.weight @ total - weights @ self.counts)
