"""Two layers of labels over time: apart, coupled, or as one label.

Twelve episodes with a wearable sensor (`simulate.wearable`): what the person does (six motions) and where she is
(three contexts), the task and the number of episodes of Liao, Choudhury, Fox & Kautz (2007, figure 2), in a world of
our own. Each episode is left out once, so that figures are of twelve independent cases. The ways to model it:

    two chains            each layer on its own, with its own sensors
    two chains, all       each layer on its own, with the sensors of both: what coupling can bring without labels
    two layers, exact     coupled at each step (`FactorialCRF`), exact likelihood by a junction tree of width two
    two layers, pseudo    the same model by pseudo-likelihood, asked with the junction tree
    one chain of pairs    a chain whose labels are the pairs (18, of which some never occur), sensors of both

All labels are chosen node by node.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.errors import DataWarning
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.graph.factorial import FactorialCRF
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.wearable import WearableEpisodes, make_wearable_episodes
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, each

APART, ALL, LAYERS, PSEUDO, PAIRS = (
    "two chains",
    "two chains, all sensors",
    "two layers, exact",
    "two layers, pseudo",
    "one chain of pairs",
)
MODELS = (APART, ALL, LAYERS, PSEUDO, PAIRS)
COLUMNS = ("model", "motion", "context", "both", "motion − two chains", "both − two chains")
Labels = tuple[np.ndarray, np.ndarray]  # motions and contexts of one episode
MOTION, CONTEXT, BOTH = 0, 1, 2  # places in an outcome
_BETWEEN = "/"


def cases(settings: Settings) -> list[Case]:
    """Every episode, or the first ``folds``, left out once."""
    return [{"out": out} for out in range(settings["folds"] or settings["n_episodes"])]


def run(settings: Settings, case: Case) -> Outcome:
    """Each model's shares of right motions, right contexts, and steps right in both."""
    n, out = settings["n_episodes"], case["out"]
    made = make_wearable_episodes(n, length=settings["length"], random_state=settings["random_state"])
    found = {}
    for name in MODELS:
        learn = [k for k in range(n) if k != out]
        motion, context = predict_episode(name, made, learn, out, n_jobs=settings["n_jobs"])
        right = motion == made.motions[out], context == made.contexts[out]
        found[name] = [float(share.mean()) for share in (*right, right[0] & right[1])]
    return found


def predict_episode(name: str, made: WearableEpisodes, learn: Sequence[int], out: int, *, n_jobs: int = 1) -> Labels:
    """Train a model on some episodes and label another.

    >>> made = make_wearable_episodes(3, length=60)
    >>> motion, context = predict_episode(PAIRS, made, [0, 1], 2)
    >>> len(motion) == len(context) == len(made.motions[2])
    True
    """
    options: dict[str, Any] = {"standardize": True, "decode": "marginal", "n_jobs": n_jobs}
    sensors = list(zip(made.motion_features, made.context_features))
    joined = [np.concatenate(pair, axis=1) for pair in sensors]
    if name in (APART, ALL):
        found = []
        for layer, labels in enumerate((made.motions, made.contexts)):
            X = joined if name == ALL else [pair[layer] for pair in sensors]
            model = ChainCRF(**options).fit([X[k] for k in learn], [labels[k] for k in learn])
            found.append(model.predict([X[out]])[0])
        return found[0], found[1]
    if name == PAIRS:
        pairs = [
            np.array([f"{motion}{_BETWEEN}{context}" for motion, context in zip(motions, contexts)])
            for motions, contexts in zip(made.motions, made.contexts)
        ]
        model = ChainCRF(**options).fit([joined[k] for k in learn], [pairs[k] for k in learn])
        parts = [label.split(_BETWEEN) for label in model.predict([joined[out]])[0]]
        return np.array([part[0] for part in parts]), np.array([part[1] for part in parts])
    layers = [{"motion": motion, "context": context} for motion, context in sensors]
    truth = [{"motion": motion, "context": context} for motion, context in zip(made.motions, made.contexts)]
    objective = "likelihood" if name == LAYERS else "pseudo_likelihood"
    coupled = FactorialCRF(objective=objective, engine="junction_tree", **options)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DataWarning
        )  # that pseudo-likelihood couples too strongly: the table shows it
        coupled.fit([layers[k] for k in learn], [truth[k] for k in learn])
    labels = coupled.predict([layers[out]])[0]
    return labels[:, 0], labels[:, 1]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Right steps by layer and in both, and the gain over two chains."""
    rows = []
    for name in MODELS:
        shares = [each(outcomes, name, place) for place in (MOTION, CONTEXT, BOTH)]
        gains = [
            None if name == APART else paired_interval(shares[place], each(outcomes, APART, place))
            for place in (MOTION, BOTH)
        ]
        rows.append((name, *map(mean_interval, shares), *gains))
    return Findings(
        f"Wearable episodes: {settings['n_episodes']} of about {settings['length']} steps, {len(outcomes)} of them "
        "left out in turn; right steps",
        COLUMNS,
        tuple(rows),
        notes=("l2 = 1; ± is half of the 95 % interval of the mean over episodes; differences episode by episode",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Layers that know of each other are better."""
    sentence = "coupled layers get more steps right in both than two chains"
    return [above(sentence, each(outcomes, LAYERS, BOTH), each(outcomes, APART, BOTH))]


FULL: Settings = {"n_episodes": 12, "length": 500, "folds": None, "random_state": 0}
STUDY = Study(FULL, {**FULL, "n_episodes": 6, "length": 120, "folds": 3}, cases, run, report, claims)
