"""Normal densities with a covariance matrix for every label.

    log p(x | c) = −½ (x − μ_c)ᵀ Σ_c⁻¹ (x − μ_c) − ½ log |Σ_c| − ½ D log 2π

Columns that hang together are then counted once, at the price of D² / 2 numbers for each label. The floor is a bound
Σ_c ⪰ floor · diag(variances of the columns): in columns of variance 1 no direction has less than ``floor``. The best
matrix within it has the eigenvectors of the sample's, and eigenvalues raised to the bound, so that a step of EM that
meets the floor is still the best step (Anderson & Olkin 1985 for the bound without a floor's unit).

Where cells are missing, the density is that of the block of mean and covariance that was observed. A fit then has no
formula, but a step of EM that never falls (Little & Rubin 2002, *Statistical analysis with missing data*, chapter
11): a missing block m is taken as its mean given the observed one o, and what is left of its covariance is added,

    x̂_m = μ_m + Σ_mo Σ_oo⁻¹ (x_o − μ_o)          rest = Σ_mm − Σ_mo Σ_oo⁻¹ Σ_om

`refit` is that step, the same one that Baum–Welch takes for labels; `fit` repeats it.

Log-linear in x and the products x_i x_j, i ≤ j; free parameters are means and the Cholesky factor C of the precision
Σ⁻¹ = C Cᵀ, logarithms on its diagonal. A pass over the rows costs O(N L D²).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.scoring.densities.gaussian import (
    DEFAULTS,
    TINY,
    DiagonalGaussian,
    Fitting,
    Spread,
    Sums,
    check_mass,
    check_rows,
    most_deviant,
    stored,
)
from crfield.scoring.densities.observed import patterns

ROUNDS = 500  # of EM within `fit`, where cells are missing
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class FullGaussian:
    """Normal columns with all their covariances.

    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0], [0.0, 2.0], [2.0, 0.0], [1.0, 1.0]])
    >>> FullGaussian.fit(rows, np.ones((5, 1))).covariance[0].round(3).tolist()
    [[0.8, 0.0], [0.0, 0.8]]
    """

    kind = "full"
    marginalises = True

    mean: np.ndarray  # (L, D)
    covariance: np.ndarray  # (L, D, D), positive definite

    def __post_init__(self) -> None:
        mean = np.ascontiguousarray(self.mean, np.float64)
        covariance = np.ascontiguousarray(self.covariance, np.float64)
        if mean.ndim != 2 or covariance.shape != (*mean.shape, mean.shape[1]):
            raise ShapeError(f"means must be (L, D), covariances (L, D, D), got {mean.shape}, {covariance.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise InputError("means and covariances must be finite.")
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise InputError("every covariance matrix must be positive definite.") from None
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "_factor", factor)

    _factor: np.ndarray = None  # type: ignore[assignment]  # (L, D, D) Cholesky factors of the covariances
    _root: np.ndarray | None = None  # (L, D, D) of the precisions, where the family was made of them

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
        """Weighted means and covariances of each label; LabelError for one that no row speaks for."""
        rows, responsibility = np.asarray(rows, np.float64), np.asarray(responsibility, np.float64)
        check_mass(responsibility.sum(axis=0))
        spread = fitting.spread or Spread.of(rows, responsibility.sum(axis=1))
        fitting = replace(fitting, spread=spread)
        first = DiagonalGaussian.fit(rows, responsibility, fitting)
        family = cls(first.mean, first.deviation[:, :, None] ** 2 * np.eye(rows.shape[1]))
        family, before = family.refit(rows, responsibility, fitting), -np.inf
        for _ in range(ROUNDS if spread.gaps else 0):
            now = float((responsibility * np.where(responsibility > 0, family.log_density(rows), 0.0)).sum())
            if now - before <= 1e-9 * responsibility.sum():
                break
            family, before = family.refit(rows, responsibility, fitting), now
        return family

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Means and covariances, by a step of EM where cells are missing; a label without rows keeps its own."""
        fitting = fitting.spreading(rows, responsibility)
        return self.refitted(self.gathered(rows, responsibility, fitting), fitting)

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """Mass (L,), first (L, D) and second moments (L, D, D) about the present means, on columns of deviation 1."""
        spread = fitting.spread
        assert spread is not None
        scale = np.sqrt(np.where(spread.varies, spread.variance, 1.0))
        mass, first, second = responsibility.sum(axis=0), np.zeros_like(self.mean), np.zeros_like(self.covariance)
        missing = _given_the_rest(self.covariance / np.outer(scale, scale), rows) if spread.gaps else []
        for c in range(self.n_labels):
            own = responsibility[:, c]
            if not mass[c] > 0:
                continue
            away = (rows - self.mean[c]) / scale
            for lacking, here, gain, _ in missing:
                away[np.ix_(here, lacking)] = away[np.ix_(here, ~lacking)] @ gain[c].T
            first[c] = own @ away
            second[c] = (away * own[:, None]).T @ away
            for lacking, here, _, rest in missing:
                second[c][np.ix_(lacking, lacking)] += own[here].sum() * rest[c]
        return mass, first, second

    def refitted(self, sums: Sums, fitting: Fitting) -> Self:
        """The densities of these moments."""
        spread = fitting.spread
        assert spread is not None
        mean, covariance, varies = self.mean.copy(), self.covariance.copy(), spread.varies
        scale = np.sqrt(np.where(varies, spread.variance, 1.0))
        both = varies[:, None] & varies[None, :]
        for c, mass in enumerate(sums[0]):
            if not mass > 0:
                continue
            shift = sums[1][c] / mass
            around = sums[2][c] / mass - np.outer(shift, shift)
            values, vectors = np.linalg.eigh(np.where(both, (around + around.T) / 2, np.eye(len(scale))))
            raised = (vectors * np.maximum(values, max(fitting.floor, TINY))) @ vectors.T
            covariance[c] = np.where(both, (raised + raised.T) / 2, np.eye(len(scale))) * np.outer(scale, scale)
            mean[c] = np.where(varies, self.mean[c] + shift * scale, spread.middle)
        return type(self)(mean, covariance)

    def log_prior(self, fitting: Fitting) -> float:
        """Nothing: a floor is a bound."""
        return 0.0

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, D), of what of them was observed."""
        from scipy.linalg import solve_triangular

        rows = check_rows(rows, self.n_columns)
        out = np.empty((len(rows), self.n_labels))
        with np.errstate(over="ignore", invalid="ignore"):
            for c, (mean, factor) in enumerate(zip(self.mean, self._factor)):
                away = solve_triangular(factor, (rows - mean).T, lower=True, check_finite=False)
                out[:, c] = -0.5 * np.einsum("dn,dn->n", away, away) - np.log(np.diag(factor)).sum()
        # A row too far away for a number has a density of zero; infinities on the way may have met as NaN.
        out = np.where(np.isnan(out), -np.inf, out) - 0.5 * self.n_columns * _LOG_2PI
        for lacking, here in patterns(rows):
            seen = ~lacking
            out[here] = self.marginal(seen).log_density(rows[np.ix_(here, seen)]) if seen.any() else 0.0
        return out

    def marginal(self, columns: np.ndarray) -> FullGaussian:
        """The densities of some columns (D,) alone: the block of means and covariances.

        >>> family = FullGaussian(np.array([[1.0, 2.0]]), np.array([[[3.0, 0.5], [0.5, 4.0]]]))
        >>> family.marginal(np.array([False, True])).covariance.tolist()
        [[[4.0]]]
        """
        return FullGaussian(self.mean[:, columns], self.covariance[:, columns][:, :, columns])

    def farthest(self, row: np.ndarray) -> int:
        """The column with the most deviations to the nearest mean."""
        return most_deviant(row, self.mean, np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2)))

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""
        draws = rng.standard_normal((len(labels), self.n_columns))
        return self.mean[labels] + np.einsum("nij,nj->ni", self._factor[labels], draws)

    def widened(self, factor: float) -> FullGaussian:
        """All standard deviations times ``factor``."""
        return FullGaussian(self.mean, self.covariance * factor**2)

    # ---------------------------------------------------------------- log-linear form

    def statistics(self, rows: np.ndarray) -> np.ndarray:
        """(N, D + D (D + 1) / 2) the row and the products of its columns."""
        rows = check_rows(rows, self.n_columns)
        i, j = np.triu_indices(self.n_columns)
        return np.concatenate([rows, rows[:, i] * rows[:, j]], axis=1)

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """Λ μ and −½ Λ, its products off the diagonal twice; Λ the precision."""
        i, j = np.triu_indices(self.n_columns)
        precision = self._precision()
        linear = np.einsum("cij,cj->ci", precision, self.mean)
        square = np.where(i == j, -0.5, -1.0) * precision[:, i, j]
        root, sign = (self._factor, 2.0) if self._root is None else (self._root, -2.0)
        logs = sign * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        offset = -0.5 * ((self.mean * linear).sum(axis=1) + logs + self.n_columns * _LOG_2PI)
        return np.concatenate([linear, square], axis=1).T, offset

    def free(self) -> np.ndarray:
        """Means, and the lower triangles of the precisions' Cholesky factors with logarithms on the diagonal."""
        i, j = np.tril_indices(self.n_columns)
        lower = self._precision_root()[:, i, j]
        lower[:, i == j] = np.log(lower[:, i == j])
        return np.concatenate([self.mean.ravel(), lower.ravel()])

    def with_free(self, free: np.ndarray) -> FullGaussian:
        """The family with other free parameters."""
        factor = self._lower(free)
        inverse = np.linalg.inv(factor)
        mean, covariance = (
            free[: self.mean.size].reshape(self.mean.shape),
            np.einsum("cki,ckj->cij", inverse, inverse),
        )
        return FullGaussian(mean, covariance, _root=factor)

    def pull(self, natural: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Gradient in (natural, offset) to gradient in the free parameters, by the chain rule."""
        size = self.n_columns
        i, j = np.triu_indices(size)
        precision = self._precision()
        linear, own = natural.T[:, :size], offset[:, None, None]
        square = np.zeros((self.n_labels, size, size))
        square[:, i, j] = natural.T[:, size:] * np.where(i == j, -0.5, -1.0)
        square = (square + square.transpose(0, 2, 1)) / 2
        outer = np.einsum("ci,cj->cij", linear, self.mean)
        slope = (outer + outer.transpose(0, 2, 1)) / 2 + square
        slope += own * 0.5 * (self.covariance - np.einsum("ci,cj->cij", self.mean, self.mean))
        mean = np.einsum("cij,cj->ci", precision, linear - offset[:, None] * self.mean)
        factor = self._precision_root()
        lower = 2 * np.einsum("cij,cjk->cik", slope, factor)
        rows, columns = np.tril_indices(size)
        lower = lower[:, rows, columns]
        lower[:, rows == columns] *= np.diagonal(factor, axis1=1, axis2=2)
        return np.concatenate([mean.ravel(), lower.ravel()])

    def _lower(self, free: np.ndarray) -> np.ndarray:
        i, j = np.tril_indices(self.n_columns)
        values = free[self.mean.size :].reshape(self.n_labels, -1).copy()
        values[:, i == j] = np.exp(values[:, i == j])
        factor = np.zeros_like(self.covariance)
        factor[:, i, j] = values
        if not np.isfinite(factor).all() or not (np.diagonal(factor, axis1=1, axis2=2) > 0).all():
            raise InputError("a precision overflowed.")
        return factor

    def _precision(self) -> np.ndarray:
        if self._root is not None:
            return np.einsum("cik,cjk->cij", self._root, self._root)
        inverse = np.linalg.inv(self._factor)
        return np.einsum("cki,ckj->cij", inverse, inverse)

    def _precision_root(self) -> np.ndarray:
        """(L, D, D) C with C Cᵀ the precision: not by way of the covariance, which a narrow density rounds away."""
        return np.linalg.cholesky(self._precision()) if self._root is None else self._root

    @staticmethod
    def units(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every column; 1 for one that does not vary."""
        return DiagonalGaussian.units(rows)

    def moved(self, shift: np.ndarray, unit: np.ndarray) -> FullGaussian:
        """The densities of (x − shift) / unit."""
        return FullGaussian((self.mean - shift) / unit, self.covariance / np.outer(unit, unit))

    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of the labels' means and deviations."""
        return self.mean.mean(axis=0), np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2)).mean(axis=0)

    # ------------------------------------------------------------------------- files

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Means and covariances, by name."""
        return {"mean": self.mean, "covariance": self.covariance}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family of a model file; ModelFileError where it is damaged."""
        try:
            return cls(*stored(arrays, {"mean": 2, "covariance": 3}, n_labels=n_labels))
        except InputError as error:
            raise ModelFileError(f"the model file's densities cannot be used: {error} Was it edited?") from None


def _given_the_rest(
    covariance: np.ndarray, rows: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Of rows that lack the same columns m: these, the rows, Σ_mo Σ_oo⁻¹ (L, m, o) and the rest (L, m, m)."""
    found = []
    for lacking, here in patterns(rows):
        seen = ~lacking
        cross = covariance[:, seen][:, :, lacking]  # (L, o, m)
        gain = np.linalg.solve(covariance[:, seen][:, :, seen], cross).transpose(0, 2, 1)
        found.append((lacking, here, gain, covariance[:, lacking][:, :, lacking] - gain @ cross))
    return found
