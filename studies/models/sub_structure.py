"""Labels made of the same phases in another order: what latent states of a label are worth.

Each seed makes a world (`simulate.sub_structure`), 100 sequences to learn from and 200 to test on. A step hardly
knows its label; the order of its phases does. Five ways to label the steps:

    Bayes rule              marginals of the model that made the data: the ceiling
    latent-dynamic CRF      `LatentDynamicCRF`, three states for each label, the best of three starts
    … by the best path      the same model, decoded by its best path of states
    plain chain             `ChainCRF` on the same columns
    plain chain, window     `ChainCRF` that also sees the columns of two steps before and after

All models have the same penalty, and all but the one by the best path take for each step its most probable label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crfield.core.topology import Chains
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.latent.latent_dynamic import LatentDynamicCRF
from crfield.features.columns.step_windows import windowed
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.sub_structure import make_sub_structure
from crfield.training.parallel import run_each

BAYES, LATENT, PATH, PLAIN, WINDOW = (
    "Bayes rule",
    "latent-dynamic CRF",
    "… by the best path",
    "plain chain",
    "plain chain, window of 2",
)
MODELS = (BAYES, LATENT, PATH, PLAIN, WINDOW)
COLUMNS = ("model", "right steps", "− plain chain", "− Bayes rule")
L2 = 0.1
GAIN, SHORT = 0.05, 0.02


def sub_structure(
    *, seeds: Sequence[int] = tuple(range(10)), n_sequences: int = 100, n_test: int = 200, n_jobs: int = 1
) -> Findings:
    """All models on a world of each seed; ``n_jobs`` processes share the seeds."""
    cases = [(seed, n_sequences, n_test) for seed in seeds]
    found = [right for _, right in sorted(run_each(run_seed, cases, n_jobs=n_jobs), key=lambda pair: pair[0])]
    right = {name: [outcome[name] for outcome in found] for name in MODELS}
    several = len(seeds) > 1
    rows = [
        (
            name,
            mean_interval(right[name]),
            None if name == PLAIN else paired_interval(right[name], right[PLAIN]),
            None if name == BAYES else paired_interval(right[name], right[BAYES]),
        )
        for name in MODELS
    ]
    gain, short = paired_interval(right[LATENT], right[PLAIN]), paired_interval(right[BAYES], right[LATENT])
    claims = (
        Claim(
            f"{LATENT} ≥ 5 points above {PLAIN}, lower end of the interval",
            (gain.low if several else gain.mean) >= GAIN,
            repr(gain),
        ),
        Claim(
            f"{LATENT} within 2 points of the {BAYES}, upper end of the interval",
            (short.high if several else short.mean) <= SHORT,
            repr(short),
        ),
    )
    return Findings(
        f"Labels with phases: {len(seeds)} worlds, {n_sequences} sequences to learn from, {n_test} to test on",
        COLUMNS,
        tuple(rows),
        claims,
        (f"l2 = {L2:g}; ± is half of the 95 % interval of the mean over seeds, differences seed by seed",),
    )


def run_seed(seed: int, n_sequences: int, n_test: int) -> dict[str, float]:
    """Share of right steps of every model on the world of one seed."""
    learn = make_sub_structure(n_sequences=n_sequences, random_state=seed)
    test = make_sub_structure(n_sequences=n_test, random_state=10_000 + seed)
    truth = np.concatenate(test.labels)
    latent = LatentDynamicCRF(n_states=3, l2=L2, random_state=seed).fit(learn.features, learn.labels)
    plain = ChainCRF(l2=L2, decode="marginal").fit(learn.features, learn.labels)
    wide = ChainCRF(l2=L2, decode="marginal").fit(_wide(learn.features), learn.labels)
    found = {
        BAYES: float((np.concatenate(test.bayes_labels()) == truth).mean()),
        LATENT: latent.score(test.features, test.labels),
        PLAIN: plain.score(test.features, test.labels),
        WINDOW: wide.score(_wide(test.features), test.labels),
    }
    found[PATH] = latent.set_params(decode="viterbi").score(test.features, test.labels)
    return found


def _wide(features: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [windowed(x, Chains.from_lengths([len(x)]), reach=2) for x in features]
