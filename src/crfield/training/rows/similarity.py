"""Training on mapped columns, which are many and differ in size by orders of magnitude.

Columns of landmarks differ as the eigenvalues of their Gram matrix do, some thousands of times smaller than others.
The curvature of the loss along them is known in advance, Σ_n φ_nd² · p (1 − p), and the root of its inverse is the
diagonal that L-BFGS starts from. Evaluating costs a product of matrices, N · D · L, beside which a long history is
free; with columns of single precision it takes half the time. Sequences with one full table of neighbours are a
chain, weight for weight: they are scored, summed over and pulled back one by one while their columns are in the cache
(`training.likelihood`), which is faster still.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.graphs.batch import GraphBatch
from crfield.optimize.history import Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.training.full_batch import FullBatch
from crfield.training.graph.fit import Callback, fit_graph, smooth_objective
from crfield.training.graph.plan import Plan
from crfield.training.likelihood import FusedChain

HISTORY_BYTES, LONGEST, SHORTEST = 2**27, 100, 10


def fit_mapped(
    layout: GraphLayout,
    batch: GraphBatch,
    target: Target,
    penalty: Penalty,
    plan: Plan,
    *,
    start: np.ndarray | None,
    tol: float,
    max_iter: int,
    n_jobs: int,
    rng: np.random.Generator,
    single: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Minimise the planned objective and its penalty over the weights of mapped columns and of everything else.

    ``single`` halves what smooth objectives with exact totals cost; the others need the columns as they are.
    """
    scorer = GraphScorer(layout)
    if not plan.exact or plan.objective in ("perceptron", "hinge", "contrastive"):
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs, "rng": rng}
        return fit_graph(scorer, batch, target, penalty, plan, start=start, callback=callback, **options)
    problem: FusedChain | FullBatch | None = (
        None if single else fused_problem(layout, batch, target, plan, n_jobs=n_jobs)
    )
    if problem is None:
        problem = mapped_problem(layout, batch, target, plan, single=single)
    pairs = HISTORY_BYTES // max(16 * layout.n_weights, 1)
    return minimize(
        problem,
        np.zeros(layout.n_weights) if start is None else start,
        penalty,
        memory=int(min(max(pairs, SHORTEST), LONGEST)),
        diagonal=diagonal(layout, batch, l2=penalty.l2),
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
        callback=callback,
    )


def fused_problem(
    layout: GraphLayout, batch: GraphBatch, target: Target, plan: Plan, *, n_jobs: int
) -> FusedChain | None:
    """The likelihood of nodes that lie in a row each beside the next, with one table for all; None for anything else.

    Weights are those of the graph model in the same order.
    """
    topology, labels = batch.topology, layout.n_labels
    one = len(layout.nodes) == len(layout.tables) == 1 and plan.objective == "likelihood" and target.cost is None
    if not one or any(r.n_columns or r.n_dense for r in layout.schema.relations) or batch.node.width:
        return None
    table, node = layout.tables[0], layout.nodes[0]
    plain = np.array_equal(table.tie, np.arange(labels**2).reshape(labels, labels))
    chains = Chains(topology.offsets)
    in_a_row = np.array_equal(topology.tails, chains.tails) and np.array_equal(topology.heads, chains.heads)
    if not plain or not in_a_row or node.n_labels != labels:
        return None
    own = replace(node, pairs=np.arange(labels**2, dtype=np.int32))
    whole = Target(chains, labels, target.labels, target.allowed, target.weight)
    return FusedChain(own, Batch(chains, batch.node), whole, n_jobs=n_jobs)


def mapped_problem(
    layout: GraphLayout, batch: GraphBatch, target: Target, plan: Plan, *, single: bool = False
) -> FullBatch:
    """The planned objective as a function of the weights."""
    scorer = GraphScorer(layout)
    work = scorer.prepare(batch)
    objective = smooth_objective(plan.objective)
    return FullBatch(scorer, work.single() if single else work, target, objective=objective, engine=plan.engine)


def diagonal(layout: GraphLayout, batch: GraphBatch, *, l2: float) -> np.ndarray:
    """(W,) about the root of the inverse curvature of the loss where all labels are equally likely."""
    n = max(batch.topology.n_nodes, 1)
    dense = batch.node.dense
    curvature = np.ones(layout.n_weights)
    for kind, size in zip(layout.schema.kinds, layout.sizes):
        doubt = (1.0 - 1.0 / size) / size if size > 1 else 1.0
        first, last = kind.dense
        if dense is not None and last > first:
            own = np.einsum("nd,nd->d", dense[:, first:last], dense[:, first:last])
            curvature[layout.part[f"{kind.name}/dense"]] = np.repeat(doubt * own, size)
        curvature[layout.part[f"{kind.name}/bias"]] = doubt * n
    for number, relation in enumerate(layout.schema.relations):
        cells = max(layout.tables[number].n_weights, 1)
        curvature[layout.part[f"{relation.name}/table"]] = len(batch.edges_of(number)) / cells
    return 1.0 / np.sqrt(np.maximum(curvature, 1e-6) + max(l2, 1e-3))
