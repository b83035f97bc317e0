"""`ClassifierHMM`: a hidden Markov model whose emissions come from a classifier.

    p(y, x) ∝ p(y_1) Π_t p(y_t | y_{t-1}) Π_t p(x_t | y_t)          p(x_t | y_t) = p(y_t | x_t) p(x_t) / p(y_t)

By Bayes' rule a classifier of single steps serves as a density of them, up to p(x_t), which no label depends on
(Bourlard & Morgan 1994, *Connectionist speech recognition*). Transitions are counted, with ``smoothing`` added to
every count. Nothing is trained jointly: the classifier knows of no neighbours and the transitions of no evidence,
which is what makes it the baseline of conditional fields ("HMM + boosting" in Liao, Choudhury, Fox & Kautz 2007).
What overlapping columns tell twice is counted twice; ``emission_weight`` below 1 takes some of it back.

Given x it is a chain of scores like any other, so the exact engine answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any, Self

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.labels import LabelCoder
from crfield.data.large import ADVICE, largest_cell
from crfield.errors import FeatureError, InputError, LabelError, NotFittedError
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.base.sklearn_parts import as_matrix, fit_clone, node_weights
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.export.step_scores import StepScorer, single_steps
from crfield.features.columns.step_windows import check_window, windowed
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.inference.decode import check_decoder
from crfield.training.markov.counting import counted

FLOOR = 1e-10  # no classifier is so sure of what a label is not


class ClassifierHMM(ChainAnswers[Any]):
    """Hidden Markov model with counted transitions and a classifier's scores.

    X is a list of sequences: 2-D arrays, CSR matrices, or dicts or lists of strings for every step. Steps of unknown
    label are not counted and teach the classifier nothing.

    Parameters
    ----------
    classifier : scikit-learn classifier with ``predict_proba``, optional
        Cloned and fitted on single steps; `LogitBoost` if None. Weights of sequences reach it if its ``fit`` takes
        ``sample_weight``.
    smoothing : float
        Added to the count of every transition and of every first label. With 0, pairs never seen are impossible.
    emission_weight : float
        Factor of log p(x | label).
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1 for the classifier; stumps and trees do not need it.
    window : int
        The classifier also sees the columns of this many steps before and after.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step.
    n_jobs : int or None
        Threads of inference; -1 for all processors.

    Attributes
    ----------
    classifier_, transition_probabilities_, start_probabilities_, class_shares_, classes_
        The fitted classifier (its classes are codes), (K, K), (K,) and (K,) tables, and the labels.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> y = [["low", "low", "high", "high"], ["high", "low", "low"]]
    >>> model = ClassifierHMM(LogisticRegression()).fit(X, y)
    >>> model.predict([[[0.2], [1.3]]])[0].tolist(), model.transition_probabilities_.tolist()
    (['low', 'high'], [[0.5, 0.5], [0.4, 0.6]])
    """

    def __init__(
        self,
        classifier: Any = None,
        *,
        smoothing: float = 1.0,
        emission_weight: float = 1.0,
        standardize: bool = False,
        window: int = 0,
        decode: str = "viterbi",
        n_jobs: int | None = None,
    ) -> None:
        self.classifier = classifier
        self.smoothing = smoothing
        self.emission_weight = emission_weight
        self.standardize = standardize
        self.window = window
        self.decode = decode
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Count transitions and fit the classifier; ``sample_weight`` has one number for each sequence."""
        check_hmm_parameters(self.get_params(deep=False))
        classifier = self._chosen()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        coder = LabelCoder().fit(y)
        encoder = encoder_for(X, standardize=bool(self.standardize))
        batch = encoder.fit(X)
        chains = batch.topology
        labels, allowed = coder.encode(y, chains.lengths)
        known = np.flatnonzero(labels >= 0)
        missing = np.flatnonzero(np.bincount(labels[known], minlength=coder.n_labels) == 0)
        if len(missing) or not len(known):
            name = repr(coder.labels[missing[0]]) if len(missing) else "any"
            raise LabelError(f"label {name} is on no step whose label is known, so nothing can be counted for it.")
        weight = np.ones(chains.n_sequences)
        if sample_weight is not None:
            weight = check_weights(sample_weight, chains.n_sequences)
        target = Target(chains, coder.n_labels, labels, allowed, weight)
        start, transition, shares = counted(target, smoothing=float(self.smoothing))
        fitted: Any = None
        if coder.n_labels > 1:  # one label needs no classifier, and most refuse it
            table = windowed(as_matrix(batch.node), chains, reach=self.window)
            rows = None if sample_weight is None else weight[chains.sequence_of_node]
            options = node_weights(classifier, rows, known, role="the classifier")
            fitted = fit_clone(classifier, table[known], labels[known], role="the classifier", **options)
        self.classifier_, self._encoder, self._labels_known = fitted, encoder, coder
        self.start_probabilities_, self.transition_probabilities_, self.class_shares_ = start, transition, shares
        self.classes_, self.converged_ = coder.classes_, True
        return self

    def _chosen(self) -> Any:
        classifier = self.classifier
        if classifier is None:
            from crfield.estimators.boosted.logit_boost import LogitBoost

            return LogitBoost()
        if isinstance(classifier, type) or not hasattr(classifier, "fit") or not hasattr(classifier, "predict_proba"):
            got = f"the class {classifier.__name__}" if isinstance(classifier, type) else type(classifier).__name__
            raise InputError(
                f"classifier must be an object with fit and predict_proba, got {got}. Wrap one without probabilities "
                "in sklearn.calibration.CalibratedClassifierCV."
            )
        return classifier

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this ClassifierHMM is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._labels_known

    _encoder: Encoder

    def _states(self) -> None:
        return None

    def potentials(self, X: Any) -> Potentials:
        """The scores of X: emission_weight · log p(c | x) / p(c) at steps, log p(c | b) on edges."""
        labels = self._coder.n_labels
        batch = self._encoder.encode(X)
        chains = batch.topology
        node = np.zeros((chains.n_nodes, labels))
        if labels > 1 and chains.n_nodes:
            table = windowed(as_matrix(batch.node), chains, reach=self.window)
            with np.errstate(over="ignore", invalid="ignore"):
                chances = np.asarray(self.classifier_.predict_proba(table), np.float64)
            if not np.isfinite(chances).all():
                cell = largest_cell(batch, self._encoder, int(np.argmin(np.isfinite(chances).all(axis=1))))
                raise FeatureError(f"{cell}, and the classifier has no finite probability there. {ADVICE}.")
            node = self.emission_weight * (np.log(np.maximum(chances, FLOOR)) - np.log(self.class_shares_))
        with np.errstate(divide="ignore"):
            start, transition = np.log(self.start_probabilities_), np.log(self.transition_probabilities_)
        node[chains.offsets[:-1][chains.lengths > 0]] += start
        return Potentials(node, transition[None], chains)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        with np.errstate(divide="ignore"):
            start, transition = np.log(self.start_probabilities_), np.log(self.transition_probabilities_)
        tables = {"start": start, "end": np.zeros(len(start)), "transitions": transition}
        return single_steps(self, tables, varied=False, window=self.window, more=[self.class_shares_])

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. The classifier must be a `LogitBoost` of
        stumps or trees or a logistic regression: others are code, and for those there is joblib.
        """
        from crfield.estimators.markov.classifier_hmm_file import save_classifier_hmm

        self._coder  # noqa: B018
        save_classifier_hmm(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")


def check_hmm_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `ClassifierHMM` but the classifier has a value that can be used.

    >>> check_hmm_parameters(ClassifierHMM(smoothing=-1).get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: smoothing must be a finite number of at least 0, got -1.
    """
    for name in ("smoothing", "emission_weight"):
        value = parameters[name]
        if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not isfinite(value) or value < 0:
            raise InputError(f"{name} must be a finite number of at least 0, got {value!r}.")
    if not isinstance(parameters["standardize"], bool | np.bool_):
        raise InputError(f"standardize must be True or False, got {parameters['standardize']!r}.")
    check_window(parameters["window"])
    check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])
