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
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds, each

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


def run(settings: Settings, case: Case) -> Outcome:
    """Share of right steps of every model on the world of one seed."""
    seed = case["seed"]
    learn = make_sub_structure(n_sequences=settings["n_sequences"], random_state=seed)
    test = make_sub_structure(n_sequences=settings["n_test"], random_state=10_000 + seed)
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


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Right steps of each model, beside the plain chain and the Bayes rule."""
    right = {name: each(outcomes, name) for name in MODELS}
    rows = [
        (
            name,
            mean_interval(right[name]),
            None if name == PLAIN else paired_interval(right[name], right[PLAIN]),
            None if name == BAYES else paired_interval(right[name], right[BAYES]),
        )
        for name in MODELS
    ]
    return Findings(
        f"Labels with phases: {len(settings['seeds'])} worlds, {settings['n_sequences']} sequences to learn "
        f"from, {settings['n_test']} to test on",
        COLUMNS,
        tuple(rows),
        notes=(f"l2 = {L2:g}; ± is half of the 95 % interval of the mean over seeds, differences seed by seed",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Latent states are worth it, and nearly reach the ceiling."""
    several = len(outcomes) > 1
    gain = paired_interval(each(outcomes, LATENT), each(outcomes, PLAIN))
    short = paired_interval(each(outcomes, BAYES), each(outcomes, LATENT))
    return [
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
    ]


FULL: Settings = {"seeds": list(range(10)), "n_sequences": 100, "n_test": 200}
STUDY = Study(FULL, {"seeds": [0, 1], "n_sequences": 40, "n_test": 40}, by_seeds, run, report, claims)
