"""`ClassifierHMM`: a hidden Markov model whose emissions come from a classifier.

    p(y, x) ∝ p(y_1) Π_t p(y_t | y_{t-1}) Π_t p(x_t | y_t)          p(x_t | y_t) = p(y_t | x_t) p(x_t) / p(y_t)

By Bayes' rule a classifier of single steps serves as a density of them, up to p(x_t), which no label depends on
(Bourlard & Morgan 1994, *Connectionist speech recognition*). Transitions are counted, with ``smoothing`` added to
every count. Nothing is trained jointly: the classifier knows of no neighbours and the transitions of no evidence,
which is what makes it the baseline of conditional fields ("HMM + boosting" in Liao, Choudhury, Fox & Kautz 2007).
What overlapping columns tell twice is counted twice; ``emission_weight`` below 1 takes some of it back.

Bayes' rule needs probabilities that mean what they say. Where the chain labels worse than the classifier alone, inner
folds look for an exponent that puts them right (`crfield.estimators.markov.step_calibration`).

Given x it is a chain of scores like any other, so the exact engine answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, integer, number, one_of
from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.data.batch import Batch, matrix_of
from crfield.data.labels import LabelCoder, sequence_target
from crfield.data.large import ADVICE, largest_cell
from crfield.errors import FeatureError, LabelError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.base.sklearn_parts import fit_clone, node_weights
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.export.step_scores import StepScorer, refuse_window, single_steps
from crfield.estimators.markov.classifier_steps import classifier_steps
from crfield.estimators.markov.classifiers import (
    Classifier,
    classifier_from_state,
    classifier_state,
    step_classifier,
)
from crfield.estimators.markov.step_calibration import StepCalibration, StepJudge, calibrate_steps, chain_scores
from crfield.features.columns.step_windows import MOST, windowed
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.encoder import Encoder
from crfield.storage.state import State, refuse
from crfield.training.markov.counting import counted

FLOOR = 1e-10  # no classifier is so sure of what a label is not


@dataclass(frozen=True, eq=False)
class CountedMarkov:
    """Labels, encoder, counted tables and a fitted classifier."""

    labels: LabelCoder
    encoder: Encoder
    window: int
    start: np.ndarray  # (L,) p(first label)
    transition: np.ndarray  # (L, L) p(label | label before)
    shares: np.ndarray  # (L,) p(label)
    classifier: Classifier | None  # None for one label, which needs none
    given: bool  # whether the user named the classifier
    calibration: StepCalibration = field(default_factory=StepCalibration)

    states = None

    def rows(self, batch: Batch) -> Any:
        """What the classifier sees of every step."""
        return windowed(matrix_of(batch.node), batch.topology, reach=self.window)

    def log_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """log p(first label) and log p(label | label before)."""
        with np.errstate(divide="ignore"):
            return np.log(self.start), np.log(self.transition)

    def emissions(self, X: Any) -> tuple[Batch, np.ndarray]:
        """Columns of X, and log p(label | x) / p(label) at every step (N, L), up to what no label depends on."""
        batch = self.encoder.encode(X)
        if self.classifier is None or not batch.topology.n_nodes:
            return batch, np.zeros((batch.topology.n_nodes, self.labels.n_labels))
        return batch, self.calibration.evidence(self.log_chances(batch), self.shares)

    def log_chances(self, batch: Batch) -> np.ndarray:
        """(N, L) log p(label | x) as the classifier says it."""
        with np.errstate(over="ignore", invalid="ignore"):
            chances = np.asarray(self.classifier.predict_proba(self.rows(batch)), np.float64)  # type: ignore[union-attr]
        if not np.isfinite(chances).all():
            cell = largest_cell(batch, self.encoder, int(np.argmin(np.isfinite(chances).all(axis=1))))
            raise FeatureError(f"{cell}, and the classifier has no finite probability there. {ADVICE}.")
        return np.log(np.maximum(chances, FLOOR))

    def state(self) -> State:
        """Header and arrays."""
        tables = {
            "start_probabilities_": self.start,
            "transition_probabilities_": self.transition,
            "class_shares_": self.shares,
        }
        header: dict[str, Any] = {"labels": self.labels.to_json()}
        if self.calibration.folds:
            header["calibration"] = self.calibration.to_json()
        state = State(header, tables).with_part("encoder", self.encoder.state())
        return state.with_part("classifier", classifier_state(self.classifier, given=self.given))

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, window = LabelCoder.from_json(state.header.get("labels")), int(parameters["window"])
        n = labels.n_labels
        shares = state.probabilities("class_shares_", (n,))
        if (shares <= 0).any():
            refuse("'class_shares_' must be above 0")
        encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"))
        told = state.part("classifier")
        return cls(
            labels,
            encoder,
            window,
            state.probabilities("start_probabilities_", (n,)),
            state.probabilities("transition_probabilities_", (n, n)),
            shares,
            classifier_from_state(told, n, (2 * window + 1) * encoder.widths.of_steps),
            told.header.get("given") is True,
            StepCalibration.from_json(state.header.get("calibration"), n),
        )


class ClassifierHMM(ChainAnswers[CountedMarkov], kind="classifier_hmm", model=CountedMarkov):
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
    calibrate : "auto", "temperature" or None
        Whether the classifier's probabilities get an exponent, found on sequences that it was not taught. *auto*: if
        the chain labels the training data clearly worse than the classifier alone and the exponent is clearly better
        in inner folds, as for AdaBoost, whose probabilities are nearly flat; *temperature*: always, for three more
        fits of the classifier; None: never.
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
    calibration_
        The exponent of p(label | x), and the shares of right labels in inner folds if there were any.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = [[[0.1], [0.3], [1.2], [0.9]], [[1.1], [0.4], [0.2]]]
    >>> y = [["low", "low", "high", "high"], ["high", "low", "low"]]
    >>> model = ClassifierHMM(LogisticRegression()).fit(X, y)
    >>> model.predict([[[0.2], [1.3]]])[0].tolist(), model.transition_probabilities_.tolist()
    (['low', 'high'], [[0.5, 0.5], [0.4, 0.6]])
    """

    classifier: Any = parameter(step_classifier, default=None, kw_only=False, stored=False)
    smoothing: float = parameter(number(0), default=1.0)
    emission_weight: float = parameter(number(0), default=1.0)
    calibrate: str | None = parameter(one_of("auto", "temperature") | None, default="auto")
    standardize: bool = parameter(flag, default=False)
    window: int = parameter(integer(0, most=MOST), default=0)

    classifier_: Classifier | None = learnt()
    start_probabilities_: np.ndarray = learnt()
    transition_probabilities_: np.ndarray = learnt()
    class_shares_: np.ndarray = learnt()
    calibration_: StepCalibration = learnt()
    converged_: bool = learnt()
    reported = ()

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Count transitions and fit the classifier; ``sample_weight`` has one number for each sequence.

        ``groups`` has one entry for each sequence, such as a person: inner folds, if there are any, keep a group
        together.
        """
        self.check()
        if groups is not None and sample_weight is not None:
            groups = [group for group, weight in zip(groups, sample_weight, strict=True) if weight != 0]
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels = LabelCoder().fit(y)
        encoder = encoder_for(X, standardize=bool(self.standardize))
        batch = encoder.fit(X)
        target = sequence_target(batch.topology, labels, y, sample_weight)
        known = np.flatnonzero(target.labels >= 0)
        missing = np.flatnonzero(np.bincount(target.labels[known], minlength=labels.n_labels) == 0)
        if len(missing):
            name = repr(labels.labels[missing[0]])
            raise LabelError(f"label {name} is on no step whose label is known, so nothing can be counted for it.")
        tables = counted(target, smoothing=float(self.smoothing))
        model = CountedMarkov(labels, encoder, int(self.window), *tables, None, self.classifier is not None)
        if labels.n_labels > 1:
            chosen = LogitBoost() if self.classifier is None else self.classifier
            weight = None if target.weight is None else target.weight[batch.topology.sequence_of_node]
            rows, role = model.rows(batch), "the classifier"

            def fitted(some: np.ndarray, spoken: str = "") -> Any:
                options = node_weights(chosen, weight, some, role=spoken)
                return fit_clone(chosen, rows[some], target.labels[some], role=role, **options)

            def teach(some: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
                other = fitted(some)
                return lambda here: log_chances(other, rows[here], labels.n_labels)

            model = replace(model, classifier=fitted(known, role))
            if self.calibrate is not None:
                judge = StepJudge(target, float(self.smoothing), float(self.emission_weight), self.decode, self._jobs)
                always = self.calibrate == "temperature"
                chances = model.log_chances(batch)
                model = replace(
                    model, calibration=calibrate_steps(judge, chances, tables, teach, groups, always=always)
                )
        return self._learn(model)

    def _show(self, model: CountedMarkov) -> None:
        super()._show(model)
        self.classifier_, self.converged_ = model.classifier, True
        self.start_probabilities_, self.transition_probabilities_ = model.start, model.transition
        self.class_shares_, self.calibration_ = model.shares, model.calibration
        if model.given and self.classifier is None:  # it comes out of a file
            from sklearn.base import clone

            self.classifier = clone(model.classifier)

    def potentials(self, X: Any) -> Potentials:
        """The scores of X: emission_weight · log p(c | x) / p(c) at steps, log p(c | b) on edges.

        Where ``calibration_`` has an exponent, p(c | x) is to that power, and p(c) the mean of what it becomes.
        """
        model = self._fitted
        batch, emissions = model.emissions(X)
        return chain_scores(self.emission_weight * emissions, model.start, model.transition, batch.topology)

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        start, transition = model.log_tables()
        tables = {"start": start, "end": np.zeros(len(start)), "transitions": transition}
        own = model.calibration
        refuse_window(self, model.window)
        written = classifier_steps(
            model.classifier,
            model.encoder,
            tables,
            log_shares=np.log(model.shares) if own.means is None else np.log(own.means) / own.exponent,
            weight=float(self.emission_weight) * own.exponent,
            least=float(np.log(FLOOR)),
        )
        if not isinstance(written, str):
            return written
        more = [] if own.means is None else [np.array([own.exponent, *own.means])]
        return single_steps(self, tables, varied=False, window=0, more=[model.shares, *more], why=written)


def log_chances(classifier: Any, rows: Any, n_labels: int) -> np.ndarray:
    """(N, L) log p(label | x) by a classifier that may not have met every label."""
    out = np.full((rows.shape[0], n_labels), np.log(FLOOR))
    chances = np.asarray(classifier.predict_proba(rows), np.float64)
    out[:, np.asarray(classifier.classes_, np.int64)] = np.log(np.maximum(chances, FLOOR))
    return out
