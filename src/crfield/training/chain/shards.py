"""Training on data that lie on disk in shards: the objective is a sum, so one shard at a time will do.

    F(w) = Σ over shards of f_shard(w)          and so its gradient and its curvature

A shard is read and packed for the kernels when its turn comes and let go before the next one is read. So besides the
weights (the vectors of the optimiser, one more for the gradient of a shard) only one shard is in memory, as it lies
on disk and packed, about four times the bytes of a shard on disk. The price is that every evaluation packs everything
anew.

The batch optimisers see no difference from data in memory. Before them, stochastic epochs run shard by shard, shards
and the groups within in random order, with the step size found on the first shard; fewer epochs than in memory,
because each reads all the data. Values are added in the order of the shards, so the same data in other shards gives
the same objective up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.optimize.basis import Basis
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.optimize.resume import RunState
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain import warm_start
from crfield.training.chain.fused import FusedChain
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import ENOUGH_GROUPS, Callback, numeric_basis, settle, warmed_diagonal

EPOCHS = 4
GROUP = 8  # sequences of one stochastic step

Make = Callable[[Batch, Target], FusedChain | FullBatch]


class ShardedChain:
    """A chain objective over an encoded data set; ``make`` turns one shard into a problem of its own."""

    def __init__(self, dataset: EncodedDataset, make: Make, *, n_weights: int) -> None:
        self.dataset, self.make, self._n_weights = dataset, make, n_weights
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        self.stochastic = False  # whether shards have stochastic steps

    @property
    def n_weights(self) -> int:
        """W."""
        return self._n_weights

    def shard(self, number: int) -> FusedChain | FullBatch:
        """The problem of one shard."""
        shard = self.dataset.shard(number)
        return self.make(shard.batch, shard.target)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the objective; its gradient is written to ``gradient``."""
        gradient[:] = 0.0
        value, piece = 0.0, np.empty(self.n_weights)
        for number in range(self.dataset.n_shards):
            value += self.shard(number).evaluate(weights, piece)
            gradient += piece
        return value

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative; of packed problems only."""
        total = np.zeros(self.n_weights)
        for number in range(self.dataset.n_shards):
            problem = self.shard(number)
            total += problem.curvature(weights)  # type: ignore[union-attr]
        return total

    def warm(self, weights: np.ndarray, **options: Any) -> bool:
        """Stochastic epochs before the batch optimiser (`descend`)."""
        return descend(self, weights, **options)


class Sharded(Protocol):
    """A sum over shards, wherever they are: `ShardedChain`, or that of a cluster."""

    dataset: Any  # its length is the number of sequences

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def warm(self, weights: np.ndarray, **options: Any) -> bool:
        """Stochastic epochs that change the weights; False where no step size did any good."""
        ...


def fit_sharded(
    problem: Sharded,
    penalty: Penalty,
    *,
    stochastic: bool,
    start: np.ndarray | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    rng: np.random.Generator,
    callback: Callback | None = None,
    run_state: RunState | None = None,
) -> Result:
    """Stochastic epochs by shards if asked for, then L-BFGS (OWL-QN with l1)."""

    def warm(weights: np.ndarray) -> np.ndarray | Basis | None:
        enough = len(problem.dataset) >= ENOUGH_GROUPS * GROUP
        if (
            stochastic
            and enough
            and problem.warm(weights, l2=penalty.l2 + penalty.l1, epochs=EPOCHS, rng=rng, run_state=run_state)
        ):
            return warmed_diagonal(problem, weights, penalty)
        return numeric_basis(problem, penalty)

    handed = [np.zeros(problem.n_weights) if start is None else start.copy()]
    return settle(
        problem,
        handed,
        penalty,
        warm,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
        callback=callback,
        run_state=run_state,
    )


def descend(
    problem: ShardedChain,
    weights: np.ndarray,
    *,
    l2: float,
    epochs: int,
    rng: np.random.Generator,
    run_state: RunState | None = None,
) -> bool:
    """Epochs of stochastic steps, changing ``weights``; False if no step size did any good (`warm_start.descend`)."""
    dataset, groups = problem.dataset, len(problem.dataset) / GROUP

    def begin() -> tuple[float, float]:
        one: Any = problem.shard(0)
        sample = rng.permutation(one.n_groups)[: max(min(one.n_groups, 8), one.n_groups // 10)]
        step, still = warm_start.find_step(one, weights, sample, l2=l2 * one.n_groups / groups)
        return step, still * groups / len(sample)

    def epoch(number: int, step: float) -> float:
        met, done = 0.0, 0.0
        for shard in rng.permutation(dataset.n_shards):
            piece: Any = problem.shard(int(shard))
            met += piece.descend(
                weights,
                rng.permutation(piece.n_groups),
                step=step,
                done=number * groups + done,
                horizon=3.0 * groups,
                l2=l2 * piece.n_groups / groups,
            )
            done += piece.n_groups
        return met

    return warm_start.run_epochs(weights, begin, epoch, epochs=epochs, rng=rng, run_state=run_state)
