"""`IncompleteBoost`: a classifier for data of which part is hidden in part of them.

The estimator puts together what `boosting.incomplete` is made of: a form of the hidden part, its prior, a loss and a
solver. It reads ordinary columns X, labels y, and beside them ``hidden``, one entry per datum, None where nobody
looked. Equations and findings: ``docs/methods/boosting-incomplete-information.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils import check_random_state

from crfield.boosting.incomplete import left_predictions as before
from crfield.boosting.incomplete import updates
from crfield.boosting.incomplete.class_mass import class_mass_normalised
from crfield.boosting.incomplete.losses import FACTORISING, LOSSES
from crfield.boosting.incomplete.structures import Bag, Draws, Form, Windows, chain_of, names_of, values_of
from crfield.core.checks import Check, flag, integer, loudness, number, one_of, resolve_jobs, threads
from crfield.core.estimator import ClassifierMixin
from crfield.core.parameters import learnt, parameter
from crfield.errors import InputError
from crfield.estimators.base.fitted import Fitted, json_value
from crfield.estimators.base.groups import warn_unless_converged
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.rows import RowTask
from crfield.estimators.boosted.incomplete.data import (
    Evidence,
    read_classes,
    read_codes,
    read_columns,
    read_measure,
    read_weights,
)
from crfield.estimators.boosted.incomplete.model import IncompleteModel, stored_form
from crfield.estimators.boosted.incomplete.sequences import Steps
from crfield.optimize.history import Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.storage.state import State

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array

    Hidden = Sequence[object] | np.ndarray | None  # one entry per datum
    Beliefs = ArrayLike | Sequence[ArrayLike] | Callable[[Any], Any]

RANDOM_START = 0.1  # standard deviation of the hidden columns' weights at a random start
PASS_TOLERANCE = 0.01  # of tol: what a pass of updates must lower the objective by to go on


def _name_or(names: tuple[str, ...], words: str) -> Check:
    """A check for one of a few names, or for what is no text."""
    return Check(words, lambda value: not isinstance(value, str) or value in names)


def _read_by(make: Callable[[Any], object]) -> Callable[[Any], bool]:
    """A test whether a value can be read."""

    def passes(value: object) -> bool:
        try:
            make(value)
        except (TypeError, ValueError):
            return False
        return True

    return passes


def _without_code(otherwise: str | None) -> Callable[[Any], Any]:
    """How a file holds an array that may be given as a function: functions are code and are not stored."""
    return lambda value: otherwise if callable(value) else json_value(value)


NON_NEGATIVE = number(0)
PRIOR = _name_or(("constant", "learnt"), "'constant', 'learnt', an array or a function of X")
REFERENCE = _name_or(("classes",), "None, 'classes', an array or a function of X")
INTERACTIONS = _name_or(("all",), "None, 'all' or a list of columns of X")
CLASS_MASS = Check(
    "True, False or one number for each class",
    _read_by(lambda value: np.asarray(0 if value is None else value, float)),
)
RANDOM_STATE = Check("an integer ≥ 0, a RandomState or None", _read_by(check_random_state))


class IncompleteBoost(ClassifierMixin, Fitted[IncompleteModel], kind="incomplete_boost", model=IncompleteModel):
    """Boosting with incomplete information (Haffari et al., ICML 2008).

    A linear classifier with weights for columns of X, and for columns that depend on a hidden part h of each datum. h
    is given to `fit` (and to `predict`) as ``hidden`` for the data where it is known, None for the others, which are
    summed over h with a prior q₀(h | x). Without ``hidden`` it is multinomial logistic regression (with the losses
    *mix*, *jensen*, *joint* and *hcrf*) or AdaBoost's exponential loss over labels.

    Where h only adds to the score, logistic regression on imputed values is as good and simpler; this model is ahead
    where h decides what the columns of X mean (``interactions="all"``; `crfield reproduce incomplete-rivals`).

    Parameters
    ----------
    loss : {"mix", "jensen", "joint", "exp", "exp-mean", "hcrf"}
        *mix*: −log Σ_h q₀ p(ỹ | x, h), the likelihood. *jensen* and *joint*: its convex upper bounds. *exp* and
        *exp-mean*: exponential losses, of the unnormalised model. *hcrf*: hidden conditional random field.
    solver : {"lbfgs", "parallel", "sequential"}
        L-BFGS, or the updates of boosting, which never raise the loss.
    structure : {"value", "attributes", "chain", "bag"}
        What h is. *value*: one value per datum. *attributes*: a list of values per datum, any of them None. *chain*:
        a window of tags per datum (`crfield.boosting.incomplete.hidden.chain.tag_windows`; in prediction, windows
        without tags still tell which places lie outside). *bag*: X counts words, and h says how many of each lie in
        the foreground: a row of counts per datum, or None. Chains and bags are summed without listing h, which the
        losses *mix* and *jensen* do not allow.
    interactions : None, "all" or list of int
        Columns of X that are conjoined with each value of h; None: h alone. For values and attributes.
    pairs : bool
        Whether neighbouring tags of a chain are columns too.
    hidden_values : list, optional
        All values that h may have (one list for each attribute); those seen in ``hidden`` if None.
    prior : {"constant", "learnt"}, array or function
        q₀(h | x). *learnt*: from the data where h is known. An array is the same for all data: (H,); a list of them
        for attributes; (S,) or (T, S) tags of a chain; chances of the foreground (K,) or one for a bag. A function
        of X gives (N, H), a list of such, or (N, T, S). `fit` and `predict` also take ``prior=`` of that form.
    reference : None, "classes", array (Y,) or function of X giving (N, Y)
        The measure r that the model departs from, q(y | x, h) ∝ r(x, y) e^score; *classes*: the shares of the labels.
    gamma : float
        Weight of the data in which nothing is hidden.
    l2 : float
        Ridge: ½ l2 ‖λ‖² is added to the loss.
    baseline : None, "observed_only", "without_hidden" or "hidden_crf"
        The paper's comparisons: train on data with h known only; without h; with h ignored where it is known. They
        take ``gamma`` as 1.
    start : {"auto", "zero", "random", "jensen", "joint"}
        Weights to begin with; the last two: the solution of that convex loss. Zero by default, but random for
        *hidden_crf*: with a constant prior all values of h are alike, and only a random start tells them apart.
    left : int
        Labels of so many steps before are columns: X is a list of sequences, or rows whose ``lengths`` go to `fit`
        and `predict`. Prediction decides step by step.
    class_mass : bool or array (Y,)
        Whether probabilities of a batch are brought to the shares of the labels in training, or to those given.
    answer : {"auto", "mixture", "expected", "joint"}
        p(y | x) with h hidden: Σ_h q₀ p(y | x, h); softmax of Σ_h q₀ s; or Σ_h q₀ e^s, normalised. By the loss if
        "auto".
    bound : {"tight", "printed"}
        Of sequential updates; *printed* is the paper's, which is very slow on sparse columns.
    smoothing : float
        Added to the counts of updates when l2 is 0, where a count of zero would ask for an infinite step.
    fit_intercept : bool
        Whether a column of ones is added.
    n_samples : int, optional
        Foregrounds drawn for each image, for *mix*, *jensen* and mixtures on bags.
    max_iter, tol : int, float
        Steps at most, and the relative distance to the optimum to stop at (for updates: a fall per pass of tol /
        100).
    random_state : int, RandomState or None
        For random starts and drawn samples.
    n_jobs : int, optional
        Threads of L-BFGS and of sums over chains.
    verbose : int
        Shows the steps of training.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import IncompleteBoost
    >>> X = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
    >>> y = ["in", "out", "in", "out", "in", "out"]
    >>> tags = ["noun", "verb", "noun", "verb", None, None]
    >>> model = IncompleteBoost(prior="learnt").fit(X, y, hidden=tags)
    >>> model.predict(X[:2], hidden=["verb", None])
    array(['out', 'in'], dtype='<U3')
    >>> model.predict_proba(X[:1]).shape, model.hidden_classes_
    ((1, 2), [['noun', 'verb']])
    """

    loss: str = parameter(one_of(*LOSSES), default="mix")
    solver: str = parameter(one_of("lbfgs", "parallel", "sequential"), default="lbfgs")
    structure: str = parameter(one_of("value", "attributes", "chain", "bag"), default="value")
    interactions: str | Sequence[int] | None = parameter(INTERACTIONS, default=None)
    pairs: bool = parameter(flag, default=False)
    hidden_values: Sequence[Any] | None = parameter(default=None, stored=False)
    prior: Beliefs = parameter(PRIOR, default="constant", to_json=_without_code("constant"))
    reference: ArrayLike | Callable[[Any], ArrayLike] | None = parameter(
        REFERENCE, default=None, to_json=_without_code(None)
    )
    gamma: float = parameter(NON_NEGATIVE, default=1.0)
    l2: float = parameter(NON_NEGATIVE, default=1.0)
    baseline: str | None = parameter(one_of("observed_only", "without_hidden", "hidden_crf") | None, default=None)
    start: str = parameter(one_of("auto", "zero", "random", "jensen", "joint"), default="auto")
    left: int = parameter(integer(0), default=0)
    class_mass: bool | ArrayLike | None = parameter(CLASS_MASS, default=False)
    answer: str = parameter(one_of("auto", "mixture", "expected", "joint"), default="auto")
    bound: str = parameter(one_of("tight", "printed"), default="tight")
    smoothing: float = parameter(NON_NEGATIVE, default=1e-10)
    fit_intercept: bool = parameter(flag, default=True)
    n_samples: int | None = parameter(integer(1) | None, default=None)
    max_iter: int = parameter(integer(1), default=500)
    tol: float = parameter(NON_NEGATIVE, default=1e-4)
    random_state: Any = parameter(RANDOM_STATE, default=None)
    n_jobs: int | None = parameter(threads, default=None)
    verbose: int = parameter(loudness, default=0)

    classes_: np.ndarray = learnt()
    hidden_classes_: list[Any] = learnt()

    def _check_together(self) -> None:
        loss, solver, structure = self.loss, self.solver, self.structure
        if loss == "hcrf" and solver != "lbfgs":
            raise InputError(f"the loss 'hcrf' has no counts A⁺, A⁻ for solver={solver!r}. Use solver='lbfgs'.")
        if structure in ("chain", "bag") and self.baseline != "without_hidden":
            samples = structure == "bag" and self.n_samples is not None
            if loss not in FACTORISING and not samples:
                more = ", or list some drawn foregrounds: n_samples=20" if structure == "bag" else ""
                raise InputError(
                    f"the loss {loss!r} needs the normalised model p(y | x, h), which does not factorise over a "
                    f"{structure}. Use one of {', '.join(map(repr, FACTORISING))}{more}."
                )
            if solver == "sequential" and loss in ("joint", "exp"):
                raise InputError(
                    f"sequential updates need the values of h listed one by one, and those of a {structure} are "
                    "summed without a list. Use solver='lbfgs' or 'parallel'."
                )
            if self.interactions is not None:
                raise InputError(f"interactions are for structure='value' and 'attributes', not for {structure!r}.")
        if self.start in ("jensen", "joint") and loss not in ("mix", "hcrf"):
            raise InputError(f"start={self.start!r} is for the losses 'mix' and 'hcrf', which are not convex.")

    # ------------------------------------------------------------------------------------------ training

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        hidden: Hidden = None,
        prior: Beliefs | None = None,
        lengths: ArrayLike | None = None,
    ) -> Self:
        """Learn the weights.

        ``X`` (N, D) dense or sparse; the updates are meant for values in [0, 1], as in the paper, and scale others.
        ``hidden`` has one entry for each datum, None where h is not known. ``prior`` replaces the parameter with
        beliefs for each datum; ``lengths`` are the steps of each sequence, where ``left`` is not 0.

        ``X`` may also be a list of sequences (steps, D), as other models have it; ``y`` and ``hidden`` are then lists
        with one list for each, ``sample_weight`` has one number for each, and answers come in the same form.
        """
        self.check()
        steps = Steps.of(X, lengths)
        X, y, hidden = steps.X, steps.flat("y", y), steps.flat("hidden", hidden)
        reader = copy(self)  # whose X scikit-learn looks at: a fit that fails leaves this model as it was
        rows = read_columns(reader, X, reset=True)
        weight = read_weights(steps.weights(sample_weight), rows.shape[0])
        kept = weight > 0
        classes, labels = read_classes(y, kept)
        place = before.positions(before.check_lengths(steps.lengths, len(labels)))
        form = self._form(hidden, rows)
        codes = None if form is None else form.encode(hidden, rows)
        model = IncompleteModel(
            RowTask.of(reader, classes),
            form,
            weights=np.empty(0),
            learnt=None,
            shares=np.empty(0),
            intercept=bool(self.fit_intercept),
            scaled=self.structure == "bag",
            left=int(self.left),
            draws=Draws(self.n_samples, int(check_random_state(self.random_state).randint(2**31 - 1))),
        )
        data = Evidence(rows, model.own_columns(rows), codes)
        if form is not None and isinstance(self.prior, str) and self.prior == "learnt" and prior is None:
            some = data.some(np.flatnonzero(kept))
            model = replace(model, learnt=form.learn(some.columns, np.asarray(some.codes), some.rows, l2=1.0))
        if form is not None:
            data, weight, kept = self._weighed(form, data, weight, kept)
        shares = np.bincount(labels[kept], weight[kept], len(classes))
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(classes), 1.0 / len(classes))
        model = replace(model, shares=shares)
        data = model.with_left(self._believed(model, data, X, prior), labels, place)
        at = np.flatnonzero(kept)
        some = data.some(at)
        result = self._train(lambda loss: model.problem(some, labels[at], loss, weight[at]), form)
        self._learn(replace(model, weights=np.array(result.weights)), replace(result, n_iter=max(1, result.n_iter)))
        advice = "Raise max_iter or tol, or l2 where classes can be told apart without error"
        warn_unless_converged(result, self.tol, advice)
        return self

    def _form(self, hidden: Hidden, rows: csr_array) -> Form | None:
        """The form of the hidden part; None where there is none to speak of."""
        (n, width), given = rows.shape, self.hidden_values
        if self.baseline == "without_hidden":
            return None
        if self.structure == "bag":
            return Bag(width)
        if self.structure == "chain":
            coder, places = chain_of(hidden, n, given)
            return Windows(coder, places, bool(self.pairs), resolve_jobs(self.n_jobs)) if coder and places else None
        several = self.structure == "attributes"
        return values_of(hidden, n, given, several=several, width=width, interactions=self.interactions)

    def _weighed(
        self, form: Form, data: Evidence, weight: np.ndarray, kept: np.ndarray
    ) -> tuple[Evidence, np.ndarray, np.ndarray]:
        """The data, their weights and whether they are used, as ``gamma`` or the baseline has it."""
        codes = np.asarray(data.codes)
        observed = form.observed(codes, data.rows)
        if self.baseline is None:
            return data, np.where(observed, self.gamma, 1.0) * weight, kept
        if self.baseline == "hidden_crf":
            return replace(data, codes=form.blank(codes)), weight, kept
        if not (kept & observed).any():
            raise InputError("baseline='observed_only' needs data with nothing hidden, and hidden gives none.")
        return data, weight, kept & observed

    def _believed(self, model: IncompleteModel, data: Evidence, X: Any, prior: Beliefs | None) -> Evidence:
        """The data with prior and reference measure as arrays."""
        n, beliefs, measure = data.n_data, None, self.reference
        if model.form is not None:
            if prior is None and not isinstance(self.prior, str):
                prior = self.prior(X) if callable(self.prior) else self.prior
            beliefs = model.form.beliefs(prior, model.learnt, data.columns, n)
        if measure is None:
            return replace(data, beliefs=beliefs)
        measure = model.shares if isinstance(measure, str) else measure(X) if callable(measure) else measure
        return replace(data, beliefs=beliefs, log_reference=np.log(read_measure(measure, (n, model.n_labels))))

    def _train(self, problem_of: Callable[[str], Any], form: Form | None) -> Result:
        """Minimise the loss from the start that was asked for."""
        problem, penalty, jobs = problem_of(self.loss), Penalty(l2=self.l2), resolve_jobs(self.n_jobs)
        start = np.zeros(problem.n_weights)
        kind = self.start
        if kind == "auto":
            kind = "random" if self.baseline == "hidden_crf" else "zero"
        if kind == "random" and form is not None:
            own = problem.tables(start)[1]
            own[:] = check_random_state(self.random_state).normal(scale=RANDOM_START, size=own.shape)
        elif kind in ("jensen", "joint"):
            start = minimize(problem_of(kind), start, penalty, tol=self.tol, max_iter=self.max_iter).weights
        with Progress(self.verbose, total=self.max_iter, description=f"{self.loss}, {self.solver}") as progress:

            def show(step: Step, weights: np.ndarray) -> None:
                progress.update(step)

            options: dict[str, Any] = {"max_iter": self.max_iter, "callback": show}
            if self.solver == "lbfgs":
                return minimize(problem, start, penalty, tol=self.tol, n_jobs=jobs, **options)
            options |= {"l2": float(self.l2), "smoothing": self.smoothing, "tol": PASS_TOLERANCE * self.tol}
            if self.solver == "parallel":
                return updates.parallel(problem, start, **options)
            return updates.sequential(problem, start, tight=self.bound == "tight", **options)

    def _show(self, model: IncompleteModel) -> None:
        task = model.task
        self.classes_, self.hidden_classes_ = task.classes, names_of(model.form)
        self.n_features_in_ = int(task.n_columns or 0)
        if task.column_names is not None:
            self.feature_names_in_ = task.column_names
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_

    # ------------------------------------------------------------------------------------------ answers

    def predict(
        self, X: Any, *, hidden: Hidden = None, prior: Beliefs | None = None, lengths: ArrayLike | None = None
    ) -> np.ndarray:
        """(N,) labels; ``hidden`` where it is known for some of the data, as in `fit`."""
        steps = Steps.of(X, lengths)
        codes = self._probabilities(steps, hidden, prior).argmax(axis=1)
        return steps.cut(self.classes_[codes])

    def predict_proba(
        self, X: Any, *, hidden: Hidden = None, prior: Beliefs | None = None, lengths: ArrayLike | None = None
    ) -> np.ndarray:
        """(N, Y) probabilities of the labels, in the order of ``classes_``."""
        steps = Steps.of(X, lengths)
        return steps.cut(self._probabilities(steps, hidden, prior))

    def _probabilities(self, steps: Steps, hidden: Hidden, prior: Beliefs | None) -> np.ndarray:
        """(N, Y) of all steps."""
        model, evidence = self._asked(steps, hidden, prior)
        place = before.positions(before.check_lengths(steps.lengths, evidence.n_data))
        answer = model.answer_for(self.loss) if self.answer == "auto" else self.answer
        found = model.answers(evidence, answer, place)
        if self.class_mass is False or self.class_mass is None:
            return found
        return class_mass_normalised(found, model.shares if self.class_mass is True else np.asarray(self.class_mass))

    def predict_log_proba(
        self, X: Any, *, hidden: Hidden = None, prior: Beliefs | None = None, lengths: ArrayLike | None = None
    ) -> np.ndarray:
        """(N, Y) logarithms of `predict_proba`."""
        steps = Steps.of(X, lengths)
        with np.errstate(divide="ignore"):
            return steps.cut(np.log(self._probabilities(steps, hidden, prior)))

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        hidden: Hidden = None,
        prior: Beliefs | None = None,
        lengths: ArrayLike | None = None,
    ) -> float:
        """The share of right labels."""
        steps = Steps.of(X, lengths)
        codes = self._probabilities(steps, hidden, prior).argmax(axis=1)
        right = self.classes_[codes] == np.asarray(steps.flat("y", y))
        return float(np.average(right, weights=read_weights(steps.weights(sample_weight), len(right))))

    def mean_loss(
        self,
        X: Any,
        y: ArrayLike,
        *,
        loss: str | None = None,
        hidden: Hidden = None,
        prior: Beliefs | None = None,
        lengths: ArrayLike | None = None,
    ) -> float:
        """The loss of training, or another, per datum: of unnormalised models the paper reports −log of it.

        Labels of steps before (``left``) are the true ones here.
        """
        steps = Steps.of(X, lengths)
        model, evidence = self._asked(steps, hidden, prior)
        loss = self.loss if loss is None else loss
        one_of(*LOSSES)("loss", loss)
        codes = read_codes(steps.flat("y", y), self.classes_, evidence.n_data)
        place = before.positions(before.check_lengths(steps.lengths, evidence.n_data))
        problem = model.problem(model.with_left(evidence, codes, place), codes, loss)
        return float(problem.value(model.weights)) / max(evidence.n_data, 1)

    def _asked(self, steps: Steps, hidden: Hidden, prior: Beliefs | None) -> tuple[IncompleteModel, Evidence]:
        """The model, and the data as it reads them."""
        model = self._fitted
        rows = read_columns(self, steps.X, reset=False)
        codes = None if model.form is None else model.form.encode(steps.flat("hidden", hidden), rows)
        return model, self._believed(model, Evidence(rows, model.own_columns(rows), codes), steps.X, prior)

    # ------------------------------------------------------------------------------------------ what was learnt

    @property
    def coef_(self) -> np.ndarray:
        """(Y, D) weights of the columns of X; read-only, as those below."""
        return self._fitted.table()[: self.n_features_in_].T

    @property
    def intercept_(self) -> np.ndarray:
        """(Y,) weights of the column of ones."""
        model, at = self._fitted, self.n_features_in_
        return model.table()[at] if model.intercept else np.zeros(model.n_labels)

    @property
    def left_coef_(self) -> np.ndarray:
        """(left, Y + 1, Y) weights of the label so many steps before, "no such step" last."""
        model, at = self._fitted, self.n_features_in_ + self._fitted.intercept
        shape = model.left, model.n_labels + 1, model.n_labels
        return model.table()[at : at + shape[0] * shape[1]].reshape(shape)

    @property
    def hidden_coef_(self) -> np.ndarray:
        """(Y, D₂) weights of the columns that depend on h: the values of each attribute, each followed by its
        interactions; the tags of each place, then of each pair; or the words in the foreground, then in the
        background.
        """
        model, table = self._fitted, self._fitted.table()
        width = 0 if model.form is None else model.form.n_columns
        return table[len(table) - width :].T

    # ------------------------------------------------------------------------------------------ files

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. A prior or reference that is a function
        is code and is not stored: give it again with ``set_params``.
        """
        super().save(path)

    def _state(self) -> State:
        state = super()._state()
        return State(state.header | {"hidden_values": self.hidden_values is not None}, state.arrays)

    @classmethod
    def _with_parameters(cls, state: State) -> Self:
        made = super()._with_parameters(state)
        if state.header.get("hidden_values") is True:
            values = names_of(stored_form(state))
            made.hidden_values = values if made.structure == "attributes" else values[0] if values else None
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
