"""`LogitBoost`: additive logistic regression of stumps, trees or any regressor, with or without virtual evidence.

A classifier of single rows, no random field: what the fields of this house are compared with, where their features
come from, and a good classifier in its own right. Each round is a Newton step of the log-likelihood (Friedman, Hastie
& Tibshirani 2000, *Additive logistic regression: a statistical view of boosting*), so with the default learning rate
of 1 a few dozen rounds do what gradient boosting takes hundreds for.

Columns are cut into bins once; a round then costs N · F / 2 additions or fewer (`crfield.kernels.boost`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from crfield.boosting.logit_rounds import AdditiveLogit, Regressors, Rows, Stumps, Trees, boost_rounds
from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.evidence import Evidence, EvidenceTable
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import LEAST_WEIGHT
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.core.checks import resolve_jobs
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.errors import InputError, NotFittedError, ShapeError
from crfield.estimators.base.progress import Progress
from crfield.estimators.boosted.boost_checks import check_boost_parameters


class _NotFitted(NotFittedError, SklearnNotFittedError):
    """As scikit-learn's tools expect it, and ours."""


class LogitBoost(ClassifierMixin, Estimator):
    """Boosted stumps, trees or regressors for two classes or more.

    X is (n_rows, n_columns), dense or sparse; NaN is a missing value. Attributes that are known by a distribution
    instead of a value are given beside it: ``fit(X, y, evidence={"name": (n_rows, n_values)})``, and again when
    predicting.

    Parameters
    ----------
    n_rounds : int
        Rounds at most.
    learner : "stump", "tree" or a regressor
        What a round fits. A regressor of scikit-learn is cloned for each class and round; it must take weights.
    max_depth, min_leaf : int
        Of trees: cuts on a path, and rows in a leaf.
    learning_rate : float
        Share of each step that is taken.
    response_limit : float
        Bound of the working responses; 4 is usual. Without a bound one outlier may rule a round.
    bound : "responses" or "weights"
        How the bound is kept. The usual way clips responses, which is good for decisions, but presses the
        probabilities of classes that are rarer than 1 / ``response_limit``. "weights" keeps the weights of rows at
        1 / ``response_limit`` or more instead, which has the same effect on outliers and leaves probabilities right.
    ridge : float
        Added to the weights of a leaf, against leaves of few and certain rows.
    max_bins : int
        Bins of a column, 2 to 255: quantiles where a column has more values.
    discrete : sequence of int or str
        Columns, by number or name, whose values are categories.
    start : "prior" or "zero"
        Scores before the first round.
    n_iter_no_change : int, optional
        With a number, a share ``validation_fraction`` of the rows is held out, rounds end when so many in a row lower
        the held-out loss by no more than ``tol``, and those after the best are dropped.
    validation_fraction, tol : float
        For that.
    n_jobs : int, optional
        Threads; the model is the same for any number.
    random_state : int, RandomState or None
        Chooses the rows held out.
    verbose : int
        1 for a line of progress.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As usual.
    rounds_ : RoundTable
        What was picked when, with its gain.
    n_iter_ : int
        Rounds that were kept.
    feature_importances_ : array
        Share of each column in the gains of all rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import LogitBoost
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = np.where(X[:, 1] + X[:, 3] > 0, "up", "down")
    >>> model = LogitBoost(n_rounds=30).fit(X, y)
    >>> model.score(X, y) > 0.95, model.feature_importances_.argsort()[-2:].tolist()
    (True, [1, 3])
    >>> model.rounds_[:2].picks
    ['x[3] > 0.203546', 'x[1] > 0.0850473']
    """

    file_kind = "logit_boost"

    def __init__(
        self,
        *,
        n_rounds: int = 100,
        learner: Any = "stump",
        max_depth: int = 2,
        min_leaf: int = 1,
        learning_rate: float = 1.0,
        response_limit: float = 4.0,
        bound: str = "responses",
        ridge: float = 0.0,
        max_bins: int = 32,
        discrete: Any = (),
        start: str = "prior",
        n_iter_no_change: int | None = None,
        validation_fraction: float = 0.1,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_rounds = n_rounds
        self.learner = learner
        self.max_depth = max_depth
        self.min_leaf = min_leaf
        self.learning_rate = learning_rate
        self.response_limit = response_limit
        self.bound = bound
        self.ridge = ridge
        self.max_bins = max_bins
        self.discrete = discrete
        self.start = start
        self.n_iter_no_change = n_iter_no_change
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, evidence: Mapping[str, Any] | None = None) -> Self:
        """Fit rounds to rows X (N, F) with classes y (N,); rows of weight 0 are left out."""
        check_boost_parameters(self.get_params(deep=False))
        jobs = resolve_jobs(self.n_jobs)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csc",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            ensure_min_samples=1,
        )
        check_classification_targets(y)
        seen = Evidence(evidence, X.shape[0])
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            kept = weight > 0
            if not kept.any():
                raise InputError("sample_weight must be above 0 for some row, got 0 everywhere.")
            if not kept.all():
                X, y, seen, weight = X[np.flatnonzero(kept)], y[kept], seen.rows(kept), weight[kept]
        classes, codes = np.unique(y, return_inverse=True)
        rows = Rows(X, seen, codes.astype(np.int32), weight)
        rows, held = self._held_out(rows)
        model, diary = self._boost(rows, held, len(classes), jobs)
        self.classes_, self.rounds_, self.n_iter_ = classes, RoundTable(diary), len(model.steps)
        self._model, self._evidence = model, dict(zip(seen.names, seen.widths, strict=True))
        return self

    def _boost(self, rows: Rows, held: Rows | None, n_classes: int, jobs: int) -> tuple[AdditiveLogit, list[Round]]:
        learner = self._learner(jobs)
        if isinstance(learner, Regressors):
            cut = Candidates.of(np.zeros((len(rows.labels), 1)))
        else:
            cut = Candidates.of(rows.columns, max_bins=self.max_bins, discrete=self._discrete(), n_jobs=jobs)
        began = time.perf_counter()
        with Progress(self.verbose, self.n_rounds, "LogitBoost") as progress:

            def after(made: Round, slope: float) -> None:
                step = SimpleNamespace(
                    n_iter=made.number,
                    value=made.nll,
                    gradient_norm=slope,
                    n_active=made.number,
                    seconds=time.perf_counter() - began,
                )
                progress.update(step)

            return boost_rounds(
                rows,
                cut,
                learner,
                n_classes,
                n_rounds=self.n_rounds if n_classes > 1 else 0,
                learning_rate=self.learning_rate,
                limit=self.response_limit,
                least=LEAST_WEIGHT if self.bound == "responses" else 1.0 / self.response_limit,
                ridge=self.ridge,
                start=self.start,
                held=held,
                patience=self.n_iter_no_change,
                tol=self.tol,
                n_jobs=jobs,
                name=self._name,
                after=after if self.verbose else None,
            )

    def _held_out(self, rows: Rows) -> tuple[Rows, Rows | None]:
        if self.n_iter_no_change is None:
            return rows, None
        from sklearn.model_selection import train_test_split

        count = np.bincount(rows.labels)
        n_held = max(1, round(self.validation_fraction * len(rows.labels)))
        if n_held >= len(rows.labels):
            raise InputError(
                f"n_iter_no_change needs rows to hold out and rows to fit, got {len(rows.labels)} in all. "
                "Set it to None for so few."
            )
        each = min(n_held, len(rows.labels) - n_held) >= len(count) and count.min() > 1
        inner, outer = train_test_split(
            np.arange(len(rows.labels)),
            test_size=n_held,
            random_state=self.random_state,
            stratify=rows.labels if each else None,
        )

        def some(chosen: np.ndarray) -> Rows:
            weight = None if rows.weight is None else rows.weight[chosen]
            return Rows(rows.columns[chosen], rows.evidence.rows(chosen), rows.labels[chosen], weight)

        return some(np.sort(inner)), some(np.sort(outer))

    def _learner(self, jobs: int) -> Any:
        if isinstance(self.learner, str):
            if self.learner == "stump":
                return Stumps(self.ridge, jobs)
            return Trees(self.max_depth, self.min_leaf, self.ridge, jobs)
        return Regressors(self.learner)

    def _discrete(self) -> list[int]:
        names = list(getattr(self, "feature_names_in_", ()))
        found = []
        for one in self.discrete:
            if isinstance(one, str):
                if one not in names:
                    raise InputError(f"discrete names the column {one!r}, which X has not; its columns are {names}.")
                found.append(names.index(one))
            else:
                found.append(int(one))
        return found

    def _name(self, step: Any) -> str:
        if isinstance(step, EvidenceTable):
            return step.name
        names = getattr(self, "feature_names_in_", None)

        def column(f: int) -> str:
            return f"x[{f}]" if names is None else str(names[f])

        if isinstance(step, Stump):
            if math.isinf(step.threshold):
                return f"{column(step.column)} is missing"
            return f"{column(step.column)} > {step.threshold:.6g}"
        if isinstance(step, Categories):
            return column(step.column)
        if isinstance(step, RegressionTree):
            used = dict.fromkeys(cut.column for cut in step.cuts if cut is not None)
            return f"tree on {', '.join(column(f) for f in used)}"
        return type(step.regressors[0]).__name__

    @property
    def _additive(self) -> AdditiveLogit:
        if not hasattr(self, "_model"):
            raise _NotFitted(f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first.")
        return self._model

    def _read(self, X: Any, evidence: Mapping[str, Any] | None) -> tuple[Any, Evidence]:
        self._additive  # noqa: B018  (says so where nothing is fitted)
        X = validate_data(
            self,
            X,
            accept_sparse="csc",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=False,
        )
        seen = Evidence(evidence, X.shape[0])
        if dict(zip(seen.names, seen.widths, strict=True)) != self._evidence:
            raise ShapeError(
                f"the model was fitted with evidence {self._evidence or 'of no attribute'} (name: number of values), "
                f"got {dict(zip(seen.names, seen.widths, strict=True)) or 'none'}. Give the same to predict."
            )
        return X, seen

    def _scores(self, X: Any, evidence: Mapping[str, Any] | None) -> np.ndarray:
        X, seen = self._read(X, evidence)
        return self._additive.scores(X, seen)

    def decision_function(self, X: Any, evidence: Mapping[str, Any] | None = None) -> np.ndarray:
        """Scores (N, K), or for two classes the log-odds (N,) of the second."""
        scores = self._scores(X, evidence)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, evidence: Mapping[str, Any] | None = None) -> np.ndarray:
        """Probabilities (N, K) in the order of ``classes_``."""
        return _softmax(self._scores(X, evidence))

    def predict_log_proba(self, X: Any, evidence: Mapping[str, Any] | None = None) -> np.ndarray:
        """Logs of the probabilities (N, K)."""
        scores = self._scores(X, evidence)
        shifted = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    def predict(self, X: Any, evidence: Mapping[str, Any] | None = None) -> np.ndarray:
        """The most probable classes (N,)."""
        scores = self._scores(X, evidence)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def staged_predict_proba(self, X: Any, evidence: Mapping[str, Any] | None = None) -> Iterator[np.ndarray]:
        """Probabilities (N, K) after each round."""
        X, seen = self._read(X, evidence)
        for scores in self._additive.staged(X, seen):
            yield _softmax(scores)

    def staged_predict(self, X: Any, evidence: Mapping[str, Any] | None = None) -> Iterator[np.ndarray]:
        """Classes (N,) after each round."""
        for table in self.staged_predict_proba(X, evidence):
            yield self.classes_[table.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, evidence: Mapping[str, Any] | None = None) -> float:
        """Share of right answers."""
        right = self.predict(X, evidence) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each column (F,) in the gains of all rounds; regressors do not tell theirs."""
        found = np.zeros(self.n_features_in_)
        for step in self._additive.steps:
            if isinstance(step, Stump | Categories):
                found[step.column] += step.gain
            elif isinstance(step, RegressionTree):
                for cut in step.cuts:
                    if cut is not None:
                        found[cut.column] += cut.gain
        return found / found.sum() if found.sum() > 0 else found

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Regressors are code: use joblib then."""
        from crfield.estimators.boosted.boost_file import save_logit_boost

        save_logit_boost(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
