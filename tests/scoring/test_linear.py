"""Weights to scores and back: the linear scorer, its layout, and functions of two labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import FeatureError, InputError, ModelFileError
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.scoring.tables import TableScorer, tabulate
from crfield.training.full_batch import FullBatch
from tests.cases.chains import EACH_OPTION, LinearCase, Options, examples, linear_case, options, random_target

pytestmark = pytest.mark.usefixtures("body")


# ------------------------------------------------------------------------------------------------ layout


def met_by_hand(case: LinearCase) -> tuple[set[tuple[int, int]], set[tuple[int, int]], set[int]]:
    """(column, label), (edge column, pair) and pairs that occur, by loops over the data."""
    target, chains, batch = case.target, case.batch.topology, case.batch

    def labels(n: int) -> list[int]:
        if target.labels[n] >= 0:
            return [int(target.labels[n])]
        some = np.flatnonzero(target.allowed[n]).tolist()  # type: ignore[index]
        return some if len(some) < target.n_labels else []

    features = {
        (int(k), label)
        for n in range(chains.n_nodes)
        for k in batch.node.indices[batch.node.indptr[n] : batch.node.indptr[n + 1]]
        for label in labels(n)
    }
    edge_features, pairs = set(), set()
    for e, n in enumerate(chains.heads.tolist()):
        met = [i * target.n_labels + j for i in labels(n - 1) for j in labels(n)]
        pairs |= set(met)
        if batch.edge is not None:
            columns = batch.edge.indices[batch.edge.indptr[e] : batch.edge.indptr[e + 1]].tolist()
            edge_features |= {(k, pair) for k in columns for pair in met}
    return features, edge_features, pairs


@examples(50)
@given(options(), st.integers(0, 2**32))
def test_layout_holds_what_was_observed(o: Options, seed: int) -> None:
    case = linear_case(np.random.default_rng(seed), o)
    layout, labels = case.layout, o.labels
    features, edge_features, pairs = met_by_hand(case)
    if o.feature_pairs == "all":
        features = {(k, j) for k in range(o.columns) for j in range(labels)}
        edge_features = {(k, p) for k in range(o.edge_columns) for p in range(labels**2)}
    expected_pairs = {"observed": pairs, "all": set(range(labels**2)), "none": set()}[o.transition_pairs]
    assert list(zip(*(x.tolist() for x in layout.node_features()))) == sorted(features)
    assert list(zip(*(x.tolist() for x in layout.edge_features()))) == sorted(edge_features)
    assert layout.pairs.tolist() == sorted(expected_pairs)
    spans = list(layout.part.values())
    assert [span.start for span in spans] == [0] + [span.stop for span in spans[:-1]]
    sizes = {name: span.stop - span.start for name, span in layout.part.items()}
    assert sizes == {
        "node": len(features),
        "dense": o.dense * labels,
        "bias": o.bias * labels,
        "start": o.boundaries * labels,
        "end": o.boundaries * labels,
        "transitions": len(expected_pairs),
        "edge": len(edge_features),
        "edge_dense": o.edge_dense * labels**2,
    }
    assert layout.n_weights == sum(sizes.values())
    assert layout.intercepts.sum() == sizes["bias"] + sizes["start"] + sizes["end"]
    weights = np.arange(1.0, layout.n_weights + 1)
    table = layout.transitions(weights)
    assert np.isnan(table).sum() == labels**2 - len(expected_pairs)
    np.testing.assert_array_equal(table.reshape(-1)[layout.pairs], weights[layout.part["transitions"]])


@pytest.mark.parametrize("o", EACH_OPTION, ids=str)
def test_layout_survives_a_file(o: Options) -> None:
    layout = linear_case(np.random.default_rng(0), o).layout
    again = Layout.from_state(*layout.state())
    assert again.part == layout.part
    for name in ("pairs", "feature_ptr", "feature_label", "edge_ptr", "edge_pair"):
        np.testing.assert_array_equal(getattr(again, name), getattr(layout, name))


DAMAGE: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], object]] = {
    "labels": lambda h, a: h.update(n_labels=0),
    "negative": lambda h, a: h.update(n_columns=-1),
    "huge": lambda h, a: h.update(n_dense=2**40),
    "text": lambda h, a: h.update(n_labels="3"),
    "truth": lambda h, a: h.update(n_labels=True),
    "flag": lambda h, a: h.update(bias=1),
    "missing": lambda h, a: h.pop("boundaries"),
    "more columns": lambda h, a: h.update(n_columns=h["n_columns"] + 1),
    "pairs out of range": lambda h, a: a.update(pairs=np.array([0, 9], np.int32)),
    "pairs out of order": lambda h, a: a.update(pairs=a["pairs"][::-1].copy()),
    "pairs of another type": lambda h, a: a.update(pairs=a["pairs"].astype(float)),
    "one list": lambda h, a: a.pop("feature_ptr"),
    "a short list": lambda h, a: a.update(feature_label=a["feature_label"][:-1]),
    "a label out of range": lambda h, a: a.update(feature_label=a["feature_label"] + np.int32(3)),
    "a negative label": lambda h, a: a.update(feature_label=a["feature_label"] - np.int32(1)),
    "a falling list": lambda h, a: a.update(feature_ptr=a["feature_ptr"][::-1].copy()),
    "labels out of order": lambda h, a: a.update(feature_label=np.zeros_like(a["feature_label"])),
    "edge pairs out of range": lambda h, a: a.update(edge_pair=a["edge_pair"] + np.int32(9)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_layout_is_refused(name: str) -> None:
    header, arrays = linear_case(np.random.default_rng(0), Options(edge_columns=3)).layout.state()
    DAMAGE[name](header, arrays)
    with pytest.raises(ModelFileError):
        Layout.from_state(header, arrays)


def test_options_of_a_layout_are_checked() -> None:
    case = linear_case(np.random.default_rng(0), Options())
    with pytest.raises(InputError, match=r"feature_pairs.*'some'"):
        Layout.observe(case.batch, case.target, feature_pairs="some")
    with pytest.raises(InputError, match=r"transition_pairs.*'some'"):
        Layout.observe(case.batch, case.target, transition_pairs="some")


# ------------------------------------------------------------------------------------------ linear scorer


@examples(40)
@given(options(), st.integers(0, 2**32))
def test_linear_scorer_and_its_adjoint(o: Options, seed: int) -> None:
    """Linear in the weights, and ⟨score(v), g⟩ = ⟨v, pull(g)⟩."""
    rng = np.random.default_rng(seed)
    case = linear_case(rng, o)
    scorer, batch = LinearScorer(case.layout), case.batch
    v, w = case.weights(rng), case.weights(rng)
    of_v, of_w, of_both = (scorer.score(x, batch) for x in (v, w, 2 * v - 3 * w))
    np.testing.assert_allclose(of_both.node, 2 * of_v.node - 3 * of_w.node, atol=1e-11)
    np.testing.assert_allclose(of_both.edge, 2 * of_v.edge - 3 * of_w.edge, atol=1e-11)
    node, edge = rng.standard_normal(of_v.node.shape), rng.standard_normal(of_v.edge.shape)
    pulled = scorer.pull(node, edge, batch)
    assert pulled.shape == (scorer.n_weights,)
    np.testing.assert_allclose(v @ pulled, (of_v.node * node).sum() + (of_v.edge * edge).sum(), rtol=1e-9, atol=1e-10)


# ------------------------------------------------------------------------------- functions of two labels

LABELS = ["a", "b", None]
X = [[0.5, -1.0, 2.0], [], [1.5], [0.25, 0.75]]


def stays(before: Any, label: Any, x: Any, t: int) -> float:
    return before == label


def rises(before: Any, label: Any, x: Any, t: int) -> float:
    return x[t] * (label == "b") - 0.5 * (before == "a")


def early(before: Any, label: Any, x: Any, t: int) -> float:
    return (t == 0) * (label == "a") + 0.1 * len(x)


FUNCTIONS = [stays, rises, early]


def test_tables_are_the_functions() -> None:
    weights = np.array([0.5, -2.0, 3.0])
    tables = tabulate(FUNCTIONS, LABELS, X)
    potentials = TableScorer(3, 3).score(weights, tables)
    chains = tables.topology
    assert chains.lengths.tolist() == [3, 0, 1, 2]
    edge = 0
    for s, x in enumerate(X):
        for t in range(len(x)):
            for j, label in enumerate(LABELS):
                if t == 0:
                    expected = sum(w * f(None, label, x, t) for w, f in zip(weights, FUNCTIONS))
                    assert potentials.node[chains.offsets[s], j] == pytest.approx(expected, abs=1e-14)
                    continue
                assert potentials.node[chains.offsets[s] + t, j] == 0
                for i, before in enumerate(LABELS):
                    expected = sum(w * f(before, label, x, t) for w, f in zip(weights, FUNCTIONS))
                    assert potentials.edge[edge, i, j] == pytest.approx(expected, abs=1e-14)
            edge += t > 0


@pytest.mark.parametrize("data", [X, [[1.0]], [[1.0], [2.0]], [[1.0, 2.0]], [[], []]], ids=str)
def test_tables_have_an_adjoint(data: list[list[float]]) -> None:
    rng = np.random.default_rng(1)
    tables, scorer = tabulate(FUNCTIONS, LABELS, data), TableScorer(3, 3)
    v = rng.standard_normal(3)
    scores = scorer.score(v, tables)
    node, edge = rng.standard_normal(scores.node.shape), rng.standard_normal(scores.edge.shape)
    pulled = scorer.pull(node, edge, tables)
    assert pulled.shape == (3,)
    np.testing.assert_allclose(v @ pulled, (scores.node * node).sum() + (scores.edge * edge).sum(), atol=1e-12)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("data", [X, [[1.0]], [[1.0, 2.0]], [[1.0, 2.0], [3.0]]], ids=str)
def test_gradient_of_tables_equals_finite_differences(data: list[list[float]], partial: bool) -> None:
    rng = np.random.default_rng(2)
    tables = tabulate(FUNCTIONS, LABELS, data)
    target = random_target(rng, tables.topology, 3, partial=partial, weighted=True)
    problem = FullBatch(TableScorer(3, 3), tables, target, objective=Contrast(), engine=ChainEngine())
    weights, gradient, spare = rng.standard_normal(3), np.full(3, np.nan), np.empty(3)
    problem.evaluate(weights, gradient)
    step = 1e-5
    for k, unit in enumerate(np.eye(3)):
        up, down = (problem.evaluate(weights + move * unit, spare) for move in (step, -step))
        np.testing.assert_allclose(gradient[k], (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


def test_functions_that_fail_are_named() -> None:
    def breaks(before: Any, label: Any, x: Any, t: int) -> float:
        return x[t + 1]

    with pytest.raises(FeatureError, match=r"breaks failed at sequence 1, step 1.*IndexError"):
        tabulate([lambda b, y, x, t: 0.0, breaks], ["a"], [[], [1.0, 2.0]])
    for bad in (np.nan, np.inf):
        with pytest.raises(FeatureError, match=r"gave (nan|inf) at sequence 0, step 0"):
            tabulate([lambda b, y, x, t, bad=bad: bad], ["a"], [[1.0]])
    with pytest.raises(FeatureError, match="failed at sequence 0"):
        tabulate([lambda b, y, x, t: "much"], ["a"], [[1.0]])  # type: ignore[list-item, return-value]


def test_tables_of_any_size_are_not_made() -> None:
    with pytest.raises(InputError, match="more than 2e8"):
        tabulate([stays] * 10, list(range(500)), [range(100)])


def test_a_table_scorer_meets_a_linear_one() -> None:
    """The same model twice: stay or move, as a function of two labels and as transition weights."""
    chains = Chains.from_lengths([3, 2])
    target = Target(chains, 2, np.array([0, 1, 1, 0, 0]))
    tables = tabulate([stays], [0, 1], [[0] * 3, [0] * 2])
    by_table = FullBatch(TableScorer(1, 2), tables, target, objective=Contrast(), engine=ChainEngine())
    empty = linear_case(np.random.default_rng(0), Options(labels=2, columns=0, lengths=(3, 2)))
    layout = Layout.observe(empty.batch, target, transition_pairs="all", boundaries=False)
    by_layout = FullBatch(
        LinearScorer(replace(layout)), empty.batch, target, objective=Contrast(), engine=ChainEngine()
    )
    one, four = np.empty(1), np.empty(4)
    value = by_table.evaluate(np.array([0.7]), one)
    np.testing.assert_allclose(by_layout.evaluate(np.array([0.7, 0.0, 0.0, 0.7]), four), value, rtol=1e-13)
    np.testing.assert_allclose(four[[0, 3]].sum(), one[0], rtol=1e-12)
