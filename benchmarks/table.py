"""Rows of results, the table that people read and the JSON that machines read."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.timing import Timing

HEADINGS = ("comparison", "ours", "rival", "result", "required", "")


@dataclass(frozen=True)
class Row:
    """One line: what was measured, and what was asked for.

    ``required`` is a bound on ``result``: at least that when ``better`` is ``"more"``, at most when ``"less"``. It is
    None where nothing is asked.
    """

    name: str
    result: float | None
    unit: str = "×"
    required: float | None = None
    goal: float | None = None
    better: str = "more"
    ours: str = ""
    rival: str = ""
    note: str = ""
    detail: dict[str, Any] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the requirement is met; None where there is none or nothing was measured."""
        if self.required is None or self.result is None:
            return None
        return self.result >= self.required if self.better == "more" else self.result <= self.required


def ratio(
    name: str,
    ours: Timing,
    rival: Timing,
    *,
    required: float | None = None,
    goal: float | None = None,
    note: str = "",
) -> Row:
    """How many times less time ours takes: best against best, medians beside it."""
    detail = {
        "ours_best": ours.best,
        "ours_median": ours.median,
        "rival_best": rival.best,
        "rival_median": rival.median,
        "ratio_of_medians": rival.median / ours.median,
        "turns": [len(ours.seconds), len(rival.seconds)],
    }
    return Row(
        name,
        rival.best / ours.best,
        required=required,
        goal=goal,
        ours=seconds(ours.best),
        rival=seconds(rival.best),
        note=f"medians {rival.median / ours.median:.2f}×" + (f"; {note}" if note else ""),
        detail=detail,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def seconds(value: float) -> str:
    """A time with three digits that matter.

    >>> seconds(0.0123), seconds(12.3)
    ('12.3 ms', '12.3 s')
    """
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    number = f"{value:.1e}" if value and abs(value) < 1e-2 else f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{number}{unit}" if unit in ("×", "%") else f"{number} {unit}".rstrip()


def _asked(row: Row) -> str:
    if row.required is None:
        return ""
    sign = "≥" if row.better == "more" else "≤"
    goal = f" (goal {_shown(row.goal, '')})" if row.goal is not None else ""
    return f"{sign} {_shown(row.required, row.unit)}{goal}"


def render(rows: Sequence[Row]) -> str:
    """The table as plain text; notes stand under their row."""
    verdicts = {True: "met", False: "NOT MET", None: ""}
    cells = [
        (row.name, row.ours, row.rival, _shown(row.result, row.unit), _asked(row), verdicts[row.met]) for row in rows
    ]
    widths = [max(len(line[c]) for line in [HEADINGS, *cells]) for c in range(len(HEADINGS))]

    def line(parts: Iterable[str]) -> str:
        padded = [
            part.ljust(width) if c in (0, 5) else part.rjust(width)
            for c, (part, width) in enumerate(zip(parts, widths))
        ]
        return "  ".join(padded).rstrip()

    out = [line(HEADINGS), line("─" * width for width in widths)]
    for row, parts in zip(rows, cells):
        out.append(line(parts))
        if row.note:
            out.append(f"    {row.note}")
    return "\n".join(out)


def machine() -> dict[str, Any]:
    """What the figures were measured on and with."""
    packages = {}
    for name in ("crfield", "numpy", "scipy", "scikit-learn", "python-crfsuite"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "packages": packages,
    }


def write_json(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    """All rows with their details, and what they were measured on."""
    listed = [{**asdict(row), "met": None if row.met is None else bool(row.met)} for row in rows]
    path.write_text(json.dumps({**about, "rows": listed}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
