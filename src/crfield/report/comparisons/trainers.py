"""One data set, several trainers: what each reached, and how soon.

Trainers minimise different things and stop by different rules, so what they report of themselves cannot be compared.
Here all are measured by the same two numbers, at moments of their way that cost no time of theirs: the penalised
likelihood at their weights, and the score on held-out sequences. A trainer of margins is not to blame for a poor
likelihood, nor one of likelihood for a poor margin; the score is what they are all trained for.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from crfield.errors import InputError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad

_NONE = "·"


@dataclass(frozen=True)
class Moment:
    """Where a trainer was after so many CPU seconds of its own."""

    seconds: float
    n_iter: int
    value: float  # −log-likelihood with the penalties
    score: float | None  # on held-out sequences


@dataclass(frozen=True)
class TrainerRow:
    """What one trainer came to; ``reason`` alone where it was not run.

    ``gap`` is (value − best value of all) / |best value of all|; ``to_percent`` the CPU seconds after which it was
    within 1 % of that best value, None if never.
    """

    name: str
    solver: str = ""
    objective: str = ""
    n_iter: int | None = None
    seconds: float | None = None
    value: float | None = None
    gap: float | None = None
    to_percent: float | None = None
    score: float | None = None
    n_active: int | None = None
    ended: str = ""
    reason: str = ""
    moments: tuple[Moment, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether it was run at all."""
        return not self.reason


@dataclass(frozen=True, eq=False, repr=False)
class TrainerComparison(ShownAsTables):
    """A row for each trainer, and the data they were run on.

    >>> row = TrainerRow("lbfgs", "lbfgs", "likelihood", 3, 0.1, 12.0, 0.0, 0.05, 0.9, 7, "tolerance")
    >>> comparison = TrainerComparison((row,), "accuracy", 10, 50, 7, 0.0, 1.0)
    >>> comparison["lbfgs"].score, comparison.best_value
    (0.9, 12.0)
    """

    rows: tuple[TrainerRow, ...]
    score_name: str
    n_sequences: int
    n_steps: int
    n_weights: int
    l1: float
    l2: float

    def __getitem__(self, name: str) -> TrainerRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(
            f"the comparison has no trainer {name!r}; it has {', '.join(row.name for row in self.rows)}."
        )

    @property
    def best_value(self) -> float:
        """The lowest penalised −log-likelihood that any of them found."""
        return min((row.value for row in self.rows if row.value is not None), default=math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; numbers that are not finite become None."""
        return {
            "sequences": self.n_sequences,
            "steps": self.n_steps,
            "weights": self.n_weights,
            "l1": self.l1,
            "l2": self.l2,
            "score": self.score_name,
            "best_value": _finite(self.best_value),
            "trainers": [_plain(asdict(row)) for row in self.rows],
        }

    def _columns(self, *, relative: bool = False) -> list[tuple[str, list[str]]]:
        """Heads and cells of the trainers that ran."""
        shown = [row for row in self.rows if row.ran]
        unit = (shown[0].seconds or 1.0) if relative and shown else 1.0
        return [
            ("trainer", [row.name for row in shown]),
            ("trains", [row.objective for row in shown]),
            ("steps", [_number(row.n_iter, ",") for row in shown]),
            ("time" if relative else "CPU s", [_number(_over(row.seconds, unit), ".2f") for row in shown]),
            ("-log p + penalty", [_number(row.value, ",.1f") for row in shown]),
            ("above best", [_number(row.gap, ".1e") for row in shown]),
            ("within 1 % after", [_number(_over(row.to_percent, unit), ".2f") for row in shown]),
            (f"held-out {self.score_name}", [_number(row.score, ".4f") for row in shown]),
            ("active", [_number(row.n_active, ",") for row in shown]),
            ("ended by", [row.ended for row in shown]),
        ]

    def table(self, *, relative: bool = False) -> str:
        """The trainers that ran, aligned; ``relative`` gives times as multiples of the first one's."""
        columns = self._columns(relative=relative)
        widths = [max(map(len, [head, *cells])) for head, cells in columns]
        left = (0, 1, len(columns) - 1)
        lines = [
            "  ".join(
                pad(text, wide, right=k not in left) for k, (text, wide) in enumerate(zip(line, widths))
            ).rstrip()
            for line in zip(*([head, *cells] for head, cells in columns))
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        return (
            f"{self.n_sequences:,} sequences, {self.n_steps:,} steps, {self.n_weights:,} weights; "
            f"l1 = {self.l1:g}, l2 = {self.l2:g}"
        )

    def _tables(self) -> list[Table]:
        columns = self._columns()
        rows = list(zip(*(cells for _, cells in columns)))
        return [Table([head for head, _ in columns], rows, left=2, title=self._headline())]

    def text(self, *, relative: bool = False) -> str:
        """The data, the table, and why some trainers were not run."""
        head = self._headline()
        parts = [head, self.table(relative=relative)] if any(row.ran for row in self.rows) else [head]
        refused = [f"  {row.name}: {row.reason}" for row in self.rows if not row.ran]
        if refused:
            parts.append("not run\n" + "\n".join(refused))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return self.text()


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None or not math.isfinite(value) else format(value, form)


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _finite(value)
