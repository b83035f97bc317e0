"""NumPy body of the kernels of emissions; the contract is in `crfield.kernels.emission`."""

from __future__ import annotations

import numpy as np


def normal_scores(
    rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray, bias: np.ndarray, out: np.ndarray, n_jobs: int
) -> None:
    """Label by label, so that no table of (N, L, D) is made."""
    with np.errstate(over="ignore"):  # a row too far away for a number has a density of zero
        for c in range(len(mean)):
            away = (rows - mean[c]) * inverse[c]
            out[:, c] = bias[c] - 0.5 * np.einsum("nd,nd->n", away, away)


def normal_moments(
    rows: np.ndarray,
    responsibility: np.ndarray,
    centre: np.ndarray,
    mass: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    n_jobs: int,
) -> None:
    """Label by label."""
    mass[:] = responsibility.sum(axis=0)
    for c in range(len(centre)):
        away = rows - centre[c]
        first[c], second[c] = responsibility[:, c] @ away, responsibility[:, c] @ away**2


def observed_scores(
    rows: np.ndarray,
    mean: np.ndarray,
    inverse: np.ndarray,
    parts: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    n_jobs: int,
) -> None:
    """Label by label: a missing cell is no deviation from any mean, and its part is not added."""
    seen = ~np.isnan(rows)
    with np.errstate(over="ignore"):
        for c in range(len(mean)):
            away = np.where(seen, (rows - mean[c]) * inverse[c], 0.0)
            out[:, c] = bias[c] + seen @ parts[c] - 0.5 * np.einsum("nd,nd->n", away, away)


def observed_moments(
    rows: np.ndarray,
    responsibility: np.ndarray,
    centre: np.ndarray,
    mass: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    n_jobs: int,
) -> None:
    """Label by label."""
    seen = ~np.isnan(rows)
    for c in range(len(centre)):
        away = np.where(seen, rows - centre[c], 0.0)
        own = responsibility[:, c]
        mass[c], first[c], second[c] = own @ seen, own @ away, own @ away**2
