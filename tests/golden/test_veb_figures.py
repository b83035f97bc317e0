"""Figures that an independent prototype of virtual evidence boosting gave for the same generators.

The quick ones run always; CRFIELD_LONG=1 in the environment runs the long ones too, about a minute.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF, VirtualEvidenceBoosting, make_activity_days, make_order_chains
from crfield.simulate.order_chains import ActivityDays, OrderChains

long = pytest.mark.skipif(not os.environ.get("CRFIELD_LONG"), reason="CRFIELD_LONG=1 runs the long studies")


def both(model: Any, X: Any, y: Any) -> tuple[float, float]:
    """Accuracy of the best labelling as a whole, and of the best label of each step."""
    whole = model.set_params(decode="map").score(X, y)
    return whole, model.set_params(decode="marginal").score(X, y)


@cache
def small(order: int = 1) -> OrderChains:
    return make_order_chains(0.9, order, n_chains=4, length=300, n_features=10, random_state=7)


def paper(**options: Any) -> VirtualEvidenceBoosting:
    return VirtualEvidenceBoosting(mode="paper", **options)


def joint_table(step: np.ndarray) -> np.ndarray:
    """½ (I + I') + r + r' of a one-sided step r + I, rows for the own label."""
    bias = step.mean(axis=1)
    pure = step - bias[:, None]
    return np.asarray((pure + pure.T) / 2 + bias[:, None] + bias)


# --------------------------------------------------------------------------------------------- deterministic


def test_the_picks_of_the_paper_mode(body: str) -> None:
    """Equation 9, no prior, one synchronous sweep, carried messages, responses up to 4, the joint potential."""
    data = small()
    model = paper().fit(data.features[:3], data.labels[:3])
    assert model.rounds_.picks[:6] == [*(f"x[{column}] > 0.5" for column in (4, 2, 1, 7, 8)), "+1"]
    first = paper(n_rounds=6, potential="patch").fit(data.features[:3], data.labels[:3])
    step = np.array([[0.031401, -0.029709], [-0.031401, 0.029709]])
    np.testing.assert_allclose(first.relation_weights("+1").weights, joint_table(step), atol=2e-6)
    np.testing.assert_allclose(
        model.relation_weights("+1").weights.ravel(), [1.02424, -0.96536, -0.96536, 0.90648], atol=1e-4
    )
    assert len(model.rounds_) == 50
    assert model.rounds_[-2].nll == pytest.approx(0.612809, abs=1e-4)  # the prototype told it before each step
    assert both(model, data.features[3:], data.labels[3:]) == pytest.approx((0.6767, 0.6333), abs=1e-4)


def test_the_one_sided_form(body: str) -> None:
    """Literal form: α = (−1.01726, .91505) for label 1 beside neighbours 0 and 1, seen through the joint table."""
    data = small()
    model = paper(potential="patch").fit(data.features[:3], data.labels[:3])
    assert model.rounds_[-2].nll == pytest.approx(0.612925, abs=1e-4)
    alpha = np.array([[1.01726, -0.91505], [-1.01726, 0.91505]])  # rows the own label
    np.testing.assert_allclose(model.relation_weights("+1").weights, joint_table(alpha), atol=1e-4)


def test_only_the_true_distance(body: str) -> None:
    data = small(2)
    model = paper(relations=(1, 2, 3)).fit(data.features[:3], data.labels[:3])
    counts = model.rounds_.relations
    assert counts["+2"] > 35
    assert counts.get("+1", 0) <= 1
    assert "+3" not in counts


# ----------------------------------------------------------------------------------------------- statistical


def test_one_world_of_strong_coupling() -> None:
    data = make_order_chains(0.95, random_state=1)
    model = paper().fit(data.features[1:], data.labels[1:])
    assert both(model, data.features[:1], data.labels[:1]) == pytest.approx((0.655, 0.7135), abs=0.015)


def test_verified_finds_the_distance() -> None:
    """Exactly {k}, from half of the chains; the slow test has k = 1 … 5 on all of them."""
    for order in (1, 3):
        data = make_order_chains(0.9, order, n_chains=3, length=1_000, n_features=20, random_state=1)
        model = VirtualEvidenceBoosting(mode="verified", relations=(1, 2, 3, 4, 5), n_rounds=15)
        assert model.fit(data.features, data.labels).accepted_relations_ == [f"+{order}"]


@long
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_verified_accepts_exactly_the_true_relation(order: int) -> None:
    data = make_order_chains(0.9, order, random_state=1)
    model = VirtualEvidenceBoosting(mode="verified", relations=(1, 2, 3, 4, 5))
    model.fit(data.features[1:], data.labels[1:])
    assert model.accepted_relations_ == [f"+{order}"]
    asked = {one.pick: one for one in model.rounds_ if one.kind == "relation"}
    assert asked[f"+{order}"].gain > 8_000
    assert all(one.gain < 2 and not one.kept for name, one in asked.items() if name != f"+{order}")


@cache
def half_worlds() -> list[OrderChains]:
    return [make_order_chains(0.95, n_chains=15, length=1_000, random_state=seed) for seed in (11, 12, 13)]


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (paper(), (0.708, 0.760)),
        (VirtualEvidenceBoosting(), (0.778, 0.780)),
        pytest.param(VirtualEvidenceBoosting(mode="verified"), (0.771, 0.787), marks=long),
    ],
    ids=["paper", "exact", "verified"],
)
def test_three_worlds_of_five_chains(model: VirtualEvidenceBoosting, wanted: tuple[float, float]) -> None:
    found = []
    for data in half_worlds():
        model.set_params(decode="map").fit(data.features[:5], data.labels[:5])
        found.append(both(model, data.features[5:], data.labels[5:]))
    assert tuple(np.mean(found, axis=0)) == pytest.approx(wanted, abs=0.015)


@cache
def four_people() -> list[ActivityDays]:
    return [make_activity_days(30, n_days=42, random_state=seed) for seed in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (VirtualEvidenceBoosting(n_rounds=50, relations=(), response_limit=4.0), 0.737),
        (VirtualEvidenceBoosting(), 0.821),
        pytest.param(VirtualEvidenceBoosting(mode="verified", n_rounds=40), 0.838, marks=long),
    ],
    ids=["without relations", "exact", "verified"],
)
def test_days_of_activities(model: VirtualEvidenceBoosting, wanted: float) -> None:
    found = [model.fit(d.features[:12], d.labels[:12]).score(d.features[12:], d.labels[12:]) for d in four_people()]
    assert np.mean(found) == pytest.approx(wanted, abs=0.03)


def test_boosted_stumps_then_likelihood() -> None:
    """Columns of fifty stumps picked by LogitBoost, weights of a chain by likelihood."""
    found = []
    for days in four_people():
        alone = paper(relations=()).fit(days.features[:12], days.labels[:12])
        columns = [graph.nodes["node"] for graph in alone.transform(days.features)]
        model = ChainCRF(l2=5.0).fit(columns[:12], days.labels[:12])
        found.append(model.score(columns[12:], days.labels[12:]))
    assert np.mean(found) == pytest.approx(0.898, abs=0.03)
