"""Standardisation: numeric columns on one scale, learnt in ``fit``.

A penalty treats all weights alike, so columns should have comparable sizes; and L-BFGS walks faster when they
have. Three kinds of columns are treated apart:

- dense columns, and sparse columns that are present on every row: (x − mean) / deviation. A row that lacks such a
  sparse column later counts as the mean, since nothing is added for it;
- sparse numeric columns that some rows lack: x / √(mean of x² over the rows that have it). Not centred, so that
  absence keeps meaning zero and the data stay sparse; the size is measured about zero because that of two nearly
  equal values about their mean would blow them up;
- columns whose value is always one (indicators, an intercept) are left alone.

A column that never changes gets the deviation one. Vectors missing on a step are zeros, and count as such.
Without standardisation, sizes that differ more than a thousandfold are worth a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from crfield.data.batch import Columns
from crfield.errors import DataWarning, ModelFileError
from crfield.features.columns.select import row_counts, unless_ones

RATIO = 1e3
BLOCK = 1 << 14  # rows of a dense block looked at together, so that no second copy of it is made
ARRAYS = ("scale_mean", "scale_deviation", "scale_dense_mean", "scale_dense_deviation")


@dataclass(frozen=True, eq=False)
class Scale:
    """x ↦ (x − mean) / deviation for each of K sparse and D dense columns.

    >>> import numpy as np
    >>> columns = Columns([0, 0, 0, 0], [], 0, dense=np.array([[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]]))
    >>> scale = Scale.learn(columns)
    >>> scale.dense_mean.tolist(), scale.apply(columns).dense[:, 0].round(3).tolist()
    ([2.0, 7.0], [-1.225, 0.0, 1.225])
    """

    mean: np.ndarray  # (K,)
    deviation: np.ndarray  # (K,), positive
    dense_mean: np.ndarray  # (D,)
    dense_deviation: np.ndarray  # (D,), positive
    varied: np.ndarray  # (K + D,) bool, numeric columns that are not constant

    @classmethod
    def learn(cls, columns: Columns) -> Scale:
        """The scale of the columns of a training set."""
        mean, deviation, varied = _sparse_scale(columns)
        dense = np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense
        dense_mean, dense_deviation, dense_varied = _dense_scale(dense)
        return cls(mean, deviation, dense_mean, dense_deviation, np.concatenate([varied, dense_varied]))

    def apply(self, columns: Columns) -> Columns:
        """The same rows with standardised values."""
        values, dense = columns.values, columns.dense
        if (self.deviation != 1).any() or self.mean.any():
            values = np.ones(len(columns.indices)) if values is None else values
            values = (values - self.mean[columns.indices]) / self.deviation[columns.indices]
            values = unless_ones(values)
        if dense is not None:
            dense = (dense - self.dense_mean) / self.dense_deviation
        return Columns(columns.indptr, columns.indices, columns.width, values, dense)

    def warn(self, node_name: Callable[[int], str], dense_name: Callable[[int], str]) -> None:
        """Warn when the largest and the smallest deviation of numeric columns are far apart."""
        chosen = np.flatnonzero(self.varied)
        if len(chosen) < 2:
            return
        sizes = np.concatenate([self.deviation, self.dense_deviation])[chosen]
        large, small = int(np.argmax(sizes)), int(np.argmin(sizes))
        if sizes[large] <= RATIO * sizes[small]:
            return
        names = [
            node_name(k) if k < len(self.mean) else dense_name(k - len(self.mean))
            for k in (int(chosen[large]), int(chosen[small]))
        ]
        warnings.warn(
            f"numeric features differ widely in size: {names[0]!r} has deviation {sizes[large]:.3g}, "
            f"{names[1]!r} {sizes[small]:.3g}. The penalty then affects them unequally. Pass "
            "standardize=True, or bring them to one scale.",
            DataWarning,
            stacklevel=4,
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the scale, by name."""
        return dict(zip(ARRAYS, (self.mean, self.deviation, self.dense_mean, self.dense_deviation)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, width: int, n_dense: int) -> Scale:
        """The scale whose `to_arrays` this is; ModelFileError when the arrays cannot be one."""
        parts = []
        for name, length in zip(ARRAYS, (width, width, n_dense, n_dense)):
            array = np.asarray(arrays[name]) if name in arrays else None
            if (
                array is None
                or array.dtype != np.float64
                or array.shape != (length,)
                or not np.isfinite(array).all()
                or ("deviation" in name and (array <= 0).any())
            ):
                raise ModelFileError(
                    f"the array {name!r} must hold {length} finite numbers, the scales of the columns. "
                    "Was the file cut or edited?"
                )
            parts.append(array)
        return cls(parts[0], parts[1], parts[2], parts[3], varied=np.zeros(width + n_dense, bool))


def _dense_scale(dense: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, width = dense.shape
    if not rows or not width:
        return np.zeros(width), np.ones(width), np.zeros(width, bool)
    low, high = dense.min(axis=0), dense.max(axis=0)
    unit = _unit(low, high)
    blocks = range(0, rows, BLOCK)
    mean = sum((dense[i : i + BLOCK] / unit).sum(axis=0) for i in blocks) / rows
    square = sum(((dense[i : i + BLOCK] / unit - mean) ** 2).sum(axis=0) for i in blocks) / rows
    return _chosen(low, high, np.ones(width, bool), mean * unit, np.sqrt(square) * unit)


def _sparse_scale(columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width, indices, values = columns.width, columns.indices, columns.values
    if values is None:
        return np.zeros(width), np.ones(width), np.zeros(width, bool)
    count = np.bincount(indices, minlength=width)
    low, high = np.where(count > 0, np.inf, 1.0), np.where(count > 0, -np.inf, 1.0)
    np.minimum.at(low, indices, values)
    np.maximum.at(high, indices, values)
    unit, full, count = _unit(low, high), row_counts(columns) == columns.n_rows, np.maximum(count, 1)
    scaled = values / unit[indices]
    mean = np.where(full, np.bincount(indices, scaled, width) / count, 0.0)
    square = np.bincount(indices, (scaled - mean[indices]) ** 2, width) / count
    return _chosen(low, high, full, mean * unit, np.sqrt(square) * unit)


def _unit(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The largest absolute entry of each column: measured in it, squares neither overflow nor vanish."""
    unit = np.maximum(np.abs(low), np.abs(high))
    return np.where(unit == 0, 1.0, unit)


def _chosen(
    low: np.ndarray, high: np.ndarray, full: np.ndarray, mean: np.ndarray, deviation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """mean, deviation, varied: what is measured where the column changes, else the rules for constants."""
    constant = low == high
    one = constant & (low == 1)
    varied = ~one & ~(constant & full) & ~(constant & (low == 0)) & (deviation > 0)
    mean = np.where(one, 0.0, np.where(constant & full, low, mean))
    return mean, np.where(varied, deviation, 1.0), varied
