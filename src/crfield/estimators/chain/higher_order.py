"""Answers of chains of higher order: sums over the states that are runs of labels, without writing them out.

The layout says it (`crfield.scoring.higher_order.RunLayout`): behind the weights of the plain chain stand those of
the runs of labels that occur. Answers about labels are sums over states; ``potentials`` are those of states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.estimators.chain.constraints import refuse_impossible
from crfield.estimators.chain.model import ColumnModel
from crfield.scoring.higher_order import RunScores


class HigherOrderAnswers:
    """Labels, probabilities and likelihoods of a fitted model of higher order."""

    def __init__(self, model: ColumnModel, X: Any, *, n_jobs: int) -> None:
        self._model, self._n_jobs = model, n_jobs
        self.scores: RunScores = model.run_scores(X, n_jobs=n_jobs)

    @property
    def topology(self) -> Chains:
        """The chains of X."""
        return self.scores.topology

    def _masked(self, known: Any) -> np.ndarray:
        if known is None:
            return self.scores.node
        return np.where(self._target(known).mask, self.scores.node, -np.inf)

    def _target(self, y: Any) -> Target:
        labels, allowed = self._model.labels.encode(y, self.topology.lengths)
        return Target(self.topology, self._model.labels.n_labels, labels, allowed)

    def beliefs(self, known: Any = None) -> np.ndarray:
        """(N, L) probabilities of labels, given what is known."""
        total, node, _ = self.scores.beliefs(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return node

    def best(self, known: Any = None) -> np.ndarray:
        """(N,) labels of the best labelling as a whole."""
        total, path = self.scores.best(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return path

    def log_prob(self, y: Any) -> np.ndarray:
        """(B,) log p(y | x), summed over what partial labels allow."""
        mask = self._target(y).mask
        free = self.scores.beliefs(n_jobs=self._n_jobs)[0]
        inside = self.scores.beliefs(np.where(mask, self.scores.node, -np.inf), n_jobs=self._n_jobs)[0]
        # Two large numbers that may round past each other; no part weighs more than the whole.
        return np.minimum(inside - free, 0.0)
