"""`HiddenCRF`: one label for a whole sequence, with hidden states for its steps.

    p(y | x) = Σ_h exp score(y, h | x) / Σ_{y', h} exp score(y', h | x)

    score(y, h | x) = Σ_t ⟨θ(h_t), x_t⟩ + Σ_t θ(y, h_t) + Σ_t θ(y, h_{t-1}, h_t)

(Quattoni, Wang, Morency, Collins & Darrell 2007, *Hidden conditional random fields*.) The classes share their states:
θ(h) says what a state looks like, θ(y, h) which states a class uses, θ(y, h, h′) in which order. So the label of a
gesture or a word is told by its course, without anybody naming the stages. Given the class the states are a chain, so
probabilities are exact and cost K · S² for each step.

It has the manners of a scikit-learn classifier, except that X is a list of sequences in any form that `ChainCRF`
reads. An empty sequence says nothing: all classes are equally probable. A label in y may be unknown (``None``) or one
of a set; a sequence that may be anything has no say in training.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from crfield.core.checks import integer, resolve_jobs
from crfield.core.estimator import ClassifierMixin
from crfield.core.parameters import learnt, parameter
from crfield.core.target import check_weights
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError
from crfield.estimators.base.fitted import read_only
from crfield.estimators.base.groups import Columned
from crfield.estimators.base.sequences import StructuredData, without_weightless
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.estimators.latent.model import HiddenModel, with_window
from crfield.estimators.latent.training import LatentTraining
from crfield.features.columns.step_windows import MOST
from crfield.inference.chain import ChainEngine
from crfield.scoring.latent import ClassScorer
from crfield.training.latent.classes import HiddenClasses, class_totals, pooled


class HiddenCRF(
    Streaming,
    StructuredData,
    ClassifierMixin,
    Columned[HiddenModel],
    LatentTraining,
    kind="hidden_crf",
    model=HiddenModel,
):
    """Classifier of sequences with hidden states.

    Parameters
    ----------
    n_states : int
        Hidden states, shared by all classes.
    l1, l2 : float
        Strengths of the penalties l1 ‖w‖₁ + ½ l2 ‖w‖².
    window : int
        A state also sees the columns of this many steps before and after.
    features, template, functions : where features come from, as for `ChainCRF`
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1, as learnt in ``fit``.
    min_count : int
        Columns seen on fewer steps are dropped.
    training : "gradient" or "em"
        How the objective is made small; see `crfield.training.latent.best`.
    n_init : int
        Random starts, of which the best is kept.
    start_scale : float
        Standard deviation of the weights at a start.
    tol, max_iter
        Training stops when the objective is estimated to be within the fraction ``tol`` of its (local) optimum, or
        after ``max_iter`` steps.
    n_jobs : int or None
        Threads; with several starts, processes. -1 for all processors.
    random_state : int, Generator or None
        The starts. The same seed and number of threads give the same bits.
    verbose : int
        1 shows a progress line, 2 a line for every step.
    callback : callable(step, weights), optional
        Called after every step of every start; returning True ends training.

    Attributes
    ----------
    classes_ : the labels, in the order of the columns of ``predict_proba``
    objective_, start_objectives_ : of the best start, and of each
    n_iter_, n_evaluations_, history_, converged_, stop_reason_ : of the best start; evaluations of all

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> up, down = np.linspace(-1, 1, 6)[:, None], np.linspace(1, -1, 6)[:, None]
    >>> X = [(up if k % 2 else down) + rng.normal(scale=0.3, size=(6, 1)) for k in range(40)]
    >>> y = ["up" if k % 2 else "down" for k in range(40)]
    >>> model = HiddenCRF(n_states=2, l2=0.1).fit(X, y)
    >>> model.predict([up, down]).tolist(), model.score(X, y)
    (['up', 'down'], 1.0)
    """

    n_states: int = parameter(integer(1), default=4)
    window: int = parameter(integer(0, most=MOST), default=0)

    classes_: np.ndarray = learnt()

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Sequences, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn from sequences X and the label of each, y (B,).

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        single = _single(y)
        labels = LabelCoder().fit(single)
        encoder, own = self._learn_columns(X)
        batch = with_window(own, int(self.window))
        chains = batch.topology
        allowed = _allowed(labels, single, chains.n_sequences)
        if chains.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        scorer = ClassScorer.of_batch(batch, n_classes=labels.n_labels, n_states=int(self.n_states))
        problem = HiddenClasses(scorer, batch, allowed, weight, n_jobs=resolve_jobs(self.n_jobs))
        result, starts = self._train(problem, self._penalty(), hidden=True)
        self._learn(HiddenModel(labels, encoder, int(self.window), scorer, result.weights, starts), result)
        self._warn_unless_converged(result)
        return self

    def _show(self, model: HiddenModel) -> None:
        super()._show(model)
        self.start_objectives_ = model.starts

    # --------------------------------------------------------------- prediction

    def decision_function(self, X: Sequences) -> np.ndarray:
        """(B, K) log Z_y(x): the log of the summed scores of all state paths of each class."""
        model = self._fitted
        return class_totals(model.scorer, model.weights, model.encode(X), n_jobs=resolve_jobs(self.n_jobs))

    def predict_proba(self, X: Sequences) -> np.ndarray:
        """(B, K) probabilities of the classes, columns as ``classes_``."""
        return pooled(self.decision_function(X))[1]

    def predict_log_proba(self, X: Sequences) -> np.ndarray:
        """(B, K) log p(y | x), also where the probability itself is too small for a number."""
        totals = self.decision_function(X)
        return totals - pooled(totals)[0][:, None]

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        raise InputError(
            "HiddenCRF cannot stream: it has one label for a whole sequence. Use predict once the sequence is "
            "over; LatentDynamicCRF labels every step, and streams."
        )

    def predict(self, X: Sequences) -> np.ndarray:
        """(B,) the most probable label of every sequence; the first of equal ones."""
        totals = self.decision_function(X)
        return self._fitted.labels.classes_[totals.argmax(axis=1)]

    def predict_states(self, X: Sequences) -> np.ndarray:
        """The best path of hidden states under the predicted class: a 1-D object array of int arrays."""
        model = self._fitted
        batch = model.encode(X)
        potentials = model.scorer.score(model.weights, batch)
        engine, chains = ChainEngine(resolve_jobs(self.n_jobs)), batch.topology
        best = self.decision_function(X).argmax(axis=1)
        paths = [engine.best_path(scores)[1] for scores in potentials]
        out = np.empty(chains.n_sequences, dtype=object)
        for s, (start, stop) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:])):
            out[s] = paths[best[s]][start:stop]
        return out

    def log_prob(self, X: Sequences, y: Labels) -> np.ndarray:
        """(B,) log p(y | x); where y names several labels, of all of them together."""
        labels, totals = self._fitted.labels, self.decision_function(X)
        allowed = _allowed(labels, _single(y), len(totals))
        return np.minimum(pooled(np.where(allowed, totals, -np.inf))[0] - pooled(totals)[0], 0.0)

    def score(self, X: Sequences, y: Labels, sample_weight: Weights = None) -> float:
        """Share of sequences whose label is predicted right; those of unknown label are left out."""
        labels, codes = self._fitted.labels, self.decision_function(X).argmax(axis=1)
        allowed = _allowed(labels, _single(y), len(codes))
        weight = np.ones(len(codes)) if sample_weight is None else check_weights(sample_weight, len(codes))
        counted = ~allowed.all(axis=1) if labels.n_labels > 1 else np.ones(len(codes), bool)
        total = float(weight[counted].sum())
        right = allowed[np.arange(len(codes)), codes]
        return float(weight[counted & right].sum() / total) if total > 0 else 0.0

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(W,) all weights, read-only, in the order of `crfield.scoring.latent.ClassScorer`."""
        return read_only(self._fitted.weights)

    @property
    def class_states_(self) -> np.ndarray:
        """(K, S) θ(y, h): which states a class uses; read-only."""
        return self._fitted.scorer.tables(self.coef_)[0]

    @property
    def class_transitions_(self) -> np.ndarray:
        """(K, S, S) θ(y, h, h′): in which order; read-only."""
        return self._fitted.scorer.tables(self.coef_)[1]


def _single(y: Labels) -> list[list[Any]]:
    """Each label as a sequence of one; LabelError where y is no list with one label for each sequence."""
    if isinstance(y, str | bytes | dict | set | frozenset) or not hasattr(y, "__iter__") or not hasattr(y, "__len__"):
        raise LabelError(f"y must be a list with one label for each sequence, got {type(y).__name__}.")
    for number, label in enumerate(y):
        if isinstance(label, list | np.ndarray) and np.ndim(label):
            raise LabelError(
                f"y[{number}] is a list of labels, but a HiddenCRF gives a whole sequence one label. For a label at "
                "each step use LatentDynamicCRF or ChainCRF."
            )
    return [[label] for label in y]


def _allowed(coder: LabelCoder, single: list[list[Any]], n_sequences: int) -> np.ndarray:
    """(B, K) bool, the labels that each sequence may have."""
    if len(single) != n_sequences:
        raise LabelError(f"X has {n_sequences} sequences and y has {len(single)} labels: give one for each.")
    labels, allowed = coder.encode(single, np.ones(n_sequences, np.int64))
    return np.eye(coder.n_labels, dtype=bool)[labels] if allowed is None else allowed
