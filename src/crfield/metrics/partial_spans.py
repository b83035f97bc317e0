"""Scores of spans that are nearly right, as SemEval-2013 counts them: strict, exact, partial and type.

A span with the right kind and one word too few is as wrong for conlleval as one that was made up. Who reads errors
wants to know the difference, so task 9.1 of SemEval-2013 (Segura-Bedmar, Martínez & Herrero-Zazo 2013) asks four
questions:

    strict    the same first and last step and the same kind
    exact     the same first and last step, whatever the kind
    partial   the same first and last step, or half a point for an overlap, whatever the kind
    type      an overlap with a span of the same kind

Predicted spans are gone through from left to right. Each takes the first gold span, not yet taken, for which the
answer is yes (for *type* the one whose ends are nearest); without one, the first that it overlaps, which is then
*incorrect* (for partial: *partial*); without that it is *spurious*. Gold spans that nobody took are *missed*. With

    possible = correct + incorrect + partial + missed        actual = correct + incorrect + partial + spurious

precision is (correct + ½ partial) / actual and recall the same over possible. Spans overlap when they share at
least a hundredth of the gold span. Counts equal those of the package nervaluate, over all kinds and for each kind
alone, where only spans of that kind are looked at on either side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from crfield.errors import LabelError, ShapeError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.metrics.schemes import Span, spans
from crfield.metrics.scores import ratio

QUESTIONS = ("strict", "exact", "partial", "type")
LEAST = 0.01  # of a gold span that an overlap must have


@dataclass
class Matches:
    """How spans met under one question.

    >>> Matches(correct=2, partial=1, spurious=1).precision
    0.625
    """

    correct: int = 0
    incorrect: int = 0
    partial: int = 0
    missed: int = 0
    spurious: int = 0

    @property
    def possible(self) -> int:
        """Gold spans, those that were met included."""
        return self.correct + self.incorrect + self.partial + self.missed

    @property
    def actual(self) -> int:
        """Predicted spans."""
        return self.correct + self.incorrect + self.partial + self.spurious

    @property
    def precision(self) -> float:
        """Points for each predicted span."""
        return ratio(self.correct + 0.5 * self.partial, self.actual)

    @property
    def recall(self) -> float:
        """Points for each gold span."""
        return ratio(self.correct + 0.5 * self.partial, self.possible)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return ratio(2 * self.precision * self.recall, self.precision + self.recall)

    def add(self, gold: list[Span], predicted: list[Span], question: str) -> None:
        """Count the spans of one sequence."""
        taken: set[int] = set()
        for span in predicted:
            right = near = None
            for number, other in enumerate(gold):
                if number in taken:
                    continue
                if _answers(span, other, question):
                    if right is None or (question == "type" and _apart(span, other) < _apart(span, gold[right])):
                        right = number
                elif near is None and _overlap(span, other):
                    near = number
            if right is not None:
                self.correct += 1
            elif near is None:
                self.spurious += 1
            elif question == "partial":
                self.partial += 1
            else:
                self.incorrect += 1
            taken |= {number for number in (near if right is None else right,) if number is not None}
        self.missed += len(gold) - len(taken)

    def to_dict(self) -> dict[str, float | int]:
        """Counts and scores as plain numbers."""
        shares = {name: getattr(self, name) for name in ("possible", "actual", "precision", "recall", "f1")}
        return asdict(self) | shares


@dataclass(frozen=True)
class PartialSpanReport(ShownAsTables):
    """Counts and scores of the four questions, over all kinds and by kind.

    >>> report = partial_span_report([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-ORG"]])
    >>> report["strict"].incorrect, report["exact"].correct, report["partial"].f1, report["type"].f1
    (2, 1, 0.75, 0.5)
    >>> report.kinds["PER"]["partial"].partial
    1
    """

    rows: dict[str, Matches]
    kinds: dict[Any, dict[str, Matches]] = field(default_factory=dict)

    def __getitem__(self, question: str) -> Matches:
        if question not in self.rows:
            raise LabelError(f"the questions are {', '.join(QUESTIONS)}, got {question!r}.")
        return self.rows[question]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers under text keys, ready for JSON."""
        kinds = {str(kind): {name: row.to_dict() for name, row in rows.items()} for kind, rows in self.kinds.items()}
        return {"overall": {name: row.to_dict() for name, row in self.rows.items()}, "kinds": kinds}

    def __str__(self) -> str:
        width = max(len(str(kind)) for kind in ("kind", "all", *self.kinds))
        head = ("correct", "incorrect", "partial", "missed", "spurious", "precision", "recall", "f1")
        lines = [f"{'kind':<{width}}  match    " + "  ".join(head)]
        for kind, rows in {"all": self.rows, **self.kinds}.items():
            for name, row in rows.items():
                cells = [f"{getattr(row, each):>{len(each)},}" for each in head[:5]]
                cells += [f"{getattr(row, each):{max(len(each), 6)}.4f}" for each in head[5:]]
                lines.append(f"{kind!s:<{width}}  {name:<7}  " + "  ".join(cells))
        return "\n".join(lines)

    def _tables(self) -> list[Table]:
        head = ("correct", "incorrect", "partial", "missed", "spurious", "precision", "recall", "f1")
        made = []
        for kind, rows in {"all": self.rows, **self.kinds}.items():
            for name, row in rows.items():
                cells = [f"{getattr(row, each):,}" for each in head[:5]]
                made.append([str(kind), name, *cells, *(f"{getattr(row, each):.4f}" for each in head[5:])])
        return [Table(["kind", "match", *head], made, left=2)]


def partial_span_report(
    y_true: Iterable[Iterable[Any]], y_pred: Iterable[Iterable[Any]], *, scheme: str = "iob2"
) -> PartialSpanReport:
    """Strict, exact, partial and type scores of spans (SemEval-2013, as nervaluate counts them).

    >>> print(partial_span_report([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]]))
    kind  match    correct  incorrect  partial  missed  spurious  precision  recall  f1
    all   strict         1          1        0       0         0     0.5000  0.5000  0.5000
    all   exact          1          1        0       0         0     0.5000  0.5000  0.5000
    all   partial        1          0        1       0         0     0.7500  0.7500  0.7500
    all   type           2          0        0       0         0     1.0000  1.0000  1.0000
    LOC   strict         1          0        0       0         0     1.0000  1.0000  1.0000
    LOC   exact          1          0        0       0         0     1.0000  1.0000  1.0000
    LOC   partial        1          0        0       0         0     1.0000  1.0000  1.0000
    LOC   type           1          0        0       0         0     1.0000  1.0000  1.0000
    PER   strict         0          1        0       0         0     0.0000  0.0000  0.0000
    PER   exact          0          1        0       0         0     0.0000  0.0000  0.0000
    PER   partial        0          0        1       0         0     0.5000  0.5000  0.5000
    PER   type           1          0        0       0         0     1.0000  1.0000  1.0000
    """
    gold_tags, said_tags = [list(tags) for tags in y_true], [list(tags) for tags in y_pred]
    if len(gold_tags) != len(said_tags):
        raise ShapeError(f"y_true has {len(gold_tags)} sequences and y_pred {len(said_tags)}; they must be as many.")
    for number, (one, other) in enumerate(zip(gold_tags, said_tags)):
        if len(one) != len(other):
            raise ShapeError(f"sequence {number} has {len(one)} tags in y_true and {len(other)} in y_pred.")
    gold = [spans(tags, scheme) for tags in gold_tags]
    said = [spans(tags, scheme) for tags in said_tags]
    kinds = sorted({kind for found in (*gold, *said) for _, _, kind in found}, key=str)
    rows = {question: Matches() for question in QUESTIONS}
    of_kind: dict[Any, dict[str, Matches]] = {kind: {name: Matches() for name in QUESTIONS} for kind in kinds}
    for meant, found in zip(gold, said):
        for question in QUESTIONS:
            rows[question].add(meant, found, question)
        for kind in {kind for _, _, kind in (*meant, *found)}:
            own = [[span for span in some if span[2] == kind] for some in (meant, found)]
            for question in QUESTIONS:
                of_kind[kind][question].add(own[0], own[1], question)
    return PartialSpanReport(rows, of_kind)


def _answers(span: Span, gold: Span, question: str) -> bool:
    """Whether the question is answered by yes."""
    if question == "type":
        return span[2] == gold[2] and _overlap(span, gold)
    return span[:2] == gold[:2] and (question != "strict" or span[2] == gold[2])


def _overlap(span: Span, gold: Span) -> bool:
    shared = min(span[1], gold[1]) - max(span[0], gold[0])
    return shared > 0 and shared >= LEAST * (gold[1] - gold[0])


def _apart(span: Span, gold: Span) -> int:
    return abs(span[0] - gold[0]) + abs(span[1] - gold[1])
