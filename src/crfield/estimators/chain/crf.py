"""`ChainCRF`: the linear-chain conditional random field as a scikit-learn estimator.

    p(y | x) = exp( Σ_t node_t(y_t) + Σ_t edge_t(y_{t-1}, y_t) ) / Z(x)

(Lafferty, McCallum & Pereira 2001; Sutton & McCallum 2012 for an introduction). X is a list of sequences in any of
the shapes that `crfield.features` reads; y a list of label sequences of the same lengths, in which a step may be
``None`` (unknown) or a set of labels (one of these).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.core.checks import integer, one_of
from crfield.core.constraints import FIXED, Constraints, FixedScores
from crfield.core.costs import balanced_weights, check_costs, cost_table, label_weights, node_costs
from crfield.core.graphs import Graphs
from crfield.core.parameters import learnt, parameter
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import ClassWeights, Costs, Labels, Sequences, Weights
from crfield.data.batch import Batch
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.base.groups import Weighing
from crfield.estimators.chain.answers import refuse_impossible
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.estimators.chain.training import TrainedChain
from crfield.scoring.constraints import refuse_illegal
from crfield.scoring.higher_order import HigherOrderLayout, HigherOrderScores, LabelRuns
from crfield.scoring.layout import Layout
from crfield.storage.state import State
from crfield.training.chain.higher_order import HigherOrderParts, check_higher_order_plan
from crfield.training.chain.plan import OBJECTIVES, ChainParts, Plan, plan_chain

Rules = str | Iterable[tuple[Any, Any]] | Callable[[Any, Any], bool] | Constraints | None  # of neighbouring labels


def _check_constraints(name: str, given: object) -> None:
    if hasattr(given, "__next__"):
        raise InputError("constraints can be read only once: give a list of pairs, not an iterator.")
    if given is not None:
        Constraints.of(given)


def _costs_to_json(given: Costs) -> object:
    if isinstance(given, Mapping):
        return {"pairs": [[label_to_json(a), label_to_json(b), float(cost)] for (a, b), cost in given.items()]}
    return None if given is None else np.asarray(given, dtype=np.float64).tolist()


def _costs_from_json(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    return {(label_from_json(a), label_from_json(b)): cost for a, b, cost in found["pairs"]}


class ChainCRF(Weighing, TrainedChain, kind="chain_crf", model=ColumnModel):
    """Linear-chain conditional random field.

    Training minimises −Σ weight · log p(y | x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖², or another ``objective``.

    Parameters
    ----------
    l1, l2 : float
        Strengths of the penalties. CRFsuite's ``c1`` is ``l1`` and its ``c2 = 1`` is ``l2 = 2``, of a model without
        scores of labels alone: for the same optimum also say ``intercept=False, boundaries=False``.
    features : TextFeatures or another transformer, optional
        What X passes through first: with ``TextFeatures()`` X holds sentences, lists of words or of rows. It is part
        of the model and of its file.
    template : str, path or Template, optional
        CRF++ template, as text or as the path of its file; then X holds rows of token columns. Without a ``B`` line
        there are no transitions.
    functions : list of f(x, t), optional
        Feature functions of a raw sequence and a step. ``transition_functions`` are linked to label pairs.
    label_functions : list of f(y_before, y, x, t), optional
        The textbook's functions, one weight each; for teaching and small problems.
    transition_features : "all" or list, optional
        Features that also score pairs of neighbouring labels: names of dict entries, or column numbers.
    standardize : bool
        Bring numeric columns to mean 0 and deviation 1, as learnt in ``fit``.
    min_count : int
        Columns seen on fewer steps are dropped. Counted by occurrence, whatever the values.
    feature_pairs, transition_pairs : "observed" or "all"
        Which (feature, label) pairs and which label pairs have a weight; transitions may also be "none".
    intercept, boundaries : bool
        A score for each label everywhere; at the first and at the last step.
    penalize_intercepts : bool
        Whether the penalties touch those scores.
    order : int
        How many previous labels each label depends on. Above 1, runs of up to ``order`` + 1 labels that occur in y
        have a weight, others fall back on shorter ones; exact (`crfield.scoring.higher_order`).
    objective : str
        What is minimised: "auto" (what the solver trains, the likelihood as a rule) or a name of
        `crfield.training.chain.plan`, such as "pseudo_likelihood", "softmax_margin" or "label_accuracy".
    solver : str
        How: "auto", "lbfgs", "warm" or another row of `crfield.training.chain.plan`.
    solver_options : dict, optional
        What only that solver knows, such as ``{"epochs": 5}`` of "perceptron".
    constraints : str, iterable of pairs, callable or Constraints, optional
        Rules of neighbouring labels in training and prediction: a tag scheme ("bio", "bioes", "iob1"), forbidden
        pairs (before, after), a predicate of them, or `crfield.Constraints`. None stands for a sequence's ends.
    class_weight : "balanced" or dict, optional
        How much missing each true label costs ("auto" then means "softmax_margin"; see also "label_likelihood").
    costs : dict or (L, L) table, optional
        What each label costs where another is true: {(true, taken): cost}, or rows for true labels.
    tol : float
        Training stops when the objective is estimated to be within this fraction of its optimum.
    max_iter : int
        Most steps of the optimiser.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each step.
    warm_start : bool
        Go on from the weights of the last ``fit``; new features and labels join those it has.
    n_jobs : int or None
        Threads; -1 for all processors.
    random_state : int, Generator or None
        Order of the stochastic steps. The same seed and number of threads give the same bits.
    verbose : int
        1 shows a progress line, 2 a line for every step.
    callback : callable(step, weights), optional
        Called after every step of the optimiser; returning True ends training.
    checkpoint : path, optional
        File that keeps the state of training; the same call goes on from it after any end of its process.
    checkpoint_every : float
        Seconds between two writings of it; 0 writes after every step.
    validation_fraction : float, optional
        Share of the sequences to hold out (or give ``validation=(X, y)`` to ``fit``); the best weights are kept.
    validation_score : "log_likelihood", "accuracy", "f1" or scorer(estimator, X, y)
        What held-out sequences are scored by after every step; ``history_`` has the scores.
    patience : int
        Steps without a better held-out score after which training ends.

    Examples
    --------
    >>> X = [[{"word": "the"}, {"word": "dog"}, {"word": "barks"}], [{"word": "a"}, {"word": "cat"}]]
    >>> y = [["DET", "NOUN", "VERB"], ["DET", "NOUN"]]
    >>> model = ChainCRF(l2=0.1).fit(X, y)
    >>> model.predict([[{"word": "the"}, {"word": "cat"}]])[0].tolist()
    ['DET', 'NOUN']
    """

    order: int = parameter(integer(1, meaning="how many previous labels each label depends on"), default=1)
    objective: str = parameter(one_of(*OBJECTIVES), default="auto")
    constraints: Rules = parameter(
        _check_constraints, default=None, to_json=lambda given: given if isinstance(given, str) else None
    )
    costs: Costs = parameter(
        lambda name, given: check_costs(given), default=None, to_json=_costs_to_json, from_json=_costs_from_json
    )

    _trained_with: Rules = learnt()  # the constraints that the weights were trained with

    def _check_together(self) -> None:
        super()._check_together()
        plan = self._plan
        if self.label_functions is not None and self.constraints is not None:
            raise InputError(
                "constraints are for models of columns. A function of two labels may return -1e9 for a pair that is "
                "against the rules, with a fixed weight; or write the features as f(x, t)."
            )
        if self.order > 1 and self.label_functions is not None:
            raise InputError("order above 1 is for models of columns, not for functions of two labels.")
        if self.order > 1:
            check_higher_order_plan(plan)

    # ------------------------------------------------------------------ training

    @property
    def _plan(self) -> Plan:
        return plan_chain(self.objective, self.solver, costs=self.class_weight is not None or self.costs is not None)

    def _parts(self, model: ColumnModel, batch: Batch, target: Target) -> ChainParts | HigherOrderParts:
        jobs = self._jobs
        if isinstance(model.layout, HigherOrderLayout):
            return HigherOrderParts(model.layout, batch, target, jobs)
        return ChainParts.columns(model.layout, batch, target, n_jobs=jobs)

    def _completed(
        self, model: ColumnModel, target: Target, before: ColumnModel | FunctionModel | None = None
    ) -> ColumnModel:
        layout = with_constraints(model.layout, self.constraints, model.labels, target)
        return with_runs(replace(model, layout=layout), target, self.order, before)

    def _costed(self, target: Target, labels: LabelCoder, counts: np.ndarray | None = None) -> Target:
        weights = self.class_weight
        if isinstance(weights, str) and counts is not None:
            weights = dict(zip(labels.labels, balanced_weights(counts).tolist()))
        return with_costs(target, weights, self.costs, labels)

    def _check_on_disk(self) -> None:
        super()._check_on_disk()
        if self.order != 1:
            raise InputError(
                f"data on disk is for chains of order 1, got order={self.order!r}. Load the data into memory for "
                "longer runs of labels, or give features that look at the labels' context."
            )

    def partial_fit(
        self,
        X: Sequences,
        y: Labels,
        classes: Iterable[Hashable] | None = None,
        sample_weight: Weights = None,
        *,
        n_sequences: float | None = None,
    ) -> Self:
        if self.order != 1:
            raise InputError("partial_fit is for chains of order 1; train others by fit, with warm_start to go on.")
        return super().partial_fit(X, y, classes, sample_weight, n_sequences=n_sequences)

    partial_fit.__doc__ = TrainedChain.partial_fit.__doc__

    # --------------------------------------------------------------- prediction

    def _show(self, model: ColumnModel | FunctionModel) -> None:
        super()._show(model)
        self._trained_with = self.constraints

    @property
    def _fitted(self) -> ColumnModel | FunctionModel:
        """The fitted model, under the constraints that the estimator has now.

        ``set_params(constraints=…)`` on a fitted model asks for other rules at prediction, with the same weights, and
        is carried out when the model is next asked.
        """
        model: ColumnModel | FunctionModel = super()._fitted
        if self.constraints is not self.__dict__.get("_trained_with"):
            _check_constraints("constraints", self.constraints)
            if not isinstance(model, ColumnModel):
                raise InputError("constraints are for models of columns; this one has functions of two labels.")
            layout = with_constraints(model.layout, self.constraints, model.labels)
            self._model = model = replace(model, layout=layout)
            self._trained_with = self.constraints
        return model

    def _longer(self, X: Sequences) -> HigherOrderAnswers | None:
        """Answers of a chain of higher order; None where the order is 1."""
        model = self._fitted
        if not isinstance(model, ColumnModel) or not model.higher_order:
            return None
        return HigherOrderAnswers(model, X, n_jobs=self._jobs)

    def _beliefs(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        longer = self._longer(X)
        return super()._beliefs(X, known) if longer is None else (longer.beliefs(known), longer.topology)

    def _codes(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        longer = None if known is None or self.decode == "marginal" else self._longer(X)
        return super()._codes(X, known) if longer is None else (longer.best(known), longer.topology)

    def log_prob(self, X: Sequences, y: Labels) -> np.ndarray:
        """log p(y | x) of every sequence, (B,); for partial labels the probability of all they allow."""
        longer = self._longer(X)
        return super().log_prob(X, y) if longer is None else longer.log_prob(y)

    # ------------------------------------------------------------------ storage

    @classmethod
    def _with_parameters(cls, state: State) -> Self:
        made = super()._with_parameters(state)
        tables = {name: state.arrays[f"layout/{name}"] for name in FIXED if f"layout/{name}" in state.arrays}
        if (
            made.constraints is None and tables
        ):  # other than the name of a scheme they are in the layout, pair by pair
            labels = LabelCoder.from_json(state.header.get("labels"))
            fixed = FixedScores.from_arrays(tables, labels.n_labels)
            made.constraints = None if fixed is None else Constraints.from_scores(fixed, labels.labels)
        made._trained_with = made.constraints
        return made


# ------------------------------------------------------------------------ constraints, costs, longer runs


def with_constraints(layout: Layout, constraints: Rules, labels: LabelCoder, target: Target | None = None) -> Layout:
    """The layout with the fixed scores that constraints mean; LabelError if gold labels break a hard one."""
    if constraints is None and layout.fixed is None:
        return layout
    fixed = None if constraints is None else Constraints.of(constraints).scores(labels.labels)
    if fixed is not None and target is not None:
        refuse_illegal(fixed, target, labels.labels)
    return replace(layout, fixed=fixed)


def with_costs(target: Target, class_weight: ClassWeights, costs: Costs, labels: LabelCoder) -> Target:
    """The target with the costs that ``class_weight`` and ``costs`` mean; both together multiply."""
    if class_weight is None and costs is None:
        return target
    names = labels.labels
    table = 1.0 - np.eye(len(names)) if costs is None else cost_table(costs, names)
    if class_weight is not None:
        table = table * label_weights(class_weight, names, target)[:, None]
    return replace(target, cost=node_costs(table, target.mask))


def with_runs(
    model: ColumnModel, target: Target, order: int, before: ColumnModel | FunctionModel | None = None
) -> ColumnModel:
    """The model with weights for the runs of labels of the target, and for those of a model before it."""
    if order == 1:
        return model
    runs = LabelRuns.observe(target, order)
    weights = np.zeros(runs.n_weights)
    if isinstance(before, ColumnModel) and isinstance(before.layout, HigherOrderLayout):
        runs, weights = _joined_runs(before.layout.runs, before.weights[before.layout.part["runs"]], runs)
    layout = HigherOrderLayout.extend(model.layout, runs)
    return replace(model, layout=layout, weights=np.concatenate([model.weights, weights]))


def _joined_runs(old: LabelRuns, weights: np.ndarray, new: LabelRuns) -> tuple[LabelRuns, np.ndarray]:
    """All runs of both, with the weights of the old ones."""
    kept = {tuple(run): w for run, w in zip((r for runs in old.runs for r in runs.tolist()), weights.tolist())}
    both = []
    for k in range(max(len(old.runs), len(new.runs))):
        found = {tuple(run) for part in (old, new) if k < len(part.runs) for run in part.runs[k].tolist()}
        both.append(np.array(sorted(found), np.int32).reshape(len(found), k + 3))
    runs = LabelRuns(new.n_labels, tuple(both))
    return runs, np.array([kept.get(tuple(run), 0.0) for part in runs.runs for run in part.tolist()])


class HigherOrderAnswers:
    """Labels, probabilities and likelihoods of a fitted model of higher order."""

    def __init__(self, model: ColumnModel, X: Sequences, *, n_jobs: int) -> None:
        self._model, self._n_jobs = model, n_jobs
        self.scores: HigherOrderScores = model.run_scores(X, n_jobs=n_jobs)

    @property
    def topology(self) -> Chains:
        """The chains of X."""
        return self.scores.topology

    def _masked(self, known: Labels | None) -> np.ndarray:
        if known is None:
            return self.scores.node
        return np.where(self._target(known).mask, self.scores.node, -np.inf)

    def _target(self, y: Labels) -> Target:
        labels, allowed = self._model.labels.encode(y, self.topology.lengths)
        return Target(self.topology, self._model.labels.n_labels, labels, allowed)

    def beliefs(self, known: Labels | None = None) -> np.ndarray:
        """(N, L) probabilities of labels, given what is known."""
        total, node, _ = self.scores.beliefs(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return node

    def best(self, known: Labels | None = None) -> np.ndarray:
        """(N,) labels of the best labelling as a whole."""
        total, path = self.scores.best(self._masked(known), n_jobs=self._n_jobs)
        refuse_impossible(total, known=known is not None)
        return path

    def log_prob(self, y: Labels) -> np.ndarray:
        """(B,) log p(y | x), summed over what partial labels allow."""
        mask = self._target(y).mask
        free = self.scores.beliefs(n_jobs=self._n_jobs)[0]
        inside = self.scores.beliefs(np.where(mask, self.scores.node, -np.inf), n_jobs=self._n_jobs)[0]
        # Two large numbers that may round past each other; no part weighs more than the whole.
        return np.minimum(inside - free, 0.0)
