"""Powers of columns, with the same bits wherever they are computed.

A whole power is a product, factor after factor. The functions for powers that processors and libraries have differ in
the last digit from one to the next, so a model that is trained here and runs on a robot could not agree with itself.
"""

from __future__ import annotations

import math

import numpy as np

MOST_PRODUCTS = 16  # the highest power that is a product


def is_product(power: float) -> bool:
    """Whether a power is that many factors."""
    return power == int(power) and 1 <= power <= MOST_PRODUCTS


def raised(values: np.ndarray, power: float) -> np.ndarray:
    """values^power, as a product where that is one.

    >>> raised(np.array([-2.0, 3.0]), 3).tolist()
    [-8.0, 27.0]
    """
    if not is_product(power):
        return np.asarray(values**power)
    made = values
    for _ in range(int(power) - 1):
        made = made * values
    return made


def powered(series: np.ndarray, power: float) -> np.ndarray:
    """Powers of numbers; those that are not whole are of the absolute value with its sign, as are negative ones.

    >>> powered(np.array([-4.0, 0.0, 9.0]), 0.5).tolist()
    [-2.0, 0.0, 3.0]
    """
    if power == int(power) and power >= 0:
        return raised(series, int(power))
    size = np.abs(series)
    return np.asarray(np.sign(series) * np.power(size, power, out=np.zeros_like(size), where=size > 0))


def powered_one(value: float, power: float) -> float:
    """`powered` of one number, by C's own ``pow`` where it is no product.

    >>> powered_one(-4.0, 0.5), powered_one(3.0, 2)
    (-2.0, 9.0)
    """
    if is_product(power):
        made = value
        for _ in range(int(power) - 1):
            made = made * value
        return made
    try:
        if power == int(power) and power >= 0:
            return math.pow(value, power)
        return ((value > 0) - (value < 0)) * math.pow(abs(value), power) if value else 0.0
    except OverflowError:
        return math.inf
