"""Cuts against enumeration: what is called exact is the best, and what is not exact says so."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.cuts import CutEngine, ExpansionEngine
from crfield.inference.labellings import one_hot, path_scores
from crfield.kernels.flow import minimum_cut
from tests.cases.chains import assert_totals, examples
from tests.cases.grid_worlds import grid_edges

INF = np.inf


def random_graphs(rng: np.random.Generator, sizes: list[int]) -> Graphs:
    """Any number of edges, some parallel, some nodes alone."""
    offsets, tails, heads = np.concatenate([[0], np.cumsum(sizes)]).astype(int), [], []
    for first, size in zip(offsets, sizes):
        for _ in range(int(rng.integers(0, 2 * size)) if size > 1 else 0):
            tail, head = rng.choice(size, 2, replace=False)
            tails.append(first + tail)
            heads.append(first + head)
    return Graphs(offsets, np.array(tails, int), np.array(heads, int))


@st.composite
def scored_graphs(
    draw: st.DrawFn, *, labels: int = 2, most: int = 6, attract: bool = False, forbid: bool = True
) -> Potentials:
    """Small graphs with random tables, shared in some way; ``attract``: each table rewards agreement."""
    sizes = draw(st.lists(st.integers(0, most), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    graphs = random_graphs(rng, sizes)
    tables = draw(st.integers(1, 4))
    node = draw(st.sampled_from([0.1, 1.0, 1e5])) * rng.standard_normal((graphs.n_nodes, labels))
    edge = rng.standard_normal((tables, labels, labels))
    if attract:
        bend = edge[:, 0, 0] + edge[:, 1, 1] - edge[:, 0, 1] - edge[:, 1, 0]
        edge[:, 1, 1] += np.maximum(0.0, -bend)
    if forbid and draw(st.booleans()):
        node[rng.random(node.shape) < 0.15] = -INF
        at = rng.random(edge.shape) < 0.3
        at[:, range(labels), range(labels)] &= not attract
        edge[at] = -INF
    return Potentials(node, edge, graphs, rng.integers(0, tables, graphs.n_edges))


def assert_labelling(beliefs: Beliefs, potentials: Potentials) -> None:
    """Zeros and ones in the shape of the scores, whose score is the total."""
    possible = ~np.isneginf(beliefs.total)
    path = beliefs.node.argmax(axis=1)
    node, edge = one_hot(potentials, path, possible=possible)
    np.testing.assert_array_equal(beliefs.node, node)
    np.testing.assert_array_equal(beliefs.edge, edge)
    np.testing.assert_array_equal(beliefs.total[possible], path_scores(potentials, path)[possible])


@examples(70)
@given(potentials=scored_graphs(attract=True))
def test_attractive_graphs_are_exact(potentials: Potentials) -> None:
    beliefs = CutEngine().infer(potentials, Semiring.MAX)
    assert beliefs.exact
    assert beliefs.converged
    assert beliefs.bound == "exact"
    assert_totals(beliefs.total, BruteEngine().infer(potentials, Semiring.MAX).total, potentials.each())
    assert_labelling(beliefs, potentials)


@examples(70)
@given(potentials=scored_graphs())
def test_any_two_label_graph_is_exact_refused_or_said_to_be_inexact(potentials: Potentials) -> None:
    best = BruteEngine().infer(potentials, Semiring.MAX)
    roof = CutEngine(repelling="roof").infer(potentials, Semiring.MAX)
    assert_labelling(roof, potentials)
    assert (roof.total <= best.total + 1e-9 * np.abs(np.where(np.isfinite(best.total), best.total, 0)) + 1e-9).all()
    try:
        beliefs = CutEngine().infer(potentials, Semiring.MAX)
    except InputError:
        assert roof.exact or roof.bound == "lower"
    else:
        assert beliefs.exact
        assert_totals(beliefs.total, best.total, potentials.each())
    if roof.exact:
        assert_totals(roof.total, best.total, potentials.each())


def test_roof_duality_mostly_finds_the_best_anyway() -> None:
    found = exact = loops = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        graphs = random_graphs(rng, [8])
        scores = Potentials(rng.standard_normal((8, 2)), rng.standard_normal((graphs.n_edges, 2, 2)), graphs)
        try:
            CutEngine().infer(scores, Semiring.MAX)
        except InputError:
            loops += 1
            beliefs = CutEngine(repelling="roof").infer(scores, Semiring.MAX)
            exact += beliefs.exact
            found += bool(beliefs.total[0] >= BruteEngine().infer(scores, Semiring.MAX).total[0] - 1e-9)
    assert loops > 25
    assert exact >= 0.8 * loops
    assert found >= 0.9 * loops


def test_the_edge_that_repels_is_named() -> None:
    triangle = Graphs(np.array([0, 2, 5]), np.array([0, 2, 3, 4]), np.array([1, 3, 4, 2]))
    agree, differ = np.eye(2), 1 - np.eye(2)
    scores = Potentials(np.zeros((5, 2)), np.stack([differ, agree, differ, agree]), triangle)
    with pytest.raises(InputError, match=r"edge 2 \(node 3 to node 4\) lies on a loop that repels"):
        CutEngine().infer(scores, Semiring.MAX)
    balanced = Potentials(np.zeros((5, 2)), np.stack([differ, differ, differ, agree]), triangle)
    assert CutEngine().infer(balanced, Semiring.MAX).total.tolist() == [1.0, 3.0]


def test_nodes_with_different_pairs_of_labels() -> None:
    """Two possible labels each, of five; label 4 of node 0 agrees with label 1 of node 1."""
    node = np.full((3, 5), -INF)
    node[0, [2, 4]], node[1, [0, 1]], node[2, 3] = [1.0, 0.0], [0.5, 0.0], 7.0
    edge = np.zeros((1, 5, 5))
    edge[0, 4, 1], edge[0, 1, 3] = 2.0, 0.25
    scores = Potentials(node, edge, Graphs(np.array([0, 3]), np.array([0, 1]), np.array([1, 2])))
    beliefs = CutEngine().infer(scores, Semiring.MAX)
    assert beliefs.node.argmax(axis=1).tolist() == [4, 1, 3]
    assert beliefs.total.tolist() == [9.25]
    with pytest.raises(InputError, match="at most two possible labels at each node, got 3 at node 1"):
        CutEngine().infer(
            Potentials(np.where(np.arange(5) < [[2], [3], [1]], 0.0, -INF), edge, scores.topology), Semiring.MAX
        )


def test_rules_are_followed_to_their_end() -> None:
    """Equal along a chain of 300: one forced end forces all; two that contradict make the graph impossible."""
    equal = np.where(np.eye(2, dtype=bool), 0.0, -INF)[None]
    node = np.zeros((300, 2))
    node[:, 0] = 1.0
    node[150, 0] = -INF
    scores = Potentials(node, equal, Chains.from_lengths([300]))
    beliefs = CutEngine().infer(scores, Semiring.MAX)
    assert beliefs.total.tolist() == [0.0]
    assert beliefs.node[:, 1].all()
    node[10, 1] = -INF
    beliefs = CutEngine().infer(Potentials(node, equal, Chains.from_lengths([300])), Semiring.MAX)
    assert beliefs.total.tolist() == [-INF]
    assert not beliefs.node.any()
    assert beliefs.exact


def test_the_gap_of_a_cut_is_rounding_though_capacities_span_many_digits() -> None:
    """Integers of 31 bits cannot hold these capacities; the rounds can."""
    rng = np.random.default_rng(0)
    joints = np.array(grid_edges(20))
    excess = rng.standard_normal(400) * 10.0 ** rng.integers(-6, 7, 400)
    capacity = rng.random(len(joints)) * 10.0 ** rng.integers(-6, 7, len(joints))
    capacity[rng.random(len(joints)) < 0.2] = INF
    cut = minimum_cut(excess, joints[:, 0], joints[:, 1], capacity, capacity)
    side = cut.source_side
    crossing = side[joints[:, 0]] != side[joints[:, 1]]
    assert np.isfinite(capacity[crossing]).all()
    assert cut.gap <= 1e-12 * np.abs(excess).sum()
    value = np.maximum(excess, 0)[~side].sum() + np.maximum(-excess, 0)[side].sum() + capacity[crossing].sum()
    for node in range(400):  # no change of one node is better, which a cut that lost small digits would allow
        other = side.copy()
        other[node] ^= True
        crossing = other[joints[:, 0]] != other[joints[:, 1]]
        changed = np.maximum(excess, 0)[~other].sum() + np.maximum(-excess, 0)[other].sum() + capacity[crossing].sum()
        assert changed >= value - 1e-9 * abs(value) * np.finfo(np.float32).eps


@examples(50)
@given(potentials=scored_graphs(labels=3, most=5))
def test_expansion_is_a_labelling_no_better_than_the_best(potentials: Potentials) -> None:
    best = BruteEngine().infer(potentials, Semiring.MAX)
    beliefs = ExpansionEngine().infer(potentials, Semiring.MAX)
    assert_labelling(beliefs, potentials)
    finite = np.isfinite(best.total)
    assert (beliefs.total[~finite] == -INF).all()
    assert (beliefs.total[finite] <= best.total[finite] + 1e-9 * (1 + np.abs(best.total[finite]))).all()
    if beliefs.exact:
        assert_totals(beliefs.total, best.total, potentials.each())


@examples(40)
@given(potentials=scored_graphs(labels=4, most=6, forbid=False), seed=st.integers(0, 2**32))
def test_expansion_never_lowers_the_score_of_its_start(potentials: Potentials, seed: int) -> None:
    start = np.random.default_rng(seed).integers(0, 4, potentials.topology.n_nodes)
    labels, converged, _ = ExpansionEngine().improve(potentials, start)
    assert converged
    assert (path_scores(potentials, labels) >= path_scores(potentials, start)).all()
    again, _, cycles = ExpansionEngine().improve(potentials, labels)
    np.testing.assert_array_equal(again, labels)
    assert cycles <= 1


def test_expansion_mostly_finds_the_best_of_small_potts_graphs() -> None:
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graphs = random_graphs(rng, [6, 6])
        reward = 2 * rng.random((graphs.n_edges, 1, 1))
        scores = Potentials(rng.standard_normal((12, 3)), reward * np.eye(3), graphs)
        best = BruteEngine().infer(scores, Semiring.MAX).total
        found.extend(ExpansionEngine().infer(scores, Semiring.MAX).total >= best - 1e-9)
    assert np.mean(found) >= 0.95


def test_expansion_finds_its_way_out_of_broken_rules() -> None:
    """Neighbours must differ, three labels, a ring of nine: the start breaks every rule."""
    ring = Graphs(np.array([0, 9]), np.arange(9), np.roll(np.arange(9), -1))
    differ = np.where(np.eye(3, dtype=bool), -INF, 0.0)[None]
    node = np.tile([0.2, 0.1, 0.0], (9, 1))
    beliefs = ExpansionEngine().infer(Potentials(node, differ, ring), Semiring.MAX)
    assert np.isfinite(beliefs.total).all()
    assert beliefs.converged


def test_two_labels_make_expansion_a_cut() -> None:
    rng = np.random.default_rng(3)
    graphs = random_graphs(rng, [8, 5])
    scores = Potentials(rng.standard_normal((13, 2)), np.eye(2)[None], graphs)
    cut, expansion = (engine.infer(scores, Semiring.MAX) for engine in (CutEngine(), ExpansionEngine()))
    assert expansion.exact
    np.testing.assert_array_equal(cut.node, expansion.node)


@pytest.mark.parametrize("engine", [CutEngine(), ExpansionEngine()])
def test_what_every_engine_takes(engine: CutEngine | ExpansionEngine) -> None:
    for lengths, labels in ([[], 2], [[0], 2], [[0, 1, 3], 1], [[4], 2], [[2, 0], 2]):
        chains = Chains.from_lengths(np.array(lengths, int))
        rng = np.random.default_rng(0)
        tables = max(1, chains.n_edges) if chains.n_edges != 1 else 1
        potentials = Potentials(
            rng.standard_normal((chains.n_nodes, labels)), rng.standard_normal((tables, labels, labels)), chains
        )
        beliefs = engine.infer(potentials, Semiring.MAX)
        assert_totals(beliefs.total, BruteEngine().infer(potentials, Semiring.MAX).total, potentials.each())
        assert beliefs.exact
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert hash(engine) == hash(type(engine)())
    with pytest.raises(InputError, match=r"Semiring\.MAX"):
        engine.infer(potentials, Semiring.LOG)
    with pytest.raises(InputError, match="finite or -inf"):
        engine.infer(Potentials(np.full((1, 2), np.nan), np.zeros((1, 2, 2)), Chains.from_lengths([1])), Semiring.MAX)


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="'refuse' or 'roof'"):
        CutEngine(repelling="truncate")
    with pytest.raises(InputError, match="max_cycles"):
        ExpansionEngine(max_cycles=0)
    scores = Potentials(np.zeros((2, 3)), np.zeros((1, 3, 3)), Chains.from_lengths([2]))
    with pytest.raises(ShapeError):
        ExpansionEngine().improve(scores, np.zeros(3, int))
    with pytest.raises(InputError, match="0 … 2"):
        ExpansionEngine().improve(scores, np.array([0, 3]))


def test_a_grid_is_labelled_with_a_proof() -> None:
    """64 × 64, coupling strong enough to join regions: exact, and no block of 2 × 2 can be improved."""
    rng = np.random.default_rng(1)
    side, joints = 64, np.array(grid_edges(64))
    scores = Potentials(
        rng.standard_normal((side * side, 2)),
        0.7 * np.eye(2)[None],
        Graphs(np.array([0, side * side]), joints[:, 0], joints[:, 1]),
    )
    beliefs = CutEngine().infer(scores, Semiring.MAX)
    assert beliefs.exact
    path = beliefs.node.argmax(axis=1)
    at = np.arange(side * side).reshape(side, side)
    for row, column in rng.integers(0, side - 1, (200, 2)):
        other = path.copy()
        block = at[row : row + 2, column : column + 2].ravel()
        other[block] = rng.integers(0, 2, 4)
        assert path_scores(scores, other)[0] <= beliefs.total[0] + 1e-9
