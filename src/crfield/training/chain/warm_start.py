"""Stochastic epochs before the batch optimiser, and the scales it works in.

A batch method spends its first dozens of evaluations finding out what a few passes of stochastic gradient already
know (Bottou 2010). So a few epochs are run first, one step for every group of sequences, with the step size
found by trial on a part of the data, and the batch optimiser starts from there with a diagonal preconditioner
taken at that point:

    H0 = diag(l2 + Σ x² p (1 − p))^-0.7          ^-0.5 under a weak ridge

A power of −1 would be Newton's method for features that do not overlap, 0 no preconditioner at all; features do
overlap. Under a ridge of one or more, powers from −0.5 to −0.8 take about equally many steps to a given gap. A weak
ridge leaves next to no curvature at weights that fit the data well, and H0 would trust that too much: there −0.5
takes far fewer steps on text than −0.7.

The epochs suit columns that are mostly zero. One step size cannot serve numeric columns in raw units, a thousand
beside one; no trial step then beats standing still, and the epochs are left out. What helps there is the diagonal at
the start itself, which brings the columns to one scale (`rescaling`). It does not undo a large mean; other
coordinates do (`optimize.basis`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from crfield.optimize.resume import Found, RunState, random_state, set_random_state, taking_over
from crfield.scoring.layout import Layout

TRIAL_STEPS = tuple(float(0.8 / 2**k) for k in range(0, 14))
POWER, CAUTIOUS_POWER = -0.7, -0.5
LARGE = 100.0  # mean square of a numeric column that asks for another scale


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


def find_step(problem: Stochastic, start: np.ndarray, sample: np.ndarray, *, l2: float) -> tuple[float, float]:
    """The step size whose single pass over the sampled groups meets the smallest loss on the way, and the loss of
    standing still; a step of 0 if no size does better than that.

    Sizes fall by halves from one that is surely too large; the search ends when the loss has risen twice.
    """
    still = problem.descend(start.copy(), sample, step=0.0, done=0.0, horizon=np.inf, l2=l2)
    best_step, best_loss, worse = 0.0, still, 0
    for step in TRIAL_STEPS:
        weights = start.copy()
        loss = problem.descend(weights, sample, step=step, done=0.0, horizon=np.inf, l2=l2)
        if np.isfinite(loss) and np.isfinite(weights).all() and loss < best_loss:
            best_step, best_loss, worse = step, loss, 0
        elif best_step:
            worse += 1
            if worse == 2:
                break
    return best_step, still


def descend(
    problem: Stochastic,
    weights: np.ndarray,
    *,
    l2: float,
    epochs: int,
    rng: np.random.Generator,
    run_state: RunState | None = None,
) -> bool:
    """Some epochs of stochastic gradient, changing ``weights`` in place: after Ctrl-C they are still of use.

    Steps fall as step / (1 + n / (3 · groups)): slow enough to go on learning, fast enough to settle. An epoch that
    met twice the loss of the one before is taken back and the step made smaller. False, and the weights as they
    were, if no step size did any good: numeric columns in raw units ask for smaller steps than are worth taking.
    ``run_state`` is offered the state after every epoch, that of ``rng`` included.
    """
    groups = problem.n_groups

    def begin() -> tuple[float, float]:
        sample = rng.permutation(groups)[: max(min(groups, 8), groups // 10)]
        step, still = find_step(problem, weights, sample, l2=l2)
        return step, still * groups / len(sample)

    def epoch(number: int, step: float) -> float:
        order = rng.permutation(groups)
        return problem.descend(weights, order, step=step, done=float(number * groups), horizon=3.0 * groups, l2=l2)

    return run_epochs(weights, begin, epoch, epochs=epochs, rng=rng, run_state=run_state)


def run_epochs(
    weights: np.ndarray,
    begin: Callable[[], tuple[float, float]],
    epoch: Callable[[int, float], float],
    *,
    epochs: int,
    rng: np.random.Generator,
    run_state: RunState | None = None,
) -> bool:
    """Epochs that change ``weights``, each at a step size; see `descend`.

    ``begin`` gives the first step size, 0 if none does any good, and the loss of an epoch that stands still;
    ``epoch(number, step)`` gives the loss met on the way.
    """
    first, found = 0, None if run_state is None else run_state.found("epochs")
    if found is not None:
        told = Found(found)
        first, step, loss = told.integer("epoch"), told.number("step", least=0.0), told.number("loss")
        weights[:] = told.vector("weights", len(weights))
        with taking_over():
            set_random_state(rng, told.header["random"])
    else:
        step, loss = begin()
        if not step:
            return False
    for number in range(first, epochs):
        before = weights.copy()
        met = epoch(number, step)
        if met <= 2 * loss and np.isfinite(weights).all():
            loss = met
        else:
            weights[:] = before
            step /= 4
        if run_state is not None:
            header = {"epoch": number + 1, "step": step, "loss": float(loss), "random": random_state(rng)}
            run_state.offer("epochs", lambda header=header: (header, {"weights": weights}))  # type: ignore[misc]
    return True


class Curved(Protocol):
    """A problem that knows about its second derivative."""

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About its diagonal."""
        ...


def preconditioner(problem: Curved, weights: np.ndarray, *, l2: float, power: float = POWER) -> np.ndarray:
    """(W,) the diagonal H0 of the module's essay, taken at the given weights."""
    return _powered(problem.curvature(weights), l2, power)


def rescaling(problem: Stochastic, weights: np.ndarray, *, layout: Layout, l2: float) -> np.ndarray | None:
    """The same where a numeric column is in units far from one, else None.

    The curvature of a column, summed over labels, is Σ x² times that of an intercept; a mean square above 100 is far.
    """
    curvature = problem.curvature(weights)
    sizes = curvature[layout.part["dense"]].reshape(layout.n_dense, layout.n_labels).sum(axis=1)
    unit = max(float(curvature[layout.part[name]].sum()) for name in ("bias", "start", "transitions"))
    if float(sizes.max(initial=0.0)) <= LARGE * (unit or float(sizes.min(initial=0.0))):
        return None
    return _powered(curvature, l2, POWER)


def _powered(curvature: np.ndarray, l2: float, power: float) -> np.ndarray:
    np.maximum(curvature, 0.0, out=curvature)
    curvature += max(l2, 1e-3)
    return np.power(curvature, power, out=curvature)
