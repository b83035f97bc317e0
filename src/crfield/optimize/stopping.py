"""placeholder"""

from __future__ import annotations
import math


class Stopping:
    def __init__(self, tol: float, *, convexity: float = 0.0) -> None:
        self.tol, self.convexity = tol, convexity
        self.trace: list[tuple[float, float, float]] = []

    def update(self, value: float, squared_norm: float, slope: float) -> float:
        self.trace.append((value, squared_norm, slope))
        return math.inf
