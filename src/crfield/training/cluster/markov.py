"""Baum–Welch on a cluster: expectations where the rows are, tables and densities at the driver.

An E step of a worker gives the expected first labels, pairs of labels and sums of its rows; the sums of all workers,
added in their order, are all that an M step needs (`crfield.scoring.densities.gaussian.Gathering`). So an iteration
moves the parameters of the model to every worker and as many numbers back, however long the recordings are. Rows are
sent to the workers once. Densities that are fitted to rows and not to sums of them, such as kernel densities, do not
run on a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.flat import chosen_nodes
from crfield.errors import InputError
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.scoring.densities.gaussian import Fitting, Sums
from crfield.training.chain.partial_fit import take_target
from crfield.training.cluster.chain import dealt
from crfield.training.cluster.host import Answer
from crfield.training.cluster.session import Cluster
from crfield.training.cluster.steps import Callback, watched
from crfield.training.markov.counting import shares
from crfield.training.markov.em import Markov, expected, fit_em

Climb = tuple[Markov, Result]


class MarkovPart:
    """The rows of some sequences, in a worker."""

    def __init__(self, rows: np.ndarray | None, target: Target | None, first: int, n_jobs: int) -> None:
        self.rows, self.target, self.first, self.n_jobs = rows, target, first, n_jobs

    def expected(self, model: Markov, fitting: Fitting) -> Answer:
        """Total and seconds; first labels, pairs and what the densities need."""
        began = time.perf_counter()
        if self.rows is None or self.target is None:
            return (0.0, 0.0), ()
        chains = self.target.topology
        assert isinstance(chains, Chains)
        found = expected(model, self.rows, self.target, chains, n_jobs=self.n_jobs, first=self.first)
        emissions: Any = model.emissions
        sums = emissions.gathered(self.rows, found.responsibility, replace(fitting, n_jobs=self.n_jobs))
        return (found.total, time.perf_counter() - began), (found.start, found.pairs, *sums)


@dataclass(frozen=True, eq=False)
class Together:
    """What the E steps of all workers found."""

    total: float
    start: np.ndarray  # (L,)
    pairs: np.ndarray  # (L, L)
    sums: Sums


@dataclass(frozen=True, eq=False)
class ClusterSteps:
    """Both halves of an iteration, with rows on the workers."""

    cluster: Cluster
    name: str
    smoothing: float
    fitting: Fitting

    def expected(self, model: Markov) -> Together:
        """The E step: sums over workers, in their order."""
        total, added = 0.0, list[np.ndarray]()
        for head, body in self.cluster.crew.call(self.name, "expected", model, self.fitting):
            total += head[0]
            if body:
                added = [np.array(part) for part in body] if not added else [a + b for a, b in zip(added, body)]
        return Together(total, added[0], added[1], tuple(added[2:]))

    def maximised(self, model: Markov, found: Together) -> Markov:
        """The M step, at the driver."""
        emissions: Any = model.emissions
        return replace(
            model,
            start=shares(found.start + self.smoothing),
            transition=shares(found.pairs + self.smoothing),
            emissions=emissions.refitted(found.sums, self.fitting),
        )


def fit_each_on_cluster(
    cluster: Cluster,
    starts: Sequence[tuple[Markov, Fitting]],
    rows: np.ndarray,
    target: Target,
    *,
    watch: Callable[[Step], None] | None = None,
    **options: Any,
) -> list[Climb]:
    """`training.markov.em_starts.fit_each`, one start after the other, each on all workers."""
    if not all(hasattr(first.emissions, "gathered") for first, _ in starts):
        raise InputError(
            "emissions that are estimators of densities are fitted to rows, not to sums over them, and do not run on "
            "a cluster. Use 'gaussian', 'full', 'mixture' or 'categorical', or fit outside of the block."
        )
    crew, chains = cluster.crew, target.topology
    assert isinstance(chains, Chains)
    runs, name = dealt(chains.lengths.tolist(), cluster.n_workers), cluster.crew.fresh_name("markov")
    own: list[tuple[Any, ...]] = []
    for run in runs:
        chosen = np.array(run, dtype=np.int64)
        topology, nodes = chosen_nodes(chains, chosen)
        own.append((rows[nodes], take_target(target, topology, chosen, nodes), run[0]) if run else (None, None, 0))
    about = [f"sequences {run[0]} … {run[-1]}" if run else "nothing" for run in runs]
    crew.build(name, MarkovPart, own, cluster.threads, about=about)

    def make(smoothing: float, fitting: Fitting) -> ClusterSteps:
        return ClusterSteps(cluster, name, smoothing, fitting)

    def after(step: Step, weights: np.ndarray) -> None:
        if watch is not None:
            watch(step)

    found: list[Climb] = []
    try:
        for first, fitting in starts:
            ended: list[Markov] = []

            def run_one(callback: Callback, first: Markov = first, fitting: Fitting = fitting) -> Result:
                model, result = fit_em(
                    first, rows, target, fitting=fitting, callback=callback, make_steps=make, **options
                )
                ended.append(model)  # noqa: B023
                return result

            result = watched(cluster, after, run_one)
            found.append((ended[0], result))
            if result.reason == INTERRUPTED:
                break
    finally:
        crew.forget(name)
    return found
