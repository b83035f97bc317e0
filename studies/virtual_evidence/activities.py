"""Days of activities: table 1 of the paper on virtual evidence boosting, on days that are made.

Twelve days of about an hour and a half of one-minute steps, five activities in stretches of 10 to 60 minutes, many
numeric sensor features of which ten know something, an offset of each day that no training has seen, and noise that
remembers (`simulate.order_chains.make_activity_days`). The recordings of the paper (Liao, Choudhury, Fox & Kautz
2007, section 5.2: 1,100 minutes of one person, 315 features) are not public; this world has their sizes and none of
their numbers, so the order of the methods can be compared and their accuracies cannot. Each day is left out once.

    VEB, paper · exact · verified    virtual evidence boosting, as in `veb_chains`
    VEB, paper, from prior           algorithm 2 started from the shares of the labels and not from zero
    LogitBoost, verified, l2 = 5     verified, with features proposed by LogitBoost without virtual evidence
    BRF                              boosted random field, linear on beliefs
    LogitBoost                       stumps, 50 rounds, each step on its own
    boosting → ML, MPL               the stumps of 50 rounds of LogitBoost as 0/1 columns of a chain CRF, l2 = 1
    boosting → ML, l2 = 5            the same, held back more: few long stretches are few independent cases
    boosting → ML, Potts, l2 = 5     the same, with one weight for equal labels of neighbours and no others
    boosting → max-margin            the same columns, structured hinge loss (Taskar et al. 2004), the paper's plan
    boosting → softmax-margin        the same columns, its smooth form (Gimpel & Smith 2010)
    all observations → ML, MPL       one stump for every feature, by information gain, l2 = 1
    raw columns → ML                 the features as they are, standardised, in a chain CRF
    HMM + boosting                   counted transitions, scores of LogitBoost as emissions
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from crfield.data.graphs.builders import chain
from crfield.errors import CrfieldWarning
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.boosted.random_field import BoostedRandomField
from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.markov.classifier_hmm import ClassifierHMM
from crfield.estimators.selected.stump_encoder import StumpEncoder
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import make_activity_days
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve
from studies.virtual_evidence.chains import MAP, MPM, Scores, both_ways

PAPER, EXACT, VERIFIED, FIELD, ALONE = "VEB, paper", "VEB, exact", "VEB, verified", "BRF", "LogitBoost"
PRIOR, APART = "VEB, paper, from prior", "LogitBoost, verified, l2 = 5"
ML, ML5, MPL = "boosting → ML", "boosting → ML, l2 = 5", "boosting → MPL"
POTTS = "boosting → ML, Potts, l2 = 5"
MARGIN, SOFT = "boosting → max-margin", "boosting → softmax-margin"
ALL_ML, ALL_MPL, RAW, HMM = "all observations → ML", "all observations → MPL", "raw columns → ML", "HMM + boosting"
METHODS = (
    PAPER,
    PRIOR,
    EXACT,
    VERIFIED,
    APART,
    FIELD,
    ALONE,
    ML,
    ML5,
    POTTS,
    MPL,
    MARGIN,
    SOFT,
    ALL_ML,
    ALL_MPL,
    RAW,
    HMM,
)
PAPERS = {PAPER: 0.941, FIELD: 0.880, ALL_ML: 0.877, ML: 0.885, ALL_MPL: 0.879, MPL: 0.885}  # its table 1
ROUNDS = 50


cases = crossed(seed="seeds", features="features", out="folds")  # a case is one day left out of one person's


def run(settings: Settings, case: Case) -> Outcome:
    """All methods: method → [MAP, MPM]."""
    made = make_activity_days(case["features"], n_days=settings["n_days"], random_state=case["seed"])
    learn = [k for k in range(len(made)) if k != case["out"]]
    days = Days(
        [made.features[k] for k in learn],
        [made.labels[k] for k in learn],
        [made.features[case["out"]]],
        [made.labels[case["out"]]],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        return {name: list(_RUNS[name](days)) for name in METHODS}


# --------------------------------------------------------------------------------------------------------- methods


@dataclass(frozen=True, eq=False)
class Days:
    """Days to learn from and one to test on, and the columns that several methods share."""

    X: list[np.ndarray]
    y: list[np.ndarray]
    held: list[np.ndarray]
    truth: list[np.ndarray]

    @cached_property
    def boosted(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The stumps of boosting as columns, of the days to learn from and of the other."""
        made = StumpSelector(n_rounds=ROUNDS).fit(self.X, self.y)
        return made.transform(self.X), made.transform(self.held)

    @cached_property
    def each(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """One stump for every feature as columns."""
        made = StumpEncoder().fit(self.X, self.y)
        return made.transform(self.X), made.transform(self.held)


def _virtual(mode: str, **options: Any) -> Callable[[Days], Scores]:
    def method(days: Days) -> Scores:
        fitted = [
            VirtualEvidenceBoosting(mode=mode, decode=decode, **options).fit(days.X, days.y)
            for decode in (("map", "marginal") if mode == "exact" else ("map",))
        ]
        return both_ways(fitted[0], days.held, days.truth)[MAP], both_ways(fitted[-1], days.held, days.truth)[MPM]

    return method


def _field(days: Days) -> Scores:
    model = BoostedRandomField(learner="linear", n_rounds=ROUNDS).fit(days.X, days.y)
    return None, float(model.score(days.held, days.truth))


def _alone(days: Days) -> Scores:
    model = LogitBoost(n_rounds=ROUNDS).fit(np.concatenate(days.X), np.concatenate(days.y))
    return None, float(model.score(days.held[0], days.truth[0]))


def _chain(columns: str, **options: Any) -> Callable[[Days], Scores]:
    def method(days: Days) -> Scores:
        X, held = getattr(days, columns) if columns else (days.X, days.held)
        return both_ways(ChainCRF(**options).fit(X, days.y), held, days.truth, whole="viterbi")

    return method


def _graph(columns: str, objective: str, *, l2: float = 1.0, **options: Any) -> Callable[[Days], Scores]:
    def method(days: Days) -> Scores:
        X, held = ([chain(x) for x in part] for part in getattr(days, columns))
        model = GraphCRF(objective=objective, l2=l2, **options).fit(X, days.y)
        return both_ways(model.set_params(engine="forest"), held, days.truth)

    return method


def _hidden(days: Days) -> Scores:
    model = ClassifierHMM(LogitBoost(n_rounds=ROUNDS)).fit(days.X, days.y)
    return both_ways(model, days.held, days.truth, whole="viterbi")


_RUNS: dict[str, Callable[[Days], Scores]] = {
    PAPER: _virtual("paper", n_rounds=ROUNDS),
    PRIOR: _virtual("paper", n_rounds=ROUNDS, start="prior"),
    EXACT: _virtual("exact"),
    VERIFIED: _virtual("verified"),
    APART: _virtual("verified", proposals="independent", l2=5.0),
    FIELD: _field,
    ALONE: _alone,
    ML: _chain("boosted", l2=1.0),
    ML5: _chain("boosted", l2=5.0),
    POTTS: _graph("boosted", "likelihood", l2=5.0, relations={"+1": "potts"}),
    MPL: _graph("boosted", "pseudo_likelihood"),
    MARGIN: _graph("boosted", "hinge", tol=1e-2, max_iter=50),
    SOFT: _graph("boosted", "softmax_margin"),
    ALL_ML: _chain("each", l2=1.0),
    ALL_MPL: _graph("each", "pseudo_likelihood"),
    RAW: _chain("", l2=1.0, standardize=True),
    HMM: _hidden,
}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method; MAP and MPM for every number of features, and the difference to boosting → ML."""
    sizes, values = list(settings["features"]), partial(_values, outcomes)
    rows = []
    for name in METHODS:
        cells: list[Any] = []
        for size in sizes:
            own = [values(name, way, size) for way in (MAP, MPM)]
            gap = None if name == ML else paired_interval(own[0], values(ML, MAP, size))
            cells += [mean_interval(own[0]), mean_interval(own[1]), gap]
        rows.append((name, *cells, PAPERS.get(name)))
    columns = [f"{size}: {what}" for size in sizes for what in ("MAP", "MPM", f"MAP − {ML}")]
    charts = tuple(
        Chart(
            f"{size} features",
            "",
            "right steps",
            tuple(
                curve(title, METHODS, [values(name, way, size) for name in METHODS])
                for title, way in (("best labelling (MAP)", MAP), ("best labels (MPM)", MPM))
            ),
        )
        for size in sizes
    )
    return Findings(
        f"Days of activities: {settings['n_days']} days of 92 steps, {settings['folds']} of them left out in turn, "
        f"{len(settings['seeds'])} persons; right steps",
        ("method", *columns, "paper"),
        tuple(rows),
        notes=(
            "columns are named by the number of features, of which 10 know of the activity",
            "± is half of the 95 % interval over persons; differences are taken person by person",
            "the paper's column is of its own recordings: its order can be compared, not its numbers",
        ),
        charts=charts,
    )


def _values(outcomes: Outcomes, name: str, way: int, features: int) -> list[float]:
    best = MPM if outcomes[0][1][name][way] is None else way  # without a joint model there is one way
    return by_seed(outcomes, lambda outcome: outcome[name][best], features=features)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's order of methods, and ours."""
    values = partial(_values, outcomes)
    pairs = [("paper", PAPER, rival) for rival in (FIELD, ML, MPL, ALL_ML, ALL_MPL)]
    pairs += [("ours", name, PAPER) for name in (EXACT, VERIFIED)]
    pairs += [("ours", POTTS, rival) for rival in (EXACT, ML, HMM, ALONE)]
    return [
        above(
            f"{whose}, {size} features: {name} above {rival}, MAP", values(name, MAP, size), values(rival, MAP, size)
        )
        for size in settings["features"]
        for whose, name, rival in pairs
    ]


STUDY = Study(
    {"features": [30, 315], "seeds": [1, 2, 3, 4, 5, 6], "folds": 12, "n_days": 12},
    {"features": [30, 315], "seeds": [1, 2, 3], "folds": 2, "n_days": 12},
    cases,
    run,
    report,
    claims,
)
