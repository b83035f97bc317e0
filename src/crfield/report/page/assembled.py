"""The page of a report, put together from its parts: template, style, scripts, sections and data.

One file without anything from outside. Its policy allows no request, and no script but the one whose digest it
names: an element that a name of the user's might smuggle in would not run, even if a text were not escaped. Texts
are escaped where sections are written (`crfield.report.page.sections`) and set as text by the script.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from crfield.report.alignment import printable
from crfield.report.page.island import island
from crfield.report.page.sections import sections_of

if TYPE_CHECKING:
    from crfield.report.page.model_report import ModelReport

SCRIPTS = ("basics.js", "detail.js", "items.js", "start.js")


def report_page(report: ModelReport) -> str:
    """The whole page as text."""
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, SCRIPTS)) + "\n})();\n"
    sections = sections_of(report)
    holes = {
        "policy": _policy(script),
        "title": escape(printable(report.title)),
        "lead": escape(_lead(report)),
        "style": _part("page.css"),
        "links": "\n".join(f'<li><a href="#{s.name}">{escape(s.heading)}</a></li>' for s in sections),
        "sections": "\n".join(section.html() for section in sections),
        "footer": escape(_footer(report)),
        "script": script,
        "data": island(report),
    }
    pieces = _part("page.html").split("{{")
    out = [pieces[0]]
    for piece in pieces[1:]:  # by splitting, so that a hole within a user's text stays text
        name, _, rest = piece.partition("}}")
        out += [holes[name], rest]
    return "".join(out)


def _policy(script: str) -> str:
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


def _lead(report: ModelReport) -> str:
    return f"{report.kind}. {report.about}" if report.about else report.kind


def _footer(report: ModelReport) -> str:
    made = report.card.get("Made with", {})
    return " · ".join(["Report of a model", *(f"{name} {value}" for name, value in made.items())])


@cache
def _part(name: str) -> str:
    return files("crfield.report.page").joinpath(name).read_text(encoding="utf-8")
