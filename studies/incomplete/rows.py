"""What the experiments with incomplete information share: methods, scores of answers, rows and claims.

A method is a name and the options of `IncompleteBoost` that make it. The three baselines are those of Haffari, Wang,
Wang, Mori & Jiao (2008):

    BL1    trained on those data only in which nothing is hidden
    BL2    trained on all data without the hidden part
    BL3    trained on all data with the hidden part taken as hidden everywhere: a hidden CRF

Answers are scored by the share of right labels, the mean log-likelihood of the true label, with two classes F of
label 1, and F after class-mass normalisation. The mean loss of the unnormalised model, of which the paper reports
minus the logarithm, is the expected Z = 1 / p(true label | x, h) under the prior of h.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.boosting.incomplete.class_mass import class_mass_normalised
from crfield.errors import ConvergenceWarning
from crfield.report.findings import Claim, Interval, mean_interval, paired_interval
from studies.framework import Outcomes, by_seed

OURS, BL1, BL2, BL3 = "ours", "BL1", "BL2", "BL3"
BASELINES: Mapping[str, str | None] = {OURS: None, BL1: "observed_only", BL2: "without_hidden", BL3: "hidden_crf"}
_LEAST = 1e-300


@dataclass(frozen=True)
class Method:
    """A row: its name, options of `IncompleteBoost`, and options to choose from by validation (none: as they are).

    >>> method("ours, joint", l2=0.1, loss="joint").options["baseline"] is None
    True
    """

    name: str
    options: Mapping[str, Any]
    chosen: tuple[Mapping[str, Any], ...] = field(default=())


def method(name: str, chosen: Iterable[Mapping[str, Any]] = (), **options: Any) -> Method:
    """A method whose name begins with whose it is: ``ours``, ``BL1``, ``BL2`` or ``BL3``.

    The start is zero: with a constant prior BL3 then never tells the values of h apart. A random start is an option.

    >>> method("BL1, mix", loss="mix").options
    {'baseline': 'observed_only', 'start': 'zero', 'loss': 'mix'}
    """
    return Method(name, {"baseline": BASELINES[name.partition(",")[0]], "start": "zero", **options}, tuple(chosen))


@contextmanager
def quiet() -> Iterator[None]:
    """Training that is stopped early, as an experiment asks for, says nothing about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def log_likelihood(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean log p(label).

    >>> round(log_likelihood(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 4)
    -0.4904
    """
    return float(np.log(np.maximum(probabilities[np.arange(len(labels)), labels], _LEAST)).mean())


def f_measure(found: np.ndarray, labels: np.ndarray) -> float:
    """2 · both / (found + true) of label 1, 0 where there is none.

    >>> f_measure(np.array([1, 1, 0]), np.array([1, 0, 0]))
    0.6666666666666666
    """
    both = int(((found == 1) & (labels == 1)).sum())
    return 2 * both / max(1, int((found == 1).sum() + (labels == 1).sum()))


def answer_scores(
    probabilities: np.ndarray, labels: np.ndarray, shares: np.ndarray | None = None
) -> dict[str, float]:
    """``right`` and ``ll``; with two classes ``F``, and with ``shares`` of the classes also ``F CMN``.

    >>> answer_scores(np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0]))
    {'right': 1.0, 'll': -0.49..., 'F': 1.0}
    """
    found = probabilities.argmax(axis=1)
    scores = {"right": float((found == labels).mean()), "ll": log_likelihood(probabilities, labels)}
    if probabilities.shape[1] == 2:
        scores["F"] = f_measure(found, labels)
        if shares is not None:
            scores["F CMN"] = f_measure(class_mass_normalised(probabilities, shares).argmax(axis=1), labels)
    return scores


def choose(candidates: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> dict[str, Any]:
    """The candidate of the highest score, the first of equals.

    >>> choose([{"l2": 1.0}, {"l2": 0.1}], [-0.5, -0.25])
    {'l2': 0.1}
    """
    return dict(candidates[int(np.argmax(scores))])


def folds_of(groups: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """(N,) a fold for each row; rows of one group stay together, and folds have about equally many groups.

    >>> folds_of(np.array([0, 0, 1, 2]), 3, np.random.default_rng(0)).tolist()
    [1, 1, 2, 0]
    """
    names, codes = np.unique(groups, return_inverse=True)
    fold: np.ndarray = np.argsort(rng.permutation(len(names))) % n_folds
    return fold[codes]


# ------------------------------------------------------------------------------------------------ over repetitions


def values_of(outcomes: Outcomes, name: str, score: str, **where: Any) -> list[float]:
    """The score of a method, seed by seed."""
    return by_seed(outcomes, lambda outcome: outcome[name][score], **where)


def interval_of(outcomes: Outcomes, name: str, score: str, **where: Any) -> Interval | None:
    """Its mean and interval; None where the method does not have the score."""
    own = [outcome for case, outcome in outcomes if all(case[key] == value for key, value in where.items())]
    if not own or score not in own[0].get(name, {}):
        return None
    return mean_interval(values_of(outcomes, name, score, **where))


def gap_of(outcomes: Outcomes, one: str, other: str, score: str, **where: Any) -> Interval:
    """The difference of two methods, seed by seed."""
    return paired_interval(values_of(outcomes, one, score, **where), values_of(outcomes, other, score, **where))


def gap_words(gap: Interval) -> str:
    """A difference in words, to four places.

    >>> gap_words(Interval(0.0123, 0.01, 0.0146))
    '+0.0123, 95 % interval +0.0100 … +0.0146'
    """
    if np.isnan(gap.low):
        return f"{gap.mean:+.4f} (one repetition)"
    return f"{gap.mean:+.4f}, 95 % interval {gap.low:+.4f} … {gap.high:+.4f}"


def above_claim(sentence: str, gap: Interval) -> Claim:
    """A claim that holds where the whole interval of a difference is above zero, open where zero is in it."""
    return Claim(sentence, gap.within(0.0), gap_words(gap))


def tie_claim(sentence: str, gap: Interval, within: float) -> Claim:
    """A claim that holds where the whole interval of a difference is within so much of zero."""
    return Claim(sentence, gap.within(-within, within), gap_words(gap))


def noted_claim(sentence: str, found: float, noted: float, within: float) -> Claim:
    """A claim that a figure is the one of an earlier study."""
    return Claim(f"{sentence}: {noted:.4g} ± {within:g}", bool(abs(found - noted) <= within), f"{found:.4f}")
