"""Packed problems: the same bits after restoring, sums over many of them, and errors for arrays that do not fit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import ShapeError
from crfield.kernels import choice, linear
from crfield.scoring.layout import Layout
from tests.cases.chains import EACH_OPTION, LinearCase, Options, linear_case


def problem_of(case: LinearCase) -> linear.Problem:
    target = case.target
    return linear.Problem(case.layout, case.batch, target.labels, target.allowed, target.weight)


def taken(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies, as if they had come from a file; read-only, as those are."""
    made = {name: array.copy() for name, array in arrays.items()}
    for array in made.values():
        array.flags.writeable = False
    return made


@pytest.mark.usefixtures("body")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("o", EACH_OPTION, ids=str)
def test_a_restored_problem_is_the_same_to_the_bit(o: Options, check: bool) -> None:
    rng = np.random.default_rng(0)
    case = linear_case(rng, o)
    problem, weights = problem_of(case), case.weights(rng)
    again = linear.Problem.restore(linear.Workspace(case.layout), taken(problem.packed()), check=check)
    first, second = np.empty(len(weights)), np.full(len(weights), np.nan)
    for n_jobs in (1, 3):
        assert problem.evaluate(weights, first, n_jobs=n_jobs) == again.evaluate(weights, second, n_jobs=n_jobs)
        assert first.tobytes() == second.tobytes()
    assert problem.curvature(weights).tobytes() == again.curvature(weights).tobytes()
    assert problem.n_groups == again.n_groups
    if not case.layout.n_edge_columns and not case.layout.n_edge_dense:
        order, here, there = rng.permutation(problem.n_groups), weights.copy(), weights.copy()
        options: dict[str, float] = {"step": 0.1, "done": 0.0, "horizon": 10.0, "l2": 1.0}
        assert problem.descend(here, order, **options) == again.descend(there, order, **options)
        assert here.tobytes() == there.tobytes()


@pytest.mark.usefixtures("body")
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.parametrize("o", EACH_OPTION, ids=str)
def test_sums_are_those_of_the_problems(o: Options, n_jobs: int) -> None:
    rng = np.random.default_rng(1)
    case = linear_case(rng, o)
    problem, workspace = problem_of(case), linear.Workspace(case.layout)
    twin = linear.Problem.restore(workspace, taken(problem.packed()))
    sums, gradient, expected = linear.Sums(workspace, n_jobs=n_jobs), np.empty(problem.n_weights), None
    for scale in (1.0, 0.3):
        weights, expected = case.weights(rng, scale), np.empty(problem.n_weights)
        value = problem.evaluate(weights, expected)
        gradient[:] = np.nan
        assert sums.evaluate([twin, twin, twin], weights, gradient) == pytest.approx(3 * value, rel=1e-12)
        np.testing.assert_allclose(gradient, 3 * expected, rtol=1e-11, atol=1e-11)
    assert sums.evaluate([], weights, gradient) == 0.0
    assert not gradient.any()


def nested(rng: np.random.Generator, n: int, labels: int = 4, columns: int = 60) -> tuple[Batch, Target]:
    """Sequences in which columns come with others, so that rows are merged."""
    rows = []
    for _ in range(n):
        last = int(rng.integers(0, columns))
        rows.append(sorted({last, last // 2, last // 4, last // 8}))
    chains = Chains.from_lengths([5] * (n // 5))
    batch = Batch(chains, Columns.from_rows(rows, width=columns))
    return batch, Target(chains, labels, rng.integers(0, labels, n).astype(np.int32))


def test_problems_that_merge_more_columns_than_those_before() -> None:
    rng = np.random.default_rng(2)
    data = [nested(rng, n) for n in (50, 400, 20, 1000)]
    layout = Layout.observe(*data[-1])
    workspace = linear.Workspace(layout)
    problems = [linear.Problem(layout, batch, target.labels, None, None) for batch, target in data]
    merged = [len(p.packed()["merged_ptr"]) - 1 for p in problems]
    assert merged[0] < merged[1] < merged[3]
    twins = [linear.Problem.restore(workspace, p.packed()) for p in problems]
    weights, gradient, piece = rng.normal(size=layout.n_weights), np.empty(layout.n_weights), None
    expected, total = np.zeros(layout.n_weights), 0.0
    for p in problems:
        piece = np.empty(layout.n_weights)
        total += p.evaluate(weights, piece)
        expected += piece
    bits = set()
    for n_jobs in (1, 2):
        sums = linear.Sums(workspace, n_jobs=n_jobs)
        for _ in range(2):  # the second time there is room from the start
            assert sums.evaluate(twins, weights, gradient) == pytest.approx(total, rel=1e-13)
            np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-12)
        bits.add(gradient.tobytes())
    assert len(bits) == 1, "one and two threads give the same bits"


@pytest.mark.usefixtures("body")
def test_what_does_not_fit_is_refused() -> None:
    rng = np.random.default_rng(3)
    case = linear_case(rng, Options())
    problem, workspace = problem_of(case), linear.Workspace(case.layout)
    good = taken(problem.packed())
    for bad in ({}, {k: v for k, v in good.items() if k != "weight"}, {**good, "weight": good["weight"][:-1]}):
        with pytest.raises(ValueError):
            linear.Problem.restore(workspace, bad)
    with pytest.raises(ValueError):
        linear.Problem.restore(workspace, {**good, "weight": good["weight"].astype(np.int64)})
    sums = linear.Sums(workspace)
    with pytest.raises(ValueError, match="another workspace"):
        sums.evaluate([problem], case.weights(rng), np.empty(problem.n_weights))
    with pytest.raises(ShapeError):
        sums.evaluate([], case.weights(rng), np.empty(3))


@pytest.mark.parametrize("seed", range(12))
def test_hostile_arrays_are_refused_or_harmless(seed: int) -> None:
    """Numbers at the edge of a type anywhere in any array: an error, or a problem that can be evaluated."""
    rng = np.random.default_rng(seed)
    o = (Options(partial=True, weighted=True), Options(values=True, dense=2), Options(edge_columns=2))[seed % 3]
    case = linear_case(rng, o)
    with choice.use("native"):
        good, workspace = taken(problem_of(case).packed()), linear.Workspace(case.layout)
        refused = 0
        for _ in range(60):
            bad: dict[str, Any] = dict(good)
            name = str(rng.choice([name for name in good if len(good[name])]))
            changed = good[name].copy()
            edges = [-1, 0, 1, 2, 65, 2**31 - 1, 2**40, np.nan, np.inf, 1e300]
            with np.errstate(all="ignore"):
                changed[rng.integers(len(changed))] = np.array(
                    edges[rng.integers(7 if changed.dtype != float else 10)]
                ).astype(changed.dtype)
            bad[name] = changed[: len(changed) - int(rng.integers(0, 2))] if rng.random() < 0.3 else changed
            try:
                problem = linear.Problem.restore(workspace, bad)
            except ValueError:
                refused += 1
                continue
            gradient = np.empty(problem.n_weights)
            problem.evaluate(case.weights(rng), gradient)
            linear.Sums(workspace).evaluate([problem], case.weights(rng), gradient)
            problem.curvature(case.weights(rng))
        assert refused >= 5


def test_sets_of_columns_that_stand_for_too_many_are_refused() -> None:
    """Stochastic steps write them out: a few kilobytes must not become gigabytes."""
    batch, target = nested(np.random.default_rng(5), 2_000)
    with choice.use("native"):
        layout = Layout.observe(batch, target)
        good = taken(linear.Problem(layout, batch, target.labels, None, None).packed())
        member, ptr = good["merged_member"], good["merged_ptr"].copy()
        ptr[-1] += 60_000
        bomb = {**good, "merged_ptr": ptr, "merged_member": np.concatenate([member, np.zeros(60_000, np.int32)])}
        item = good["row_item"].copy()
        dense = int(item.max()) + 2 - len(ptr)  # rows of the model
        item[: len(item) - 100] = dense + len(ptr) - 2
        with pytest.raises(ValueError, match="sets of columns"):
            linear.Problem.restore(linear.Workspace(layout), {**bomb, "row_item": item})


# A digest of the packed arrays of one small problem, for each version of the packing. If this test fails because
# packing was changed, raise PACKED_VERSION in native/chain/packed.hpp and add a line: old caches are then not read.
DIGESTS = {"compiled 1": "8f00224d3e6b9a56", "compiled 2": "67f2101730e9870c"}


def test_a_change_of_packing_is_a_new_version() -> None:
    rng = np.random.default_rng(4)
    batch, target = nested(rng, 200, labels=8)  # as many as any vector is padded to
    weighted = replace(target, weight=np.linspace(0.5, 2.0, 40))
    with choice.use("native"):
        layout = Layout.observe(batch, weighted)
        packing = linear.Workspace(layout).packing.partition(",")[0]
        packed = linear.Problem(layout, batch, target.labels, None, weighted.weight).packed()
        sha = hashlib.sha256()
        for name, array in packed.items():
            sha.update(f"{name} {array.dtype.str} {len(array)};".encode() + array.tobytes())
    assert DIGESTS.get(packing) == sha.hexdigest()[:16], "packing has changed: raise PACKED_VERSION and list it here"
