"""When to stop: an estimate of how far F still is above its minimum.

A tolerance should mean what a user thinks it means: tol = 1e-4 asks for (F − F*) / |F*| ≤ 1e-4. A small gradient
or a small last decrease says little of that, since on a badly scaled problem every step is small long before the
end. Three things are known without further evaluations:

1. The model's own view. The quasi-Newton model promises a decrease of ½ gᵀHg, half the Newton decrement. H has seen
   few directions and is too timid in the flat ones, so this is low, commonly by a factor of two to ten.
2. The run's own view. If over the last p steps F fell by b, and over the p steps before by a, then falls that keep
   shrinking by b / a add up to b·(b/a) / (1 − b/a). The windows grow with the run, p = k/8 and p = k/4 at step k: a
   problem that needs a thousand steps tells nothing in five. A ratio near one (no end in sight) counts as 0.97.
3. A guarantee. With every weight under a ridge, F is l2-strongly convex, and F − F* ≤ |g|² / (2 l2) for any
   subgradient g (Nesterov 2004, *Introductory lectures on convex optimization*, theorem 2.1.10).

The gap is the bound 3 where that is smaller, else the larger of 4 × view 1 and 3 × view 2, and of this the largest
of three steps in a row. The factors were found by replaying recorded runs on dense, correlated and text-like
problems, scaled well or badly, with a preconditioner or without, and chosen on those same runs; on others it may
stop a little early. It is an estimate;
`tests/contracts/test_optimize_stopping.py` holds it to the tolerance on a range of problems.

The gap is relative to |F|. A minimum of zero (separable data without a penalty) would never be met so; F counts as
no smaller than a millionth of its first value.
"""

from __future__ import annotations

import math

MODEL_FACTOR = 4.0
TREND_FACTOR = 3.0
STEADY = 0.97  # the largest ratio of falls that the trend is extrapolated with
SHORTEST_WINDOW = 3
IN_A_ROW = 3
STALLED_STEPS = 10
STALLED = 1e-14  # a relative fall over so many steps that is rounding alone


class Stopping:
    """The estimate of the relative gap, step by step.

    ``convexity`` is l2 where every weight is penalised, else 0.

    >>> stopping = Stopping(1e-4, convexity=0.5)
    >>> stopping.update(value=2.0, squared_norm=4e-6, slope=-1e-3)
    2e-06
    """

    def __init__(self, tol: float, *, convexity: float = 0.0) -> None:
        self.tol, self.convexity = tol, convexity
        self._values: list[float] = []
        self._estimates = [math.inf] * IN_A_ROW

    def update(self, value: float, squared_norm: float, slope: float) -> float:
        """The estimate of (F − F*) / |F*| after one more step; ``slope`` is gᵀd = −gᵀHg."""
        self._values.append(value)
        self._estimates = [*self._estimates[1:], max(MODEL_FACTOR * -0.5 * slope, TREND_FACTOR * self._trend())]
        gap = max(self._estimates)
        if self.convexity > 0:
            gap = min(gap, squared_norm / (2 * self.convexity))
        scale = max(abs(value), 1e-6 * abs(self._values[0]))
        return 0.0 if gap == 0 else gap / scale if scale > 0 else math.inf

    @property
    def stalled(self) -> bool:
        """Whether the last steps changed F by no more than rounding."""
        if len(self._values) <= STALLED_STEPS:
            return False
        return self._values[-1 - STALLED_STEPS] - self._values[-1] <= STALLED * abs(self._values[-1])

    def _trend(self) -> float:
        """What is left to fall if the falls go on shrinking as they did."""
        last = len(self._values) - 1
        return max(self._extrapolate(last, max(SHORTEST_WINDOW, last // parts)) for parts in (8, 4))

    def _extrapolate(self, last: int, window: int) -> float:
        if last < 2 * window:
            return math.inf
        fall = self._values[last - window] - self._values[last]
        fall_before = self._values[last - 2 * window] - self._values[last - window]
        if fall <= 0:
            return 0.0
        ratio = min(fall / fall_before, STEADY) if fall_before > 0 else STEADY
        return fall * ratio / (1 - ratio)
