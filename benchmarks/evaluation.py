"""One evaluation of the objective and its gradient against one whole iteration of CRFsuite.

Each iteration of a python-crfsuite training run is followed by one evaluation of ours, so the two alternate.
An iteration of CRFsuite with one line-search trial is one evaluation and its L-BFGS update; ours is the
evaluation alone, as the issue of speed lies there (an update of ours is timed by `training`). Weights are half
trained on both sides.

Rows of double precision are what every result, every claim of convergence and the last steps of a training come of.
Rows of single precision are what L-BFGS and OWL-QN take while the end is far (`crfield.optimize.penalty`); CRFsuite
is in double precision throughout.
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks import crfsuite_rival
from benchmarks.contestant import Ours
from benchmarks.corpora import Bench, Strings, Tags, chunk_strings, entity_strings, spanish_names
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import Timing, interleaved, settled, wall

REQUIRED, GOAL, THREADS_REQUIRED = 5.5, 12.0, 1.8
NINE_REQUIRED, NINE_GOAL = 5.5, 9.0


def against_crfsuite(
    bench: Bench, ours: Ours, strings: Strings, tags: Tags, *, all_pairs: bool, iterations: int
) -> tuple[Timing, Timing, Timing]:
    """CPU time of our evaluations, in double and in single precision, and of CRFsuite's iterations."""
    weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
    double, single = Timing(), Timing()

    def evaluate(_: object) -> None:
        with double.turn():
            ours.problem.evaluate(weights, gradient)
        with single.turn():
            ours.problem.evaluate_single(weights, gradient)

    with settled():
        trained = crfsuite_rival.train(
            strings,
            tags,
            bench.path("evaluation.crfsuite"),
            max_iterations=iterations,
            all_pairs=all_pairs,
            after=evaluate,
        )
    return double, single, trained.single_trials()


def both_precisions(
    name: str, timings: tuple[Timing, Timing, Timing], *, required: float | None = None, goal: float
) -> list[Row]:
    """A row for each precision; what is required is required of double."""
    double, single, theirs = timings
    return [
        ratio(f"evaluation: {name} / CRFsuite iteration", double, theirs, required=required, goal=goal),
        ratio(
            f"evaluation: {name}, single precision (far from the end) / CRFsuite iteration", single, theirs, goal=goal
        ),
    ]


def two_threads(ours: Ours, turns: int) -> Row:
    """Wall clock of one evaluation with two threads over one."""
    weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
    kernel = ours.problem

    def evaluate(n_jobs: int) -> None:
        kernel.n_jobs = n_jobs
        kernel.evaluate(weights, gradient)

    one, two = interleaved(lambda: evaluate(1), lambda: evaluate(2), turns=turns, clock=wall)
    kernel.n_jobs = 1
    load = os.getloadavg()[0]
    weather = f"{os.cpu_count()} processors, load {load:.1f}"
    return Row(
        "evaluation: two threads over one, wall clock",
        one.best / two.best,
        required=THREADS_REQUIRED,
        ours=seconds(two.best),
        rival=seconds(one.best),
        note=f"rival: one thread of ours; medians {one.median / two.median:.2f}×; {weather}",
        detail={"one": one.seconds, "two": two.seconds, "load_average": load},
    )


def run(bench: Bench) -> list[Row]:
    """Observed pairs, two threads, all pairs; then few labels."""
    corpus = bench.chunks
    strings, tags = chunk_strings(corpus.train.rows), corpus.train.tags
    ours = Ours.build(corpus.train, corpus.template)
    timings = against_crfsuite(bench, ours, strings, tags, all_pairs=False, iterations=8 if bench.quick else 25)
    rows = both_precisions(
        f"{ours.n_weights:,} observed weights", timings, required=bench.judged(REQUIRED), goal=GOAL
    )
    rows.append(two_threads(ours, turns=15 if bench.quick else 60))
    del ours
    dense = Ours.build(corpus.train, corpus.template, pairs="all")
    timings = against_crfsuite(bench, dense, strings, tags, all_pairs=True, iterations=3 if bench.quick else 8)
    rows += both_precisions(f"all {dense.n_weights:,} weights", timings, goal=GOAL)
    del dense, strings
    return rows + few_labels(bench)


def few_labels(bench: Bench) -> list[Row]:
    """Nine labels of Spanish names, both sides fed with the same lists of strings."""
    names = spanish_names(bench)
    if names is None:
        return [Row("evaluation: nine labels", None, note="needs the Spanish names of CoNLL-2002 (CRFIELD_DATA)")]
    strings = entity_strings(names.rows)
    ours = Ours.of_strings(strings, names.tags)
    timings = against_crfsuite(bench, ours, strings, names.tags, all_pairs=False, iterations=8 if bench.quick else 25)
    name = f"{ours.layout.n_labels} labels, {ours.n_weights:,} observed weights"
    return both_precisions(name, timings, required=NINE_REQUIRED, goal=NINE_GOAL)
