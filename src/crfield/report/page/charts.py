"""Small drawings as SVG within the page: they need no script, and take their colours from the page's style."""

from __future__ import annotations

import math

import numpy as np

from crfield.report.calibration import Reliability

_WIDE, _HIGH, _LEFT, _BELOW = 520, 300, 62, 40

FEWEST_STEPS = 3  # that a learning curve is drawn of


def score_bar(value: float, low: float, high: float) -> str:
    """A share as a bar with its interval as a whisker.

    >>> score_bar(0.5, 0.4, 0.6).count("<line"), score_bar(0.5, math.nan, math.nan).count("<line")
    (3, 0)
    """
    parts = [
        '<svg class="score" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" focusable="false">',
        '<rect class="track" x="0" y="2" width="100" height="8"/>',
        f'<rect class="fill" x="0" y="2" width="{100 * value:.1f}" height="8"/>',
    ]
    if not (math.isnan(low) or math.isnan(high)):
        ends = (100 * low, 100 * high)
        parts.append(f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="6" y2="6"/>')
        parts += [f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="3" y2="9"/>' for x in ends]
    return "".join([*parts, "</svg>"])


def reliability_chart(table: Reliability) -> str:
    """Share of right labels over their probability; the dashed line is what it ought to be.

    >>> from crfield.report.calibration import reliability
    >>> reliability_chart(reliability([0.9, 0.6], [True, False])).count("<circle")
    2
    """
    rows = table.rows()
    most = max((row["count"] for row in rows), default=1)
    inside = [_frame("probability of the label", "share of them that is right", (0.0, 1.0), (0.0, 1.0))]
    inside.append(f'<line class="ideal" {_ends(_x(0.0), _y(0.0), _x(1.0), _y(1.0))}/>')
    points = [(_x(row["probability"]), _y(row["right"])) for row in rows]
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        inside.append(f'<polyline class="line" points="{path}"/>')
    for (x, y), row in zip(points, rows):
        radius = 3 + 9 * math.sqrt(row["count"] / most)
        told = f"{row['count']:,} with probability {row['from']:.1f} to {row['to']:.1f}: {row['right']:.1%} right"
        inside.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{told}</title></circle>'
        )
    words = f"Calibration: expected error {table.error:.3f}; the table below has the numbers"
    return _chart(words, inside)


def curve_chart(step: np.ndarray, value: np.ndarray, *, name: str, other: bool = False) -> str:
    """A quantity over the steps of training.

    >>> curve_chart(np.arange(3), np.array([9.0, 5.0, 4.0]), name="objective").count("polyline")
    1
    """
    known = np.isfinite(value)
    step, value = step[known].astype(float), value[known]
    low, high = (float(value.min()), float(value.max())) if len(value) else (0.0, 1.0)
    high = high if high > low else low + 1.0
    first, last = (float(step.min()), float(step.max())) if len(step) else (0.0, 1.0)
    last = last if last > first else first + 1.0
    inside = [_frame("step of training", name, (first, last), (low, high))]
    points = [(_x((s - first) / (last - first)), _y((v - low) / (high - low))) for s, v in zip(step, value)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    inside.append(f'<polyline class="{"other" if other else "line"}" points="{path}"/>')
    words = f"{name} from {value[0]:,.4g} to {value[-1]:,.4g}" if len(value) else name
    return _chart(words, inside)


def _x(share: float) -> float:
    return _LEFT + share * (_WIDE - _LEFT - 12)


def _y(share: float) -> float:
    return 10 + (1.0 - share) * (_HIGH - _BELOW - 10)


def _ends(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'


def _frame(across: str, up: str, x: tuple[float, float], y: tuple[float, float]) -> str:
    parts = [
        f'<rect class="frame" x="{_x(0):.1f}" y="{_y(1):.1f}" '
        f'width="{_x(1) - _x(0):.1f}" height="{_y(0) - _y(1):.1f}"/>'
    ]
    for k in range(5):
        share = k / 4
        parts.append(f'<line class="grid" {_ends(_x(0), _y(share), _x(1), _y(share))}/>')
        parts.append(_text(_LEFT - 6, _y(share) + 4, _tick(y, share), "end"))
        parts.append(_text(_x(share), _HIGH - 22, _tick(x, share), "middle"))
    parts.append(_text((_x(0) + _x(1)) / 2, _HIGH - 5, across, "middle"))
    parts.append(_text(_x(0) + 6, _y(1) + 14, up, "start"))
    return "".join(parts)


def _tick(ends: tuple[float, float], share: float) -> str:
    """A number of an axis, with as many places as tell its neighbours apart."""
    value, apart = ends[0] + share * (ends[1] - ends[0]), (ends[1] - ends[0]) / 4
    if abs(value) >= 1e7 or (value and abs(value) < 1e-4):
        return f"{value:.3g}"
    return f"{value:,.{min(max(math.ceil(-math.log10(apart) + 0.3), 0), 6)}f}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _chart(words: str, inside: list[str]) -> str:
    return f'<svg class="chart" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{words}">{"".join(inside)}</svg>'
