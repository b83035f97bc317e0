"""Label bias: rib or rob by a maximum-entropy Markov model and by a conditional random field.

The experiment of Lafferty, McCallum & Pereira (2001, section 5.1): 2,000 words to learn from and 500 to test on,
written by the machine of `simulate.label_bias`. Both models have the same features, the letter of the step and the
label before, all pairs of them, and the same weak penalty; they differ in what is normalised. A third has the MEMM's
original form, in which every label before has weights of its own for the letters. In theory the best possible rule
gets 1/16 of the words wrong (a wrong middle letter, and half of those that tell nothing), and one that must choose
by the first letter a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.memm import MEMM
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.simulate.label_bias import RibRob, make_rib_rob
from crfield.training.parallel import run_each

BAYES, CRF, LOCAL, ORIGINAL = "Bayes rule", "CRF", "MEMM", "MEMM, weights for each label before"
MODELS = (BAYES, CRF, LOCAL, ORIGINAL)
COLUMNS = ("model", "wrong words", "wrong steps")
FEATURES: dict[str, Any] = {"l2": 0.1, "feature_pairs": "all", "transition_pairs": "all"}


def label_bias(
    *, seeds: Sequence[int] = tuple(range(10)), n_words: int = 2000, n_test: int = 500, n_jobs: int = 1
) -> Findings:
    """Both models on words of each seed; ``n_jobs`` processes share the seeds."""
    cases = [(seed, n_words, n_test) for seed in seeds]
    found = [wrong for _, wrong in sorted(run_each(run_seed, cases, n_jobs=n_jobs), key=lambda pair: pair[0])]
    words = {name: mean_interval([outcome[name][0] for outcome in found]) for name in MODELS}
    steps = {name: mean_interval([outcome[name][1] for outcome in found]) for name in MODELS}
    claims = (
        Claim("the CRF gets fewer than 1 word in 10 wrong", words[CRF].mean < 0.1, repr(words[CRF])),
        Claim("the MEMM gets more than 4 words in 10 wrong", words[LOCAL].mean > 0.4, repr(words[LOCAL])),
        Claim("so does the MEMM in its original form", words[ORIGINAL].mean > 0.4, repr(words[ORIGINAL])),
        Claim(
            "the CRF is within a word in 100 of the Bayes rule",
            words[CRF].mean - words[BAYES].mean <= 0.01,
            f"{words[CRF].mean - words[BAYES].mean:.3f}",
        ),
    )
    return Findings(
        f"Rib or rob: {len(seeds)} seeds, {n_words} words to learn from, {n_test} to test on",
        COLUMNS,
        tuple((name, words[name], steps[name]) for name in MODELS),
        claims,
        (f"l2 = {FEATURES['l2']:g}; ± is half of the 95 % interval of the mean over seeds",),
    )


def run_seed(seed: int, n_words: int, n_test: int) -> dict[str, tuple[float, float]]:
    """Shares of wrong words and wrong steps of every model on the words of one seed."""
    learn = make_rib_rob(n_words, random_state=seed)
    test = make_rib_rob(n_test, random_state=10_000 + seed)
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
