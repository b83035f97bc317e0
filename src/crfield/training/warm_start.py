"""Stochastic epochs before the batch optimiser.

A batch method spends its first dozens of evaluations finding out what a few passes of stochastic gradient already
know (Bottou 2010). So a few epochs are run first, one step for every group of sequences, with the step size
found by trial on a part of the data, and the batch optimiser starts from there with a diagonal preconditioner
taken at that point:

    H0 = diag(l2 + Σ x² p (1 − p))^-0.7

A power of −1 would be Newton's method for features that do not overlap, 0 no preconditioner at all; features do
overlap. Of the powers tried, −0.6 to −0.8, none was clearly better than another; the middle one was taken.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

TRIAL_STEPS = tuple(float(0.8 / 2**k) for k in range(0, 14))
POWER = -0.7


class Stochastic(Protocol):
    """A problem that can also take stochastic steps."""

    @property
    def n_groups(self) -> int:
        """How many steps an epoch has."""
        ...

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative."""
        ...

    def descend(
        self, weights: np.ndarray, order: np.ndarray, *, step: float, done: float, horizon: float, l2: float
    ) -> float:
        """Steps over the groups in ``order``; changes the weights, gives the loss met on the way."""
        ...


def find_step(problem: Stochastic, start: np.ndarray, sample: np.ndarray, *, l2: float) -> float:
    """The step size whose single pass over the sampled groups meets the smallest loss on the way.

    Sizes fall by halves from one that is surely too large; the search ends when the loss has risen twice.
    """
    best_step, best_loss, worse = TRIAL_STEPS[-1], np.inf, 0
    for step in TRIAL_STEPS:
        weights = start.copy()
        loss = problem.descend(weights, sample, step=step, done=0.0, horizon=np.inf, l2=l2)
        if np.isfinite(loss) and np.isfinite(weights).all() and loss < best_loss:
            best_step, best_loss, worse = step, loss, 0
        elif np.isfinite(best_loss):
            worse += 1
            if worse == 2:
                break
    return best_step


def descend(problem: Stochastic, weights: np.ndarray, *, l2: float, epochs: int, rng: np.random.Generator) -> None:
    """Some epochs of stochastic gradient, changing ``weights`` in place: after Ctrl-C they are still of use.

    Steps fall as step / (1 + n / (3 · groups)): slow enough to go on learning, fast enough to settle.
    """
    groups = problem.n_groups
    sample = rng.permutation(groups)[: max(min(groups, 8), groups // 10)]
    step = find_step(problem, weights, sample, l2=l2)
    for epoch in range(epochs):
        before = weights.copy()
        loss = problem.descend(
            weights, rng.permutation(groups), step=step, done=float(epoch * groups), horizon=3.0 * groups, l2=l2
        )
        if not (np.isfinite(loss) and np.isfinite(weights).all()):
            weights[:] = before
            step /= 4


def preconditioner(problem: Stochastic, weights: np.ndarray, *, l2: float) -> np.ndarray:
    """(W,) the diagonal H0 of the module's essay, taken at the given weights."""
    curvature = np.maximum(problem.curvature(weights), 0.0)
    curvature += max(l2, 1e-3)
    return np.power(curvature, POWER, out=curvature)
