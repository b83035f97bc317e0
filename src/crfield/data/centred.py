"""Rows about their middle: what looks at differences alone should not see how far from zero a column lies.

A clock in seconds since 1970 or a map in metres has values whose squares are 10¹⁸ or 10¹³, beside which the few
units by which rows differ are rounding. Whoever needs distances or phases takes the middle away first.

Dense rows are taken about the mean of every column. Sparse ones must stay sparse, so there the middle is zero but for
columns that every row has and that lie far from zero for their spread; the others are as near to it as they are wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FAR = 8.0  # times its range away from zero, a full sparse column is taken about its middle
BLOCK = 8192  # rows at a time


def middle_of(rows: Any) -> np.ndarray:
    """(K,) the middle of rows (R, K), dense or CSR; see the module.

    >>> middle_of(np.array([[1e9, 0.0], [1e9 + 2, 1.0]])).tolist()
    [1000000001.0, 0.5]
    """
    count, width = rows.shape
    if not count or not width:
        return np.zeros(width)
    if isinstance(rows, np.ndarray):
        first = rows[0]
        with np.errstate(over="ignore", invalid="ignore"):
            middle = first + (rows - first).mean(axis=0)  # from a row on, so that digits are not lost in the sum
        return np.where(np.isfinite(middle), middle, 0.0)
    low, high, full = _bounds(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        far = full & (np.minimum(np.abs(low), np.abs(high)) > FAR * (high - low))
        return np.where(far, low + (high - low) / 2, 0.0)


def centred(rows: Any, middle: np.ndarray) -> Any:
    """The rows less the middle (K,); CSR rows stay sparse in all columns whose middle is zero.

    >>> from scipy.sparse import csr_array
    >>> centred(csr_array(np.array([[0.0, 7.0], [1.0, 9.0]])), np.array([0.0, 8.0])).toarray().tolist()
    [[0.0, -1.0], [1.0, 1.0]]
    """
    if isinstance(rows, np.ndarray):
        with np.errstate(over="ignore"):
            return rows - middle
    moved = np.flatnonzero(middle)
    if not len(moved):
        return rows
    from scipy.sparse import csr_array

    kept = csr_array(rows, copy=True)
    kept.data[middle[kept.indices] != 0] = 0.0
    block = rows[:, moved].toarray() - middle[moved]
    count = rows.shape[0]
    places = np.tile(moved, count)
    bounds = np.arange(count + 1) * len(moved)
    return csr_array(kept + csr_array((block.ravel(), places, bounds), shape=rows.shape))


def column_variances(rows: Any, weight: np.ndarray | None = None) -> np.ndarray:
    """(K,) variance of every column of rows (R, K), which count by ``weight`` (R,); taken about its mean.

    >>> column_variances(np.array([[1e9, 1.0], [1e9 + 2, 1.0]])).tolist()
    [1.0, 0.0]
    """
    count, width = rows.shape
    if not count or not width:
        return np.zeros(width)
    share = np.full(count, 1.0 / count) if weight is None else weight / weight.sum()
    if isinstance(rows, np.ndarray):
        first = rows[0]
        parts = [slice(a, a + BLOCK) for a in range(0, count, BLOCK)]
        middle = sum((share[part] @ (rows[part] - first) for part in parts), np.zeros(width))
        return sum((share[part] @ (rows[part] - first - middle) ** 2 for part in parts), np.zeros(width))
    owner, indices = share[np.repeat(np.arange(count), np.diff(rows.indptr))], rows.indices
    low, _, full = _bounds(rows)
    values = rows.data - np.where(full, low, 0.0)[indices]
    middle = np.bincount(indices, owner * values, width)
    around = np.bincount(indices, owner * (values - middle[indices]) ** 2, width)
    missing = np.where(full, 0.0, np.maximum(1.0 - np.bincount(indices, owner, width), 0.0))
    return np.asarray(around + missing * middle**2)


def _bounds(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(K,) lowest and highest stored value of every column of CSR rows, and whether all rows have it."""
    width = rows.shape[1]
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(low, rows.indices, rows.data)
    np.maximum.at(high, rows.indices, rows.data)
    return low, high, np.bincount(rows.indices, minlength=width) == rows.shape[0]
