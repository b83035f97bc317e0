"""Scoring 2.7 million relational features against making their columns one by one.

The specification is `SOCCER` of `crfield.features.relational.examples` on 36,000 steps of ten players and a ball that
wander; the gradient is random. Ours scores all features. The rival asks the same lazy columns for one column after
the other and multiplies it with the gradient, all pairs of labels at once; time for each feature is compared. Columns
are drawn at random; and, the best case of the rival, they are those of whole families, whose series is known from
the column before. Memory is the peak of a fresh process. Growth is the slope of log time over log size: 1 is linear.
"""

from __future__ import annotations

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield.features.relational import Catalogue, Recordings, RelationalColumns, Specification
from crfield.features.relational.examples import SOCCER

FASTER, MEGABYTES, LINEAR, SUBLINEAR = 100.0, 2_000.0, 1.15, 0.5
TEAMS = {"us": [f"u{k}" for k in range(5)], "them": [f"t{k}" for k in range(5)]}


def soccer(text: str = SOCCER) -> Catalogue:
    """The catalogue of a specification for two teams of five and a ball."""
    return Specification.parse(text).expand(labels=3, teams=TEAMS, objects=["ball"])


def wandering(steps: int) -> Recordings:
    """Smooth random walks on a field of six by four metres, in millimetres at 60 steps a second."""
    rng = np.random.default_rng(0)
    drift = np.cumsum(rng.normal(0, 1.0, (steps, 11, 2)), axis=0)
    wave = np.cumsum(np.tanh(drift / 30) * 20, axis=0) + rng.uniform(0, 4000, (11, 2))
    field = np.array([6000.0, 4000.0])
    return Recordings.of(np.abs(wave % (2 * field) - field), rate=60.0)


def gradient(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise in the shape of one."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(steps, 3)), rng.normal(size=(steps - 1, 3, 3))


def one_by_one(columns: RelationalColumns, chosen: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Scores of transition-linked columns, each made on its own."""
    heads, by_pair = columns.chains.heads, edge.reshape(len(edge), -1)
    return np.array([columns.chunk(np.array([k]))[heads, 0] @ by_pair for k in chosen])


def against_columns(bench: Bench) -> list[Row]:
    """Time for each feature, and how far the scores are apart."""
    steps = 6_000 if bench.quick else 36_000
    catalogue, played = soccer(), wandering(steps)
    node, edge = gradient(steps)
    rng = np.random.default_rng(2)
    linked = np.flatnonzero(catalogue.link)
    drawn = rng.choice(linked, 60 if bench.quick else 300, replace=False)
    blocks = [k for k, block in enumerate(catalogue.blocks) if block.template.transition]
    starts = catalogue.column_starts
    families = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in rng.choice(blocks, 4, replace=False)])
    ours = catalogue.on(played)
    found = ours.scores(node, edge)
    first = np.searchsorted(catalogue.places().column, drawn)
    apart = np.abs(one_by_one(catalogue.on(played), drawn, edge) - found[first[:, None] + np.arange(9)]).max()
    timings = interleaved(
        lambda: catalogue.on(played).scores(node, edge),
        lambda: one_by_one(catalogue.on(played), drawn, edge),
        lambda: one_by_one(catalogue.on(played), families, edge),
        turns=2 if bench.quick else 3,
    )
    mine = timings[0].best / catalogue.n_candidates
    rows = [
        Row("families: largest difference of a score", float(apart), unit="", required=1e-9, better="less"),
    ]
    for what, timing, count, required in (
        ("columns drawn at random", timings[1], 9 * len(drawn), FASTER),
        ("columns of whole families, series shared", timings[2], 9 * len(families), None),
    ):
        rival = timing.best / count
        rows.append(
            Row(
                f"families: {catalogue.n_candidates:,} features × {steps:,} steps, for each, over {what}",
                rival / mine,
                required=None if bench.quick else required,
                ours=seconds(timings[0].best),
                rival=seconds(timing.best),
                note=f"rival: {count:,} features",
            )
        )
    return rows


def growth(bench: Bench) -> list[Row]:
    """Slopes in steps and in thresholds."""
    few = SOCCER.replace("win all 1,6,30,60,120", "win all 1,30").replace("win mean 1,6,30,60,120", "win mean 30")
    turns = 2 if bench.quick else 3
    sizes = [4_500, 9_000, 18_000, 36_000]
    catalogue = soccer(few)
    worlds = [(catalogue.on(wandering(n)), gradient(n)) for n in sizes]
    taken = interleaved(*(lambda c=c, g=g: c.scores(*g) for c, g in worlds), turns=turns)
    rows = [slope("steps", sizes, [timing.best for timing in taken], LINEAR)]
    counts = [20, 40, 80, 160]
    played, slopes = wandering(9_000), gradient(9_000)
    finer = [soccer(few.replace("50:2000:50", f"{2000 // n}:2000:{2000 / n:g}")) for n in counts]
    finer_columns = [catalogue.on(played) for catalogue in finer]
    taken = interleaved(*(lambda c=c: c.scores(*slopes) for c in finer_columns), turns=turns)
    return [
        *rows,
        slope("thresholds of the distances and speeds", counts, [timing.best for timing in taken], SUBLINEAR),
    ]


def slope(what: str, size: list[int], taken: list[float], allowed: float) -> Row:
    """Growth of time with size."""
    return Row(
        f"families: growth in {what}, {size[0]:,} … {size[-1]:,}",
        float(np.polyfit(np.log(size), np.log(taken), 1)[0]),
        unit="",
        required=allowed,
        better="less",
        note="slope of log time over log size",
        detail={"sizes": size, "seconds": taken},
    )


def memory(bench: Bench) -> list[Row]:
    """Peak of a process that scores everything."""
    import subprocess
    import sys
    from pathlib import Path

    code = (
        "from benchmarks.families import soccer, wandering, gradient\n"
        "from benchmarks.children import peak_megabytes\n"
        "soccer().on(wandering(36_000)).scores(*gradient(36_000))\n"
        "print(peak_megabytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    peak = float(done.stdout)
    return [Row("families: peak memory of scoring", peak, unit="MB", required=MEGABYTES, better="less")]


def run(bench: Bench) -> list[Row]:
    """All of them."""
    return [*against_columns(bench), *growth(bench), *memory(bench)]
