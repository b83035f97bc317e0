"""Free total minus clamped total: finite differences, enumeration, weights, both semirings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import LabelError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.objectives.contrast import Contrast
from tests.cases.chains import (
    examples,
    magnitude,
    path_score,
    paths_of,
    random_potentials,
    random_target,
    small_potentials,
)

pytestmark = pytest.mark.usefixtures("body")
LENGTHS = ([3, 0, 2, 1], [2], [2, 1], [1, 1], [2, 2], [0, 4])  # the second and third have exactly one edge


def value_by_enumeration(potentials: Potentials, target: Target, semiring: Semiring) -> float:
    """Σ weight (total of all paths − total of the allowed ones), path by path."""
    chains, out = potentials.topology, 0.0
    for s, length in enumerate(chains.lengths.tolist()):
        first, edge = int(chains.offsets[s]), int(chains.edge_offsets[s])
        paths = paths_of(potentials.n_labels, length)
        scores = np.array([path_score(potentials, first, edge, path) for path in paths])
        fits = np.array([all(_allows(target, first + t, label) for t, label in enumerate(path)) for path in paths])
        total = np.logaddexp.reduce if semiring is Semiring.LOG else np.max
        weight = 1.0 if target.weight is None else target.weight[s]
        out += weight * float(total(scores) - total(scores[fits]))
    return out


def _allows(target: Target, node: int, label: int) -> bool:
    if target.labels[node] >= 0:
        return bool(target.labels[node] == label)
    assert target.allowed is not None
    return bool(target.allowed[node, label])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_log_value_and_gradient(lengths: list[int], shared: bool, partial: bool, weighted: bool) -> None:
    """The value by enumeration, and the slope along every single score."""
    rng = np.random.default_rng(len(lengths))
    potentials = random_potentials(rng, lengths, 3, shared=shared)
    target = random_target(rng, potentials.topology, 3, partial=partial, weighted=weighted)
    result = Contrast().evaluate(potentials, target, ChainEngine())
    expected = value_by_enumeration(potentials, target, Semiring.LOG)
    np.testing.assert_allclose(result.value, expected, rtol=1e-12, atol=1e-12)
    assert result.node.shape == potentials.node.shape
    assert result.edge.shape == potentials.edge.shape
    step = 1e-5
    for name in ("node", "edge"):
        scores = {"node": potentials.node.copy(), "edge": potentials.edge.copy()}
        slopes = np.zeros(scores[name].shape)
        for place in np.ndindex(*slopes.shape):
            kept, ends = scores[name][place], []
            for move in (step, -step):
                scores[name][place] = kept + move
                moved = Potentials(scores["node"], scores["edge"], potentials.topology)
                ends.append(Contrast().evaluate(moved, target, ChainEngine()).value)
            scores[name][place] = kept
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(getattr(result, name), slopes, rtol=1e-6, atol=1e-8)


@examples(40)
@given(small_potentials(scales=(1.0, 30.0)), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_any_engine_gives_the_same(potentials: Potentials, partial: bool, weighted: bool, seed: int) -> None:
    """The exact engine and the oracle behind the same objective; forbidden scores where the target is not."""
    rng = np.random.default_rng(seed)
    target = random_target(rng, potentials.topology, potentials.n_labels, partial=partial, weighted=weighted)
    # whatever the target allows must be possible
    finite = Potentials(
        np.where(target.mask & np.isneginf(potentials.node), 0.5, potentials.node),
        np.where(np.isneginf(potentials.edge), -2.0, potentials.edge),
        potentials.topology,
    )
    fast = Contrast().evaluate(finite, target, ChainEngine())
    slow = Contrast().evaluate(finite, target, BruteEngine())
    np.testing.assert_allclose(fast.value, slow.value, rtol=1e-12, atol=1e-11 * magnitude(finite).sum())
    np.testing.assert_allclose(fast.node, slow.node, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.edge, slow.edge, rtol=0, atol=1e-9)
    assert fast.value >= 0


@examples(60)
@given(small_potentials(scales=(1.0, 2_000.0, 1e5)), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_max_value_is_best_minus_gold(potentials: Potentials, partial: bool, weighted: bool, seed: int) -> None:
    finite = Potentials(
        np.where(np.isneginf(potentials.node), -1.0, potentials.node),
        np.where(np.isneginf(potentials.edge), -1.0, potentials.edge),
        potentials.topology,
    )
    rng = np.random.default_rng(seed)
    target = random_target(rng, finite.topology, finite.n_labels, partial=partial, weighted=weighted)
    result = Contrast(Semiring.MAX).evaluate(finite, target, ChainEngine())
    expected = value_by_enumeration(finite, target, Semiring.MAX)
    np.testing.assert_allclose(result.value, expected, rtol=1e-12, atol=3e-12 * magnitude(finite).sum())
    assert result.value >= 0
    # the value is the same step along its gradient: Σ gradient · score
    along = (result.node * finite.node).sum() + (result.edge * finite.edge).sum()
    np.testing.assert_allclose(result.value, along, rtol=1e-9, atol=1e-11 * magnitude(finite).sum())


@examples(40)
@given(st.sampled_from([1.0, 30.0, 1e5]), st.sampled_from(list(Semiring)), st.booleans(), st.integers(0, 2**32))
def test_never_below_zero(scale: float, semiring: Semiring, shared: bool, seed: int) -> None:
    """When the gold path is the best one, two equal numbers are summed up in two ways and subtracted."""
    rng = np.random.default_rng(seed)
    potentials = random_potentials(rng, [7, 4, 1, 9], 4, shared=shared, scale=scale)
    path = ChainEngine().best_path(potentials)[1]
    target = Target(potentials.topology, 4, path, weight=rng.uniform(0, 2, 4))
    assert Contrast(semiring).evaluate(potentials, target, ChainEngine()).value >= 0


def test_a_known_label_needs_no_row_of_the_table() -> None:
    """`labels` decides where it can, whatever the table of allowed labels says in that row."""
    rng = np.random.default_rng(6)
    potentials = random_potentials(rng, [3, 2], 3)
    codes = np.array([0, -1, 2, 1, -1])
    wide = np.ones((5, 3), dtype=bool)
    wide[1] = [True, False, True]
    strict = wide.copy()
    strict[[0, 2, 3]] = np.eye(3, dtype=bool)[[0, 2, 1]]
    chains = potentials.topology
    loose, exact = (Target(chains, 3, codes, table) for table in (wide, strict))
    np.testing.assert_array_equal(loose.mask, strict)
    values = [Contrast().evaluate(potentials, target, ChainEngine()).value for target in (loose, exact)]
    assert values[0] == values[1]
    np.testing.assert_allclose(values[0], value_by_enumeration(potentials, loose, Semiring.LOG), rtol=1e-12)


@pytest.mark.parametrize(
    ("labels", "allowed", "weight", "error"),
    [
        ([0, 1], None, None, ShapeError),
        ([0, 1, 2, 0], None, None, ShapeError),
        ([0, 3, 1], None, None, LabelError),
        ([0, -2, 1], None, None, LabelError),
        ([0, -1, 1], None, None, LabelError),
        ([0, -1, 1], np.ones((3, 2)), None, ShapeError),
        ([0, -1, 1], np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0]]), None, LabelError),
        ([0, 1, 1], None, np.ones(3), ShapeError),
    ],
)
def test_targets_that_do_not_fit_are_refused(
    labels: list[int], allowed: np.ndarray | None, weight: np.ndarray | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Target(Chains.from_lengths([2, 1]), 3, np.array(labels), allowed, weight)
