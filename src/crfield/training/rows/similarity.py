"""Training on mapped columns, which are many and differ in size by orders of magnitude.

Columns of landmarks differ as the eigenvalues of their Gram matrix do, some thousands of times smaller than others.
The curvature of the loss along them is known in advance, Σ_n φ_nd² · p (1 − p), and the root of its inverse is the
diagonal that L-BFGS starts from. Evaluating costs a product of matrices, N · D · L, beside which a long history is
free; with columns of single precision it takes half the time. Sequences with one full table of neighbours are a
chain, weight for weight: they are scored, summed over and pulled back one by one while their columns are in the
cache (`training.likelihood`), which is faster still. Their columns need not even be mapped. Where φ = k(x, c) T has
about as many columns as there are landmarks c, the chain is given the similarities k(x, c) and the weights T w
(`Turned`): a product of M · D · L numbers in each evaluation in place of one of N · M · D before the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
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
SAMPLED = 128  # rows that tell how large the mapped columns are


class Turned:
    """The likelihood as a function of the weights of φ = k(x, c) T, on the similarities k(x, c) themselves.

    >>> from crfield.data.batch import Columns
    >>> from crfield.scoring.layout import Layout
    >>> chains, rows = Chains.from_lengths([2]), np.array([[1.0, 2.0], [0.0, 1.0]])
    >>> none = np.zeros(3, np.int64), np.zeros(0, np.int32), 0, None
    >>> turn, target = np.array([[1.0], [1.0]]), Target(chains, 2, np.array([0, 1]))
    >>> def chain(columns):
    ...     batch = Batch(chains, Columns(*none, columns))
    ...     return FusedChain(Layout.observe(batch, target), batch, target)
    >>> mapped, turned = chain(rows @ turn), Turned(chain(rows), turn, 0)
    >>> weights = np.arange(1.0, 1.0 + mapped.n_weights)
    >>> one, two = np.empty(len(weights)), np.empty(len(weights))
    >>> bool(np.isclose(mapped.evaluate(weights, one), turned.evaluate(weights, two))), np.allclose(one, two)
    (True, True)
    """

    def __init__(self, problem: FusedChain, turn: np.ndarray, start: int) -> None:
        self.problem, self.turn = problem, turn
        labels, (inner, outer) = problem.layout.n_labels, turn.shape
        self.inside, self.outside = (slice(start, start + size * labels) for size in (inner, outer))
        self.n_weights = problem.n_weights + (outer - inner) * labels
        self._weights, self._gradient = np.empty(problem.n_weights), np.empty(problem.n_weights)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        own, slope, (inside, outside) = self._weights, self._gradient, (self.inside, self.outside)
        shape = self.problem.layout.n_labels
        own[: inside.start], own[inside.stop :] = weights[: outside.start], weights[outside.stop :]
        own[inside] = (self.turn @ weights[outside].reshape(-1, shape)).ravel()
        value = self.problem.evaluate(own, slope)
        gradient[: outside.start], gradient[outside.stop :] = slope[: inside.start], slope[inside.stop :]
        gradient[outside] = (self.turn.T @ slope[inside].reshape(-1, shape)).ravel()
        return value

    def sizes(self, dense: np.ndarray) -> np.ndarray:
        """(D,) about Σ φ² over all rows, of columns whose similarities are the first of ``dense`` (N, M + …)."""
        step = max(1, len(dense) // SAMPLED)
        some = dense[::step, : len(self.turn)] @ self.turn
        return np.asarray(np.einsum("nd,nd->d", some, some) * (len(dense) / max(len(some), 1)))


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
    turned: Turned | None = None,
) -> Result:
    """Minimise the planned objective and its penalty over the weights of mapped columns and of everything else.

    ``single`` halves what smooth objectives with exact totals cost; the others need the columns as they are. With
    ``turned`` the columns of ``batch`` are similarities, of which it makes those of ``layout``.
    """
    scorer = GraphScorer(layout)
    if not plan.exact or plan.objective in ("perceptron", "hinge", "contrastive"):
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "n_jobs": n_jobs, "rng": rng}
        return fit_graph(scorer, batch, target, penalty, plan, start=start, callback=callback, **options)
    problem: Turned | FusedChain | FullBatch | None = turned
    if problem is None and not single:
        problem = fused_problem(layout, batch, target, plan, n_jobs=n_jobs)
    if problem is None:
        problem = mapped_problem(layout, batch, target, plan, single=single)
    pairs = HISTORY_BYTES // max(16 * layout.n_weights, 1)
    return minimize(
        problem,
        np.zeros(layout.n_weights) if start is None else start,
        penalty,
        memory=int(min(max(pairs, SHORTEST), LONGEST)),
        diagonal=diagonal(layout, batch, l2=penalty.l2, turned=turned),
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
    if batch.node.width or not is_chain(layout, batch.topology, target, plan):
        return None
    chains, labels = Chains(batch.topology.offsets), layout.n_labels
    own = replace(layout.nodes[0], pairs=np.arange(labels**2, dtype=np.int32))
    whole = Target(chains, labels, target.labels, target.allowed, target.weight)
    return FusedChain(own, Batch(chains, batch.node), whole, n_jobs=n_jobs)


def is_chain(layout: GraphLayout, topology: Graphs, target: Target, plan: Plan) -> bool:
    """Whether nodes lie in a row each beside the next, with one full table, and the plan is the likelihood."""
    labels = layout.n_labels
    one = len(layout.nodes) == len(layout.tables) == 1 and plan.objective == "likelihood" and target.cost is None
    if not one or any(r.n_columns or r.n_dense for r in layout.schema.relations):
        return False
    table, chains = layout.tables[0], Chains(topology.offsets)
    plain = np.array_equal(table.tie, np.arange(labels**2).reshape(labels, labels))
    in_a_row = np.array_equal(topology.tails, chains.tails) and np.array_equal(topology.heads, chains.heads)
    return plain and in_a_row and layout.nodes[0].n_labels == labels


def mapped_problem(
    layout: GraphLayout, batch: GraphBatch, target: Target, plan: Plan, *, single: bool = False
) -> FullBatch:
    """The planned objective as a function of the weights."""
    scorer = GraphScorer(layout)
    work = scorer.prepare(batch)
    objective = smooth_objective(plan.objective)
    return FullBatch(scorer, work.single() if single else work, target, objective=objective, engine=plan.engine)


def diagonal(layout: GraphLayout, batch: GraphBatch, *, l2: float, turned: Turned | None = None) -> np.ndarray:
    """(W,) about the root of the inverse curvature of the loss where all labels are equally likely."""
    n = max(batch.topology.n_nodes, 1)
    dense = batch.node.dense
    curvature = np.ones(layout.n_weights)
    for kind, size in zip(layout.schema.kinds, layout.sizes):
        doubt = (1.0 - 1.0 / size) / size if size > 1 else 1.0
        first, last = kind.dense
        if dense is not None and last > first:
            mapped = np.zeros(0) if turned is None else turned.sizes(dense)
            if turned is not None:  # what is behind the similarities stands as it is
                first, last = len(turned.turn), dense.shape[1]
            own = np.append(mapped, np.einsum("nd,nd->d", dense[:, first:last], dense[:, first:last]))
            curvature[layout.part[f"{kind.name}/dense"]] = np.repeat(doubt * own, size)
        curvature[layout.part[f"{kind.name}/bias"]] = doubt * n
    for number, relation in enumerate(layout.schema.relations):
        cells = max(layout.tables[number].n_weights, 1)
        curvature[layout.part[f"{relation.name}/table"]] = len(batch.edges_of(number)) / cells
    return 1.0 / np.sqrt(np.maximum(curvature, 1e-6) + max(l2, 1e-3))
