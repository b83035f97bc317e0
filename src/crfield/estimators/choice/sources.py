"""Sources: models that say how probable each label is at every step, each family with the settings it is tried in.

    logistic regression   `MaxentClassifier` on single steps, classes weighted alike; penalty
    boosting              `LogitBoost` of trees on single steps, classes weighted alike; number of rounds
    Gaussian              normal densities of `HMM`, normalised over the labels
    chain on columns      `ChainCRF` by likelihood; with or without memory
    latent chain          `LatentDynamicCRF` with two states a label
    selected chain        `SelectedCRF` by grafting
    chain of trees        `TreeCRF`; with or without memory
    segments              `SemiMarkovCRF` with segments of up to 30 steps

The first three look at one step at a time, so they can be streamed; with the transitions of
`crfield.estimators.choice.decoding` they are the classifier in a Markov model and the Gaussian Markov model. Classes
that are weighted alike make the probabilities of a classifier those of p(x | label) up to a constant, which is what a
Markov model asks for. Of the others what counts are the marginals of their own forward–backward.

Classifiers learn from every n-th step, so that there are no more than ``MOST_ROWS``: neighbours tell nearly the same.
A label that a training part does not have gets no probability from what was trained there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.estimators.base.load import class_of
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.boosted.tree_crf import TreeCRF
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.choice.columns import stacked
from crfield.estimators.latent.latent_dynamic import LatentDynamicCRF
from crfield.estimators.markov.hmm import HMM
from crfield.estimators.maxent.classifier import MaxentClassifier
from crfield.estimators.segments.semi_markov import SemiMarkovCRF
from crfield.estimators.selected.crf import SelectedCRF
from crfield.inference.chain import ChainEngine
from crfield.kernels.probabilities import softmax
from crfield.storage.state import State, refuse
from crfield.training.segment_memory import with_memory

LOGISTIC, BOOSTING, GAUSSIAN = "logistic regression", "boosting", "Gaussian"
COLUMNS, LATENT, SELECTED, TREES, SEGMENTS = (
    "chain on columns",
    "latent chain",
    "selected chain",
    "chain of trees",
    "segments",
)
MOST_ROWS = 8_000
SINGLE_STEPS = (LOGISTIC, BOOSTING, GAUSSIAN)
Rows = Sequence[np.ndarray]  # (n, K) of each sequence
Codes = Sequence[np.ndarray]  # (n,) of each sequence, −1 where unknown
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Settings to try, the estimator of one, and the word of its files."""

    kind: str
    settings: tuple[Setting, ...]
    make: Callable[[Setting, int], Any]  # of a setting and a seed


FAMILIES: dict[str, Family] = {  # the cheap ones first
    LOGISTIC: Family(
        "maxent_classifier",
        ({"l2": 1000.0}, {"l2": 100.0}, {"l2": 10.0}),
        lambda setting, _: MaxentClassifier(l2=setting["l2"], solver="lbfgs", tol=1e-4, max_iter=100),
    ),
    GAUSSIAN: Family("hmm", ({},), lambda _, __: HMM(smoothing=0.01, variance_floor=1e-3)),
    BOOSTING: Family(
        "logit_boost",
        ({"rounds": 300}, {"rounds": 100}, {"rounds": 40}),  # the first is trained, the others are its first rounds
        lambda setting, _: LogitBoost(
            learner="tree",
            n_rounds=setting["rounds"],
            max_depth=3,
            min_leaf=10,
            learning_rate=0.2,
            ridge=1.0,
            bound="weights",
        ),
    ),
    COLUMNS: Family(
        "chain_crf",
        ({"scale": 0.1, "memory": True}, {"scale": 0.1, "memory": False}),
        lambda _, __: ChainCRF(l2=1.0, transition_pairs="all", tol=1e-3, max_iter=100),
    ),
    LATENT: Family(
        "latent_dynamic_crf",
        ({"scale": 0.1},),
        lambda _, seed: LatentDynamicCRF(n_states=2, l2=1.0, n_init=1, tol=1e-3, max_iter=60, random_state=seed),
    ),
    TREES: Family(
        "tree_crf",
        ({"memory": True}, {"memory": False}),
        lambda _, seed: TreeCRF(n_rounds=60, learning_rate=0.3, max_depth=3, min_samples_leaf=20, random_state=seed),
    ),
    SELECTED: Family(
        "selected_crf",
        ({},),
        lambda _, seed: SelectedCRF(
            method="grafting", options={"m": 8, "max_features": 80}, validation=0.25, random_state=seed
        ),
    ),
    SEGMENTS: Family(
        "semi_markov",
        ({"scale": 0.1},),
        lambda _, __: SemiMarkovCRF(max_length=30, l2=1.0, tol=1e-3, max_iter=60),
    ),
}


@dataclass(frozen=True, eq=False)
class Source:
    """A fitted model of one family, and how its classes are codes of labels.

    ``before`` is there where classes are states that remember: the label of the segment before each, −1 for none.
    """

    family: str
    setting: Setting
    model: Any
    label: np.ndarray  # (C,) int64, the label of each class
    before: np.ndarray | None = None  # (C,) int64

    @classmethod
    def fitted(cls, family: str, setting: Setting, rows: Rows, codes: Codes, *, seed: int, thin: int) -> Source:
        """Train on columns and codes of labels."""
        made = FAMILIES[family].make(setting, seed)
        if family in (LOGISTIC, BOOSTING):
            table, truth = np.concatenate(list(rows)), np.concatenate(list(codes))
            known = np.flatnonzero(truth >= 0)[::thin]
            kinds, own, counts = np.unique(truth[known], return_inverse=True, return_counts=True)
            weight = len(known) / (len(kinds) * counts[own])  # all classes weigh alike
            made.fit(table[known], truth[known], sample_weight=weight)
            return cls(family, setting, made, kinds.astype(np.int64))
        if family == SEGMENTS:
            rows, codes = _known_runs(rows, codes)
        scaled = [setting.get("scale", 1.0) * own for own in rows]
        if not setting.get("memory"):
            made.fit(scaled, [_named(own) for own in codes])
            return cls(family, setting, made, np.asarray(made.classes_, np.int64))
        pairs = [iter(with_memory(_named(own))) for own in codes]
        states = [
            [None if code < 0 else next(pair) for code in own.tolist()]
            for pair, own in zip(pairs, codes, strict=True)
        ]
        kept = sorted({(-1 if pair[0] is None else pair[0], pair[1]) for own in states for pair in own if pair})
        number = {(None if before < 0 else before, label): k for k, (before, label) in enumerate(kept)}
        made.fit(scaled, [[None if pair is None else number[pair] for pair in own] for own in states])
        before, label = np.array(kept, np.int64).reshape(-1, 2).T
        return cls(family, setting, made, label, before)

    def first_rounds(self, setting: Setting) -> Source:
        """The boosted model of fewer rounds, which is the beginning of that of more."""
        boosted = self.model._fitted
        additive = replace(boosted.additive, steps=boosted.additive.steps[: setting["rounds"]])
        return replace(self, setting=setting, model=self.model.holding(replace(boosted, additive=additive)))

    def chances(self, rows: Rows, n_labels: int) -> np.ndarray:
        """(N, L) probabilities of the labels at the steps of all sequences, end to end."""
        table, _ = stacked(rows)
        if not len(table):
            return np.zeros((0, n_labels))
        if self.family in (LOGISTIC, BOOSTING):
            own = np.asarray(self.model.predict_proba(table))
        elif self.family == GAUSSIAN:
            scores = self.model.potentials(list(rows))
            first = scores.topology.offsets[:-1][scores.topology.lengths > 0]
            scores.node[first] -= np.log(self.model.start_probabilities_)
            own = softmax(scores.node)
        else:
            scaled = [self.setting.get("scale", 1.0) * part for part in rows]
            own = self._remembered(scaled) if self.before is not None else self._marginals(scaled)
        found = np.zeros((len(table), n_labels))
        np.add.at(found.T, self.label, own.T)
        return found

    def _marginals(self, rows: Rows) -> np.ndarray:
        return np.concatenate(list(self.model.predict_proba(list(rows))))

    def _remembered(self, rows: Rows) -> np.ndarray:
        """Marginals (N, C) where a state may follow itself, or one whose label it remembers."""
        scores = self.model.potentials(list(rows))
        assert self.before is not None
        fits = (self.label[:, None] == self.before) | np.eye(len(self.label), dtype=bool)
        edge = np.where(fits, scores.edge, -np.inf)
        return ChainEngine().infer(Potentials(scores.node, edge, scores.topology), Semiring.LOG).node

    def state(self) -> State:
        """Header and arrays: the file that the model would have alone, within."""
        arrays = {"label": self.label} if self.before is None else {"label": self.label, "before": self.before}
        header = {"family": self.family, "setting": dict(self.setting)}
        return State(header, arrays).with_part("model", self.model._state())

    @classmethod
    def from_state(cls, state: State, n_labels: int, n_columns: int) -> Source:
        """The source whose `state` this is; ModelFileError for whatever does not fit."""
        family, setting = state.word("family", tuple(FAMILIES)), state.part("setting").header
        inner = state.part("model")
        if inner.header.get("kind") != FAMILIES[family].kind:
            refuse(f"a model of the family {family!r} must be of the kind {FAMILIES[family].kind!r}")
        if not all(isinstance(value, bool | int | float) for value in setting.values()):
            refuse("the settings of a source must be numbers")
        label = state.array("label", (None,), np.int64)
        before = state.array("before", label.shape, np.int64) if "before" in state.arrays else None
        for codes, least in ((label, 0), *(() if before is None else ((before, -1),))):
            if not len(codes) or codes.min() < least or codes.max() >= n_labels:
                refuse(f"the classes of a source must be some of {n_labels} labels")
        model = class_of(FAMILIES[family].kind)._from_state(inner)
        if len(model.classes_) != len(label):
            refuse(f"a source of {len(label)} classes has a model of {len(model.classes_)}")
        source = cls(family, setting, model, label, before)
        try:
            found = source.chances([np.zeros((1, n_columns))], n_labels)
        except InputError as error:
            refuse(f"the model of the family {family!r} does not read {n_columns} columns: {error}")
        if found.shape != (1, n_labels) or not np.isfinite(found).all():
            refuse(f"the model of the family {family!r} has no probabilities")
        return source


def _named(codes: np.ndarray) -> list[Any]:
    """Codes as labels, None where unknown."""
    return [None if code < 0 else code for code in codes.tolist()]


def _known_runs(rows: Rows, codes: Codes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Stretches of known labels as sequences of their own: where segments begin is not known past a gap.

    >>> rows, codes = _known_runs([np.arange(4.0)[:, None]], [np.array([0, -1, 1, 1])])
    >>> [own.ravel().tolist() for own in rows], [own.tolist() for own in codes]
    ([[0.0], [2.0, 3.0]], [[0], [1, 1]])
    """
    out: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for table, own in zip(rows, codes, strict=True):
        cuts = np.flatnonzero(np.diff(own < 0)) + 1
        for part, labels in zip(np.split(table, cuts), np.split(own, cuts), strict=True):
            if len(labels) and labels[0] >= 0:
                out[0].append(part)
                out[1].append(labels)
    return out
