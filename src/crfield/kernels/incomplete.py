"""Steps of boosting with incomplete information: one for all weights at once, or one weight after the other.

Both minimise a bound on the change of the loss that is a sum of two exponentials for each weight λ with the counts
A⁺, A⁻ ≥ 0, and the ridge ½ l2 λ²:

    A⁺ e^{CΔ} − A⁻ e^{−CΔ} + l2 (λ + Δ) = 0

Without a ridge the step is log(A⁻ / A⁺) / 2C, and infinite where a count is zero: a feature seen with one label only.
``smoothing`` is then added to both counts, and steps are cut at ``longest``; either leaves a shorter step in the same
direction, so the loss still falls. With a ridge (a Gaussian prior, hence *MAP step*) the equation has a finite root.

`sweep` goes through the columns one by one and keeps scores and cell weights up to date, which costs O(nnz H Y) for
all of them. Arrays have cells first here, (M, Y), since each step touches a few cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice

LOSS_CODES = {"exp": 0, "exp-mean": 0, "joint": 1, "jensen": 2, "mix": 3}


def map_step(
    plus: np.ndarray,
    minus: np.ndarray,
    weights: np.ndarray,
    scale: float,
    *,
    l2: float = 0.0,
    smoothing: float = 1e-10,
    longest: float = 2.0,
) -> np.ndarray:
    """(W,) the roots Δ of A⁺ e^{CΔ} − A⁻ e^{−CΔ} + l2 (λ + Δ) = 0, with C = ``scale``.

    >>> map_step(np.array([1.0, 0.0]), np.array([2.0, 0.0]), np.zeros(2), 1.0).round(6).tolist()
    [0.346574, 0.0]
    >>> step = map_step(np.array([0.0]), np.array([2.0]), np.array([0.5]), 1.0, l2=1.0)
    >>> abs(float(-2.0 * np.exp(-step[0]) + 0.5 + step[0])) < 1e-12
    True
    """
    plus, minus, weights = (np.ascontiguousarray(a, dtype=np.float64) for a in (plus, minus, weights))
    if plus.ndim != 1 or not plus.shape == minus.shape == weights.shape:
        raise ShapeError(
            f"counts and weights must be 1-D and alike, got {plus.shape}, {minus.shape}, {weights.shape}."
        )
    if not (scale > 0 and np.isfinite(scale) and l2 >= 0 and smoothing >= 0 and longest > 0):
        raise InputError("scale and longest must be above 0, l2 and smoothing at least 0.")
    out = np.empty_like(weights)
    choice.body("incomplete").map_step(plus, minus, weights, float(scale), l2, smoothing, longest, out)
    return out


def sweep(
    columns: Any,
    row_offsets: np.ndarray,
    cell_offsets: np.ndarray,
    labels: np.ndarray,
    prior: np.ndarray,
    weight: np.ndarray,
    scores: np.ndarray,
    heavy: np.ndarray,
    table: np.ndarray,
    *,
    loss: str,
    l2: float = 0.0,
    smoothing: float = 1e-10,
    longest: float = 2.0,
    tight: bool = True,
) -> None:
    """One step of every weight in ``table`` (D, Y) in turn; it, ``scores`` and ``heavy`` (M, Y) are changed in place.

    ``columns`` (R, D) is CSC; row r stands for the cells ``row_offsets[r] … row_offsets[r + 1]``: those of a datum,
    or a single one. Datum i has the cells ``cell_offsets[i] …``, label, prior of its cells (M,) and weight.
    ``scores`` are s(x, h, y), ``heavy`` the weights W of `boosting.incomplete.losses`.

    With ``tight`` the bound is |g| e^{±Δ} + 1 − |g|, scaled by the largest value C of the column: data in which the
    feature is silent do not slow it down. Else it is the one of the paper's algorithm 2, (1 + g)/2 e^Δ + (1 − g)/2
    e^{−Δ} for every datum, g ∈ [−1, 1].
    """
    indptr, indices = (np.ascontiguousarray(a, dtype=np.int64) for a in (columns.indptr, columns.indices))
    rows, width = columns.shape
    cells, n_labels = scores.shape
    offsets = np.ascontiguousarray(cell_offsets, dtype=np.int64)
    spans = np.ascontiguousarray(row_offsets, dtype=np.int64)
    fine = (
        heavy.shape == scores.shape
        and table.shape == (width, n_labels)
        and len(spans) == rows + 1
        and prior.shape == (cells,)
        and labels.shape == weight.shape == (len(offsets) - 1,)
        and all(a.dtype == np.float64 and a.flags.c_contiguous and a.flags.writeable for a in (scores, heavy, table))
    )
    if not fine:
        raise ShapeError("the arrays of a sweep do not fit each other.")
    for runs in (offsets, spans):
        if len(runs) < 1 or runs[0] != 0 or runs[-1] != cells or (np.diff(runs) < 0).any():
            raise ShapeError(f"offsets must rise from 0 to {cells}, the number of cells.")
    if len(labels) and (labels.min() < 0 or labels.max() >= n_labels):
        raise InputError(f"labels must lie in 0 … {n_labels - 1}.")
    if loss not in LOSS_CODES:
        raise InputError(f"sequential updates know the losses {', '.join(LOSS_CODES)}, got {loss!r}.")
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    choice.body("incomplete").sweep(
        indptr,
        indices,
        np.ascontiguousarray(columns.data, dtype=np.float64),
        spans,
        offsets,
        owner,
        np.ascontiguousarray(labels, dtype=np.int64),
        np.ascontiguousarray(prior, dtype=np.float64),
        np.ascontiguousarray(weight, dtype=np.float64),
        scores,
        heavy,
        table,
        LOSS_CODES[loss],
        float(l2),
        float(smoothing),
        float(longest),
        bool(tight),
    )
