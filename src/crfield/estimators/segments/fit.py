"""From sequences and their segments to the training problem of a semi-Markov estimator.

What X and y say is learnt here, once: columns of steps, labels, texts of gold segments, and which weights there are.
Only the optimiser comes after. A model that goes on from an earlier fit keeps all of this, so that its weights mean
what they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.segments import Segmentation
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import InputError
from crfield.estimators.base.sequences import check_weights
from crfield.estimators.segments.checks import length_bins, length_limits
from crfield.estimators.segments.labels import read_segments
from crfield.estimators.segments.model import SegmentModel
from crfield.features.columns.segment_features import Trie, check_symbols, marks_of, symbols_of
from crfield.features.detect import encoder_for
from crfield.scoring.segments import SegmentData, SegmentLayout
from crfield.storage.exchange import template_text
from crfield.training.segments import FusedSegments


@dataclass(frozen=True, eq=False)
class Prepared:
    """The problem, the model with the weights to start from, its labels, and what became of the gold segments."""

    problem: FusedSegments
    model: SegmentModel
    coder: LabelCoder
    n_segments: int
    n_split: int


def prepare(
    options: Any, X: Any, y: Any, sample_weight: Any, before: tuple[SegmentModel, LabelCoder] | None
) -> Prepared:
    """Everything of a fit but the optimiser; ``options`` has the parameters of `SemiMarkovCRF` as attributes.

    >>> from crfield.estimators.segments.semi_markov import SemiMarkovCRF
    >>> made = prepare(SemiMarkovCRF(max_length=2), [[["a"], ["a"], ["b"]]], [["A", "A", "B"]], None, None)
    >>> made.n_segments, made.n_split, made.problem.n_weights == len(made.model.weights)
    (2, 0, True)
    """
    if before is None:
        encoder = encoder_for(
            X,
            template=template_text(options.template),
            functions=options.functions,
            transition_features=options.transition_features,
            transition_functions=options.transition_functions,
            standardize=bool(options.standardize),
            features=options.features,
        )
        batch = encoder.fit(X, min_count=options.min_count)
    else:
        encoder = before[0].encoder
        batch = encoder.encode(X)
    refuse_large(batch, encoder)
    chains = batch.topology
    if chains.n_nodes == 0:
        raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
    weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
    start, stop, labels = read_segments(y, chains, options.scheme)
    coder = LabelCoder().fit([labels]) if before is None else before[1]
    meant = Segmentation(chains, start, stop, coder.encode([labels], [len(labels)])[0])
    if before is None:
        limit = length_limits(options.max_length, coder.labels, options.scheme)
        gold, n_split = meant.limited(limit)
        transitions = options.transition_pairs
        if options.template is not None and not encoder.template.transitions:  # type: ignore[attr-defined]
            transitions = "none"
        sources = check_symbols(options.segment_text)
        learnt = [Trie.learn(symbols_of(X, source), gold, min_count=options.min_count) for source in sources]
        layout = _layout(options, batch, gold, limit, learnt, transitions)
        model = SegmentModel(encoder, tuple(trie for trie, _ in learnt), sources, layout, np.zeros(layout.n_weights))
        data = _data(model, batch, X)
    else:
        model = before[0]
        gold, n_split = meant.limited(model.layout.limit)
        data = _data(model, batch, X)
    problem = FusedSegments(model.layout, data, gold, weight=weight, n_jobs=resolve_jobs(options.n_jobs))
    return Prepared(problem, model, coder, len(meant.start), n_split)


def _layout(
    options: Any,
    batch: Batch,
    gold: Segmentation,
    limit: np.ndarray,
    learnt: Sequence[tuple[Trie, np.ndarray]],
    transitions: str,
) -> SegmentLayout:
    return SegmentLayout.observe(
        batch,
        gold,
        limit=limit,
        bins=length_bins(options.length_features, int(limit.max())),
        roles=tuple(options.step_features),
        texts=_numbered_through(learnt),
        feature_pairs=options.feature_pairs,
        transition_pairs=transitions,
        bias=bool(options.intercept),
        boundaries=bool(options.boundaries),
    )


def _data(model: SegmentModel, batch: Batch, X: Any) -> SegmentData:
    items = (model.layout.item_ptr, model.layout.item_label)
    return SegmentData(
        batch, marks_of(model.tries, model.sources, X, batch.topology, most=model.layout.max_length, items=items)
    )


def _numbered_through(learnt: Sequence[tuple[Trie, np.ndarray]]) -> tuple[np.ndarray, int] | None:
    """Columns (runs, M) of the gold segments' texts and their number, all tries together."""
    if not learnt:
        return None
    base = np.cumsum([0, *(trie.n_columns for trie, _ in learnt)])
    columns = np.stack([np.where(own >= 0, own + b, -1) for (_, own), b in zip(learnt, base)])
    return columns, int(base[-1])
