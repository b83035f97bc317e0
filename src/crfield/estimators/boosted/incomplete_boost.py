"""`IncompleteBoost`: a classifier for data of which part is hidden in part of them.

The estimator puts together what `boosting.incomplete` is made of: a form of the hidden part, its prior, a loss and a
solver. It reads ordinary columns X, labels y, and beside them ``hidden``, one entry per datum, None where nobody
looked. Equations and findings: ``docs/methods/boosting-incomplete-information.md``.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.boosting.incomplete import left_predictions as before
from crfield.boosting.incomplete.class_mass import class_mass_normalised
from crfield.boosting.incomplete.losses import LOSSES
from crfield.boosting.incomplete.structures import Draws, names_of
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.boosted.incomplete_checks import (
    NotYetFitted,
    check_classes,
    check_columns,
    check_incomplete_parameters,
    check_measure,
    check_weights,
    label_codes,
)
from crfield.estimators.boosted.incomplete_model import (
    Evidence,
    IncompleteModel,
    answer_for,
    beside,
    loss_of,
    own_columns,
)
from crfield.estimators.boosted.incomplete_training import form_for, solve


class IncompleteBoost(ClassifierMixin, Estimator):
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
        a window of tags per datum (`crfield.boosting.incomplete.hidden_chain.tag_windows`; in prediction, windows
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
        Ridge: ½ l2 |λ|² is added to the loss.
    baseline : None, "observed_only", "without_hidden" or "hidden_crf"
        The paper's comparisons: train on data with h known only; without h; with h ignored where it is known. They
        take ``gamma`` as 1.
    start : {"auto", "zero", "random", "jensen", "joint"}
        Weights to begin with; the last two: the solution of that convex loss. Zero by default, but random for
        *hidden_crf*: with a constant prior all values of h are alike, and only a random start tells them apart.
    left : int
        Labels of so many steps before are columns: rows of X are steps of sequences, whose ``lengths`` go to `fit`
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

    file_kind = "incomplete_boost"

    def __init__(
        self,
        *,
        loss: str = "mix",
        solver: str = "lbfgs",
        structure: str = "value",
        interactions: Any = None,
        pairs: bool = False,
        hidden_values: Any = None,
        prior: Any = "constant",
        reference: Any = None,
        gamma: float = 1.0,
        l2: float = 1.0,
        baseline: str | None = None,
        start: str = "auto",
        left: int = 0,
        class_mass: Any = False,
        answer: str = "auto",
        bound: str = "tight",
        smoothing: float = 1e-10,
        fit_intercept: bool = True,
        n_samples: int | None = None,
        max_iter: int = 500,
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.structure = structure
        self.interactions = interactions
        self.pairs = pairs
        self.hidden_values = hidden_values
        self.prior = prior
        self.reference = reference
        self.gamma = gamma
        self.l2 = l2
        self.baseline = baseline
        self.start = start
        self.left = left
        self.class_mass = class_mass
        self.answer = answer
        self.bound = bound
        self.smoothing = smoothing
        self.fit_intercept = fit_intercept
        self.n_samples = n_samples
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ------------------------------------------------------------------------------------------ training

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        hidden: Any = None,
        prior: Any = None,
        lengths: Any = None,
    ) -> Self:
        """Learn the weights.

        ``X`` (N, D) dense or sparse; the updates are meant for values in [0, 1], as in the paper, and scale others.
        ``hidden`` has one entry for each datum, None where h is not known. ``prior`` replaces the parameter with
        beliefs for each datum; ``lengths`` are the steps of each sequence, where ``left`` is not 0.
        """
        check_incomplete_parameters(self.get_params(deep=False))
        # A fit that fails must leave the old model as it was, and what scikit-learn's checks set is part of it.
        old = {name: vars(self)[name] for name in ("n_features_in_", "feature_names_in_") if name in vars(self)}
        try:
            self._fit(X, y, sample_weight, hidden, prior, lengths)
        except BaseException:
            for name in ("n_features_in_", "feature_names_in_"):
                if name in old:
                    setattr(self, name, old[name])
                elif hasattr(self, name):
                    delattr(self, name)
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, hidden: Any, prior: Any, lengths: Any) -> None:
        from sklearn.utils import check_random_state

        if y is None:
            check_classes(y, 0)
        rows = check_columns(self, X, reset=True)
        n = rows.shape[0]
        weight = check_weights(sample_weight, n)
        kept = weight > 0
        classes, labels = check_classes(y, n, np.flatnonzero(kept))
        place = before.positions(before.check_lengths(lengths, n))
        form = form_for(self, hidden, rows)
        draws = Draws(self.n_samples, int(check_random_state(self.random_state).randint(2**31 - 1)))
        codes, learnt = None, None
        if form is not None:
            codes = form.encode(hidden, rows)
            observed = form.observed(codes, rows)
            if isinstance(self.prior, str) and self.prior == "learnt" and prior is None:
                some = Evidence(rows, codes).some(np.flatnonzero(kept))
                own = own_columns(some.rows, intercept=bool(self.fit_intercept), scaled=self.structure == "bag")
                learnt = form.learn(own, np.asarray(some.codes), some.rows, l2=1.0)
            if self.baseline is None:
                weight = np.where(observed, self.gamma, 1.0) * weight
            elif self.baseline == "hidden_crf":
                codes = form.blank(codes)
            else:
                kept &= observed
                if not kept.any():
                    raise InputError(
                        "baseline='observed_only' needs data with nothing hidden, and hidden gives none."
                    )
        shares = np.bincount(labels[kept], weight[kept], len(classes))
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(classes), 1.0 / len(classes))
        model = IncompleteModel(
            classes,
            form,
            np.empty(0),
            learnt,
            shares,
            intercept=bool(self.fit_intercept),
            scaled=self.structure == "bag",
            left=int(self.left),
            draws=draws,
        )
        evidence = self._evidence(model, X, rows, codes, prior)
        columns = model.own_columns(rows)
        if self.left:
            extra = before.left_columns(labels, place, np.arange(n), left=self.left, n_labels=len(classes))
            columns = beside(columns, extra)
        at = np.flatnonzero(kept)
        options = {"labels": labels[at], "n_labels": len(classes), "weight": weight[at]}
        some, own = evidence.some(at), columns[at]
        result = solve(self, lambda loss: loss_of(form, some, own, draws, loss=loss, **options), form)
        weights = np.array(result.weights)
        weights.flags.writeable = False
        self._model = replace(model, weights=weights)
        self.classes_, self.hidden_classes_ = classes, names_of(form)
        self.objective_, self.history_ = float(result.value), result.history
        self.n_iter_, self.n_evaluations_ = max(1, result.n_iter), result.n_evaluations
        self.converged_, self.stop_reason_ = bool(result.converged), result.reason
        if not result.converged:
            warnings.warn(
                f"training stopped after {result.n_iter} steps ({result.reason}) before its tolerance of {self.tol} "
                "was met. Raise max_iter or tol, or l2 where classes can be told apart without error.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _evidence(self, model: IncompleteModel, X: Any, rows: Any, codes: np.ndarray | None, prior: Any) -> Evidence:
        """The data with prior and reference measure as arrays."""
        n, form = rows.shape[0], model.form
        beliefs = None
        if form is not None:
            given = prior
            if given is None and not isinstance(self.prior, str):
                given = self.prior(X) if callable(self.prior) else self.prior
            own = None if model.learnt is None else model.own_columns(rows)
            beliefs = form.beliefs(given, model.learnt, own, n)
        measure = self.reference
        if measure is None:
            return Evidence(rows, codes, beliefs)
        measure = model.shares if isinstance(measure, str) else measure(X) if callable(measure) else measure
        found = check_measure(measure, (n, model.n_labels))
        return Evidence(rows, codes, beliefs, np.log(found))

    # ------------------------------------------------------------------------------------------ answers

    @property
    def _fitted(self) -> IncompleteModel:
        if not hasattr(self, "_model"):
            raise NotYetFitted("this IncompleteBoost is not fitted yet. Call fit(X, y) first.")
        return self._model

    def predict(self, X: Any, *, hidden: Any = None, prior: Any = None, lengths: Any = None) -> np.ndarray:
        """(N,) labels; ``hidden`` where it is known for some of the data, as in `fit`."""
        codes = self.predict_proba(X, hidden=hidden, prior=prior, lengths=lengths).argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any, *, hidden: Any = None, prior: Any = None, lengths: Any = None) -> np.ndarray:
        """(N, Y) probabilities of the labels, in the order of ``classes_``."""
        model = self._fitted
        evidence = self._asked(X, hidden, prior)
        place = before.positions(before.check_lengths(lengths, evidence.n_data))
        answer = answer_for(self.loss, model.form) if self.answer == "auto" else self.answer
        found = model.answers(evidence, answer, place)
        if self.class_mass is False or self.class_mass is None:
            return found
        return class_mass_normalised(found, model.shares if self.class_mass is True else np.asarray(self.class_mass))

    def predict_log_proba(self, X: Any, *, hidden: Any = None, prior: Any = None, lengths: Any = None) -> np.ndarray:
        """(N, Y) logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, hidden=hidden, prior=prior, lengths=lengths))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, hidden: Any = None, prior: Any = None, lengths: Any = None
    ) -> float:
        """The share of right labels."""
        right = self.predict(X, hidden=hidden, prior=prior, lengths=lengths) == np.asarray(y)
        return float(
            np.average(right, weights=None if sample_weight is None else check_weights(sample_weight, len(y)))
        )

    def mean_loss(
        self,
        X: Any,
        y: Any,
        *,
        loss: str | None = None,
        hidden: Any = None,
        prior: Any = None,
        lengths: Any = None,
    ) -> float:
        """The loss of training, or another, per datum: of unnormalised models the paper reports −log of it.

        Labels of steps before (``left``) are the true ones here.
        """
        model = self._fitted
        evidence = self._asked(X, hidden, prior)
        loss = self.loss if loss is None else loss
        if loss not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {loss!r}.")
        codes = label_codes(y, model.classes, evidence.n_data)
        columns = model.own_columns(evidence.rows)
        if self.left:
            place = before.positions(before.check_lengths(lengths, evidence.n_data))
            rows = np.arange(evidence.n_data)
            columns = beside(
                columns, before.left_columns(codes, place, rows, left=self.left, n_labels=model.n_labels)
            )
        problem = loss_of(
            model.form, evidence, columns, model.draws, labels=codes, loss=loss, n_labels=model.n_labels
        )
        return float(problem.value(model.weights)) / max(evidence.n_data, 1)

    def _asked(self, X: Any, hidden: Any, prior: Any) -> Evidence:
        model = self._fitted
        rows = check_columns(self, X, reset=False)
        codes = None if model.form is None else model.form.encode(hidden, rows)
        return self._evidence(model, X, rows, codes, prior)

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
        model = self._fitted
        width = 0 if model.form is None else model.form.n_columns
        table = model.table()
        return table[len(table) - width :].T

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. A prior or reference that is a function
        is code and is not stored: give it again with ``set_params``.
        """
        from crfield.estimators.boosted.incomplete_file import save_incomplete

        save_incomplete(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
