"""`KernelLogistic`: logistic regression, or a support vector machine, in a reproducing-kernel space.

    p(y = k | x) ∝ exp g_k(x)        g_k(x) = b_k + Σ_c α_ck κ(c, x)

Training minimises Σ weight · loss + ½ ``l2`` Σ_k ‖g_k‖², the norm that of the kernel's space; by the representer
theorem the best g is a sum over training rows c (Kimeldorf & Wahba 1971). With the logistic loss it gives calibrated
probabilities for any number of classes; with the hinge loss it is a support vector machine, of similar decisions.
Both losses look at the margin only and differ little (`crfield.report.displays.losses` draws them).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.data.large import ADVICE, refuse_large_rows
from crfield.errors import ConvergenceWarning, FeatureError, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.rows import column_names, seed_of
from crfield.estimators.similarity.checks import EXACT_ROWS, check_kernel_logistic
from crfield.features.columns.random_features import Landmarks, distinct, pick_landmarks
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.similarity import similarity_of
from crfield.training.likelihood import fit_likelihood
from crfield.training.rows.hinge import fit_hinge
from crfield.training.rows.import_vectors import select_imports
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows

FEW_WEIGHTS = 250  # up to which Newton's method is used


class _NotFitted(NotFittedError, SklearnNotFittedError):
    """As scikit-learn's tools expect it, and ours."""


def _logistic(model: Any) -> bool:
    if model.loss == "hinge":
        raise AttributeError("the hinge loss gives decisions without probabilities; use loss='logistic' for these.")
    return True


class KernelLogistic(ClassifierMixin, Estimator):
    """Kernel logistic regression for two classes or more.

    Parameters
    ----------
    similarity : "rbf", "polynomial", "laplacian", "linear", or f(rows, others) that gives a Gram block
        The kernel (`crfield.scoring.similarity`), with its parameters ``gamma`` ("scale": 1 / the sum of the columns'
        variances), ``degree`` and ``offset``; ``normalize`` gives every row the length one in the kernel's space.
    basis : "auto", "exact", "nystroem" or "import"
        The rows that scores are made of: all different ones (exact), ``n_components`` of them at random (Nyström), or
        at most as many import vectors, each chosen to lower the loss most. "auto" is exact up to 1,000 different rows
        and Nyström above.
    n_components : int
        See ``basis``.
    n_candidates : int
        Rows among which import vectors are chosen, drawn at random where there are more.
    min_gain : float
        Import vectors end when one more lowers the objective by less than this fraction.
    loss : "logistic" or "hinge"
        The hinge gives no probabilities. Two classes: scikit-learn's ``SVC(C)`` is ``l2 = 2 / C``.
    l2 : float
        Strength of the penalty, as in `MaxentClassifier`.
    intercept : bool
        A score for each class alone, without penalty.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As in `MaxentClassifier`; the random state draws rows. The hinge is met to about 1e-3 or ``tol``, if greater.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As usual.
    centres_ : array or CSR matrix (n_components_, n_columns)
        The rows that scores are made of, with coefficients ``dual_coef_`` (n_components_, n_classes).
    intercept_ : array (n_classes,)
        The scores b.
    import_vectors_ : array or None
        Numbers of the training rows chosen by the basis "import", in their order.
    basis_, objective_, n_iter_, n_evaluations_, converged_, stop_reason_, solver_, history_
        What was done, and the report of training.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = KernelLogistic(l2=0.1).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> few = KernelLogistic(l2=0.1, basis="import").fit(X, y)
    >>> len(few.import_vectors_) < 40, few.score(X, y) > 0.95
    (True, True)
    """

    file_kind = "kernel_logistic"

    def __init__(
        self,
        *,
        similarity: str | Callable[[Any, Any], Any] = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        offset: float = 1.0,
        normalize: bool = False,
        basis: str = "auto",
        n_components: int = 500,
        n_candidates: int = 1000,
        min_gain: float = 1e-3,
        loss: str = "logistic",
        l2: float = 1.0,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.similarity = similarity
        self.gamma = gamma
        self.degree = degree
        self.offset = offset
        self.normalize = normalize
        self.basis = basis
        self.n_components = n_components
        self.n_candidates = n_candidates
        self.min_gain = min_gain
        self.loss = loss
        self.l2 = l2
        self.intercept = intercept
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X (N, D), dense or sparse, and their classes y (N,); rows of weight 0 are left out."""
        check_kernel_logistic(self.get_params(deep=False))
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        refuse_large_rows(X, column_names(self))
        check_classification_targets(y)
        kept, weight = np.arange(len(y)), None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            kept = np.flatnonzero(weight > 0)
            if not len(kept):
                raise InputError("sample_weight must be above 0 for some row, got 0 everywhere.")
            X, y, weight = X[kept], y[kept], weight[kept]
        classes, codes = np.unique(y, return_inverse=True)
        similarity = similarity_of(
            self.similarity,
            X,
            gamma=self.gamma,
            degree=self.degree,
            offset=self.offset,
            normalize=bool(self.normalize),
            weight=weight,
        )
        self._refuse_far(X, similarity.too_large(X))
        rng = random_generator(seed_of(self.random_state))
        basis, rows, landmarks = self._landmarks(X, codes, len(classes), weight, similarity, rng)
        columns = landmarks.columns(X)
        result, problem = self._train(columns, codes, len(classes), weight, rng)
        table, bias = problem.split(result.weights)
        self._map = Landmarks(similarity, landmarks.centres, landmarks.whiten @ table)
        self.classes_, self.intercept_, self.basis_ = classes, bias - bias.mean(), basis
        self.import_vectors_ = kept[rows] if basis == "import" else None
        self.objective_, self.n_iter_, self.n_evaluations_ = float(result.value), result.n_iter, result.n_evaluations
        self.converged_, self.stop_reason_, self.history_ = result.converged, result.reason, result.history
        if not result.converged and result.reason != "callback":
            advice = "The best weights so far are kept" if result.reason == INTERRUPTED else "Raise max_iter or tol"
            warnings.warn(
                f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
                f"steps, objective {result.value:.6g}). {advice}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _landmarks(
        self, X: Any, codes: np.ndarray, size: int, weight: Any, similarity: Any, rng: np.random.Generator
    ) -> tuple[str, np.ndarray, Landmarks]:
        if self.basis in ("auto", "exact", "import"):
            different = distinct(X)
        basis = self.basis
        if basis == "auto":
            basis = "exact" if len(different) <= EXACT_ROWS else "nystroem"
        if basis == "exact":
            rows = different
        elif basis == "nystroem":
            rows = pick_landmarks(X, int(self.n_components), rng)
        else:
            rows = different
            if len(rows) > self.n_candidates:
                rows = np.sort(rng.choice(rows, int(self.n_candidates), replace=False))
            rows = rows[self._imports(X, rows, codes, size, weight, similarity)]
        return basis, rows, Landmarks.of(similarity, X[rows])

    def _imports(
        self, X: Any, rows: np.ndarray, codes: np.ndarray, size: int, weight: Any, similarity: Any
    ) -> np.ndarray:
        began = time.perf_counter()
        with Progress(self.verbose, total=self.n_components, description="import vectors") as progress:

            def after(count: int, value: float) -> None:
                taken = time.perf_counter() - began
                progress.update(
                    SimpleNamespace(n_iter=count, value=value, gradient_norm=0.0, n_active=count, seconds=taken)
                )

            found = select_imports(
                similarity.gram(X, X[rows]),
                similarity.diagonal(X[rows]),
                rows,
                codes,
                size,
                weight=weight,
                l2=float(self.l2),
                intercept=bool(self.intercept),
                most=int(self.n_components),
                least_gain=float(self.min_gain),
                progress=after if self.verbose else None,
            )
        return found.chosen if len(found.chosen) else np.zeros(1, np.int64)

    def _train(
        self, columns: np.ndarray, codes: np.ndarray, size: int, weight: Any, rng: np.random.Generator
    ) -> tuple[Result, ColumnRows]:
        jobs, hinge = resolve_jobs(self.n_jobs), self.loss == "hinge"
        rows = ColumnRows(
            columns,
            codes,
            size,
            weight=weight,
            intercept=bool(self.intercept),
            cost=1.0 if hinge else 0.0,
            n_jobs=jobs,
        )
        penalty = Penalty(l2=self.l2, penalised=rows.penalised.astype(np.uint8))
        with Progress(self.verbose, total=self.max_iter, description=type(self).__name__) as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            options: dict[str, Any] = {
                "tol": float(self.tol),
                "max_iter": int(self.max_iter),
                "callback": after if self.callback is not None or self.verbose else None,
            }
            if hinge:
                self.solver_ = "hinge"
                return fit_hinge(rows, penalty, **{**options, "tol": max(float(self.tol), 1e-3)}, n_jobs=jobs), rows
            if rows.n_weights <= FEW_WEIGHTS:
                self.solver_ = "newton"
                return fit_newton(rows, penalty, **options), rows
            self.solver_ = "lbfgs"
            return fit_likelihood(rows.plain, penalty, solver="lbfgs", rng=rng, n_jobs=jobs, **options), rows

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> Landmarks:
        if not hasattr(self, "_map"):
            raise _NotFitted(f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first.")
        return self._map

    @property
    def centres_(self) -> Any:
        """The rows (n_components_, n_columns) that scores are made of."""
        return self._fitted.centres

    @property
    def dual_coef_(self) -> np.ndarray:
        """(n_components_, n_classes) the coefficients α of these rows."""
        return self._fitted.whiten

    @property
    def n_components_(self) -> int:
        """How many rows scores are made of."""
        return int(self._fitted.centres.shape[0])

    def _scores(self, X: Any) -> np.ndarray:
        inner = self._fitted
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = inner.columns(X) + self.intercept_
        self._refuse_far(X, np.flatnonzero(~np.isfinite(scores).all(axis=1)))
        return scores

    def _refuse_far(self, X: Any, rows: np.ndarray) -> None:
        """FeatureError with the largest cell of the first of these rows, whose similarities are no finite numbers."""
        if len(rows):
            row = X[rows[:1]]
            cells = np.asarray(row if isinstance(row, np.ndarray) else row.toarray())[0]
            worst = int(np.abs(cells).argmax())
            raise FeatureError(
                f"row {rows[0]}: feature {column_names(self)(worst)!r} is {cells[worst]:.6g}, too large for this "
                f"similarity, which is no finite number there. {ADVICE}."
            )

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores (N, K), or for two classes the difference (N,) of the second and the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @available_if(_logistic)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logs of the probabilities (N, K)."""
        scores = self._scores(X)
        shifted = scores - scores.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    @available_if(_logistic)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, K) in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The classes of highest score (N,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. A kernel of one's own is code: joblib."""
        from crfield.estimators.similarity.logistic_file import save_kernel_logistic

        save_kernel_logistic(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_map")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
