"""`GraphCRF`: a conditional random field on any graph, as a scikit-learn estimator.

    p(y | x) = exp( Σ_n node_n(y_n) + Σ_e edge_e(y_tail, y_head) ) / Z(x)

Nodes have features; edges belong to relations that share their weights. On graphs with loops Z is in general out of
reach, and a model is trained and asked with what can be had: exact engines where the graph allows, otherwise one of
the approximations (`crfield.inference`), each of which says whether it is exact and whether it converged. "auto"
decides and tells why (``plan_``, `explain`). (Lafferty, McCallum & Pereira 2001; Sutton & McCallum 2012.)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any, Self, TypedDict, TypeVar

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.estimator import Estimator
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.graph.answers import GraphAnswers, target_of
from crfield.estimators.graph.checks import check_graph_parameters
from crfield.estimators.graph.model import GraphModel
from crfield.features.graphs.encoder import GraphEncoder
from crfield.objectives.local import counted
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.report.weights import FeatureList, TransitionTable
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.training.gradient_check import DISAGREE, UNSETTLED
from crfield.training.graph.alone import below_alone
from crfield.training.graph.fit import fit_graph
from crfield.training.graph.frank_wolfe import UNPROVEN
from crfield.training.graph.plan import Plan, plan_training, resolve_engine, told_strength
from crfield.training.graph.strength import fit_guarded

Init = TypeVar("Init", bound=Callable[..., None])


class GraphOptions(TypedDict, total=False):
    """Parameters of `GraphCRF`, for the signatures of its children: checkers and editors read them here."""

    l1: float
    l2: float
    objective: str
    engine: Any
    map_engine: Any
    initial: str
    relations: Mapping[str, str] | None
    forbidden: Sequence[tuple[str, Hashable, Hashable]]
    standardize: bool
    min_count: int
    feature_pairs: str
    intercept: bool
    penalize_intercepts: bool
    decode: str
    tol: float
    max_iter: int
    warm_start: bool
    n_jobs: int | None
    random_state: Any
    verbose: int
    callback: Callable[[Step, np.ndarray], bool | None] | None


def takes_options_of(parent: type) -> Callable[[Init], Init]:
    """For an ``__init__`` that hands ``**options`` on: its signature names them, as help, repr and clone need it.

    >>> import inspect
    >>> class Child(GraphCRF):
    ...     @takes_options_of(GraphCRF)
    ...     def __init__(self, *, own: int = 1, **options: Any) -> None: ...
    >>> list(inspect.signature(Child.__init__).parameters)[:4]
    ['self', 'own', 'l1', 'l2']
    """

    def dressed(init: Init) -> Init:
        own = [p for p in signature(init).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        names = {p.name for p in own}
        handed_on = [p for p in signature(parent.__init__).parameters.values() if p.name not in names]  # type: ignore[misc]
        vars(init)["__signature__"] = Signature([*own, *handed_on])
        return init

    return dressed


class GraphCRF(GraphAnswers, Estimator):
    """Conditional random field on graphs.

    Training minimises objective + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖².

    Parameters
    ----------
    l1, l2 : float
        Strengths of the penalties.
    objective : str
        "auto", "likelihood", "pseudo_likelihood", "piecewise", "contrastive", "perceptron", "hinge" or
        "softmax_margin" (`crfield.training.graph.plan` says what each is). "auto" is the exact likelihood where the
        graphs allow it. Elsewhere it is the likelihood bounded by trees, from the fit without edges, with couplings
        as strong as held-out graphs bear (`crfield.training.graph.strength`).
    engine : str or engine
        Inference, in training and for probabilities: "auto", a name such as "loopy", "tree_reweighted" or
        "junction_tree", or an engine object with options of its own.
    map_engine : str or engine, optional
        Inference for the best labelling; the same as ``engine`` if None.
    initial : "auto", "zero" or "pseudo_likelihood"
        Where training with an approximate engine starts.
    relations : dict, optional
        Form of the table of a relation: "full" (every pair of labels has a weight) or "potts" (one weight for equal
        labels). Relations not named are "full".
    forbidden : list of (relation, label, label)
        Pairs of labels that cannot stand at the tail and the head of an edge.
    standardize, min_count, feature_pairs, intercept, penalize_intercepts
        As in `ChainCRF`.
    decode : "auto", "map" or "marginal"
        What ``predict`` returns: the best labelling as a whole, or the best label of each node, which makes fewer
        expected errors per node. "auto" is "marginal" where inference is not exact, and "map" where it is, where
        pairs are forbidden, where ``map_engine`` names an engine, and for the perceptron and the hinge.
    tol, max_iter, warm_start, n_jobs, random_state, verbose, callback
        As in `ChainCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import Graph, GraphCRF
    >>> ring = {"beside": [(0, 1), (1, 2), (2, 0)]}
    >>> X = [Graph(np.array([[2.0], [1.0], [0.5]]), ring), Graph(np.array([[-2.0], [-1.0], [0.5]]), ring)]
    >>> model = GraphCRF(l2=0.1).fit(X, [["on", "on", "on"], ["off", "off", "off"]])
    >>> model.predict(X)[1].tolist()
    ['off', 'off', 'off']
    >>> model.plan_.objective
    'likelihood'
    """

    _model: GraphModel | None
    _name = "GraphCRF"
    file_kind = "graph_crf"

    def __init__(
        self,
        *,
        l1: float = 0.0,
        l2: float = 1.0,
        objective: str = "auto",
        engine: Any = "auto",
        map_engine: Any = None,
        initial: str = "auto",
        relations: Mapping[str, str] | None = None,
        forbidden: Sequence[tuple[str, Hashable, Hashable]] = (),
        standardize: bool = False,
        min_count: int = 1,
        feature_pairs: str = "observed",
        intercept: bool = True,
        penalize_intercepts: bool = True,
        decode: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 500,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.l1 = l1
        self.l2 = l2
        self.objective = objective
        self.engine = engine
        self.map_engine = map_engine
        self.initial = initial
        self.relations = relations
        self.forbidden = forbidden
        self.standardize = standardize
        self.min_count = min_count
        self.feature_pairs = feature_pairs
        self.intercept = intercept
        self.penalize_intercepts = penalize_intercepts
        self.decode = decode
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from graphs X and the labels y of their nodes, in the order of the nodes.

        A node's label may be ``None`` (unknown) or a set (one of these). ``sample_weight`` has one number for each
        graph; 0 leaves it out. Ctrl-C ends training with the best weights so far.
        """
        check_graph_parameters(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        graphs, labels = self._graphs(X), self._labels(y, X)
        before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
        if before is None:
            encoder = GraphEncoder(standardize=self.standardize)
            batch = encoder.fit(graphs, min_count=self.min_count)
            coder = GraphLabels([kind.name for kind in encoder.schema.kinds]).fit(labels, batch)
        else:
            encoder, coder, batch = before.encoder, before.labels, before.encoder.encode(graphs)
        refuse_large(batch, encoder)
        if batch.topology.n_nodes == 0:
            raise InputError("X holds no nodes at all; at least one graph with one node is needed to train.")
        target = target_of(batch, coder, labels, sample_weight)
        layout = before.layout if before is not None else self._layout(encoder, coder, batch, target)
        model = GraphModel(encoder, coder, layout, np.zeros(layout.n_weights))
        plan = plan_training(
            batch.topology,
            coder.n_labels,
            objective=self.objective,
            engine=self.engine,
            n_jobs=resolve_jobs(self.n_jobs),
            guarded=batch.node.width + batch.node.n_dense > 0,
        )
        self._warn_of_unused(plan, coder, batch, target)
        result, plan = self._train(model, batch, target, plan, None if before is None else before.weights)
        model.weights = result.weights
        self._model = model
        self.plan_ = plan
        self.classes_ = coder.classes[coder.kinds[0]] if len(coder.kinds) == 1 else coder.classes
        self.objective_ = float(result.value)
        self.n_iter_ = result.n_iter
        self.n_evaluations_ = result.n_evaluations
        self.history_ = result.history
        self.converged_ = result.converged
        self.stop_reason_ = result.reason
        self._warn(result, plan)
        return self

    def _layout(self, encoder: GraphEncoder, coder: GraphLabels, batch: GraphBatch, target: Target) -> GraphLayout:
        return GraphLayout.observe(
            encoder.schema,
            coder.sizes,
            batch,
            target,
            feature_pairs=self.feature_pairs,
            bias=self.intercept,
            tables=dict(self.relations or {}),
            forbidden=coder.pairs(self.forbidden, encoder.schema),
        )

    def _train(
        self, model: GraphModel, batch: GraphBatch, target: Target, plan: Plan, start: np.ndarray | None
    ) -> tuple[Result, Plan]:
        penalised = None if self.penalize_intercepts else (~model.layout.intercepts).astype(np.uint8)
        penalty = Penalty(l1=self.l1, l2=self.l2, penalised=penalised)
        scorer, jobs = GraphScorer(model.layout), resolve_jobs(self.n_jobs)
        with Progress(self.verbose, total=self.max_iter, description=self._name) as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            watching = self.callback is not None or bool(self.verbose)
            options: dict[str, Any] = {
                "start": start,
                "tol": self.tol,
                "max_iter": self.max_iter,
                "n_jobs": jobs,
                "rng": random_generator(self.random_state),
                "callback": after if watching else None,
            }
            if plan.guarded:
                return fit_guarded(scorer, batch, target, penalty, plan, **options)
            result = fit_graph(scorer, batch, target, penalty, plan, initial=self.initial, **options)
        remark = below_alone(scorer, batch, target, penalty, plan, result, n_jobs=jobs)
        return result, replace(plan, remark=remark)

    def _warn(self, result: Result, plan: Plan) -> None:
        if plan.remark and result.converged:
            warnings.warn(
                f"the couplings that {plan.objective} found make this model {plan.remark}. Let objective='auto' "
                "choose their strength, or leave out relations.",
                DataWarning,
                stacklevel=3,
            )
        self._warn_of_strength(plan, result)
        if result.converged or result.reason == CALLBACK:
            return
        if result.reason == INTERRUPTED:
            advice = "The best weights so far are kept"
        elif plan.objective == "contrastive":
            advice = "Raise max_iter: sampled gradients need many rounds until their average stands still"
        elif result.reason == UNPROVEN:
            advice = (
                "A labelling better than the one that this engine found may have been missed; an exact engine or "
                "tree_reweighted can prove that none was"
            )
        elif plan.objective == "perceptron":
            advice = "Every epoch had a mistake; the average of all weights met is kept, which often does well enough"
        elif plan.guarded and result.reason == UNSETTLED:
            advice = "The value moves on when inference does: raise l2, or give the edges features"
        elif plan.exact or result.reason not in (UNSETTLED, DISAGREE):
            advice = "Raise max_iter or tol, or scale numeric features (standardize=True)"
        else:
            advice = (
                "The totals of this engine are approximate and cannot be trusted here. Start from "
                "initial='pseudo_likelihood', use objective='pseudo_likelihood', or leave out relations"
            )
        value = "" if np.isnan(result.value) else f", objective {result.value:.6g}"
        warnings.warn(
            f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
            f"steps{value}). {advice}.{f' The model is {plan.remark}.' if plan.remark else ''}",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _warn_of_strength(self, plan: Plan, result: Result) -> None:
        if not plan.guarded or result.reason in (CALLBACK, INTERRUPTED):
            return
        if plan.held_out is None:
            warnings.warn(
                "the strength of the couplings was not checked: there are too few labelled nodes to hold some out "
                "(two graphs, or one of 200 nodes). Compare with a model without relations.",
                DataWarning,
                stacklevel=4,
            )
        elif plan.held_out.misfit and plan.strength != 1:
            warnings.warn(
                f"whole couplings are worse than none on held-out graphs ({plan.held_out.accuracy[-1]:.3f} of nodes "
                f"right against {plan.held_out.accuracy[0]:.3f}), so they are weakened to {plan.strength:g}: the "
                "tables of these relations do not fit. Give the edges features (edge_features='difference' on "
                "images), or one weight for equal labels (relations={name: 'potts'}).",
                DataWarning,
                stacklevel=4,
            )

    def _warn_of_unused(self, plan: Plan, coder: GraphLabels, batch: GraphBatch, target: Target) -> None:
        """Pseudo-likelihood leaves out the nodes beside unknown labels, which may be nearly all."""
        if plan.objective != "pseudo_likelihood" or target.complete.all():
            return
        told = target.mask.sum(axis=1) < coder.states(batch).sum(axis=1)
        used = told & counted(target)
        if 2 * used.sum() < told.sum():
            warnings.warn(
                f"pseudo-likelihood learns only from nodes whose neighbours' labels are all known: {used.sum()} of "
                f"{told.sum()} labelled nodes. objective='likelihood' with an engine, or 'contrastive', sum over "
                "unknown labels.",
                DataWarning,
                stacklevel=3,
            )

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> GraphModel:
        model = getattr(self, "_model", None)
        if model is None:
            raise NotFittedError(f"this {self._name} is not fitted yet. Call fit(X, y) first, or load a model file.")
        return model

    @property
    def _coder(self) -> GraphLabels:
        return self._fitted.labels

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and `relation_weights` give them names."""
        weights = self._fitted.weights.view()
        weights.flags.writeable = False
        return weights

    def _scored(self, X: Any) -> tuple[Potentials, GraphBatch]:
        return self._fitted.potentials(self._graphs(X))

    @property
    def _whole(self) -> bool:
        """Whether a labelling must be looked at as a whole: trained for it, or under rules that bind neighbours."""
        return self.plan_.objective in ("perceptron", "hinge") or bool(self.forbidden)

    # -------------------------------------------------------------- explanation

    def explain(self) -> str:
        """What was trained, how, and what came of it, in a few lines."""
        model, plan = self._fitted, self.plan_
        value = "value unknown" if np.isnan(self.objective_) else f"objective {self.objective_:.6g}"
        bound = " (upper bound)" if plan.guarded and plan.objective == "likelihood" and plan.strength else ""
        ended = "converged" if self.converged_ else f"NOT converged ({self.stop_reason_})"
        ended += f", but {plan.remark}" if plan.remark else ""
        lines = [
            f"objective   {plan.reason}",
            *([f"strength    {told_strength(plan)}"] if plan.guarded else []),
            f"training    {self.n_iter_} steps, {value}{bound}, {ended}",
            *([f"answers     {self._told_answers()}"] if plan.guarded else []),
            *(f"kind        {kind}: {len(labels)} labels" for kind, labels in model.labels.classes.items()),
            *(f"relation    {model.describe(relation)}" for relation in model.encoder.schema.relations),
        ]
        return "\n".join(lines)

    def _told_answers(self) -> str:
        engine = "tree_reweighted" if self.plan_.objective == "likelihood" else "loopy"
        if not (isinstance(self.engine, str) and self.engine == "auto"):
            engine = resolve_engine(self.engine)[1]
        decode = self._decoder(exact=False)
        return f"marginals by {engine}" + ("" if decode == "marginal" else "; the best whole labelling by predict")

    def relation_weights(self, relation: str) -> TransitionTable:
        """Weights of the label pairs of a relation: rows the tail's label, columns the head's; NaN is forbidden."""
        return self._fitted.relation_weights(relation)

    def top_features(self, n: int = 20, *, label: Hashable | None = None) -> FeatureList:
        """The node features of largest absolute weight, with their names; of one label if given."""
        return self._fitted.top_features(n, label)

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Nothing in it is ever executed."""
        from crfield.estimators.graph.file import save_graph

        save_graph(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None
