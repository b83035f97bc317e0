"""Rows with one label each: logistic problems, with what Newton and stochastic steps ask of them.

    F(w) = Σ_n weight_n [ log Σ_k exp s_nk − s_{n, y_n} ]          s = A w, linear in the weights

A row is a chain of length one, so value and gradient come from the chain's own code: `FusedChain` for rows of
columns (`ColumnRows`, one weight for each column and class, and one for each class) and `FullBatch` with the
textbook's tables for functions f(o, y) (`FunctionRows`, one weight a function). What chains have no use for is added
here: second derivatives, which for single rows are small enough to write down, and parts of the batch.

    ∂²F / ∂w² = Σ_n weight_n A_nᵀ (diag p_n − p_n p_nᵀ) A_n

``cost`` and ``temperature`` turn the loss into the hinge by degrees. The loss t · log Σ_k exp((s_k + cost [k ≠ y])
/ t) − s_y is at most t · log K above max_k (s_k + cost [k ≠ y]) − s_y and never below it: with a cost of 1 and t → 0
it is Crammer & Singer's hinge (2001), with 0 and 1 the logistic loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.scoring.layout import Layout
from crfield.scoring.similarity import squares
from crfield.scoring.tables import FunctionTables, TableScorer
from crfield.training.column_basis import measured
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain


class _Rows:
    """What both kinds of rows have in common; they give ``scores``, ``pull`` and ``_plain``."""

    n_weights: int
    labels: np.ndarray  # (N,)
    weight: np.ndarray  # (N,)
    cost: float
    temperature: float
    _plain: Any

    def scores(self, weights: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """(n, K)."""
        raise NotImplementedError

    def pull(self, gradient: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """A gradient of scores (n, K) as one of the weights."""
        raise NotImplementedError

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.labels)

    def probabilities(self, weights: np.ndarray, rows: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """(n, K) the softmax of raised scores, and (n,) the loss of each row."""
        labels = self.labels[rows]
        at = np.arange(len(labels))
        scores = self.scores(weights, rows) + self.cost
        scores[at, labels] -= self.cost
        scores /= self.temperature
        high = scores.max(axis=1, keepdims=True)
        table = np.exp(scores - high)
        sums = table.sum(axis=1, keepdims=True)
        loss = self.temperature * (np.log(sums) + high)[:, 0] - self.temperature * scores[at, labels]
        return table / sums, loss

    def residual(self, weights: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """(n, K) slopes of the weighted losses with respect to the scores."""
        table, _ = self.probabilities(weights, rows)
        table[np.arange(len(table)), self.labels[rows]] -= 1.0
        return table * self.weight[rows][:, None]

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        if self.cost == 0 and self.temperature == 1:
            return float(self._plain.evaluate(weights, gradient))
        table, loss = self.probabilities(weights)
        table[np.arange(len(table)), self.labels] -= 1.0
        gradient[:] = self.pull(table * self.weight[:, None])
        return float(loss @ self.weight)

    def steepness(self) -> tuple[float, float]:
        """Bounds of the second derivative: of the whole loss, and of N times the worst row's."""
        direction = np.random.default_rng(0).normal(size=self.n_weights)
        size = 0.0
        for _ in range(30):
            length = float(np.linalg.norm(direction))
            if length == 0:
                break
            # what raises all scores of a row alike changes nothing
            scores = self.scores(direction / length)
            direction = self.pull(self.weight[:, None] * (scores - scores.mean(axis=1, keepdims=True)))
            size = float(np.linalg.norm(direction))
        worst = float((self.weight * self._row_squares()).max(initial=0.0))
        return 0.5 * 1.05 * size / self.temperature, 0.5 * self.n_rows * worst / self.temperature

    def _row_squares(self) -> np.ndarray:
        raise NotImplementedError


class ColumnRows(_Rows):
    """Rows (N, D), dense or CSR, with weights (D, K) and, with ``intercept``, K more.

    >>> rows = ColumnRows(np.array([[1.0], [2.0]]), np.array([0, 1]), 2)
    >>> gradient = np.empty(rows.n_weights)
    >>> round(rows.evaluate(np.zeros(4), gradient), 6), gradient.tolist()
    (1.386294, [0.5, -0.5, 0.0, 0.0])
    >>> rows.hessian(np.zeros(4)).diagonal().tolist()
    [1.25, 1.25, 0.5, 0.5]
    """

    def __init__(
        self,
        matrix: Any,
        labels: np.ndarray,
        n_labels: int,
        *,
        weight: np.ndarray | None = None,
        intercept: bool = True,
        cost: float = 0.0,
        temperature: float = 1.0,
        n_jobs: int = 1,
    ) -> None:
        self.matrix, self.n_labels, self.intercept = matrix, n_labels, intercept
        self.labels = np.ascontiguousarray(labels, dtype=np.int64)
        self.weight = np.ones(len(labels)) if weight is None else weight
        self.cost, self.temperature = cost, temperature
        chains = Chains.from_lengths(np.ones(len(labels), np.int64))
        target = Target(chains, n_labels, self.labels, None, weight)
        batch = Batch(chains, columns_of(matrix))
        layout = Layout.observe(
            batch, target, feature_pairs="all", transition_pairs="none", bias=intercept, boundaries=False
        )
        self.n_weights = layout.n_weights
        self._plain = FusedChain(layout, batch, target, n_jobs=n_jobs)
        self._parts = (layout, batch, target)

    @property
    def plain(self) -> FusedChain:
        """The same rows as chains of length one."""
        return measured(self._plain, *self._parts)

    @property
    def penalised(self) -> np.ndarray:
        """(W,) bool, all weights but the intercepts."""
        mask = np.ones(self.n_weights, dtype=bool)
        mask[self.n_weights - self.n_labels * self.intercept :] = False
        return mask

    def split(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(D, K) and (K,), zeros without intercepts."""
        inner = self.matrix.shape[1] * self.n_labels
        bias = weights[inner:] if self.intercept else np.zeros(self.n_labels)
        return weights[:inner].reshape(-1, self.n_labels), bias

    def scores(self, weights: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """(n, K)."""
        table, bias = self.split(weights)
        return np.asarray(self.matrix[rows] @ table) + bias

    def pull(self, gradient: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """A gradient of scores (n, K) as one of the weights."""
        inner = np.asarray(self.matrix[rows].T @ gradient).ravel()
        return np.concatenate([inner, gradient.sum(axis=0)]) if self.intercept else inner

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """(W, W) second derivatives."""
        table, _ = self.probabilities(weights)
        matrix, size = self.matrix, self.n_labels
        if self.intercept:
            ones = np.ones((self.n_rows, 1))
            matrix = np.hstack([matrix, ones]) if isinstance(matrix, np.ndarray) else _beside(matrix, ones)
        out = np.empty((matrix.shape[1], size, matrix.shape[1], size))
        for k in range(size):
            for other in range(k, size):
                curve = table[:, k] * ((k == other) - table[:, other]) * self.weight / self.temperature
                if isinstance(matrix, np.ndarray):
                    block = matrix.T @ (curve[:, None] * matrix)
                else:
                    block = (matrix.T @ matrix.multiply(curve[:, None])).toarray()
                out[:, k, :, other] = out[:, other, :, k] = block
        return out.reshape(self.n_weights, self.n_weights)

    def _row_squares(self) -> np.ndarray:
        return squares(self.matrix) + self.intercept


class FunctionRows(_Rows):
    """Functions f_j(o, y) written out, (J, N, K), with one weight each.

    >>> rows = FunctionRows(np.array([[[1.0, 0.0], [1.0, 0.0]]]), np.array([0, 1]))
    >>> gradient = np.empty(1)
    >>> round(rows.evaluate(np.zeros(1), gradient), 6), gradient.tolist(), rows.hessian(np.zeros(1)).tolist()
    (1.386294, [0.0], [[0.5]])
    """

    cost, temperature = 0.0, 1.0

    def __init__(
        self, table: np.ndarray, labels: np.ndarray, *, weight: np.ndarray | None = None, n_jobs: int = 1
    ) -> None:
        self.table, self.n_weights = table, len(table)
        self.labels = np.ascontiguousarray(labels, dtype=np.int64)
        self.weight = np.ones(len(labels)) if weight is None else weight
        size = table.shape[2]
        chains = Chains.from_lengths(np.ones(len(labels), np.int64))
        tables = FunctionTables(chains, table, np.zeros((len(table), 0, size, size)))
        target = Target(chains, size, self.labels, None, weight)
        scorer = TableScorer(len(table), size)
        self._plain = FullBatch(scorer, tables, target, objective=Contrast(), engine=ChainEngine(n_jobs))

    @property
    def plain(self) -> FullBatch:
        """The same rows as chains of length one."""
        return self._plain

    @property
    def penalised(self) -> np.ndarray:
        """(W,) bool, all."""
        return np.ones(self.n_weights, dtype=bool)

    def scores(self, weights: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """(n, K)."""
        return np.asarray(np.tensordot(weights, self.table[:, rows], axes=1))

    def pull(self, gradient: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """A gradient of scores (n, K) as one of the weights."""
        return np.asarray(np.tensordot(self.table[:, rows], gradient, axes=([1, 2], [0, 1])))

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """(W, W) second derivatives."""
        table, _ = self.probabilities(weights)
        flat, count = self.table.reshape(self.n_weights, -1), self.n_weights
        mean = np.einsum("jnk,nk->jn", self.table, table)
        own = (self.table * (table * self.weight[:, None])).reshape(count, -1)
        return own @ flat.T - (mean * self.weight) @ mean.T

    def _row_squares(self) -> np.ndarray:
        bent = self.table - self.table.mean(axis=2, keepdims=True)
        return np.einsum("jnk,jnk->n", bent, bent)


def columns_of(matrix: Any) -> Columns:
    """A matrix (N, D), dense or CSR, as columns.

    >>> columns_of(np.ones((2, 3))).n_dense
    3
    """
    if isinstance(matrix, np.ndarray):
        empty = np.zeros(len(matrix) + 1, np.int64)
        return Columns(empty, np.zeros(0, np.int32), 0, None, np.ascontiguousarray(matrix, dtype=np.float64))
    return Columns(matrix.indptr, matrix.indices, matrix.shape[1], np.asarray(matrix.data, np.float64))


def _beside(matrix: Any, ones: np.ndarray) -> Any:
    from scipy.sparse import csr_array, hstack

    return hstack([matrix, csr_array(ones)], format="csr")
