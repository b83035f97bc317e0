"""The hinge with a ridge, one graph at a time and with a proof of how far from the best.

    F(w) = Σ_i max_y [ cost_i(y) + g_i(y)·w ] + ½ l2 ‖w‖²,        g_i(y) = features of y − features of the truth

Its dual asks for a mixture of labellings for each graph. Block-coordinate Frank–Wolfe (Lacoste-Julien, Jaggi, Schmidt
& Pletscher 2013) visits the graphs in random order, finds the labelling that violates the margin most and moves that
graph's mixture towards it by the best possible step, which is a formula. A mixture is kept only as its mean
gradient and mean cost,

    w = −(1/l2) Σ_i G_i,     dual = Σ_i c_i − ½ l2 ‖w‖²  ≤  min F,     F(w) − dual = Σ_i [ value_i − c_i − G_i·w ]

so there is no step size to choose, and F − dual tells when to stop. It needs values that are true maxima of linear
functions: complete targets, a linear scorer and an exact engine. With another engine it runs as well, but the gap
proves nothing and the result says so.

Each visit also keeps the labelling it found, as a plane (g, c). Between two passes that infer, a few passes go over
the planes alone, which costs no inference (Shah, Kolmogorov & Lampert 2015, *A multi-plane block-coordinate
Frank–Wolfe algorithm*). Memory: the non-zero entries of at most PLANES + 1 gradients for each part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from crfield.errors import InputError
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.training.graph_by_graph import Parts, whole

UNPROVEN = "gap not proven: inference was not exact"
PLANES = 10  # kept for each part, the latest ones that were of use
CHEAP_PASSES = 10  # over the planes after each pass that infers

Callback = Callable[[Step, np.ndarray], bool | None]
Sparse = tuple[np.ndarray, np.ndarray]  # where a gradient is not zero, and what it is there


class _Dual:
    """The mixtures of all parts and the weights they make."""

    def __init__(self, n_weights: int, n_parts: int, l2: float) -> None:
        nothing = (np.zeros(0, np.int64), np.zeros(0))
        self.l2, self.weights, self.average = l2, np.zeros(n_weights), np.zeros(n_weights)
        self.mean: list[Sparse] = [nothing] * n_parts
        self.cost = np.zeros(n_parts)
        self.planes: list[list[tuple[Sparse, float]]] = [[] for _ in range(n_parts)]
        self._n_averaged = 0

    @property
    def value(self) -> float:
        """A lower bound of the smallest F."""
        return float(self.cost.sum()) - 0.5 * self.l2 * float(self.weights @ self.weights)

    def move(self, part: int, plane: Sparse, cost: float) -> float:
        """Towards a plane by the best step; what the part's bound fell short of the plane's value."""
        weights, (columns, mean) = self.weights, self.mean[part]
        short = cost + float(plane[1] @ weights[plane[0]]) - self.cost[part] - float(mean @ weights[columns])
        if short <= 0:
            return short
        union = np.union1d(columns, plane[0])
        old, new = np.zeros(len(union)), np.zeros(len(union))
        old[np.searchsorted(union, columns)] = mean
        new[np.searchsorted(union, plane[0])] = plane[1]
        change = new - old
        length = float(change @ change) / self.l2
        step = 1.0 if short >= length else short / length
        self.mean[part] = (union, old + step * change)
        self.cost[part] += step * (cost - self.cost[part])
        weights[union] -= step / self.l2 * change
        return short

    def keep(self, part: int, plane: Sparse, cost: float) -> None:
        """Remember a plane in place of the oldest."""
        self.planes[part].append((plane, cost))
        del self.planes[part][:-PLANES]

    def pass_over_planes(self, order: np.ndarray) -> None:
        """Move every part towards the best of its planes."""
        for part in order:
            planes = self.planes[part]
            if planes:
                values = [cost + float(plane[1] @ self.weights[plane[0]]) for plane, cost in planes]
                self.move(part, *planes[int(np.argmax(values))])

    def settle_average(self) -> None:
        """Take the weights into an average in which the k-th time counts k times."""
        self._n_averaged += 1
        self.average += 2.0 / (self._n_averaged + 1) * (self.weights - self.average)


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
        raise InputError(f"the dual of the hinge needs a ridge: l2 must be above 0, got {l2}.")
    began, dual = time.perf_counter(), _Dual(problem.n_weights, problem.n_parts, l2)
    best, value, steps, passes = dual.weights.copy(), math.inf, [], 0
    gradient = np.empty(problem.n_weights)
    converged, reason = False, MAX_ITER

    def check() -> float:
        """Look at the weights and at their average; the proven gap of the best ever seen."""
        nonlocal best, value, passes
        for candidate in (dual.weights, dual.average):
            passes += 1
            found = whole(problem, candidate, gradient) + 0.5 * l2 * float(candidate @ candidate)
            if found < value:
                best, value = candidate.copy(), found
        return value - dual.value

    try:
        for epoch in range(1, max_iter + 1):
            met = short = 0.0
            for part in rng.permutation(problem.n_parts):
                loss = problem.evaluate_part(int(part), dual.weights, gradient)
                columns = np.flatnonzero(gradient)
                plane = (columns, gradient[columns])
                cost = loss - float(plane[1] @ dual.weights[columns])
                missed = dual.move(int(part), plane, cost)
                met, short = met + loss, short + max(missed, 0.0)
                if missed > 0:
                    dual.keep(int(part), plane, cost)
            for _ in range(CHEAP_PASSES):
                dual.pass_over_planes(rng.permutation(problem.n_parts))
            dual.settle_average()
            passes += 1
            met += 0.5 * l2 * float(dual.weights @ dual.weights)
            gap = short / met if met > 0 else short
            seconds = time.perf_counter() - began
            steps.append(Step(epoch, passes, met, math.nan, 1.0, problem.n_weights, seconds, gap))
            if gap <= tol or epoch & (epoch - 1) == 0:
                proven = check()
                if proven <= tol * abs(value):
                    converged, reason = problem.exact, TOLERANCE if problem.exact else UNPROVEN
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
