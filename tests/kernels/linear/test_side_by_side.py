"""Sequences side by side, lists of every kind, shared prefixes: compiled against NumPy on every level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels import choice, linear
from crfield.scoring.layout import Layout
from tests.cases.chains import native_level, needs_native


def skewed(rng: np.random.Generator, lengths: list[int], labels: int, columns: int = 400) -> tuple[Batch, Target]:
    """Columns of which few are frequent and most are rare, so that there are rows, singles, runs and prefixes."""
    chains = Chains.from_lengths(lengths)
    rows = []
    for _ in range(chains.n_nodes):
        n = int(rng.integers(0, 9))
        rows.append(np.minimum(rng.zipf(1.4, size=n) - 1, columns - 1).tolist())
    batch = Batch(chains, Columns.from_rows(rows, width=columns))
    return batch, Target(chains, labels, rng.integers(0, labels, size=chains.n_nodes).astype(np.int32))


def said(
    layout: Layout, batch: Batch, target: Target, w: np.ndarray, weight: np.ndarray | None, n_jobs: int
) -> list[np.ndarray]:
    """Value, gradient and curvature, and where stochastic steps lead."""
    problem = linear.Problem(layout, batch, target.labels, None, weight)
    gradient, stepped = np.full(len(w), np.nan), w.copy()
    value = problem.evaluate(w, gradient, n_jobs=n_jobs)
    loss = problem.descend(stepped, np.arange(problem.n_groups), step=0.05, done=0.0, horizon=10.0, l2=1.0)
    return [np.array([value, loss]), gradient, problem.curvature(w, n_jobs=n_jobs), stepped]


@dataclass(frozen=True)
class Case:
    """A problem at some weights, and what the NumPy body says there: slowly, so once for all levels."""

    layout: Layout
    batch: Batch
    target: Target
    w: np.ndarray
    weight: np.ndarray | None = None

    @cached_property
    def expected(self) -> list[np.ndarray]:
        with choice.use("numpy"):
            return self.said(1)

    def said(self, n_jobs: int) -> list[np.ndarray]:
        return said(self.layout, self.batch, self.target, self.w, self.weight, n_jobs)

    def agrees(self, level: int) -> None:
        """The compiled body of this level says the same on any number of threads."""
        expected = self.expected
        for n_jobs in (1, 2, 3):
            with native_level(level):
                found = self.said(n_jobs)
            for some, other in zip(found, expected):
                np.testing.assert_allclose(some, other, rtol=1e-10, atol=1e-11)


@lru_cache(1)
def groups(labels: int) -> list[Case]:
    rng, cases = np.random.default_rng(labels), []
    for lengths in ([13], [5, 4], [9, 9, 8, 1], [40, 2, 1, 1, 1, 1, 1], rng.integers(1, 20, size=75).tolist()):
        batch, target = skewed(rng, lengths, labels)
        layout = Layout.observe(batch, target, bias=True, boundaries=True)
        w = rng.normal(size=layout.n_weights)
        weight = rng.uniform(0.2, 3, size=len(lengths))
        cases += [Case(layout, batch, target, w), Case(layout, batch, target, w, weight)]
    return cases


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 2, 7, 8, 9, 16, 23, 32, 33])
def test_groups_of_every_width_and_shape(level: int, labels: int) -> None:
    for case in groups(labels):
        case.agrees(level)


@lru_cache(1)
def prefixed(pairs: str) -> Case:
    rng = np.random.default_rng(7)
    batch, target = skewed(rng, rng.integers(1, 30, size=120).tolist(), 9, columns=60)
    layout = Layout.observe(batch, target, feature_pairs=pairs, bias=True)
    return Case(layout, batch, target, rng.normal(size=layout.n_weights))


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("pairs", ["observed", "all"])
def test_prefixes_of_columns_with_and_without_weights_for_all_pairs(level: int, pairs: str) -> None:
    case = prefixed(pairs)
    with native_level(level):
        problem = linear.Problem(case.layout, case.batch, case.target.labels, None, None)
        assert problem._problem.n_merged > 5
    case.agrees(level)


@lru_cache(1)
def few_pairs(strong: bool) -> Case:
    rng = np.random.default_rng(3)
    labels = 60
    batch, target = skewed(rng, rng.integers(1, 12, size=60).tolist(), labels)
    layout = Layout.observe(batch, target, feature_pairs="all")
    assert 8 * len(layout.pairs) <= labels**2
    w = rng.normal(size=layout.n_weights)
    if strong:
        w[: layout.n_columns * labels] *= 20  # certain labels, so that one term is the sum
        w[layout.part["transitions"]] -= 25
    return Case(layout, batch, target, w)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("strong", [False, True])
def test_few_weighted_pairs_of_many_labels(level: int, strong: bool) -> None:
    """With strong negative weights a sum of ground and extra cancels, and is made again as a plain one."""
    few_pairs(strong).agrees(level)


@needs_native
def test_wide_scores_and_far_edges_stay_exact() -> None:
    """Edge scores spread over almost all that is safe, and nodes over far more than doubles hold."""
    rng = np.random.default_rng(5)
    batch, target = skewed(rng, [6, 6, 5, 5, 4, 4, 3, 2] * 3, 5, columns=30)
    layout = Layout.observe(batch, target, feature_pairs="all", transition_pairs="all")
    w = rng.normal(size=layout.n_weights)
    w[: layout.n_columns * 5] *= 300
    w[layout.part["transitions"]] = rng.uniform(-149, 149, size=25)
    with choice.use("numpy"):
        expected = said(layout, batch, target, w, None, 1)
    with choice.use("native"):
        found = said(layout, batch, target, w, None, 1)
    for some, other in list(zip(found, expected))[:2]:
        np.testing.assert_allclose(some, other, rtol=1e-10, atol=1e-9)


@needs_native
def test_cells_beyond_two_bytes() -> None:
    """Groups of more than 65,536 scores keep longer addresses."""
    rng = np.random.default_rng(6)
    batch, target = skewed(rng, [900] * 8 + [5], 12)
    layout = Layout.observe(batch, target)
    case = Case(layout, batch, target, rng.normal(size=layout.n_weights))
    for level in (3, 4):
        case.agrees(level)


@needs_native
def test_one_and_two_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(8)
    batch, target = skewed(rng, rng.integers(1, 30, size=150).tolist(), 9)
    for pairs in ("observed", "all"):
        layout = Layout.observe(batch, target, feature_pairs=pairs)
        w = rng.normal(size=layout.n_weights)
        with choice.use("native"):
            problem = linear.Problem(layout, batch, target.labels, None, None)
            one, two = np.empty_like(w), np.empty_like(w)
            values = [problem.evaluate(w, g, n_jobs=n) for g, n in ((one, 1), (two, 2))]
        assert values[0] == values[1]
        np.testing.assert_array_equal(one, two)
