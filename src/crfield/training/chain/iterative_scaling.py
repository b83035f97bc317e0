"""Generalised iterative scaling: every weight moved by the logarithm of how often its feature is missed.

    w_k ← w_k + (1 / S) log( observed_k / expected_k )        S ≥ Σ_k f_k(x, y) for every labelling

(Darroch & Ratcliff 1972; "Algorithm S" of Lafferty, McCallum & Pereira 2001 for chains.) Both want a slack feature
s(x, y) = S − Σ_k f_k(x, y) that makes every labelling have the same sum of features. It needs no weight of its own:
with a weight that stays zero the bound behind the update holds as well (Curran & Clark 2003), so the model is the
same as everyone's and its optimum that of L-BFGS. With a ridge the update of each weight is the root of

    observed_k − expected_k exp(S δ) − l2 (w_k + δ) = 0

found by Newton's method (Chen & Rosenfeld 1999), all weights at once. With partial labels ``observed`` is what the
model expects of the labellings that are allowed, which makes it generalised expectation–maximisation.

Every step goes downhill and needs no line search, and is as short as S is large: S counts all features of the
longest sequence, so that a step is a small fraction of Newton's. It needs hundreds or thousands of passes where
L-BFGS needs dozens (Malouf 2002; Sha & Pereira 2003), and it is here to be compared with. Features must not be
negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.inference.labellings import one_hot
from crfield.optimize.history import (
    CALLBACK,
    INTERRUPTED,
    MAX_ITER,
    NO_IMPROVEMENT,
    TOLERANCE,
    History,
    Result,
    check_run,
)
from crfield.optimize.penalty import Penalty
from crfield.optimize.stopping import Stopping
from crfield.scoring.tables import FunctionTables
from crfield.training.chain.plan import ChainParts, Job

NEWTON_STEPS = 60
_WHY = (
    "iterative scaling (solver='gis') works with features that are not negative: a larger weight must always mean "
    "more of them. Shift or split the column, or use another solver."
)


def fit_gis(parts: ChainParts, penalty: Penalty, job: Job) -> Result:
    """Minimise −Σ weight log p(y | x) + ½ l2 ‖w‖² by the module's update.

    A feature that is never observed has no finite optimum without a ridge: an InputError that says so.
    """
    tol = job.tol
    check_features(parts.batch)
    n = parts.scorer.n_weights
    weights = check_run(n, np.zeros(n) if job.start is None else job.start, penalty, tol=tol, max_iter=job.max_iter)
    problem = parts.problem("likelihood")
    mask = np.ones(n) if penalty.penalised is None else penalty.penalised.astype(np.float64)
    ridge = penalty.l2 * mask
    largest = _largest_sum(parts)
    observed = _observed(parts, weights)
    _check_observed(observed, ridge)
    complete = bool(parts.target.complete.all())
    stopping = Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0)
    history, reason, n_evaluations = History(tol, job.callback), MAX_ITER, 0
    gradient, here = np.empty(n), Weighed(math.nan, np.zeros(0), 0.0)
    try:
        here = _weigh(problem, weights, gradient, ridge)
        n_evaluations, value = 1, here.value
        history.gap = stopping.update(value, here.square, -here.square) if here.square else 0.0
        while len(history.steps) < job.max_iter:
            if history.gap <= tol:
                reason = TOLERANCE
                break
            if not complete and history.steps:
                observed = _observed(parts, weights)
            moved = scaling_step(weights, observed, gradient + observed, ridge, largest)
            new = weights + moved
            here = _weigh(problem, new, gradient, ridge)
            weights, value, n_evaluations = new, here.value, n_evaluations + 1
            # A whole step of Newton's method would be about S times as long.
            promised = -largest * abs(float(here.slope @ moved))
            enough = history.note(
                weights,
                value,
                gradient_norm=math.sqrt(here.square),
                step_size=1.0 / largest,
                n_evaluations=n_evaluations,
                gap=stopping.update(value, here.square, promised) if here.square else 0.0,
            )
            if enough and history.gap > tol:
                reason = CALLBACK
                break
            if stopping.stalled:
                reason = NO_IMPROVEMENT
                break
        if history.gap <= tol:
            reason = TOLERANCE
    except KeyboardInterrupt:
        reason = INTERRUPTED
        value = _weigh(problem, weights, gradient, ridge).value
    return history.result(reason, weights, value, n_evaluations=n_evaluations)


@dataclass(frozen=True, eq=False)
class Weighed:
    """F at some weights, its gradient and the squared norm of that."""

    value: float
    slope: np.ndarray
    square: float


def _weigh(problem: Any, weights: np.ndarray, gradient: np.ndarray, ridge: np.ndarray) -> Weighed:
    """Value and slope of F; the gradient of the likelihood alone is left in ``gradient``."""
    value = problem.evaluate(weights, gradient) + 0.5 * float(ridge @ (weights * weights))
    slope = gradient + ridge * weights
    return Weighed(value, slope, float(slope @ slope))


def scaling_step(
    weights: np.ndarray, observed: np.ndarray, expected: np.ndarray, ridge: np.ndarray, largest: float
) -> np.ndarray:
    """(W,) δ with observed − expected exp(S δ) − ridge (w + δ) = 0, for each weight by itself.

    >>> none = np.zeros(2)
    >>> scaling_step(none, np.array([2.0, 1.0]), np.array([1.0, 1.0]), none, 2.0).round(6).tolist()
    [0.346574, 0.0]
    """
    expected = np.maximum(expected, 1e-300)
    aim = observed - ridge * weights
    # The left side is concave and falls, so that Newton's steps come from the right of the root after the first.
    step = np.where(aim > 0, np.log(np.maximum(aim, 1e-300) / expected) / largest, 0.0)
    for _ in range(NEWTON_STEPS):
        if not ridge.any():
            break
        power = expected * np.exp(np.minimum(largest * step, 700.0))
        change = (aim - power - ridge * step) / (largest * power + ridge + 1e-300)
        step += np.where(ridge > 0, change, 0.0)
        if np.abs(change[ridge > 0]).max(initial=0.0) <= 1e-14:
            break
    return step


def check_features(batch: Any) -> None:
    """InputError where a feature is negative, with its place.

    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> check_features(Batch(Chains.from_lengths([1]), Columns.from_rows([[0]], width=1)))
    """
    if isinstance(batch, FunctionTables):
        lowest = min(batch.first.min(initial=0.0), batch.pair.min(initial=0.0))
        if lowest < 0:
            raise InputError(f"{_WHY} A function of two labels gave {lowest:g}.")
        return
    for what, columns in (("step", batch.node), ("edge", batch.edge)):
        for values in () if columns is None else (columns.values, columns.dense):
            if values is not None and values.size and values.min() < 0:
                place = int(np.argmin(values))
                row = (
                    place // columns.n_dense
                    if values is columns.dense
                    else int(np.searchsorted(columns.indptr, place, side="right")) - 1
                )
                raise InputError(f"{_WHY} At {what} {row} of the data there is {values.min():g}.")


def _largest_sum(parts: ChainParts) -> float:
    """S: the largest sum of features of any labelling, found as the best path under weights of one."""
    n = parts.scorer.n_weights
    ones, zeros = parts.scorer.score(np.ones(n), parts.batch), parts.scorer.score(np.zeros(n), parts.batch)
    with np.errstate(invalid="ignore"):
        node, edge = ones.node - zeros.node, ones.edge - zeros.edge  # constants of the model are no features
    sums = Potentials(np.nan_to_num(node), np.nan_to_num(edge), ones.topology, ones.table)
    return max(1.0, float(parts.engine.best_path(sums)[0].max(initial=0.0)))


def _observed(parts: ChainParts, weights: np.ndarray) -> np.ndarray:
    """(W,) how often each feature is met: with the true labels, or as expected of what is allowed."""
    target, scores = parts.target, parts.scorer.score(weights, parts.batch)
    each = scores if target.weight is None else scores.each()
    if target.complete.all():
        node, edge = one_hot(each, target.labels)
    else:
        masked = Potentials(np.where(target.mask, each.node, -np.inf), each.edge, each.topology, each.table)
        beliefs = parts.engine.infer(masked, Semiring.LOG)
        node, edge = beliefs.node, beliefs.edge
    if target.weight is not None:
        topology = target.topology
        node = node * target.weight[topology.sequence_of_node][:, None]
        shared = np.zeros_like(scores.edge)
        np.add.at(shared, scores.tables, edge * target.weight[topology.sequence_of_edge][:, None, None])
        edge = shared
    return parts.scorer.pull(node, edge, parts.batch)


def _check_observed(observed: np.ndarray, ridge: np.ndarray) -> None:
    never = int(((observed <= 0) & (ridge == 0)).sum())
    if never:
        raise InputError(
            f"{never} features never occur with their label, so that without a ridge their weights diverge to -inf. "
            "Set l2 > 0, or use feature_pairs='observed' and transition_pairs='observed'."
        )
