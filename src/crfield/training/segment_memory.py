"""States that remember the segment before: a chain of first order in steps and of second order in segments.

A chain of labels knows the last step and so nothing but the present label: in "stand, walk, stand, climb" it cannot
tell which of the two stands it is in. Here a state is a pair (label of the segment before, label). From (a, b) a
chain stays or goes on to (b, c); a sequence begins with (nothing, a). Every labelling has one path of states, so
that exact inference stays what it is (`crfield.core.states`).

States are pairs that occur in training: few of all L² ever do, which keeps inference, N S², cheap. A change of labels
that training never saw is thereby impossible. Steps of unknown label are passed over when pairs are read.

`SegmentMemory` has states alone, for models that learn scores of neighbours, and (nothing, a) for every label.
`SegmentStates` has counted transitions beside them: maximum likelihood of their own piece of the model, p(state |
state before) (piecewise training: Sutton & McCallum 2005, *Piecewise training for undirected models*), with
``smoothing`` added to every pair that the states allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.states import StateSpace
from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.inference.chain import ChainEngine
from crfield.storage.state import refuse

NOTHING = -1  # before the first segment


def labels_before(label: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """(n,) label of the segment before that of each step, NOTHING in the first; of codes and their sequences (n,).

    >>> labels_before(np.array([0, 1, 1, 0, 0]), np.array([0, 0, 0, 0, 1])).tolist()
    [-1, 0, 0, 1, -1]
    """
    first = np.ones(len(label), bool)
    first[1:] = (label[1:] != label[:-1]) | (sequence[1:] != sequence[:-1])
    starts = np.flatnonzero(first)
    before = np.full(len(starts), NOTHING, np.int64)
    same = sequence[starts[1:]] == sequence[starts[:-1]]
    before[1:][same] = label[starts[:-1]][same]
    return np.asarray(before[np.cumsum(first) - 1])


def may_follow(before: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(S, S) bool: whether a state (before, label) may come after another, or is the same one."""
    return np.asarray((before == label[:, None]) | np.eye(len(label), dtype=bool))


def with_memory(labels: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(label of the segment before, label) of every step; None before the first segment. Unknown steps are left out.

    >>> with_memory(["a", "b", "b", None, "a"])
    [(None, 'a'), ('a', 'b'), ('a', 'b'), ('b', 'a')]
    """
    known = [label for label in labels if label is not None]
    names = list(dict.fromkeys(known))
    number = {label: code for code, label in enumerate(names)}
    codes = np.array([number[label] for label in known], dtype=np.int64)
    before = labels_before(codes, np.zeros(len(codes), np.int64))
    return [(None if code == NOTHING else names[code], label) for code, label in zip(before.tolist(), known)]


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
        return np.where(may_follow(self.before, self.space.label_of_state), 0.0, -np.inf)

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
    label = target.labels[known].astype(np.int64)
    return labels_before(label, target.topology.sequence_of_node[known]), label


@dataclass(frozen=True, eq=False)
class SegmentStates:
    """States with their labels, and log-probabilities of beginning with one and of going from one to another.

    >>> states = SegmentStates.counted([["a", "a", "b", "b", "a"]], ["a", "b"], memory=True, smoothing=0.0)
    >>> states.label.tolist()
    [0, 1, 0]
    >>> states.best_labels(np.array([[0.0, 0.2], [0.0, 9.0], [0.0, 9.0], [9.0, 0.0]])).tolist()
    [0, 1, 1, 0]
    """

    states: tuple[tuple[Any, Any], ...]  # S
    label: np.ndarray  # (S,) code of each state's label
    start: np.ndarray  # (S,)
    edge: np.ndarray  # (S, S)
    memory: bool = True

    @classmethod
    def counted(
        cls, sequences: Iterable[Iterable[Any]], classes: Sequence[Any], *, memory: bool, smoothing: float
    ) -> SegmentStates:
        """The states and transitions of label sequences; without memory a state is a label."""
        number = {label: k for k, label in enumerate(classes)}
        chains = [with_memory(labels) for labels in sequences]
        if not memory:
            chains = [[(None, label) for _, label in chain] for chain in chains]
        states = list(dict.fromkeys(state for chain in chains for state in chain))
        place = {state: k for k, state in enumerate(states)}
        start = np.full(len(states), float(smoothing))
        pairs = np.where(_follows(states, memory), float(smoothing), 0.0)
        for chain in chains:
            codes = [place[state] for state in chain]
            start[codes[:1]] += 1.0
            np.add.at(pairs, (codes[:-1], codes[1:]), 1.0)
        total = pairs.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            edge = np.log(np.where(total > 0, pairs / np.where(total > 0, total, 1.0), 1.0 / len(states)))
            first = np.log(start / start.sum())
        return cls(tuple(states), np.array([number[label] for _, label in states]), first, edge, memory)

    def codes(self, labels: Iterable[Any]) -> list[int | None]:
        """The state of every step; None where the label is not known.

        >>> states = SegmentStates.counted([["a", "b", "a"]], ["a", "b"], memory=True, smoothing=0.0)
        >>> states.codes(["a", None, "b", "a"])
        [0, None, 1, 2]
        """
        place = {state: k for k, state in enumerate(self.states)}
        labels = list(labels)
        known = iter(place[before if self.memory else None, label] for before, label in with_memory(labels))
        return [None if label is None else next(known) for label in labels]

    @property
    def allowed(self) -> np.ndarray:
        """(S, S) 0 where a state may follow another, else −∞; without memory any may."""
        return np.where(_follows(self.states, self.memory), 0.0, -np.inf)

    def best_labels(self, node: np.ndarray) -> np.ndarray:
        """(n,) codes of labels on the best path, from scores of labels (n, L)."""
        if not len(node):
            return np.zeros(0, np.int64)
        scores = np.asarray(node[:, self.label])
        scores[0] += self.start
        chains = Chains.from_lengths([len(node)])
        path = ChainEngine().infer(Potentials(scores, self.edge[None], chains), Semiring.MAX).node.argmax(axis=1)
        return np.asarray(self.label[path])


def _follows(states: Sequence[tuple[Any, Any]], memory: bool) -> np.ndarray:
    """(S, S) bool: which states (label before, label) may come after which; without memory any after any."""
    if not memory:
        return np.ones((len(states), len(states)), bool)
    number = {label: code for code, label in enumerate(dict.fromkeys(label for _, label in states))}
    before = np.array([NOTHING if one is None else number.get(one, NOTHING - 1) for one, _ in states], dtype=np.int64)
    return may_follow(before, np.array([number[label] for _, label in states], dtype=np.int64))
