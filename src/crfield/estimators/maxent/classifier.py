"""`MaxentClassifier`: multiclass logistic regression, which is the maximum-entropy model of named feature functions.

    p(y | o) = exp( Σ_j w_j f_j(o, y) ) / Z(o)

Of all distributions whose expected feature counts are those of the data, this is the one of largest entropy, and its
weights are those of largest likelihood (Berger, Della Pietra & Della Pietra 1996, *A maximum entropy approach to
natural language processing*); with f_j(o, y) = x_d [y = k] it is logistic regression, and on sequences of steps with
f_j(y₋₁, y, x, t) it is the chain CRF. So a row is trained as a chain of length one, by the same kernels
(`crfield.training.rows.softmax`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from crfield.core.checks import flag, one_of, random_generator, resolve_jobs, threads
from crfield.core.parameters import learnt, parameter
from crfield.core.typing import Labels, Seed, Tabular, Weights
from crfield.data.large import bearable, refuse_large_rows
from crfield.errors import InputError
from crfield.estimators.base.groups import TOLERANCE, Optimised, Penalised
from crfield.estimators.base.rows import RowClassifier, RowTask, column_names, row_seed, seed_of, weighted_rows
from crfield.estimators.base.sequences import taken
from crfield.estimators.maxent.model import MaxentModel, RowReader, looks_like_records, named_functions
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.training.likelihood import fit_likelihood
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows, FunctionRows
from crfield.training.rows.stochastic import fit_stochastic

SOLVERS = ("auto", "newton", "lbfgs", "sgd")
FEW_WEIGHTS, FEW_CELLS = 300, 2e8  # up to which "auto" takes Newton: weights, and rows · weights²


class FeatureCount(NamedTuple):
    """A feature, how often it is met in the data, and how often the model expects it."""

    name: str
    observed: float
    expected: float


def _pair_functions(name: str, value: Any) -> None:
    """InputError unless the value is None or holds functions f(o, y)."""
    if value is not None:
        named_functions(value)


class MaxentClassifier(RowClassifier[MaxentModel], Penalised, Optimised, kind="maxent_classifier", model=MaxentModel):
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

    functions: Sequence[Callable[[Any, Any], Any]] | Mapping[str, Callable[[Any, Any], Any]] | None = parameter(
        _pair_functions, default=None, kw_only=False, stored=False
    )
    intercept: bool = parameter(flag, default=True)
    penalize_intercepts: bool = parameter(flag, default=False)
    solver: str = parameter(one_of(*SOLVERS), default="auto")
    tol: float = parameter(TOLERANCE, default=1e-6)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: Seed = parameter(row_seed, default=0)

    feature_names_: list[str] = learnt()

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Tabular, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn the weights from rows X and their classes y (N,); rows of weight 0 are left out.

        Ctrl-C ends training with the best weights so far.
        """
        self.check()
        reader, data, y, weight = self._training_rows(X, y, sample_weight)
        classes, codes = np.unique(y, return_inverse=True)
        reader = reader.for_classes(classes.tolist())
        table = reader.rows(data, fit=True)
        if reader.kind != "functions":
            refuse_large_rows(table, self._column_name(reader))
        rows = self._rows(table, codes, len(classes), weight)
        self.solver_ = chosen_solver(self.solver, rows)
        result = self._train(rows, self._penalty(spared=None if self.penalize_intercepts else ~rows.penalised))
        self._learn(MaxentModel(RowTask.of(self, classes), reader, result.weights), result)
        self._warn_unless_converged(result, "Raise max_iter or tol, scale the columns, or take another solver")
        return self

    def _show(self, model: MaxentModel) -> None:
        super()._show(model)
        self.feature_names_ = model.reader.names(model.task.column_names)

    def _training_rows(
        self, X: Tabular, y: Labels, sample_weight: Weights
    ) -> tuple[RowReader, Tabular, np.ndarray, np.ndarray | None]:
        if self.functions is not None or looks_like_records(X):
            reader = RowReader("records" if self.functions is None else "functions", self.functions)
            if not hasattr(X, "__len__") or isinstance(X, str | bytes):
                raise InputError(f"X must be a list of observations, got {type(X).__name__}.")
            truth: np.ndarray = column_or_1d(y, warn=True)
            check_consistent_length(X, truth)
            if not len(truth):
                raise InputError("X holds no rows; at least one is needed to train.")
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
        else:
            reader = RowReader("matrix")
            X, truth = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(truth)
        if sample_weight is None:
            return reader, X, truth, None
        kept, weight = weighted_rows(sample_weight, len(truth))
        return reader, taken(X, kept), truth[kept], weight

    def _rows(self, data: Any, codes: np.ndarray, size: int, weight: np.ndarray | None) -> ColumnRows | FunctionRows:
        jobs = resolve_jobs(self.n_jobs)
        if self.functions is not None:
            return FunctionRows(data, codes, weight=weight, n_jobs=jobs)
        return ColumnRows(data, codes, size, weight=weight, intercept=bool(self.intercept), n_jobs=jobs)

    def _train(self, rows: ColumnRows | FunctionRows, penalty: Penalty) -> Result:
        options: dict[str, Any] = {"tol": float(self.tol), "max_iter": int(self.max_iter)}
        with self._watched() as after:
            if self.solver_ == "newton":
                return fit_newton(rows, penalty, callback=after, **options)
            rng = random_generator(seed_of(self.random_state))
            if self.solver_ == "sgd":
                return fit_stochastic(rows, penalty, rng=rng, callback=after, **options)
            options |= {"solver": "lbfgs", "n_jobs": resolve_jobs(self.n_jobs)}
            return fit_likelihood(rows.plain, penalty, rng=rng, callback=after, **options)

    # --------------------------------------------------------------- prediction

    def _read(self, X: Tabular) -> Any:
        reader = self._fitted.reader
        if reader.kind == "matrix":
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return reader.rows(X)

    @property
    def coef_(self) -> np.ndarray:
        """Weights (n_classes, n_columns) or (n_functions,), read-only."""
        found = self._fitted.coef
        found.flags.writeable = False
        return found

    @property
    def intercept_(self) -> np.ndarray:
        """(n_classes,) weights of the classes alone, read-only; their sum has no effect and is 0."""
        found = self._fitted.intercept
        found.flags.writeable = False
        return found

    def _scores(self, X: Tabular) -> np.ndarray:
        model, data = self._fitted, self._read(X)
        if model.reader.kind == "functions":
            return np.asarray(np.tensordot(model.weights, data, axes=1))
        refuse_large_rows(data, self._column_name(model.reader), most=bearable(model.weights), doing="be scored")
        return np.asarray(data @ model.coef.T) + model.intercept

    def _column_name(self, reader: RowReader) -> Callable[[int], str]:
        return column_names(self) if reader.kind == "matrix" else lambda column: reader.names()[column]

    # -------------------------------------------------------------- explanation

    def feature_counts(self, X: Tabular, y: Labels, sample_weight: Weights = None) -> list[FeatureCount]:
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
        if self._fitted.reader.kind == "functions":
            counts = [np.tensordot(data, share, axes=([1, 2], [0, 1])) for share in (truth, table)]
            names = list(self.feature_names_)
        else:
            counts = [np.asarray(data.T @ share).ravel() for share in (truth, table)]
            names = [f"{name} & {label}" for name in self.feature_names_ for label in self.classes_.tolist()]
            if self._fitted.has_intercept:
                counts = [np.concatenate([c, s.sum(axis=0)]) for c, s in zip(counts, (truth, table), strict=True)]
                names += [str(label) for label in self.classes_.tolist()]
        observed, expected = (count.tolist() for count in counts)
        return [FeatureCount(*row) for row in zip(names, observed, expected, strict=True)]


def chosen_solver(asked: str, rows: ColumnRows | FunctionRows) -> str:
    """The solver that "auto" stands for: Newton's method where its table of second derivatives is small."""
    if asked != "auto":
        return asked
    few = rows.n_weights <= FEW_WEIGHTS and rows.n_rows * rows.n_weights**2 <= FEW_CELLS
    return "newton" if few else "lbfgs"
