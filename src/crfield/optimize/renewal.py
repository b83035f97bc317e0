"""When the second derivative of few weights is computed, and what may be claimed from it.

It costs as many evaluations as there are weights. That pays where the steps that are left would cost more, or lead
nowhere; and where an estimate that the end has come is to be proved. At a point where it is known, what Newton's
method is about to gain is the gap to the minimum, but for how far the function is from its bowl: ``PROOF_FACTOR`` is
the margin. Steps that leave a hundredth of the gain show that the derivative is still about the one that was
computed; so the claim outlives a step or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crfield.optimize.history import Step
from crfield.optimize.resume import Found
from crfield.optimize.stopping import Stopping, steps_left

SOONEST, FEW = 30, 800  # steps before a derivative is computed anew, and weights that may have one
PROOF_FACTOR = 4.0  # what Newton gains on a function that is no bowl is low: by 2 of one that falls like exp(−t)
ROUND = 0.01  # of Newton's gain left by a step along which the second derivative hardly changed
PROVED = 150  # weights that may be proved whatever the run took


def renewal(n_weights: int) -> int | None:
    """Steps after which a run on so many weights has its derivative computed; None where that would cost too much.

    A renewal costs as many evaluations as there are weights, and comes after half as many steps at the earliest;
    later, or never, where the run would be at its end sooner than that.

    >>> renewal(20), renewal(300), renewal(50_000)
    (30, 150, None)
    """
    return max(SOONEST, n_weights // 2) if n_weights <= FEW else None


class Renewal:
    """What a run knows of its second derivative.

    >>> renewal = Renewal(20)
    >>> renewal.begin(believed=True)
    >>> renewal.stepped(1e-5, before=1e-2), renewal.round
    (None, True)
    >>> stopping = Stopping(1e-4)
    >>> _ = stopping.update(value=2.0, squared_norm=1.0, slope=-1.0)
    >>> renewal.promise(1e-5, stopping)
    2e-05
    """

    def __init__(self, n_weights: int, *, wanted: bool = True) -> None:
        self.n_weights = n_weights
        self.after = renewal(n_weights) if wanted else None
        self.since, self.count = 0, 0  # steps since it was computed, and how often it was
        self.round = False  # whether it was computed and steps since went as it foretold
        self.believed = False  # whether all of it is more than rounding

    def begin(self, *, believed: bool) -> None:
        """It was computed just now."""
        self.since, self.count, self.round, self.believed = 0, self.count + 1, True, believed

    def stepped(self, gain: float, *, before: float) -> None:
        """A step was taken, and what Newton is to gain fell to ``gain``."""
        self.since, self.round = self.since + 1, self.round and bool(gain <= ROUND * before)

    @property
    def possible(self) -> bool:
        """Whether a new derivative could be another one."""
        return self.after is not None and self.since > 0

    def due(self, stopping: Stopping, steps: Sequence[Step]) -> bool:
        """Whether the steps of a run lead nowhere, or to its end only after more than a new derivative would cost."""
        if not self.possible:
            return False
        if stopping.stalled:
            return True
        if self.since < (self.after or 0):
            return False
        return steps_left([step.gap for step in steps[-self.since :]], stopping.tol) > self.n_weights

    def wants_proof(self, stopping: Stopping, n_evaluations: float) -> bool:
        """Whether an estimate that is within the tolerance is to be proved, at a price no higher than the run's."""
        return self.possible and self.n_weights <= max(PROVED, 2 * n_evaluations) and not stopping.certain

    def promise(self, gain: float, stopping: Stopping) -> float:
        """The relative gap, from what Newton's method is about to gain, with a margin."""
        return stopping.relative(PROOF_FACTOR * gain)

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"since": self.since, "n_renewed": self.count, "round": self.round, "believed": self.believed}

    def restore(self, found: Found) -> None:
        """Go on where the one whose `state` this is was; runs that older versions kept know nothing of it."""
        self.since, self.count = (
            found.integer(name, within=found.header.get(name, 0)) for name in ("since", "n_renewed")
        )
        self.round, self.believed = (name in found.header and found.flag(name) for name in ("round", "believed"))
