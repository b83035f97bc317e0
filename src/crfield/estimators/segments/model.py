"""What a fitted semi-Markov estimator holds: columns, texts, a layout and weights, from X to scores of segments.

Scores of all segments are N · D · L numbers. They are written out for a run of whole sequences at a time, so that
answers for a large X need no more memory than its longest sequence, or a fixed amount.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from crfield.core.segments import Segmentation, SegmentBeliefs, SegmentPotentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_unbearable
from crfield.errors import InputError, ModelFileError
from crfield.features.columns.segment_features import Symbol, Trie, marks_of
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.inference.segments import SegmentEngine
from crfield.kernels import linear, segments
from crfield.kernels.segments import Marks, Parts
from crfield.scoring.segment_states import SegmentStates
from crfield.scoring.segments import SegmentData, SegmentLayout, SegmentScorer
from crfield.storage.state import State, refuse

MOST_NUMBERS = 8_000_000  # scores written out at once, unless one sequence alone has more


@dataclass(frozen=True, eq=False)
class SegmentModel:
    """Labels, an encoder of steps, tries of texts with their sources, a layout and weights."""

    labels: LabelCoder
    encoder: Encoder
    tries: tuple[Trie, ...]
    sources: tuple[Symbol, ...]
    layout: SegmentLayout
    weights: np.ndarray
    joins: bool  # whether neighbours of one label are one segment, as where y said labels of steps

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
        return self.marked(batch, X)

    def marked(self, batch: Batch, X: Any) -> SegmentData:
        """Columns of X with the texts of its segments."""
        items = (self.layout.item_ptr, self.layout.item_label)
        most = self.layout.max_length
        return SegmentData(batch, marks_of(self.tries, self.sources, X, batch.topology, most=most, items=items))

    def scores(self, X: Any, *, n_jobs: int) -> Iterator[tuple[SegmentStates, SegmentPotentials]]:
        """Scores of X over states, a run of whole sequences at a time, in order."""
        data, layout = self.data(X), self.layout
        chains = data.batch.topology
        states = layout.states(chains)
        parts, edge = SegmentScorer(layout).parts(self.weights, data, n_jobs=n_jobs)
        parts, edge, marks = states.parts(parts, data.marks), states.edge(edge), states.marks(data.marks)
        each = layout.base.n_edge_columns > 0 or layout.base.n_edge_dense > 0
        for first, last in _runs(chains, layout.max_length * states.space.n_states):
            own = Chains(chains.offsets[first : last + 1] - chains.offsets[first])
            begin, end = (int(n) for n in chains.offsets[[first, last]])
            table = edge[chains.edge_offsets[first] : chains.edge_offsets[last]] if each else edge
            cut = _sliced(parts, begin, end)
            scores = segments.expand(own.offsets, states.most, cut, _marked(marks, begin, end), n_jobs=n_jobs)
            yield states, SegmentPotentials(scores, table, own)

    def steps(self, X: Any, *, n_jobs: int) -> tuple[Chains, np.ndarray, np.ndarray]:
        """Chains of X; how likely each step lies in (N, L), and begins (N, L), a segment of each label.

        They are gradients of the total, so no score or probability of a single segment is ever written down.
        """
        data, layout = self.data(X), self.layout
        chains = data.batch.topology
        states = layout.states(chains)
        parts, edge = SegmentScorer(layout).parts(self.weights, data, n_jobs=n_jobs)
        if parts.first is None:
            parts = replace(parts, first=np.zeros_like(parts.node))
        _, found, _ = segments.expectations(
            chains.offsets,
            states.most,
            states.tables(parts, data.marks),
            states.marks(data.marks),
            states.edge(edge),
            space=states.labels,
            n_jobs=n_jobs,
        )
        return chains, found.node, np.asarray(found.first)

    def best(self, X: Any, *, n_jobs: int) -> Segmentation:
        """The best segmentation of X."""
        engine = SegmentEngine(n_jobs)
        return joined([states.label_cut(engine.best(own)[1]) for states, own in self.scores(X, n_jobs=n_jobs)])

    def beliefs(self, X: Any, *, n_jobs: int) -> Iterator[tuple[Chains, SegmentBeliefs]]:
        """Chains and beliefs of X, a run of whole sequences at a time."""
        engine = SegmentEngine(n_jobs)
        for states, scores in self.scores(X, n_jobs=n_jobs):
            yield scores.topology, states.label_beliefs(engine.infer(scores, Semiring.LOG))

    def pieces(self, cut: Segmentation) -> tuple[Segmentation, int]:
        """A segmentation as the model may have it, segments that are too long cut; and how many were cut."""
        return (cut.joined() if self.joins else cut).limited(self.layout.limit)

    def state(self) -> State:
        """Header and arrays; InputError where features are functions."""
        if self.encoder.kind == "functions" or any(callable(source) for source in self.sources):
            raise InputError(
                "a model with feature functions cannot be saved: they are code. Use joblib.dump(model, path), and "
                "load such files only from people you trust; or name the entries of dicts or the columns of rows "
                "instead."
            )
        header = {"labels": self.labels.to_json(), "joins": self.joins, "texts": list(self.sources)}
        arrays = {"weights": self.weights}
        for number, trie in enumerate(self.tries):
            arrays |= {f"texts{number}/{name}": np.ascontiguousarray(v) for name, v in trie.to_arrays().items()}
        state = State(header, arrays).with_part("encoder", self.encoder.state())
        return state.with_part("layout", self.layout.state())

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, sources = LabelCoder.from_json(state.header.get("labels")), state.listed("texts")
        if not all(type(source) in (str, int) for source in sources):
            refuse("the file does not say what texts are made of")
        layout = SegmentLayout.from_state(state.part("layout").header, state.under("layout"))
        if layout.n_labels != labels.n_labels:
            raise ModelFileError(f"the model file has {labels.n_labels} labels but a layout for {layout.n_labels}.")
        weights = state.array("weights", (layout.n_weights,))
        encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"))
        tries = tuple(Trie.from_arrays(state.under(f"texts{k}")) for k in range(len(sources)))
        made = cls(labels, encoder, tries, tuple(sources), layout, weights, state.flag("joins"))
        try:
            for name in ("steps", "base"):
                linear.Tagger(getattr(layout, name), weights[layout.part[name]])
        except (ValueError, IndexError, OverflowError, MemoryError) as error:
            raise ModelFileError(f"the model file's layout of the weights is damaged: {error}.") from None
        made.data([])
        return made


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
