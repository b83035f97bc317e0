"""Wapiti and CRF++ where their programs are on the PATH.

Both give every (feature, label) pair a weight, so ours does too. They are run as they are, for two numbers of
iterations, and the difference of their CPU times is what an iteration costs; ours takes its turns in between.
The penalties are the same: Wapiti's rho2 = 2, CRF++'s C = 0.5.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import crfield
from benchmarks.contestant import Ours
from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, settled

FEW, MORE = 2, 5


def wapiti(template: str, data: str, model: str, iterations: int) -> list[str]:
    """Wapiti's command line (Lavergne, Cappé & Yvon 2010)."""
    options = {"algo": "l-bfgs", "pattern": template, "rho1": "0", "rho2": "2", "nthread": "1", "maxiter": iterations}
    spelt = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["wapiti", "train", *spelt, data, model]


def crf_plus_plus(template: str, data: str, model: str, iterations: int) -> list[str]:
    """CRF++'s command line."""
    return ["crf_learn", "-a", "CRF-L2", "-c", "0.5", "-p", "1", "-m", str(iterations), template, data, model]


PROGRAMS = {"wapiti": wapiti, "crf_learn": crf_plus_plus}


def child_seconds(command: Sequence[str]) -> float:
    """User and system time of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}.")
    return used.ru_utime + used.ru_stime


def run(bench: Bench) -> list[Row]:
    """An evaluation of ours against an iteration of each program that is here."""
    here = [name for name in PROGRAMS if shutil.which(name)]
    rows = [Row(f"programs: {name}", None, note="not installed") for name in PROGRAMS if name not in here]
    if not here:
        return rows
    train = bench.chunks.train.first(2_000) if bench.quick else bench.chunks.train
    data, template = bench.path("programs.txt"), bench.path("programs.template")
    labelled = [[(*row, tag) for row, tag in zip(rows, tags)] for rows, tags in zip(train.rows, train.tags)]
    crfield.write_columns(data, labelled, separator=" ")
    Path(template).write_text(bench.chunks.template, encoding="utf-8")
    ours = Ours.build(train, bench.chunks.template, pairs="all")
    weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
    for name in here:
        mine, theirs = Timing(), Timing()
        with settled():
            for _ in range(2):
                spent = []
                for iterations in (FEW, MORE):
                    spent.append(
                        child_seconds(PROGRAMS[name](template, data, bench.path("programs.model"), iterations))
                    )
                    with mine.turn():
                        ours.problem.evaluate(weights, gradient)
                theirs.seconds.append((spent[1] - spent[0]) / (MORE - FEW))
        rows.append(ratio(f"programs: all {ours.n_weights:,} weights / {name} iteration", mine, theirs))
    return rows
