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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crfield.boosting.logit_rounds import AdditiveLogit, Regressors, Rows, Step, Stumps, Trees, boost_rounds
from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.evidence import FORMS, Evidence, EvidenceTable
from crfield.boosting.weak_learners.candidates import BINS, Candidates, Table
from crfield.boosting.weak_learners.responses import LEAST_WEIGHT
from crfield.boosting.weak_learners.state import steps_from_state, steps_state
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.core.checks import Check, integer, is_integer, loudness, number, one_of, resolve_jobs, share, threads
from crfield.core.estimator import Estimator
from crfield.core.parameters import learnt, parameter
from crfield.core.typing import Weights
from crfield.errors import InputError, ShapeError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.rows import (
    RowClassifier,
    RowTask,
    column_names,
    decisions,
    log_probabilities,
    row_seed,
    weighted_rows,
)
from crfield.estimators.base.sklearn_parts import not_stored
from crfield.storage.state import State, refuse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Data: TypeAlias = "ArrayLike | csr_array"  # rows (N, F) as users give them
Given: TypeAlias = Mapping[str, ArrayLike] | None  # evidence as users give it, name: distributions (N, D)
LEARNER = one_of("stump", "tree") | Check(
    "a regressor with fit and predict",
    lambda value: hasattr(value, "fit") and hasattr(value, "predict") and not isinstance(value, type),
)
DISCRETE = Check(
    "a list of columns, by number or name",
    lambda value: (
        isinstance(value, Collection)
        and not isinstance(value, str | bytes)
        and all(isinstance(one, str) or is_integer(one) for one in value)
    ),
)


def _learner_to_json(learner: object) -> str:
    if not isinstance(learner, str):
        raise InputError(not_stored("learner", learner, "'stump' or 'tree'"))
    return learner


@dataclass(frozen=True, eq=False)
class BoostedRows:
    """Classes and columns, the steps that rows are scored with, the evidence they read, and the rounds."""

    task: RowTask
    additive: AdditiveLogit
    evidence: Mapping[str, int]  # name: number of values
    rounds: RoundTable

    def state(self) -> State:
        """Header and arrays; InputError where steps are code."""
        start, rounds = self.additive.start, self.rounds.state()
        widths = [[name, width] for name, width in self.evidence.items()]
        evidence = {"evidence": widths, "evidence_form": self.additive.form}
        steps = steps_state(self.additive.steps, len(start), list(self.evidence))
        return State(
            self.task.state().header | evidence | rounds.header, {"start": start, **steps.arrays, **rounds.arrays}
        )

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, object]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        task, rows = RowTask.from_state(state), state.listed("evidence")
        if task.n_columns is None:
            refuse("the model file does not say how many columns it reads")
        for row in rows:
            if not isinstance(row, list) or [type(part) for part in row] != [str, int] or not 0 <= row[1] < 2**31:
                refuse("the model file's evidence cannot be read")
        evidence = dict(rows)
        start = state.array("start", (len(task.classes),))
        steps = steps_from_state(state, len(start), task.n_columns, evidence)
        form = state.header.get("evidence_form", "scores")  # the one form of files that do not name it
        if form not in FORMS:
            refuse(f"the model file's evidence has the form {form!r:.40}, which this version does not know")
        additive = AdditiveLogit(start, steps, form)
        return cls(task, additive, evidence, RoundTable.from_state(state))

    @property
    def importances(self) -> np.ndarray:
        """Share of each column (F,) in the gains of all rounds; regressors do not tell theirs."""
        found = np.zeros(self.task.n_columns or 0)
        for step in self.additive.steps:
            for cut in step.cuts if isinstance(step, RegressionTree) else (step,):
                if isinstance(cut, Stump | Categories):
                    found[cut.column] += cut.gain
        return found / found.sum() if found.sum() > 0 else found


class LogitRounds(Estimator):
    """How rounds of LogitBoost go, for whatever is made of them."""

    n_rounds: int = parameter(integer(0), default=100)
    learning_rate: float = parameter(number(above=0), default=1.0)
    response_limit: float = parameter(number(above=0), default=4.0)
    ridge: float = parameter(number(0), default=0.0)
    max_bins: int = parameter(BINS, default=32)
    start: str = parameter(one_of("prior", "zero"), default="prior")

    def _round_options(self, n_classes: int) -> dict[str, Any]:
        """What `boost_rounds` asks; one class needs no rounds."""
        return {
            "n_rounds": int(self.n_rounds) if n_classes > 1 else 0,
            "learning_rate": self.learning_rate,
            "limit": self.response_limit,
            "ridge": self.ridge,
            "start": self.start,
        }


class LogitBoost(LogitRounds, RowClassifier[BoostedRows], kind="logit_boost", model=BoostedRows):
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
    evidence_form : "scores" or "potentials"
        What evidence does to the score of a class. "scores" is the expected score, Σ_d ve(d) F(d): the attribute is a
        mixture of its values. "potentials" is the log of the expected potential, log Σ_d ve(d) exp F(d), equation 4
        of Liao et al. 2007: the attribute has one value, which is not known.
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

    learner: Any = parameter(LEARNER, default="stump", to_json=_learner_to_json)
    max_depth: int = parameter(integer(1), default=2)
    min_leaf: int = parameter(integer(1), default=1)
    bound: str = parameter(one_of("responses", "weights"), default="responses")
    discrete: Collection[int | str] = parameter(DISCRETE, default=())
    evidence_form: str = parameter(one_of(*FORMS), default="scores")
    n_iter_no_change: int | None = parameter(integer(1) | None, default=None)
    validation_fraction: float = parameter(share(), default=0.1)
    tol: float = parameter(number(0), default=1e-4)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: int | np.random.RandomState | np.random.Generator | None = parameter(row_seed, default=None)
    verbose: int = parameter(loudness, default=0)

    rounds_: RoundTable = learnt()
    n_iter_: int = learnt()
    reported = ()

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Data, y: ArrayLike, sample_weight: Weights = None, evidence: Given = None) -> Self:
        """Fit rounds to rows X (N, F) with classes y (N,); rows of weight 0 are left out."""
        from sklearn.utils.multiclass import check_classification_targets

        self.check()
        table, labels = self._validated(X, y, ensure_min_samples=1)
        check_classification_targets(labels)
        seen = Evidence(evidence, len(labels))
        kept, weight = weighted_rows(sample_weight, len(labels))
        if len(kept) < len(labels):
            table, labels, seen = table[kept], labels[kept], seen.rows(kept)
        classes, codes = np.unique(labels, return_inverse=True)
        rows, held = self._held_out(Rows(table, seen, codes.astype(np.int32), weight))
        additive, rounds = self._boost(rows, held, len(classes))
        return self._learn(BoostedRows(RowTask.of(self, classes), additive, seen.sizes, RoundTable(rounds)))

    def _validated(self, *data: Any, **options: Any) -> Any:
        """Data as scikit-learn checks them: X dense or sparse, where NaN is a missing value."""
        from sklearn.utils.validation import validate_data

        options |= {"accept_sparse": "csc", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        return validate_data(self, *data, **options)

    def _boost(self, rows: Rows, held: Rows | None, n_classes: int) -> tuple[AdditiveLogit, list[Round]]:
        jobs = resolve_jobs(self.n_jobs)
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
                least=LEAST_WEIGHT if self.bound == "responses" else 1.0 / self.response_limit,
                form=self.evidence_form,
                held=held,
                patience=self.n_iter_no_change,
                tol=self.tol,
                n_jobs=jobs,
                name=self._name,
                after=after if self.verbose else None,
                **self._round_options(n_classes),
            )

    def _held_out(self, rows: Rows) -> tuple[Rows, Rows | None]:
        """Rows to fit, and rows that say when to stop, if any are to."""
        if self.n_iter_no_change is None:
            return rows, None
        from sklearn.model_selection import train_test_split

        n = len(rows.labels)
        n_held = max(1, round(self.validation_fraction * n))
        if n_held >= n:
            raise InputError(
                f"n_iter_no_change needs rows to hold out and rows to fit, got {n} in all. Set it to None for so few."
            )
        count, draw = np.bincount(rows.labels), self.random_state
        each = min(n_held, n - n_held) >= len(count) and count.min() > 1
        if isinstance(draw, np.random.Generator):
            draw = int(draw.integers(2**31))
        stratify = rows.labels if each else None
        inner, outer = train_test_split(np.arange(n), test_size=n_held, random_state=draw, stratify=stratify)
        return rows.some(np.sort(inner)), rows.some(np.sort(outer))

    def _learner(self, jobs: int) -> Stumps | Trees | Regressors:
        if self.learner == "stump":
            return Stumps(self.ridge, jobs)
        if self.learner == "tree":
            return Trees(self.max_depth, self.min_leaf, self.ridge, jobs)
        return Regressors(self.learner)

    def _discrete(self) -> list[int]:
        names = list(getattr(self, "feature_names_in_", ()))
        for one in self.discrete:
            if isinstance(one, str) and one not in names:
                raise InputError(f"discrete names the column {one!r}, which X has not; its columns are {names}.")
        return [names.index(one) if isinstance(one, str) else int(one) for one in self.discrete]

    def _name(self, step: Step) -> str:
        """What a round picked, as people read it."""
        column = column_names(self)
        if isinstance(step, EvidenceTable):
            return step.name
        if isinstance(step, Stump):
            missing = math.isinf(step.threshold)
            return f"{column(step.column)} {'is missing' if missing else f'> {step.threshold:.6g}'}"
        if isinstance(step, Categories):
            return column(step.column)
        if isinstance(step, RegressionTree):
            used = dict.fromkeys(cut.column for cut in step.cuts if cut is not None)
            return f"tree on {', '.join(map(column, used))}"
        return type(self.learner).__name__

    def _show(self, model: BoostedRows) -> None:
        super()._show(model)
        self.rounds_, self.n_iter_ = model.rounds, len(model.additive.steps)

    # --------------------------------------------------------------- prediction

    def _read(self, X: Data, evidence: Given) -> tuple[Table, Evidence]:
        wanted = self._fitted.evidence
        table = self._validated(X, reset=False)
        seen = Evidence(evidence, table.shape[0])
        if seen.sizes != wanted:
            raise ShapeError(
                f"the model was fitted with evidence {wanted or 'of no attribute'} (name: number of values), "
                f"got {seen.sizes or 'none'}. Give the same to predict."
            )
        return table, seen

    def _scores(self, X: Data, evidence: Given = None) -> np.ndarray:
        return self._fitted.additive.scores(*self._read(X, evidence))

    def decision_function(self, X: Data, evidence: Given = None) -> np.ndarray:
        """Scores (N, K), or for two classes the log-odds (N,) of the second."""
        return decisions(self._scores(X, evidence))

    def predict_log_proba(self, X: Data, evidence: Given = None) -> np.ndarray:
        """Logs of the probabilities (N, K)."""
        return log_probabilities(self._scores(X, evidence))

    def predict_proba(self, X: Data, evidence: Given = None) -> np.ndarray:
        """Probabilities (N, K) in the order of ``classes_``."""
        return np.exp(log_probabilities(self._scores(X, evidence)))

    def predict(self, X: Data, evidence: Given = None) -> np.ndarray:
        """The most probable classes (N,)."""
        best = self._scores(X, evidence).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def staged_predict_proba(self, X: Data, evidence: Given = None) -> Iterator[np.ndarray]:
        """Probabilities (N, K) after each round."""
        for scores in self._fitted.additive.staged(*self._read(X, evidence)):
            yield np.exp(log_probabilities(scores))

    def staged_predict(self, X: Data, evidence: Given = None) -> Iterator[np.ndarray]:
        """Classes (N,) after each round."""
        for table in self.staged_predict_proba(X, evidence):
            yield self.classes_[table.argmax(axis=1)]

    def score(self, X: Data, y: ArrayLike, sample_weight: Weights = None, evidence: Given = None) -> float:
        """Share of right answers."""
        weights = None if sample_weight is None else np.asarray(sample_weight)
        return float(np.average(self.predict(X, evidence) == np.asarray(y), weights=weights))

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each column (F,) in the gains of all rounds; regressors do not tell theirs."""
        return self._fitted.importances

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
