"""`IncompleteModel`: what a fitted `IncompleteBoost` holds, its place in a model file, and how it answers.

The model is a value: weights, the form of the hidden part with its learnt prior, and how columns are made. With
labels of earlier steps among the columns (`left`) it answers step by step, all sequences side by side; else all at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crfield.boosting.incomplete import left_predictions as before
from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import Enumerated, EnumeratedLoss
from crfield.boosting.incomplete.factored import Factored, FactoredLoss
from crfield.boosting.incomplete.hidden.bag import BagPart
from crfield.boosting.incomplete.structures import MOST_COLUMNS, Draws, Form, Prior, form_from_state
from crfield.data.label_json import label_from_json, label_to_json
from crfield.estimators.base.rows import RowTask
from crfield.estimators.boosted.incomplete.data import Evidence
from crfield.storage.state import State, refuse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ANSWER_OF = {"mix": "mixture", "jensen": "mixture", "exp": "expected", "exp-mean": "expected", "hcrf": "joint"}
LONGEST_LABEL = 4096  # bytes


@dataclass(frozen=True, eq=False)
class IncompleteModel:
    """Weights (W,) of columns conjoined with Y classes: those of X, a one, labels before, and those of h."""

    task: RowTask
    form: Form | None
    weights: np.ndarray  # (W,)
    learnt: Prior | None  # the arrays of a learnt prior
    shares: np.ndarray  # (Y,) of the classes in training
    intercept: bool
    scaled: bool  # X are counts of a bag, divided by their sum
    left: int
    draws: Draws

    # ------------------------------------------------------------------ its place in a file

    def state(self) -> State:
        """Header and arrays."""
        classes, names = self.task.classes, self.task.column_names
        header = {
            "labels": [label_to_json(label) for label in classes.tolist()],
            "label_type": classes.dtype.str if classes.dtype.kind != "O" else "O",
            "n_features": self.task.n_columns,
            "feature_names": [] if names is None else [str(name) for name in names],
            "form": None if self.form is None else self.form.state().header,
            "model": {
                "intercept": self.intercept,
                "scaled": self.scaled,
                "left": self.left,
                "n_samples": self.draws.n_samples,
                "seed": self.draws.seed,
                "n_prior": None if self.learnt is None else len(self.learnt),
            },
        }
        arrays = {"weights": self.weights, "shares": self.shares}
        prior = {f"prior/{k}": np.ascontiguousarray(array) for k, array in enumerate(self.learnt or [])}
        return State(header, arrays | prior)

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, Any]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        width, names = state.integer("n_features", least=1, most=MOST_COLUMNS), state.listed("feature_names")
        task = RowTask(_classes(state), width, np.array(names, dtype=object) if len(names) == width else None)
        form, size = stored_form(state), len(task.classes)
        facts, learnt = state.part("model"), None
        intercept, left = facts.flag("intercept"), facts.integer("left")
        own = width + intercept
        columns = own + left * (size + 1) + (0 if form is None else form.n_columns)
        if columns > MOST_COLUMNS:
            refuse("the model file claims more columns than can be")
        if facts.header.get("n_prior") is not None:
            shapes = [] if form is None else form.prior_shapes(own)
            if facts.integer("n_prior") != len(shapes):
                refuse("the learnt prior of the model file does not fit its hidden part")
            learnt = [state.array(f"prior/{k}", shape) for k, shape in enumerate(shapes)]
        samples = None if facts.header.get("n_samples") is None else facts.integer("n_samples", least=1)
        return cls(
            task,
            form,
            state.array("weights", (columns * size,)),
            learnt,
            state.array("shares", (size,)),
            intercept=intercept,
            scaled=facts.flag("scaled"),
            left=left,
            draws=Draws(samples, facts.integer("seed")),
        )

    # ------------------------------------------------------------------ columns and weights

    @property
    def n_labels(self) -> int:
        """Y."""
        return len(self.task.classes)

    def table(self) -> np.ndarray:
        """(D₁ + D₂, Y) the weights as a table, read-only."""
        table = self.weights.reshape(-1, self.n_labels)
        table.flags.writeable = False
        return table

    def own_columns(self, rows: csr_array) -> csr_array:
        """(N, D₁) the columns that do not depend on h nor on other labels: X, by its points for a bag, and a one."""
        if self.scaled:
            rows = BagPart(rows, np.zeros(rows.nnz), np.zeros(rows.shape[1])).scaled()
        return beside(rows, np.ones((rows.shape[0], 1))) if self.intercept else rows

    def with_left(self, evidence: Evidence, labels: np.ndarray, place: np.ndarray) -> Evidence:
        """The data with columns for the labels (N,) of steps before; ``place`` (N,) is the step of each datum."""
        if not self.left:
            return evidence
        rows = np.arange(evidence.n_data)
        extra = before.left_columns(labels, place, rows, left=self.left, n_labels=self.n_labels)
        return replace(evidence, columns=beside(evidence.columns, extra))

    # ------------------------------------------------------------------ training and answers

    def problem(
        self, evidence: Evidence, labels: np.ndarray, loss: str, weight: np.ndarray | None = None
    ) -> EnumeratedLoss | FactoredLoss:
        """The loss of data with labels (N,) as a function of the weights."""
        options: dict[str, Any] = {"labels": labels, "loss": loss, "n_labels": self.n_labels, "weight": weight}
        options["log_reference"] = evidence.measure
        if self.form is None:
            return EnumeratedLoss(evidence.columns, Cells.nothing_hidden(evidence.n_data), **options)
        codes, beliefs = np.asarray(evidence.codes), evidence.beliefs or []
        return self.form.loss(evidence.rows, evidence.columns, codes, beliefs, self.draws, **options)

    def answer_for(self, loss: str) -> str:
        """How a model trained with a loss answers by itself; *joint* defines no p(y | x), so it borrows one."""
        if loss == "joint":
            return "joint" if self.form is not None and self.form.kind in ("chain", "bag") else "mixture"
        return ANSWER_OF[loss]

    def answers(self, evidence: Evidence, answer: str, place: np.ndarray) -> np.ndarray:
        """(N, Y) probabilities; ``place`` (N,) is the step of each datum in its sequence."""
        n, labels = evidence.n_data, self.n_labels
        if not n:
            return np.empty((0, labels))
        scorer = self._scorer(evidence, mixture=answer == "mixture")
        if not self.left:
            return np.ascontiguousarray(getattr(scorer, answer)(self.weights))
        table, first = self.table(), evidence.columns.shape[1]
        last = first + self.left * (labels + 1)
        by_step = scorer.stepwise(np.concatenate([table[:first], table[last:]]).ravel(), answer)
        left = table[first:last].reshape(self.left, labels + 1, labels)
        out, codes = np.empty((n, labels)), np.zeros(n, dtype=np.int64)
        for at in before.steps(place):
            out[at] = by_step(at, before.left_scores(codes, place, at, left))
            codes[at] = out[at].argmax(axis=1)
        return out

    def _scorer(self, evidence: Evidence, *, mixture: bool) -> Enumerated | Factored:
        rows, columns, n = evidence.rows, evidence.columns, self.n_labels
        if self.form is None:
            cells = Cells.nothing_hidden(evidence.n_data)
            return Enumerated(columns, cells, n_labels=n, log_reference=evidence.measure)
        codes, beliefs = np.asarray(evidence.codes), evidence.beliefs or []
        options: dict[str, Any] = {"n_labels": n, "log_reference": evidence.measure}
        return self.form.model(rows, columns, codes, beliefs, self.draws, mixture=mixture, **options)


def stored_form(state: State) -> Form | None:
    """The form of the hidden part in the state of a model; None where nothing is hidden."""
    if state.header.get("form") is None:
        return None
    return form_from_state(state.part("form"), state.integer("n_features", least=1, most=MOST_COLUMNS))


def beside(columns: csr_array, more: csr_array | np.ndarray) -> csr_array:
    """Sparse columns with others after them."""
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([columns, csr_array(more)], format="csr"))


def _classes(state: State) -> np.ndarray:
    labels, kind = [label_from_json(item) for item in state.listed("labels")], state.word("label_type")
    if not labels:
        refuse("the model file lacks its labels")
    if kind == "O":
        out = np.empty(len(labels), dtype=object)
        out[:] = labels
        return out
    dtype = np.dtype(kind)
    if dtype.kind not in "biufU" or dtype.itemsize > LONGEST_LABEL:
        refuse(f"labels cannot be of type {kind!r:.20}")
    return np.array(labels, dtype=dtype)
