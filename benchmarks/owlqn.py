"""Sparse weights: training with an l1 penalty alone (c1 = 1), OWL-QN on both sides.

The target is our optimum at a tolerance of 1e-7, plus a part in 10⁴. CRFsuite's OWL-QN gets there slowly and does
not stop by itself; it is stopped as soon as it is there. In a quick run it does only a few iterations,
and its time is extrapolated to the number that a whole run on CoNLL-2000 was seen to need.
"""

from __future__ import annotations

from benchmarks import crfsuite_rival
from benchmarks.contestant import Ours, chain
from benchmarks.corpora import Bench, chunk_strings
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, settled

REQUIRED = 8.0
WITHIN = 1e-4
SEEN_ITERATIONS = 400  # of CRFsuite until the target
TRIED_ITERATIONS = 12


def run(bench: Bench) -> list[Row]:
    """Time to the target, and that ours stops by itself."""
    corpus = bench.chunks
    train = corpus.train
    optimum = Ours.build(train, corpus.template, n_jobs=2).minimise(l1=1.0, l2=0.0, tol=1e-7).value
    target = optimum * (1 + WITHIN)
    fits, mine = [], Timing()

    def fit() -> None:
        with settled(), mine.turn():
            fits.append(chain(corpus.template, l1=1.0, l2=0.0).fit(train.rows, train.tags))

    fit()
    conversion = Timing()

    def stop(iteration: crfsuite_rival.Iteration) -> None:
        if iteration.loss <= target:
            raise crfsuite_rival.Enough

    with settled():
        with conversion.turn():
            strings = chunk_strings(train.rows)
        trained = crfsuite_rival.train(
            strings,
            train.tags,
            bench.path("owlqn.crfsuite"),
            c1=1.0,
            c2=0.0,
            max_iterations=TRIED_ITERATIONS if bench.quick else 4000,
            after=stop,
        )
    del strings
    fit()
    training, reached = trained.until(target)
    note = f"CRFsuite at iteration {reached}" if reached else f"CRFsuite ended at {trained.loss:,.1f}"
    if bench.quick and not reached:
        each = Timing([i.seconds for i in trained.iterations[1:]]).median
        training += each * (SEEN_ITERATIONS - len(trained.iterations))
        note = f"CRFsuite extrapolated from {len(trained.iterations)} iterations to {SEEN_ITERATIONS}"
    theirs = Timing([conversion.best + trained.append_seconds + training])
    model = fits[0]
    return [
        ratio(
            f"owlqn: c1 = 1 to {target:,.1f}",
            mine,
            theirs,
            required=bench.judged(REQUIRED),
            note=f"{note}; ours {model.n_evaluations_} evaluations, {model.history_[-1].n_active:,} weights left",
        ),
        Row(
            "owlqn: our gap to the optimum, stopping by itself",
            max(fit.objective_ for fit in fits) / optimum - 1,
            unit="",
            required=WITHIN,
            better="less",
            ours=f"{model.objective_:,.4f}",
            rival=f"{optimum:,.4f}",
            note=f"stop: {model.stop_reason_}, converged: {model.converged_}; rival: our optimum (tolerance 1e-7)",
        ),
    ]
