"""Derivatives of beliefs: against covariances by enumeration, differences of marginals, and both bodies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference import tangent as tangent_room
from crfield.inference.chain import ChainEngine
from crfield.inference.tangent import chain_tangent
from crfield.kernels import choice
from crfield.kernels.chain import sum_product
from crfield.kernels.tangent import belief_tangent, pair_marginals
from crfield.objectives.contrast import Contrast
from crfield.objectives.curvature import ContrastCurvature
from crfield.objectives.margin import SoftMargin
from tests.cases.chains import (
    examples,
    path_score,
    paths_of,
    random_potentials,
    random_target,
    small_potentials,
)

pytestmark = pytest.mark.usefixtures("body")
LENGTHS = ([3, 0, 2, 1], [2], [1, 1], [0, 4])


def covariance(
    potentials: Potentials, node: np.ndarray, edge: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Cov(indicators, D) path by path, times the weight of the sequence."""
    chains, labels = potentials.topology, potentials.n_labels
    direction = Potentials(node, edge, chains)
    out_node, out_edge = np.zeros_like(potentials.node), np.zeros_like(potentials.edge)
    for s, length in enumerate(chains.lengths.tolist()):
        first, first_edge = int(chains.offsets[s]), int(chains.edge_offsets[s])
        paths = paths_of(labels, length)
        scores = np.array([path_score(potentials, first, first_edge, path) for path in paths])
        if np.isneginf(scores).all():
            continue
        p = np.exp(scores - scores.max())
        p /= p.sum()
        values = np.array([path_score(direction, first, first_edge, path) for path in paths])
        centred = weight[s] * p * (values - p @ values)
        for path, c in zip(paths, centred):
            for t, label in enumerate(path):
                out_node[first + t, label] += c
                if t:
                    table = 0 if potentials.shared else first_edge + t - 1
                    out_edge[table, path[t - 1], label] += c
    return out_node, out_edge


@examples(25)
@given(potentials=small_potentials(), seed=st.integers(0, 99), weighted=st.booleans())
def test_a_tangent_is_a_covariance(potentials: Potentials, seed: int, weighted: bool) -> None:
    """Any scores, forbidden ones too, shared and unshared tables, weights."""
    rng = np.random.default_rng(seed)
    node, edge = rng.standard_normal(potentials.node.shape), rng.standard_normal(potentials.edge.shape)
    weight = rng.uniform(0.0, 2.0, potentials.topology.n_sequences) if weighted else None
    got = chain_tangent(potentials, node, edge, weight=weight)
    expected = covariance(
        potentials, node, edge, np.ones(potentials.topology.n_sequences) if weight is None else weight
    )
    for actual, wanted in zip(got, expected):
        np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_tangent_is_a_difference_of_marginals(lengths: list[int], shared: bool) -> None:
    """Also where the edges of a batch use tables in any order."""
    rng = np.random.default_rng(3)
    potentials = random_potentials(rng, lengths, 3, shared=shared)
    node, edge = rng.standard_normal(potentials.node.shape), rng.standard_normal(potentials.edge.shape)
    step, ends = 1e-5, []
    for move in (step, -step):
        moved = Potentials(potentials.node + move * node, potentials.edge + move * edge, potentials.topology)
        _, p, q = sum_product(moved.topology.offsets, moved.node, moved.edge)
        ends.append((p, q))
    for actual, up, down in zip(chain_tangent(potentials, node, edge), *ends):
        np.testing.assert_allclose(actual, (up - down) / (2 * step), rtol=1e-6, atol=1e-9)
    if not shared:
        order = rng.permutation(len(potentials.edge))
        mixed = Potentials(potentials.node, potentials.edge[np.argsort(order)], potentials.topology, order)
        again = chain_tangent(mixed, node, edge[np.argsort(order)])
        np.testing.assert_allclose(again[1][order], chain_tangent(potentials, node, edge)[1], rtol=1e-12, atol=1e-14)


def test_parts_of_a_batch_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    potentials = random_potentials(rng, [4, 1, 0, 7, 2, 2, 5], 3)
    node, edge = rng.standard_normal(potentials.node.shape), rng.standard_normal(potentials.edge.shape)
    weight = rng.uniform(0.5, 2.0, 7)
    whole = chain_tangent(potentials, node, edge, weight=weight)
    threads = chain_tangent(potentials, node, edge, weight=weight, n_jobs=3)
    monkeypatch.setattr(tangent_room, "AT_ONCE", 30)
    parts = chain_tangent(potentials, node, edge, weight=weight)
    for other in (threads, parts):
        for actual, wanted in zip(other, whole):
            np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-14)


def test_long_chains_lose_no_digits() -> None:
    """The derivatives of a label's marginals add up to nothing, and the product is symmetric, after many steps."""
    rng = np.random.default_rng(1)
    potentials = random_potentials(rng, [500], 4, scale=3.0)
    one, other = rng.standard_normal((2, *potentials.node.shape))
    first, second = chain_tangent(potentials, one)[0], chain_tangent(potentials, other)[0]
    np.testing.assert_allclose(first.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose((first * other).sum(), (second * one).sum(), rtol=1e-11)


@pytest.mark.parametrize("costs", [False, True])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_are_differences_of_gradients(weighted: bool, partial: bool, costs: bool) -> None:
    rng = np.random.default_rng(5)
    potentials = random_potentials(rng, [3, 1, 4, 2], 3)
    target = random_target(rng, potentials.topology, 3, partial=partial, weighted=weighted)
    if costs:
        cost = np.where(target.mask, 0.0, rng.uniform(0.5, 2.0, target.mask.shape))
        target = Target(target.topology, 3, target.labels, target.allowed, target.weight, cost)
    direction = Potentials(rng.standard_normal((10, 3)), rng.standard_normal((1, 3, 3)), potentials.topology)
    objective = SoftMargin() if costs else Contrast()
    step, ends = 1e-5, []
    for move in (step, -step):
        moved = Potentials(
            potentials.node + move * direction.node, potentials.edge + move * direction.edge, potentials.topology
        )
        ends.append(objective.evaluate(moved, target, ChainEngine()))
    curvature = ContrastCurvature(potentials, target, costs=costs)
    curvature.times(Potentials(np.zeros((10, 3)), np.zeros((1, 3, 3)), potentials.topology))  # marginals are kept
    node, edge = curvature.times(direction)
    np.testing.assert_allclose(node, (ends[0].node - ends[1].node) / (2 * step), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(edge, (ends[0].edge - ends[1].edge) / (2 * step), rtol=1e-6, atol=1e-8)


def test_nothing_possible_has_no_derivative() -> None:
    potentials = Potentials(np.full((2, 2), -np.inf), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    node, edge = chain_tangent(potentials, np.ones((2, 2)), np.ones((1, 2, 2)))
    assert not node.any()
    assert not edge.any()


def test_directions_that_cannot_be() -> None:
    potentials = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    with pytest.raises(ShapeError, match="shape of the scores"):
        chain_tangent(potentials, np.zeros((1, 2)))
    with pytest.raises(InputError, match="finite"):
        chain_tangent(potentials, np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": [1, 2]},
        {"offsets": [0, 3, 2]},
        {"offsets": [0, 3]},
        {"node": (3, 2)},
        {"node": (2, 0)},
        {"edge": (2, 2, 2)},
        {"edge": (1, 3, 2)},
        {"node_dot": (2, 3)},
        {"edge_dot": (3, 2, 2)},
        {"edge_dot": (1, 2, 1)},
        {"weight": (2,)},
    ],
    ids=str,
)
def test_the_kernel_refuses_what_does_not_fit(change: dict[str, tuple[int, ...]]) -> None:
    shapes = {"node": (2, 2), "edge": (1, 2, 2), "node_dot": (2, 2), "edge_dot": (1, 2, 2), "weight": (1,)}
    arrays = {name: np.zeros(change.get(name, shape)) for name, shape in shapes.items()}
    offsets = np.array(change.get("offsets", [0, 2]))
    with pytest.raises(ValueError, match=r"fit|offsets"):
        belief_tangent(
            offsets, *(arrays[k] for k in ("node", "edge", "node_dot", "edge_dot")), weight=arrays["weight"]
        )


def test_both_bodies_agree(body: str) -> None:
    if body == "numpy":
        pytest.skip("compared once")
    rng = np.random.default_rng(8)
    potentials = random_potentials(rng, [40, 1, 0, 13, 13], 6, forbidden=0.1)
    offsets = potentials.topology.offsets
    _, p, q = sum_product(offsets, potentials.node, potentials.edge, each=True)
    node, edge = rng.standard_normal(p.shape), rng.standard_normal((1, 6, 6))
    for each in (False, True):
        native = belief_tangent(offsets, p, q, node, edge, each=each)
        with choice.use("numpy"):
            plain = belief_tangent(offsets, p, q, node, edge, each=each)
        for one, other in zip(native, plain):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0], ids=str)
def test_pairs_are_those_of_the_chain_or_known_to_be_hard(scale: float) -> None:
    """Far apart scores leave the range of doubles; then the flag says so and the covariance is right all the same."""
    rng = np.random.default_rng(4)
    potentials = random_potentials(rng, [6, 1, 0, 9, 2, 12], 4, scale=scale, forbidden=0.15)
    offsets = potentials.topology.offsets
    _, p, q = sum_product(offsets, potentials.node, potentials.edge, each=True)
    found, hard = pair_marginals(offsets, potentials.node, potentials.edge[0], p)
    assert hard.any() == (scale == 400.0)
    fine = ~hard[potentials.topology.sequence_of_edge]
    np.testing.assert_allclose(found[fine], q[fine], rtol=1e-9, atol=1e-14)
    node = rng.standard_normal(p.shape)
    whole = chain_tangent(potentials, node)
    each = chain_tangent(potentials.each(), node)
    np.testing.assert_allclose(whole[0], each[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole[1][0], each[1].sum(axis=0), rtol=1e-9, atol=1e-12)


def test_pairs_refuse_what_does_not_fit() -> None:
    p, table = np.full((2, 2), 0.5), np.zeros((2, 2))
    for offsets, node, edge in (
        ([0, 3], p, table),
        ([1, 2], p, table),
        ([0, 2], np.zeros((2, 3)), table),
        ([0, 2], p, np.zeros((3, 3))),
        ([0, 2], np.zeros((2, 0)), np.zeros((0, 0))),
    ):
        with pytest.raises(ValueError, match=r"fit|offsets"):
            pair_marginals(np.array(offsets), node, edge, p)
