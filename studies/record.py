"""The files in which a run of a study is kept.

A run in a folder leaves three files: ``NAME.txt`` with the table and the claims in words, ``NAME.png`` with the
charts, and ``NAME.json`` with everything: command, settings, seeds, versions, intervals, charts, and the outcome of
every single case, so that other questions can be asked of a run without repeating it. A quick run is called
``NAME-quick``, so that it never takes the place of a whole one.

While a run lasts, ``NAME.partial.json`` holds the cases that are done. A run with the same settings and versions goes
on from there; it is removed at the end.
"""

from __future__ import annotations

import io
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from crfield.errors import FormatError
from crfield.report.displays.curves import Chart, plot_charts
from crfield.report.findings import Findings
from crfield.storage.files import read_text, write_bytes, write_text
from studies.framework import Outcome, Outcomes, Settings

_SAVED_EVERY = 10.0  # seconds


def summary(findings: Findings) -> str:
    """Which claims hold, in a sentence; a claim may say first whose it is, "paper" or "ours".

    >>> from crfield.report.findings import Claim
    >>> claims = (Claim("paper: mine is best", None, "-.1"), Claim("ours, p = .9: theirs is", True, "+.1"))
    >>> summary(Findings("t", ("a",), (), claims))
    '0 of 1 claims of the paper hold (1 open), 1 of 1 of ours'
    """
    paper, ours = (
        [claim.holds for claim in findings.claims if claim.sentence.startswith(whose)] for whose in ("paper", "ours")
    )
    if not paper or len(paper) + len(ours) < len(findings.claims):
        return findings.verdict
    first, second = (f" ({own.count(None)} open)" * (None in own) for own in (paper, ours))
    return (
        f"{paper.count(True)} of {len(paper)} claims of the paper hold{first}, "
        f"{ours.count(True)} of {len(ours)} of ours{second}"
    )


def versions() -> dict[str, str]:
    """What computed it.

    >>> sorted(versions())
    ['crfield', 'numpy', 'python', 'scikit-learn', 'scipy']
    """
    packages = {name: version(name) for name in ("crfield", "numpy", "scikit-learn", "scipy")}
    return {"python": platform.python_version(), **packages}


@dataclass
class Record:
    """The files of one run of a study in a folder."""

    folder: str
    name: str
    settings: Settings

    def path(self, ending: str) -> str:
        """Where the file with that ending is."""
        return os.path.join(self.folder, f"{self.name}.{ending}")

    # ---------------------------------------------------------------- a run that lasts

    def known(self) -> dict[str, Outcome]:
        """Outcomes that an interrupted run with the same settings has left."""
        path = self.path("partial.json")
        if not os.path.exists(path):
            return {}
        try:
            told = json.loads(read_text(path))
            same = told["settings"] == _plain(self.settings) and told["versions"] == versions()
            return dict(told["outcomes"]) if same else {}
        except (ValueError, KeyError, TypeError, FormatError):
            return {}

    @contextmanager
    def keeping(self, known: Mapping[str, Outcome]) -> Iterator[Callable[[str, Outcome], None]]:
        """Something to call with the name and the outcome of each case; it keeps them, every few seconds.

        When the block is left by an error or by Ctrl-C, what came last is kept too.
        """
        outcomes, last = dict(known), [time.monotonic()]

        def save() -> None:
            told = {"settings": _plain(self.settings), "versions": versions(), "outcomes": outcomes}
            write_text(self.path("partial.json"), json.dumps(told))
            last[0] = time.monotonic()

        def keep(name: str, outcome: Outcome) -> None:
            outcomes[name] = outcome
            if time.monotonic() - last[0] >= _SAVED_EVERY:
                save()

        try:
            yield keep
        except BaseException:
            if len(outcomes) > len(known):
                save()
            raise

    # ------------------------------------------------------------------------ its end

    def write(self, found: Findings, outcomes: Outcomes, *, command: str, cpu_seconds: float) -> list[str]:
        """Write table and JSON, and drop what was kept on the way; returns the paths."""
        told = {
            "command": command,
            "settings": _plain(self.settings),
            "seeds": list(self.settings.get("seeds", ())),
            "confidence": "95 % by Student's t, over the means of the seeds",
            "versions": versions(),
            "processor": platform.machine(),
            "cpu_seconds": round(cpu_seconds, 1),
            **found.to_dict(),
            "charts": [chart.to_dict() for chart in found.charts],
        }
        write_text(self.path("json"), document(told, [{**case, **outcome} for case, outcome in outcomes]))
        write_text(self.path("txt"), f"$ {command}\n\n{found}\n\n{summary(found)}\n")
        if os.path.exists(self.path("partial.json")):
            os.unlink(self.path("partial.json"))
        return [self.path("txt"), self.path("json")]

    def draw(self, found: Findings) -> str:
        """Draw the charts, which needs matplotlib; returns the path."""
        draw(found.charts, self.path("png"))
        return self.path("png")


def draw(charts: Sequence[Chart], path: str) -> None:
    """Draw charts into a file, to be read at the width of a page."""
    stream = io.BytesIO()
    plot_charts(charts).savefig(stream, format="png", dpi=110)
    write_bytes(path, stream.getvalue())


def document(told: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """JSON for people at the top, and one line for each case with its outcome below."""
    head = json.dumps(_plain(told), indent=2, ensure_ascii=False).removesuffix("\n}")
    cases = ",\n".join(f"    {json.dumps(_rounded(row))}" for row in rows)
    return f'{head},\n  "cases": [\n{cases}\n  ]\n}}\n'


def _plain(value: Any) -> Any:
    """The value as JSON gives it back, so that two can be compared."""
    return json.loads(json.dumps(value, default=lambda other: other.item() if hasattr(other, "item") else str(other)))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
