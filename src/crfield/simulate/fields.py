"""Fields to learn from: noisy binary images, grids drawn from a known model, and items with several tags.

`make_noisy_images` is in the manner of an experiment of Kumar & Hebert (2006, *Discriminative random fields*, IJCV
68): a few binary base images, many noisy versions of each. Gaussian noise has the deviation 0.3 around 0 and 1.
Bimodal noise is worse than it looks: the intensity of a pixel comes from one of two bumps that depend on its class,
at 0.08 and 0.46 for the one, 0.55 and (broad) 0.42 for the other. The upper bump of the one lies within the broad one
of the other, so no threshold separates them: a local classifier must be non-linear, and neighbours must help. The
shapes are generated: smooth blobs, strokes like those of letters, rings, bars.

`make_potts_grid` draws the labels of a grid from a Potts model (Potts 1952) and hides them behind Gaussian noise, so
that the scores which made it are known: the exact posterior is the best that anybody can do, and whatever is worse
is so by its inference.

`make_tags` makes items (say, photographs) with twelve tags, of which each depends on one other: a tree. Features know
much about some tags and little about others, and what is known of *snow* must tell about *ski*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.checks import one_of
from crfield.errors import InputError

NOISES = ("bimodal", "gaussian")
# (mean, deviation) of the bumps of class 0 and of class 1, equally likely within a class.
BUMPS = {
    "bimodal": (((0.08, 0.03), (0.46, 0.03)), ((0.55, 0.02), (0.42, 0.10))),
    "gaussian": (((0.0, 0.3),), ((1.0, 0.3),)),
}


@dataclass(frozen=True, eq=False)
class NoisyImages:
    """Intensities and the truth behind them.

    >>> made = make_noisy_images(8, (32, 32), noise="gaussian")
    >>> made.images.shape, made.labels.shape, made.base.tolist()
    ((8, 32, 32), (8, 32, 32), [0, 1, 2, 3, 0, 1, 2, 3])
    """

    images: np.ndarray  # (n, H, W) float64
    labels: np.ndarray  # (n, H, W) int64, 0 or 1
    base: np.ndarray  # (n,) which base image was disturbed
    noise: str

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        height, width = self.images.shape[1:]
        return f"<NoisyImages: {len(self)} images of {height} × {width}, {self.noise} noise>"


def make_noisy_images(
    n_images: int = 40,
    shape: tuple[int, int] = (64, 64),
    *,
    noise: str = "bimodal",
    n_bases: int = 4,
    random_state: int | np.random.Generator | None = 0,
) -> NoisyImages:
    """Make binary images and disturb them; image i is a noisy version of base i modulo ``n_bases``.

    Bases are drawn from the seed too, one kind after the other. The same seed gives the same images, and fewer of
    them the first ones of more.

    >>> made = make_noisy_images(4)
    >>> made
    <NoisyImages: 4 images of 64 × 64, bimodal noise>
    >>> bool(((0.2 < made.labels.mean(axis=(1, 2))) & (made.labels.mean(axis=(1, 2)) < 0.8)).all())
    True
    """
    one_of(*NOISES)("noise", noise)
    if n_images < 0 or n_bases < 1 or len(shape) != 2 or min(shape) < 1:
        raise InputError(
            f"expected n_images ≥ 0, n_bases ≥ 1 and a shape (height, width) ≥ (1, 1), got n_images={n_images}, "
            f"n_bases={n_bases}, shape={shape}."
        )
    shapes, grains = np.random.default_rng(random_state).spawn(2)
    bases = np.stack([_KINDS[b % len(_KINDS)](shapes, shape) for b in range(n_bases)]).astype(np.int64)
    base = np.arange(n_images) % n_bases
    labels = bases[base]
    bumps = np.array(BUMPS[noise])  # (2 classes, bumps, 2)
    images = np.empty(labels.shape)
    for image, truth in zip(images, labels):
        mean, deviation = np.moveaxis(bumps[truth, grains.integers(0, bumps.shape[1], shape)], -1, 0)
        image[:] = mean + deviation * grains.normal(size=shape)
    return NoisyImages(images, labels, base, noise)


def noise_scores(images: np.ndarray, noise: str = "bimodal") -> np.ndarray:
    """log p(x | class) of every pixel, (…, 2), under the noise that made them.

    >>> noise_scores(np.array([0.08, 0.55])).argmax(axis=-1).tolist()
    [0, 1]
    """
    one_of(*NOISES)("noise", noise)
    bumps = np.array(BUMPS[noise])
    mean, deviation = bumps[..., 0], bumps[..., 1]
    z = (np.asarray(images, dtype=np.float64)[..., None, None] - mean) / deviation
    each = -0.5 * z**2 - np.log(deviation * np.sqrt(2 * np.pi) * bumps.shape[1])
    return np.logaddexp.reduce(each, axis=-1)


def _blobs(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Where a smooth random field is high."""
    from scipy.ndimage import gaussian_filter

    field = gaussian_filter(rng.normal(size=shape), max(1.0, min(shape) / 10), mode="reflect")
    return field > np.quantile(field, rng.uniform(0.45, 0.65))


def _strokes(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Five thick straight strokes through points in the middle part, each from where the last one ended."""
    points = rng.uniform(0.12, 0.88, (6, 2)) * shape
    points[:, 0] = np.where(np.arange(6) % 2, 0.85, 0.15) * shape[0]
    return _near(points[:-1], points[1:], shape, 0.08 * min(shape))


def _rings(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """A large ring, and a disc where there is room."""
    rows, cols = _places(shape)
    size = min(shape)
    centre = rng.uniform(0.42, 0.58, 2) * shape
    away = np.hypot(rows - centre[0], cols - centre[1])
    corner = rng.integers(0, 2, 2) * np.array(shape)
    disc = np.hypot(rows - corner[0], cols - corner[1]) < 0.3 * size
    return ((away < rng.uniform(0.38, 0.44) * size) & (away > rng.uniform(0.18, 0.24) * size)) | disc


def _bars(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Parallel slanted bars."""
    rows, cols = _places(shape)
    angle, start = rng.uniform(0.2, 1.3), rng.uniform()
    across = (rows * np.cos(angle) + cols * np.sin(angle)) / (0.36 * min(shape)) + start
    return across % 1.0 < 0.5


_KINDS = (_blobs, _strokes, _rings, _bars)


def _places(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = np.mgrid[: shape[0], : shape[1]] + 0.5
    return rows, cols


def _near(starts: np.ndarray, ends: np.ndarray, shape: tuple[int, int], reach: float) -> np.ndarray:
    """Pixels no farther than ``reach`` from one of the straight lines starts[k] to ends[k]."""
    pixels = np.stack(_places(shape), axis=-1)[..., None, :]
    along = ends - starts
    share = ((pixels - starts) * along).sum(axis=-1) / np.maximum((along**2).sum(axis=-1), 1e-12)
    nearest = starts + np.clip(share, 0, 1)[..., None] * along
    return (np.linalg.norm(pixels - nearest, axis=-1) <= reach).any(axis=-1)


@dataclass(frozen=True, eq=False)
class PottsGrid:
    """A grid, what was seen of it, and the scores under which both were drawn; nodes are numbered row by row.

    >>> made = make_potts_grid((3, 4))
    >>> made.labels.shape, made.node.shape, made.edge.shape, made.pairs[:3].tolist()
    ((3, 4), (12, 2), (2, 2), [[0, 1], [1, 2], [2, 3]])
    """

    image: np.ndarray  # (H, W) what was seen
    labels: np.ndarray  # (H, W) int64
    node: np.ndarray  # (H W, L) log p(seen | label)
    edge: np.ndarray  # (L, L) coupling on the diagonal
    pairs: np.ndarray  # (E, 2) neighbours: beside each other first, then above each other


def make_potts_grid(
    shape: tuple[int, int] = (10, 12),
    *,
    n_labels: int = 2,
    coupling: float = 0.8,
    noise: float = 1.5,
    n_sweeps: int = 300,
    random_state: int | np.random.Generator | None = 0,
) -> PottsGrid:
    """Draw p(y) ∝ exp(coupling · number of equal neighbours), and x = y + noise · e.

    By ``n_sweeps`` of Gibbs sampling, a colour of the chess board at a time. Two labels fall into large patches above
    a coupling of log(1 + √2) ≈ 0.88 (Onsager 1944), and sweeps then take long to change them.

    >>> made = make_potts_grid((20, 20), coupling=0.7, random_state=2)
    >>> float((made.labels[1:] == made.labels[:-1]).mean()) > 0.6
    True
    """
    if len(shape) != 2 or min(shape) < 1 or n_labels < 1 or noise <= 0 or n_sweeps < 0:
        raise InputError(
            "expected a shape (height, width) ≥ (1, 1), n_labels ≥ 1, noise > 0 and n_sweeps ≥ 0, got "
            f"shape={shape}, n_labels={n_labels}, noise={noise}, n_sweeps={n_sweeps}."
        )
    rng = np.random.default_rng(random_state)
    height, width = shape
    padded = np.full((height + 2, width + 2), -1)  # a frame that agrees with nobody
    padded[1:-1, 1:-1] = rng.integers(0, n_labels, shape)
    black = np.indices(shape).sum(axis=0) % 2 == 0
    for _ in range(n_sweeps):
        for colour in (black, ~black):
            around = np.stack([padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]])
            scores = coupling * (around[..., None] == np.arange(n_labels)).sum(axis=0)
            drawn = (scores + rng.gumbel(size=scores.shape)).argmax(axis=-1)
            padded[1:-1, 1:-1][colour] = drawn[colour]
    labels = padded[1:-1, 1:-1].copy()
    image = labels + noise * rng.normal(size=shape)
    node = -0.5 * ((image.reshape(-1, 1) - np.arange(n_labels)) / noise) ** 2
    numbers = np.arange(height * width).reshape(shape)
    beside = np.stack([numbers[:, :-1].ravel(), numbers[:, 1:].ravel()], axis=1)
    above = np.stack([numbers[:-1].ravel(), numbers[1:].ravel()], axis=1)
    return PottsGrid(image, labels, node, coupling * np.eye(n_labels), np.concatenate([beside, above]))


# Each tag, the one that it depends on, its chance where that one is absent and where it is present, and how well the
# features know it.
_TAGS = (
    ("outdoors", None, 0.5, 0.5, 2.0),
    ("water", "outdoors", 0.05, 0.45, 1.5),
    ("beach", "water", 0.02, 0.55, 0.8),
    ("boat", "water", 0.02, 0.40, 0.6),
    ("mountain", "outdoors", 0.02, 0.40, 1.5),
    ("snow", "mountain", 0.06, 0.50, 1.2),
    ("ski", "snow", 0.01, 0.55, 0.4),
    ("street", "outdoors", 0.04, 0.40, 1.2),
    ("car", "street", 0.05, 0.60, 0.6),
    ("people", "outdoors", 0.60, 0.40, 1.5),
    ("party", "people", 0.02, 0.40, 0.6),
    ("food", "party", 0.15, 0.65, 0.8),
)
TAGS = tuple(name for name, *_ in _TAGS)


@dataclass(frozen=True, eq=False)
class TaggedItems:
    """Items with features and tags; ``tree`` joins each tag but the first to the one that it depends on.

    >>> made = make_tags(100)
    >>> made, made.tree[:3].tolist()
    (<TaggedItems: 100 items, 12 tags, 20 features>, [[0, 1], [1, 2], [1, 3]])
    """

    features: np.ndarray  # (n, F)
    tags: np.ndarray  # (n, T) int64, 0 or 1
    names: tuple[str, ...]
    tree: np.ndarray  # (T - 1, 2) numbers of tags

    def __len__(self) -> int:
        return len(self.tags)

    def __repr__(self) -> str:
        return f"<TaggedItems: {len(self):,} items, {len(self.names)} tags, {self.features.shape[1]} features>"


def make_tags(
    n_items: int = 500,
    *,
    n_features: int = 20,
    noise: float = 1.0,
    random_state: int | np.random.Generator | None = 0,
) -> TaggedItems:
    """Make items: p(tags) = Π_t p(tag_t | the tag it depends on), features = Σ_t tag_t · direction_t + noise.

    >>> tags = make_tags(2_000).tags
    >>> ski, snow = tags[:, TAGS.index("ski")], tags[:, TAGS.index("snow")]
    >>> bool(ski[snow == 1].mean() > 10 * ski[snow == 0].mean())
    True
    """
    if n_items < 0 or n_features < 1 or noise < 0:
        raise InputError(
            f"expected n_items ≥ 0, n_features ≥ 1 and noise ≥ 0, got n_items={n_items}, n_features={n_features}, "
            f"noise={noise}."
        )
    rng = np.random.default_rng(random_state)
    directions = rng.normal(size=(len(TAGS), n_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions *= np.array([known for *_, known in _TAGS])[:, None]
    tags = np.zeros((n_items, len(TAGS)), np.int64)
    tree = []
    for t, (_, parent, absent, present, _) in enumerate(_TAGS):
        chance = np.full(n_items, absent)
        if parent is not None:
            tree.append((TAGS.index(parent), t))
            chance = np.where(tags[:, TAGS.index(parent)] == 1, present, absent)
        tags[:, t] = rng.random(n_items) < chance
    features = tags @ directions + noise * rng.normal(size=(n_items, n_features))
    return TaggedItems(features, tags, TAGS, np.array(tree))
