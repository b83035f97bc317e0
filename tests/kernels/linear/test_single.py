"""Evaluations in single precision: how far they are from the reference, and where they are done in double."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels import choice, linear
from crfield.scoring.constraints import FixedScores
from crfield.scoring.layout import Layout
from tests.cases.chains import native_level, needs_native
from tests.kernels.linear.test_side_by_side import skewed


def exact(problem_of: tuple, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient by the NumPy body, in double precision."""
    gradient = np.empty_like(w)
    with choice.use("numpy"):
        return linear.Problem(*problem_of).evaluate(w, gradient), gradient


def single(problem_of: tuple, w: np.ndarray, *, level: int = 4, n_jobs: int = 1) -> tuple[float, np.ndarray, float]:
    gradient = np.full(len(w), np.nan)
    with native_level(level):
        value, error = linear.Problem(*problem_of).evaluate_single(w, gradient, n_jobs=n_jobs)
    return value, gradient, error


Read = tuple[tuple, np.ndarray, tuple[float, np.ndarray]]  # a problem, weights, and what `exact` says of them


def read(problem_of: tuple, w: np.ndarray) -> Read:
    return problem_of, w, exact(problem_of, w)


def assert_accurate(given: Read, *, level: int = 4, n_jobs: int = 1) -> None:
    """The promise: a value no further off than told, ten times less in the main, and a gradient as good.

    A marginal is off by about as much as its sequence's log Z, so an entry of the gradient, a sum of marginals, is
    off by no more than a few times the value's error.
    """
    problem_of, w, (value, gradient) = given
    found, slope, error = single(problem_of, w, level=level, n_jobs=n_jobs)
    assert error > 0
    assert abs(found - value) <= error
    np.testing.assert_allclose(slope, gradient, rtol=0, atol=4 * error)


# Problems and what is exact are made once for all levels, which follow each other.


@lru_cache(1)
def groups(labels: int) -> list[Read]:
    rng, made = np.random.default_rng(labels), []
    for lengths in ([13], [5, 4], [9, 9, 8, 1], [40, 2, 1, 1, 1, 1, 1], rng.integers(1, 20, size=110).tolist()):
        batch, target = skewed(rng, lengths, labels)
        layout = Layout.observe(batch, target, bias=True, boundaries=True)
        w = rng.normal(size=layout.n_weights)
        weight = rng.uniform(0.2, 3, size=len(lengths))
        made += [read((layout, batch, target.labels, None, given), w) for given in (None, weight)]
    return made


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 2, 7, 8, 9, 16, 23, 32])
def test_groups_of_every_width_and_shape(level: int, labels: int) -> None:
    for given in groups(labels):
        for n_jobs in (1, 3):
            assert_accurate(given, level=level, n_jobs=n_jobs)


@lru_cache(1)
def ordinary(pairs: str) -> Read:
    rng = np.random.default_rng(7)
    batch, target = skewed(rng, rng.integers(1, 30, size=220).tolist(), 9, columns=60)
    layout = Layout.observe(batch, target, feature_pairs=pairs, transition_pairs=pairs, bias=True)
    return read((layout, batch, target.labels, None, None), rng.normal(size=layout.n_weights))


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("pairs", ["observed", "all"])
def test_relative_errors_on_ordinary_data(level: int, pairs: str) -> None:
    """A millionth of the value and a hundred-thousandth of the gradient's length, with merged rows and without."""
    problem_of, w, (value, gradient) = ordinary(pairs)
    found, slope, error = single(problem_of, w, level=level)
    assert 0 < abs(found / value - 1) < 1e-6
    assert 0 < np.linalg.norm(slope - gradient) < 1e-5 * np.linalg.norm(gradient)
    assert error < 1e-5 * value


@lru_cache(1)
def few_pairs(strong: bool) -> Read:
    rng = np.random.default_rng(3)
    labels = 60
    batch, target = skewed(rng, rng.integers(1, 12, size=60).tolist(), labels)
    layout = Layout.observe(batch, target, feature_pairs="all")
    w = rng.normal(size=layout.n_weights)
    if strong:  # certain labels, so that one term is the sum, and what is added to the ground cancels it
        w[: layout.n_columns * labels] *= 20
        w[layout.part["transitions"]] -= 24
    return read((layout, batch, target.labels, None, None), w)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("strong", [False, True])
def test_few_weighted_pairs_of_many_labels(level: int, strong: bool) -> None:
    assert_accurate(few_pairs(strong), level=level)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("scale", [30.0, 300.0, 1e5])
def test_wide_scores_and_far_edges(level: int, scale: float) -> None:
    """Edge scores spread over all that is allowed, nodes over more than single precision holds: nothing is lost."""
    rng = np.random.default_rng(5)
    batch, target = skewed(rng, [6, 6, 5, 5, 4, 4, 3, 2] * 5, 5, columns=30)
    layout = Layout.observe(batch, target, feature_pairs="all", transition_pairs="all")
    w = rng.normal(size=layout.n_weights)
    w[: layout.n_columns * 5] *= scale
    edges = rng.uniform(-14.9, 14.9, size=25)
    edges[:2] = -15.0, 15.0
    w[layout.part["transitions"]] = edges
    assert_accurate(read((layout, batch, target.labels, None, None), w), level=level)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_traps(level: int) -> None:
    """Every step wants the label that the transitions forbid by 29.9 nats: paths that pay are all there is."""
    labels, steps = 4, 40
    chains = Chains.from_lengths([steps] * 16)
    rows = [[t % 2] for _ in range(16) for t in range(steps)]
    batch = Batch(chains, Columns.from_rows(rows, width=2))
    target = Target(chains, labels, np.tile(np.arange(steps) % 2, 16).astype(np.int32))
    layout = Layout.observe(batch, target, feature_pairs="all", transition_pairs="all")
    for wanted in (28.0, 60.0, 120.0):
        w = np.zeros(layout.n_weights)
        node = w[: 2 * labels].reshape(2, labels)
        node[0, 0] = node[1, 1] = wanted
        w[layout.part["transitions"]] = (np.eye(labels) * 29.9).reshape(-1)
        assert_accurate(read((layout, batch, target.labels, None, None), w), level=level)


def beyond(case: str, rng: np.random.Generator) -> tuple[tuple, np.ndarray]:
    """Problems that single precision is not for."""
    labels = 40 if case == "labels" else 5
    batch, target = skewed(rng, [6, 5, 4, 3] * 6, labels, columns=30)
    node, columns = batch.node, 30
    if case == "values":
        batch = Batch(batch.topology, replace(node, values=rng.normal(size=len(node.indices))))
    if case == "dense":
        batch = Batch(batch.topology, replace(node, dense=rng.normal(size=(batch.topology.n_nodes, 2))))
    layout = Layout.observe(batch, target, feature_pairs="all", transition_pairs="all")
    if case == "forbidden":
        edge = np.zeros((labels, labels))
        seen = {(a, b) for s in range(24) for a, b in _pairs_of(target, s)}
        absent = next((i, j) for i in range(labels) for j in range(labels) if (i, j) not in seen)
        edge[absent] = -np.inf
        layout = replace(layout, fixed=FixedScores(edge, np.zeros(labels), np.zeros(labels)))
    w = rng.normal(size=layout.n_weights)
    if case == "spread":
        w[layout.part["transitions"]] = 0.0
        w[layout.part["transitions"]][:2] = -15.1, 15.0
    if case == "huge":
        w[3] = 1e31
    assert columns == layout.n_columns
    return (layout, batch, target.labels, None, None), w


def _pairs_of(target: Target, s: int) -> list[tuple[int, int]]:
    offsets = target.topology.offsets
    some = target.labels[offsets[s] : offsets[s + 1]].tolist()
    return list(pairwise(some))


@needs_native
@pytest.mark.parametrize("case", ["values", "dense", "forbidden", "spread", "huge", "labels"])
def test_what_single_precision_is_not_for_is_done_in_double(case: str) -> None:
    problem_of, w = beyond(case, np.random.default_rng(11))
    found, slope, error = single(problem_of, w)
    gradient = np.empty_like(w)
    with choice.use("native"):
        value = linear.Problem(*problem_of).evaluate(w, gradient)
    assert error == 0.0
    assert found == value
    np.testing.assert_array_equal(slope, gradient)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_unknown_labels_beside_known_ones(level: int) -> None:
    rng = np.random.default_rng(12)
    batch, target = skewed(rng, rng.integers(2, 14, size=60).tolist(), 6)
    layout = Layout.observe(batch, target, bias=True, boundaries=True)
    labels = np.where(rng.random(len(target.labels)) < 0.05, -1, target.labels).astype(np.int32)
    allowed = np.ones((len(labels), 6), bool)
    allowed[:, 2] = False
    assert_accurate(read((layout, batch, labels, allowed, None), rng.normal(size=layout.n_weights)), level=level)


@needs_native
def test_one_long_sequence_among_short_ones() -> None:
    """A group that is mostly one sequence goes by rows, in double precision on rounded scores."""
    rng = np.random.default_rng(13)
    batch, target = skewed(rng, [700] + [3] * 30, 6)
    layout = Layout.observe(batch, target, bias=True)
    assert_accurate(read((layout, batch, target.labels, None, None), rng.normal(size=layout.n_weights)))


@needs_native
def test_one_and_two_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(8)
    batch, target = skewed(rng, rng.integers(1, 30, size=150).tolist(), 9)
    for pairs in ("observed", "all"):
        layout = Layout.observe(batch, target, feature_pairs=pairs)
        problem_of = (layout, batch, target.labels, None, None)
        w = rng.normal(size=layout.n_weights)
        one, two = (single(problem_of, w, n_jobs=n) for n in (1, 2))
        assert (one[0], one[2]) == (two[0], two[2])
        np.testing.assert_array_equal(one[1], two[1])


@needs_native
def test_memory_of_one_precision_serves_the_other() -> None:
    """Calls share their memory: neither leaves anything behind that the other reads."""
    rng = np.random.default_rng(9)
    batch, target = skewed(rng, rng.integers(1, 30, size=50).tolist(), 9)
    layout = Layout.observe(batch, target)
    w = rng.normal(size=layout.n_weights)
    with choice.use("native"):
        problem = linear.Problem(layout, batch, target.labels, None, None)
        told: list[list[np.ndarray]] = [[], []]
        for turn in range(4):
            gradient = np.empty_like(w)
            value = problem.evaluate(w, gradient) if turn % 2 else problem.evaluate_single(w, gradient)[0]
            told[turn % 2].append(np.append(gradient, value))
    np.testing.assert_array_equal(*told[0])
    np.testing.assert_array_equal(*told[1])


def test_the_reference_is_in_double_precision() -> None:
    rng = np.random.default_rng(10)
    batch, target = skewed(rng, [4, 3], 3)
    layout = Layout.observe(batch, target)
    w, gradient = rng.normal(size=layout.n_weights), np.empty(layout.n_weights)
    with choice.use("numpy"):
        problem = linear.Problem(layout, batch, target.labels, None, None)
        assert problem.evaluate_single(w, gradient) == (problem.evaluate(w, gradient), 0.0)
