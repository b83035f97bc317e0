"""Precision, recall and F1 from three counts, and the ways to average them.

For one label or one kind of span let *correct* be what was both meant and said, *predicted* what was said
and *support* what was meant:

    precision = correct / predicted     recall = correct / support     F1 = 2·correct / (predicted + support)

The last form equals the harmonic mean of the first two wherever that exists. Where a denominator is zero
there is nothing to judge, and the score is ``zero_division``, 0.0 unless told otherwise: a model that never
says a label earns nothing for it. Averages: *micro* adds the counts first, *macro* takes the plain mean of
the rows, *weighted* the mean by support.

A report is a table of such rows with its averages and the share of right steps (`ScoreTable`), whether the rows are
about labels or about kinds of spans.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from crfield.core.checks import one_of
from crfield.errors import LabelError
from crfield.metrics.notebook import ShownAsTables, Table

AVERAGES = ("micro", "macro", "weighted")


@dataclass(frozen=True)
class Scores:
    """One row of a report: a label, a kind of span, or an average.

    >>> row = Scores.from_counts("NP", correct=2, predicted=4, support=2)
    >>> row.precision, row.recall, round(row.f1, 4)
    (0.5, 1.0, 0.6667)
    """

    name: Hashable
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int
    correct: int

    @classmethod
    def from_counts(
        cls, name: Hashable, *, correct: int, predicted: int, support: int, zero_division: float = 0.0
    ) -> Scores:
        """The three scores of the three counts."""
        return cls(
            name,
            precision=ratio(correct, predicted, zero_division),
            recall=ratio(correct, support, zero_division),
            f1=ratio(2 * correct, predicted + support, zero_division),
            support=int(support),
            predicted=int(predicted),
            correct=int(correct),
        )

    def to_dict(self) -> dict[str, float | int]:
        """The numbers of the row without its name.

        >>> Scores.from_counts("NP", correct=1, predicted=1, support=2).to_dict()["recall"]
        0.5
        """
        return {key: value for key, value in asdict(self).items() if key != "name"}


def ratio(part: float, whole: float, zero_division: float = 0.0) -> float:
    """part / whole, or ``zero_division`` where there is no whole.

    >>> ratio(1, 4), ratio(0, 0)
    (0.25, 0.0)
    """
    return float(part) / float(whole) if whole else float(zero_division)


def average_scores(rows: Sequence[Scores], kind: str, *, zero_division: float = 0.0) -> Scores:
    """The micro, macro or weighted average of some rows.

    >>> rows = [Scores.from_counts("a", correct=1, predicted=1, support=1),
    ...         Scores.from_counts("b", correct=0, predicted=1, support=3)]
    >>> [average_scores(rows, kind).recall for kind in ("micro", "macro", "weighted")]
    [0.25, 0.5, 0.25]
    """
    one_of(*AVERAGES)("average", kind)
    correct, predicted = sum(row.correct for row in rows), sum(row.predicted for row in rows)
    support = sum(row.support for row in rows)
    if kind == "micro":
        return Scores.from_counts(
            kind, correct=correct, predicted=predicted, support=support, zero_division=zero_division
        )
    weights = [1 if kind == "macro" else row.support for row in rows]
    whole = sum(weights)

    def mean(values: Iterable[float]) -> float:
        return ratio(sum(w * value for w, value in zip(weights, values)), whole, zero_division)

    return Scores(
        kind,
        precision=mean(row.precision for row in rows),
        recall=mean(row.recall for row in rows),
        f1=mean(row.f1 for row in rows),
        support=support,
        predicted=predicted,
        correct=correct,
    )


def names(rows: Iterable[Hashable]) -> list[str]:
    """Labels as texts: ``str``, or ``repr`` when two labels would read the same.

    >>> names(["a", 1]), names(["1", 1])
    (['a', '1'], ["'1'", '1'])
    """
    rows = list(rows)
    texts = [str(row) for row in rows]
    return texts if len(set(texts)) == len(texts) else [repr(row) for row in rows]


def render(rows: Sequence[Scores], averages: Sequence[Scores], *, head: str) -> str:
    """Rows and averages as a table for people.

    >>> print(render([Scores.from_counts("a", correct=1, predicted=1, support=2)], [], head="label"))
    label  precision  recall      f1  support
    a         1.0000  0.5000  0.6667        2
    """
    row_names, average_names = names(row.name for row in rows), [f"{row.name} average" for row in averages]
    width = max(map(len, [head, *row_names, *average_names]))
    support = max([len("support"), *(len(f"{row.support:,}") for row in [*rows, *averages])])

    def line(name: str, row: Scores) -> str:
        shares = f"{row.precision:9.4f}  {row.recall:6.4f}  {row.f1:6.4f}"
        return f"{name:<{width}}  {shares}  {row.support:>{support},}"

    lines = [f"{head:<{width}}  precision  recall      f1  {'support':>{support}}"]
    lines += [line(name, row) for name, row in zip(row_names, rows)]
    if averages:
        lines += ["", *(line(name, row) for name, row in zip(average_names, averages))]
    return "\n".join(lines)


@dataclass(frozen=True)
class ScoreTable(ShownAsTables):
    """Rows of scores by name, their averages, and the share of right steps.

    >>> table = ScoreTable.of([Scores.from_counts("a", correct=1, predicted=1, support=2)], right=3, n_tokens=4)
    >>> table["a"].recall, table.accuracy, sorted(table.to_dict())
    (0.5, 0.75, ['accuracy', 'macro', 'micro', 'rows', 'tokens', 'weighted'])
    """

    what: ClassVar[str] = "row"  # what a row is about

    rows: tuple[Scores, ...]
    micro: Scores
    macro: Scores
    weighted: Scores
    accuracy: float
    n_tokens: int

    @classmethod
    def of(cls, rows: Iterable[Scores], *, right: int, n_tokens: int, zero_division: float = 0.0) -> Self:
        """The table of some rows, with averages, where ``right`` of ``n_tokens`` steps are right."""
        rows = tuple(rows)
        micro, macro, weighted = (average_scores(rows, kind, zero_division=zero_division) for kind in AVERAGES)
        return cls(rows, micro, macro, weighted, ratio(right, n_tokens, zero_division), n_tokens)

    @property
    def averages(self) -> tuple[Scores, Scores, Scores]:
        """Micro, macro and weighted."""
        return self.micro, self.macro, self.weighted

    def __getitem__(self, name: Hashable) -> Scores:
        for row in self.rows:
            if row.name == name:
                return row
        raise LabelError(f"the report has no {self.what} {name!r}; it has {[row.name for row in self.rows]!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers under text keys, ready for JSON."""
        return {
            "accuracy": self.accuracy,
            "tokens": self.n_tokens,
            f"{self.what}s": dict(zip(names(row.name for row in self.rows), (row.to_dict() for row in self.rows))),
            **{str(row.name): row.to_dict() for row in self.averages},
        }

    def _facts(self) -> str:
        return f"accuracy {self.accuracy:.4f} over {self.n_tokens:,} tokens"

    def __str__(self) -> str:
        return f"{render(self.rows, self.averages, head=self.what)}\n\n{self._facts()}"

    def _tables(self) -> list[Table]:
        head = [self.what, "precision", "recall", "f1", "support"]
        rows = [
            [name, *(f"{share:.4f}" for share in (row.precision, row.recall, row.f1)), f"{row.support:,}"]
            for name, row in [
                *zip(names(row.name for row in self.rows), self.rows),
                *((f"{row.name} average", row) for row in self.averages),
            ]
        ]
        return [Table(head, rows, note=self._facts())]
