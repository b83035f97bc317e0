"""The same loops at each level of x86-64, as this installation compiled them and as clang does.

An evaluation of the likelihood (22 labels, text), a best path through long chains, sums on chains of a thousand
steps, sweeps of belief propagation and a search for the best stump: the most used of the loops that are compiled
once for each level. The first rows set the levels against the lowest, SSE4.2, in turns in one process. The second
set clang's modules against this installation's, in processes that take turns; `make build/clang/.built` makes them,
and without them these rows say so. CPU time of one thread; what is computed is the same, to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved

CLANG = Path(__file__).parents[1] / "build" / "clang"
LEVELS = {2: "SSE4.2", 3: "AVX2", 4: "AVX-512"}
MISSING = "clang's modules are not there: make build/clang/.built"


@contextmanager
def at(level: int) -> Iterator[None]:
    """Run the block on the code of one level, or of a lower one that the processor has."""
    before = os.environ.get("CRFIELD_LEVEL")
    os.environ["CRFIELD_LEVEL"] = str(level)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CRFIELD_LEVEL"]
        else:
            os.environ["CRFIELD_LEVEL"] = before


def works(bench: Bench) -> dict[str, Callable[[], Any]]:
    """The loops by name."""
    from benchmarks.boosting import world
    from benchmarks.contestant import Ours
    from benchmarks.graphs import grid
    from crfield import LogitBoost
    from crfield.core.potentials import Potentials
    from crfield.core.semiring import Semiring
    from crfield.core.topology import Chains
    from crfield.inference.chain import ChainEngine

    corpus, rng = bench.chunks, np.random.default_rng(0)
    ours = Ours.build(corpus.train.first(2000), corpus.template)
    weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
    long = Chains.from_lengths([1000] * 20)
    scores = Potentials(rng.normal(size=(long.n_nodes, 12)), rng.normal(size=(1, 12, 12)), long)
    field, (x, y) = grid(), world(5000, 50)
    return {
        "likelihood and gradient, text": lambda: ours.problem.evaluate(weights, gradient),
        "the same in single precision": lambda: ours.problem.evaluate_single(weights, gradient),
        "sums on long chains": lambda: ChainEngine().infer(scores, Semiring.LOG),
        "best paths through them": lambda: ChainEngine().infer(scores, Semiring.MAX),
        "belief propagation on a grid": field.ours,
        "ten rounds of stumps": lambda: LogitBoost(n_rounds=10, n_jobs=1).fit(x, y),
    }


def timed(turns: int, *, quick: bool) -> dict[str, dict[str, float]]:
    """Best CPU seconds of every loop at every level that the processor has."""
    from crfield.kernels import _chain  # type: ignore[attr-defined]

    def run(level: int, work: Callable[[], Any]) -> None:
        with at(level):
            work()

    bench = Bench(quick=quick)
    try:
        levels = [level for level in LEVELS if level <= _chain.level()]
        found = {}
        for name, work in works(bench).items():
            each = [lambda level=level, work=work: run(level, work) for level in levels]  # type: ignore[misc]
            times = interleaved(*each, turns=turns)
            found[name] = {str(level): timing.best for level, timing in zip(levels, times)}
        return found
    finally:
        bench.close()


def _best(runs: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The least of each time over several runs."""
    return {
        name: {level: min(each[name][level] for each in runs) for level in levels} for name, levels in runs[0].items()
    }


def run(bench: Bench) -> list[Row]:
    """Levels against the lowest, then clang against this build."""
    turns, rounds = ("3", 1) if bench.quick else ("10", 2)
    folders = ["", str(CLANG)] if (CLANG / ".built").exists() else [""]
    runs: dict[str, list[Any]] = {folder: [] for folder in folders}
    for _ in range(rounds):
        for folder in folders:
            runs[folder].append(run_task("levels", turns, "quick" if bench.quick else "", folder)["best"])
    best = {folder: _best(each) for folder, each in runs.items()}
    rows = []
    for name, times in best[""].items():
        first = min(times)
        for level, spent in times.items():
            if level != first:
                title = f"levels: {name}, {LEVELS[int(level)]} over {LEVELS[int(first)]}"
                ratio = times[first] / spent
                rows.append(Row(title, ratio, ours=seconds(spent), rival=seconds(times[first])))
    if len(folders) == 1:
        return [*rows, Row("levels: clang over this build", None, note=MISSING)]
    for name, times in best[folders[1]].items():
        for level, spent in times.items():
            ours = best[""][name][level]
            title = f"levels: {name}, {LEVELS[int(level)]}, this build over clang's"
            rows.append(Row(title, spent / ours, ours=seconds(ours), rival=seconds(spent)))
    return rows
