"""Scores of single steps from a classifier that is a formula and tables.

    node(c) = weight · (max(log p(c | x), least) − log share(c))        p = softmax of the scores of the classifier

`LogitBoost` of stumps or trees, scikit-learn's ``LogisticRegression`` and `MaxentClassifier` score classes by tables
that can be written down. Any other classifier is asked row by row (`crfield.estimators.export.step_scores`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.boosting.weak_learners.state import Learner
from crfield.core.states import StateSpace
from crfield.data.large import ADVICE
from crfield.errors import FeatureError
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.export.columns import dense_names, is_dense, scaling
from crfield.estimators.export.step_scores import DenseSteps, hashed, observed_rows
from crfield.estimators.export.trees import TreeSteps, TreeTable
from crfield.estimators.export.written import Written, columns_read, forward_scores
from crfield.estimators.markov.classifiers import Classifier
from crfield.features.encoder import Encoder
from crfield.kernels.probabilities import log_sum

_LINK = """\
  double peak = -INFINITY, total = 0.0;
  for (int j = 0; j < NAME_SCORES; j++) peak = score[j] > peak ? score[j] : peak;
  for (int j = 0; j < NAME_SCORES; j++) total += exp(score[j] - peak);
  total = peak + log(total);
  for (int j = 0; j < NAME_SCORES; j++) {
    double log_share = score[j] - total;
    if (isnan(log_share)) return -2;
    score[j] = NAME_link[0] * ((log_share > NAME_link[1] ? log_share : NAME_link[1]) - NAME_log_shares[j]);
  }"""

_PYTHON_LINK = """\
    total = log_sum(score) if max(score) < inf else inf
    score = [value - total for value in score]  # where a score is infinite, NaN, which is refused
    score = [LINK[0] * ((v if not v < LINK[1] else LINK[1]) - share) for v, share in zip(score, LOG_SHARES)]"""


class ClassifierSteps:
    """Log probabilities of classes over their shares, from the scores of classes."""

    states: StateSpace | None = None  # scores are of labels

    def __init__(self, inner: DenseSteps | TreeSteps, *, log_shares: np.ndarray, weight: float, least: float) -> None:
        self.inner, self.log_shares, self.link = inner, log_shares, np.array([weight, least])
        self.start, self.end, self.transitions = inner.start, inner.end, inner.transitions
        self.varied, self.reach, self.names, self.n_columns = False, 0, inner.names, inner.n_columns

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns are read."""
        return columns_read(self.inner, self.n_columns)

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows (k, D)."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores, _ = self.inner.score(rows, pasts)
            logs = scores - log_sum(scores, axis=1)[:, None]
        if np.isnan(logs).any():
            row = int(np.isnan(logs).any(axis=1).argmax())
            x = observed_rows(rows, self.n_columns)
            column = int(np.nanargmax(np.abs(x[row])))
            name = f"x[{column}]" if self.names is None else self.names[column]
            raise FeatureError(
                f"sequence {row}, step 0: feature {name!r} is {x[row, column]:.6g}, and the classifier has no finite "
                f"probability there. {ADVICE}."
            )
        weight, least = self.link
        return weight * (np.maximum(logs, least) - self.log_shares), None

    def digest(self) -> str:
        """A word that differs between models."""
        return hashed(["classifier", self.inner.digest()], [self.log_shares, self.link])

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        return {**self.inner.tables(), "log_shares": self.log_shares, "link": self.link}

    def written(self) -> Written:
        """How a step is scored."""
        labels = len(self.log_shares)
        return self.inner.written().then(_LINK, _PYTHON_LINK, forward_scores(labels) + 4 * labels)


def classifier_steps(
    classifier: Classifier | None,
    encoder: Encoder,
    tables: dict[str, np.ndarray],
    *,
    log_shares: np.ndarray,
    weight: float,
    least: float,
) -> ClassifierSteps | str:
    """The scorer of a fitted classifier; where there is none, why: nothing where it is for the form of X."""
    if not is_dense(encoder):
        return ""
    scorer = _scores_of(classifier, encoder, tables, len(log_shares))
    if isinstance(scorer, str):
        return scorer
    return ClassifierSteps(scorer, log_shares=log_shares, weight=weight, least=least)


def _scores_of(
    classifier: Classifier | None, encoder: Encoder, tables: dict[str, np.ndarray], size: int
) -> DenseSteps | TreeSteps | str:
    """Scores of classes whose softmax the classifier gives, or why there are none."""
    from sklearn.linear_model import LogisticRegression

    from crfield.estimators.maxent.classifier import MaxentClassifier

    names, scale = dense_names(encoder), scaling(encoder)
    if classifier is None:  # one label
        return DenseSteps(np.zeros((len(names), size)), names=names, **scale, **tables)
    if isinstance(classifier, LogitBoost):
        inner = classifier._fitted
        steps = [(step, step.values) for step in inner.additive.steps if isinstance(step, Learner)]
        if len(steps) == len(inner.additive.steps):
            return TreeSteps(
                TreeTable.of_learners(steps, n_values=size),
                inner.additive.start,
                tables["transitions"],
                tables["start"],
                tables["end"],
                names,
                mean=scale.get("mean"),
                deviation=scale.get("deviation"),
            )
    fitted: Any = classifier
    if type(classifier) is LogisticRegression and (size == 2 or fitted.solver != "liblinear"):
        weights, bias = fitted.coef_.T, fitted.intercept_
        if size == 2:  # one row of weights, for the second class
            weights, bias = np.concatenate([np.zeros_like(weights), weights], axis=1), np.append(0.0, bias)
        return DenseSteps(np.ascontiguousarray(weights), bias=bias, names=names, **scale, **tables)
    if isinstance(classifier, MaxentClassifier) and classifier.coef_.ndim == 2:
        weights = np.ascontiguousarray(classifier.coef_.T)
        return DenseSteps(weights, bias=classifier.intercept_.copy(), names=names, **scale, **tables)
    return (
        f"the classifier {type(classifier).__name__} is code, which cannot be written to a file. Export with "
        "LogitBoost of stumps or trees, LogisticRegression or MaxentClassifier inside, or use TreeCRF."
    )
