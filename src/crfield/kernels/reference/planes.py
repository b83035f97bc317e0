"""The plane kernel to read; see `crfield.kernels.planes`."""

from __future__ import annotations

import numpy as np


def pair_steps(
    values: np.ndarray, shares: np.ndarray, products: np.ndarray, l2: float, least: float, most_steps: int
) -> int:
    """Body of `crfield.kernels.planes.pair_steps`."""
    size = len(values)
    if size < 1 or shares.shape != (size,) or products.shape != (size, size):
        raise ValueError("planes do not fit")
    if not l2 > 0:
        raise ValueError("l2 must be above 0")
    for taken in range(most_steps):
        if not (shares > 0).any():
            return taken
        up = int(values.argmax())
        down = int(np.where(shares > 0, values, np.inf).argmin())
        gain = float(values[up] - values[down])
        if gain <= least or gain <= 0:
            return taken
        bend = float(products[up, up] + products[down, down] - 2 * products[up, down]) / l2
        step = float(shares[down]) if gain >= bend * shares[down] else gain / bend
        shares[up] += step
        shares[down] = max(0.0, shares[down] - step)
        values -= step / l2 * (products[up] - products[down])
    return most_steps
