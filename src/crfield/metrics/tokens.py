"""Scores of single steps: accuracy, a report per label, and the confusion matrix.

Steps whose gold label is None are not judged. ``labels=`` restricts a report to some labels, as one does to
keep a frequent "outside" label from drowning the rest; predictions outside the subset still count against
recall, and gold labels outside it against precision. The numbers agree with scikit-learn's on the flattened
labels (van Rijsbergen 1979 for precision, recall and F).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crfield.metrics.coding import UNKNOWN, choose_labels, code_pair
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.metrics.scores import Scores, ScoreTable, average_scores, names, ratio

Labelled = Iterable[Iterable[Any]]
_CORNER = "gold \\ predicted"


@dataclass(frozen=True)
class LabelReport(ScoreTable):
    """Precision, recall and F1 of every label, their averages, and the share of right steps.

    ``accuracy`` is over all judged steps, whatever subset of labels the rows are about.

    >>> report = label_report([["a", "b", "b"]], [["a", "b", "a"]])
    >>> report["a"].precision, report["b"].recall, round(report.macro.f1, 4)
    (0.5, 0.5, 0.6667)
    """

    what: ClassVar[str] = "label"


@dataclass(frozen=True, eq=False)
class Confusion(ShownAsTables):
    """How often each gold label (row) was predicted as each label (column).

    >>> table = confusion([["a", "b", "b", "b"]], [["a", "b", "a", "a"]])
    >>> table.matrix.tolist(), table.most_confused(1)
    ([[1, 0], [2, 1]], [('b', 'a', 2)])
    """

    matrix: np.ndarray  # (L, L) int64
    labels: tuple[Hashable, ...]

    def most_confused(self, n: int = 10) -> list[tuple[Hashable, Hashable, int]]:
        """The n most frequent mistakes as (gold, predicted, count), the most frequent first."""
        wrong = self.matrix.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[: max(n, 0)]
        cells = [(int(cell) // len(self.labels), int(cell) % len(self.labels)) for cell in order]
        return [(self.labels[g], self.labels[p], int(wrong[g, p])) for g, p in cells if wrong[g, p]]

    def to_dict(self) -> dict[str, Any]:
        """Labels as texts and counts as nested lists, ready for JSON."""
        return {"labels": names(self.labels), "matrix": self.matrix.tolist()}

    def _cells(self) -> list[list[str]]:
        return [[f"{count:,}" if count else "." for count in row] for row in self.matrix.tolist()]

    def _tables(self) -> list[Table]:
        texts = names(self.labels)
        rows = [[text, *row] for text, row in zip(texts, self._cells())]
        return [Table([_CORNER, *texts], rows, bold=frozenset((k, k + 1) for k in range(len(rows))))]

    def __str__(self) -> str:
        texts, cells, head = names(self.labels), self._cells(), _CORNER
        first = max(map(len, [head, *texts]))
        widths = [max(map(len, [text, *(row[p] for row in cells)])) for p, text in enumerate(texts)]

        def line(name: str, row: Sequence[str]) -> str:
            return "  ".join([f"{name:<{first}}", *(f"{cell:>{w}}" for cell, w in zip(row, widths))])

        return "\n".join([line(head, texts), *(line(text, row) for text, row in zip(texts, cells))])


def token_accuracy(y_true: Labelled, y_pred: Labelled, *, zero_division: float = 0.0) -> float:
    """Share of the known steps that are predicted right.

    >>> token_accuracy([["a", "b"], [None, "b"]], [["a", "a"], ["a", "b"]])
    0.6666666666666666
    """
    pair = code_pair(y_true, y_pred)
    known = pair.gold != UNKNOWN
    return ratio(int((pair.gold == pair.predicted)[known].sum()), int(known.sum()), zero_division)


def label_report(
    y_true: Labelled,
    y_pred: Labelled,
    *,
    labels: Sequence[Hashable] | None = None,
    zero_division: float = 0.0,
) -> LabelReport:
    """Precision, recall, F1 and support of each label, or of those in ``labels``.

    >>> print(label_report([["O", "N", "V"]], [["O", "N", "N"]], labels=["N", "V"]))
    label             precision  recall      f1  support
    N                    0.5000  1.0000  0.6667        1
    V                    0.0000  0.0000  0.0000        1
    <BLANKLINE>
    micro average        0.5000  0.5000  0.5000        2
    macro average        0.2500  0.5000  0.3333        2
    weighted average     0.2500  0.5000  0.3333        2
    <BLANKLINE>
    accuracy 0.6667 over 3 tokens
    """
    pair = code_pair(y_true, y_pred)
    known = pair.gold != UNKNOWN
    gold, predicted = pair.gold[known], pair.predicted[known]
    chosen, row_of = choose_labels(pair, labels)

    def per_row(codes: np.ndarray) -> np.ndarray:
        rows = row_of[codes]
        return np.bincount(rows[rows >= 0], minlength=len(chosen))

    counts = zip(chosen, per_row(gold[gold == predicted]), per_row(predicted), per_row(gold))
    rows = (
        Scores.from_counts(label, correct=c, predicted=p, support=s, zero_division=zero_division)
        for label, c, p, s in counts
    )
    right = int((gold == predicted).sum())
    return LabelReport.of(rows, right=right, n_tokens=len(gold), zero_division=zero_division)


def label_f1(
    y_true: Labelled,
    y_pred: Labelled,
    *,
    average: str = "weighted",
    labels: Sequence[Hashable] | None = None,
    zero_division: float = 0.0,
) -> float:
    """One F1 for all labels, or for those in ``labels``: ``"micro"``, ``"macro"`` or ``"weighted"``.

    >>> label_f1([["O", "N", "V"]], [["O", "N", "N"]], average="micro", labels=["N", "V"])
    0.5
    """
    report = label_report(y_true, y_pred, labels=labels, zero_division=zero_division)
    return average_scores(report.rows, average, zero_division=zero_division).f1


def confusion(y_true: Labelled, y_pred: Labelled, *, labels: Sequence[Hashable] | None = None) -> Confusion:
    r"""Count gold × predicted labels; with ``labels``, only the steps where both are among them.

    >>> print(confusion([["a", "b", "b", "b"]], [["a", "b", "a", "a"]]))
    gold \ predicted  a  b
    a                 1  .
    b                 2  1
    """
    pair = code_pair(y_true, y_pred)
    known = pair.gold != UNKNOWN
    chosen, row_of = choose_labels(pair, labels)
    gold, predicted = row_of[pair.gold[known]], row_of[pair.predicted[known]]
    inside = (gold >= 0) & (predicted >= 0)
    size = len(chosen)
    cells = np.bincount(gold[inside] * size + predicted[inside], minlength=size * size)
    return Confusion(cells.reshape(size, size), chosen)
