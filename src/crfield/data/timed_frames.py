r"""Rows of numbers with time stamps: CSV text, or frames of pandas, polars, or a dict of arrays.

What a logger writes is a table: a column of times, columns of readings, perhaps one of labels, perhaps one that says
whose row it is. A `TimedFrame` is one recording of it, sorted by time, with times in seconds; `crfield.data.gaps`
makes equal steps of it. Decided here:

- Times are numbers in some ``unit``, or dates as ISO 8601 writes them; of two rows with one time the later row comes
  later. A time that is missing is an error, since nobody knows where the row belongs.
- A reading that is missing (an empty cell, ``NaN``, ``NA``, ``null``) is NaN, and stays so until gaps are dealt with.
- A label that is missing is None: nobody knows it.
- Rows of different recordings may be mixed; recordings come in the order in which they first occur.

Cells are those of `crfield.data.tables`; neither pandas nor polars is imported.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.data.labels import plain
from crfield.data.tables import Table, parse_table, table_of
from crfield.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class TimedFrame:
    """One recording: readings (n, D) at times that never fall, in seconds; a reading may be NaN, a label None.

    >>> TimedFrame("a", np.array([0.0, 0.5]), np.array([[1.0], [2.0]]), ("x",))
    TimedFrame('a', 2 rows of x, 0 … 0.5 s)
    """

    name: Hashable
    seconds: np.ndarray  # (n,)
    values: np.ndarray  # (n, D)
    columns: tuple[str, ...]
    labels: np.ndarray | None = None  # (n,) objects
    epoch: float | None = None  # of times that were dates: second 0, in seconds since 1970, UTC

    def __post_init__(self) -> None:
        n = len(self.seconds)
        if self.values.shape != (n, len(self.columns)) or (self.labels is not None and len(self.labels) != n):
            raise ShapeError(
                f"{n} times go with values ({n}, {len(self.columns)}) and {n} labels, got {self.values.shape} and "
                f"{None if self.labels is None else len(self.labels)}."
            )
        if n and (not np.isfinite(self.seconds).all() or (np.diff(self.seconds) < 0).any()):
            raise InputError("times must be finite and never fall; sort the rows by time first.")

    def __len__(self) -> int:
        return len(self.seconds)

    def part(self, start: int, stop: int) -> TimedFrame:
        """Rows ``start`` … ``stop`` − 1."""
        labels = None if self.labels is None else self.labels[start:stop]
        return replace(self, seconds=self.seconds[start:stop], values=self.values[start:stop], labels=labels)

    def __repr__(self) -> str:
        span = f", {self.seconds[0]:g} … {self.seconds[-1]:g} s" if len(self) else ""
        return f"TimedFrame({self.name!r}, {len(self):,} rows of {', '.join(self.columns)}{span})"


def parse_timed(
    text: str,
    *,
    time: str | int = 0,
    label: str | int | None = None,
    recording: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    unit: str = "s",
    header: bool | None = None,
    separator: str | None = None,
    file: str | None = None,
) -> list[TimedFrame]:
    r"""The recordings of a CSV text. Columns are named, or numbered from 0.

    ``columns`` are those with readings: all others by default. With ``header=None`` the first line is one if any of
    its cells under a time or a reading is neither a number nor a date. ``separator`` is found in the first line.

    >>> text = "when;x;what\n0;1.5;sit\n100;;sit\n250;2.5;\n"
    >>> frame = parse_timed(text, time="when", label="what", unit="ms")[0]
    >>> frame.seconds.tolist(), frame.values[:, 0].tolist(), frame.labels.tolist()
    ([0.0, 0.1, 0.25], [1.5, nan, 2.5], ['sit', 'sit', None])
    """
    if header is None and any(isinstance(part, str) for part in (time, label, recording, *(columns or ()))):
        header = True
    apart = [part for part in (label, recording) if isinstance(part, int)]
    table = parse_table(text, header=header, separator=separator, file=file, words=apart)
    if not table.cells:
        return []
    return timed_frames(table, time=time, label=label, recording=recording, columns=columns, unit=unit)


def frames_of(
    frame: Any,
    *,
    time: str,
    label: str | None = None,
    recording: str | None = None,
    columns: Sequence[str] | None = None,
    unit: str = "s",
) -> list[TimedFrame]:
    """The recordings of a pandas or polars frame, or of a dict of arrays, one a column.

    Times may be numbers in ``unit`` or ``datetime64``. They count from the first row of each recording if they are
    dates, and are kept as they are if they are numbers.

    >>> rows = {"t": [0.0, 1.0, 0.0], "x": [1.0, 2.0, 3.0], "who": ["ann", "ann", "bob"]}
    >>> frames_of(rows, time="t", recording="who")
    [TimedFrame('ann', 2 rows of x, 0 … 1 s), TimedFrame('bob', 1 rows of x, 0 … 0 s)]
    """
    return timed_frames(table_of(frame), time=time, label=label, recording=recording, columns=columns, unit=unit)


def timed_frames(
    table: Table,
    *,
    time: str | int,
    label: str | int | None = None,
    recording: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    unit: str = "s",
) -> list[TimedFrame]:
    r"""The recordings of a `Table`.

    >>> timed_frames(parse_table("t,x\n1,5\n0,7\n"), time="t")[0].values.tolist()
    [[7.0], [5.0]]
    """
    when, what, whose = (None if part is None else table.column(part) for part in (time, label, recording))
    chosen = [table.column(part) for part in columns] if columns is not None else list(table.names)
    chosen = [name for name in chosen if name not in (when, what, whose)]
    seconds, origin = table.times(str(when), unit)
    values = np.stack([table.numbers(name) for name in chosen], axis=1) if chosen else np.zeros((len(seconds), 0))
    labels = None if what is None else table.labels(what)
    owner = [plain(cell) for cell in table.cells[whose]] if whose is not None else [0] * len(seconds)
    frames = []
    for name in dict.fromkeys(owner):
        own = np.flatnonzero([other == name for other in owner])
        own = own[np.argsort(seconds[own], kind="stable")]
        start = 0.0 if origin is None else float(seconds[own[0]])
        part = None if labels is None else labels[own]
        epoch = None if origin is None else origin + start
        frames.append(TimedFrame(name, seconds[own] - start, values[own], tuple(chosen), part, epoch))
    return frames


def join_frames(frames: Iterable[TimedFrame]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Values and labels of some recordings as two lists, as estimators and `SensorFeatures` read them.

    >>> join_frames([TimedFrame("a", np.zeros(1), np.ones((1, 2)), ("x", "y"))])
    ([array([[1., 1.]])], [None])
    """
    chosen = list(frames)
    return [frame.values for frame in chosen], [frame.labels for frame in chosen]
