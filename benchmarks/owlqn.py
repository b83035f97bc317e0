"""Sparse weights: training with an l1 penalty, alone (c1 = 1) and beside a ridge (c1 = c2 = 0.5).

Both run to their own end, nothing is extrapolated. CRFsuite's OWL-QN stops when ten iterations gained less than 1e-5;
ours when it is estimated to be within 1e-4 of the optimum, primal–dual epochs first and OWL-QN after them. CRFsuite's
end is above ours, so there is a row for the time that ours takes to be where CRFsuite ends, stopped by its callback,
which costs it an evaluation for every epoch. The optimum is ours at a small tolerance.

On CoNLL-2000 CRFsuite's run with l1 alone takes some 600 iterations. A quick run takes the first 1,000 sentences.
"""

from __future__ import annotations

from typing import Any

from benchmarks import crfsuite_rival
from benchmarks.contestant import Ours, chain
from benchmarks.corpora import Bench, Labelled, chunk_strings
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import Timing, settled

REQUIRED, GOAL, WITHIN = 8.0, 20.0, 1e-4
PENALTIES = (("l1 alone", 1.0, 0.0), ("elastic net", 0.5, 1.0))  # l1 = c1, l2 = 2 c2


def run(bench: Bench) -> list[Row]:
    """Rows for each penalty."""
    train = bench.chunks.train.first(1_000) if bench.quick else bench.chunks.train
    required = None if bench.quick else bench.judged(REQUIRED)
    return [row for penalty in PENALTIES for row in to_the_end(bench, train, *penalty, required=required)]


def to_the_end(
    bench: Bench, train: Labelled, name: str, l1: float, l2: float, *, required: float | None
) -> list[Row]:
    """Time to each one's own end, time of ours to CRFsuite's, and how near the optimum ours stops."""
    conversion = Timing()
    with settled():
        with conversion.turn():
            strings = chunk_strings(train.rows)
        path = bench.path("owlqn.crfsuite")
        trained = crfsuite_rival.train(strings, train.tags, path, c1=l1, c2=l2 / 2)
    del strings
    training, _ = trained.until(float("-inf"))
    theirs = Timing([conversion.best + trained.append_seconds + training])
    to_theirs, to_end = Timing(), Timing()

    def fit(timing: Timing, **options: Any) -> Any:
        with settled(), timing.turn():
            return chain(bench.chunks.template, l1=l1, l2=l2, **options).fit(train.rows, train.tags)

    for _ in range(2):
        whole = fit(to_end)
        early = fit(to_theirs, callback=lambda step, _: bool(step.value <= trained.loss))
    problem = Ours.build(train, bench.chunks.template, n_jobs=2)
    optimum = problem.minimise(l1=l1, l2=l2, tol=2e-6).value
    end = f"CRFsuite ends at {trained.loss:,.1f} after {len(trained.iterations)} iterations, {seconds(theirs.best)}"
    return [
        ratio(
            f"owlqn: {name}, both to their own end",
            to_end,
            theirs,
            required=required,
            goal=GOAL,
            note=f"{end}, {trained.loss / optimum - 1:.1e} above the optimum; ours at {whole.objective_:,.1f}, "
            f"{whole.n_evaluations_} evaluations, by {whole.stop_reason_}: {whole.plan_.reason}",
        ),
        ratio(
            f"owlqn: {name}, ours to where CRFsuite ends",
            to_theirs,
            theirs,
            goal=GOAL,
            note=f"{early.objective_:,.1f} after {early.n_iter_} steps, {early.n_evaluations_} evaluations",
        ),
        Row(
            f"owlqn: {name}, our gap to the optimum, stopping by itself",
            whole.objective_ / optimum - 1,
            unit="",
            required=WITHIN,
            better="less",
            ours=f"{whole.objective_:,.4f}",
            rival=f"{optimum:,.4f}",
            note=f"{whole.history_[-1].n_active:,} weights left; rival: our optimum at a small tolerance",
            detail={"converged": whole.converged_, "seconds": to_end.best},
        ),
    ]
