"""Labels over time: the truth above, predictions below it, one bar for each.

Several sequences get a panel each. Segments are drawn as blocks, so that a recording of an hour is as quick to draw
as a minute; steps whose label nobody knows stay white. Colours follow the order of the labels and are the same in all
bars.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.metrics.segment_scores import segments
from crfield.report.alignment import printable
from crfield.report.displays.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 50  # sequences below each other


def plot_timeline(
    truth: Sequence[Any],
    predicted: Sequence[Any] | Mapping[str, Sequence[Any]],
    *,
    labels: Sequence[Hashable] | None = None,
    seconds: Any = 1.0,
    probability: Any = None,
    title: str = "",
    width: float = 9.0,
) -> Figure:
    """Plot labels over time, the true ones above the predicted ones; several predictions go by name.

    ``truth`` is the labels of one sequence, or a list of sequences (as ``y`` and what ``predict`` returns), each of
    which gets a panel; then predictions and probabilities are lists of as many. ``seconds`` is the length of a step,
    or the time at which each begins (of several sequences a list of those). ``probability`` (steps, labels), if
    given, is drawn below: how sure the model was of each label, columns as ``labels``.

    >>> figure = plot_timeline(["sit", "sit", "walk"], {"chain": ["sit", "walk", "walk"]}, labels=["sit", "walk"])
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['truth', 'chain']
    >>> len(plot_timeline([["sit"], ["walk", "sit"]], [["sit"], ["walk", "walk"]]).axes)
    2
    """
    named = dict(predicted) if isinstance(predicted, Mapping) else {"predicted": predicted}
    rows = {"truth": truth, **named}
    many = any(_is_sequence(one) for one in truth)
    if not many:
        if any(_is_sequence(one) for row in named.values() for one in row):
            raise InputError(
                "truth holds labels, but a prediction holds sequences of labels. Choose one, such as predict(X)[0], "
                "or give all of y."
            )
        rows, seconds = {name: [row] for name, row in rows.items()}, [seconds]
        probability = None if probability is None else [probability]
    tracks = _tracks(rows, seconds, probability)
    if labels is None:
        seen = {label for track in tracks for row in track.rows.values() for label in row if label is not None}
        labels = sorted(seen, key=lambda label: (str(type(label)), label if isinstance(label, int) else str(label)))
    colours = dict(zip(labels, _colours(len(labels))))
    heights = []
    for track in tracks:
        heights += [0.5 * len(rows), *([0.25 * len(labels)] if track.probability is not None else [])]
    figure = new_figure(width, 0.9 + sum(heights) + 0.3 * (len(heights) - 1))
    # Panels of one sequence share its time; sequences begin and end as they like.
    panels = iter(np.atleast_1d(figure.subplots(len(heights), 1, height_ratios=heights)).tolist())
    for number, track in enumerate(tracks):
        axes = last = next(panels)
        _draw_bars(axes, track, colours)
        numbered = f"sequence {number}" if len(tracks) > 1 else ""
        axes.set_title(": ".join(filter(None, [title, numbered])), loc="left")
        if not number:
            _draw_legend(axes, colours)
        if track.probability is not None:
            axes.tick_params(labelbottom=False)
            last = next(panels)
            _draw_probability(last, track, labels)
        if number == len(tracks) - 1:
            last.set_xlabel("seconds")
    return figure


@dataclass(frozen=True)
class _Track:
    """One sequence: its labels by name, the times between its steps, and how sure the model was."""

    rows: dict[str, Sequence[Hashable]]
    edges: np.ndarray  # (T + 1,)
    probability: Any


def _is_sequence(one: Any) -> bool:
    return isinstance(one, list | np.ndarray)  # a tuple may be a label


def _tracks(rows: dict[str, Sequence[Any]], seconds: Any, probability: Any) -> list[_Track]:
    """The sequences, after all that is named has been found to be as many and as long."""
    count = len(rows["truth"])
    for name, row in rows.items():
        if len(row) != count:
            raise ShapeError(f"{name!r} has {len(row)} sequences, the truth has {count}; both label the same ones.")
        for k, one in enumerate(row):
            where = f"{name!r}" if count == 1 else f"sequence {k} of {name!r}"
            if not hasattr(one, "__len__") or isinstance(one, str):
                raise InputError(f"{where} is {one!r:.40}, expected the labels of a sequence, as in the others.")
            if len(one) != len(rows["truth"][k]):
                raise ShapeError(
                    f"{where} has {len(one)} steps, the truth has {len(rows['truth'][k])}; both label the same steps."
                )
            if not len(one):
                raise InputError("there are no steps to draw." if count == 1 else f"{where} has no steps to draw.")
    if not 1 <= count <= _MOST:
        raise InputError(
            f"{count:,} sequences cannot be drawn below each other. Choose up to {_MOST}, such as y[:5]."
        )
    times = list(seconds) if hasattr(seconds, "__len__") else [seconds] * count
    tables = [None] * count if probability is None else list(probability)
    for name, values in (("seconds", times), ("probability", tables)):
        if len(values) != count:
            raise ShapeError(f"{name} must be given for each of {count} sequences, got {len(values)}.")
    tracks = []
    for k, (time, table) in enumerate(zip(times, tables)):
        own = {name: row[k] for name, row in rows.items()}
        for row in own.values():
            for label in row:
                if not isinstance(label, Hashable):
                    raise InputError(f"{label!r:.40} of type {type(label).__name__} cannot be a label.")
        tracks.append(_Track(own, _edges(time, len(own["truth"])), table))
    return tracks


def _draw_bars(axes: Any, track: _Track, colours: dict[Hashable, Any]) -> None:
    edges = track.edges
    for place, row in enumerate(track.rows.values()):
        for start, stop, label in segments(row):
            if label in colours:
                axes.barh(place, edges[stop] - edges[start], left=edges[start], height=0.8, color=colours[label])
    axes.set_yticks(range(len(track.rows)), [_text(name) for name in track.rows])
    axes.set_ylim(len(track.rows) - 0.5, -0.5)
    axes.set_xlim(edges[0], edges[-1])


def _draw_legend(axes: Any, colours: dict[Hashable, Any]) -> None:
    from matplotlib.patches import Patch

    # Patches of our own: a bar without a length takes no colour along into the legend.
    patches = [Patch(color=colour, label=_text(label)) for label, colour in colours.items()]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)


def _draw_probability(axes: Any, track: _Track, labels: Sequence[Hashable]) -> None:
    table = np.asarray(track.probability, dtype=np.float64)
    if table.shape != (len(track.edges) - 1, len(labels)):
        raise ShapeError(f"probability must be ({len(track.edges) - 1}, {len(labels)}), got {table.shape}.")
    axes.pcolormesh(track.edges, np.arange(len(labels) + 1), table.T, cmap="Greys", vmin=0, vmax=1)
    axes.set_yticks(np.arange(len(labels)) + 0.5, [_text(label) for label in labels], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(track.edges[0], track.edges[-1])


def _text(label: object) -> str:
    """A label as matplotlib shows it as it is: no formulas, and a name that begins with _ in the legend too."""
    text = printable(label).replace("$", r"\$")
    return f"\N{WORD JOINER}{text}" if text.startswith("_") else text


def _edges(seconds: float | Sequence[float], n: int) -> np.ndarray:
    if np.ndim(seconds) == 0:
        return np.arange(n + 1) * float(seconds)  # type: ignore[arg-type]
    starts = np.asarray(seconds, dtype=np.float64)
    if starts.shape != (n,):
        raise ShapeError(f"seconds must be one number or one for each of {n} steps, got {starts.shape}.")
    return np.append(starts, starts[-1] + (np.median(np.diff(starts)) if n > 1 else 1.0))


def _colours(n: int) -> list[Any]:
    from matplotlib import colormaps

    if n > 20:
        return [colormaps["turbo"](k / (n - 1)) for k in range(n)]
    palette = colormaps["tab10" if n <= 10 else "tab20"]
    return [palette(k) for k in range(n)]
