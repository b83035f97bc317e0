"""`LatentDynamicCRF`: labels for every step, and states of their own below each label.

    p(y | x) = Σ_{h: h_t belongs to y_t} exp( Σ_t node_t(h_t) + Σ_t edge_t(h_{t-1}, h_t) ) / Z(x)

A label with an inner course (a gesture goes up and comes down) looks different at each of its stages, and a chain of
labels has one row of weights for all of them. Here a label owns several states, each with weights and transitions of
its own, and nobody has to say which step is in which (Morency, Quattoni & Darrell 2007). States of different labels
are disjoint, so the sum over the states that a labelling allows is exact, by the chain engine with a mask. With one
state for each label it is `ChainCRF`.

Training is not convex any more: `crfield.training.latent`. Decoding a label sequence exactly is hard, since it is a
maximum over sums. ``decode="marginal"``, the authors' choice, takes for each step the label whose states have most
probability together; ``decode="viterbi"`` takes the labels of the single best path of states, which is the labelling
as a whole only where one path dominates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace, check_counts, count_for_each
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import InputError, NotFittedError
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.weights import strongest_features
from crfield.estimators.latent.fit import LatentReport, check_latent_parameters, report_training, train_latent
from crfield.features.detect import encoder_for
from crfield.features.templates.template import Template
from crfield.inference.decode import check_decoder
from crfield.optimize.history import Step
from crfield.optimize.penalty import Penalty
from crfield.report.weights import FeatureList, TransitionTable
from crfield.scoring.layout import Layout
from crfield.storage.exchange import template_text
from crfield.training.latent import LatentChain

_CHOICES = {"feature_pairs": ("observed", "all"), "transition_pairs": ("observed", "all", "none")}
_FLAGS = ("intercept", "boundaries", "penalize_intercepts")


class LatentDynamicCRF(LatentReport, ChainAnswers[Any]):
    """Chain CRF with several latent states for each label.

    X and y are as for `ChainCRF`: sequences in any of its forms, and in y a step may be unknown (``None``) or one of
    a set.

    Parameters
    ----------
    n_states : int or dict
        Latent states of each label; a dict names the labels that have more than one.
    l1, l2 : float
        Strengths of the penalties l1 ‖w‖₁ + ½ l2 ‖w‖².
    features, template, functions, transition_functions, transition_features
        Where features come from, as for `ChainCRF`.
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1, as learnt in ``fit``.
    min_count : int
        Columns seen on fewer steps are dropped.
    feature_pairs, transition_pairs : "observed" or "all"
        Which (feature, state) and (state, state) pairs have a weight: those that the labels allow somewhere, or all;
        transitions may also be "none".
    intercept, boundaries : bool
        A score for each state everywhere; at the first and at the last step.
    penalize_intercepts : bool
        Whether the penalties touch those scores.
    training : "gradient" or "em"
        How the objective is made small; see `crfield.training.latent`.
    n_init : int
        Random starts, of which the best is kept.
    start_scale : float
        Standard deviation of the weights at a start.
    tol, max_iter
        Training stops when the objective is estimated to be within the fraction ``tol`` of its (local) optimum, or
        after ``max_iter`` steps.
    decode : "marginal" or "viterbi"
        Labels by the sums over their states, or by the best path of states.
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
    classes_, states_ : labels, and (label, number) of every latent state
    objective_, start_objectives_ : of the best start, and of each
    n_iter_, n_evaluations_, history_, converged_, stop_reason_ : of the best start; evaluations of all

    Examples
    --------
    >>> from crfield import make_sub_structure
    >>> learn, test = make_sub_structure(n_sequences=20), make_sub_structure(n_sequences=20, random_state=1)
    >>> model = LatentDynamicCRF(n_states=3, l2=0.1).fit(learn.features, learn.labels)
    >>> plain = LatentDynamicCRF(n_states=1, l2=0.1).fit(learn.features, learn.labels)
    >>> model.score(test.features, test.labels) > plain.score(test.features, test.labels) + 0.05
    True
    """

    _model: ColumnModel
    _labels_known: LabelCoder
    _space: StateSpace

    def __init__(
        self,
        *,
        n_states: int | Mapping[Any, int] = 2,
        l1: float = 0.0,
        l2: float = 1.0,
        features: Any = None,
        template: str | os.PathLike[str] | Template | None = None,
        functions: Sequence[Any] | None = None,
        transition_functions: Sequence[Any] = (),
        transition_features: str | Sequence[Any] | None = None,
        standardize: bool = False,
        min_count: int = 1,
        feature_pairs: str = "observed",
        transition_pairs: str = "observed",
        intercept: bool = True,
        boundaries: bool = True,
        penalize_intercepts: bool = True,
        training: str = "gradient",
        n_init: int = 3,
        start_scale: float = 0.3,
        tol: float = 1e-4,
        max_iter: int = 500,
        decode: str = "marginal",
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.n_states = n_states
        self.l1 = l1
        self.l2 = l2
        self.features = features
        self.template = template
        self.functions = functions
        self.transition_functions = transition_functions
        self.transition_features = transition_features
        self.standardize = standardize
        self.min_count = min_count
        self.feature_pairs = feature_pairs
        self.transition_pairs = transition_pairs
        self.intercept = intercept
        self.boundaries = boundaries
        self.penalize_intercepts = penalize_intercepts
        self.training = training
        self.n_init = n_init
        self.start_scale = start_scale
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from sequences X and their labels y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        check_dynamic_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        coder = LabelCoder().fit(y)
        states = StateSpace.repeated(count_for_each(coder.labels, self.n_states, "n_states"))
        encoder = encoder_for(
            X,
            template=template_text(self.template),
            functions=self.functions,
            transition_features=self.transition_features,
            transition_functions=self.transition_functions,
            standardize=self.standardize,
            features=self.features,
        )
        batch = encoder.fit(X, min_count=self.min_count)
        refuse_large(batch, encoder)
        chains, transitions = batch.topology, self.transition_pairs
        if self.template is not None and not encoder.template.transitions:  # type: ignore[attr-defined]
            transitions = "none"
        labels, allowed = coder.encode(y, chains.lengths)
        if chains.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        target = states.target(Target(chains, coder.n_labels, labels, allowed, weight))
        layout = Layout.observe(
            batch,
            target,
            feature_pairs=self.feature_pairs,
            transition_pairs=transitions,
            bias=self.intercept,
            boundaries=self.boundaries,
        )
        problem = LatentChain(layout, batch, target, n_jobs=resolve_jobs(self.n_jobs))
        penalised = None if self.penalize_intercepts else (~layout.intercepts).astype(np.uint8)
        penalty = Penalty(l1=self.l1, l2=self.l2, penalised=penalised)
        result = train_latent(self, problem, penalty, hidden=states.n_states > states.n_labels)
        self._labels_known, self._space = coder, states
        self._model = ColumnModel(encoder, layout, result.weights)
        self.classes_ = coder.classes_
        report_training(self, result)
        return self

    # --------------------------------------------------------------- prediction

    @property
    def _coder(self) -> LabelCoder:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "this LatentDynamicCRF is not fitted yet. Call fit(X, y) first, or load a model file."
            )
        return self._labels_known

    def potentials(self, X: Any) -> Potentials:
        """The scores of X over latent states, for engines and comparisons of your own."""
        self._coder  # noqa: B018  (says so where nothing is fitted)
        return self._model.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    def _states(self) -> StateSpace:
        return self._space

    def _codes(self, X: Any, known: Any = None) -> tuple[np.ndarray, Chains | Graphs]:
        if known is not None or check_decoder(self.decode) == "marginal":
            return super()._codes(X, known)
        path, chains = self._model.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        return self._space.label_of_state[path], chains

    def predict_states(self, X: Any) -> np.ndarray:
        """The best path of latent states: a 1-D object array of int arrays, numbers as in ``states_``."""
        self._coder  # noqa: B018
        path, chains = self._model.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        out = np.empty(chains.n_sequences, dtype=object)
        for s, (start, stop) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:])):
            out[s] = path[start:stop]
        return out

    # -------------------------------------------------------------- explanation

    @property
    def states_(self) -> list[tuple[Hashable, int]]:
        """(label, number within the label) of every latent state."""
        labels = self._coder.labels
        return [(labels[k], n) for k, count in enumerate(self._space.counts.tolist()) for n in range(count)]

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and ``transitions_`` give them names."""
        self._coder  # noqa: B018
        weights = self._model.weights.view()
        weights.flags.writeable = False
        return weights

    @property
    def transitions_(self) -> TransitionTable:
        """Transition weights between latent states; NaN where a pair has none."""
        return TransitionTable(self.states_, self._model.layout.transitions(self._model.weights))

    def top_features(self, n: int = 20, *, state: tuple[Hashable, int] | None = None) -> FeatureList:
        """The features of largest absolute weight, with their names; of one of ``states_`` if given."""
        return strongest_features(self._model, LabelCoder.from_classes(self.states_), n, state)

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.latent.file import save_dynamic

        self._coder  # noqa: B018
        save_dynamic(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")


def check_dynamic_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `LatentDynamicCRF` has a value that can be used.

    >>> check_dynamic_parameters(LatentDynamicCRF(n_states=0).get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: n_states must be an integer ≥ 1, or one for each label, got 0.
    """
    check_latent_parameters(parameters)
    check_counts("n_states", parameters["n_states"])
    for name, choices in _CHOICES.items():
        if not isinstance(parameters[name], str) or parameters[name] not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {parameters[name]!r}.")
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    check_decoder(parameters["decode"])
