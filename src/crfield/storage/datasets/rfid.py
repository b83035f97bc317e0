"""Trials of older people with a batteryless sensor, as their archive holds them.

One text file for each trial, in a tar archive (Shinmoto Torres, Ranasinghe, Shi & Sample 2013, *Sensor enabled
wearable RFID technology for mitigating the risk of falls near beds*). A line is one reading: seconds, acceleration
along three axes in g, antenna, signal strength, phase, frequency, and the activity. Readings come when an antenna
hears the sensor, a few times a second or with gaps of minutes.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass

import numpy as np

from crfield.data.clocks.readings import Readings
from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, read_bytes
from crfield.storage.limits import allowed

ACTIVITIES = ("sit on bed", "sit on chair", "lying", "ambulating")
ANTENNAS = 4
COLUMNS = 9


@dataclass(frozen=True, eq=False)
class Trial:
    """The readings of one trial, in the order of time."""

    name: str
    seconds: np.ndarray  # (n,)
    acceleration: np.ndarray  # (n, 3) frontal, vertical, lateral
    antenna: np.ndarray  # (n,) 0 … 3
    strength: np.ndarray  # (n,)
    phase: np.ndarray  # (n,)
    activity: np.ndarray  # (n,) words of `ACTIVITIES`
    frequency: np.ndarray | None = None  # (n,) MHz; a phase belongs to one

    def readings(self) -> Readings:
        """The trial without its labels, as `ReadingFeatures` takes it."""
        return Readings(
            self.seconds, self.acceleration, self.antenna, self.strength, phase=self.phase, channel=self.frequency
        )


def read_rfid_trials(source: Source) -> list[Trial]:
    r"""The trials of an archive by name; FormatError where it is not what was expected. Nothing goes to disk.

    >>> stream, text = io.BytesIO(), b"0,0.3,1.0,-0.1,1,-63.5,2.4,924.25,1\n0.5,0.3,1.0,-0.1,2,-63,4.7,921.75,4\n"
    >>> with tarfile.open(fileobj=stream, mode="w") as archive:
    ...     entry = tarfile.TarInfo("set/d1p01M")
    ...     entry.size = len(text)
    ...     archive.addfile(entry, io.BytesIO(text))
    >>> _ = stream.seek(0)
    >>> [(trial.name, trial.antenna.tolist(), trial.activity.tolist()) for trial in read_rfid_trials(stream)]
    [('d1p01M', [0, 1], ['sit on bed', 'ambulating'])]
    """
    data, file = read_bytes(source), name_of(source)
    trials = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                name = entry.name.rpartition("/")[2]
                if entry.isfile() and name.startswith("d") and "." not in name:
                    if entry.size > allowed(len(data)):
                        raise FormatError(f"trial {name} claims {entry.size:,} bytes.", file=file)
                    content = archive.extractfile(entry)
                    trials.append(_trial(name, b"" if content is None else content.read(), file))
    except tarfile.TarError as error:
        raise FormatError(f"not the archive of trials that was expected: {error}.", file=file) from None
    if not trials:
        raise FormatError("the archive holds no trials (files named like d1p01M).", file=file)
    return sorted(trials, key=lambda trial: trial.name)


def _trial(name: str, content: bytes, file: str) -> Trial:
    try:
        table = np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2)
    except ValueError as error:
        raise FormatError(f"trial {name}: {error}.", file=file) from None
    if (
        table.shape[1:] != (COLUMNS,)
        or not np.isfinite(table).all()
        or not np.isin(table[:, 4], np.arange(1, ANTENNAS + 1)).all()
        or not np.isin(table[:, 8], np.arange(1, len(ACTIVITIES) + 1)).all()
    ):
        raise FormatError(
            f"trial {name} must have {COLUMNS} numbers in a line, antenna 1 … {ANTENNAS} the fifth and activity "
            f"1 … {len(ACTIVITIES)} the last.",
            file=file,
        )
    table = table[np.argsort(table[:, 0], kind="stable")]
    return Trial(
        name,
        table[:, 0],
        table[:, 1:4],
        table[:, 4].astype(np.int64) - 1,
        table[:, 5],
        table[:, 6],
        np.array(ACTIVITIES)[table[:, 8].astype(np.int64) - 1],
        table[:, 7],
    )
