"""Motions and vowels: one label for a sequence, by hidden states and by simpler means.

Two data sets that the package aeon carries (the optional extra ``motions``): BasicMotions, four motions recorded by a
watch, 40 sequences to learn from and 40 to test on, 6 channels and 100 steps each; JapaneseVowels (Kudo, Toyama &
Shimbo 1999), nine speakers, 270 and 370 utterances of 7 to 29 steps, 12 cepstral coefficients. Every model sees the
observations and their squares, standardised:

    hidden CRF            `HiddenCRF`; states and penalty by cross-validation on the training set
    linear SVM            on the means of the columns over the steps, so that the order is lost
    plain CRF, voting     `ChainCRF` with the label of the sequence at every step; each step has one vote
    pyhcrf                the hidden CRF of that package, where it is installed

Accuracy is on the test set that comes with the data. The hidden CRF is the mean over seeds of what ``fit`` gives, its
starts being random; the others have no chance in them, pyhcrf apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.latent.hidden_crf import HiddenCRF
from crfield.report.findings import Claim, Findings, mean_interval, percent
from crfield.training.parallel import run_each
from studies.framework import Case, Outcome, Outcomes, Settings, Study

SETS = ("BasicMotions", "JapaneseVowels")
HIDDEN, SVM, VOTING, PYHCRF = "hidden CRF", "linear SVM", "plain CRF, voting", "pyhcrf"
COLUMNS = ("data and model", "accuracy", "worst", "best", "chosen by cross-validation")
STATES, PENALTIES = (4, 12), (1.0, 10.0)
WANTED = 0.95
TOL = 1e-3
RIVAL_STATES = 4


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test set as both are read by all models: observations beside their squares."""

    name: str
    learn: tuple[list[np.ndarray], np.ndarray]
    test: tuple[list[np.ndarray], np.ndarray]


def cases(settings: Settings) -> list[Case]:
    """A case for every model of every set."""
    models = [HIDDEN, VOTING, SVM, *([PYHCRF] if find_spec("pyhcrf") else [])]
    return [{"set": name, "model": model} for name in settings["sets"] for model in models]


def run(settings: Settings, case: Case) -> Outcome:
    """What was chosen within the training set, and shares of right labels: a hidden CRF starts from every seed."""
    split, seeds, penalties = read_split(case["set"]), settings["seeds"], settings["penalties"]
    makers: dict[str, tuple[Maker, list[dict[str, Any]]]] = {
        HIDDEN: (hidden_of, [{"n_states": s, "l2": l2} for s, l2 in product(settings["states"], penalties)]),
        VOTING: (voting_of, [{"l2": l2} for l2 in penalties]),
        SVM: (svm_of, [{"C": 10.0**k} for k in range(-2, 3)]),
        PYHCRF: (rival_of, [{"seed": seeds[0]}]),
    }
    maker, grid = makers[case["model"]]
    chosen = choose(maker, grid, split, folds=settings["folds"], n_jobs=settings["n_jobs"])
    starts = [{"n_init": settings["n_init"], "random_state": seed} for seed in seeds]
    fits = [
        (maker, {**chosen, **start}, *split.learn, *split.test)
        for start in (starts if case["model"] == HIDDEN else [{}])
    ]
    right = dict(run_each(accuracy_of, fits, n_jobs=settings["n_jobs"]))
    return {"right": [right[number] for number in range(len(fits))], "chosen": chosen}


_CHOSEN = {
    HIDDEN: "{n_states} states, l2 = {l2:g}",
    VOTING: "l2 = {l2:g}",
    SVM: "C = {C:g}",
    PYHCRF: f"none: {RIVAL_STATES} states, its own penalties, one start",
}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Every model on every set."""
    rows = []
    for case, outcome in outcomes:
        right = outcome["right"]
        spread = (mean_interval(right), min(right), max(right)) if len(right) > 1 else (right[0], None, None)
        chosen = _CHOSEN[case["model"]].format(**outcome["chosen"])
        rows.append((f"{case['set']}, {case['model']}", *spread, chosen))
    return Findings(
        "Motions and vowels: right labels of test sequences",
        COLUMNS,
        tuple(rows),
        notes=(
            f"observations and their squares, standardised; {settings['folds']} folds of the training set choose; "
            f"seeds {', '.join(map(str, settings['seeds']))}, n_init = {settings['n_init']}, tolerance {TOL:g}",
            "± is half of the 95 % interval of the mean over seeds, that is over random starts, not over data",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The hidden CRF is good enough on every set."""
    means = {case["set"]: float(np.mean(own["right"])) for case, own in outcomes if case["model"] == HIDDEN}
    return [
        Claim(f"{name}: the hidden CRF has ≥ {percent(WANTED, 0)}", mean >= WANTED, percent(mean))
        for name, mean in means.items()
    ]


def read_split(name: str) -> Split:
    """A data set of the package aeon, whose sequences lie channel by channel."""
    if find_spec("aeon") is None:
        raise InputError("this experiment reads data that the package aeon carries. Install it: crfield[motions].")
    from aeon import datasets  # type: ignore[import-not-found, unused-ignore]

    readers = {"BasicMotions": datasets.load_basic_motions, "JapaneseVowels": datasets.load_japanese_vowels}
    if name not in readers:
        raise InputError(f"there is no set {name!r}; there are {', '.join(readers)}.")
    parts = [readers[name](split=part) for part in ("train", "test")]
    learn, test = (([with_squares(np.asarray(x).T) for x in X], np.asarray(y)) for X, y in parts)
    return Split(name, learn, test)


def with_squares(x: np.ndarray) -> np.ndarray:
    """(T, 2D) the observations and their squares.

    >>> with_squares(np.array([[1.0, -2.0]])).tolist()
    [[1.0, -2.0, 1.0, 4.0]]
    """
    return np.concatenate([x, x**2], axis=1)


# ------------------------------------------------------------------------------------------------------- models

Maker = Callable[..., Callable[[Any], np.ndarray]]


def hidden_of(X: Any, y: Any, **options: Any) -> Callable[[Any], np.ndarray]:
    """The hidden CRF of this package, fitted; what it predicts is asked of the answer."""
    return HiddenCRF(standardize=True, tol=TOL, **options).fit(X, y).predict


def voting_of(X: Any, y: Any, **options: Any) -> Callable[[Any], np.ndarray]:
    """A chain with the label of its sequence at every step, each of which votes."""
    steps = [np.repeat(label, len(x)) for x, label in zip(X, y)]
    model = ChainCRF(standardize=True, decode="marginal", **options).fit(X, steps)

    def predict(X: Any) -> np.ndarray:
        return np.array([_most(labels) for labels in model.predict(X)])

    return predict


def _most(labels: np.ndarray) -> Any:
    found, counts = np.unique(labels, return_counts=True)
    return found[counts.argmax()]


def svm_of(X: Any, y: Any, **options: Any) -> Callable[[Any], np.ndarray]:
    """A linear support vector machine on the mean step of a sequence."""
    model = make_pipeline(StandardScaler(), LinearSVC(max_iter=20_000, **options)).fit(_means(X), y)
    return lambda X: model.predict(_means(X))


def _means(X: Any) -> np.ndarray:
    return np.stack([x.mean(axis=0) for x in X])


def rival_of(X: Any, y: Any, *, seed: int) -> Callable[[Any], np.ndarray]:
    """The hidden CRF of pyhcrf; its observations are standardised for it, with a constant for the bias."""
    from pyhcrf import HCRF  # type: ignore[import-not-found, unused-ignore]

    every = np.concatenate(X)
    mean, deviation = every.mean(axis=0), every.std(axis=0)

    def scaled(X: Any) -> list[np.ndarray]:
        return [np.concatenate([np.ones((len(x), 1)), (x - mean) / deviation], axis=1) for x in X]

    np.random.seed(seed)  # noqa: NPY002  (it draws its start from the global generator)
    model = HCRF(num_states=RIVAL_STATES, optimizer_kwargs={"options": {"maxiter": 1_000, "maxfun": 10_000}})
    model.fit(scaled(X), list(y))
    return lambda X: np.asarray(model.predict(scaled(X)))


def accuracy_of(maker: Maker, options: Mapping[str, Any], X: Any, y: Any, other_X: Any, other_y: Any) -> float:
    """Share of right labels on the other set of a model fitted to the first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(np.mean(maker(X, y, **options)(other_X) == other_y))


def choose(
    maker: Maker, grid: Sequence[Mapping[str, Any]], split: Split, *, folds: int, n_jobs: int = 1
) -> dict[str, Any]:
    """The options of best mean accuracy over folds of the training set; the first of equal ones."""
    if len(grid) == 1:
        return dict(grid[0])
    X, y = split.learn
    parts = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
    extra = {"n_init": 1} if maker is hidden_of else {}
    cases = [
        (maker, {**options, **extra}, [X[k] for k in learn], y[learn], [X[k] for k in aside], y[aside])
        for options in grid
        for learn, aside in parts
    ]
    right = np.zeros(len(cases))
    for number, accuracy in run_each(accuracy_of, cases, n_jobs=n_jobs):
        right[number] = accuracy
    return dict(grid[int(right.reshape(len(grid), len(parts)).mean(axis=1).argmax())])


FULL: Settings = {
    "seeds": [0, 1, 2, 3, 4],
    "sets": list(SETS),
    "states": list(STATES),
    "penalties": list(PENALTIES),
    "folds": 3,
    "n_init": 1,
}
QUICK: Settings = {**FULL, "seeds": [0], "sets": ["BasicMotions"], "states": [4], "penalties": [1.0], "folds": 2}
STUDY = Study(FULL, QUICK, cases, run, report, claims)
