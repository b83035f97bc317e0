"""States below the labels of segments, where a segment is a longest run: one segmentation for each labelling.

Where y says the label of every step, a run that is longer than its label may last is cut into pieces of that length
and a rest. Of all segmentations those alone count that some labelling has: two neighbours have one label only where
the first of them is as long as can be. If all counted, a labelling would share its probability with segmentations
that nobody can say, and the probabilities of all labellings would sum to less than one.

Whether a label may follow itself thus depends on a length, which an edge does not see. So a label of up to D > 1
steps has two states: *short* pieces of 1 … D − 1 steps, which the same label never follows, and *full* ones of D
steps, which anything may follow. Kernels and engines see states; their answers are summed over the states of a label.
A label that no sequence at hand can exceed has one state, after which it never follows; one of a single step has one
too, and may follow itself, as in a chain. Where neighbours of one label are told apart (tag schemes, y of segments),
states are labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crfield.core.segments import Segmentation, SegmentBeliefs
from crfield.core.states import StateSpace
from crfield.kernels.segments import Marks, Parts


@dataclass(frozen=True, eq=False)
class SegmentStates:
    """States of the labels of segments, and how many steps those of each state have.

    >>> states = SegmentStates.of_runs(np.array([3, 1]), longest=9)
    >>> states.space.label_of_state.tolist(), states.least.tolist(), states.most.tolist()
    ([0, 0, 1], [1, 3, 1], [2, 3, 1])
    >>> states.edge(np.zeros((1, 2, 2)))[0].tolist()
    [[-inf, -inf, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    >>> SegmentStates.of_runs(np.array([3, 1]), longest=3).edge(np.zeros((1, 2, 2)))[0].tolist()
    [[-inf, 0.0], [0.0, 0.0]]
    """

    space: StateSpace
    least: np.ndarray  # (S,) int32, the fewest steps of a segment
    most: np.ndarray  # (S,) int32
    again: np.ndarray  # (S,) bool, whether the same label may follow

    @classmethod
    def of_labels(cls, limit: np.ndarray) -> SegmentStates:
        """States that are labels, of up to ``limit`` (L,) steps; any may follow any."""
        space = StateSpace.repeated(np.ones(len(limit)))
        return cls(space, np.ones(len(limit), np.int32), limit, np.ones(len(limit), dtype=bool))

    @classmethod
    def of_runs(cls, limit: np.ndarray, *, longest: int) -> SegmentStates:
        """States for runs of labels of up to ``limit`` (L,) steps in sequences of up to ``longest``."""
        space = StateSpace.repeated(np.where((limit > 1) & (limit < longest), 2, 1))
        label, whole = space.label_of_state, limit.astype(np.int32)
        full = np.append(False, label[1:] == label[:-1])
        short = np.append(full[1:], False)
        again = full | (whole[label] == 1)
        return cls(space, np.where(full, whole[label], 1).astype(np.int32), whole[label] - short, again)

    @cached_property
    def plain(self) -> bool:
        """Whether states are labels and any may follow any."""
        return self.space.plain and bool(self.again.all())

    @property
    def labels(self) -> np.ndarray | None:
        """(S,) the label of each state as kernels take it; None where states are labels."""
        return None if self.plain else self.space.label_of_state

    # ------------------------------------------------------------------- scores of labels to scores of states

    def parts(self, parts: Parts, marks: Marks) -> Parts:
        """What scores of segments are summed from; −∞ for lengths that a state does not have."""
        if self.plain:
            return parts
        label = self.space.label_of_state
        first, last, mean = (
            None if part is None else part[:, label] for part in (parts.first, parts.last, parts.mean)
        )
        own = self.tables(parts, marks)
        return replace(own, node=parts.node[:, label], first=first, last=last, mean=mean, states=False)

    def tables(self, parts: Parts, marks: Marks) -> Parts:
        """The same with only the tables of lengths and items spread over states; steps keep those of labels."""
        if self.plain:
            return parts
        steps = np.arange(1, len(parts.length) + 1)[:, None]
        length = parts.length[:, self.space.label_of_state]
        length = np.where((steps >= self.least) & (steps <= self.most), length, -np.inf)
        weight = parts.weight
        if weight is not None and marks.n_weights:
            weight = weight[self._items(marks)[0]]
        return replace(parts, length=length, weight=weight, states=True)

    def edge(self, edge: np.ndarray) -> np.ndarray:
        """(1 | E, S, S) scores of neighbours; −∞ where a label does not follow itself."""
        if self.plain:
            return edge
        label = self.space.label_of_state
        same = label[:, None] == label
        return np.where(same & ~self.again[:, None], -np.inf, edge[:, label][:, :, label])

    def marks(self, marks: Marks) -> Marks:
        """Marked segments whose items have the states of their labels."""
        if self.plain:
            return marks
        source, item_ptr = self._items(marks)
        number = np.arange(len(source)) - np.searchsorted(source, source)
        state = (self._first[marks.item_label[source]] + number).astype(np.int32)
        return replace(marks, item_ptr=item_ptr, item_label=state)

    @cached_property
    def _first(self) -> np.ndarray:
        """(L,) the first state of each label."""
        return np.cumsum(self.space.counts) - self.space.counts

    def _items(self, marks: Marks) -> tuple[np.ndarray, np.ndarray]:
        """The weight of labels behind every weight of states, and the places of items among the latter."""
        count = self.space.counts[marks.item_label]
        return np.repeat(np.arange(len(count)), count), np.append(0, np.cumsum(count))[marks.item_ptr]

    # ----------------------------------------------------------------- answers over states to answers over labels

    def label_parts(self, parts: Parts, marks: Marks) -> Parts:
        """Gradients in what `tables` gave, each label the sum of its states."""
        if self.plain:
            return parts
        weight = parts.weight
        if weight is not None and marks.n_weights:
            weight = np.bincount(self._items(marks)[0], weight, minlength=marks.n_weights)
        return replace(parts, length=self._sums(parts.length), weight=weight, states=False)

    def label_edge(self, edge: np.ndarray) -> np.ndarray:
        """(1 | E, L, L) of pairs of labels."""
        return edge if self.plain else self._sums(self._sums(edge).swapaxes(1, 2)).swapaxes(1, 2)

    def label_beliefs(self, beliefs: SegmentBeliefs) -> SegmentBeliefs:
        """Probabilities of the segments of labels."""
        if self.plain:
            return beliefs
        return replace(beliefs, segment=self._sums(beliefs.segment), edge=self.label_edge(beliefs.edge))

    def _sums(self, table: np.ndarray) -> np.ndarray:
        """Sums over the states of each label, which are the last axis."""
        return table if self.space.plain else np.add.reduceat(table, self._first, axis=-1)

    # ------------------------------------------------------------------------------------------- segmentations

    def of_cut(self, cut: Segmentation) -> Segmentation:
        """A segmentation of labels as one of states."""
        if self.plain:
            return cut
        state = self._first[cut.label]
        full = (self.space.counts[cut.label] > 1) & (cut.lengths > self.most[state])
        return replace(cut, label=state + full)

    def label_cut(self, cut: Segmentation) -> Segmentation:
        """A segmentation of states as one of labels."""
        return cut if self.plain else replace(cut, label=self.space.label_of_state[cut.label])
