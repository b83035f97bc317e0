"""Tracks of agents that come and go, on the equal steps of one clock.

What a camera, a tag system or a simulator writes is a long table: a row says when, who, where, perhaps what is going
on. `tracks_of` makes arrays of it. Decided here:

- Steps are those of the clock. Their rate is that of the usual distance between rows of one agent, unless it is
  given; each row goes to the nearest step. If more than one row in twenty is further than a quarter of a step from
  it, the clock is not regular, and the rate must be given: a guess would move rows about in silence.
- An agent without a row at a step is *absent* there, as is one whose position is missing: ``present`` is False and
  the position NaN. Nothing is made up, unless ``bridge`` seconds say for how long somebody who was not seen moved on
  in a straight line.
- Where nobody was heard of for longer than ``longest_gap`` seconds (or one and a half steps, if that is longer), a
  recording ends and another begins. Shorter silences are steps at which everybody is absent.
- The label of a step is what its rows say. Where the rows of a step say different things, labels belong to agents:
  ``labels`` is None and ``agent_labels`` has them. Of what nobody says it is None.

Features of who is absent are told of in `crfield.features.relational.functions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.data.gaps import gap_places
from crfield.data.timed_frames import TimedFrame
from crfield.errors import InputError

_IRREGULAR = 0.25  # of a step
_MANY = 0.05  # of the rows


@dataclass(frozen=True)
class ClockReport:
    """What was found about the clock of tracks, and what became of rows that did not fit.

    >>> print(ClockReport(60.0, 1800, silent=2, missing=5, gaps=((3.0, 15.5),)))
    60 steps a second, 1,800 steps; nobody was seen at 2 of them
    5 rows lack a position
    12.5 s without a row from 3 to 15.5 s: split into 2 recordings
    """

    rate: float
    n_steps: int
    silent: int = 0  # steps without a row
    irregular: int = 0  # rows further than a quarter of a step from their step
    crowded: int = 0  # rows that another one of the same agent and step replaced
    missing: int = 0  # rows without a position
    bridged: int = 0  # positions between those that were seen
    gaps: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        quiet = f"; nobody was seen at {self.silent:,} of them" if self.silent else ""
        lines = [f"{self.rate:.6g} steps a second, {self.n_steps:,} steps{quiet}"]
        for count, what in (
            (self.irregular, "lie more than a quarter of a step from their step"),
            (self.crowded, "gave way to a later one of the same agent and step"),
            (self.missing, "lack a position"),
        ):
            if count:
                lines.append(f"{count:,} rows {what}")
        if self.bridged:
            lines.append(f"{self.bridged:,} positions lie on lines between those that were seen")
        shown = [f"{end - start:.4g} s without a row from {start:.6g} to {end:.6g} s" for start, end in self.gaps]
        if shown:
            lines.append("; ".join(shown) + f": split into {len(shown) + 1} recordings")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Tracks:
    """Recordings of agents on equal steps, end to end; ``tracks[k]`` is the k-th alone.

    A model of recordings takes it as X, with ``tracks.y``; `Recordings.of` and ``catalogue.on`` take it as it is.
    """

    positions: np.ndarray  # (N, R, D), NaN where an agent is absent
    present: np.ndarray  # (N, R) bool
    times: np.ndarray  # (N,) seconds
    lengths: tuple[int, ...]
    agents: tuple[str, ...]
    axes: tuple[str, ...]
    rate: float
    labels: np.ndarray | None = None  # (N,) objects, where the rows of each step agree
    agent_labels: np.ndarray | None = None  # (N, R) objects
    clock: tuple[ClockReport, ...] = ()  # one for each source
    groups: tuple[str, ...] = ()  # to which group each recording belongs, where a column says so

    def __repr__(self) -> str:
        told = "" if self.agent_labels is None else ", labels" + (" of agents" if self.labels is None else "")
        n, share = len(self.lengths), 100 * self.present.mean() if self.present.size else 0.0
        return (
            f"<Tracks: {n} recording{'s' if n != 1 else ''}, {len(self.times):,} steps at {self.rate:.6g} Hz, "
            f"{len(self.agents)} agents present at {share:.1f} %{told}>"
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Tracks:
        number = range(len(self))[number]
        start = sum(self.lengths[:number])
        rows = slice(start, start + self.lengths[number])
        return replace(
            self,
            positions=self.positions[rows],
            present=self.present[rows],
            times=self.times[rows],
            lengths=(self.lengths[number],),
            labels=None if self.labels is None else self.labels[rows],
            agent_labels=None if self.agent_labels is None else self.agent_labels[rows],
            groups=self.groups[number : number + 1],
        )

    def __iter__(self) -> Iterator[Tracks]:
        return (self[k] for k in range(len(self)))

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        return np.split(array, np.cumsum(self.lengths)[:-1]) if self.lengths else []

    @property
    def places(self) -> list[np.ndarray]:
        """Positions (T, R, D) of each recording."""
        return self._parts(self.positions)

    @property
    def presences(self) -> list[np.ndarray]:
        """Who is present (T, R) in each recording."""
        return self._parts(self.present)

    @property
    def y(self) -> list[np.ndarray]:
        """Labels (T,) of the steps of each recording; InputError where there are none, or each agent has its own."""
        if self.labels is None:
            what = "labels are those of agents: see agent_labels" if self.agent_labels is not None else "no label="
            raise InputError(f"these tracks have no labels of steps ({what}).")
        return self._parts(self.labels)

    @property
    def report(self) -> str:
        """What was found about the clocks, source by source."""
        return "\n".join(map(str, self.clock))


def tracks_of(
    frames: Sequence[TimedFrame],
    *,
    rate: float | None = None,
    agents: Sequence[Any] | None = None,
    longest_gap: float = 1.0,
    bridge: float = 0.0,
) -> Tracks:
    """Tracks of one source, from a frame for each agent, called by its name, whose columns are coordinates.

    >>> ann = TimedFrame("ann", np.array([0.0, 0.1, 0.2]), np.zeros((3, 2)), ("x", "y"))
    >>> bob = TimedFrame("bob", np.array([0.1, 0.2, 5.0]), np.ones((3, 2)), ("x", "y"))
    >>> tracks = tracks_of([ann, bob])
    >>> tracks
    <Tracks: 2 recordings, 4 steps at 10 Hz, 2 agents present at 75.0 %>
    >>> tracks.present.tolist(), tracks.times.tolist()
    ([[True, False], [True, True], [True, True], [False, True]], [0.0, 0.1, 0.2, 5.0])
    >>> print(tracks.report)
    10 steps a second, 4 steps
    4.8 s without a row from 0.2 to 5 s: split into 2 recordings
    """
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        raise InputError("there are no rows to make tracks of.")
    names = tuple(str(frame.name) for frame in frames) if agents is None else tuple(map(str, agents))
    strangers = sorted({str(frame.name) for frame in frames} - set(names))
    if strangers or len(set(names)) < len(names):
        raise InputError(f"agents must be different and hold everybody in the rows; missing: {strangers}.")
    if not bridge >= 0:
        raise InputError(f"bridge must be a non-negative number of seconds, got {bridge!r}.")
    seconds = _on_one_clock(frames)
    period = 1.0 / clock_rate(seconds, rate)
    who = np.repeat([names.index(str(frame.name)) for frame in frames], [len(frame) for frame in frames])
    times, values = np.concatenate(seconds), np.concatenate([frame.values for frame in frames])
    order = np.argsort(times, kind="stable")
    times, who, values = times[order], who[order], values[order]
    breaks = gap_places(times, max(longest_gap, 1.5 * period))
    starts = np.array([0, *breaks.tolist()])
    steps = np.empty(len(times), np.int64)
    off, lengths, first = np.empty(len(times)), [], 0
    grid = []
    for start, stop in pairwise([*starts.tolist(), len(times)]):
        exact = (times[start:stop] - times[start]) / period
        own = np.floor(exact + 0.5).astype(np.int64)
        off[start:stop], steps[start:stop] = np.abs(exact - own), own + first
        lengths.append(int(own.max()) + 1)
        grid.append(times[start] + np.arange(lengths[-1]) * period)
        first += lengths[-1]
    irregular = int((off > _IRREGULAR).sum())
    if rate is None and irregular > _MANY * len(times):
        raise InputError(
            f"the clock is not regular: {irregular:,} of {len(times):,} rows lie more than a quarter of a step from "
            f"the steps of {1 / period:.4g} a second that most rows suggest. Say rate=: rows go to its nearest step."
        )
    crowded = _crowded(steps, who, times, names)
    positions = np.full((first, len(names), values.shape[1]), np.nan)
    positions[steps, who] = values
    heard = np.zeros(first, bool)
    heard[steps] = True
    labels, agent_labels = _labels(frames, order, steps, who, positions.shape[:2])
    lacking = ~np.isfinite(positions).all(axis=2)
    positions[lacking] = np.nan
    bridged = _bridge(positions, lengths, bridge / period) if bridge else 0
    report = ClockReport(
        1.0 / period,
        first,
        int((~heard).sum()),
        irregular,
        crowded,
        int((~np.isfinite(values).all(axis=1)).sum()),
        bridged,
        tuple((float(times[k - 1]), float(times[k])) for k in breaks),
    )
    present = np.isfinite(positions).all(axis=2)
    axes = frames[0].columns
    when = np.concatenate(grid).round(9)
    return Tracks(
        positions, present, when, tuple(lengths), names, axes, 1.0 / period, labels, agent_labels, (report,)
    )


def join_tracks(several: Sequence[Tracks], *, agents: Sequence[Any] | None = None) -> Tracks:
    """Tracks of several sources as one; agents are all that occur, in the order in which they do.

    >>> one = tracks_of([TimedFrame("ann", np.array([0.0, 0.1]), np.zeros((2, 1)), ("x",))])
    >>> two = tracks_of([TimedFrame("bob", np.array([0.0, 0.1]), np.zeros((2, 1)), ("x",))])
    >>> join_tracks([one, two]).present.tolist()
    [[True, False], [True, False], [False, True], [False, True]]
    """
    if len(several) == 1 and agents is None:
        return several[0]
    names = (
        tuple(dict.fromkeys(a for own in several for a in own.agents)) if agents is None else tuple(map(str, agents))
    )
    rates = [own.rate for own in several]
    if not np.allclose(rates, rates[0], rtol=1e-3):
        shown = ", ".join(f"{rate:.6g}" for rate in rates)
        raise InputError(f"the recordings have different rates, {shown} steps a second. Say rate= for all of them.")
    labelled = all(own.agent_labels is not None for own in several)
    parts, seen, told = [], [], []
    for own in several:
        at = [names.index(agent) for agent in own.agents]
        places = np.full((len(own.times), len(names), own.positions.shape[2]), np.nan)
        here = np.zeros(places.shape[:2], bool)
        words = np.full(places.shape[:2], None, dtype=object)
        places[:, at], here[:, at] = own.positions, own.present
        if own.agent_labels is not None:
            words[:, at] = own.agent_labels
        parts.append(places)
        seen.append(here)
        told.append(words)
    labels = [own.labels for own in several if own.labels is not None]
    return Tracks(
        np.concatenate(parts),
        np.concatenate(seen),
        np.concatenate([own.times for own in several]),
        tuple(n for own in several for n in own.lengths),
        names,
        several[0].axes,
        float(np.mean(rates)) if rates.count(rates[0]) < len(rates) else rates[0],
        np.concatenate(labels) if len(labels) == len(several) else None,
        np.concatenate(told) if labelled else None,
        tuple(report for own in several for report in own.clock),
        tuple(name for own in several for name in own.groups),
    )


def _on_one_clock(frames: Sequence[TimedFrame]) -> list[np.ndarray]:
    """Times of all frames; those that were dates count from the earliest one."""
    epochs = [frame.epoch for frame in frames if frame.epoch is not None]
    if not epochs:
        return [frame.seconds for frame in frames]
    if len(epochs) < len(frames):
        raise InputError("some times are dates and some are numbers, which have no clock in common.")
    first = min(epochs)
    return [frame.seconds + (epoch - first) for frame, epoch in zip(frames, epochs, strict=True)]


def clock_rate(seconds: Sequence[np.ndarray], given: float | None = None) -> float:
    """Steps a second: given, or how many of the usual distance between rows of one agent there are in all.

    >>> clock_rate([np.array([0.0, 0.02, 0.04]), np.array([5.0, 5.04])])
    50.0
    """
    if given is not None:
        if not (np.isfinite(given) and given > 0):
            raise InputError(f"rate must be a number of steps a second above 0, got {given!r}.")
        return float(given)
    distances = np.concatenate([np.diff(own) for own in seconds])
    distances = distances[distances > 0]
    if not len(distances):
        raise InputError("no agent has two rows at different times, so nobody knows how long a step is. Say rate=.")
    # a frame that was lost makes two steps of one: counted so, jitter of single rows cancels in the sum
    steps = np.floor(distances / np.median(distances) + 0.5)
    near = (steps >= 1) & (steps <= 50)
    rate = float(steps[near].sum() / distances[near].sum())
    whole = round(rate)
    return float(whole) if whole and abs(rate - whole) < 1e-4 * whole else rate


def _crowded(steps: np.ndarray, who: np.ndarray, times: np.ndarray, names: Sequence[str]) -> int:
    """How many rows share agent and step with a later one; InputError where they share the time, too."""
    order = np.lexsort((times, who, steps))
    same = (np.diff(steps[order]) == 0) & (np.diff(who[order]) == 0)
    twice = np.flatnonzero(same & (np.diff(times[order]) == 0))
    if len(twice):
        k = order[twice[0]]
        raise InputError(f"agent {names[who[k]]!r} has two rows at {times[k]:.6g} s. Which is it? Leave one out.")
    return int(same.sum())


def _labels(
    frames: Sequence[TimedFrame], order: np.ndarray, steps: np.ndarray, who: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels (N,) of steps, None where rows of one step differ, and labels (N, R) of agents."""
    known = [frame.labels for frame in frames if frame.labels is not None]
    if len(known) < len(frames):
        return None, None
    said = np.concatenate(known)[order]
    each = np.full(shape, None, dtype=object)
    each[steps, who] = said
    found: list[Any] = [None] * shape[0]
    for step, label in zip(steps.tolist(), said.tolist(), strict=True):
        if label is None:
            continue
        if found[step] is not None and found[step] != label:
            return None, each
        found[step] = label
    return np.array([*found, None], dtype=object)[:-1], each


def _bridge(positions: np.ndarray, lengths: Sequence[int], longest: float) -> int:
    """Put absences of at most ``longest`` steps, between two steps at which an agent is seen, on a line; how many."""
    count, first = 0, 0
    for length in lengths:
        for r in range(positions.shape[1]):
            own = positions[first : first + length, r]
            seen = np.flatnonzero(np.isfinite(own).all(axis=1))
            for left, right in pairwise(seen.tolist()):
                if 1 < right - left <= longest + 1 + 1e-9:
                    share = (np.arange(left + 1, right) - left)[:, None] / (right - left)
                    own[left + 1 : right] = own[left] + share * (own[right] - own[left])
                    count += right - left - 1
        first += length
    return count
