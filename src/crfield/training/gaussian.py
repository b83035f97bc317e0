"""Training of real-valued fields: maximum likelihood, and how sure one may be of what it found.

    F(w) = Σ_g weight_g · (−log p(y_g | x_g)) + ½ l2 ‖coefficients‖² + ½ floor · Σ precisions

The log-density is concave in precisions and in precision × coefficients (without columns on edges). It is not in
the weights used here, whose exponentials keep precisions positive, but no optimum is added by writing a number as
an exponential, and L-BFGS gets there from least squares in a dozen or two steps. The start matters only for time:
coefficients of a ridge regression of single nodes, their residuals' precision, and edges as strong as that.

Labels that features explain without any error would ask for an infinite precision. The last term is as if every
difference had the square ``FLOOR`` more than it has, in units of the labels' variance; it is felt nowhere else.

Standard errors are those of maximum likelihood, from the inverse of the second derivative of F at the optimum, which
is taken by differences of gradients: two evaluations for each weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crfield.core.quadratic import QuadraticEvaluation
from crfield.data.batch import matrix_of
from crfield.data.graphs.batch import GraphBatch
from crfield.inference.gaussian import GaussianEngine
from crfield.objectives.gaussian import GaussianLikelihood
from crfield.optimize.history import NO_IMPROVEMENT, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.quadratic import FARTHEST, QuadraticScorer
from crfield.scoring.similarity import squares

Callback = Callable[[Step, np.ndarray], bool | None]
PAIRS = 30
LEAST_VARIANCE = 1e-6  # of the residuals of the start
FLOOR = 1e-6
SHIFT = 10.0  # for each label: a log-density may be zero by chance, and a tolerance is relative to the value


class GaussianProblem:
    """Negative log-likelihood of labels y (N,), NaN where unknown, as a function of the weights."""

    def __init__(
        self, scorer: QuadraticScorer, batch: GraphBatch, y: np.ndarray, *, weight: np.ndarray | None = None
    ) -> None:
        self.scorer, self.batch, self.y, self.weight = scorer, batch, y, weight
        each = np.ones(batch.n_graphs) if weight is None else weight
        self._node_floor = 0.5 * FLOOR * each[batch.topology.sequence_of_node]
        self._edge_floor = 0.5 * FLOOR * each[batch.topology.sequence_of_edge]
        self.shift = SHIFT * float(each[batch.topology.sequence_of_node] @ ~np.isnan(y))

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value and ``shift``; the gradient is written to ``gradient``."""
        field, topology = self.scorer.score(weights, self.batch), self.batch.topology
        found = GaussianLikelihood().evaluate(field, self.y, GaussianEngine(), self.weight)
        # A node's own precision is that of its row less its edges': α = Q_nn + Σ Q_nm.
        node, edge = self._node_floor, self._edge_floor
        across = node[topology.tails] + node[topology.heads] - edge
        floor = float(node @ field.node + across @ field.edge)
        total = QuadraticEvaluation(found.value + floor, found.node + node, found.edge + across, found.linear)
        gradient[:] = self.scorer.pull(total, weights, self.batch)
        return total.value + self.shift

    @property
    def penalised(self) -> np.ndarray:
        """(W,) whether the ridge touches the weight: coefficients alone."""
        mask = np.zeros(self.n_weights, np.uint8)
        mask[self.scorer.part["coef"]] = 1
        return mask

    def start(self, *, l2: float) -> np.ndarray:
        """(W,) where to begin; see the module."""
        known, part = ~np.isnan(self.y), self.scorer.part
        weights = np.zeros(self.n_weights)
        rows, y = matrix_of(self.batch.node)[known], self.y[known]
        if self.scorer.association == "linear":
            mean = float(y.mean())
            square = rows.T @ rows
            square = square if isinstance(square, np.ndarray) else square.toarray()
            square[np.diag_indices(len(square))] += l2 + 1e-9 * (1.0 + np.trace(square))
            coef = np.linalg.solve(square, rows.T @ (y - mean)) if len(square) else np.zeros(0)
            weights[part["coef"]], weights[part["intercept"]] = coef, mean
            left = y - mean - np.asarray(rows @ coef)
            precision = np.array([1.0 / max(float(np.mean(left**2)), LEAST_VARIANCE)])
        else:
            sums = np.array([float(np.mean((y - column) ** 2)) for column in _columns(rows)])
            precision = 1.0 / np.maximum(sums, LEAST_VARIANCE) / max(len(sums), 1)
        weights[part["association"]] = np.log(precision)
        for number in range(len(self.scorer.edge_columns)):
            weights[self.scorer.relation(number).start] = np.log(precision.sum())
        return weights

    def diagonal(self, start: np.ndarray, *, l2: float) -> np.ndarray:
        """(W,) about the inverse of the curvature at the start."""
        n, part = max(int((~np.isnan(self.y)).sum()), 1), self.scorer.part
        curvature = np.full(self.n_weights, 0.5 * n)
        precision = float(np.exp(np.clip(start[part["association"]], -FARTHEST, FARTHEST)).sum())
        rows = matrix_of(self.batch.node)
        if self.scorer.association == "linear":
            curvature[part["coef"]] = l2 + 0.5 * precision * squares(rows.T)
            curvature[part["intercept"]] = 0.5 * precision * n
        return 1.0 / np.maximum(curvature, 1e-3)


def fit_gaussian(
    problem: GaussianProblem,
    *,
    l2: float,
    tol: float,
    max_iter: int,
    start: np.ndarray | None = None,
    callback: Callback | None = None,
) -> Result:
    """Minimise F; the result tells value, steps and whether it converged."""
    weights = problem.start(l2=l2) if start is None else start.copy()
    found = minimize(
        problem,
        weights,
        Penalty(l2=l2, penalised=problem.penalised),
        memory=PAIRS,
        diagonal=problem.diagonal(weights, l2=l2),
        tol=tol,
        max_iter=max_iter,
        callback=callback,
    )
    if found.reason != NO_IMPROVEMENT or found.converged:
        return found
    return replace(found, converged=promised_fall(problem, found.weights, l2=l2) <= tol * abs(found.value))


def promised_fall(problem: GaussianProblem, weights: np.ndarray, *, l2: float) -> float:
    """½ gᵀH⁻¹g, what a Newton step would still bring: whether a search that rounding ended was at its end."""
    gradient = np.empty(problem.n_weights)
    problem.evaluate(weights, gradient)
    gradient += l2 * problem.penalised * weights
    size, direction = np.linalg.eigh(curvature(problem, weights, l2=l2))
    told = size > 1e-12 * max(float(size[-1]), 1e-300)
    return float(0.5 * np.sum((gradient @ direction[:, told]) ** 2 / size[told]))


def curvature(problem: GaussianProblem, weights: np.ndarray, *, l2: float, size: float = 1e-4) -> np.ndarray:
    """(W, W) the second derivative of F at the weights."""
    n = problem.n_weights
    matrix, one, other = np.zeros((n, n)), np.empty(n), np.empty(n)
    for k in range(n):
        step = size * max(1.0, abs(float(weights[k])))
        there = weights.copy()
        there[k] += step
        problem.evaluate(there, one)
        there[k] -= 2.0 * step
        problem.evaluate(there, other)
        matrix[k] = (one - other) / (2.0 * step)
    matrix[np.diag_indices(n)] += l2 * problem.penalised
    return (matrix + matrix.T) / 2.0


def standard_errors(hessian: np.ndarray) -> np.ndarray:
    """(W,) √ of the diagonal of the inverse; infinite where the data say nothing.

    >>> standard_errors(np.diag([4.0, 0.0])).tolist()
    [0.5, inf]
    """
    told = np.flatnonzero(np.abs(hessian).sum(axis=1) > 1e-10 * max(float(np.abs(hessian).max(initial=0.0)), 1e-300))
    out = np.full(len(hessian), np.inf)
    size, direction = np.linalg.eigh(hessian[np.ix_(told, told)])
    if len(size) and size[0] > 1e-12 * size[-1]:
        out[told] = np.sqrt(((direction**2) / size).sum(axis=1))
    return out


def _columns(rows: object) -> np.ndarray:
    return (rows if isinstance(rows, np.ndarray) else rows.toarray()).T  # type: ignore[attr-defined]
