"""Weights times columns, fused with inference: formula, enumeration, finite differences, details."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.chain import ChainEngine
from crfield.kernels import choice, linear
from tests.cases.chains import (
    EACH_OPTION,
    LinearCase,
    Options,
    examples,
    linear_case,
    needs_native,
    options,
)
from tests.cases.linear_oracle import enumerated, evaluated, problem_of, written_back, written_out

every_option = pytest.mark.parametrize("o", EACH_OPTION, ids=str)


# ------------------------------------------------------------------------------------------- formula, oracle


@every_option
def test_scores_are_the_formula(body: str, o: Options) -> None:
    rng = np.random.default_rng(1)
    case = linear_case(rng, o)
    weights = case.weights(rng)
    node, edge = linear.Tagger(case.layout, weights).scores(case.batch)
    expected_node, expected_edge = written_out(case, weights)
    np.testing.assert_allclose(node, expected_node, rtol=1e-12, atol=1e-13)
    assert len(edge) == (case.batch.topology.n_edges if o.edge_columns or o.edge_dense else 1)
    every_edge = np.broadcast_to(edge, expected_edge.shape)
    np.testing.assert_allclose(every_edge, expected_edge, rtol=1e-12, atol=1e-13)


@every_option
def test_pull_is_the_adjoint_of_score(body: str, o: Options) -> None:
    """⟨score(v), g⟩ = ⟨v, pull(g)⟩ for any direction v and gradient g."""
    rng = np.random.default_rng(2)
    case = linear_case(rng, o)
    for _ in range(5):
        direction = case.weights(rng)
        node, edge = linear.Tagger(case.layout, direction).scores(case.batch)
        g_node, g_edge = rng.standard_normal(node.shape), rng.standard_normal(edge.shape)
        pulled = linear.pull(case.layout, case.batch, g_node, g_edge)
        assert pulled.shape == direction.shape
        left = (node * g_node).sum() + (edge * g_edge).sum()
        np.testing.assert_allclose(direction @ pulled, left, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("o", [x for x in EACH_OPTION if x.labels <= 5], ids=str)
def test_value_and_gradient_equal_enumeration(body: str, o: Options) -> None:
    rng = np.random.default_rng(3)
    short = replace(o, lengths=tuple(min(length, 3) for length in o.lengths))
    case = linear_case(rng, short)
    weights = case.weights(rng, 1.0)
    value, node, edge = enumerated(case, weights)
    got, gradient = evaluated(case, weights)
    np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient, written_back(case, node, edge), rtol=1e-10, atol=1e-11)


@every_option
def test_gradient_equals_finite_differences(body: str, o: Options) -> None:
    """Some weights of every part of the layout, and one direction through all of them."""
    rng = np.random.default_rng(4)
    case = linear_case(rng, o)
    problem, weights = problem_of(case), case.weights(rng)
    gradient, spare = np.full(len(weights), np.nan), np.empty(len(weights))
    problem.evaluate(weights, gradient)
    directions = [rng.standard_normal(len(weights))]
    for span in case.layout.part.values():
        some = rng.permutation(np.arange(span.start, span.stop))[:3]
        directions += list(np.eye(len(weights))[some])
    step = 1e-4
    for direction in directions:
        up = problem.evaluate(weights + step * direction, spare)
        down = problem.evaluate(weights - step * direction, spare)
        np.testing.assert_allclose((up - down) / (2 * step), gradient @ direction, rtol=1e-6, atol=2e-6)


# ------------------------------------------------------------------------------------------ weights, details


def repeated(case: LinearCase, times: list[int]) -> LinearCase:
    """The same data with sequence s written ``times[s]`` times, unweighted."""
    chains, node, edge = case.batch.topology, case.batch.node, case.batch.edge
    order = [s for s, n in enumerate(times) for _ in range(n)]
    rows = np.concatenate([np.arange(chains.offsets[s], chains.offsets[s + 1]) for s in order] or [np.zeros(0, int)])
    edges = np.concatenate(
        [np.arange(chains.edge_offsets[s], chains.edge_offsets[s + 1]) for s in order] or [np.zeros(0, int)]
    )

    def take(columns: Columns, rows: np.ndarray) -> Columns:
        at = [np.arange(columns.indptr[r], columns.indptr[r + 1]) for r in rows]
        flat = np.concatenate(at) if at else np.zeros(0, np.int64)
        return Columns(
            np.concatenate([[0], np.cumsum([len(a) for a in at])]),
            columns.indices[flat],
            columns.width,
            None if columns.values is None else columns.values[flat],
            None if columns.dense is None else columns.dense[rows],
        )

    again = Chains.from_lengths([int(chains.lengths[s]) for s in order])
    allowed = None if case.target.allowed is None else case.target.allowed[rows]
    return LinearCase(
        case.layout,
        Batch(again, take(node, rows), None if edge is None else take(edge, edges)),
        Target(again, case.target.n_labels, case.target.labels[rows], allowed),
    )


@pytest.mark.parametrize(
    "o", [Options(), Options(partial=True, values=True, dense=1), Options(partial=True, edge_columns=3)], ids=str
)
def test_a_weight_is_a_number_of_copies(body: str, o: Options) -> None:
    rng = np.random.default_rng(10)
    case = linear_case(rng, o)
    weights = case.weights(rng)
    times = [2, 1, 0, 1, 0, 3, 1, 0, 1, 2, 1]
    weighted = replace(case, target=replace(case.target, weight=np.array(times, float)))
    value, gradient = evaluated(weighted, weights)
    copies, expected = evaluated(repeated(case, times), weights)
    np.testing.assert_allclose(value, copies, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-11)
    half = replace(case, target=replace(case.target, weight=np.full(len(times), 0.5)))
    np.testing.assert_allclose(evaluated(half, weights)[0], evaluated(case, weights)[0] / 2, rtol=1e-12)


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0), (1,), (1, 0, 1)])
@pytest.mark.parametrize(
    "o", [Options(), Options(edge_columns=2, edge_dense=1, partial=True, weighted=True)], ids=str
)
def test_next_to_no_data(body: str, o: Options, lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    case = linear_case(rng, replace(o, lengths=lengths, feature_pairs="all", transition_pairs="all"))
    weights = case.weights(rng)
    value, gradient = evaluated(case, weights, n_jobs=3)
    expected, node, edge = enumerated(case, weights)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gradient, written_back(case, node, edge), atol=1e-12)
    path, total = linear.Tagger(case.layout, weights).decode(case.batch, n_jobs=3)
    assert (path.shape, total.shape) == ((sum(lengths),), (len(lengths),))
    assert problem_of(case).curvature(weights, n_jobs=3).shape == weights.shape


@every_option
def test_curvature_is_the_spread_of_the_features(body: str, o: Options) -> None:
    """Σ weight x² p (1 − p) for node features, dense columns, bias and boundaries, by the formula."""
    rng = np.random.default_rng(12)
    case = linear_case(rng, o)
    weights, chains = case.weights(rng), case.batch.topology
    node, edge = written_out(case, weights)
    p = ChainEngine().infer(Potentials(node, edge, chains), Semiring.LOG).node
    weight = np.ones(chains.n_sequences) if case.target.weight is None else case.target.weight
    spread = weight[chains.sequence_of_node][:, None] * p * (1 - p)
    squares = replace(
        case,
        batch=Batch(
            chains,
            replace(
                case.batch.node,
                values=None if case.batch.node.values is None else case.batch.node.values**2,
                dense=None if case.batch.node.dense is None else case.batch.node.dense**2,
            ),
            case.batch.edge,
        ),
    )
    curvature = problem_of(case).curvature(weights)
    nodes_only = case.layout.part["transitions"].start
    expected = written_back(squares, spread, np.zeros_like(edge))[:nodes_only]
    np.testing.assert_allclose(curvature[:nodes_only], expected, rtol=1e-10, atol=1e-12)
    assert (curvature >= 0).all()
    assert np.isfinite(curvature).all()


@pytest.mark.parametrize(
    "o",
    [
        Options(),
        Options(bias=True, values=True, dense=2, partial=True, weighted=True),
        Options(feature_pairs="all", transition_pairs="none", boundaries=False),
        Options(labels=9, columns=60),
    ],
    ids=str,
)
def test_one_stochastic_step_follows_the_gradient(body: str, o: Options) -> None:
    """w ← (1 − η l2) w − η ∇ with η = step / (1 + done / horizon), when all the data are one group."""
    rng = np.random.default_rng(13)
    partial = replace(o, lengths=(4, 3, 0, 5, 1))
    case = linear_case(rng, partial)
    if o.partial:  # those of unknown labels form groups of their own: make all of them such
        case = replace(case, target=replace(case.target, labels=np.full_like(case.target.labels, -1)))
    problem, start = problem_of(case), case.weights(rng)
    assert problem.n_groups == 1
    value, gradient = evaluated(case, start)
    weights = start.copy()
    loss = problem.descend(weights, np.array([0]), step=0.3, done=5.0, horizon=10.0, l2=0.7)
    np.testing.assert_allclose(loss, value, rtol=1e-12)
    np.testing.assert_allclose(weights, (1 - 0.2 * 0.7) * start - 0.2 * gradient, rtol=1e-10, atol=1e-12)


@needs_native
@examples(25)
@given(options(), st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 300.0]))
def test_stochastic_steps_on_both_bodies(o: Options, seed: int, l2: float) -> None:
    rng = np.random.default_rng(seed)
    case = linear_case(rng, replace(o, edge_columns=0, edge_dense=0, lengths=(*o.lengths, 3, 1, 4)))
    start, out = case.weights(rng), []
    for body in ("native", "numpy"):
        with choice.use(body):
            problem, weights = problem_of(case), start.copy()
            order = np.tile(np.arange(problem.n_groups), 4)
            loss = problem.descend(weights, order, step=0.1, done=2.0, horizon=7.0, l2=l2)
            out.append((loss, weights))
    np.testing.assert_allclose(out[0][0], out[1][0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(out[0][1], out[1][1], rtol=1e-9, atol=1e-10)


def test_a_tagger_keeps_its_own_weights(body: str) -> None:
    rng = np.random.default_rng(14)
    case = linear_case(rng, Options(feature_pairs="all"))
    weights = case.weights(rng)
    tagger = linear.Tagger(case.layout, weights)
    before = tagger.scores(case.batch)[0]
    weights[:] = 0.0
    np.testing.assert_array_equal(tagger.scores(case.batch)[0], before)
