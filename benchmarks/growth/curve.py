"""One curve: sizes, seconds, and the slopes between."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ENOUGH, MOST = 0.4, 15  # seconds and turns spent on a size, after a turn that is not counted
LONG = 2.0  # a turn of so many seconds is not repeated

Make = Callable[[int], Callable[[], Any]]


@dataclass(frozen=True)
class Curve:
    """Seconds of an operation at some sizes.

    >>> curve = Curve("steps", "a sum", "steps", 1.0, [10, 100, 1000, 10000], [2.0, 2.1, 11.0, 101.0])
    >>> round(curve.whole, 2), round(curve.slope, 2)
    (0.58, 0.96)
    """

    panel: str  # what grows: the title of its picture
    what: str  # what is timed
    unit: str
    expected: float
    sizes: list[int]
    seconds: list[float]
    why: str = ""  # the exponent in a few words
    clock: bool = False  # seconds are of the clock, not of the processor

    @property
    def whole(self) -> float:
        """The slope over all sizes."""
        return _slope(self.sizes, self.seconds)

    @property
    def upper(self) -> int:
        """Where the upper part begins: the sizes within a factor of twenty of the largest, two at least."""
        return min(next(k for k, n in enumerate(self.sizes) if n * 20 >= self.sizes[-1]), len(self.sizes) - 2)

    @property
    def slope(self) -> float:
        """The slope of the upper part."""
        return _slope(self.sizes[self.upper :], self.seconds[self.upper :])

    def __str__(self) -> str:
        return f"{self.panel}: {self.what}: {self.slope:.2f} (expected {self.expected:g}, all {self.whole:.2f})"


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def timed(operation: Callable[[], Any], *, clock: bool = False) -> float:
    """The best of a few turns."""
    now = time.perf_counter if clock else time.process_time
    gc.collect()
    began = now()
    operation()
    first = spent = now() - began
    best = np.inf
    turns = 0
    while turns < MOST and (spent < ENOUGH or turns < 2) and not (turns and spent > LONG):
        began = now()
        operation()
        taken = now() - began
        best, spent, turns = min(best, taken), spent + taken, turns + 1
        if taken > LONG:
            break
    return min(best, first) if first > LONG else best


def grown(
    panel: str, what: str, unit: str, expected: float, sizes: Sequence[int], make: Make, *, why: str = ""
) -> Curve:
    """The curve of ``make(size)()``; what is made is let go before the next size."""
    seconds = []
    for size in sizes:
        operation = make(size)
        seconds.append(timed(operation))
        del operation
    return Curve(panel, what, unit, expected, list(sizes), seconds, why)


def decades(low: float, high: float, steps: int = 2) -> list[int]:
    """Sizes from low to high, so many in each decade.

    >>> decades(10, 1000)
    [10, 32, 100, 316, 1000]
    """
    count = round(np.log10(high / low) * steps)
    return sorted({round(low * (high / low) ** (k / count)) for k in range(count + 1)})
