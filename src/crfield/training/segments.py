"""The training problem of a semi-Markov model: negative log-likelihood of gold segmentations.

    value(w) = Σ_s weight_s log Z_s(w) − w · counts          gradient = pull(expectations) − counts

The score of the gold segmentation is linear in the weights, so its features are counted once and every evaluation
costs one gather, one fused sum over segmentations (`kernels.segments.expectations`, which never writes N · D · L
numbers out) and one scatter.

That is several times what a chain's evaluation costs, and much more than a pair of the optimiser's history. So the
history is long where a chain's is short: with many weights, 25 pairs need about half the evaluations of the usual 4.
A diagonal preconditioner, which helps chains after stochastic epochs, does not pay here: the roles of a column
overlap (in short segments they nearly are the same), and what it gains at the start it loses at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError, LabelError
from crfield.kernels import segments
from crfield.optimize.basis import Basis
from crfield.optimize.history import Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.segments import SegmentData, SegmentLayout, SegmentScorer
from crfield.training.column_basis import Moments, column_basis, column_places, mixed, numeric, numeric_blocks
from crfield.training.likelihood import history_pairs
from crfield.training.segment_start import started

PAIRS = 25
HISTORY_BYTES = 256_000_000  # eight for each weight and pair


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
        self.states = layout.states(chains)
        after = np.flatnonzero(gold.follows & (gold.label == np.roll(gold.label, 1)))
        if not self.states.again[self.states.of_cut(gold).label[after - 1]].all():
            raise LabelError("two gold segments of one label touch, but segments are to be runs of one label.")
        self.marks = self.states.marks(data.marks)
        self.weight = np.ones(chains.n_sequences) if weight is None else np.asarray(weight, np.float64)
        self.gold, self.counts = gold, self.scorer.counts(gold, data, weight=self.weight)

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        data, states = self.data, self.states
        parts, edge = self.scorer.parts(weights, data, n_jobs=self.n_jobs)
        total, found, pairs = segments.expectations(
            data.batch.topology.offsets,
            states.most,
            states.tables(parts, data.marks),
            self.marks,
            states.edge(edge),
            factor=self.weight,
            space=states.labels,
            n_jobs=self.n_jobs,
        )
        gradient[:] = self.scorer.pull(states.label_parts(found, data.marks), states.label_edge(pairs), data)
        gradient -= self.counts
        return float(self.weight @ total - weights @ self.counts)


def segment_pairs(n_weights: int, penalty: Penalty) -> int | None:
    """Pairs of the history, within a fixed amount of memory; None, the optimiser's few, under an l1 penalty.

    >>> [segment_pairs(n, Penalty(l2=1.0)) for n in (1000, 600_000, 6_000_000)]
    [100, 25, 5]
    """
    if penalty.l1:
        return None
    most = min(PAIRS, HISTORY_BYTES // (8 * max(n_weights, 1)))
    return max(history_pairs(n_weights, penalty) or 0, most) or None


def segment_basis(problem: FusedSegments, penalty: Penalty) -> Basis | None:
    """Coordinates in which numeric columns are centred and of one size (`training.column_basis`), if there are some.

    The intercept of a step takes up the means of the role "sum". Those of the other roles, which count once for a
    segment, go to the weights of its length; without these they stay. What a role is like the gold segments tell.
    """
    layout, batch, gold = problem.scorer.layout, problem.data.batch, problem.gold
    labels, part = layout.n_labels, layout.part
    if penalty.l1 or not layout.roles or not numeric(batch):
        return None
    moments = Moments.of(batch, problem.weight)
    if moments.even:
        return None
    ridge, by_segment = penalty.ridge(layout.n_weights), problem.weight[gold.sequence]
    scale = 1.0 / np.sqrt(np.maximum(by_segment.sum() / labels**2 + ridge, 1e-3))
    for name, own in (("steps", layout.steps), ("base", layout.base)):
        scale[part[name]] = column_basis(own, moments, Penalty(l2=penalty.l2)).scale
    places = dict(zip(layout.roles, np.split(column_places(layout.steps, moments), len(layout.roles), axis=1)))
    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    if "sum" in places:
        bias = np.arange(layout.base.n_weights)[layout.base.part["bias"]].reshape(-1, labels) + part["base"].start
        blocks += mixed(places.pop("sum"), bias, moments, labels, ridge)
    if places:
        table = np.concatenate([rows for rows, _ in numeric_blocks(batch.node, moments.sparse)])
        met = {"first": table[gold.start], "last": table[gold.stop - 1]}
        met["mean"] = np.add.reduceat(table, gold.start, axis=0) / gold.lengths[:, None]
        rows = np.concatenate([met[role] for role in places], axis=1)
        empty = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int32), 0
        of_segments = Batch(Chains.from_lengths(np.ones(len(rows), np.int64)), Columns(*empty, dense=rows))
        lengths = np.arange(layout.n_weights)[part["length"]].reshape(-1, labels)
        lengths = lengths if (layout.bins >= 0).all() else lengths[:0]
        met_lengths = problem.counts[lengths].sum(axis=1) if len(lengths) else np.zeros(0)
        blocks += mixed(
            np.concatenate(list(places.values())),
            lengths,
            Moments.of(of_segments, by_segment),
            labels,
            ridge,
            shares=met_lengths / max(float(met_lengths.sum()), 1e-300) if len(lengths) else None,
        )
    return Basis(scale, tuple(blocks))


def fit_segments(
    problem: FusedSegments,
    penalty: Penalty,
    start: np.ndarray,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    callback: Callable[[Step, np.ndarray], bool | None] | None = None,
) -> Result:
    """Minimise the penalised negative log-likelihood from ``start`` (W,).

    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> chains = Chains.from_lengths([2])
    >>> data = SegmentData(Batch(chains, Columns.from_rows([[0], [1]], width=2)), segments.Marks.none(2))
    >>> gold = Segmentation(chains, [0, 1], [1, 2], [0, 1])
    >>> layout = SegmentLayout.observe(data.batch, gold, limit=np.array([2, 2]), bins=np.arange(2, dtype=np.int32))
    >>> problem = FusedSegments(layout, data, gold)
    >>> fit_segments(problem, Penalty(l2=1.0), np.zeros(problem.n_weights)).converged
    True
    """
    basis = segment_basis(problem, penalty)
    if basis is not None and not start.any():
        begun = started(problem, penalty, basis)
        start, basis = begun or (start, basis)
    return minimize(
        problem,
        start,
        penalty,
        memory=segment_pairs(problem.n_weights, penalty),
        basis=basis,
        renew=basis is not None,
        tol=tol,
        max_iter=max_iter,
        n_jobs=problem.n_jobs,
        callback=callback,
    )
