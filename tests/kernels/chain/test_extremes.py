"""Scores that a recursion in scaled probabilities loses: dead ends, decoys, steep edges, impossible sequences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.graphs.brute import BruteEngine
from crfield.kernels import chain
from tests.cases.chain_answers import assert_consistent, best, sums
from tests.cases.chains import (
    INF,
    assert_totals,
    examples,
    magnitude,
    path_score,
    paths_of,
    random_potentials,
    small_potentials,
)


def trap(kind: str, height: float, steps: int, *, shared: bool) -> tuple[Potentials, np.ndarray, float]:
    """Scores with one possible path (all labels 0), beaten at every step by labels that lead nowhere.

    Label 1 can be entered and stayed in, but never left, and is forbidden at the end; label 2 can be left for 0
    but not entered, and is forbidden at the start. A scaled recursion gives all its digits to label 1 on the way
    forwards, to label 2 on the way back.
    """
    edge = np.full((3, 3), -INF)
    edge[0, 0] = -0.25
    node = np.zeros((steps, 3))
    node[:, 0] = 0.5
    node[:, 1] = node[:, 2] = -INF
    if kind in ("forwards", "both"):
        edge[0, 1] = edge[1, 1] = 0.0
        node[:-1, 1] = height
    if kind in ("backwards", "both"):
        edge[2, 0] = edge[2, 2] = 0.0
        node[1:, 2] = height
    table = edge[None] if shared else np.repeat(edge[None], steps - 1, axis=0)
    total = 0.5 * steps - 0.25 * (steps - 1)
    return Potentials(node, table, Chains.from_lengths([steps])), np.zeros(steps, np.int32), total


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("height", [50.0, 400.0, 800.0, 1e5])
@pytest.mark.parametrize("kind", ["forwards", "backwards", "both"])
def test_the_only_path_survives(body: str, kind: str, height: float, shared: bool) -> None:
    potentials, path, score = trap(kind, height, 12, shared=shared)
    total, node, edge = sums(potentials, each=True)
    np.testing.assert_allclose(total, [score], rtol=1e-12)
    np.testing.assert_allclose(node, np.eye(3)[path], rtol=0, atol=1e-14)
    np.testing.assert_allclose(edge.reshape(-1, 9), np.eye(9)[path[1:]], rtol=0, atol=1e-14)
    if shared:
        again = sums(potentials)
        np.testing.assert_allclose(again[0], [score], rtol=1e-12)
        np.testing.assert_allclose(again[1], node, rtol=0, atol=1e-14)
        np.testing.assert_allclose(again[2][0], edge.sum(axis=0), rtol=0, atol=1e-13)
    total, found = best(potentials)
    np.testing.assert_allclose(total, [score], rtol=1e-12)
    np.testing.assert_array_equal(found, path)


def test_a_trap_among_harmless_sequences(body: str) -> None:
    """Sequences run side by side: one that needs the careful way must not disturb its neighbours."""
    rng = np.random.default_rng(5)
    hard, _, _ = trap("both", 700.0, 9, shared=True)
    lengths = [9, 3, 12, 9, 1, 5, 9, 7, 2, 11]
    chains = Chains.from_lengths(lengths)
    node = rng.standard_normal((chains.n_nodes, 3))
    for s in (0, 3, 6):
        node[chains.offsets[s] : chains.offsets[s + 1]] = hard.node
    together = Potentials(node, hard.edge, chains)
    total, marginals, edge = sums(together)
    alone = [
        sums(Potentials(node[a:b], hard.edge, Chains.from_lengths([b - a]))) for a, b in pairwise(chains.offsets)
    ]
    np.testing.assert_allclose(total, [a[0][0] for a in alone], rtol=1e-12)
    np.testing.assert_allclose(marginals, np.concatenate([a[1] for a in alone]), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(edge, sum(a[2] for a in alone), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("each", [False, True])
def test_steps_that_use_only_the_lowest_edges(body: str, each: bool) -> None:
    """Two ways into the only label, both more than 700 nats below the largest edge score and two apart."""
    edge = np.full((1, 3, 3), -INF)
    edge[0, 0, 0] = edge[0, 2, 2] = 0.0
    edge[0, 0, 1], edge[0, 2, 1] = -707.0, -709.0
    node = np.array([[0.0, -INF, 0.0], [-INF, 0.0, -INF]])
    total, marginals, _ = chain.sum_product(np.array([0, 2]), node, edge, each=each)
    np.testing.assert_allclose(total, [-707 + np.log1p(np.exp(-2.0))], rtol=1e-14)
    np.testing.assert_allclose(marginals[0], [1 / (1 + np.exp(-2.0)), 0, 1 / (1 + np.exp(2.0))], atol=1e-12)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("steps", [(-340, -400), (-340, -500), (-100, -200, -300, -250, -590)], ids=str)
def test_steps_that_all_use_low_edges(body: str, steps: tuple[int, ...], each: bool) -> None:
    """Each step weighs little in probabilities, their product leaves the double numbers, its logarithm does not."""
    labels = len(steps) + 1
    edge = np.zeros((1, labels, labels))
    edge[0, np.arange(labels - 1), np.arange(1, labels)] = steps
    node = np.where(np.eye(labels) > 0, 0.0, -INF)
    total, marginals, _ = chain.sum_product(np.array([0, labels]), node, edge, each=each)
    np.testing.assert_allclose(total, [sum(steps)], rtol=1e-14)
    np.testing.assert_allclose(marginals, np.eye(labels), rtol=0, atol=1e-14)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("depth", [100, 250, 299, 301, 330, 350, 353, 360, 464, 599, 601])
def test_a_low_label_between_high_edges(body: str, depth: int, each: bool) -> None:
    """Two labels between start and end: one of score 0 behind two edges of −depth, one far lower behind free ones.

    Forwards the first is worth exp(−depth), the second is lost beside it if exp(node) underflows; only on the
    way back it turns out that the second is worth as much.
    """
    for below in (2 * depth - 3, 2 * depth, 2 * depth + 3, 2 * depth + 40):
        edge = np.zeros((1, 4, 4))
        edge[0, 0, 1] = edge[0, 1, 3] = -depth
        node = np.full((3, 4), -INF)
        node[0, 0] = node[1, 1] = node[2, 3] = 0.0
        node[1, 2] = -below
        total, marginals, _ = chain.sum_product(np.array([0, 3]), node, edge, each=each)
        np.testing.assert_allclose(total, [np.logaddexp(-2 * depth, -below)], rtol=1e-14)
        odds = 1 / (1 + np.exp(float(2 * depth - below)))
        np.testing.assert_allclose(marginals[1], [0, odds, 1 - odds, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("depth", [60, 200, 600, 10_000])
@pytest.mark.parametrize("spread", [0.0, 250.0, 650.0, INF])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_better_path_survives_a_decoy(body: str, backwards: bool, spread: float, depth: int) -> None:
    """Two labels with hardly a way between them; one is far ahead in the middle and loses it all to the end.

    What underflows beside it is most of the answer, although there is always a path left to go on with. ``spread``
    separates the labels by less and by more than the recursion in probabilities bears.
    """
    steps, labels = 9, 2
    edge = np.where(np.eye(labels) > 0, 0.0, -spread)[None]
    node = np.zeros((steps, labels))
    node[:4, 1], node[4, 1], node[5:, 1] = depth, -3.0, -depth
    if backwards:
        node = node[::-1].copy()
    potentials = Potentials(node, edge, Chains.from_lengths([steps]))
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    for each in (False, True):
        total, marginals, pairs = sums(potentials, each=each)
        assert_totals(total, oracle.total, potentials)
        np.testing.assert_allclose(marginals, oracle.node, rtol=0, atol=1e-10)
        np.testing.assert_allclose(pairs.sum(axis=0), oracle.edge[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("where", ["node", "edge", "ways"])
@pytest.mark.parametrize("shared", [True, False])
def test_impossible_sequences(body: str, where: str, shared: bool) -> None:
    """−∞ everywhere at one step, in one table, or in all that would join up; the neighbours are untouched."""
    rng = np.random.default_rng(11)
    fine = random_potentials(rng, [5, 0, 4, 5], 3, shared=shared)
    node, edge = fine.node.copy(), fine.edge.copy()
    if where == "node":
        node[2] = -INF
        dead = [0]
    elif where == "edge":
        edge[0] = -INF
        dead = [0, 2, 3] if shared else [0]
    else:
        edge[:, 0, 0] = edge[:, 0, 1] = edge[:, 0, 2] = -INF
        node[5, 1:] = -INF  # sequence 2 must start with label 0, which leads nowhere
        dead = [2]
    potentials = Potentials(node, edge, fine.topology)
    answer = sums(potentials)
    np.testing.assert_array_equal(np.flatnonzero(np.isneginf(answer[0])), dead)
    assert_consistent(potentials, answer)
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    assert_totals(answer[0], oracle.total, potentials)
    np.testing.assert_allclose(answer[1], oracle.node, rtol=0, atol=1e-12)
    np.testing.assert_allclose(answer[2], oracle.edge, rtol=0, atol=1e-12)
    total, path = best(potentials)
    np.testing.assert_array_equal(np.flatnonzero(np.isneginf(total)), dead)
    assert ((path >= 0) & (path < 3)).all()


@examples(40)
@given(small_potentials(scales=(1.0, 30.0, 2_000.0, 1e5)))
def test_no_path_is_more_probable_than_certain(body: str, potentials: Potentials) -> None:
    """No path scores above the total but for rounding, and the probabilities of all paths add up to one."""
    total, chains = sums(potentials)[0], potentials.topology
    size = magnitude(potentials)
    for s in np.flatnonzero(np.isfinite(total)):
        first, first_edge = int(chains.offsets[s]), int(chains.edge_offsets[s])
        paths = paths_of(potentials.n_labels, int(chains.lengths[s]))
        scores = np.array([path_score(potentials, first, first_edge, path) for path in paths])
        assert scores.max() <= total[s] + 1e-14 * size[s]
        assert abs(np.exp(scores - total[s]).sum() - 1) <= max(1e-10, 1e-12 * size[s])
