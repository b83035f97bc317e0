"""Training by the best labelling: perceptron and hinge, graph after graph.

- The averaged perceptron (Collins 2002; Freund & Schapire 1999): after each graph whose best labelling is wrong, add
  the features of the truth and take away those of the mistake; the result is the average of the weights over all
  visits. It ends when an epoch passes without a mistake, which it must if the data can be separated by an exact
  engine. It knows no penalty: averaging takes its place.
- The hinge with a ridge on all weights: block-coordinate Frank–Wolfe (`frank_wolfe`), which stops by a proven gap.
- The hinge otherwise (an l1 penalty, weights without a penalty, hidden labels): averaged stochastic subgradient
  steps (`averaged_steps`). There is no bound to prove anything with; a run counts as converged when twice the epochs
  moved the value by less than the tolerance.

Everything is deterministic for a given generator.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.errors import InputError
from crfield.objectives.contrast import Engine
from crfield.objectives.margin import Margin, Perceptron
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.full_batch import Scorer
from crfield.training.graph.averaged_steps import AdaptiveSteps
from crfield.training.graph.by_graph import GraphByGraph, Parts, whole
from crfield.training.graph.frank_wolfe import UNPROVEN, minimize_hinge

Callback = Callable[[Step, np.ndarray], bool | None]
AHEAD = 2.5  # what is left to gain, in units of what the last doubling gained, when errors fall like 1/√t
FEWEST = 16  # epochs before a change of the average is taken for a sign


def fit_structured(
    scorer: Scorer,
    batch: Any,
    target: Target,
    penalty: Penalty,
    objective: str | Margin | Perceptron,
    engine: Engine,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    rng: np.random.Generator,
    callback: Callback | None = None,
    graphs_per_part: int | None = None,
) -> Result:
    """Train by "perceptron", "hinge" or an objective of `objectives.margin`, with the method of the essay.

    ``max_iter`` counts epochs. Frank–Wolfe starts from zero whatever ``start`` says: F is convex, and its dual has
    no place for other weights.
    """
    chosen = (
        {"perceptron": Perceptron(), "hinge": Margin()}.get(objective) if isinstance(objective, str) else objective
    )
    if not isinstance(chosen, Perceptron | Margin):
        raise InputError(f"objective must be 'perceptron', 'hinge', a Perceptron or a Margin, got {objective!r}.")
    problem = GraphByGraph(scorer, batch, target, objective=chosen, engine=engine, graphs_per_part=graphs_per_part)
    if isinstance(chosen, Perceptron):
        return averaged_perceptron(problem, start=start, max_iter=max_iter, rng=rng, callback=callback)
    ridge = penalty.l2 > 0 and penalty.l1 == 0 and penalty.penalised is None
    if ridge and target.complete.all():
        return minimize_hinge(problem, l2=penalty.l2, tol=tol, max_iter=max_iter, rng=rng, callback=callback)
    return averaged_subgradient(problem, penalty, start=start, tol=tol, max_iter=max_iter, rng=rng, callback=callback)


def averaged_perceptron(
    problem: Parts,
    *,
    start: np.ndarray | None = None,
    max_iter: int = 100,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Result:
    """The average of all weights met, for at most ``max_iter`` epochs or until one has no mistake.

    Where only the last weights make no mistake, and not the average, they are the result. The value is the
    perceptron's; a step's value is that met on the way, and its gap the share of parts with a mistake.

    >>> import numpy as np
    >>> class Sign:
    ...     n_weights, n_parts, exact = 1, 2, True
    ...
    ...     def evaluate_part(self, part, weights, gradient):
    ...         gradient[:] = -(part + 1.0) * (weights <= 0)
    ...         return max(0.0, -(part + 1.0) * float(weights[0]))
    >>> result = averaged_perceptron(Sign(), rng=np.random.default_rng(0))
    >>> bool(result.weights[0] > 0), result.value, result.converged
    (True, 0.0, True)
    """
    began, size = time.perf_counter(), problem.n_weights
    weights = np.zeros(size) if start is None else np.array(start, dtype=np.float64)
    late, gradient = np.zeros(size), np.empty(size)  # changes times the visit they came at
    visits, steps, reason = 1, [], MAX_ITER
    try:
        for epoch in range(1, max_iter + 1):
            met, mistakes = 0.0, 0
            for part in rng.permutation(problem.n_parts):
                met += problem.evaluate_part(int(part), weights, gradient)
                if gradient.any():
                    mistakes += 1
                    weights -= gradient
                    late -= visits * gradient
                visits += 1
            share = mistakes / max(1, problem.n_parts)
            steps.append(Step(epoch, epoch, met, math.nan, 1.0, size, time.perf_counter() - began, share))
            if not mistakes:
                reason = TOLERANCE if problem.exact else UNPROVEN
                break
            if callback is not None and callback(steps[-1], weights - late / visits):
                reason = CALLBACK
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    average = weights - late / visits
    value, wrong = 0.0, False
    for part in range(problem.n_parts):
        value += problem.evaluate_part(part, average, gradient)
        wrong |= bool(gradient.any())
    if reason in (TOLERANCE, UNPROVEN) and wrong:
        average, value = weights, 0.0
    return Result(average, value, len(steps), len(steps) + 1, reason == TOLERANCE, reason, steps)


def averaged_subgradient(
    problem: Parts,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    rate: float = 0.5,
    tol: float = 1e-4,
    max_iter: int = 500,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> Result:
    """Make F(w) = Σ_parts value + l1 ‖w‖₁ + ½ l2 ‖w‖² small by averaged proximal steps of about ``rate`` at first.

    F of the average is looked at after 1, 2, 4, 8 … epochs and the best is kept; it ends when the last doubling
    suggests that less than ``tol`` · F is left to gain. A step's value is that met on the way.

    >>> import numpy as np
    >>> class Kink:
    ...     n_weights, n_parts, exact = 1, 2, True
    ...
    ...     def evaluate_part(self, part, weights, gradient):
    ...         side = (-1.0, -0.5)[part]
    ...         gradient[:] = side * (1 + side * weights > 0)
    ...         return max(0.0, 1 + side * float(weights[0]))
    >>> result = averaged_subgradient(Kink(), Penalty(l1=0.25), rng=np.random.default_rng(0))
    >>> result.weights.round(1).tolist()
    [2.0]
    """
    began, size = time.perf_counter(), problem.n_weights
    first = np.zeros(size) if start is None else np.asarray(start, dtype=np.float64)
    pace = AdaptiveSteps(first, penalty, share=1.0 / max(1, problem.n_parts), rate=rate)
    gradient, steps, passes = np.empty(size), [], 0
    best, value, last, reason = first.copy(), math.inf, math.inf, MAX_ITER

    def check() -> float:
        """Look at the average; by how much F differs from that of the average before."""
        nonlocal best, value, last, passes
        passes += 1
        candidate, before = pace.trail.average, last
        last = whole(problem, candidate, gradient) + _cost(candidate, penalty)
        if last < value:
            best, value = candidate, last
        return abs(before - last)

    try:
        for epoch in range(1, max_iter + 1):
            met = 0.0
            for part in rng.permutation(problem.n_parts):
                met += problem.evaluate_part(int(part), pace.weights, gradient)
                pace.take(gradient)
            passes += 1
            met += _cost(pace.weights, penalty)
            active = int(np.count_nonzero(pace.weights)) if penalty.l1 else size
            left = math.inf
            if pace.trail.end_round():
                left = AHEAD * check() / max(abs(value), 1e-300)
                pace.trail.restart()
            steps.append(Step(epoch, passes, met, math.nan, rate, active, time.perf_counter() - began, left))
            if left <= tol and epoch >= FEWEST:
                reason = TOLERANCE if problem.exact else UNPROVEN
                break
            if callback is not None and callback(steps[-1], pace.trail.best):
                reason = CALLBACK
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    if reason not in (TOLERANCE, UNPROVEN):
        check()
    return Result(best, value, len(steps), passes, reason == TOLERANCE, reason, steps)


def _cost(weights: np.ndarray, penalty: Penalty) -> float:
    """The penalties of the weights."""
    kept = weights if penalty.penalised is None else weights[penalty.penalised != 0]
    return penalty.l1 * float(np.abs(kept).sum()) + 0.5 * penalty.l2 * float(kept @ kept)
