"""Labels over time: the truth above, predictions below it, one bar for each.

Segments are drawn as blocks, so that a recording of an hour is as quick to draw as a minute; steps whose label nobody
knows stay white. Colours follow the order of the labels and are the same in all bars.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import CrfieldError, InputError, ShapeError
from crfield.metrics.segments import segments

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_timeline(
    truth: Sequence[Hashable],
    predicted: Sequence[Hashable] | Mapping[str, Sequence[Hashable]],
    *,
    labels: Sequence[Hashable] | None = None,
    seconds: float | Sequence[float] = 1.0,
    probability: Any = None,
    title: str = "",
    width: float = 9.0,
) -> Figure:
    """The true labels of one sequence above predicted ones; several predictions go by name.

    ``seconds`` is the length of a step, or the time at which each begins. ``probability`` (steps, labels), if given,
    is drawn below: how sure the model was of each label, columns as ``labels``.

    >>> figure = plot_timeline(["sit", "sit", "walk"], {"chain": ["sit", "walk", "walk"]}, labels=["sit", "walk"])
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['truth', 'chain']
    """
    named = dict(predicted) if isinstance(predicted, Mapping) else {"predicted": predicted}
    rows: dict[str, Sequence[Hashable]] = {"truth": truth, **named}
    for name, row in rows.items():
        if len(row) != len(truth):
            raise ShapeError(f"{name!r} has {len(row)} steps, the truth has {len(truth)}; both label the same steps.")
    if not len(truth):
        raise InputError("there are no steps to draw.")
    if labels is None:
        seen = {label for row in rows.values() for label in row if label is not None}
        labels = sorted(seen, key=lambda label: (str(type(label)), label if isinstance(label, int) else str(label)))
    colours = _colours(len(labels))
    number = {label: k for k, label in enumerate(labels)}
    edges = _edges(seconds, len(truth))
    heights = [0.5 * len(rows), *([0.25 * len(labels)] if probability is not None else [])]
    figure = _figure(width, 0.9 + sum(heights))
    every = np.atleast_1d(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    axes = every[0]
    for place, row in enumerate(rows.values()):
        for start, stop, label in segments(row):
            if label in number:
                axes.barh(
                    place, edges[stop] - edges[start], left=edges[start], height=0.8, color=colours[number[label]]
                )
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_title(title, loc="left")
    for label, colour in zip(labels, colours):
        axes.barh([], [], color=colour, label=str(label))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    if probability is not None:
        table = np.asarray(probability, dtype=np.float64)
        if table.shape != (len(truth), len(labels)):
            raise ShapeError(f"probability must be ({len(truth)}, {len(labels)}), got {table.shape}.")
        below = every[1]
        below.pcolormesh(edges, np.arange(len(labels) + 1), table.T, cmap="Greys", vmin=0, vmax=1)
        below.set_yticks(np.arange(len(labels)) + 0.5, [str(label) for label in labels], fontsize="small")
        below.invert_yaxis()
    every[-1].set_xlabel("seconds")
    return figure


def _edges(seconds: float | Sequence[float], n: int) -> np.ndarray:
    if np.ndim(seconds) == 0:
        return np.arange(n + 1) * float(seconds)  # type: ignore[arg-type]
    starts = np.asarray(seconds, dtype=np.float64)
    if starts.shape != (n,):
        raise ShapeError(f"seconds must be one number or one for each of {n} steps, got {starts.shape}.")
    return np.append(starts, starts[-1] + (np.median(np.diff(starts)) if n > 1 else 1.0))


def _colours(n: int) -> list[Any]:
    from matplotlib import colormaps

    palette = colormaps["tab10" if n <= 10 else "tab20"]
    return [palette(k % palette.N) for k in range(n)]


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CrfieldError("pictures need matplotlib, which is not there: pip install 'crfield[plots]'.") from None
    return Figure(figsize=(width, height), layout="constrained")
