"""What a classifier of single points says of their labels, before they hear of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.base.sklearn_parts import fit_clone, node_weights, not_stored
from crfield.estimators.dense.points import SUREST
from crfield.storage.state import State


@dataclass(frozen=True, eq=False)
class LocalClassifier:
    """A classifier of colours (N, C), which it sees brought to mean 0 and deviation 1."""

    classifier: Any
    centre: np.ndarray  # (C,)
    scale: np.ndarray  # (C,)
    n_labels: int

    def opinions(self, colours: np.ndarray) -> np.ndarray:
        """(N, L) log-probabilities; labels that the classifier has not seen are as good as impossible."""
        found = self.classifier.predict_proba((colours - self.centre) / self.scale)
        table = np.full((len(colours), self.n_labels), SUREST)
        table[:, np.asarray(self.classifier.classes_, np.int64)] = np.clip(found, SUREST, 1.0)
        return np.log(table / table.sum(axis=1, keepdims=True))

    def state(self) -> State:
        """Header and arrays; InputError for a classifier that is more than a few arrays and a formula."""
        from sklearn.linear_model import LogisticRegression

        own = self.classifier
        if type(own) is not LogisticRegression:
            raise InputError(not_stored("local classifier", own, "logistic regression"))
        arrays = {"coef": own.coef_, "intercept": own.intercept_, "centre": self.centre, "scale": self.scale}
        arrays = {name: np.asarray(values, np.float64) for name, values in arrays.items()}
        return State({}, {**arrays, "classes": np.asarray(own.classes_, np.int64)})

    @classmethod
    def from_state(cls, state: State, labels: LabelCoder) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        from sklearn.linear_model import LogisticRegression

        from crfield.storage.state import refuse

        centre = state.array("centre", (None,))
        scale, classes = state.array("scale", (len(centre),)), state.array("classes", (None,), np.int64)
        if not (scale > 0).all() or len(classes) < 2 or (np.diff(classes) <= 0).any():
            refuse("the local classifier's scales and classes cannot be used")
        if classes[0] < 0 or classes[-1] >= labels.n_labels:
            refuse("the local classifier knows labels that the model does not")
        rows = 1 if len(classes) == 2 else len(classes)
        made = LogisticRegression()
        made.classes_, made.n_features_in_ = classes, len(centre)
        made.coef_, made.intercept_ = state.array("coef", (rows, len(centre))), state.array("intercept", (rows,))
        return cls(made, centre, scale, labels.n_labels)


def fit_local(
    classifier: Any,
    colours: np.ndarray,
    codes: np.ndarray,
    image_of: np.ndarray,
    weight: np.ndarray | None,
    n_labels: int,
    *,
    folds: int,
) -> tuple[LocalClassifier, np.ndarray]:
    """The classifier on all points whose label is known, and opinions (N, L) of each by others than its image.

    A classifier is surer of what it has seen, and a field fitted to such certainty would be too weak for new images.
    """
    if classifier is None:
        from sklearn.linear_model import LogisticRegression

        classifier = LogisticRegression(max_iter=1000)
    role = "the local classifier"
    if not colours.shape[1]:
        raise InputError("points without colours tell a local classifier nothing: give unary, or more columns.")
    known = np.flatnonzero(codes >= 0)
    if len(np.unique(codes[known])) < 2:
        raise InputError("at least two labels must be met on points whose label is known, or unary be given.")
    centre, scale = colours.mean(axis=0), colours.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    rows = (colours - centre) / scale

    def fitted(chosen: np.ndarray, told: str) -> LocalClassifier:
        options = node_weights(classifier, weight, chosen, role=told)
        made = fit_clone(classifier, rows[chosen], codes[chosen], role=role, **options)
        return LocalClassifier(made, centre, scale, n_labels)

    taught = fitted(known, role)
    opinions = taught.opinions(colours)
    folds = min(folds, int(image_of[-1]) + 1 if len(image_of) else 0)
    for fold in range(folds if folds > 1 else 0):
        held = image_of % folds == fold
        rest = known[~held[known]]
        if held.any() and len(np.unique(codes[rest])) == len(np.unique(codes[known])):
            opinions[held] = fitted(rest, "").opinions(colours[held])
    return taught, opinions
