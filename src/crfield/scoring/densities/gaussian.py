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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, Self

import numpy as np

from crfield.errors import InputError, LabelError, ModelFileError, ShapeError
from crfield.scoring.densities.observed import column_moments, column_scores

VARIANCE_FLOOR = 1e-6  # of the variance of a column over all labels
TINY = 1e-300  # no variance is zero
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class Spread:
    """Middle and variance of every column over all labels, to which floors of variances refer.

    >>> Spread.of(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2)).varies.tolist()
    [True, False]
    """

    middle: np.ndarray  # (D,)
    variance: np.ndarray  # (D,)
    gaps: bool = False  # whether cells are missing, NaN

    @classmethod
    def of(cls, rows: np.ndarray, weight: np.ndarray) -> Spread:
        """That of rows (N, D) which count by ``weight`` (N,), as far as they were observed.

        >>> Spread.of(np.array([[1.0], [np.nan], [3.0]]), np.ones(3))
        Spread(middle=array([2.]), variance=array([1.]), gaps=True)
        """
        middle = weight @ rows / weight.sum()
        if not np.isnan(middle).any():
            return cls(middle, weight @ (rows - middle) ** 2 / weight.sum())
        seen = ~np.isnan(rows)
        mass = np.maximum(weight @ seen, TINY)
        middle = weight @ np.where(seen, rows, 0.0) / mass
        return cls(middle, weight @ np.where(seen, rows - middle, 0.0) ** 2 / mass, gaps=True)

    @property
    def varies(self) -> np.ndarray:
        """(D,) whether the column varies at all; densities say the same of every label in one that does not."""
        return np.asarray(self.variance > 1e-24 * np.maximum(self.middle**2, 1.0))


@dataclass(frozen=True, eq=False)
class Fitting:
    """Options of a fit; each family reads those that it knows."""

    floor: float = VARIANCE_FLOOR  # least variance, as a part of that of the column
    smoothing: float = 1.0  # added to the count of every value of a categorical column
    n_components: int = 2  # of a mixture
    seed: int = 0
    density: Any = None  # an estimator of densities, cloned for every label
    spread: Spread | None = None  # known already, where the same rows are fitted again and again
    n_jobs: int = 1

    def spreading(self, rows: np.ndarray, responsibility: np.ndarray) -> Fitting:
        """The same with the spread of the rows, if it is not known."""
        return self if self.spread is not None else replace(self, spread=Spread.of(rows, responsibility.sum(axis=1)))


Sums = tuple[np.ndarray, ...]  # what an M step needs of rows: parts of the data add up


class Emissions(Protocol):
    """What a hidden Markov model asks of its densities."""

    kind: str  # its name in model files
    marginalises: bool  # whether cells may be missing (NaN): `crfield.scoring.densities.observed`

    @property
    def n_labels(self) -> int:
        """L."""

    @property
    def n_columns(self) -> int:
        """D."""

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) log p(x_n | label) of rows (N, D), of what of them was observed."""

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
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = ...) -> Self:
        """Maximum likelihood for rows (N, D) that count by ``responsibility`` (N, L)."""

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Self:
        """The M step from here; a label that no row speaks for keeps its density."""

    def log_prior(self, fitting: Fitting) -> float:
        """What the options add to the log-likelihood, so that the sum never falls under EM."""

    def farthest(self, row: np.ndarray) -> int:
        """The column of a row (D,) that its densities are most at odds with, to be named where they are all zero."""


class Gathering(Emissions, Protocol):
    """Emissions whose M step needs only sums over rows, so that rows may lie on many machines.

    refit(rows, r) = refitted(Σ over parts of gathered(part of rows, part of r))
    """

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """What rows (N, D) that count by ``responsibility`` (N, L) add to the sums; the spread is known."""

    def refitted(self, sums: Sums, fitting: Fitting) -> Self:
        """The M step from sums over all rows."""


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

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift (D,) and unit (D,) by the densities alone, in which statistics keep their digits."""


DEFAULTS = Fitting()


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

    kind = "gaussian"
    marginalises = True

    mean: np.ndarray  # (L, D)
    deviation: np.ndarray  # (L, D), positive

    def __post_init__(self) -> None:
        mean = np.ascontiguousarray(self.mean, np.float64)
        deviation = np.ascontiguousarray(self.deviation, np.float64)
        if mean.ndim != 2 or mean.shape != deviation.shape:
            raise ShapeError(f"means and deviations must be (labels, columns), got {mean.shape}, {deviation.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
            raise InputError("means must be finite, and standard deviations finite and > 0.")
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
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Weighted means and deviations of each label; LabelError for one that no row speaks for.

        No variance is below ``fitting.floor`` times that of the column over all labels, and a column that never
        varies gets deviations of 1: it then says the same of every label. A label for which a column was never
        observed has the mean and variance of the column over all labels.

        >>> DiagonalGaussian.fit(np.array([[3.0], [3.0]]), np.eye(2)).deviation.tolist()
        [[1.0], [1.0]]
        """
        rows, responsibility = np.asarray(rows, np.float64), np.asarray(responsibility, np.float64)
        mass = responsibility.sum(axis=0)
        check_mass(mass)
        spread = fitting.spread or Spread.of(rows, responsibility.sum(axis=1))
        # About the common middle first: squares of columns far from zero would lose their digits.
        unit = np.sqrt(np.where(spread.varies, spread.variance, 1.0))
        first = cls(np.tile(spread.middle, (len(mass), 1)), np.tile(unit, (len(mass), 1)))
        near = column_moments(rows, responsibility, first.mean, gaps=spread.gaps, n_jobs=fitting.n_jobs)
        mean = first.mean + near[1] / (np.where(near[0] > 0, near[0], 1.0) if spread.gaps else mass[:, None])
        return replace(first, mean=mean).refit(rows, responsibility, replace(fitting, spread=spread))

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Moments about the present means, in one pass over the cells that were observed."""
        fitting = fitting.spreading(rows, responsibility)
        return self.refitted(self.gathered(rows, responsibility, fitting), fitting)

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """Mass, first and second moments (L, D) about the present means."""
        spread = fitting.spread
        assert spread is not None
        return column_moments(rows, responsibility, self.mean, gaps=spread.gaps, n_jobs=fitting.n_jobs)

    def refitted(self, sums: Sums, fitting: Fitting) -> Self:
        """The densities of these moments."""
        (mass, first, second), spread = sums, fitting.spread
        assert spread is not None
        alive = mass > 0
        share = 1.0 / np.where(alive, mass, 1.0)
        variance = second * share - (first * share) ** 2
        variance = np.where(spread.varies, np.maximum(variance, fitting.floor * spread.variance), 1.0)
        mean = np.where(spread.varies, self.mean + first * share, spread.middle)
        return type(self)(
            np.where(alive, mean, self.mean), np.where(alive, np.sqrt(np.maximum(variance, TINY)), self.deviation)
        )

    def log_prior(self, fitting: Fitting) -> float:
        """Nothing: a floor is a bound."""
        return 0.0

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) −½ Σ_d ((x_d − μ_d) / σ_d)² − Σ_d log σ_d − ½ D log 2π, over the columns that were observed."""
        bias = -np.log(self.deviation).sum(axis=1) - 0.5 * self.n_columns * _LOG_2PI
        return column_scores(check_rows(rows, self.n_columns), self.mean, self.deviation, bias, 0.0, n_jobs)

    def farthest(self, row: np.ndarray) -> int:
        """The column with the most deviations to the nearest mean.

        >>> DiagonalGaussian(np.zeros((1, 2)), np.array([[1.0, 9.0]])).farthest(np.array([3.0, 4.0]))
        0
        """
        return most_deviant(row, self.mean, self.deviation)

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
        rows = check_rows(rows, self.n_columns)
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

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of the labels' means and deviations."""
        return self.mean.mean(axis=0), self.deviation.mean(axis=0)

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


FAMILIES = {
    "gaussian": ("crfield.scoring.densities.gaussian", "DiagonalGaussian"),
    "full": ("crfield.scoring.densities.full", "FullGaussian"),
    "mixture": ("crfield.scoring.densities.mixture", "GaussianMixtures"),
    "categorical": ("crfield.scoring.densities.categorical", "Categorical"),
    "poisson": ("crfield.scoring.densities.poisson", "Poisson"),
    "words": ("crfield.scoring.densities.categorical", "Words"),
    "density": ("crfield.scoring.densities.fitted", "FittedDensities"),
}
_BY_NAME = ("gaussian", "full", "mixture", "categorical", "poisson")


def family_named(name: Any) -> Any:
    """The emission family of that name, or the one that holds estimators of densities.

    >>> family_named("gaussian").__name__
    'DiagonalGaussian'
    """
    if not isinstance(name, str | type) and hasattr(name, "fit") and hasattr(name, "score_samples"):
        name = "density"
    elif not isinstance(name, str) or name not in _BY_NAME:
        raise InputError(
            f"emissions must be one of {', '.join(map(repr, _BY_NAME))}, or an estimator of densities with fit and "
            f"score_samples such as KernelDensity(), got {name!r:.60}."
        )
    return family_of_kind(name)


def family_of_kind(kind: Any) -> Any:
    """The family whose model files have this word.

    >>> family_of_kind("full").__name__
    'FullGaussian'
    """
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ModelFileError(f"the model file has emissions of kind {kind!r}; known are {', '.join(FAMILIES)}.")
    module, name = FAMILIES[kind]
    return getattr(import_module(module), name)


def most_deviant(row: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> int:
    """The column of a row (D,) that is the most deviations away from the nearest of several means (M, D).

    >>> most_deviant(np.array([5.0, 5.0]), np.array([[0.0, 0.0], [4.0, 0.0]]), np.ones((2, 2)))
    1
    """
    with np.errstate(over="ignore"):
        away = (np.abs(row - mean) / deviation).min(axis=0)
    return int(np.where(np.isnan(row), -1.0, away).argmax())


def check_rows(rows: np.ndarray, n_columns: int) -> np.ndarray:
    """Rows as float64 (N, n_columns); ShapeError for another shape.

    >>> check_rows(np.array([[1, 2]]), 2)
    array([[1., 2.]])
    """
    rows = np.asarray(rows, np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_columns:
        raise ShapeError(f"rows must be (n, {n_columns}), got {rows.shape}.")
    return rows


def check_mass(mass: np.ndarray) -> None:
    """LabelError for a label for which no row has a positive weight.

    >>> check_mass(np.array([1.0, 0.0]))
    Traceback (most recent call last):
    crfield.errors.LabelError: no row has a positive weight for label number 1, so it has no density.
    """
    if not len(mass) or (mass <= 0).any():
        raise LabelError(
            f"no row has a positive weight for label number {int(np.argmin(mass))}, so it has no density."
        )


def stored(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, int], *, n_labels: int) -> list[np.ndarray]:
    """Arrays of a model file by name and number of dimensions, the first of which are the labels."""
    found = [arrays.get(name) for name in shapes]
    for array, (name, ndim) in zip(found, shapes.items()):
        if array is None or array.dtype != np.float64 or array.ndim != ndim or len(array) != n_labels:
            raise ModelFileError(f"{name} of the densities of {n_labels} labels is missing or damaged.")
    return found  # type: ignore[return-value]
