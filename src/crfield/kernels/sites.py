"""Contract of the kernels that visit one site at a time, given its neighbours.

    s_n(l) = node_n(l) + Σ_e edge_e(l, y_other)        the local scores of node n while its neighbours stay

Sampling draws from softmax s_n (`gibbs`), iterated conditional modes takes the largest (`icm`), mean field replaces
the neighbours' labels by their beliefs (`mean_field`), and pseudo-likelihood asks how probable the gold label is
under softmax s_n (`pseudo_likelihood`). Annealing is `gibbs` with scores that are scaled up sweep by sweep.

Scores are ``node`` (N, L) and ``edge`` (T, L, L), finite or −∞. Sites are visited in the order of their numbers,
graph by graph; a sweep costs O(N L + E L). `Neighbourhoods` lists the edges by node. Nothing is kept between calls.

Random numbers are counters put through a mixer (SplitMix64: Steele, Lea & Flood 2014, *Fast splittable pseudorandom
number generators*): the uniform number of chain c, sweep s and node n is a function of (seed, c, s, n), so that it
depends neither on threads nor on the body, and both bodies draw the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels.choice import body


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Both ends of every edge, listed by node: node n meets the places ``indptr[n]:indptr[n+1]``.

    ``slot`` is 2 · table + (1 if the node is the edge's tail), which says how the edge's table is read from there.
    """

    indptr: np.ndarray  # (N + 1,) int64
    other: np.ndarray  # (2 E,) int64, the node at the other end
    slot: np.ndarray  # (2 E,) int64


class Walk(NamedTuple):
    """What C chains of S sweeps over B graphs left behind; K sweeps were kept, in batches of equal length.

    All sums run over kept sweeps. ``conditional`` adds up softmax s_n as seen by each visit and ``drawn`` counts the
    labels drawn, both in the first and the second half; ``batch_square`` adds up the squares of the batches' means of
    softmax s_n, and ``pairs`` adds up, for every table, softmax s_n(i) at one end beside the label j at the other,
    half of it from either end.
    """

    labels: np.ndarray  # (C, N) int32, where the chains ended
    best: np.ndarray  # (C, N) int32, the best labelling met, graph by graph
    best_score: np.ndarray  # (C, B)
    trace: np.ndarray  # (C, S) score of the labelling of all graphs after each sweep
    work: np.ndarray  # (C, B, 2) Σ_s (edge_scale_s − edge_scale_{s−1}) · edge score before and after sweep s
    conditional: np.ndarray  # (C, 2, N, L)
    drawn: np.ndarray  # (C, 2, N, L) int32
    batch_square: np.ndarray  # (C, N, L)
    pairs: np.ndarray  # (C, T, L, L)


def neighbourhoods(n_nodes: int, tails: np.ndarray, heads: np.ndarray, tables: np.ndarray) -> Neighbourhoods:
    """Edges (E,) listed by node, in the order of the edges.

    >>> around = neighbourhoods(3, np.array([0, 2]), np.array([1, 1]), np.array([0, 4]))
    >>> around.indptr.tolist(), around.other.tolist(), around.slot.tolist()
    ([0, 1, 3, 4], [1, 0, 2, 1], [1, 0, 8, 9])
    """
    ends = np.stack([tails, heads], axis=1).astype(np.int64).reshape(-1)
    if len(ends) and (ends.min() < 0 or ends.max() >= n_nodes):
        raise ShapeError(f"edges must join nodes 0 … {n_nodes - 1}, got {ends.min()} … {ends.max()}.")
    if len(tables) != len(tails):
        raise ShapeError(f"{len(tails)} edges need as many entries of tables, got {len(tables)}.")
    order = np.argsort(ends, kind="stable")
    other = np.stack([heads, tails], axis=1).astype(np.int64).reshape(-1)[order]
    slot = np.stack([2 * tables + 1, 2 * tables], axis=1).astype(np.int64).reshape(-1)[order]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ends, minlength=n_nodes))])
    return Neighbourhoods(indptr.astype(np.int64), other, slot)


def _scores(
    offsets: np.ndarray, around: Neighbourhoods, node: np.ndarray, edge: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, node and edge as the kernels read them, if they fit each other."""
    offsets = np.ascontiguousarray(offsets, np.int64)
    node, edge = np.ascontiguousarray(node, np.float64), np.ascontiguousarray(edge, np.float64)
    if node.ndim != 2 or node.shape[1] < 1:
        raise ShapeError(f"node scores must be (n_nodes, n_labels) with at least one label, got {node.shape}.")
    if edge.ndim != 3 or edge.shape[1:] != (node.shape[1], node.shape[1]):
        raise ShapeError(f"edge scores must be (n_tables, {node.shape[1]}, {node.shape[1]}), got {edge.shape}.")
    if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] or (np.diff(offsets) < 0).any():
        raise ShapeError("offsets must start at 0 and never fall.")
    if offsets[-1] != len(node) or len(around.indptr) != len(node) + 1:
        raise ShapeError(
            f"{len(node)} rows of node scores, but offsets end at {offsets[-1]} and neighbourhoods are of "
            f"{len(around.indptr) - 1} nodes."
        )
    if len(around.slot) and around.slot.max() >= 2 * len(edge):
        raise ShapeError(f"there are {len(edge)} edge tables, but an edge asks for {around.slot.max() // 2}.")
    return offsets, node, edge


def _labellings(labels: np.ndarray, node: np.ndarray) -> np.ndarray:
    """A copy of (C, N) labels that a kernel may change."""
    copy = np.array(labels, dtype=np.int32, order="C", ndmin=2)
    if copy.ndim != 2 or copy.shape[1] != len(node):
        raise ShapeError(f"labels must be (n_chains, {len(node)}), got {np.shape(labels)}.")
    if copy.size and (copy.min() < 0 or copy.max() >= node.shape[1]):
        raise ShapeError(f"labels must lie in 0 … {node.shape[1] - 1}, got {copy.min()} … {copy.max()}.")
    return copy


def gibbs(
    offsets: np.ndarray,
    around: Neighbourhoods,
    node: np.ndarray,
    edge: np.ndarray,
    labels: np.ndarray,
    *,
    node_scale: np.ndarray,
    edge_scale: np.ndarray,
    burn_in: int,
    n_batches: int = 1,
    seed: int = 0,
    n_jobs: int = 1,
) -> Walk:
    """C chains of Gibbs sweeps, started from ``labels`` (C, N).

    Sweep s draws each node in turn from softmax(node_scale_s · node_n + edge_scale_s · Σ_e edge_e), so that ones are
    plain sampling, falling temperatures 1 / scale are annealing, and an ``edge_scale`` that rises from 0 leads from
    independent nodes to the joint distribution. The sweeps after ``burn_in`` are kept; there must be none or a
    multiple of ``n_batches``. A graph whose start is impossible is left as it is, with a best score of
    −∞ and nothing counted. Chains are split over threads.

    >>> around = neighbourhoods(2, np.array([0]), np.array([1]), np.array([0]))
    >>> ones, agree = np.ones(2000), np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> walk = gibbs([0, 2], around, np.zeros((2, 2)), agree, np.zeros((1, 2)), node_scale=ones, edge_scale=ones,
    ...              burn_in=0)
    >>> (walk.pairs[0, 0] / 2000).round(1).tolist()
    [[0.4, 0.1], [0.1, 0.4]]
    """
    offsets, node, edge = _scores(offsets, around, node, edge)
    labels = _labellings(labels, node)
    node_scale, edge_scale = np.ascontiguousarray(node_scale, float), np.ascontiguousarray(edge_scale, float)
    sweeps, (chains, nodes), width = len(node_scale), labels.shape, node.shape[1]
    for name, scale in (("node_scale", node_scale), ("edge_scale", edge_scale)):
        if scale.shape != (sweeps,) or not np.isfinite(scale).all() or (scale < 0).any():
            raise InputError(f"{name} must hold {sweeps} finite numbers ≥ 0, got shape {scale.shape}.")
    for name, scale, scores in (("node", node_scale, node), ("edge", edge_scale, edge)):
        if (scale == 0).any() and np.isneginf(scores).any():
            raise InputError(f"{name}_scale is 0 somewhere, which has no meaning for {name} scores of -inf.")
    kept = sweeps - burn_in
    if not 0 <= burn_in <= sweeps or n_batches < 1 or kept % n_batches:
        raise InputError(
            f"the sweeps kept must be a multiple of the number of batches, got {sweeps} sweeps, "
            f"burn_in={burn_in}, n_batches={n_batches}."
        )
    rows = nodes if kept else 0
    walk = Walk(
        labels,
        labels.copy(),
        np.zeros((chains, len(offsets) - 1)),
        np.zeros((chains, sweeps)),
        np.zeros((chains, len(offsets) - 1, 2)),
        np.zeros((chains, 2, rows, width)),
        np.zeros((chains, 2, rows, width), np.int32),
        np.zeros((chains, rows, width)),
        np.zeros((chains, len(edge) if kept else 0, width, width)),
    )
    schedule = (node_scale, edge_scale, burn_in, n_batches, int(seed) % 2**64)
    lists = (around.indptr, around.other, around.slot)
    body("sites").gibbs(offsets, *lists, node, edge, *schedule, *walk, max(1, n_jobs))
    return walk


def icm(
    offsets: np.ndarray,
    around: Neighbourhoods,
    node: np.ndarray,
    edge: np.ndarray,
    labels: np.ndarray,
    *,
    max_sweeps: int = 1000,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Climb from each of ``labels`` (C, N): every node takes its best label, until no node would change.

    A node moves only to a label that is better, to the smallest of several best. Returns labels (C, N), the sweeps
    (C, B) that each graph took, and whether (C, B) its last one changed nothing.

    >>> around = neighbourhoods(2, np.array([0]), np.array([1]), np.array([0]))
    >>> agree = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> icm([0, 2], around, np.array([[0.0, 0.5], [0.0, 0.0]]), agree, np.array([[0, 1], [1, 0]]))[0].tolist()
    [[1, 1], [0, 0]]
    """
    offsets, node, edge = _scores(offsets, around, node, edge)
    labels = _labellings(labels, node)
    sweeps = np.zeros((len(labels), len(offsets) - 1), np.int64)
    settled = np.zeros(sweeps.shape, np.uint8)
    lists = (around.indptr, around.other, around.slot)
    body("sites").icm(offsets, *lists, node, edge, labels, int(max_sweeps), sweeps, settled, max(1, n_jobs))
    return labels, sweeps, settled.astype(bool)


def mean_field(
    offsets: np.ndarray,
    around: Neighbourhoods,
    node: np.ndarray,
    edge: np.ndarray,
    start: np.ndarray,
    *,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Coordinate ascent on the mean-field bound from each of ``start`` (R, N, L), rows that sum to one.

        q_n ∝ exp(node_n + Σ_e E_q[edge_e(·, y_other)])
        bound_b = Σ_n E_q[node_n] + H(q_n) + Σ_e E_q[edge_e]  ≤  log Z_b

    Each graph stops when a sweep moves no belief by more than ``tol``. Returns beliefs (R, N, L), bounds (R, B),
    sweeps (R, B) and whether (R, B) they settled. The bound never falls. A start that gives weight to a forbidden
    pair has the bound −∞, and may keep it.

    >>> around = neighbourhoods(2, np.array([0]), np.array([1]), np.array([0]))
    >>> q, bound, _, _ = mean_field([0, 2], around, np.zeros((2, 2)), np.zeros((1, 2, 2)), np.full((1, 2, 2), 0.5))
    >>> round(float(np.exp(bound[0, 0])), 12)
    4.0
    """
    offsets, node, edge = _scores(offsets, around, node, edge)
    beliefs = np.array(start, dtype=np.float64, order="C", ndmin=3)
    if beliefs.shape[1:] != node.shape:
        raise ShapeError(f"start must be (n_starts, {node.shape[0]}, {node.shape[1]}), got {np.shape(start)}.")
    if beliefs.size and not (beliefs.min() >= 0 and np.allclose(beliefs.sum(axis=2), 1)):
        raise InputError("start must hold probabilities: non-negative rows that sum to one.")
    bound = np.zeros((len(beliefs), len(offsets) - 1))
    sweeps, settled = np.zeros(bound.shape, np.int64), np.zeros(bound.shape, np.uint8)
    lists, ends = (around.indptr, around.other, around.slot), (int(max_sweeps), float(tol))
    body("sites").mean_field(offsets, *lists, node, edge, beliefs, *ends, bound, sweeps, settled, max(1, n_jobs))
    return beliefs, bound, sweeps, settled.astype(bool)


def pseudo_likelihood(
    node: np.ndarray,
    edge: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    labels: np.ndarray,
    *,
    allowed: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Σ_n weight_n [log Σ_l exp s_n(l) − log Σ_{l allowed} exp s_n(l)] and its gradient (N, L) and (T, L, L).

    ``labels`` (N,) int32 are the gold labels; where one is −1 row n of ``allowed`` (N, L) says what it may be. A
    node next to one of those has no local scores, so it must have the weight 0. A gold label that is impossible
    beside its neighbours makes the value +∞ and adds nothing to the gradient.

    >>> value, node, edge = pseudo_likelihood(np.zeros((2, 2)), np.zeros((1, 2, 2)), np.array([0]), np.array([1]),
    ...                                       np.array([0]), np.array([0, 1]))
    >>> round(value, 6), node.tolist(), edge[0].tolist()
    (1.386294, [[-0.5, 0.5], [0.5, -0.5]], [[0.5, -1.0], [0.0, 0.5]])
    """
    node, edge = np.ascontiguousarray(node, np.float64), np.ascontiguousarray(edge, np.float64)
    if node.ndim != 2 or node.shape[1] < 1 or edge.ndim != 3 or edge.shape[1:] != (node.shape[1],) * 2:
        raise ShapeError(f"scores must be (N, L) and (T, L, L), got {node.shape} and {edge.shape}.")
    nodes, width = node.shape
    labels = np.ascontiguousarray(labels, np.int32)
    if labels.shape != (nodes,) or (nodes and not -1 <= labels.min() <= labels.max() < width):
        raise ShapeError(f"labels must be {nodes} codes of -1 … {width - 1}, got shape {labels.shape}.")
    tails, heads, tables = (np.ascontiguousarray(x, np.int64) for x in (tails, heads, tables))
    if not tails.shape == heads.shape == tables.shape == (len(tails),):
        raise ShapeError(
            f"every edge needs a tail, a head and a table, got {len(tails)}, {len(heads)}, {len(tables)}."
        )
    if allowed is not None:
        allowed = np.ascontiguousarray(allowed, np.uint8)
        if allowed.shape != node.shape:
            raise ShapeError(f"allowed must be {node.shape} like the node scores, got {allowed.shape}.")
    if weight is not None:
        weight = np.ascontiguousarray(weight, np.float64)
        if weight.shape != (nodes,):
            raise ShapeError(f"weight must have one entry for each of {nodes} nodes, got {weight.shape}.")
    node_gradient, edge_gradient = np.empty_like(node), np.zeros_like(edge)
    try:
        value = body("sites").pseudo_likelihood(
            node, edge, tails, heads, tables, labels, allowed, weight, node_gradient, edge_gradient
        )
    except ValueError as error:
        raise InputError(f"pseudo-likelihood: {error}.") from error
    return float(value), node_gradient, edge_gradient
