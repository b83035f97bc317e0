"""What a run of an optimiser leaves behind: every step, and why it ended.

A result says whether it may be trusted. ``converged`` is True only when the estimate of the distance to the
optimum (`optimize.stopping`) fell below the tolerance asked for; running out of iterations, a callback's wish
and Ctrl-C leave it False. The weights are the best ones seen in every case.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

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
