"""Mixtures of normal densities: several bumps for every label.

    p(x | c) = Σ_k w_ck Π_d N(x_d; μ_ckd, σ_ckd)

A label whose observations fall into groups has no single middle. Components have independent columns; enough of them
make up any density. Which component a row belongs to is not known, so `refit` is the M step for rows shared among
components as the present ones say, and `fit` repeats it from a start: means far from each other, drawn in the manner
of k-means++ (Arthur & Vassilvitskii 2007). Inside Baum–Welch both hidden things, states and components, are averaged
in the same step. A mixture is not log-linear, so it can be counted and trained by EM, but not by gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.scoring.densities.gaussian import (
    DEFAULTS,
    TINY,
    Fitting,
    Spread,
    Sums,
    check_mass,
    check_rows,
    most_deviant,
    stored,
)
from crfield.scoring.densities.observed import column_moments, column_scores, filled

ROUNDS = 50  # of EM within `fit`
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class GaussianMixtures:
    """K normal components with independent columns for each label.

    >>> rows = np.array([[0.0], [0.2], [9.8], [10.0]])
    >>> family = GaussianMixtures.fit(rows, np.ones((4, 1)))
    >>> sorted(family.mean.ravel().round(1).tolist()), family.weight.round(2).tolist()
    ([0.1, 9.9], [[0.5, 0.5]])
    """

    kind = "mixture"
    marginalises = True

    weight: np.ndarray  # (L, K), rows sum to one
    mean: np.ndarray  # (L, K, D)
    deviation: np.ndarray  # (L, K, D), positive

    def __post_init__(self) -> None:
        weight, mean, deviation = (
            np.ascontiguousarray(a, np.float64) for a in (self.weight, self.mean, self.deviation)
        )
        if weight.ndim != 2 or mean.ndim != 3 or mean.shape[:2] != weight.shape or mean.shape != deviation.shape:
            raise ShapeError(
                f"weights must be (L, K), means and deviations (L, K, D), got {weight.shape}, {mean.shape} and "
                f"{deviation.shape}."
            )
        if not all(np.isfinite(a).all() for a in (weight, mean, deviation)) or not (deviation > 0).all():
            raise InputError("weights and means must be finite, and standard deviations finite and > 0.")
        if (weight < 0).any() or not np.allclose(weight.sum(axis=1), 1.0):
            raise InputError("the weights of a mixture must be probabilities that sum to one.")
        for name, value in (("weight", weight), ("mean", mean), ("deviation", deviation)):
            object.__setattr__(self, name, value)

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.weight)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self.mean.shape[2])

    @property
    def n_components(self) -> int:
        """K."""
        return int(self.weight.shape[1])

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Components of each label from a start; LabelError for a label that no row speaks for."""
        rows, responsibility = np.asarray(rows, np.float64), np.asarray(responsibility, np.float64)
        check_mass(responsibility.sum(axis=0))
        spread = fitting.spread or Spread.of(rows, responsibility.sum(axis=1))
        rng = np.random.default_rng(fitting.seed)
        unit = np.sqrt(np.where(spread.varies, spread.variance, 1.0))
        labels, size = responsibility.shape[1], fitting.n_components
        scaled = (filled(rows, spread.middle) if spread.gaps else rows) / unit
        mean = np.stack([far_apart(scaled, responsibility[:, c], size, rng) for c in range(labels)]) * unit
        family = cls(np.full((labels, size), 1.0 / size), mean, np.broadcast_to(unit, mean.shape))
        before = -np.inf
        for _ in range(ROUNDS):
            family = family.refit(rows, responsibility, Fitting(floor=fitting.floor, spread=spread))
            now = float((responsibility * family.log_density(rows)).sum())
            if now - before <= 1e-6 * responsibility.sum():
                break
            before = now
        return family

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Moments of rows that are shared among labels and, within each, among its components."""
        fitting = fitting.spreading(rows, responsibility)
        return self.refitted(self.gathered(rows, responsibility, fitting), fitting)

    def gathered(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting) -> Sums:
        """Mass, first and second moments of each component about its mean, and how much of all rows each has."""
        spread = fitting.spread
        assert spread is not None
        inner = self._inner(rows)
        parts = np.exp(inner - _finite(inner.max(axis=2, keepdims=True)))
        sums = parts.sum(axis=2)
        parts *= (responsibility / np.where(sums > 0, sums, 1.0))[:, :, None]
        size = self.n_labels * self.n_components
        flat = self.mean.reshape(size, -1)
        moments = column_moments(rows, parts.reshape(len(rows), size), flat, gaps=spread.gaps, n_jobs=fitting.n_jobs)
        own = parts.sum(axis=0) if spread.gaps else moments[0].reshape(self.mean.shape[:2])
        return *moments, own

    def refitted(self, sums: Sums, fitting: Fitting) -> Self:
        """The mixtures of these moments."""
        (mass, first, second, own), spread = sums, fitting.spread
        assert spread is not None
        flat = self.mean.reshape(self.n_labels * self.n_components, -1)
        alive, size = mass > 0, len(flat)
        share = 1.0 / np.where(alive, mass, 1.0)
        variance = np.maximum(second * share - (first * share) ** 2, fitting.floor * spread.variance)
        deviation = np.where(spread.varies, np.sqrt(np.maximum(variance, TINY)), 1.0)
        mean = np.where(spread.varies, flat + first * share, spread.middle)
        shape = self.mean.shape
        whole = own.sum(axis=1, keepdims=True)
        return type(self)(
            np.where(whole > 0, own / np.where(whole > 0, whole, 1.0), self.weight),
            np.where(alive, mean, flat).reshape(shape),
            np.where(alive, deviation, self.deviation.reshape(size, -1)).reshape(shape),
        )

    def log_prior(self, fitting: Fitting) -> float:
        """Nothing: a floor is a bound."""
        return 0.0

    def _inner(self, rows: np.ndarray) -> np.ndarray:
        """(N, L, K) log w_ck + log N(x; μ_ck, σ_ck), of what of x was observed."""
        rows = check_rows(rows, self.n_columns)
        size = self.n_labels * self.n_components
        bias = -np.log(self.deviation).sum(axis=2) - 0.5 * self.n_columns * _LOG_2PI
        base = np.log(np.maximum(self.weight, TINY))
        mean, deviation = self.mean.reshape(size, -1), self.deviation.reshape(size, -1)
        flat = column_scores(rows, mean, deviation, (bias + base).ravel(), base.ravel(), 1)
        return flat.reshape(len(rows), self.n_labels, self.n_components)

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, D)."""
        inner = self._inner(rows)
        top = inner.max(axis=2)
        with np.errstate(divide="ignore"):  # no component has a density: the logarithm of zero
            return np.asarray(np.log(np.exp(inner - _finite(top)[:, :, None]).sum(axis=2)) + top)

    def farthest(self, row: np.ndarray) -> int:
        """The column with the most deviations to the nearest mean of a component."""
        size = self.n_labels * self.n_components
        return most_deviant(row, self.mean.reshape(size, -1), self.deviation.reshape(size, -1))

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,)."""
        bounds = np.cumsum(self.weight, axis=1)[labels]
        component = (rng.random((len(labels), 1)) * bounds[:, -1:] >= bounds).sum(axis=1)
        component = np.minimum(component, self.n_components - 1)
        draws = rng.standard_normal((len(labels), self.n_columns))
        return self.mean[labels, component] + self.deviation[labels, component] * draws

    def widened(self, factor: float) -> GaussianMixtures:
        """All standard deviations times ``factor``."""
        return GaussianMixtures(self.weight, self.mean, self.deviation * factor)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Weights, means and deviations, by name."""
        return {"weight": self.weight, "mean": self.mean, "deviation": self.deviation}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """The family of a model file; ModelFileError where it is damaged."""
        try:
            return cls(*stored(arrays, {"weight": 2, "mean": 3, "deviation": 3}, n_labels=n_labels))
        except InputError as error:
            raise ModelFileError(f"the model file's densities cannot be used: {error} Was it edited?") from None


def _finite(top: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(top), 0.0, top)


def far_apart(rows: np.ndarray, weight: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, D) rows drawn by weight (N,) times squared distance to those drawn before.

    >>> rows = np.array([[0.0], [0.0], [7.0]])
    >>> sorted(far_apart(rows, np.ones(3), 2, np.random.default_rng(0)).ravel().tolist())
    [0.0, 7.0]
    """
    chosen = np.empty((count, rows.shape[1]))
    away = np.ones(len(rows))
    for k in range(count):
        chance = weight * away
        if not chance.sum() > 0:
            chance = weight
        chosen[k] = rows[rng.choice(len(rows), p=chance / chance.sum())]
        near = ((rows - chosen[k]) ** 2).sum(axis=1)
        away = near if k == 0 else np.minimum(away, near)
    return chosen
