"""What cameras make of a game: noise, a tracker, frames without a robot, robots taken for each other, late labels.

A simulator knows where its robots are; a real system sees coloured markers. `robot_vision` puts the difference into a
game of tag, in the order in which it arises:

1. *noise* of each measured coordinate, in millimetres;
2. *dropout*: a robot is not found in some frames, for ``gap`` frames on average;
3. *identity swaps*: two robots that come close are taken for each other with some probability, until a marker is read
   properly again;
4. a *tracker* (α-β, the steady state of a Kalman filter for constant velocity), which smooths, lags a little, and
   rolls on in a straight line where nothing was seen; it is what makes velocities usable at all;
5. *label latency*: the log of who seeks is written some frames after the fact.

It is a stand-in for real robots and no evidence about them: it shows whether a model that was trained on perfect
trajectories survives imperfect ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crfield.errors import InputError
from crfield.kernels import worlds
from crfield.simulate.tag import TagGames


def robot_vision(
    games: TagGames,
    *,
    noise: float = 1.0,
    dropout: float = 0.02,
    gap: float = 1.0,
    swap: float = 0.0,
    swap_seconds: float = 1.0,
    latency: int = 2,
    tracker: tuple[float, float] | None = (0.3, 0.05),
    random_state: int | np.random.Generator | None = 0,
) -> TagGames:
    """The same game with tracking noise, as cameras and a tracker report it.

    ``dropout`` is the share of frames in which a robot is not seen, ``swap`` the probability of a mix-up in every
    encounter of two robots (closer than one and a half diameters), which lasts ``swap_seconds`` on average. With
    ``tracker=None`` positions are the raw measurements, and the last one is kept where nothing was seen.

    >>> from crfield.simulate.tag import make_tag
    >>> game = make_tag(0.5, random_state=1)
    >>> seen = robot_vision(game, noise=1.0, latency=2, random_state=5)
    >>> off = np.linalg.norm(seen.positions - game.positions, axis=2)
    >>> bool(0.1 < np.median(off) < 3.0), int(seen.changes[0] - game.changes[0])
    (True, 2)
    """
    _check(noise=noise, dropout=dropout, gap=gap, swap=swap, swap_seconds=swap_seconds, latency=latency)
    measuring, losing, confusing = np.random.default_rng(random_state).spawn(3)
    true = games.positions
    measured = true + measuring.normal(0.0, noise, true.shape)
    seen = ~_runs(losing, true.shape[:2], dropout, gap)
    seen[:1] = True
    _confuse(confusing, games, measured, seen, swap, swap_seconds)
    if tracker is None:
        positions = _hold(measured, seen)
    else:
        positions = worlds.track(measured, seen, alpha=tracker[0], beta=tracker[1])
    labels = games.labels
    if latency and len(labels):
        labels = np.concatenate([np.repeat(labels[:1], latency), labels])[: len(labels)]
    return replace(games, positions=positions, labels=labels)


def _check(*, latency: int, gap: float, dropout: float, swap: float, **others: float) -> None:
    for name, value in {"dropout": dropout, "swap": swap}.items():
        if not 0 <= value <= 1 or (name == "dropout" and value == 1):
            raise InputError(f"{name} must be a probability{', below 1' if name == 'dropout' else ''}, got {value}.")
    for name, value in others.items():
        if not 0 <= value <= 1e9:
            raise InputError(f"{name} must be a number ≥ 0, got {value}.")
    if not 1 <= gap <= 1e9:
        raise InputError(f"gap must be a number of frames ≥ 1, got {gap}.")
    if latency < 0 or latency != int(latency):
        raise InputError(f"latency must be an integer ≥ 0, a number of frames, got {latency}.")


def _runs(rng: np.random.Generator, shape: tuple[int, ...], share: float, length: float) -> np.ndarray:
    """(T, R) of bool: a share of all frames, in runs of geometric length."""
    if not share or not np.prod(shape):
        return np.zeros(shape, bool)
    # Runs that overlap cover less, so that they start more often than share / length.
    starts = rng.random(shape) < 1.0 - (1.0 - share) ** (1.0 / length)
    return _cover(starts, rng.geometric(1.0 / length, shape))


def _cover(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(T, R) of bool: which frames lie within ``lengths`` frames of a start."""
    ends = np.where(starts, np.arange(len(starts))[:, None] + lengths, 0)
    return np.maximum.accumulate(ends, axis=0) > np.arange(len(starts))[:, None]


def _confuse(
    rng: np.random.Generator,
    games: TagGames,
    measured: np.ndarray,
    seen: np.ndarray,
    swap: float,
    seconds: float,
) -> None:
    """Exchange, in place, what is seen of two robots for a while after some of their encounters."""
    if not swap or not len(measured):
        return
    mean = max(seconds * games.rate, 1.0)
    for i in range(games.n_robots):
        for j in range(i + 1, games.n_robots):
            apart = np.linalg.norm(games.positions[:, i] - games.positions[:, j], axis=1)
            near = apart < 1.5 * games.diameter
            met = near & ~np.concatenate([[False], near[:-1]])
            starts = met & (rng.random(len(met)) < swap)
            mixed = _cover(starts[:, None], rng.geometric(1.0 / mean, (len(met), 1)))[:, 0]
            for table in (measured, seen):
                table[mixed, i], table[mixed, j] = table[mixed, j], table[mixed, i].copy()


def _hold(measured: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(T, R, 2) each robot's last measurement."""
    steps = np.arange(len(measured))[:, None]
    last = np.maximum.accumulate(np.where(seen, steps, 0), axis=0)
    return np.take_along_axis(measured, last[:, :, None], axis=0)
