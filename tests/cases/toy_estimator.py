"""The estimator that CONTRIBUTING adds step by step: least squares for single steps, counted transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.checks import number
from crfield.core.parameters import parameter
from crfield.core.potentials import Potentials
from crfield.data.labels import LabelCoder, sequence_target
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.markov.hmm import dense_rows
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.encoder import Encoder
from crfield.storage.state import State


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """What a fitted `LeastSquaresChain` holds."""

    labels: LabelCoder
    encoder: Encoder
    weights: np.ndarray  # (K, L)
    transitions: np.ndarray  # (L, L) logs of probabilities
    states = None  # scores are of labels

    def state(self) -> State:
        """Header and arrays."""
        arrays = {"weights": self.weights, "transitions": self.transitions}
        return State({"labels": self.labels.to_json()}, arrays).with_part("encoder", self.encoder.state())

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, part = LabelCoder.from_json(state.header.get("labels")), state.part("encoder")
        encoder, n = encoder_from_state(part.header, part.arrays), labels.n_labels
        width = dense_rows(encoder.encode([]).node).shape[1]
        return cls(labels, encoder, state.array("weights", (width, n)), state.array("transitions", (n, n)))


class LeastSquaresChain(ChainAnswers[LeastSquares], kind="least_squares_chain", model=LeastSquares):
    """Chain whose step scores are a ridge regression on the labels, beside counted transitions.

    Parameters
    ----------
    l2 : float
        Strength of the ridge.
    decode, n_jobs
        As in `ChainCRF`.
    """

    l2: float = parameter(number(above=0), default=1.0)
    reported = ("converged_",)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Solve for the weights and count the transitions."""
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels, encoder = LabelCoder().fit(y), encoder_for(X)
        batch = encoder.fit(X)
        target = sequence_target(batch.topology, labels, y, sample_weight)
        wanted = target.mask / target.mask.sum(axis=1, keepdims=True)  # (N, L)
        columns = dense_rows(batch.node)  # (N, K)
        counted = 1.0 if target.weight is None else np.repeat(target.weight, batch.topology.lengths)
        weighted = columns.T * counted
        weights = np.linalg.solve(weighted @ columns + self.l2 * np.eye(columns.shape[1]), weighted @ wanted)
        tails = np.setdiff1d(np.arange(len(wanted)), batch.topology.offsets[1:] - 1)
        pairs = 1.0 + wanted[tails].T @ wanted[tails + 1]
        self.converged_ = True
        return self._learn(LeastSquares(labels, encoder, 4.0 * weights, np.log(pairs / pairs.sum(1, keepdims=True))))

    def potentials(self, X: Any) -> Potentials:
        """The scores of X."""
        model = self._fitted
        batch = model.encoder.encode(X)
        return Potentials(dense_rows(batch.node) @ model.weights, model.transitions[None], batch.topology)
