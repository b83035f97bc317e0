"""Predictions for people, or whatever groups recordings, by models that have not met them.

Windows of one person resemble each other more than those of another, so a fold that holds some of a person's windows
and tests on the rest flatters a model. `predict_by_group` leaves out whole groups: each in turn, or ``folds`` of them
dealt at random. What is to be chosen is chosen within the training groups: hand over a `BestChain`, whose ``fit``
takes groups, or a ``GridSearchCV``, and its inner folds get the groups too (its ``cv`` should then be one by groups,
such as ``GroupKFold``).

Scores are of groups, which are what is independent: the mean over groups has an interval, one over windows has not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crfield.core.typing import Labels, Sequences
from crfield.errors import InputError
from crfield.metrics import edit_score, label_f1, segment_f1, segment_report, token_accuracy
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.metrics.segment_scores import SegmentReport


def accuracy(y_true: Labels, y_pred: Labels) -> float:
    """Share of right steps."""
    return token_accuracy(y_true, y_pred)


def macro_f1(y_true: Labels, y_pred: Labels) -> float:
    """Mean F1 of the labels that the truth holds.

    >>> macro_f1([["a", "a", "b"]], [["a", "c", "b"]])
    0.8333333333333333
    """
    held = {label for row in y_true for label in row if label is not None}
    return label_f1(y_true, y_pred, average="macro", labels=sorted(held, key=str))


MEASURES: Mapping[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "macro F1": macro_f1,
    "segment F1@25": lambda y_true, y_pred: segment_f1(y_true, y_pred, overlap=0.25),
    "segment F1@50": lambda y_true, y_pred: segment_f1(y_true, y_pred, overlap=0.5),
    "edit": edit_score,
}


@dataclass(frozen=True, eq=False)
class GroupPredictions(ShownAsTables):
    """What was predicted for every sequence by a model that was not trained on its group.

    >>> found = GroupPredictions(("ann", "bob"), (("a", "b"), ("a", "a")), (("a", "b"), ("a", "b")))
    >>> found.scores()["accuracy"]
    {'ann': 1.0, 'bob': 0.5}
    """

    groups: tuple[Hashable, ...]  # of every sequence
    truth: tuple[Any, ...]
    predicted: tuple[Any, ...]
    chosen: tuple[Any, ...] = ()  # of every fold: the parameters a search chose, None without one

    def scores(self) -> dict[str, dict[Hashable, float]]:
        """Every measure of every group: accuracy, macro F1, segment F1 at 25 and 50 % overlap, edit score."""
        out: dict[str, dict[Hashable, float]] = {}
        for name, measure in MEASURES.items():
            out[name] = {}
            for group in dict.fromkeys(self.groups):
                own = [k for k, other in enumerate(self.groups) if other == group]
                out[name][group] = float(measure([self.truth[k] for k in own], [self.predicted[k] for k in own]))
        return out

    def segments(self) -> SegmentReport:
        """Segments of all groups together, and their mistakes by kind."""
        return segment_report(self.truth, self.predicted)

    def _tables(self) -> list[Table]:
        values = [[*own.values(), float(np.mean(list(own.values())))] for own in self.scores().values()]
        names = [*map(str, dict.fromkeys(self.groups)), "mean"]
        rows = [[name, *(f"{own[k]:.3f}" for own in values)] for k, name in enumerate(names)]
        return [Table(["group", *MEASURES], rows)]

    def __str__(self) -> str:
        (table,) = self._tables()
        lines = [table.head, *table.rows]
        wide = [max(len(line[0]) for line in lines), *map(len, table.head[1:])]
        return "\n".join(
            "  ".join([f"{line[0]:<{wide[0]}}", *(f"{text:>{w}}" for text, w in zip(line[1:], wide[1:]))])
            for line in lines
        )


class Predictor(Protocol):
    """An estimator of scikit-learn, or a search around one."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from X and y."""
        ...

    def predict(self, X: Any) -> Any:
        """Labels of X."""
        ...


def predict_by_group(
    estimator: Predictor,
    X: Sequences,
    y: Labels,
    groups: Sequence[Hashable],
    *,
    folds: int | None = None,
    random_state: int = 0,
) -> GroupPredictions:
    """Train on all groups but some and predict those; each group once.

    >>> from crfield import ChainCRF
    >>> X = [[["x"], ["z"], ["z"], ["x"]], [["x"], ["x"], ["z"]], [["z"], ["x"]]]
    >>> y = [["a", "b", "b", "a"], ["a", "a", "b"], ["b", "a"]]
    >>> found = predict_by_group(ChainCRF(l2=0.1), X, y, groups=["ann", "bob", "cy"])
    >>> found.scores()["accuracy"]
    {'ann': 1.0, 'bob': 1.0, 'cy': 1.0}
    """
    from sklearn.base import clone
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils.validation import has_fit_parameter

    X, y, groups = list(X), list(y), list(groups)
    if not len(X) == len(y) == len(groups):
        raise InputError(f"X, y and groups must be equally long, got {len(X)}, {len(y)} and {len(groups)}.")
    names = list(dict.fromkeys(groups))
    count = len(names) if folds is None else int(folds)
    if not 2 <= count <= len(names):
        raise InputError(f"folds must lie in 2 … {len(names)}, the number of groups, got {count}.")
    order = list(range(len(names))) if folds is None else np.random.default_rng(random_state).permutation(len(names))
    asks = isinstance(estimator, BaseSearchCV) or has_fit_parameter(estimator, "groups")
    predicted: list[Any] = [None] * len(X)
    chosen = []
    for left in np.array_split(order, count):
        out = {names[k] for k in left}
        learn = [k for k, group in enumerate(groups) if group not in out]
        test = [k for k, group in enumerate(groups) if group in out]
        options = {"groups": [groups[k] for k in learn]} if asks else {}
        model = clone(estimator).fit([X[k] for k in learn], [y[k] for k in learn], **options)
        for k, labels in zip(test, model.predict([X[k] for k in test]), strict=True):
            predicted[k] = labels
        chosen.append(getattr(model, "best_params_", None))
    return GroupPredictions(tuple(groups), tuple(y), tuple(predicted), tuple(chosen))
