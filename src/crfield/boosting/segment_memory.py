"""States that remember the segment before: a chain of first order in steps and of second order in segments.

A chain of labels knows the last step and so nothing but the present label: in "stand, walk, stand, climb" it cannot
tell which of the two stands it is in. Here a state is a pair (label of the segment before, label). From (a, b) a
chain stays or goes on to (b, c); a sequence begins with (nothing, a). Every labelling has one path of states, so
that exact inference stays what it is (`crfield.core.states`).

States are the pairs that occur in training, and (nothing, a) for every label: few of all L² ever do, which keeps
inference, N S², cheap. A change of labels that training never saw is thereby impossible. Steps of unknown label are
passed over when pairs are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from crfield.core.states import StateSpace
from crfield.core.target import UNKNOWN, Target
from crfield.storage.state import refuse

NOTHING = -1  # before the first segment


@dataclass(frozen=True, eq=False)
class SegmentMemory:
    """The states of a chain with memory, sorted by label and label before.

    >>> from crfield.core.topology import Chains
    >>> target = Target(Chains.from_lengths([4]), 2, np.array([0, 1, 1, 0]))
    >>> memory = SegmentMemory.observed(target)
    >>> list(zip(memory.before.tolist(), memory.space.label_of_state.tolist()))
    [(-1, 0), (1, 0), (-1, 1), (0, 1)]
    >>> memory.target(target).labels.tolist()
    [0, 3, 3, 1]
    >>> np.isfinite(memory.edge).astype(int).tolist()
    [[1, 0, 0, 1], [0, 1, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]
    """

    before: np.ndarray  # (S,) int32
    space: StateSpace

    @classmethod
    def of(cls, before: np.ndarray, label: np.ndarray, n_labels: int) -> Self:
        """From the two labels (S,) of every state."""
        return cls(before.astype(np.int32), StateSpace(label.astype(np.int32), n_labels, one_path=True))

    @classmethod
    def observed(cls, target: Target) -> Self:
        """The states that the labels of a target need; where some are one of a set, all pairs of labels."""
        n = target.n_labels
        unsure = target.allowed is not None and (~target.allowed[target.labels == UNKNOWN].all(axis=1)).any()
        if unsure:
            before, label = (part.ravel() for part in np.mgrid[0:n, 0:n])
            before, label = before[before != label], label[before != label]
        else:
            before, label = _pairs(target)
        codes = np.unique(np.concatenate([label * (n + 1) + before + 1, np.arange(n) * (n + 1)]))
        return cls.of(codes % (n + 1) - 1, codes // (n + 1), n)

    @cached_property
    def edge(self) -> np.ndarray:
        """(S, S) 0 where a state may follow another, else −∞."""
        label = self.space.label_of_state
        goes_on = self.before == label[:, None]  # (a, b) to (b, c)
        return np.where(goes_on | np.eye(len(label), dtype=bool), 0.0, -np.inf)

    @cached_property
    def start(self) -> np.ndarray:
        """(S,) 0 where a sequence may begin, else −∞."""
        return np.where(self.before == NOTHING, 0.0, -np.inf)

    def target(self, target: Target) -> Target:
        """The target over states: one for each known label, passing over unknown ones, which may be any allowed."""
        before, label = _pairs(target)
        n = target.n_labels + 1
        own = self.space.label_of_state.astype(np.int64) * n + self.before + 1
        codes = np.full(len(target.labels), UNKNOWN)
        codes[target.labels != UNKNOWN] = np.searchsorted(own, label * n + before + 1)
        allowed = None if target.complete.all() else target.mask[:, self.space.label_of_state]
        return Target(target.topology, len(own), codes, allowed, target.weight)

    def arrays(self) -> dict[str, np.ndarray]:
        """The two labels of every state, for a file."""
        return {"before": self.before, "label": self.space.label_of_state}

    @classmethod
    def from_arrays(cls, arrays: Any, n_labels: int) -> Self:
        """The memory whose `arrays` these are; ModelFileError where they cannot be."""
        before, label = (np.asarray(arrays.get(name, np.zeros(0))) for name in ("before", "label"))
        fits = before.ndim == 1 and before.shape == label.shape and before.dtype == label.dtype == np.int32
        if not fits or not len(label) or label.min() < 0 or before.min() < NOTHING:
            refuse("the states of segments in the model file are damaged")
        if (
            max(label.max(), before.max()) >= n_labels
            or (np.diff(label.astype(np.int64) * 2**32 + before) <= 0).any()
        ):
            refuse("the states of segments in the model file are damaged")
        if (before == label).any() or len(np.unique(label[before == NOTHING])) != n_labels:
            refuse("the states of segments in the model file are damaged")
        return cls.of(before, label, n_labels)


def _pairs(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Label of the segment before and label of every known step, as int64."""
    known = np.flatnonzero(target.labels != UNKNOWN)
    label, sequence = target.labels[known].astype(np.int64), target.topology.sequence_of_node[known]
    first = np.ones(len(known), bool)
    first[1:] = (label[1:] != label[:-1]) | (sequence[1:] != sequence[:-1])
    starts = np.flatnonzero(first)
    before = np.full(len(starts), NOTHING, np.int64)
    same = sequence[starts[1:]] == sequence[starts[:-1]]
    before[1:][same] = label[starts[:-1]][same]
    return before[np.cumsum(first) - 1], label
