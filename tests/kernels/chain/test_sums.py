"""Sum-product and max-product on chains: enumeration, shapes, both bodies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.graphs.brute import BruteEngine
from crfield.kernels import chain, choice, linear
from tests.cases.chain_answers import assert_consistent, assert_same, best, sums, unshared
from tests.cases.chains import (
    INF,
    assert_totals,
    examples,
    magnitude,
    native_level,
    needs_native,
    path_score,
    paths_of,
    random_potentials,
    small_potentials,
    steep_potentials,
)

# -------------------------------------------------------------------------------------------- enumeration


@examples(60)
@given(small_potentials())
def test_sums_equal_enumeration(body: str, potentials: Potentials) -> None:
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    answer = sums(potentials)
    assert_totals(answer[0], oracle.total, potentials)
    np.testing.assert_allclose(answer[1], oracle.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(answer[2], oracle.edge, rtol=0, atol=1e-10)
    assert_consistent(potentials, answer)


@examples(30)
@given(small_potentials())
def test_each_gives_every_edge(body: str, potentials: Potentials) -> None:
    oracle = BruteEngine().infer(unshared(potentials), Semiring.LOG)
    answer = sums(potentials, each=True)
    assert answer[2].shape == (potentials.topology.n_edges, *potentials.edge.shape[1:])
    assert_totals(answer[0], oracle.total, potentials)
    np.testing.assert_allclose(answer[1], oracle.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(answer[2], oracle.edge, rtol=0, atol=1e-10)


@examples(50)
@given(small_potentials(scales=(2_000.0, 1e5, 1e100)))
def test_large_scores_equal_enumeration(body: str, potentials: Potentials) -> None:
    answer = sums(potentials)
    assert_totals(answer[0], BruteEngine().infer(potentials, Semiring.LOG).total, potentials)
    assert_consistent(potentials, answer)


@examples(250)
@given(steep_potentials())
def test_steep_scores_equal_enumeration(body: str, potentials: Potentials) -> None:
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    answer = sums(potentials)
    assert_totals(answer[0], oracle.total, potentials)
    np.testing.assert_allclose(answer[1], oracle.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(answer[2], oracle.edge, rtol=0, atol=1e-10)


@examples(60)
@given(small_potentials(scales=(1.0, 30.0, 2_000.0, 1e5)))
def test_best_path_equals_enumeration(body: str, potentials: Potentials) -> None:
    total, path = best(potentials)
    oracle = BruteEngine().infer(potentials, Semiring.MAX)
    assert_totals(total, oracle.total, potentials)
    chains = potentials.topology
    assert path.dtype == np.int32
    for s in np.flatnonzero(np.isfinite(total)):
        rows = slice(chains.offsets[s], chains.offsets[s + 1])
        one = path_score(potentials, rows.start, int(chains.edge_offsets[s]), tuple(path[rows].tolist()))
        assert abs(one - oracle.total[s]) <= 1e-12 * magnitude(potentials)[s]


@examples(60)
@given(st.integers(1, 4), st.lists(st.integers(0, 4), max_size=3), st.booleans(), st.integers(0, 2**32))
def test_ties_go_to_the_smallest_last_label(
    body: str, labels: int, lengths: list[int], shared: bool, seed: int
) -> None:
    rng, chains = np.random.default_rng(seed), Chains.from_lengths(lengths)
    node = rng.integers(0, 2, (chains.n_nodes, labels)).astype(float)
    edge = rng.integers(0, 2, (1 if shared else chains.n_edges, labels, labels)).astype(float)
    potentials = Potentials(node, edge, chains)
    path = best(potentials)[1]
    for s, length in enumerate(lengths):
        first, first_edge = int(chains.offsets[s]), int(chains.edge_offsets[s])
        scored = [(path_score(potentials, first, first_edge, p), p) for p in paths_of(labels, length)]
        top = max(score for score, _ in scored)
        expected = min((p for score, p in scored if score == top), key=lambda p: p[::-1])
        assert tuple(path[first : first + length].tolist()) == expected


# ---------------------------------------------------------------------------------------- long, wide, empty


@pytest.mark.parametrize("scale", [1.0, 1e5])
@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_very_long_sequences(body: str, shared: bool, forbidden: bool, scale: float) -> None:
    steps = 100_000 if body == "native" else 1_500
    rng = np.random.default_rng(3)
    potentials = random_potentials(rng, [steps, 7], 3, shared=shared, scale=scale)
    edge = potentials.edge.copy()
    if forbidden:
        edge[:, 0, 1] = -INF
    potentials = Potentials(potentials.node, edge, potentials.topology)
    answer = sums(potentials)
    assert np.isfinite(answer[0]).all()
    assert_consistent(potentials, answer)
    total, path = best(potentials)
    # between the best score and the best score plus the logarithm of the number of paths
    slack = 1e-12 * magnitude(potentials)
    assert (total <= answer[0] + slack).all()
    assert (answer[0] <= total + potentials.topology.lengths * np.log(3) + slack).all()
    assert path.shape == (steps + 7,)


@needs_native
def test_long_sequences_on_both_bodies() -> None:
    rng = np.random.default_rng(4)
    for scale in (1.0, 30.0):
        potentials = random_potentials(rng, [2_000, 3, 800], 4, scale=scale)
        with choice.use("native"):
            native = sums(potentials)
        with choice.use("numpy"):
            assert_same(native, sums(potentials), potentials)


def test_five_hundred_labels(body: str) -> None:
    rng = np.random.default_rng(6)
    potentials = random_potentials(rng, [4, 2, 1], 500, scale=5.0, forbidden=0.01)
    answer = sums(potentials)
    assert_consistent(potentials, answer)
    # the longest sequence by matrix products in plain probabilities
    psi, table = np.exp(potentials.node[:4]), np.exp(potentials.edge[0])
    alpha = psi[0]
    for t in range(1, 4):
        alpha = (alpha @ table) * psi[t]
    np.testing.assert_allclose(answer[0][0], np.log(alpha.sum()), rtol=1e-12)
    np.testing.assert_allclose(answer[1][3], alpha / alpha.sum(), rtol=1e-10, atol=1e-15)
    assert (best(potentials)[0] <= answer[0]).all()


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [0, 1, 0]])
@pytest.mark.parametrize("labels", [1, 3])
def test_next_to_nothing(body: str, lengths: list[int], labels: int) -> None:
    potentials = random_potentials(np.random.default_rng(7), lengths, labels)
    for each in (False, True):
        total, node, edge = sums(potentials, each=each, n_jobs=3)
        expected = [np.log(np.exp(potentials.node).sum()) if length else 0.0 for length in lengths]
        np.testing.assert_allclose(total, expected, rtol=1e-13)
        np.testing.assert_allclose(node.sum(axis=1), np.ones(sum(lengths)), rtol=1e-13)
        assert not edge.any()
        assert edge.shape == (0 if each else 1, labels, labels)
    total, path = best(potentials, n_jobs=3)
    np.testing.assert_allclose(total, [potentials.node.max() if length else 0.0 for length in lengths])
    assert path.tolist() == ([int(potentials.node.argmax())] if sum(lengths) else [])


# ------------------------------------------------------------------------------------------- between bodies


@needs_native
@examples(50)
@given(
    st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 23]),
    st.lists(st.integers(0, 15), max_size=20),
    st.booleans(),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.integers(0, 2**32),
)
def test_native_equals_numpy(labels: int, lengths: list[int], shared: bool, forbidden: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    potentials = random_potentials(rng, lengths, labels, shared=shared, scale=3.0, forbidden=forbidden)
    for each in (False, True):
        with choice.use("native"):
            native = sums(potentials, each=each)
        with choice.use("numpy"):
            assert_same(native, sums(potentials, each=each), potentials)
    with choice.use("native"):
        total, path = best(potentials)
    with choice.use("numpy"):
        other, same = best(potentials)
    assert_totals(total, other, potentials)
    possible = np.isfinite(total)[potentials.topology.sequence_of_node]
    np.testing.assert_array_equal(path[possible], same[possible])


@needs_native
@examples(30)
@given(st.integers(1, 9), st.booleans(), st.sampled_from([2_000.0, 1e5]), st.integers(0, 2**32))
def test_native_equals_numpy_on_large_scores(labels: int, shared: bool, scale: float, seed: int) -> None:
    """Whole numbers, so that sums are exact and the marginals can be compared."""
    rng = np.random.default_rng(seed)
    rough = random_potentials(rng, [9, 3, 1, 14], labels, shared=shared, scale=scale, forbidden=0.1)
    potentials = Potentials(np.round(rough.node), np.round(rough.edge), rough.topology)
    with choice.use("native"):
        native = sums(potentials)
    with choice.use("numpy"):
        assert_same(native, sums(potentials), potentials)


@needs_native
@examples(120)
@given(steep_potentials(most_labels=9, most_paths=10**9))
def test_native_equals_numpy_on_steep_scores(potentials: Potentials) -> None:
    for each in (False, True):
        with choice.use("native"):
            native = sums(potentials, each=each)
        with choice.use("numpy"):
            assert_same(native, sums(potentials, each=each), potentials)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 3, 8, 22, 70])
def test_every_level_gives_the_same(level: int, labels: int) -> None:
    rng = np.random.default_rng(labels)
    lengths = [12, 0, 1, 5, 30, 2, 7, 9, 9, 4, 18]
    for shared, forbidden, scale in ((True, 0.0, 2.0), (False, 0.0, 2.0), (True, 0.1, 2.0), (True, 0.1, 300.0)):
        raw = random_potentials(rng, lengths, labels, shared=shared, scale=scale, forbidden=forbidden)
        potentials = Potentials(np.round(raw.node, 2), np.round(raw.edge, 2), raw.topology)
        with choice.use("numpy"):
            plain, plain_best = sums(potentials), best(potentials)
        with native_level(level):
            answer, found = sums(potentials), best(potentials)
        assert_totals(answer[0], plain[0], potentials)
        np.testing.assert_allclose(answer[1], plain[1], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(answer[2], plain[2], rtol=1e-10, atol=1e-12)
        assert_totals(found[0], plain_best[0], potentials)


@needs_native
def test_a_level_above_the_processor_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from crfield.kernels import _chain  # type: ignore[attr-defined]

    monkeypatch.delenv("CRFIELD_LEVEL", raising=False)
    own = _chain.level()
    for asked in ("9", "0", "-1", "nonsense", ""):
        monkeypatch.setenv("CRFIELD_LEVEL", asked)
        assert _chain.level() == own


# ----------------------------------------------------------------------------------------- observed, errors


@examples(50)
@given(st.integers(0, 12), st.integers(1, 6), st.sampled_from([1, 2, 5, 64, 65, 100]), st.integers(0, 2**32))
def test_observed_lists_what_was_met(body: str, n_rows: int, n_columns: int, n_items: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    met = rng.choice([0, 5, 90])
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n_rows))]).astype(np.int64)
    indices = rng.integers(0, n_columns, indptr[-1]).astype(np.int32)
    rows = rng.integers(0, n_rows, met if n_rows else 0)
    items = rng.integers(0, n_items, len(rows)).astype(np.int32)
    expected: list[set[int]] = [set() for _ in range(n_columns)]
    for row, item in zip(rows, items):
        for column in indices[indptr[row] : indptr[row + 1]]:
            expected[column].add(int(item))
    ptr, found = linear.observed(indptr, indices, rows, items, n_columns=n_columns, n_items=n_items)
    assert (ptr.dtype, found.dtype) == (np.int64, np.int32)
    assert [found[a:b].tolist() for a, b in pairwise(ptr)] == [sorted(x) for x in expected]


@pytest.mark.parametrize(
    "change",
    [
        {"indptr": np.array([0, 2, 1])},
        {"indptr": np.array([0, 1, 9])},
        {"indptr": np.array([1, 1, 2])},
        {"indices": np.array([0, 3], np.int32)},
        {"indices": np.array([0, -1], np.int32)},
        {"rows": np.array([0, 2])},
        {"rows": np.array([-1, 0])},
        {"rows": np.array([0])},
        {"items": np.array([0, 4], np.int32)},
        {"items": np.array([0, -1], np.int32)},
    ],
    ids=str,
)
def test_observed_refuses_what_does_not_fit(body: str, change: dict[str, np.ndarray]) -> None:
    good = {
        "indptr": np.array([0, 1, 2]),
        "indices": np.array([0, 2], np.int32),
        "rows": np.array([0, 1]),
        "items": np.array([0, 3], np.int32),
    }
    linear.observed(**good, n_columns=3, n_items=4)
    with pytest.raises(ValueError):
        linear.observed(**(good | change), n_columns=3, n_items=4)


@pytest.mark.parametrize(
    ("offsets", "node", "edge"),
    [
        ([0, 3], (2, 2), (1, 2, 2)),
        ([0, 2], (3, 2), (1, 2, 2)),
        ([1, 3], (3, 2), (1, 2, 2)),
        ([0, 2, 1, 3], (3, 2), (1, 2, 2)),
        ([0, 3], (3, 2), (1, 3, 3)),
        ([0, 3], (3, 2), (1, 2, 3)),
        ([0, 3], (3, 2), (3, 2, 2)),
        ([0, 3], (3, 2), (0, 2, 2)),
        ([0, 3], (3, 0), (1, 0, 0)),
    ],
)
def test_scores_that_do_not_fit_are_refused(
    body: str, offsets: list[int], node: tuple[int, ...], edge: tuple[int, ...]
) -> None:
    for kernel in (chain.sum_product, chain.max_product):
        with pytest.raises(ValueError):
            kernel(np.array(offsets), np.zeros(node), np.zeros(edge))
