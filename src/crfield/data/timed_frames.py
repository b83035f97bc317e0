r"""Rows of numbers with time stamps: CSV text, or frames of pandas, polars, or a dict of arrays.

What a logger writes is a table: a column of times, columns of readings, perhaps one of labels, perhaps one that says
whose row it is. A `TimedFrame` is one recording of it, sorted by time, with times in seconds; `crfield.data.gaps`
makes equal steps of it. Decided here:

- Times are numbers in some ``unit``, or dates as ISO 8601 writes them; of two rows with one time the later row comes
  later. A time that is missing is an error, since nobody knows where the row belongs.
- A reading that is missing (an empty cell, ``NaN``, ``NA``, ``null``) is NaN, and stays so until gaps are dealt with.
- A label that is missing is None: nobody knows it.
- Rows of different recordings may be mixed; recordings come in the order in which they first occur.

A frame is anything with ``columns`` and ``frame[name]``, so neither pandas nor polars is imported here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.data.labels import plain
from crfield.errors import FormatError, InputError, ShapeError

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})


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
    text = text.removeprefix("\ufeff")
    first = text.partition("\n")[0]
    if separator is None:
        separator = max(",;\t", key=first.count)
    rows = [(k, row) for k, row in enumerate(csv.reader(io.StringIO(text), delimiter=separator), 1) if any(row)]
    if not rows:
        return []
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise FormatError(f"expected {width} cells as in the first line, got {len(row)}.", file=file, line=line)
    named = [time, label, recording, *(columns or ())]
    if header is None:
        apart = {part for part in (label, recording) if isinstance(part, int)}
        cells = [cell.strip() for k, cell in enumerate(rows[0][1]) if k not in apart]
        header = any(isinstance(part, str) for part in named) or not all(
            _is_number(cell) or _is_date(cell) for cell in cells
        )
    names = [cell.strip() for cell in rows[0][1]] if header else [str(k) for k in range(width)]
    rows = rows[1:] if header else rows
    table = {name: [row[k].strip() for _, row in rows] for k, name in enumerate(names)}
    if len(table) != len(names):
        raise FormatError(f"column names must differ, got {names}.", file=file, line=1)
    lines = [line for line, _ in rows]
    return _frames(table, time, label, recording, columns, unit, file, lines)


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
    if not isinstance(frame, Mapping) and not (hasattr(frame, "columns") and hasattr(frame, "__getitem__")):
        raise InputError(f"expected a frame with columns or a dict of arrays, got {type(frame).__name__}.")
    names = [str(name) for name in (frame if isinstance(frame, Mapping) else frame.columns)]
    return _frames({name: np.asarray(frame[name]) for name in names}, time, label, recording, columns, unit)


# ------------------------------------------------------------------------------------------------------ cells


def _frames(
    table: dict[str, Any],
    time: str | int,
    label: str | int | None,
    recording: str | int | None,
    columns: Sequence[str | int] | None,
    unit: str,
    file: str | None = None,
    lines: Sequence[int] | None = None,
) -> list[TimedFrame]:
    names = list(table)
    when, what, whose = (None if part is None else _column(names, part, file) for part in (time, label, recording))
    chosen = [_column(names, part, file) for part in columns] if columns is not None else names
    chosen = [name for name in chosen if name not in (when, what, whose)]
    if len({len(cells) for cells in table.values()}) > 1:
        raise ShapeError(f"columns must be equally long, got { ({n: len(c) for n, c in table.items()}) }.")
    seconds, origin = _times(table[str(when)], unit, file, lines)
    values = np.stack([_numbers(table[name], name, file, lines) for name in chosen], axis=1) if chosen else None
    values = np.zeros((len(seconds), 0)) if values is None else values
    labels = None if what is None else np.array([*map(_label, table[what]), None], dtype=object)[:-1]
    owner = [plain(cell) for cell in table[whose]] if whose is not None else [0] * len(seconds)
    frames = []
    for name in dict.fromkeys(owner):
        own = np.flatnonzero([other == name for other in owner])
        own = own[np.argsort(seconds[own], kind="stable")]
        start = 0.0 if origin is None else float(seconds[own[0]])
        part = None if labels is None else labels[own]
        epoch = None if origin is None else origin + start
        frames.append(TimedFrame(name, seconds[own] - start, values[own], tuple(chosen), part, epoch))
    return frames


def _column(names: Sequence[str], part: str | int, file: str | None) -> str:
    if isinstance(part, int) and 0 <= part < len(names):
        return names[part]
    if str(part) in names:
        return str(part)
    raise FormatError(f"there is no column {part!r}; there are {', '.join(names)}.", file=file)


def _times(cells: Any, unit: str, file: str | None, lines: Sequence[int] | None) -> tuple[np.ndarray, float | None]:
    """Seconds, and of dates what to add for seconds since 1970."""
    one_of(*UNITS)("unit", unit)
    array = np.asarray(cells)
    if array.dtype.kind == "M":
        if not len(array):
            return np.zeros(0), 0.0
        first = array.min()
        if np.isnat(array).any():
            raise FormatError("expected a time in every row, got NaT.", file=file)
        since = float(first.astype("datetime64[ns]").astype(np.int64)) * 1e-9
        return (array - first).astype("timedelta64[ns]").astype(np.int64) * 1e-9, since
    out, dated = np.empty(len(array)), False
    for k, cell in enumerate(array.tolist()):
        if isinstance(cell, str) and not _is_number(cell) and _is_date(cell):
            moment = datetime.fromisoformat(cell)
            out[k], dated = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True
            continue
        try:
            out[k] = float(cell) * UNITS[unit]
        except (TypeError, ValueError):
            out[k] = np.nan
        if not np.isfinite(out[k]):
            line = None if lines is None else lines[k]
            raise FormatError(f"expected a time, a number or an ISO date, got {cell!r}.", file=file, line=line)
    return out, 0.0 if dated else None


def _numbers(cells: Any, name: str, file: str | None, lines: Sequence[int] | None) -> np.ndarray:
    array = np.asarray(cells)
    if array.dtype.kind in "fiub":
        return np.where(np.isfinite(array.astype(np.float64)), array, np.nan).astype(np.float64)
    out = np.empty(len(array))
    for k, cell in enumerate(array.tolist()):
        missing = cell is None or (isinstance(cell, str) and cell.lower() in MISSING)
        try:
            out[k] = np.nan if missing else float(cell)
        except (TypeError, ValueError):
            line = None if lines is None else lines[k]
            raise FormatError(
                f"expected a number in column {name!r}, got {cell!r}. Name the columns with readings: columns=[…].",
                file=file,
                line=line,
            ) from None
    return np.where(np.isfinite(out), out, np.nan)


def _label(cell: Any) -> Any:
    cell = plain(cell)
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return None
    return None if isinstance(cell, str) and cell.lower() in MISSING else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.lower() in MISSING
    return True


def _is_date(cell: str) -> bool:
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


def join_frames(frames: Iterable[TimedFrame]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Values and labels of some recordings as two lists, as estimators and `SensorFeatures` read them.

    >>> join_frames([TimedFrame("a", np.zeros(1), np.ones((1, 2)), ("x", "y"))])
    ([array([[1., 1.]])], [None])
    """
    chosen = list(frames)
    return [frame.values for frame in chosen], [frame.labels for frame in chosen]
