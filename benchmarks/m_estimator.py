"""The one-shot M-estimate against sixty steps of maximum likelihood, both on our kernels.

Ten minutes of tag with 93 weights (`studies.vail.m_estimator`). Both sides start from encoded columns: ours
counts labels, asks the reference once, makes the table of centred features, takes its steps and asks for the
likelihood by one more sweep; the rival packs the data for the fused kernel and takes at most sixty steps of L-BFGS.
*Refreshed* goes on for six rounds. CPU time; errors are on games that neither has seen, over several seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved
from crfield.training.m_estimate import m_estimate
from studies.vail.m_estimator import tag_game
from studies.vail.tag.models import judge, likelihood

CHEAPER, ABOVE = 5.0, 2.5


def run(bench: Bench) -> list[Row]:
    """Ratios of time on one game, and differences of error over several."""
    minutes, seeds = (3.0, 2) if bench.quick else (10.0, 6)
    train, _, _ = tag_game(1, minutes)
    layout = train.layout()

    def estimate(refreshes: int, l2: float) -> Any:
        return m_estimate(layout, train.batch, train.target, refreshes=refreshes, l2=l2).weights

    one, six, rival = interleaved(
        lambda: estimate(0, 0.0),
        lambda: estimate(6, 1.0),
        lambda: likelihood(train, layout, l2=1.0, max_iter=60, tol=1e-9).weights,
        turns=2 if bench.quick else 5,
    )
    judged = None if bench.quick else CHEAPER
    rows = [
        ratio(
            f"m-estimator: one shot, {minutes:g} minutes, 93 weights, over 60 steps of ML",
            one,
            rival,
            required=judged,
        ),
        ratio("m-estimator: refreshed × 6, over the same", six, rival),
    ]
    errors = np.array([_errors(seed, minutes) for seed in range(1, seeds + 1)])
    for k, name in ((1, "one shot"), (2, "refreshed × 6")):
        gap = errors[:, k] - errors[:, 0]
        rows.append(
            Row(
                f"m-estimator: error of {name} − error of 60 steps of ML, {seeds} seeds",
                float(gap.mean()),
                unit="points",
                required=None if bench.quick else ABOVE,
                better="less",
                note=f"errors {errors[:, k].mean():.2f} % and {errors[:, 0].mean():.2f} %",
                detail={"errors": errors.tolist()},
            )
        )
    return rows


def _errors(seed: int, minutes: float) -> list[float]:
    """Percent of wrong labels on the third game: ML, one shot, refreshed; default strengths, nothing is chosen."""
    train, _, test = tag_game(seed, minutes)
    layout = train.layout()
    found = [likelihood(train, layout, l2=1.0, max_iter=60, tol=1e-9).weights]
    for refreshes, l2 in ((0, 0.0), (6, 1.0)):
        found.append(m_estimate(layout, train.batch, train.target, refreshes=refreshes, l2=l2).weights)
    return [100 * (1 - judge(test, layout, weights).accuracy) for weights in found]
