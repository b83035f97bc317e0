"""Columns of readings that do not describe the place in which they were recorded.

A model that has learnt "antenna 2 is the chair" knows one room. What can be said of readings without naming an
antenna, and without knowing how strong it is where one sits? These columns are the same, to rounding, after any
exchange of the senders, any constant added to the strengths of a sender, and any constant added to its phases; and
they take any number of senders:

    own strength     strength less the sender's mean in the recording; its rank among the sender's own; how it changes
                     from one reading of the sender to the next
    order            which part of the senders heard nearby is, on its own scale, stronger than the present one
    senders          how many are heard, how evenly, how often they change, whether those after the reading are those
                     before it, and whether they are the usual ones of the recording
    usual values     mean of each value over all readings *of the present sender* in the recording: an antenna over a
                     bed hears people who lie, one beside a chair hears nobody who does, whatever their numbers are
    phase            1 − cos of its turn since the sender last heard on the same channel: a tag that is heard at
                     900 MHz turns it once around on 16 cm of way, so it tells who keeps still from who walks
    time             since the sender was last heard, since another one was, and how many readings there are for this
                     recording

Scales and usual values are taken over the whole recording, so these columns are for offline use, as `relative` ones
of `SensorFeatures` are. A recording that shows one activity only has little to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crfield.data.clocks.readings import Readings
from crfield.features.sensors.readings import Column, means_about

FLOOR = 0.1  # dB; keeps the root of a variance that is nothing but rounding from being more
_SAME = 1e-6  # strengths that are nearer than this are equal


def travelling_columns(readings: Readings, *, names: Sequence[str], radii: Sequence[float]) -> list[Column]:
    """The columns that travel, besides those of `room_columns` that do.

    >>> some = Readings(seconds=[0.0, 1.0, 2.0], values=np.eye(3), sender=[0, 0, 1], strength=[-60.0, -58.0, -70.0])
    >>> own, rank, *_ = travelling_columns(some, names=("front", "up", "side"), radii=(5.0,))
    >>> own.name, own.values.tolist(), rank.values.round(2).tolist()
    ('strength, own scale', [-1.0, 1.0, 0.0], [0.25, 0.75, 0.5])
    """
    seconds, n = readings.seconds, len(readings)
    who = np.unique(readings.sender, return_inverse=True)[1].reshape(n)
    heard = np.eye(who.max(initial=-1) + 1)[who]  # (n, S)
    times = np.maximum(heard.sum(axis=0), 1.0)  # (S,)
    level, before = _own_level(readings.strength, who), _last_of(who)
    change = np.where(before >= 0, level - level[before], 0.0)
    switched = np.diff(who, prepend=who[:1]) != 0
    usual = (heard.T @ readings.values / times[:, None])[who]  # (n, D)
    began = np.maximum.accumulate(np.where(switched, np.arange(n), 0)) if n else np.zeros(0, dtype=np.int64)
    made: list[Column] = []

    def add(name: str, column: np.ndarray) -> None:
        made.append(Column(name, column, False))

    add("strength, own scale", level)
    add("strength, own rank", _own_rank(readings.strength, who))
    add("strength change since the sender's last", change)
    add("time since the sender's last", np.log1p(seconds - seconds[np.maximum(before, 0)]))
    add("time since another sender", np.log1p(seconds - seconds[np.maximum(began - 1, 0)]))
    add("share of the sender in the recording", (times / max(n, 1))[who])
    for d, name in enumerate(names):
        add(f"{name}, usual of the sender", usual[:, d])
    turn, known = _phase_turn(readings, who)
    if turn is not None:
        add("phase turn since the sender's last", turn)
    # Everything that is averaged over windows, in one table.
    parts = {
        "level": level,
        "square": level**2,
        "change": np.abs(change),
        "changed": before >= 0,
        "switched": switched,
        "turn": np.zeros(n) if turn is None else turn,
        "known": known,
    }
    at = {name: k for k, name in enumerate(parts)}
    first, width, senders = len(parts), usual.shape[1], heard.shape[1]
    table = np.concatenate([np.stack([*parts.values()], axis=1), usual, heard, heard * level[:, None]], axis=1)
    shares = slice(first + width, first + width + senders)
    for radius in radii:
        span = f"±{radius:g}s"
        mean, count = means_about(seconds, table, before=radius, after=radius)
        past, _ = means_about(seconds, table, before=radius, after=0.0)
        future, _ = means_about(seconds, table, before=0.0, after=radius)

        def of(name: str, mean: np.ndarray = mean) -> np.ndarray:
            return np.asarray(mean[:, at[name]])

        share = mean[:, shares]
        present = share * count[:, None] > 0.5  # (n, S)
        add(f"strength mean, own scale, {span}", of("level"))
        spread = np.maximum(of("square") - of("level") ** 2, 0.0)
        add(f"strength deviation, own scale, {span}", np.sqrt(spread + FLOOR**2))
        add(f"strength after less before, own scale, {span}", future[:, 0] - past[:, 0])
        add(f"strength change, {span}", _per(of("change"), of("changed"), count))
        levels = _per(mean[:, first + width + senders :], share, count[:, None])
        add(f"stronger senders, {span}", _stronger(levels, present, who))
        add(f"senders, {span}", present.sum(axis=1).astype(np.float64))
        add(f"evenness of senders, {span}", -(share * np.log(np.where(present, share, 1.0))).sum(axis=1))
        add(f"share of the sender, {span}", share[np.arange(n), who])
        add(f"changes of sender, {span}", of("switched"))
        add(f"senders after as before, {span}", np.minimum(past[:, shares], future[:, shares]).sum(axis=1))
        add(f"senders as usual, {span}", np.minimum(share, times / max(n, 1)).sum(axis=1))
        for d, name in enumerate(names):
            add(f"{name}, usual of the senders, {span}", mean[:, first + d])
        for d, name in enumerate(names):
            turned = future[:, first + d] - past[:, first + d]
            add(f"{name}, usual of the senders after less before, {span}", turned)
        if turn is not None:
            add(f"phase turn, {span}", _per(of("turn"), of("known"), count))
        many = np.log(np.maximum(count, 1))
        add(f"readings for this recording, {span}", many - (many.mean() if n else 0.0))
    return made


def _own_level(strength: np.ndarray, who: np.ndarray) -> np.ndarray:
    """(n,) strength less the sender's mean, summed from its first reading on, so that no large numbers cancel."""
    _, first = np.unique(who, return_index=True)
    moved = strength - strength[first][who]
    counts = np.maximum(np.bincount(who), 1)
    return np.asarray(moved - (np.bincount(who, moved) / counts)[who])


def _own_rank(strength: np.ndarray, who: np.ndarray) -> np.ndarray:
    """(n,) which part of the sender's readings is weaker; equal ones count half."""
    rank = np.zeros(len(who))
    for k in np.unique(who):
        own = strength[who == k]
        ordered = np.sort(own)
        weaker, up_to = (np.searchsorted(ordered, own, side=side) for side in ("left", "right"))
        rank[who == k] = (weaker + up_to) / (2.0 * len(own))
    return rank


def _last_of(key: np.ndarray) -> np.ndarray:
    """(n,) where the same key was last met, -1 where it was not.

    >>> _last_of(np.array([4, 2, 4, 4, 2])).tolist()
    [-1, -1, 0, 2, 1]
    """
    order = np.argsort(key, kind="stable")
    found = np.full(len(key), -1)
    same = key[order[1:]] == key[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def _phase_turn(readings: Readings, who: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """(n,) 1 − cos of the turn since the last reading of the sender on the channel, and whether there was one."""
    n = len(readings)
    if readings.phase is None:
        return None, np.zeros(n)
    key = who
    if readings.channel is not None:
        channel = np.unique(readings.channel, return_inverse=True)[1].reshape(n)
        key = who * (channel.max(initial=0) + 1) + channel
    last = _last_of(key)
    return np.where(last >= 0, 1.0 - np.cos(readings.phase - readings.phase[last]), 0.0), (last >= 0).astype(float)


def _per(total: np.ndarray, share: np.ndarray, count: np.ndarray) -> np.ndarray:
    """total / share where there is at least one reading in it, else 0."""
    some = share * count > 0.5
    return np.where(some, total / np.where(some, share, 1.0), 0.0)


def _stronger(levels: np.ndarray, present: np.ndarray, who: np.ndarray) -> np.ndarray:
    """(n,) which part of the other senders present is stronger than the reading's own; half where there is none."""
    own = levels[np.arange(len(who)), who]
    above = (present & (levels > own[:, None] + _SAME)).sum(axis=1)
    others = present.sum(axis=1) - 1
    return np.where(others > 0, above / np.maximum(others, 1), 0.5)
