"""`KernelLogistic`: logistic regression, or a support vector machine, in a reproducing-kernel space.

    p(y = k | x) ∝ exp g_k(x)        g_k(x) = b_k + Σ_c α_ck κ(c, x)

Training minimises Σ weight · loss + ½ ``l2`` Σ_k ‖g_k‖², the norm that of the kernel's space; by the representer
theorem the best g is a sum over training rows c (Kimeldorf & Wahba 1971). With the logistic loss it gives calibrated
probabilities for any number of classes; with the hinge loss it is a support vector machine, of similar decisions.
Both losses look at the margin only and differ little (`crfield.report.displays.losses` draws them).
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from crfield.core.checks import Check, flag, integer, is_number, one_of, random_generator, resolve_jobs, threads
from crfield.core.parameters import learnt, parameter
from crfield.core.typing import Labels, Seed, Tabular, Weights
from crfield.data.large import ADVICE, refuse_large_rows
from crfield.errors import FeatureError
from crfield.estimators.base.groups import PENALTY, TOLERANCE, Optimised
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.rows import RowClassifier, RowTask, column_names, row_seed, seed_of, weighted_rows
from crfield.estimators.similarity.model import CLASSIFIER_BASES, SimilarityClassifier
from crfield.estimators.similarity.parameters import EXACT_ROWS, OfSimilarity
from crfield.features.columns.random_features import Landmarks, distinct, pick_landmarks
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.similarity import GivenSimilarity, Similarity
from crfield.training.likelihood import fit_likelihood
from crfield.training.rows.hinge import fit_hinge
from crfield.training.rows.import_vectors import select_imports
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows

FEW_WEIGHTS = 250  # up to which Newton's method is used
GAIN = Check("a number ≥ 0 and < 1", lambda value: is_number(value) and 0 <= value < 1)


class Rows(NamedTuple):
    """Rows of training, without those of weight 0."""

    X: Tabular  # (N, D), dense or CSR
    codes: np.ndarray  # (N,)
    n_classes: int
    weight: np.ndarray | None  # (N,)


def _logistic(model: KernelLogistic) -> bool:
    if model.loss == "hinge":
        raise AttributeError("the hinge loss gives decisions without probabilities; use loss='logistic' for these.")
    return True


class KernelLogistic(
    OfSimilarity, Optimised, RowClassifier[SimilarityClassifier], kind="kernel_logistic", model=SimilarityClassifier
):
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
    centres_ : array or CSR matrix (C, n_columns)
        The ``n_components_`` = C rows that scores are made of, with coefficients ``dual_coef_``, (C, n_classes).
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

    basis: str = parameter(one_of(*CLASSIFIER_BASES), default="auto")
    n_candidates: int = parameter(integer(1), default=1000)
    min_gain: float = parameter(GAIN, default=1e-3)
    loss: str = parameter(one_of("logistic", "hinge"), default="logistic")
    l2: float = parameter(PENALTY, default=1.0)
    intercept: bool = parameter(flag, default=True)
    tol: float = parameter(TOLERANCE, default=1e-6)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=1000)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: Seed = parameter(row_seed, default=0)

    basis_: str = learnt()
    intercept_: np.ndarray = learnt()
    import_vectors_: np.ndarray | None = learnt()

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Tabular, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn from rows X (N, D), dense or sparse, and their classes y (N,); rows of weight 0 are left out."""
        self.check()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        refuse_large_rows(X, column_names(self))
        check_classification_targets(y)
        kept, weight = weighted_rows(sample_weight, len(y))
        classes, codes = np.unique(y[kept], return_inverse=True)
        rows = Rows(X[kept], codes, len(classes), weight)
        similarity = self._similarity(rows.X, weight)
        self._refuse_far(rows.X, similarity.too_large(rows.X))
        rng = random_generator(seed_of(self.random_state))
        basis, chosen = self._chosen(rows, similarity, rng)
        landmarks = Landmarks.of(similarity, rows.X[chosen])
        problem = ColumnRows(
            landmarks.columns(rows.X),
            codes,
            rows.n_classes,
            weight=weight,
            intercept=bool(self.intercept),
            cost=1.0 if self.loss == "hinge" else 0.0,
            n_jobs=resolve_jobs(self.n_jobs),
        )
        self.solver_, result = self._train(problem, rng)
        table, bias = problem.split(result.weights)
        scored = Landmarks(similarity, landmarks.centres, landmarks.whiten @ table)
        imports = kept[chosen] if basis == "import" else None
        task = RowTask.of(self, classes)
        self._learn(SimilarityClassifier(task, scored, bias - bias.mean(), basis, imports), result)
        self._warn_unless_converged(result, "Raise max_iter or tol")
        return self

    def _chosen(
        self, rows: Rows, similarity: Similarity | GivenSimilarity, rng: np.random.Generator
    ) -> tuple[str, np.ndarray]:
        """The basis that "auto" means, and the numbers of its rows."""
        if self.basis == "nystroem":
            return self.basis, pick_landmarks(rows.X, int(self.n_components), rng)
        different = distinct(rows.X)
        if self.basis == "import":
            if len(different) > self.n_candidates:
                different = np.sort(rng.choice(different, int(self.n_candidates), replace=False))
            return self.basis, different[self._imports(rows, different, similarity)]
        if self.basis == "exact" or len(different) <= EXACT_ROWS:
            return "exact", different
        return "nystroem", pick_landmarks(rows.X, int(self.n_components), rng)

    def _imports(self, rows: Rows, candidates: np.ndarray, similarity: Similarity | GivenSimilarity) -> np.ndarray:
        began = time.perf_counter()
        with Progress(self.verbose, total=self.n_components, description="import vectors") as progress:

            def after(count: int, value: float) -> None:
                taken = time.perf_counter() - began
                progress.update(
                    SimpleNamespace(n_iter=count, value=value, gradient_norm=0.0, n_active=count, seconds=taken)
                )

            some = rows.X[candidates]
            found = select_imports(
                similarity.gram(rows.X, some),
                similarity.diagonal(some),
                candidates,
                rows.codes,
                rows.n_classes,
                weight=rows.weight,
                l2=float(self.l2),
                intercept=bool(self.intercept),
                most=int(self.n_components),
                least_gain=float(self.min_gain),
                progress=after if self.verbose else None,
            )
        return found.chosen if len(found.chosen) else np.zeros(1, np.int64)

    def _train(self, problem: ColumnRows, rng: np.random.Generator) -> tuple[str, Result]:
        """The solver, and its result."""
        jobs, tol = resolve_jobs(self.n_jobs), float(self.tol)
        penalty = Penalty(l2=self.l2, penalised=problem.penalised.astype(np.uint8))
        with self._watched() as watch:
            options: dict[str, Any] = {"max_iter": int(self.max_iter), "callback": watch}
            if self.loss == "hinge":
                return "hinge", fit_hinge(problem, penalty, tol=max(tol, 1e-3), n_jobs=jobs, **options)
            if problem.n_weights <= FEW_WEIGHTS:
                return "newton", fit_newton(problem, penalty, tol=tol, **options)
            plain = problem.plain
            return "lbfgs", fit_likelihood(plain, penalty, solver="lbfgs", rng=rng, tol=tol, n_jobs=jobs, **options)

    # --------------------------------------------------------------- prediction

    def _show(self, model: SimilarityClassifier) -> None:
        super()._show(model)
        self.basis_, self.intercept_, self.import_vectors_ = model.basis, model.intercept, model.import_vectors

    @property
    def centres_(self) -> Any:
        """The rows ``(n_components_, n_columns)`` that scores are made of."""
        return self._fitted.scored.centres

    @property
    def dual_coef_(self) -> np.ndarray:
        """``(n_components_, n_classes)``, the coefficients α of these rows."""
        return self._fitted.scored.whiten

    @property
    def n_components_(self) -> int:
        """How many rows scores are made of."""
        return int(self.centres_.shape[0])

    def _scores(self, X: Tabular) -> np.ndarray:
        model = self._fitted
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = model.scored.columns(X) + model.intercept
        self._refuse_far(X, np.flatnonzero(~np.isfinite(scores).all(axis=1)))
        return scores

    def _refuse_far(self, X: Tabular, rows: np.ndarray) -> None:
        """FeatureError with the largest cell of the first of these rows, whose similarities are no finite numbers."""
        if len(rows):
            row = X[rows[:1]]
            cells = np.asarray(row if isinstance(row, np.ndarray) else row.toarray())[0]
            worst = int(np.abs(cells).argmax())
            raise FeatureError(
                f"row {rows[0]}: feature {column_names(self)(worst)!r} is {cells[worst]:.6g}, too large for this "
                f"similarity, which is no finite number there. {ADVICE}."
            )

    predict_log_proba = available_if(_logistic)(RowClassifier.predict_log_proba)
    predict_proba = available_if(_logistic)(RowClassifier.predict_proba)
