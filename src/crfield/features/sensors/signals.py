"""Numbers about one window of one signal: level, spread, extremes, energy, jerk, crossings.

Each function takes windows (W, n), one a row, and gives one number a row; a row depends on its own samples only, so
that a window heard in a stream gives the same bits as among a thousand. Constant windows are decided: they have no
spread, no crossings and the autocorrelation 0. Logarithms are of what is measured plus `TINY`, so that silence is a
low number and not an infinite one. They are C's own, number by number: NumPy's are rounded differently from one
processor to the next, and a model on a robot is to hear what it heard in training.
"""

from __future__ import annotations

import math

import numpy as np

TINY = 1e-6


def log(values: np.ndarray) -> np.ndarray:
    """(W,) natural logarithms, by C.

    >>> log(np.array([1.0])).tolist()
    [0.0]
    """
    return np.array([math.log(value) for value in values.tolist()])


def log1p(values: np.ndarray) -> np.ndarray:
    """(W,) log (1 + x), by C.

    >>> log1p(np.array([0, 0])).tolist()
    [0.0, 0.0]
    """
    return np.array([math.log1p(value) for value in values.tolist()])


def mean(windows: np.ndarray) -> np.ndarray:
    """(W,) Σ x / n.

    >>> mean(np.array([[1.0, 3.0]])).tolist()
    [2.0]
    """
    return np.asarray(windows.mean(axis=1))


def deviation(windows: np.ndarray) -> np.ndarray:
    """(W,) √(Σ (x − mean)² / n).

    >>> deviation(np.array([[1.0, 3.0]])).tolist()
    [1.0]
    """
    return np.asarray(np.sqrt(_centred_squares(windows)))


def least(windows: np.ndarray) -> np.ndarray:
    """(W,) the smallest sample, measured from the mean.

    >>> least(np.array([[1.0, 3.0]])).tolist()
    [-1.0]
    """
    return np.asarray(windows.min(axis=1) - windows.mean(axis=1))


def greatest(windows: np.ndarray) -> np.ndarray:
    """(W,) the largest sample, measured from the mean.

    >>> greatest(np.array([[1.0, 3.0]])).tolist()
    [1.0]
    """
    return np.asarray(windows.max(axis=1) - windows.mean(axis=1))


def middle_half(windows: np.ndarray) -> np.ndarray:
    """(W,) the width of the middle half of the samples: the sample at 3n/4 less that at n/4, in order of size.

    >>> middle_half(np.array([[4.0, 1.0, 2.0, 3.0]])).tolist()
    [2.0]
    """
    n = windows.shape[1]
    low, high = n // 4, min(3 * n // 4, n - 1)
    ordered = np.partition(windows, (low, high), axis=1)
    return np.asarray(ordered[:, high] - ordered[:, low])


def energy(windows: np.ndarray) -> np.ndarray:
    """(W,) Σ x² / n, gravity included.

    >>> energy(np.array([[1.0, 3.0]])).tolist()
    [5.0]
    """
    return np.asarray((windows * windows).mean(axis=1))


def log_energy(windows: np.ndarray) -> np.ndarray:
    """(W,) log of the mean square about the mean.

    >>> log_energy(np.array([[1.0, 3.0], [2.0, 2.0]])).round(3).tolist()
    [0.0, -13.816]
    """
    return log(_centred_squares(windows) + TINY)


def jerk(windows: np.ndarray) -> np.ndarray:
    """(W,) mean absolute change from sample to sample; 0 for a window of one.

    >>> jerk(np.array([[1.0, 3.0, 0.0]])).tolist()
    [2.5]
    """
    if windows.shape[1] < 2:
        return np.zeros(len(windows))
    return np.asarray(np.abs(np.diff(windows, axis=1)).mean(axis=1))


def log_jerk(windows: np.ndarray) -> np.ndarray:
    """(W,) log of `jerk`.

    >>> log_jerk(np.array([[1.0, 2.0]])).round(3).tolist()
    [0.0]
    """
    return log(jerk(windows) + TINY)


def crossings(windows: np.ndarray) -> np.ndarray:
    """(W,) share of neighbouring samples that lie on different sides of the window's mean.

    >>> crossings(np.array([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])).tolist()
    [1.0, 0.0]
    """
    if windows.shape[1] < 2:
        return np.zeros(len(windows))
    above = windows > windows.mean(axis=1, keepdims=True)
    return np.asarray((above[:, 1:] != above[:, :-1]).mean(axis=1))


def autocorrelation(windows: np.ndarray, lag: int) -> np.ndarray:
    """(W,) Σ_t (x_t − mean)(x_{t+lag} − mean) / Σ_t (x_t − mean)²; 0 where nothing varies or the lag is too long.

    >>> autocorrelation(np.array([[1.0, -1.0, 1.0, -1.0]]), 2).tolist()
    [0.5]
    """
    if lag >= windows.shape[1]:
        return np.zeros(len(windows))
    centred = windows - windows.mean(axis=1, keepdims=True)
    own = (centred * centred).sum(axis=1)
    shifted = (centred[:, : windows.shape[1] - lag] * centred[:, lag:]).sum(axis=1)
    return np.asarray(np.where(own > TINY, shifted / np.where(own > TINY, own, 1.0), 0.0))


def correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(W,) correlation of the samples of two signals in the same windows; 0 where one of them is constant.

    >>> correlation(np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 2.0, 1.0]])).round(6).tolist()
    [-1.0]
    """
    first = one - one.mean(axis=1, keepdims=True)
    second = other - other.mean(axis=1, keepdims=True)
    size = np.sqrt((first * first).sum(axis=1) * (second * second).sum(axis=1))
    return np.asarray(np.where(size > TINY, (first * second).sum(axis=1) / np.where(size > TINY, size, 1.0), 0.0))


def _centred_squares(windows: np.ndarray) -> np.ndarray:
    centred = windows - windows.mean(axis=1, keepdims=True)
    return np.asarray((centred * centred).mean(axis=1))
