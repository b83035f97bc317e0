"""Frequent weights of parts that come again, and the curvature that their steps are made of."""

from __future__ import annotations

import numpy as np
import pytest

from crfield import ChainCRF
from crfield.data.labels import LabelCoder
from crfield.optimize.penalty import Penalty
from crfield.training import drawn_curvature as drawn
from crfield.training.chain import frequent_weights, remembered_passes
from tests.cases.chains import needs_native
from tests.training.chain.test_partial_fit import in_passes, objective, remembered, sentences


@needs_native
@pytest.mark.parametrize("shuffled", [False, True])
def test_frequent_weights_have_steps_that_leave_nothing(shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(200)
    best = ChainCRF(tol=1e-8).fit(X, y).objective_
    model = in_passes(ChainCRF(), X, y, parts=10, passes=10, shuffled=shuffled)
    frequent = remembered(model).frequent
    assert 20 < len(frequent.index) < frequent_weights.MOST
    assert len(frequent.points) <= 20
    assert sum(frequent.members.values()) == len(frequent.point) == 200
    left = objective(model, X, y) - best
    monkeypatch.setattr(frequent_weights, "MOST", 0)
    model = in_passes(ChainCRF(), X, y, parts=10, passes=10, shuffled=shuffled)
    assert len(remembered(model).frequent.index) == 0
    assert not remembered(model).frequent.moved
    assert -1e-9 * best <= left < 1e-5 * best
    assert left < 0.2 * (objective(model, X, y) - best)


@needs_native
def test_calls_of_single_sequences_share_the_places_that_are_kept() -> None:
    X, y = sentences(70)
    model = in_passes(ChainCRF(), X, y, parts=70, passes=5)
    assert len(remembered(model).frequent.points) <= frequent_weights.POINTS
    assert sum(remembered(model).frequent.members.values()) == 70
    two = frequent_weights.FrequentWeights.of(np.zeros(3), np.array([900.0, 1000.0, 2.0]), 1000)
    assert two.index.tolist() == [0, 1]
    for number in range(1000):
        two.visited(np.array([number]), np.full(3, float(number)))
    assert len(two.points) == -(-1000 // -(-1000 // frequent_weights.POINTS))
    np.testing.assert_allclose(sum(k * two.points[p] for p, k in two.members.items()), 999 * 500)


def test_a_step_of_frequent_weights_ends_where_the_slope_is_nothing() -> None:
    rng, n = np.random.default_rng(0), 6
    root, goal = rng.normal(size=(4, 4)), rng.normal(size=4)
    each = root @ root.T / n  # the curvature of each sequence, whose slope at w is each (w − goal)
    known = frequent_weights.FrequentWeights.of(np.zeros(4), np.full(4, float(n)), n)
    known.bend[:] = n * each
    known.end_pass(Penalty(l2=2.0), 4, 1.0)
    at = rng.normal(size=(n, 4))
    for number, here in enumerate(at):
        known.visited(np.array([number]), here)
    weights = rng.normal(size=4)
    known.step(weights, (at - goal).sum(axis=0) @ each, Penalty(l2=2.0))
    np.testing.assert_allclose(n * each @ (weights - goal) + 2.0 * weights, 0.0, atol=1e-6)


@needs_native
def test_more_labels_than_can_be_drawn_have_no_frequent_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(40)
    monkeypatch.setattr(remembered_passes, "FEW_LABELS", 1)
    model = in_passes(ChainCRF(), X, y, parts=2, passes=5)
    assert len(remembered(model).frequent.index) == 0


@pytest.mark.parametrize("pieces", [None, 20])
def test_drawn_curvature_of_chosen_weights(pieces: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(40 if pieces is None else 400)
    model = ChainCRF()
    labels = LabelCoder().fit(y)
    fitted, batch, target, _ = model.read_training(labels, X, y, None, None)
    layout, part = fitted.layout, fitted.layout.part
    problem = model._parts(fitted, batch, target).problem("likelihood")
    weights = 0.3 * np.random.default_rng(3).normal(size=layout.n_weights)
    some = [part["node"].start, part["node"].start + 9, *range(part["start"].start, part["transitions"].stop)]
    index, exact = np.array(some), np.empty((len(some), len(some)))
    above, below = np.empty((2, layout.n_weights))
    for row, place in enumerate(some):
        moved = weights.copy()
        moved[place] += 1e-5
        problem.evaluate(moved, above)
        moved[place] -= 2e-5
        problem.evaluate(moved, below)
        exact[row] = (above - below)[index] / 2e-5
    monkeypatch.setattr(drawn, "COUNTS", 40_000)  # many chunks
    rng = np.random.default_rng(0)
    if pieces is None:
        about = drawn.drawn_curvature(layout, batch, None, weights, rng, draws=2000, index=index)
        mean, atol = about, 0.1
    else:
        made = [
            drawn.drawn_curvature(layout, batch, None, weights, rng, draws=40, pieces=pieces, index=index)
            for _ in range(60)
        ]
        mean, atol = np.mean(made, axis=0), 0.15
    size = np.sqrt(np.maximum(np.diag(exact), 1e-3))
    np.testing.assert_allclose(mean / np.outer(size, size), exact / np.outer(size, size), atol=atol)
