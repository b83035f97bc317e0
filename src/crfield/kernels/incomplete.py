"""Steps of boosting with incomplete information: one for all weights at once, or one weight after the other.

Both minimise a bound on the change of the loss that is a sum of two exponentials for each weight λ with the counts
A⁺, A⁻ ≥ 0, and the ridge ½ l2 λ²:

    A⁺ e^{CΔ} − A⁻ e^{−CΔ} + l2 (λ + Δ) = 0

Without a ridge the step is log(A⁻ / A⁺) / 2C, and infinite where a count is zero: a feature seen with one label only.
``smoothing`` is then added to both counts, and steps are cut at ``longest``; either leaves a shorter step in the same
direction, so the loss still falls. With a ridge (a Gaussian prior, hence *MAP step*) the equation has a finite root.

`bag_sums` and `bag_expected` are the sums over the foregrounds of bags of points (`boosting.incomplete.hidden.bag`).

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
        raise InputError("scale and longest must be > 0, l2 and smoothing ≥ 0.")
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


def bag_sums(
    counts: Any,
    per_point: np.ndarray,
    shares: np.ndarray,
    hidden: np.ndarray,
    log_on: np.ndarray,
    log_off: np.ndarray,
    table: np.ndarray,
    labels: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(N, Y) log Σ_h q₀(h) e^s of bags, and (nnz, Y) the share r of the foreground in each entry's points.

        d_o, d_b = per_point · table[j], table[K + j], less those of the label where ``labels`` (N,) are given
        hidden     n log(π e^{d_o} + (1 − π) e^{d_b})          r = π e^{d_o} / (…)
        known      n (r d_o + (1 − r) d_b)                     r = shares

    ``counts`` (N, K) is CSR; ``log_on`` and ``log_off`` are log π and log(1 − π) of its entries, (nnz,) as all else.

    >>> import scipy.sparse as sp
    >>> logs, shares = bag_sums(
    ...     sp.csr_array([[2.0]]), np.array([0.5]), np.array([0.5]), np.array([True]), np.log([0.5]), np.log([0.5]),
    ...     np.array([[np.log(9.0), 0.0], [0.0, 0.0]]))
    >>> np.exp(logs).round(6).tolist(), shares.round(6).tolist()  # (½ · 3 + ½ · 1)², ½ · 3 / 2
    ([[4.0, 1.0]], [[0.75, 0.5]])
    """
    n, words = counts.shape
    nnz, n_labels = len(counts.data), table.shape[1]
    found = [np.ascontiguousarray(a, dtype=np.float64) for a in (counts.data, per_point, shares, log_on, log_off)]
    flags = np.ascontiguousarray(hidden, dtype=np.uint8)
    if flags.shape != (nnz,) or any(a.shape != (nnz,) for a in found) or table.shape[0] != 2 * words:
        raise ShapeError(
            f"bags of {words} words, {nnz} entries in all, need {2 * words} rows of weights, got {table.shape}."
        )
    given = np.full(n, -1, np.int64) if labels is None else np.ascontiguousarray(labels, dtype=np.int64)
    if given.shape != (n,) or (n and (given.min() < -1 or given.max() >= n_labels)):
        raise InputError(f"labels must be {n} codes below {n_labels}.")
    logs, tilted = np.empty((n, n_labels)), np.empty((nnz, n_labels))
    choice.body("incomplete").bag_sums(
        np.ascontiguousarray(counts.indptr, dtype=np.int64),
        np.ascontiguousarray(counts.indices, dtype=np.int64),
        *found,
        flags,
        np.ascontiguousarray(table, dtype=np.float64),
        given,
        logs,
        tilted,
    )
    return logs, tilted


def bag_expected(
    counts: Any, per_point: np.ndarray, tilted: np.ndarray, weight: np.ndarray, labels: np.ndarray | None = None
) -> np.ndarray:
    """(2K, Y) Σ_i weight(i, y) E[columns | i, y] in column y, or in that of the label of i.

    Entry e of bag i and word j adds weight(i, y) · n · per_point · r to row j, and with 1 − r to row K + j.

    >>> import scipy.sparse as sp
    >>> bag_expected(sp.csr_array([[2.0]]), np.array([0.5]), np.array([[0.75, 0.5]]), np.ones((1, 2))).tolist()
    [[0.75, 0.5], [0.25, 0.5]]
    """
    n, words = counts.shape
    nnz, n_labels = len(counts.data), weight.shape[1]
    found = [np.ascontiguousarray(a, dtype=np.float64) for a in (counts.data, per_point, tilted, weight)]
    if [a.shape for a in found] != [(nnz,), (nnz,), (nnz, n_labels), (n, n_labels)]:
        raise ShapeError("shares and weights do not fit the bags.")
    given = np.full(n, -1, np.int64) if labels is None else np.ascontiguousarray(labels, dtype=np.int64)
    if given.shape != (n,) or (n and (given.min() < -1 or given.max() >= n_labels)):
        raise InputError(f"labels must be {n} codes below {n_labels}.")
    out = np.zeros((2 * words, n_labels))
    choice.body("incomplete").bag_expected(
        np.ascontiguousarray(counts.indptr, dtype=np.int64),
        np.ascontiguousarray(counts.indices, dtype=np.int64),
        *found,
        given,
        out,
    )
    return out
