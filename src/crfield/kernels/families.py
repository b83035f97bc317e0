"""Contract of the kernels of threshold families: windows, codes and histograms.

A family is one series g of numbers and many tests of it, g < k or g > k for every k of a grid. Its columns need not
be made to know their inner products with a gradient. With m sorted thresholds every value gets a *code*

    code(v) = #{k < v} + #{k ≤ v}   ∈ 0 … 2m            even between thresholds, odd on one of them

    v < k_j ⇔ code ≤ 2j     v ≤ k_j ⇔ code ≤ 2j + 1     v > k_j ⇔ code ≥ 2j + 2     v ≥ k_j ⇔ code ≥ 2j + 1

so the gradient summed by code, and then cumulatively, is the inner product of all four tests at all thresholds: one
pass over the steps instead of one for each column. A test that must hold at all steps of a window is a test of the
window's maximum or minimum, so windows change the series and not the count. `slide` finds these, and means, in three
operations a step whatever the width, by blocks (van Herk 1992; Gil & Werman 1993); sums are never subtracted, so
nothing drifts, and a stream that keeps one block gets the same bits.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice

KINDS = {"max": 0, "min": 1, "mean": 2}


def slide(values: np.ndarray, offsets: np.ndarray, *, width: int, kind: str) -> np.ndarray:
    """(N,) the max, min or mean of the ``width`` steps that end at each step, fewer where a sequence begins.

    >>> slide(np.array([3.0, 1.0, 2.0, 9.0]), np.array([0, 3, 4]), width=2, kind="max").tolist()
    [3.0, 3.0, 2.0, 9.0]
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if kind not in KINDS:
        raise ShapeError(f"kind must be one of {sorted(KINDS)}, got {kind!r}.")
    if values.ndim != 1 or offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values):
        raise ShapeError(f"values must be (N,) and offsets run from 0 to N, got {values.shape} and {offsets.shape}.")
    if (np.diff(offsets) < 0).any():
        raise ShapeError("offsets must never fall.")
    if width < 1:
        raise ShapeError(f"width must be ≥ 1, got {width}.")
    out = np.empty_like(values)
    longest = int(np.diff(offsets).max(initial=1))
    choice.body("families").slide(values, offsets, min(int(width), max(longest, 1)), KINDS[kind], out)
    return out


def codes(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(N,) uint16 codes of values against sorted, distinct thresholds (m,), m ≤ 32,000.

    >>> codes(np.array([0.0, 1.0, 1.5, 2.0, 3.0]), np.array([1.0, 2.0])).tolist()
    [0, 1, 2, 3, 4]
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    thresholds = np.ascontiguousarray(thresholds, dtype=np.float64)
    if values.ndim != 1 or thresholds.ndim != 1 or len(thresholds) > 32_000:
        raise ShapeError(f"values and at most 32,000 thresholds must be 1-D, got {values.shape}, {thresholds.shape}.")
    if not (np.diff(thresholds) > 0).all() or not np.isfinite(thresholds).all():
        raise ShapeError("thresholds must be finite and rise.")
    if not np.isfinite(values).all():
        raise ShapeError("values must be finite.")
    out = np.empty(len(values), np.uint16)
    choice.body("families").codes(values, thresholds, out)
    return out


def histograms(
    codes: np.ndarray, rows: np.ndarray, gradient: np.ndarray, *, n_bins: int, n_jobs: int = 1
) -> np.ndarray:
    """(S, Q, n_bins, M) sums of the gradient (R, M) by code.

        out[s, q, b] = Σ_r gradient[r] · 1[codes[s, rows[q, r]] = b]

    ``codes`` (S, N) are of S series, ``rows`` (Q, R) say which step each row of the gradient reads, one list a lag.
    Threads share the S · Q histograms, so the bits do not depend on their number.

    >>> histograms(np.array([[0, 1, 1]]), np.array([[0, 1, 2]]), np.array([[1.0], [2.0], [4.0]]), n_bins=2).tolist()
    [[[[1.0], [6.0]]]]
    """
    codes = np.ascontiguousarray(codes, dtype=np.uint16)
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    gradient = np.ascontiguousarray(gradient, dtype=np.float64)
    if codes.ndim != 2 or rows.ndim != 2 or gradient.ndim != 2 or rows.shape[1] != len(gradient):
        raise ShapeError(
            f"codes must be (S, N), rows (Q, R) and the gradient (R, M), got {codes.shape}, {rows.shape} and "
            f"{gradient.shape}."
        )
    if rows.size and (rows.min() < 0 or rows.max() >= codes.shape[1]):
        raise ShapeError(f"rows must lie in 0 … {codes.shape[1] - 1}, got {rows.min()} … {rows.max()}.")
    if codes.size and codes.max() >= n_bins:
        raise ShapeError(f"codes must be below {n_bins}, got {codes.max()}.")
    out = np.zeros((codes.shape[0], rows.shape[0], int(n_bins), gradient.shape[1]))
    choice.body("families").histograms(codes, rows, gradient, int(n_bins), out, max(int(n_jobs), 1))
    return out
