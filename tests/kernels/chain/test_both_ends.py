"""Long sequences swept from both ends at once: lengths about the blocks, steep scores, steps that allow nothing."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.kernels import choice
from tests.cases.chain_answers import assert_consistent, assert_same, sums
from tests.cases.chains import INF, native_level, needs_native, random_potentials


def long_potentials(rng: np.random.Generator, labels: int, spread: float, scale: float = 2.0) -> Potentials:
    """Edges of exactly that spread; steps that allow one label, some, or all of them."""
    raw = random_potentials(rng, [64, 2, 65, 130, 0, 63, 193], labels, scale=scale)
    edge = rng.uniform(-spread, 0.0, (1, labels, labels))
    edge.ravel()[0], edge.ravel()[-1] = 0.0, -spread if labels > 1 else 0.0
    node, rows = raw.node.copy(), np.arange(len(raw.node))
    kept = rng.integers(labels, size=len(rows))
    barred = rng.random(node.shape) < 0.5 * (rng.random((len(rows), 1)) < 0.3)
    node[barred & (np.arange(labels) != kept[:, None])] = -INF
    return Potentials(node, edge, raw.topology)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 20, 24, 25])
def test_every_width_and_level_equals_logs(labels: int, level: int) -> None:
    potentials = long_potentials(np.random.default_rng(labels), labels, 4.0)
    with choice.use("numpy"):
        plain = sums(potentials)
    with native_level(level):
        answer = sums(potentials)
    assert_same(answer, plain, potentials)
    assert_consistent(potentials, answer)


@needs_native
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("spread", [1.0, 60.0, 99.9, 100.1, 290.0, 310.0])
def test_steep_scores_equal_logs(spread: float, scale: float) -> None:
    """On both sides of what is swept from both ends, and of what needs no care at all."""
    for seed in range(3):
        potentials = long_potentials(np.random.default_rng(seed), 6, spread, scale)
        with choice.use("numpy"):
            plain = sums(potentials)
        with choice.use("native"):
            assert_same(sums(potentials), plain, potentials)


@pytest.mark.parametrize("depth", [60, 99, 101, 250, 353])
@pytest.mark.parametrize("at", [1, 63, 64, 100, 101, 137, 198])
def test_a_low_label_between_high_edges(body: str, at: int, depth: int) -> None:
    """A step where one label has the score 0 behind two edges of −depth and another far less behind free ones."""
    node = np.full((200, 4), -INF)
    node[:at, 0] = node[at + 1 :, 3] = node[at, 1] = 0.0
    for below in (2 * depth - 3, 2 * depth + 3):
        edge = np.zeros((1, 4, 4))
        edge[0, 0, 1] = edge[0, 1, 3] = -depth
        node[at, 2] = -below
        total, marginals, pairs = sums(Potentials(node, edge, Chains.from_lengths([200])))
        np.testing.assert_allclose(total, [np.logaddexp(-2 * depth, -below)], rtol=1e-14)
        odds = 1 / (1 + np.exp(float(2 * depth - below)))
        np.testing.assert_allclose(marginals[at], [0, odds, 1 - odds, 0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(pairs[0, 0], [at - 1, odds, 1 - odds, 0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(pairs[0, :, 3], [0, odds, 1 - odds, 198 - at], rtol=0, atol=1e-12)


@pytest.mark.parametrize("at", [0, 1, 64, 99, 100, 164, 199])
def test_a_step_that_allows_nothing(body: str, at: int) -> None:
    """The sequence has no total and no marginals, and adds nothing to the pairs of the others."""
    rng = np.random.default_rng(at)
    chains = Chains.from_lengths([200, 200, 80])
    node, edge = rng.standard_normal((480, 3)), rng.standard_normal((1, 3, 3))
    node[200 + at] = -INF
    answer = sums(Potentials(node, edge, chains))
    assert answer[0][1] == -INF
    assert not answer[1][200:400].any()
    others = Potentials(np.delete(node, np.s_[200:400], axis=0), edge, Chains.from_lengths([200, 80]))
    total, marginals, pairs = sums(others)
    np.testing.assert_array_equal(answer[0][[0, 2]], total)
    np.testing.assert_array_equal(np.delete(answer[1], np.s_[200:400], axis=0), marginals)
    np.testing.assert_allclose(answer[2], pairs, rtol=1e-13)


def test_long_and_short_together(body: str) -> None:
    """A sequence has the same answer alone and in company, on any number of threads; two calls have the same bits."""
    rng = np.random.default_rng(1)
    potentials = random_potentials(rng, [70, 3, 300, 1, 63, 64], 5, scale=2.0)
    chains = potentials.topology
    answer = sums(potentials)
    for jobs in (1, 2, 3):
        for one, two in zip(sums(potentials, n_jobs=jobs), sums(potentials, n_jobs=jobs)):
            assert one.tobytes() == two.tobytes()
        assert_same(sums(potentials, n_jobs=jobs), answer, potentials)
    for s in range(chains.n_sequences):
        own = slice(chains.offsets[s], chains.offsets[s + 1])
        alone = Potentials(potentials.node[own], potentials.edge, Chains.from_lengths([int(chains.lengths[s])]))
        total, marginals, _ = sums(alone)
        np.testing.assert_allclose(total, answer[0][s : s + 1], rtol=1e-14)
        np.testing.assert_allclose(marginals, answer[1][own], rtol=1e-12, atol=1e-14)


@needs_native
def test_the_logarithm_of_a_long_product() -> None:
    """Factors that would leave the double numbers after a few steps, to either side."""
    for level in (-90.0, 90.0):
        edge = np.full((1, 3, 3), level) + np.diag([0.0, -95.0, -2.0])
        potentials = Potentials(np.tile([0.0, -INF, -700.0], (1_500, 1)), edge, Chains.from_lengths([1_500]))
        with choice.use("numpy"):
            plain = sums(potentials)
        with choice.use("native"):
            assert_same(sums(potentials), plain, potentials)
