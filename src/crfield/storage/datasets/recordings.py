"""Recordings from files: tables with time stamps, tracks of agents, and the chest accelerometers of people's days.

`read_recordings` opens what `crfield.data.timed_frames` parses, `read_tracks` what `crfield.data.clocks.tracks` makes
arrays of. `read_chest` reads the arrays of one accelerometer on
the chest at 52 Hz (Casale, Pujol & Radeva 2012, *Personalization and user verification in wearable systems using
biometric walking patterns*; UCI 287): one archive a person, samples and a label for each, 0 where there is none.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.data.clocks.long_table import tracks_of_table
from crfield.data.clocks.tracks import Tracks, join_tracks
from crfield.data.timed_frames import TimedFrame, parse_timed
from crfield.errors import FormatError, InputError
from crfield.storage.files import Source, name_of, read_bytes, read_text
from crfield.storage.tables import read_table

CHEST_RATE = 52.0
CHEST_ACTIVITIES = (
    "computer",
    "stand up, walk, stairs",
    "stand",
    "walk",
    "stairs",
    "walk and talk",
    "talk, standing",
)


def read_recordings(
    sources: Source | Iterable[Source], *, columns: Sequence[str | int] | None = None, **options: Any
) -> list[TimedFrame]:
    r"""The recordings of one or several CSV files; options as of `crfield.data.timed_frames.parse_timed`.

    A file without a column ``recording`` is one recording, called by its name.

    >>> read_recordings(io.StringIO("t,x,y\n0,1,2\n0.02,1.5,2.5\n"), time="t")
    [TimedFrame('<stream>', 2 rows of x, y, 0 … 0.02 s)]
    """
    single = isinstance(sources, str | os.PathLike) or hasattr(sources, "read")
    several: list[Any] = [sources] if single else list(sources)  # type: ignore[arg-type]
    out = []
    for source in several:
        name = name_of(source)
        frames = parse_timed(read_text(source), columns=columns, file=name, **options)
        if options.get("recording") is None:
            stem = os.path.splitext(os.path.basename(name))[0]
            frames = [replace(frame, name=stem) for frame in frames]
        out += frames
    return out


def read_tracks(
    sources: Source | Iterable[Source],
    *,
    time: str | int = "t",
    agent: str | int = "id",
    position: Sequence[str | int] = ("x", "y"),
    label: str | int | None = None,
    group: str | int | None = None,
    unit: str = "s",
    rate: float | None = None,
    agents: Sequence[Any] | None = None,
    longest_gap: float = 1.0,
    bridge: float = 0.0,
) -> Tracks:
    r"""Tracks of agents that come and go, from one or several tables with a row for each time and agent.

    Files are CSV, or Parquet where pyarrow, polars or pandas is installed. ``time``, ``agent``, ``position`` and
    ``label`` name columns, ``group`` one that tells recordings apart (a game, a day), each of which has a clock of
    its own; times are numbers in ``unit`` or ISO dates. Positions are (N, R, D), NaN where an agent
    has no row or no position, with ``present`` beside them; the ``rate`` is that of the clock unless it is given, and
    recordings are split where nobody was heard of for longer than ``longest_gap`` seconds. Up to ``bridge`` seconds
    without a position are put on a line; ``agents`` gives their order, and may name some who never come.
    ``tracks.report`` tells what became of the rows; `crfield.data.clocks.tracks` says what is decided.

    >>> table = "t,id,x,y,what\n0,a,0,0,play\n0,b,1,1,play\n0.5,a,0,1,play\n1,a,0,2,rest\n1,b,,,rest\n"
    >>> tracks = read_tracks(io.StringIO(table), label="what")
    >>> tracks
    <Tracks: 1 recording, 3 steps at 2 Hz, 2 agents present at 66.7 %, labels>
    >>> tracks.positions[:, 1].tolist(), tracks.labels.tolist()
    ([[1.0, 1.0], [nan, nan], [nan, nan]], ['play', 'play', 'rest'])
    """
    single = isinstance(sources, str | os.PathLike) or hasattr(sources, "read")
    several: list[Any] = [sources] if single else list(sources)  # type: ignore[arg-type]
    if not several:
        raise InputError("there are no files to read tracks from.")
    options: dict[str, Any] = {
        "time": time,
        "agent": agent,
        "position": position,
        "label": label,
        "group": group,
        "unit": unit,
        "rate": rate,
        "agents": agents,
        "longest_gap": longest_gap,
        "bridge": bridge,
    }
    words = {part for part in (agent, label, group) if isinstance(part, int)}
    named = True if any(isinstance(part, str) for part in (time, agent, label, group, *position)) else None
    tables = [read_table(source, header=named, words=words) for source in several]
    return join_tracks([tracks_of_table(table, **options)[0] for table in tables])


def read_chest(folder: str | os.PathLike[str], *, people: Iterable[int] = range(1, 11)) -> list[TimedFrame]:
    """The recordings ``chest_acc_01.npz`` … of a folder; labels are words, None where there is none."""
    frames = []
    for person in people:
        path = os.path.join(folder, f"chest_acc_{person:02d}.npz")
        try:
            with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as archive:
                samples, codes = np.asarray(archive["xyz"]), np.asarray(archive["label"])
        except (KeyError, ValueError, zipfile.BadZipFile) as error:
            raise FormatError(f"not the arrays xyz and label that were expected: {error}.", file=path) from None
        if samples.ndim != 2 or samples.shape[1] != 3 or codes.shape != (len(samples),):
            raise FormatError(f"xyz must be (T, 3) and label (T,), got {samples.shape} and {codes.shape}.", file=path)
        if len(codes) and (codes.min() < 0 or codes.max() > len(CHEST_ACTIVITIES)):
            raise FormatError(f"labels must lie in 0 … {len(CHEST_ACTIVITIES)}.", file=path)
        words = np.array([None, *CHEST_ACTIVITIES], dtype=object)
        seconds = np.arange(len(samples)) / CHEST_RATE
        frames.append(TimedFrame(f"{person:02d}", seconds, samples.astype(np.float64), ("x", "y", "z"), words[codes]))
    return frames
