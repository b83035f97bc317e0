"""Sensors with clocks and rates of their own, put on the steps of one clock.

An accelerometer logs fifty rows a second, a receiver one, each to its own file, and either stops when it likes.
`align` cuts time into steps of ``hop`` seconds and says which rows of each sensor lie in each. Decided here:

- A reading holds for the usual distance between readings of its sensor. Where the next one is further away than
  ``longest_gap`` seconds the sensor is *silent* until it comes. By default that is three usual distances, or a step
  if that is longer.
- Steps are those k for which start + k · hop … start + (k + 1) · hop lies where no required sensor is silent, on one
  grid from the first such moment on. Steps that follow one another are a recording; a silence ends it, so no window,
  context or transition reaches across.
- Nothing is interpolated here. `AlignedRecording.samples` makes equal steps for `SensorFeatures`, between readings of
  one stretch only.
- Rows with a missing value count as if they had not come.

`Aligned.report` says what was kept, and of what was not, when it was and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from crfield.data.gaps import gap_places
from crfield.data.timed_frames import TimedFrame
from crfield.errors import InputError

ON = ("clock", "start")
HOW = ("linear", "hold")
_CLOSE = 1e-9  # of a step


@dataclass(frozen=True, eq=False)
class SensorRows:
    """The complete rows of a sensor, on the common clock, and the stretches in which it is heard."""

    name: str
    seconds: np.ndarray  # (n,)
    values: np.ndarray  # (n, D)
    columns: tuple[str, ...]
    labels: np.ndarray | None  # (n,)
    period: float  # usual distance of two readings
    allowed: float  # longest silence
    incomplete: int  # rows that lack a value
    starts: np.ndarray  # (s,) first row of each stretch

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """(from, to) of each stretch; the last reading holds for a period."""
        ends = np.append(self.starts[1:], len(self.seconds)) - 1
        return [
            (float(self.seconds[a]), float(self.seconds[b] + self.period))
            for a, b in zip(self.starts, ends, strict=True)
        ]


@dataclass(frozen=True)
class Dropped:
    """A stretch of time that no step covers, and the sensors that are to blame; none where a step did not fit."""

    start: float
    end: float
    silent: tuple[str, ...]

    def __str__(self) -> str:
        why = f"no {' and no '.join(self.silent)}" if self.silent else "less than a step"
        return f"{self.start:.6g} to {self.end:.6g} s ({self.end - self.start:.4g} s): {why}"


class SensorUse(NamedTuple):
    """What became of the rows of a sensor."""

    name: str
    rows: int
    rate: float
    allowed: float  # seconds of silence
    incomplete: int  # rows that lack a value
    unused: int  # rows in no step
    empty: int  # steps without a row

    def __str__(self) -> str:
        line = f"{self.name}: {self.rows:,} rows at {self.rate:.4g} a second, silent for {self.allowed:.4g} s at most"
        for number, what in (
            (self.incomplete, "rows lack a value"),
            (self.unused, "rows in no step"),
            (self.empty, "steps without a row"),
        ):
            line += f"; {number:,} {what}" if number else ""
        return line


@dataclass(frozen=True)
class AlignReport:
    """What became of the time and the rows of every sensor; ``print`` it."""

    hop: float
    steps: tuple[int, ...]  # of each recording
    sensors: tuple[SensorUse, ...]
    dropped: tuple[Dropped, ...]

    @property
    def dropped_seconds(self) -> float:
        """Time between the first and the last reading that no step covers."""
        return sum(part.end - part.start for part in self.dropped)

    def __str__(self) -> str:
        count = len(self.steps)
        lines = [f"{sum(self.steps):,} steps of {self.hop:g} s in {count} recording{'s' if count != 1 else ''}"]
        lines += map(str, self.sensors)
        if self.dropped:
            lines.append(f"dropped {self.dropped_seconds:.4g} s")
        return "\n".join([*lines, *(f"  {part}" for part in self.dropped)])


@dataclass(frozen=True, eq=False)
class AlignedRecording:
    """Steps that follow one another, and where the rows of each sensor lie in them."""

    times: np.ndarray  # (K,) where each step begins
    hop: float
    sensors: Mapping[str, SensorRows]
    bounds: Mapping[str, np.ndarray]  # (K + 1,) the first row of each step, and the end
    labels: np.ndarray | None = None  # (K,) objects

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        end = self.times[-1] + self.hop
        return f"<AlignedRecording: {len(self)} steps of {self.hop:g} s, {self.times[0]:.6g} … {end:.6g} s>"

    def counts(self, sensor: str) -> np.ndarray:
        """(K,) how many rows of a sensor lie in each step."""
        return np.diff(self.bounds[sensor])

    def windows(self, sensor: str) -> list[np.ndarray]:
        """The rows (n, D) of a sensor in each step; n may be 0."""
        bounds = self.bounds[sensor]
        return [self.sensors[sensor].values[a:b] for a, b in pairwise(bounds)]

    def samples(
        self, rates: Mapping[str, float], *, how: str = "linear", fill: float = np.nan
    ) -> dict[str, np.ndarray]:
        """Equal steps (n, D) of each sensor at a rate of its own, n = K · hop · rate, as `SensorFeatures` reads them.

        Between two readings of one stretch a value is on their line, or that of the earlier one (``how="hold"``);
        before the first and after the last reading of a stretch it is that reading. Where a sensor that is not
        required is silent it is ``fill``.
        """
        if how not in HOW:
            raise InputError(f"how must be one of {HOW}, got {how!r}.")
        out = {}
        for name, rate in rates.items():
            if name not in self.sensors:
                raise InputError(f"there is no sensor {name!r}; there are {', '.join(self.sensors)}.")
            own = self.sensors[name]
            grid = self.times[0] + np.arange(int(np.ceil(len(self) * self.hop * rate - 1e-6))) / rate
            made = np.full((len(grid), own.values.shape[1]), float(fill))
            ends = np.append(own.starts[1:], len(own.seconds))
            for (low, high), a, b in zip(own.stretches, own.starts, ends, strict=True):
                here = (grid >= low - _CLOSE) & (grid < high - _CLOSE)
                made[here] = _between(own.seconds[a:b], own.values[a:b], grid[here], how)
            out[name] = made
        return out


@dataclass(frozen=True, eq=False)
class Aligned:
    """Recordings of several sensors on the steps of one clock; made by `align`."""

    recordings: tuple[AlignedRecording, ...]
    report: AlignReport

    def __len__(self) -> int:
        return len(self.recordings)

    def __getitem__(self, number: int) -> AlignedRecording:
        return self.recordings[number]

    def __iter__(self) -> Iterator[AlignedRecording]:
        return iter(self.recordings)

    def __repr__(self) -> str:
        return f"<Aligned: {str(self.report).splitlines()[0]}, dropped {self.report.dropped_seconds:.4g} s>"

    def samples(
        self, rates: Mapping[str, float], *, how: str = "linear", fill: float = np.nan
    ) -> list[dict[str, np.ndarray]]:
        """A dict of samples for each recording, the X of ``SensorFeatures(sensors=rates, hop=…)``."""
        return [own.samples(rates, how=how, fill=fill) for own in self.recordings]

    @property
    def y(self) -> list[np.ndarray]:
        """Labels (K,) of the steps of each recording; InputError where no sensor has labels."""
        found = [own.labels for own in self.recordings if own.labels is not None]
        if len(found) < len(self.recordings):
            raise InputError("no sensor has labels. Read one with label=….")
        return found


def align(
    sensors: Mapping[str, TimedFrame],
    *,
    hop: float = 1.0,
    on: str = "clock",
    required: Sequence[str] | None = None,
    longest_gap: float | Mapping[str, float] | None = None,
) -> Aligned:
    """Put sensors of different clocks and rates on common steps of ``hop`` seconds; see the module.

    ``on="clock"`` takes times as they are (dates meet dates), ``on="start"`` counts those of each sensor from its
    first reading. ``required`` sensors, all by default, must be heard at every step; ``longest_gap`` is for how many
    seconds one may be silent, a number or one for each. The label of a step is that of most rows of the first sensor
    that has labels.

    >>> tenths = np.delete(np.arange(600), slice(200, 320))
    >>> acc = TimedFrame("acc", tenths / 10, np.zeros((480, 1)), ("x",))
    >>> gps = TimedFrame("gps", np.arange(0.4, 50.0), np.zeros((50, 2)), ("lat", "lon"))
    >>> aligned = align({"acc": acc, "gps": gps}, hop=1.0)
    >>> [len(recording) for recording in aligned]
    [19, 18]
    >>> print(aligned.report)
    37 steps of 1 s in 2 recordings
    acc: 480 rows at 10 a second, silent for 1 s at most; 110 rows in no step
    gps: 50 rows at 1 a second, silent for 3 s at most; 13 rows in no step
    dropped 23 s
      0 to 0.4 s (0.4 s): no gps
      19.4 to 32.4 s (13 s): no acc
      50.4 to 60 s (9.6 s): no gps
    """
    if not np.isfinite(hop) or hop <= 0:
        raise InputError(f"hop must be above 0 seconds, got {hop!r}.")
    if on not in ON:
        raise InputError(f"on must be one of {ON}, got {on!r}.")
    known = _rows(sensors, float(hop), on, longest_gap)
    needed = list(known) if required is None else list(required)
    strangers = [name for name in needed if name not in known]
    if strangers or not needed:
        raise InputError(f"required must name some of the sensors {list(known)}, got {needed}.")
    heard = _common([known[name].stretches for name in needed])
    first, spans = heard[0][0] if heard else 0.0, []
    for low, high in heard:
        start, stop = int(np.ceil((low - first) / hop - _CLOSE)), int(np.floor((high - first) / hop + _CLOSE))
        if stop > start:
            spans.append((start, stop))
    recordings = tuple(_recording(known, first, start, stop, float(hop)) for start, stop in spans)
    kept = [(first + start * hop, first + stop * hop) for start, stop in spans]
    return Aligned(recordings, _report(known, needed, recordings, kept, float(hop)))


def _rows(
    sensors: Mapping[str, TimedFrame], hop: float, on: str, longest_gap: float | Mapping[str, float] | None
) -> dict[str, SensorRows]:
    if not isinstance(sensors, Mapping) or not sensors:
        raise InputError("sensors must be a dict of a frame for each sensor, {'acc': frame, …}, with at least one.")
    for name, frame in sensors.items():
        if not isinstance(frame, TimedFrame):
            raise InputError(
                f"sensor {name!r} must be a TimedFrame, got {type(frame).__name__}. read_recordings and "
                "crfield.data.timed_frames.frames_of make them of files and frames, one for each recording."
            )
    dated = [frame.epoch is not None for frame in sensors.values()]
    if on == "clock" and any(dated) and not all(dated):
        raise InputError(
            "some sensors have dates and some have numbers for times, which have no clock in common. Write "
            "on='start' if they were started together."
        )
    epoch = min((frame.epoch for frame in sensors.values() if frame.epoch is not None), default=0.0)
    allowed = dict(longest_gap) if isinstance(longest_gap, Mapping) else {}
    if set(allowed) - set(sensors):
        raise InputError(f"longest_gap names {sorted(set(allowed) - set(sensors))}, which are no sensors.")
    out = {}
    for name, frame in sensors.items():
        whole = np.isfinite(frame.values).all(axis=1)
        seconds = frame.seconds[whole]
        if not len(seconds):
            raise InputError(f"sensor {name!r} has no complete row. Leave it out.")
        seconds = seconds - seconds[0] if on == "start" else seconds + ((frame.epoch or 0.0) - epoch)
        apart = np.diff(seconds)
        period = float(np.median(apart[apart > 0])) if (apart > 0).any() else hop
        given = allowed.get(name) if isinstance(longest_gap, Mapping) else longest_gap
        longest = max(hop, 3 * period) if given is None else float(given)
        if not longest >= period:
            raise InputError(
                f"longest_gap of {name!r} must be at least {period:.4g} s, which is how far apart its readings are, "
                f"got {given!r}."
            )
        starts = np.concatenate([[0], gap_places(seconds, longest)])
        labels = None if frame.labels is None else frame.labels[whole]
        rows = SensorRows(
            str(name),
            seconds,
            frame.values[whole],
            frame.columns,
            labels,
            period,
            longest,
            int((~whole).sum()),
            starts,
        )
        out[str(name)] = rows
    return out


def _common(several: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Where all lists of stretches overlap."""
    found = list(several[0])
    for other in several[1:]:
        both = [(max(a, c), min(b, d)) for a, b in found for c, d in other]
        found = sorted((low, high) for low, high in both if high > low)
    return found


def _recording(known: Mapping[str, SensorRows], first: float, start: int, stop: int, hop: float) -> AlignedRecording:
    edges = first + np.arange(start, stop + 1) * hop
    bounds = {name: np.searchsorted(own.seconds, edges - _CLOSE * hop, side="left") for name, own in known.items()}
    labelled = next((name for name, own in known.items() if own.labels is not None), None)
    labels = None
    if labelled is not None:
        said, at = known[labelled].labels, bounds[labelled]
        assert said is not None
        labels = np.array([*(_most(said[a:b].tolist()) for a, b in pairwise(at)), None], object)[:-1]
    return AlignedRecording(edges[:-1], hop, known, bounds, labels)


def _most(labels: list[Any]) -> Any:
    """The most frequent one, of two the earlier; None where there is none."""
    counts: dict[Any, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return max(counts, key=lambda label: counts[label]) if counts else None


def _between(seconds: np.ndarray, values: np.ndarray, grid: np.ndarray, how: str) -> np.ndarray:
    if how == "hold":
        return np.asarray(values[np.maximum(np.searchsorted(seconds, grid + _CLOSE, side="right") - 1, 0)])
    return (
        np.stack([np.interp(grid, seconds, column) for column in values.T], axis=1) if values.shape[1] else values[:0]
    )


def _report(
    known: Mapping[str, SensorRows],
    needed: Sequence[str],
    recordings: Sequence[AlignedRecording],
    kept: Sequence[tuple[float, float]],
    hop: float,
) -> AlignReport:
    sensors = []
    for name, own in known.items():
        used = sum(int(one.bounds[name][-1] - one.bounds[name][0]) for one in recordings)
        empty = sum(int((one.counts(name) == 0).sum()) for one in recordings)
        sensors.append(
            SensorUse(
                name, len(own.seconds), 1 / own.period, own.allowed, own.incomplete, len(own.seconds) - used, empty
            )
        )
    begin = min(own.stretches[0][0] for own in known.values())
    end = max(own.stretches[-1][1] for own in known.values())
    edges = [begin, *(edge for span in kept for edge in span), end]
    dropped = []
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        if high - low > _CLOSE * hop:
            silent = [name for name in needed if not _covers(known[name].stretches, low, high)]
            dropped.append(Dropped(float(low), float(high), tuple(silent)))
    return AlignReport(hop, tuple(map(len, recordings)), tuple(sensors), tuple(dropped))


def _covers(stretches: Sequence[tuple[float, float]], low: float, high: float) -> bool:
    return any(a <= low + _CLOSE and high <= b + _CLOSE for a, b in stretches)
