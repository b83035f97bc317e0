"""Readings that come when they come: who heard them, how strong, and what was measured then.

A tag, a beacon or a phone is heard by one of several *senders* (antennas, access points), at moments that nobody
chose. `Readings` is one recording of them, in the order of time. ``values`` are what the thing itself measured, such
as the acceleration of who wears it; the rest is about the way between the two. ``phase`` can be compared between
readings of one sender on one ``channel`` only: readers hop between frequencies, and each hop turns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class Readings:
    """One recording of n readings, in the order of time.

    ``readings[rows]`` has some of the readings; rows are a slice, a mask or an array of numbers that rise.

    >>> some = Readings(seconds=[0, 0.5, 9], values=[[1], [2], [3]], sender=[0, 0, 1], strength=[-60, -61, -55])
    >>> some
    <Readings: 3 in 9 s by 2 senders, 1 value each>
    >>> len(some[some.sender == 0])
    2
    >>> Readings(seconds=[1, 0], values=[[1], [2]], sender=[0, 0], strength=[-60, -61])
    Traceback (most recent call last):
    crfield.errors.InputError: readings must be in the order of time, but reading 1 is before reading 0. Sort ...
    """

    seconds: np.ndarray  # (n,)
    values: np.ndarray  # (n, D)
    sender: np.ndarray  # (n,) whole numbers from 0
    strength: np.ndarray  # (n,) dB
    phase: np.ndarray | None = None  # (n,) radians
    channel: np.ndarray | None = None  # (n,) what the phase belongs to, such as the frequency; one for all if None

    def __post_init__(self) -> None:
        n = np.asarray(self.seconds).size
        for name in ("seconds", "values", "strength", "phase", "channel"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _numbers(name, getattr(self, name), n))
        object.__setattr__(self, "sender", _senders(self.sender, n))
        early = np.flatnonzero(np.diff(self.seconds) < 0)
        if len(early):
            raise InputError(
                f"readings must be in the order of time, but reading {early[0] + 1} is before reading {early[0]}. "
                "Sort them first."
            )

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, rows: Any) -> Readings:
        parts = (self.seconds, self.values, self.sender, self.strength, self.phase, self.channel)
        return Readings(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        lasts = self.seconds[-1] - self.seconds[0] if len(self) else 0.0
        senders, wide = len(np.unique(self.sender)), self.values.shape[1]
        return (
            f"<Readings: {len(self):,} in {lasts:.6g} s by {senders} sender{'s' if senders != 1 else ''}, "
            f"{wide} value{'s' if wide != 1 else ''} each>"
        )


def _numbers(name: str, given: Any, n: int) -> np.ndarray:
    array = np.asarray(given, dtype=np.float64)
    wanted = 2 if name == "values" else 1
    if array.ndim != wanted or len(array) != n:
        shape = f"({n}, D)" if wanted == 2 else f"({n},)"
        raise ShapeError(f"{name} of {n} readings must be {shape}, got {array.shape}.")
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array).reshape(n, -1).all(axis=1))[0])
        raise InputError(f"{name} must be finite, but reading {where} has NaN or infinity. Leave such readings out.")
    return array


def _senders(given: Any, n: int) -> np.ndarray:
    array = np.asarray(given)
    whole = array.size == 0 or (array.dtype.kind in "iuf" and bool((array == np.floor(array)).all()))
    if array.shape != (n,) or not whole or (array < 0).any():
        raise InputError(
            f"sender of {n} readings must be {n} whole numbers from 0, got {array.shape} of type {array.dtype}. "
            "Names become numbers by np.unique(names, return_inverse=True)[1], over all recordings together."
        )
    return array.astype(np.int64)
