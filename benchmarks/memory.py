"""Peak memory of training, each in a fresh process, from reading the file on.

Also that the short single-precision history of L-BFGS, which keeps the dense model small, leads to the same
objective as a long one in doubles.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import crfield
from benchmarks.children import BASE, run_task
from benchmarks.contestant import Ours
from benchmarks.corpora import Bench
from benchmarks.table import Row
from crfield.optimize.lbfgs import history_size, minimize
from crfield.optimize.penalty import Penalty
from crfield.training.chain import warm_start

COLUMNS_REQUIRED, DENSE_REQUIRED, HISTORY_REQUIRED = 250.0, 1000.0, 1e-6


def column_file(bench: Bench) -> str:
    """The training data as a column file."""
    if bench.chunks.real and bench.data is not None:
        return str(bench.data / "conll2000" / "train.txt.gz")
    path = bench.path("train.txt")
    train = bench.chunks.train
    crfield.write_columns(
        path, [[(*row, tag) for row, tag in zip(rows, tags)] for rows, tags in zip(train.rows, train.tags)]
    )
    return path


def same_objective(bench: Bench) -> Row:
    """The default history against ten pairs of doubles, both to a tolerance far below what is asked."""
    train = bench.chunks.train.first(2_000) if bench.quick else bench.chunks.train
    ours = Ours.build(train, bench.chunks.template, pairs="all", n_jobs=2)
    start = ours.half_trained(epochs=4)
    values = []
    for memory, single in (history_size(7_400_000), (10, False)):
        diagonal = warm_start.preconditioner(ours.problem, start, l2=2.0)
        result = minimize(
            ours.problem,
            start,
            Penalty(l2=2.0),
            memory=memory,
            single=single,
            diagonal=diagonal,
            tol=2e-7,
            max_iter=2000,
            n_jobs=2,
        )
        values.append(result.value)
    pairs = history_size(7_400_000)[0]
    return Row(
        f"memory: {pairs} float32 pairs or 10 of doubles, objective",
        float(np.abs(values[0] / values[1] - 1)),
        unit="",
        required=HISTORY_REQUIRED,
        better="less",
        ours=f"{values[0]:,.5f}",
        rival=f"{values[1]:,.5f}",
        note=f"{ours.n_weights:,} weights",
    )


def run(bench: Bench) -> list[Row]:
    """Observed and all pairs of ours, python-crfsuite fed from Python, and the history."""
    path, template = column_file(bench), bench.path("template")
    Path(template).write_text(bench.chunks.template, encoding="utf-8")
    base = run_task("imports", BASE)["peak"]
    rival = run_task("train_crfsuite", path, "3")["peak"]
    rows = []
    for name, pairs, steps, required in (
        ("from columns", "observed", "15" if bench.quick else "500", COLUMNS_REQUIRED),
        ("all pairs", "all", "15", DENSE_REQUIRED),
    ):
        child = run_task("train_ours", path, template, pairs, steps)
        rows.append(
            Row(
                f"memory: peak of training {name}, {child['weights']:,} weights",
                child["peak"],
                unit="MB",
                required=bench.judged(required),
                better="less",
                ours=f"{child['peak']:.0f} MB",
                rival=f"{rival:.0f} MB" if pairs == "observed" else "",
                note=f"importing the libraries alone {base:.0f} MB; {child['steps']} steps",
            )
        )
    rows.append(same_objective(bench))
    return rows
