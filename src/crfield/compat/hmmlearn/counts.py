"""Emissions of symbols and counts: categorical, multinomial, Poisson."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.compat.hmmlearn.base import LOG, BaseHMM, normalised
from crfield.scoring.densities.poisson import log_factorial


class _Shares(BaseHMM):
    """What categorical and multinomial models share: rows of probabilities."""

    emissionprob_: np.ndarray

    def _initialise(self, X: np.ndarray, rng: np.random.RandomState) -> None:
        from sklearn.utils import check_random_state

        if self._wanted("e", "emissionprob_"):
            own = check_random_state(self.random_state)
            self.emissionprob_ = normalised(own.rand(self.n_components, self.n_features))

    def _validate(self) -> None:
        self.emissionprob_ = np.atleast_2d(self.emissionprob_)
        if getattr(self, "n_features", None) is None:
            self.n_features = self.emissionprob_.shape[1]
        if self.emissionprob_.shape != (self.n_components, self.n_features):
            raise ValueError(f"emissionprob_ must have shape ({self.n_components}, {self.n_features})")
        self._check_sum_1("emissionprob_")

    def _free_parameters(self) -> dict[str, int]:
        n, width = self.n_components, self.n_features
        return {"s": n - 1, "t": n * (n - 1), "e": n * (width - 1)}

    def _logs(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.emissionprob_)


class CategoricalHMM(_Shares):
    """Symbols 0, 1, 2 … in one column.

    >>> import numpy as np
    >>> X = np.array([0, 0, 1, 0, 2, 2, 1, 2])[:, None]
    >>> model = CategoricalHMM(n_components=2, random_state=0, n_iter=20).fit(X)
    >>> model.emissionprob_.shape, model.predict(X).shape
    ((2, 3), (8,))
    """

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        *,
        emissionprob_prior: Any = 1.0,
        n_features: int | None = None,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "ste",
        init_params: str = "ste",
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
        self.emissionprob_prior, self.n_features = emissionprob_prior, n_features

    def _checked(self, X: Any) -> np.ndarray:
        X = super()._checked(X)
        if X.shape[1] != 1:
            raise ValueError(f"symbols stand in one column: expected X of shape (n_samples, 1), got {X.shape}")
        self._check_symbols(X)
        return X

    def _check_symbols(self, X: np.ndarray) -> None:
        if not np.issubdtype(X.dtype, np.integer):
            raise ValueError("Symbols should be integers")
        if X.min() < 0:
            raise ValueError("Symbols should be nonnegative")
        if self.n_features is not None and self.n_features - 1 < X.max():
            raise ValueError(
                f"Largest symbol is {X.max()} but the model only emits symbols up to {self.n_features - 1}"
            )

    def _check_and_set_n_features(self, X: np.ndarray) -> None:
        self._check_symbols(X)
        if self.n_features is None:
            self.n_features = int(X.max()) + 1

    def _densities(self, X: np.ndarray) -> np.ndarray:
        return self._logs().T[X[:, 0]]

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        if "e" in self.params:
            counts = np.zeros((self.n_components, self.n_features))
            np.add.at(counts.T, X[:, 0], posteriors)
            self.emissionprob_ = normalised(np.maximum(self.emissionprob_prior - 1 + counts, 0))

    def _draw(self, state: int, rng: np.random.RandomState) -> list[int]:
        return [int((np.cumsum(self.emissionprob_[state]) > rng.rand()).argmax())]


class MultinomialHMM(_Shares):
    """Rows of counts, each a number of draws from the distribution of its state.

    >>> import numpy as np
    >>> X = np.array([[3, 1], [4, 0], [0, 4], [1, 3]])
    >>> model = MultinomialHMM(n_components=2, random_state=0).fit(X)
    >>> model.emissionprob_.sum(axis=1).round(6).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        n_components: int = 1,
        n_trials: Any = None,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "ste",
        init_params: str = "ste",
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
        self.n_trials = n_trials

    def _check_and_set_n_features(self, X: np.ndarray) -> None:
        super()._check_and_set_n_features(X)
        if not np.issubdtype(X.dtype, np.integer) or X.min() < 0:
            raise ValueError("Symbol counts should be nonnegative integers")
        if self.n_trials is None:
            self.n_trials = X.sum(axis=1)
        elif not (X.sum(axis=1) == self.n_trials).all():
            raise ValueError("Total count for each sample should add up to the number of trials")

    def _validate(self) -> None:
        super()._validate()
        if self.n_trials is None:
            raise ValueError("n_trials must be set")

    def _densities(self, X: np.ndarray) -> np.ndarray:
        logs = self._logs()
        impossible = (X > 0).astype(float) @ np.isneginf(logs).T > 0
        sums = X @ np.where(np.isneginf(logs), 0.0, logs).T
        ways = log_factorial(X.sum(axis=1).astype(float)) - log_factorial(X.astype(float)).sum(axis=1)
        return np.where(impossible, -np.inf, sums + ways[:, None])

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        if "e" in self.params:
            self.emissionprob_ = normalised(posteriors.T @ X)

    def _draw(self, state: int, rng: np.random.RandomState) -> np.ndarray:
        trials = np.unique(self.n_trials)
        if len(trials) != 1:
            raise ValueError("For sampling, a single n_trials must be given")
        return rng.multinomial(int(trials[0]), self.emissionprob_[state])


class PoissonHMM(BaseHMM):
    """Columns of counts, independent given the state; NaN is a count that was not seen.

    >>> import numpy as np
    >>> X = np.array([[1], [0], [2], [9], [11], [8]])
    >>> model = PoissonHMM(n_components=2, random_state=1, n_iter=50).fit(X)
    >>> sorted(model.lambdas_.round(1).ravel().tolist())
    [1.0, 9.3]
    """

    lambdas_: np.ndarray
    missing = True

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        lambdas_prior: Any = 0.0,
        lambdas_weight: Any = 0.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stl",
        init_params: str = "stl",
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
        self.lambdas_prior, self.lambdas_weight = lambdas_prior, lambdas_weight

    def _initialise(self, X: np.ndarray, rng: np.random.RandomState) -> None:
        from sklearn.utils import check_random_state

        if self._wanted("l", "lambdas_"):
            own, mean, variance = check_random_state(self.random_state), np.nanmean(X), np.nanvar(X)
            shape = (self.n_components, self.n_features)
            if not (mean > 0 and variance > 0):
                LOG.warning("the counts do not vary: every rate begins at their mean")
                self.lambdas_ = np.full(shape, max(float(mean), 1e-3))
            else:
                self.lambdas_ = own.gamma(shape=mean**2 / variance, scale=variance / mean, size=shape)

    def _validate(self) -> None:
        self.lambdas_ = np.atleast_2d(self.lambdas_)
        width = getattr(self, "n_features", None) or self.lambdas_.shape[1]
        if self.lambdas_.shape != (self.n_components, width):
            raise ValueError("lambdas_ must have shape (n_components, n_features)")
        self.n_features = width

    def _free_parameters(self) -> dict[str, int]:
        n = self.n_components
        return {"s": n - 1, "t": n * (n - 1), "l": n * self.n_features}

    def _densities(self, X: np.ndarray) -> np.ndarray:
        seen = ~np.isnan(X.astype(float))
        counts = np.where(seen, X, 0).astype(float)
        with np.errstate(divide="ignore"):
            logs = np.log(self.lambdas_)
        impossible = (counts > 0).astype(float) @ np.isneginf(logs).T > 0
        sums = counts @ np.where(np.isneginf(logs), 0.0, logs).T - seen @ self.lambdas_.T
        return np.where(impossible, -np.inf, sums - np.where(seen, log_factorial(counts), 0.0).sum(axis=1)[:, None])

    def _maximise(self, X: np.ndarray, posteriors: np.ndarray) -> None:
        if "l" in self.params:
            seen = ~np.isnan(X.astype(float))
            weight = posteriors.T @ seen
            mean = (posteriors.T @ np.where(seen, X, 0)) / np.where(weight > 0, weight, 1.0)
            mean = np.where(weight > 0, mean, self.lambdas_)
            n = posteriors.sum()
            self.lambdas_ = (self.lambdas_prior + n * mean) / (self.lambdas_weight + n)

    def _draw(self, state: int, rng: np.random.RandomState) -> np.ndarray:
        return rng.poisson(self.lambdas_[state])
