"""`LatentChain`: chains over states whose target allows several, as a problem that a latent training is handed.

Both halves of the objective (`training.latent.best`) are totals of the same scores: over all states, and over those
that the labels allow. Their difference is the likelihood of a partial target, for which there is a fused kernel; the
halves alone, which only EM asks for, take the plain path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.states import StateSpace
from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.inference.chain import ChainEngine
from crfield.optimize.basis import Basis
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.column_basis import measured
from crfield.training.latent.starts import APART, LEAST_RACED, clustered_states, every_other, start_of
from crfield.training.likelihood import FusedChain, numeric_basis


class LatentChain:
    """Chains over states whose target allows several: ``evaluate`` by the fused kernel, halves by the plain path.

    ``space`` says which states belong to which label; with it, numeric columns can be put into clusters.
    """

    def __init__(
        self, layout: Layout, batch: Batch, target: Target, *, space: StateSpace | None = None, n_jobs: int = 1
    ) -> None:
        self.layout, self.batch, self.target, self.n_jobs = layout, batch, target, n_jobs
        self.space = space
        self._basis: tuple[Penalty, Basis | None] | None = None
        self._fused: FusedChain | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fused": None}

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    @property
    def fused(self) -> FusedChain:
        """The packed problem, made when first asked for."""
        if self._fused is None:
            packed = FusedChain(self.layout, self.batch, self.target, n_jobs=self.n_jobs)
            self._fused = measured(packed, self.layout, self.batch, self.target)
        return self._fused

    @property
    def telling(self) -> bool:
        """Whether there are numeric columns, which can tell states apart."""
        return self.space is not None and self.fused.moments is not None and not self.fused.moments.even

    def basis(self, penalty: Penalty) -> Basis | None:
        """The coordinates of numeric columns, made once for all starts."""
        if self._basis is None or self._basis[0] is not penalty:
            self._basis = penalty, numeric_basis(self.fused, penalty)
        return self._basis[1]

    def clustered_start(self, penalty: Penalty, seed: int) -> tuple[np.ndarray, int]:
        """Weights by clusters of the columns, and the evaluations they took."""
        assert self.space is not None
        states = clustered_states(self.batch, self.fused.moments, self.target, self.space, seed)
        basis = self.basis(penalty)
        return start_of(states, self.layout, self.batch, self.target, penalty, basis, n_jobs=self.n_jobs)

    def raced(self, penalty: Penalty) -> tuple[LatentChain, Penalty, int]:
        """The problem on every k-th sequence with its share of the penalty, and k; itself where data are few."""
        chains = self.batch.topology
        every = min(APART, chains.n_sequences // LEAST_RACED, chains.n_nodes // max(self.n_weights, 1))
        if every < 2:
            return self, penalty, 1
        batch, target = every_other(self.batch, self.target, every)
        own = replace(penalty, l2=penalty.l2 / every)
        return LatentChain(self.layout, batch, target, space=self.space, n_jobs=self.n_jobs), own, every

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        return self.fused.evaluate(weights, gradient)

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        return self._half(LinearScorer(self.layout).score(weights, self.batch), gradient)

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over what the target allows, and its gradient."""
        scores = LinearScorer(self.layout).score(weights, self.batch)
        node = np.where(self.target.mask, scores.node, -np.inf)
        return self._half(Potentials(node, scores.edge, scores.topology), gradient)

    def _half(self, scores: Potentials, gradient: np.ndarray) -> float:
        engine, chains = ChainEngine(self.n_jobs), self.batch.topology
        beliefs = engine.infer(scores, Semiring.LOG)
        node, edge, weight = beliefs.node, beliefs.edge, self.target.weight
        if weight is not None:
            node = node * weight[chains.sequence_of_node][:, None]
            pairs = edge if not scores.shared else engine.edge_marginals(scores)
            edge = pairs * weight[chains.sequence_of_edge][:, None, None]
            edge = edge.sum(axis=0, keepdims=True) if scores.shared else edge
        gradient[:] = LinearScorer(self.layout).pull(node, edge, self.batch)
        return float(beliefs.total.sum() if weight is None else weight @ beliefs.total)
