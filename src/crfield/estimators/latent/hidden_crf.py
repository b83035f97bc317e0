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

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from crfield.core.checks import integer, resolve_jobs
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.data.batch import Batch, Columns
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large, refuse_unbearable
from crfield.errors import InputError, LabelError, NotFittedError
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.graph.discriminative_field import as_matrix
from crfield.estimators.latent.fit import LatentReport, check_latent_parameters, report_training, train_latent
from crfield.features.columns.step_windows import check_window, windowed
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.features.templates.template import Template
from crfield.inference.chain import ChainEngine
from crfield.optimize.history import Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.latent import ClassScorer
from crfield.storage.exchange import template_text
from crfield.training.latent import HiddenClasses, class_totals, pooled


class HiddenCRF(LatentReport, ClassifierMixin, Estimator):
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
        How the objective is made small; see `crfield.training.latent`.
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

    _encoder: Encoder
    _scorer: ClassScorer
    _weights: np.ndarray
    _labels_known: LabelCoder

    def __init__(
        self,
        *,
        n_states: int = 4,
        l1: float = 0.0,
        l2: float = 1.0,
        window: int = 0,
        features: Any = None,
        template: str | os.PathLike[str] | Template | None = None,
        functions: Sequence[Any] | None = None,
        standardize: bool = False,
        min_count: int = 1,
        training: str = "gradient",
        n_init: int = 3,
        start_scale: float = 0.3,
        tol: float = 1e-4,
        max_iter: int = 500,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.n_states = n_states
        self.l1 = l1
        self.l2 = l2
        self.window = window
        self.features = features
        self.template = template
        self.functions = functions
        self.standardize = standardize
        self.min_count = min_count
        self.training = training
        self.n_init = n_init
        self.start_scale = start_scale
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from sequences X and the label of each, y (B,).

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        check_hidden_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        single = _single(y)
        coder = LabelCoder().fit(single)
        encoder = encoder_for(
            X,
            template=template_text(self.template),
            functions=self.functions,
            standardize=self.standardize,
            features=self.features,
        )
        own = encoder.fit(X, min_count=self.min_count)
        refuse_large(own, encoder)
        batch = with_window(own, self.window)
        chains = batch.topology
        allowed = _allowed(coder, single, chains.n_sequences)
        if chains.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        scorer = ClassScorer.of_batch(batch, n_classes=coder.n_labels, n_states=int(self.n_states))
        problem = HiddenClasses(scorer, batch, allowed, weight, n_jobs=resolve_jobs(self.n_jobs))
        result = train_latent(self, problem, Penalty(l1=self.l1, l2=self.l2), hidden=True)
        self._labels_known, self._encoder = coder, encoder
        self._scorer, self._weights = scorer, result.weights
        self.classes_ = coder.classes_
        report_training(self, result)
        return self

    # --------------------------------------------------------------- prediction

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this HiddenCRF is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._labels_known

    def _encode(self, X: Any) -> Batch:
        self._coder  # noqa: B018  (says so where nothing is fitted)
        batch = self._encoder.encode(X)
        refuse_unbearable(batch, self._encoder, self._weights)
        return with_window(batch, self.window)

    def decision_function(self, X: Any) -> np.ndarray:
        """(B, K) log Z_y(x): the log of the summed scores of all state paths of each class."""
        batch = self._encode(X)
        return class_totals(self._scorer, self._weights, batch, n_jobs=resolve_jobs(self.n_jobs))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(B, K) probabilities of the classes, columns as ``classes_``."""
        return pooled(self.decision_function(X))[1]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(B, K) log p(y | x), also where the probability itself is too small for a number."""
        totals = self.decision_function(X)
        return totals - pooled(totals)[0][:, None]

    def predict(self, X: Any) -> np.ndarray:
        """(B,) the most probable label of every sequence; the first of equal ones."""
        return self._coder.classes_[self.decision_function(X).argmax(axis=1)]

    def predict_states(self, X: Any) -> np.ndarray:
        """The best path of hidden states under the predicted class: a 1-D object array of int arrays."""
        batch = self._encode(X)
        potentials = self._scorer.score(self._weights, batch)
        engine, chains = ChainEngine(resolve_jobs(self.n_jobs)), batch.topology
        best = self.decision_function(X).argmax(axis=1)
        paths = [engine.best_path(scores)[1] for scores in potentials]
        out = np.empty(chains.n_sequences, dtype=object)
        for s, (start, stop) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:])):
            out[s] = paths[best[s]][start:stop]
        return out

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """(B,) log p(y | x); where y names several labels, of all of them together."""
        coder, totals = self._coder, self.decision_function(X)
        allowed = _allowed(coder, _single(y), len(totals))
        return np.minimum(pooled(np.where(allowed, totals, -np.inf))[0] - pooled(totals)[0], 0.0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of sequences whose label is predicted right; those of unknown label are left out."""
        coder, codes = self._coder, self.decision_function(X).argmax(axis=1)
        allowed = _allowed(coder, _single(y), len(codes))
        weight = np.ones(len(codes)) if sample_weight is None else check_weights(sample_weight, len(codes))
        counted = ~allowed.all(axis=1) if coder.n_labels > 1 else np.ones(len(codes), bool)
        total = float(weight[counted].sum())
        right = allowed[np.arange(len(codes)), codes]
        return float(weight[counted & right].sum() / total) if total > 0 else 0.0

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(W,) all weights, read-only, in the order of `crfield.scoring.latent.ClassScorer`."""
        self._coder  # noqa: B018
        weights = self._weights.view()
        weights.flags.writeable = False
        return weights

    @property
    def class_states_(self) -> np.ndarray:
        """(K, S) θ(y, h): which states a class uses; read-only."""
        return self._scorer.tables(self.coef_)[0]

    @property
    def class_transitions_(self) -> np.ndarray:
        """(K, S, S) θ(y, h, h′): in which order; read-only."""
        return self._scorer.tables(self.coef_)[1]

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.latent.file import save_hidden

        self._coder  # noqa: B018
        save_hidden(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_scorer")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.no_validation = True
        return tags


def with_window(batch: Batch, reach: int) -> Batch:
    """The batch with the columns of the steps up to ``reach`` before and after beside those of each step.

    >>> from crfield.core.topology import Chains
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> with_window(batch, 1).node.indices.tolist()
    [0, 5, 1, 2]
    """
    if not reach:
        return batch
    node, chains = batch.node, batch.topology
    dense = None if node.dense is None else windowed(node.dense, chains, reach=reach)
    if not node.width:
        return Batch(chains, Columns(node.indptr, node.indices, 0, None, dense))
    sparse = windowed(as_matrix(Columns(node.indptr, node.indices, node.width, node.values)), chains, reach=reach)
    sparse.sort_indices()
    values = None if node.values is None else sparse.data
    return Batch(chains, Columns(sparse.indptr, sparse.indices, sparse.shape[1], values, dense))


def _single(y: Any) -> list[list[Any]]:
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


def check_hidden_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `HiddenCRF` has a value that can be used.

    >>> check_hidden_parameters(HiddenCRF(window=-1).get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: window must be a whole number from 0 to 4096, got -1.
    """
    check_latent_parameters(parameters)
    integer(1)("n_states", parameters["n_states"])
    check_window(parameters["window"])
