"""Plots of compared inference engines, and of marginals as pictures.

Matplotlib is an extra (``pip install crfield[plots]``) and is imported when a picture is asked for. Figures are
made without its global state, so nothing pops up and any thread may draw; a notebook shows the figure that is
returned, and ``figure.savefig(path)`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.report.comparisons.inference import InferenceComparison, InferenceRow
from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ONE, _OTHER = "#33658a", "#f26419"
_BOUNDS = {"exact": "o", "upper": "v", "lower": "^", "estimate": "D"}


def plot_inference_comparison(comparison: InferenceComparison, *, width: float = 11.0) -> Figure:
    """Accuracy, errors of marginals, log Z and time of every engine that ran, side by side.

    A panel for which there are no numbers (accuracy without a truth, errors without an exact engine) is left out.

    >>> from crfield.core.potentials import Potentials
    >>> from crfield.core.topology import Chains
    >>> from crfield.report.comparisons.inference import compare_inference
    >>> scores = Potentials(np.eye(3, 2), 0.5 * np.eye(2)[None], Chains.from_lengths([3]))
    >>> figure = plot_inference_comparison(compare_inference(scores, engines=["chain", "brute"]))
    >>> [axes.get_title() for axes in figure.axes]
    ['error of marginals', 'log Z', 'CPU seconds']
    """
    rows = [row for row in comparison.rows if row.ran]
    if not rows:
        raise InputError("no engine could be run, so there is nothing to draw. The rows say why.")
    panels = [
        (title, draw)
        for title, draw, wanted in (
            ("accuracy", _draw_accuracy, any(_any(row.mpm_accuracy, row.map_accuracy) for row in rows)),
            ("error of marginals", _draw_errors, any(_any(row.mean_error) for row in rows)),
            ("log Z", _draw_totals, any(_any(row.total) for row in rows)),
            ("CPU seconds", _draw_seconds, True),
        )
        if wanted
    ]
    figure = new_figure(width, 1.4 + 0.32 * len(rows))
    every = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axes, (title, draw) in zip(every, panels):
        axes.set_title(title)
        draw(axes, rows)
        axes.grid(axis="x", alpha=0.3)
    every[0].set_yticks(range(len(rows)), [row.name for row in rows])
    every[0].invert_yaxis()
    return figure


def plot_marginals_grid(
    images: Mapping[str, Any] | Sequence[Any],
    *,
    columns: int = 4,
    limits: tuple[float, float] | None = (0.0, 1.0),
    colours: str = "gray",
) -> Figure:
    """Pictures (H, W) beside one another under their names: marginals by several engines, the truth, the data.

    All share ``limits`` (black and white of the default colours), so that greys mean the same everywhere; with None
    each picture has its own.

    >>> figure = plot_marginals_grid({"truth": np.eye(8), "p(label = 1)": np.full((8, 8), 0.5)})
    >>> [axes.get_title() for axes in figure.axes]
    ['truth', 'p(label = 1)']
    """
    named = images if isinstance(images, Mapping) else {f"{k}": image for k, image in enumerate(images)}
    pictures = {str(name): np.asarray(image, dtype=np.float64) for name, image in named.items()}
    if not pictures or columns < 1:
        raise InputError(f"expected at least one picture and one column, got {len(pictures)} and {columns}.")
    for name, picture in pictures.items():
        if picture.ndim != 2:
            raise ShapeError(f"a picture is (height, width), got {picture.shape} for {name!r}.")
    columns = min(columns, len(pictures))
    lines = -(-len(pictures) // columns)
    figure = new_figure(2.4 * columns, 2.6 * lines)
    low, high = limits if limits is not None else (None, None)
    for k, (name, picture) in enumerate(pictures.items()):
        axes = figure.add_subplot(lines, columns, k + 1)
        axes.imshow(picture, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(name, fontsize="medium")
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def _any(*values: float | None) -> bool:
    return any(value is not None and np.isfinite(value) for value in values)


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    """(R,) NaN, which is not drawn, where there is no finite number."""
    return np.array([value if value is not None and np.isfinite(value) else np.nan for value in values])


def _draw_accuracy(axes: Any, rows: Sequence[InferenceRow]) -> None:
    places = np.arange(len(rows))
    node_by_node, whole = _numbers([r.mpm_accuracy for r in rows]), _numbers([r.map_accuracy for r in rows])
    axes.plot(node_by_node, places - 0.12, "o", color=_ONE, label="node by node")
    axes.plot(whole, places + 0.12, "s", color=_OTHER, label="as a whole")
    axes.legend(fontsize="small")


def _draw_errors(axes: Any, rows: Sequence[InferenceRow]) -> None:
    places = np.arange(len(rows))
    # Rounding is not an error worth a decade of the axis.
    mean = np.maximum(_numbers([row.mean_error for row in rows]), 1e-6)
    largest = np.maximum(_numbers([row.max_error for row in rows]), 1e-6)
    axes.hlines(places, mean, largest, color=_ONE, alpha=0.4)
    axes.plot(mean, places, "o", color=_ONE, label="mean")
    axes.plot(largest, places, "|", color=_ONE, markersize=12, label="largest")
    axes.set_xscale("log")
    axes.legend(fontsize="small")


def _draw_totals(axes: Any, rows: Sequence[InferenceRow]) -> None:
    totals = _numbers([row.total for row in rows])
    for kind, marker in _BOUNDS.items():
        of = np.array([row.bound == kind and not np.isnan(total) for row, total in zip(rows, totals)])
        if of.any():
            axes.plot(totals[of], np.flatnonzero(of), marker, color=_ONE if kind == "exact" else _OTHER, label=kind)
            if kind == "exact":
                axes.axvline(totals[of][0], color=_ONE, alpha=0.4)
    axes.legend(fontsize="small")


def _draw_seconds(axes: Any, rows: Sequence[InferenceRow]) -> None:
    axes.barh(np.arange(len(rows)), np.maximum(_numbers([row.seconds for row in rows]), 1e-4), color=_ONE, height=0.6)
    axes.set_xscale("log")
