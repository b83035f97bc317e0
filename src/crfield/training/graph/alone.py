"""The baseline without edges, which couplings may not make worse.

Without edges every node is a row of a logistic regression of its kind, which one compiled call learns. It is where
guarded training starts (`training.graph.strength`), and what a model trained by an objective asked for by name is
held against: couplings that do worse on their own training graphs are said to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crfield.core.semiring import Semiring
from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.data.graphs.batch import GraphBatch, take_rows
from crfield.inference.graphs.catalogue import choose_engine, choose_map_engine
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.optimize.history import CALLBACK, INTERRUPTED, TOLERANCE, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.graph_linear import GraphScorer, inverse_curvature
from crfield.training.graph.plan import TRAINING_BUDGET, Plan
from crfield.training.likelihood import FusedChain

Callback = Callable[[Step, np.ndarray], bool | None]

LEAST = 1e-9  # probability that counts where beliefs say zero
FEW = 50  # nodes on which nothing can be judged


def fit_alone(
    scorer: GraphScorer,
    batch: GraphBatch,
    target: Target,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """The model without edges: −Σ_n log softmax(node_n)[y_n], with all coupling weights zero.

    Each kind of nodes is a problem of its own. Nodes of unknown label say nothing and are left out.
    """
    layout = scorer.layout
    weights = np.zeros(layout.n_weights)
    diagonal = inverse_curvature(scorer, batch, weights if start is None else start, penalty.l2)
    value, evaluations, reason, history = 0.0, 0, TOLERANCE, list[Step]()
    node_weight = None if target.weight is None else target.weight[target.topology.sequence_of_node]
    for number, (kind, inner) in enumerate(zip(layout.schema.kinds, layout.nodes)):
        size = inner.n_labels
        own = np.flatnonzero((batch.kind == number) & ~(target.mask[:, :size].all(axis=1) & (target.labels < 0)))
        part = slice(layout.part[f"{kind.name}/node"].start, layout.part[f"{kind.name}/bias"].stop)
        if not len(own) or part.stop == part.start:
            continue
        chains = Chains.from_lengths(np.ones(len(own), np.int64))
        rows = take_rows(batch.node, own)
        dense = None if rows.dense is None else np.ascontiguousarray(rows.dense[:, kind.dense[0] : kind.dense[1]])
        columns = Columns(
            rows.indptr, rows.indices - kind.columns[0], kind.columns[1] - kind.columns[0], rows.values, dense
        )
        goal = Target(
            chains,
            size,
            target.labels[own],
            None if target.allowed is None else target.allowed[own, :size],
            None if node_weight is None else node_weight[own],
        )
        mask = None if penalty.penalised is None else np.ascontiguousarray(penalty.penalised[part])
        problem = FusedChain(inner, Batch(chains, columns), goal, n_jobs=n_jobs)

        def after(step: Step, own_weights: np.ndarray, part: slice = part) -> bool | None:
            shown = weights.copy()
            shown[part] = own_weights
            return None if callback is None else callback(step, shown)

        found = minimize(
            problem,
            np.zeros(inner.n_weights) if start is None else start[part],
            replace(penalty, penalised=mask),
            diagonal=diagonal[part],
            tol=tol,
            max_iter=max_iter,
            n_jobs=n_jobs,
            callback=None if callback is None else after,
        )
        weights[part], value = found.weights, value + found.value
        history, evaluations = history + found.history, evaluations + found.n_evaluations
        reason = reason if found.converged else found.reason
        if found.reason in (INTERRUPTED, CALLBACK):
            break
    return Result(weights, value, len(history), evaluations, reason == TOLERANCE, reason, history)


def below_alone(
    scorer: GraphScorer,
    batch: GraphBatch,
    target: Target,
    penalty: Penalty,
    plan: Plan,
    found: Result,
    *,
    n_jobs: int,
) -> str:
    """What to say of a model that does worse on its own training graphs than the fit without edges, else nothing.

    Exact likelihood cannot. Others are compared by the mean log-probability of the labels under beliefs (exact or 50
    sweeps of loopy propagation), unless these are right more often; those that make no probabilities by the share of
    nodes right in the best labelling. A difference within its standard error is none, and of few nodes nothing is
    said.
    """
    known = np.flatnonzero(target.labels != UNKNOWN)
    trusted = plan.exact and plan.objective == "likelihood"
    if trusted or len(known) < FEW or not batch.topology.n_edges or not batch.node.width + batch.node.n_dense:
        return ""
    alone = fit_alone(scorer, batch, target, penalty, n_jobs=n_jobs).weights
    potentials, truth = scorer.score(found.weights, batch), target.labels[known]
    single = scorer.score(alone, batch).node[known]
    if plan.objective in ("perceptron", "hinge", "softmax_margin"):
        best = choose_map_engine(potentials, budget=TRAINING_BUDGET, n_jobs=n_jobs).engine
        labels = best.infer(potentials, Semiring.MAX).node[known].argmax(axis=1)
        mine, theirs = (labels == truth).astype(float), (single.argmax(axis=1) == truth).astype(float)
        what, form = "nodes right", "{:.3f}"
    else:
        choice = choose_engine(potentials, budget=TRAINING_BUDGET, n_jobs=n_jobs)
        engine = choice.engine if choice.exact else LoopyEngine(damping=0.3, max_sweeps=50, tol=1e-4, n_jobs=n_jobs)
        node = engine.infer(potentials, Semiring.LOG).node[known]
        at = np.arange(len(known))
        mine = np.log(np.maximum(node[at, truth], LEAST))
        theirs = np.maximum(single[at, truth] - np.logaddexp.reduce(single, axis=1), math.log(LEAST))
        what, form = "log-probability", "{:.2f}"
        right = (node.argmax(axis=1) == truth) - (single.argmax(axis=1) == truth).astype(float)
        if right.mean() > right.std() / math.sqrt(len(right)):
            return ""  # surer than it should be, and yet right more often
    gain = mine - theirs
    if gain.mean() >= -gain.std() / math.sqrt(len(gain)):
        return ""
    one, other = form.format(mine.mean()), form.format(theirs.mean())
    return f"worse than the one without edges on its own training graphs ({what} {one} against {other})"
