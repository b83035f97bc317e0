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

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.similarity.crf import KernelCRF
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval, percent
from crfield.storage.datasets.letters import Letters, read_letters
from studies.framework import Case, Outcome, Reproduced, Settings, Study, run_study
from studies.handwriting.letters import outcome_of

LINEAR, MANY, FEW, GREEDY, WAVES = "linear chain", "landmarks", "few landmarks", "greedy", "waves"
MODELS = (LINEAR, MANY, FEW, GREEDY, WAVES)
COLUMNS = ("model", "columns", "first fold", "letters", "words", "letters − linear chain")
WANTED = 0.94
FOLDS = 10
Part = tuple[list[np.ndarray], list[np.ndarray]]


def kernel_letters(
    folder: str,
    *,
    folds: Sequence[int] = tuple(range(FOLDS)),
    n_components: int = 2000,
    most_words: int | None = None,
    n_jobs: int = 1,
) -> Findings:
    """The models on the given folds, each trained on the other nine, or on ``most_words`` words drawn from them."""
    settings = {
        **FULL,
        "data": folder,
        "seeds": list(folds),
        "n_components": n_components,
        "most_words": most_words,
    }
    return report(settings, run_study(STUDY, settings, n_jobs=n_jobs)).findings


def cases(settings: Settings) -> list[Case]:
    """A case for each fold that is tested on: its "seed" is the fold's number."""
    folds = settings["seeds"]
    if not folds or not set(folds) <= set(range(FOLDS)):
        raise InputError(f"folds are numbers of 0 … {FOLDS - 1}, got {list(folds)}.")
    return [{"seed": fold} for fold in folds]


def run_fold(settings: Settings, case: Case) -> Outcome:
    """What was chosen within the other folds, and shares of right letters and words in this one."""
    folder = settings.get("data") or os.environ.get("CRFIELD_DATA", ".")
    data = read_letters(os.path.join(folder, "letters", "letters.npz"))
    fold = case["seed"]
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


def learning_words(data: Letters, fold: int, most_words: int | None) -> np.ndarray:
    """(words,) which words are learnt from where ``fold`` is tested on: all others, or some drawn from these.

    >>> words = Letters([], [], np.array([0, 1, 2, 0]))
    >>> learning_words(words, 0, None).tolist(), int(learning_words(words, 0, 1).sum())
    ([False, True, True, False], 1)
    """
    learn = data.fold != fold
    if most_words is not None:
        drawn = np.random.default_rng(fold).permutation(np.flatnonzero(learn))[:most_words]
        learn = np.isin(np.arange(len(learn)), drawn)
    return learn


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
) -> dict[str, float]:
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
    return {"letters": outcome.letters, "words": outcome.words, "columns": columns}


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


def report(settings: Settings, outcomes: list[tuple[Case, Outcome]]) -> Reproduced:
    """The table over folds, its claims, and what was chosen."""
    folds = [case["seed"] for case, _ in outcomes]
    right = {name: [out["models"][name]["letters"] for _, out in outcomes] for name in settings["models"]}
    rows = []
    for name, shares in right.items():
        runs = [out["models"][name] for _, out in outcomes]
        gap = paired_interval(shares, right[LINEAR]) if LINEAR in right and name != LINEAR else None
        words = mean_interval(run["words"] for run in runs)
        rows.append((name, int(runs[0]["columns"]), shares[0], mean_interval(shares), words, gap))
    most = settings["most_words"]
    learnt = "the other nine" if most is None else f"{most:,} words of the other nine"
    chosen = Counter(f"{out['gamma']:g}, {out['l2']:g}" for _, out in outcomes)
    counts = "; ".join(f"{values} ({count})" for values, count in chosen.most_common())
    told = (
        f"kernels: rbf, {settings['steps']} steps of L-BFGS; gamma, l2 (in so many folds) = {counts}",
        f"chosen from gamma {_listed(settings['gammas'])} and l2 {_listed(settings['penalties'])} by few landmarks, "
        f"{settings['inner_steps']} steps, of eight folds on the ninth; linear chain: l2 = 1",
        "± is half of the 95 % interval of the mean over folds; differences fold by fold",
    )
    title = f"Letters: {len(folds)} of ten folds tested on, trained on {learnt}; right letters"
    return Reproduced(Findings(title, COLUMNS, tuple(rows), tuple(_claims(right, folds, whole=most is None)), told))


def _claims(right: dict[str, list[float]], folds: Sequence[int], *, whole: bool) -> list[Claim]:
    claims = []
    if whole and MANY in right:
        first, mean = right[MANY][0], float(np.mean(right[MANY]))
        claims.append(Claim(f"{MANY}: ≥ 94 % of the letters of fold {folds[0]}", first >= WANTED, percent(first)))
        if len(folds) > 1:
            claims.append(Claim(f"{MANY}: ≥ 94 % in the mean", mean >= WANTED, percent(mean)))
    for better, worse in ((MANY, LINEAR), (MANY, FEW), (FEW, WAVES), (GREEDY, FEW)):
        if better not in right or worse not in right:
            continue
        gap = paired_interval(right[better], right[worse])
        sure = gap.low > 0 if len(folds) > 1 else gap.mean > 0
        around = f", 95 % interval {gap.low:+.3f} … {gap.high:+.3f}" if len(folds) > 1 else ""
        claims.append(Claim(f"{better} above {worse}", sure, f"{gap.mean:+.3f}{around}"))
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
    "handwritten words: kernels on pixels, landmarks, greedy cliques, waves (needs data)",
    FULL,
    {**FULL, "seeds": [0], "n_components": 200, "most_words": 600},
    cases,
    run_fold,
    report,
    needs_data=True,
)
