"""`ClusterChain`: a chain objective whose data lie on the workers of a cluster, with the surface of `ShardedChain`.

    F(w) = Σ over workers of Σ over its shards of f_shard(w)        and so its gradient and its curvature

Weights go to every worker, gradients come back and are added in the order of the workers, so L-BFGS, OWL-QN, the
stopping rule, checkpoints and held-out scores see one problem and know nothing of the cluster. Within a worker shards
are added in their order: the same number of workers gives the same bits, whoever was lost on the way; another number
gives the same sum up to rounding.

A worker packs its shards once and keeps them, as long as they fit in its share of the memory; what does not fit is
read and packed in every evaluation. Of its gradient it sends only the weights that its shards touch, where that is
less than half of them, in double or single precision.

Before the batch optimiser come stochastic epochs, as in memory. They visit data one after the other, which a cluster
cannot; what it can is *iterative parameter mixing* (McDonald, Hall & Mann 2010, *Distributed training strategies for
the structured perceptron*): each worker makes an epoch over its own shards from the same weights, and the mean of
what they come to is where the next epoch begins. Two workers lose little by it; L-BFGS finds the optimum either way.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.errors import ClusterWarning, InputError, ModelFileError
from crfield.inference.chain import ChainEngine
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import joined
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain import warm_start
from crfield.training.chain.partial_fit import take_sequences
from crfield.training.chain.plan import ChainParts
from crfield.training.chain.shards import EPOCHS, GROUP, ShardedChain, fit_sharded
from crfield.training.cluster.host import Answer
from crfield.training.cluster.session import Cluster
from crfield.training.cluster.steps import Callback, watched
from crfield.training.column_basis import Moments, measured
from crfield.training.likelihood import FusedChain

SPARSE = 0.5  # share of the weights that a worker touches, below which it sends only these
PACKED = 4.0  # bytes of a packed shard for each of its bytes on disk, at most


class ShardModel(Protocol):
    """What turns shards into problems: a value that can travel, without encoder and without the user's code."""

    def observe(self, batch: Batch, target: Target) -> tuple[Layout, Moments | None]:
        """The weights that a shard asks for, and what its numeric columns are like."""
        ...

    def problem(self, layout: Layout, batch: Batch, target: Target, n_jobs: int) -> Any:
        """The objective of one shard."""
        ...


@dataclass(frozen=True)
class Timed:
    """How long an evaluation took, and the kernels of its slowest worker, by the clock and in processor time."""

    seconds: float
    kernel: float
    processor: float


class ClusterChain:
    """A chain objective on the workers of a cluster; see the module.

    ``dataset`` is what was handed to ``fit``: its length is the number of sequences.
    """

    def __init__(self, cluster: Cluster, name: str, told: Sequence[Answer], dataset: Any, n_weights: int) -> None:
        self.cluster, self.name, self.dataset, self._n_weights = cluster, name, dataset, n_weights
        self.columns: Any = None
        self.moments: Any = None
        self.stochastic = False
        self.likelihood = None  # only convex objectives run here
        self.n_steps = [head["steps"] for head, _ in told]
        self.busy = [head["shards"] > 0 for head, _ in told]  # workers that have something to do
        self.kept = [(head["kept"], head["shards"]) for head, _ in told]  # shards that stay in memory, and all
        self.fused = all(head["fused"] or not head["shards"] for head, _ in told)
        self.touched = [body[0].copy() if body else None for _, body in told]  # places of what a worker sends
        self.times: list[Timed] = []

    @property
    def n_weights(self) -> int:
        """W."""
        return self._n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the objective; its gradient is written to ``gradient``."""
        began, value, slowest, busiest = time.perf_counter(), 0.0, 0.0, 0.0
        for worker, (head, body) in enumerate(self.cluster.crew.call(self.name, "evaluate", weights)):
            value += head[0]
            slowest, busiest = max(slowest, head[1]), max(busiest, head[2])
            self._add(gradient, worker, body[0])
        self.times.append(Timed(time.perf_counter() - began, slowest, busiest))
        return value

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative; of packed problems only."""
        total = np.zeros(self.n_weights)
        for worker, (_, body) in enumerate(self.cluster.crew.call(self.name, "curvature", weights)):
            self._add(total, worker, body[0])
        return total

    def _add(self, total: np.ndarray, worker: int, part: np.ndarray) -> None:
        """What a worker sent, added at its places; the first one begins the sum."""
        places = self.touched[worker]
        if worker == 0:
            if places is None:
                total[:] = part
                return
            total[:] = 0.0
        if places is None:
            total += part
        else:
            total[places] += part

    def warm(self, weights: np.ndarray, **options: Any) -> bool:
        """Epochs by iterative parameter mixing, changing ``weights``; False if no step size did any good."""
        rng, l2 = options["rng"], options["l2"]
        crew, groups, full = self.cluster.crew, len(self.dataset) / GROUP, self.busy

        def begin() -> tuple[float, float]:
            seed = int(rng.integers(2**63))
            heads = [head for head, _ in crew.call(self.name, "find_step", weights, seed, l2, groups)]
            return next((head for head, busy in zip(heads, full) if busy), (0.0, 0.0))

        def epoch(number: int, step: float) -> float:
            seed, met, mean = int(rng.integers(2**63)), 0.0, np.zeros(self.n_weights)
            own = [(worker,) for worker in range(crew.n_workers)]
            for worker, (head, body) in enumerate(
                crew.call(self.name, "epoch", weights, number, step, seed, l2, own=own)
            ):
                if full[worker]:
                    met += head
                    mean += body[0]
            weights[:] = mean / max(sum(full), 1)
            return met

        chosen = {name: options[name] for name in ("epochs", "rng", "run_state")}
        return warm_start.run_epochs(weights, begin, epoch, **chosen)

    def close(self) -> None:
        """The workers let go of their parts."""
        self.cluster.crew.forget(self.name)


# ------------------------------------------------------------------------------------------------ in the workers


class ChainPart:
    """A worker's part of a chain objective: problems that are kept, and shards that are read anew each time."""

    def __init__(self, n_weights: int, wire: str) -> None:
        self.n_weights, self.wire = n_weights, np.dtype(wire)
        self.kept: dict[int, Any] = {}
        self.numbers: list[int] = []
        self.steps = 0
        self.touched: np.ndarray | None = None  # (W,) bool, then the places; None for all
        self._gradient, self._piece = np.zeros(n_weights), np.zeros(n_weights)

    def problem(self, number: int) -> Any:
        """The problem of a shard."""
        return self.kept[number]

    def told(self) -> Answer:
        """What the driver is told when the part is ready."""
        fused = bool(self.numbers) and isinstance(self.problem(self.numbers[0]), FusedChain)
        head = {"steps": self.steps, "kept": len(self.kept), "shards": len(self.numbers), "fused": fused}
        return head, () if self.touched is None else (self.touched,)

    def evaluate(self, weights: np.ndarray) -> Answer:
        """Value, and seconds by the clock and of the processor; the gradient."""
        began, used, value, total = time.perf_counter(), time.process_time(), 0.0, self._gradient
        if not self.numbers:
            total[:] = 0.0
        for turn, number in enumerate(self.numbers):
            value += self.problem(number).evaluate(weights, self._piece if turn else total)
            if turn:
                total += self._piece
        seconds = time.perf_counter() - began
        return (value, seconds, time.process_time() - used), (self._sent(total),)

    def curvature(self, weights: np.ndarray) -> Answer:
        """The diagonal."""
        total = np.zeros(self.n_weights)
        for number in self.numbers:
            total += self.problem(number).curvature(weights)
        return None, (self._sent(total),)

    def _sent(self, total: np.ndarray) -> np.ndarray:
        chosen = total if self.touched is None else total[self.touched]
        return chosen.astype(self.wire, copy=False)

    def find_step(self, weights: np.ndarray, seed: int, l2: float, groups: float) -> Answer:
        """The first step size by a sample of the first shard, and the loss of standing still on all data."""
        if not self.numbers:
            return (0.0, 0.0), ()
        one, rng = self.problem(self.numbers[0]), np.random.default_rng(seed)
        sample = rng.permutation(one.n_groups)[: max(min(one.n_groups, 8), one.n_groups // 10)]
        step, still = warm_start.find_step(one, np.array(weights), sample, l2=l2 * one.n_groups / groups)
        return (step, still * groups / len(sample)), ()

    def epoch(self, worker: int, weights: np.ndarray, number: int, step: float, seed: int, l2: float) -> Answer:
        """One epoch over the shards of this worker in random order: the loss met, and the weights it came to."""
        rng, own = np.random.default_rng([seed, worker]), np.array(weights)
        problems = [self.problem(n) for n in self.numbers] if len(self.kept) == len(self.numbers) else None
        mine = sum(p.n_groups for p in problems) if problems else self.steps_groups
        met = done = 0.0
        for place in rng.permutation(len(self.numbers)):
            piece = problems[place] if problems else self.problem(self.numbers[place])
            met += piece.descend(
                own,
                rng.permutation(piece.n_groups),
                step=step,
                done=number * mine + done,
                horizon=3.0 * mine,
                l2=l2 * piece.n_groups / mine,
            )
            done += piece.n_groups
        return met, (own,)

    @property
    def steps_groups(self) -> float:
        """How many stochastic steps an epoch has, where not all shards are in memory to be asked."""
        return max(self.sequences / GROUP, 1.0)

    sequences = 0

    def touch(self, seen: np.ndarray) -> None:
        """Send only what is seen (W,), if that is little."""
        self.touched = np.flatnonzero(seen) if seen.mean() < SPARSE else None


class ShardsOnDisk(ChainPart):
    """Shards of an encoded data set that this worker sees under the same path as the driver."""

    def __init__(
        self,
        numbers: Sequence[int],
        budget: float | None,
        path: str,
        digests: Sequence[str],
        model: ShardModel,
        layout: Layout,
        n_jobs: int,
        wire: str,
    ) -> None:
        super().__init__(layout.n_weights, wire)
        self.numbers, self.dataset = list(numbers), open_dataset(path, digests)

        def make(batch: Batch, target: Target) -> Any:
            return model.problem(layout, batch, target, n_jobs)

        self.shards = ShardedChain(self.dataset, make, n_weights=layout.n_weights)
        seen, used = np.zeros(layout.n_weights, bool), 0.0
        for number in self.numbers:
            shard = self.dataset.shard(number)
            self.steps += shard.batch.topology.n_nodes
            self.sequences += shard.batch.topology.n_sequences
            mark(seen, layout, shard.batch)
            used += PACKED * self.dataset.shard_bytes[number]
            if budget is None or used <= budget:
                self.kept[number] = self.shards.shard(number)
        self.touch(seen)

    def problem(self, number: int) -> Any:
        """Kept, or read and packed for this once."""
        return self.kept[number] if number in self.kept else self.shards.shard(number)


class ShardSent(ChainPart):
    """Sequences that were in the driver's memory, sent once."""

    def __init__(self, parts: ChainParts | None, objective: str, n_weights: int, wire: str) -> None:
        super().__init__(n_weights, wire)
        if parts is None:
            return
        self.numbers, self.steps = [0], parts.batch.topology.n_nodes
        self.sequences = parts.batch.topology.n_sequences
        self.kept[0] = parts.problem(objective, whole=False)
        layout = parts.layout or parts.column_layout
        if layout is not None:
            seen = np.zeros(n_weights, bool)
            mark(seen, layout, parts.batch)
            self.touch(seen)


class Survey:
    """The pass over a worker's shards before training: which weights they ask for."""

    def __init__(self, numbers: Sequence[int], path: str, digests: Sequence[str], model: ShardModel) -> None:
        self.layout: Layout | None = None
        self.moments: Moments | None = None
        dataset = open_dataset(path, digests)
        for number in numbers:
            shard = dataset.shard(number)
            layout, moments = model.observe(shard.batch, shard.target)
            self.layout = layout if self.layout is None else joined(self.layout, layout)
            if moments is not None:
                self.moments = moments if self.moments is None else self.moments.merged(moments)

    def told(self) -> Answer:
        """Layout and moments of the part."""
        return (self.layout, self.moments), ()


def open_dataset(path: str, digests: Sequence[str]) -> EncodedDataset:
    """The driver's data set as this worker sees it; ModelFileError where it sees none, or another one."""
    try:
        dataset = EncodedDataset(path)
    except (InputError, OSError) as error:
        raise ModelFileError(
            f"{path} cannot be seen from here ({error}). Data sets lie on a path that all workers share: a network "
            "file system, or a volume mounted at the same place on every node."
        ) from None
    if list(dataset.digests) != list(digests):
        raise ModelFileError(f"{path} is another data set here than at the driver. Copy it again, or share one path.")
    return dataset


def mark(seen: np.ndarray, layout: Layout, batch: Any) -> None:
    """Set ``seen`` (W,) for all weights that a batch touches: those of its columns, and all that need no column."""
    part, labels = layout.part, layout.n_labels
    for name, columns, pointer, size, width in (
        ("node", batch.node, layout.feature_ptr, labels, layout.n_columns),
        ("edge", batch.edge, layout.edge_ptr, labels**2, layout.n_edge_columns),
    ):
        if columns is None or not width:
            continue
        met = np.zeros(width, bool)
        met[columns.indices] = True
        seen[part[name]] |= np.repeat(met, np.full(width, size) if pointer is None else np.diff(pointer))
    for name in ("dense", "bias", "start", "end", "transitions", "edge_dense"):
        seen[part[name]] = True


# ------------------------------------------------------------------------------------------------- at the driver


def dealt(sizes: Sequence[float], n: int) -> list[list[int]]:
    """Numbers of things of these sizes, dealt to n workers in runs of about the same size.

    >>> dealt([5, 5, 2, 2, 2, 4], 3)
    [[0], [1, 2, 3], [4, 5]]
    >>> dealt([9, 1, 1], 3), dealt([1.0], 2)
    ([[0], [1], [2]], [[0], []])
    """
    ends, total, made, first = np.cumsum(sizes), float(np.sum(sizes)), list[list[int]](), 0
    for worker in range(n):
        # As far as its share of the sum, but one at least, and one at least for everybody behind.
        near = int(np.searchsorted(ends - np.asarray(sizes) / 2, (worker + 1) * total / n))
        stop = max(min(near, len(sizes) - (n - worker - 1)), min(first + 1, len(sizes)))
        stop = len(sizes) if worker == n - 1 else stop
        made.append(list(range(first, stop)))
        first = stop
    return made


def survey(cluster: Cluster, dataset: EncodedDataset, model: ShardModel) -> tuple[Layout | None, Moments | None]:
    """The layout that the whole data set asks for, by one pass that workers make over their own shards."""
    crew, name = cluster.crew, cluster.crew.fresh_name("survey")
    numbers = dealt(dataset.shard_steps, cluster.n_workers)
    told = crew.build(
        name, Survey, [(own,) for own in numbers], dataset.path, dataset.digests, model, about=_shards(numbers)
    )
    crew.forget(name)
    layout: Layout | None = None
    moments: Moments | None = None
    for (met, numeric), _ in told:
        if met is not None:
            layout = met if layout is None else joined(layout, met)
        if numeric is not None:
            moments = numeric if moments is None else moments.merged(numeric)
    return layout, moments


def cluster_of_shards(cluster: Cluster, dataset: EncodedDataset, model: ShardModel, layout: Layout) -> ClusterChain:
    """The objective of an encoded data set, its shards dealt to the workers in order."""
    numbers, crew = dealt(dataset.shard_steps, cluster.n_workers), cluster.crew
    idle = sum(not own for own in numbers)
    if idle:
        warnings.warn(
            f"{dataset.n_shards} shards are too few for {cluster.n_workers} workers: {idle} of them have nothing to "
            "do. Encode the data into smaller shards (shard_bytes, --shard-size).",
            ClusterWarning,
            stacklevel=6,
        )
    name = crew.fresh_name("chain")
    own = [(mine, budget) for mine, budget in zip(numbers, cluster.budget())]
    told = crew.build(
        name,
        ShardsOnDisk,
        own,
        dataset.path,
        dataset.digests,
        model,
        layout,
        cluster.threads,
        cluster.wire,
        about=_shards(numbers),
    )
    return ClusterChain(cluster, name, told, dataset, layout.n_weights)


def cluster_of_parts(cluster: Cluster, parts: ChainParts, objective: str) -> ClusterChain:
    """The objective of sequences in memory: runs of about as many steps, each sent to its worker, once."""
    topology, crew = parts.batch.topology, cluster.crew
    runs = dealt(topology.lengths.tolist(), cluster.n_workers)
    threaded = replace(parts, engine=ChainEngine(cluster.threads))
    own = [(take_sequences(threaded, np.array(run)) if run else None,) for run in runs]
    about = [f"sequences {run[0]} … {run[-1]}" if run else "nothing" for run in runs]
    name, n_weights = crew.fresh_name("chain"), parts.scorer.n_weights
    told = crew.build(name, ShardSent, own, objective, n_weights, cluster.wire, about=about)
    made = ClusterChain(cluster, name, told, range(topology.n_sequences), n_weights)
    layout = parts.layout or parts.column_layout
    if layout is not None and parts.batch.numeric:
        measured(made, layout, parts.batch, parts.target)
    return made


def _shards(numbers: Sequence[Sequence[int]]) -> list[str]:
    return [f"shards {own[0]} … {own[-1]}" if own else "no shards" for own in numbers]


def fit_on_cluster(
    problem: ClusterChain, penalty: Penalty, *, stochastic: bool, callback: Callback | None = None, **options: Any
) -> Result:
    """As `fit_sharded`; steps and the result tell of the cluster."""

    def run(after: Callback) -> Result:
        return fit_sharded(problem, penalty, stochastic=stochastic, callback=after, **options)

    result = watched(problem.cluster, callback, run)
    crew = problem.cluster.crew
    name = "OWL-QN, for the l1 penalty," if penalty.l1 else "L-BFGS"
    epochs = f", after {EPOCHS} stochastic epochs by parameter mixing" if stochastic else ""
    kept, shards = (sum(counts) for counts in zip(*problem.kept))
    where = "" if kept == shards else f"; {shards - kept} of {shards} shards, beyond the memory, are read each time"
    sent = "" if isinstance(problem.dataset, EncodedDataset) else "; sequences in memory were sent to them, once"
    return replace(result, how=f"{name} on {crew.n_workers} workers ({crew.pool.name}){epochs}{where}{sent}")
