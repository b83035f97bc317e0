"""Recordings of sensors from files: CSV with time stamps, and the chest accelerometers of fifteen people's days.

`read_recordings` opens what `crfield.data.timed_frames` parses. `read_chest` reads the arrays of one accelerometer on
the chest at 52 Hz (Casale, Pujol & Radeva 2012, *Personalization and user verification in wearable systems using
biometric walking patterns*; UCI 287): one archive a person, samples and a label for each, 0 where there is none.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from crfield.data.timed_frames import TimedFrame, parse_timed
from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, read_bytes, read_text

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
            frames = [TimedFrame(stem, f.seconds, f.values, f.columns, f.labels) for f in frames]
        out += frames
    return out


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
