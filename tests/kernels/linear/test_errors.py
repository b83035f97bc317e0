"""Linear kernels handed what does not fit: an error, never a crash and never a silent wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from crfield.data.batch import Columns
from crfield.kernels import chain, linear
from tests.cases.chains import LinearCase, Options, linear_case

Change = Callable[[LinearCase], LinearCase]
FULL = Options(values=True, dense=2, edge_columns=3, edge_dense=1, partial=True, weighted=True, bias=True)


def use(case: LinearCase) -> None:
    """Everything that reads the batch."""
    weights, gradient = np.zeros(case.layout.n_weights), np.zeros(case.layout.n_weights)
    problem = linear.Problem(case.layout, case.batch, case.target.labels, case.target.allowed, case.target.weight)
    problem.evaluate(weights, gradient)


def changed(columns: Columns, **fields: np.ndarray | None) -> Columns:
    """Columns with other arrays, past the checks of their constructor."""
    out = replace(columns)
    for name, value in fields.items():
        object.__setattr__(out, name, value)
    return out


def with_node(case: LinearCase, **fields: np.ndarray | None) -> LinearCase:
    return replace(case, batch=replace(case.batch, node=changed(case.batch.node, **fields)))


def with_edge(case: LinearCase, **fields: np.ndarray | None) -> LinearCase:
    assert case.batch.edge is not None
    return replace(case, batch=replace(case.batch, edge=changed(case.batch.edge, **fields)))


def put(x: np.ndarray, place: int, value: int) -> np.ndarray:
    out = x.copy()
    out[place] = value
    return out


BATCHES: dict[str, Change] = {
    "a column index at the width": lambda c: with_node(c, indices=put(c.batch.node.indices, 3, c.batch.node.width)),
    "a negative column index": lambda c: with_node(c, indices=put(c.batch.node.indices, 0, -1)),
    "a huge column index": lambda c: with_node(c, indices=put(c.batch.node.indices, -1, 2**31 - 1)),
    "indptr falls": lambda c: with_node(c, indptr=put(c.batch.node.indptr, 4, 10**6)),
    "indptr is negative": lambda c: with_node(c, indptr=put(c.batch.node.indptr, 4, -8)),
    "indptr starts late": lambda c: with_node(c, indptr=put(c.batch.node.indptr, 0, 1)),
    "indptr ends late": lambda c: with_node(c, indptr=put(c.batch.node.indptr, -1, 10**9)),
    "indptr ends early": lambda c: with_node(c, indptr=put(c.batch.node.indptr, -1, 0)),
    "values are missing": lambda c: with_node(c, values=c.batch.node.values[:-1]),  # type: ignore[index]
    "the dense block is narrow": lambda c: with_node(c, dense=c.batch.node.dense[:, :1].copy()),  # type: ignore[index]
    "the dense block is wide": lambda c: with_node(c, dense=np.zeros((c.batch.node.n_rows, 3))),
    "the dense block is short": lambda c: with_node(c, dense=c.batch.node.dense[:-1]),  # type: ignore[index]
    "the dense block is gone": lambda c: with_node(c, dense=None),
    "an edge index at the width": lambda c: with_edge(c, indices=put(c.batch.edge.indices, 0, 3)),  # type: ignore[union-attr]
    "edge indptr falls": lambda c: with_edge(c, indptr=put(c.batch.edge.indptr, 2, 999)),  # type: ignore[union-attr]
    "edge values are missing": lambda c: with_edge(c, values=np.zeros(1)),
    "the edge block is wide": lambda c: with_edge(c, dense=np.zeros((c.batch.topology.n_edges, 2))),
    "the edge block is gone": lambda c: with_edge(c, dense=None),
    "edges have no columns": lambda c: replace(c, batch=replace(c.batch, edge=None)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_that_do_not_fit_are_refused(body: str, name: str) -> None:
    case = linear_case(np.random.default_rng(0), FULL)
    use(case)
    bad = BATCHES[name](case)
    tagger = linear.Tagger(case.layout, np.zeros(case.layout.n_weights))
    node, edge = tagger.scores(case.batch)
    for call in (
        lambda: use(bad),
        lambda: tagger.decode(bad.batch),
        lambda: tagger.scores(bad.batch),
        lambda: linear.pull(case.layout, bad.batch, node, edge),
    ):
        with pytest.raises(ValueError):
            call()


TARGETS: dict[str, Callable[[LinearCase], dict[str, np.ndarray | None]]] = {
    "a label too large": lambda c: {"labels": put(c.target.labels, 2, 3)},
    "a label far too large": lambda c: {"labels": put(c.target.labels, 2, 2**31 - 1)},
    "a label below -1": lambda c: {"labels": put(c.target.labels, 0, -2)},
    "too few labels": lambda c: {"labels": c.target.labels[:-1]},
    "too many labels": lambda c: {"labels": np.append(c.target.labels, 0).astype(np.int32)},
    "unknown without a table": lambda c: {"labels": put(c.target.labels, 0, -1), "allowed": None},
    "a short table": lambda c: {"allowed": c.target.allowed[:-1]},  # type: ignore[index]
    "a narrow table": lambda c: {"allowed": c.target.allowed[:, :-1]},  # type: ignore[index]
    "too few weights": lambda c: {"weight": c.target.weight[:-1]},  # type: ignore[index]
    "too many weights": lambda c: {"weight": np.ones(c.batch.topology.n_sequences + 1)},
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_that_do_not_fit_are_refused(body: str, name: str) -> None:
    case = linear_case(np.random.default_rng(0), FULL)
    fields = {"labels": case.target.labels, "allowed": case.target.allowed, "weight": case.target.weight}
    linear.Problem(case.layout, case.batch, **fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        linear.Problem(case.layout, case.batch, **(fields | TARGETS[name](case)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"pairs": np.array([1, 0], np.int32)},
        {"pairs": np.array([1, 1], np.int32)},
        {"pairs": np.array([0, 9], np.int32)},
        {"pairs": np.array([-1], np.int32)},
        {"feature_ptr": np.array([0, 1], np.int64), "feature_label": np.array([0], np.int32)},
        {"feature_ptr": np.array([0, 2, 1, 3], np.int64), "feature_label": np.array([0, 1, 2], np.int32)},
        {"feature_ptr": np.array([0, 9, 9, 3], np.int64), "feature_label": np.array([0, 1, 2], np.int32)},
        {"feature_ptr": np.array([0, 2, 2, 2], np.int64), "feature_label": np.array([1, 0], np.int32)},
        {"feature_ptr": np.array([0, 1, 2, 3], np.int64), "feature_label": np.array([0, 1, 3], np.int32)},
        {"feature_ptr": np.array([0, 1, 2, 3], np.int64), "feature_label": np.array([0, -1, 2], np.int32)},
        {"feature_ptr": np.array([0, 0, 0, 0], np.int64), "feature_label": None},
        {"edge_ptr": np.array([0, 1], np.int64), "edge_pair": np.array([9], np.int32), "n_edge_columns": 1},
        {"edge_ptr": np.array([0], np.int64), "edge_pair": np.array([], np.int32), "n_edge_columns": 1},
        {"n_labels": 0, "feature_ptr": None, "feature_label": None, "pairs": np.zeros(0, np.int32)},
    ],
    ids=str,
)
def test_layouts_out_of_order_are_refused(body: str, fields: dict[str, object]) -> None:
    case = linear_case(np.random.default_rng(0), Options(columns=3, lengths=(2,)))
    layout = replace(case.layout, **fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        linear.Tagger(layout, np.zeros(layout.n_weights))


def test_vectors_of_the_wrong_size_are_refused(body: str) -> None:
    case = linear_case(np.random.default_rng(0), Options())
    size = case.layout.n_weights
    problem = linear.Problem(case.layout, case.batch, case.target.labels, None, None)
    node, edge = linear.Tagger(case.layout, np.zeros(size)).scores(case.batch)
    groups = np.arange(problem.n_groups)
    rates = {"step": 0.1, "done": 0.0, "horizon": 1.0, "l2": 0.0}
    for call in (
        lambda: linear.Tagger(case.layout, np.zeros(size - 1)),
        lambda: linear.Tagger(case.layout, np.zeros(size + 1)),
        lambda: problem.evaluate(np.zeros(size - 1), np.zeros(size)),
        lambda: problem.evaluate(np.zeros(size), np.zeros(size + 1)),
        lambda: problem.curvature(np.zeros(size + 1)),
        lambda: problem.descend(np.zeros(size - 1), groups, **rates),
        lambda: problem.descend(np.zeros(size), np.array([problem.n_groups]), **rates),
        lambda: problem.descend(np.zeros(size), np.array([-1]), **rates),
        lambda: linear.pull(case.layout, case.batch, node[:-1], edge),
        lambda: linear.pull(case.layout, case.batch, node[:, :-1], edge),
        lambda: linear.pull(case.layout, case.batch, node, np.zeros((2, 3, 3))),
        lambda: linear.pull(case.layout, case.batch, node, np.zeros((1, 3, 2))),
    ):
        with pytest.raises(ValueError):
            call()


def test_results_are_never_written_to_a_copy(body: str) -> None:
    """A gradient that would have to be converted is refused: the caller would wait for it in vain."""
    case = linear_case(np.random.default_rng(0), Options())
    size = case.layout.n_weights
    problem = linear.Problem(case.layout, case.batch, case.target.labels, None, None)
    frozen = np.zeros(size)
    frozen.flags.writeable = False
    for bad in (np.zeros(2 * size)[::2], np.zeros(size, np.float32), frozen):
        with pytest.raises(ValueError, match="gradient must be"):
            problem.evaluate(np.zeros(size), bad)
        with pytest.raises(ValueError, match="weights must be"):
            problem.descend(bad, np.array([0]), step=0.1, done=0.0, horizon=1.0, l2=0.0)


def test_edge_features_have_no_stochastic_steps(body: str) -> None:
    case = linear_case(np.random.default_rng(0), Options(edge_dense=1))
    problem = linear.Problem(case.layout, case.batch, case.target.labels, None, None)
    with pytest.raises(ValueError, match="edge features"):
        problem.descend(np.zeros(case.layout.n_weights), np.array([0]), step=0.1, done=0.0, horizon=1.0, l2=0.0)


def test_any_order_of_memory_and_any_float(body: str) -> None:
    """Inputs may be transposed, strided or of single precision; the answers are the same."""
    rng = np.random.default_rng(1)
    offsets, node, edge = np.array([0, 4, 6]), rng.integers(-3, 3, (6, 3)) / 4, rng.integers(-3, 3, (1, 3, 3)) / 4
    total, marginals, pairs = chain.sum_product(offsets, node, edge)
    best, path = chain.max_product(offsets, node, edge)
    for kind in (np.asfortranarray, np.float32, lambda x: np.repeat(x, 2, axis=-1)[..., ::2]):
        again = chain.sum_product(offsets.astype(np.int32), kind(node), kind(edge))
        np.testing.assert_array_equal(again[0], total)
        np.testing.assert_array_equal(again[1], marginals)
        np.testing.assert_array_equal(again[2], pairs)
        other, same = chain.max_product(offsets.astype(np.int32), kind(node), kind(edge))
        np.testing.assert_array_equal(other, best)
        np.testing.assert_array_equal(same, path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("o", [Options(), FULL, Options(feature_pairs="all"), Options(labels=50)], ids=str)
def test_mad_weights_do_not_crash(body: str, o: Options, bad: float) -> None:
    """Optimisers try such points; what comes back is not a number to be trusted, but it comes back."""
    rng = np.random.default_rng(2)
    case = linear_case(rng, o)
    weights, gradient = case.weights(rng), np.empty(case.layout.n_weights)
    weights[rng.integers(0, len(weights), 5)] = bad
    problem = linear.Problem(case.layout, case.batch, case.target.labels, case.target.allowed, case.target.weight)
    with np.errstate(all="ignore"):
        problem.evaluate(weights, gradient)
        path = linear.Tagger(case.layout, weights).decode(case.batch)[0]
    assert ((path >= 0) & (path < o.labels)).all()
