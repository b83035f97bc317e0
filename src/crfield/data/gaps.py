"""Resampling: equal time steps from readings at irregular times.

Filters and spectra want samples at equal distances; loggers skip, stall and stop. `resampled` puts a recording on the
grid first time + k / rate and says what happens where nothing was heard for longer than ``longest_gap`` seconds:

    gaps="split"   the recording ends there and another begins; nothing is made up, and no context reaches across
    gaps="fill"    the gap is bridged like any other, by ``how``, and its labels are None; steps stay one recording

"split" is the default: what a sensor did while nobody heard it is not known. Between readings that are closer,
``how="linear"`` draws a line and ``how="hold"`` repeats the last reading (for states and counts); "mean" takes the
mean of all readings within half a step, which is right where the grid is coarser than the readings, and a line where
there is none. A label holds until the next reading. NaN in a column is as if that reading had not come, so a column
can be silent while others go on: with "split" the recording also ends where one column is silent for longer than
``longest_gap``, or than twice the usual distance of its readings if they come that slowly. A column without any
reading is an error unless ``fill`` says what to take, and then it ends nothing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from crfield.data.timed_frames import TimedFrame
from crfield.errors import InputError

GAPS = ("split", "fill")
HOW = ("linear", "hold", "mean")


def gap_places(seconds: np.ndarray, longest: float) -> np.ndarray:
    """Rows before which nothing was heard for longer than that.

    >>> gap_places(np.array([0.0, 0.5, 4.0, 4.5]), 1.0).tolist()
    [2]
    """
    if not longest > 0:
        raise InputError(f"the longest gap must be > 0 seconds, got {longest!r}.")
    return np.flatnonzero(np.diff(seconds) > longest) + 1


def split_at_gaps(frame: TimedFrame, *, longest_gap: float = 1.0) -> list[TimedFrame]:
    """Parts of a recording between gaps, in order; an empty one has none.

    >>> frame = TimedFrame("a", np.array([0.0, 0.5, 4.0]), np.zeros((3, 1)), ("x",))
    >>> split_at_gaps(frame)
    [TimedFrame('a', 2 rows of x, 0 … 0.5 s), TimedFrame('a', 1 rows of x, 4 … 4 s)]
    """
    if not len(frame):
        return []
    ends = [0, *gap_places(frame.seconds, longest_gap).tolist(), len(frame)]
    return [frame.part(start, stop) for start, stop in pairwise(ends)]


def resampled(
    frame: TimedFrame,
    rate: float,
    *,
    gaps: str = "split",
    longest_gap: float = 1.0,
    how: str = "linear",
    fill: float | None = None,
) -> list[TimedFrame]:
    """Parts of a recording on a grid of ``rate`` steps a second; see the module.

    >>> frame = TimedFrame("a", np.array([0.0, 1.0, 5.0]), np.array([[0.0], [2.0], [6.0]]), ("x",),
    ...     np.array(["sit", "sit", "go"], dtype=object))
    >>> [part.values[:, 0].tolist() for part in resampled(frame, 2.0)]
    [[0.0, 1.0, 2.0], [6.0]]
    >>> whole = resampled(frame, 1.0, gaps="fill")[0]
    >>> whole.values[:, 0].tolist(), whole.labels.tolist()
    ([0.0, 2.0, 3.0, 4.0, 5.0, 6.0], ['sit', 'sit', None, None, None, 'go'])
    """
    if gaps not in GAPS or how not in HOW:
        raise InputError(f"gaps must be one of {GAPS} and how one of {HOW}, got {gaps!r} and {how!r}.")
    if not np.isfinite(rate) or rate <= 0:
        raise InputError(f"rate must be a finite number > 0 (steps per second), got {rate!r}.")
    parts = [frame] if len(frame) else []
    if gaps == "split":
        split = split_at_gaps(frame, longest_gap=longest_gap)
        parts = [own for part in split for own in _between_silences(part, frame, float(longest_gap), fill)]
    return [_on_grid(part, float(rate), float(longest_gap), how, fill) for part in parts]


def _between_silences(part: TimedFrame, frame: TimedFrame, longest: float, fill: float | None) -> list[TimedFrame]:
    """The rows of a part between silences of its columns, which are judged by the whole recording's pace."""
    first, last = float(part.seconds[0]), float(part.seconds[-1])
    kept = [(first, last)]
    for own, whole in zip(part.values.T, frame.values.T, strict=True):
        heard = frame.seconds[~np.isnan(whole)]
        if not len(heard):
            if fill is None:
                return [part]  # which is refused, with the name of the column
            continue
        distances = np.diff(heard)
        allowed = max(longest, 2 * float(np.median(distances)) if len(distances) else 0.0)
        times = part.seconds[~np.isnan(own)]
        edges = np.concatenate([[-np.inf if not len(times) or times[0] - first > allowed else first], times])
        edges = np.append(edges, np.inf if not len(times) or last - times[-1] > allowed else last)
        for k in np.flatnonzero(np.diff(edges) > allowed):
            low, high = edges[k], edges[k + 1]
            # what lies strictly within the silence goes; the readings beside it stay
            outside = [((a, min(b, low)), (max(a, high), b)) for a, b in kept]
            kept = [(a, b) for pair in outside for a, b in pair if a <= b]
    places = [np.searchsorted(part.seconds, [a - 1e-12, b + 1e-12]).tolist() for a, b in kept]
    return [part.part(start, stop) for start, stop in places if stop > start]


def _on_grid(frame: TimedFrame, rate: float, longest: float, how: str, fill: float | None) -> TimedFrame:
    first, last = float(frame.seconds[0]), float(frame.seconds[-1])
    grid = first + np.arange(int(np.floor((last - first) * rate + 1e-6)) + 1) / rate
    columns = []
    for name, own in zip(frame.columns, frame.values.T, strict=True):
        there = ~np.isnan(own)
        if there.any():
            columns.append(_at(frame.seconds[there], own[there], grid, rate, how))
        elif fill is None:
            raise InputError(
                f"recording {frame.name!r} has no reading of {name!r} from {first:g} to {last:g} s. Leave the column "
                "out, make longest_gap longer, or say fill=."
            )
        else:
            columns.append(np.full(len(grid), float(fill)))
    values = np.stack(columns, axis=1) if columns else np.zeros((len(grid), 0))
    labels = None
    if frame.labels is not None:
        before = np.searchsorted(frame.seconds, grid + 1e-9, side="right") - 1
        after = np.minimum(before + 1, len(frame) - 1)
        wide = frame.seconds[after] - frame.seconds[before] > longest
        labels = frame.labels[before].copy()
        labels[wide & (grid > frame.seconds[before] + 1e-9)] = None
    return replace(frame, seconds=grid, values=values, labels=labels)


def _at(seconds: np.ndarray, values: np.ndarray, grid: np.ndarray, rate: float, how: str) -> np.ndarray:
    if how == "hold":
        return np.asarray(values[np.maximum(np.searchsorted(seconds, grid + 1e-9, side="right") - 1, 0)])
    line = np.interp(grid, seconds, values)
    if how == "linear":
        return line
    sums = np.concatenate([[0.0], np.cumsum(values)])
    low = np.searchsorted(seconds, grid - 0.5 / rate, side="left")
    high = np.searchsorted(seconds, grid + 0.5 / rate, side="left")
    return np.where(high > low, (sums[high] - sums[low]) / np.maximum(high - low, 1), line)
