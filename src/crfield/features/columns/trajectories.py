"""Feature functions of trajectories: speed, stillness, chasing, closeness, straightness, as named columns.

Positions (T, R, 2) of R robots become columns (T, K), each with a name and a *link*: 0 for columns that speak for a
label (one weight per label), 1 for those that speak for a change of labels (one weight per pair of labels). All of
them look back only, so they can be computed while robots move.

The functions are those of chapters 2 and 3 of Vail (2008, *Conditional random fields for activity recognition*):
velocity is the difference of positions, in millimetres per second; a threshold holds over a window of w frames if it
holds in each of them; *chasing* is the dot product of one robot's velocity with the way to another, normalised to a
cosine or not; *closeness* (equation 2.72) is 1 in the first or second frame in which two robots are nearer than a
threshold. At the beginning of a sequence windows are cut short, lags repeat the first frame and velocities are zero.

`tag_columns` puts them together into the feature sets of table 2.1, by name; `Scaling` then brings columns to mean 0
and variance 1, fitted on training data. Everything is vectorised: O(T) for each column, whatever the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crfield.errors import FeatureError, InputError, ShapeError

_TINY = 1e-6  # added to the product of two lengths before dividing by it: who stands still chases nobody


@dataclass(frozen=True, eq=False)
class TrajectoryColumns:
    """Named columns of one trajectory.

    >>> columns = tag_columns(np.zeros((4, 3, 2)), "distance (N)")
    >>> columns
    <TrajectoryColumns: 4 steps, 0 state and 6 transition columns>
    >>> columns.names[0]
    'close(0,1)'
    """

    values: np.ndarray  # (T, K)
    names: tuple[str, ...]
    link: np.ndarray  # (K,) int64: 0 state, 1 transition
    scaled: np.ndarray  # (K,) bool: whether `Scaling` touches the column

    @property
    def state(self) -> np.ndarray:
        """(T, ·) the columns that speak for a label."""
        return self.values[:, self.link == 0]

    @property
    def transition(self) -> np.ndarray:
        """(T, ·) the columns that speak for a change of labels, at the frame that is entered."""
        return self.values[:, self.link == 1]

    def __repr__(self) -> str:
        on_edges = int(self.link.sum())
        return (
            f"<TrajectoryColumns: {len(self.values):,} steps, {len(self.names) - on_edges} state and {on_edges} "
            "transition columns>"
        )


def as_positions(positions: np.ndarray) -> np.ndarray:
    """Positions (T, R, 2) as float64, if they are finite.

    >>> as_positions(np.zeros((2, 3, 2))).shape
    (2, 3, 2)
    >>> as_positions([[[0.0, np.nan]]])
    Traceback (most recent call last):
    crfield.errors.FeatureError: positions must be finite, got nan at step 0, robot 0, y. ...
    """
    array = np.asarray(positions, np.float64)
    if array.ndim != 3 or array.shape[2] != 2:
        raise ShapeError(f"positions must be (steps, robots, 2), got {array.shape}.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        step, robot, axis = bad[0].tolist()
        raise FeatureError(
            f"positions must be finite, got {array[step, robot, axis]} at step {step}, robot {robot}, {'xy'[axis]}. "
            "Fill gaps first: a tracker does, or the last position that was seen."
        )
    return array


def lagged(values: np.ndarray, lag: int) -> np.ndarray:
    """The values (T, …) of ``lag`` steps before; the first one is repeated.

    >>> lagged(np.array([1, 2, 3, 4]), 2).tolist()
    [1, 1, 1, 2]
    """
    if lag < 0:
        raise InputError(f"lag must be ≥ 0, got {lag}.")
    return values[np.maximum(np.arange(len(values)) - lag, 0)]


def velocities(positions: np.ndarray, *, rate: float = 60.0) -> np.ndarray:
    """(T, R, 2) velocity: (pos_t − pos_{t−1}) · rate, zero in the first frame.

    >>> velocities(np.array([[[0.0, 0.0]], [[1.0, 2.0]]]), rate=10.0)[:, 0].tolist()
    [[0.0, 0.0], [10.0, 20.0]]
    """
    return np.diff(positions, axis=0, prepend=positions[:1]) * rate


def held(flags: np.ndarray, window: int) -> np.ndarray:
    """(T, …) 1.0 where the flags are true in the last ``window`` frames, or in all frames so far if these are fewer.

    >>> held(np.array([True, True, False, True, True]), 2).tolist()
    [1.0, 1.0, 0.0, 0.0, 1.0]
    """
    if window < 1:
        raise InputError(f"a window must have at least one frame, got {window}.")
    flags = np.asarray(flags, bool)
    steps = np.arange(len(flags)).reshape(-1, *[1] * (flags.ndim - 1))
    failed = np.maximum.accumulate(np.where(flags, -1, steps), axis=0) if len(flags) else np.zeros(flags.shape)
    return (failed < np.maximum(steps - window + 1, 0)).astype(np.float64)


def distances(positions: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """(T, P) distance of each pair of robots.

    >>> distances(np.array([[[0.0, 0.0], [3.0, 4.0]]]), [(0, 1)]).tolist()
    [[5.0]]
    """
    first, second = _ends(pairs)
    return np.linalg.norm(positions[:, second] - positions[:, first], axis=2)


def chasing(
    positions: np.ndarray, pairs: Sequence[tuple[int, int]], *, rate: float = 60.0, normalised: bool = True
) -> np.ndarray:
    """(T, P) how much a drives at b, for pairs (a, b): (pos_b − pos_a) · vel_a, as a cosine if normalised.

    >>> away = np.array([[[0.0, 0.0], [5.0, 0.0]], [[1.0, 0.0], [5.0, 0.0]]])
    >>> chasing(away, [(0, 1), (1, 0)], rate=1.0).round(3).tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    >>> chasing(away, [(0, 1)], rate=1.0, normalised=False).tolist()
    [[0.0], [4.0]]
    """
    first, second = _ends(pairs)
    way, pace = positions[:, second] - positions[:, first], velocities(positions, rate=rate)[:, first]
    return _cosine(way, pace) if normalised else (way * pace).sum(axis=2)


def closeness(positions: np.ndarray, pairs: Sequence[tuple[int, int]], *, near: float = 240.0) -> np.ndarray:
    """(T, P) 1.0 in the first or second frame in which a pair is nearer than ``near``:

        (dist_t < near or dist_{t−1} < near) and dist_{t−2} ≥ near

    >>> line = np.array([900.0, 200.0, 100.0, 100.0])[:, None, None] * np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> closeness(line, [(0, 1)])[:, 0].tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    now = distances(positions, pairs) < near
    return ((now | lagged(now, 1)) & ~lagged(now, 2)).astype(np.float64)


def closest_change(positions: np.ndarray) -> np.ndarray:
    """(T, R) change of the distance between each robot and its closest neighbour, zero in the first frame.

    >>> closest_change(np.array([[[0.0, 0.0], [5.0, 0.0]], [[1.0, 0.0], [5.0, 0.0]]])).tolist()
    [[0.0, 0.0], [-1.0, -1.0]]
    """
    robots = positions.shape[1]
    if robots < 2:
        raise InputError(f"the closest neighbour needs at least two robots, got {robots}.")
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=3)
    apart[:, np.arange(robots), np.arange(robots)] = np.inf
    nearest = apart.min(axis=2)
    return np.diff(nearest, axis=0, prepend=nearest[:1])


def straightness(positions: np.ndarray, lag: int, *, rate: float = 60.0) -> np.ndarray:
    """(T, R) cosine between each robot's velocity and that of ``lag`` frames before.

    >>> corner = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 1.0]])[:, None]
    >>> straightness(corner, 1)[:, 0].round(3).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    pace = velocities(positions, rate=rate)
    return _cosine(pace, lagged(pace, lag))


def _cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(first, axis=2) * np.linalg.norm(second, axis=2)
    return (first * second).sum(axis=2) / (lengths + _TINY)


def _ends(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.array(list(pairs), np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


@dataclass(frozen=True)
class TagSet:
    """One row of table 2.1: which families of columns it has."""

    families: tuple[str, ...]
    window: float = 0.0  # seconds of the velocity thresholds; 0 is one frame
    scale_closeness: bool = True


WINDOWS = (1 / 60, 0.1, 0.5, 1.0, 1.5, 2.0)
_MANY = ("velocity", "threshold", "chasing", "closeness")
TAG_SETS: dict[str, TagSet] = {
    "positions": TagSet(("position",)),
    "velocities": TagSet(("velocity",)),
    **{
        f"velocity thresholds {'1/60' if w < 0.05 else w} s": TagSet(("threshold",), 0.0 if w < 0.05 else w)
        for w in WINDOWS
    },
    "chasing": TagSet(("chasing",)),
    "distance (U)": TagSet(("closeness",), scale_closeness=False),
    "distance (N)": TagSet(("closeness",)),
    "distance & chasing (U)": TagSet(("closeness", "chasing"), scale_closeness=False),
    "distance & chasing (N)": TagSet(("closeness", "chasing")),
    "many": TagSet(_MANY),
    "redundant": TagSet((*_MANY, "position", "neighbour", "component", "straight")),
}


def tag_columns(
    positions: np.ndarray,
    features: str | TagSet,
    *,
    powers: Sequence[int] = (1,),
    rate: float = 60.0,
    top_speed: float = 1500.0,
    near: float = 240.0,
    lags: Sequence[int] = (1, 5, 10, 30),
) -> TrajectoryColumns:
    """The columns of a feature set of table 2.1 (a name in `TAG_SETS`, or a `TagSet` of one's own).

    Real-valued columns are given in all ``powers``: (1,) for a Gaussian model, (1, 2) for the chain with the same
    features. Thresholds of speed are at a fifth of ``top_speed``; closeness comes with its negation.

    >>> walk = np.cumsum(np.ones((100, 3, 2)), axis=0)
    >>> [len(tag_columns(walk, name, powers=(1, 2)).names) for name in ("positions", "velocities", "chasing", "many")]
    [12, 6, 12, 30]
    >>> tag_columns(walk, "velocities", powers=(1, 2)).names
    ('speed(0)', 'speed(1)', 'speed(2)', 'speed(0)^2', 'speed(1)^2', 'speed(2)^2')
    """
    if isinstance(features, str):
        if features not in TAG_SETS:
            raise InputError(f"there is no feature set {features!r}; there are {', '.join(map(repr, TAG_SETS))}.")
        features = TAG_SETS[features]
    positions = as_positions(positions)
    robots = range(positions.shape[1])
    ordered = [(a, b) for a in robots for b in robots if a != b]
    unordered = [(a, b) for a in robots for b in robots if a < b]
    blocks: list[tuple[np.ndarray, list[str], int, bool]] = []

    def real(values: np.ndarray, names: list[str]) -> None:
        for power in powers:
            ending = "" if power == 1 else f"^{power}"
            blocks.append((values**power, [name + ending for name in names], 0, True))

    for family in features.families:
        if family == "position":
            real(
                positions.reshape(len(positions), 2 * len(robots)),
                [f"pos({r}).{axis}" for r in robots for axis in "xy"],
            )
        elif family == "velocity":
            real(np.linalg.norm(velocities(positions, rate=rate), axis=2), [f"speed({r})" for r in robots])
        elif family == "threshold":
            speed, limit = np.linalg.norm(velocities(positions, rate=rate), axis=2), 0.2 * top_speed
            frames = max(round(features.window * rate), 1)
            for sign, flags in (("<", speed < limit), (">", speed > limit)):
                names = [f"speed({r}){sign}{limit:g} for {frames}" for r in robots]
                blocks.append((held(flags, frames), names, 0, True))
        elif family == "chasing":
            real(chasing(positions, ordered, rate=rate), [f"chase({a},{b})" for a, b in ordered])
        elif family == "closeness":
            close, names = closeness(positions, unordered, near=near), [f"close({a},{b})" for a, b in unordered]
            blocks.append((close, names, 1, features.scale_closeness))
            blocks.append((1.0 - close, [f"not {name}" for name in names], 1, features.scale_closeness))
        elif family == "neighbour":
            real(closest_change(positions), [f"nearing({r})" for r in robots])
        elif family == "component":
            pace = velocities(positions, rate=rate).reshape(len(positions), 2 * len(robots))
            real(pace, [f"vel({r}).{axis}" for r in robots for axis in "xy"])
        elif family == "straight":
            for lag in lags:
                real(straightness(positions, lag, rate=rate), [f"straight({r},{lag})" for r in robots])
        else:
            raise InputError(f"there is no family of columns {family!r}.")
    return TrajectoryColumns(
        np.concatenate([block[0] for block in blocks], axis=1) if blocks else np.empty((len(positions), 0)),
        tuple(name for block in blocks for name in block[1]),
        np.repeat([block[2] for block in blocks], [len(block[1]) for block in blocks]).astype(np.int64),
        np.repeat([block[3] for block in blocks], [len(block[1]) for block in blocks]).astype(bool),
    )


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and deviation of columns, taken from training data.

    Columns that do not vary keep their deviation of 1, and those that a feature set leaves unnormalised are
    untouched.

    >>> train = tag_columns(np.cumsum(np.ones((50, 2, 2)), axis=0), "positions")
    >>> scaled = Scaling.of([train])(train)
    >>> bool(abs(scaled.values.mean(axis=0)).max() < 1e-12), scaled.values.std(axis=0).round(6).tolist()
    (True, [1.0, 1.0, 1.0, 1.0])
    """

    mean: np.ndarray  # (K,)
    deviation: np.ndarray  # (K,)

    @classmethod
    def of(cls, columns: Iterable[TrajectoryColumns]) -> Scaling:
        """The mean and deviation over all steps of several trajectories with the same columns."""
        columns = list(columns)
        if not columns or len({one.names for one in columns}) > 1:
            raise InputError(f"scaling needs trajectories with the same columns, got {len(columns)} that differ.")
        steps = np.concatenate([one.values for one in columns])
        mean, deviation = np.zeros(steps.shape[1]), np.ones(steps.shape[1])
        if len(steps):
            touched = columns[0].scaled
            mean = np.where(touched, steps.mean(axis=0), 0.0)
            spread = steps.std(axis=0)
            varies = touched & (spread > 1e-12 * np.maximum(np.abs(mean), 1.0))
            deviation = np.where(varies, spread, 1.0)
        return cls(mean, deviation)

    def __call__(self, columns: TrajectoryColumns) -> TrajectoryColumns:
        """The columns, each less its mean and divided by its deviation."""
        if len(columns.names) != len(self.mean):
            raise ShapeError(f"expected {len(self.mean)} columns as in training, got {len(columns.names)}.")
        return replace(columns, values=(columns.values - self.mean) / self.deviation)
