"""Mixtures of normal densities in every state.

Each state has ``n_mix`` components; their shares of an observation are posteriors of the state times what each says
of it. Priors are those of hmmlearn: Dirichlet on the weights, normal on the means (``means_prior``,
``means_weight``), inverse gamma or Wishart on the covariances (``covars_prior``, ``covars_weight``), which by
default say nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.compat.hmmlearn.base import LOG, BaseHMM
from crfield.compat.hmmlearn.gaussian import COVARIANCES, centres, normal_densities


class GMMHMM(BaseHMM):
    """Mixtures of normal observations.

    >>> import numpy as np
    >>> X = np.random.RandomState(0).normal(size=(60, 1)) + np.repeat([-9.0, -3.0, 3.0, 9.0], 15)[:, None]
    >>> model = GMMHMM(n_components=2, n_mix=2, random_state=1, n_iter=20).fit(X)
    >>> model.means_.shape, model.weights_.sum(axis=1).round(6).tolist()
    ((2, 2, 1), [1.0, 1.0])
    """

    weights_: np.ndarray
    means_: np.ndarray
    covars_: np.ndarray

    def __init__(
        self,
        n_components: int = 1,
        n_mix: int = 1,
        min_covar: float = 1e-3,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        weights_prior: Any = 1.0,
        means_prior: Any = 0.0,
        means_weight: Any = 0.0,
        covars_prior: Any = None,
        covars_weight: Any = None,
        algorithm: str = "viterbi",
        covariance_type: str = "diag",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmcw",
        init_params: str = "stmcw",
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
        self.n_mix, self.min_covar, self.covariance_type = n_mix, min_covar, covariance_type
        self.weights_prior, self.means_prior, self.means_weight = weights_prior, means_prior, means_weight
        self.covars_prior, self.covars_weight = covars_prior, covars_weight

    def _initialise(self, X: np.ndarray, rng: np.random.RandomState) -> None:
        from sklearn.cluster import KMeans

        n, m, d = self.n_components, self.n_mix, self.n_features
        self._set_priors()
        spread = np.atleast_2d(np.cov(X.T)) + self.min_covar * np.eye(d)
        if self._wanted("w", "weights_"):
            self.weights_ = np.full((n, m), 1.0 / m)
        if self._wanted("m", "means_"):
            clusters = KMeans(n_clusters=n, random_state=self.random_state, n_init=10).fit(X)
            middle, means = clusters.cluster_centers_.mean(axis=0), []
            for state in range(n):
                own = X[clusters.labels_ == state]
                many = len(own) >= m
                means.append(
                    centres(own, m, self.random_state) if many else rng.multivariate_normal(middle, spread, m)
                )
            self.means_ = np.stack(means)
        if self._wanted("c", "covars_"):
            parts = {
                "tied": np.tile(spread, (n, 1, 1)),
                "full": np.tile(spread, (n, m, 1, 1)),
                "diag": np.tile(np.diag(spread), (n, m, 1)),
                "spherical": np.full((n, m), spread.mean()),
            }
            if self.covariance_type in parts:
                self.covars_ = parts[self.covariance_type]

    def _set_priors(self) -> None:
        """Priors in their shapes; those that nobody gave say nothing."""
        n, m, d, kind = self.n_components, self.n_mix, self.n_features, self.covariance_type
        if kind not in COVARIANCES:
            raise ValueError(f"covariance_type must be one of {COVARIANCES}")
        silent = {
            "full": (0.0, -(1.0 + d + 1.0)),
            "tied": (0.0, -(m + d + 1.0)),
            "diag": (-1.5, 0.0),
            "spherical": (-(m + 2.0) / 2.0, 0.0),
        }[kind]
        shapes = {"full": ((n, m, d, d), (n, m)), "tied": ((n, d, d), (n,)), "diag": ((n, m, d),) * 2}
        prior, weight = shapes.get(kind, ((n, m), (n, m)))
        given = silent[0] if self.covars_prior is None else self.covars_prior
        self.covars_prior = np.broadcast_to(given, prior).copy()
        given = silent[1] if self.covars_weight is None else self.covars_weight
        self.covars_weight = np.broadcast_to(given, weight).copy()
        self.weights_prior = np.broadcast_to(self.weights_prior, (n, m)).copy()
        self.means_prior = np.broadcast_to(self.means_prior, (n, m, d)).copy()
        self.means_weight = np.broadcast_to(self.means_weight, (n, m)).copy()

    def _validate(self) -> None:
        if getattr(self, "n_features", None) is None:
            self.n_features = np.asarray(self.means_).shape[2]
        n, m, d, kind = self.n_components, self.n_mix, self.n_features, self.covariance_type
        self._set_priors()
        self.weights_, self.means_ = np.array(self.weights_), np.array(self.means_)
        self.covars_ = np.array(self.covars_)
        if self.weights_.shape != (n, m):
            raise ValueError(f"weights_ must have shape (n_components, n_mix), actual shape: {self.weights_.shape}")
        self._check_sum_1("weights_")
        if self.means_.shape != (n, m, d):
            raise ValueError(
                f"means_ must have shape (n_components, n_mix, n_features), actual shape: {self.means_.shape}"
            )
        needed = {"spherical": (n, m), "tied": (n, d, d), "diag": (n, m, d), "full": (n, m, d, d)}[kind]
        if self.covars_.shape != needed:
            raise ValueError(f"{kind!r} mixture covars must have shape {needed}, actual shape: {self.covars_.shape}")
        if kind in ("spherical", "diag"):
            if np.any(self.covars_ < 0):
                raise ValueError(f"{kind!r} mixture covars must be non-negative")
            if np.any(self.covars_ == 0):
                LOG.warning("Degenerate mixture covariance")
            return
        for place in np.ndindex(self.covars_.shape[:-2]):
            matrix = self.covars_[place]
            name = f"state #{place[0]}" + (f", mixture #{place[1]}" if kind == "full" else "")
            if not np.allclose(matrix, matrix.T):
                raise ValueError(f"Covariance of {name} is not symmetric")
            least = np.linalg.eigvalsh(matrix).min()
            if least < 0:
                raise ValueError(f"Covariance of {name} is not positive definite")
            if least == 0:
                LOG.warning("Covariance of %s has a null eigenvalue.", name)

    def _free_parameters(self) -> dict[str, int]:
        n, m, d = self.n_components, self.n_mix, self.n_features
        shared = d * (d + 1) // 2
        free = {"spherical": n * m, "diag": n * m * d, "full": n * m * shared, "tied": n * shared}
        return {"s": n - 1, "t": n * (n - 1), "m": n * m * d, "c": free[self.covariance_type], "w": m - 1}

    def _parts(self, X: np.ndarray) -> np.ndarray:
        """(N, S, M) log of weight times density of every component."""
        kind = self.covariance_type
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights_)
        parts = [
            normal_densities(X, self.means_[state], self.covars_[state], kind) + logs[state]
            for state in range(self.n_components)
        ]
        return np.stack(parts, axis=1)

    def _densities(self, X: np.ndarray) -> np.ndarray:
        return np.logaddexp.reduce(self._parts(X), axis=2)

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        parts = self._parts(X)
        total = np.logaddexp.reduce(parts, axis=2, keepdims=True)
        with np.errstate(invalid="ignore"):
            shares = np.where(np.isneginf(total), 1.0 if self.n_mix == 1 else 0.0, np.exp(parts - total))
        shares = posteriors[:, :, None] * shares  # (N, S, M)
        mass = shares.sum(axis=0)
        before = self.means_
        kind, d = self.covariance_type, self.n_features
        if "w" in self.params:
            more = self.weights_prior - 1
            self.weights_ = (mass + more) / (posteriors.sum(axis=0) + more.sum(axis=1))[:, None]
        if "m" in self.params:
            sums = np.einsum("nsm,nd->smd", shares, X) + self.means_weight[:, :, None] * self.means_prior
            below = mass + self.means_weight
            below[(self.weights_ == 0) & (sums == 0).all(axis=-1)] = 1
            self.means_ = sums / below[:, :, None]
        if "c" not in self.params:
            return
        away = X[:, None, None, :] - before  # about the means before this step, as in hmmlearn
        apart = self.means_ - self.means_prior
        if kind == "diag":
            squares = np.einsum("nsm,nsmd->smd", shares, away**2)
            above = squares + self.means_weight[:, :, None] * apart**2 + 2 * self.covars_weight
            self.covars_ = above / (mass[:, :, None] + 1 + 2 * (self.covars_prior + 1))
        elif kind == "spherical":
            squares = np.einsum("nsm,nsmd->sm", shares, away**2)
            above = squares + self.means_weight * (apart**2).sum(axis=-1) + 2 * self.covars_weight
            self.covars_ = above / (d * (mass + 1) + 2 * (self.covars_prior + 1))
        elif kind == "full":
            squares = np.einsum("nsm,nsmd,nsme->smde", shares, away, away)
            outer = apart[..., :, None] * apart[..., None, :]
            above = squares + self.means_weight[:, :, None, None] * outer + self.covars_prior.transpose(0, 1, 3, 2)
            self.covars_ = above / (mass + 1 + self.covars_weight + d + 1)[:, :, None, None]
        else:
            squares = np.einsum("nsm,nsmd,nsme->sde", shares, away, away)
            outer = apart[..., :, None] * apart[..., None, :]
            above = squares + np.einsum("sm,smde->sde", self.means_weight, outer)
            above += self.covars_prior.transpose(0, 2, 1)
            below = posteriors.sum(axis=0) + self.n_mix + self.covars_weight + d + 1
            self.covars_ = above / below[:, None, None]

    def _draw(self, state: int, rng: np.random.RandomState) -> np.ndarray:
        part = rng.choice(self.n_mix, p=self.weights_[state])
        covariance = self.covars_[state] if self.covariance_type == "tied" else self.covars_[state, part]
        if self.covariance_type in ("diag", "spherical"):
            covariance = np.eye(self.n_features) * covariance
        return rng.multivariate_normal(self.means_[state, part], covariance)
