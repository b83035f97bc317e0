"""Tables on the command line: which column is what, and the sequences that they hold.

A *table* has a row for each step or sample, with columns of numbers; *tracks* have a row for each time and agent.
Columns are found by their roles (`crfield.cli.sensors.roles`). Every row remembers to which recording it went, and
where in it (`Rows`), so that labels find the way back. Rows of a table without times are taken in the order of the
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.cli.sensors.roles import TRACKS, Roles
from crfield.data.clocks.long_table import tracks_of_table
from crfield.data.clocks.tracks import Tracks, clock_rate, join_tracks
from crfield.data.gaps import resampled, split_at_gaps
from crfield.data.tables import Table
from crfield.data.timed_frames import TimedFrame
from crfield.errors import InputError, did_you_mean
from crfield.storage.tables import read_table

LONGEST_GAP = 1.0  # seconds, of tracks and of windows
_CLOSE = 1e-3  # of a sample


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, and for each of its rows the recording, −1 for none, and the place in it, in steps or samples."""

    table: Table
    recording: np.ndarray  # (n,)
    place: np.ndarray  # (n,) float


@dataclass(frozen=True, eq=False)
class Recordings:
    """What tables hold: a sequence for each recording, or tracks."""

    names: list[str]
    X: Any  # arrays (T, D), or Tracks
    y: list[Any] | None
    rows: list[Rows]
    rate: float | None = None  # of samples or of tracks


@dataclass(frozen=True)
class Reader:
    """Reads tables by the roles of their columns."""

    roles: Roles
    only: tuple[str, ...] | None = None
    labelled: bool = True  # whether labels are read, which a table then must have
    sampled: bool = False  # whether rows are samples of equal distance, for windows
    rate: float | None = None  # of samples, where it is known
    agents: tuple[str, ...] | None = None
    lenient: bool = False  # whether a table may lack times and groups that the training had

    def read(self, tables: Sequence[Table]) -> Recordings:
        """The recordings of some tables."""
        if self.only is not None:
            tables = self._chosen(tables, self.only)
        return self._tracks(tables) if self.roles.format == TRACKS else self._columns(tables)

    def _chosen(self, tables: Sequence[Table], only: Sequence[str]) -> list[Table]:
        """The rows of some recordings; tables that have none are left out."""
        owners = [np.array(self._owners(table), dtype=object) for table in tables]
        known = list(dict.fromkeys(name for own in owners for name in own.tolist()))
        strange = [name for name in only if name not in known]
        if strange or not only:
            files = ", ".join(str(table.file) for table in tables)
            near = did_you_mean(strange[0], known) if strange else ""
            raise InputError(
                f"--only must name recordings of {files}, which holds {', '.join(known[:20])}; got "
                f"{', '.join(strange)}.{near}"
            )
        rows = [np.flatnonzero(np.isin(own, list(only))) for own in owners]
        return [table.part(own) for table, own in zip(tables, rows, strict=True) if len(own)]

    def _owners(self, table: Table) -> list[str]:
        """To which recording each row belongs."""
        group = self._optional(table, "group")
        if group is None:
            return [_stem(table)] * len(table)
        return [str(owner) for owner in table.owners(group)]

    def _optional(self, table: Table, role: str) -> str | None:
        """The column of a role; None where there is none and need not be."""
        name = getattr(self.roles, role)
        if name is None or (self.lenient and name not in table.names):
            return None
        return table.column(name)

    def _labels(self, table: Table) -> np.ndarray | None:
        return table.labels(table.column(self.roles.label or "label")) if self.labelled else None

    # ------------------------------------------------------------------ tracks

    def _tracks(self, tables: Sequence[Table]) -> Recordings:
        roles, parts, rows, names, first = self.roles, [], [], [], 0
        for table in tables:
            group = self._optional(table, "group")
            labels = self._labels(table)
            tracks, steps = tracks_of_table(
                table,
                time=table.column(roles.time or "time"),
                agent=table.column(roles.agent or "agent"),
                position=[table.column(name) for name in roles.columns],
                label=None if labels is None else roles.label,
                group=group,
                unit=roles.unit,
                rate=roles.rate,
                agents=self.agents,
                longest_gap=roles.longest_gap or LONGEST_GAP,
            )
            if labels is not None and tracks.labels is None:
                raise table.fault(
                    f"rows of one time have different labels in the column {roles.label!r}: labels are those of "
                    "steps here, and these are those of agents."
                )
            offsets = np.concatenate([[0], np.cumsum(tracks.lengths)])
            owner = np.searchsorted(offsets, steps, side="right") - 1
            rows.append(Rows(table, owner + first, steps - offsets[owner]))
            parts.append(tracks)
            names += list(tracks.groups) or [_stem(table)] * len(tracks)
            first += len(tracks)
        joined: Tracks = join_tracks(parts)
        return Recordings(names, joined, joined.y if joined.labels is not None else None, rows, joined.rate)

    # ------------------------------------------------------------------ columns

    def _columns(self, tables: Sequence[Table]) -> Recordings:
        frames: list[tuple[int, np.ndarray, TimedFrame]] = []  # table, its rows, and what they hold
        dated = []
        for number, table in enumerate(tables):
            values = self._values(table)
            labels, time = self._labels(table), self._optional(table, "time")
            seconds = np.arange(len(table), dtype=np.float64)
            if time is not None:
                seconds = table.times(time, self.roles.unit)[0]
            dated.append(time is not None)
            owners = np.array(self._owners(table), dtype=object)
            for name in dict.fromkeys(owners.tolist()):
                own = np.flatnonzero(owners == name)
                if time is None and len(own) and own[-1] - own[0] + 1 != len(own):
                    late = own[int(np.argmax(np.diff(own) > 1)) + 1]
                    raise table.fault(
                        f"recording {name!r} goes on after another one began. Name the column to sort by, --time, "
                        "or sort the rows.",
                        int(late),
                    )
                own = own[np.argsort(seconds[own], kind="stable")]
                said = None if labels is None else labels[own]
                frames.append((number, own, TimedFrame(name, seconds[own], values[own], self.roles.columns, said)))
        rate = self._rate([frame for _, _, frame in frames], timed=all(dated)) if self.sampled else None
        names: list[str] = []
        X, y = [], []
        rows = [Rows(table, np.full(len(table), -1), np.zeros(len(table))) for table in tables]
        for number, own, frame in frames:
            for part, inside, place in self._parts(frame, rate, timed=dated[number]):
                rows[number].recording[own[inside]] = len(names)
                rows[number].place[own[inside]] = place
                names.append(str(frame.name))
                X.append(part.values)
                y.append(part.labels)
        return Recordings(names, X, y if self.labelled else None, rows, rate)

    def _values(self, table: Table) -> np.ndarray:
        """(n, D) the readings; a missing one is an error, unless there are times by which gaps are bridged."""
        names = [table.column(name) for name in self.roles.columns]
        values = np.stack([table.numbers(name) for name in names], axis=1)
        bridged = self.sampled and self._optional(table, "time") is not None
        if not bridged and np.isnan(values).any():
            row, column = np.argwhere(np.isnan(values))[0].tolist()
            raise table.fault(
                f"the column {names[column]!r} has no value. Fill it, take the row out, or leave the column out with "
                "--columns.",
                row,
            )
        return values

    def _rate(self, frames: Sequence[TimedFrame], *, timed: bool) -> float:
        if self.rate is not None:
            return self.rate
        if not timed:
            raise InputError(
                "windows need to know how long a sample is: name the column of times, --time, or --rate."
            )
        return clock_rate([frame.seconds for frame in frames])

    def _parts(
        self, frame: TimedFrame, rate: float | None, *, timed: bool
    ) -> Iterator[tuple[TimedFrame, np.ndarray, np.ndarray]]:
        """Pieces of a recording between gaps, with the rows (m,) of it that are in each, and their places (m,)."""
        gap = self.roles.longest_gap
        if timed and rate is not None:
            for part in resampled(frame, rate, gaps="split", longest_gap=gap or LONGEST_GAP):
                place = (frame.seconds - part.seconds[0]) * rate
                inside = np.flatnonzero((place > -_CLOSE) & (place < len(part) - _CLOSE))
                yield part, inside, place[inside]
            return
        first = 0
        for part in split_at_gaps(frame, longest_gap=gap) if timed and gap is not None else [frame]:
            yield part, np.arange(first, first + len(part)), np.arange(len(part), dtype=np.float64)
            first += len(part)


def read_tables(sources: Sequence[str]) -> list[Table]:
    """The tables of some files, none of them empty."""
    if list(sources).count("-") > 1:
        raise InputError("standard input ('-') can be read only once.")
    tables = [read_table(source) for source in sources]
    for table in tables:
        if not len(table):
            raise table.fault("expected a table with a header and rows, found nothing.")
    return tables


def readable_columns(table: Table, roles: Roles, chosen: Sequence[str] | None) -> Roles:
    """The roles with the columns that were chosen, or all that hold numbers and have no other role."""
    taken = {roles.time, roles.group, roles.label, roles.agent}
    if chosen is None:
        columns = [name for name in table.names if name not in taken and table.is_numeric(name)]
        if not columns:
            raise table.fault(f"no column is left that holds numbers; there are {', '.join(table.names)}.")
        return replace(roles, columns=tuple(columns))
    both = [name for name in chosen if name in taken]
    if both:
        raise InputError(f"the column {both[0]!r} cannot be a reading and have another role too: --columns.")
    return replace(roles, columns=tuple(table.column(name) for name in chosen))


def _stem(table: Table) -> str:
    return (table.file or "").rpartition("/")[2].partition(".")[0] or "table"
