"""Curves of means with their intervals: the figures of repeated experiments.

A `Chart` is a plain value, so an experiment can describe what is to be drawn, and JSON can hold it, where there is no
matplotlib; `plot_charts` draws some of them, two side by side, so that they can be read on a page. Places along the
horizontal axis are numbers (lines) or names (one row of points with bars for each name). Axes of numbers that are
orders of magnitude apart are logarithmic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#33658a", "#f26419", "#3a7d44", "#8f2d56", "#758e4f", "#6a4c93", "#b08900", "#1b998b", "#c1121f")
_MARKS = "osD^vP*Xd"


@dataclass(frozen=True)
class Curve:
    """Means at some places, with the ends of their intervals (NaN where there is none).

    >>> Curve("mine", (0.5, 0.9), (0.6, 0.7), (0.55, 0.65), (0.65, 0.75)).name
    'mine'
    """

    name: str
    places: tuple[Any, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    faint: bool = False  # for reference, such as a ceiling

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.places, self.mean, self.low, self.high)}
        if len(sizes) > 1:
            raise ShapeError(f"places, means and ends of {self.name!r} must be equally many, got {sorted(sizes)}.")


@dataclass(frozen=True)
class Chart:
    """Curves in one pair of axes.

    >>> Chart("accuracy", "p", "right", ()).to_dict()
    {'title': 'accuracy', 'x': 'p', 'y': 'right', 'curves': []}
    """

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; an end that is not there is None."""
        told = asdict(self)
        for curve in told["curves"]:
            for end in ("low", "high"):
                curve[end] = [None if np.isnan(value) else value for value in curve[end]]
        return {**told, "curves": list(told["curves"])}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Chart:
        """The chart that `to_dict` told.

        >>> mine = Curve("mine", (0.5,), (0.6,), (float("nan"),), (0.65,))
        >>> again = Chart.from_dict(Chart("accuracy", "p", "right", (mine,)).to_dict())
        >>> again.curves[0].places, again.curves[0].low
        ((0.5,), (nan,))
        """
        curves = []
        for one in told["curves"]:
            ends = {end: tuple(np.nan if value is None else value for value in one[end]) for end in ("low", "high")}
            own = {"places": tuple(one["places"]), "mean": tuple(one["mean"]), **ends}
            curves.append(Curve(one["name"], **own, faint=one.get("faint", False)))
        return cls(told["title"], told["x"], told["y"], tuple(curves))


def plot_charts(charts: Sequence[Chart], *, width: float = 4.2, height: float = 3.6, columns: int = 2) -> Figure:
    """Charts in rows of ``columns``, each ``width`` inches wide.

    >>> mine = Curve("mine", (0.5, 0.9), (0.6, 0.7), (0.55, 0.65), (0.65, 0.75))
    >>> figure = plot_charts([Chart("accuracy", "p", "right", (mine,))])
    >>> [axes.get_title() for axes in figure.axes]
    ['accuracy']
    """
    if not charts:
        raise InputError("expected at least one chart to draw, got none.")
    columns = min(columns, len(charts))
    lines = -(-len(charts) // columns)
    rows = max(len(_names(chart)) for chart in charts)
    figure = new_figure(width * columns, max(height, 1.2 + 0.27 * rows) * lines)  # names need a line each
    for k, chart in enumerate(charts):
        axes = figure.add_subplot(lines, columns, k + 1)
        axes.set_title(chart.title)
        named = any(isinstance(place, str) for curve in chart.curves for place in curve.places)
        (_draw_rows if named else _draw_lines)(axes, chart)
        if named and k % columns and _names(chart) == _names(charts[k - 1]):
            axes.tick_params(labelleft=False)
            axes.set_ylabel("")
        axes.grid(alpha=0.3)
    return figure


def _draw_lines(axes: Any, chart: Chart) -> None:
    every = [float(place) for curve in chart.curves for place in curve.places]
    wide = spans_decades(every)
    # Bars at one place would hide one another.
    apart = 0.006 * (np.log(max(every) / min(every)) if wide else max(every) - min(every)) if every else 0.0
    for k, curve in enumerate(chart.curves):
        colour = "#888888" if curve.faint else _COLOURS[k % len(_COLOURS)]
        style = {"linestyle": "--"} if curve.faint else {"marker": _MARKS[k % len(_MARKS)], "markersize": 4}
        aside, places = apart * (k - (len(chart.curves) - 1) / 2), np.array(curve.places, dtype=np.float64)
        places = places * np.exp(aside) if wide else places + aside
        axes.errorbar(places, curve.mean, yerr=_reach(curve), color=colour, capsize=2, label=curve.name, **style)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    if wide:
        axes.set_xscale("log")
    if spans_decades([value for curve in chart.curves for value in curve.mean]):
        axes.set_yscale("log")
    if chart.curves:
        _tell_curves(axes)


def _names(chart: Chart) -> list[str]:
    """The names along the axis, each once."""
    return list(dict.fromkeys(place for curve in chart.curves for place in curve.places if isinstance(place, str)))


def _draw_rows(axes: Any, chart: Chart) -> None:
    """Names one below the other; curves beside one another within a row."""
    names = _names(chart)
    row = {name: number for number, name in enumerate(names)}
    for k, curve in enumerate(chart.curves):
        shift = 0.5 * ((k + 0.5) / len(chart.curves) - 0.5)
        axes.errorbar(
            curve.mean,
            [row[place] + shift for place in curve.places],
            xerr=_reach(curve),
            linestyle="",
            marker=_MARKS[k % len(_MARKS)],
            color=_COLOURS[k % len(_COLOURS)],
            capsize=2,
            label=curve.name,
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(chart.y)
    axes.set_ylabel(chart.x)
    if len(chart.curves) > 1:
        _tell_curves(axes)


def _tell_curves(axes: Any) -> None:
    """The names of the curves, below the axes, where they hide nothing."""
    axes.legend(
        fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.6, ncols=2, frameon=False
    )


def spans_decades(values: Sequence[float]) -> bool:
    """Whether numbers are too far apart for an axis in equal steps.

    >>> spans_decades([0.02, 30.0]), spans_decades([1.0, 100.0]), spans_decades([0.0, 1e6])
    (True, False, False)
    """
    return bool(values) and min(values) > 0 and max(values) / min(values) >= 200


def _reach(curve: Curve) -> np.ndarray:
    """(2, n) from the mean to either end; nothing where there is no interval."""
    mean, low, high = (np.array(part, dtype=np.float64) for part in (curve.mean, curve.low, curve.high))
    return np.nan_to_num(np.stack([mean - low, high - mean]))
