"""Are a classifier's probabilities of single steps fit for a chain? One number, found on steps it was not taught.

A Markov model weighs p(label | x) against p(label | label before), so that it matters how sure a classifier says it
is, and not only which label it puts first. AdaBoost is right four times out of five and gives every label about the
same probability; inside a chain such whispers are overruled by the transitions, and one label covers everything.

The remedy is an exponent, the inverse of a temperature (Guo, Pleiss, Sun & Weinberger 2017, *On calibration of
modern neural networks*), and Bayes' rule with what it makes of the probabilities:

    p_e(c | x) ∝ p(c | x)^e          evidence for c: log p_e(c | x) − log mean of p_e(c | x)

e is of largest likelihood on steps of sequences that the classifier was not taught: above 1 for one that says too
little, below for one that says too much. The mean over those steps stands for the share of the label: a power below 1
lifts rare labels, and Bayes' rule must know of it. Inner folds leave out whole sequences, or groups of them.

    look     does the chain label the training data clearly worse than the classifier alone, or is that one right
             far more often than it says it is? If neither, nothing is done
    folds    exponents and shares of right labels on sequences left out: alone, inside, inside with the exponent
    decide   the exponent is used where it is clearly better; for a classifier that says too little also one above 2
             that is not clearly worse. A chain that stays clearly worse than the classifier is warned of

The look costs one prediction of the training data, folds as many fits of the classifier as there are. *Clearly* is by
more than two points and by more than two standard errors, over sequences and over steps.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import DataWarning, InputError
from crfield.estimators.chain.calibration import fitted_temperature
from crfield.inference.chain import ChainEngine
from crfield.inference.decode import best_marginals
from crfield.storage.state import refuse
from crfield.training.markov.counting import counted

FOLDS = 3
CLEAR = 0.02  # of all steps: what a difference in right labels is at least called clear by
FLAT = (
    0.25  # a classifier that is right so much more often than the mean of its largest probabilities says too little
)
SHARPEST = 1e4  # exponent at most
LEAST = 1e-10  # of a mean or a share

# Step numbers to be taught → a function from step numbers to log p(label | x) (n, L) by a classifier of those.
Teacher = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]
Tables = tuple[np.ndarray, np.ndarray, np.ndarray]  # p(first label) (L,), p(label | label before) (L, L), shares (L,)


@dataclass(frozen=True)
class StepCalibration:
    """The exponent of p(label | x), and the shares of right labels on sequences left out that speak for it.

    ``means`` are those of the power, None where p(label | x) is taken as it is. ``alone`` is the classifier,
    ``plain`` the chain with its probabilities as they are, ``scaled`` the chain with the exponent of other folds;
    None where there was no need to look.

    >>> print(StepCalibration(40.0, (0.5, 0.5), 0.8, 0.3, 0.9, folds=3))
    p(label | x) to the power 40: right in 3 folds .900, without .300, the classifier alone .800
    >>> print(StepCalibration())
    p(label | x) as the classifier says it
    """

    exponent: float = 1.0
    means: tuple[float, ...] | None = None  # (L,)
    alone: float | None = None
    plain: float | None = None
    scaled: float | None = None
    folds: int = 0

    def __str__(self) -> str:
        said = "as the classifier says it" if self.means is None else f"to the power {self.exponent:.3g}"
        if not self.folds:
            return f"p(label | x) {said}"
        shown = [f"{value:.3f}".lstrip("0") for value in (self.scaled, self.plain, self.alone) if value is not None]
        names = ("right", "without", "the classifier alone")
        if self.means is None:
            names = ("with an exponent right", "without", "the classifier alone")
        parts = [
            f"{name}{f' in {self.folds} folds' if k == 0 else ''} {v}"
            for k, (name, v) in enumerate(zip(names, shown))
        ]
        return f"p(label | x) {said}: {', '.join(parts)}"

    def evidence(self, log_chances: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """(N, L) log p(x | label), up to what no label depends on, of log p(label | x) and shares of labels."""
        return np.asarray(self.exponent * log_chances - np.log(shares if self.means is None else self.means))

    def to_json(self) -> dict[str, Any]:
        """Its place in the header of a model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object, n_labels: int) -> Self:
        """What a header says; files of versions that knew of no exponent say nothing."""
        if value is None:
            return cls()
        names = ("alone", "plain", "scaled")
        if not isinstance(value, dict) or set(value) != {"exponent", "means", "folds", *names}:
            refuse("'calibration' must hold an exponent, means and shares of right labels")
        means = value["means"]
        if means is not None and (not isinstance(means, list) or len(means) != n_labels):
            refuse(f"'calibration' must hold means of {n_labels} labels")
        numbers = [value["exponent"], *(means or ()), *(value[name] for name in names if value[name] is not None)]
        good = all(type(number) in (int, float) and math.isfinite(number) and number >= 0 for number in numbers)
        if not good or not all(0 < number <= SHARPEST for number in numbers[: 1 + len(means or ())]):
            refuse("'calibration' must hold a positive exponent and shares of right labels")
        if type(value["folds"]) is not int:
            refuse("'calibration' must hold the number of folds")
        return cls(**{**value, "means": None if means is None else tuple(means)})


PLAIN = StepCalibration()


@dataclass(frozen=True, eq=False)
class StepJudge:
    """Chains of known labels, and how a chain with counted tables and some evidence labels them."""

    target: Target
    smoothing: float
    emission_weight: float
    decode: str
    n_jobs: int

    @property
    def chains(self) -> Chains:
        """The sequences."""
        assert isinstance(self.target.topology, Chains)
        return self.target.topology

    def inside(
        self, log_chances: np.ndarray, calibration: StepCalibration, tables: Tables, rows: np.ndarray
    ) -> np.ndarray:
        """Which of the steps ``rows`` a chain with these tables labels right."""
        evidence = self.emission_weight * calibration.evidence(log_chances, tables[2])
        scores = chain_scores(evidence, tables[0], tables[1], self.chains)
        engine = ChainEngine(self.n_jobs)
        if self.decode == "viterbi":
            codes = engine.best_path(scores)[1]
        else:
            codes = best_marginals(engine.infer(scores, Semiring.LOG).node)
        return np.asarray(codes[rows] == self.target.labels[rows])

    def alone(self, log_chances: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which of the steps ``rows`` the classifier labels right."""
        return np.asarray(log_chances[rows].argmax(axis=1) == self.target.labels[rows])

    def clearly_below(self, worse: np.ndarray, better: np.ndarray, rows: np.ndarray) -> bool:
        """Whether one way to label the steps ``rows`` is clearly below another; see the module."""
        gap, sequence = better.astype(float) - worse, self.chains.sequence_of_node[rows]
        mean, used = gap.mean(), len(np.unique(sequence))
        own = np.bincount(sequence, gap - mean)  # what a sequence is above or below the mean
        # Sequences are what is independent; a few of them may agree by chance, so steps are asked as well.
        squares = max(float(gap @ gap), float(own @ own) * used / max(used - 1, 1))
        return bool(mean > max(CLEAR, 2.0 * np.sqrt(squares) / len(rows)))


def chain_scores(evidence: np.ndarray, start: np.ndarray, transition: np.ndarray, chains: Chains) -> Potentials:
    """Scores of chains with ``evidence`` (N, L) at steps, log p(c) at first ones and log p(c | b) on edges.

    >>> half = np.full((2, 2), 0.5)
    >>> chain_scores(np.zeros((2, 2)), half[0], half, Chains.from_lengths([2])).node.round(2).tolist()
    [[-0.69, -0.69], [0.0, 0.0]]
    """
    node = evidence.copy()
    with np.errstate(divide="ignore"):
        node[chains.offsets[:-1][chains.lengths > 0]] += np.log(start)
        return Potentials(node, np.log(transition)[None], chains)


def calibrate_steps(
    judge: StepJudge,
    log_chances: np.ndarray,
    tables: Tables,
    teach: Teacher,
    groups: Sequence[Hashable] | None,
    *,
    always: bool,
) -> StepCalibration:
    """The exponent for a classifier with ``log_chances`` (N, L) of the training steps; 1 unless it is needed.

    With ``always`` the exponent of the folds is used as it is.
    """
    known = np.flatnonzero(judge.target.labels >= 0)
    before = judge.alone(log_chances, known), judge.inside(log_chances, PLAIN, tables, known)
    flat = before[0].mean() - np.exp(log_chances[known].max(axis=1)).mean() > FLAT
    if not (always or flat or judge.clearly_below(before[1], before[0], known)):
        return PLAIN
    parts = fold_of(judge.chains.n_sequences, groups)[judge.chains.sequence_of_node]
    held = _held_out(judge, known, parts, teach)
    if held is None:
        if always:
            raise InputError(
                "calibrate='temperature' needs steps that the classifier was not taught: at least two sequences (or "
                "groups), and two labels in all but one of them. Give more sequences, or calibrate=None."
            )
        if judge.clearly_below(before[1], before[0], known):
            _warn(before[0], before[1], "and there are too few sequences to find a remedy by inner folds")
        return PLAIN
    return _decided(judge, *held, known, parts, always=always, flat=bool(flat))


def fold_of(n_sequences: int, groups: Sequence[Hashable] | None) -> np.ndarray:
    """(B,) the fold of every sequence: groups, or single sequences, dealt in turn.

    >>> fold_of(5, None).tolist(), fold_of(4, ["ann", "bob", "ann", "cy"]).tolist()
    ([0, 1, 2, 0, 1], [0, 1, 0, 2])
    """
    listed: list[Any] = list(range(n_sequences)) if groups is None else list(groups)
    if len(listed) != n_sequences:
        raise InputError(f"groups must have one entry for each of {n_sequences} sequences, got {len(listed)}.")
    number = {group: k for k, group in enumerate(dict.fromkeys(listed))}
    return np.array([number[group] % FOLDS for group in listed], np.int64)


def _held_out(
    judge: StepJudge, known: np.ndarray, parts: np.ndarray, teach: Teacher
) -> tuple[np.ndarray, np.ndarray] | None:
    """(N, L) log p(label | x) of every step by a classifier of other sequences; None where that cannot be.

    Beside it (N, L), which labels that classifier had met.
    """
    labels, shape = judge.target.labels, (len(judge.target.labels), judge.target.n_labels)
    out, met, folds = np.zeros(shape), np.zeros(shape, bool), np.unique(parts[known])
    for fold in folds:
        rest, here = known[parts[known] != fold], np.flatnonzero(parts == fold)
        taught = np.unique(labels[rest])
        if len(taught) < 2:
            return None
        out[here] = teach(rest)(here)
        met[np.ix_(here, taught)] = True
    return out, met


def _decided(
    judge: StepJudge,
    held: np.ndarray,
    met: np.ndarray,
    known: np.ndarray,
    parts: np.ndarray,
    *,
    always: bool,
    flat: bool,
) -> StepCalibration:
    right: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows_of, folds = [], np.unique(parts[known])
    for fold in folds:
        rows, rest = known[parts[known] == fold], known[parts[known] != fold]
        tables = _counted_without(judge, parts, fold)
        exponent = best_calibration(held, judge.target, rest, met).exponent
        found = StepCalibration(exponent, means_of(held, exponent, judge.target, rows, met))  # its own: of no label
        right.append(
            (
                judge.alone(held, rows),
                judge.inside(held, PLAIN, tables, rows),
                judge.inside(held, found, tables, rows),
            )
        )
        rows_of.append(rows)
    rows = np.concatenate(rows_of)
    alone, plain, scaled = (np.concatenate(own) for own in zip(*right))
    best = best_calibration(held, judge.target, known, met)
    use = always or judge.clearly_below(plain, scaled, rows)
    use = use or (flat and best.exponent > 2 and not judge.clearly_below(scaled, plain, rows))
    if judge.clearly_below(scaled if use else plain, alone, rows):
        _warn(alone, scaled if use else plain, "on sequences left out, and no exponent of its probabilities helps")
    return replace(
        best if use else PLAIN,
        alone=float(alone.mean()),
        plain=float(plain.mean()),
        scaled=float(scaled.mean()),
        folds=len(folds),
    )


def _counted_without(judge: StepJudge, parts: np.ndarray, fold: int) -> Tables:
    """The tables of the sequences of other folds; a label that none of them has gains nothing by being rare."""
    target, chains = judge.target, judge.chains
    weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
    own = np.zeros(chains.n_sequences, bool)
    own[chains.sequence_of_node[parts == fold]] = True
    others = Target(chains, target.n_labels, target.labels, target.allowed, np.where(own, 0.0, weight))
    start, transition, shares = counted(others, smoothing=max(judge.smoothing, 1e-3))
    return start, transition, np.where(shares > 0, shares, 1.0)


def best_calibration(
    log_chances: np.ndarray, target: Target, rows: np.ndarray, met: np.ndarray | None = None
) -> StepCalibration:
    """The exponent of log p(label | x) (N, L) with which the labels of some steps are most probable, and the means.

    ``met`` (N, L) says which labels the classifier of a step knew. One that it had not met tells nothing of how sure
    it should be, nor of the label's mean.

    Three of four labels are right where the classifier says .6: e log (.6 / .4) = log 3.

    >>> target = Target(Chains.from_lengths([8]), 2, np.array([0, 0, 0, 1, 1, 1, 1, 0]))
    >>> found = best_calibration(np.log([[0.6, 0.4]] * 4 + [[0.4, 0.6]] * 4), target, np.arange(8))
    >>> round(found.exponent, 2), np.round(found.means, 6).tolist()
    (2.71, [0.5, 0.5])
    """
    met = np.ones(log_chances.shape, bool) if met is None else met
    rows = rows[met[rows, target.labels[rows]]]
    some, weight, at = log_chances[rows], _weights(target, rows), (np.arange(len(rows)), target.labels[rows])
    exponent = 1.0 / fitted_temperature(
        lambda temperature: weight * _powered(some, 1.0 / temperature)[at], coldest=1.0 / SHARPEST
    )
    return StepCalibration(exponent, means_of(log_chances, exponent, target, rows, met))


def means_of(
    log_chances: np.ndarray, exponent: float, target: Target, rows: np.ndarray, met: np.ndarray
) -> tuple[float, ...]:
    """(L,) means of the power over some steps, each of those whose classifier had met the label."""
    weight = _weights(target, rows)
    mass = weight @ met[rows]
    means = weight @ (met[rows] * np.exp(_powered(log_chances[rows], exponent))) / np.where(mass > 0, mass, 1.0)
    return tuple(np.where(mass > 0, np.maximum(means, LEAST), 1.0).tolist())


def _weights(target: Target, rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows)) if target.weight is None else target.weight[target.topology.sequence_of_node[rows]]


def _powered(log_chances: np.ndarray, exponent: float) -> np.ndarray:
    """(N, L) log p_e(label | x)."""
    scores = exponent * log_chances
    scores -= scores.max(axis=1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


def _warn(alone: np.ndarray, inside: np.ndarray, why: str) -> None:
    warnings.warn(
        f"the classifier labels {alone.mean():.3f} of the steps right by itself and {inside.mean():.3f} inside the "
        f"chain, {why}. Its probabilities may be too flat for the transitions: wrap it in "
        "sklearn.calibration.CalibratedClassifierCV, choose emission_weight by cross-validation, or use it alone.",
        DataWarning,
        stacklevel=5,
    )
