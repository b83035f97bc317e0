"""Three worlds for feature selection: fading copies, columns that tell of changes, and a few true ones of very many.

The first two are from Vail (2008, *Conditional random fields for activity recognition*, section 3.3). Binary labels
stay what they are with probability .75; every column is so noisy (mean ±1, deviation 5) that a model needs many.

`make_weak_features` (3.3.1): in each of k groups one column is informative. The n − 1 others are copies of it, of
which copy i is replaced by noise in 5 i % of the steps. One draw for each group and step decides about all copies,
so whatever copy i tells, copy i − 1 tells too: the first column makes all others superfluous, though each of them is
informative on its own. (The text prints the condition of the replacement the other way round, ``.05 i < c``, by which
the last copy would be best, against its own next sentence.) A filter takes them all; a method that looks again after
each choice need not.

`make_linked_features` (3.3.4): columns come in pairs. The first of a pair depends on the label, the second on whether
the label has just changed, which no function of a single label can use. What should be linked to labels and what to
pairs of labels is then a question of selection. The label before the first step is drawn too, and not shown.

`make_sparse_columns`: three labels, and of 2,000 columns of standard normal noise twenty are raised under one label
each, by half a deviation to one and a tenth. There are fewer steps than columns, so whoever looks at all of them
finds dozens that seem true; which ones are is known.

The thesis offers the models each value and its square, which together are a normal density for each label: `powers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError, ShapeError

FADING = 0.05  # copy i is replaced in this share of steps, times i


@dataclass(frozen=True, eq=False)
class WeakFeatures:
    """Chains with groups of columns: ``rank`` 0 is the informative one of its group, the others are worse copies.

    >>> world = make_weak_features(100, n_groups=3, n_copies=2, n_chains=2)
    >>> world
    <WeakFeatures: 2 chains, 200 steps, 3 groups of 2 columns>
    >>> world.features[0].shape, world.group.tolist(), world.rank.tolist()
    ((100, 6), [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1])
    """

    features: list[np.ndarray]  # (length, k n)
    labels: list[np.ndarray]  # (length,) int64, 0 or 1
    group: np.ndarray  # (k n,)
    rank: np.ndarray  # (k n,)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        groups = len(np.unique(self.group))
        copies = len(self.group) // max(groups, 1)
        return (
            f"<WeakFeatures: {len(self)} chains, {sum(map(len, self.labels)):,} steps, {groups} groups of {copies} "
            "columns>"
        )

    @property
    def names(self) -> list[str]:
        """Name of every column: the group, and the number of the copy."""
        return [f"g{group}v{rank}" for group, rank in zip(self.group, self.rank)]


@dataclass(frozen=True, eq=False)
class LinkedFeatures:
    """Chains with pairs of columns: even ones know of the label, odd ones of whether it has just changed.

    >>> world = make_linked_features(50, n_pairs=2)
    >>> world, world.of_change.tolist()
    (<LinkedFeatures: 1 chains, 50 steps, 2 pairs of columns>, [False, True, False, True])
    """

    features: list[np.ndarray]  # (length, 2 pairs)
    labels: list[np.ndarray]  # (length,) int64, 0 or 1
    of_change: np.ndarray  # (2 pairs,) bool

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        steps = sum(map(len, self.labels))
        return f"<LinkedFeatures: {len(self)} chains, {steps:,} steps, {len(self.of_change) // 2} pairs of columns>"

    @property
    def names(self) -> list[str]:
        """Name of every column."""
        return [f"{'change' if odd else 'label'}{k // 2}" for k, odd in enumerate(self.of_change)]


@dataclass(frozen=True, eq=False)
class SparseColumns:
    """Chains with many columns, few of them true.

    >>> world = make_sparse_columns(20, n_columns=100, n_true=3, n_chains=2)
    >>> world, len(world.true)
    (<SparseColumns: 2 chains, 40 steps, 3 of 100 columns true>, 3)
    """

    features: list[np.ndarray]  # (length, columns)
    labels: list[np.ndarray]  # (length,) int64
    true: np.ndarray  # (n_true,) columns that are raised
    label: np.ndarray  # (n_true,) the label under which each is
    raised: np.ndarray  # (n_true,) by how much

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        steps, columns = sum(map(len, self.labels)), self.features[0].shape[1]
        return f"<SparseColumns: {len(self)} chains, {steps:,} steps, {len(self.true)} of {columns:,} columns true>"


def make_sparse_columns(
    length: int = 60,
    *,
    n_chains: int = 12,
    n_columns: int = 2000,
    n_true: int = 20,
    n_labels: int = 3,
    stay: float = 0.85,
    low: float = 0.48,
    high: float = 1.12,
    random_state: int | np.random.Generator | None = 0,
) -> SparseColumns:
    """Make chains in which ``n_true`` of ``n_columns`` columns know something of the labels.

        x_k ~ N(raised_k [y = label_k], 1)        raised ~ U(low, high) for true columns, 0 for others

    A label stays with probability ``stay`` and is drawn anew from all of them otherwise.

    >>> world = make_sparse_columns(5000, n_chains=1, n_columns=3, n_true=1)
    >>> x, y = world.features[0][:, world.true[0]], world.labels[0] == world.label[0]
    >>> bool(abs(x[y].mean() - x[~y].mean() - world.raised[0]) < 0.1)
    True
    """
    _check(length, n_chains, stay, 1.0)
    if not 0 <= n_true <= n_columns or n_columns < 1 or n_labels < 2:
        raise InputError(
            "expected n_labels ≥ 2 and n_true in 0 … n_columns, got "
            f"n_labels={n_labels}, n_true={n_true}, n_columns={n_columns}."
        )
    rng = np.random.default_rng(random_state)
    true = rng.choice(n_columns, n_true, replace=False)
    label = rng.integers(0, n_labels, n_true)
    raised = rng.uniform(low, high, n_true)
    features, labels = [], []
    for _ in range(n_chains):
        drawn = rng.integers(0, n_labels, length)
        anew = rng.random(length) >= stay
        anew[0] = True
        y = drawn[np.maximum.accumulate(np.where(anew, np.arange(length), 0))]
        x = rng.normal(size=(length, n_columns))
        x[:, true] += raised * (y[:, None] == label)
        features.append(x)
        labels.append(y)
    return SparseColumns(features, labels, true, label, raised)


def make_weak_features(
    length: int = 1024,
    *,
    n_groups: int = 10,
    n_copies: int = 5,
    n_chains: int = 1,
    stay: float = 0.75,
    deviation: float = 5.0,
    random_state: int | np.random.Generator | None = 0,
) -> WeakFeatures:
    """Make chains with ``n_groups`` groups of ``n_copies`` columns.

        v_0 ~ N(±1, deviation²)    c ~ U(0, 1)    v_i = N(0, 2 deviation²) where c < .05 i, else v_0

    >>> world = make_weak_features(4000, n_groups=1, n_copies=3)
    >>> same = world.features[0][:, :1] == world.features[0]
    >>> same.mean(axis=0).round(2).tolist()
    [1.0, 0.9..., 0.9]
    """
    if n_groups < 1 or n_copies < 1 or (n_copies - 1) * FADING > 1:
        raise InputError(
            f"expected n_groups ≥ 1 and n_copies in 1 … {int(1 / FADING) + 1}, got {n_groups} and {n_copies}."
        )
    _check(length, n_chains, stay, deviation)
    rng = np.random.default_rng(random_state)
    rank = np.tile(np.arange(n_copies), n_groups)
    features, labels = [], []
    for _ in range(n_chains):
        y = _markov(rng, length, stay)
        first = rng.normal(2.0 * y[:, None] - 1.0, deviation, (length, n_groups))
        lost = rng.random((length, n_groups))
        noise = rng.normal(0.0, np.sqrt(2.0) * deviation, (length, n_groups * n_copies))
        x = np.repeat(first, n_copies, axis=1)
        gone = np.repeat(lost, n_copies, axis=1) < FADING * rank
        features.append(np.where(gone, noise, x))
        labels.append(y)
    return WeakFeatures(features, labels, np.repeat(np.arange(n_groups), n_copies), rank)


def make_linked_features(
    length: int = 1024,
    *,
    n_pairs: int = 10,
    n_chains: int = 1,
    stay: float = 0.75,
    deviation: float = 5.0,
    random_state: int | np.random.Generator | None = 0,
) -> LinkedFeatures:
    """Make chains with ``n_pairs`` pairs of columns.

        x_2i ~ N(±1, deviation²) by y_t        x_2i+1 ~ N(±1, deviation²) by whether y_t ≠ y_{t-1}

    >>> world = make_linked_features(20_000, n_pairs=1)
    >>> x, y = world.features[0][1:], world.labels[0]
    >>> changed = y[1:] != y[:-1]
    >>> [round(float(x[changed, 1].mean() - x[~changed, 1].mean()), 1), round(float(changed.mean()), 2)]
    [2..., 0.2...]
    """
    if n_pairs < 1:
        raise InputError(f"expected n_pairs ≥ 1, got {n_pairs}.")
    _check(length, n_chains, stay, deviation)
    rng = np.random.default_rng(random_state)
    features, labels = [], []
    for _ in range(n_chains):
        y = _markov(rng, length + 1, stay)
        now, changed = y[1:], (y[1:] != y[:-1]).astype(np.int64)
        told = np.stack([now, changed], axis=1)[:, None].repeat(n_pairs, axis=1).reshape(length, 2 * n_pairs)
        features.append(rng.normal(2.0 * told - 1.0, deviation))
        labels.append(now)
    return LinkedFeatures(features, labels, np.tile([False, True], n_pairs))


def powers(columns: np.ndarray) -> np.ndarray:
    """(N, 2 K) values and, after them, their squares.

    >>> powers(np.array([[2.0, -3.0]])).tolist()
    [[2.0, -3.0, 4.0, 9.0]]
    """
    columns = np.asarray(columns, dtype=np.float64)
    if columns.ndim != 2:
        raise ShapeError(f"columns must be (n_steps, n_columns), got {columns.shape}.")
    return np.hstack([columns, columns**2])


def _check(length: int, n_chains: int, stay: float, deviation: float) -> None:
    if length < 1 or n_chains < 1 or not 0 <= stay <= 1 or not deviation > 0:
        raise InputError(
            "expected length ≥ 1, n_chains ≥ 1, stay in 0 … 1 and deviation > 0, got "
            f"length={length}, n_chains={n_chains}, stay={stay}, deviation={deviation}."
        )


def _markov(rng: np.random.Generator, length: int, stay: float) -> np.ndarray:
    """(length,) labels 0 and 1 that stay with that probability; the first is a fair coin."""
    first = rng.integers(0, 2, 1)
    flips = (rng.random(length - 1) >= stay).astype(np.int64)
    return np.cumsum(np.concatenate([first, flips])) & 1
