"""`LatentDynamicCRF`: labels for every step, and states of their own below each label.

    p(y | x) = Σ_{h: h_t belongs to y_t} exp( Σ_t node_t(h_t) + Σ_t edge_t(h_{t-1}, h_t) ) / Z(x)

A label with an inner course (a gesture goes up and comes down) looks different at each of its stages, and a chain of
labels has one row of weights for all of them. Here a label owns several states, each with weights and transitions of
its own, and nobody has to say which step is in which (Morency, Quattoni & Darrell 2007). States of different labels
are disjoint, so the sum over the states that a labelling allows is exact, by the chain engine with a mask. With one
state for each label it is `ChainCRF`.

Training is not convex any more: `crfield.training.latent.best`. Decoding a label sequence exactly is hard, since it
is a maximum over sums. ``decode="marginal"``, the authors' choice, takes for each step the label whose states have
most probability together; ``decode="viterbi"`` takes the labels of the single best path of states, which is the
labelling as a whole only where one path dominates.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Self

import numpy as np

from crfield.core.checks import one_of, resolve_jobs
from crfield.core.graphs import Graphs
from crfield.core.parameters import parameter
from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace, check_counts, count_for_each
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.label_json import counts_from_json, counts_to_json
from crfield.data.labels import LabelCoder, sequence_target
from crfield.estimators.base.fitted import read_only
from crfield.estimators.base.groups import Paired
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.weights import strongest_features
from crfield.estimators.export.columns import plain_steps
from crfield.estimators.export.states import StateSteps, check_size
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.latent.model import LatentChainModel
from crfield.estimators.latent.training import LatentTraining
from crfield.inference.decode import DECODERS, check_decoder
from crfield.report.weights import FeatureList, TransitionTable
from crfield.training.latent.chain import LatentChain


class LatentDynamicCRF(
    Paired[LatentChainModel],
    LatentTraining,
    ChainAnswers[LatentChainModel],
    kind="latent_dynamic_crf",
    model=LatentChainModel,
):
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
        How the objective is made small; see `crfield.training.latent.best`.
    n_init : int
        Starts, of which the best is kept. They are random; on numeric columns the first looks at the columns, and all
        run a few steps before the lowest goes on alone (`crfield.training.latent.starts`).
    start_scale : float
        Standard deviation of the weights at a random start.
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
    objective_, start_objectives_ : of the best start, and of each where it was left
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

    n_states: int | Mapping[Any, int] = parameter(
        check_counts, default=2, to_json=counts_to_json, from_json=counts_from_json
    )
    decode: str = parameter(one_of(*DECODERS), default="marginal")

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Sequences, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn the weights from sequences X and their labels y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels = LabelCoder().fit(y)
        states = StateSpace.repeated(count_for_each(labels.labels, self.n_states, "n_states"))
        encoder, batch = self._learn_columns(X)
        target = states.target(sequence_target(batch.topology, labels, y, sample_weight))
        layout = self._layout(encoder, batch, target)
        problem = LatentChain(layout, batch, target, space=states, n_jobs=resolve_jobs(self.n_jobs))
        penalty = self._penalty(spared=None if self.penalize_intercepts else layout.intercepts)
        result, starts = self._train(problem, penalty, hidden=not states.plain)
        self._learn(
            LatentChainModel(labels, states, ColumnModel(labels, encoder, layout, result.weights), starts), result
        )
        self._warn_unless_converged(result)
        return self

    def _show(self, model: LatentChainModel) -> None:
        super()._show(model)
        self.start_objectives_ = model.starts

    # --------------------------------------------------------------- prediction

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X over latent states, for engines and comparisons of your own."""
        return self._fitted.columns.potentials(X, n_jobs=resolve_jobs(self.n_jobs))

    def _codes(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        if known is not None or check_decoder(self.decode) == "marginal":
            return super()._codes(X, known)
        path, chains = self._fitted.columns.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        return self._fitted.states.label_of_state[path], chains

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        inner = plain_steps(model.columns, history=history)
        check_size(model.states.n_states, f"n_states: {model.states.n_states:,} latent states", "Train with fewer")
        chain = {"start": inner.start, "end": inner.end, "transitions": inner.transitions}
        return inner if model.states.plain else StateSteps(inner, model.states, **chain)

    def predict_states(self, X: Sequences) -> np.ndarray:
        """The best path of latent states: a 1-D object array of int arrays, numbers as in ``states_``."""
        path, chains = self._fitted.columns.best_paths(X, n_jobs=resolve_jobs(self.n_jobs))
        out = np.empty(chains.n_sequences, dtype=object)
        for s, (start, stop) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:])):
            out[s] = path[start:stop]
        return out

    # -------------------------------------------------------------- explanation

    @property
    def states_(self) -> list[tuple[Hashable, int]]:
        """(label, number within the label) of every latent state."""
        model = self._fitted
        return [(label, n) for label, count in zip(model.labels.labels, model.states.counts) for n in range(count)]

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and ``transitions_`` give them names."""
        return read_only(self._fitted.columns.weights)

    @property
    def transitions_(self) -> TransitionTable:
        """Transition weights between latent states; NaN where a pair has none."""
        columns = self._fitted.columns
        return TransitionTable(self.states_, columns.layout.transitions(columns.weights))

    def top_features(self, n: int = 20, *, state: tuple[Hashable, int] | None = None) -> FeatureList:
        """The features of largest absolute weight, with their names; of one of ``states_`` if given."""
        return strongest_features(self._fitted.columns, LabelCoder.from_classes(self.states_), n, state)
