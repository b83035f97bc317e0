"""One sequence and what the model thinks of it, as text.

Each step shows its token, the label chosen, how probable that label is (a number and a bar) and the next best
label. The chosen label need not be the most probable one of its step: the best path as a whole may pass
through another, and then the runner-up shows the higher number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import LabelError, ShapeError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad, printable, shorten, width

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WIDEST_TOKEN = 30
_WIDEST_LABEL = 20


@dataclass(frozen=True, eq=False, repr=False)
class SequenceMarginals(ShownAsTables):
    """Label probabilities of the steps of one sequence.

    ``predicted`` (T,) are the labels chosen, by default the most probable of each step.

    >>> steps = SequenceMarginals(["2", "cups", "flour"], ["NAME", "QTY", "UNIT"],
    ...     np.array([[0.01, 0.98, 0.01], [0.25, 0, 0.75], [0.5, 0, 0.5]]), ["QTY", "UNIT", "NAME"])
    >>> print(steps.text(bar=8))
    2      QTY   0.980 ███████▉  NAME 0.010
    cups   UNIT  0.750 ██████    NAME 0.250
    flour  NAME  0.500 ████      UNIT 0.500
    >>> print(steps.text(bar=8, ascii_only=True))
    2      QTY   0.980 ########  NAME 0.010
    cups   UNIT  0.750 ######    NAME 0.250
    flour  NAME  0.500 ####      UNIT 0.500
    """

    tokens: Sequence[Any]
    labels: Sequence[Hashable]
    probabilities: np.ndarray  # (T, L)
    predicted: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        probabilities = np.asarray(self.probabilities, dtype=np.float64)
        if probabilities.shape != (len(self.tokens), len(self.labels)):
            raise ShapeError(
                f"the probabilities of {len(self.tokens)} tokens and {len(self.labels)} labels must be "
                f"({len(self.tokens)}, {len(self.labels)}), got {probabilities.shape}."
            )
        object.__setattr__(self, "probabilities", probabilities)
        if self.predicted is not None and len(self.predicted) != len(self.tokens):
            raise ShapeError(f"{len(self.tokens)} tokens need as many predicted labels, got {len(self.predicted)}.")

    def _chosen(self) -> np.ndarray:
        if self.predicted is None:
            return self.probabilities.argmax(axis=1)
        codes = {label: code for code, label in enumerate(_plain(self.labels))}
        predicted = _plain(self.predicted)
        for step, label in enumerate(predicted):
            if label not in codes:
                raise LabelError(f"the predicted label {label!r} of step {step} is none of the labels of the model.")
        return np.array([codes[label] for label in predicted], dtype=np.int64)

    def _best_two(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The label shown at every step and its probability, the best of the others and its own."""
        chosen, rows = self._chosen(), np.arange(len(self.tokens))
        others = self.probabilities.copy()
        others[rows, chosen] = -1.0
        second = others.argmax(axis=1)
        return chosen, self.probabilities[rows, chosen], second, others[rows, second]

    def _tables(self) -> list[Table]:
        if not len(self.tokens) or not len(self.labels):
            return [Table(["empty sequence"], [])]
        names = _cells(self.labels, _WIDEST_LABEL, ascii_only=False)
        tokens = _cells(self.tokens, _WIDEST_TOKEN, ascii_only=False)
        rows = [
            [token, names[k], f"{p:.3f}", *([names[j], f"{q:.3f}"] if len(names) > 1 else ["", ""])]
            for token, k, p, j, q in zip(tokens, *(part.tolist() for part in self._best_two()))
        ]
        return [Table(["step", "label", "probability", "runner-up", "probability"], rows, left=2)]

    def text(self, *, bar: int = 20, ascii_only: bool = False) -> str:
        """One line per step; ``bar`` is the length of the bar for probability one."""
        steps = len(self.tokens)
        if not steps or not len(self.labels):
            return "empty sequence"
        chosen, own, second, runner_up = self._best_two()
        names = _cells(self.labels, _WIDEST_LABEL, ascii_only=ascii_only)
        tokens = _cells(self.tokens, _WIDEST_TOKEN, ascii_only=ascii_only)
        first, middle = max(map(width, tokens)), max(width(names[k]) for k in chosen)
        last = max(width(names[k]) for k in second)
        lines = []
        for step in range(steps):
            line = f"{pad(tokens[step], first)}  {pad(names[chosen[step]], middle)}  {own[step]:.3f} "
            line += pad(_bar(own[step], bar, ascii_only=ascii_only), bar)
            if len(names) > 1:
                line += f"  {pad(names[second[step]], last)} {runner_up[step]:.3f}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def _plain(values: Sequence[Any]) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _cells(values: Sequence[Any], widest: int, *, ascii_only: bool) -> list[str]:
    texts = [printable(value) for value in _plain(values)]
    if ascii_only:
        texts = [text.encode("ascii", errors="backslashreplace").decode() for text in texts]
    return [shorten(text, widest, end="~" if ascii_only else "…") for text in texts]


def _bar(probability: float, length: int, *, ascii_only: bool) -> str:
    part = min(max(float(np.nan_to_num(probability)), 0.0), 1.0) * length
    if ascii_only:
        return "#" * round(part)
    eighths = round(part * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
