"""Constants beside the weights: −∞ forbids, finite ones cost; both bodies against the formula and enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crfield.core.constraints import FixedScores
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ModelFileError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.kernels import choice, linear
from crfield.objectives.contrast import Contrast
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain
from tests.cases.chains import INF, LinearCase, Options, linear_case, native_level, needs_native, path_score
from tests.cases.linear_oracle import evaluated, problem_of, written_out

OPTIONS = [
    Options(),
    Options(partial=True, weighted=True, bias=True),
    Options(boundaries=False, transition_pairs="none", feature_pairs="all"),
    Options(edge_columns=3, edge_dense=1, partial=True, weighted=True),
    Options(edge_columns=3, values=True),
    Options(labels=5, values=True, dense=2, transition_pairs="all", weighted=True),
    Options(labels=2, lengths=(1, 1, 0)),
]
every_option = pytest.mark.parametrize("o", OPTIONS, ids=str)


def fixed_case(rng: np.random.Generator, o: Options, *, forbid: float = 0.4, scale: float = 1.0) -> LinearCase:
    """A case whose fixed scores forbid a share of all pairs, and whose gold labels are walks along the others."""
    case = linear_case(rng, replace(o, lengths=tuple(min(n, 4) for n in o.lengths)))
    chains, labels = case.batch.topology, o.labels
    tables = [scale * rng.standard_normal(shape) for shape in ((labels, labels), (labels,), (labels,))]
    for table in tables:
        table[rng.random(table.shape) < forbid] = -INF
    edge, start, end = tables
    edge[np.arange(labels), rng.permutation(labels)] = 0.5
    start[:2] = 0.25, -INF
    gold = np.zeros(chains.n_nodes, np.int32)
    for first, stop in zip(chains.offsets[:-1], chains.offsets[1:]):
        for n in range(first, stop):
            before = start if n == first else edge[gold[n - 1]]
            gold[n] = rng.choice(np.flatnonzero(np.isfinite(before)))
        if stop > first and np.isneginf(end[gold[stop - 1]]):
            end[gold[stop - 1]] = -0.75
    unsure, allowed = case.target.labels < 0, case.target.allowed
    if allowed is not None:
        allowed = allowed.copy()
        allowed[np.arange(len(gold)), gold] = True
    target = replace(case.target, labels=np.where(unsure, -1, gold), allowed=allowed)
    layout = Layout.observe(
        case.batch,
        target,
        feature_pairs=o.feature_pairs,
        transition_pairs=o.transition_pairs,
        bias=o.bias,
        boundaries=o.boundaries,
    )
    fixed = FixedScores(edge, start, end)
    assert fixed.forbids
    return LinearCase(replace(layout, fixed=fixed), case.batch, target)


def with_fixed(case: LinearCase, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The formula of the contract and the constants on top."""
    chains, fixed = case.batch.topology, case.layout.fixed
    assert fixed is not None
    node, edge = written_out(case, weights)
    for s in np.flatnonzero(chains.lengths):
        node[chains.offsets[s]] += fixed.start
        node[chains.offsets[s + 1] - 1] += fixed.end
    return node, edge + fixed.edge


@every_option
def test_scores_are_the_formula_and_the_constants(body: str, o: Options) -> None:
    rng = np.random.default_rng(1)
    case = fixed_case(rng, o)
    weights = case.weights(rng)
    node, edge = linear.Tagger(case.layout, weights).scores(case.batch)
    expected_node, expected_edge = with_fixed(case, weights)
    np.testing.assert_allclose(node, expected_node, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.broadcast_to(edge, expected_edge.shape), expected_edge, rtol=1e-12, atol=1e-13)


@every_option
def test_decoding_is_the_best_legal_path(body: str, o: Options) -> None:
    rng = np.random.default_rng(2)
    case = fixed_case(rng, o)
    weights, chains = case.weights(rng, 2.0), case.batch.topology
    path, total = linear.Tagger(case.layout, weights).decode(case.batch)
    potentials = LinearScorer(case.layout).score(weights, case.batch)
    best, expected = ChainEngine().best_path(potentials)
    np.testing.assert_array_equal(path, expected)
    np.testing.assert_allclose(total, best, rtol=1e-12)
    for s in np.flatnonzero(chains.lengths):
        span = path[chains.offsets[s] : chains.offsets[s + 1]]
        score = path_score(potentials, int(chains.offsets[s]), int(chains.edge_offsets[s]), tuple(span.tolist()))
        assert np.isfinite(score) == np.isfinite(total[s])


@every_option
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_fused_value_and_gradient_equal_the_plain_path(body: str, o: Options, scale: float) -> None:
    """Against enumeration of scores through the exact engine, which is held to enumeration elsewhere."""
    rng = np.random.default_rng(3)
    case = fixed_case(rng, o, scale=scale)
    weights = case.weights(rng, 1.0)
    value, gradient = evaluated(case, weights)
    plain = FullBatch(LinearScorer(case.layout), case.batch, case.target, objective=Contrast(), engine=ChainEngine())
    expected = np.empty_like(gradient)
    np.testing.assert_allclose(value, plain.evaluate(weights, expected), rtol=1e-11, atol=1e-9 * scale)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-10)


@every_option
def test_gradient_by_finite_differences(body: str, o: Options) -> None:
    rng = np.random.default_rng(4)
    case = fixed_case(rng, o)
    problem, weights = problem_of(case), case.weights(rng)
    gradient, spare = np.empty(len(weights)), np.empty(len(weights))
    problem.evaluate(weights, gradient)
    step = 1e-4
    for direction in rng.standard_normal((4, len(weights))):
        up = problem.evaluate(weights + step * direction, spare)
        down = problem.evaluate(weights - step * direction, spare)
        np.testing.assert_allclose((up - down) / (2 * step), gradient @ direction, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("o", [OPTIONS[0], OPTIONS[2], OPTIONS[5]], ids=str)
def test_a_stochastic_step_follows_the_gradient(body: str, o: Options) -> None:
    rng = np.random.default_rng(5)
    case = fixed_case(rng, replace(o, lengths=(4, 3, 0, 4, 1)))
    problem, start = problem_of(case), case.weights(rng)
    assert problem.n_groups == 1
    value, gradient = evaluated(case, start)
    weights = start.copy()
    loss = problem.descend(weights, np.array([0]), step=0.3, done=5.0, horizon=10.0, l2=0.7)
    np.testing.assert_allclose(loss, value, rtol=1e-12)
    np.testing.assert_allclose(weights, (1 - 0.2 * 0.7) * start - 0.2 * gradient, rtol=1e-10, atol=1e-12)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("o", [Options(labels=60, columns=20), Options(labels=60, partial=True)], ids=str)
def test_bodies_agree_on_many_labels(o: Options, level: int) -> None:
    """Where pairs without a weight are many, constants must not be taken for their score of zero."""
    rng = np.random.default_rng(6)
    case = fixed_case(rng, o, forbid=0.9)
    weights = case.weights(rng)
    with choice.use("numpy"):
        expected = evaluated(case, weights)
        curved = problem_of(case).curvature(weights)
    with native_level(level):
        value, gradient = evaluated(case, weights, n_jobs=2)
        np.testing.assert_allclose(value, expected[0], rtol=1e-11)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(problem_of(case).curvature(weights), curved, rtol=1e-9, atol=1e-11)


def test_forbidden_pairs_have_no_probability(body: str) -> None:
    rng = np.random.default_rng(7)
    case = fixed_case(rng, OPTIONS[0])
    assert case.layout.fixed is not None
    potentials = LinearScorer(case.layout).score(case.weights(rng), case.batch)
    beliefs = ChainEngine().infer(potentials, Semiring.LOG)
    assert (beliefs.edge[0][np.isneginf(case.layout.fixed.edge)] == 0).all()


@pytest.mark.parametrize(
    "tables",
    [
        (np.zeros((2, 3)), np.zeros(3), np.zeros(3)),
        (np.zeros((3, 3)), np.zeros(2), np.zeros(3)),
        (np.full((3, 3), np.nan), np.zeros(3), np.zeros(3)),
        (np.zeros((3, 3)), np.full(3, INF), np.zeros(3)),
        (np.zeros((3, 3)), None, np.zeros(3)),
        (np.zeros((2, 2)), np.zeros(2), np.zeros(2)),
    ],
    ids=["not square", "start", "NaN", "+inf", "missing", "labels"],
)
def test_the_kernels_refuse_constants_that_do_not_fit(body: str, tables: tuple[np.ndarray | None, ...]) -> None:
    layout = linear_case(np.random.default_rng(8), Options()).layout
    ptr, pairs = np.zeros(1, np.int64), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="fixed scores"):
        choice.body("linear").Model(3, 0, ptr, pairs, 0, False, False, layout.pairs, 0, ptr, pairs, 0, *tables)


def test_fixed_scores_are_checked() -> None:
    with pytest.raises(ShapeError, match="edge"):
        FixedScores(np.zeros((2, 3)), np.zeros(2), np.zeros(2))
    with pytest.raises(InputError, match="finite or -inf"):
        FixedScores(np.zeros((1, 1)), np.array([np.nan]), np.zeros(1))
    with pytest.raises(ShapeError, match="2 labels in a layout of 3"):
        Layout(3, fixed=FixedScores.none(2))


def test_a_layout_keeps_them_in_a_file() -> None:
    layout = fixed_case(np.random.default_rng(9), OPTIONS[0]).layout
    header, arrays = layout.state()
    again = Layout.from_state(header, arrays).fixed
    assert again is not None
    assert layout.fixed is not None
    np.testing.assert_array_equal(again.edge, layout.fixed.edge)
    np.testing.assert_array_equal(again.end, layout.fixed.end)
    assert layout.linear.fixed is None
    for damage in ({"fixed_edge": np.zeros((2, 2))}, {"fixed_start": np.full(3, np.nan)}, {"fixed_end": None}):
        broken = {k: v for k, v in {**arrays, **damage}.items() if v is not None}
        with pytest.raises(ModelFileError, match="damaged"):
            Layout.from_state(header, broken)


def test_the_fused_problem_refuses_what_is_forbidden() -> None:
    rng = np.random.default_rng(10)
    case = linear_case(rng, Options(lengths=(2, 3)))
    chains = Chains.from_lengths([2, 3])
    edge = np.zeros((3, 3))
    edge[0, 1] = -INF
    layout = replace(case.layout, fixed=FixedScores(edge, np.zeros(3), np.zeros(3)))
    with pytest.raises(LabelError, match="sequence 1, step 2"):
        FusedChain(layout, case.batch, Target(chains, 3, np.array([0, 0, 2, 0, 1])))
    allowed = np.ones((5, 3), dtype=bool)
    allowed[3] = [True, False, False]
    allowed[4] = [False, True, False]
    with pytest.raises(LabelError, match="sequence 1"):
        FusedChain(layout, case.batch, Target(chains, 3, np.array([0, 0, 2, -1, -1]), allowed))
    silent = Target(chains, 3, np.array([0, 0, 2, 0, 1]), weight=np.array([1.0, 0.0]))
    FusedChain(layout, case.batch, silent)
