"""Episodes of a person with a wearable sensor: what she does and where she is, at every step.

Two label layers over time, coupled: *motion* (stationary, walking, running, driving, upstairs, downstairs) and
*context* (indoors, outdoors, vehicle), the task of Subramanya, Raj, Bilmes & Fox (2006, *Recognizing activities and
spatial context using wearable sensors*) and figure 2 of Liao, Choudhury, Fox & Kautz (2007). Their recordings are not
public; this world has their structure and none of their numbers.

The two layers move together. A place is left on foot; nobody drives outside a vehicle or climbs stairs in one;
stairs are short, sitting at a desk is long. Each layer has its own sensors, and each set of sensors leaves something
open that the other layer settles: at a steady speed a moving car feels to an accelerometer nearly like a chair, and
under a roof the light of a bus is that of a corridor. Noise is correlated between sensors and from step to step, and
every episode wears the device a little differently, so steps are far from independent cases.

All episodes move at once, so the cost is a few array operations for each step of the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError

MOTIONS = ("stationary", "walking", "running", "driving", "upstairs", "downstairs")
CONTEXTS = ("indoors", "outdoors", "vehicle")
MOTION_FEATURES = ("energy", "rhythm", "impact", "tilt", "pressure change", "sway")
CONTEXT_FEATURES = ("light", "warmth", "loudness", "sky view", "networks", "hum")

# Mean of each sensor (column) under each label (row), in units of the noise.
_MOTION_MEANS = np.array(
    [
        [-1.3, -1.0, -0.9, -0.2, 0.0, -0.5],
        [0.4, 0.9, 0.2, 0.3, 0.0, 0.3],
        [1.9, 1.3, 1.7, 0.6, 0.0, 0.7],
        [-0.9, -0.9, -0.7, -0.4, 0.0, 0.2],
        [0.6, 0.6, 0.3, 0.8, 1.0, 0.2],
        [0.7, 0.7, 0.9, -0.2, -1.0, 0.2],
    ]
)
_CONTEXT_MEANS = np.array(
    [
        [-0.5, 0.6, -0.2, -0.9, 0.9, -0.4],
        [1.0, -0.7, 0.1, 1.0, -0.6, -0.5],
        [-0.1, 0.3, 0.5, 0.0, -0.7, 0.9],
    ]
)

# Chance that a motion ends at a step, in each context; what follows it, in proportion. Zeros never happen.
_ENDS = np.array(
    [
        [0.03, 0.10, 0.20, 1.00, 0.15, 0.15],
        [0.10, 0.04, 0.06, 1.00, 0.20, 0.20],
        [0.10, 1.00, 1.00, 0.03, 1.00, 1.00],
    ]
)
_FOLLOWS = np.array(
    [
        [6.0, 5.0, 0.0, 0.0, 1.5, 1.5],
        [3.0, 5.0, 3.0, 0.0, 0.5, 0.5],
        [4.0, 0.0, 0.0, 6.0, 0.0, 0.0],
    ]
)
# Chance to leave a context for another at a step that would let one do so (below).
_LEAVES = np.array(
    [
        [0.00, 0.06, 0.002],
        [0.02, 0.00, 0.04],
        [0.01, 0.10, 0.00],
    ]
)
_ON_FOOT, _STANDING = 1, 0
_MEMORY = 0.6  # share of a sensor's noise that is left at the next step
_WEAR = 0.35  # deviation of an episode's offset


@dataclass(frozen=True, eq=False)
class WearableEpisodes:
    """Episodes with two layers of labels, and the sensors of each.

    >>> episodes = make_wearable_episodes(2, length=50)
    >>> episodes
    <WearableEpisodes: 2 episodes, ... steps, 6 motion states × 3 spatial contexts>
    >>> len(episodes.motions[0]) == len(episodes.contexts[0]) == len(episodes.motion_features[0])
    True
    """

    motion_features: list[np.ndarray]  # (T, 6), columns as MOTION_FEATURES
    context_features: list[np.ndarray]  # (T, 6), columns as CONTEXT_FEATURES
    motions: list[np.ndarray]  # (T,) of str
    contexts: list[np.ndarray]  # (T,) of str

    def __len__(self) -> int:
        return len(self.motions)

    def __repr__(self) -> str:
        steps = sum(map(len, self.motions))
        return (
            f"<WearableEpisodes: {len(self)} episodes, {steps:,} steps, "
            f"{len(MOTIONS)} motion states × {len(CONTEXTS)} spatial contexts>"
        )


def make_wearable_episodes(
    n_episodes: int = 12,
    *,
    length: int = 500,
    noise: float = 1.0,
    random_state: int | np.random.Generator | None = 0,
) -> WearableEpisodes:
    """Make wearable-sensor episodes of about ``length`` steps (three quarters to five quarters of it).

        x_t = mean(label_t) + offset of the episode + ``noise`` · e_t        e_t = 0.6 e_{t−1} + 0.8 M z_t

    with M that correlates the sensors of a layer, rows of unit length, and z_t independent.

    >>> here = make_wearable_episodes(random_state=1)
    >>> seen = {(m, c) for ms, cs in zip(here.motions, here.contexts) for m, c in zip(ms.tolist(), cs.tolist())}
    >>> ("driving", "vehicle") in seen, ("driving", "indoors") in seen, ("upstairs", "vehicle") in seen
    (True, False, False)
    """
    if n_episodes < 0 or length < 1 or noise < 0:
        raise InputError(
            f"expected n_episodes ≥ 0, length ≥ 1 and noise ≥ 0, got n_episodes={n_episodes}, length={length}, "
            f"noise={noise}."
        )
    life, sensing = np.random.default_rng(random_state).spawn(2)
    lengths = life.integers(max(1, 3 * length // 4), max(1, 5 * length // 4) + 1, n_episodes)
    motion, context = _live(life, n_episodes, int(lengths.max(initial=0)))
    made = WearableEpisodes([], [], [], [])
    mixes = [_mixing(sensing, means.shape[1]) for means in (_MOTION_MEANS, _CONTEXT_MEANS)]
    for k, steps in enumerate(lengths.tolist()):
        for codes, means, mix, sensors, names, labels in (
            (motion, _MOTION_MEANS, mixes[0], made.motion_features, MOTIONS, made.motions),
            (context, _CONTEXT_MEANS, mixes[1], made.context_features, CONTEXTS, made.contexts),
        ):
            own = codes[:steps, k]
            sensors.append(means[own] + _disturbance(sensing, steps, mix, noise))
            labels.append(np.array(names)[own])
    return made


def _live(rng: np.random.Generator, n_episodes: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """(steps, n_episodes) codes of motion and of context."""
    motion = np.zeros((steps, n_episodes), np.int64)
    context = np.zeros((steps, n_episodes), np.int64)
    follows = np.cumsum(_FOLLOWS, axis=1) / _FOLLOWS.sum(axis=1, keepdims=True)
    leaves = np.cumsum(_LEAVES, axis=1)
    if not steps:
        return motion, context
    context[0] = rng.integers(0, 2, n_episodes)
    motion[0] = rng.integers(0, 2, n_episodes)
    for t in range(1, steps):
        before, place = motion[t - 1], context[t - 1]
        ends, next_motion, next_place = rng.random((3, n_episodes))
        # A building or a street is left on foot, a vehicle when it stands.
        free = np.where(place == CONTEXTS.index("vehicle"), before == _STANDING, before == _ON_FOOT)
        to = (leaves[place] <= next_place[:, None]).sum(axis=1)
        moves = free & (to < len(CONTEXTS))
        context[t] = np.where(moves, to, place)
        drawn = (follows[context[t]] <= next_motion[:, None]).sum(axis=1)
        # One steps out of a vehicle walking and sits down in it first.
        entering = np.where(context[t] == CONTEXTS.index("vehicle"), _STANDING, _ON_FOOT)
        motion[t] = np.where(moves, entering, np.where(ends < _ENDS[context[t], before], drawn, before))
    return motion, context


def _mixing(rng: np.random.Generator, size: int) -> np.ndarray:
    """(size, size) rows of unit length: each sensor its own noise and a share of the others'."""
    mix = np.eye(size) + 0.35 * rng.normal(size=(size, size))
    return mix / np.linalg.norm(mix, axis=1, keepdims=True)


def _disturbance(rng: np.random.Generator, steps: int, mix: np.ndarray, noise: float) -> np.ndarray:
    """(steps, D) the episode's offset and its correlated noise of unit deviation times ``noise``."""
    offset = rng.normal(0, _WEAR, mix.shape[0])
    fresh = rng.normal(size=(steps, mix.shape[0])) @ mix.T
    for t in range(1, steps):
        fresh[t] = _MEMORY * fresh[t - 1] + np.sqrt(1 - _MEMORY**2) * fresh[t]
    return offset + noise * fresh
