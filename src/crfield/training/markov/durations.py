"""Minimum durations: a label that lasts at least m steps, as m states in a row.

A label c that must last m steps owns the states c₁ → c₂ → … → c_m. It is entered at the first, passes on from each to
the next, stays in the last as long as it likes and can be left from there alone:

    p(c₁ | d_last) = p(c | d)  (c ≠ d)      p(c_{k+1} | c_k) = 1      p(c_m | c_m) = p(c | c)

All states of a label have its density, so the model has no more parameters, and the chain engine needs no new word:
it sees a larger table with many forbidden pairs. The first label counts from the first step; the last one may be cut
off by the end. With m = 1 for all labels nothing changes.

Reference: Russell & Moore 1985 on expanded states of hidden Markov models.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.states import StateSpace, count_for_each
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError


@dataclass(frozen=True, eq=False)
class Durations:
    """Minimum duration of each label in steps, and the states that enforce it.

    >>> lasting = Durations(np.array([2, 1]))
    >>> lasting.states.label_of_state.tolist()
    [0, 0, 1]
    >>> lasting.transitions(np.array([[0.7, 0.3], [0.4, 0.6]])).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6]]
    """

    least: np.ndarray  # (L,) each at least 1

    @classmethod
    def of_labels(cls, labels: Sequence[Hashable], min_duration: int | Mapping[Any, int]) -> Durations:
        """The same for all labels, or what a mapping says; labels that it does not name may last one step.

        >>> Durations.of_labels(["run", "walk"], {"walk": 3}).least.tolist()
        [1, 3]
        """
        return cls(count_for_each(labels, min_duration, "min_duration"))

    @property
    def plain(self) -> bool:
        """Whether every label may last a single step."""
        return bool((self.least == 1).all())

    @cached_property
    def states(self) -> StateSpace:
        """The states of each label."""
        return StateSpace.repeated(self.least)

    @cached_property
    def last(self) -> np.ndarray:
        """(L,) the last state of each label."""
        return np.cumsum(self.least) - 1

    @cached_property
    def first(self) -> np.ndarray:
        """(L,) the first state of each label."""
        return np.cumsum(self.least) - self.least

    def starts(self, start: np.ndarray) -> np.ndarray:
        """(S,) probabilities of first states."""
        out = np.zeros(self.states.n_states)
        out[self.first] = start
        return out

    def transitions(self, transition: np.ndarray) -> np.ndarray:
        """(S, S) probabilities between states, from those between labels (L, L)."""
        size, labels = self.states.n_states, np.arange(len(self.least))
        out = np.zeros((size, size))
        inner = np.setdiff1d(np.arange(size), self.last)
        out[inner, inner + 1] = 1.0
        out[np.ix_(self.last, self.first)] = transition
        stays = transition[labels, labels]
        out[self.last, self.first] = 0.0
        out[self.last, self.last] = stays
        return out

    def pairs(self, counts: np.ndarray) -> np.ndarray:
        """(L, L) uses of each transition between labels, from those between states (S, S)."""
        out = counts[np.ix_(self.last, self.first)].copy()
        np.fill_diagonal(out, counts[self.last, self.last])
        return out

    def free_edges(self, target: Target) -> np.ndarray:
        """(E,) whether the earlier label of each edge has lasted long enough to choose the next.

        LabelError for a label in the data that ends too early; steps of unknown label end nothing.

        >>> lasting = Durations(np.array([2, 1]))
        >>> lasting.free_edges(Target(Chains.from_lengths([4]), 2, np.array([0, 0, 0, 1]))).tolist()
        [False, True, True]
        """
        chains, labels = target.topology, target.labels
        if not isinstance(chains, Chains):
            raise InputError("a hidden Markov model reads chains, got graphs.")
        begins = np.ones(chains.n_nodes, bool)
        begins[chains.heads] = labels[chains.heads] != labels[chains.tails]
        starts = np.flatnonzero(begins)
        age = np.arange(chains.n_nodes) - np.repeat(starts, np.diff(np.append(starts, chains.n_nodes))) + 1
        before, after = labels[chains.tails], labels[chains.heads]
        done = (before >= 0) & (age[chains.tails] >= self.least[np.maximum(before, 0)])
        # a label after an unknown step may have begun before it
        opening = chains.tails - age[chains.tails] + 1
        within = ~np.isin(opening, chains.offsets[:-1])
        unsure = np.zeros(len(before), bool)
        unsure[within] = labels[opening[within] - 1] < 0
        short = ~done & ~unsure & (before >= 0) & (after >= 0) & (before != after)
        if short.any():
            edge = int(np.argmax(short))
            node, s = int(chains.tails[edge]), int(chains.sequence_of_edge[edge])
            raise LabelError(
                f"label number {int(before[edge])} ends after {int(age[node])} steps at step "
                f"{node - int(chains.offsets[s])} of sequence {s}, but min_duration asks for "
                f"{int(self.least[before[edge]])}. Lower min_duration, or correct the labels."
            )
        return np.asarray(done | (unsure & (before != after)))
