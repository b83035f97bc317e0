"""Training with latent states: the two halves of the objective, gradient or EM, several starts.

Both latent models minimise

    F(w) = free(w) − clamped(w) + penalty(w)

where ``free`` sums over all states and ``clamped`` over those that the labels allow. Both halves are convex, so F is
not: where training ends depends on where it starts, and what is equal at the start stays equal for ever. Hence random
starts, several, of which the one with the smallest F is kept.

``"gradient"`` hands F to L-BFGS. ``"em"`` replaces the clamped half by its tangent at the present weights, which lies
below it (that is the E step: the slope c are the expected features under the states that the labels allow), and makes
free(w) − c·w + penalty(w) smaller, a convex problem (the M step; Dempster, Laird & Rubin 1977; McLachlan & Krishnan
2008 for steps that do not go to the end). Since the tangent touches where the step begins, F never rises, however
short the M step. Gradients need fewer evaluations; EM is there to compare, and for starts that must not be left: its
short M steps go in the weights' own coordinates, whatever the columns.

Gradients on numeric columns begin with one start that looks at them, and starts race (`training.latent_starts`).

A problem here is an `optimize.problem.Problem` with the two halves beside ``evaluate``. Starts are independent of
each other, so with several jobs each goes to a process of its own (`training.parallel`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crfield.core.checks import one_of
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.states import StateSpace
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.inference.chain import ChainEngine
from crfield.optimize.basis import Basis
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.scoring.latent import ClassScorer
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.column_basis import Moments, column_basis, column_places, measured, mixed, numeric
from crfield.training.latent_starts import RACE, Pause, clustered_states, start_of
from crfield.training.likelihood import FusedChain, fit_likelihood, history_pairs, numeric_basis
from crfield.training.parallel import run_each

TRAININGS = ("gradient", "em")
M_STEPS = 10  # steps of the optimiser in one M step
SMALL = 3  # M steps in a row whose fall is within the tolerance

Callback = Callable[[Step, np.ndarray], bool | None]


class Halves(Protocol):
    """An objective that is the difference of two convex functions."""

    n_jobs: int

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        ...

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        ...

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over what the labels allow, and its gradient."""
        ...


class LatentChain:
    """Chains over states whose target allows several: ``evaluate`` by the fused kernel, halves by the plain path.

    ``space`` says which states belong to which label; with it, numeric columns can be put into clusters.
    """

    def __init__(
        self, layout: Layout, batch: Batch, target: Target, *, space: StateSpace | None = None, n_jobs: int = 1
    ) -> None:
        self.layout, self.batch, self.target, self.n_jobs = layout, batch, target, n_jobs
        self.space = space
        self._basis: tuple[Penalty, Basis | None] | None = None
        self._fused: FusedChain | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fused": None}

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    @property
    def fused(self) -> FusedChain:
        """The packed problem, made when first asked for."""
        if self._fused is None:
            packed = FusedChain(self.layout, self.batch, self.target, n_jobs=self.n_jobs)
            self._fused = measured(packed, self.layout, self.batch, self.target)
        return self._fused

    @property
    def telling(self) -> bool:
        """Whether there are numeric columns, which can tell states apart."""
        return self.space is not None and self.fused.moments is not None and not self.fused.moments.even

    def basis(self, penalty: Penalty) -> Basis | None:
        """The coordinates of numeric columns, made once for all starts."""
        if self._basis is None or self._basis[0] is not penalty:
            self._basis = penalty, numeric_basis(self.fused, penalty)
        return self._basis[1]

    def clustered_start(self, penalty: Penalty, seed: int) -> tuple[np.ndarray, int]:
        """Weights by clusters of the columns, and the evaluations they took."""
        assert self.space is not None
        states = clustered_states(self.batch, self.fused.moments, self.target, self.space, seed)
        basis = self.basis(penalty)
        return start_of(states, self.layout, self.batch, self.target, penalty, basis, n_jobs=self.n_jobs)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        return self.fused.evaluate(weights, gradient)

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        return self._half(LinearScorer(self.layout).score(weights, self.batch), gradient)

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over what the target allows, and its gradient."""
        scores = LinearScorer(self.layout).score(weights, self.batch)
        node = np.where(self.target.mask, scores.node, -np.inf)
        return self._half(Potentials(node, scores.edge, scores.topology), gradient)

    def _half(self, scores: Potentials, gradient: np.ndarray) -> float:
        engine, chains = ChainEngine(self.n_jobs), self.batch.topology
        beliefs = engine.infer(scores, Semiring.LOG)
        node, edge, weight = beliefs.node, beliefs.edge, self.target.weight
        if weight is not None:
            node = node * weight[chains.sequence_of_node][:, None]
            pairs = edge if not scores.shared else engine.edge_marginals(scores)
            edge = pairs * weight[chains.sequence_of_edge][:, None, None]
            edge = edge.sum(axis=0, keepdims=True) if scores.shared else edge
        gradient[:] = LinearScorer(self.layout).pull(node, edge, self.batch)
        return float(beliefs.total.sum() if weight is None else weight @ beliefs.total)


class HiddenClasses:
    """One label for each sequence, states hidden below: K chains of S states for every sequence.

        value = Σ_s weight_s [ log Σ_y Z_y(x_s) − log Σ_{y allowed} Z_y(x_s) ]

    The slope of a class is that of its chains, each counted by the probability of the class (`weighed_beliefs`).
    """

    def __init__(
        self,
        scorer: ClassScorer,
        batch: Batch,
        allowed: np.ndarray,  # (B, K) bool
        weight: np.ndarray | None = None,  # (B,)
        *,
        n_jobs: int = 1,
    ) -> None:
        self.scorer, self.batch, self.allowed, self.n_jobs = scorer, batch, allowed, n_jobs
        self.weight = np.ones(batch.topology.n_sequences) if weight is None else weight

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        return self._sum(weights, gradient, free=1.0, clamped=-1.0)

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        return self._sum(weights, gradient, free=1.0, clamped=0.0)

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over the classes that are allowed, and its gradient."""
        return self._sum(weights, gradient, free=0.0, clamped=1.0)

    def _sum(self, weights: np.ndarray, gradient: np.ndarray, *, free: float, clamped: float) -> float:
        scorer, chains = self.scorer, self.batch.topology
        shared = scorer.shared(weights, self.batch)
        nodes, edges = scorer.tables(weights)
        totals = class_totals(scorer, weights, self.batch, n_jobs=self.n_jobs)  # (B, K)
        value, slopes = 0.0, (np.zeros_like(shared), np.zeros_like(nodes), np.zeros_like(edges))
        for factor, allowed in ((free, np.ones_like(self.allowed)), (clamped, self.allowed)):
            if not factor:
                continue
            total, share = pooled(np.where(allowed, totals, -np.inf))
            value += factor * float(self.weight @ total)
            for k in range(scorer.n_classes):
                own = np.flatnonzero(allowed[:, k])
                part = self._rows(own)
                node, edge = weighed_beliefs(
                    Potentials(shared[part] + nodes[k], edges[k][None], Chains.from_lengths(chains.lengths[own])),
                    totals[own, k],
                    share[own, k],
                    self.weight[own],
                    n_jobs=self.n_jobs,
                )
                slopes[0][part] += factor * node
                slopes[1][k] += factor * node.sum(axis=0)
                slopes[2][k] += factor * edge
        gradient[:] = scorer.pull(*slopes, self.batch)
        return value

    def _rows(self, sequences: np.ndarray) -> np.ndarray | slice:
        """The steps of some sequences, which rise."""
        chains = self.batch.topology
        if len(sequences) == chains.n_sequences:
            return slice(None)
        inside = np.zeros(chains.n_sequences, bool)
        inside[sequences] = True
        return np.flatnonzero(inside[chains.sequence_of_node])


def class_basis(problem: HiddenClasses, penalty: Penalty) -> Basis | None:
    """Coordinates in which numeric columns are centred and of one size (`training.column_basis`), if there are some.

    Classes share the columns' weights, and each has intercepts θ(y, h): a column's mean goes to those of all classes.
    """
    if penalty.l1 or not numeric(problem.batch):
        return None
    telling = problem.weight * ~problem.allowed.all(axis=1)  # a sequence that may be of any class bends nothing
    scorer, moments = problem.scorer, Moments.of(problem.batch, telling)
    columns, states, size = scorer.columns, scorer.n_states, scorer.n_weights
    if moments.even:
        return None
    own = column_basis(columns, moments, Penalty(l2=penalty.l2)).scale
    bend = np.full(size - len(own), moments.n_edges / (scorer.n_classes * states**2))
    bend[: scorer.n_classes * states] = moments.count / (scorer.n_classes * states)
    intercepts = np.arange(len(own), len(own) + scorer.n_classes * states).reshape(-1, states)
    blocks = mixed(column_places(columns, moments), intercepts, moments, states, penalty.ridge(size))
    scale = np.concatenate([own, 1.0 / np.sqrt(np.maximum(bend + penalty.l2, 1e-3))])
    return Basis(scale, tuple(blocks))


def class_totals(scorer: ClassScorer, weights: np.ndarray, batch: Batch, *, n_jobs: int = 1) -> np.ndarray:
    """(B, K) log Z_y of every sequence and class."""
    engine = ChainEngine(n_jobs)
    return np.stack([engine.infer(p, Semiring.LOG).total for p in scorer.score(weights, batch)], axis=1)


def pooled(totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ_k exp of every row (b,), and the share of each entry (b, K); no row may be −∞ throughout.

    >>> total, share = pooled(np.log([[1.0, 3.0]]))
    >>> total.round(6).tolist(), share.round(6).tolist()
    ([1.386294], [[0.25, 0.75]])
    """
    top = totals.max(axis=1, keepdims=True)
    parts = np.exp(totals - top)
    whole = parts.sum(axis=1, keepdims=True)
    return (top + np.log(whole))[:, 0], parts / whole


def weighed_beliefs(
    potentials: Potentials, total: np.ndarray, share: np.ndarray, weight: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Beliefs of chains that share a table, sequence s counted share_s · weight_s times: (N, S) and, summed, (S, S).

    Where edges share a table, engines give the sum over all of them, which is fast and has no room for weights. So
    each chain gets a way out: one more state, which no other leads to or from, scored so that the paths inside have
    the probability share_s · weight_s / max weight. ``total`` (B,) are the log Z of the chains as they are.

    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2, 1]))
    >>> node, edge = weighed_beliefs(scores, np.log([4.0, 2.0]), np.array([0.5, 1.0]), np.array([1.0, 3.0]))
    >>> node.round(6).tolist(), edge.round(6).tolist()
    ([[0.25, 0.25], [0.25, 0.25], [1.5, 1.5]], [[0.125, 0.125], [0.125, 0.125]])
    """
    chains, states = potentials.topology, potentials.n_labels
    most = float(weight.max(initial=0.0))
    if most == 0:
        return np.zeros_like(potentials.node), np.zeros((states, states))
    some = chains.lengths > 0
    first = chains.offsets[:-1][some]
    node = np.zeros((chains.n_nodes, states + 1))
    node[:, :states] = potentials.node
    with np.errstate(divide="ignore"):
        inside = (share * (weight / most))[some]
        node[first, :states] += np.log(inside)[:, None]
        node[first, states] = total[some] + np.log1p(-np.minimum(inside, 1.0))
    edge = np.full((1, states + 1, states + 1), -np.inf)
    edge[0, :states, :states] = potentials.edge[0]
    edge[0, states, states] = 0.0
    beliefs = ChainEngine(n_jobs).infer(Potentials(node, edge, chains), Semiring.LOG)
    return most * beliefs.node[:, :states], most * beliefs.edge[0, :states, :states]


# ---------------------------------------------------------------------------------------------- from one start


class _Tilted:
    """free(w) − c·w, the problem of an M step."""

    def __init__(self, problem: Halves, slope: np.ndarray) -> None:
        self.problem, self.slope, self.n_weights = problem, slope, problem.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        value = self.problem.free(weights, gradient)
        gradient -= self.slope
        return value - float(self.slope @ weights)


def fit_em(
    problem: Halves,
    penalty: Penalty,
    start: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    m_steps: int = M_STEPS,
    callback: Callback | None = None,
) -> Result:
    """Make F small by EM; a step of the history is one E step with its M step.

    It ends when F has fallen by at most ``tol`` of itself in three steps in a row. Its value is computed from both
    halves at every step, so that a rise would be seen; there is none.
    """
    here = Point(np.array(start, np.float64), np.empty(len(start)))
    whole, began = Penalised(problem, penalty, n_jobs=problem.n_jobs), time.perf_counter()
    steps: list[Step] = []
    evaluations, small, reason = 1, 0, MAX_ITER
    whole.evaluate(here)
    slope = np.empty(len(start))
    try:
        for number in range(1, max_iter + 1):
            problem.clamped(here.weights, slope)
            inner = minimize(
                _Tilted(problem, slope), here.weights, penalty, tol=0.0, max_iter=m_steps, n_jobs=problem.n_jobs
            )
            evaluations += inner.n_evaluations + 2
            if inner.reason == INTERRUPTED:
                raise KeyboardInterrupt
            there = Point(inner.weights, np.empty(len(start)))
            whole.evaluate(there)
            fall = here.value - there.value
            if not inner.n_iter or fall <= 0:  # nothing left but rounding
                reason = NO_IMPROVEMENT if not steps else TOLERANCE
                break
            here = there
            gap = fall / max(abs(here.value), 1e-300)
            small = small + 1 if gap <= tol else 0
            norm, active = math.sqrt(here.squared_norm), int(np.count_nonzero(here.weights))
            steps.append(Step(number, evaluations, here.value, norm, 1.0, active, time.perf_counter() - began, gap))
            if callback is not None and callback(steps[-1], here.weights):
                reason = CALLBACK
                break
            if small == SMALL:
                reason = TOLERANCE
                break
    except KeyboardInterrupt:
        reason = INTERRUPTED
    converged = reason in (TOLERANCE, NO_IMPROVEMENT)
    return Result(here.weights, here.value, len(steps), evaluations, converged, reason, steps)


def fit_start(
    problem: Halves,
    penalty: Penalty,
    start: np.ndarray | None,
    training: str,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
) -> Result:
    """Train from one start; None is the origin, where nothing is hidden and the problem convex."""
    if training == "em":
        begin = np.zeros(problem.n_weights) if start is None else start
        return fit_em(problem, penalty, begin, tol=tol, max_iter=max_iter, callback=callback)
    if isinstance(problem, LatentChain):
        return fit_likelihood(
            problem.fused,
            penalty,
            start=start,
            tol=tol,
            max_iter=max_iter,
            n_jobs=problem.n_jobs,
            rng=np.random.default_rng(0),
            callback=callback,
        )
    basis = class_basis(problem, penalty) if isinstance(problem, HiddenClasses) else None
    return minimize(
        problem,
        np.zeros(problem.n_weights) if start is None else start,
        penalty,
        memory=None if penalty.l1 else history_pairs(problem.n_weights, penalty),
        basis=basis,
        renew=basis is not None,
        tol=tol,
        max_iter=max_iter,
        n_jobs=problem.n_jobs,
        callback=callback,
    )


def run_start(
    problem: LatentChain,
    penalty: Penalty,
    start: np.ndarray,
    tol: float,
    max_iter: int,
    pause: Pause,
    travels: bool,
    callback: Callback | None = None,
) -> tuple[Result, Pause]:
    """Follow gradients on numeric columns from one start, or on from where it paused, to ``max_iter`` steps.

    The basis stays that of the columns: where F is not convex its second derivative, at one evaluation for each
    weight, proves nothing. A pause that ``travels`` to another process must have its state with it.
    """
    result = minimize(
        problem.fused,
        start,
        penalty,
        memory=history_pairs(problem.n_weights, penalty),
        basis=problem.basis(penalty),
        tol=tol,
        max_iter=max_iter,
        n_jobs=problem.n_jobs,
        callback=callback,
        run_state=pause,
    )
    return result, pause.keep() if travels else pause


# ------------------------------------------------------------------------------------------ from several starts


@dataclass(frozen=True, eq=False)
class Trained:
    """The best of several starts, and F where each was left."""

    best: Result
    values: np.ndarray  # (n_init,)
    n_evaluations: int  # of all starts


def fit_best(
    problem: Halves,
    penalty: Penalty,
    starts: Sequence[np.ndarray | None],
    *,
    training: str,
    tol: float,
    max_iter: int,
    n_jobs: int = 1,
    race: bool = False,
    callback: Callback | None = None,
    after: Callable[[int, Result], None] | None = None,
) -> Trained:
    """Train from every start and keep the smallest F; the first of equal ones.

    With ``race`` (a `LatentChain` that tells, by gradients) all run a few steps, and the lowest then goes on alone;
    ``values`` are then where each was left. With several jobs and no callback each start has a process of its own;
    ``after(number, result)`` hears of each that ends. The answer is the same either way. Ctrl-C keeps the best of
    what is there.
    """
    one_of(*TRAININGS)("training", training)
    results: dict[int, Result] = {}
    pauses: dict[int, Pause] = {}
    apart = n_jobs > 1 and len(starts) > 1 and callback is None
    heard = None if apart else callback
    steps = min(RACE, max_iter) if race and len(starts) > 1 else max_iter
    cases: list[tuple[Any, ...]] = [(problem, penalty, start, training, tol, max_iter, heard) for start in starts]
    if race:
        cases = [(problem, penalty, start, tol, steps, Pause(), apart, heard) for start in starts]
    threads = problem.n_jobs
    problem.n_jobs = 1 if apart else n_jobs

    def take(number: int, result: Result) -> bool:
        results[number] = result
        if after is not None:
            after(number, result)
        return result.reason in (INTERRUPTED, CALLBACK)

    try:
        ended = False
        for number, found in run_each(run_start if race else fit_start, cases, n_jobs=n_jobs if apart else 1):
            result, pauses[number] = found if race else (found, Pause())
            ended = take(number, result)
            if ended:
                break
        best = min(results, key=lambda k: (results[k].value, k))
        if race and not ended and results[best].reason == MAX_ITER and steps < max_iter:
            problem.n_jobs = n_jobs
            on = (problem, penalty, starts[best], tol, max_iter, pauses[best].keep(), False, callback)
            take(best, run_start(*on)[0])  # type: ignore[arg-type]
    except KeyboardInterrupt:
        if not results:
            raise
    finally:
        problem.n_jobs = threads
    values = np.array([results[k].value if k in results else np.nan for k in range(len(starts))])
    best = int(np.nanargmin(values))
    return Trained(results[best], values, sum(result.n_evaluations for result in results.values()))
