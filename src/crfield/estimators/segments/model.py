"""What a fitted semi-Markov estimator holds: columns, texts, a layout and weights, from X to scores of segments.

Scores of all segments are N · D · L numbers. They are written out for a run of whole sequences at a time, so that
answers for a large X need no more memory than its longest sequence, or a fixed amount.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.segments import Segmentation, SegmentPotentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.large import refuse_unbearable
from crfield.errors import ModelFileError
from crfield.features.columns.segment_features import Symbol, Trie, marks_of
from crfield.features.encoder import Encoder
from crfield.inference.segments import SegmentEngine
from crfield.kernels import segments
from crfield.kernels.segments import Marks, Parts
from crfield.scoring.segments import SegmentData, SegmentLayout, SegmentScorer

MOST_NUMBERS = 8_000_000  # scores written out at once, unless one sequence alone has more


@dataclass(frozen=True, eq=False)
class SegmentModel:
    """An encoder of steps, tries of texts with their sources, a layout and weights."""

    encoder: Encoder
    tries: tuple[Trie, ...]
    sources: tuple[Symbol, ...]
    layout: SegmentLayout
    weights: np.ndarray

    def data(self, X: Any) -> SegmentData:
        """Columns and texts of X; ModelFileError where parts read from a file do not belong together."""
        batch, layout = self.encoder.encode(X), self.layout
        refuse_unbearable(batch, self.encoder, self.weights)
        edge = (0, 0) if batch.edge is None else (batch.edge.width, batch.edge.n_dense)
        steps = (batch.node.width, batch.node.n_dense) if layout.roles else (0, 0)
        wanted = (layout.steps.n_columns, layout.steps.n_dense, layout.base.n_edge_columns, layout.base.n_edge_dense)
        texts = sum(trie.n_columns for trie in self.tries)
        if (*steps, *edge) != wanted or texts != len(layout.item_ptr) - 1:
            raise ModelFileError(
                f"the model file's encoder makes {(*steps, *edge)} columns and {texts} texts, its weights are for "
                f"{wanted} and {len(layout.item_ptr) - 1}. The file was put together wrongly: save the model again."
            )
        items = (layout.item_ptr, layout.item_label)
        marks = marks_of(self.tries, self.sources, X, batch.topology, most=layout.max_length, items=items)
        return SegmentData(batch, marks)

    def potentials(self, X: Any, *, n_jobs: int) -> Iterator[SegmentPotentials]:
        """Scores of X, a run of whole sequences at a time, in order."""
        data, layout = self.data(X), self.layout
        parts, edge = SegmentScorer(layout).parts(self.weights, data, n_jobs=n_jobs)
        chains = data.batch.topology
        for first, last in _runs(chains, layout.max_length * layout.n_labels):
            own = Chains(chains.offsets[first : last + 1] - chains.offsets[first])
            begin, end = (int(n) for n in chains.offsets[[first, last]])
            cut, marks = _sliced(parts, begin, end), _marked(data.marks, begin, end)
            each = layout.base.n_edge_columns > 0 or layout.base.n_edge_dense > 0
            table = edge[chains.edge_offsets[first] : chains.edge_offsets[last]] if each else edge
            scores = segments.expand(own.offsets, layout.limit, cut, marks, n_jobs=n_jobs)
            yield SegmentPotentials(scores, table, own)

    def best(self, X: Any, *, n_jobs: int) -> Segmentation:
        """The best segmentation of X."""
        engine = SegmentEngine(n_jobs)
        return joined([engine.best(scores)[1] for scores in self.potentials(X, n_jobs=n_jobs)])

    def beliefs(self, X: Any, *, n_jobs: int) -> Iterator[tuple[SegmentPotentials, Any]]:
        """Scores and beliefs of X, a run of whole sequences at a time."""
        engine = SegmentEngine(n_jobs)
        for scores in self.potentials(X, n_jobs=n_jobs):
            yield scores, engine.infer(scores, Semiring.LOG)


def joined(cuts: Sequence[Segmentation]) -> Segmentation:
    """Segmentations of consecutive runs of sequences as one.

    >>> one = Segmentation(Chains.from_lengths([2]), [0], [2], [1])
    >>> joined([one, one]).start.tolist()
    [0, 2]
    """
    lengths = np.concatenate([np.zeros(0, np.int64), *(cut.topology.lengths for cut in cuts)])
    base = np.cumsum([0, *(cut.topology.n_nodes for cut in cuts)])
    start, stop, label = (
        np.concatenate([np.zeros(0, np.int64), *values])
        for values in (
            [cut.start + b for cut, b in zip(cuts, base)],
            [cut.stop + b for cut, b in zip(cuts, base)],
            [cut.label for cut in cuts],
        )
    )
    return Segmentation(Chains.from_lengths(lengths), start, stop, label)


def _runs(chains: Chains, width: int) -> Iterator[tuple[int, int]]:
    """Sequences first … last − 1 of runs that have few enough scores, or are one sequence."""
    first, most = 0, max(1, MOST_NUMBERS // width)
    while first < chains.n_sequences:
        last = int(np.searchsorted(chains.offsets, chains.offsets[first] + most, side="right")) - 1
        last = min(max(last, first + 1), chains.n_sequences)
        yield first, last
        first = last


def _sliced(parts: Parts, begin: int, end: int) -> Parts:
    node, first, last, mean = (
        None if part is None else part[begin:end] for part in (parts.node, parts.first, parts.last, parts.mean)
    )
    return Parts(node, parts.length, first, last, mean, parts.weight)  # type: ignore[arg-type]


def _marked(marks: Marks, begin: int, end: int) -> Marks:
    a, b = (int(place) for place in marks.ptr[[begin, end]])
    return Marks(marks.ptr[begin : end + 1] - a, marks.steps[a:b], marks.item[a:b], marks.item_ptr, marks.item_label)
