"""Two teams of robots and a ball: who has possession, and what everybody is up to.

A small soccer world for large sets of candidate features. Each frame has several labels to learn: *possession* (us,
them, or a loose ball), the *carrier*, and the *role* of every robot (keeper, carrier, receiver, chaser, supporter,
marker). None can be read off positions or velocities of single robots; all follow from relations: who is near the
ball and moves with it, who stays at the side of which opponent, which pass is under way. `roles` change with
possession, and possession lasts through a pass, so neighbouring frames help too.

The rules are those of `crfield.kernels.reference.worlds_soccer`. They follow the small-size league in its measures
(180 mm robots, a few metres of field), and nobody's tactics. Cost: O(T n²), in one compiled loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError
from crfield.kernels import worlds
from crfield.simulate.tag import _steps

POSSESSION = worlds.POSSESSION
ROLES = worlds.ROLES


@dataclass(frozen=True, eq=False)
class SoccerGames:
    """Trajectories of two teams and a ball, with possession and roles.

    Agents are numbered: ours first, then theirs, the ball last; `agents` names them.

    >>> game = make_soccer(0.5, n_players=3, random_state=1)
    >>> game
    <SoccerGames: 3 against 3, 1,800 steps at 60 Hz, ...>
    >>> game.agents
    ['us0', 'us1', 'us2', 'them0', 'them1', 'them2', 'ball']
    >>> game.positions.shape, game.labels.shape, game.roles.shape
    ((1800, 7, 2), (1800,), (1800, 6))
    """

    positions: np.ndarray  # (T, 2n + 1, 2) millimetres from the centre of the field; we play towards +x
    labels: np.ndarray  # (T,) of str, POSSESSION
    carrier: np.ndarray  # (T,) int64, who has the ball at its feet, or −1
    roles: np.ndarray  # (T, 2n) of str, ROLES
    goals: tuple[int, int]
    rate: float
    field: tuple[float, float]
    diameter: float
    top_speed: float

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_players(self) -> int:
        """Robots of a team."""
        return int(self.roles.shape[1]) // 2

    @property
    def us(self) -> list[int]:
        """Numbers of our robots."""
        return list(range(self.n_players))

    @property
    def them(self) -> list[int]:
        """Numbers of their robots."""
        return list(range(self.n_players, 2 * self.n_players))

    @property
    def ball(self) -> int:
        """Number of the ball."""
        return 2 * self.n_players

    @property
    def agents(self) -> list[str]:
        """Names of robots and ball, in the order of their positions."""
        return [f"{team}{k}" for team in ("us", "them") for k in range(self.n_players)] + ["ball"]

    def __repr__(self) -> str:
        held = " ".join(
            f"{name} {100 * (self.labels == name).mean() if len(self) else 0:.0f} %" for name in POSSESSION
        )
        return (
            f"<SoccerGames: {self.n_players} against {self.n_players}, {len(self):,} steps at {self.rate:g} Hz, "
            f"goals {self.goals[0]} : {self.goals[1]}, {held}>"
        )


def make_soccer(
    minutes: float = 1.0,
    *,
    n_players: int = 5,
    field: tuple[float, float] = (5400.0, 3600.0),
    goal: float = 700.0,
    top_speed: float = 1500.0,
    top_acceleration: float = 3000.0,
    kick_speed: float = 4000.0,
    friction: float = 500.0,
    diameter: float = 180.0,
    rate: float = 60.0,
    random_state: int | np.random.Generator | None = 0,
) -> SoccerGames:
    """Make soccer games of so many minutes, ``n_players`` robots a side; lengths in millimetres, times in seconds.

    ``goal`` is the width of the goals, ``friction`` the deceleration of the rolling ball.

    >>> game = make_soccer(2.0, random_state=0)
    >>> sorted(set(game.labels.tolist())), sorted(set(game.roles[:, 3].tolist()))
    (['loose', 'them', 'us'], ['carrier', 'chaser', 'marker', 'receiver', 'supporter'])
    >>> near = np.linalg.norm(game.positions[:, :10] - game.positions[:, 10:], axis=2).min(axis=1)
    >>> bool(near[game.carrier >= 0].max() < 130 < near[game.labels == "loose"].mean())
    True
    """
    if n_players < 2:
        raise InputError(f"a team needs at least two robots, got n_players={n_players}.")
    n_steps = _steps(minutes, rate)
    rng = np.random.default_rng(random_state)
    played = worlds.soccer_steps(
        n_steps,
        n_players,
        int(rng.integers(0, 1 << 63)),
        field=field,
        goal=goal,
        top_speed=top_speed,
        top_acceleration=top_acceleration,
        kick_speed=kick_speed,
        friction=friction,
        diameter=diameter,
        rate=rate,
    )
    return SoccerGames(
        played.positions,
        np.array(POSSESSION)[played.possession],
        played.carrier,
        np.array(ROLES)[played.roles],
        (int(played.goals[0]), int(played.goals[1])),
        float(rate),
        field,
        float(diameter),
        float(top_speed),
    )
