"""Cells that were not observed: NaN in rows, integrated out.

A sensor that was silent says nothing, and a density says how: the cells that are missing are integrated away, which
leaves the density of the others,

    p(x_o | c) = ∫ p(x_o, x_m | c) dx_m

Independent columns simply leave out what is missing; a normal density with covariances keeps the block of its mean
and covariance that was observed; a mixture keeps its weights and does so in every component. A row without any cell
has the density 1 under every label. That is right where a cell is missing for a reason that has nothing to do with
its value (*missing at random*: Rubin 1976, *Inference and missing data*); where silence itself tells something, give
it a column of its own.

Rows that lack nothing go the way they always went, and to the bit. Those that do are found by what comes out: NaN
passes through every sum, so that one look at a column of scores tells of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crfield.kernels import emission

_LOG_2PI = float(np.log(2 * np.pi))


def column_scores(
    rows: np.ndarray, mean: np.ndarray, deviation: np.ndarray, bias: np.ndarray, base: float | np.ndarray, n_jobs: int
) -> np.ndarray:
    """(N, M) log densities of independent normal columns with ``mean`` and ``deviation`` (M, D).

        out[n, k] = base[k] + Σ_{d observed} log N(rows[n, d]; mean[k, d], deviation[k, d])

    ``bias`` (M,) is what a row without missing cells has beside its squares: base − Σ_d log σ_d − ½ D log 2π.

    >>> rows = np.array([[0.0, np.nan], [np.nan, np.nan]])
    >>> column_scores(rows, np.zeros((1, 2)), np.ones((1, 2)), np.full(1, -_LOG_2PI), 0.0, 1).round(3).tolist()
    [[-0.919], [0.0]]
    """
    inverse = 1.0 / deviation
    out = emission.normal_scores(rows, mean, inverse, bias, n_jobs=n_jobs)
    lacking = np.flatnonzero(np.isnan(out[:, 0]))
    if len(lacking):
        parts, base = -np.log(deviation) - 0.5 * _LOG_2PI, np.broadcast_to(base, bias.shape)
        out[lacking] = emission.observed_scores(rows[lacking], mean, inverse, parts, base, n_jobs=n_jobs)
    return out


def column_moments(
    rows: np.ndarray, responsibility: np.ndarray, centre: np.ndarray, *, gaps: bool, n_jobs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, first and second moments (M, D) about ``centre`` of the cells that were observed.

    Without ``gaps`` the mass is the same for all columns, (M, 1).
    """
    if gaps:
        return emission.observed_moments(rows, responsibility, centre, n_jobs=n_jobs)
    mass, first, second = emission.normal_moments(rows, responsibility, centre, n_jobs=n_jobs)
    return mass[:, None], first, second


def patterns(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows with missing cells, those that lack the same columns together: columns (D,) that they lack, row numbers.

    >>> rows = np.array([[np.nan, 1], [2, 3], [np.nan, 4]])
    >>> [(lacking.tolist(), here.tolist()) for lacking, here in patterns(rows)]
    [([True, False], [0, 2])]
    """
    lacking = np.isnan(rows)
    some = np.flatnonzero(lacking.any(axis=1))
    if not len(some):
        return
    kinds, which = np.unique(lacking[some], axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(kinds)))
    for kind, own in zip(kinds, np.split(order, ends[:-1])):
        yield kind, some[own]


def filled(rows: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Rows with the middle (D,) of the column in missing cells, to draw starts from.

    >>> filled(np.array([[np.nan, 1.0]]), np.array([7.0, 8.0])).tolist()
    [[7.0, 1.0]]
    """
    return np.where(np.isnan(rows), middle, rows)
