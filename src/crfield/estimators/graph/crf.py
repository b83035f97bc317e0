"""`GraphCRF`: a conditional random field on any graph, as a scikit-learn estimator.

    p(y | x) = exp( Σ_n node_n(y_n) + Σ_e edge_e(y_tail, y_head) ) / Z(x)

Nodes have features; edges belong to relations that share their weights. On graphs with loops Z is in general out of
reach, and a model is trained and asked with what can be had: exact engines where the graph allows, otherwise one of
the approximations (`crfield.inference`), each of which says whether it is exact and whether it converged. "auto"
decides and tells why (``plan_``, `explain`). (Lafferty, McCallum & Pereira 2001; Sutton & McCallum 2012.)
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.core.checks import flag, one_of, random_generator, resolve_jobs, seed
from crfield.core.parameters import learnt, parameter
from crfield.core.target import Target
from crfield.core.typing import Graphlike, Labels, Seed, Weights
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.errors import DataWarning, InputError
from crfield.estimators.base.fitted import read_only
from crfield.estimators.base.groups import MIN_COUNT, Optimised, Penalised
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.graph.answers import GraphAnswers
from crfield.estimators.graph.data import GraphData, read_graphs
from crfield.estimators.graph.model import GraphModel
from crfield.estimators.graph.parameters import Coupled
from crfield.estimators.graph.steps import (
    NodeSteps,
    dense_kinds,
    linear_steps,
    model_digest,
    one_step_graphs,
    over_time,
    relation_tables,
)
from crfield.inference.decode import DECODERS
from crfield.objectives.local import counted
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result
from crfield.optimize.penalty import Penalty
from crfield.report.weights import FeatureList, TransitionTable
from crfield.scoring.graph_layout import PAIRS, GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.training.cluster.current import CURRENT
from crfield.training.cluster.graph import ClusterGraphs
from crfield.training.cluster.session import Cluster
from crfield.training.cluster.steps import watched
from crfield.training.gradient_check import DISAGREE, UNSETTLED
from crfield.training.graph.alone import below_alone
from crfield.training.graph.fit import INITIAL, fit_graph
from crfield.training.graph.frank_wolfe import UNPROVEN
from crfield.training.graph.plan import OBJECTIVES, Plan, plan_training, resolve_engine, told_strength
from crfield.training.graph.strength import fit_guarded


class GraphCRF(Penalised, Optimised, Coupled, GraphAnswers[GraphModel], kind="graph_crf", model=GraphModel):
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

    objective: str = parameter(one_of(*OBJECTIVES), default="auto")
    initial: str = parameter(one_of(*INITIAL), default="auto")
    standardize: bool = parameter(flag, default=False)
    min_count: int = parameter(MIN_COUNT, default=1)
    feature_pairs: str = parameter(one_of(*PAIRS), default="observed")
    intercept: bool = parameter(flag, default=True)
    penalize_intercepts: bool = parameter(flag, default=True)
    decode: str = parameter(one_of("auto", *DECODERS), default="auto")
    warm_start: bool = parameter(flag, default=False)
    random_state: Seed = parameter(seed, default=0)

    plan_: Plan = learnt()

    # ------------------------------------------------------------------ fitting

    @property
    def _clusters(self) -> bool:
        return True

    def fit(self, X: Graphlike, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn the weights from graphs X and the labels y of their nodes, in the order of the nodes.

        A node's label may be ``None`` (unknown) or a set (one of these). ``sample_weight`` has one number for each
        graph; 0 leaves it out. Ctrl-C ends training with the best weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
        known = None if before is None else (before.encoder, before.labels)
        graphs, labels = self._taught(X, y)
        data = read_graphs(
            graphs, labels, sample_weight, standardize=self.standardize, min_count=self.min_count, known=known
        )
        layout = self._layout(data) if before is None else before.layout
        columns = data.batch.node
        plan = plan_training(
            data.batch.topology,
            data.labels.n_labels,
            objective=self.objective,
            engine=self.engine,
            n_jobs=resolve_jobs(self.n_jobs),
            guarded=columns.width + columns.n_dense > 0,
        )
        warn_of_unused(plan, data)
        result, plan = self._train(layout, data, plan, None if before is None else before.weights)
        self._learn(GraphModel(data.encoder, data.labels, layout, result.weights, plan), result)
        warn_of_couplings(plan, result)
        self._warn_unless_converged(result, advice_on(plan, result), plan.remark and f"The model is {plan.remark}")
        return self

    def _taught(self, X: Graphlike, y: Labels) -> tuple[Sequence[Graph], Labels]:
        """The graphs of training, and the labels of their nodes."""
        return self._graphs(X), self._labels(y, X)

    def _layout(self, data: GraphData) -> GraphLayout:
        schema = data.encoder.schema
        return GraphLayout.observe(
            schema,
            data.labels.sizes,
            data.batch,
            data.target,
            feature_pairs=self.feature_pairs,
            bias=self.intercept,
            tables=dict(self.relations or {}),
            forbidden=data.labels.pairs(self.forbidden, schema),
        )

    def _train(
        self, layout: GraphLayout, data: GraphData, plan: Plan, start: np.ndarray | None
    ) -> tuple[Result, Plan]:
        penalty = self._penalty(None if self.penalize_intercepts else layout.intercepts)
        scorer, jobs, batch, target = GraphScorer(layout), resolve_jobs(self.n_jobs), data.batch, data.target
        with self._watched() as watch:
            options: dict[str, Any] = {
                "start": start,
                "tol": self.tol,
                "max_iter": self.max_iter,
                "n_jobs": jobs,
                "rng": random_generator(self.random_state),
                "callback": watch,
            }
            workers = CURRENT.get()
            if workers is not None:
                result = fit_graphs_on_cluster(workers, scorer, batch, target, penalty, plan, self.initial, options)
            elif plan.guarded:
                return fit_guarded(scorer, batch, target, penalty, plan, **options)
            else:
                result = fit_graph(scorer, batch, target, penalty, plan, initial=self.initial, **options)
        remark = below_alone(scorer, batch, target, penalty, plan, result, n_jobs=jobs)
        return result, replace(plan, remark=remark)

    def _show(self, model: GraphModel) -> None:
        super()._show(model)
        self.plan_ = model.plan

    # --------------------------------------------------------------- prediction

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and `relation_weights` give them names."""
        return read_only(self._fitted.weights)

    @property
    def _whole(self) -> bool:
        """Whether a labelling must be looked at as a whole: trained for it, or under rules that bind neighbours."""
        return self._fitted.plan.objective in ("perceptron", "hinge") or bool(self.forbidden)

    def _plan(self) -> Plan:
        return self._fitted.plan

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model = self._fitted
        schema, sizes = model.encoder.schema, model.layout.sizes
        inner = linear_steps(model) if dense_kinds(model.encoder) else self._node_steps()
        return over_time(inner, schema, sizes, relation_tables(model))

    def _node_steps(self) -> NodeSteps:
        """Scores of steps that are graphs of one node each."""
        model = self._fitted
        digest = model_digest(model)
        return NodeSteps(lambda rows: model.potentials(one_step_graphs(rows))[0], model.layout.sizes, digest)

    # -------------------------------------------------------------- explanation

    def explain(self) -> str:
        """What was trained, how, and what came of it, in a few lines."""
        model = self._fitted
        plan = model.plan
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
        engine = "tree_reweighted" if self._fitted.plan.objective == "likelihood" else "loopy"
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


def fit_graphs_on_cluster(
    cluster: Cluster,
    scorer: GraphScorer,
    batch: GraphBatch,
    target: Target,
    penalty: Penalty,
    plan: Plan,
    initial: str,
    options: dict[str, Any],
) -> Result:
    """`fit_graph` with the graphs on the workers of a cluster; InputError for what does not run there."""
    if plan.guarded:
        raise InputError(
            "objective='auto' chooses the strength of couplings on held-out graphs where inference is approximate, "
            "which does not run on a cluster. Name an objective ('pseudo_likelihood', or 'likelihood' with an "
            "engine), or fit outside of the block."
        )
    if plan.objective in ("perceptron", "hinge", "contrastive"):
        raise InputError(
            f"objective={plan.objective!r} visits graph after graph and does not run on a cluster. Use 'likelihood', "
            "'pseudo_likelihood', 'piecewise' or 'softmax_margin', or fit outside of the block."
        )
    callback = options.pop("callback")
    graphs = ClusterGraphs(cluster, scorer, batch, target)

    def run(after: Any) -> Result:
        return fit_graph(
            scorer, batch, target, penalty, plan, initial=initial, callback=after, make=graphs.problem, **options
        )

    try:
        return watched(cluster, callback, run)
    finally:
        graphs.close()


def advice_on(plan: Plan, result: Result) -> str:
    """What may help a training that ended before its tolerance was met."""
    if plan.objective == "contrastive":
        return "Raise max_iter: sampled gradients need many rounds until their average stands still"
    if result.reason == UNPROVEN:
        return (
            "A labelling better than the one that this engine found may have been missed; an exact engine or "
            "tree_reweighted can prove that none was"
        )
    if plan.objective == "perceptron":
        return "Every epoch had a mistake; the average of all weights met is kept, which often does well enough"
    if plan.guarded and result.reason == UNSETTLED:
        return "The value moves on when inference does: raise l2, or give the edges features"
    if plan.exact or result.reason not in (UNSETTLED, DISAGREE):
        return "Raise max_iter or tol, or scale numeric features (standardize=True)"
    return (
        "The totals of this engine are approximate and cannot be trusted here. Start from "
        "initial='pseudo_likelihood', use objective='pseudo_likelihood', or leave out relations"
    )


def warn_of_couplings(plan: Plan, result: Result) -> None:
    """What was found of couplings that a user should know: that they do harm, are weakened, or were not checked."""
    told = ""
    if plan.remark and result.converged:
        told = (
            f"the couplings that {plan.objective} found make this model {plan.remark}. Let objective='auto' "
            "choose their strength, or leave out relations."
        )
    elif not plan.guarded or result.reason in (CALLBACK, INTERRUPTED):
        return
    elif plan.held_out is None:
        told = (
            "the strength of the couplings was not checked: there are too few labelled nodes to hold some out "
            "(two graphs, or one of 200 nodes). Compare with a model without relations."
        )
    elif plan.held_out.misfit and plan.strength != 1:
        told = (
            f"whole couplings are worse than none on held-out graphs ({plan.held_out.accuracy[-1]:.3f} of nodes "
            f"right against {plan.held_out.accuracy[0]:.3f}), so they are weakened to {plan.strength:g}: the "
            "tables of these relations do not fit. Give the edges features (edge_features='difference' on "
            "images), or one weight for equal labels (relations={name: 'potts'})."
        )
    if told:
        warnings.warn(told, DataWarning, stacklevel=3)


def warn_of_unused(plan: Plan, data: GraphData) -> None:
    """Pseudo-likelihood leaves out the nodes beside unknown labels, which may be nearly all."""
    target = data.target
    if plan.objective != "pseudo_likelihood" or target.complete.all():
        return
    told = target.mask.sum(axis=1) < data.labels.states(data.batch).sum(axis=1)
    used = told & counted(target)
    if 2 * used.sum() < told.sum():
        warnings.warn(
            f"pseudo-likelihood learns only from nodes whose neighbours' labels are all known: {used.sum()} of "
            f"{told.sum()} labelled nodes. objective='likelihood' with an engine, or 'contrastive', sum over "
            "unknown labels.",
            DataWarning,
            stacklevel=3,
        )
