"""`LogitBoost` with stumps against the two boosters of scikit-learn, and how its time grows.

Rounds are equal and the data are the same: standard normal columns, of which five tell the class. The rivals are
`GradientBoostingClassifier(max_depth=1)`, which sorts every column, and `HistGradientBoostingClassifier` with trees
of two leaves, which cuts columns into bins as we do. Against the second both the whole fit and the rounds alone are
compared: what is left of a fit of many rounds without the time of a fit of one, which takes binning out. One thread
each counts CPU time; all threads each count the clock, since CPU time of idle threads would be the rival's loss.

Growth is the slope of log time over log size: 1 is linear.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, cpu, interleaved, wall
from crfield import LogitBoost
from crfield.boosting.candidates import Candidates
from crfield.boosting.responses import working_responses
from crfield.boosting.stumps import best_stump

SORTED_REQUIRED, BINNED_REQUIRED, GROWTH_ALLOWED = 3.0, 1.0, 1.15


def world(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns (rows, columns) and two classes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns))
    return x, (x[:, :5].sum(axis=1) + rng.standard_normal(rows) > 0).astype(int)


def against_sorting(bench: Bench) -> list[Row]:
    """At sizes that the rival's sorting can bear."""
    from sklearn.ensemble import GradientBoostingClassifier

    found = []
    for rows, columns in ((2_000, 50), (2_000, 100), (20_000, 50), (20_000, 100)):
        x, y = world(rows, columns)
        rounds = 20 if rows > 2_000 else 50

        def ours(x: np.ndarray = x, y: np.ndarray = y, rounds: int = rounds) -> Any:
            return LogitBoost(n_rounds=rounds).fit(x, y)

        def theirs(x: np.ndarray = x, y: np.ndarray = y, rounds: int = rounds) -> Any:
            return GradientBoostingClassifier(max_depth=1, n_estimators=rounds).fit(x, y)

        mine, rival = interleaved(ours, theirs, turns=1 if bench.quick else 3)
        name = f"boosting: {rows:,} × {columns}, {rounds} rounds, over gradient boosting"
        found.append(ratio(name, mine, rival, required=SORTED_REQUIRED))
    return found


def against_bins(bench: Bench) -> list[Row]:
    """At 100,000 × 300, with one thread each and with all threads each."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    rows, columns, rounds = (20_000, 100, 20) if bench.quick else (100_000, 300, 50)
    x, y = world(rows, columns)
    found = []
    processors = os.cpu_count() or 1
    for threads, clock in ((1, cpu), (processors, wall)):
        contestants: list[Callable[[], Any]] = []
        for count in (1, rounds + 1):

            def ours(count: int = count, threads: int = threads) -> Any:
                return LogitBoost(n_rounds=count, n_jobs=threads).fit(x, y)

            def theirs(count: int = count) -> Any:
                rival = HistGradientBoostingClassifier(max_leaf_nodes=2, max_iter=count, early_stopping=False)
                return rival.fit(x, y)

            contestants += [ours, theirs]
        with threadpool_limits(threads):
            mine_1, rival_1, mine, rival = interleaved(*contestants, turns=1 if bench.quick else 3, clock=clock)
        crew = "1 thread" if threads == 1 else f"{threads} threads"
        head = f"boosting: {rows:,} × {columns}, {crew}"
        found.append(
            ratio(f"{head}, {rounds + 1} rounds, over histogram boosting", mine, rival, required=BINNED_REQUIRED)
        )
        mine_rounds, rival_rounds = (
            Timing([max(b - a, 1e-9) for a, b in zip(one.seconds, many.seconds, strict=True)])
            for one, many in ((mine_1, mine), (rival_1, rival))
        )
        found.append(ratio(f"{head}, {rounds} rounds alone", mine_rounds, rival_rounds, required=BINNED_REQUIRED))
    return found


def growth(bench: Bench) -> list[Row]:
    """The slope of a round's time in rows and in columns."""
    found = []
    small = bench.quick
    for what, sizes in (
        ("rows", [(n, 60) for n in ((10_000, 20_000, 40_000) if small else (25_000, 50_000, 100_000, 200_000))]),
        ("columns", [(20_000, f) for f in ((30, 60, 120) if small else (50, 100, 200, 400))]),
    ):
        searches = []
        for rows, columns in sizes:
            x, y = world(rows, columns)
            cut = Candidates.of(x)
            weight, response = working_responses(np.full((rows, 2), 0.5), y)
            searches.append(lambda cut=cut, w=weight, z=response: best_stump(cut, w, z))
        timings = interleaved(*searches, turns=5 if small else 15)
        best = [timing.best for timing in timings]
        size = [pair[0 if what == "rows" else 1] for pair in sizes]
        slope = float(np.polyfit(np.log(size), np.log(best), 1)[0])
        found.append(
            Row(
                f"boosting: growth of a search in {what}, {size[0]:,} … {size[-1]:,}",
                slope,
                unit="",
                required=GROWTH_ALLOWED,
                better="less",
                note="slope of log time over log size: 1 is linear",
                detail={"sizes": sizes, "seconds": best},
            )
        )
    return found


def run(bench: Bench) -> list[Row]:
    """All three."""
    return [*against_sorting(bench), *against_bins(bench), *growth(bench)]
