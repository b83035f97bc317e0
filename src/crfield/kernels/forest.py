"""Contract of the exact kernels on graphs: trees, and cliques of small tables where there are loops.

A graph without loops is inferred as a chain is, in an order in which every node comes after its parent (`order`). A
graph with loops is first turned into a tree of cliques by eliminating its nodes one after another (`eliminate`),
and then goes the same way with tables over cliques instead of rows over labels. Both orders depend on the graph alone
and not on scores, so whoever trains asks for them once and hands them to every call.

Scores are ``node`` (N, L) and ``edge`` (T, L, L), finite or −∞; edge e joins ``tails[e]`` (rows of its table) to
``heads[e]`` (columns) and uses table ``table[e]``. Edges that join the same two nodes act as one edge with the sum of
their scores. Where nothing is possible in a graph its total is −∞ and its beliefs are zero. Nothing is kept between
calls, so many threads may call at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.kernels import choice


@dataclass(frozen=True, eq=False)
class ForestOrder:
    """Nodes in an order that a forest can be swept in, level by level from the roots.

    Level k holds the positions ``level[k]:level[k+1]``; the parents of its nodes lie in level k − 1, unless it is a
    level of roots, which begins a new set of trees. The edges between position p and its parent are
    ``link[link_ptr[p]:link_ptr[p+1]]``.
    """

    node: np.ndarray  # (N,) the node at each position
    parent: np.ndarray  # (N,) position of its parent, −1 for a root
    level: np.ndarray  # (K + 1,) first position of each level
    link_ptr: np.ndarray  # (N + 1,)
    link: np.ndarray  # (E,) edges


@dataclass(frozen=True, eq=False)
class Elimination:
    """Nodes in the order in which they are eliminated, and the cliques that this makes.

    Eliminating the node at position k joins all its neighbours to each other; they are its ``scope``, given as
    positions from the last to the first, and with the node itself they form clique k. The first of the scope to be
    eliminated is the parent clique. An edge belongs to the clique of the end that goes first. Connected components
    lie in one piece, ``unit[u]:unit[u+1]``.
    """

    node: np.ndarray  # (N,) the node at each position
    scope_ptr: np.ndarray  # (N + 1,)
    scope: np.ndarray  # positions, falling within each clique
    edge_ptr: np.ndarray  # (N + 1,)
    edge: np.ndarray  # (E,) edges by clique
    unit: np.ndarray  # (U + 1,)
    complete: bool  # False: a component was given up; its last scope has more than `WIDEST` positions


@dataclass(frozen=True, eq=False)
class GraphScores:
    """What the kernels read of a batch of graphs, as contiguous arrays that fit each other."""

    offsets: np.ndarray  # (B + 1,) int64
    tails: np.ndarray  # (E,) int64
    heads: np.ndarray  # (E,) int64
    table: np.ndarray  # (E,) int64
    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (T, L, L)

    def __post_init__(self) -> None:
        for name in ("offsets", "tails", "heads", "table"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), np.int64))
        for name in ("node", "edge"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), np.float64))


def order(
    offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray, *, n_jobs: int = 1
) -> tuple[int, ForestOrder | None]:
    """An order for `sum_product`, found by breadth-first search: (−1, order), or (first graph with a loop, None).

    Trees are swept side by side in sets, of which there are enough for ``n_jobs`` threads.

    >>> import numpy as np
    >>> order(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    (0, None)
    >>> order(np.array([0, 3]), np.array([0, 1]), np.array([1, 2]))[1].level[-1]
    np.int64(3)
    """
    found = choice.body("forest").order(
        np.ascontiguousarray(offsets, np.int64),
        np.ascontiguousarray(tails, np.int64),
        np.ascontiguousarray(heads, np.int64),
        max(1, n_jobs),
    )
    return (int(found[0]), None) if found[0] >= 0 else (-1, ForestOrder(*found[1:]))


def sum_product(
    plan: ForestOrder, scores: GraphScores, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log Z (B,) of every graph, node marginals (N, L), and edge marginals (T, L, L) summed over each table's edges.

        total_b = log Σ_y exp(Σ_n node_n(y_n) + Σ_e edge_{table(e)}(y_tail, y_head))

    >>> import numpy as np
    >>> ends = np.array([0, 3]), np.array([0, 2]), np.array([1, 1])
    >>> scores = GraphScores(*ends, np.zeros(2), np.log([[1.0, 3.0], [1.0, 1.0], [1.0, 1.0]]), np.zeros((1, 2, 2)))
    >>> total, p, pairs = sum_product(order(*ends)[1], scores)
    >>> float(np.exp(total[0]).round(12)), p[0].round(12).tolist(), pairs.round(12).tolist()
    (16.0, [0.25, 0.75], [[[0.375, 0.375], [0.625, 0.625]]])
    """
    total = np.empty(len(scores.offsets) - 1)
    node, edge = np.empty_like(scores.node), np.empty_like(scores.edge)
    choice.body("forest").sum_product(*_order(plan), *_scores(scores), total, node, edge, max(1, n_jobs))
    return total, node, edge


def max_product(plan: ForestOrder, scores: GraphScores, *, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Score (B,) and labels (N,) int32 of the best labelling of every graph; labels are any where it is impossible.

    >>> import numpy as np
    >>> ends = np.array([0, 2]), np.array([0]), np.array([1])
    >>> scores = GraphScores(*ends, np.zeros(1), np.array([[0.0, 1.0], [0.0, 0.0]]), np.eye(2)[None] * 2)
    >>> max_product(order(*ends)[1], scores)
    (array([3.]), array([1, 1], dtype=int32))
    """
    total = np.empty(len(scores.offsets) - 1)
    labels = np.zeros(len(scores.node), np.int32)
    choice.body("forest").max_product(*_order(plan), *_scores(scores), total, labels, max(1, n_jobs))
    return total, labels


def eliminate(offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray) -> Elimination:
    """An order of elimination of small width, for each connected component.

    First that of min-fill: always the node that needs the fewest edges added among its neighbours, ties to the one
    with fewer neighbours, then to the smaller number. A node of more than `forest_numpy.WIDE` neighbours counts as
    needing more than any other: counting costs their square, and it goes last anyway. Where edges had to be added two
    plain sweeps are tried as well, the nodes as they are numbered and by distance from one far out, and the order of
    smallest width wins: min-fill works inwards from all corners of a grid and ends up wider than its side. A
    component in which every order meets more than `forest_numpy.WIDEST` neighbours is given up.

    >>> import numpy as np
    >>> found = eliminate(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    >>> found.node.tolist(), np.diff(found.scope_ptr).tolist()
    ([0, 1, 2, 3], [2, 2, 1, 0])
    """
    found = choice.body("forest").eliminate(
        np.ascontiguousarray(offsets, np.int64),
        np.ascontiguousarray(tails, np.int64),
        np.ascontiguousarray(heads, np.int64),
    )
    return Elimination(*found)


def clique_sum_product(
    plan: Elimination, scores: GraphScores, label_ptr: np.ndarray, label: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `sum_product`, on graphs with loops; node n takes the labels ``label[label_ptr[n]:label_ptr[n+1]]`` only.

        T_k = scores of clique k + messages of its child cliques       μ_k = log Σ_{label of k} exp T_k
        p(clique k) = p(scope of k) exp(T_k − μ_k),   with p(scope of k) summed out of the parent clique

    Every node must have at least one label.

    >>> import numpy as np
    >>> ends = np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0])
    >>> scores = GraphScores(*ends, np.zeros(3), np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> total, p, _ = clique_sum_product(eliminate(*ends), scores, np.array([0, 2, 4, 6]), np.array([0, 1] * 3))
    >>> float(np.exp(total[0]).round(12)), p[0].tolist()
    (8.0, [0.5, 0.5])
    """
    total = np.empty(len(scores.offsets) - 1)
    node, edge = np.empty_like(scores.node), np.empty_like(scores.edge)
    body = choice.body("forest")
    body.clique_sum_product(
        *_cliques(plan), *_scores(scores), *_labels(label_ptr, label), total, node, edge, max(1, n_jobs)
    )
    return total, node, edge


def clique_max_product(
    plan: Elimination, scores: GraphScores, label_ptr: np.ndarray, label: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """As `max_product`, on graphs with loops, with the labels of `clique_sum_product`.

    >>> import numpy as np
    >>> ends = np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0])
    >>> scores = GraphScores(*ends, np.zeros(3), np.eye(3, 2), -np.eye(2)[None] * 2)
    >>> clique_max_product(eliminate(*ends), scores, np.array([0, 2, 4, 6]), np.array([0, 1] * 3))
    (array([0.]), array([0, 1, 0], dtype=int32))
    """
    total = np.empty(len(scores.offsets) - 1)
    labels = np.zeros(len(scores.node), np.int32)
    body = choice.body("forest")
    body.clique_max_product(
        *_cliques(plan), *_scores(scores), *_labels(label_ptr, label), total, labels, max(1, n_jobs)
    )
    return total, labels


def _order(plan: ForestOrder) -> tuple[np.ndarray, ...]:
    return plan.node, plan.parent, plan.level, plan.link_ptr, plan.link


def _cliques(plan: Elimination) -> tuple[np.ndarray, ...]:
    if not plan.complete:
        raise ValueError("the elimination was given up: there are no cliques to sum over")
    return plan.node, plan.scope_ptr, plan.scope, plan.edge_ptr, plan.edge, plan.unit


def _scores(scores: GraphScores) -> tuple[np.ndarray, ...]:
    return scores.offsets, scores.tails, scores.heads, scores.table, scores.node, scores.edge


def _labels(label_ptr: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ascontiguousarray(label_ptr, np.int64), np.ascontiguousarray(label, np.int32)
