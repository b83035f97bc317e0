"""The study of hidden Markov models and conditional random fields: worlds, claims, the columns of the field."""

from __future__ import annotations

import numpy as np
import pytest

from studies.vail.hmm_vs_crf import COPIES, FIELD, MARKOV, SWITCHED, UNLINKED, copied, switched, wrong


def trial(world: str, place: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, 7])
    make = copied if world == COPIES else switched
    train, test = (make(place, 1000, rng) for _ in range(2))  # type: ignore[operator]
    names = (MARKOV, FIELD) if world == COPIES else (MARKOV, FIELD, UNLINKED)
    return {name: wrong(name, world, train, test) for name in names}


def test_worlds_are_as_described() -> None:
    X, y = copied(3, 20_000, np.random.default_rng(0))
    assert (X[:, 0] == X[:, 1]).all()
    np.testing.assert_allclose((y[:, None] != X).mean(axis=0), [0.2] * 3 + [0.25] * 3, atol=0.01)
    assert (y[1:] == y[:-1]).mean() == pytest.approx(0.75, abs=0.01)
    X, y = switched(0.9, 20_000, np.random.default_rng(0))
    stays = y[1:] == y[:-1]
    assert stays[X[:-1, 1] == 1].mean() == pytest.approx(0.9, abs=0.01)
    assert stays[X[:-1, 1] == 0].mean() == pytest.approx(0.1, abs=0.01)


def test_figures_of_copies_and_switches() -> None:
    found = [trial(COPIES, 10, seed) for seed in range(12)]
    assert np.mean([f[MARKOV] for f in found]) == pytest.approx(0.195, abs=0.015)
    assert np.mean([f[FIELD] for f in found]) == pytest.approx(0.028, abs=0.008)
    found = [trial(SWITCHED, 0.02, seed) for seed in range(6)]
    assert np.mean([f[MARKOV] for f in found]) == pytest.approx(0.25, abs=0.015)
    assert np.mean([f[UNLINKED] for f in found]) == pytest.approx(0.25, abs=0.015)
    assert np.mean([f[FIELD] for f in found]) < 0.08
