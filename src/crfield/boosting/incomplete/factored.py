"""Losses and answers where h has too many values to list, but the sum over them factorises.

h is a chain of tags or a bag of points, and both prior and scores are products over its parts. Then for each label

    W_i(y) = Σ_h q₀(h | x_i) exp(s(x_i, h, y) − s(x_i, h, ỹ_i))

is a product of small sums, or a forward sweep, at the cost of one labelling, and the expected columns under the
tilted prior q₀(h) exp(…) / W_i(y) come with it. A *part* (`HiddenPart`) knows how; this file makes losses of it:

    exp    Σ_i c_i Σ_y W_i(y)              joint   Σ_i c_i log Σ_y W_i(y)
    hcrf   Σ_i c_i [log Σ_y S_i(y) − log S_i(ỹ_i)]        S_i(y) = Σ_h q₀(h | x_i) e^{s(x_i, h, y)}

For the normalised losses *mix* and *jensen* nothing factorises: 1 / Z(x, h) joins all parts of h. They are refused by
the estimator, which can draw samples of a bag and list those instead.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from crfield.boosting.incomplete.columns import Conjoined
from crfield.boosting.incomplete.enumerated import Stepwise
from crfield.boosting.incomplete.losses import UNNORMALISED, log_partition, softmax


class Sums(Protocol):
    """What a part found for one table of weights."""

    @property
    def logs(self) -> np.ndarray:
        """(Y, N) log Σ_h q₀(h | x) exp(table score of y, less that of the label where labels were given)."""
        ...

    def expected(self, weight: np.ndarray, *, by_label: np.ndarray | None = None) -> np.ndarray:
        """(D₂, Y) Σ_i weight(y, i) · E[columns | i, y] in column y, or in that of the label i has in ``by_label``."""
        ...


class HiddenPart(Protocol):
    """The hidden part of N data, as something that can be summed over."""

    @property
    def n_columns(self) -> int:
        """D₂."""
        ...

    @property
    def mass(self) -> np.ndarray:
        """(N,) the largest Σ |column| that any h gives."""
        ...

    def sums(self, table: np.ndarray, labels: np.ndarray | None = None) -> Sums:
        """Sums over h for a table of weights (D₂, Y)."""
        ...

    def prior_columns(self) -> Any:
        """(N, D₂) sparse, expected columns under the prior."""
        ...


class Factored:
    """Scores with the hidden part summed out: columns (N, D₁) of the data, and the part."""

    def __init__(
        self, columns: Any, part: HiddenPart, *, n_labels: int, log_reference: np.ndarray | None = None
    ) -> None:
        self.columns, self.part, self.n_labels = Conjoined(columns), part, n_labels
        self.log_reference = log_reference
        self.n_weights = (self.columns.n_columns + part.n_columns) * n_labels

    def tables(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights of both kinds of columns, (D₁, Y) and (D₂, Y), as views."""
        table = weights.reshape(-1, self.n_labels)
        return table[: self.columns.n_columns], table[self.columns.n_columns :]

    def _own_scores(self, weights: np.ndarray) -> np.ndarray:
        scores = self.columns.scores(self.tables(weights)[0])
        return scores if self.log_reference is None else scores + self.log_reference

    def stepwise(self, weights: np.ndarray, answer: str) -> Stepwise:
        """A function of some data ``at`` (n,) and further scores of theirs (Y, n) that gives their answers (n, Y)."""
        hidden = self.tables(weights)[1]
        scores = self._own_scores(weights)
        scores = scores + (
            (self.part.prior_columns() @ hidden).T if answer == "expected" else self.part.sums(hidden).logs
        )
        return lambda at, extra: softmax(scores[:, at] + extra)

    def expected(self, weights: np.ndarray) -> np.ndarray:
        """(N, Y) softmax of the expected score t(x, y) = Σ_h q₀(h | x) s(x, h, y)."""
        scores = self._own_scores(weights) + (self.part.prior_columns() @ self.tables(weights)[1]).T
        return softmax(scores)

    def joint(self, weights: np.ndarray) -> np.ndarray:
        """(N, Y) Σ_h q₀(h | x) e^s, normalised over labels."""
        scores = self._own_scores(weights) + self.part.sums(self.tables(weights)[1]).logs
        return softmax(scores)


class FactoredLoss(Factored):
    """Σ_i c_i ℓ_i over data with labels, for the losses *exp*, *joint* and *hcrf*."""

    def __init__(
        self,
        columns: Any,
        part: HiddenPart,
        labels: np.ndarray,
        *,
        loss: str,
        n_labels: int,
        weight: np.ndarray | None = None,
        log_reference: np.ndarray | None = None,
    ) -> None:
        super().__init__(columns, part, n_labels=n_labels, log_reference=log_reference)
        self.loss, self.labels = loss, labels
        weight = np.ones(len(labels)) if weight is None else weight
        if log_reference is not None and loss in UNNORMALISED:
            weight = weight * np.exp(log_reference[labels, np.arange(len(labels))])
        self.weight = weight

    @property
    def scale(self) -> float:
        """C = max Σ_k |g_k|; a column counts at the label and at the other one."""
        return 2.0 * float((self.columns.mass + self.part.mass).max(initial=0.0))

    def _weighed(self, weights: np.ndarray) -> tuple[float, np.ndarray, Sums]:
        """The loss and c W_i(y), for *joint* as shares of their sum over y, (Y, N)."""
        at = np.arange(len(self.labels))
        sums = self.part.sums(self.tables(weights)[1], self.labels)
        logs = self._own_scores(weights)
        logs -= logs[self.labels, at]
        logs += sums.logs
        if self.loss in UNNORMALISED:
            with np.errstate(over="ignore", invalid="ignore"):
                heavy = np.exp(logs) * self.weight
                return float(heavy.sum()), heavy, sums
        total = log_partition(logs)
        return float(self.weight @ total), np.exp(logs - total) * self.weight, sums

    def value(self, weights: np.ndarray) -> float:
        """The loss alone."""
        return self.evaluate(weights, np.empty(self.n_weights))

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """The loss, its gradient written into ``gradient`` (W,)."""
        own, hidden = self.tables(gradient)
        at = np.arange(len(self.labels))
        if self.loss == "hcrf":
            sums = self.part.sums(self.tables(weights)[1])
            logs = self._own_scores(weights) + sums.logs
            total = log_partition(logs)
            value = float(self.weight @ (total - logs[self.labels, at]))
            residual = np.exp(logs - total)
            residual[self.labels, at] -= 1.0
            residual *= self.weight
            hidden[:] = sums.expected(residual)
        else:
            value, residual, sums = self._weighed(weights)
            residual[self.labels, at] = 0.0
            hidden[:] = sums.expected(residual) - sums.expected(residual, by_label=self.labels)
            residual[self.labels, at] = -residual.sum(axis=0)
        own[:] = self.columns.pull(residual)
        return value

    def counts(self, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The loss, and A⁺ and A⁻ (W,) of all features; their difference is the gradient. Not for *hcrf*."""
        at = np.arange(len(self.labels))
        value, off, sums = self._weighed(weights)
        off[self.labels, at] = 0.0
        on = np.zeros_like(off)
        on[self.labels, at] = off.sum(axis=0)
        plus, minus = np.empty(self.n_weights), np.empty(self.n_weights)
        (plus_own, plus_hidden), (minus_own, minus_hidden) = self.tables(plus), self.tables(minus)
        plus_own[:], minus_own[:] = self.columns.counts(off, on)
        plus_hidden[:], minus_hidden[:] = sums.expected(off), sums.expected(off, by_label=self.labels)
        return value, plus, minus
