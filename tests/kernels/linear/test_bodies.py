"""Linear kernels, compiled against NumPy: every option, many labels, few weighted pairs, every level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.labellings import path_scores
from crfield.kernels import choice, linear
from crfield.scoring.layout import Layout
from tests.cases.chains import (
    LinearCase,
    Options,
    examples,
    linear_case,
    native_level,
    needs_native,
    options,
)
from tests.cases.linear_oracle import enumerated, evaluated, problem_of, written_back


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything the linear kernels say about a case."""

    best: np.ndarray  # (B,) totals of the best paths
    followed: np.ndarray  # (B,) scores of the paths found; several paths may be best but for rounding
    node: np.ndarray
    edge: np.ndarray
    value: float
    sums: list[np.ndarray]  # pulled scores, gradient, curvature
    n_groups: int


def outcome(case: LinearCase, weights: np.ndarray, n_jobs: int = 1) -> Outcome:
    tagger, problem = linear.Tagger(case.layout, weights), problem_of(case)
    node, edge = tagger.scores(case.batch, n_jobs=n_jobs)
    path, best = tagger.decode(case.batch, n_jobs=n_jobs)
    gradient = np.full(len(weights), np.nan)
    value = problem.evaluate(weights, gradient, n_jobs=n_jobs)
    sums = [linear.pull(case.layout, case.batch, node, edge), gradient, problem.curvature(weights, n_jobs=n_jobs)]
    followed = path_scores(Potentials(node, edge, case.batch.topology), path)
    return Outcome(best, followed, node, edge, value, sums, problem.n_groups)


def assert_same(found: Outcome, expected: Outcome) -> None:
    """Scores and totals to 1e-12 relative, what is summed over the batch to 1e-10."""
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(found.node, expected.node, **close)
    np.testing.assert_allclose(found.edge, expected.edge, **close)
    np.testing.assert_allclose(found.best, expected.best, **close)
    np.testing.assert_allclose(found.followed, found.best, **close)
    size = np.abs(expected.best).sum() + 1.0  # the value is a difference of such totals
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-12, atol=1e-12 * size)
    for some, other in zip(found.sums, expected.sums):
        np.testing.assert_allclose(some, other, rtol=1e-10, atol=1e-11)
    assert found.n_groups == expected.n_groups


def assert_native_is_numpy(
    case: LinearCase, weights: np.ndarray, *, n_jobs: int = 1, levels: tuple[int, ...] = ()
) -> None:
    """The compiled body, and its copies for the levels given, against the one to read."""
    with choice.use("numpy"):
        expected = outcome(case, weights)
    with choice.use("native"):
        assert_same(outcome(case, weights, n_jobs), expected)
    for level in levels:
        with native_level(level):
            assert_same(outcome(case, weights, n_jobs), expected)


@needs_native
@examples(60)
@given(options(), st.integers(0, 2**32))
def test_native_equals_numpy(o: Options, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = linear_case(rng, o)
    assert_native_is_numpy(case, case.weights(rng))


@needs_native
@pytest.mark.parametrize("labels", [22, 50, 70])
@pytest.mark.parametrize(
    "o",
    [
        Options(columns=300, bias=True),
        Options(columns=300, values=True, partial=True, weighted=True, transition_pairs="all"),
        Options(columns=40, feature_pairs="all", dense=3, transition_pairs="none"),
        Options(columns=40, edge_columns=3, edge_dense=1, partial=True),
    ],
    ids=str,
)
def test_native_equals_numpy_with_many_labels(labels: int, o: Options) -> None:
    rng = np.random.default_rng(labels)
    case = linear_case(rng, replace(o, labels=labels, lengths=(5, 0, 9, 1, 30, 4, *range(1, 22))))
    assert_native_is_numpy(case, case.weights(rng), n_jobs=2)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 3, 9, 22, 70])
def test_every_level_gives_the_same(level: int, labels: int) -> None:
    rng = np.random.default_rng(labels)
    for o in (
        Options(bias=True, partial=True, values=True, dense=2, columns=60),
        Options(feature_pairs="all", weighted=True, columns=20),
        Options(edge_columns=3, edge_dense=1),
    ):
        case = linear_case(rng, replace(o, labels=labels, lengths=(*o.lengths, *range(1, 12))))
        assert_native_is_numpy(case, case.weights(rng), levels=(level,))


def sparse_case(rng: np.random.Generator, labels: int, *, partial: bool = False) -> LinearCase:
    """Many labels, of whose pairs few have a weight: the kernel then works with the others as one."""
    o = Options(labels=labels, columns=50, bias=True, partial=partial, weighted=partial, lengths=tuple(range(1, 20)))
    case = linear_case(rng, replace(o, transition_pairs="none"))
    pairs = np.sort(rng.choice(labels * labels, labels * labels // 16, replace=False)).astype(np.int32)
    return replace(case, layout=replace(case.layout, pairs=pairs))


@needs_native
@pytest.mark.parametrize("height", [1.0, 60.0, 290.0, 700.0])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("labels", [48, 71])
def test_few_weighted_pairs(labels: int, partial: bool, height: float) -> None:
    """Weights of ±height: subtracting the common part of the table must not leave rounding noise behind."""
    rng = np.random.default_rng(labels)
    case = sparse_case(rng, labels, partial=partial)
    weights = case.weights(rng, 1.0)
    span = case.layout.part["transitions"]
    weights[span] = np.where(rng.random(span.stop - span.start) < 0.5, height, -height)
    assert_native_is_numpy(case, weights, levels=(2, 3))


@needs_native
def test_a_label_that_only_low_pairs_lead_to() -> None:
    """Every way into label 0 weighs −60, so almost nothing of what is summed up for it is left at the end."""
    labels, rng = 48, np.random.default_rng(8)
    pairs = np.arange(labels, dtype=np.int32) * labels  # all (i, 0)
    chains = Chains.from_lengths([6, 9])
    batch = Batch(chains, Columns.from_rows([[0]] * 15, width=1))
    codes = np.array([0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 4, 5, 0, 0, 0], np.int32)
    layout = Layout.observe(batch, Target(chains, labels, codes), feature_pairs="all", transition_pairs="none")
    case = LinearCase(replace(layout, pairs=pairs), batch, Target(chains, labels, codes))
    weights = case.weights(rng, 0.1)
    weights[case.layout.part["node"]][0] = 55.0
    weights[case.layout.part["transitions"]] = -60.0 + rng.standard_normal(labels)
    assert_native_is_numpy(case, weights, levels=(2, 3))


@pytest.mark.parametrize("scale", [30.0, 2_000.0, 1e5])
@pytest.mark.parametrize(
    "o",
    [Options(), Options(partial=True, weighted=True), Options(edge_columns=3, partial=True), Options(labels=9)],
    ids=str,
)
def test_large_weights(body: str, o: Options, scale: float) -> None:
    """Whole numbers, so that scores are exact: value never below zero, equal to enumeration where that is short."""
    rng = np.random.default_rng(9)
    case = linear_case(rng, o)
    weights = np.round(case.weights(rng, scale))
    value, gradient = evaluated(case, weights)
    size = scale * case.batch.topology.n_nodes
    assert np.isfinite(value)
    assert value >= -1e-12 * size
    assert np.isfinite(gradient).all()
    if body == "native":
        assert_native_is_numpy(case, weights)
    short = linear_case(rng, replace(o, lengths=(2, 1, 2)))
    weights = np.round(short.weights(rng, scale))
    value, node, edge = enumerated(short, weights)
    got, gradient = evaluated(short, weights)
    np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(gradient, written_back(short, node, edge), rtol=0, atol=1e-10)
