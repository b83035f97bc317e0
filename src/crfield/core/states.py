"""States below labels: scores over states, answers over labels.

Three models look alike from outside. A chain of higher order has a state for every run of labels; a label that must
last m steps has m states in a row; a latent-dynamic model gives every label states of its own to discover. In each
the engine sees a plain chain over states, and what users ask is about labels: a label's probability is the sum over
its states, a known label allows its states, and the label of a path is that of each state. `StateSpace` is that map,
there and back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.checks import is_integer
from crfield.core.target import UNKNOWN, Target
from crfield.errors import InputError, ShapeError

FEW = 4096  # states times labels: a product with zeros and ones is then faster than sums of stretches


@dataclass(frozen=True, eq=False)
class StateSpace:
    """The label of every state.

    >>> states = StateSpace.repeated([2, 1])
    >>> states.n_states, states.label_of_state.tolist()
    (3, [0, 0, 1])
    >>> states.label_sums(np.array([[0.25, 0.5, 0.25]])).tolist()
    [[0.75, 0.25]]
    """

    label_of_state: np.ndarray  # (S,) int32
    n_labels: int
    one_path: bool = False  # whether every labelling has one path of states, as in chains of higher order

    @classmethod
    def repeated(cls, counts: Any) -> StateSpace:
        """So many states for each label, numbered label by label."""
        sizes = np.ascontiguousarray(counts, dtype=np.int64)
        if sizes.ndim != 1 or not len(sizes) or sizes.min() < 1:
            raise ShapeError(f"every label needs at least one state, got the counts {sizes.tolist()}.")
        return cls(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), len(sizes))

    @property
    def n_states(self) -> int:
        """S, of all labels."""
        return len(self.label_of_state)

    @property
    def plain(self) -> bool:
        """Whether states are labels."""
        return self.n_states == self.n_labels

    @cached_property
    def counts(self) -> np.ndarray:
        """(L,) the states of each label."""
        return np.bincount(self.label_of_state, minlength=self.n_labels)

    def target(self, target: Target) -> Target:
        """The target over states: each step may take the states of the labels that it may take."""
        if self.plain:
            return target
        allowed = target.mask[:, self.label_of_state]
        only = allowed.sum(axis=1) == 1
        labels = np.where(only, allowed.argmax(axis=1), UNKNOWN)
        return Target(target.topology, self.n_states, labels, allowed, target.weight)

    def label_sums(self, node: np.ndarray) -> np.ndarray:
        """(N, L) probabilities of labels, each the sum over its states (N, S)."""
        if self.plain:
            return node
        if self.n_states * self.n_labels > FEW and (np.diff(self.label_of_state) >= 0).all():
            return np.add.reduceat(node, np.cumsum(self.counts) - self.counts, axis=1)
        return node @ np.eye(self.n_labels)[self.label_of_state]


def count_for_each(labels: Sequence[Hashable], given: int | Mapping[Any, int], name: str) -> np.ndarray:
    """(L,) a count for each label: the same for all, or what a mapping says, where labels it does not name have 1.

    >>> count_for_each(["O", "wave"], {"wave": 3}, "n_states").tolist()
    [1, 3]
    """
    check_counts(name, given)
    if not isinstance(given, Mapping):
        return np.full(len(labels), int(given))
    foreign = [label for label in given if label not in labels]
    if foreign:
        raise InputError(f"{name} names {foreign[0]!r}, which is no label of y; those are {list(labels)!r:.80}.")
    return np.array([int(given.get(label, 1)) for label in labels])


def check_counts(name: str, given: Any) -> None:
    """InputError unless it is an integer ≥ 1, or a mapping with one for each label.

    >>> check_counts("min_duration", 0)
    Traceback (most recent call last):
    crfield.errors.InputError: min_duration must be an integer ≥ 1, or one for each label, got 0.
    """
    for value in given.values() if isinstance(given, Mapping) else [given]:
        if not is_integer(value) or value < 1:
            raise InputError(f"{name} must be an integer ≥ 1, or one for each label, got {value!r}.")
