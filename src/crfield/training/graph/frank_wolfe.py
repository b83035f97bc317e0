"""Block-coordinate Frank-Wolfe: the hinge with a ridge, one graph at a time, with a duality gap.

    F(w) = Σ_i max_y [ cost_i(y) + g_i(y)·w ] + ½ l2 ‖w‖²,        g_i(y) = features of y − features of the truth

Its dual asks for a mixture of labellings for each graph:

    w = −(1/l2) Σ_i Σ_y α_i(y) g_i(y),     dual = Σ_i Σ_y α_i(y) cost_i(y) − ½ l2 ‖w‖²  ≤  min F

Block-coordinate Frank–Wolfe (Lacoste-Julien, Jaggi, Schmidt & Pletscher 2013) visits the graphs in random order,
finds the labelling that violates the margin most and shifts weight to it by the best possible step, which is a
formula. So there is no step size to choose, and F − dual tells when to stop. In its plain form it comes near quickly
and then crawls. Here, as in Osokin et al. 2016 (*Minding the gaps for block Frank–Wolfe optimization of structured
SVMs*), each graph keeps the labellings it met as planes (g, cost), weight goes from the worst of them to the best
(*pairwise* steps, which converge linearly), and between two passes that infer a few go over the planes alone.

It needs values that are true maxima of linear functions: complete targets, a linear scorer and an exact engine. With
another engine it runs as well, but the gap proves nothing and the result says so.

Memory: at most PLANES gradients for each part, on the columns that the part ever used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from crfield.errors import InputError
from crfield.kernels.planes import pair_steps
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.training.graph.by_graph import Parts, whole

UNPROVEN = "gap not proven: inference was not exact"
PLANES = 50  # kept for each part; those without weight go first
CHEAP_PASSES = 20  # over the planes, at most, after each pass that infers
CHEAP_SHARE = 0.1  # of what the pass that inferred fell short: when a cheap one falls short less it is the last
PAIR_STEPS = 20  # of a part at a visit

Callback = Callable[[Step, np.ndarray], bool | None]


class _Part:
    """The planes of one part and how much each weighs; the first is the truth, which costs nothing."""

    def __init__(self) -> None:
        self.columns = np.zeros(0, np.int64)
        self.gradients = np.zeros((1, 0))  # (k, columns)
        self.costs, self.shares = np.zeros(1), np.ones(1)  # (k,)
        self.products = np.zeros((1, 1))  # (k, k) of the gradients

    def add(self, columns: np.ndarray, gradient: np.ndarray, cost: float) -> None:
        """One more plane, without weight yet."""
        if len(self.costs) >= PLANES:
            idle = np.flatnonzero(self.shares[1:] == 0) + 1
            keep = np.setdiff1d(np.arange(len(self.costs)), idle[: max(1, len(idle) // 2)])
            self.gradients, self.costs, self.shares = self.gradients[keep], self.costs[keep], self.shares[keep]
            self.products = self.products[np.ix_(keep, keep)]
        union = np.union1d(self.columns, columns)
        wider = np.zeros((len(self.costs) + 1, len(union)))
        wider[:-1, np.searchsorted(union, self.columns)] = self.gradients
        wider[-1, np.searchsorted(union, columns)] = gradient
        last = wider @ wider[-1]
        self.products = np.block([[self.products, last[:-1, None]], [last[None]]])
        self.columns, self.gradients = union, wider
        self.costs, self.shares = np.append(self.costs, cost), np.append(self.shares, 0.0)

    def solve(self, weights: np.ndarray, l2: float) -> float:
        """Shift weight from the worst planes to the best, changing ``weights``; what their mixture fell short."""
        values = self.costs + self.gradients @ weights[self.columns]
        short = float(values.max() - self.shares @ values)
        before = self.shares.copy()
        if pair_steps(values, self.shares, self.products, l2=l2, least=1e-3 * short, most=PAIR_STEPS):
            weights[self.columns] -= (self.shares - before) @ self.gradients / l2
        return short


class _Dual:
    """The mixtures of all parts and the weights they make."""

    def __init__(self, n_weights: int, n_parts: int, l2: float) -> None:
        self.l2, self.weights, self.average = l2, np.zeros(n_weights), np.zeros(n_weights)
        self.parts = [_Part() for _ in range(n_parts)]
        self._n_averaged = 0

    @property
    def value(self) -> float:
        """A lower bound of the smallest F."""
        costs = sum(float(part.shares @ part.costs) for part in self.parts)
        return costs - 0.5 * self.l2 * float(self.weights @ self.weights)

    def meet(self, number: int, loss: float, gradient: np.ndarray) -> float:
        """Take in the plane met at the present weights; by how much the part's mixture fell short of it."""
        part, columns = self.parts[number], np.flatnonzero(gradient)
        cost = loss - float(gradient[columns] @ self.weights[columns])
        values = part.costs + part.gradients @ self.weights[part.columns]
        short = loss - float(part.shares @ values)
        if loss > values.max() + 1e-12 * (1.0 + abs(loss)):
            part.add(columns, gradient[columns], cost)
        part.solve(self.weights, self.l2)
        return short

    def pass_over_planes(self, order: np.ndarray) -> float:
        """One visit to every part without inference; by how much all of them fell short."""
        return sum(self.parts[number].solve(self.weights, self.l2) for number in order)

    def settle_average(self) -> None:
        """Take the weights into an average in which the k-th time counts k times."""
        self._n_averaged += 1
        self.average += 2.0 / (self._n_averaged + 1) * (self.weights - self.average)


class _Visited(_Dual):
    """The dual of a problem that comes in parts: one pass that infers, then a few over the planes alone."""

    def __init__(self, problem: Parts, l2: float) -> None:
        super().__init__(problem.n_weights, problem.n_parts, l2)
        self._problem, self._gradient = problem, np.empty(problem.n_weights)

    @property
    def exact(self) -> bool:
        """Whether all inference so far was."""
        return self._problem.exact

    def visit(self, rng: np.random.Generator) -> tuple[float, float]:
        """One epoch; the hinge met on the way, and by how much the mixtures fell short."""
        met = short = 0.0
        for part in rng.permutation(self._problem.n_parts):
            loss = self._problem.evaluate_part(int(part), self.weights, self._gradient)
            short += max(0.0, self.meet(int(part), loss, self._gradient))
            met += loss
        for _ in range(CHEAP_PASSES):
            if self.pass_over_planes(rng.permutation(self._problem.n_parts)) <= CHEAP_SHARE * short:
                break
        self.settle_average()
        return met, short


def minimize_hinge(
    problem: Parts,
    *,
    l2: float,
    tol: float = 1e-4,
    max_iter: int = 500,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Result:
    """Make F small until (F − dual) ≤ ``tol`` · F, for at most ``max_iter`` epochs, from zero.

    A step of the history is an epoch; its value is F as met on the way, each part at the weights of its visit, and
    so is its gap. The result's value and the gap that ended the run are those of a whole pass. Ctrl-C and a
    callback that gives True end it with the best weights so far.

    >>> import numpy as np
    >>> class Kink:
    ...     n_weights, n_parts, exact = 1, 2, True
    ...
    ...     def evaluate_part(self, part, weights, gradient):
    ...         side = (-1.0, -0.5)[part]
    ...         gradient[:] = side * (1 + side * weights > 0)
    ...         return max(0.0, 1 + side * float(weights[0]))
    >>> result = minimize_hinge(Kink(), l2=1.0, tol=1e-6, rng=np.random.default_rng(0))
    >>> result.weights.round(4).tolist(), round(result.value, 4), result.converged
    ([1.0], 1.0, True)
    """
    if not l2 > 0:
        raise InputError(f"the dual of the hinge needs a ridge: l2 must be > 0, got {l2}.")
    gradient = np.empty(problem.n_weights)
    return close_gap(
        _Visited(problem, l2),
        lambda weights: whole(problem, weights, gradient),
        l2=l2,
        tol=tol,
        max_iter=max_iter,
        rng=rng,
        callback=callback,
    )


class Dual(Protocol):
    """Mixtures of labellings, the weights they make, and a lower bound of the smallest F."""

    weights: np.ndarray
    average: np.ndarray

    @property
    def value(self) -> float:
        """The bound."""

    @property
    def exact(self) -> bool:
        """Whether all inference so far was, without which the bound proves nothing."""

    def visit(self, rng: np.random.Generator) -> tuple[float, float]:
        """One epoch; the hinge met on the way, and by how much the mixtures fell short."""


def close_gap(
    dual: Dual,
    hinge_of: Callable[[np.ndarray], float],
    *,
    l2: float,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Result:
    """Epochs of a dual until the gap of the best weights seen, the dual's or their average, is proven small."""
    began, best, value, steps, passes = time.perf_counter(), dual.weights.copy(), math.inf, [], 0
    converged, reason = False, MAX_ITER

    def check() -> float:
        """Look at the weights and at their average; the proven gap of the best ever seen."""
        nonlocal best, value, passes
        for candidate in (dual.weights, dual.average):
            passes += 1
            found = hinge_of(candidate) + 0.5 * l2 * float(candidate @ candidate)
            if found < value:
                best, value = candidate.copy(), found
        return value - dual.value

    try:
        for epoch in range(1, max_iter + 1):
            met, short = dual.visit(rng)
            passes += 1
            met += 0.5 * l2 * float(dual.weights @ dual.weights)
            gap = short / met if met > 0 else short
            seconds = time.perf_counter() - began
            steps.append(Step(epoch, passes, met, math.nan, 1.0, len(best), seconds, gap))
            if gap <= tol or epoch & (epoch - 1) == 0:
                proven = check()
                if proven <= tol * abs(value):
                    converged, reason = dual.exact, TOLERANCE if dual.exact else UNPROVEN
                    break
            if callback is not None and callback(steps[-1], _read_only(dual.average)):
                reason = CALLBACK
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if not converged and reason != UNPROVEN:
        check()
    return Result(best, value, len(steps), passes, converged, reason, steps)


def _read_only(weights: np.ndarray) -> np.ndarray:
    shown = weights.view()
    shown.flags.writeable = False
    return shown
