"""Coloured scenes in which things have their places, and what a mediocre network says of them.

Labels are the order of a landscape: *sky* above, *land* below, *sea* in between where there is any, *boats* that
stand on the sea alone and *trees* that stand on land. So which labels lie side by side tells much: a boat has no
neighbour of sky above a tree. Every thing has a colour of its own in each image, with light that changes across it
and noise; colours of two things may be near each other.

The network is what networks are: right in the middle of things, unsure at their edges, for it sees a coarse picture,
and here and there sure of something wrong. Its probabilities have the full size, and are wrong in patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.checks import random_generator
from crfield.core.typing import Seed
from crfield.errors import InputError

LABELS = ("sky", "land", "sea", "boat", "tree")


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images, the truth, and probabilities of each label (of `LABELS`, in this order) at each pixel.

    >>> made = make_scenes(2, (24, 32))
    >>> made.images.shape, made.labels.shape, made.probabilities.shape
    ((2, 24, 32, 3), (2, 24, 32), (2, 24, 32, 5))
    """

    images: np.ndarray  # (n, H, W, 3) uint8
    labels: np.ndarray  # (n, H, W) numbers of labels
    probabilities: np.ndarray  # (n, H, W, L) float32

    @property
    def names(self) -> np.ndarray:
        """(n, H, W) the labels by name."""
        return np.array(LABELS)[self.labels]


def make_scenes(
    n_images: int = 8,
    shape: tuple[int, int] = (60, 80),
    *,
    sureness: float = 1.6,
    coarse: float = 0.05,
    random_state: Seed = 0,
) -> Scenes:
    """Make landscapes; ``sureness`` is how much more the network thinks of the truth, in units of its noise.

    ``coarse`` is the size of what it does not see, as a share of the image. The same seed gives the same scenes.

    >>> made = make_scenes(4)
    >>> right = (made.probabilities.argmax(axis=-1) == made.labels).mean()
    >>> bool(0.5 < right < 0.95)
    True
    """
    if n_images < 0 or len(shape) != 2 or min(shape) < 8:
        raise InputError(f"expected n_images ≥ 0 and a shape of at least (8, 8), got {n_images} and {shape}.")
    rng = random_generator(random_state)
    made = [_scene(rng, shape, sureness, coarse) for _ in range(n_images)]
    if not made:
        empty = np.zeros((0, *shape))
        return Scenes(np.zeros((0, *shape, 3), np.uint8), empty.astype(int), np.zeros((0, *shape, 5), np.float32))
    images, labels, soft = (np.stack(parts) for parts in zip(*made))
    return Scenes(images, labels, soft)


def _smooth(rng: np.random.Generator, shape: tuple[int, ...], width: float) -> np.ndarray:
    """Noise of deviation 1 that changes over so many pixels."""
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(rng.standard_normal(shape), width, mode="reflect")
    return field / max(float(field.std()), 1e-9)


def _scene(
    rng: np.random.Generator, shape: tuple[int, int], sureness: float, coarse: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.ndimage import gaussian_filter

    height, width = shape
    size = min(shape)
    y, x = np.mgrid[:height, :width]
    horizon = height * (0.35 + 0.08 * _smooth(rng, (width,), width / 6))
    shore = height * (0.62 + 0.10 * _smooth(rng, (width,), width / 6))
    labels = np.where(y < horizon, 0, np.where(y < shore, 2, 1))
    for label, ground in ((3, 2), (4, 1)):
        spots = np.argwhere(labels == ground)
        for row, column in spots[rng.integers(0, len(spots), 3)] if len(spots) else ():
            tall, wide = size * rng.uniform(0.10, 0.22), size * rng.uniform(0.06, 0.14)
            near = ((y - row) / tall) ** 2 + ((x - column) / wide) ** 2 < 1
            labels[near & (labels == ground)] = label
    base = rng.uniform(50, 205, (5, 3))
    light = np.stack([_smooth(rng, shape, size / 4) for _ in range(3)], axis=-1)
    image = base[labels] + 14 * light + rng.normal(scale=9.0, size=(*shape, 3))
    truth = np.eye(5)[labels]
    blur = coarse * size
    seen = np.stack([gaussian_filter(truth[..., k], blur, mode="nearest") for k in range(5)], axis=-1)
    noise = np.stack([_smooth(rng, shape, 1.5 * blur) for _ in range(5)], axis=-1)
    scores = 2 * sureness * seen + noise
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (
        np.clip(image, 0, 255).astype(np.uint8),
        labels,
        (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32),
    )
