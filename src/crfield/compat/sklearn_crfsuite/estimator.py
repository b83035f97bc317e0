"""`CRF`: sklearn-crfsuite's estimator, trained by `ChainCRF`.

Its parameters, attributes and methods, so that scripts, searches and pipelines written for it run unchanged; the
optimum of ``algorithm="lbfgs"`` is the one that CRFsuite's objective has. Inside there is a `ChainCRF` (``chain_``)
with everything that the old interface has no word for: n-best labellings, explanations, sample weights, model files.

Different on purpose: features count by occurrence, so numbers whose sum is negative keep their weights (CRFsuite
drops them in silence); NaN is an error; ``predict`` gives a list of lists, whatever the lengths; all algorithms take
a seed; nothing is written to temporary files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from crfield.compat.crfsuite_model import to_crfsuite
from crfield.compat.sklearn_crfsuite.items import as_array, asked, plain_items, plain_labels
from crfield.compat.sklearn_crfsuite.metrics import flat_accuracy_score, flat_f1_score, sequence_accuracy_score
from crfield.compat.sklearn_crfsuite.settings import chain_for
from crfield.compat.sklearn_crfsuite.tagger import (
    ModelInfo,
    Tagger,
    TrainingLog,
    by_occurrence,
    model_info,
    training_log,
)
from crfield.core.estimator import Estimator
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.estimators.base.load import load
from crfield.estimators.chain.crf import ChainCRF
from crfield.storage.foreign.crfsuite import format_crfsuite_model, write_crfsuite_model


class CRF(Estimator):
    """Linear-chain CRF with the interface of ``sklearn_crfsuite.CRF``.

    Parameters
    ----------
    algorithm : "lbfgs", "l2sgd", "ap" (or "averaged-perceptron"), "pa" (or "passive-aggressive") or "arow"
        How to train; see `crfield.compat.sklearn_crfsuite.settings` for what each parameter becomes.
    min_freq : float
        Pairs (feature, label) and (label, label) that occur less often have no weight.
    all_possible_states, all_possible_transitions : bool
        Weights also for pairs that do not occur.
    c1, c2 : float
        Penalties c1 ‖w‖₁ + c2 ‖w‖²; c2 is 1 where it is not given.
    max_iterations : int
        Most steps; ``lbfgs`` has no limit by itself. To stop by it is no warning here.
    delta, period, epsilon :
        When to stop: ``delta`` in ``period`` steps for lbfgs and l2sgd, ``epsilon`` for the others.
    num_memories, linesearch, max_linesearch, calibration_* :
        Taken, and without a meaning here; a warning says so if they are not CRFsuite's defaults.
    pa_type, c, error_sensitive, averaging, variance, gamma :
        Of "pa" and "arow".
    verbose : bool
        A line for every step.
    model_filename : str, optional
        A model of CRFsuite: read when it is there, written after ``fit``.
    keep_tempfiles, trainer_cls :
        Taken; there are no temporary files and no such trainers.
    n_jobs, random_state :
        Not in sklearn-crfsuite: threads, and the seed of the stochastic algorithms.

    Examples
    --------
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> y = [["DET", "NOUN"], ["DET", "NOUN"]]
    >>> crf = CRF(c1=0.01, c2=0.01, max_iterations=100, all_possible_transitions=True).fit(X, y)
    >>> crf.predict([[{"word": "the"}, {"word": "cat"}]]), crf.classes_
    (array([['DET', 'NOUN']], dtype=object), ['DET', 'NOUN'])
    """

    def __init__(
        self,
        algorithm: str | None = None,
        min_freq: float | None = None,
        all_possible_states: bool | None = None,
        all_possible_transitions: bool | None = None,
        c1: float | None = None,
        c2: float | None = None,
        max_iterations: int | None = None,
        num_memories: int | None = None,
        epsilon: float | None = None,
        period: int | None = None,
        delta: float | None = None,
        linesearch: str | None = None,
        max_linesearch: int | None = None,
        calibration_eta: float | None = None,
        calibration_rate: float | None = None,
        calibration_samples: int | None = None,
        calibration_candidates: int | None = None,
        calibration_max_trials: int | None = None,
        pa_type: int | None = None,
        c: float | None = None,
        error_sensitive: bool | None = None,
        averaging: bool | None = None,
        variance: float | None = None,
        gamma: float | None = None,
        verbose: bool = False,
        model_filename: str | None = None,
        keep_tempfiles: bool | None = False,
        trainer_cls: Any = None,
        *,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.verbose = verbose
        self.model_filename = model_filename
        self.keep_tempfiles = keep_tempfiles
        self.trainer_cls = trainer_cls
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_dev: Any = None, y_dev: Any = None) -> Self:
        """Learn from sequences of feature dicts and their labels; held-out data are scored after the last step."""
        if (X_dev is None) != (y_dev is None):
            raise InputError("held-out data are X_dev and y_dev together; one of them is missing.")
        model = chain_for(self.get_params(deep=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # max_iterations is a usual way to stop there
            model.fit(plain_items(X), y := plain_labels(y))
        self._chain, self._info_known = model, None
        self._order = by_occurrence(y, model.classes_.tolist())
        log = training_log(model)
        if X_dev is not None:
            found, y_dev = self.predict(X_dev), plain_labels(y_dev)
            log.last_iteration["item_accuracy_float"] = flat_accuracy_score(y_dev, found)
            log.last_iteration["instance_accuracy_float"] = sequence_accuracy_score(y_dev, found)
            log.last_iteration["avg_f1"] = float(flat_f1_score(y_dev, found, average="macro", zero_division=0.0))
        self.training_log_ = log
        if self.model_filename is not None:
            write_crfsuite_model(self.model_filename, to_crfsuite(model))
        return self

    # --------------------------------------------------------------- prediction

    def predict(self, X: Any) -> np.ndarray:
        """Labels of every sequence: an array of lists, or a 2-D array where all sequences are equally long."""
        return as_array([labels.tolist() for labels in asked(self.chain_.predict, X)])

    def predict_single(self, xseq: Any) -> list[Any]:
        """Labels of one sequence."""
        return self.predict([xseq])[0].tolist()

    def predict_marginals(self, X: Any) -> np.ndarray:
        """Probability of each label at each step of every sequence, in an array of the form of `predict`."""
        order = self._labels()
        found = asked(self.chain_.predict_marginals, X)
        return as_array([[{label: step[label] for label in order} for step in sequence] for sequence in found])

    def predict_marginals_single(self, xseq: Any) -> list[dict[Any, float]]:
        """Probability of each label at each step of one sequence."""
        return self.predict_marginals([xseq])[0].tolist()

    def score(self, X: Any, y: Any) -> float:
        """Share of the steps whose label is right."""
        return flat_accuracy_score(plain_labels(y), self.predict(X))

    # ---------------------------------------------------------------- attributes

    training_log_: TrainingLog | None = None
    _info_known: ModelInfo | None = None

    @property
    def chain_(self) -> ChainCRF:
        """The model itself, with all that `ChainCRF` can do."""
        model: ChainCRF | None = getattr(self, "_chain", None)
        if model is None and self.model_filename is not None and os.path.isfile(self.model_filename):
            model = load(self.model_filename)
            if not isinstance(model, ChainCRF):
                raise InputError(f"{self.model_filename} holds a {type(model).__name__}, not a chain.")
            self._chain, self._order, self._info_known = model, model.classes_.tolist(), None
        if model is None:
            raise NotFittedError("this CRF is not fitted yet. Call fit(X, y) first, or give the file of a model.")
        return model

    def _known(self) -> bool:
        try:
            return self.chain_ is not None
        except NotFittedError:
            return False

    def _labels(self) -> list[Any]:
        self.chain_  # noqa: B018  (reads the file if there is one)
        return self._order

    @property
    def tagger_(self) -> Tagger | None:
        """One sequence at a time; None before ``fit``."""
        return Tagger(self.chain_, self._labels()) if self._known() else None

    @property
    def classes_(self) -> list[Any] | None:
        """Labels, in the order in which they first occur; None before ``fit``."""
        return list(self._labels()) if self._known() else None

    @property
    def size_(self) -> int | None:
        """Bytes of the model as a file of CRFsuite."""
        return len(format_crfsuite_model(to_crfsuite(self.chain_))) if self._known() else None

    @property
    def num_attributes_(self) -> int | None:
        """Number of attributes with a weight that is not 0."""
        return len(self._info.attributes) if self._known() else None

    @property
    def attributes_(self) -> Sequence[str] | None:
        """Their names."""
        return list(self._info.attributes) if self._known() else None

    @property
    def state_features_(self) -> dict[tuple[str, Any], float] | None:
        """Weights that are not 0, ``{(attribute, label): weight}``."""
        return self._info.state_features if self._known() else None

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float] | None:
        """Weights that are not 0, ``{(label before, label): weight}``."""
        return self._info.transitions if self._known() else None

    @property
    def _info(self) -> ModelInfo:
        known = self.chain_
        if self._info_known is None:
            self._info_known = model_info(known, self._labels())
        return self._info_known

    def __sklearn_is_fitted__(self) -> bool:
        return self._known()
