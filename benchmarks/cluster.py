"""Training on a cluster: what an evaluation costs beside its kernels, and that nothing changes when workers die.

Two workers of this machine, in processes and, where it is installed, on Ray. On CoNLL-2000 in ten shards: the
overhead of an evaluation (its wall time minus the kernels of the slowest worker), the objective against one process,
ten trainings of which each loses a worker by SIGKILL at a random moment, and a driver that is killed and goes on from
its checkpoint. On a generated corpus of more than 2 GB: the objective again, time against two threads in memory and
against one worker, and the memory of the driver against that with a tenth of the data.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import crfield
from benchmarks.children import run_task
from benchmarks.corpora import Bench
from benchmarks.out_of_core import write
from benchmarks.table import Row
from crfield.errors import ClusterWarning, ConvergenceWarning
from crfield.storage.encoded import EncodedDataset

OVERHEAD_REQUIRED, OBJECTIVE_REQUIRED = 20.0, 1e-10
THREADS_REQUIRED, WORKERS_REQUIRED = 0.9, 1.7
GIGABYTES, SHARDS = 2.02, 10
DRIVER_REQUIRED = 1.25  # memory of the driver with ten times the data


def kinds() -> list[str]:
    """The kinds of clusters that can be had here."""
    return ["local", *(["ray"] if importlib.util.find_spec("ray") is not None else [])]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that are the point of it."""
    with warnings.catch_warnings():
        for kind in (ClusterWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        yield


def steps(n: int, **options: Any) -> crfield.ChainCRF:
    """A training of so many steps of L-BFGS."""
    return crfield.ChainCRF(solver="lbfgs", tol=1e-12, max_iter=n, **options)


def run(bench: Bench) -> list[Row]:
    """All rows."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    folder = Path(bench.path("cluster"))
    folder.mkdir(parents=True)
    try:
        rows = on_chunks(bench, folder)
        return rows + on_generated(bench, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------ CoNLL-2000


def on_chunks(bench: Bench, folder: Path) -> list[Row]:
    """Overhead, objective, losses and a killed driver."""
    corpus = bench.chunks
    train = corpus.train.first(1500) if bench.quick else corpus.train
    probe = crfield.encode_dataset([(train.rows, train.tags)], folder / "probe", template=corpus.template)
    size = probe.nbytes // SHARDS + 1
    dataset = crfield.encode_dataset(
        [(train.rows, train.tags)], folder / "chunks", template=corpus.template, shard_bytes=size
    )
    n_steps, n_kills = (15, 3) if bench.quick else (60, 10)
    short = 15  # steps of a training that loses a worker
    ends: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-11, "max_iter": 3000}
    alone = crfield.ChainCRF(template=corpus.template, n_jobs=2, **ends).fit(train.rows, train.tags)
    rows: list[Row] = []
    for kind in kinds():
        with quiet(), crfield.cluster(kind, n_workers=2) as cluster:
            timed: list[Any] = []
            with watching(timed):
                model = steps(n_steps).fit(dataset)
            over = np.array([1000 * (each.seconds - each.kernel) for each in timed])
            kernel = np.median([1000 * each.kernel for each in timed])
            rows.append(
                Row(
                    f"cluster: overhead of an evaluation, {kind}, 2 workers, {len(model.coef_):,} weights",
                    float(np.median(over)),
                    unit="ms",
                    required=bench.judged(OVERHEAD_REQUIRED) if not bench.quick else None,
                    better="less",
                    note=f"median of {len(over)}, p90 {np.quantile(over, 0.9):.1f}; kernels {kernel:.0f} ms; "
                    f"{model.history_[-1].n_bytes / 1e6:.1f} MB in the last step",
                    detail={"overhead": over.tolist(), "workers": cluster.workers},
                )
            )
            found = crfield.ChainCRF(**ends).fit(dataset)
            rows.append(same_objective(f"cluster: optimum, {kind}, 2 workers, and one process", found, alone))
            if kind == "local":
                rows.append(mixing(dataset))
            rows.append(with_losses(kind, cluster, dataset, short, n_kills))
    rows.append(killed_driver(folder, dataset, short))
    return rows


@contextmanager
def watching(timed: list[Any]) -> Iterator[None]:
    """Notes how long the evaluations of clusters take."""
    from crfield.training.cluster.chain import ClusterChain

    close = ClusterChain.close

    def closing(self: ClusterChain) -> None:
        timed.extend(self.times)
        close(self)

    ClusterChain.close = closing  # type: ignore[method-assign]
    try:
        yield
    finally:
        ClusterChain.close = close  # type: ignore[method-assign]


def same_objective(name: str, found: Any, alone: Any) -> Row:
    """The relative difference of two objectives."""
    return Row(
        name,
        abs(found.objective_ / alone.objective_ - 1),
        unit="",
        required=OBJECTIVE_REQUIRED,
        better="less",
        ours=f"{found.objective_:.10g}",
        rival=f"{alone.objective_:.10g}",
        note=f"relative, at a tolerance of 1e-11: {found.n_evaluations_} evaluations and {alone.n_evaluations_}",
    )


def mixing(dataset: EncodedDataset) -> Row:
    """Evaluations that stochastic epochs by parameter mixing save, at the default tolerance."""
    cold, warm = (crfield.ChainCRF(solver=solver).fit(dataset).n_evaluations_ for solver in ("lbfgs", "warm"))
    return Row(
        "cluster: evaluations without and with epochs by parameter mixing, 2 workers",
        cold / warm,
        ours=f"{warm}",
        rival=f"{cold}",
        note="to a tolerance of 1e-4",
    )


def with_losses(kind: str, cluster: Any, dataset: EncodedDataset, n_steps: int, n_kills: int) -> Row:
    """Trainings that lose a worker at random moments, against the undisturbed one: which have the same bits."""
    began = time.perf_counter()
    same, lost, draw = 0, 0, random.Random(0)
    whole = steps(n_steps).fit(dataset)
    lasts = time.perf_counter() - began
    for _ in range(n_kills):
        pids = cluster.crew.pool.pids
        wait, pid = draw.uniform(0.0, lasts), draw.choice(pids)
        timer = threading.Timer(wait, os.kill, (pid, signal.SIGKILL))
        timer.start()
        found = steps(n_steps).fit(dataset)
        timer.cancel()
        timer.join()
        same += bool(found.objective_ == whole.objective_ and np.array_equal(found.coef_, whole.coef_))
        lost += found.history_[-1].n_losses
    return Row(
        f"cluster: trainings with the same bits after SIGKILL, {kind}, of {n_kills}",
        float(same),
        unit="",
        required=float(n_kills),
        better="more",
        note=f"{lost} workers lost while steps were taken, others while shards were loaded or at the end",
    )


def killed_driver(folder: Path, dataset: EncodedDataset, n_steps: int) -> Row:
    """A driver killed in the middle, and what a second one makes of its checkpoint."""
    checkpoint = str(folder / "run.checkpoint")
    whole = run_task("cluster_train", dataset.path, str(n_steps), "", "0")
    run_task("cluster_killed", dataset.path, str(n_steps), checkpoint, str(n_steps // 2))
    again = run_task("cluster_train", dataset.path, str(n_steps), checkpoint, "0")
    return Row(
        "cluster: objective of a driver that goes on after SIGKILL, and of one that was let alone",
        abs(again["objective"] / whole["objective"] - 1),
        unit="",
        required=0.0 if again["objective"] == whole["objective"] else OBJECTIVE_REQUIRED,
        better="less",
        ours=f"{again['objective']:.10g}",
        rival=f"{whole['objective']:.10g}",
        note=f"killed at step {n_steps // 2} of {n_steps}, 2 local workers",
    )


# ------------------------------------------------------------------------------------------- a generated corpus


def on_generated(bench: Bench, folder: Path) -> list[Row]:
    """Objective, time and memory on more than 2 GB."""
    part = write(str(folder / "part"), 0.1e9 * GIGABYTES * (0.1 if bench.quick else 1.0))
    whole = write(str(folder / "whole"), 1e9 * GIGABYTES * (0.1 if bench.quick else 1.0))
    size, n_steps = whole.nbytes / 1e9, 8
    rows = []
    timed: dict[str, float] = {}
    found: dict[str, Any] = {}
    threads = run_task("threads_in_memory", whole.path, str(n_steps), "2")
    found["threads"], timed["threads"] = threads, threads["evaluation"]
    for kind, n in [*((kind, 2) for kind in kinds()), ("local", 1)]:
        child = run_task("cluster_train", whole.path, str(n_steps), "", "0", kind, str(n))
        timed[f"{kind}-{n}"], found[f"{kind}-{n}"] = child["evaluation"], child
    small = run_task("cluster_train", part.path, str(n_steps), "", "0")
    for kind in kinds():
        ours = found[f"{kind}-2"]
        rows.append(
            Row(
                f"cluster: objective of {size:.2f} GB in {whole.n_shards} shards, {kind}, 2 workers, and one process",
                abs(ours["objective"] / threads["objective"] - 1),
                unit="",
                required=OBJECTIVE_REQUIRED,
                better="less",
                ours=f"{ours['objective']:.10g}",
                rival=f"{threads['objective']:.10g}",
                note=f"relative, after {n_steps} steps",
            )
        )
        rows.append(
            Row(
                f"cluster: speed of {kind}, 2 workers, against two threads in memory, {size:.2f} GB",
                timed["threads"] / timed[f"{kind}-2"],
                required=None if bench.quick else THREADS_REQUIRED,
                ours=f"{timed[f'{kind}-2']:.2f} s",
                rival=f"{timed['threads']:.2f} s",
                note=f"best evaluation of each; processor time of the busier worker {ours['processor']:.2f} s, of "
                f"both threads {threads['processor']:.2f} s",
            )
        )
    rows.append(
        Row(
            f"cluster: speed of 2 local workers against one, {size:.2f} GB",
            timed["local-1"] / timed["local-2"],
            required=None if bench.quick else WORKERS_REQUIRED,
            ours=f"{timed['local-2']:.2f} s",
            rival=f"{timed['local-1']:.2f} s",
            note=f"best evaluation of each; processor time of the busier {found['local-2']['processor']:.2f} s, of "
            f"the one {found['local-1']['processor']:.2f} s",
        )
    )
    rows.append(
        Row(
            f"cluster: memory of the driver, {size:.2f} GB against {part.nbytes / 1e9:.2f} GB",
            found["local-2"]["peak"] / small["peak"],
            required=DRIVER_REQUIRED,
            better="less",
            ours=f"{found['local-2']['peak']:.0f} MB",
            rival=f"{small['peak']:.0f} MB",
        )
    )
    return rows
