"""`ChainCRF.explain` and `ChainCRF.feature_importance`: what the weights say of one step, and of a whole data set.

One sequence is encoded once. Its best labelling with the label in question, and the best one with another label at
that step, come from one masked sweep each; the difference of the two is listed weight by weight
(`crfield.scoring.contributions`) and named by the encoder, which makes no other names. Importances are
the same terms, averaged over the steps of a data set.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError
from crfield.estimators.chain.model import ColumnModel
from crfield.inference.chain import ChainEngine
from crfield.inference.max_marginals import MaxMarginals
from crfield.report.explain import PAIRS, Contribution, Explanation, LabelRun
from crfield.report.importance import ImportanceList
from crfield.report.weights import LabelPair
from crfield.scoring.contributions import Term, path_difference
from crfield.scoring.higher_order import RunLayout, RunScores


@dataclass(frozen=True, eq=False)
class StepScores:
    """Scores of one encoded sequence, plain or of higher order, with masked decoding."""

    node: np.ndarray  # (T, L)
    scores: Potentials | RunScores

    @classmethod
    def of(cls, model: ColumnModel, batch: Batch) -> StepScores:
        """The scores that the model gives the batch."""
        if isinstance(model.layout, RunLayout):
            scores: Potentials | RunScores = RunScores.of(model.layout, model.weights, batch)
        else:
            scores = Potentials(*model.tagger.scores(batch), batch.topology)
        return cls(scores.node, scores)

    def only(self, step: int, allowed: np.ndarray) -> np.ndarray:
        """Node scores in which the step may only have the labels allowed (L,) bool."""
        node = self.node.copy()
        node[step, ~allowed] = -np.inf
        return node

    def best(self, node: np.ndarray) -> tuple[float, np.ndarray]:
        """Score and labels of the best labelling under node scores."""
        if isinstance(self.scores, RunScores):
            total, path = self.scores.best(node)
        else:
            total, path = ChainEngine().best_path(Potentials(node, self.scores.edge, self.scores.topology))
        return float(total[0]), path

    def max_marginals(self, node: np.ndarray) -> MaxMarginals:
        """The best score of every label at every step under node scores."""
        if isinstance(self.scores, RunScores):
            runs = self.scores.runs
            return MaxMarginals.of(node, self.scores.score[None], after=runs.after, label=runs.label)
        return MaxMarginals.of(node, self.scores.edge)


class ChainExplanations:
    """Explanations for estimators that hold a `ColumnModel` whose scores are sums of weights."""

    _sums_of_weights = True  # whether scores are plain sums of weights, as explanations need

    def explain(
        self,
        x: Any,
        step: int,
        *,
        label: Hashable | None = None,
        against: Hashable | None = None,
        removals: int = 10,
        reach: int | None = 2,
    ) -> Explanation:
        """Why sequence x has its label at a step: the margin over the runner-up, in its parts.

        The runner-up is the best labelling with another label there. ``label`` asks about another label than the one
        predicted, ``against`` names the one to compare with. Up to ``removals`` present features, of steps at most
        ``reach`` away (None: anywhere), are then set aside one after the other, each time the one that lowers the
        margin most, until another label is predicted; 0 leaves that out.

        >>> from crfield import ChainCRF
        >>> X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]]]
        >>> model = ChainCRF(l2=0.1).fit(X, [["D", "N", "V"], ["D", "N"]])
        >>> told = model.explain(X[0], 1)
        >>> told.label, told.other, [c.name for c in told.top(2)]
        ('N', 'D', ['(transition)', 'w=dog'])
        >>> abs(sum(c.amount for c in told.contributions) - told.margin) < 1e-9
        True
        """
        from crfield.estimators.explain.counterfactual import find_flip

        model, coder = explainable(self), self._coder  # type: ignore[attr-defined]
        _check_options(removals, reach)
        batch = model.encode([x])
        step = _check_step(step, batch.topology.n_nodes)
        predicted = _code(coder, self.predict([x])[0][step])  # type: ignore[attr-defined]
        chosen = predicted if label is None else _code(coder, label)
        rival = None if against is None else _code(coder, against)
        if rival == chosen:
            raise InputError(f"label and against are both {coder.labels[chosen]!r}: name two different labels.")
        scores = StepScores.of(model, batch)
        total, path = scores.best(scores.only(step, _one(coder.n_labels, chosen)))
        if np.isneginf(total):
            raise LabelError(f"step {step} cannot be {coder.labels[chosen]!r}: the constraints forbid it there.")
        others = ~_one(coder.n_labels, chosen) if rival is None else _one(coder.n_labels, rival)
        other_total, other_path = scores.best(scores.only(step, others))
        if rival is not None and np.isneginf(other_total):
            raise LabelError(f"step {step} cannot be {against!r}: the constraints forbid it there.")
        flip = None
        if removals and chosen == predicted:
            flip = find_flip(self, model, batch, step, chosen, removals=removals, reach=reach)
        chances = self.predict_proba([x])[0][step]  # type: ignore[attr-defined]
        labels = coder.labels
        if np.isneginf(other_total):
            return Explanation(
                step, labels[chosen], None, float("inf"), float(chances[chosen]), 0.0, _named(labels, path), None, (),
                flip,
            )  # fmt: skip
        terms = path_difference(model.layout, model.weights, batch, path, other_path)
        contributions = [contribution(model, labels, term, path, other_path) for term in terms]
        contributions.sort(key=lambda item: (-abs(item.amount), abs(item.step - step), item.step, item.name))
        other = int(other_path[step])
        return Explanation(
            step=step,
            label=labels[chosen],
            other=labels[other],
            margin=total - other_total,
            probability=float(chances[chosen]),
            other_probability=float(chances[other]),
            labels=_named(labels, path),
            other_labels=_named(labels, other_path),
            contributions=tuple(contributions),
            flip=flip,
        )

    def feature_importance(
        self, X: Any, n: int | None = 20, *, measure: str = "margin", by: Any = "feature"
    ) -> ImportanceList:
        """The n features that matter most for the labels of X, with their names; None for all that matter at all.

        ``measure="margin"`` is the mean over all steps of |value · (weight of the most probable label − weight of the
        second)|: how much the feature has to do with the decisions made. ``"deviation"`` is the deviation of the
        column over the steps times the difference of its largest and least weight, whatever is decided.
        ``by="field"`` adds up features whose names agree up to the first ``=`` or ``:``; a function of a name makes
        other groups.

        >>> from crfield import ChainCRF
        >>> X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]]]
        >>> model = ChainCRF(l2=0.1).fit(X, [["D", "N", "V"], ["D", "N"]])
        >>> [item.name for item in model.feature_importance(X, 2)], model.feature_importance(X, by="field")[0].name
        (['(transition)', '(start)'], 'w')
        """
        from crfield.estimators.explain.importance import column_importances

        return column_importances(self, explainable(self), X, n, measure, by)


def explainable(estimator: Any) -> ColumnModel:
    """The columns and weights of a fitted chain; InputError where scores are not plain sums of weights."""
    model: ColumnModel = estimator._columns("explain")
    if not estimator._sums_of_weights:
        raise InputError(
            f"{type(estimator).__name__} normalises its scores step by step, so a margin is no sum of weights. "
            "Explanations are for ChainCRF."
        )
    return model


def contribution(
    model: ColumnModel, labels: list[Hashable], term: Term, path: np.ndarray, other: np.ndarray
) -> Contribution:
    """A term with the name of its feature and the labels that it scores."""
    t, kind = term.step, term.kind

    def scored(own: np.ndarray) -> Hashable:
        if kind == "runs":
            return LabelRun(labels[k] for k in own[t - term.column + 1 : t + 1])
        return LabelPair(labels[own[t - 1]], labels[own[t]]) if kind in PAIRS else labels[own[t]]

    name = feature_name(model, kind, term.column)
    return Contribution(name, t, scored(path), scored(other), term.value, term.weight, term.other, term.amount, kind)


def feature_name(model: ColumnModel, kind: str, column: int = -1) -> str:
    """Name of a column, or of what else has a score."""
    encoder = model.encoder
    named = {
        "node": encoder.node_name,
        "dense": encoder.dense_name,
        "edge": encoder.edge_name,
        "edge_dense": encoder.edge_dense_name,
    }
    if kind in named:
        return named[kind](column)
    if kind == "runs":
        return f"({column} labels in a row)"
    others = {"transitions": "(transition)", "fixed_edge": "(rule)"}
    return others.get(kind, "(" + kind.replace("fixed_", "rule of the ") + ")")


def _check_options(removals: int, reach: int | None) -> None:
    for name, value in (("removals", removals), ("reach", reach)):
        whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0
        if not whole and not (name == "reach" and value is None):
            raise InputError(f"{name} must be a whole number of at least 0, got {value!r}.")


def _check_step(step: Any, length: int) -> int:
    if isinstance(step, bool) or not isinstance(step, Integral) or not -length <= int(step) < length:
        steps = f"steps 0 … {length - 1}" if length else "no steps"
        raise InputError(f"step must be one of the sequence's, which has {steps}, got {step!r}.")
    return int(step) % length


def _code(coder: LabelCoder, label: Any) -> int:
    plain = label.item() if isinstance(label, np.generic) else label
    if plain not in coder.labels:
        raise LabelError(f"label {plain!r} is unknown; the model knows {coder.labels[:20]}.")
    return coder.labels.index(plain)


def _one(size: int, code: int) -> np.ndarray:
    return np.arange(size) == code


def _named(labels: list[Hashable], path: np.ndarray) -> tuple[Hashable, ...]:
    return tuple(labels[k] for k in path)
