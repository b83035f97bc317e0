"""Smallest cuts: enumeration, both bodies, what is refused, and pictures."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from crfield.kernels import choice, flow

INF = np.inf


def capacity(side: np.ndarray, excess: np.ndarray, arcs: tuple[np.ndarray, ...]) -> float:
    starts, ends, forward, back = arcs
    leaves, enters = side[starts] & ~side[ends], ~side[starts] & side[ends]
    own = np.maximum(excess, 0)[~side].sum() + np.maximum(-excess, 0)[side].sum()
    return float(own + forward[leaves].sum() + back[enters].sum())


def joints(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < share]).reshape(-1, 2)
    turned = rng.random(len(pairs)) < 0.5
    return np.where(turned, pairs[:, 1], pairs[:, 0]), np.where(turned, pairs[:, 0], pairs[:, 1])


@pytest.mark.parametrize("seed", range(12))
def test_the_smallest_of_all_cuts(body: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    starts, ends = joints(rng, n, 0.6)
    forward, back = rng.random((2, len(starts))) * rng.integers(0, 2, (2, len(starts)))
    forward[rng.random(len(starts)) < 0.1] = INF
    excess = rng.standard_normal(n) * (rng.random(n) < 0.8)
    found = flow.minimum_cut(excess, starts, ends, forward, back)
    arcs = (starts, ends, forward, back)
    sides = [np.array(side, bool) for side in product([False, True], repeat=n)]
    values = np.array([capacity(side, excess, arcs) for side in sides])
    assert capacity(found.source_side, excess, arcs) == pytest.approx(values.min(), abs=1e-12)
    assert found.gap <= 1e-12
    for side, value in zip(sides, values, strict=True):  # the one inside all others of the same capacity
        if value <= values.min() + 1e-12:
            assert not (found.source_side & ~side).any()


def grid(size: int, rng: np.random.Generator, labels: int, tables: int) -> tuple[Any, ...]:
    number = np.arange(size * size).reshape(size, size)
    tails = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    heads = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    edge = 0.3 * rng.standard_normal((tables, labels, labels)) + 2.0 * np.eye(labels)
    return rng.standard_normal((size * size, labels)), edge, rng.integers(0, tables, len(tails)), tails, heads


def score(scores: tuple[Any, ...], labels: np.ndarray) -> float:
    node, edge, tables, tails, heads = scores
    return float(node[np.arange(len(node)), labels].sum() + edge[tables, labels[tails], labels[heads]].sum())


def test_bodies_agree_on_a_grid() -> None:
    rng = np.random.default_rng(1)
    scores = grid(40, rng, 2, 3)
    both = np.tile([0, 1], (1600, 1))
    both[rng.random(1600) < 0.1] = [[1, 1]]
    found = flow.best_states(*scores, both)
    with choice.use("numpy"):
        wanted = flow.best_states(*scores, both)
    assert found is not None
    assert wanted is not None
    assert found[0].tolist() == wanted[0].tolist()
    assert found[1] <= 1e-12 * found[2]
    assert found[2] == pytest.approx(wanted[2], rel=1e-12)
    excess, forward = rng.standard_normal(1600), rng.random(len(scores[3]))
    one = flow.minimum_cut(excess, scores[3], scores[4], forward, forward)
    with choice.use("numpy"):
        other = flow.minimum_cut(excess, scores[3], scores[4], forward, forward)
    assert one.source_side.tolist() == other.source_side.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_two_labels(body: str, seed: int) -> None:
    """Any two of three labels at each node, one twice at some, and parallel edges."""
    rng = np.random.default_rng(seed)
    node, edge, tables, tails, heads = grid(3, rng, 3, 2)
    tails, heads = np.append(tails, heads[:2]), np.append(heads, tails[:2])
    tables = np.append(tables, [0, 1])
    both = np.stack([np.zeros(9, int), rng.integers(0, 2, 9)], axis=1)
    node[:, 2] = -INF  # is not read
    found = flow.best_states(node, edge, tables, tails, heads, both)
    assert found is not None
    best = max(
        score((node, edge, tables, tails, heads), np.array([both[n, x] for n, x in enumerate(states)]))
        for states in product([0, 1], repeat=9)
    )
    labels = both[np.arange(9), found[0]]
    assert score((node, edge, tables, tails, heads), labels) == pytest.approx(best, abs=1e-12)
    assert not found[0][both[:, 0] == both[:, 1]].any()


def test_what_one_cut_cannot_tell(body: str) -> None:
    node, both = np.zeros((2, 2)), np.tile([0, 1], (2, 1))
    one, zero = np.array([1]), np.array([0])
    assert flow.best_states(node, np.eye(2)[None], zero, zero, one, both) is not None
    for edge in (-np.eye(2)[None], np.where(np.eye(2) > 0, 0.0, -INF)[None]):
        assert flow.best_states(node, edge, zero, zero, one, both) is None
    assert flow.best_states(np.array([[0.0, -INF], [0.0, 0.0]]), np.eye(2)[None], zero, zero, one, both) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"ends": np.array([9])},
        {"ends": np.array([0])},
        {"forward": np.array([-1.0])},
        {"excess": np.array([INF, 0.0])},
        {"back": np.zeros(2)},
    ],
)
def test_networks_that_are_none(body: str, wrong: dict[str, np.ndarray]) -> None:
    given = {
        "excess": np.ones(2),
        "starts": np.array([0]),
        "ends": np.array([1]),
        "forward": np.ones(1),
        "back": np.ones(1),
    }
    with pytest.raises(ValueError, match=r"arc|excess"):
        flow.minimum_cut(**{**given, **wrong})
    scores = (np.zeros((2, 2)), np.eye(2)[None], np.array([0]), np.array([0]))
    with pytest.raises(ValueError, match="edge"):
        flow.best_states(*scores, np.array([5]), np.tile([0, 1], (2, 1)))
    with pytest.raises(ValueError, match="label"):
        flow.best_states(*scores, np.array([1]), np.tile([0, 2], (2, 1)))


def test_nothing_to_cut(body: str) -> None:
    none = np.zeros(0, np.int64)
    assert flow.minimum_cut(np.zeros(0), none, none, np.zeros(0), np.zeros(0)).source_side.shape == (0,)
    alone = flow.minimum_cut(np.array([1.0, -1.0, 0.0]), none, none, np.zeros(0), np.zeros(0))
    assert alone.source_side.tolist() == [True, False, False]
