"""Belief propagation kernels: forests, fixed points, forbidden and huge scores, both bodies, threads, bad input."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError, ShapeError
from crfield.inference.graphs.brute import BruteEngine
from crfield.kernels import choice, graph
from crfield.kernels.graph import SCHEDULES, SEMIRINGS, Propagation
from tests.cases.chains import INF, examples, native_level, needs_native

FIELDS = ("messages", "node", "edge", "total", "residual", "sweeps")
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def random_graphs(
    rng: np.random.Generator,
    sizes: list[int],
    labels: int,
    *,
    tables: int = 0,
    scale: float = 1.0,
    forbidden: float = 0.0,
    loops: float = 0.5,
) -> Potentials:
    """Random trees, some of their edges missing, plus ``loops`` times as many other edges as nodes.

    ``tables`` edge tables are shared at random; 0 stands for one of its own for every edge.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pairs: list[tuple[int, int]] = []
    for first, n in zip(offsets.tolist(), sizes):
        joined = {(int(rng.integers(0, i)), i) for i in range(1, n) if rng.random() < 0.9}
        for _ in range(int(loops * n) if n > 1 else 0):
            a, b = sorted(rng.choice(n, 2, replace=False).tolist())
            joined.add((a, b))
        for a, b in sorted(joined, key=lambda _: rng.random()):
            pairs.append((first + a, first + b) if rng.random() < 0.5 else (first + b, first + a))
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    table = rng.integers(0, tables, len(ends)) if tables else np.arange(len(ends))
    node = scale * rng.standard_normal((int(offsets[-1]), labels))
    edge = scale * rng.standard_normal((tables or len(ends), labels, labels))
    for scores in (node, edge):
        scores[rng.random(scores.shape) < forbidden] = -INF
    return Potentials(node, edge, Graphs(offsets, ends[:, 0], ends[:, 1]), table)


@st.composite
def forests(draw: st.DrawFn, scales: tuple[float, ...] = (1.0, 30.0)) -> Potentials:
    """Small enough to enumerate."""
    labels = draw(st.integers(1, 4))
    largest = {1: 6, 2: 7, 3: 5, 4: 4}[labels]
    sizes = draw(st.lists(st.integers(0, largest), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random_graphs(
        rng,
        sizes,
        labels,
        tables=draw(st.sampled_from([0, 1, 2])),
        scale=draw(st.sampled_from(scales)),
        forbidden=draw(st.sampled_from([0.0, 0.1, 0.4])),
        loops=0.0,
    )


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def arrays(potentials: Potentials) -> Arrays:
    """The arguments that every kernel begins with."""
    topology = potentials.topology
    return topology.offsets, topology.tails, topology.heads, potentials.tables, potentials.node, potentials.edge


def run(potentials: Potentials, **options: Any) -> Propagation:
    return graph.propagate(*arrays(potentials), **options)


def assert_close(actual: Propagation, expected: Propagation, size: float = 1.0, rel: float = 1e-12) -> None:
    """All fields equal to rounding relative to the size of the scores."""
    for name in FIELDS:
        one, other = getattr(actual, name), getattr(expected, name)
        assert not np.isnan(one).any(), name
        np.testing.assert_allclose(one, other, rtol=rel, atol=rel * size, err_msg=name)


def largest(potentials: Potentials) -> float:
    """What rounding errors are relative to: the largest score times the number of edges."""
    scores = np.concatenate([potentials.node.ravel(), potentials.edge.ravel(), np.ones(1)])
    return float(np.abs(scores[np.isfinite(scores)]).max()) * (1 + potentials.topology.n_edges)


def assert_totals(actual: np.ndarray, expected: np.ndarray, potentials: Potentials) -> None:
    """Equal to rounding; −∞ only with −∞."""
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12 * largest(potentials))


# ------------------------------------------------------------------------------------------------- enumeration


@every_schedule
@examples(25)
@given(forests())
def test_forests_equal_enumeration(body: str, schedule: str, potentials: Potentials) -> None:
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    done = run(potentials, schedule=schedule, n_jobs=2)
    assert (done.residual <= 1e-8).all()
    assert_totals(done.total, oracle.total, potentials)
    np.testing.assert_allclose(done.node, oracle.node, rtol=0, atol=1e-10)
    np.testing.assert_allclose(done.edge, oracle.edge, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", [2383, 3440, 3326, 1938, 2214])
def test_forests_are_exact_whatever_the_tolerance_leaves(body: str, seed: int) -> None:
    """The residual schedule ends with many changes of up to the tolerance still to be made, which add up."""
    odd = seed % 2
    potentials = random_graphs(
        np.random.default_rng(seed),
        [4 if odd else 5],
        4 if odd else 3,
        tables=seed % 3,
        scale=1.0 + 3 * (seed % 7),
        loops=0.0,
    )
    oracle = BruteEngine().infer(potentials, Semiring.LOG)
    done = run(potentials, schedule="residual")
    np.testing.assert_allclose(done.node, oracle.node, rtol=0, atol=1e-12)
    np.testing.assert_allclose(done.edge, oracle.edge, rtol=0, atol=1e-12)
    rough = run(potentials, schedule="residual", tol=1e-3)
    np.testing.assert_allclose(rough.node, oracle.node, rtol=0, atol=1e-12)


@every_schedule
@examples(25)
@given(forests(scales=(1.0, 2_000.0, 1e5)))
def test_best_labellings_of_forests_equal_enumeration(body: str, schedule: str, potentials: Potentials) -> None:
    oracle = BruteEngine().infer(potentials, Semiring.MAX)
    done = run(potentials, semiring="max", schedule=schedule)
    assert_totals(done.total, oracle.total, potentials)
    labels = graph.decode(*arrays(potentials), done.messages)
    possible = np.isfinite(oracle.total)[potentials.topology.sequence_of_node]
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels[possible], oracle.node.argmax(axis=1)[possible])


@examples(25)
@given(forests(scales=(0.0,)), st.integers(0, 2**32))
def test_ties_do_not_mix_labellings(body: str, potentials: Potentials, seed: int) -> None:
    """Scores of zeros and ones have many best labellings; the one that is read off must be one of them."""
    rng = np.random.default_rng(seed)
    node = np.where(np.isfinite(potentials.node), rng.integers(0, 2, potentials.node.shape), -INF)
    edge = np.where(np.isfinite(potentials.edge), rng.integers(0, 2, potentials.edge.shape), -INF)
    potentials = Potentials(node, edge, potentials.topology, potentials.table)
    oracle = BruteEngine().infer(potentials, Semiring.MAX)
    labels = graph.decode(*arrays(potentials), run(potentials, semiring="max", schedule="sweeps").messages)
    topology = potentials.topology
    score = node[np.arange(topology.n_nodes), labels]
    joint = edge[potentials.tables, labels[topology.tails], labels[topology.heads]]
    total = np.zeros(topology.n_sequences)
    np.add.at(total, topology.sequence_of_node, score)
    np.add.at(total, topology.sequence_of_edge, joint)
    possible = np.isfinite(oracle.total)
    np.testing.assert_allclose(total[possible], oracle.total[possible], rtol=1e-12)


@examples(30)
@given(forests(scales=(2_000.0, 1e5)))
def test_huge_scores_equal_enumeration(body: str, potentials: Potentials) -> None:
    for schedule in SCHEDULES:
        done = run(potentials, schedule=schedule)
        assert_totals(done.total, BruteEngine().infer(potentials, Semiring.LOG).total, potentials)
        assert not np.isnan(done.node).any()
        assert not np.isnan(done.edge).any()


def test_one_sweep_is_enough_for_a_forest(body: str) -> None:
    potentials = random_graphs(np.random.default_rng(1), [40, 7], 3, loops=0.0)
    one = run(potentials, schedule="sweeps", max_sweeps=1)
    done = run(potentials, schedule="sweeps")
    np.testing.assert_allclose(one.total, done.total, rtol=1e-13)
    np.testing.assert_allclose(one.node, done.node, atol=1e-13)
    assert done.sweeps.tolist() == [2, 2]


# --------------------------------------------------------------------------------------------- loops, weights


@every_schedule
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_the_same_fixed_point_by_any_schedule(body: str, schedule: str, damping: float) -> None:
    """Weak couplings have one fixed point; beliefs agree on every edge there."""
    potentials = random_graphs(np.random.default_rng(2), [9, 5], 3, scale=0.5, loops=0.6)
    rho = np.random.default_rng(3).uniform(0.5, 1.0, potentials.topology.n_edges)
    for weights in (None, rho):
        done = run(potentials, schedule=schedule, damping=damping, max_sweeps=500, tol=1e-13, rho=weights)
        other = run(potentials, schedule="synchronous", max_sweeps=500, damping=0.3, tol=1e-13, rho=weights)
        assert (done.residual <= 1e-13).all()
        np.testing.assert_allclose(done.total, other.total, rtol=1e-12)
        np.testing.assert_allclose(done.node, other.node, atol=1e-11)
        np.testing.assert_allclose(done.edge.sum(axis=2), done.node[potentials.topology.tails], atol=1e-11)
        np.testing.assert_allclose(done.edge.sum(axis=1), done.node[potentials.topology.heads], atol=1e-11)


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_messages_to_start_from(body: str, semiring: str) -> None:
    rng = np.random.default_rng(4)
    potentials = random_graphs(rng, [10], 3, scale=0.5, forbidden=0.05)
    options: dict[str, Any] = {"semiring": semiring, "max_sweeps": 500, "damping": 0.3, "tol": 1e-12}
    done = run(potentials, **options)
    again = run(potentials, **options, messages=done.messages - 3.0)
    assert again.sweeps[0] < done.sweeps[0] < 500
    np.testing.assert_allclose(again.total, done.total, rtol=1e-10)
    # Labels that were forbidden a moment ago are not forbidden for ever.
    wrong = np.where(rng.random(done.messages.shape) < 0.5, -INF, 0.0)
    np.testing.assert_allclose(run(potentials, **options, messages=wrong).total, done.total, rtol=1e-10)


def test_every_graph_stops_by_itself(body: str) -> None:
    potentials = random_graphs(np.random.default_rng(5), [12, 1, 0, 2, 9], 2, scale=0.8)
    together = run(potentials, damping=0.2)
    assert len(set(together.sweeps.tolist())) >= 3
    offsets, first = potentials.topology.offsets, potentials.topology.edge_offsets
    for b in range(5):
        nodes, edges = slice(offsets[b], offsets[b + 1]), slice(first[b], first[b + 1])
        alone = graph.propagate(
            np.array([0, offsets[b + 1] - offsets[b]]),
            potentials.topology.tails[edges] - offsets[b],
            potentials.topology.heads[edges] - offsets[b],
            potentials.tables[edges],
            potentials.node[nodes],
            potentials.edge,
            damping=0.2,
        )
        assert (alone.sweeps[0], alone.residual[0]) == (together.sweeps[b], together.residual[b])
        np.testing.assert_array_equal(alone.messages, together.messages[edges])


# ------------------------------------------------------------------------------------------------- extremes


@every_schedule
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_impossible_graphs(body: str, schedule: str, semiring: str) -> None:
    """A node without labels, an edge without pairs, labels that die out: −∞ and zeros, for these graphs alone."""
    node = np.zeros((8, 2))
    node[0] = -INF  # graph 0
    node[4] = [0, -INF]  # graph 2: the equality below cannot hold
    node[5] = [-INF, 0]
    same = np.where(np.eye(2, dtype=bool), 0.0, -INF)
    edge = np.stack([np.zeros((2, 2)), np.full((2, 2), -INF), same])
    topology = Graphs(np.array([0, 2, 4, 6, 8]), np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7]))
    potentials = Potentials(node, edge, topology, np.array([0, 1, 2, 2]))
    done = run(potentials, schedule=schedule, semiring=semiring)
    np.testing.assert_allclose(done.total, [-INF, -INF, -INF, np.log(2) if semiring == "log" else 0.0])
    assert not done.node[:6].any()
    np.testing.assert_allclose(done.node[6:], 0.5)
    np.testing.assert_allclose(done.edge, [np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2) / 2])
    assert not np.isnan(done.messages).any()
    assert (done.residual == 0).all()


@every_schedule
@pytest.mark.parametrize("semiring", SEMIRINGS)
@examples(10)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 800.0, 1e5]), st.sampled_from([0.0, 0.3, 0.7]))
def test_no_scores_make_a_nan(
    body: str, schedule: str, semiring: str, seed: int, scale: float, forbidden: float
) -> None:
    rng = np.random.default_rng(seed)
    potentials = random_graphs(rng, [5, 3], 3, scale=scale, forbidden=forbidden, loops=1.0)
    weights = rng.uniform(0.05, 1.0, potentials.topology.n_edges)
    for rho in (None, weights):
        done = run(potentials, schedule=schedule, semiring=semiring, damping=0.3, max_sweeps=4, rho=rho)
        for name in FIELDS:
            assert not np.isnan(getattr(done, name)).any(), name
        assert (done.total < INF).all()
        np.testing.assert_allclose(
            done.node.sum(axis=1), 1.0 * np.isfinite(done.total)[potentials.topology.sequence_of_node]
        )


@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [0, 1, 3]])
@pytest.mark.parametrize("labels", [1, 3])
def test_next_to_nothing(body: str, sizes: list[int], labels: int) -> None:
    """No edges at all: totals are those of single nodes."""
    node = np.random.default_rng(6).standard_normal((sum(sizes), labels))
    none = np.zeros(0, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for schedule in SCHEDULES:
        done = graph.propagate(
            offsets, none, none, none, node, np.zeros((1, labels, labels)), schedule=schedule, n_jobs=3
        )
        single = np.log(np.exp(node).sum(axis=1))
        expected = [single[a:b].sum() for a, b in pairwise(offsets)]
        np.testing.assert_allclose(done.total, expected, rtol=1e-13, atol=1e-15)
        assert done.messages.shape == (0, 2, labels)
        assert not done.sweeps.any()
    assert graph.decode(offsets, none, none, none, node, np.zeros((0, labels, labels)), done.messages).tolist() == (
        node.argmax(axis=1).tolist() if len(node) else []
    )


def test_many_labels_and_a_star(body: str) -> None:
    """A hub of 60 neighbours, 70 labels: products of many messages, rows of many vectors."""
    rng, labels, leaves = np.random.default_rng(7), 70, 60
    topology = Graphs(np.array([0, leaves + 1]), np.zeros(leaves, np.int64), np.arange(1, leaves + 1))
    potentials = Potentials(
        rng.standard_normal((leaves + 1, labels)), rng.standard_normal((1, labels, labels)), topology
    )
    done = run(potentials)
    up = np.log(np.exp(potentials.edge[0]) @ np.exp(potentials.node[1:].T))  # (L, leaves)
    hub = potentials.node[0] + up.sum(axis=1)
    np.testing.assert_allclose(done.total[0], np.logaddexp.reduce(hub), rtol=1e-13)
    np.testing.assert_allclose(done.node[0], np.exp(hub - np.logaddexp.reduce(hub)), rtol=1e-10, atol=1e-15)


# --------------------------------------------------------------------------------- bodies, levels, threads


@needs_native
@examples(60)
@given(
    st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 23]),
    st.lists(st.integers(0, 9), max_size=4),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0.5, 3.0, 30.0, 1_000.0]),
    st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    st.integers(0, 2**32),
)
def test_native_equals_numpy(
    labels: int, sizes: list[int], tables: int, scale: float, forbidden: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    potentials = random_graphs(rng, sizes, labels, tables=tables, scale=scale, forbidden=forbidden)
    edges = potentials.topology.n_edges
    for schedule in ("synchronous", "sweeps"):
        for semiring in SEMIRINGS:
            options: dict[str, Any] = {
                "schedule": schedule,
                "semiring": semiring,
                "damping": float(rng.choice([0.0, 0.0, 0.3])),
                "max_sweeps": int(rng.choice([1, 3, 10])),
                "rho": rng.choice([0.3, 0.5, 0.9, 1.0], edges) if rng.random() < 0.4 else None,
                "messages": -rng.exponential(3.0, (edges, 2, labels)) if rng.random() < 0.4 else None,
            }
            with choice.use("numpy"):
                plain = run(potentials, **options)
                path = graph.decode(*arrays(potentials), plain.messages, rho=options["rho"])
            with choice.use("native"):
                assert_close(run(potentials, **options, n_jobs=2), plain, 10 * largest(potentials))
                same = graph.decode(*arrays(potentials), plain.messages, rho=options["rho"], n_jobs=2)
            np.testing.assert_array_equal(path, same)


@needs_native
@examples(20)
@given(st.sampled_from([2, 3, 7]), st.sampled_from(SEMIRINGS), st.sampled_from([0.0, 0.3]), st.integers(0, 2**32))
def test_native_equals_numpy_by_residual(labels: int, semiring: str, damping: float, seed: int) -> None:
    """Few updates, so that rounding cannot change which message is the next."""
    rng = np.random.default_rng(seed)
    potentials = random_graphs(rng, [7, 4], labels)
    options: dict[str, Any] = {"semiring": semiring, "damping": damping, "schedule": "residual", "max_sweeps": 1}
    with choice.use("numpy"):
        plain = run(potentials, **options)
    with choice.use("native"):
        assert_close(run(potentials, **options), plain, 10 * largest(potentials))


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize("labels", [1, 3, 8, 11, 40])
def test_every_level_gives_the_same(level: int, labels: int) -> None:
    rng = np.random.default_rng(labels)
    for scale, forbidden, damping in ((1.0, 0.0, 0.0), (1.0, 0.0, 0.3), (1.0, 0.2, 0.0), (400.0, 0.1, 0.3)):
        potentials = random_graphs(rng, [9, 5], labels, tables=2, scale=scale, forbidden=forbidden)
        for semiring in SEMIRINGS:
            options: dict[str, Any] = {"semiring": semiring, "damping": damping, "max_sweeps": 6}
            with choice.use("numpy"):
                plain = run(potentials, **options)
            with native_level(level):
                assert_close(run(potentials, **options), plain, 10 * largest(potentials))


@needs_native
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_threads_change_no_bit(semiring: str, damping: float) -> None:
    """One graph large enough to be divided beside many small ones; edges share a table, so sums have an order."""
    rng = np.random.default_rng(8)
    potentials = random_graphs(rng, [3_000, *rng.integers(0, 30, 40).tolist()], 3, tables=2, scale=0.7)
    with choice.use("native"):
        one = run(potentials, semiring=semiring, damping=damping, max_sweeps=40)
        for n_jobs in (2, 3, 8):
            other = run(potentials, semiring=semiring, damping=damping, max_sweeps=40, n_jobs=n_jobs)
            for name in FIELDS:
                np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)


# ------------------------------------------------------------------------------------------------------ errors


GOOD: dict[str, Any] = {
    "offsets": np.array([0, 2, 4]),
    "tails": np.array([0, 2]),
    "heads": np.array([1, 3]),
    "tables": np.array([0, 0]),
    "node": np.zeros((4, 2)),
    "edge": np.zeros((1, 2, 2)),
}


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": np.array([1, 2, 4])},
        {"offsets": np.array([0, 3, 2, 4])},
        {"offsets": np.array([0, 2, 5])},
        {"offsets": np.zeros(0, np.int64)},
        {"tails": np.array([0, 4])},
        {"tails": np.array([-1, 2])},
        {"tails": np.array([1, 2])},
        {"tails": np.array([2, 0]), "heads": np.array([3, 1])},
        {"heads": np.array([1, 1])},
        {"heads": np.array([1])},
        {"tables": np.array([0, 1])},
        {"tables": np.array([0, -1])},
        {"tables": np.array([0])},
        {"node": np.zeros((3, 2))},
        {"node": np.zeros((4, 0)), "edge": np.zeros((1, 0, 0))},
        {"edge": np.zeros((1, 2, 3))},
        {"edge": np.zeros((0, 2, 2))},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(body: str, change: dict[str, np.ndarray]) -> None:
    messages = graph.propagate(**GOOD).messages
    with pytest.raises(ValueError):
        graph.propagate(**(GOOD | change))
    with pytest.raises(ValueError):
        graph.decode(**(GOOD | change), messages=messages)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "random"}, "schedule must be one of 'synchronous'"),
        ({"semiring": "sum"}, "semiring must be one of"),
        ({"damping": 1.0}, "damping"),
        ({"damping": -0.1}, "damping"),
        ({"max_sweeps": 0}, "max_sweeps"),
        ({"tol": np.nan}, "tol"),
        ({"rho": np.array([1.0])}, "rho must be 2 numbers"),
        ({"rho": np.array([1.0, 0.0])}, "rho"),
        ({"messages": np.full((2, 2, 2), np.nan)}, "messages must be finite"),
    ],
    ids=str,
)
def test_wrong_options_are_named(body: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        graph.propagate(**GOOD, **options)
    with pytest.raises(ShapeError, match="of other graphs"):
        graph.propagate(**GOOD, messages=np.zeros((3, 2, 2)))
