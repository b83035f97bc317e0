"""Any estimator of densities as emissions: one fitted copy for each label.

An estimator with ``fit(rows)`` and ``score_samples(rows)`` (scikit-learn's ``KernelDensity``, ``GaussianMixture``,
``BayesianGaussianMixture`` …) is cloned for each label and fitted to its rows; ``score_samples`` is log p(x | label).
Counting needs no more. EM asks for weights of rows, so there ``fit`` must take ``sample_weight``; and since such fits
are not of maximum likelihood, EM may then fall, and stops where it does. Estimators are code, so a model with them
goes to joblib and not to a model file.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.scoring.densities.gaussian import DEFAULTS, Fitting, check_mass, check_rows

LEAST = -1e5  # log density at most where an estimator says zero: no label is ruled out by the reach of a kernel


@dataclass(frozen=True, eq=False)
class FittedDensities:
    """Fitted estimators, one for each label.

    >>> from sklearn.neighbors import KernelDensity
    >>> rows = np.array([[0.0], [1.0], [5.0]])
    >>> family = FittedDensities.fit(rows, np.eye(2)[[0, 0, 1]], Fitting(density=KernelDensity()))
    >>> family.log_density(np.array([[5.0]])).argmax(axis=1).tolist()
    [1]
    """

    kind = "density"
    marginalises = False  # estimators know their density of whole rows only

    estimators: tuple[Any, ...]
    columns: int

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.estimators)

    @property
    def n_columns(self) -> int:
        """D."""
        return self.columns

    @classmethod
    def fit(cls, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """A clone for each label, fitted to the rows that speak for it."""
        from sklearn.base import clone

        if fitting.density is None:
            raise InputError("an estimator of densities must be given.")
        check_mass(responsibility.sum(axis=0))
        weighs = "sample_weight" in inspect.signature(fitting.density.fit).parameters
        made = []
        for own in responsibility.T:
            some = np.flatnonzero(own > 0)
            plain = (own[some] == own[some[0]]).all()
            if not plain and not weighs:
                raise InputError(
                    f"{type(fitting.density).__name__}.fit takes no sample_weight, so neither EM nor sequences of "
                    "different weight can be used with it. Count with equal weights, or use emissions='mixture'."
                )
            options = {} if plain else {"sample_weight": own[some]}
            made.append(clone(fitting.density).fit(rows[some], **options))
        return cls(tuple(made), int(rows.shape[1]))

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = DEFAULTS) -> Self:
        """Fitted anew; a label that no row speaks for keeps its density."""
        alive = responsibility.sum(axis=0) > 0
        made = iter(self.fit(rows, responsibility[:, alive], fitting).estimators)
        return type(self)(
            tuple(next(made) if good else old for good, old in zip(alive, self.estimators)), self.columns
        )

    def log_prior(self, fitting: Fitting) -> float:
        """Nothing is known of it."""
        return 0.0

    def log_density(self, rows: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(N, L) of rows (N, D)."""
        rows = check_rows(rows, self.columns)
        if not len(rows):
            return np.zeros((0, self.n_labels))
        with np.errstate(over="ignore"):
            out = np.stack([np.asarray(one.score_samples(rows), np.float64) for one in self.estimators], axis=1)
        if np.isnan(out).any() or np.isposinf(out).any():
            raise InputError("score_samples of the densities gave NaN or infinity; finite log densities are needed.")
        # Zero is no more than what others say of the row, however little that is.
        none = np.isneginf(out)
        lowest = np.minimum(np.where(none, LEAST, out).min(axis=1, keepdims=True), LEAST)
        return np.where(none, lowest, out)

    def farthest(self, row: np.ndarray) -> int:
        """The column of largest size: of the densities nothing else is known."""
        return int(np.abs(row).argmax())

    def sample(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(N, D) rows drawn for labels (N,); the estimators must have ``sample``."""
        out = np.empty((len(labels), self.columns))
        for c, one in enumerate(self.estimators):
            here = np.flatnonzero(labels == c)
            if not len(here):
                continue
            if not hasattr(one, "sample"):
                raise InputError(f"{type(one).__name__} cannot draw: it has no sample method.")
            out[here] = _draw(one, len(here), rng)
        return out

    def widened(self, factor: float) -> FittedDensities:
        """Itself for 1; others have no deviations to multiply."""
        if factor != 1.0:
            raise InputError("deviation_factor is for normal and categorical emissions; widen the density itself.")
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """InputError: estimators are code."""
        raise InputError("emissions of an estimator are code, which model files do not hold. Use joblib.dump.")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, n_labels: int) -> Self:
        """ModelFileError: no file holds them."""
        raise ModelFileError("estimators of densities are not stored in model files.")


def _draw(estimator: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    seed = int(rng.integers(2**31))
    if "random_state" in inspect.signature(estimator.sample).parameters:
        return np.asarray(estimator.sample(count, random_state=seed))
    if hasattr(estimator, "random_state"):  # mixtures draw by their own seed, which must not repeat itself
        from copy import copy

        estimator = copy(estimator)
        estimator.random_state = seed
    drawn = estimator.sample(count)
    return np.asarray(drawn[0] if isinstance(drawn, tuple) else drawn)
