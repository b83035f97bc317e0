"""The linear chain model written out: scores one feature at a time, values path by path."""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.data.batch import Columns
from crfield.inference.graphs.brute import BruteEngine
from crfield.kernels import linear
from tests.cases.chains import (
    INF,
    LinearCase,
)


def problem_of(case: LinearCase) -> linear.Problem:
    return linear.Problem(case.layout, case.batch, case.target.labels, case.target.allowed, case.target.weight)


def evaluated(case: LinearCase, weights: np.ndarray, n_jobs: int = 1) -> tuple[float, np.ndarray]:
    gradient = np.full(case.layout.n_weights, np.nan)
    return problem_of(case).evaluate(weights, gradient, n_jobs=n_jobs), gradient


def node_columns_of(columns: Columns, row: int) -> list[tuple[int, float]]:
    span = slice(columns.indptr[row], columns.indptr[row + 1])
    values = np.ones(span.stop - span.start) if columns.values is None else columns.values[span]
    return list(zip(columns.indices[span].tolist(), values.tolist()))


def written_out(case: LinearCase, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores by the formula of the contract, one feature at a time, with a table for every edge."""
    layout, batch, chains, L = case.layout, case.batch, case.batch.topology, case.layout.n_labels
    part = {name: weights[span] for name, span in layout.part.items()}
    node, edge = np.zeros((chains.n_nodes, L)), np.zeros((chains.n_edges, L, L))
    column, label = layout.node_features()
    for n in range(chains.n_nodes):
        for k, x in node_columns_of(batch.node, n):
            for f in np.flatnonzero(column == k):
                node[n, label[f]] += x * part["node"][f]
        for d in range(layout.n_dense):
            node[n] += batch.node.dense[n, d] * part["dense"].reshape(-1, L)[d]  # type: ignore[index]
        node[n] += part["bias"] if layout.bias else 0.0
    for s in np.flatnonzero(chains.lengths) if layout.boundaries else ():
        node[chains.offsets[s]] += part["start"]
        node[chains.offsets[s + 1] - 1] += part["end"]
    column, pair = layout.edge_features()
    for e in range(chains.n_edges):
        flat = edge[e].reshape(-1)
        flat[layout.pairs] += part["transitions"]
        for k, x in node_columns_of(batch.edge, e) if batch.edge is not None else ():
            for f in np.flatnonzero(column == k):
                flat[pair[f]] += x * part["edge"][f]
        for d in range(layout.n_edge_dense):
            flat += batch.edge.dense[e, d] * part["edge_dense"].reshape(-1, L * L)[d]  # type: ignore[union-attr, index]
    return node, edge


def written_back(case: LinearCase, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """The adjoint of `written_out`: one unit weight at a time."""
    units = np.eye(case.layout.n_weights)
    both = [written_out(case, unit) for unit in units]
    return np.array([(a * node).sum() + (b * edge).sum() for a, b in both])


def enumerated(case: LinearCase, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Value and gradient in the scores by writing out all paths and all allowed paths."""
    chains, target = case.batch.topology, case.target
    node, edge = written_out(case, weights)
    free = BruteEngine().infer(Potentials(node, edge, chains), Semiring.LOG)
    masked = np.full_like(node, -INF)
    for n, label in enumerate(target.labels):
        allowed = [label] if label >= 0 else np.flatnonzero(target.allowed[n])  # type: ignore[index]
        masked[n, allowed] = node[n, allowed]
    clamped = BruteEngine().infer(Potentials(masked, edge, chains), Semiring.LOG)
    weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
    by_node = weight[chains.sequence_of_node][:, None]
    by_edge = weight[chains.sequence_of_node[chains.heads]][:, None, None]
    value = float(weight @ (free.total - clamped.total))
    # with exactly one edge a table of its own and a shared one look the same; so do their marginals
    return value, by_node * (free.node - clamped.node), by_edge * (free.edge - clamped.edge)
