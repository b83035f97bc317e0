"""`MaxentClassifier`: multiclass logistic regression, which is the maximum-entropy model of named feature functions.

    p(y | o) = exp( Σ_j w_j f_j(o, y) ) / Z(o)

Of all distributions whose expected feature counts are those of the data, this is the one of largest entropy, and its
weights are those of largest likelihood (Berger, Della Pietra & Della Pietra 1996, *A maximum entropy approach to
natural language processing*); with f_j(o, y) = x_d [y = k] it is logistic regression, and on sequences of steps with
f_j(y₋₁, y, x, t) it is the chain CRF. So a row is trained as a chain of length one, by the same kernels
(`crfield.training.rows.softmax`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d, validate_data

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.data.large import bearable, refuse_large_rows
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.rows import column_names, seed_of
from crfield.estimators.chain.checks import check_numbers
from crfield.estimators.maxent.rows import RowReader, looks_like_records, named_functions
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.likelihood import fit_likelihood
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows, FunctionRows
from crfield.training.rows.stochastic import fit_stochastic

SOLVERS = ("auto", "newton", "lbfgs", "sgd")
FEW_WEIGHTS, FEW_CELLS = 300, 2e8  # up to which "auto" takes Newton: weights, and rows · weights²


class _NotFitted(NotFittedError, SklearnNotFittedError):
    """As scikit-learn's tools expect it, and ours."""


class FeatureCount(NamedTuple):
    """A feature, how often it is met in the data, and how often the model expects it."""

    name: str
    observed: float
    expected: float


class MaxentClassifier(ClassifierMixin, Estimator):
    """Maximum-entropy classifier, or multiclass logistic regression.

    Training minimises −Σ weight · log p(y | x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖². Every class has its weights, also the
    first of two: scikit-learn's ``LogisticRegression(C)`` is ``l2 = 1 / C`` for three classes or more and
    ``l2 = 2 / C`` for two, for which it has one vector of twice the length.

    X is a matrix (n_rows, n_columns), dense or sparse; or a list of records, dicts or lists of feature strings as in
    `ChainCRF`; or, with ``functions``, a list of anything.

    Parameters
    ----------
    functions : list of f(o, y), or dict of them by name, optional
        Feature functions of an observation and a class, one weight each; numbers or truth values.
    l1, l2 : float
        Strengths of the penalties; both are the elastic net. With none of them the constraints are met exactly.
    intercept : bool
        A weight for each class alone; functions say all themselves and have none.
    penalize_intercepts : bool
        Whether the penalties touch them.
    solver : "auto", "newton", "lbfgs" or "sgd"
        "auto" is Newton up to 300 weights and L-BFGS (OWL-QN with l1) above; "sgd" takes stochastic steps with
        reduced variance, in epochs.
    tol : float
        Training stops when the objective is estimated to be within this fraction of its optimum.
    max_iter : int
        Most steps or epochs.
    n_jobs, random_state, verbose
        As in `ChainCRF`; the random state orders the stochastic steps.
    callback : callable(step, weights), optional
        Called after every step; returning True ends training.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As usual; the latter two for matrices.
    coef_ : array
        (n_classes, n_columns), or (n_functions,).
    intercept_ : array (n_classes,)
        Zeros for functions.
    feature_names_ : list of str
        Names of columns or functions.
    objective_, n_iter_, n_evaluations_, converged_, stop_reason_, solver_, history_
        The report of training.

    Examples
    --------
    >>> model = MaxentClassifier({"warm and sunny": lambda o, y: o == "sun" and y == "walk"}, l2=0.0)
    >>> model = model.fit(["sun", "sun", "sun", "rain"], ["walk", "walk", "read", "read"])
    >>> model.predict_proba(["sun", "rain"]).round(6).tolist()
    [[0.333333, 0.666667], [0.5, 0.5]]
    >>> count, = model.feature_counts(["sun", "sun", "sun", "rain"], ["walk", "walk", "read", "read"])
    >>> count.name, count.observed, round(count.expected, 6)
    ('warm and sunny', 2.0, 2.0)
    """

    file_kind = "maxent_classifier"

    def __init__(
        self,
        functions: Sequence[Callable[[Any, Any], Any]] | Mapping[str, Callable[[Any, Any], Any]] | None = None,
        *,
        l1: float = 0.0,
        l2: float = 1.0,
        intercept: bool = True,
        penalize_intercepts: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 500,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.functions = functions
        self.l1 = l1
        self.l2 = l2
        self.intercept = intercept
        self.penalize_intercepts = penalize_intercepts
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from rows X and their classes y (N,); rows of weight 0 are left out.

        Ctrl-C ends training with the best weights so far.
        """
        check_maxent_parameters(self.get_params(deep=False))
        reader, data, y, weight = self._training_rows(X, y, sample_weight)
        classes, codes = np.unique(y, return_inverse=True)
        reader = reader.for_classes(classes.tolist())
        table = reader.rows(data, fit=True)
        if reader.kind != "functions":
            refuse_large_rows(table, self._column_name(reader))
        rows = self._rows(table, codes, len(classes), weight)
        penalised = None if self.penalize_intercepts else rows.penalised.astype(np.uint8)
        result = self._train(rows, Penalty(l1=self.l1, l2=self.l2, penalised=penalised))
        self.classes_, self._reader, self._weights = classes, reader, result.weights
        self.feature_names_ = reader.names(getattr(self, "feature_names_in_", None))
        self.objective_, self.n_iter_, self.n_evaluations_ = float(result.value), result.n_iter, result.n_evaluations
        self.converged_, self.stop_reason_, self.history_ = result.converged, result.reason, result.history
        self._tell(result)
        return self

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[RowReader, Any, np.ndarray, Any]:
        if self.functions is not None or looks_like_records(X):
            reader = RowReader("records" if self.functions is None else "functions", self.functions)
            if not hasattr(X, "__len__") or isinstance(X, str | bytes):
                raise InputError(f"X must be a list of observations, got {type(X).__name__}.")
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            if not len(y):
                raise InputError("X holds no rows; at least one is needed to train.")
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
        else:
            reader = RowReader("matrix")
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        if sample_weight is None:
            return reader, X, y, None
        weight = _check_sample_weight(
            sample_weight, np.zeros((len(y), 1)), dtype=np.float64, ensure_non_negative=True
        )
        kept = np.flatnonzero(weight > 0)
        if not len(kept):
            raise InputError("sample_weight must be above 0 for some row, got 0 everywhere.")
        X = X[kept] if hasattr(X, "shape") else [X[k] for k in kept.tolist()]
        return reader, X, y[kept], weight[kept]

    def _rows(self, data: Any, codes: np.ndarray, size: int, weight: Any) -> ColumnRows | FunctionRows:
        jobs = resolve_jobs(self.n_jobs)
        if self.functions is not None:
            return FunctionRows(data, codes, weight=weight, n_jobs=jobs)
        return ColumnRows(data, codes, size, weight=weight, intercept=bool(self.intercept), n_jobs=jobs)

    def _train(self, rows: ColumnRows | FunctionRows, penalty: Penalty) -> Result:
        solver, count = self.solver, rows.n_weights
        if solver == "auto":
            few = count <= FEW_WEIGHTS and rows.n_rows * count**2 <= FEW_CELLS
            solver = "newton" if few else "lbfgs"
        self.solver_ = solver
        with Progress(self.verbose, total=self.max_iter, description=type(self).__name__) as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            watching = self.callback is not None or bool(self.verbose)
            options: dict[str, Any] = {
                "tol": float(self.tol),
                "max_iter": int(self.max_iter),
                "callback": after if watching else None,
            }
            if solver == "newton":
                return fit_newton(rows, penalty, **options)
            rng = random_generator(seed_of(self.random_state))
            if solver == "sgd":
                return fit_stochastic(rows, penalty, rng=rng, **options)
            jobs = resolve_jobs(self.n_jobs)
            return fit_likelihood(rows.plain, penalty, solver="lbfgs", rng=rng, n_jobs=jobs, **options)

    def _tell(self, result: Result) -> None:
        if result.converged or result.reason == "callback":
            return
        advice = (
            "The best weights so far are kept"
            if result.reason == INTERRUPTED
            else "Raise max_iter or tol, scale the columns, or take another solver"
        )
        warnings.warn(
            f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} steps, "
            f"objective {result.value:.6g}). {advice}.",
            ConvergenceWarning,
            stacklevel=3,
        )

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> RowReader:
        if not hasattr(self, "_reader"):
            raise _NotFitted(f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first.")
        return self._reader

    def _read(self, X: Any) -> Any:
        reader = self._fitted
        if reader.kind == "matrix":
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return reader.rows(X)

    @property
    def coef_(self) -> np.ndarray:
        """Weights (n_classes, n_columns) or (n_functions,), read-only."""
        if self._fitted.kind == "functions":
            found = self._weights.view()
        else:
            size = len(self.classes_)
            inner = len(self._weights) - size * self._has_intercept
            found = self._weights[:inner].reshape(-1, size).T
        found.flags.writeable = False
        return found

    @property
    def intercept_(self) -> np.ndarray:
        """(n_classes,) weights of the classes alone, read-only; their sum has no effect and is 0."""
        size = len(self.classes_) if self._fitted else 0
        found = self._weights[-size:] - self._weights[-size:].mean() if self._has_intercept else np.zeros(size)
        found.flags.writeable = False
        return found

    @property
    def _has_intercept(self) -> bool:
        return self._fitted.kind != "functions" and len(self._weights) > len(self.classes_) * self._fitted.width

    def _scores(self, X: Any) -> np.ndarray:
        data = self._read(X)
        if self._fitted.kind == "functions":
            return np.asarray(np.tensordot(self._weights, data, axes=1))
        refuse_large_rows(data, self._column_name(self._fitted), most=bearable(self._weights), doing="be scored")
        return np.asarray(data @ self.coef_.T) + self.intercept_

    def _column_name(self, reader: RowReader) -> Callable[[int], str]:
        return column_names(self) if reader.kind == "matrix" else lambda column: reader.names()[column]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores (N, K), or for two classes the log-odds (N,) of the second."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logs of the probabilities (N, K)."""
        scores = self._scores(X)
        shifted = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, K) in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable classes (N,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    # -------------------------------------------------------------- explanation

    def feature_counts(self, X: Any, y: Any, sample_weight: Any = None) -> list[FeatureCount]:
        """Σ_n weight f_j(o_n, y_n) and Σ_n weight Σ_y p(y | o_n) f_j(o_n, y) of every feature.

        On the training data without penalties the two are equal: the constraints of the maximum-entropy model. A
        column of a matrix is a feature with each class.
        """
        data, table = self._read(X), self.predict_proba(X)
        y = column_or_1d(y)
        truth = (np.asarray(y)[:, None] == self.classes_[None, :]).astype(np.float64)
        if truth.shape != table.shape or not truth.sum(axis=1).all():
            raise InputError(
                f"y must name one of the classes {self.classes_.tolist()} for each of {len(table)} rows."
            )
        if sample_weight is not None:
            weight = np.asarray(sample_weight, dtype=np.float64)[:, None]
            truth, table = truth * weight, table * weight
        if self._fitted.kind == "functions":
            counts = [np.tensordot(data, share, axes=([1, 2], [0, 1])) for share in (truth, table)]
            names = list(self.feature_names_)
        else:
            counts = [np.asarray(data.T @ share).ravel() for share in (truth, table)]
            names = [f"{name} & {label}" for name in self.feature_names_ for label in self.classes_.tolist()]
            if self._has_intercept:
                counts = [np.concatenate([c, s.sum(axis=0)]) for c, s in zip(counts, (truth, table), strict=True)]
                names += [str(label) for label in self.classes_.tolist()]
        observed, expected = (count.tolist() for count in counts)
        return [FeatureCount(*row) for row in zip(names, observed, expected, strict=True)]

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Functions are code: use joblib then."""
        from crfield.estimators.maxent.file import save_maxent

        save_maxent(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_reader")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_maxent_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter has a value that can be used.

    >>> check_maxent_parameters(MaxentClassifier(solver="saga").get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: solver must be one of 'auto', 'newton', 'lbfgs', 'sgd', got 'saga'.
    """
    check_numbers({**parameters, "min_count": 1})
    if not isinstance(parameters["solver"], str) or parameters["solver"] not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {parameters['solver']!r}.")
    for name in ("intercept", "penalize_intercepts"):
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    if parameters["functions"] is not None:
        named_functions(parameters["functions"])
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    resolve_jobs(parameters["n_jobs"])
    random_generator(seed_of(parameters["random_state"]))
