"""A chain whose states remember the segment before.

A first-order chain knows the last step and so nothing but the present label: in a script "stand, walk, stand, climb"
it cannot tell which of the two stands it is in. Here a state is a pair (label of the segment before, label), so that
the chain is of first order in steps and of second order in segments. The states are those that occur in training;
from (a, b) it stays or goes to (b, c). With T steps and S states decoding costs T · S², and S is small, since few
pairs ever occur.

Transitions are maximum likelihood of their own piece of the model, p(state | state before), that is counts
(piecewise training: Sutton & McCallum 2005, *Piecewise training for undirected models*); ``smoothing`` is added to
every pair that the states allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.chain import ChainEngine


def with_memory(labels: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(label of the segment before, label) of every step; None before the first segment. Unknown steps are left out.

    >>> with_memory(["a", "b", "b", None, "a"])
    [(None, 'a'), ('a', 'b'), ('a', 'b'), ('b', 'a')]
    """
    out: list[tuple[Any, Any]] = []
    for label in labels:
        if label is None:
            continue
        before = (None if not out else out[-1][0]) if not out or out[-1][1] == label else out[-1][1]
        out.append((before, label))
    return out


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
        start, pairs = np.full(len(states), float(smoothing)), np.zeros((len(states), len(states)))
        for one, a in place.items():
            for other, b in place.items():
                if not memory or a == b or other[0] == one[1]:
                    pairs[a, b] = smoothing
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
        if not self.memory:
            return np.zeros_like(self.edge)
        before = [state[0] for state in self.states]
        after = [state[1] for state in self.states]
        fits = np.array([[b == a or before[b] == after[a] for b in range(len(before))] for a in range(len(before))])
        return np.where(fits, 0.0, -np.inf)

    def best_labels(self, node: np.ndarray) -> np.ndarray:
        """(n,) codes of labels on the best path, from scores of labels (n, L)."""
        if not len(node):
            return np.zeros(0, np.int64)
        scores = np.asarray(node[:, self.label])
        scores[0] += self.start
        chains = Chains.from_lengths([len(node)])
        path = ChainEngine().infer(Potentials(scores, self.edge[None], chains), Semiring.MAX).node.argmax(axis=1)
        return np.asarray(self.label[path])
