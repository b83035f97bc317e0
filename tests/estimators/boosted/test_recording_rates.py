"""Virtual-evidence boosting on recordings that were sampled at different rates: who is told, and who is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield import VirtualEvidenceBoosting, chain
from crfield.errors import DataWarning
from crfield.simulate.order_chains import make_order_chains


def recordings(rates: list[float], seed: int, *, stay: float = 0.0, n: int = 80) -> tuple[list[Any], list[Any]]:
    """Sequences of two labels, each with a rate of its own; a label repeats the one before with chance ``stay``."""
    rng = np.random.default_rng(seed)
    y = []
    for rate in rates:
        own = (rng.random(n) < rate).astype(int)
        for t in np.flatnonzero(rng.random(n - 1) < stay) + 1:
            own[t] = own[t - 1]
        y.append(own)
    return [rng.normal(size=(n, 1)) + 0.5 * labels[:, None] for labels in y], y


@pytest.mark.parametrize("mode", ["exact", "paper", "verified"])
def test_recordings_of_different_rates_are_told_of(mode: str) -> None:
    X, y = recordings([0.1, 0.9] * 4, 0)
    options: dict[str, Any] = {"mode": mode, "start": "prior", "n_rounds": 10}
    with pytest.warns(DataWarning, match=r"share of label . \(0.0. … 0.9.\).*tell sequences apart"):
        VirtualEvidenceBoosting(relations=(1, 5, 20), **options).fit(X, y)
    VirtualEvidenceBoosting(relations=(5,), **options).fit(X, y)  # nothing to choose from
    chains = [chain(x, distances=(1, 5, 20), symmetric=True) for x in X]
    with pytest.warns(DataWarning, match="sequences differ"):
        VirtualEvidenceBoosting(**options).fit(chains, y)


def test_columns_that_tell_recordings_apart_are_enough() -> None:
    rates = [0.1, 0.9] * 4
    for seed in range(5):
        X, y = recordings(rates, seed)
        named = [np.column_stack([x, np.full(len(x), rate)]) for x, rate in zip(X, rates, strict=True)]
        model = VirtualEvidenceBoosting(relations=(1, 5, 20), n_rounds=30).fit(named, y)  # warnings are errors here
        assert "x[1] > 0.5" in model.rounds_.picks


def test_recordings_of_like_rates_raise_no_alarm() -> None:
    """Warnings are errors here: twenty seeds of independent and of dependent steps, and chains of any order."""
    for seed in range(20):
        for stay in (0.0, 0.9):
            X, y = recordings([0.4] * 6, seed, stay=stay)
            VirtualEvidenceBoosting(relations=(1, 5, 20), n_rounds=10).fit(X, y)
        world = make_order_chains(0.95, 1 + seed % 3, n_chains=4, length=300, n_features=5, random_state=seed)
        model = VirtualEvidenceBoosting(relations=(1, 2, 3), n_rounds=15).fit(world.features, world.labels)
        assert model.accepted_relations_
