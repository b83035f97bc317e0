"""A step of Baum–Welch against hmmlearn, in its faster mode.

A Gaussian hidden Markov model with independent columns: 10 states, 3 columns, one sequence of 100,000 steps that such
a model has made. Both sides begin with the same parameters, which are not those of the data, and take one step of EM:
expectations, then means, variances and both tables, without priors and floors. hmmlearn has two recursions, "log" and
"scaling"; both are timed and the faster is the rival. Log-likelihoods must agree to 1e-8 relative and the new
parameters to 1e-6, which is checked first. One thread on both sides; CPU time. The extra ``bench-hmm`` has hmmlearn.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved
from crfield.core.topology import Chains
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting, Spread
from crfield.training.markov.em import Markov, expected, maximised

REQUIRED = 5.0
STEPS, STATES, COLUMNS = 100_000, 10, 3
NAME = f"hmm: a step of EM, {STEPS:,} steps × {STATES} states × {COLUMNS} columns / hmmlearn"


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (T, D), the table of transitions and the means that made them."""
    table = 0.3 * rng.dirichlet(np.ones(STATES), STATES) + 0.7 * np.eye(STATES)
    means = 2.0 * rng.standard_normal((STATES, COLUMNS))
    bounds, draws, state = np.cumsum(table, axis=1), rng.random(STEPS), 0
    path = np.empty(STEPS, np.int64)
    for t, draw in enumerate(draws.tolist()):
        state = min(int(np.searchsorted(bounds[state], draw, side="right")), STATES - 1)
        path[t] = state
    return means[path] + rng.standard_normal((STEPS, COLUMNS)), table, means


def run(bench: Bench) -> list[Row]:
    """Ours against both of their recursions."""
    try:
        rival = import_module("hmmlearn.hmm")
    except ImportError:
        missing = "hmmlearn is not installed: pip install 'crfield[bench-hmm]'"
        return [Row(NAME, None, required=REQUIRED, note=missing)]
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rng = np.random.default_rng(1)
    rows, table, means = drawn(rng)
    start, means = np.full(STATES, 1.0 / STATES), means + 0.5 * rng.standard_normal(means.shape)
    model = Markov(start, table, DiagonalGaussian(means, np.full(means.shape, 1.3)))
    chains = Chains.from_lengths([STEPS])
    fitting = Fitting(floor=0.0, spread=Spread.of(rows, np.ones(STEPS)))

    def ours() -> tuple[float, Markov]:
        found = expected(model, rows, None, chains)
        return found.total, maximised(model, rows, found, fitting=fitting)

    def theirs(mode: str) -> Any:
        plain = {"covars_prior": 0, "covars_weight": 0, "min_covar": 0, "init_params": ""}
        other = rival.GaussianHMM(STATES, "diag", n_iter=1, tol=-1, implementation=mode, **plain)
        other.startprob_, other.transmat_, other.means_ = start, table, means.copy()
        other.covars_ = np.full(means.shape, 1.3**2)
        return other.fit(rows)

    total, better = ours()
    other = theirs("scaling")
    apart = abs(total / other.monitor_.history[-1] - 1.0)
    moved = max(
        float(np.abs(better.emissions.mean - other.means_).max()),
        float(np.abs(better.transition - other.transmat_).max()),
        float(np.abs(better.emissions.deviation**2 - np.array([np.diag(c) for c in other.covars_])).max()),
    )
    if apart > 1e-8 or moved > 1e-6:
        raise RuntimeError(f"{NAME}: log-likelihoods differ by {apart:.1e}, parameters by {moved:.1e}.")
    mine, scaling, log = interleaved(
        ours, lambda: theirs("scaling"), lambda: theirs("log"), turns=3 if bench.quick else 10
    )
    note = f"log-likelihoods agree to {apart:.0e}, parameters to {moved:.0e}; their other mode takes "
    note += f"{max(scaling.best, log.best) / min(scaling.best, log.best):.1f} times as long"
    return [ratio(NAME, mine, min(scaling, log, key=lambda t: t.best), required=REQUIRED, note=note)]
