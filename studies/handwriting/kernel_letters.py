"""Handwritten words: what kernels on pixels bring to a chain of letters, and which letters are worth keeping.

The data and the folds of `handwriting.letters`: each fold is tested on by models of the other nine. All are chains of
letters; they differ in how a letter's 128 pixels are scored.

    linear chain       a weight for every pixel and letter (`ChainCRF`)
    landmarks          `KernelCRF`, rbf on as many training letters as asked for, drawn at random (Nyström)
    few landmarks      the same with an eighth of them
    greedy             as few, selected by the functional gradient (Lafferty, Zhu & Liu 2004)
    waves              as few random Fourier features of the rbf

The width of the rbf and the penalty are chosen within the nine training folds, once for each test fold: models of
eight are compared on the ninth, the fold after the one tested on. Few landmarks choose for all kernels, since many
would cost ten times as much; first gamma with the middle penalty, then the penalty with that gamma. The test fold is
looked at once, at the end. The linear chain has the penalty of `handwriting.letters`. Accuracy is of letters, by
Viterbi; whole words as well. Intervals are over folds.

A fold is a case of a `Study`: ``crfield reproduce kernel-letters`` runs all ten, in several processes if asked, keeps
what is done, and writes the table; ``crfield experiment kernel-letters --folds 0`` runs some and prints it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.similarity.crf import KernelCRF
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval, percent
from crfield.storage.datasets.letters import read_letters
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, data_path, each, folds_of
from studies.handwriting.letters import FOLDS, learning_words, outcome_of, title_of

LINEAR, MANY, FEW, GREEDY, WAVES = "linear chain", "landmarks", "few landmarks", "greedy", "waves"
MODELS = (LINEAR, MANY, FEW, GREEDY, WAVES)
COLUMNS = ("model", "columns", "first fold", "letters", "words", "letters − linear chain")
WANTED = 0.94
Part = tuple[list[np.ndarray], list[np.ndarray]]


def run_fold(settings: Settings, case: Case) -> Outcome:
    """What was chosen within the other folds, and shares of right letters and words in this one."""
    data, fold = read_letters(data_path(settings, "letters", "letters.npz")), case["seed"]
    learn = learning_words(data, fold, settings["most_words"])
    held = learn & (data.fold == (fold + 1) % FOLDS)
    inner, judge = data.part(learn & ~held), data.part(held)
    tried: dict[str, float] = {}

    def right(gamma: float, l2: float) -> float:
        options = {"gamma": gamma, "l2": l2, "max_iter": settings["inner_steps"]}
        return fit_and_judge(FEW, options, settings, inner, judge, seed=fold)["letters"]

    middle = settings["penalties"][len(settings["penalties"]) // 2]
    gamma = best(settings["gammas"], lambda value: right(value, middle), tried, f"{{:g}}, {middle:g}")
    l2 = best(settings["penalties"], lambda value: right(gamma, value), tried, f"{gamma:g}, {{:g}}")
    train, test = data.part(learn), data.part(data.fold == fold)
    found = {}
    for name in settings["models"]:
        options = {} if name == LINEAR else {"gamma": gamma, "l2": l2}
        found[name] = fit_and_judge(name, options, settings, train, test, seed=fold)
    return {"gamma": gamma, "l2": l2, "held out": tried, "models": found}


def best(
    values: Iterable[float], score: Callable[[float], float], tried: dict[str, float], key: str = "{:g}"
) -> float:
    """The value of the highest score, the first of several; scores go to ``tried`` and are not computed twice.

    >>> known = {"2": 0.5}
    >>> best([1, 2, 3], lambda value: 0.4, known), known
    (2, {'2': 0.5, '1': 0.4, '3': 0.4})
    """
    values = list(values)
    for value in values:
        if key.format(value) not in tried:
            tried[key.format(value)] = score(value)
    return max(values, key=lambda value: tried[key.format(value)])


def fit_and_judge(
    name: str, options: dict[str, Any], settings: Settings, train: Part, test: Part, *, seed: int
) -> Outcome:
    """Train a model by its name; right letters and words of the test part, and the columns letters were mapped to."""
    if name == LINEAR:
        linear = ChainCRF(tol=1e-3, **options).fit(*train)
        outcome, columns = outcome_of(linear.potentials(test[0]), linear._coder, test[1]), train[0][0].shape[1]
    else:
        chosen = {**options_of(name, settings["n_components"]), "max_iter": settings["steps"], **options}
        model = KernelCRF(**chosen, tol=1e-3, precision="single", random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(*train)
        outcome = outcome_of(model.potentials(test[0]), model._fitted.labels.coders[0], test[1])
        columns = model.n_components_
    return {**outcome, "columns": columns}


def options_of(name: str, n_components: int) -> dict[str, Any]:
    """What makes a kernel model of that name, beside gamma and l2.

    >>> options_of(GREEDY, 2000)["basis"], options_of(GREEDY, 2000)["n_components"]
    ('greedy', 250)
    """
    few = max(2, n_components // 8)
    special: dict[str, dict[str, Any]] = {
        MANY: {"basis": "nystroem", "n_components": n_components},
        FEW: {"basis": "nystroem", "n_components": few},
        GREEDY: {"basis": "greedy", "n_components": few, "n_candidates": 250},
        WAVES: {"basis": "fourier", "n_components": few},
    }
    if name not in special:
        raise InputError(f"there is no model {name!r}; there are {', '.join(MODELS)}.")
    return special[name]


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """The table over folds, and what was chosen."""
    rows = []
    for name in settings["models"]:
        shares = each(outcomes, "models", name, "letters")
        linear = each(outcomes, "models", LINEAR, "letters") if LINEAR in settings["models"] else None
        gap = paired_interval(shares, linear) if linear and name != LINEAR else None
        words, columns = (each(outcomes, "models", name, what) for what in ("words", "columns"))
        rows.append((name, int(columns[0]), shares[0], mean_interval(shares), mean_interval(words), gap))
    chosen = Counter(f"{out['gamma']:g}, {out['l2']:g}" for _, out in outcomes)
    counts = "; ".join(f"{values} ({count})" for values, count in chosen.most_common())
    notes = (
        f"kernels: rbf, {settings['steps']} steps of L-BFGS; gamma, l2 (in so many folds) = {counts}",
        f"chosen from gamma {_listed(settings['gammas'])} and l2 {_listed(settings['penalties'])} by few landmarks, "
        f"{settings['inner_steps']} steps, of eight folds on the ninth; linear chain: l2 = 1",
        "± is half of the 95 % interval of the mean over folds; differences fold by fold",
    )
    return Findings(title_of(settings), COLUMNS, tuple(rows), notes=notes)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Enough letters, and who is above whom."""
    right = {name: each(outcomes, "models", name, "letters") for name in settings["models"]}
    claims, folds = [], settings["seeds"]
    if settings["most_words"] is None and MANY in right:
        first, mean = right[MANY][0], float(np.mean(right[MANY]))
        claims.append(Claim(f"{MANY}: ≥ 94 % of the letters of fold {folds[0]}", first >= WANTED, percent(first)))
        if len(folds) > 1:
            claims.append(Claim(f"{MANY}: ≥ 94 % in the mean", mean >= WANTED, percent(mean)))
    for better, worse in ((MANY, LINEAR), (MANY, FEW), (FEW, WAVES), (GREEDY, FEW)):
        if better in right and worse in right:
            claims.append(above(f"{better} above {worse}", right[better], right[worse], single=True))
    return claims


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


FULL: Settings = {
    "seeds": list(range(FOLDS)),
    "n_components": 2000,
    "most_words": None,
    "models": list(MODELS),
    "gammas": [0.03, 0.05, 0.08],
    "penalties": [0.01, 0.03, 0.1],
    "steps": 60,
    "inner_steps": 30,
}
STUDY = Study(
    FULL,
    {**FULL, "seeds": [0], "n_components": 200, "most_words": 600},
    folds_of(FOLDS),
    run_fold,
    report,
    claims,
    folds=True,
)
