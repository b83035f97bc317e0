"""Contract of the kernels of emissions: log densities of independent normal columns, and their weighted moments.

These two passes over the rows are what a step of Baum–Welch costs beside the chain itself: with L labels and D
columns O(N L D) each. Labels lie side by side in the vectors of the compiled body, so short rows cost little.

Each has a form for rows with missing cells, NaN, which it leaves out. The plain forms know nothing of them: whoever
has none pays nothing.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice


def normal_scores(
    rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray, bias: np.ndarray, *, n_jobs: int = 1
) -> np.ndarray:
    """(N, L) scores of rows (N, D).

        out[n, c] = bias[c] − ½ Σ_d ((rows[n, d] − mean[c, d]) · inverse[c, d])²

    >>> normal_scores(np.array([[3.0]]), np.array([[1.0], [3.0]]), np.ones((2, 1)), np.zeros(2)).tolist()
    [[-2.0, 0.0]]
    """
    rows, mean, inverse, bias = (np.ascontiguousarray(a, np.float64) for a in (rows, mean, inverse, bias))
    _check_densities(rows, mean, inverse, bias)
    out = np.empty((len(rows), len(mean)))
    choice.body("emission").normal_scores(rows, mean, inverse, bias, out, max(int(n_jobs), 1))
    return out


def normal_moments(
    rows: np.ndarray, responsibility: np.ndarray, centre: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass (L,), first and second moments (L, D) of rows (N, D) about ``centre`` (L, D).

        mass[c] = Σ_n r[n, c]     first[c] = Σ_n r[n, c] u[n, c]     second[c] = Σ_n r[n, c] u[n, c]²

    with ``responsibility`` r (N, L) and u[n, c] = x_n − centre[c]. Where the centre is near the mean,
    second / mass − (first / mass)² keeps the digits of the variance. Threads share the rows: the same number of them
    gives the same bits.

    >>> normal_moments(np.array([[1.0], [3.0]]), np.ones((2, 1)), np.array([[2.0]]))
    (array([2.]), array([[0.]]), array([[2.]]))
    """
    rows, responsibility, centre = (np.ascontiguousarray(a, np.float64) for a in (rows, responsibility, centre))
    _check_moments(rows, responsibility, centre)
    mass, first, second = np.empty(len(centre)), np.empty_like(centre), np.empty_like(centre)
    choice.body("emission").normal_moments(rows, responsibility, centre, mass, first, second, max(int(n_jobs), 1))
    return mass, first, second


def observed_scores(
    rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray, parts: np.ndarray, bias: np.ndarray, *, n_jobs: int = 1
) -> np.ndarray:
    """(N, L) scores of the cells of rows (N, D) that are not NaN.

        out[n, c] = bias[c] + Σ_{d observed} ( parts[c, d] − ½ ((rows[n, d] − mean[c, d]) · inverse[c, d])² )

    >>> rows = np.array([[3.0, np.nan], [np.nan, np.nan]])
    >>> observed_scores(rows, np.ones((1, 2)), np.ones((1, 2)), np.array([[0.5, 9.0]]), np.zeros(1)).tolist()
    [[-1.5], [0.0]]
    """
    rows, mean, inverse, parts, bias = (
        np.ascontiguousarray(a, np.float64) for a in (rows, mean, inverse, parts, bias)
    )
    _check_densities(rows, mean, inverse, bias)
    if parts.shape != mean.shape:
        raise ShapeError(f"parts must be (L, D) as mean is, {mean.shape}, got {parts.shape}.")
    out = np.empty((len(rows), len(mean)))
    choice.body("emission").observed_scores(rows, mean, inverse, parts, bias, out, max(int(n_jobs), 1))
    return out


def observed_moments(
    rows: np.ndarray, responsibility: np.ndarray, centre: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, first and second moments, each (L, D): `normal_moments` of the cells that are not NaN.

    >>> observed_moments(np.array([[1.0], [3.0], [np.nan]]), np.ones((3, 1)), np.array([[2.0]]))
    (array([[2.]]), array([[0.]]), array([[2.]]))
    """
    rows, responsibility, centre = (np.ascontiguousarray(a, np.float64) for a in (rows, responsibility, centre))
    _check_moments(rows, responsibility, centre)
    mass, first, second = np.empty_like(centre), np.empty_like(centre), np.empty_like(centre)
    choice.body("emission").observed_moments(rows, responsibility, centre, mass, first, second, max(int(n_jobs), 1))
    return mass, first, second


def _check_densities(rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray, bias: np.ndarray) -> None:
    if rows.ndim != 2 or mean.ndim != 2 or mean.shape != inverse.shape or mean.shape[1] != rows.shape[1]:
        raise ShapeError(
            f"rows must be (N, D), mean and inverse (L, D), got {rows.shape}, {mean.shape} and {inverse.shape}."
        )
    if bias.shape != (len(mean),) or not len(mean):
        raise ShapeError(f"bias must have one entry for each of {len(mean)} labels, got {bias.shape}.")


def _check_moments(rows: np.ndarray, responsibility: np.ndarray, centre: np.ndarray) -> None:
    if rows.ndim != 2 or centre.ndim != 2 or centre.shape[1] != rows.shape[1] or not len(centre):
        raise ShapeError(f"rows must be (N, D) and centre (L, D), got {rows.shape} and {centre.shape}.")
    if responsibility.shape != (len(rows), len(centre)):
        raise ShapeError(f"responsibility must be ({len(rows)}, {len(centre)}), got {responsibility.shape}.")
