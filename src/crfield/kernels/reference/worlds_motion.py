"""What both worlds share: how robots move, towards a wanted velocity as fast as they may and never off the field.

    v ← v + a, |a| ≤ gain        x ← x + v dt

At the edge a robot stops in the direction that would lead out. The compiled loops do the same, step by step, and draw
the same random numbers.
"""

from __future__ import annotations

from math import sqrt

_MASK = (1 << 64) - 1


class Draws:
    """SplitMix64 (Steele, Lea & Flood 2014, *Fast splittable pseudorandom number generators*)."""

    def __init__(self, seed: int) -> None:
        self.state = seed & _MASK

    def uniform(self) -> float:
        """A number in [0, 1) with 53 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


class Movers:
    """Positions and velocities of robots as lists, on a field of half sizes; worlds fill them."""

    px: list[float]
    py: list[float]
    vx: list[float]
    vy: list[float]
    half_x: float
    half_y: float
    dt: float

    def accelerate(self, r: int, wx: float, wy: float, gain: float) -> None:
        """One step of robot r that wants the velocity (wx, wy) and may change its own by ``gain``."""
        ax, ay = wx - self.vx[r], wy - self.vy[r]
        a = sqrt(ax * ax + ay * ay)
        if a > gain:
            ax, ay = ax * (gain / a), ay * (gain / a)
        self.vx[r] += ax
        self.vy[r] += ay
        self.px[r] += self.vx[r] * self.dt
        self.py[r] += self.vy[r] * self.dt
        self.stay_inside(r)

    def stay_inside(self, r: int) -> None:
        """Back to the edge, without the speed that led over it."""
        if self.px[r] > self.half_x or self.px[r] < -self.half_x:
            self.px[r], self.vx[r] = (self.half_x if self.px[r] > 0.0 else -self.half_x), 0.0
        if self.py[r] > self.half_y or self.py[r] < -self.half_y:
            self.py[r], self.vy[r] = (self.half_y if self.py[r] > 0.0 else -self.half_y), 0.0
