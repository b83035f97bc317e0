"""Chain models of tag: trajectories as columns of steps and of transitions, trained and judged.

The models of Vail (2008) have an intercept for each label, a weight for each pair of labels, columns that speak for a
label and columns that speak for a pair. `ChainCRF` would give the last a weight for each label too; here they have
none, so that the numbers of weights are his.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import ConvergenceWarning
from crfield.features.columns.trajectories import TrajectoryColumns
from crfield.inference.chain import ChainEngine
from crfield.inference.decode import best_marginals
from crfield.inference.labellings import path_scores
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.simulate.tag import TagGames
from crfield.training.likelihood import FusedChain, fit_likelihood


@dataclass(frozen=True, eq=False)
class Encoded:
    """A game as one chain: its columns and who seeks."""

    batch: Batch
    target: Target

    @classmethod
    def of(cls, columns: TrajectoryColumns, game: TagGames) -> Encoded:
        """Columns of steps, and those of transitions at the step that is entered."""
        chains = Chains.from_lengths([len(game)])
        edge = _dense(columns.transition[1:]) if columns.link.any() else None
        return cls(Batch(chains, _dense(columns.state), edge), Target(chains, game.n_robots, game.labels))

    def layout(self) -> Layout:
        """Intercepts, all pairs of labels, and the columns."""
        return Layout.observe(self.batch, self.target, bias=True, boundaries=False, transition_pairs="all")


@dataclass(frozen=True)
class Judged:
    """How a model does on a game."""

    accuracy: float  # best label of each step
    viterbi: float  # best labelling
    log_prob: float  # log p(y | x)


def likelihood(encoded: Encoded, layout: Layout, *, l2: float, max_iter: int, tol: float = 1e-4) -> Result:
    """Weights by penalised likelihood, L-BFGS."""
    problem = FusedChain(layout, encoded.batch, encoded.target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit_likelihood(problem, Penalty(l2=l2), max_iter=max_iter, tol=tol, rng=np.random.default_rng(0))


def judge(encoded: Encoded, layout: Layout, weights: np.ndarray) -> Judged:
    """Accuracy both ways and log p(y | x)."""
    potentials = LinearScorer(layout).score(weights, encoded.batch)
    engine, labels = ChainEngine(), encoded.target.labels
    beliefs = engine.infer(potentials, Semiring.LOG)
    return Judged(
        float((best_marginals(beliefs.node) == labels).mean()),
        float((engine.best_path(potentials)[1] == labels).mean()),
        float(path_scores(potentials, labels)[0] - beliefs.total[0]),
    )


def _dense(values: np.ndarray) -> Columns:
    rows = np.zeros(len(values) + 1, np.int64)
    return Columns(rows, np.zeros(0, np.int32), 0, dense=values if values.shape[1] else None)
