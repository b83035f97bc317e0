"""The models of the comparison on recordings of people, each as a way to fit, a grid of settings, and factors.

    chain CRF, stacked        `StackedChain` on the out-of-group log-probabilities of logistic regression and
                              boosting: trust in them and transitions by likelihood; with or without memory
    chain CRF, trees          `TreeCRF`, whose trees grow against the likelihood of whole sequences; rounds, with or
                              without memory, on the selected columns or on all, for trees select themselves (where
                              candidates are few), and the factor at decoding
    chain CRF, columns        `ChainCRF` by likelihood on the selected columns; penalty, with or without memory, and
                              the factor at decoding
    logistic regression       step by step; penalty
    gradient boosting         scikit-learn's, step by step; number of rounds
    … + Markov model          the same log-probabilities in a hidden Markov model with counted transitions, times a
                              factor, as `ClassifierHMM` does it; in one row a state is a label, in another it
                              remembers the label of the segment before, as the chains may
    Gaussian Markov model     `HMM`, means and deviations counted; factor of the deviations, factor of the scores
    clock                     the most frequent training label at the same step: no sensor at all

What stands after the semicolon is chosen by inner folds. Classifiers learn from every ``thin``-th step, with classes
weighted alike, so that their log-probabilities are log p(x | label) up to a constant, as a chain needs them.
Transitions are counted on all steps. Boosting gets columns as ranks among quantiles, which changes little of what
its trees can do and spares it a weighted sort of every column (nearly all of its time).

The stacked chain is judged on inner groups by the same out-of-group scores that it is fitted to. The scores of its
training groups then come from classifiers which met the inner test group. The outer one nobody met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from crfield.core.potentials import Potentials
from crfield.errors import InputError
from crfield.estimators.boosted.tree_crf import TreeCRF
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.markov.hmm import HMM
from crfield.inference.chain import ChainEngine
from crfield.training.segment_memory import SegmentStates
from studies.activities.stacked_chain import StackedChain

LOGISTIC, BOOSTED = "logistic regression", "gradient boosting"
LOGISTIC_HMM, BOOSTED_HMM = f"{LOGISTIC} + Markov model", f"{BOOSTED} + Markov model"
LOGISTIC_MEMORY, BOOSTED_MEMORY = f"{LOGISTIC_HMM}, memory", f"{BOOSTED_HMM}, memory"
STACKED, COLUMNS, TREES = "chain CRF, stacked", "chain CRF, columns", "chain CRF, trees"
GAUSSIAN, CLOCK = "Gaussian Markov model", "clock, no sensor"
CHAINS = (STACKED, COLUMNS, TREES)
RIVALS = (LOGISTIC, LOGISTIC_HMM, LOGISTIC_MEMORY, BOOSTED, BOOSTED_HMM, BOOSTED_MEMORY, GAUSSIAN)
MODELS = (*RIVALS, *CHAINS, CLOCK)
FLOOR, SMOOTHING, RANKS = -12.0, 0.01, 48


@dataclass(frozen=True)
class Grids:
    """What inner folds choose from."""

    strengths: tuple[float, ...] = (0.001, 0.01, 0.1)  # of logistic regression, less is more penalty
    rounds: tuple[int, ...] = (25, 75)
    penalties: tuple[float, ...] = (3.0, 30.0, 300.0)  # of the columns of the chain
    penalties_of_all: tuple[float, ...] = ()  # of its columns and transitions alike
    deviations: tuple[float, ...] = (1.0, 3.0)
    tree_rounds: tuple[int, ...] = (40, 100)
    trees_on_all: tuple[bool, ...] = (False,)  # all columns, not the selected ones
    memories: tuple[bool, ...] = (False, True)  # of the chains on columns and of trees
    factors: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    max_iter: int = 200  # of the chain on columns; with fewer it is not at its maximum


@dataclass(frozen=True, eq=False)
class Inside:
    """All sequences by their selected columns, the training ones and their inner parts, and what has been fitted."""

    columns: list[np.ndarray]
    labels: list[np.ndarray]
    groups: list[Hashable]
    classes: list[Any]
    learn: list[int]
    parts: list[set[int]]
    thin: int
    grids: Grids
    every: list[np.ndarray]  # all columns, for trees
    fitted: dict[Any, Any] = field(default_factory=dict)  # a classifier serves alone, in Markov models, in a chain
    chosen: dict[str, Any] = field(default_factory=dict)  # settings by model

    def known(self, sequences: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Every ``thin``-th known step: columns (n, K) and codes of labels (n,)."""
        number = {label: k for k, label in enumerate(self.classes)}
        rows, codes = [], []
        for k in sequences:
            own = [t for t, label in enumerate(self.labels[k]) if label is not None][:: self.thin]
            rows.append(self.columns[k][own])
            codes += [number[self.labels[k][t]] for t in own]
        return np.concatenate(rows), np.array(codes)

    def words(self, codes: np.ndarray) -> np.ndarray:
        """Labels of codes."""
        return np.array([*self.classes, None], dtype=object)[:-1][codes]

    def states(self, sequences: Sequence[int], *, memory: bool) -> SegmentStates:
        """States and counted transitions."""
        truth = [self.labels[k] for k in sequences]
        return SegmentStates.counted(truth, self.classes, memory=memory, smoothing=SMOOTHING)

    def odds(self, kind: str, setting: Any, learn: Sequence[int], sequence: int) -> np.ndarray:
        """Log-probabilities (n, L) of a sequence by a classifier that was fitted to others."""
        name: tuple[Any, ...] = (kind, tuple(learn))
        if kind == LOGISTIC:
            name = (*name, setting)
        if name not in self.fitted:
            make = _logistic if kind == LOGISTIC else _boosted
            self.fitted[name] = (make(*self.known(learn), setting, self.grids), {})
        of, told = self.fitted[name]
        if sequence not in told:
            # All that are not known at once: the trees are gone through sequence by sequence else.
            others = [k for k in range(len(self.columns)) if k not in learn] if sequence not in learn else [sequence]
            ends = np.cumsum([len(self.columns[k]) for k in others])[:-1]
            for key, kinds, table in of(np.concatenate([self.columns[k] for k in others])):
                for k, own in zip(others, np.split(self._all_labels(kinds, table), ends), strict=True):
                    told.setdefault(k, {})[key] = own
        return np.asarray(told[sequence][setting])

    def _all_labels(self, kinds: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        table = np.full((len(probabilities), len(self.classes)), FLOOR)
        table[:, kinds] = np.log(np.maximum(probabilities, np.exp(FLOOR)))
        return table

    def out_of_group(self, kind: str, sequence: int) -> np.ndarray:
        """`odds` by the classifier of the chosen setting that has not met the sequence's group."""
        part = next((own for own in self.parts if sequence in own), set())
        return self.odds(kind, self.chosen[kind], [k for k in self.learn if k not in part], sequence)


# Labels of sequences for each of several factors.
Answer = Callable[[Sequence[int], Sequence[float]], dict[float, list[np.ndarray]]]
Fit = Callable[[Inside, Sequence[int], Any], Answer]
# (setting, codes of labels, probabilities) for a table of columns
Odds = Callable[[np.ndarray], list[tuple[Any, np.ndarray, np.ndarray]]]


def family(model: str, grids: Grids) -> tuple[Fit, tuple[Any, ...], tuple[float, ...]]:
    """How a model is fitted, its settings, and the factors of its scores.

    >>> family(LOGISTIC, Grids())[1:]
    ((0.001, 0.01, 0.1), (1.0,))
    """
    kind = LOGISTIC if model.startswith(LOGISTIC) else BOOSTED
    grid: tuple[Any, ...] = grids.strengths if kind == LOGISTIC else grids.rounds
    table: dict[str, tuple[Fit, tuple[Any, ...], tuple[float, ...]]] = {
        CLOCK: (_clock, (None,), (1.0,)),
        GAUSSIAN: (_gaussian, grids.deviations, grids.factors),
        STACKED: (_stacked, (False, True), (1.0,)),
        TREES: (_trees, tuple(product(grids.tree_rounds, grids.memories, grids.trees_on_all)), grids.factors),
        COLUMNS: (
            _columns,
            (
                *((l2, 1.0, memory) for l2 in grids.penalties for memory in grids.memories),
                *((l2, l2, False) for l2 in grids.penalties_of_all),
            ),
            grids.factors,
        ),
    }
    for alone, smooth, memory in ((LOGISTIC, LOGISTIC_HMM, LOGISTIC_MEMORY), (BOOSTED, BOOSTED_HMM, BOOSTED_MEMORY)):
        table[alone] = (partial(_alone, kind=kind), grid, (1.0,))
        table[smooth] = (partial(_smoothed, kind=kind, memory=False), grid, grids.factors)
        table[memory] = (partial(_smoothed, kind=kind, memory=True), grid, grids.factors)
    if model not in table:
        raise InputError(f"there is no model {model!r}; there are {', '.join(MODELS)}.")
    return table[model]


# ---------------------------------------------------------------------------------------------------- single steps


def _logistic(rows: np.ndarray, codes: np.ndarray, setting: float, _: Grids) -> Odds:
    model = LogisticRegression(C=setting, class_weight="balanced", max_iter=60, tol=1e-3).fit(rows, codes)
    return lambda table: [(setting, model.classes_, model.predict_proba(table))]


def _boosted(rows: np.ndarray, codes: np.ndarray, _: int, grids: Grids) -> Odds:
    """All numbers of rounds at once: those of a short run are the first ones of a long run."""
    edges = np.quantile(rows, np.arange(1, RANKS) / RANKS, axis=0)

    def ranked(table: np.ndarray) -> np.ndarray:
        return np.stack([np.searchsorted(edge, column) for edge, column in zip(edges.T, table.T)], axis=1)

    model = HistGradientBoostingClassifier(
        max_iter=max(grids.rounds), max_leaf_nodes=8, class_weight="balanced", early_stopping=False, random_state=0
    ).fit(ranked(rows), codes)
    return lambda table: [
        (k, model.classes_, told)
        for k, told in enumerate(model.staged_predict_proba(ranked(table)), start=1)
        if k in grids.rounds
    ]


def _alone(inside: Inside, learn: Sequence[int], setting: Any, *, kind: str) -> Answer:
    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        rows = [inside.words(inside.odds(kind, setting, learn, k).argmax(axis=1)) for k in sequences]
        return dict.fromkeys(factors, rows)

    return answer


# ---------------------------------------------------------------------------------------------------------- chains


def _smoothed(inside: Inside, learn: Sequence[int], setting: Any, *, kind: str, memory: bool) -> Answer:
    states = inside.states(learn, memory=memory)
    return lambda sequences, factors: {
        factor: [inside.words(states.best_labels(factor * inside.odds(kind, setting, learn, k))) for k in sequences]
        for factor in factors
    }


def _stacked(inside: Inside, learn: Sequence[int], memory: bool) -> Answer:
    def sources(sequence: int) -> list[np.ndarray]:
        return [inside.out_of_group(kind, sequence) for kind in (LOGISTIC, BOOSTED) if kind in inside.chosen]

    if not sources(learn[0]):
        raise InputError(f"the stacked chain needs {LOGISTIC!r} or {BOOSTED!r} among the models before it.")
    states = inside.states(learn, memory=memory)
    chain = StackedChain.learnt(states, [sources(k) for k in learn], [inside.labels[k] for k in learn])

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        rows = [inside.words(chain.best_labels(sources(k))) for k in sequences]
        return dict.fromkeys(factors, rows)

    return answer


def _columns(inside: Inside, learn: Sequence[int], setting: tuple[float, float, bool]) -> Answer:
    """Penalties of columns and of transitions, memory. Smaller columns have weights that are penalised more."""
    l2, l2_of_transitions, memory = setting
    scale, states = np.sqrt(l2_of_transitions / l2), inside.states(learn, memory=memory)
    crf = ChainCRF(l2=l2_of_transitions, transition_pairs="all", tol=1e-3, max_iter=inside.grids.max_iter)
    crf.fit([scale * inside.columns[k] for k in learn], [states.codes(inside.labels[k]) for k in learn])
    return _joint(inside, states, lambda sequences: crf.potentials([scale * inside.columns[k] for k in sequences]))


def _trees(inside: Inside, learn: Sequence[int], setting: tuple[int, bool, bool]) -> Answer:
    rounds, memory, on_all = setting
    states = inside.states(learn, memory=memory)
    crf = TreeCRF(n_rounds=rounds, learning_rate=0.2, max_depth=3, min_samples_leaf=50)
    columns = inside.every if on_all else inside.columns
    crf.fit([columns[k] for k in learn], [states.codes(inside.labels[k]) for k in learn])
    return _joint(inside, states, lambda sequences: crf.potentials([columns[k] for k in sequences]))


def _joint(inside: Inside, states: SegmentStates, scored: Callable[[Sequence[int]], Potentials]) -> Answer:
    """The best states of a trained chain as labels."""

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        scores = scored(sequences)
        edge = scores.edge + states.allowed
        return {
            factor: [inside.words(states.label[row]) for row in _paths(factor, scores, edge)] for factor in factors
        }

    return answer


def _gaussian(inside: Inside, learn: Sequence[int], deviation: float) -> Answer:
    model = HMM(smoothing=SMOOTHING, deviation_factor=deviation)
    model.fit([inside.columns[k] for k in learn], [list(inside.labels[k]) for k in learn])
    words = np.array([*model.classes_, None], dtype=object)[:-1]

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        scores = model.potentials([inside.columns[k] for k in sequences])
        return {factor: [words[row] for row in _paths(factor, scores, scores.edge)] for factor in factors}

    return answer


def _paths(factor: float, scores: Potentials, edge: np.ndarray) -> list[np.ndarray]:
    """Best paths with the scores of steps times the factor."""
    path = ChainEngine().best_path(Potentials(factor * scores.node, edge, scores.topology))[1]
    return [path[a:b] for a, b in pairwise(scores.topology.offsets)]


def _clock(inside: Inside, learn: Sequence[int], _: Any) -> Answer:
    counts: list[Counter[Any]] = []
    for k in learn:
        for t, label in enumerate(inside.labels[k]):
            if t == len(counts):
                counts.append(Counter())
            if label is not None:
                counts[t][label] += 1
    heard: list[Any] = []
    for own in counts:
        at_first = inside.classes[0] if not heard else heard[-1]
        heard.append(max(own, key=lambda label: (own[label], str(label))) if own else at_first)

    def answer(sequences: Sequence[int], factors: Sequence[float]) -> dict[float, list[np.ndarray]]:
        labels = []
        for k in sequences:
            row = np.empty(len(inside.labels[k]), dtype=object)
            row[:] = [heard[min(t, len(heard) - 1)] for t in range(len(row))]
            labels.append(row)
        return dict.fromkeys(factors, labels)

    return answer
