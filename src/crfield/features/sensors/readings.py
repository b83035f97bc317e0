"""Columns of readings that come when they come, about each reading.

Where nothing comes at equal steps, a window is a stretch of time and not a number of samples: for the reading at time
t all readings in t − before … t + after, of which there is at least the reading itself. Means over such windows are
differences of running sums, so all of them cost one pass whatever their width.

What a window says: mean and deviation of each value, the share of each sender (an antenna, a beacon) and how strong
it was, how many readings there were; and how the time after the reading differs from the time before it, which is
what a change of activity looks like.

Whatever names a sender or tells a strength *describes the place*: exchange two antennas, or put one of them a metre
further away, and it is another column. In the place where a model was trained these are the best columns; in another
one they mislead it. They are marked, and `crfield.features.sensors.places` has columns of which this is not so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crfield.errors import ShapeError

RADII = (1.0, 3.0, 8.0, 20.0, 60.0)  # seconds
WEAKEST = -75.0  # dB


class Column(NamedTuple):
    """A column with its name, and whether it describes the place in which it was recorded."""

    name: str
    values: np.ndarray  # (n,)
    place: bool


def means_about(
    seconds: np.ndarray, values: np.ndarray, *, before: float, after: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, D) of the readings in t − before … t + after about each reading, and their number (n,).

    >>> means_about(np.array([0.0, 1.0, 5.0]), np.array([[1.0], [3.0], [9.0]]), before=1.0, after=0.0)
    (array([[1.],
           [2.],
           [9.]]), array([1, 2, 1]))
    """
    seconds, values = np.asarray(seconds, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or len(values) != len(seconds):
        raise ShapeError(f"{len(seconds)} times go with values ({len(seconds)}, D), got {values.shape}.")
    low = np.searchsorted(seconds, seconds - before - 1e-9, side="left")
    high = np.searchsorted(seconds, seconds + after + 1e-9, side="right")
    # Measured from the mean, so that running sums of a long recording keep their digits.
    centre = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values - centre, axis=0)])
    count = high - low
    return centre + (sums[high] - sums[low]) / np.maximum(count, 1)[:, None], count


def reading_columns(
    seconds: np.ndarray,
    values: np.ndarray,
    sender: np.ndarray,
    strength: np.ndarray,
    *,
    names: Sequence[str],
    n_senders: int,
    radii: Sequence[float] = RADII,
    weakest: float = WEAKEST,
) -> tuple[np.ndarray, list[str]]:
    """(n, K) columns of readings with values (n, D), the number of the sender and its strength, and K names.

    ``weakest`` is the strength that counts as nothing: strengths are measured from it. Many of these columns describe
    the place: `ReadingFeatures` knows which.

    >>> columns, told = reading_columns(np.array([0.0, 0.5, 9.0]), np.eye(3), np.array([0, 0, 1]), np.full(3, -60.0),
    ...     names=("front", "up", "side"), n_senders=2, radii=(1.0,))
    >>> columns.shape == (3, len(told)), told[:4], float(columns[0, told.index("share of sender 1, ±1s")])
    (True, ['front', 'up', 'side', 'strength'], 1.0)
    """
    made = room_columns(
        seconds, values, sender, strength, names=names, n_senders=n_senders, radii=radii, weakest=weakest
    )
    told = [column.name for column in made]
    return np.stack([column.values for column in made], axis=1) if len(seconds) else np.zeros((0, len(told))), told


def room_columns(
    seconds: np.ndarray,
    values: np.ndarray,
    sender: np.ndarray,
    strength: np.ndarray,
    *,
    names: Sequence[str],
    n_senders: int,
    radii: Sequence[float],
    weakest: float,
) -> list[Column]:
    """The columns of `reading_columns`, each with its mark."""
    seconds, values = np.asarray(seconds, dtype=np.float64), np.asarray(values, dtype=np.float64)
    level = np.asarray(strength, dtype=np.float64) - weakest
    heard = np.eye(n_senders)[np.asarray(sender)]
    width, made = values.shape[1], []

    def add(name: str, column: np.ndarray, *, place: bool = False) -> None:
        made.append(Column(name, column, place))

    for d, name in enumerate(names):
        add(name, values[:, d])
    add("strength", level, place=True)
    add("time since the last", np.log1p(np.diff(seconds, prepend=seconds[:1])))
    add("time to the next", np.log1p(np.diff(seconds, append=seconds[-1:])))
    for k in range(n_senders):
        add(f"sender {k + 1}", heard[:, k], place=True)
    table = np.concatenate(
        [values, values**2, level[:, None], level[:, None] ** 2, heard, heard * level[:, None]], axis=1
    )
    at_level = 2 * width
    at_heard, at_strength = at_level + 2, at_level + 2 + n_senders
    for radius in radii:
        span = f"±{radius:g}s"
        mean, count = means_about(seconds, table, before=radius, after=radius)
        for d, name in enumerate(names):
            add(f"{name} mean, {span}", mean[:, d])
        for d, name in enumerate(names):
            spread = np.sqrt(np.maximum(mean[:, width + d] - mean[:, d] ** 2, 0.0))
            add(f"{name} deviation, {span}", spread)
        for one, other in ((0, 1), (width - 1, 1)):
            if width > 1 and one != other:
                add(f"{names[one]} to {names[other]} angle, {span}", np.arctan2(mean[:, one], mean[:, other]))
        add(f"strength mean, {span}", mean[:, at_level], place=True)
        spread = np.sqrt(np.maximum(mean[:, at_level + 1] - mean[:, at_level] ** 2, 0.0))
        add(f"strength deviation, {span}", spread, place=True)
        for k in range(n_senders):
            share, total = mean[:, at_heard + k], mean[:, at_strength + k]
            add(f"share of sender {k + 1}, {span}", share, place=True)
            add(f"strength of sender {k + 1} by share, {span}", total, place=True)
            own = np.where(share > 1e-6, total / np.maximum(share, 1e-6), 0.0)
            add(f"strength of sender {k + 1}, {span}", own, place=True)
        add(f"readings, {span}", np.log(count))
        past, n_past = means_about(seconds, table, before=radius, after=0.0)
        future, n_future = means_about(seconds, table, before=0.0, after=radius)
        turned = [*names, *(f"share of sender {k + 1}" for k in range(n_senders)), "strength"]
        where = [*range(width), *range(at_heard, at_heard + n_senders), at_level]
        for name, d in zip(turned, where, strict=True):
            add(f"{name} after less before, {span}", future[:, d] - past[:, d], place=d >= width)
        add(f"readings after less before, {span}", np.log(n_future) - np.log(n_past))
    return made
