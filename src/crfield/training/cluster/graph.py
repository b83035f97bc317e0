"""Many graphs on a cluster: smooth objectives are sums over graphs, so workers hold graphs and the driver adds.

Each worker gets a run of graphs, of about as many nodes and edges as the others', once; value and gradient of its
part come back and are added in the order of the workers. Totals of exact engines, the pseudo-likelihood and piecewise
objectives are then those of one machine up to rounding. An approximate engine may pass its messages until the last
graph of a part has settled, so parts of other sizes can differ within its tolerance; whether all settled is told.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.training.cluster.chain import dealt
from crfield.training.cluster.host import Answer
from crfield.training.cluster.session import Cluster
from crfield.training.full_batch import FullBatch, Scorer
from crfield.training.graph.by_graph import take_target
from crfield.training.graph.fit import smooth_objective
from crfield.training.graph.plan import with_jobs


class GraphPart:
    """Some graphs, in a worker."""

    def __init__(self, batch: Any, target: Target | None, scorer: Scorer, n_jobs: int) -> None:
        self.scorer, self.target, self.n_jobs = scorer, target, n_jobs
        prepare = getattr(scorer, "prepare", None)
        self.batch = batch if prepare is None or batch is None else prepare(batch)
        self.problems: dict[str, FullBatch] = {}

    def evaluate(self, objective: str, engine: Any, weights: np.ndarray) -> Answer:
        """Value, seconds and whether the engine settled; the gradient."""
        began, gradient = time.perf_counter(), np.zeros(self.scorer.n_weights)
        if self.batch is None or self.target is None:
            return (0.0, 0.0, True), (gradient,)
        key = f"{objective}:{engine!r}"
        if key not in self.problems:
            engine = None if engine is None else with_jobs(engine, self.n_jobs)
            self.problems[key] = FullBatch(
                self.scorer, self.batch, self.target, objective=smooth_objective(objective), engine=engine
            )
        problem = self.problems[key]
        value = problem.evaluate(weights, gradient)
        return (value, time.perf_counter() - began, problem.settled), (gradient,)


class ClusterGraphs:
    """Graphs that lie on the workers of a cluster; `problem` gives their objectives."""

    def __init__(self, cluster: Cluster, scorer: Scorer, batch: Any, target: Target) -> None:
        self.cluster, self.n_weights = cluster, scorer.n_weights
        topology = batch.topology
        edges = np.bincount(topology.sequence_of_edge, minlength=topology.n_sequences)
        runs = dealt((topology.lengths + edges).tolist(), cluster.n_workers)
        own: list[tuple[Any, ...]] = []
        for run in runs:
            chosen = np.array(run, dtype=np.int64)
            part = batch.take(chosen) if run else None
            own.append((part, take_target(target, chosen, part.topology)) if part is not None else (None, None))
        about = [f"graphs {run[0]} … {run[-1]}" if run else "nothing" for run in runs]
        self.name = cluster.crew.fresh_name("graphs")
        cluster.crew.build(self.name, GraphPart, own, scorer, cluster.threads, about=about)

    def problem(self, objective: str, engine: Any) -> ClusterObjective:
        """An objective of the graphs as one function of the weights."""
        return ClusterObjective(self, objective, engine)

    def close(self) -> None:
        """The workers let go of their graphs."""
        self.cluster.crew.forget(self.name)


class ClusterObjective:
    """A smooth objective of graphs on a cluster, with the surface of `FullBatch`."""

    def __init__(self, graphs: ClusterGraphs, objective: str, engine: Any) -> None:
        self.graphs, self.objective, self.engine = graphs, objective, engine
        self.settled, self.n_unsettled = True, 0
        self.columns: Any = None
        self.moments: Any = None

    @property
    def n_weights(self) -> int:
        """W."""
        return self.graphs.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the objective; its gradient is written to ``gradient``."""
        crew, value, settled = self.graphs.cluster.crew, 0.0, True
        gradient[:] = 0.0
        own = [(self.objective, self.engine)] * crew.n_workers
        for head, body in crew.call(self.graphs.name, "evaluate", weights, own=own):
            value += head[0]
            settled &= head[2]
            gradient += body[0]
        self.settled = settled
        self.n_unsettled += not settled
        return value
