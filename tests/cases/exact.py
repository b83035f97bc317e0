"""Random graphs that the contract tests of the exact engines share, small enough to enumerate, and what must hold."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.labellings import path_scores
from crfield.objectives.contrast import Engine

INF = np.inf
MOST_LABELLINGS = 300  # of one graph; enumeration is a Python loop


def random_graphs(
    rng: np.random.Generator, sizes: list[int], *, loops: float, split: float = 0.2, parallel: float = 0.2
) -> Graphs:
    """Trees broken with the probability ``split``, with parallel edges either way round and chords for ``loops``."""
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
    ends: list[tuple[int, int]] = []
    for first, size in zip(offsets.tolist(), sizes):
        names = rng.permutation(size) + first
        for n in range(1, size):
            near = [int(rng.integers(0, n))] if rng.random() >= split else []
            near += near if rng.random() < parallel else []
            near += rng.integers(0, n, int(rng.random() < loops)).tolist()
            ends += [(names[n], names[m]) if rng.random() < 0.5 else (names[m], names[n]) for m in near]
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    return Graphs(offsets, pairs[:, 0], pairs[:, 1])


@st.composite
def graph_potentials(
    draw: st.DrawFn, *, loops: bool = False, scales: tuple[float, ...] = (1.0, 30.0, 500.0)
) -> Potentials:
    """Shared tables and single ones; labels that nodes lack, forbidden pairs, empty graphs, isolated nodes, L = 1."""
    labels = draw(st.integers(1, 4))
    most = 6 if labels == 1 else int(np.log(MOST_LABELLINGS) / np.log(labels))
    sizes = draw(st.lists(st.integers(0, most), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    graphs = random_graphs(rng, sizes, loops=0.7 if loops else 0.0)
    tables = draw(st.sampled_from([1, 2, 5])) if draw(st.booleans()) else max(1, graphs.n_edges)
    table = rng.integers(0, tables, graphs.n_edges) if draw(st.booleans()) else np.arange(graphs.n_edges) % tables
    scale, missing = draw(st.sampled_from(scales)), draw(st.sampled_from([0.0, 0.2, 0.4]))
    forbidden = draw(st.sampled_from([0.0, 0.0, 0.3]))
    node = scale * rng.standard_normal((graphs.n_nodes, labels))
    edge = scale * rng.standard_normal((tables, labels, labels))
    node[rng.random(node.shape) < missing] = -INF
    edge[rng.random(edge.shape) < forbidden] = -INF
    return Potentials(node, edge, graphs, table)


@st.composite
def steep_graphs(draw: st.DrawFn, *, loops: bool = False) -> Potentials:
    """Scores on ladders around the places where exp leaves the double numbers, many of them forbidden.

    Whole numbers, so that sums are exact; rungs one nat apart, so that what is lost would be seen.
    """
    labels = draw(st.integers(2, 3))
    size = draw(st.integers(2, int(np.log(MOST_LABELLINGS) / np.log(labels))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    graphs = random_graphs(rng, [size], loops=0.7 if loops else 0.0, split=0.05)
    tables = draw(st.sampled_from([1, max(1, graphs.n_edges)]))

    def ladder(shape: tuple[int, ...]) -> np.ndarray:
        feet = draw(st.lists(st.sampled_from([0, 296, 350, 460, 594, 706, 742, 1000]), min_size=1, max_size=3))
        scores = (rng.choice(feet, shape) + rng.integers(0, 5, shape)).astype(float) * (rng.random(shape) < 0.8)
        scores[rng.random(shape) < draw(st.sampled_from([0.0, 0.3]))] = INF
        return scores

    edge = -ladder((tables, labels, labels))
    if draw(st.booleans()):
        edge = np.where(np.eye(labels) > 0, edge, -INF)
    return Potentials(-ladder((graphs.n_nodes, labels)), edge, graphs, np.arange(graphs.n_edges) % tables)


def dense_graphs(rng: np.random.Generator, nodes: int, edges: int) -> Graphs:
    """One graph of random edges, whose elimination adds many more."""
    pairs = np.stack(np.triu_indices(nodes, 1))[:, rng.permutation(nodes * (nodes - 1) // 2)[:edges]]
    name = rng.permutation(nodes)
    return Graphs(np.array([0, nodes]), name[pairs[0]], name[pairs[1]])


def sizes_of_sums(potentials: Potentials) -> np.ndarray:
    """(B,) one plus the largest finite scores of all parts: what rounding errors are relative to."""
    graphs, out = potentials.topology, np.ones(potentials.topology.n_sequences)
    for scores, owner in (
        (potentials.node, graphs.sequence_of_node),
        (potentials.edge[potentials.tables], graphs.sequence_of_edge),
    ):
        finite = np.where(np.isfinite(scores), np.abs(scores), 0.0)
        np.add.at(out, owner, finite.max(axis=tuple(range(1, scores.ndim)), initial=0.0))
    return out


def assert_same_totals(actual: np.ndarray, expected: np.ndarray, potentials: Potentials, rel: float = 1e-13) -> None:
    """Equal but for the rounding of the sums that they are; −∞ only with −∞."""
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(np.isneginf(actual), np.isneginf(expected))
    finite = np.isfinite(expected)
    error = np.abs(actual[finite] - expected[finite]) / sizes_of_sums(potentials)[finite]
    assert error.max(initial=0.0) <= rel, f"totals differ by {error.max():.3g} relative"


def assert_same_beliefs(a: Beliefs, b: Beliefs, potentials: Potentials, atol: float = 1e-10) -> None:
    assert a.node.shape == potentials.node.shape
    assert a.edge.shape == potentials.edge.shape
    assert_same_totals(a.total, b.total, potentials)
    np.testing.assert_allclose(a.node, b.node, rtol=0, atol=atol)
    np.testing.assert_allclose(a.edge, b.edge, rtol=0, atol=atol)


def assert_log_as_enumerated(engine: Engine, potentials: Potentials) -> None:
    beliefs = engine.infer(potentials, Semiring.LOG)
    assert beliefs.exact
    assert beliefs.converged
    assert beliefs.bound == "exact"
    assert_same_beliefs(beliefs, BruteEngine().infer(potentials, Semiring.LOG), potentials)


def assert_max_as_enumerated(engine: Engine, potentials: Potentials) -> None:
    """The total is the oracle's, and the labelling that is handed out attains it."""
    beliefs, oracle = engine.infer(potentials, Semiring.MAX), BruteEngine().infer(potentials, Semiring.MAX)
    assert_same_totals(beliefs.total, oracle.total, potentials)
    possible = np.isfinite(beliefs.total)
    graphs = potentials.topology
    np.testing.assert_array_equal(beliefs.node.sum(axis=1), possible[graphs.sequence_of_node].astype(float))
    assert beliefs.edge.sum() == possible[graphs.sequence_of_edge].sum()
    scores = path_scores(potentials, np.argmax(beliefs.node, axis=1))
    assert_same_totals(np.where(possible, scores, -INF), oracle.total, potentials)


def assert_gradient(engine: Engine, potentials: Potentials) -> None:
    """Beliefs are the slope of the total, by central differences along one direction of the finite scores."""
    rng, step = np.random.default_rng(0), 1e-5
    node = np.where(np.isfinite(potentials.node), rng.standard_normal(potentials.node.shape), 0.0)
    edge = np.where(np.isfinite(potentials.edge), rng.standard_normal(potentials.edge.shape), 0.0)

    def total(by: float) -> float:
        moved = Potentials(
            potentials.node + by * node, potentials.edge + by * edge, potentials.topology, potentials.table
        )
        found = engine.infer(moved, Semiring.LOG).total
        return float(found[np.isfinite(found)].sum())

    beliefs = engine.infer(potentials, Semiring.LOG)
    slope = (total(step) - total(-step)) / (2 * step)
    np.testing.assert_allclose(slope, (beliefs.node * node).sum() + (beliefs.edge * edge).sum(), rtol=1e-6, atol=1e-7)
