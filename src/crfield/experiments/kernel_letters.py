"""Handwritten words: what kernels on pixels bring to a chain of letters, and which letters are worth keeping.

The data and the folds of `experiments.letters`: each fold is tested on by models of the other nine. All are chains of
letters; they differ in how a letter's 128 pixels are scored.

    linear chain              a weight for every pixel and letter (`ChainCRF`)
    rbf, landmarks            `KernelCRF` on as many training letters as asked for, drawn at random (Nyström)
    rbf, few landmarks        the same with a quarter of them
    rbf, greedy               as few, selected by the functional gradient (Lafferty, Zhu & Liu 2004)
    rbf, waves                as few random Fourier features
    polynomial, few landmarks (⟨x, z⟩ + 1)⁴, scaled to length one

Accuracy is of letters, by Viterbi; whole words as well. Intervals are over folds.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.chain import ChainCRF
from crfield.estimators.kernel_crf import KernelCRF
from crfield.experiments.findings import Claim, Findings, mean_interval, paired_interval, percent
from crfield.experiments.letters import Outcome, outcome_of
from crfield.storage.letters import Letters, read_letters

LINEAR, MANY, FEW, GREEDY, WAVES, POLYNOMIAL = (
    "linear chain",
    "rbf, landmarks",
    "rbf, few landmarks",
    "rbf, greedy",
    "rbf, waves",
    "polynomial, few landmarks",
)
MODELS = (LINEAR, MANY, FEW, GREEDY, WAVES, POLYNOMIAL)
COLUMNS = ("model", "columns", "first fold", "letters", "words", "letters − linear chain")
WANTED = 0.94
GAMMA, L2, STEPS = 0.05, 0.03, 50


def kernel_letters(
    folder: str,
    *,
    folds: Sequence[int] = (0,),
    n_components: int = 2000,
    models: Sequence[str] = MODELS,
    most_words: int | None = None,
    n_jobs: int = 1,
) -> Findings:
    """The models on the given folds, each trained on the other nine, or on ``most_words`` words drawn from them."""
    if not folds or not set(folds) <= set(range(10)):
        raise InputError(f"folds are numbers of 0 … 9, got {list(folds)}.")
    data = read_letters(os.path.join(folder, "letters", "letters.npz"))
    outcomes: dict[str, list[Outcome]] = {name: [] for name in models}
    columns: dict[str, int] = {}
    for fold in folds:
        for name in models:
            outcome, width = run_model(
                data, fold, name, n_components=n_components, most_words=most_words, n_jobs=n_jobs
            )
            outcomes[name].append(outcome)
            columns[name] = width
    linear = [outcome.letters for outcome in outcomes.get(LINEAR, [])]
    rows = []
    for name, runs in outcomes.items():
        right = [outcome.letters for outcome in runs]
        gap = paired_interval(right, linear) if linear and name != LINEAR else None
        words = mean_interval(outcome.words for outcome in runs)
        rows.append((name, columns[name], runs[0].letters, mean_interval(right), words, gap))
    learnt = "the other nine" if most_words is None else f"{most_words:,} words of the other nine"
    return Findings(
        f"Letters: {len(folds)} of ten folds tested on, trained on {learnt}; right letters",
        COLUMNS,
        tuple(rows),
        tuple(_claims(outcomes, folds, whole=most_words is None)),
        (
            f"kernels: rbf with gamma = {GAMMA:g}, l2 = {L2:g}, {STEPS} steps of L-BFGS; linear chain: l2 = 1",
            "± is half of the 95 % interval of the mean over folds; differences fold by fold",
        ),
    )


def run_model(
    data: Letters,
    fold: int,
    name: str,
    *,
    n_components: int,
    most_words: int | None = None,
    n_jobs: int = 1,
) -> tuple[Outcome, int]:
    """Train one model on all folds but one and test on that; also how many columns letters were mapped to."""
    learn = data.fold != fold
    if most_words is not None:
        drawn = np.random.default_rng(fold).permutation(np.flatnonzero(learn))[:most_words]
        learn = np.isin(np.arange(len(learn)), drawn)
    X, y = data.part(learn)
    test = data.part(data.fold == fold)
    if name == LINEAR:
        linear = ChainCRF(tol=1e-3, n_jobs=n_jobs).fit(X, y)
        return outcome_of(linear.potentials(test[0]), linear._coder, test[1], n_jobs=n_jobs), X[0].shape[1]
    model = KernelCRF(**options_of(name, n_components), random_state=fold, n_jobs=n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    coder = model._fitted.labels.coders[0]
    return outcome_of(model.potentials(test[0]), coder, test[1], n_jobs=n_jobs), model.n_components_


def options_of(name: str, n_components: int) -> dict[str, Any]:
    """The parameters of a model by its name.

    >>> options_of(GREEDY, 2000)["basis"], options_of(GREEDY, 2000)["n_components"]
    ('greedy', 500)
    """
    common: dict[str, Any] = {"similarity": "rbf", "gamma": GAMMA, "l2": L2, "max_iter": STEPS, "tol": 1e-3}
    few = max(2, n_components // 4)
    special: dict[str, dict[str, Any]] = {
        MANY: {"basis": "nystroem", "n_components": n_components},
        FEW: {"basis": "nystroem", "n_components": few},
        GREEDY: {"basis": "greedy", "n_components": few},
        WAVES: {"basis": "fourier", "n_components": few},
        POLYNOMIAL: {
            "basis": "nystroem",
            "n_components": few,
            "similarity": "polynomial",
            "gamma": 1.0,
            "degree": 4,
            "normalize": True,
        },
    }
    if name not in special:
        raise InputError(f"there is no model {name!r}; there are {', '.join(MODELS)}.")
    return common | special[name]


def _claims(outcomes: dict[str, list[Outcome]], folds: Sequence[int], *, whole: bool) -> list[Claim]:
    claims = []
    if whole and MANY in outcomes:
        first = outcomes[MANY][0].letters
        claims.append(Claim(f"{MANY}: ≥ 94 % of the letters of fold {folds[0]}", first >= WANTED, percent(first)))
    for better, worse in ((MANY, LINEAR), (MANY, FEW), (GREEDY, FEW)):
        if better not in outcomes or worse not in outcomes:
            continue
        gap = paired_interval([o.letters for o in outcomes[better]], [o.letters for o in outcomes[worse]])
        sure = gap.low > 0 if len(folds) > 1 else gap.mean > 0
        around = f", 95 % interval {gap.low:+.3f} … {gap.high:+.3f}" if len(folds) > 1 else ""
        claims.append(Claim(f"{better} above {worse}", sure, f"{gap.mean:+.3f}{around}"))
    return claims
