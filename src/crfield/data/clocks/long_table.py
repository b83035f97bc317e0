r"""Tracks of a long table, a row for each time and agent, and where its rows went.

A column may say to which recording a row belongs: a game, a day, a person. The rows of each are put on steps by
themselves (`crfield.data.clocks.tracks` says how), so their clocks may begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.data.clocks.tracks import Tracks, join_tracks, tracks_of
from crfield.data.tables import Table
from crfield.data.timed_frames import timed_frames
from crfield.errors import InputError


def tracks_of_table(
    table: Table,
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
) -> tuple[Tracks, np.ndarray]:
    r"""The tracks of a table, and for each of its rows the step (n,) that it belongs to; options as of `tracks_of`.

    >>> from crfield.data.tables import parse_table
    >>> rows = "game,t,id,x,y\na,0,1,0,0\nb,0,1,5,5\na,.5,1,0,1\nb,.5,1,5,6\nb,1,1,5,7\n"
    >>> tracks, steps = tracks_of_table(parse_table(rows), group="game")
    >>> tracks.lengths, tracks.groups, steps.tolist()
    ((2, 3), ('a', 'b'), [0, 2, 1, 3, 4])
    """
    whose = table.column(agent)
    table.owners(whose)
    owner = [""] * len(table) if group is None else [str(own) for own in table.owners(table.column(group))]
    steps = np.zeros(len(table), np.int64)
    found, first = [], 0
    for name in dict.fromkeys(owner):
        rows = np.flatnonzero([own == name for own in owner])
        part = table.part(rows)
        frames = timed_frames(part, time=time, label=label, recording=agent, columns=position, unit=unit)
        try:
            own = tracks_of(frames, rate=rate, agents=agents, longest_gap=longest_gap, bridge=bridge)
        except InputError as error:
            if group is None:
                raise
            raise InputError(f"{group} {name}: {error}") from None
        own = own if group is None else replace(own, groups=(name,) * len(own))
        steps[rows] = first + _places(part.times(part.column(time), unit), own)
        found.append(own)
        first += len(own.times)
    if not found:
        raise table.fault("there are no rows to make tracks of.")
    return join_tracks(found), steps


def _places(clock: tuple[np.ndarray, float | None], tracks: Tracks) -> np.ndarray:
    """(n,) the steps of rows at some seconds; dates count from the first of them, as they do in tracks."""
    seconds, origin = clock
    seconds = seconds if origin is None else seconds - seconds.min()
    offsets = np.concatenate([[0], np.cumsum(tracks.lengths)])
    begun = tracks.times[offsets[:-1]]
    at = np.maximum(np.searchsorted(begun, seconds + 1e-6, side="right") - 1, 0)
    within = np.floor((seconds - begun[at]) * tracks.rate + 0.5).astype(np.int64)
    return np.asarray(offsets[at] + np.clip(within, 0, np.array(tracks.lengths)[at] - 1))
