"""Problems for the tests of optimisers: quadratics and logistic regressions, dense and sparse."""

from __future__ import annotations

from typing import Any

import numpy as np


class Quadratic:
    """½ wᵀA w − bᵀw + 10, with A positive definite."""

    def __init__(self, *, seed: int, n: int) -> None:
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((n, n))
        self.matrix, self.linear, self.n_weights = root @ root.T + np.eye(n), rng.standard_normal(n), n

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        gradient[:] = self.matrix @ weights - self.linear
        return float(0.5 * weights @ (gradient - self.linear)) + 10.0


class Logistic:
    """Σ log(1 + exp(−sign · row·w))."""

    def __init__(self, rows: Any, sign: np.ndarray) -> None:
        self.rows, self.sign, self.n_weights = rows, sign, rows.shape[1]
        self.n_evaluations = 0

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        self.n_evaluations += 1
        margin = self.sign * (self.rows @ weights)
        gradient[:] = self.rows.T @ (-self.sign * np.exp(-np.logaddexp(0, margin)))
        return float(np.logaddexp(0, -margin).sum())

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """The diagonal of the Hessian."""
        p = np.exp(-np.logaddexp(0, -(self.rows @ weights)))
        squares = self.rows.multiply(self.rows) if hasattr(self.rows, "multiply") else self.rows**2
        return np.asarray(squares.T @ (p * (1 - p))).ravel()


def signs(rng: np.random.Generator, score: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(score)) < 1 / (1 + np.exp(-score)), 1.0, -1.0)


def dense(*, seed: int, rows: int = 400, width: int = 30, spread: float = 0.0) -> Logistic:
    """Independent columns whose scales spread over ``spread`` powers of ten."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width)) * 10 ** (spread * np.linspace(-0.5, 0.5, width))
    weights = rng.standard_normal(width) / np.abs(x).mean(axis=0)
    return Logistic(x, signs(rng, x @ weights / 3))


def correlated(*, seed: int, rows: int = 500, width: int = 60) -> Logistic:
    """Columns that walk: neighbours are nearly equal."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.standard_normal((rows, width)), axis=1) / 3
    return Logistic(x, signs(rng, x[:, ::10] @ rng.standard_normal(len(range(0, width, 10)))))


def text(*, seed: int, rows: int = 1500, width: int = 5000, per_row: int = 12) -> Logistic:
    """Rows of a few words each, whose frequencies fall like those of a language."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    words = np.minimum((rng.pareto(0.8, (rows, per_row)) * 5).astype(int), width - 1)
    pointers = np.arange(0, rows * per_row + 1, per_row)
    x = csr_matrix((np.ones(rows * per_row), words.ravel(), pointers), (rows, width))
    x.sum_duplicates()
    x.data[:] = 1.0
    return Logistic(x, signs(rng, x @ rng.standard_normal(width)))
