"""Training with latent states: gradient or EM, from one start or the best of several.

Both latent models minimise

    F(w) = free(w) − clamped(w) + penalty(w)

where ``free`` sums over all states and ``clamped`` over those that the labels allow. Both halves are convex, so F is
not: where training ends depends on where it starts, and what is equal at the start stays equal for ever. Hence random
starts, several, of which the one with the smallest F is kept.

``"gradient"`` hands F to L-BFGS, ``"em"`` to `training.latent.em`. Gradients need fewer evaluations; EM is there to
compare, and for starts that must not be left: its short M steps go in the weights' own coordinates, whatever the
columns. Gradients on numeric columns begin with one start that looks at them, and starts race
(`training.latent.starts`).

A problem here is an `optimize.problem.Problem` with the two halves beside ``evaluate``. Starts are independent of
each other, so with several jobs each goes to a process of its own (`training.parallel`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.training.latent.chain import LatentChain
from crfield.training.latent.classes import HiddenClasses, class_basis
from crfield.training.latent.em import Callback, Halves, fit_em
from crfield.training.latent.starts import RACE, RACE_APART, Pause
from crfield.training.likelihood import fit_likelihood, history_pairs
from crfield.training.parallel import run_each

TRAININGS = ("gradient", "em")


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
    ``values`` are then where each was left. Where data are many the race is on a part of them (`LatentChain.raced`),
    an evaluation of which counts as its share of one, and from where the lowest was left a run on all begins;
    ``values`` are of all. With several jobs and no callback each start has a process of its own;
    ``after(number, result)`` hears of each that ends. The answer is the same either way. Ctrl-C keeps the best of
    what is there.
    """
    one_of(*TRAININGS)("training", training)
    results: dict[int, Result] = {}
    pauses: dict[int, Pause] = {}
    apart = n_jobs > 1 and len(starts) > 1 and callback is None
    heard = None if apart else callback
    steps = min(RACE, max_iter) if race and len(starts) > 1 else max_iter
    field, own, every = problem, penalty, 1
    if steps < max_iter and isinstance(problem, LatentChain):
        field, own, every = problem.raced(penalty)
        steps = steps if every == 1 else min(RACE_APART, max_iter)
    cases: list[tuple[Any, ...]] = [(problem, penalty, start, training, tol, max_iter, heard) for start in starts]
    if race:
        cases = [(field, own, start, tol, steps, Pause(), apart, heard) for start in starts]
    threads = problem.n_jobs
    problem.n_jobs = field.n_jobs = 1 if apart else n_jobs
    spent = 0

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
        problem.n_jobs = n_jobs
        best = min(results, key=lambda k: (results[k].value, k))
        left = results[best]
        if every > 1:
            spent = sum(result.n_evaluations for result in results.values()) // every
            others = [k for k in results if ended or k != best]
            results = {k: _seen_on_all(problem, penalty, results[k]) for k in others}
        if every > 1 and not ended:
            whole, _ = run_start(
                problem,  # type: ignore[arg-type]
                penalty,
                left.weights,
                tol,
                max_iter - steps,
                Pause(),
                False,
                callback,
            )
            take(best, whole)
        elif race and not ended and results[best].reason == MAX_ITER and steps < max_iter:
            on = (problem, penalty, starts[best], tol, max_iter, pauses[best].keep(), False, callback)
            take(best, run_start(*on)[0])  # type: ignore[arg-type]
    except KeyboardInterrupt:
        if not results:
            raise
    finally:
        problem.n_jobs = threads
    values = np.array([results[k].value if k in results else np.nan for k in range(len(starts))])
    best = int(np.nanargmin(values))
    return Trained(results[best], values, spent + sum(result.n_evaluations for result in results.values()))


def _seen_on_all(problem: Any, penalty: Penalty, result: Result) -> Result:
    """What came of a run on a part of the data, with the value on all of them; it has no end there."""
    here = Point(result.weights, np.empty_like(result.weights))
    Penalised(problem, penalty, n_jobs=problem.n_jobs).evaluate(here)
    return replace(result, value=here.value, n_evaluations=1, converged=False)
