"""Training on data that lie on disk in shards: the objective is a sum, so one shard at a time will do.

    F(w) = Σ over shards of f_shard(w)          and so its gradient and its curvature

A shard is read and packed for the kernels when its turn comes first; the packed form is written beside the data set
(`storage.packed`) and only mapped from then on. One shard at a time is mapped, and let go before the next: so besides
the weights (the vectors of the optimiser, one more for the gradient of a shard) memory holds one shard, and while it
is packed for the first time about four times the bytes of a shard on disk. Data sets of at most ``IN_MEMORY`` bytes
are kept packed in memory instead. What packs nothing (objectives other than the likelihood, labels of higher order)
is read anew each time.

The batch optimisers see no difference from data in memory. Before them, stochastic epochs run shard by shard, shards
and the groups within in random order, with the step size found on the first shard; fewer epochs than in memory,
because each reads all the data. Values are added in the order of the shards, so the same data in other shards gives
the same objective up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.kernels.linear import Workspace, layout_parts
from crfield.optimize.basis import Basis
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.resume import RunState
from crfield.scoring.layout import Layout
from crfield.storage.digests import digest
from crfield.storage.encoded import EncodedDataset
from crfield.storage.packed import PackedShards
from crfield.training.chain import warm_start
from crfield.training.chain.plan import START_TOL
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import (
    ENOUGH_GROUPS,
    Callback,
    FusedChain,
    FusedSums,
    numeric_basis,
    settle,
    warmed_diagonal,
)

SHARD_SOLVERS = ("auto", "lbfgs", "warm")  # that `fit_sharded` runs; others take the problem as it is
EPOCHS = 4
IN_MEMORY = 32_000_000  # bytes of shards that may stay in memory, packed
GROUP = 8  # sequences of one stochastic step

Make = Callable[[Batch, Target], FusedChain | FullBatch]


class Packing:
    """What the packed problems of all shards share: a layout, its workspace, and the sums of an evaluation."""

    def __init__(self, layout: Layout, n_jobs: int) -> None:
        self.layout, self.n_jobs = layout, n_jobs
        self.workspace = Workspace(layout)
        self.sums = FusedSums(self.workspace, n_jobs=n_jobs)

    def about(self) -> dict[str, str]:
        """What packed shards depend on besides the data."""
        return {"packing": self.workspace.packing, "layout": digest(layout_parts(self.layout))}

    def restore(self, arrays: dict[str, np.ndarray], *, check: bool) -> FusedChain:
        """The problem of packed arrays; ValueError where they do not fit."""
        return FusedChain.restore(self.layout, self.workspace, arrays, n_jobs=self.n_jobs, check=check)


class ShardedChain:
    """A chain objective over an encoded data set; ``make`` turns one shard into a problem of its own."""

    def __init__(self, dataset: EncodedDataset, make: Make, *, n_weights: int) -> None:
        self.dataset, self.make, self._n_weights = dataset, make, n_weights
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        self.stochastic = False  # whether shards have stochastic steps
        self.likelihood: ShardedChain | None = None  # the likelihood to begin with, for an objective of many minima
        self._in_memory: dict[int, FusedChain] | None = None
        if dataset.packed is None and dataset.nbytes <= IN_MEMORY:
            self._in_memory = {}
        self._packing: Packing | None = None  # from the first packed problem on, which has the layout
        self._kept: PackedShards | None = None

    @property
    def n_weights(self) -> int:
        """W."""
        return self._n_weights

    def shard(self, number: int) -> FusedChain | FullBatch:
        """The problem of one shard."""
        if self._in_memory is not None and number in self._in_memory:
            return self._in_memory[number]
        found = self._restored(number)
        if found is not None:
            return found
        shard = self.dataset.shard(number)
        problem = self.make(shard.batch, shard.target)
        return self._keep(number, problem) if isinstance(problem, FusedChain) else problem

    def _restored(self, number: int) -> FusedChain | None:
        """The shard as it was kept on disk; None where it was not, or is damaged."""
        if self._kept is None or self._packing is None:
            return None
        found = self._kept.open(number)
        if found is None:
            return None
        try:
            return self._packing.restore(found.arrays, check=not found.checked)
        except ValueError as error:
            self._kept.discard(number, f"{error}.")
            return None

    def _keep(self, number: int, problem: FusedChain) -> FusedChain:
        """The problem on the common workspace; kept in memory or on disk, where either is wanted."""
        if self._packing is None:
            self._packing = Packing(problem.layout, problem.n_jobs)
            if self._in_memory is None and self.dataset.packed is not False:
                self._kept = PackedShards(self.dataset.path, self._packing.about(), self.dataset.digests)
                found = self._restored(number)
                if found is not None:
                    return found
        arrays = problem.packed()
        if self._kept is not None:
            self._kept.write(number, arrays)
        bound = self._packing.restore(arrays, check=False)
        if self._in_memory is not None:
            self._in_memory[number] = bound
        return bound

    def problems(self) -> Iterator[FusedChain | FullBatch]:
        """The problems of all shards, in order, one at a time."""
        for number in range(self.dataset.n_shards):
            if self._kept is not None:
                self._kept.ahead(number + 1)
            yield self.shard(number)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the objective; its gradient is written to ``gradient``."""
        if self._packing is None and self.dataset.n_shards:
            self.shard(0)  # tells whether there is anything to pack
        if self._packing is not None:
            return self._packing.sums.evaluate(weights, gradient, self.problems())
        gradient[:] = 0.0
        value, piece = 0.0, np.empty(self.n_weights)
        for problem in self.problems():
            value += problem.evaluate(weights, piece)
            gradient += piece
        return value

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative; of packed problems only."""
        total = np.zeros(self.n_weights)
        for problem in self.problems():
            total += problem.curvature(weights)  # type: ignore[union-attr]
        return total

    def warm(self, weights: np.ndarray, **options: Any) -> bool:
        """Stochastic epochs before the batch optimiser (`descend`)."""
        return descend(self, weights, **options)


class Sharded(Protocol):
    """A sum over shards, wherever they are: `ShardedChain`, or that of a cluster."""

    dataset: Any  # its length is the number of sequences
    likelihood: Any  # the likelihood to begin with, for an objective of many minima; None for others

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
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
    """Stochastic epochs by shards if asked for, then L-BFGS (OWL-QN with l1).

    An objective of many minima starts from a rough maximum of the likelihood, as in memory (`plan.fit_chain`).
    """
    if problem.likelihood is not None and start is None and (run_state is None or run_state.found("lbfgs") is None):
        common: dict[str, Any] = {"max_iter": max_iter, "n_jobs": n_jobs, "rng": rng, "callback": callback}
        likely = fit_sharded(problem.likelihood, penalty, stochastic=False, tol=max(tol, START_TOL), **common)
        if likely.reason in (INTERRUPTED, CALLBACK):
            here = Point(likely.weights, np.empty_like(likely.weights))
            Penalised(problem, penalty, n_jobs=n_jobs).evaluate(here)
            return replace(likely, value=here.value, n_evaluations=likely.n_evaluations + 1)
        start = likely.weights

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
