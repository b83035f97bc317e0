"""`IncompleteBoost` against what one would do without it: logistic regression on imputed values, and boosted trees.

Three worlds, in each of which a value or a contour h is known for three in ten training data:

    tag        h adds to the score of the label; ten columns tell a little of it, four of them of h
    pictures   `make_visual_words` (easy): contours say which points lie on the object
    switch     h says which of four columns the label follows; four other columns tell a little of h

Rivals: logistic regression with the missing h set to its mean, the same with h imputed by a classifier and with its
products with all columns (worlds of a value), and scikit-learn's histogram boosting, which takes NaN as it is. All
have their usual settings; the ridge of logistic regression is chosen in folds. The first accuracy is with h hidden in
all test data, the second with h given.

What decides is whether the missing part *interacts*. Where h only adds to the score, its mean says all that a linear
model needs, and columns that were seen with each label do the rest: then the plain rivals are as good or better, and
much cheaper. Where h decides what the columns mean, a mean says nothing. Summing over h does, and it also learns h
from the labels of data in which it is hidden, which no imputation before training can.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crfield.estimators.boosted.incomplete.boost import IncompleteBoost
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.simulate.visual_words import EASY, make_visual_words
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed

TAG, PICTURES, SWITCH = WORLDS = "tag", "pictures", "switch"
OURS, MEAN, IMPUTED, TREES = (
    "IncompleteBoost",
    "logistic, h at its mean",
    "logistic, h imputed, products",
    "trees, NaN",
)
VALUES = 4  # of h


cases = crossed(seed="seeds", world=WORLDS)  # a case is one world and seed


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [accuracy with h hidden, with h given]."""
    rng = np.random.default_rng([case["seed"], 77])
    if case["world"] == PICTURES:
        return _pictures(rng, settings["pictures"])
    make = _tagged if case["world"] == TAG else _switched
    X, h, y = make(rng, settings["rows"])
    T, g, z = make(rng, settings["tests"])
    known = rng.random(len(X)) < settings["known"]
    ours = IncompleteBoost(prior="learnt", interactions="all" if case["world"] == SWITCH else None)
    ours.fit(X, y, hidden=[int(v) if k else None for v, k in zip(h, known)])
    told: Outcome = {OURS: [float(ours.score(T, z)), float(ours.score(T, z, hidden=g.tolist()))]}
    one, other, share = np.eye(VALUES)[h], np.eye(VALUES)[g], np.bincount(h[known], minlength=VALUES) / known.sum()
    blank = np.full(len(T), np.nan)
    told[MEAN] = _logistic(
        np.hstack([X, np.where(known[:, None], one, share)]),
        y,
        [np.hstack([T, np.tile(share, (len(T), 1))]), np.hstack([T, other])],
        z,
    )
    guess = LogisticRegression().fit(X[known], h[known])
    filled = np.where(known[:, None], one, guess.predict_proba(X))
    told[IMPUTED] = _logistic(_products(X, filled), y, [_products(T, guess.predict_proba(T)), _products(T, other)], z)
    told[TREES] = _trees(
        np.column_stack([X, np.where(known, h, np.nan)]),
        y,
        [np.column_stack([T, blank]), np.column_stack([T, g])],
        z,
        categorical=[X.shape[1]],
    )
    return told


def _cues(rng: np.random.Generator, n: int, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of h, and columns that are raised where h has theirs."""
    h = rng.integers(0, VALUES, n)
    return h, rng.normal(size=(n, VALUES)) + strength * np.eye(VALUES)[h]


def _drawn(rng: np.random.Generator, score: np.ndarray) -> np.ndarray:
    return (rng.random(len(score)) < 1 / (1 + np.exp(-score))).astype(np.int64)


def _tagged(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    h, cues = _cues(rng, n, 1.5)
    x = rng.normal(size=(n, 6))
    return np.hstack([x, cues]), h, _drawn(rng, np.array([-2.0, -0.7, 0.7, 2.0])[h] + x[:, 0])


def _switched(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    h, cues = _cues(rng, n, 1.0)
    x = rng.normal(size=(n, VALUES))
    return np.hstack([x, cues]), h, _drawn(rng, 8.0 * x[np.arange(n), h])


def _pictures(rng: np.random.Generator, n: int) -> Outcome:
    made = make_visual_words(2 * n, random_state=rng, **EASY)
    counts, on, y = made.counts, made.foreground, made.labels
    known = rng.random(n) < 0.3
    ours = IncompleteBoost(structure="bag", loss="joint", prior="learnt", l2=0.1)
    ours.fit(counts[:n], y[:n], hidden=[on[i] if known[i] else None for i in range(n)])
    test, given = counts[n:], list(on[n:])
    told: Outcome = {OURS: [float(ours.score(test, y[n:])), float(ours.score(test, y[n:], hidden=given))]}
    total = counts.sum(axis=1, keepdims=True)
    shares, inside = counts / total, on / total
    mean = inside[:n][known].mean(axis=0)
    filled = np.where(known[:, None], inside[:n], mean)
    tests = [np.hstack([shares[n:], np.tile(mean, (n, 1))]), np.hstack([shares[n:], inside[n:]])]
    told[MEAN] = _logistic(np.hstack([shares[:n], filled]), y[:n], tests, y[n:])
    gone = np.where(known[:, None], inside[:n], np.nan)
    tests = [np.hstack([shares[n:], np.full_like(inside[n:], np.nan)]), tests[1]]
    told[TREES] = _trees(np.hstack([shares[:n], gone]), y[:n], tests, y[n:])
    return told


def _products(X: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.hstack([X, q, (X[:, :, None] * q[:, None, :]).reshape(len(X), -1)])


def _logistic(X: np.ndarray, y: np.ndarray, tests: list[np.ndarray], truth: np.ndarray) -> list[float]:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model = GridSearchCV(model, {"logisticregression__C": [1e-3, 1e-2, 0.1, 1.0, 10.0]}, cv=3).fit(X, y)
    return [float(model.score(test, truth)) for test in tests]


def _trees(
    X: np.ndarray, y: np.ndarray, tests: list[np.ndarray], truth: np.ndarray, categorical: Any = None
) -> list[float]:
    model = HistGradientBoostingClassifier(categorical_features=categorical, random_state=0).fit(X, y)
    return [float(model.score(test, truth)) for test in tests]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Who is best where."""
    rows = [
        (f"{world}: {name}", *(mean_interval(_right(outcomes, world, name, given)) for given in (0, 1)))
        for world in WORLDS
        for name in (OURS, *_rivals(world))
    ]
    return Findings(
        "Right labels where h is hidden, and where it is given, at the test; known in 3 of 10 training data",
        ("model", "hidden", "given"),
        tuple(rows),
        notes=("± is half of the 95 % interval over seeds; differences are taken seed by seed",),
    )


def _rivals(world: str) -> list[str]:
    return [name for name in (MEAN, IMPUTED, TREES) if name != IMPUTED or world != PICTURES]


def _right(outcomes: Outcomes, world: str, name: str, given: int) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][given], world=world)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Above the best rival everywhere?"""
    claims = []
    for world in WORLDS:
        for given, when in enumerate(("hidden", "given")):
            right = {name: _right(outcomes, world, name, given) for name in (OURS, *_rivals(world))}
            best = max(_rivals(world), key=lambda name: float(np.mean(right[name])))
            sentence = f"ours: {world}, h {when}: above the best rival, {best}"
            claims.append(above(sentence, right[OURS], right[best]))
    return claims


STUDY = Study(
    {"seeds": list(range(1, 9)), "rows": 600, "tests": 2000, "pictures": 500, "known": 0.3},
    {"seeds": [1, 2], "rows": 200, "tests": 500, "pictures": 100, "known": 0.3},
    cases,
    run,
    report,
    claims,
)
