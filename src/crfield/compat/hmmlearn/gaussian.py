"""Normal emissions with spherical, diagonal, full or tied covariances.

Densities and statistics are computed about means, not about zero, and cells that are missing (NaN) are integrated
out: a density is that of the block that was observed; in the M step a missing block is its mean given the observed
one, and what is left of its covariance is added (`crfield.scoring.densities.full`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.compat.hmmlearn.base import BaseHMM
from crfield.scoring.densities.observed import patterns

COVARIANCES = ("spherical", "diag", "full", "tied")
RETRY = 1e-7  # added to a covariance that has no Cholesky factor
_LOG_2PI = float(np.log(2 * np.pi))


class GaussianHMM(BaseHMM):
    """Normal observations.

    >>> import numpy as np
    >>> X = np.array([[0.1], [0.2], [-0.1], [5.1], [4.9], [5.0]])
    >>> model = GaussianHMM(n_components=2, random_state=0).fit(X)
    >>> sorted(model.means_.round(1).ravel().tolist())
    [0.1, 5.0]
    >>> X[1] = np.nan
    >>> model.predict(X).shape
    (6,)
    """

    means_: np.ndarray
    _covars_: np.ndarray
    missing = True

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "diag",
        min_covar: float = 1e-3,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        means_prior: Any = 0,
        means_weight: Any = 0,
        covars_prior: Any = 1e-2,
        covars_weight: Any = 1,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        implementation: str = "log",
    ) -> None:
        super().__init__(
            n_components,
            startprob_prior,
            transmat_prior,
            algorithm,
            random_state,
            n_iter,
            tol,
            verbose,
            params,
            init_params,
            implementation,
        )
        self.covariance_type, self.min_covar = covariance_type, min_covar
        self.means_prior, self.means_weight = means_prior, means_weight
        self.covars_prior, self.covars_weight = covars_prior, covars_weight

    @property
    def covars_(self) -> np.ndarray:
        """(n_components, n_features, n_features) whatever the type."""
        return full_covariances(self._covars_, self.covariance_type, self.n_components, self.n_features)

    @covars_.setter
    def covars_(self, covars: Any) -> None:
        made = np.array(covars, dtype=float)
        check_covariances(made, self.covariance_type, self.n_components)
        self._covars_ = made

    def _initialise(self, X: np.ndarray, rng: np.random.RandomState) -> None:
        whole = X[~np.isnan(X).any(axis=1)]
        if self._wanted("m", "means_"):
            self.means_ = centres(whole, self.n_components, self.random_state)
        if self._wanted("c", "covars_"):
            spread = np.atleast_2d(np.cov(whole.T)) + self.min_covar * np.eye(X.shape[1])
            self.covars_ = distributed(spread, self.covariance_type, self.n_components)

    def _validate(self) -> None:
        self.means_ = np.asarray(self.means_)
        self.n_features = self.means_.shape[1]
        if self.covariance_type not in COVARIANCES:
            raise ValueError(f"covariance_type must be one of {COVARIANCES}")

    def _free_parameters(self) -> dict[str, int]:
        n, d = self.n_components, self.n_features
        shared = d * (d + 1) // 2
        free = {"spherical": n, "diag": n * d, "full": n * shared, "tied": shared}
        return {"s": n - 1, "t": n * (n - 1), "m": n * d, "c": free[self.covariance_type]}

    def _densities(self, X: np.ndarray) -> np.ndarray:
        return normal_densities(X, self.means_, self._covars_, self.covariance_type)

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        diagonal = self.covariance_type in ("spherical", "diag")
        weight, first, second = moments(X, posteriors, self.means_, None if diagonal else self.covars_)
        mass = posteriors.sum(axis=0)
        before = self.means_
        if "m" in self.params:
            sums = first + weight * before
            self.means_ = (self.means_weight * self.means_prior + sums) / (self.means_weight + weight)
        if "c" not in self.params:
            return
        moved, apart = self.means_ - before, self.means_ - self.means_prior
        if diagonal:
            squares = second - 2 * moved * first + moved**2 * weight
            below = np.maximum(max(self.covars_weight - 1, 0) + weight, 1e-5)
            made = (self.covars_prior + self.means_weight * apart**2 + squares) / below
            if self.covariance_type == "spherical":
                made = np.tile(made.mean(axis=1, keepdims=True), (1, made.shape[1]))
            self._covars_ = made
            return
        cross = first[:, :, None] * moved[:, None, :]
        squares = second - cross - cross.transpose(0, 2, 1)
        squares += moved[:, :, None] * moved[:, None, :] * mass[:, None, None]
        squares += self.means_weight * apart[:, :, None] * apart[:, None, :]
        more = max(self.covars_weight - self.n_features, 0)
        if self.covariance_type == "tied":
            self._covars_ = (self.covars_prior + squares.sum(axis=0)) / (more + mass.sum())
        else:
            self._covars_ = (self.covars_prior + squares) / (more + mass[:, None, None])

    def _draw(self, state: int, rng: np.random.RandomState) -> np.ndarray:
        return rng.multivariate_normal(self.means_[state], self.covars_[state])


def centres(X: np.ndarray, count: int, random_state: Any) -> np.ndarray:
    """(count, D) centres by k-means."""
    from sklearn.cluster import KMeans

    return KMeans(n_clusters=count, random_state=random_state, n_init=10).fit(X).cluster_centers_


def normal_densities(X: np.ndarray, means: np.ndarray, covars: np.ndarray, kind: str) -> np.ndarray:
    """(N, S) log-densities of what was observed of the rows.

    >>> normal_densities(np.array([[0.0, np.nan]]), np.zeros((1, 2)), np.ones((1, 2)), "diag").round(4).tolist()
    [[-0.9189]]
    """
    n, d = means.shape
    if kind in ("spherical", "diag"):
        variances = np.broadcast_to(covars[:, None] if covars.ndim == 1 else covars, (n, d))
        variances = np.maximum(variances, np.finfo(float).tiny)
        seen = ~np.isnan(X)
        with np.errstate(over="ignore"):
            squares = np.where(seen[:, None, :], (X[:, None, :] - means) ** 2 / variances, 0.0).sum(axis=-1)
        return -0.5 * (seen @ (_LOG_2PI + np.log(variances)).T + squares)
    out = np.empty((len(X), n))
    whole = np.flatnonzero(~np.isnan(X).any(axis=1))
    groups = [(np.zeros(d, bool), whole), *patterns(X)]
    for state, (mean, covariance) in enumerate(zip(means, np.broadcast_to(covars, (n, d, d)))):
        for lacking, rows in groups:
            there = ~lacking
            size = int(there.sum())
            if not size:
                out[rows, state] = 0.0
                continue
            factor = _factor(covariance[np.ix_(there, there)])
            away = np.linalg.solve(factor, (X[np.ix_(rows, there)] - mean[there]).T)
            out[rows, state] = -0.5 * (size * _LOG_2PI + (away**2).sum(axis=0)) - np.log(np.diag(factor)).sum()
    return out


def moments(
    X: np.ndarray, posteriors: np.ndarray, means: np.ndarray, covars: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, first and second moments about the means, by posteriors (N, S).

    Without ``covars`` of single columns: (S, D) each, over the cells that were observed. With them second moments are
    (S, D, D), the weights (S, 1), and what is missing is taken by its mean and covariance given the rest of its row.
    """
    seen = ~np.isnan(X)
    if covars is None:
        weight = posteriors.T @ seen
        first, second = np.empty_like(weight), np.empty_like(weight)
        for state, mean in enumerate(means):
            away = np.where(seen, X - mean, 0.0)
            first[state], second[state] = posteriors[:, state] @ away, posteriors[:, state] @ away**2
        return weight, first, second
    n, d = means.shape
    first, second = np.empty((n, d)), np.empty((n, d, d))
    gaps = list(patterns(X))
    for state, mean in enumerate(means):
        away, own = np.where(seen, X - mean, 0.0), posteriors[:, state]
        rest = np.zeros((d, d))
        for lacking, rows in gaps:
            there, covariance = ~lacking, covars[state]
            left = covariance[np.ix_(lacking, lacking)]
            if there.any():
                slope = np.linalg.solve(covariance[np.ix_(there, there)], covariance[np.ix_(there, lacking)]).T
                away[np.ix_(rows, lacking)] = away[np.ix_(rows, there)] @ slope.T
                left = left - slope @ covariance[np.ix_(there, lacking)]
            rest[np.ix_(lacking, lacking)] += own[rows].sum() * left
        first[state], second[state] = own @ away, (away * own[:, None]).T @ away + rest
    return posteriors.sum(axis=0)[:, None], first, second


def _factor(covariance: np.ndarray) -> np.ndarray:
    """The Cholesky factor, of a matrix that is widened a little where it has none."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        try:
            return np.linalg.cholesky(covariance + RETRY * np.eye(len(covariance)))
        except np.linalg.LinAlgError:
            raise ValueError("'covars' must be symmetric, positive-definite") from None


def full_covariances(covars: np.ndarray, kind: str, n: int, d: int) -> np.ndarray:
    """(n, d, d) covariances of any type.

    >>> full_covariances(np.array([2.0]), "spherical", 1, 2).tolist()
    [[[2.0, 0.0], [0.0, 2.0]]]
    """
    if kind == "full":
        return covars
    if kind == "tied":
        return np.tile(covars, (n, 1, 1))
    variances = covars.reshape(n, -1)
    return np.broadcast_to(variances, (n, d))[:, :, None] * np.eye(d)


def distributed(spread: np.ndarray, kind: str, n: int) -> np.ndarray:
    """One covariance matrix as the covariances of n states of a type.

    >>> distributed(np.diag([1.0, 3.0]), "diag", 2).tolist()
    [[1.0, 3.0], [1.0, 3.0]]
    """
    if kind == "spherical":
        return np.tile(spread.mean() * np.ones(spread.shape[1]), (n, 1))
    if kind == "diag":
        return np.tile(np.diag(spread), (n, 1))
    if kind == "tied":
        return spread.copy()
    if kind == "full":
        return np.tile(spread, (n, 1, 1))
    raise ValueError(f"covariance_type must be one of {COVARIANCES}")


def check_covariances(covars: np.ndarray, kind: str, n: int) -> None:
    """ValueError for covariances that cannot be those of n states of a type."""
    if kind == "spherical":
        if len(covars) != n:
            raise ValueError("'spherical' covars have length n_components")
        if np.any(covars <= 0):
            raise ValueError("'spherical' covars must be positive")
    elif kind == "diag":
        if covars.ndim != 2:
            raise ValueError("'diag' covars must have shape (n_components, n_dim)")
        if np.any(covars <= 0):
            raise ValueError("'diag' covars must be positive")
    elif kind == "tied":
        if covars.ndim != 2 or covars.shape[0] != covars.shape[1]:
            raise ValueError("'tied' covars must have shape (n_dim, n_dim)")
        if not _definite(covars):
            raise ValueError("'tied' covars must be symmetric, positive-definite")
    elif kind == "full":
        if covars.ndim != 3 or covars.shape[1] != covars.shape[2]:
            raise ValueError("'full' covars must have shape (n_components, n_dim, n_dim)")
        for number, matrix in enumerate(covars):
            if not _definite(matrix):
                raise ValueError(f"component {number} of 'full' covars must be symmetric, positive-definite")
    else:
        raise ValueError(f"covariance_type must be one of {COVARIANCES}")


def _definite(matrix: np.ndarray) -> bool:
    return bool(np.allclose(matrix, matrix.T) and np.all(np.linalg.eigvalsh(matrix) > 0))
