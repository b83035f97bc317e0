"""Truncated Newton: the step that the second derivative asks for, found by products with it.

    ∇²F(w) d = −∇F(w)        solved by linear conjugate gradients to |residual| ≤ min(½, √(|g| / |g₀|)) |g|

No matrix is ever made: conjugate gradients need only products H v, and those cost about as much as a gradient
(`Curved.curvature_at`). The residual asked for shrinks as the run goes on: early steps are cheap, and late ones
converge faster than linearly (Dembo, Eisenstat & Steihaug 1982, *Inexact Newton methods*; Nocedal & Wright 2006,
section 7.1). Where the function bends downwards (partial labels) the inner loop stops at what it has, which is still
a way down. A diagonal of the second derivative, where the problem can tell one, preconditions the inner loop.

Few outer steps, some dozens of products: about as many passes over the data as L-BFGS for a rough answer, far fewer
for an exact one. The stopping rule is Newton's own decrement, ½ gᵀH⁻¹g.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from crfield.optimize.history import (
    CALLBACK,
    INTERRUPTED,
    MAX_ITER,
    NO_IMPROVEMENT,
    TOLERANCE,
    Callback,
    History,
    Result,
    check_first,
    check_run,
    no_l1,
)
from crfield.optimize.line_search import wolfe_search
from crfield.optimize.penalty import Penalised, Penalty, Point

PRODUCTS = 200  # of one inner loop
SAFETY = 4.0  # the decrement seen through an inexact step is too small
Product = Callable[[np.ndarray], np.ndarray]


class Curved(Protocol):
    """A problem that also knows its second derivative.

    >>> class Bowl:
    ...     n_weights = 2
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = weights - 1.0
    ...         return 0.5 * float(gradient @ gradient)
    ...
    ...     def curvature_at(self, weights):
    ...         return (lambda vector: vector), None
    >>> minimize_newton_cg(Bowl(), np.zeros(2)).weights.tolist()
    [1.0, 1.0]
    """

    @property
    def n_weights(self) -> int:
        """W, the length of weights and gradient."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """f(weights), with ``gradient`` overwritten by ∇f."""
        ...

    def curvature_at(self, weights: np.ndarray) -> tuple[Product, np.ndarray | None]:
        """v ↦ ∇²f(weights) v as a function, and about its diagonal (W,), or None."""
        ...


def minimize_newton_cg(
    problem: Curved,
    start: np.ndarray,
    penalty: Penalty | None = None,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """Minimise f(w) + ½ l2 ‖w‖² from ``start``; tolerance, callback and result as for L-BFGS.

    ``n_evaluations`` of the result counts products as evaluations, since they cost about the same.
    """
    penalty = Penalty() if penalty is None else penalty
    no_l1("truncated Newton", penalty)
    weights = check_run(int(problem.n_weights), start, penalty, tol=tol, max_iter=max_iter)
    run = _Run(problem, weights, penalty, n_jobs=n_jobs)
    history, reason = History(tol, callback), MAX_ITER
    try:
        run.objective.evaluate(run.here)
        check_first(run.here.value, run.here.squared_norm)
        run.begin()
        history.gap = run.aim()
        while len(history.steps) < max_iter:
            if history.gap <= tol:
                reason = TOLERANCE
                break
            taken = run.step()
            if taken is None:
                reason = NO_IMPROVEMENT
                break
            enough = history.note(
                run.here.weights,
                run.here.value,
                gradient_norm=math.sqrt(run.here.squared_norm),
                step_size=taken,
                n_evaluations=run.n_evaluations,
                gap=run.aim(),
            )
            if enough and history.gap > tol:
                reason = CALLBACK
                break
        if history.gap <= tol:
            reason = TOLERANCE
    except KeyboardInterrupt:
        reason = INTERRUPTED
        if math.isnan(run.here.value):
            run.objective.evaluate(run.here)
    return history.result(reason, run.here.weights, run.here.value, n_evaluations=run.n_evaluations)


class _Run:
    """The state of one call: two points, the direction, and what is known of the end."""

    def __init__(self, problem: Curved, start: np.ndarray, penalty: Penalty, *, n_jobs: int) -> None:
        self.problem, self.penalty = problem, penalty
        self.objective = Penalised(problem, penalty, n_jobs=n_jobs)
        self.here = Point(start, np.empty_like(start))
        self.there = Point(np.empty_like(start), np.empty_like(start))
        self.direction, self.slope, self.whole, self.products = np.empty(0), 0.0, False, 0
        self.ridge = penalty.ridge(len(start))

    @property
    def n_evaluations(self) -> int:
        """Gradients and products."""
        return self.objective.n_evaluations + self.products

    def begin(self) -> None:
        """Remember the size of things at the start."""
        self.first_value, self.first_norm = self.here.value, math.sqrt(self.here.squared_norm)

    def aim(self) -> float:
        """Find the direction here; the estimate of (F − F*) / |F*|."""
        here, size = self.here, math.sqrt(self.here.squared_norm)
        if size == 0:
            return 0.0
        product, diagonal = self.problem.curvature_at(here.weights)
        least = min(0.5, math.sqrt(size / self.first_norm)) * size
        self.direction, made = _direction(product, here.gradient, self.ridge, diagonal, least=least)
        self.products += made
        self.slope = float(here.gradient @ self.direction)
        if not self.slope < 0:
            self.direction, self.slope = -here.gradient, -here.squared_norm
        # The decrement can be believed once whole steps are taken: then the function is like its bowl.
        gap = SAFETY * -0.5 * self.slope if self.whole else math.inf
        if self.penalty.l2 and self.penalty.penalised is None:
            gap = min(gap, here.squared_norm / (2 * self.penalty.l2))
        scale = max(abs(here.value), 1e-6 * abs(self.first_value))
        return gap / scale if scale > 0 else math.inf

    def step(self) -> float | None:
        """Go along the direction; how far, or None where nothing is lower."""
        taken = wolfe_search(self.objective, self.here, self.there, self.direction, slope=self.slope, size=1.0)
        if taken is not None:
            self.here, self.there, self.whole = self.there, self.here, taken == 1.0
        return taken


def _direction(
    product: Product, gradient: np.ndarray, ridge: np.ndarray, diagonal: np.ndarray | None, *, least: float
) -> tuple[np.ndarray, int]:
    """d with |(H + ridge) d + g| ≤ least, by preconditioned conjugate gradients, and the number of products."""
    scale = np.ones_like(gradient)
    if diagonal is not None:
        scale = 1.0 / np.maximum(diagonal + ridge, 1e-8 * max(float((diagonal + ridge).max(initial=0.0)), 1e-300))
    solution, residual = np.zeros_like(gradient), -gradient
    steered = scale * residual
    way, power = steered.copy(), float(residual @ steered)
    for count in range(1, PRODUCTS + 1):
        bent = product(way) + ridge * way
        curve = float(way @ bent)
        if curve <= 1e-14 * float(way @ way):
            return (way if count == 1 else solution), count
        length = power / curve
        solution += length * way
        residual -= length * bent
        if float(residual @ residual) <= least * least:
            break
        steered = scale * residual
        power, before = float(residual @ steered), power
        way *= power / before
        way += steered
    return solution, count
