"""Smooth series: real-valued labels drawn from the field that a `ContinuousCRF` learns, so that the truth is known.

    r_t = ⟨w, x_t⟩ + w₀        y ~ Gaussian with score −½ α Σ_t (y_t − r_t)² − ½ β Σ_t (y_{t+1} − y_t)²

Features are white, so a single step's own features are a noisy hint at a label that moves slowly: a regression of
single steps is unbiased and rough, and what is gained over it comes from neighbours alone. Labels are drawn
exactly, by a banded Cholesky factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.quadratic import Quadratic
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.gaussian import GaussianEngine


@dataclass(frozen=True, eq=False)
class SmoothSeries:
    """Series of features (T, K) and labels (T,), the numbers that made them, and the best predictions there are."""

    features: list[np.ndarray]
    labels: list[np.ndarray]
    coef: np.ndarray  # (K,)
    intercept: float
    association: float
    interaction: float
    means: list[np.ndarray]  # of the labels given the features, by the true numbers


def make_smooth_series(
    n_series: int = 40,
    *,
    length: int = 100,
    n_features: int = 4,
    association: float = 1.0,
    interaction: float = 4.0,
    intercept: float = 0.5,
    random_state: Any = 0,
) -> SmoothSeries:
    """Make series of real labels, coupled with precision ``interaction`` and to features with ``association``.

    >>> series = make_smooth_series(3, length=50, random_state=1)
    >>> len(series.labels), series.features[0].shape, series.coef.round(2).tolist()
    (3, (50, 4), [0.69, 1.64, 0.66, -2.61])
    """
    for name, count in (("n_series", n_series), ("length", length), ("n_features", n_features)):
        if isinstance(count, bool) or int(count) != count or count < 1:
            raise InputError(f"{name} must be an integer ≥ 1, got {count!r}.")
    for name, value in (("association", association), ("interaction", interaction)):
        if not 0 < value < np.inf:
            raise InputError(f"{name} must be a finite number > 0, got {value!r}.")
    rng = np.random.default_rng(random_state)
    coef = 2.0 * rng.normal(size=n_features)
    chains = Chains.from_lengths([length] * n_series)
    features = rng.normal(size=(chains.n_nodes, n_features))
    field = smooth_field(features @ coef + intercept, chains, association=association, interaction=interaction)
    engine = GaussianEngine()
    labels, means = engine.sample(field, rng), engine.infer(field).mean
    cuts = chains.offsets[1:-1]
    return SmoothSeries(
        np.split(features, cuts),
        np.split(labels, cuts),
        coef,
        float(intercept),
        float(association),
        float(interaction),
        np.split(means, cuts),
    )


def smooth_field(predicted: np.ndarray, chains: Chains, *, association: float, interaction: float) -> Quadratic:
    """The field of predictions (N,) along chains.

    >>> field = smooth_field(np.array([1.0, 2.0]), Chains.from_lengths([2]), association=1.0, interaction=3.0)
    >>> field.dense(0).tolist()
    [[4.0, -3.0], [-3.0, 4.0]]
    """
    n = chains.n_nodes
    degree = np.bincount(chains.tails, minlength=n) + np.bincount(chains.heads, minlength=n)
    edge = np.full(chains.n_edges, -interaction)
    return Quadratic(association + interaction * degree, edge, association * predicted, chains)
