"""Weights times columns, fused with inference: formula, enumeration, finite differences, both bodies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.brute import BruteEngine
from crfield.inference.chain import ChainEngine, path_scores
from crfield.kernels import choice, linear
from crfield.scoring.layout import Layout
from tests.contracts.cases import (
    EACH_OPTION,
    INF,
    LinearCase,
    Options,
    examples,
    linear_case,
    native_level,
    needs_native,
    options,
)

every_option = pytest.mark.parametrize("o", EACH_OPTION, ids=str)


def problem_of(case: LinearCase) -> linear.Problem:
    return linear.Problem(case.layout, case.batch, case.target.labels, case.target.allowed, case.target.weight)


def evaluated(case: LinearCase, weights: np.ndarray, n_jobs: int = 1) -> tuple[float, np.ndarray]:
    gradient = np.full(case.layout.n_weights, np.nan)
    return problem_of(case).evaluate(weights, gradient, n_jobs=n_jobs), gradient


def node_columns_of(columns: Columns, row: int) -> list[tuple[int, float]]:
    span = slice(columns.indptr[row], columns.indptr[row + 1])
    values = np.ones(span.stop - span.start) if columns.values is None else columns.values[span]
    return list(zip(columns.indices[span].tolist(), values.tolist()))


def written_out(case: LinearCase, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores by the formula of the contract, one feature at a time, with a table for every edge."""
    layout, batch, chains, L = case.layout, case.batch, case.batch.topology, case.layout.n_labels
    part = {name: weights[span] for name, span in layout.part.items()}
    node, edge = np.zeros((chains.n_nodes, L)), np.zeros((chains.n_edges, L, L))
    column, label = layout.node_features()
    for n in range(chains.n_nodes):
        for k, x in node_columns_of(batch.node, n):
            for f in np.flatnonzero(column == k):
                node[n, label[f]] += x * part["node"][f]
        for d in range(layout.n_dense):
            node[n] += batch.node.dense[n, d] * part["dense"].reshape(-1, L)[d]  # type: ignore[index]
        node[n] += part["bias"] if layout.bias else 0.0
    for s in np.flatnonzero(chains.lengths) if layout.boundaries else ():
        node[chains.offsets[s]] += part["start"]
        node[chains.offsets[s + 1] - 1] += part["end"]
    column, pair = layout.edge_features()
    for e in range(chains.n_edges):
        flat = edge[e].reshape(-1)
        flat[layout.pairs] += part["transitions"]
        for k, x in node_columns_of(batch.edge, e) if batch.edge is not None else ():
            for f in np.flatnonzero(column == k):
                flat[pair[f]] += x * part["edge"][f]
        for d in range(layout.n_edge_dense):
            flat += batch.edge.dense[e, d] * part["edge_dense"].reshape(-1, L * L)[d]  # type: ignore[union-attr, index]
    return node, edge


def written_back(case: LinearCase, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """The adjoint of `written_out`: one unit weight at a time."""
    units = np.eye(case.layout.n_weights)
    both = [written_out(case, unit) for unit in units]
    return np.array([(a * node).sum() + (b * edge).sum() for a, b in both])


def enumerated(case: LinearCase, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Value and gradient in the scores by writing out all paths and all allowed paths."""
    chains, target = case.batch.topology, case.target
    node, edge = written_out(case, weights)
    free = BruteEngine().infer(Potentials(node, edge, chains), Semiring.LOG)
    masked = np.full_like(node, -INF)
    for n, label in enumerate(target.labels):
        allowed = [label] if label >= 0 else np.flatnonzero(target.allowed[n])  # type: ignore[index]
        masked[n, allowed] = node[n, allowed]
    clamped = BruteEngine().infer(Potentials(masked, edge, chains), Semiring.LOG)
    weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
    by_node = weight[chains.sequence_of_node][:, None]
    by_edge = weight[chains.sequence_of_node[chains.heads]][:, None, None]
    value = float(weight @ (free.total - clamped.total))
    # with exactly one edge a table of its own and a shared one look the same; so do their marginals
    return value, by_node * (free.node - clamped.node), by_edge * (free.edge - clamped.edge)


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


# --------------------------------------------------------------------------------------------- both bodies


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
