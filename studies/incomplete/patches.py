"""The most discriminative patches of each picture: figure 1 of the paper on boosting with incomplete information.

The figure marks, in some photographs, the patches that say most about the label (Haffari, Wang, Wang, Mori & Jiao
2008); there is no number, only that they lie on the object. Pictures here are made (`simulate.visual_words`), so it
is known which of their points do. What a point of a word says about the label is what its log-probability loses:

    says(w) = log p(y | x) − log p(y | x without one point of w)

The words of a test picture are ranked by that, contours hidden, and the first few are looked up: which share of their
points lies on the object, beside the share of all points? Rows are the paper's method and two baselines, which learn
from the pictures with contours alone, or without contours.
"""

from __future__ import annotations

import numpy as np

from crfield.estimators.boosted.incomplete.boost import IncompleteBoost
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.simulate.visual_words import VisualWords
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed
from studies.incomplete.visual import fitted, world_of

OURS, BL1, BL2 = METHODS = "ours", "BL1, contours only", "BL2, without contours"
CHANCE = "all points"
_OPTIONS = {OURS: None, BL1: "observed_only", BL2: "without_hidden"}


cases = crossed(world="worlds", seed="seeds")  # a case is a world of pictures


def run(settings: Settings, case: Case) -> Outcome:
    """Method → share of the points of its first words that lie on the object."""
    made, train, known, test = world_of(settings, case)
    asked = test[: settings["pictures"]]
    told: Outcome = {CHANCE: float(np.mean([made.foreground[i].sum() / made.counts[i].sum() for i in asked]))}
    for name, baseline in _OPTIONS.items():
        model = fitted(made, train, known, {"loss": "joint", "l2": 0.1, "baseline": baseline}, case["seed"])
        told[name] = float(np.mean([_on_object(model, made, i, settings["first"]) for i in asked]))
    return told


def _on_object(model: IncompleteBoost, made: VisualWords, picture: int, first: int) -> float:
    """Share of points on the object among those of the words that say most."""
    counts = made.counts[picture]
    words = np.flatnonzero(counts)
    without = np.repeat(counts[None], len(words) + 1, axis=0)
    without[np.arange(len(words)), words] -= 1  # the last row is the picture itself
    logs = np.log(model.predict_proba(without)[:, made.labels[picture]])
    best = words[np.argsort(logs[:-1] - logs[-1], kind="stable")[:first]]
    return float(made.foreground[picture, best].sum() / counts[best].sum())


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method, a column for every world."""
    worlds = settings["worlds"]
    rows = tuple(
        (name, *(mean_interval(_values(outcomes, name, world)) for world in worlds)) for name in (*METHODS, CHANCE)
    )
    return Findings(
        f"Points on the object among those of the {settings['first']} words that say most: {settings['n']:,} "
        f"pictures, {settings['pictures']} of them looked at",
        ("words by", *worlds),
        rows,
        notes=("± is half of the 95 % interval over worlds of pictures",),
    )


def _values(outcomes: Outcomes, name: str, world: str) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name], world=world)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's picture: discriminative patches lie on the object."""
    claims = []
    for world in settings["worlds"]:
        ours, chance, without = (_values(outcomes, name, world) for name in (OURS, CHANCE, BL2))
        claims.append(above(f"paper, {world}: what says most is on the object more than other points", ours, chance))
        claims.append(above(f"ours, {world}: more often than without contours", ours, without))
    return claims


STUDY = Study(
    {"worlds": ["hard", "easy"], "seeds": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "n": 2000, "pictures": 200, "first": 5},
    {"worlds": ["hard", "easy"], "seeds": [1, 2, 3], "n": 300, "pictures": 40, "first": 5},
    cases,
    run,
    report,
    claims,
)
