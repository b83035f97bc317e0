"""Scores of predicted labels for the verbs: what is counted, shown and put into JSON, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from crfield.metrics import (
    Confusion,
    LabelReport,
    SpanReport,
    confusion,
    label_report,
    sequence_accuracy,
    span_report,
)
from crfield.metrics.schemes import tag_scheme


class Scheme(StrEnum):
    """How spans are written as tags; ``auto`` looks at the labels, ``none`` means that there are no spans."""

    auto = "auto"
    none = "none"
    iob1 = "iob1"
    iob2 = "iob2"
    bioes = "bioes"
    bilou = "bilou"
    ioe1 = "ioe1"
    ioe2 = "ioe2"


@dataclass(frozen=True, eq=False)
class Judgement:
    """All scores of one set of predictions.

    >>> judgement = judge([["B-NP", "O"]], [["B-NP", "B-NP"]])
    >>> judgement.labels.accuracy, judgement.sequence_accuracy, judgement.spans.recall
    (0.5, 0.0, 1.0)
    """

    n_sequences: int
    labels: LabelReport
    sequence_accuracy: float
    scheme: str | None
    spans: SpanReport | None
    confusion: Confusion
    mode: str = "conlleval"

    def summary(self) -> str:
        """The main numbers in a line."""
        parts = [f"token accuracy {self.labels.accuracy:.4f}", f"sequence accuracy {self.sequence_accuracy:.4f}"]
        if self.spans is not None:
            parts.append(f"span F1 {self.spans.f1:.4f} ({self._reading})")
        return ", ".join(parts)

    @property
    def _reading(self) -> str:
        return f"{self.scheme}, strict" if self.mode == "strict" else str(self.scheme)

    def text(self, *, with_confusion: bool) -> str:
        """Everything for people."""
        parts = [
            f"{self.labels.n_tokens:,} tokens in {self.n_sequences:,} sequences\n{self.summary()}",
            str(self.labels),
        ]
        if self.spans is not None:
            parts.append(f"spans read as {self._reading}\n{self.spans}")
        if with_confusion:
            parts.append(str(self.confusion))
        return "\n\n".join(parts)

    def to_dict(self, *, with_confusion: bool = False) -> dict[str, Any]:
        """Everything for JSON."""
        facts = {
            "sequences": self.n_sequences,
            "tokens": self.labels.n_tokens,
            "token_accuracy": self.labels.accuracy,
            "sequence_accuracy": self.sequence_accuracy,
            "scheme": self.scheme,
            "mode": self.mode,
            "labels": self.labels.to_dict(),
            "spans": None if self.spans is None else self.spans.to_dict(),
        }
        return {**facts, "confusion": self.confusion.to_dict()} if with_confusion else facts


def judge(gold: Sequence[Any], predicted: Any, *, scheme: Scheme = Scheme.auto, mode: str = "conlleval") -> Judgement:
    """Compare predicted labels with gold ones; ``mode`` says how spans are read (`span_report`)."""
    name = tag_scheme(gold, predicted) if scheme is Scheme.auto else None if scheme is Scheme.none else str(scheme)
    return Judgement(
        n_sequences=len(gold),
        labels=label_report(gold, predicted),
        sequence_accuracy=sequence_accuracy(gold, predicted),
        scheme=name,
        spans=None if name is None else span_report(gold, predicted, scheme=name, mode=mode),
        confusion=confusion(gold, predicted),
        mode=mode,
    )
