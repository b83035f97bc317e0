"""Poisson emissions: columns of counts, independent given the label.

    log p(x | c) = Σ_d [ x_d log λ_cd − λ_cd − log x_d! ]          λ_cd = weighted mean of column d over the steps
    of c

How many calls in an hour, spikes in a bin, steps in a minute. A cell that was not observed (NaN) is left out of the
sum, which integrates it out. Log-linear in the row itself, with natural parameters log λ. A rate of zero would
forbid a label for ever after the first count, so no rate is below a part of the mean of its column over all labels
(`Fitting.floor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lgamma
from typing import Self

import numpy as np

from crfield.errors import FeatureError, InputError, ModelFileError, ShapeError
from crfield.scoring.densities.gaussian import DEFAULTS, Fitting, check_mass, check_rows, stored

_LEAST = 1e-10  # a rate, where a column is zero throughout
_TABLE = np.array([lgamma(k + 1.0) for k in range(256)])  # log k!


def log_factorial(x: np.ndarray) -> np.ndarray:
    """log x! of counts.

    >>> log_factorial(np.array([0.0, 3.0])).round(4).tolist()
    [0.0, 1.7918]
    """
    if x.size == 0 or x.max() < len(_TABLE):
        return np.asarray(_TABLE[x.astype(np.int64)])
    from scipy.special import gammaln

    return np.asarray(gammaln(x + 1.0))


@dataclass(frozen=True, eq=False)
class Poisson:
    """Independent Poisson columns given the label.

    >>> family = Poisson.fit(np.array([[0.0], [2.0], [9.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> family.rate.ravel().tolist(), family.log_density(np.array([[1.0]])).round(3).tolist()
    ([1.0, 9.0], [[-1.0, -6.803]])
    """

    kind = "poisson"
    marginalises = True

    rate: np.ndarray  # (L, D), positive

    def __post_init__(self) -> None:
        rate = np.ascontiguousarray(self.rate, np.float64)
        if rate.ndim != 2:
            raise ShapeError(f"rates must be (labels, columns), got {rate.shape}.")
        if not (np.isfinite(rate).all() and (rate > 0).all()):
            raise InputError("rates must be finite and > 0.")
        object.__setattr__(self, "rate", rate)

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.rate)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self.rate.shape[1])

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Weighted means of each label; LabelError for one that no row speaks for."""
        rows, responsibility = _counts(rows), np.asarray(responsibility, np.float64)
        check_mass(responsibility.sum(axis=0))
        return cls(_rates(rows, responsibility, fitting, None))

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Weighted means; a label that no row speaks for keeps its rates."""
        return type(self)(_rates(rows, responsibility, fitting, self.rate))

    def log_prior(self, fitting: Fitting) -> float:
        """Nothing: a floor is a bound."""
        return 0.0

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, D) of counts, over the columns that were observed."""
        rows = _counts(check_rows(rows, self.n_columns))
        seen = ~np.isnan(rows)
        counts = np.where(seen, rows, 0.0)
        base = np.where(seen, log_factorial(counts), 0.0).sum(axis=1)
        return np.asarray(counts @ np.log(self.rate).T - seen @ self.rate.T - base[:, None])

    def farthest(self, row: np.ndarray) -> int:
        """The column with the most deviations to the nearest rate."""
        away = (np.abs(row - self.rate) / np.sqrt(self.rate)).min(axis=0)
        return int(np.where(np.isnan(row), -1.0, away).argmax())

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""
        return rng.poisson(self.rate[labels]).astype(np.float64)

    def widened(self, factor: float) -> Self:
        """Itself: the deviation of a count is the root of its rate."""
        if factor != 1.0:
            raise InputError("deviation_factor is for normal and categorical emissions; a Poisson rate has no width.")
        return self

    # ---------------------------------------------------------------- log-linear form

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, D) the row itself."""
        return check_rows(rows, self.n_columns)

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """(D, L) log λ, and offsets (L,) −Σ λ."""
        return np.log(self.rate).T, -self.rate.sum(axis=1)

    def free(self) -> np.ndarray:
        """(L D,) log λ."""
        return np.log(self.rate).ravel()

    def with_free(self, free: np.ndarray) -> Self:
        """The family with other log λ."""
        return type(self)(np.exp(free.reshape(self.rate.shape)))

    def pull(self, natural: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Gradient in (natural, offset) to gradient in log λ."""
        return np.asarray((natural.T - offset[:, None] * self.rate).ravel())

    @staticmethod
    def units(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts have no other scale: 0 and 1."""
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])

    def moved(self, shift: np.ndarray, unit: np.ndarray) -> Self:
        """Itself: counts do not move."""
        return self

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts have no other scale: 0 and 1."""
        return np.zeros(self.n_columns), np.ones(self.n_columns)

    # ------------------------------------------------------------------------- files

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Rates."""
        return {"rate": self.rate}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family of a model file; ModelFileError where it is damaged."""
        (rate,) = stored(arrays, {"rate": 2}, n_labels=n_labels)
        try:
            return cls(rate)
        except InputError as error:
            raise ModelFileError(f"the model file's rates cannot be used: {error} Was it edited?") from None


def _counts(rows: np.ndarray) -> np.ndarray:
    """Rows that hold integers ≥ 0 or NaN."""
    rows = np.asarray(rows, np.float64)
    good = np.isnan(rows) | ((rows >= 0) & (rows == np.floor(rows)) & (rows < 2**53))
    if not good.all():
        n, d = np.unravel_index(int(np.argmin(good)), rows.shape)
        raise FeatureError(
            f"Poisson columns must hold integers ≥ 0, got {rows[n, d]} in column {d}. Use emissions='gaussian' or "
            "another family for measurements."
        )
    return rows


def _rates(rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting, before: np.ndarray | None) -> np.ndarray:
    """(L, D) means by responsibility of the cells that were observed, none below the floor."""
    seen = ~np.isnan(rows)
    counts = np.where(seen, rows, 0.0)
    mass, total = responsibility.T @ seen, responsibility.T @ counts
    middle = total.sum(axis=0) / np.maximum(mass.sum(axis=0), 1e-300)
    rate = np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), middle if before is None else before)
    return np.maximum(rate, np.maximum(fitting.floor * middle, _LEAST))
