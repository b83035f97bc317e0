"""Contract of the plane kernel: one part of the dual of a hinge, whose weight goes from bad planes to good ones.

A part mixes planes k with the shares α_k ≥ 0, Σ α = 1. At the present weights plane k has the value v_k, and the
products of the planes' gradients are G. Moving s from plane d to plane u raises the dual by s (v_u − v_d) −
½ s² (G_uu + G_dd − 2 G_ud) / l2, which is largest at a point that a formula gives, at most all of α_d; afterwards

    v ← v − s / l2 · (G_u − G_d)

(pairwise Frank–Wolfe: Lacoste-Julien & Jaggi 2015, *On the global linear convergence of Frank–Wolfe optimization
variants*). A step is a few passes over at most some dozens of numbers: in Python the calls are all that it costs.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice


def pair_steps(
    values: np.ndarray, shares: np.ndarray, products: np.ndarray, *, l2: float, least: float, most: int
) -> int:
    """Shift shares (k,) from the worst plane that has some to the best; how many steps that took.

    ``values`` (k,) and ``shares`` are changed; ``products`` (k, k) is G. It ends after ``most`` steps, or where the
    two planes differ by ``least`` or less.

    >>> values, shares = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    >>> pair_steps(values, shares, np.diag([0.0, 4.0]), l2=1.0, least=1e-9, most=20)
    1
    >>> shares.tolist(), values.tolist()
    ([0.75, 0.25], [0.0, 0.0])
    """
    for name, x in (("values", values), ("shares", shares)):
        if x.dtype != np.float64 or x.ndim != 1 or not x.flags.c_contiguous:
            raise ShapeError(f"{name} must be a contiguous row of doubles, since results are written to it.")
    products = np.ascontiguousarray(products, np.float64)
    return int(choice.body("planes").pair_steps(values, shares, products, float(l2), float(least), int(most)))
