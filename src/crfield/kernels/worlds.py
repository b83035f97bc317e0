"""Contract of the worlds' loops: a game of tag, a game of soccer, and the tracker behind a camera.

Every step of a world needs the one before, so these loops are compiled. All lengths are millimetres, times seconds.
Randomness is a 64-bit seed; the same seed gives the same game on either body, bit by bit.

A robot is a disc that can accelerate in any direction. With a wanted velocity w and one frame dt = 1 / rate,

    v ← v + clip(w − v)    |clip(·)| ≤ top_acceleration · dt        p ← p + v · dt

**Tag.** The seeker wants the nearest robot at top speed; the others want their target and brake for it, |w| =
min(top_speed, √(1.6 · top_acceleration · distance)), and take the next target within ``reach``. Robots move in a new
random order every frame. Who comes within diameter + gap of a seeker that does not pause is tagged: it becomes the
seeker in this frame if the seeker had moved before it, in the next one otherwise, and then pauses, for up to two
seconds longer while somebody is still that near. Targets are the corners of the field in an hourglass pattern (in
the seeker's own quadrant that corner of the quadrant which is furthest from the seeker), or uniform, but not within
``away`` of the seeker. Overlapping robots are pushed apart and turn to their right; who pauses stands firm, and who
bumps into it takes another target if the present one lies under it. A push comes on top of p ← p + v · dt: with
the overlap o = diameter − distance it is √1.01 · o / 2 for each, or √1.01 · o if the other one pauses, so the limits
of speed and acceleration hold where nobody touches, and not in a collision or at the edge, where v becomes 0.

**Tracker.** x ← x + v + α s, v ← v + β s, with the surprise s = measurement − (x + v), or 0 when nothing was seen.

Cost: O(T R²). Reference: Vail (2008, *Conditional random fields for activity recognition*), section 2.1.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice

MOST_STEPS = 1 << 32  # numbers of a game
MOST_ROBOTS = 1000
POSSESSION = ("us", "them", "loose")
ROLES = ("keeper", "carrier", "chaser", "receiver", "supporter", "marker")


class TagSteps(NamedTuple):
    """A game of tag."""

    positions: np.ndarray  # (T, R, 2)
    labels: np.ndarray  # (T,) int64, who seeks
    tags: int


class SoccerSteps(NamedTuple):
    """A game of soccer of n robots a side: columns 0 … n−1 are us, n … 2n−1 them, 2n the ball."""

    positions: np.ndarray  # (T, 2n + 1, 2)
    possession: np.ndarray  # (T,) int64, into POSSESSION
    carrier: np.ndarray  # (T,) int64, −1 when nobody has the ball at its feet
    roles: np.ndarray  # (T, 2n) int64, into ROLES
    goals: np.ndarray  # (2,) int64


def tag_steps(
    n_steps: int,
    n_robots: int,
    seed: int,
    *,
    hourglass: bool,
    field: tuple[float, float] = (3500.0, 4000.0),
    top_speed: float = 1500.0,
    top_acceleration: float = 3000.0,
    pause_steps: int = 300,
    diameter: float = 200.0,
    gap: float = 40.0,
    away: float = 1000.0,
    reach: float = 50.0,
    rate: float = 60.0,
    contact: bool = True,
) -> TagSteps:
    """Play tag for so many frames.

    >>> game = tag_steps(600, 3, 1, hourglass=True)
    >>> game.positions.shape, game.labels.shape, game.tags
    ((600, 3, 2), (600,), 2)
    """
    _check_size(n_steps, n_robots, fewest=2)
    _check_positive(
        field_x=field[0],
        field_y=field[1],
        top_speed=top_speed,
        top_acceleration=top_acceleration,
        diameter=diameter,
        reach=reach,
        rate=rate,
    )
    _check_not_negative(gap=gap, away=away, pause_steps=pause_steps)
    _check_room(n_robots, field, diameter)
    positions, labels = np.empty((n_steps, n_robots, 2)), np.empty(n_steps, np.int64)
    tags = choice.body("worlds").tag_steps(
        positions,
        labels,
        bool(hourglass),
        _seed(seed),
        0.5 * field[0],
        0.5 * field[1],
        float(top_speed),
        float(top_acceleration),
        int(pause_steps),
        float(diameter),
        float(gap),
        float(away),
        float(reach),
        float(rate),
        bool(contact),
    )
    return TagSteps(positions, labels, int(tags))


def soccer_steps(
    n_steps: int,
    n_players: int,
    seed: int,
    *,
    field: tuple[float, float] = (5400.0, 3600.0),
    goal: float = 700.0,
    top_speed: float = 1500.0,
    top_acceleration: float = 3000.0,
    kick_speed: float = 4000.0,
    friction: float = 500.0,
    diameter: float = 180.0,
    rate: float = 60.0,
) -> SoccerSteps:
    """Play soccer with so many robots a side; `crfield.kernels.reference.worlds_soccer` has the rules.

    >>> game = soccer_steps(600, 3, 1)
    >>> game.positions.shape, game.roles.shape
    ((600, 7, 2), (600, 6))
    """
    _check_size(n_steps, n_players, fewest=2)
    _check_positive(
        field_x=field[0],
        field_y=field[1],
        goal=goal,
        top_speed=top_speed,
        top_acceleration=top_acceleration,
        kick_speed=kick_speed,
        friction=friction,
        diameter=diameter,
        rate=rate,
    )
    _check_room(2 * n_players, field, diameter)
    made = SoccerSteps(
        np.empty((n_steps, 2 * n_players + 1, 2)),
        np.empty(n_steps, np.int64),
        np.empty(n_steps, np.int64),
        np.empty((n_steps, 2 * n_players), np.int64),
        np.zeros(2, np.int64),
    )
    choice.body("worlds").soccer_steps(
        *made,
        _seed(seed),
        0.5 * field[0],
        0.5 * field[1],
        0.5 * min(goal, field[1]),
        float(top_speed),
        float(top_acceleration),
        float(kick_speed),
        float(friction),
        float(diameter),
        float(rate),
    )
    return made


def track(measured: np.ndarray, seen: np.ndarray, *, alpha: float, beta: float) -> np.ndarray:
    """(T, R, 2) what an α-β tracker makes of measurements (T, R, 2) that are seen (T, R) or not.

    >>> line = np.arange(4.0)[:, None, None] * np.ones((4, 1, 2))
    >>> track(line, np.ones((4, 1), bool), alpha=1.0, beta=1.0)[:, 0, 0].tolist()
    [0.0, 1.0, 2.0, 3.0]
    >>> track(line, np.array([[1], [1], [0], [0]]), alpha=1.0, beta=1.0)[:, 0, 0].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    measured = np.ascontiguousarray(measured, np.float64)
    if measured.ndim != 3 or measured.shape[2] != 2 or np.shape(seen) != measured.shape[:2]:
        raise ShapeError(
            f"expected measurements (steps, robots, 2) and seen (steps, robots), got {measured.shape} and "
            f"{np.shape(seen)}."
        )
    if not (0 < alpha <= 1 and 0 <= beta <= 2):
        raise InputError(f"expected 0 < alpha ≤ 1 and 0 ≤ beta ≤ 2, got alpha={alpha}, beta={beta}.")
    out = np.empty_like(measured)
    flags = np.ascontiguousarray(np.asarray(seen) != 0, np.uint8)
    choice.body("worlds").track(measured, flags, float(alpha), float(beta), out)
    return out


def _seed(seed: int) -> int:
    return int(seed) & ((1 << 64) - 1)


def _check_size(n_steps: int, n_robots: int, *, fewest: int) -> None:
    if n_steps < 0 or n_steps * max(n_robots, 1) > MOST_STEPS:
        raise InputError(f"expected 0 ≤ steps × robots ≤ {MOST_STEPS:,}, got {n_steps} steps of {n_robots} robots.")
    if not fewest <= n_robots <= MOST_ROBOTS:
        raise InputError(f"expected {fewest} to {MOST_ROBOTS} robots, got {n_robots}.")


def _check_positive(**options: float) -> None:
    # bounded, so that no square of a distance overflows
    for name, value in options.items():
        if not 1e-3 <= value <= 1e9:
            raise InputError(f"{name} must be a positive number, from 0.001 to 1e9, got {value}.")


def _check_not_negative(**options: float) -> None:
    for name, value in options.items():
        if not 0 <= value <= 1e9:
            raise InputError(f"{name} must be a number from 0 to 1e9, got {value}.")


def _check_room(n_robots: int, field: tuple[float, float], diameter: float) -> None:
    if min(field) < 5 * diameter or field[0] * field[1] < 9 * n_robots * diameter**2:
        raise InputError(
            f"{n_robots} robots of diameter {diameter:g} need a larger field than {field[0]:g} × {field[1]:g}: at "
            "least five diameters wide and nine squares of a diameter for each robot."
        )
