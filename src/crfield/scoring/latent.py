"""Scores that a class and its latent states share.

The hidden CRF labels a whole sequence, and all classes draw on the same states (Quattoni, Wang, Morency, Collins &
Darrell 2007, *Hidden conditional random fields*):

    score(y, h | x) = Σ_t ⟨θ(h_t), x_t⟩ + Σ_t θ(y, h_t) + Σ_t θ(y, h_{t-1}, h_t)

As a chain over pairs (class, state) it would forbid most pairs of neighbours, for the class never changes. Given the
class it is a chain of S states, so `ClassScorer` gives one set of potentials for each class, which share the product
of weights and columns: K chains of S states cost K S² a step, the chain of pairs (K S)².
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.batch import Batch
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer


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
