"""`LogitBoost` with stumps against the two boosters of scikit-learn, virtual evidence against it, and how time grows.

Rounds are equal and the data are the same: standard normal columns, of which five tell the class. The rivals are
`GradientBoostingClassifier(max_depth=1)`, which sorts every column, and `HistGradientBoostingClassifier` with trees
of two leaves, which cuts columns into bins as we do. Against the second both the whole fit and the rounds alone are
compared: what is left of a fit of many rounds without the time of a fit of one, which takes binning out. One thread
each counts CPU time; all threads each count the clock, since CPU time of idle threads would be the rival's loss.

Virtual evidence boosting adds a sweep of messages and a search of the couplings to every round. Nine chains of 2,000
steps, rounds alone: a fit of many less a fit of few, each the best of its turns.

Growth is the slope of log time over log size: 1 is linear. `examples/draw_pictures.py` draws it from the JSON file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import Timing, cpu, interleaved, wall
from crfield import LogitBoost, VirtualEvidenceBoosting, make_order_chains
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import working_responses
from crfield.boosting.weak_learners.stumps import best_stump

SORTED_REQUIRED, BINNED_REQUIRED, GROWTH_ALLOWED, EVIDENCE_ALLOWED = 3.0, 1.0, 1.15, 1.5
FEW, MANY = 10, 160  # rounds of two fits, whose difference is that of the rounds between


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


def chains(length: int, columns: int, *, numeric: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Nine chains whose labels tend to stay; binary columns, or the same behind normal noise."""
    made = make_order_chains(0.9, n_chains=9, length=length, n_features=columns, random_state=1)
    if not numeric:
        return list(made.features), list(made.labels)
    rng = np.random.default_rng(0)
    return [x + rng.standard_normal(x.shape) for x in made.features], list(made.labels)


def evidence_rounds(x: list[np.ndarray], y: list[np.ndarray], rounds: int) -> Any:
    """A fit of exactly so many rounds."""
    return VirtualEvidenceBoosting(n_rounds=rounds, patience=rounds).fit(x, y)


def rounds_alone(*fits: Callable[[int], Any], turns: int) -> list[float]:
    """Seconds of one round of each fit."""
    pairs = [[lambda fit=fit: fit(FEW), lambda fit=fit: fit(MANY)] for fit in fits]
    timings = interleaved(*(run for pair in pairs for run in pair), turns=turns)
    return [
        max(many.best - few.best, 1e-9) / (MANY - FEW) for few, many in zip(timings[::2], timings[1::2], strict=True)
    ]


def with_evidence(bench: Bench) -> list[Row]:
    """A round with virtual evidence over one without."""
    found = []
    for numeric in (True, False):
        x, y = chains(500 if bench.quick else 2_000, 50, numeric=numeric)
        flat = np.concatenate(x).astype(np.float64), np.concatenate(y)
        alone, heard = rounds_alone(
            lambda rounds, flat=flat: LogitBoost(n_rounds=rounds).fit(*flat),
            lambda rounds, x=x, y=y: evidence_rounds(x, y, rounds),
            turns=3 if bench.quick else 15,
        )
        found.append(
            Row(
                f"boosting: a round with virtual evidence over one without, 50 {'numeric' if numeric else 'binary'} "
                "columns",
                heard / alone,
                required=EVIDENCE_ALLOWED,
                better="less",
                ours=seconds(heard),
                rival=seconds(alone),
                note="rival: LogitBoost of ours",
            )
        )
    return found


def evidence_growth(bench: Bench) -> list[Row]:
    """The slope of a round's time in nodes and in columns, with virtual evidence."""
    small = bench.quick
    lengths = (250, 500, 1_000) if small else (1_000, 2_000, 4_000, 8_000)
    widths = (25, 50, 100) if small else (50, 100, 200, 400)
    found = []
    for what, sizes in (
        ("nodes", [(length, 50) for length in lengths]),
        ("columns", [(lengths[1], columns) for columns in widths]),
    ):
        taken = []
        for length, columns in sizes:
            x, y = chains(length, columns, numeric=True)
            taken += rounds_alone(lambda n, x=x, y=y: evidence_rounds(x, y, n), turns=2 if small else 5)
        size = [9 * length if what == "nodes" else columns for length, columns in sizes]
        found.append(slope_row(f"a round with virtual evidence in {what}", size, taken))
    return found


def slope_row(what: str, size: list[int], taken: list[float]) -> Row:
    """Growth of time with size."""
    return Row(
        f"boosting: growth of {what}, {size[0]:,} … {size[-1]:,}",
        float(np.polyfit(np.log(size), np.log(taken), 1)[0]),
        unit="",
        required=GROWTH_ALLOWED,
        better="less",
        note="slope of log time over log size: 1 is linear",
        detail={"sizes": size, "seconds": taken},
    )


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
        size = [pair[0 if what == "rows" else 1] for pair in sizes]
        found.append(slope_row(f"a search in {what}", size, [timing.best for timing in timings]))
    return found


def run(bench: Bench) -> list[Row]:
    """All of them."""
    return [
        *against_sorting(bench),
        *against_bins(bench),
        *with_evidence(bench),
        *growth(bench),
        *evidence_growth(bench),
    ]
