"""A filter for numeric columns: those that tell labels apart, but for those that repeat a better one.

    separation(k) = mean over labels of (mean of x_k in the label − mean of x_k)² / variance of x_k

Labels count alike, whatever their length, so a column that is about a rare label alone has its chance. Columns are
taken from the best on, and one whose correlation with a column already taken is above ``most_alike`` is passed over:
windows of many lengths and measures say nearly the same many times, which the ranks of a plain filter cannot see.

No model is trained. Ranking costs one pass over the table, N · K; passing over costs N · (columns looked at) ·
(columns taken).
"""

from __future__ import annotations

import numpy as np

CONSTANT = 1e-9  # deviation over the largest size, below which a column does not vary


def separating_columns(table: np.ndarray, codes: np.ndarray, most: int, *, most_alike: float = 0.95) -> np.ndarray:
    """Numbers of up to ``most`` columns of ``table`` (N, K) that tell ``codes`` (N,) apart, the best one first.

    >>> rng = np.random.default_rng(0)
    >>> codes = np.repeat([0, 1, 2], 30)
    >>> table = rng.normal(size=(90, 4)) + 3.0 * np.outer(codes == 1, [0, 1, 0, 0])
    >>> table += 2.0 * np.outer(codes == 2, [0, 0, 0, 1])
    >>> table[:, 2] = 5.0 * table[:, 1] + rng.normal(size=90)
    >>> separating_columns(table, codes, 2).tolist()
    [1, 3]
    """
    deviation = table.std(axis=0)
    usable = deviation > CONSTANT * np.maximum(np.abs(table).max(axis=0, initial=0.0), CONSTANT)
    scaled = (table - table.mean(axis=0)) / np.where(usable, deviation, 1.0)
    apart = np.mean([scaled[codes == code].mean(axis=0) ** 2 for code in np.unique(codes)], axis=0)
    taken = np.empty((min(most, table.shape[1]), len(table)))  # columns as rows, end to end
    chosen: list[int] = []
    for column in np.argsort(-np.where(usable, apart, -1.0), kind="stable").tolist():
        if len(chosen) == len(taken) or not usable[column]:
            break
        own = scaled[:, column]
        if np.abs(taken[: len(chosen)] @ own).max(initial=0.0) / len(table) <= most_alike:
            taken[len(chosen)] = own
            chosen.append(column)
    return np.array(chosen, dtype=np.int64)
