"""Fitting the weights of a chosen set: which optimiser, and from where.

Few weights go to the method with the whole matrix (`crfield.optimize.dense_newton`), which takes over what the last
fit knew of the curvature. Beyond `MOST` that matrix costs more than the data, so L-BFGS or OWL-QN run instead and
nothing is handed on. The penalties are the same:

    loss + l1 Σ |w| + ½ l2 Σ w² + ½ base_l2 Σ base²
"""

from __future__ import annotations

import numpy as np

from crfield.optimize.dense_newton import Settled, extended, minimize_dense, subgradient
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.selection.active import ActiveColumns

MOST = 600  # weights for which the whole matrix is kept
NOISE = 1e-14  # rounding of the loss, for each step


def fit_weights(
    columns: ActiveColumns,
    start: np.ndarray,
    *,
    known: np.ndarray,
    place: np.ndarray,
    l1: float,
    l2: float,
    base_l2: float,
    tol: float,
    violation: float,
    max_iter: int,
) -> tuple[Settled, bool]:
    """The fit from ``start`` (W,), and whether its matrix means something.

    ``known`` (P, P) is the curvature of the weights ``place``. It ends when the objective is within ``tol`` of its
    minimum by its own estimate or, with ``violation`` above 0, when no optimality condition is broken by more.
    """
    n_base = columns.n_base
    features = len(start) - n_base
    ridge = np.concatenate([np.full(n_base, base_l2), np.full(features, l2)])
    sparse = np.concatenate([np.zeros(n_base), np.full(features, l1)])
    if len(start) > MOST:
        return _many(columns, start, ridge, sparse, tol=tol, violation=violation, max_iter=max_iter), False
    slope = np.empty(len(start))
    columns.evaluate(start, slope)
    matrix = extended(columns.evaluate, start, slope, known, place)
    found = minimize_dense(
        columns.evaluate,
        start,
        hessian=matrix,
        l1=sparse,
        l2=ridge,
        gap=tol,
        violation=violation,
        max_iter=max_iter,
        noise=NOISE * columns.view.chains.n_nodes,
    )
    return found, True


class _Ridged:
    """The loss with ridges of different strength, as an optimiser of flat vectors reads it."""

    def __init__(self, columns: ActiveColumns, ridge: np.ndarray) -> None:
        self.columns, self.ridge, self.n_weights = columns, ridge, len(ridge)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        loss = self.columns.evaluate(weights, gradient)
        gradient += self.ridge * weights
        return loss + 0.5 * float(self.ridge @ (weights * weights))


def _many(
    columns: ActiveColumns,
    start: np.ndarray,
    ridge: np.ndarray,
    sparse: np.ndarray,
    *,
    tol: float,
    violation: float,
    max_iter: int,
) -> Settled:
    penalty = Penalty(l1=float(sparse.max(initial=0.0)), penalised=sparse > 0) if sparse.any() else Penalty()
    goal = 1e-13 if violation else tol

    def settled(step: object, weights: np.ndarray) -> bool:
        if not violation:
            return False
        columns.evaluate(weights, slope)
        return float(np.abs(subgradient(weights, slope + ridge * weights, sparse)).max(initial=0.0)) <= violation

    slope = np.empty(len(start))
    steps = max_iter * (20 if violation else 4)
    found = minimize(_Ridged(columns, ridge), start, penalty, memory=50, tol=goal, max_iter=steps, callback=settled)
    loss = columns.evaluate(found.weights, slope)
    worst = float(np.abs(subgradient(found.weights, slope + ridge * found.weights, sparse)).max(initial=0.0))
    good = worst <= violation if violation else found.converged
    return Settled(
        found.weights,
        found.value,
        loss,
        slope,
        np.zeros((0, 0)),
        worst,
        found.n_iter,
        found.n_evaluations,
        good,
    )
