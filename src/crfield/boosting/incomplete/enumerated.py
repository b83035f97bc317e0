"""Losses and answers where the hidden part is listed cell by cell.

`Enumerated` is the model side: scores of all cells and three ways to answer. `EnumeratedLoss` adds labels and is a
problem for `optimize.lbfgs.minimize`, and the counts A⁺, A⁻ for the updates of boosting. One evaluation costs
O((nnz₁ + nnz₂ + M) Y): the columns that do not depend on h are multiplied once per datum, not once per cell.

A reference measure r(x, y) is an offset log r of the scores (Y, N): the model is q(y | x, h) ∝ r(x, y) e^s. In the
losses of the unnormalised model each datum then counts r(x, ỹ) times, since their terms are r(x, y) e^{s(y) − s(ỹ)}.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.columns import Conjoined, split_by_label
from crfield.boosting.incomplete.losses import (
    UNNORMALISED,
    cell_weights,
    contrasted,
    joint_residual,
    log_partition,
    softmax,
)

Stepwise = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Enumerated:
    """Scores of cells: columns (N, D₁) of the data, and the cells with theirs.

    >>> import scipy.sparse as sp
    >>> cells = Cells(np.array([0, 2]), np.array([0.5, 0.5]), sp.csr_array(np.eye(2)))
    >>> model = Enumerated(np.ones((1, 1)), cells, n_labels=2)
    >>> weights = np.array([0.0, 0.0, 0.0, np.log(3.0), 0.0, 0.0])  # only the first value of h tells the labels
    >>> model.mixture(weights).tolist()
    [[0.375, 0.625]]
    """

    def __init__(
        self, columns: np.ndarray, cells: Cells, *, n_labels: int, log_reference: np.ndarray | None = None
    ) -> None:
        self.columns, self.cells, self.n_labels = Conjoined(columns), cells, n_labels
        self.hidden_columns = Conjoined(cells.columns)
        self.log_reference = log_reference  # (Y, N)
        self.n_weights = (self.columns.n_columns + cells.n_columns) * n_labels

    def tables(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights of both kinds of columns, (D₁, Y) and (D₂, Y), as views."""
        table = weights.reshape(-1, self.n_labels)
        return table[: self.columns.n_columns], table[self.columns.n_columns :]

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """(Y, M) s(x, h, y) + log r(x, y) of every cell."""
        own, hidden = self.tables(weights)
        scores = self.columns.scores(own)
        if self.log_reference is not None:
            scores += self.log_reference
        if not self.cells.single:
            scores = np.take(scores, self.cells.owner, axis=1)
        if self.cells.n_columns:
            scores += self.hidden_columns.scores(hidden)
        return scores

    def stepwise(self, weights: np.ndarray, answer: str) -> Stepwise:
        """A function of some data ``at`` (n,) and further scores of theirs (Y, n) that gives their answers (n, Y).

        All that does not depend on the further scores is worked out once, so that data may be answered one by one.
        """
        cells = self.cells
        own, hidden = self.tables(weights)
        scores = self.columns.scores(own)
        if self.log_reference is not None:
            scores += self.log_reference
        of_cells = self.hidden_columns.scores(hidden)  # (Y, M)
        if answer == "expected":
            scores += cells.sums(of_cells * cells.prior)
        elif answer == "joint":
            scores += np.stack([cells.log_sums(row + cells.log_prior)[0] for row in of_cells])
        if answer != "mixture":
            return lambda at, extra: softmax(scores[:, at] + extra)

        def mixture(at: np.ndarray, extra: np.ndarray) -> np.ndarray:
            runs = np.diff(cells.offsets)[at]
            ends = np.cumsum(runs)
            which = np.repeat(cells.offsets[:-1][at] - ends + runs, runs) + np.arange(int(runs.sum()))
            found = softmax(np.repeat(scores[:, at] + extra, runs, axis=1) + of_cells[:, which])
            return np.add.reduceat(found * cells.prior[which][:, None], ends - runs, axis=0)

        return mixture

    def mixture(self, weights: np.ndarray) -> np.ndarray:
        """(N, Y) Σ_h q₀(h | x) p(y | x, h)."""
        scores = self.scores(weights)
        return self.cells.sums(np.exp(scores - log_partition(scores)) * self.cells.prior).T

    def expected(self, weights: np.ndarray) -> np.ndarray:
        """(N, Y) softmax of the expected score t(x, y) = Σ_h q₀(h | x) s(x, h, y)."""
        scores = self.cells.sums(self.scores(weights) * self.cells.prior)
        return softmax(scores)

    def joint(self, weights: np.ndarray) -> np.ndarray:
        """(N, Y) Σ_h q₀(h | x) e^s, normalised over labels."""
        scores = self.scores(weights) + self.cells.log_prior
        scores = np.stack([self.cells.log_sums(row)[0] for row in scores])
        return softmax(scores)


class EnumeratedLoss(Enumerated):
    """Σ_i c_i ℓ_i over data with labels: ``labels`` (N,) codes and ``weight`` (N,) c.

    >>> loss = EnumeratedLoss(np.ones((2, 1)), Cells.nothing_hidden(2), np.array([0, 1]), loss="mix", n_labels=2)
    >>> gradient = np.empty(2)
    >>> round(loss.evaluate(np.zeros(2), gradient), 6), gradient.tolist()
    (1.386294, [0.0, 0.0])
    >>> value, plus, minus = loss.counts(np.zeros(2))
    >>> plus.tolist(), minus.tolist(), loss.scale
    ([0.5, 0.5], [0.5, 0.5], 2.0)
    """

    def __init__(
        self,
        columns: np.ndarray,
        cells: Cells,
        labels: np.ndarray,
        *,
        loss: str,
        n_labels: int,
        weight: np.ndarray | None = None,
        log_reference: np.ndarray | None = None,
    ) -> None:
        if loss == "exp-mean":
            cells = cells.expected()
        super().__init__(columns, cells, n_labels=n_labels, log_reference=log_reference)
        self.loss, self.labels = loss, labels
        self.cell_labels = labels if cells.single else labels[cells.owner]
        weight = np.ones(len(labels)) if weight is None else weight
        if log_reference is not None and loss in UNNORMALISED:
            weight = weight * np.exp(log_reference[labels, np.arange(len(labels))])
        self.weight = weight

    @property
    def scale(self) -> float:
        """C = max Σ_k |g_k|; a column counts at the label and at the other one."""
        mass = self.columns.mass
        if self.cells.n_columns:
            mass = mass[self.cells.owner] + self.hidden_columns.mass
        return 2.0 * float(mass.max(initial=0.0))

    def contrast(self, weights: np.ndarray) -> np.ndarray:
        """(Y, M) s(x, h, y) − s(x, h, ỹ), with log r(x, y) − log r(x, ỹ)."""
        scores = self.scores(weights)
        scores -= scores[self.cell_labels, np.arange(self.cells.n_cells)]
        return scores

    def value(self, weights: np.ndarray) -> float:
        """The loss alone."""
        if self.loss == "hcrf":
            return joint_residual(self.scores(weights), self.cell_labels, self.cells, self.weight)[0]
        return cell_weights(self.loss, self.contrast(weights), self.cells, self.weight)[0]

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """The loss, its gradient written into ``gradient`` (W,)."""
        if self.loss == "hcrf":
            value, residual = joint_residual(self.scores(weights), self.cell_labels, self.cells, self.weight)
        else:
            value, heavy = cell_weights(self.loss, self.contrast(weights), self.cells, self.weight)
            residual = contrasted(heavy, self.cell_labels)
        own, hidden = self.tables(gradient)
        own[:] = self.columns.pull(self.cells.sums(residual))
        if self.cells.n_columns:
            hidden[:] = self.hidden_columns.pull(residual)
        return value

    def counts(self, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The loss, and A⁺ and A⁻ (W,) of all features; their difference is the gradient. Not for *hcrf*."""
        value, heavy = cell_weights(self.loss, self.contrast(weights), self.cells, self.weight)
        off, on = split_by_label(heavy, self.cell_labels)
        plus, minus = np.empty(self.n_weights), np.empty(self.n_weights)
        (plus_own, plus_hidden), (minus_own, minus_hidden) = self.tables(plus), self.tables(minus)
        plus_own[:], minus_own[:] = self.columns.counts(self.cells.sums(off), self.cells.sums(on))
        if self.cells.n_columns:
            plus_hidden[:], minus_hidden[:] = self.hidden_columns.counts(off, on)
        return value, plus, minus
