"""Latent states: which label owns which, and scores that a class and its states share.

Two models hide states below what is labelled. The latent-dynamic CRF gives every label states of its own, so that a
labelling is a set of state paths and its probability their sum (Morency, Quattoni & Darrell 2007, *Latent-dynamic
discriminative models for continuous gesture recognition*). Nothing new is needed to train it: a target whose step
allows the states of its label, and a chain over states. `LabelStates` is that map, there and back.

The hidden CRF labels a whole sequence, and all classes draw on the same states (Quattoni, Wang, Morency, Collins &
Darrell 2007, *Hidden conditional random fields*):

    score(y, h | x) = Σ_t ⟨θ(h_t), x_t⟩ + Σ_t θ(y, h_t) + Σ_t θ(y, h_{t-1}, h_t)

As a chain over pairs (class, state) it would forbid most pairs of neighbours, for the class never changes. Given the
class it is a chain of S states, so `ClassScorer` gives one set of potentials for each class, which share the product
of weights and columns: K chains of S states cost K S² a step, the chain of pairs (K S)².
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.target import UNKNOWN, Target
from crfield.data.batch import Batch
from crfield.errors import InputError, ShapeError
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer


@dataclass(frozen=True, eq=False)
class LabelStates:
    """How many states each label owns; they are numbered label by label.

    >>> states = LabelStates(np.array([2, 1]))
    >>> states.n_states, states.label_of_state.tolist()
    (3, [0, 0, 1])
    >>> states.label_sums(np.array([[0.25, 0.5, 0.25]])).tolist()
    [[0.75, 0.25]]
    """

    counts: np.ndarray  # (L,) int64, each at least 1

    def __post_init__(self) -> None:
        counts = np.ascontiguousarray(self.counts, dtype=np.int64)
        if counts.ndim != 1 or not len(counts) or counts.min() < 1:
            raise ShapeError(f"every label needs at least one state, got the counts {counts.tolist()}.")
        object.__setattr__(self, "counts", counts)

    @classmethod
    def of_labels(cls, labels: Sequence[Hashable], n_states: int | Mapping[Any, int]) -> LabelStates:
        """The same number for all labels, or what a mapping says, where labels it does not name have one.

        >>> LabelStates.of_labels(["O", "wave"], {"wave": 3}).counts.tolist()
        [1, 3]
        """
        if not isinstance(n_states, Mapping):
            return cls(np.full(len(labels), check_count(n_states)))
        foreign = [label for label in n_states if label not in labels]
        if foreign:
            raise InputError(
                f"n_states names {foreign[0]!r}, which is no label of y; those are {list(labels)!r:.80}."
            )
        return cls(np.array([check_count(n_states.get(label, 1)) for label in labels]))

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.counts)

    @cached_property
    def n_states(self) -> int:
        """S, of all labels."""
        return int(self.counts.sum())

    @cached_property
    def label_of_state(self) -> np.ndarray:
        """(S,) int32, the owner of every state."""
        return np.repeat(np.arange(self.n_labels, dtype=np.int32), self.counts)

    def target(self, target: Target) -> Target:
        """The target over states: each step may take the states of the labels that it may take.

        With one state for each label it is the target itself.
        """
        if self.n_states == self.n_labels:
            return target
        allowed = target.mask[:, self.label_of_state]
        only = allowed.sum(axis=1) == 1
        labels = np.where(only, allowed.argmax(axis=1), UNKNOWN)
        return Target(target.topology, self.n_states, labels, allowed, target.weight)

    def label_sums(self, node: np.ndarray) -> np.ndarray:
        """(N, L) probabilities of labels, each the sum over its states (N, S)."""
        if self.n_states == self.n_labels:
            return node
        return np.add.reduceat(node, np.cumsum(self.counts) - self.counts, axis=1)


@dataclass(frozen=True, eq=False)
class ClassScorer:
    """Scores of K classes over the same S states.

        [ θ(h) for every column | θ(y, h)  (K, S) | θ(y, h, h′)  (K, S, S) ]

    ``score`` is linear in the weights and ``pull`` its transpose.

    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Columns
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> scorer = ClassScorer.of_batch(batch, n_classes=2, n_states=3)
    >>> scorer.n_weights, len(scorer.score(np.zeros(scorer.n_weights), batch))
    (30, 2)
    """

    columns: Layout  # of S labels, without transitions
    n_classes: int

    @classmethod
    def of_batch(cls, batch: Batch, *, n_classes: int, n_states: int) -> ClassScorer:
        """The scorer for columns such as those of a batch."""
        nothing = np.zeros(1, np.int64), np.zeros(0, np.int32)
        layout = Layout(
            n_labels=n_states,
            n_columns=batch.node.width,
            n_dense=batch.node.n_dense,
            edge_ptr=nothing[0],
            edge_pair=nothing[1],
        )
        return cls(layout, n_classes)

    @property
    def n_states(self) -> int:
        """S."""
        return self.columns.n_labels

    @cached_property
    def n_weights(self) -> int:
        """W."""
        return self.columns.n_weights + self.n_classes * self.n_states * (1 + self.n_states)

    def tables(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """θ(y, h) (K, S) and θ(y, h, h′) (K, S, S), views of the weights."""
        classes, states = self.n_classes, self.n_states
        middle = self.columns.n_weights + classes * states
        return (
            weights[self.columns.n_weights : middle].reshape(classes, states),
            weights[middle:].reshape(classes, states, states),
        )

    def shared(self, weights: np.ndarray, batch: Batch) -> np.ndarray:
        """(N, S) what all classes have in common: ⟨θ(h), x_t⟩."""
        return LinearScorer(self.columns).score(weights[: self.columns.n_weights], batch).node

    def score(self, weights: np.ndarray, batch: Batch) -> list[Potentials]:
        """Potentials of a batch given each class."""
        shared = self.shared(weights, batch)
        return [Potentials(shared + node, edge[None], batch.topology) for node, edge in zip(*self.tables(weights))]

    def pull(self, shared: np.ndarray, node: np.ndarray, edge: np.ndarray, batch: Batch) -> np.ndarray:
        """Gradients (N, S) of what is shared, (K, S) and (K, S, S) of the tables, as one of the weights (W,)."""
        square = np.zeros((1, self.n_states, self.n_states))
        columns = LinearScorer(self.columns).pull(np.ascontiguousarray(shared), square, batch)
        return np.concatenate([columns, node.reshape(-1), edge.reshape(-1)])


def check_count(value: Any) -> int:
    """A number of states; InputError unless it is a whole number of at least 1.

    >>> check_count(3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"n_states must be a whole number of at least 1, or one for each label, got {value!r}.")
    return int(value)
