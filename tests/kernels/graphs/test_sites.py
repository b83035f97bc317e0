"""The site kernels: both bodies, by hand, by enumeration, and never a crash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError, ShapeError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.ladder import around, climb
from crfield.inference.labellings import path_scores
from crfield.kernels import choice, sites
from tests.cases.chains import examples, native_level, needs_native
from tests.cases.sites import fields, graph_target, local_scores, random_field


def start_of(potentials: Potentials, chains: int, seed: int) -> np.ndarray:
    return climb(potentials, n_chains=chains, n_rungs=5, seed=seed).labels


def both(run: object) -> list[object]:
    out = []
    for name in ("native", "numpy"):
        with choice.use(name):
            out.append(run())  # type: ignore[operator]
    return out


# ----------------------------------------------------------------------------------------------- two bodies


@needs_native
@examples(25)
@given(fields(), st.integers(0, 2**63))
def test_both_bodies_draw_the_same_labels(potentials: Potentials, seed: int) -> None:
    """Same seed, same labels, with scales that change; sums agree to rounding."""
    lists = around(potentials)
    start = start_of(potentials, 2, seed % 1000)
    scale = np.linspace(0.5, 1.5, 6)

    def run() -> sites.Walk:
        return sites.gibbs(
            potentials.topology.offsets,
            lists,
            potentials.node,
            potentials.edge,
            start,
            node_scale=scale,
            edge_scale=scale[::-1],
            burn_in=2,
            n_batches=2,
            seed=seed,
        )

    native, numpy = both(run)
    for name in ("labels", "best", "drawn"):
        np.testing.assert_array_equal(getattr(native, name), getattr(numpy, name), err_msg=name)
    for name in ("best_score", "trace", "work", "conditional", "batch_square", "pairs"):
        np.testing.assert_allclose(getattr(native, name), getattr(numpy, name), rtol=1e-12, atol=1e-12, err_msg=name)


@needs_native
@examples(25)
@given(fields(), st.integers(0, 2**32))
def test_both_bodies_climb_alike(potentials: Potentials, seed: int) -> None:
    lists, rng = around(potentials), np.random.default_rng(seed)
    labels = rng.integers(0, potentials.n_labels, (3, potentials.topology.n_nodes))
    q = rng.dirichlet(np.ones(potentials.n_labels), (2, potentials.topology.n_nodes))
    where = (potentials.topology.offsets, lists, potentials.node, potentials.edge)
    for found in zip(*both(lambda: sites.icm(*where, labels, max_sweeps=20))):
        np.testing.assert_array_equal(*found)
    native, numpy = both(lambda: sites.mean_field(*where, q, max_sweeps=5, tol=1e-9))
    np.testing.assert_array_equal(native[2], numpy[2])
    for k in (0, 1):
        np.testing.assert_allclose(native[k], numpy[k], rtol=1e-10, atol=1e-12)


@needs_native
@examples(40)
@given(fields(scales=(1.0, 400.0)), st.sampled_from([0.0, 0.3]), st.booleans(), st.integers(0, 2**32))
def test_both_bodies_of_pseudo_likelihood(potentials: Potentials, partial: float, weighted: bool, seed: int) -> None:
    from crfield.objectives.local import counted

    rng = np.random.default_rng(seed)
    target = graph_target(rng, potentials, partial=partial, weighted=weighted)
    topology = potentials.topology
    weight = counted(target) * (1.0 if target.weight is None else target.weight[topology.sequence_of_node])

    def run() -> tuple[float, np.ndarray, np.ndarray]:
        return sites.pseudo_likelihood(
            potentials.node,
            potentials.edge,
            topology.tails,
            topology.heads,
            potentials.tables,
            target.labels,
            allowed=target.mask,
            weight=weight,
        )

    native, numpy = both(run)
    for mine, other in zip(native, numpy):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-11)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_many_rows_many_labels(level: int) -> None:
    """More rows than a block, every width and every x86-64 level that has code of its own."""
    rng = np.random.default_rng(0)
    for labels in (1, 2, 3, 4, 5, 9):
        potentials = random_field(rng, [700, 600], labels, tables=200, scale=3.0)
        topology = potentials.topology
        y = rng.integers(0, labels, topology.n_nodes)
        args = (potentials.node, potentials.edge, topology.tails, topology.heads, potentials.tables, y)
        with native_level(level):
            native = sites.pseudo_likelihood(*args)
        with choice.use("numpy"):
            numpy = sites.pseudo_likelihood(*args)
        for mine, other in zip(native, numpy):
            np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-10)


# ---------------------------------------------------------------------------------------------- meanings


def test_one_visit_by_hand(body: str) -> None:
    """Two nodes, one sweep: the first is drawn beside the start, the second beside what was drawn."""
    node, edge = np.log([[1.0, 2.0], [3.0, 1.0]]), np.log([[[1.0, 5.0], [2.0, 7.0]]])
    lists = sites.neighbourhoods(2, np.array([0]), np.array([1]), np.array([0]))
    one = np.ones(1)
    walk = sites.gibbs(
        [0, 2], lists, node, edge, np.array([[0, 1]]), node_scale=one, edge_scale=one, burn_in=0, seed=3
    )
    first = np.array([1.0 * 5, 2.0 * 7]) / 19
    y = walk.labels[0]
    second = np.array([3.0, 1.0]) * np.exp(edge[0, y[0]])
    second /= second.sum()
    np.testing.assert_allclose(walk.conditional[0, 0], [first, second], rtol=1e-14)
    np.testing.assert_array_equal(walk.drawn[0, 0], np.eye(2)[y])
    pairs = np.zeros((2, 2))
    pairs[:, 1] += 0.5 * first
    pairs[y[0]] += 0.5 * second
    np.testing.assert_allclose(walk.pairs[0, 0], pairs, rtol=1e-14)
    score = node[0, y[0]] + node[1, y[1]] + edge[0, y[0], y[1]]
    np.testing.assert_allclose(walk.trace, [[score]], rtol=1e-14)


def test_the_generator_is_splitmix(body: str) -> None:
    """Draws of free nodes are the numbers of the contract, cut at the shares of labels; the numbers are even."""
    from crfield.kernels.reference.sites import uniforms

    nodes, ones = 4000, np.ones(2)
    node = np.tile(np.log([0.2, 0.5, 0.3]), (nodes, 1))
    lists = sites.neighbourhoods(nodes, *np.zeros((3, 0), int))
    walk = sites.gibbs(
        [0, nodes],
        lists,
        node,
        np.zeros((1, 3, 3)),
        np.zeros((2, nodes)),
        node_scale=ones,
        edge_scale=ones,
        burn_in=2,
        seed=2**64 - 5,
    )
    for chain in (0, 1):
        u = uniforms(2**64 - 5, chain, nodes, nodes)
        np.testing.assert_array_equal(walk.labels[chain], np.searchsorted([0.2, 0.7], u, side="right"))
        counts = np.bincount((u * 20).astype(int), minlength=20)
        assert ((counts - nodes / 20) ** 2).sum() / (nodes / 20) < 50  # χ² with 19 degrees: 1e-4 of all seeds


@examples(25)
@given(fields())
def test_scores_work_and_best_are_kept(body: str, potentials: Potentials) -> None:
    """The running score is that of the labelling; work is the sum over rungs; the best is a labelling met."""
    topology = potentials.topology
    start = start_of(potentials, 2, 0)
    fine = np.array([path_scores(potentials, y) for y in start]) > -np.inf
    edge_scale = np.array([0.5, 0.6, 1.0])
    where = (topology.offsets, around(potentials), potentials.node, potentials.edge)
    walks = [
        sites.gibbs(*where, start, node_scale=np.ones(k), edge_scale=edge_scale[:k], burn_in=k, seed=1)
        for k in range(4)
    ]
    only_edges = Potentials(np.zeros_like(potentials.node), potentials.edge, topology, potentials.tables)
    work = np.zeros((2, topology.n_sequences, 2))
    for k in range(1, 4):
        scores = np.array([path_scores(potentials, y) for y in walks[k].labels])
        np.testing.assert_allclose(walks[k].trace[:, -1], np.where(fine, scores, 0).sum(axis=1), atol=1e-9)
        if k > 1:
            joint = [np.array([path_scores(only_edges, y) for y in walks[j].labels]) for j in (k - 1, k)]
            work += np.where(fine, np.array(joint), 0).transpose(1, 2, 0) * (edge_scale[k - 1] - edge_scale[k - 2])
    np.testing.assert_allclose(walks[3].work, work, atol=1e-9)
    met = np.array([[path_scores(potentials, y) for y in walk.labels] for walk in walks])
    best = np.array([path_scores(potentials, y) for y in walks[3].best])
    np.testing.assert_allclose(walks[3].best_score[fine], met.max(axis=0)[fine], atol=1e-9)
    np.testing.assert_allclose(best[fine], met.max(axis=0)[fine], atol=1e-9)
    assert np.isneginf(walks[3].best_score[~fine]).all()


@examples(40)
@given(fields(), st.integers(0, 2**32))
def test_icm_ends_where_no_node_would_change(body: str, potentials: Potentials, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, potentials.n_labels, (2, potentials.topology.n_nodes))
    labels, sweeps, settled = sites.icm(
        potentials.topology.offsets, around(potentials), potentials.node, potentials.edge, start
    )
    assert settled.all()
    assert (sweeps >= 1).all()
    for y, before in zip(labels, start):
        assert (path_scores(potentials, y) >= path_scores(potentials, before)).all()
        for n in range(len(y)):
            scores = local_scores(potentials, n, y)
            assert scores[y[n]] == -np.inf or scores[y[n]] >= scores.max() - 1e-12


@examples(40)
@given(fields(), st.integers(0, 2**32))
def test_the_mean_field_bound_rises_and_stays_below(body: str, potentials: Potentials, seed: int) -> None:
    rng = np.random.default_rng(seed)
    where = (potentials.topology.offsets, around(potentials), potentials.node, potentials.edge)
    q = rng.dirichlet(np.ones(potentials.n_labels), (1, potentials.topology.n_nodes))
    exact = BruteEngine().infer(potentials, Semiring.LOG).total
    before = np.full(potentials.topology.n_sequences, -np.inf)
    for _ in range(6):
        q, bound, _, _ = sites.mean_field(*where, q, max_sweeps=1)
        assert not np.isnan(bound).any()
        assert (bound[0] >= before - 1e-10).all()
        assert (bound[0] <= exact + 1e-10).all()
        np.testing.assert_allclose(q.sum(axis=2), 1, atol=1e-12)
        before = bound[0]


# ------------------------------------------------------------------------------------------------ errors


def test_wrong_arguments_are_errors(body: str) -> None:
    lists = sites.neighbourhoods(2, np.array([0]), np.array([1]), np.array([0]))
    node, edge, one = np.zeros((2, 2)), np.zeros((1, 2, 2)), np.ones(1)
    start = np.zeros((1, 2))

    def walk(**changes: object) -> None:
        given_ = dict(
            offsets=[0, 2], around=lists, node=node, edge=edge, labels=start, node_scale=one, edge_scale=one
        )
        sites.gibbs(**{**given_, "burn_in": 0, **changes})  # type: ignore[arg-type]

    for changes in (
        {"offsets": [0, 3]},
        {"offsets": [1, 2]},
        {"offsets": [0, 2, 1, 2]},
        {"node": np.zeros((3, 2))},
        {"node": np.zeros((2, 0))},
        {"edge": np.zeros((1, 3, 3))},
        {"edge": np.zeros((0, 2, 2))},
        {"labels": np.full((1, 2), 2)},
        {"labels": np.full((1, 2), -1)},
        {"labels": np.zeros((1, 3))},
    ):
        with pytest.raises(ShapeError):
            walk(**changes)
    for changes in (
        {"edge_scale": np.ones(2)},
        {"node_scale": np.full(1, np.nan)},
        {"edge_scale": np.zeros(1), "edge": np.full((1, 2, 2), -np.inf)},
        {"burn_in": 2},
        {"n_batches": 2},
    ):
        with pytest.raises(InputError):
            walk(**changes)
    with pytest.raises(ShapeError, match="edges must join nodes 0 … 1"):
        sites.neighbourhoods(2, np.array([0]), np.array([2]), np.array([0]))
    with pytest.raises(InputError, match="probabilities"):
        sites.mean_field([0, 2], lists, node, edge, np.full((1, 2, 2), 0.7))
    ends = np.array([0]), np.array([1])
    with pytest.raises(InputError, match="unknown labels"):
        sites.pseudo_likelihood(node, edge, *ends, np.array([0]), np.array([0, -1]), weight=np.array([0.0, 1.0]))
    with pytest.raises(InputError, match="next to one whose label is unknown"):
        sites.pseudo_likelihood(node, edge, *ends, np.array([0]), np.array([0, -1]), allowed=np.ones((2, 2)))
    for table, head in ((1, 1), (-1, 1), (0, 2), (0, -1)):
        with pytest.raises(InputError, match="an edge names"):
            sites.pseudo_likelihood(node, edge, np.array([0]), np.array([head]), np.array([table]), np.zeros(2))


@needs_native
def test_the_compiled_door_checks_for_itself() -> None:
    """Lists that were tampered with behind the contract's back."""
    good = sites.neighbourhoods(3, np.array([0, 1]), np.array([1, 2]), np.array([0, 0]))
    node, edge = np.zeros((3, 2)), np.zeros((1, 2, 2))
    for name, place, value in (
        ("other", 0, 3),
        ("other", 0, -1),
        ("slot", 1, -1),
        ("slot", 1, 2),
        ("indptr", 1, 5),
        ("indptr", 1, -1),
        ("indptr", 3, 3),
        ("indptr", 0, 1),
    ):
        arrays = {"indptr": good.indptr.copy(), "other": good.other.copy(), "slot": good.slot.copy()}
        arrays[name][place] = value
        with choice.use("native"), pytest.raises(ValueError):
            sites.icm([0, 3], sites.Neighbourhoods(**arrays), node, edge, np.zeros((1, 3)))
    two_graphs = [0, 1, 3]  # the first edge would cross
    with choice.use("native"), pytest.raises(ValueError):
        sites.icm(two_graphs, good, node, edge, np.zeros((1, 3)))


@needs_native
def test_threads_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    potentials = random_field(rng, [30, 0, 50, 1, 20], 3)
    where = (potentials.topology.offsets, around(potentials), potentials.node, potentials.edge)
    start = rng.integers(0, 3, (5, potentials.topology.n_nodes))
    q = rng.dirichlet(np.ones(3), (3, potentials.topology.n_nodes))
    ones = np.ones(20)
    for n_jobs in (2, 3, 16):
        for mine, other in zip(
            sites.gibbs(*where, start, node_scale=ones, edge_scale=ones, burn_in=4, n_jobs=n_jobs),
            sites.gibbs(*where, start, node_scale=ones, edge_scale=ones, burn_in=4, n_jobs=1),
        ):
            np.testing.assert_array_equal(mine, other)
        for kernel, first in ((sites.icm, start), (sites.mean_field, q)):
            for mine, other in zip(kernel(*where, first, n_jobs=n_jobs), kernel(*where, first, n_jobs=1)):
                np.testing.assert_array_equal(mine, other)
