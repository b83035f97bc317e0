r"""A table as a file holds it: named columns of cells, and the line that every row stands in.

CSV text keeps its cells as they were written, so that a table can be written back with one column more, and whoever
cannot use a cell can say where it stands. Frames of pandas or polars and dicts of arrays keep what they hold. A cell
is missing if it is empty, NaN, or one of the usual words (``NA``, ``null``, …).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.data.labels import plain
from crfield.errors import FormatError, InputError, ShapeError, did_you_mean

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})


@dataclass(frozen=True, eq=False)
class Table:
    r"""Columns of equal length by name.

    >>> table = parse_table("t,x\n0,1.5\n1,\n", file="log.csv")
    >>> table.names, len(table), table.numbers("x").tolist()
    (('t', 'x'), 2, [1.5, nan])
    >>> table.column("X")
    Traceback (most recent call last):
    crfield.errors.FormatError: log.csv: there is no column 'X'; there are t, x.
    """

    cells: Mapping[str, Any]  # lists or arrays
    file: str | None = None
    lines: Sequence[int] | None = None  # of the rows, in a text
    separator: str = ","

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.cells)

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()))) if self.cells else 0

    def __repr__(self) -> str:
        return f"<Table: {len(self):,} rows of {', '.join(self.names)}>"

    def part(self, rows: np.ndarray) -> Table:
        """Some rows, by number, with the lines they stand in."""
        cells = {
            name: own[rows] if isinstance(own, np.ndarray) else [own[row] for row in rows.tolist()]
            for name, own in self.cells.items()
        }
        lines = None if self.lines is None else [self.lines[row] for row in rows.tolist()]
        return replace(self, cells=cells, lines=lines)

    def fault(self, message: str, row: int | None = None) -> FormatError:
        """An error about the table, or about one of its rows, that says where."""
        if row is None or self.lines is not None:
            line = None if row is None or self.lines is None else self.lines[row]
            return FormatError(message, file=self.file, line=line)
        return FormatError(f"row {row}: {message}", file=self.file)

    def column(self, part: str | int) -> str:
        """The name of a column, given it or its number from 0; FormatError where there is none."""
        names = self.names
        if isinstance(part, int) and 0 <= part < len(names):
            return names[part]
        if str(part) in names:
            return str(part)
        shown = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
        raise self.fault(f"there is no column {part!r}; there are {shown}.{did_you_mean(part, names)}")

    def numbers(self, name: str) -> np.ndarray:
        """(n,) a column as numbers, NaN where one is missing; FormatError where a cell is something else."""
        array = np.asarray(self.cells[name])
        if array.dtype.kind in "fiub":
            return np.where(np.isfinite(array.astype(np.float64)), array, np.nan).astype(np.float64)
        out = np.empty(len(array))
        for row, cell in enumerate(array.tolist()):
            try:
                out[row] = np.nan if is_missing(cell) else float(cell)
            except (TypeError, ValueError):
                raise self.fault(
                    f"expected a number in column {name!r}, got {cell!r}. Name the columns with readings: "
                    "columns=[…].",
                    row,
                ) from None
        return np.where(np.isfinite(out), out, np.nan)

    def is_numeric(self, name: str) -> bool:
        """Whether a column holds numbers alone, and at least one of them."""
        array = np.asarray(self.cells[name])
        if array.dtype.kind in "fiub":
            return True
        held = [cell for cell in array.tolist() if not is_missing(cell)]
        return bool(held) and all(is_number(cell) for cell in held)

    def times(self, name: str, unit: str = "s") -> tuple[np.ndarray, float | None]:
        r"""(n,) seconds, and of dates what to add for seconds since 1970, else None; a time must not be missing.

        >>> parse_table("t\n2021-01-01\n2021-01-02\n").times("t")
        (array([    0., 86400.]), 1609459200.0)
        """
        one_of(*UNITS)("unit", unit)
        array = np.asarray(self.cells[name])
        if array.dtype.kind == "M":
            if not len(array):
                return np.zeros(0), 0.0
            first = array.min()
            if np.isnat(array).any():
                raise FormatError("expected a time in every row, got NaT.", file=self.file)
            since = float(first.astype("datetime64[ns]").astype(np.int64)) * 1e-9
            return (array - first).astype("timedelta64[ns]").astype(np.int64) * 1e-9, since
        out, moments = np.empty(len(array)), []
        for row, cell in enumerate(array.tolist()):
            if isinstance(cell, str) and not is_number(cell) and is_date(cell):
                moment = datetime.fromisoformat(cell)
                moments.append(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            try:
                out[row] = 0.0 if len(moments) == row + 1 else float(cell) * UNITS[unit]
            except (TypeError, ValueError):
                out[row] = np.nan
            if not np.isfinite(out[row]) or 0 < len(moments) <= row:
                wanted = "a date as in the rows before" if moments and is_number(cell) else "a number or an ISO date"
                raise self.fault(f"expected a time, {wanted}, got {cell!r}.", row)
        if not moments:
            return out, None
        first = min(moments)  # differences of dates are exact; those of seconds since 1970 are not
        return np.array([(moment - first).total_seconds() for moment in moments]), first.timestamp()

    def labels(self, name: str) -> np.ndarray:
        """(n,) objects: a column as labels, None where one is missing."""
        cells = (plain(cell) for cell in self.cells[name])
        return np.array([*(None if is_missing(cell) else cell for cell in cells), None], dtype=object)[:-1]

    def owners(self, name: str) -> list[Any]:
        """Whose each row is; FormatError where a row does not say."""
        out = [plain(cell) for cell in self.cells[name]]
        for row, cell in enumerate(out):
            if is_missing(cell):
                raise self.fault(f"the column {name!r} says nothing, so nobody knows whose it is.", row)
        return out


def parse_table(
    text: str,
    *,
    header: bool | None = None,
    separator: str | None = None,
    file: str | None = None,
    words: Collection[int] = (),
) -> Table:
    r"""The table of a CSV text; columns without a header are called 0, 1, … .

    With ``header=None`` the first line is one if any of its cells is neither a number nor a date, those of the
    columns ``words`` left aside, which may hold anything. ``separator`` is found in the first line.

    >>> parse_table("0;1,5;sit\n", words=[1, 2]).names
    ('0', '1', '2')
    """
    text = text.removeprefix("\ufeff")
    if separator is None:
        separator = max(",;\t", key=text.partition("\n")[0].count)
    rows, before = [], 0
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        for row in reader:
            if any(row):
                rows.append((before + 1, row))
            before = reader.line_num
    except csv.Error as error:
        raise FormatError(f"the table cannot be read: {error}.", file=file, line=before + 1) from None
    if not rows:
        return Table({}, file, (), separator)
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise FormatError(f"expected {width} cells as in the first line, got {len(row)}.", file=file, line=line)
    if header is None:
        cells = [cell.strip() for k, cell in enumerate(rows[0][1]) if k not in words]
        header = not all(is_number(cell) or is_date(cell) for cell in cells)
    names = [cell.strip() for cell in rows[0][1]] if header else [str(k) for k in range(width)]
    if len(set(names)) != len(names):
        raise FormatError(f"column names must differ, got {names}.", file=file, line=rows[0][0])
    rows = rows[1:] if header else rows
    columns = {name: [row[k].strip() for _, row in rows] for k, name in enumerate(names)}
    return Table(columns, file, [line for line, _ in rows], separator)


def table_of(frame: Any, file: str | None = None) -> Table:
    """The table of a pandas or polars frame, or of a dict of arrays, one a column.

    >>> table_of({"t": [0.0, 1.0], "who": ["ann", None]}).labels("who").tolist()
    ['ann', None]
    """
    if not isinstance(frame, Mapping) and not (hasattr(frame, "columns") and hasattr(frame, "__getitem__")):
        raise InputError(f"expected a frame with columns or a dict of arrays, got {type(frame).__name__}.")
    names = [str(name) for name in (frame if isinstance(frame, Mapping) else frame.columns)]
    cells = {name: np.asarray(frame[name]) for name in names}
    if len({len(own) for own in cells.values()}) > 1:
        raise ShapeError(f"columns must be equally long, got { ({n: len(c) for n, c in cells.items()}) }.")
    return Table(cells, file)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing.

    >>> [is_missing(cell) for cell in ("", "NA", None, float("nan"), 0, "no")]
    [True, True, True, True, False, False]
    """
    if isinstance(cell, str):
        return cell.lower() in MISSING
    return cell is None or (isinstance(cell, float) and cell != cell)  # noqa: PLR0124


def is_number(cell: Any) -> bool:
    """Whether a cell can be read as a number, a missing one among them.

    >>> is_number("1e3"), is_number("nan"), is_number("a")
    (True, True, False)
    """
    try:
        float(cell)
    except (TypeError, ValueError):
        return is_missing(cell)
    return True


def is_date(cell: str) -> bool:
    """Whether a text is a date as ISO 8601 writes it.

    >>> is_date("2021-05-01T10:00:00"), is_date("May")
    (True, False)
    """
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True
