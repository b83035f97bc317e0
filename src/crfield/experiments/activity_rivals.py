"""Rivals on recordings of people: chains with selected columns, classifiers of single steps, Markov models, a clock.

Groups (people, trials) are left out as wholes. Within the training groups of a fold

1. columns are selected out of all candidates by how well they tell labels apart, on every ``thin``-th step, since
   neighbouring steps tell nearly the same, and passing over columns that are nearly the same;
2. each model's settings are chosen by inner folds of groups, for all by one criterion, the mean of macro F1 and
   segment F1 at 50 % over the inner groups;
3. the model is fitted to all training groups with these settings and labels the left-out ones.

All models get the same columns, clipped at four deviations: a person who is unlike all others should not be given
scores that nothing in training ever had. The models:

    chain CRF, memory         a chain whose states are a label and the label of the segment before, trained piecewise
                              (Sutton & McCallum 2005): scores of steps by their own likelihood, transitions by theirs
    chain CRF, likelihood     `ChainCRF` by full likelihood, of labels or of states with memory as inner folds say
    logistic regression       step by step; penalty chosen
    gradient boosting         scikit-learn's, step by step
    … + Markov model          the same probabilities in a hidden Markov model, as `ClassifierHMM` does it
    Gaussian Markov model     `HMM`, means and deviations counted
    clock                     the most frequent training label at the same step: no sensor at all

Steps of one recording are not independent given their labels: what a minute of walking says sixty times it says
once. So chains of scores that are trained apart are decoded with the scores of steps times a factor, which is chosen
like everything else (Viterbi, with transitions as they are).

Classifiers learn from every ``thin``-th step, with classes weighted alike; transitions are counted on all steps.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import CrfieldWarning, InputError
from crfield.estimators.chain import ChainCRF
from crfield.estimators.group_folds import macro_f1
from crfield.experiments.segment_memory import SegmentStates
from crfield.inference.chain import ChainEngine
from crfield.metrics import segment_f1

MEMORY, LIKELIHOOD, LOGISTIC, LOGISTIC_HMM, BOOSTED, BOOSTED_HMM, GAUSSIAN, CLOCK = (
    "chain CRF, memory",
    "chain CRF, likelihood",
    "logistic regression",
    "logistic regression + Markov model",
    "gradient boosting",
    "gradient boosting + Markov model",
    "Gaussian Markov model",
    "clock, no sensor",
)
MODELS = (MEMORY, LIKELIHOOD, LOGISTIC, LOGISTIC_HMM, BOOSTED, BOOSTED_HMM, GAUSSIAN, CLOCK)
FACTORS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIP, FLOOR, SMOOTHING = 4.0, -12.0, 0.01


@dataclass(frozen=True, eq=False)
class Recorded:
    """Sequences of candidate columns with their labels and groups; labels None are not known."""

    columns: list[np.ndarray]
    labels: list[np.ndarray]
    groups: list[Hashable]
    names: list[str] = field(default_factory=list)

    @property
    def classes(self) -> list[Any]:
        """All labels, sorted by their text."""
        return sorted({label for row in self.labels for label in row if label is not None}, key=str)


@dataclass(frozen=True)
class Plan:
    """Sizes and grids of a comparison."""

    folds: int
    inner_folds: int = 3
    n_selected: int = 60
    most_alike: float = 0.9
    thin: int = 5
    chains: tuple[tuple[float, float, bool, str], ...] = (  # by likelihood: scale of the columns, l2, memory, decoder
        (0.1, 1.0, True, "viterbi"),
        (0.1, 1.0, False, "viterbi"),
    )
    strengths: tuple[float, ...] = (0.001, 0.01)  # of logistic regression
    rounds: tuple[int, ...] = (25,)
    piece: str = LOGISTIC  # how the chain with memory scores steps
    factors: tuple[float, ...] = FACTORS
    max_iter: int = 80
    models: tuple[str, ...] = MODELS


def run_fold(data: Recorded, plan: Plan, number: int, *, random_state: int = 0) -> dict[str, Any]:
    """Everything about one fold: the left-out sequences, their labels by each model, settings, selected columns."""
    names = list(dict.fromkeys(data.groups))
    if not 2 <= plan.folds <= len(names):
        raise InputError(f"folds must lie in 2 … {len(names)}, the number of groups, got {plan.folds}.")
    order = np.arange(len(names))
    if plan.folds < len(names):
        order = np.random.default_rng(random_state).permutation(len(names))
    out = {names[k] for k in np.array_split(order, plan.folds)[number]}
    learn = [k for k, group in enumerate(data.groups) if group not in out]
    test = [k for k, group in enumerate(data.groups) if group in out]
    found: dict[str, Any] = {"test": test, "labels": {}, "settings": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's words on convergence
        columns = separating_columns(data, learn, plan)
        found["columns"] = [data.names[c] for c in columns] if data.names else columns.tolist()
        fold = Fold.of(data, columns, learn)
        kept: dict[Any, Answer] = {}  # a classifier serves alone, in a Markov model and in a chain
        for model in plan.models:
            found["settings"][model], labels = chosen_and_predicted(model, fold, learn, test, plan, kept)
            found["labels"][model] = [row.tolist() for row in labels]
    return found


# ------------------------------------------------------------------------------------------------------ selection


def separating_columns(data: Recorded, learn: Sequence[int], plan: Plan) -> np.ndarray:
    """The ``n_selected`` columns that tell labels apart best, but for those that say what a better one has said.

        separation = mean over labels of (mean of the label − mean)² / variance

    Labels count alike, whatever their length. A column whose correlation with one already chosen is above
    ``most_alike`` is passed over. Everything is computed on every ``thin``-th step of the training sequences.
    """
    number = {label: k for k, label in enumerate(data.classes)}
    rows, codes = [], []
    for k in learn:
        keep = np.array([t for t in range(0, len(data.labels[k]), plan.thin) if data.labels[k][t] is not None], int)
        rows.append(data.columns[k][keep])
        codes += [number[data.labels[k][t]] for t in keep]
    table, own = np.concatenate(rows), np.array(codes)
    deviation = table.std(axis=0)
    usable = deviation > 1e-9 * np.maximum(np.abs(table).max(axis=0, initial=0.0), 1e-9)
    table = (table - table.mean(axis=0)) / np.where(usable, deviation, 1.0)
    apart = np.mean([table[own == code].mean(axis=0) ** 2 for code in np.unique(own)], axis=0)
    chosen: list[int] = []
    for column in np.argsort(-np.where(usable, apart, -1.0), kind="stable").tolist():
        if len(chosen) == plan.n_selected or not usable[column]:
            break
        alike = np.abs(table[:, chosen].T @ table[:, column]).max(initial=0.0) / len(table)
        if alike <= plan.most_alike:
            chosen.append(column)
    return np.array(chosen, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Fold:
    """Selected columns of all sequences, on the scale of the training ones and clipped."""

    columns: list[np.ndarray]
    labels: list[np.ndarray]
    groups: list[Hashable]
    classes: list[Any]

    @classmethod
    def of(cls, data: Recorded, columns: np.ndarray, learn: Sequence[int]) -> Fold:
        """The columns as the training sequences scale them."""
        table = np.concatenate([data.columns[k][:, columns] for k in learn])
        mean, deviation = table.mean(axis=0), table.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        scaled = [
            np.ascontiguousarray(np.clip((own[:, columns] - mean) / deviation, -CLIP, CLIP)) for own in data.columns
        ]
        return cls(scaled, data.labels, data.groups, data.classes)

    def known(self, sequences: Sequence[int], thin: int) -> tuple[np.ndarray, np.ndarray]:
        """Every ``thin``-th known step: columns (n, K) and codes of labels (n,)."""
        number = {label: k for k, label in enumerate(self.classes)}
        rows, codes = [], []
        for k in sequences:
            own = [t for t, label in enumerate(self.labels[k]) if label is not None][::thin]
            rows.append(self.columns[k][own])
            codes += [number[self.labels[k][t]] for t in own]
        return np.concatenate(rows), np.array(codes)

    def words(self, codes: np.ndarray) -> np.ndarray:
        """Labels of codes."""
        return np.array([*self.classes, None], dtype=object)[:-1][codes]


# ------------------------------------------------------------------------------------------------- one model, a fold

# Node scores of sequences, asked for once whatever is done with them afterwards.
Answer = Callable[[Sequence[int], Sequence[float]], dict[float, list[np.ndarray]]]


def chosen_and_predicted(
    model: str, fold: Fold, learn: Sequence[int], test: Sequence[int], plan: Plan, kept: dict[Any, Any]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Settings chosen by inner folds of groups, and labels of the test sequences."""
    fit, grid, factors = family(model, plan, kept)
    best, most = {"setting": grid[0], "factor": factors[0]}, -np.inf
    if len(grid) * len(factors) > 1:
        names = list(dict.fromkeys(fold.groups[k] for k in learn))
        parts = [set(names[i :: plan.inner_folds]) for i in range(plan.inner_folds)]
        for setting in grid:
            marks: dict[float, list[float]] = {factor: [] for factor in factors}
            for part in parts:
                within = [k for k in learn if fold.groups[k] not in part]
                beside = [k for k in learn if fold.groups[k] in part]
                for factor, labels in fit(fold, within, setting)(beside, factors).items():
                    marks[factor] += _marks(fold, beside, labels)
            for factor, own in marks.items():
                if np.mean(own) > most:
                    best, most = {"setting": setting, "factor": factor}, float(np.mean(own))
    answer = fit(fold, learn, best["setting"])
    return best, answer(test, (best["factor"],))[best["factor"]]


def _marks(fold: Fold, sequences: Sequence[int], labels: Sequence[np.ndarray]) -> list[float]:
    """(macro F1 + segment F1@50) / 2 of each group."""
    out = []
    for group in dict.fromkeys(fold.groups[k] for k in sequences):
        own = [i for i, k in enumerate(sequences) if fold.groups[k] == group]
        truth, said = [fold.labels[sequences[i]] for i in own], [labels[i] for i in own]
        out.append((macro_f1(truth, said) + segment_f1(truth, said, overlap=0.5)) / 2)
    return out


def family(
    model: str, plan: Plan, kept: dict[Any, Any] | None = None
) -> tuple[Callable[[Fold, Sequence[int], Any], Answer], tuple[Any, ...], tuple[float, ...]]:
    """How a model is fitted, its settings, and the factors of its scores.

    >>> family(LOGISTIC, Plan(folds=2))[1:]
    ((0.001, 0.01), (1.0,))
    """
    kept = {} if kept is None else kept
    of_logistic = model in (LOGISTIC, LOGISTIC_HMM) or (model == MEMORY and plan.piece == LOGISTIC)
    grid: tuple[Any, ...] = plan.strengths if of_logistic else plan.rounds
    if model in (LOGISTIC, BOOSTED):
        return partial(_alone, plan=plan, kept=kept), grid, (1.0,)
    if model in (LOGISTIC_HMM, BOOSTED_HMM):
        return partial(_smoothed, plan=plan, kept=kept, memory=False), grid, plan.factors
    if model == MEMORY:
        return partial(_smoothed, plan=plan, kept=kept, memory=True), grid, plan.factors
    if model == LIKELIHOOD:
        return partial(_likelihood, plan=plan), plan.chains, (1.0,)
    if model == GAUSSIAN:
        return _gaussian, (None,), plan.factors
    if model == CLOCK:
        return _clock, (None,), (1.0,)
    raise InputError(f"there is no model {model!r}; there are {', '.join(MODELS)}.")


def _odds(
    fold: Fold, learn: Sequence[int], setting: Any, plan: Plan, kept: dict[Any, Any]
) -> Callable[[int], np.ndarray]:
    """A classifier of every ``thin``-th step, whose log-probabilities (n, L) of any sequence can be asked for."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    name = (setting, tuple(learn))
    if name not in kept:
        rows, codes = fold.known(learn, plan.thin)
        model: Any = (
            HistGradientBoostingClassifier(
                max_iter=setting,
                max_leaf_nodes=8,
                class_weight="balanced",
                early_stopping=False,
                random_state=0,
            )
            if isinstance(setting, int)
            else LogisticRegression(C=setting, class_weight="balanced", max_iter=60, tol=1e-3)
        )
        kept[name] = (model.fit(rows, codes), {})
    classifier, known = kept[name]

    def of(sequence: int) -> np.ndarray:
        if sequence not in known:
            table = np.full((len(fold.labels[sequence]), len(fold.classes)), FLOOR)
            told = np.log(np.maximum(classifier.predict_proba(fold.columns[sequence]), np.exp(FLOOR)))
            table[:, classifier.classes_] = told
            known[sequence] = table
        return np.asarray(known[sequence])

    return of


def _alone(fold: Fold, learn: Sequence[int], setting: Any, *, plan: Plan, kept: dict[Any, Any]) -> Answer:
    of = _odds(fold, learn, setting, plan, kept)
    return lambda sequences, factors: {
        factor: [fold.words(of(k).argmax(axis=1)) for k in sequences] for factor in factors
    }


def _smoothed(
    fold: Fold, learn: Sequence[int], setting: Any, *, plan: Plan, kept: dict[Any, Any], memory: bool
) -> Answer:
    """Log-probabilities of classes weighted alike are log p(x | label) up to a constant, as a chain needs them."""
    of = _odds(fold, learn, setting, plan, kept)
    states = SegmentStates.counted([fold.labels[k] for k in learn], fold.classes, memory=memory, smoothing=SMOOTHING)
    return lambda sequences, factors: {
        factor: [fold.words(states.best_labels(factor * of(k))) for k in sequences] for factor in factors
    }


def _likelihood(fold: Fold, learn: Sequence[int], setting: tuple[float, float, bool, str], *, plan: Plan) -> Answer:
    # Columns made smaller are columns whose weights are penalised more, while transitions stay as free as they were.
    scale, l2, memory, decode = setting
    crf = ChainCRF(l2=l2, transition_pairs="all", decode=decode, tol=1e-3, max_iter=plan.max_iter)
    truth = [fold.labels[k] for k in learn]
    states = SegmentStates.counted(truth, fold.classes, memory=True, smoothing=0.0)
    X = [scale * fold.columns[k] for k in learn]
    crf.fit(X, [states.codes(labels) if memory else list(labels) for labels in truth])

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        X = [scale * fold.columns[k] for k in sequences]
        if not memory:
            rows = [np.array(row, dtype=object) for row in crf.predict(X)]
            return {factor: rows for factor in factors}
        scores = crf._potentials(X)
        edges = Potentials(scores.node, scores.edge + states.allowed, scores.topology)
        path = states.label[ChainEngine().infer(edges, Semiring.MAX).node.argmax(axis=1)]
        rows = [fold.words(path[a:b]) for a, b in pairwise(scores.topology.offsets)]
        return {factor: rows for factor in factors}

    return answer


def _gaussian(fold: Fold, learn: Sequence[int], _: Any) -> Answer:
    from crfield.estimators.hmm import HMM

    model = HMM(smoothing=SMOOTHING).fit([fold.columns[k] for k in learn], [list(fold.labels[k]) for k in learn])
    words = np.array([*model.classes_, None], dtype=object)[:-1]

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        scores = model.potentials([fold.columns[k] for k in sequences])
        out = {}
        for factor in factors:
            scaled = Potentials(factor * scores.node, scores.edge, scores.topology)
            codes = ChainEngine().infer(scaled, Semiring.MAX).node.argmax(axis=1)
            out[factor] = [words[codes[a:b]] for a, b in pairwise(scores.topology.offsets)]
        return out

    return answer


def _clock(fold: Fold, learn: Sequence[int], _: Any) -> Answer:
    counts: list[Counter[Any]] = []
    for k in learn:
        for t, label in enumerate(fold.labels[k]):
            if t == len(counts):
                counts.append(Counter())
            if label is not None:
                counts[t][label] += 1
    heard = [max(own, key=lambda label: (own[label], str(label))) for own in counts if own]

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        labels = []
        for k in sequences:
            row = np.empty(len(fold.labels[k]), dtype=object)
            row[:] = [heard[min(t, len(heard) - 1)] for t in range(len(row))]
            labels.append(row)
        return {factor: labels for factor in factors}

    return answer


def settings_told(found: Sequence[Mapping[str, Any]], model: str) -> str:
    """Settings that the folds chose, with their counts."""
    counts = Counter(
        f"{fold['settings'][model]['setting']} × {fold['settings'][model]['factor']:g}" for fold in found
    )
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())
