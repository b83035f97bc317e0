"""Classifiers of rows: what they read and answer, and the answers that follow from scores.

A model of this kind scores the rows of a matrix, (N, K) for K classes; everything else is the same for all of them
and stands here: decisions, probabilities, and the place of classes and columns in a model file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from crfield.core.checks import Check, seed
from crfield.core.estimator import ClassifierMixin, Tags
from crfield.core.parameters import learnt
from crfield.core.typing import Seed, Tabular, Weights
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.base.fitted import Fitted, Model
from crfield.storage.state import State, refuse

row_seed = seed | Check("a RandomState", lambda value: isinstance(value, np.random.RandomState))


@dataclass(frozen=True, eq=False)
class RowTask:
    """The classes that are answered, and the columns that are read, if rows are those of a matrix.

    >>> task = RowTask(np.array([0, 1]), 2)
    >>> RowTask.from_state(task.state()).classes.dtype
    dtype('int64')
    """

    classes: np.ndarray  # (K,) in their order
    n_columns: int | None = None
    column_names: np.ndarray | None = None  # of a data frame

    @classmethod
    def of(cls, model: object, classes: np.ndarray) -> RowTask:
        """The task of an estimator whose X scikit-learn has looked at."""
        return cls(classes, getattr(model, "n_features_in_", None), getattr(model, "feature_names_in_", None))

    def state(self) -> State:
        """A header."""
        names = self.column_names
        return State(
            {
                "classes": [label_to_json(label) for label in self.classes.tolist()],
                "numbers": str(self.classes.dtype) if self.classes.dtype.kind in "biuf" else None,
                "n_features_in": self.n_columns,
                "feature_names_in": None if names is None else [str(name) for name in names],
            }
        )

    @classmethod
    def from_state(cls, state: State) -> RowTask:
        """The task whose `state` this is; ModelFileError for whatever does not fit."""
        given, names, n_columns = state.listed("classes"), state.header.get("feature_names_in"), None
        if not given:
            refuse("the model file lacks its classes")
        classes = LabelCoder.from_classes([label_from_json(label) for label in given]).classes_
        if state.header.get("numbers") is not None:
            classes = _as_numbers(classes, state.word("numbers"))
        if state.header.get("n_features_in") is not None:
            n_columns = state.integer("n_features_in", least=1)
        if names is None:
            return cls(classes, n_columns)
        if not isinstance(names, list) or len(names) != n_columns or not all(isinstance(n, str) for n in names):
            refuse(f"the model file's names of columns do not fit its {n_columns} columns")
        return cls(classes, n_columns, np.array(names, dtype=object))


def _as_numbers(classes: np.ndarray, name: str) -> np.ndarray:
    try:
        kind = np.dtype(name)
        if kind.kind in "biuf":
            return classes.astype(kind)
    except (TypeError, ValueError):
        pass
    refuse(f"the model file's classes are not {name!r:.20}")


class RowModel(Model, Protocol):
    """The fitted value of a classifier of rows."""

    @property
    def task(self) -> RowTask:
        """Classes and columns."""
        ...


M = TypeVar("M", bound=RowModel)


class RowClassifier(ClassifierMixin, Fitted[M]):
    """Answers of a model that scores rows."""

    classes_: np.ndarray = learnt()
    solver_: str = learnt()
    reported = (*Fitted.reported, "solver_")

    def _show(self, model: M) -> None:
        task = model.task
        self.classes_ = task.classes
        if task.n_columns is not None:
            self.n_features_in_ = task.n_columns
        if task.column_names is not None:
            self.feature_names_in_ = task.column_names

    def _scores(self, X: Tabular) -> np.ndarray:
        """The scores (N, K) of X."""
        raise NotImplementedError

    def decision_function(self, X: Tabular) -> np.ndarray:
        """Scores (N, K), or for two classes the difference (N,) of the second and the first."""
        return decisions(self._scores(X))

    def predict_log_proba(self, X: Tabular) -> np.ndarray:
        """Logs of the probabilities (N, K)."""
        return log_probabilities(self._scores(X))

    def predict_proba(self, X: Tabular) -> np.ndarray:
        """Probabilities (N, K) in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Tabular) -> np.ndarray:
        """The classes of highest score (N,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def decisions(scores: np.ndarray) -> np.ndarray:
    """Scores (N, K), or for two classes the difference (N,) of the second and the first."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Logs of the probabilities (N, K) that scores (N, K) stand for.

    >>> np.exp(log_probabilities(np.array([[0.0, np.log(3.0)]]))).round(2).tolist()
    [[0.25, 0.75]]
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def column_names(model: object) -> Callable[[int], str]:
    """Names of the columns of a classifier's X: those of a data frame, or x[0], x[1] …

    >>> from types import SimpleNamespace
    >>> column_names(SimpleNamespace())(2)
    'x[2]'
    """
    given = getattr(model, "feature_names_in_", None)
    return (lambda column: f"x[{column}]") if given is None else (lambda column: str(given[column]))


def seed_of(random_state: Seed) -> Any:
    """The random state itself; a RandomState, as scikit-learn hands on, becomes a seed drawn from a copy of it.

    >>> seed_of(3), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (3, True)
    """
    if isinstance(random_state, np.random.RandomState):
        copy = np.random.RandomState()
        copy.set_state(random_state.get_state())
        return int(copy.randint(2**31))
    return random_state


def weighted_rows(sample_weight: Weights, n_rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers of the rows that count, and their weights; all of them, and None, where nothing is given.

    >>> weighted_rows([0, 2.0], 2)
    (array([1]), array([2.]))
    """
    if sample_weight is None:
        return np.arange(n_rows), None
    from sklearn.utils.validation import _check_sample_weight

    rows = np.zeros((n_rows, 1))
    weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weight > 0)
    if not len(kept):
        raise InputError("sample_weight must be above 0 for some row, got 0 everywhere.")
    return kept, weight[kept]
