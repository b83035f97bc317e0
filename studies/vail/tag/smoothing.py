"""Can a hidden Markov model be mended? Table 2.2 and figures 2.5 and 2.6 of the thesis on activity recognition.

Speeds and chasing, nine columns, a Gaussian hidden Markov model and what closes its gap to the conditional random
field with the same columns and their squares (Vail 2008, *Conditional random fields for activity recognition*,
section 2.7.4):

    HMM, smoothed on test   standard deviations times the best of some factors, chosen on the test game as the figure
                            of the thesis does, so too good
    HMM, smoothed           the factor chosen on a game held out
    HMM, discriminative     the same parameters by gradient of log p(y | x), from the counted ones

Figure 2.5 is the error against the factor, figure 2.6 where discriminative training moves the normal densities.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning
from crfield.estimators.markov.hmm import HMM
from crfield.features.columns.trajectories import Scaling, TagSet, tag_columns
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.tag import SCHEMES, make_tag
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve, gap_text
from studies.vail.tag.models import Encoded, judge, likelihood

CRF, COUNTED, ON_TEST, SMOOTHED, TRAINED = (
    "CRF",
    "HMM, counted",
    "HMM, smoothed on test",
    "HMM, smoothed",
    "HMM, discriminative",
)
METHODS = (CRF, COUNTED, ON_TEST, SMOOTHED, TRAINED)
THESIS = {CRF: 0.935, COUNTED: 0.763, ON_TEST: 0.826, SMOOTHED: None, TRAINED: 0.942}
SET = TagSet(("velocity", "chasing"))
WITHIN = 0.015


cases = crossed(seed="seeds", scheme=SCHEMES)  # a case is a game to train on, one to choose on and one to test on


def run(settings: Settings, case: Case) -> Outcome:
    """Method → accuracy; "factors" → accuracy on test; "moves": element → [ratio of deviations, shift of means]."""
    games = [
        make_tag(settings["minutes"], scheme=case["scheme"], random_state=3 * case["seed"] + k) for k in range(3)
    ]
    columns = [tag_columns(game.positions, SET) for game in games]
    X, y = [one.values for one in columns], [game.labels for game in games]
    counted = HMM().fit(X[:1], y[:1])
    held, test = {}, {}
    for factor in settings["factors"]:
        wide = HMM(deviation_factor=factor).fit(X[:1], y[:1])
        held[factor], test[factor] = float(wide.score(X[1:2], y[1:2])), float(wide.score(X[2:], y[2:]))
    chosen = max(held, key=lambda factor: held[factor])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trained = HMM(training="discriminative", max_iter=settings["max_iter"]).fit(X[:1], y[:1])
    squares = [tag_columns(game.positions, SET, powers=(1, 2)) for game in games]
    scaling = Scaling.of(squares[:1])
    train, last = Encoded.of(scaling(squares[0]), games[0]), Encoded.of(scaling(squares[2]), games[2])
    layout = train.layout()
    field = likelihood(train, layout, l2=1.0, max_iter=settings["max_iter"])
    before: Any = counted.emissions_  # Gaussian, which the protocol does not say
    after: Any = trained.emissions_
    return {
        CRF: judge(last, layout, field.weights).accuracy,
        COUNTED: float(counted.score(X[2:], y[2:])),
        ON_TEST: max(test.values()),
        SMOOTHED: test[chosen],
        TRAINED: float(trained.score(X[2:], y[2:])),
        "factor": float(chosen),
        "factors": [test[factor] for factor in settings["factors"]],
        "moves": {
            name: [
                float(np.exp(np.log(after.deviation[:, k] / before.deviation[:, k]).mean())),
                float(np.abs((after.mean[:, k] - before.mean[:, k]) / before.deviation[:, k]).mean()),
            ]
            for k, name in enumerate(columns[0].names)
        },
    }


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for each model, and figures 2.5 and 2.6."""
    values = partial(_values, outcomes)
    rows: list[tuple[Any, ...]] = []
    for name in METHODS:
        found = [mean_interval(values(name, scheme)) for scheme in SCHEMES]
        gaps = [None if name == CRF else paired_interval(values(name, s), values(CRF, s)) for s in SCHEMES]
        rows.append((name, THESIS[name], found[0], gaps[0], found[1], gaps[1]))
    names = list(outcomes[0][1]["moves"])
    factors = list(settings["factors"])

    def drawn(title: str, x: str, y: str, places: list[Any], value: Callable[[Outcome, int], float]) -> Chart:
        """A chart with a curve for each way to move; ``value`` is of an outcome and the number of a place."""
        curves = []
        for scheme in SCHEMES:
            own = [by_seed(outcomes, partial(_at, value, k), scheme=scheme) for k in range(len(places))]
            curves.append(curve(scheme, places, own))
        return Chart(title, x, y, tuple(curves))

    def moved(what: int) -> Callable[[Outcome, int], float]:
        return lambda outcome, k: outcome["moves"][names[k]][what]

    charts = (
        drawn(
            "figure 2.5: wider densities",
            "standard deviations times",
            "wrong labels",
            factors,
            lambda outcome, k: 1 - outcome["factors"][k],
        ),
        drawn("figure 2.6: deviations", "", "trained for labels ÷ counted", names, moved(0)),
        drawn("figure 2.6: means", "", "moved by, in counted deviations", names, moved(1)),
    )
    return Findings(
        f"Speeds and chasing, table 2.2: {settings['minutes']:g} minutes of training and of test, "
        f"{len(settings['seeds'])} games for each way to move",
        ("model", "thesis (hourglass)", "hourglass", "− CRF, hourglass", "unconstrained", "− CRF, unconstrained"),
        tuple(rows),
        notes=(
            "right labels, the best of each step; ± is half of the 95 % interval over games, differences by game",
            "CRF: l2 = 1; smoothed: factor chosen on a game held out, "
            + ", ".join(f"{outcome['factor']:g}" for _, outcome in outcomes),
        ),
        charts=charts,
    )


def _at(value: Callable[[Outcome, int], float], k: int, outcome: Outcome) -> float:
    return value(outcome, k)


def _values(outcomes: Outcomes, name: str, scheme: str) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name], scheme=scheme)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's, for each way to move."""
    values, names = partial(_values, outcomes), list(outcomes[0][1]["moves"])
    claims = []
    for scheme in SCHEMES:
        crf, counted = values(CRF, scheme), values(COUNTED, scheme)
        claims.append(above(f"paper: {scheme}, CRF above the counted HMM", crf, counted))
        claims.append(above(f"paper: {scheme}, smoothing helps the HMM", values(ON_TEST, scheme), counted))
        claims.append(above(f"paper: {scheme}, smoothing alone does not reach the CRF", crf, values(ON_TEST, scheme)))
        gap = paired_interval(values(TRAINED, scheme), crf)
        claims.append(
            Claim(
                f"paper: {scheme}, the discriminative HMM within 1.5 points of the CRF",
                gap.within(-WITHIN, WITHIN),
                gap_text(gap),
            )
        )
        own = [outcome["moves"] for case, outcome in outcomes if case["scheme"] == scheme]
        ratio = {
            kind: float(np.mean([moves[name][0] for moves in own for name in names if name.startswith(kind)]))
            for kind in ("speed", "chase")
        }
        claims.append(
            Claim(
                f"paper: {scheme}, chasing gets wider densities, speeds hardly",
                ratio["chase"] > 1.2 and ratio["chase"] > ratio["speed"],
                f"deviations times {ratio['chase']:.2f} and {ratio['speed']:.2f}",
            )
        )
    return claims


STUDY = Study(
    {"seeds": [1, 2, 3, 4, 5], "minutes": 20, "factors": [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10], "max_iter": 300},
    {"seeds": [1, 2, 3], "minutes": 10, "factors": [1, 1.5, 2, 3, 4, 5, 6, 8], "max_iter": 200},
    cases,
    run,
    report,
    claims,
)
