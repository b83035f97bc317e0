"""Clocks, and two contestants taking turns.

CPU time (`time.process_time`) is what a busy machine disturbs least, and it counts every thread, so a library
that quietly uses two cores gains nothing. Even so a neighbour slows the caches: contestants therefore take
turns, A B A B, so that both meet the same weather, and the best of several turns is compared with the best of
the other's. The median is kept beside it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Clock = Callable[[], float]
cpu: Clock = time.process_time
wall: Clock = time.perf_counter


@dataclass
class Timing:
    """Seconds of the turns of one contestant.

    >>> Timing([3.0, 1.0, 2.0]).best, Timing([3.0, 1.0, 2.0]).median
    (1.0, 2.0)
    """

    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The turn least disturbed."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The usual turn."""
        return statistics.median(self.seconds)

    @contextmanager
    def turn(self, clock: Clock = cpu) -> Iterator[None]:
        """Time one block."""
        began = clock()
        yield
        self.seconds.append(clock() - began)


@contextmanager
def settled() -> Iterator[None]:
    """Keep what is already alive out of the collector's way, so that nobody pays for another's garbage."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def interleaved(*contestants: Callable[[], Any], turns: int, clock: Clock = cpu, warm: bool = True) -> list[Timing]:
    """Time the contestants in turn, after one turn each that is not counted (``warm``)."""
    timings = [Timing() for _ in contestants]
    with settled():
        for turn in range(-int(warm), turns):
            for contestant, timing in zip(contestants, timings):
                with timing.turn(clock):
                    contestant()
                if turn < 0:
                    timing.seconds.clear()
    return timings
