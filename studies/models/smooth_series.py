"""Smooth series: does a continuous field find the numbers that made the data, and does it know how sure it may be?

Labels are drawn from a Gaussian field on chains (`simulate.smooth_series`), a linear function of white features
smoothed along time. Each seed has coefficients and series of its own; models learn from one half of the series and
predict the other from features alone. Four predictions:

    ridge                 scikit-learn's, of single steps
    ridge, window         the same with the features of four steps on either side
    continuous field      `ContinuousCRF`
    true numbers          the mean of the labels by the numbers that made them: nothing is better

The field should beat both regressions, since the first knows no neighbours and the second must learn 36
coefficients for what has seven numbers; it should find all seven within a few standard errors; and its
90 % intervals should hold 90 % of the labels. Under the normal approximation of maximum likelihood 99.7 % of all
numbers lie within three standard errors, so over many seeds a rare one may not, and what is claimed is the share,
and the mean over seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from crfield.errors import InputError
from crfield.estimators.continuous import ContinuousCRF
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval, percent
from crfield.simulate.smooth_series import SmoothSeries, make_smooth_series
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seeds, each, gap_text

RIDGE, WINDOW, FIELD, TRUTH = "ridge", "ridge, window", "continuous field", "true numbers"
COLUMNS = ("prediction", "RMS error", "− ridge", "90 % intervals hold")
REACH = 4
LOW, HIGH = 0.87, 0.93
SURE = 0.99  # share of numbers within three standard errors


def run(settings: Settings, case: Case) -> Outcome:
    """Errors of all predictions, the share of labels within 90 % intervals, and distances in standard errors."""
    if settings["n_series"] < 2:
        raise InputError(f"at least two series are needed, got {settings['n_series']}.")
    options = {name: settings[name] for name in ("length", "association", "interaction")}
    world = make_smooth_series(settings["n_series"], random_state=case["seed"], **options)
    n_learn = settings["n_series"] // 2
    X, y = world.features[:n_learn], world.labels[:n_learn]
    test, truth = world.features[n_learn:], np.concatenate(world.labels[n_learn:])
    model = ContinuousCRF(l2=0.0).fit(X, y)
    predicted = {
        RIDGE: _ridge(X, y, test, reach=0),
        WINDOW: _ridge(X, y, test, reach=REACH),
        FIELD: np.concatenate(list(model.predict(test))),
        TRUTH: np.concatenate(world.means[n_learn:]),
    }
    found = {name: float(np.sqrt(np.mean((some - truth) ** 2))) for name, some in predicted.items()}
    low, high = np.concatenate(list(model.predict_intervals(test, coverage=0.9))).T
    held = float(((low <= truth) & (truth <= high)).mean())
    return {"errors": found, "held": held, "away": distances(model, world).tolist()}


def distances(model: ContinuousCRF, world: SmoothSeries) -> np.ndarray:
    """(K + 3,) learnt minus true numbers in standard errors: coefficients, intercept, log α, log β."""
    sure: Any = model.standard_errors_
    return np.array(
        [
            *((model.coef_ - world.coef) / sure["coef"]),
            (model.intercept_ - world.intercept) / sure["intercept"],
            np.log(model.association_[0] / world.association) / sure["association"][0],
            np.log(model.interaction_["+1"] / world.interaction) / sure["interaction"]["+1"],
        ]
    )


def _ridge(X: list[np.ndarray], y: list[np.ndarray], test: list[np.ndarray], *, reach: int) -> np.ndarray:
    model = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(
        np.concatenate([_seen(x, reach) for x in X]), np.concatenate(y)
    )
    return np.asarray(model.predict(np.concatenate([_seen(x, reach) for x in test])))


def _seen(x: np.ndarray, reach: int) -> np.ndarray:
    """The features of each step with those of ``reach`` steps on either side, zero beyond the ends."""
    padded = np.pad(x, ((reach, reach), (0, 0)))
    return np.concatenate([padded[k : k + len(x)] for k in range(2 * reach + 1)], axis=1)


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Errors of each prediction, and how far the field's numbers are from the true ones."""
    errors = {name: each(outcomes, "errors", name) for name in (RIDGE, WINDOW, FIELD, TRUTH)}
    rows = tuple(
        (
            name,
            mean_interval(runs),
            None if name == RIDGE else paired_interval(runs, errors[RIDGE]),
            mean_interval(each(outcomes, "held")) if name == FIELD else None,
        )
        for name, runs in errors.items()
    )
    away = np.array(each(outcomes, "away"))  # (seeds, numbers) in standard errors
    return Findings(
        f"Smooth series: {len(settings['seeds'])} seeds, {settings['n_series'] // 2} series of {settings['length']} "
        "steps to learn from",
        COLUMNS,
        rows,
        notes=(
            f"numbers: {away.shape[1] - 3} coefficients, intercept, log association, log interaction; "
            f"{int((np.abs(away) <= 3).sum())} of {away.size} within three standard errors of the truth, the "
            f"farthest at {np.abs(away).max():.2f}",
            "± is half of the 95 % interval of the mean over seeds; differences seed by seed",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The field errs least, finds the numbers, and knows how sure it may be."""
    away, claims = np.array(each(outcomes, "away")), []
    for other in (RIDGE, WINDOW):
        gap = paired_interval(each(outcomes, "errors", FIELD), each(outcomes, "errors", other))
        sure = gap.mean < 0 if np.isnan(gap.high) else gap.within(-np.inf, 0.0)
        claims.append(Claim(f"{FIELD} errs less than {other}", sure, gap_text(gap)))
    share = float((np.abs(away) <= 3).mean())
    claims.append(Claim("at least 99 % of all numbers within three standard errors", share >= SURE, percent(share)))
    mean = np.abs(away.mean(axis=0)) * np.sqrt(len(away))
    claims.append(
        Claim(
            "each number's mean over seeds within three of its standard errors",
            bool((mean <= 3).all()),
            f"the farthest at {mean.max():.2f}",
        )
    )
    coverage = float(np.mean(each(outcomes, "held")))
    claims.append(Claim("90 % intervals hold 87 to 93 % of the labels", LOW <= coverage <= HIGH, percent(coverage)))
    return claims


FULL: Settings = {"seeds": list(range(20)), "n_series": 60, "length": 100, "association": 1.0, "interaction": 4.0}
STUDY = Study(FULL, {**FULL, "seeds": [0, 1, 2], "n_series": 20}, by_seeds, run, report, claims)
