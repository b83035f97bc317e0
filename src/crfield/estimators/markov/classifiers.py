"""Classifiers of single steps that a model file can hold, as arrays and a formula.

`LogitBoost` with stumps or trees, and scikit-learn's logistic regression. Any other is code and arrays at once, and a
model file holds no code: it is refused with a hint.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crfield.boosting.logit_rounds import AdditiveLogit
from crfield.boosting.round_table import RoundTable
from crfield.boosting.weak_learners.state import steps_from_state, steps_state
from crfield.errors import InputError, ModelFileError
from crfield.estimators.base.rows import RowTask
from crfield.estimators.base.sklearn_parts import not_stored
from crfield.estimators.boosted.logit_boost import BoostedRows, LogitBoost
from crfield.storage.state import Header, State

_BOOST, _LOGISTIC, _NONE = "logit_boost", "logistic_regression", "none"


class Classifier(Protocol):
    """What is asked of a fitted classifier."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (N, K) of the classes of rows."""
        ...


def step_classifier(name: str, value: object) -> None:
    """InputError unless it is an estimator of probabilities, or None.

    >>> step_classifier("classifier", LogitBoost)
    Traceback (most recent call last):
    crfield.errors.InputError: classifier must be an object with fit and predict_proba, got the class LogitBoost. ...
    """
    if value is None or (not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "predict_proba")):
        return
    got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise InputError(
        f"{name} must be an object with fit and predict_proba, got {got}. Wrap one without probabilities in "
        "sklearn.calibration.CalibratedClassifierCV."
    )


def classifier_state(classifier: Classifier | None, *, given: bool) -> State:
    """Header and arrays of a fitted classifier, which the user has given or not; InputError where it is code.

    >>> classifier_state(None, given=False).header
    {'given': False, 'type': 'none'}
    """
    from sklearn.linear_model import LogisticRegression

    header: Header = {"given": given}
    if classifier is None:
        return State({**header, "type": _NONE})
    if type(classifier) is LogisticRegression:
        arrays = {name: getattr(classifier, f"{name}_") for name in ("coef", "intercept")}
        return State({**header, "type": _LOGISTIC}, arrays)
    if type(classifier) is not LogitBoost or not isinstance(classifier.learner, str):
        raise InputError(
            not_stored("classifier", classifier, "a LogitBoost of stumps or trees, or a LogisticRegression")
        )
    inner = classifier._fitted.additive
    told = {"parameters": classifier._stored_parameters(), "rounds": classifier.rounds_.to_json()}
    arrays = {"start": inner.start, **steps_state(inner.steps, len(inner.start)).arrays}
    return State({**header, "type": _BOOST, **told}, {name: np.ascontiguousarray(a) for name, a in arrays.items()})


def classifier_from_state(state: State, n_labels: int, width: int) -> Classifier | None:
    """The classifier of ``width`` columns whose `classifier_state` this is; None where there is one label alone."""
    kind = state.header.get("type")
    if kind == _NONE and n_labels == 1:
        return None
    if kind == _LOGISTIC and n_labels > 1:
        from sklearn.linear_model import LogisticRegression

        rows, model = 1 if n_labels == 2 else n_labels, LogisticRegression()
        model.coef_, model.intercept_ = state.array("coef", (rows, width)), state.array("intercept", (rows,))
        model.classes_, model.n_features_in_ = np.arange(n_labels, dtype=np.int32), width
        return model
    if kind == _BOOST and n_labels > 1:
        boosted = LogitBoost._with_parameters(state)
        boosted.discrete = tuple(boosted.discrete)
        additive = AdditiveLogit(state.array("start", (n_labels,)), steps_from_state(state, n_labels, width))
        rounds = RoundTable.from_json(state.header.get("rounds"))
        task = RowTask(np.arange(n_labels, dtype=np.int32), width)
        return boosted._learn(BoostedRows(task, additive, {}, rounds))
    raise ModelFileError(f"the model file's classifier {kind!r:.40} cannot be read: the file is damaged or newer.")
