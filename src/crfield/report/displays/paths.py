"""Plots of a selection: error and size by round, and who entered when.

A path is handed over as anything with ``rows()`` (`crfield.selection.path.SelectionPath`), so nothing here knows
how a selection works. Several paths share one pair of axes; the round that held-out steps liked best has a ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import InputError
from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#33658a", "#f26419", "#3a7d44", "#8f2d56", "#758e4f", "#6a4c93", "#b08900", "#1b998b", "#c1121f")
MEASURES = {"held_error": "held-out error", "held_nll": "held-out −log p per step", "train_loss": "training loss"}
PLACES = {"n_features": "features", "round": "round", "seconds": "seconds of processor time"}


def plot_paths(
    paths: Any, *, measure: str = "held_error", against: str = "n_features", width: float = 6.0, height: float = 4.6
) -> Figure:
    """Curves of one path, or of a dict of them by name: a ``measure`` against features, rounds or seconds.

    >>> from types import SimpleNamespace
    >>> rows = [{"round": k, "n_features": k, "held_error": e} for k, e in enumerate([0.5, 0.2, 0.3])]
    >>> path = SimpleNamespace(rows=lambda: rows, best=SimpleNamespace(number=1))
    >>> figure = plot_paths({"grafting": path})
    >>> figure.axes[0].get_xlabel(), len(figure.axes[0].lines)
    ('features', 2)
    """
    if measure not in MEASURES or against not in PLACES:
        raise InputError(f"measure must be one of {list(MEASURES)} and against one of {list(PLACES)}.")
    named = dict(paths) if isinstance(paths, Mapping) else {getattr(paths, "method", "path"): paths}
    if not named:
        raise InputError("expected at least one path to draw, got none.")
    figure = new_figure(width, height)
    axes = figure.subplots()
    for k, (name, path) in enumerate(named.items()):
        rows, colour = path.rows(), _COLOURS[k % len(_COLOURS)]
        place = np.array([row[against] for row in rows], dtype=np.float64)
        value = np.array([row[measure] for row in rows], dtype=np.float64)
        axes.plot(place, value, color=colour, label=str(name), linewidth=1.4)
        at = path.best.number
        axes.plot(place[at : at + 1], value[at : at + 1], "o", markersize=9, markerfacecolor="none", color=colour)
    axes.set_xlabel(PLACES[against])
    axes.set_ylabel(MEASURES[measure])
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    return figure


def plot_weights(path: Any, *, most: int = 12, width: float = 7.0, height: float = 4.6) -> Figure:
    """Weights (for standardised columns) of the strongest features of the best round, along the whole path."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    best = path.best.model
    chosen = best.active[np.argsort(-np.abs(best.weights), kind="stable")][:most]
    rounds = [one.number for one in path]
    for k, candidate in enumerate(chosen.tolist()):
        along = [float(one.model.weights[one.model.active == candidate].sum()) for one in path]
        axes.plot(rounds, along, color=_COLOURS[k % len(_COLOURS)], label=path.names.get(candidate, str(candidate)))
    axes.axvline(path.best.number, color="#888888", linestyle="--", linewidth=1)
    axes.set_xlabel("round")
    axes.set_ylabel("weight of the standardised column")
    axes.grid(alpha=0.3)
    if len(chosen):
        axes.legend(fontsize="xx-small")
    return figure
