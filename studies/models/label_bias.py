"""Label bias: rib or rob by a maximum-entropy Markov model and by a conditional random field.

The experiment of Lafferty, McCallum & Pereira (2001, section 5.1): 2,000 words to learn from and 500 to test on,
written by the machine of `simulate.label_bias`. Both models have the same features, the letter of the step and the
label before, all pairs of them, and the same weak penalty; they differ in what is normalised. A third has the MEMM's
original form, in which every label before has weights of its own for the letters. In theory the best possible rule
gets 1/16 of the words wrong (a wrong middle letter, and half of those that tell nothing), and one that must choose
by the first letter a half.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.memm import MEMM
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.simulate.label_bias import RibRob, make_rib_rob
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds, each

BAYES, CRF, LOCAL, ORIGINAL = "Bayes rule", "CRF", "MEMM", "MEMM, weights for each label before"
MODELS = (BAYES, CRF, LOCAL, ORIGINAL)
COLUMNS = ("model", "wrong words", "wrong steps")
WORDS, STEPS = 0, 1  # places in an outcome
FEATURES: dict[str, Any] = {"l2": 0.1, "feature_pairs": "all", "transition_pairs": "all"}


def run(settings: Settings, case: Case) -> Outcome:
    """Shares of wrong words and wrong steps of every model on the words of one seed."""
    learn = make_rib_rob(settings["n_words"], random_state=case["seed"])
    test = make_rib_rob(settings["n_test"], random_state=10_000 + case["seed"])
    models = {
        CRF: ChainCRF(**FEATURES),
        LOCAL: MEMM(**FEATURES),
        ORIGINAL: MEMM(**FEATURES, transition_features="all"),
    }
    found = {BAYES: _wrong(test.bayes_labels(), test)}
    for name, model in models.items():
        found[name] = _wrong(model.fit(learn.letters, learn.labels).predict(test.letters), test)
    return found


def _wrong(answer: Any, test: RibRob) -> tuple[float, float]:
    miss = np.array([list(one) for one in answer]) != np.array(test.labels)
    return float(miss.any(axis=1).mean()), float(miss.mean())


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Wrong words and steps of each model."""
    return Findings(
        f"Rib or rob: {len(settings['seeds'])} seeds, {settings['n_words']} words to learn from, "
        f"{settings['n_test']} to test on",
        COLUMNS,
        tuple((name, *(mean_interval(each(outcomes, name, what)) for what in (WORDS, STEPS))) for name in MODELS),
        notes=(f"l2 = {FEATURES['l2']:g}; ± is half of the 95 % interval of the mean over seeds",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's: the MEMM has label bias and the CRF has none."""
    words = {name: mean_interval(each(outcomes, name, WORDS)) for name in MODELS}
    gap = words[CRF].mean - words[BAYES].mean
    return [
        Claim("the CRF gets fewer than 1 word in 10 wrong", words[CRF].mean < 0.1, repr(words[CRF])),
        Claim("the MEMM gets more than 4 words in 10 wrong", words[LOCAL].mean > 0.4, repr(words[LOCAL])),
        Claim("so does the MEMM in its original form", words[ORIGINAL].mean > 0.4, repr(words[ORIGINAL])),
        Claim("the CRF is within a word in 100 of the Bayes rule", gap <= 0.01, f"{gap:.3f}"),
    ]


FULL: Settings = {"seeds": list(range(10)), "n_words": 2000, "n_test": 500}
STUDY = Study(FULL, {**FULL, "seeds": [0, 1], "n_words": 1000}, by_seeds, run, report, claims)
