"""The spectrum of a window: energies of bands, their logarithms, entropy, peak; and the entropy of its pattern.

    P(f) = |Σ_t (x_t − mean) h_t e^(−2πi f t / n)|² / n        h a Hann window

A band's energy is the sum of P over its frequencies. A window of s seconds tells frequencies 1/s apart, so a band
narrower than that may be empty; its energy is then 0. Sample entropy (Richman & Moorman 2000) asks how often two
stretches of the window that agree over two samples agree over a third. It compares all pairs, n² of them, so longer
windows are first made coarser (Costa, Goldberger & Peng 2002): means of neighbours, at most `MOST` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from crfield.features.sensors.signals import TINY, log1p

MOST = 64  # samples of a window whose pairs are compared
TOLERANCE = 0.2  # deviations of a window by which samples that agree may differ
_AT_ONCE = 256  # windows whose pairs are in memory together


def powers(windows: np.ndarray) -> np.ndarray:
    """(W, n // 2 + 1) P at the frequencies 0, rate / n, 2 rate / n, … .

    >>> powers(np.array([[1.0, 0.0, -1.0, 0.0]])).round(3).tolist()
    [[0.167, 0.833, 0.167]]
    """
    n = windows.shape[1]
    bell = np.hanning(n + 2)[1:-1]
    size = np.sqrt((bell * bell).mean())
    spectrum = np.fft.rfft((windows - windows.mean(axis=1, keepdims=True)) * (bell / size), axis=1)
    return np.asarray((spectrum.real**2 + spectrum.imag**2) / n)


def frequencies(length: int, rate: float) -> np.ndarray:
    """(length // 2 + 1,) in hertz.

    >>> frequencies(4, 52.0).tolist()
    [0.0, 13.0, 26.0]
    """
    return np.arange(length // 2 + 1) * (rate / length)


def band_energies(power: np.ndarray, places: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """(W, len(edges) − 1) sums of P over low ≤ f < high; the last band has its upper end.

    >>> band_energies(np.array([[1.0, 2.0, 4.0]]), np.array([0.0, 1.0, 2.0]), (0.5, 1.5, 2.0)).tolist()
    [[2.0, 4.0]]
    """
    out = np.zeros((len(power), len(edges) - 1))
    for k, (low, high) in enumerate(pairwise(edges)):
        first = int(np.searchsorted(places, low))
        stop = int(np.searchsorted(places, high, side="right" if k == len(edges) - 2 else "left"))
        if stop > first:
            out[:, k] = power[:, first:stop].sum(axis=1)
    return out


def spectral_entropy(power: np.ndarray) -> np.ndarray:
    """(W,) −Σ p log p / log F over the F frequencies above 0, p = P / Σ P; 0 where there is no power.

    >>> spectral_entropy(np.array([[9.0, 1.0, 1.0], [9.0, 0.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    rest = power[:, 1:]
    if rest.shape[1] < 2:
        return np.zeros(len(power))
    total = rest.sum(axis=1, keepdims=True)
    share = rest / np.where(total > TINY, total, 1.0)
    return np.asarray(-(share * np.log(share + 1e-300)).sum(axis=1) / np.log(rest.shape[1])) + 0.0


def peak(power: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(W,) the frequency above 0 with most power; 0 where there is none.

    >>> peak(np.array([[9.0, 1.0, 2.0]]), np.array([0.0, 1.0, 2.0])).tolist()
    [2.0]
    """
    if power.shape[1] < 2:
        return np.zeros(len(power))
    best = 1 + np.argmax(power[:, 1:], axis=1)
    return np.asarray(np.where(power[:, 1:].sum(axis=1) > TINY, places[best], 0.0))


def sample_entropy(windows: np.ndarray, *, tolerance: float = TOLERANCE) -> np.ndarray:
    """(W,) log (1 + B) − log (1 + A): B pairs of stretches agree over two samples, A of them over three.

    Two samples agree when they differ by at most ``tolerance`` deviations of the window. The added ones keep it
    finite in short windows; a constant window has 0.

    >>> bool(sample_entropy(np.tile([0.0, 1.0], 16)[None])[0] < 0.1)
    True
    >>> rng = np.random.default_rng(0)
    >>> bool(sample_entropy(rng.normal(size=(1, 64)))[0] > 1)
    True
    """
    out = np.zeros(len(windows))
    for start in range(0, len(windows), _AT_ONCE):
        part = _coarse(windows[start : start + _AT_ONCE])
        n = part.shape[1] - 2
        if n < 2:
            continue
        centred = part - part.mean(axis=1, keepdims=True)
        reach = tolerance * np.sqrt((centred * centred).mean(axis=1))
        near = np.abs(part[:, :, None] - part[:, None, :]) <= reach[:, None, None]
        two = near[:, :n, :n] & near[:, 1 : n + 1, 1 : n + 1]
        three = two & near[:, 2 : n + 2, 2 : n + 2]
        agree = (log1p(pairs.sum(axis=(1, 2)) - n) for pairs in (two, three))
        out[start : start + len(part)] = np.where(reach > 0, next(agree) - next(agree), 0.0)
    return out


def _coarse(windows: np.ndarray) -> np.ndarray:
    factor = -(-windows.shape[1] // MOST)
    if factor == 1:
        return windows
    usable = windows.shape[1] // factor * factor
    return np.asarray(windows[:, :usable].reshape(len(windows), -1, factor).mean(axis=2))
