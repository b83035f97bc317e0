"""Semi-Markov sums in products: the NumPy body, every level, states that share parts, blocks, the way to logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.core.topology import Chains
from crfield.kernels import choice, segments
from crfield.kernels.segments import Marks, Parts
from tests.cases.chains import native_level

NAMES = ("node", "length", "first", "last", "weight")


def drawn(
    rng: np.random.Generator,
    lengths: list[int],
    most: int,
    labels: int,
    *,
    scale: float = 1.0,
    marked: float = 0.3,
    ends: bool = True,
) -> tuple[Chains, Parts, Marks]:
    """Parts without means, which is what the products take, and marks of some segments."""
    chains = Chains.from_lengths(lengths)
    shape = (chains.n_nodes, labels)
    reach = np.arange(chains.n_nodes) - np.repeat(chains.offsets[:-1], chains.lengths) + 1
    steps = [
        (n, d) for n, far in enumerate(np.minimum(reach, most)) for d in range(1, far + 1) if rng.random() < marked
    ]
    ptr = np.searchsorted([n for n, _ in steps], np.arange(chains.n_nodes + 1))
    items = 3 if marked else 0
    marks = Marks(
        ptr.astype(np.int64),
        np.array([d for _, d in steps], np.int32),
        rng.integers(0, max(items, 1), len(steps)).astype(np.int32),
        np.arange(items + 1) * labels,
        np.tile(np.arange(labels, dtype=np.int32), items),
    )
    node, first, last = scale * rng.standard_normal((3, *shape))
    own = {"first": first, "last": last} if ends else {}
    weight = rng.standard_normal(marks.n_weights)
    return chains, Parts(node, rng.standard_normal((most, labels)), **own, weight=weight), marks


def agree(asked: tuple[Any, ...], *, level: int | None = None, **options: Any) -> None:
    with choice.use("numpy"):
        wanted = segments.expectations(*asked, **options)
    if level is None:
        found = segments.expectations(*asked, **options)
    else:
        with native_level(level):
            found = segments.expectations(*asked, **options)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-9, atol=1e-11)
    for name in NAMES:
        one, other = getattr(found[1], name), getattr(wanted[1], name)
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("limits", [[1, 6, 2, 1, 6, 3, 1, 1, 4], [6] * 9, [1, 1, 1, 1, 6], [3], [1, 1]], ids=str)
def test_every_level_and_limit(level: int, limits: list[int]) -> None:
    rng, labels = np.random.default_rng(4), len(limits)
    for ends in (True, False):
        chains, parts, marks = drawn(rng, [9, 0, 4, 1, 12, 3], 6, labels, ends=ends)
        factor = rng.random(6) + 0.5
        edge = rng.standard_normal((1, labels, labels))
        agree((chains.offsets, np.array(limits, np.int32), parts, marks, edge), level=level, factor=factor)


@pytest.mark.parametrize("scale", [0.1, 5.0, 40.0, 300.0])
@pytest.mark.parametrize("marked", [0.0, 0.1])
def test_long_sequences_go_in_blocks(scale: float, marked: float) -> None:
    """From scores that one block holds to such as need one for every few steps, and such as only logs can hold."""
    rng = np.random.default_rng(5)
    chains, parts, marks = drawn(rng, [400, 37, 150], 25, 4, scale=scale, marked=marked)
    edge = rng.standard_normal((1, 4, 4))
    agree((chains.offsets, np.array([25, 7, 25, 1], np.int32), parts, marks, edge), n_jobs=2)


def test_states_share_the_parts_of_their_label(body: str) -> None:
    """States 0 and 1 of label 0 (short and full pieces), 2 and 3 of label 1: as if their columns were repeated."""
    rng, space = np.random.default_rng(6), np.array([0, 0, 1, 1])
    chains, parts, marks = drawn(rng, [9, 0, 4, 1, 12], 5, 4)
    length = parts.length.copy()
    length[:4, 1], length[:4, 3], length[4, 0], length[4, 2] = -np.inf, -np.inf, -np.inf, -np.inf
    same = space[:, None] == space
    edge = np.where(same & (np.arange(4) % 2 == 0)[:, None], -np.inf, rng.standard_normal((1, 4, 4)))
    limit = np.array([4, 5, 4, 5], np.int32)
    few = {name: getattr(parts, name)[:, ::2] for name in ("node", "first", "last")}
    shared = Parts(few["node"], length, few["first"], few["last"], weight=parts.weight, states=True)
    spread = Parts(
        *(few["node"][:, space], length, few["first"][:, space], few["last"][:, space]), weight=parts.weight
    )
    factor = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    one = segments.expectations(chains.offsets, limit, shared, marks, edge, factor=factor, space=space)
    other = segments.expectations(chains.offsets, limit, spread, marks, edge, factor=factor)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-13)
    np.testing.assert_allclose(one[2], other[2], rtol=1e-9, atol=1e-13)
    for name in NAMES:
        a, b = getattr(one[1], name), getattr(other[1], name)
        if name in few:
            b = np.stack([b[:, :2].sum(axis=1), b[:, 2:].sum(axis=1)], axis=1)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13, err_msg=name)
    with pytest.raises(ValueError, match="states"):
        segments.expectations(chains.offsets, limit, shared, marks, edge, space=np.array([0, 0, 1, 2]))


def test_what_leaves_the_range_is_done_in_logs() -> None:
    """A label that is reached only through one of no weight to speak of, forbidden steps, and huge spreads."""
    rng = np.random.default_rng(7)
    chains, parts, marks = drawn(rng, [30, 6], 4, 3, marked=0.0)
    limit = np.full(3, 4, np.int32)
    edge = np.full((1, 3, 3), -np.inf)
    edge[0, 0, 0] = edge[0, 0, 1] = edge[0, 1, 2] = edge[0, 2, 2] = 0.0
    node = parts.node.copy()
    node[:15, 1] -= 900.0  # the way to label 2, which must be taken before the end
    node[20:30, :2] -= 2000.0
    agree((chains.offsets, limit, Parts(node, parts.length), marks, edge))
    node[3, 0] = -np.inf
    free = rng.standard_normal((1, 3, 3))
    agree((chains.offsets, limit, Parts(node, parts.length), marks, free))
    agree((chains.offsets, limit, Parts(parts.node, 400.0 * parts.length), marks, free))
    agree((chains.offsets, limit, parts, marks, 500.0 * free))
    nowhere = np.full((1, 3, 3), -np.inf)
    agree((chains.offsets, limit, parts, marks, nowhere))


def test_a_hundred_thousand_steps_keep_their_digits() -> None:
    rng = np.random.default_rng(8)
    chains, parts, marks = drawn(rng, [100_000], 3, 2, scale=3.0, marked=0.0)
    asked = (chains.offsets, np.full(2, 3, np.int32), parts, marks, rng.standard_normal((1, 2, 2)))
    total, found, _ = segments.expectations(*asked)
    means = Parts(parts.node, parts.length, parts.first, parts.last, np.zeros_like(parts.node), parts.weight)
    logs = segments.expectations(asked[0], asked[1], means, *asked[3:])  # with means it goes through logs
    np.testing.assert_allclose(total, logs[0], rtol=1e-13)
    np.testing.assert_allclose(found.node, logs[1].node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.node.sum(axis=1), 1.0, rtol=0, atol=1e-10)
