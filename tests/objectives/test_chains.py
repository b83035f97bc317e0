"""Objectives of chains as functions of the weights: differences, with masks, weights, costs and edge features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crfield.core.constraints import FixedScores
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.chain import ChainEngine
from crfield.objectives.label_accuracy import LabelAccuracy
from crfield.training.chain.batch import CurvedChain
from crfield.training.chain.plan import (
    SMOOTH,
    TRAINERS,
    ChainParts,
    chain_objective,
    fit_chain,
    plan_chain,
    prepare,
)
from tests.cases.chains import Options, linear_case, path_score, paths_of, random_potentials, random_target

CASES = {
    "plain": Options(),
    "masks": Options(partial=True, bias=True),
    "weights": Options(weighted=True, dense=2, values=True),
    "edges": Options(edge_columns=3, edge_dense=1),
    "masks, weights, edges": Options(partial=True, weighted=True, edge_columns=3, edge_values=True),
}


def parts_of(case: str, *, costs: bool = False) -> tuple[ChainParts, np.ndarray]:
    rng = np.random.default_rng(len(case))
    made = linear_case(rng, replace(CASES[case], lengths=(4, 0, 1, 3, 2)))
    target = made.target
    if costs:
        cost = np.where(target.mask, 0.0, rng.uniform(0.5, 3.0, target.mask.shape))
        target = replace(target, cost=cost)
    return ChainParts.columns(made.layout, made.batch, target), made.weights(rng)


def slopes(parts: ChainParts, objective: str, weights: np.ndarray, step: float = 1e-5) -> np.ndarray:
    problem, spare, out = parts.problem(objective), np.empty_like(weights), np.empty_like(weights)
    for k in range(len(weights)):
        ends = []
        for move in (step, -step):
            there = weights.copy()
            there[k] += move
            ends.append(problem.evaluate(there, spare))
        out[k] = (ends[0] - ends[1]) / (2 * step)
    return out


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("objective", SMOOTH)
def test_gradients_are_differences_of_values(objective: str, case: str) -> None:
    parts, weights = parts_of(case)
    gradient = np.empty_like(weights)
    parts.problem(objective).evaluate(weights, gradient)
    np.testing.assert_allclose(gradient, slopes(parts, objective, weights), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", ["masks", "masks, weights, edges"])
def test_costs_move_the_softmax_margin(case: str) -> None:
    parts, weights = parts_of(case, costs=True)
    plain, _ = parts_of(case)
    gradient = np.empty_like(weights)
    value = parts.problem("softmax_margin").evaluate(weights, gradient)
    np.testing.assert_allclose(gradient, slopes(parts, "softmax_margin", weights), rtol=1e-6, atol=1e-7)
    assert value != plain.problem("softmax_margin").evaluate(weights, gradient)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("objective", ["likelihood", "softmax_margin"])
def test_products_of_weights_are_differences_of_gradients(objective: str, case: str) -> None:
    parts, weights = parts_of(case, costs=objective == "softmax_margin")
    problem = CurvedChain(parts, objective)
    product, diagonal = problem.curvature_at(weights)
    vector, step, ends = np.random.default_rng(1).standard_normal(len(weights)), 1e-5, []
    for move in (step, -step):
        gradient = np.empty_like(weights)
        problem.evaluate(weights + move * vector, gradient)
        ends.append(gradient)
    np.testing.assert_allclose(product(vector), (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-7)
    assert diagonal is None or (np.isfinite(diagonal).all() and diagonal.shape == weights.shape)


@pytest.mark.parametrize("objective", ["likelihood", "softmax_margin", "label_accuracy"])
def test_constants_and_rules_are_no_part_of_a_direction(objective: str) -> None:
    """With scores that are not learnt, forbidden pairs among them, slopes and products stay those of the weights."""
    parts, weights = parts_of("plain")
    assert parts.layout is not None
    met = np.zeros((3, 3), dtype=bool)
    labels, heads = parts.target.labels, parts.target.topology.heads
    met[labels[heads - 1], labels[heads]] = True
    assert not met.all(), "the case has a pair to forbid"
    fixed = FixedScores(np.where(met, 0.7, -np.inf), np.array([0.0, -1.0, 0.5]), np.zeros(3))
    ruled = ChainParts.columns(replace(parts.layout, fixed=fixed), parts.batch, parts.target)
    gradient = np.empty_like(weights)
    ruled.problem(objective).evaluate(weights, gradient)
    np.testing.assert_allclose(gradient, slopes(ruled, objective, weights), rtol=1e-6, atol=1e-7)
    if objective != "label_accuracy":
        problem, vector, ends = (
            CurvedChain(ruled, objective),
            np.random.default_rng(1).standard_normal(len(weights)),
            [],
        )
        for move in (1e-5, -1e-5):
            there = np.empty_like(weights)
            problem.evaluate(weights + move * vector, there)
            ends.append(there)
        product = problem.curvature_at(weights)[0](vector)
        np.testing.assert_allclose(product, (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_label_accuracy_by_enumeration(shared: bool, log: bool) -> None:
    rng = np.random.default_rng(2)
    potentials = random_potentials(rng, [3, 0, 2, 1], 3, shared=shared)
    target = random_target(rng, potentials.topology, 3, partial=True, weighted=True)
    expected = 0.0
    for s, length in enumerate(potentials.topology.lengths.tolist()):
        first, edge = int(potentials.topology.offsets[s]), int(potentials.topology.edge_offsets[s])
        paths = paths_of(3, length)
        p = np.exp([path_score(potentials, first, edge, path) for path in paths])
        p /= p.sum()
        for t in range(length):
            right = sum(q for q, path in zip(p, paths) if target.mask[first + t, path[t]])
            expected += target.weight[s] * (-np.log(right) if log else 1 - right)
    result = LabelAccuracy(log=log).evaluate(potentials, target, ChainEngine())
    np.testing.assert_allclose(result.value, expected, rtol=1e-12)


def test_label_accuracy_of_what_cannot_be() -> None:
    """An impossible label is one error; its logarithm is refused, unless the sequence has no weight."""
    chains = Chains.from_lengths([1, 2])
    node = np.array([[0.0, 0.0], [0.0, 0.0], [-np.inf, 0.0]])
    scores = Potentials(node, np.zeros((1, 2, 2)), chains)
    labels = np.array([0, 1, 0])
    assert LabelAccuracy().evaluate(scores, Target(chains, 2, labels), ChainEngine()).value == 2.0
    with pytest.raises(LabelError, match="sequence 1, step 1"):
        LabelAccuracy(log=True).evaluate(scores, Target(chains, 2, labels), ChainEngine())
    leave_out = Target(chains, 2, labels, weight=np.array([1.0, 0.0]))
    result = LabelAccuracy(log=True).evaluate(scores, leave_out, ChainEngine())
    assert result.value == pytest.approx(np.log(2))
    assert np.isfinite(result.node).all()


@pytest.mark.parametrize("case", list(CASES))
def test_the_hinge_has_a_subgradient(case: str) -> None:
    """F(v) ≥ F(w) + gᵀ(v − w) for complete labels; with masks it is not convex, and the value is still finite."""
    parts, weights = parts_of(case)
    problem, gradient, spare = parts.problem("hinge"), np.empty_like(weights), np.empty_like(weights)
    value = problem.evaluate(weights, gradient)
    assert np.isfinite(value)
    if "masks" not in case:
        rng = np.random.default_rng(0)
        for _ in range(10):
            there = weights + rng.standard_normal(len(weights))
            assert problem.evaluate(there, spare) >= value + gradient @ (there - weights) - 1e-9


def test_plans() -> None:
    for name in TRAINERS:
        assert plan_chain("auto", name).objective == TRAINERS[name].objectives[0]
    for objective in SMOOTH[1:]:
        assert plan_chain(objective).solver == "lbfgs"
        assert chain_objective(objective) is not None
    assert plan_chain("auto", "newton_cg", costs=True).objective == "softmax_margin"
    with pytest.raises(
        InputError, match=r"solver='gis' trains 'likelihood'.*for which .* have no meaning.*'lbfgs', 'cg'"
    ):
        plan_chain("auto", "gis", costs=True)
    with pytest.raises(InputError, match="no meaning for objective='likelihood'"):
        plan_chain("likelihood", costs=True)
    with pytest.raises(InputError, match=r"newton_cg.*not 'pseudo_likelihood'. Solvers that train it: 'lbfgs', 'cg'"):
        plan_chain("pseudo_likelihood", "newton_cg")
    with pytest.raises(InputError, match="objective must be one of 'auto', 'likelihood'"):
        plan_chain("accuracy")
    with pytest.raises(InputError, match="objective must be one of"):
        chain_objective("auto")
    with pytest.raises(InputError, match="second derivatives are known"):
        CurvedChain(parts_of("plain")[0], "label_accuracy")


def test_a_problem_is_not_data() -> None:
    parts, _ = parts_of("plain")
    plan = plan_chain("auto", "newton_cg")
    assert prepare(plan, parts) is parts
    from crfield.optimize.penalty import Penalty

    with pytest.raises(InputError, match="needs the data itself"):
        fit_chain(plan, parts.problem("likelihood"), Penalty(l2=1.0), rng=np.random.default_rng(0))
