"""The page of growth: its table, between two marks, and its picture."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.growth.curve import Curve
from crfield.report.displays.figure import new_figure

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "design" / "growth.md", DOCS / "pictures" / "growth.svg"
BEGIN, END = "<!-- written by python -m benchmarks growth -->", "<!-- end -->"
COLUMNS = 2


def write(curves: Sequence[Curve]) -> None:
    """Put the table of the curves into the page, and draw them."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    PAGE.write_text(f"{before}{BEGIN}\n{table(curves)}{END}{after}", encoding="utf-8")
    draw(curves)


def table(curves: Sequence[Curve]) -> str:
    """The table in Markdown.

    >>> print(table([Curve("steps", "a sum", "steps", 1.0, [10, 1000], [0.1, 10.0], "one a step")]).splitlines()[4])
    | steps | a sum | 10 … 1,000 | 1 | **1.00** | 1.00 | one a step |
    """
    lines = [
        f"Measured on {platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| what grows | operation | from … to | expected | slope | over all | why |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for c in curves:
        sizes = f"{c.sizes[0]:,} … {c.sizes[-1]:,}"
        lines.append(
            f"| {c.panel} | {c.what} | {sizes} | {c.expected:g} | **{c.slope:.2f}** | {c.whole:.2f} | {c.why} |"
        )
    return "\n".join([*lines, "", ""])


def draw(curves: Sequence[Curve]) -> None:
    """One panel for each thing that grows, both axes logarithmic, slopes beside the lines."""
    import matplotlib as mpl

    panels = list(dict.fromkeys(curve.panel for curve in curves))
    rows = -(-len(panels) // COLUMNS)
    figure = new_figure(5.0 * COLUMNS, 3.0 * rows)
    axes = np.atleast_1d(figure.subplots(rows, COLUMNS)).ravel()
    for axis, panel in zip(axes, panels):
        mine = [curve for curve in curves if curve.panel == panel]
        for curve in mine:
            label = f"{curve.what}: {curve.slope:.2f} ({curve.expected:g})"
            axis.loglog(curve.sizes, curve.seconds, marker="o", markersize=3, linewidth=1, label=label)
        axis.set_title(panel, fontsize=10)
        axis.set_xlabel(mine[0].unit, fontsize=8)
        axis.set_ylabel("seconds", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3, linewidth=0.5)
        axis.legend(fontsize=6.5, frameon=False, loc="best")
        axis.minorticks_off()
        if panel == "threads":
            axis.set_xticks(mine[0].sizes, [str(n) for n in mine[0].sizes])
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth", "axes.formatter.use_mathtext": False}):
        figure.savefig(PICTURE, metadata={"Date": None})
    PICTURE.write_text(re.sub(r"\n\s+", "\n", PICTURE.read_text(encoding="utf-8")), encoding="utf-8")
