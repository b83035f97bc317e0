"""Robots that play tag: a world where the label is who seeks, and only the trajectories tell.

Three holonomic robots (or any number) on a field of 3.5 m × 4 m, sixty frames a second. One of them, the seeker,
always drives at its nearest neighbour; the others go from target to target and take no notice. Who is reached becomes
the seeker and pauses for five seconds, so that the old one can get away. Nothing in a single frame says who seeks:
it shows in who stands still, who heads for whom, and in the moment when two come close for the first time.

This is the domain of chapter 2 of Vail (2008, *Conditional random fields for activity recognition*), who does not
give the limits of the robots; ours are 1.5 m/s and 3 m/s². With ``scheme="hourglass"`` targets are the corners of
the field in the order of an hourglass, with ``"unconstrained"`` they are uniform, but not within a metre of the
seeker. A hand-off shows in the label in the first frame of contact or in the second, because robots act in random
order.

Cost: O(T R²), in one compiled loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from crfield.core.checks import one_of
from crfield.errors import InputError
from crfield.kernels import worlds

SCHEMES = ("hourglass", "unconstrained")


@dataclass(frozen=True, eq=False)
class TagGames:
    """Trajectories of robots that play tag, and who seeks in each frame.

    >>> game = make_tag(0.5, random_state=1)
    >>> game
    <TagGames: 3 robots, 1,800 steps at 60 Hz, hourglass, 4 tags>
    >>> game.positions.shape, sorted(set(game.labels.tolist()))
    ((1800, 3, 2), [0, 1, 2])
    """

    positions: np.ndarray  # (T, R, 2) millimetres from the centre of the field
    labels: np.ndarray  # (T,) int64, the number of the seeker
    scheme: str
    rate: float  # frames per second
    field: tuple[float, float]  # width and height in millimetres
    diameter: float
    top_speed: float

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_robots(self) -> int:
        """R."""
        return int(self.positions.shape[1])

    @property
    def changes(self) -> np.ndarray:
        """(n,) the frames in which another robot seeks than in the frame before."""
        return np.flatnonzero(np.diff(self.labels)) + 1

    def pieces(self, seconds: float) -> Iterator[TagGames]:
        """The game cut into consecutive ones of so many seconds; a rest joins the last.

        >>> [len(piece) for piece in make_tag(0.5, random_state=1).pieces(8.0)]
        [480, 480, 840]
        """
        length = round(seconds * self.rate)
        if length < 1:
            raise InputError(f"pieces must last at least one frame ({1 / self.rate:.3g} s), got {seconds} s.")
        starts = [k * length for k in range(max(len(self) // length, 1))]
        for first, last in zip(starts, [*starts[1:], len(self)]):
            yield replace(self, positions=self.positions[first:last], labels=self.labels[first:last])

    def __repr__(self) -> str:
        return (
            f"<TagGames: {self.n_robots} robots, {len(self):,} steps at {self.rate:g} Hz, {self.scheme}, "
            f"{len(self.changes)} tags>"
        )


def make_tag(
    minutes: float = 1.0,
    *,
    scheme: str = "hourglass",
    n_robots: int = 3,
    top_speed: float = 1500.0,
    top_acceleration: float = 3000.0,
    pause: float = 5.0,
    field: tuple[float, float] = (3500.0, 4000.0),
    diameter: float = 200.0,
    tag_gap: float = 40.0,
    away: float = 1000.0,
    reach: float = 50.0,
    contact: bool = True,
    rate: float = 60.0,
    random_state: int | np.random.Generator | None = 0,
) -> TagGames:
    """Make games of robot tag of so many minutes; lengths in millimetres, times in seconds.

    A tag happens when the seeker's edge comes within ``tag_gap`` of another's; ``pause`` is how long the new seeker
    waits (up to two seconds more while somebody is still that near, so that a tag always needs an approach). Robots
    take their next target within ``reach`` of the last one: the smaller it is, the nearer they come to a halt there.
    ``contact=False`` lets robots drive through each other.

    ``top_speed`` and ``top_acceleration`` are limits of driving: they hold where nobody is within diameter +
    2 · top_speed / rate, away from the edge of the field. Robots that overlap are pushed apart in the same frame, by
    half of the overlap each (all of it if the other one pauses), and who reaches the edge stops at once.

    >>> game = make_tag(1.0, scheme="unconstrained", n_robots=5, random_state=3)
    >>> game.positions.shape
    (3600, 5, 2)
    >>> bool((abs(game.positions) <= [1750.0, 2000.0]).all())
    True
    """
    one_of(*SCHEMES)("scheme", scheme)
    n_steps = _steps(minutes, rate)
    if not 0 <= pause <= 1e6:
        raise InputError(f"pause must be a number of seconds from 0 to 1e6, got {pause}.")
    rng = np.random.default_rng(random_state)
    played = worlds.tag_steps(
        n_steps,
        n_robots,
        int(rng.integers(0, 1 << 63)),
        hourglass=scheme == "hourglass",
        field=field,
        top_speed=top_speed,
        top_acceleration=top_acceleration,
        pause_steps=round(pause * rate),
        diameter=diameter,
        gap=tag_gap,
        away=away,
        reach=reach,
        rate=rate,
        contact=contact,
    )
    return TagGames(played.positions, played.labels, scheme, float(rate), field, float(diameter), float(top_speed))


def _steps(minutes: float, rate: float) -> int:
    """How many frames a game of so many minutes has."""
    if not (0 <= minutes <= 1e6 and 1e-3 <= rate <= 1e9):
        raise InputError(f"expected 0 ≤ minutes ≤ 1e6 and 0.001 ≤ rate ≤ 1e9, got minutes={minutes}, rate={rate}.")
    return round(minutes * 60 * rate)
