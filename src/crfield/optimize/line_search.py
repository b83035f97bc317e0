"""Line search: how far to go along a direction.

Both searches first try the full step, which a quasi-Newton direction nearly always deserves, so a step costs
one evaluation. The smooth search ends at a point with sufficient decrease and a flatter slope (the weak
Wolfe conditions), which keeps the next pair's curvature positive; where the values of F no longer differ beyond
rounding, it trusts the slopes instead (Hager & Zhang 2005, the approximate Wolfe conditions). The orthant search
of OWL-QN shortens the projected step until it decreases enough (Andrew & Gao 2007).

A trial where F is +∞ or NaN counts as far too long.
"""

from __future__ import annotations

import math

import numpy as np

from crfield.kernels import vectors
from crfield.optimize.penalty import Penalised, Point

DECREASE = 1e-4  # of what the slope promises
FLATTER = 0.9  # of the slope at the start
ROUNDING = 1e-13  # relative error of F itself
TRIALS = 20
DEMANDING_TRIALS = 10  # afterwards a sufficient decrease alone will do


def _lowest(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    """The minimiser of the cubic through two (step, value, slope), or NaN, as where both are one step.

    >>> _lowest((0.0, 1.0, -2.0), (2.0, 1.0, 2.0)), _lowest((1.0, 1.0, -2.0), (1.0, 2.0, 2.0))
    (1.0, nan)
    """
    (t, f, df), (u, g, dg) = a, b
    if t == u:
        return math.nan
    slope = df + dg - 3 * (f - g) / (t - u)
    square = slope * slope - df * dg
    if not square >= 0:
        return math.nan
    root = math.copysign(math.sqrt(square), u - t)
    bottom = dg - df + 2 * root
    return u - (u - t) * (dg + root - slope) / bottom if bottom else math.nan


def wolfe_search(
    objective: Penalised,
    here: Point,
    there: Point,
    direction: np.ndarray,
    *,
    slope: float,
    size: float,
    flatter: float = FLATTER,
    blur: float = 0.0,
) -> float | None:
    """Find t with F(w + t d) low and flat enough, from the first guess ``size``; None if there is none.

        F(w + t d) ≤ F(w) + 1e-4 t gᵀd      and      ∇F(w + t d)ᵀd ≥ flatter · gᵀd

    Values that differ by the relative error ``blur`` are taken for equal where the slope has become flat enough, for
    columns in raw units make F far less exact than its own last digit is. A slope that is as steep as before beside a
    value that rose is another matter: a wrong gradient. Leaves the accepted point in ``there``.
    """
    rounding, blur = ROUNDING * abs(here.value), blur * abs(here.value)
    short, long = (0.0, here.value, slope), None  # (step, value, slope) known to be too short, too long
    for trial in range(TRIALS):
        vectors.step(here.weights, direction, size, there.weights, n_jobs=objective.n_jobs)
        objective.evaluate(there, direction=direction)
        found = (size, there.value, there.slope)
        usable = math.isfinite(there.value) and math.isfinite(there.squared_norm)
        enough = usable and there.value <= here.value + DECREASE * size * slope
        flat = there.slope >= flatter * slope
        unseen = max(rounding, blur) if flat else rounding
        level = usable and there.value <= here.value + unseen and there.slope <= (2 * DECREASE - 1) * slope
        if enough or level:
            if flat or trial >= DEMANDING_TRIALS:
                return size
            rise = there.slope - short[2]
            ahead = -there.slope * (size - short[0]) / rise if rise > 0 else math.inf
            short = found
        else:
            long = found
        if long is None:
            size += min(max(ahead, size), 9 * size)
            continue
        width = long[0] - short[0]
        if not width > 0:  # the two have met: a value that does not fit its gradient, and nothing left between them
            break
        guess = _lowest(short, long) - short[0]
        size = short[0] + (min(max(guess, 0.1 * width), 0.9 * width) if math.isfinite(guess) else 0.1 * width)
    if short[0] > 0:
        vectors.step(here.weights, direction, short[0], there.weights, n_jobs=objective.n_jobs)
        objective.evaluate(there, direction=direction)
        return short[0]
    return None


def orthant_search(
    objective: Penalised, here: Point, there: Point, direction: np.ndarray, *, size: float
) -> float | None:
    """Find t with F(π(w + t d)) ≤ F(w) + 1e-4 (pseudo-gradient)ᵀ(π(w + t d) − w); None if there is none.

    π sets to zero what would leave the orthant of w. Leaves the accepted point in ``there``.
    """
    l1, penalised = objective.penalty.l1, objective.penalty.penalised
    for _ in range(TRIALS):
        moved = vectors.orthant_step(
            here.weights,
            here.gradient,
            direction,
            size,
            l1,
            there.weights,
            penalised=penalised,
            n_jobs=objective.n_jobs,
        )
        if not moved.slope < 0:
            return None
        objective.evaluate(there, l1_norm=moved.l1_norm)
        usable = math.isfinite(there.value) and math.isfinite(there.squared_norm)
        if usable and there.value <= here.value + DECREASE * moved.slope:
            there.n_active = moved.n_active
            return size
        excess = there.value - here.value - moved.slope
        guess = -0.5 * moved.slope / excess if usable and excess > 0 else 0.1
        size *= min(max(guess, 0.1), 0.5)
    return None
