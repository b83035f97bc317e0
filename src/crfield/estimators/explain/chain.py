"""`ChainCRF.explain` and `ChainCRF.feature_importance`: what the weights say of one step, and of a whole data set.

One sequence is encoded once. Its best labelling with the label in question, and the best one with another label at
that step, come from one masked sweep each; the difference of the two is listed weight by weight
(`crfield.scoring.contributions`) and named by the encoder, which makes no other names. Importances are
the same terms, averaged over the steps of a data set.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crfield.core.checks import integer
from crfield.core.typing import Labels, Sequences
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError
from crfield.estimators.chain.model import ColumnModel

if TYPE_CHECKING:
    from crfield.report.explain import Explanation
    from crfield.report.importance import ImportanceList


class ChainExplanations:
    """Explanations for estimators that hold a `ColumnModel` whose scores are sums of weights."""

    _sums_of_weights = True  # whether scores are plain sums of weights, as explanations need

    if TYPE_CHECKING:  # what a chain has

        def column_model(self, name: str) -> ColumnModel: ...
        def holding(self, model: Any, result: Any = None) -> Self: ...
        def predict(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray: ...
        def predict_proba(self, X: Sequences, *, known: Labels | None = None) -> np.ndarray: ...

    def _explained(self) -> ColumnModel:
        """Columns and weights; InputError where scores are not plain sums of weights."""
        model = self.column_model("explain")
        if not self._sums_of_weights:
            raise InputError(
                f"{type(self).__name__} normalises its scores step by step, so a margin is no sum of weights. "
                "Explanations are for ChainCRF."
            )
        return model

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
        from crfield.estimators.explain.margins import StepScores, contribution
        from crfield.report.explain import Explanation
        from crfield.scoring.contributions import path_difference

        model = self._explained()
        coder = model.labels
        _check_options(removals, reach)
        batch = model.encode([x])
        step = _check_step(step, batch.topology.n_nodes)
        predicted = _code(coder, self.predict([x])[0][step])
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
        chances = self.predict_proba([x])[0][step]
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
        self,
        X: Sequences,
        n: int | None = 20,
        *,
        measure: str = "margin",
        by: str | Callable[[str], str] = "feature",
    ) -> ImportanceList:
        """The n features that matter most for the labels of X, with their names; None for all that matter at all.

        ``measure="margin"`` is the mean over all steps of ``|value · (weight of the most probable label − weight of
        the second)|``: how much the feature has to do with the decisions. ``"deviation"`` is the deviation of the
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

        return column_importances(self._explained(), self.predict_proba, X, n, measure, by)


def _check_options(removals: int, reach: int | None) -> None:
    integer(0)("removals", removals)
    (integer(0) | None)("reach", reach)


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
