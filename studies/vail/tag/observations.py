"""Which columns tell the seeker? Table 2.1 of the thesis on activity recognition.

Fifteen feature sets, two ways to move, a Gaussian hidden Markov model against a conditional random field with these
columns (and their squares, which is what a Gaussian sees), twenty minutes of training and twenty of test (Vail 2008,
*Conditional random fields for activity recognition*, section 2.7). The field has no penalty, as in the thesis; with
l2 = 1 it stands beside. Columns of transitions, which the Markov model cannot have, are observations there.

Labels are the best of each step (marginal decoding); the thesis does not say how it decodes, and the best labelling
as a whole, also in the file of cases, differs by many points where columns flicker. Our robots have limits of our
choice, so only orders can be compared, not figures.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from crfield.estimators.markov.hmm import HMM
from crfield.features.columns.trajectories import TAG_SETS, Scaling, tag_columns
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, Interval, mean_interval, percent
from crfield.simulate.tag import SCHEMES, make_tag
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve
from studies.vail.tag.models import Encoded, Judged, judge, likelihood

HMM_, CRF, RIDGE = "HMM", "CRF", "CRF, l2 = 1"
ACCURACY, VITERBI, LOG_PROB = 0, 1, 2
# HMM, CRF, log p(y | x) of the CRF; hourglass and unconstrained
THESIS: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "positions": ((33.1, 53.6, -959.7), (37.1, 37.8, -1354.5)),
    "velocities": ((68.4, 89.4, -717.1), (55.7, 70.4, -1206.5)),
    "velocity thresholds 1/60 s": ((62.5, 71.2, -818.0), (46.8, 58.6, -1148.6)),
    "velocity thresholds 0.1 s": ((63.0, 73.9, -784.3), (46.0, 62.4, -1099.2)),
    "velocity thresholds 0.5 s": ((63.6, 80.6, -708.8), (68.9, 71.9, -983.1)),
    "velocity thresholds 1.0 s": ((60.2, 83.1, -721.8), (67.8, 75.3, -980.9)),
    "velocity thresholds 1.5 s": ((56.9, 85.5, -731.7), (68.8, 77.8, -1004.7)),
    "velocity thresholds 2.0 s": ((53.7, 87.1, -751.1), (72.1, 77.3, -1036.3)),
    "chasing": ((75.8, 95.4, -622.3), (65.5, 80.4, -1058.3)),
    "distance (U)": ((46.6, 49.5, -779.7), (43.5, 42.3, -604.4)),
    "distance (N)": ((46.6, 49.9, -200.6), (43.5, 58.0, -223.4)),
    "distance & chasing (U)": ((75.6, 99.3, -90.6), (65.8, 93.9, -181.8)),
    "distance & chasing (N)": ((75.6, 99.3, -115.3), (65.8, 97.6, -112.2)),
    "many": ((72.4, 98.1, -172.2), (63.4, 98.5, -178.9)),
    "redundant": ((72.4, 95.7, -509.3), (52.7, 93.8, -6432.3)),
}


cases = crossed(seed="seeds", scheme=SCHEMES, set="sets")  # a case is one feature set on one way to move


def run(settings: Settings, case: Case) -> Outcome:
    """Both models: model → [accuracy, accuracy of the best labelling, log p(y | x)]."""
    games = [
        make_tag(settings["minutes"], scheme=case["scheme"], random_state=2 * case["seed"] + k) for k in range(2)
    ]
    plain = [tag_columns(game.positions, case["set"]).values for game in games]
    labels = [game.labels for game in games]
    markov = HMM().fit(plain[:1], labels[:1])
    told: Outcome = {HMM_: _markov(markov, plain[1:], labels[1:])}
    columns = [tag_columns(game.positions, case["set"], powers=(1, 2)) for game in games]
    scaling = Scaling.of(columns[:1])
    train, test = (Encoded.of(scaling(one), game) for one, game in zip(columns, games))
    layout = train.layout()
    for name, l2 in ((CRF, 0.0), (RIDGE, 1.0)):
        found = likelihood(train, layout, l2=l2, max_iter=settings["max_iter"])
        told[name] = _listed(judge(test, layout, found.weights))
    return told


def _markov(model: HMM, X: list[np.ndarray], y: list[np.ndarray]) -> list[float]:
    single = float(model.score(X, y))
    whole = float(model.set_params(decode="viterbi").score(X, y))
    return [single, whole, float(model.log_prob(X, y)[0])]


def _listed(found: Judged) -> list[float]:
    return [found.accuracy, found.viterbi, found.log_prob]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every feature set and way to move, the thesis's figures beside ours."""
    sets, values = list(settings["sets"]), partial(_values, outcomes)
    rows: list[tuple[Any, ...]] = []
    for number, scheme in enumerate(SCHEMES):
        for name in sets:
            hmm, crf, log_prob = THESIS[name][number]
            accuracy = [mean_interval(values(model, ACCURACY, scheme, name)) for model in (HMM_, CRF, RIDGE)]
            totals = [whole(mean_interval(values(model, LOG_PROB, scheme, name))) for model in (CRF, RIDGE)]
            rows.append(
                (f"{scheme}: {name}", hmm / 100, accuracy[0], crf / 100, *accuracy[1:], f"{log_prob:.0f}", *totals)
            )
    charts = tuple(
        Chart(
            scheme,
            "",
            "right labels",
            tuple(
                curve(model, sets, [values(model, ACCURACY, scheme, name) for name in sets])
                for model in (HMM_, CRF, RIDGE)
            ),
        )
        for scheme in SCHEMES
    )
    return Findings(
        f"Who seeks? Table 2.1: {settings['minutes']:g} minutes of training, as many of test, "
        f"{len(settings['seeds'])} pairs of games for each way to move",
        (
            "way to move: columns",
            "HMM, thesis",
            "HMM",
            "CRF, thesis",
            "CRF",
            "CRF, l2 = 1",
            "log p, thesis",
            "log p, CRF",
            "log p, l2 = 1",
        ),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over pairs of games; labels are the best of each step",
            f"log p(y | x) of the test game; CRF without penalty, at most {settings['max_iter']} steps of L-BFGS",
        ),
        charts=charts,
    )


def whole(interval: Interval) -> str:
    """An interval of large numbers as text.

    >>> whole(Interval(-1234.5, -1300.0, -1169.0))
    '-1234 ± 66'
    """
    if np.isnan(interval.low):
        return f"{interval.mean:.0f}"
    return f"{interval.mean:.0f} ± {(interval.high - interval.low) / 2:.0f}"


def _values(outcomes: Outcomes, model: str, what: int, scheme: str, name: str) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[model][what], scheme=scheme, set=name)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's: CRF against HMM, and what accuracy and likelihood say of distance."""
    sets, values = list(settings["sets"]), partial(_values, outcomes)

    def mean(model: str, what: int, scheme: str, name: str) -> float:
        return float(np.mean(values(model, what, scheme, name)))

    cells = [(scheme, name) for scheme in SCHEMES for name in sets]
    ahead = [mean(CRF, ACCURACY, *cell) >= mean(HMM_, ACCURACY, *cell) for cell in cells]
    claims = [Claim("paper: CRF at or above HMM in every cell", all(ahead), f"{sum(ahead)} of {len(ahead)}")]
    if not {"positions", "chasing", "distance (N)", "distance & chasing (N)", "many", "redundant"} <= set(sets):
        return claims
    for scheme in SCHEMES:
        alone = mean(CRF, ACCURACY, scheme, "distance (N)")
        better = mean(CRF, LOG_PROB, scheme, "distance (N)") > mean(CRF, LOG_PROB, scheme, "chasing")
        claims.append(
            Claim(
                f"paper: {scheme}, distance alone at most 60 % right, though more likely than chasing",
                alone <= 0.6 and better,
                f"{percent(alone, 1)}; log p {mean(CRF, LOG_PROB, scheme, 'distance (N)'):.0f} against "
                f"{mean(CRF, LOG_PROB, scheme, 'chasing'):.0f}",
            )
        )
        both = values(RIDGE, ACCURACY, scheme, "distance & chasing (N)")
        claims.append(
            above(
                f"paper: {scheme}, distance with chasing above chasing",
                both,
                values(RIDGE, ACCURACY, scheme, "chasing"),
            )
        )
        claims.append(
            Claim(
                f"ours: {scheme}, distance with chasing at least 96 % right at l2 = 1",
                float(np.mean(both)) >= 0.96,
                percent(float(np.mean(both)), 1),
            )
        )
        worse = [mean(CRF, LOG_PROB, scheme, name) for name in ("redundant", "many")]
        claims.append(
            Claim(
                f"paper: {scheme}, redundant columns fit too well: less likely in test than many",
                worse[0] < worse[1],
                f"log p {worse[0]:.0f} against {worse[1]:.0f}",
            )
        )
        mended = mean(RIDGE, LOG_PROB, scheme, "redundant")
        claims.append(
            Claim(f"ours: {scheme}, l2 = 1 mends that", mended > worse[0], f"log p {mended:.0f} for {worse[0]:.0f}")
        )
        longest = [mean(CRF, ACCURACY, scheme, f"velocity thresholds {w} s") for w in ("2.0", "1/60")]
        claims.append(
            Claim(
                f"paper: {scheme}, thresholds over two seconds above those of a frame",
                longest[0] > longest[1],
                f"{percent(longest[0], 1)} against {percent(longest[1], 1)}",
            )
        )
    for scheme, words, order in (("hourglass", "worse", -1), ("unconstrained", "better", 1)):
        ends = [values(HMM_, ACCURACY, scheme, f"velocity thresholds {w} s") for w in ("2.0", "1/60")][::order]
        claims.append(above(f"paper: {scheme}, the HMM gets {words} with longer windows", *ends))
    chance = mean(CRF, ACCURACY, "unconstrained", "positions")
    claims.append(Claim("paper: unconstrained, positions are near chance", chance < 0.45, percent(chance, 1)))
    harder = [mean(CRF, ACCURACY, scheme, "velocities") for scheme in SCHEMES]
    claims.append(
        Claim(
            "paper: velocities tell less when robots move unconstrained",
            harder[1] < harder[0],
            f"{percent(harder[1], 1)} against {percent(harder[0], 1)}",
        )
    )
    return claims


STUDY = Study(
    {"seeds": [1, 2, 3, 4, 5], "sets": list(TAG_SETS), "minutes": 20, "max_iter": 150},
    {"seeds": [1, 2], "sets": list(TAG_SETS), "minutes": 4, "max_iter": 80},
    cases,
    run,
    report,
    claims,
)
