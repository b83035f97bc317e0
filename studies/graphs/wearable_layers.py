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
_BETWEEN = "/"


def wearable_layers(
    *, n_episodes: int = 12, length: int = 500, folds: int | None = None, random_state: int = 0, n_jobs: int = 1
) -> Findings:
    """Every episode (or the first ``folds``) left out once: right steps by layer, and the steps right in both."""
    made = make_wearable_episodes(n_episodes, length=length, random_state=random_state)
    shares: dict[str, list[tuple[float, float, float]]] = {name: [] for name in MODELS}
    for out in range(n_episodes if folds is None else folds):
        learn = [k for k in range(n_episodes) if k != out]
        for name in MODELS:
            motion, context = predict_episode(name, made, learn, out, n_jobs=n_jobs)
            right = motion == made.motions[out], context == made.contexts[out]
            shares[name].append((right[0].mean(), right[1].mean(), (right[0] & right[1]).mean()))
    columns = {name: np.array(own, dtype=float).T for name, own in shares.items()}
    rows = []
    for name, (motion, context, both) in columns.items():
        gains = (
            [None, None]
            if name == APART
            else [paired_interval(motion, columns[APART][0]), paired_interval(both, columns[APART][2])]
        )
        rows.append((name, mean_interval(motion), mean_interval(context), mean_interval(both), *gains))
    gain = paired_interval(columns[LAYERS][2], columns[APART][2])
    return Findings(
        f"Wearable episodes: {n_episodes} of about {length} steps, "
        f"{len(shares[APART])} of them left out in turn; right steps",
        COLUMNS,
        tuple(rows),
        (
            Claim(
                "coupled layers get more steps right in both than two chains",
                gain.low > 0,
                f"{gain.mean:+.3f}, 95 % interval {gain.low:+.3f} … {gain.high:+.3f}",
            ),
        ),
        ("l2 = 1; ± is half of the 95 % interval of the mean over episodes; differences episode by episode",),
    )


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
