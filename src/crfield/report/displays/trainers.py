"""Trainers drawn: how far above the best objective, and how good on held-out sequences, against CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crfield.errors import InputError
from crfield.report.comparisons.trainers import TrainerComparison
from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST = 1e-8  # of the objective; nearer than that is the same


def plot_trainers(comparison: TrainerComparison, *, width: float = 11.0, height: float = 4.2) -> Figure:
    """Both panels; a line ends where its trainer did.

    >>> from crfield.report.comparisons.trainers import Moment, TrainerRow
    >>> moments = (Moment(0.1, 1, 20.0, 0.5), Moment(0.2, 2, 12.0, 0.9))
    >>> row = TrainerRow("lbfgs", "lbfgs", "likelihood", 2, 0.2, 12.0, 0.0, 0.2, 0.9, 7, "tolerance", "", moments)
    >>> figure = plot_trainers(TrainerComparison((row,), "accuracy", 10, 50, 7, 0.0, 1.0))
    >>> [axes.get_title() for axes in figure.axes]
    ['objective above the best found', 'held-out accuracy']
    """
    rows = [row for row in comparison.rows if row.moments]
    if not rows:
        raise InputError("no trainer was run, so there is nothing to draw. The rows say why.")
    best = comparison.best_value
    figure = new_figure(width, height)
    from matplotlib import colormaps

    left, right = figure.subplots(1, 2, sharex=True)
    colours, styles = colormaps["tab10"], ("-", "--", ":")
    for k, row in enumerate(rows):
        look = {"color": colours(k % 10), "linestyle": styles[k // 10 % 3], "label": row.name, "marker": "."}
        seconds = [max(moment.seconds, 1e-4) for moment in row.moments]
        left.plot(seconds, [max((m.value - best) / max(abs(best), 1e-300), _LEAST) for m in row.moments], **look)
        scores = [(s, m.score) for s, m in zip(seconds, row.moments) if m.score is not None]
        if scores:
            right.plot(*zip(*scores), **look)
    left.set(xscale="log", yscale="log", xlabel="CPU seconds", ylabel="(F − F*) / F*")
    left.set_title("objective above the best found")
    right.set(xscale="log", xlabel="CPU seconds", ylabel=comparison.score_name)
    right.set_title(f"held-out {comparison.score_name}")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    return figure
