"""The steps of a run of an optimiser, recorded as they are taken and told to a callback, and why it ended.

A result says whether it may be trusted. ``converged`` is True only when the estimate of the distance to the
optimum (`optimize.stopping`) fell below the tolerance asked for; running out of iterations, a callback's wish
and Ctrl-C leave it False. The weights are the best ones seen in every case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.optimize.penalty import Penalty

TOLERANCE = "tolerance"
MAX_ITER = "max_iter"
CALLBACK = "callback"
INTERRUPTED = "interrupted"
NO_IMPROVEMENT = "line search could not improve"
HELD_OUT = "held-out score"


@dataclass(frozen=True)
class Step:
    """One accepted step.

    >>> Step(3, 4, 12.5, 0.1, 1.0, 7, 0.02).value
    12.5
    """

    n_iter: int
    n_evaluations: int  # of the objective, all so far
    value: float  # F with its penalties
    gradient_norm: float  # of F; of the shortest subgradient with an l1 penalty
    step_size: float  # the multiple of the direction that was taken
    n_active: int  # weights that are not zero; all of them without an l1 penalty
    seconds: float  # since the run began
    gap: float = float("inf")  # estimate of (F − F*) / |F*|
    score: float | None = None  # on held-out sequences, where there are any


@dataclass(frozen=True, eq=False)
class Result:
    """Where a run ended and why.

    >>> Result(np.zeros(2), 1.0, 0, 1, False, MAX_ITER, [])
    Result(value=1, n_iter=0, n_evaluations=1, converged=False, reason='max_iter')
    """

    weights: np.ndarray  # (W,) the best seen
    value: float
    n_iter: int
    n_evaluations: int
    converged: bool
    reason: str
    history: list[Step] = field(default_factory=list)
    n_renewed: int = 0  # how often the second derivative was computed to work in
    how: str = ""  # what was run and why, where something was chosen

    def __repr__(self) -> str:
        return (
            f"Result(value={self.value:.10g}, n_iter={self.n_iter}, n_evaluations={self.n_evaluations}, "
            f"converged={self.converged}, reason={self.reason!r})"
        )


Callback = Callable[[Step, np.ndarray], bool | None]


class History:
    """Steps so far; `note` adds one and says whether the callback wishes to stop.

    >>> history = History(1e-4, None)
    >>> history.note(np.zeros(2), 3.0, gradient_norm=1.0, step_size=0.5, n_evaluations=2, gap=1e-5)
    False
    >>> history.result("tolerance", np.zeros(2), 3.0, n_evaluations=2)
    Result(value=3, n_iter=1, n_evaluations=2, converged=True, reason='tolerance')
    """

    def __init__(self, tol: float, callback: Callback | None) -> None:
        self.tol, self.callback = tol, callback
        self.steps: list[Step] = []
        self.gap = math.inf
        self.began = time.perf_counter()

    def note(
        self,
        weights: np.ndarray,
        value: float,
        *,
        gradient_norm: float,
        step_size: float,
        n_evaluations: int,
        gap: float,
        n_active: int | None = None,
    ) -> bool:
        """Record a step and tell the callback, which is shown a read-only view of the weights."""
        self.gap = gap
        active = len(weights) if n_active is None else n_active
        seconds = time.perf_counter() - self.began
        step = Step(len(self.steps) + 1, n_evaluations, value, gradient_norm, step_size, active, seconds, gap)
        self.steps.append(step)
        if self.callback is None:
            return False
        shown = weights.view()
        shown.flags.writeable = False
        return bool(self.callback(step, shown))

    def result(self, reason: str, weights: np.ndarray, value: float, *, n_evaluations: int) -> Result:
        """The end of the run: converged if the gap is within the tolerance, or is rounding and no step improved."""
        floor = max(self.tol, 1e-12) if reason == NO_IMPROVEMENT else self.tol
        converged = reason in (TOLERANCE, NO_IMPROVEMENT) and self.gap <= floor
        return Result(weights, value, len(self.steps), n_evaluations, converged, reason, self.steps)


def check_run(n_weights: int, start: np.ndarray, penalty: Penalty, *, tol: float, max_iter: int) -> np.ndarray:
    """A copy of the start, when it and the options fit the problem; otherwise a ShapeError or InputError.

    >>> check_run(2, np.zeros(2), Penalty(), tol=1e-4, max_iter=10).tolist()
    [0.0, 0.0]
    """
    weights = np.array(start, dtype=np.float64)
    if weights.shape != (n_weights,):
        raise ShapeError(f"start must have shape ({n_weights},), one entry per weight, got {weights.shape}.")
    if penalty.penalised is not None and len(penalty.penalised) != n_weights:
        raise ShapeError(f"penalised must have {n_weights} entries, one per weight, got {len(penalty.penalised)}.")
    if not tol >= 0 or max_iter < 0:
        raise InputError(f"tol and max_iter must be ≥ 0, got tol={tol}, max_iter={max_iter}.")
    return weights


def check_first(value: float, squared_norm: float) -> None:
    """InputError unless the objective is finite where a run begins."""
    if not (math.isfinite(value) and math.isfinite(squared_norm)):
        raise InputError(
            f"the objective must be finite at the start, got {value} with a squared gradient norm of {squared_norm}. "
            "Are there NaN or infinite features or start weights?"
        )


def no_l1(name: str, penalty: Penalty) -> None:
    """InputError where a method for smooth functions is given an l1 penalty."""
    if penalty.l1:
        raise InputError(f"{name} is for smooth functions, got l1={penalty.l1:g}. Use OWL-QN or projected gradients.")
