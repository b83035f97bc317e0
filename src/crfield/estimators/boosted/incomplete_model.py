"""What a fitted `IncompleteBoost` knows, and how it answers.

The model is a value: weights, the form of the hidden part with its learnt prior, and how columns are made. With
labels of earlier steps among the columns (`left`) it answers step by step, all sequences side by side; else all at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.boosting.incomplete import left_predictions as before
from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import Enumerated, EnumeratedLoss
from crfield.boosting.incomplete.factored import Factored
from crfield.boosting.incomplete.hidden_bag import BagPart
from crfield.boosting.incomplete.structures import Draws, Form, Prior

ANSWER_OF = {"mix": "mixture", "jensen": "mixture", "exp": "expected", "exp-mean": "expected", "hcrf": "joint"}


@dataclass(frozen=True, eq=False)
class Evidence:
    """N data ready for a model: rows of X (CSR), what is known of h, the prior of the rest, and log r (N, Y)."""

    rows: Any
    codes: np.ndarray | None = None
    beliefs: Prior | None = None
    log_reference: np.ndarray | None = None

    @property
    def n_data(self) -> int:
        """N."""
        return int(self.rows.shape[0])

    def some(self, at: np.ndarray) -> Evidence:
        """The data at the given places."""
        n, codes, beliefs = self.n_data, self.codes, self.beliefs
        if codes is not None and codes.ndim == 1:  # a bag: one code for each entry of rows
            from scipy.sparse import csr_array

            codes = csr_array((codes, self.rows.indices, self.rows.indptr), self.rows.shape)[at].data
        elif codes is not None:
            codes = codes[at]
            beliefs = [b[at] if len(b) == n and b.ndim > 1 and not _is_link(b, beliefs) else b for b in beliefs or []]
        reference = None if self.log_reference is None else self.log_reference[at]
        return Evidence(self.rows[at], codes, beliefs, reference)


def _is_link(array: np.ndarray, beliefs: Prior | None) -> bool:
    """Whether an array of a chain's prior is its table of links, which all data share."""
    return bool(beliefs) and beliefs[0].ndim == 3 and array is beliefs[-1]  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class IncompleteModel:
    """Weights (W,) of columns conjoined with Y classes: those of X, a one, labels before, and those of h."""

    classes: np.ndarray  # (Y,)
    form: Form | None
    weights: np.ndarray  # (W,)
    learnt: Prior | None  # the arrays of a learnt prior
    shares: np.ndarray  # (Y,) of the classes in training
    intercept: bool
    scaled: bool  # X are counts of a bag, divided by their sum
    left: int
    draws: Draws

    @property
    def n_labels(self) -> int:
        """Y."""
        return len(self.classes)

    def table(self) -> np.ndarray:
        """(D₁ + D₂, Y) the weights as a table."""
        return self.weights.reshape(-1, self.n_labels)

    def own_columns(self, rows: Any) -> Any:
        """(N, D₁) of rows of X, without those of labels before."""
        return own_columns(rows, intercept=self.intercept, scaled=self.scaled)

    def answers(self, evidence: Evidence, answer: str, place: np.ndarray) -> np.ndarray:
        """(N, Y) probabilities; ``place`` (N,) is the step of each datum in its sequence."""
        n, labels = evidence.n_data, self.n_labels
        if not n:
            return np.empty((0, labels))
        columns = self.own_columns(evidence.rows)
        model = self._model(evidence, columns, mixture=answer == "mixture")
        if not self.left:
            return np.ascontiguousarray(getattr(model, answer)(self.weights))
        table, first = self.table(), columns.shape[1]
        last = first + self.left * (labels + 1)
        by_step = model.stepwise(np.concatenate([table[:first], table[last:]]).ravel(), answer)
        left = table[first:last].reshape(self.left, labels + 1, labels)
        out, codes = np.empty((n, labels)), np.zeros(n, dtype=np.int64)
        for at in before.steps(place):
            out[at] = by_step(at, before.left_scores(codes, place, at, left))
            codes[at] = out[at].argmax(axis=1)
        return out

    def _model(self, evidence: Evidence, columns: Any, *, mixture: bool) -> Enumerated | Factored:
        reference = evidence.log_reference
        options: dict[str, Any] = {
            "n_labels": self.n_labels,
            "log_reference": None if reference is None else np.ascontiguousarray(reference.T),
        }
        if self.form is None:
            return Enumerated(columns, Cells.nothing_hidden(evidence.n_data), **options)
        codes, beliefs = np.asarray(evidence.codes), evidence.beliefs or []
        return self.form.model(evidence.rows, columns, codes, beliefs, self.draws, mixture=mixture, **options)


def answer_for(loss: str, form: Form | None) -> str:
    """How a model trained with a loss answers by itself; *joint* defines no p(y | x), so it borrows one.

    >>> answer_for("mix", None), answer_for("exp", None)
    ('mixture', 'expected')
    """
    if loss == "joint":
        return "joint" if form is not None and form.kind in ("chain", "bag") else "mixture"
    return ANSWER_OF[loss]


def own_columns(rows: Any, *, intercept: bool, scaled: bool) -> Any:
    """(N, D₁) the columns that do not depend on h nor on other labels: X, by its points for a bag, and a one."""
    if scaled:
        rows = BagPart(rows, np.zeros(rows.nnz), np.zeros(rows.shape[1])).scaled()
    if not intercept:
        return rows
    return beside(rows, np.ones((rows.shape[0], 1)))


def beside(columns: Any, more: Any) -> Any:
    """Sparse columns with others after them."""
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([columns, csr_array(more)], format="csr"))


def loss_of(form: Form | None, evidence: Evidence, columns: Any, draws: Draws, **options: Any) -> Any:
    """The problem of training on some data; options are labels, loss, n_labels and weight."""
    reference = evidence.log_reference
    options["log_reference"] = None if reference is None else np.ascontiguousarray(reference.T)
    if form is None:
        return EnumeratedLoss(columns, Cells.nothing_hidden(evidence.n_data), **options)
    return form.loss(evidence.rows, columns, np.asarray(evidence.codes), evidence.beliefs or [], draws, **options)
