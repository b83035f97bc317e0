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
