"""Chains whose label depends on the label k steps back, and days of activities: two worlds for structure learners.

`make_order_chains` is the synthetic experiment of Liao, Choudhury, Fox & Kautz (2007, *Training conditional random
fields using virtual evidence boosting*, section 5.1): binary labels that repeat the label k steps before with
probability p, and many binary observations that each say almost nothing (their chances differ by less than a tenth
between the labels). With p = 0.5 nothing connects the steps, with p near one nearly everything that can be known
about a step is known from others. For k > 1 a chain falls into k interleaved ones, so a learner that is offered all
pairs up to some distance must find the one relation that is true.

`make_activity_days` stands for a person's days: long stretches of one of five activities, numeric sensor features
of which only the first ten (before they are shuffled) know of the activity, an offset of each day that no model has
seen, and noise that remembers the minute before. Few long stretches and many features: the number of independent
cases is far smaller than the number of steps, which is what makes such data hard.

Both draw their numbers in one fixed order, so a seed means the same data everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError


@dataclass(frozen=True, eq=False)
class OrderChains:
    """Chains of order k: observations, labels, and the chances that made them.

    >>> chains = make_order_chains(0.9, 2, n_chains=3, length=50, n_features=4)
    >>> chains
    <OrderChains: 3 chains of 50 steps, order 2, p = 0.9, 4 features>
    >>> x, y = next(iter(zip(chains.features, chains.labels)))
    >>> x.shape, y.shape
    ((50, 4), (50,))
    """

    features: list[np.ndarray]  # (length, F) int8, 0 or 1
    labels: list[np.ndarray]  # (length,) int64, 0 or 1
    chances: np.ndarray  # (F, 2) chance that a feature is 1 under each label
    p: float
    order: int

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        length = len(self.labels[0]) if self.labels else 0
        return (
            f"<OrderChains: {len(self)} chains of {length:,} steps, order {self.order}, p = {self.p:g}, "
            f"{len(self.chances)} features>"
        )

    @property
    def node_scores(self) -> list[np.ndarray]:
        """(length, 2) log p(x_t | y_t) of every chain under the chances that made it."""
        yes, no = np.log(self.chances), np.log1p(-self.chances)
        return [x @ (yes - no) + no.sum(axis=0) for x in self.features]

    @property
    def edge_scores(self) -> np.ndarray:
        """(2, 2) log p(y_n | y_{n-order}), the true table of the true relation.

        With `node_scores`, and a relation that joins the steps n − order and n, it is the model that made the data,
        so no learner can expect to do better: the Bayes ceiling.
        """
        with np.errstate(divide="ignore"):
            stay, flip = np.log(np.float64(self.p)), np.log(np.float64(1 - self.p))
        return np.array([[stay, flip], [flip, stay]])


def make_order_chains(
    p: float = 0.9,
    order: int = 1,
    *,
    n_chains: int = 10,
    length: int = 2_000,
    n_features: int = 50,
    random_state: int | np.random.Generator | None = 0,
) -> OrderChains:
    """Make higher-order chains: y_n = y_{n−order} with probability p, and weakly informative binary features.

        chance_f(y) ~ U(0.45, 0.55)        x_n,f ~ Bernoulli(chance_f(y_n))        the first labels are fair coins

    >>> same = make_order_chains(1.0, 3, n_chains=1, length=9, n_features=2).labels[0]
    >>> bool((same[3:] == same[:-3]).all())
    True
    """
    if not 0 <= p <= 1:
        raise InputError(f"p is the probability that a label repeats the one {order} steps back, in 0 … 1; got {p}.")
    if order < 1 or n_chains < 0 or length < order or n_features < 0:
        raise InputError(
            "expected order ≥ 1, length ≥ order, n_chains ≥ 0 and n_features ≥ 0, got "
            f"order={order}, length={length}, n_chains={n_chains}, n_features={n_features}."
        )
    rng = np.random.default_rng(random_state)
    chances = rng.uniform(0.45, 0.55, (n_features, 2))
    features, labels = [], []
    for _ in range(n_chains):
        first = rng.integers(0, 2, order)
        flips = (rng.random(length - order) >= p).astype(np.int64)
        # Each of the `order` interleaved chains is a running parity: its first label, then one flip after another.
        steps = np.concatenate([first, flips])
        y = np.empty(length, np.int64)
        for start in range(order):
            y[start::order] = np.cumsum(steps[start::order]) & 1
        features.append((rng.random((length, n_features)) < chances[:, y].T).astype(np.int8))
        labels.append(y)
    return OrderChains(features, labels, chances, float(p), int(order))


@dataclass(frozen=True, eq=False)
class ActivityDays:
    """Days of activities: numeric features and a label for every step.

    >>> days = make_activity_days(n_days=3, length=20, n_features=12)
    >>> days, days.features[0].shape, sorted(days.informative.tolist()) == sorted(set(days.informative.tolist()))
    (<ActivityDays: 3 days, 60 steps, 12 features>, (20, 12), True)
    """

    features: list[np.ndarray]  # (length, F)
    labels: list[np.ndarray]  # (length,) int64
    order: np.ndarray  # (F,) column c holds the feature that was made as number order[c]
    informative: np.ndarray  # columns that know of the activity

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<ActivityDays: {len(self)} days, {sum(map(len, self.labels)):,} steps, {len(self.order)} features>"


def make_activity_days(
    n_features: int = 30,
    *,
    n_labels: int = 5,
    n_days: int = 12,
    length: int = 92,
    n_informative: int = 10,
    random_state: int | np.random.Generator | None = 0,
) -> ActivityDays:
    """Make days in which stretches of 10 to 60 steps of one activity follow one another.

        x = offset of the day + mean_y + deviation_y · noise        (informative features; the others: offset + noise)
        noise_t = 0.7 noise_{t−1} + √(1 − 0.49) e_t

    Of the informative features the second, fifth, … are on a log scale: exp(x), with x clipped to −8 … 5.

    >>> a, b = make_activity_days(random_state=4), make_activity_days(random_state=4)
    >>> all((x == z).all() for x, z in zip(a.features, b.features))
    True
    """
    if n_labels < 2 or n_days < 0 or length < 1 or not 0 <= n_informative <= n_features:
        raise InputError(
            "expected n_labels ≥ 2, n_days ≥ 0, length ≥ 1 and 0 ≤ n_informative ≤ n_features, got "
            f"n_labels={n_labels}, n_days={n_days}, length={length}, n_informative={n_informative}, "
            f"n_features={n_features}."
        )
    rng = np.random.default_rng(random_state)
    means = rng.normal(0, 0.8, (n_labels, n_informative))
    deviations = np.exp(rng.normal(0, 0.4, (n_labels, n_informative)))
    order = rng.permutation(n_features)
    logarithmic = np.arange(1, n_informative, 3)
    features, labels = [], []
    for _ in range(n_days):
        y = _stretches(rng, n_labels, length)
        offset = rng.normal(0, 0.5, n_features)
        noise = rng.normal(size=(length, n_features))
        for t in range(1, length):
            noise[t] = 0.7 * noise[t - 1] + np.sqrt(1 - 0.49) * noise[t]
        x = noise.copy()
        x[:, :n_informative] = means[y] + deviations[y] * noise[:, :n_informative]
        x += offset
        x[:, logarithmic] = np.exp(np.clip(x[:, logarithmic], -8, 5))
        features.append(x[:, order])
        labels.append(y)
    return ActivityDays(features, labels, order, np.flatnonzero(order < n_informative))


def _stretches(rng: np.random.Generator, n_labels: int, length: int) -> np.ndarray:
    """(length,) labels in stretches of 10 to 60 steps, none after itself."""
    y: list[int] = []
    before = -1
    while len(y) < length:
        steps, label = int(rng.integers(10, 61)), int(rng.integers(0, n_labels))
        while label == before:
            label = int(rng.integers(0, n_labels))
        y += [label] * steps
        before = label
    return np.array(y[:length])
