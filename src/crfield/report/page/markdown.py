"""A model card in Markdown: the report's facts and tables as text that people edit and keep beside a model.

Headings are those that model cards usually have. Names of the user are escaped, so that a label such as ``<b>`` or
``[x](y)`` is read and not obeyed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crfield.metrics.scores import ScoreTable
from crfield.report.page.island import clean, label_text
from crfield.report.page.sample import plural

if TYPE_CHECKING:
    from crfield.report.page.model_report import ModelReport

_SIGNS = re.compile(r"([\\`*_{}\[\]()#+!|<>~$&-])")
_FEATURES = 20


def model_card(report: ModelReport) -> str:
    """The whole card."""
    parts = [f"# {text(report.title)}", text(f"{report.kind}. {report.about}" if report.about else report.kind)]
    for heading, facts in report.card.items():
        parts += [f"## {text(heading)}", "\n".join(f"- {text(n)}: {text(v)}" for n, v in facts.items() if v)]
    parts += ["## Scores", text(report.headline + ".")]
    judged = report.judged
    if judged.scores.rows:
        parts += ["### By label", _scores(judged.scores, judged.intervals)]
    if report.spans is not None:
        parts += [f"### By span ({text(report.scheme)})", _scores(report.spans, report.span_intervals)]
    if report.segments is not None:
        rows = [
            [f"F1 at overlap {100 * overlap:g} %", f"{value:.3f}"] for overlap, value in report.segments.f1.items()
        ]
        parts += ["### By segment", _table(["", ""], [*rows, ["edit score", f"{report.segments.edit:.3f}"]])]
    groups = report.groups.groups
    if groups:
        rows = [
            [text(g.gold), text(g.predicted), f"{g.count:,}", f"{g.share:.1%}", text(_one_example(g))]
            for g in groups[:10]
        ]
        parts += ["## Errors", _table(["true", "predicted", "count", "of the errors", "for example"], rows)]
    if judged.calibration is not None and judged.n_judged:
        error = 100 * judged.calibration.error
        parts += [
            "## Calibration",
            f"Probabilities are off by {error:.1f} points on average (expected calibration error).",
        ]
    if report.features is not None and len(report.features):
        rows = [
            [text(clean(f.name)), text(label_text(f.label)), f"{f.weight:+.3f}"] for f in report.features[:_FEATURES]
        ]
        parts += ["## Strongest features", _table(["feature", "label", "weight"], rows)]
    told = [report.sample.words, *report.missing]
    parts += ["## What this card does not say", "\n".join(f"- {text(line)}" for line in [*told, *_OPEN])]
    return "\n\n".join(parts) + "\n"


_OPEN = (
    "What the model is meant for and what it must not be used for: write it here.",
    "Where the data came from, and who or what is missing in it: write it here.",
)


def text(value: Any) -> str:
    r"""A text of the user's in which no sign means anything to Markdown.

    >>> text("<b> *x* | y")
    '\\<b\\> \\*x\\* \\| y'
    """
    from crfield.report.alignment import printable

    return _SIGNS.sub(r"\\\1", " ".join(printable(value).split()))


def _scores(table: ScoreTable, intervals: dict[str, Any]) -> str:
    rows = []
    for row in table.rows:
        ends = intervals.get(str(row.name))
        low, high = (math.nan, math.nan) if ends is None else ends[2].tolist()
        over = "" if math.isnan(low) or math.isnan(high) else f"{low:.3f} to {high:.3f}"
        rows.append([text(row.name), *_shares(row), over, f"{row.support:,}"])
    rows += [[f"{row.name} average", *_shares(row), "", f"{row.support:,}"] for row in table.averages]
    return _table(["", "precision", "recall", "F1", "95 % interval of F1", plural("support", 1)], rows)


def _shares(row: Any) -> list[str]:
    return [f"{value:.3f}" for value in (row.precision, row.recall, row.f1)]


def _one_example(group: Any) -> str:
    if not group.examples:
        return ""
    one = group.examples[0]
    return " ".join([*one.before, f"[{one.text}]", *one.after])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
