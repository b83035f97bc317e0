"""Densities of observations, one for each label: the emissions of hidden Markov models.

An emission family is a frozen value that turns rows of columns (N, D) into log p(x_n | label) (N, L). It is *fitted*
to responsibilities, rows of weights (N, L): ones and zeros where labels are known, beliefs in Baum–Welch. A family
whose densities are log-linear in some statistics of the row,

    log p(x | c) = Σ_k T_k(x) natural_kc + offset_c

also says so (`Exponential`), and then a hidden Markov model is a linear chain field with tied weights: the compiled
problem of such chains gives the gradient of log p(y | x) in the natural parameters, and `pull` carries it back to the
family's own free parameters. What has no such form can still be counted and asked.

`DiagonalGaussian` is the family of Vail (2008, *Conditional random fields for activity recognition*, chapter 2): the
columns are taken as independent given the label, which they are not, so that what several of them tell is counted
several times. `widened` is his remedy, all standard deviations times a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from crfield.errors import InputError, LabelError, ModelFileError, ShapeError

VARIANCE_FLOOR = 1e-6  # of the variance of a column over all labels
_LOG_2PI = float(np.log(2 * np.pi))


class Emissions(Protocol):
    """What a hidden Markov model asks of its densities."""

    @property
    def n_labels(self) -> int:
        """L."""

    @property
    def n_columns(self) -> int:
        """D."""

    def log_density(self, rows: np.ndarray) -> np.ndarray:
        """(N, L) log p(x_n | label) of rows (N, D)."""

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""

    def widened(self, factor: float) -> Self:
        """The same with all standard deviations times a factor."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The parameters by name, for a model file."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family with these parameters; ModelFileError where they cannot be ones."""

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray) -> Self:
        """Maximum likelihood for rows (N, D) that count by ``responsibility`` (N, L)."""


class Exponential(Emissions, Protocol):
    """Emissions that are log-linear in statistics of the row, and can be trained by gradient."""

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, K) T(x)."""

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters (K, L) and offsets (L,)."""

    def free(self) -> np.ndarray:
        """(P,) parameters without constraints."""

    def with_free(self, free: np.ndarray) -> Self:
        """The family with other free parameters."""

    def pull(self, natural: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """A gradient in natural parameters and offsets, as one in the free parameters (P,)."""

    @staticmethod
    def units(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shift (D,) and unit (D,) that bring rows to a scale good for training; 0 and 1 where there is none."""

    def moved(self, shift: np.ndarray, unit: np.ndarray) -> Self:
        """The densities of (x − shift) / unit."""


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """Independent normal columns given the label.

    >>> rows = np.array([[0.0], [2.0], [10.0], [14.0]])
    >>> family = DiagonalGaussian.fit(rows, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    >>> family.mean.ravel().tolist(), family.deviation.ravel().tolist()
    ([1.0, 12.0], [1.0, 2.0])
    >>> family.log_density(np.array([[1.0]])).round(3).tolist()
    [[-0.919, -16.737]]
    """

    mean: np.ndarray  # (L, D)
    deviation: np.ndarray  # (L, D), positive

    def __post_init__(self) -> None:
        mean = np.ascontiguousarray(self.mean, np.float64)
        deviation = np.ascontiguousarray(self.deviation, np.float64)
        if mean.ndim != 2 or mean.shape != deviation.shape:
            raise ShapeError(f"means and deviations must be (labels, columns), got {mean.shape}, {deviation.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
            raise InputError("means must be finite, and deviations finite and above 0.")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "deviation", deviation)

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.mean)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self.mean.shape[1])

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, *, floor: float = VARIANCE_FLOOR) -> Self:
        """Weighted means and deviations of each label; LabelError for one that no row speaks for.

        No variance is below ``floor`` times that of the column over all labels, and a column that never varies gets
        deviations of 1: it then says the same of every label.

        >>> DiagonalGaussian.fit(np.array([[3.0], [3.0]]), np.eye(2)).deviation.tolist()
        [[1.0], [1.0]]
        """
        rows, responsibility = np.asarray(rows, np.float64), np.asarray(responsibility, np.float64)
        mass = responsibility.sum(axis=0)
        if (mass <= 0).any():
            raise LabelError(f"no row speaks for label number {int(np.argmin(mass))}, so it has no density.")
        own = responsibility.sum(axis=1)
        middle = own @ rows / own.sum()
        # About the common middle first: squares of columns far from zero would lose their digits.
        shifted = rows - middle
        shift = responsibility.T @ shifted / mass[:, None]
        variance = np.stack([responsibility[:, c] @ (shifted - shift[c]) ** 2 / mass[c] for c in range(len(mass))])
        whole = own @ shifted**2 / own.sum()
        varies = whole > 1e-24 * np.maximum(middle**2, 1.0)
        variance = np.where(varies, np.maximum(variance, floor * whole), 1.0)
        return cls(np.where(varies, shift, 0.0) + middle, np.sqrt(variance))

    def log_density(self, rows: np.ndarray) -> np.ndarray:
        """(N, L) −½ Σ_d ((x_d − μ_d) / σ_d)² − Σ_d log σ_d − ½ D log 2π."""
        rows = self._checked(rows)
        out = np.empty((len(rows), self.n_labels))
        for c, (mean, deviation) in enumerate(zip(self.mean, self.deviation)):
            away = (rows - mean) / deviation
            out[:, c] = -0.5 * np.einsum("nd,nd->n", away, away) - np.log(deviation).sum()
        return out - 0.5 * self.n_columns * _LOG_2PI

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""
        return self.mean[labels] + self.deviation[labels] * rng.standard_normal((len(labels), self.n_columns))

    def widened(self, factor: float) -> DiagonalGaussian:
        """All standard deviations times ``factor``.

        >>> DiagonalGaussian(np.zeros((1, 1)), np.ones((1, 1))).widened(5.0).deviation.tolist()
        [[5.0]]
        """
        return replace(self, deviation=self.deviation * factor)

    # ---------------------------------------------------------------- log-linear form

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, 2 D) the row and its squares."""
        rows = self._checked(rows)
        return np.concatenate([rows, rows**2], axis=1)

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """(2 D, L) μ / σ² and −1 / (2 σ²), and offsets (L,)."""
        precision = self.deviation**-2.0
        offset = -0.5 * (self.mean**2 * precision + 2 * np.log(self.deviation) + _LOG_2PI).sum(axis=1)
        return np.concatenate([self.mean * precision, -0.5 * precision], axis=1).T, offset

    def free(self) -> np.ndarray:
        """(2 L D,) means and logarithms of deviations."""
        return np.concatenate([self.mean.ravel(), np.log(self.deviation).ravel()])

    def with_free(self, free: np.ndarray) -> DiagonalGaussian:
        """The family with other means and logarithms of deviations."""
        mean, log_deviation = free.reshape(2, *self.mean.shape)
        return DiagonalGaussian(mean, np.exp(log_deviation))

    def pull(self, natural: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Gradient in (natural, offset) to gradient in (μ, log σ), by the chain rule."""
        first, second = natural.T[:, : self.n_columns], natural.T[:, self.n_columns :]
        precision, own = self.deviation**-2.0, offset[:, None]
        mean = precision * (first - own * self.mean)
        log_deviation = precision * (-2 * self.mean * first + second + own * self.mean**2) - own
        return np.concatenate([mean.ravel(), log_deviation.ravel()])

    @staticmethod
    def units(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every column; 1 for one that does not vary."""
        shift, unit = rows.mean(axis=0), rows.std(axis=0)
        return shift, np.where(unit > 1e-12 * np.maximum(np.abs(shift), 1.0), unit, 1.0)

    def moved(self, shift: np.ndarray, unit: np.ndarray) -> DiagonalGaussian:
        """The densities of (x − shift) / unit, for rows brought to another scale.

        >>> family = DiagonalGaussian(np.array([[6.0]]), np.array([[2.0]]))
        >>> family.moved(np.array([4.0]), np.array([2.0])).mean.tolist()
        [[1.0]]
        """
        return DiagonalGaussian((self.mean - shift) / unit, self.deviation / unit)

    # ------------------------------------------------------------------------- files

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Means and deviations, by name."""
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family of a model file; ModelFileError where it is damaged."""
        mean, deviation = arrays.get("mean"), arrays.get("deviation")
        if any(a is None or a.dtype != np.float64 or a.ndim != 2 or len(a) != n_labels for a in (mean, deviation)):
            raise ModelFileError(f"means and deviations of {n_labels} labels are missing or damaged.")
        try:
            return cls(mean, deviation)  # type: ignore[arg-type]
        except InputError as error:
            raise ModelFileError(f"the model file's densities cannot be used: {error} Was it edited?") from None

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            raise ShapeError(f"rows must be (n, {self.n_columns}), got {rows.shape}.")
        return rows


FAMILIES: dict[str, Callable[..., Any]] = {"gaussian": DiagonalGaussian}


def family_named(name: Any) -> Any:
    """The emission family of that name.

    >>> family_named("gaussian").__name__
    'DiagonalGaussian'
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise InputError(f"emissions must be one of {', '.join(map(repr, FAMILIES))}, got {name!r}.")
    return FAMILIES[name]
