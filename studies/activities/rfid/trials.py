"""What people in hospital rooms do, from a batteryless sensor: boosted fields, plain ones, and a Markov model.

Sixty trials of older people (`storage.datasets.rfid`), cut into windows of two seconds (`windows`): four
activities, of which one, walking, is rare and short. Trials are dealt into folds as wholes, anew in each repetition,
and whatever is to be chosen (penalties, rounds, depths) is chosen within the training folds, by cross-validation over
trials. The models:

    virtual evidence             `VirtualEvidenceBoosting`, mode "exact"
    virtual evidence, verified   the same with each relation verified and all weights refitted by likelihood
    stumps, then likelihood      stumps picked by LogitBoost, as columns of a `ChainCRF`
    linear chain                 `ChainCRF` on the standardised columns
    Markov model on boosting     `ClassifierHMM` on LogitBoost
    trees in the chain           `TreeCRF`

All label node by node. Accuracy is of windows; the F score is the mean of those of the four activities, so that
walking counts as much as lying. Differences are taken trial by trial (of each trial's accuracy, averaged over the
repetitions), since trials are what is independent; repetitions, which share their trials, show what the folds do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline

from crfield.errors import ConvergenceWarning, CrfieldWarning, InputError
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.boosted.tree_crf import TreeCRF
from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.markov.classifier_hmm import ClassifierHMM
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.storage.datasets.rfid import ACTIVITIES
from studies.activities.rfid.windows import NAMES, read_some_trials, trial_windows
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, crossed

EXACT, VERIFIED, STUMPS, LINEAR, MARKOV, TREES = (
    "virtual evidence",
    "virtual evidence, verified",
    "stumps, then likelihood",
    "linear chain",
    "Markov model on boosting",
    "trees in the chain",
)
MODELS = (EXACT, VERIFIED, STUMPS, LINEAR, MARKOV, TREES)
COLUMNS = (
    "model",
    "windows",
    "mean F",
    "windows, by trial",
    "− linear chain, by trial",
    "− virtual evidence, by trial",
)


@dataclass(frozen=True, eq=False)
class Windows:
    """Sequences of windows with their activities, one of each for a trial."""

    columns: list[np.ndarray]
    labels: list[np.ndarray]

    def part(self, trials: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Columns and labels of some trials."""
        return [self.columns[k] for k in trials], [self.labels[k] for k in trials]


def model_and_grid(name: str, *, n_jobs: int = 1) -> tuple[Any, dict[str, list[Any]]]:
    """An estimator that is not fitted, and the values of its parameters to choose among.

    >>> model_and_grid(LINEAR)[1]
    {'l2': [0.3, 3.0, 30.0]}
    """
    options: dict[str, Any] = {"decode": "marginal", "n_jobs": n_jobs}
    if name == EXACT:
        return VirtualEvidenceBoosting(**options), {"n_rounds": [50, 100, 200]}
    if name == VERIFIED:
        model = VirtualEvidenceBoosting(mode="verified", n_rounds=40, **options)
        return model, {"l2": [1.0, 10.0]}
    if name == STUMPS:
        steps = [("stumps", StumpSelector(n_jobs=n_jobs)), ("chain", ChainCRF(**options))]
        return Pipeline(steps), {"stumps__n_rounds": [30, 100], "chain__l2": [1.0, 10.0]}
    if name == LINEAR:
        return ChainCRF(standardize=True, **options), {"l2": [0.3, 3.0, 30.0]}
    if name == MARKOV:
        return ClassifierHMM(LogitBoost(n_jobs=n_jobs), **options), {
            "classifier__n_rounds": [30, 100],
            "emission_weight": [0.5, 1.0],
        }
    if name == TREES:
        return TreeCRF(subsample=0.5, **options), {"max_depth": [1, 3]}
    raise InputError(f"there is no model {name!r}; there are {', '.join(MODELS)}.")


cases = crossed(seed="seeds", fold="folds")  # every fold of every repetition


def run(settings: Settings, case: Case) -> Outcome:
    """The trials that are left out, and their labels by every model."""
    data, seed = read_windows(settings), case["seed"]
    order = np.random.default_rng(seed).permutation(len(data.labels))
    test = np.array_split(order, settings["folds"])[case["fold"]]
    learn = np.setdiff1d(order, test)
    options = {"inner_folds": settings["inner_folds"], "random_state": seed, "n_jobs": settings["n_jobs"]}
    labels = {name: predict_trials(name, data, learn, test, **options) for name in settings["models"]}
    return {"test": test.tolist(), "labels": {name: [row.tolist() for row in own] for name, own in labels.items()}}


def read_windows(settings: Settings) -> Windows:
    """The trials as sequences of windows."""
    made = [trial_windows(trial, seconds=settings["seconds"]) for trial in read_some_trials(settings)]
    return Windows([columns for columns, _ in made], [labels for _, labels in made])


def predict_trials(
    name: str,
    data: Windows,
    learn: Sequence[int] | np.ndarray,
    test: Sequence[int] | np.ndarray,
    *,
    inner_folds: int = 2,
    random_state: int = 0,
    n_jobs: int = 1,
) -> list[np.ndarray]:
    """Choose and train a model on some trials and label others."""
    model, grid = model_and_grid(name, n_jobs=n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CrfieldWarning)
        X, y = data.part(list(learn))
        if inner_folds:
            inner = KFold(inner_folds, shuffle=True, random_state=random_state)
            model = GridSearchCV(model, grid, cv=inner, error_score="raise").fit(X, y)
        else:
            model = model.set_params(**{option: values[0] for option, values in grid.items()}).fit(X, y)
        return list(model.predict(data.part(list(test))[0]))


def pooled(found: Sequence[np.ndarray] | np.ndarray, truth: Sequence[np.ndarray]) -> tuple[float, float]:
    """Share of right windows, and the mean F score of the activities that occur.

    >>> pooled([np.array(["a", "b"])], [np.array(["a", "a"])])
    (0.5, 0.6666666666666666)
    """
    one, other = np.concatenate(list(found)), np.concatenate(list(truth))
    scores = []
    for name in np.unique(other):
        hits = ((one == name) & (other == name)).sum()
        scores.append(2 * hits / ((one == name).sum() + (other == name).sum()))
    return float((one == other).mean()), float(np.mean(scores))


def by_trial(runs: np.ndarray, truth: Sequence[np.ndarray]) -> np.ndarray:
    """(trials,) each trial's share of right windows, averaged over repetitions; runs (repetitions, trials)."""
    return np.array([np.mean([(run == own).mean() for run in runs[:, k]]) for k, own in enumerate(truth)])


def _runs(settings: Settings, outcomes: Outcomes, n_trials: int) -> dict[str, np.ndarray]:
    """(repetitions, trials) what each model said of each trial."""
    found = {name: np.empty((len(settings["seeds"]), n_trials), dtype=object) for name in settings["models"]}
    for case, outcome in outcomes:
        repetition = settings["seeds"].index(case["seed"])
        for name, labels in outcome["labels"].items():
            for trial, own in zip(outcome["test"], labels, strict=True):
                found[name][repetition, trial] = np.array(own)
    return found


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """All models on the same folds; with ``inner_folds`` of 0 nothing is chosen and the first values are taken."""
    data, rows, inner_folds = read_windows(settings), [], settings["inner_folds"]
    found = _runs(settings, outcomes, len(data.labels))
    right = {name: by_trial(runs, data.labels) for name, runs in found.items()}
    for name, runs in found.items():
        gains = [
            None if name == other or other not in found else paired_interval(right[name], right[other])
            for other in (LINEAR, EXACT)
        ]
        shares, scores = zip(*(pooled(run, data.labels) for run in runs))
        rows.append((name, mean_interval(shares), mean_interval(scores), mean_interval(right[name]), *gains))
    counts = np.concatenate([np.asarray(own) for own in data.labels])
    steps = ", ".join(f"{name} {int((counts == name).sum()):,}" for name in ACTIVITIES)
    chosen = f"chosen by {inner_folds} folds within the training trials" if inner_folds else "not chosen"
    return Findings(
        f"RFID trials: {len(data.labels)} trials, {len(counts):,} windows of {settings['seconds']:g} s; "
        f"{settings['folds']} folds of trials, {len(settings['seeds'])} repetitions",
        COLUMNS,
        tuple(rows),
        notes=(
            f"windows: {steps}; {len(NAMES)} columns; parameters {chosen}",
            "± is half of a 95 % interval: of the first two columns over repetitions, of the others over trials",
        ),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Boosted fields are above the others, trial by trial."""
    truth = read_windows(settings).labels
    right = {name: by_trial(runs, truth) for name, runs in _runs(settings, outcomes, len(truth)).items()}
    pairs = ((EXACT, LINEAR), (EXACT, MARKOV), (EXACT, STUMPS), (VERIFIED, LINEAR), (TREES, LINEAR))
    return [
        above(f"{better} above {worse}", right[better].tolist(), right[worse].tolist(), digits=4)
        for better, worse in pairs
        if better in right and worse in right
    ]


FULL: Settings = {
    "seeds": [0, 1, 2, 3, 4],
    "folds": 5,
    "inner_folds": 2,
    "most_trials": None,
    "models": list(MODELS),
    "seconds": 2.0,
}
QUICK: Settings = {**FULL, "seeds": [0, 1], "folds": 2, "inner_folds": 0, "most_trials": 16}
STUDY = Study(FULL, QUICK, cases, run, report, claims)
