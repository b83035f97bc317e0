"""Bags and chains: sums over all values of h, against a list of all of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import Enumerated, EnumeratedLoss
from crfield.boosting.incomplete.factored import Factored, FactoredLoss
from crfield.boosting.incomplete.hidden.bag import BagPart, foreground_of
from crfield.boosting.incomplete.hidden.chain import HIDDEN, NO_PLACE, ChainPart, tag_windows
from crfield.boosting.incomplete.structures import Bag, Windows
from crfield.boosting.incomplete.updates import parallel
from crfield.data.labels import LabelCoder
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.kernels import choice, incomplete
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from tests.cases.chains import needs_native
from tests.cases.incomplete import central_differences

LABELS = 3
factorising = pytest.mark.parametrize("loss", ["exp", "joint", "hcrf"])


def listed(rows: list[list[tuple[float, np.ndarray]]], width: int) -> Cells:
    """Cells of a list of (prior, columns) for each datum."""
    offsets = np.cumsum([0] + [len(row) for row in rows])
    prior = np.array([q for row in rows for q, _ in row])
    columns = np.array([x for row in rows for _, x in row]).reshape(-1, width)
    return Cells(offsets, prior, sp.csr_array(columns))


def bag(seed: int = 0, words: int = 4) -> tuple[BagPart, Cells, Any, np.ndarray]:
    """Images of at most five points: hidden, known, and known in part; and all 2^t foregrounds of them."""
    rng = np.random.default_rng(seed)
    N = np.zeros((9, words))
    for i in range(9):
        np.add.at(N[i], rng.integers(0, words, 1 + i % 5), 1.0)
    counts = sp.csr_array(N)
    rows = np.repeat(np.arange(9), np.diff(counts.indptr))
    known = rng.binomial(counts.data.astype(int), 0.4).astype(float)
    known[(rows >= 3) & ((rows < 7) | (rng.random(len(rows)) < 0.5))] = np.nan
    prior = np.array([0.2, 0.5, 0.9, 0.0])[:words]
    part = BagPart(counts, known, prior)
    t = np.maximum(N.sum(axis=1), 1)
    spread: list[list[tuple[float, np.ndarray]]] = []
    for i in range(9):
        entries = range(counts.indptr[i], counts.indptr[i + 1])
        points = [
            (int(counts.indices[e]), e) for e in entries for _ in range(int(counts.data[e])) if np.isnan(known[e])
        ]
        row = []
        for h in product((0, 1), repeat=len(points)):
            m, q = np.zeros(words), 1.0
            for e in entries:
                if not np.isnan(known[e]):
                    m[counts.indices[e]] = known[e]
            for (j, _), on in zip(points, h, strict=True):
                m[j] += on
                q *= prior[j] if on else 1 - prior[j]
            if q > 0:
                row.append((q, np.concatenate([m, N[i] - m]) / t[i]))
        spread.append(row)
    return part, listed(spread, 2 * words), part.scaled(), rng.integers(0, LABELS, 9)


def windows(seed: int = 0, *, pairs: bool = False) -> tuple[ChainPart, Cells, Any, np.ndarray]:
    """Windows of three places and two or three tags, and all tag sequences of them."""
    rng = np.random.default_rng(seed)
    n, places, tags = 8, 3, 3
    codes = np.where(rng.random((n, places)) < 0.6, HIDDEN, rng.integers(0, tags, (n, places)))
    codes[0] = HIDDEN
    codes[1] = [NO_PLACE, HIDDEN, HIDDEN]
    codes[2] = [NO_PLACE, 1, NO_PLACE]
    codes[3] = NO_PLACE
    node = rng.dirichlet(np.ones(tags), (n, places))
    node[4, 0] = [0.0, 0.5, 0.5]
    codes[4, 0] = HIDDEN
    link = rng.random((tags, tags)) + 0.1
    link[0, 2] = 0.0
    with np.errstate(divide="ignore"):
        part = ChainPart(codes, np.log(node), np.log(link), pairs)
    spread: list[list[tuple[float, np.ndarray]]] = []
    for i in range(n):
        there = [d for d in range(places) if codes[i, d] != NO_PLACE]
        row = []
        for tag in product(range(tags), repeat=len(there)):
            if any(codes[i, d] >= 0 and codes[i, d] != s for d, s in zip(there, tag, strict=True)):
                continue
            q, x = 1.0, np.zeros((places, tags))
            both = np.zeros((places - 1, tags, tags))
            for k, (d, s) in enumerate(zip(there, tag, strict=True)):
                q *= node[i, d, s] if codes[i, d] < 0 or node[i, d, s] > 0 else 1.0
                x[d, s] = 1.0
                if k:
                    q *= link[tag[k - 1], s]
                    both[d - 1, tag[k - 1], s] = 1.0
            if q > 0:
                row.append((q, np.concatenate([x.ravel(), both.ravel()]) if pairs else x.ravel()))
        total = sum(q for q, _ in row)
        spread.append([(q / total, x) for q, x in row])
    width = part.n_columns
    return part, listed(spread, width), sp.csr_array(rng.random((n, 2))), rng.integers(0, LABELS, n)


WORLDS = {
    "bag": bag,
    "chain": windows,
    "chain of pairs": lambda seed=0: windows(seed, pairs=True),
}
every_world = pytest.mark.parametrize("kind", WORLDS)


@every_world
@factorising
def test_sums_are_those_of_the_list(kind: str, loss: str, body: str) -> None:
    """Value, gradient, A⁺ and A⁻ agree with the enumeration of all h to 4e-14."""
    for seed in range(3):
        part, cells, X, y = WORLDS[kind](seed)
        weight = np.random.default_rng(seed).random(len(y)) + 0.5
        options: dict[str, Any] = {"loss": loss, "n_labels": LABELS, "weight": weight}
        short, long = FactoredLoss(X, part, y, **options), EnumeratedLoss(X, cells, y, **options)
        assert short.n_weights == long.n_weights
        weights = np.random.default_rng(seed + 9).normal(size=short.n_weights)
        one, other = np.empty(short.n_weights), np.empty(short.n_weights)
        assert short.evaluate(weights, one) == pytest.approx(long.evaluate(weights, other), rel=4e-14)
        np.testing.assert_allclose(one, other, rtol=0, atol=4e-14 * max(1, np.abs(other).max()))
        if loss != "hcrf":
            for found, wanted in zip(short.counts(weights)[1:], long.counts(weights)[1:], strict=True):
                np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-14 * max(1, wanted.max()))
            assert short.scale == pytest.approx(long.scale, rel=1e-13)


@every_world
@factorising
def test_gradients_with_a_reference_measure(kind: str, loss: str) -> None:
    part, cells, X, y = WORLDS[kind]()
    log_r = np.random.default_rng(3).normal(size=(LABELS, len(y)))
    short = FactoredLoss(X, part, y, loss=loss, n_labels=LABELS, log_reference=log_r)
    long = EnumeratedLoss(X, cells, y, loss=loss, n_labels=LABELS, log_reference=log_r)
    weights = np.random.default_rng(4).normal(scale=0.5, size=short.n_weights)
    gradient = np.empty(short.n_weights)
    assert short.evaluate(weights, gradient) == pytest.approx(long.value(weights), rel=1e-13)
    np.testing.assert_allclose(gradient, central_differences(short.value, weights), rtol=0, atol=2e-8)


@every_world
def test_answers_are_those_of_the_list(kind: str) -> None:
    part, cells, X, _ = WORLDS[kind]()
    short, long = Factored(X, part, n_labels=LABELS), Enumerated(X, cells, n_labels=LABELS)
    weights = np.random.default_rng(4).normal(size=short.n_weights)
    np.testing.assert_allclose(short.joint(weights), long.joint(weights), rtol=1e-12)
    np.testing.assert_allclose(short.expected(weights), long.expected(weights), rtol=1e-12)
    at = np.random.default_rng(0).permutation(X.shape[0])[:5]
    for model in (short, long):
        for way in ("expected", "joint", "mixture")[: 3 if model is long else 2]:
            by_step = model.stepwise(weights, way)
            np.testing.assert_allclose(
                by_step(at, np.zeros((LABELS, 5))), getattr(model, way)(weights)[at], rtol=1e-12
            )
            one = by_step(at, np.outer([50.0, 0, 0], np.ones(5)))
            np.testing.assert_allclose(one[:, 0], 1.0, atol=1e-9)
    np.testing.assert_allclose(part.prior_columns().toarray(), cells.expected().columns.toarray(), rtol=0, atol=1e-14)


@every_world
@pytest.mark.parametrize("loss", ["exp", "joint"])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_parallel_updates_never_rise_and_end_where_lbfgs_does(kind: str, loss: str, l2: float) -> None:
    part, _, X, y = WORLDS[kind]()
    problem = FactoredLoss(X, part, y, loss=loss, n_labels=LABELS)
    start = np.random.default_rng(0).normal(scale=0.3, size=problem.n_weights)
    result = parallel(problem, start, l2=l2, tol=-1.0, max_iter=30)
    values = np.array([step.value for step in result.history])
    assert (np.diff(values) <= 1e-13 * values[:-1]).all()
    if l2 and kind == "bag":
        best = minimize(problem, start, Penalty(l2=l2), tol=1e-13, max_iter=2000)
        end = parallel(problem, result.weights, l2=l2, tol=1e-12, max_iter=20_000)
        assert end.value == pytest.approx(best.value, rel=2e-6)


def test_the_scale_of_a_bag_is_four() -> None:
    part, _, X, y = bag()
    assert FactoredLoss(X, part, y, loss="joint", n_labels=LABELS).scale == pytest.approx(4.0, rel=1e-14)


def test_large_scores_do_no_harm() -> None:
    for make in WORLDS.values():
        part, _, X, y = make()  # type: ignore[operator]
        for loss in ("joint", "hcrf"):
            problem = FactoredLoss(X, part, y, loss=loss, n_labels=LABELS)
            weights = np.random.default_rng(0).normal(scale=500.0, size=problem.n_weights)
            gradient = np.empty(problem.n_weights)
            assert np.isfinite(problem.evaluate(weights, gradient))
            assert np.isfinite(gradient).all()


@needs_native
def test_both_bodies_sum_bags_alike() -> None:
    rng = np.random.default_rng(2)
    counts = sp.random_array((300, 40), density=0.2, rng=rng, format="csr")
    counts.data = np.floor(5 * counts.data) + 1
    known = np.where(rng.random(counts.nnz) < 0.5, np.nan, np.floor(counts.data * rng.random(counts.nnz)))
    prior = rng.random(40)
    prior[:2] = 0.0, 1.0
    table, labels, weight = rng.normal(scale=9.0, size=(80, 4)), rng.integers(0, 4, 300), rng.random((4, 300))
    for given in (None, labels):
        found = []
        for name in ("native", "numpy"):
            with choice.use(name):
                sums = BagPart(counts, known, prior).sums(table, given)
                found.append([sums.logs, sums.tilted, sums.expected(weight), sums.expected(weight, by_label=labels)])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_kernels_of_bags_check_what_they_are_given(body: str) -> None:
    counts, one = sp.csr_array([[2.0, 1.0]]), np.full(2, 0.5)
    good: list[Any] = [counts, one, one, np.array([True, False]), one, one, np.zeros((4, 3)), np.array([2])]
    logs, shares = incomplete.bag_sums(*good)
    assert logs.shape == (1, 3)
    for at, bad in (
        (1, one[:1]),
        (3, np.array([True])),
        (6, np.zeros((3, 3))),
        (7, np.array([3])),
        (7, np.array([0, 0])),
    ):
        with pytest.raises((ShapeError, InputError)):
            incomplete.bag_sums(*[bad if k == at else value for k, value in enumerate(good)])
    with pytest.raises(ShapeError):
        incomplete.bag_expected(counts, one, shares, np.ones((2, 3)))
    with pytest.raises(InputError):
        incomplete.bag_expected(counts, one, shares, np.ones((1, 3)), np.array([-2]))
    beyond = sp.csr_array([[2.0, 1.0]])
    beyond.indices = np.array([0, 7])
    with pytest.raises((ValueError, IndexError)):
        incomplete.bag_sums(beyond, *good[1:])


def test_samples_of_a_bag_come_from_its_prior() -> None:
    part, cells, _, _ = bag(1)
    drawn = part.draw(4000, np.random.default_rng(0))
    assert np.diff(drawn.offsets)[part.observed].tolist() == [1] * int(part.observed.sum())
    np.testing.assert_allclose(
        drawn.expected().columns.toarray(), cells.expected().columns.toarray(), rtol=0, atol=0.02
    )
    again = part.draw(4000, np.random.default_rng(0))
    assert (again.columns != drawn.columns).nnz == 0
    halves = BagPart(sp.csr_array([[0.5, 1.0]]), np.full(2, np.nan), np.full(2, 0.5))
    with pytest.raises(InputError, match="integer counts"):
        halves.draw(3, np.random.default_rng(0))


def test_foregrounds_are_checked() -> None:
    counts = sp.csr_array([[2.0, 0.0], [1.0, 1.0]])
    assert np.isnan(foreground_of(None, counts)).all()
    table = np.array([[np.nan, np.nan], [1.0, 0.0]])
    np.testing.assert_array_equal(foreground_of(table, counts), [np.nan, 1.0, 0.0])
    np.testing.assert_array_equal(foreground_of(sp.csr_array([[1, 0], [0, 0]]), counts), [1.0, 0.0, 0.0])
    with pytest.raises(FeatureError, match=r"hidden\[0\].*between 0"):
        foreground_of([[3, 0], None], counts)
    with pytest.raises(FeatureError, match=r"hidden\[0\]"):
        foreground_of([[1, 1], None], counts)
    with pytest.raises(ShapeError, match="one row for each of 2"):
        foreground_of([None], counts)
    with pytest.raises(ShapeError, match="2 words"):
        foreground_of([None, [1.0]], counts)


def test_windows_are_checked() -> None:
    assert tag_windows([], before=1, after=1).shape == (0, 3)
    codes = np.array([[0, NO_PLACE, HIDDEN]])
    part = ChainPart(codes, np.zeros((1, 3, 2)), np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"hidden\[0\].*ends of a window"):
        part.sums(np.zeros((6, 2)))
    with np.errstate(divide="ignore"):
        barred = ChainPart(np.array([[HIDDEN, HIDDEN]]), np.zeros((1, 2, 2)), np.log(np.zeros((2, 2))))
    with pytest.raises(InputError, match="every sequence of tags has prior probability 0"):
        barred.sums(np.zeros((4, 2)))


# ------------------------------------------------------------------------------------------ priors of the forms


def test_priors_of_a_chain_are_nodes_and_links() -> None:
    form = Windows(LabelCoder().fit([["a", "b"]]), 3)
    nodes, links = form.beliefs(None, None, None, 4)
    np.testing.assert_array_equal(nodes, np.full((1, 3, 2), 0.5))
    np.testing.assert_array_equal(links, np.zeros((2, 2)))
    given = np.random.default_rng(0).dirichlet(np.ones(2), (4, 3))
    alone, flat = form.beliefs(given, None, None, 4)
    np.testing.assert_allclose(alone, given)
    np.testing.assert_array_equal(flat, np.zeros((2, 2)))
    both, logs = form.beliefs((given, [[1.0, 0.5], [0.0, 2.0]]), None, None, 4)
    np.testing.assert_allclose(both, given)
    np.testing.assert_allclose(logs, [[0.0, np.log(0.5)], [-np.inf, np.log(2.0)]])
    for wrong in (np.ones((3, 2)), [[1.0, -0.5], [0.0, 1.0]], [[1.0, np.nan], [0.0, 1.0]]):
        with pytest.raises(ShapeError, match="links of the prior must be finite and non-negative"):
            form.beliefs((given, wrong), None, None, 4)


def test_a_prior_of_a_bag_is_a_chance_for_each_word() -> None:
    form = Bag(3)
    for given, wanted in ((None, [0.5] * 3), (0.25, [0.25] * 3), ([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])):
        (found,) = form.beliefs(given, None, None, 4)
        assert found.tolist() == wanted
    assert form.beliefs(None, [np.full(3, 0.1)], None, 4)[0].tolist() == [0.1] * 3
    for wrong in ([0.5, 0.5], "many"):
        with pytest.raises(ShapeError, match="one number for each of 3 words"):
            form.beliefs(wrong, None, None, 4)
    for wrong in (1.5, [0.5, -0.1, 0.5], [0.5, np.nan, 0.5]):
        with pytest.raises(InputError, match="probabilities of the foreground"):
            form.beliefs(wrong, None, None, 4)
