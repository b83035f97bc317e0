"""Probabilities that are as good as they sound: the table, and the temperature of a chain."""

from __future__ import annotations

import numpy as np
import pytest

import crfield
from crfield.errors import InputError, ShapeError
from crfield.report.calibration import label_reliability, reliability


def world(n: int, seed: int) -> tuple[list, list]:
    """Words of which a tenth is noise."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.integers(0, 3, 3), 2)
        words = np.where(rng.random(6) < 0.3, rng.integers(0, 3, 6), labels)
        X.append([[f"w{word}", f"n{rng.integers(40)}"] for word in words])
        y.append([f"L{label}" for label in labels])
    return X, y


def test_the_table_by_hand() -> None:
    table = reliability([0.05, 0.15, 0.95, 1.0, 0.99], [False, True, True, True, False], bins=10)
    assert table.count.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    assert table.accuracy[[0, 1, 9]] == pytest.approx([0, 1, 2 / 3])
    assert table.confidence[[0, 1, 9]] == pytest.approx([0.05, 0.15, 0.98])
    assert table.error == pytest.approx((0.05 + 0.85 + 3 * (0.98 - 2 / 3)) / 5)
    assert [row["count"] for row in table.rows()] == [1, 1, 3]
    assert "expected calibration error" in repr(table)
    assert reliability([], []).error == 0.0


@pytest.mark.parametrize("kind", ["ChainCRF", "MEMM"])
def test_the_temperature_is_the_best_one(kind: str) -> None:
    X, y = world(40, 0)
    model = getattr(crfield, kind)(l2=0.02).fit(X, y)
    X_held, y_held = world(150, 1)
    cool = model.calibrated(X_held, y_held)
    assert cool.temperature_ > 1.2  # too little penalty: too sure
    best = cool.log_prob(X_held, y_held).sum()
    assert best > model.log_prob(X_held, y_held).sum() + 5
    assert cool.coef_ * cool.temperature_ == pytest.approx(model.coef_)
    again = cool.calibrated(X_held, y_held)
    assert again.temperature_ == pytest.approx(1.0, abs=1e-3)
    assert not hasattr(model, "temperature_")
    X_new, y_new = world(300, 2)
    if kind == "ChainCRF":
        assert all(a.tolist() == b.tolist() for a, b in zip(cool.predict(X_new), model.predict(X_new)))
    before, after = (label_reliability(own, X_new, y_new).error for own in (model, cool))
    assert after < before / 2


def test_longer_memories_are_calibrated_too() -> None:
    X, y = world(40, 0)
    model = crfield.ChainCRF(l2=0.02, order=2).fit(X, y)
    X_held, y_held = world(60, 1)
    cool = model.calibrated(X_held, y_held)
    assert cool.log_prob(X_held, y_held).sum() > model.log_prob(X_held, y_held).sum()
    assert cool.calibrated(X_held, y_held).temperature_ == pytest.approx(1.0, abs=1e-3)


def test_unknown_steps_and_sets() -> None:
    X, y = world(10, 0)
    model = crfield.ChainCRF().fit(X, y)
    whole = label_reliability(model, X, y)
    part = label_reliability(model, X[:1], [[None, {"L0", "L1", "L2"}, *y[0][2:]]])
    assert whole.count.sum() == 60
    assert part.count.sum() == 5


def test_bad_input() -> None:
    X, y = world(4, 0)
    model = crfield.ChainCRF().fit(X, y)
    with pytest.raises(ShapeError, match="one list of labels for each of 4"):
        label_reliability(model, X, y[:2])
    with pytest.raises(ShapeError, match="sequence 0 has 6 steps but 5 labels"):
        label_reliability(model, X, [own[:5] for own in y])
    with pytest.raises(InputError, match="lie in 0"):
        reliability([1.5], [True])
    with pytest.raises(InputError, match="bins"):
        reliability([0.5], [True], bins=0)
    with pytest.raises(ShapeError, match="one outcome for each"):
        reliability([0.5], [])
