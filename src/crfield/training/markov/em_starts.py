"""Several starts of Baum–Welch, one after the other or side by side.

EM climbs to the optimum at hand, so more than one start is tried. They share nothing but the rows, and most of an
iteration is spent in compiled kernels that let other threads run: so starts go to threads, which end before the call
does. Each start is one computation with its own share of ``n_jobs``, and the order of results is that of the starts:
with no more jobs than starts the bits are those of one job. Ctrl-C ends all of them at their next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.scoring.densities.gaussian import Fitting
from crfield.training.markov.em import Markov, fit_em

Climb = tuple[Markov, Result]


def fit_each(
    starts: Sequence[tuple[Markov, Fitting]],
    rows: np.ndarray,
    target: Target,
    *,
    n_jobs: int = 1,
    watch: Callable[[Step], None] | None = None,
    **options: Any,
) -> list[Climb]:
    """`fit_em` with ``options`` from each of the models; see the module.

    ``watch`` is called in this thread, after every step of a single job and after every start of more. After Ctrl-C
    the list has the starts that had begun, one at least.

    >>> from crfield.core.topology import Chains
    >>> from crfield.scoring.densities.gaussian import DiagonalGaussian
    >>> rows = np.array([[0.0], [0.1], [3.0], [3.1]])
    >>> free = Target(Chains.from_lengths([4]), 2, np.full(4, -1), np.ones((4, 2), bool))
    >>> models = [
    ...     Markov(np.full(2, 0.5), np.full((2, 2), 0.5), DiagonalGaussian(np.array(mean), np.ones((2, 1))))
    ...     for mean in ([[1.0], [2.0]], [[2.5], [0.5]])
    ... ]
    >>> found = fit_each([(model, Fitting()) for model in models], rows, free, n_jobs=2)
    >>> [model.emissions.mean.ravel().round(2).tolist() for model, _ in found]
    [[0.05, 3.05], [3.05, 0.05]]
    """
    workers = max(1, min(n_jobs, len(starts)))
    if workers == 1:
        return _one_by_one(starts, rows, target, n_jobs, watch, options)
    from concurrent.futures import Future, ThreadPoolExecutor, as_completed
    from threading import Event

    stop = Event()

    def stopped(step: Step, weights: np.ndarray) -> bool:
        return stop.is_set()

    def climb(first: Markov, fitting: Fitting) -> Climb | None:
        if stop.is_set():
            return None
        share = n_jobs // workers
        return fit_em(first, rows, target, fitting=fitting, n_jobs=share, callback=stopped, **options)

    with ThreadPoolExecutor(workers) as pool:
        running: list[Future[Climb | None]] = [pool.submit(climb, *start) for start in starts]
        try:
            for done in as_completed(running):
                climbed = done.result()
                if watch is not None and climbed is not None and climbed[1].history:
                    watch(climbed[1].history[-1])
        except KeyboardInterrupt:
            stop.set()
        except BaseException:
            stop.set()
            raise
    found = [climbed for climbed in (future.result() for future in running) if climbed is not None]
    return [(model, replace(r, reason=INTERRUPTED) if r.reason == CALLBACK else r) for model, r in found]


def _one_by_one(
    starts: Sequence[tuple[Markov, Fitting]],
    rows: np.ndarray,
    target: Target,
    n_jobs: int,
    watch: Callable[[Step], None] | None,
    options: dict[str, Any],
) -> list[Climb]:
    def after(step: Step, weights: np.ndarray) -> None:
        if watch is not None:
            watch(step)

    found: list[Climb] = []
    for first, fitting in starts:
        found.append(fit_em(first, rows, target, fitting=fitting, n_jobs=n_jobs, callback=after, **options))
        if found[-1][1].reason == INTERRUPTED:
            break
    return found
