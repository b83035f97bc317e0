"""The forest kernels to read: plain logs, one level of all trees at a time.

    a_n(j) = node_n(j) + Σ_{c child of n} u_c(j)          u_n(i) = log Σ_j exp(edge(i, j) + a_n(j))
    p(y_n = j | parent's label i) = exp(edge(i, j) + a_n(j) − u_n(i))

with i the label of n's parent. Going up, every a is shifted to a maximum of zero and the shifts add up to log Z.
Coming down, the marginals of a parent times these conditionals are those of the pair. No message is ever divided out
of a product again, so a forbidden label (−∞) needs no care beyond that of a sum. The compiled body gets the same
answers in probabilities where that is safe, see ``native/forest/sweep.cpp``.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import fsum

import numpy as np

from crfield.kernels.probabilities import log_sum
from crfield.kernels.reference.chain import _normalised
from crfield.kernels.reference.forest_cliques import (
    WIDE,
    WIDEST,
    check_ends,
    check_graph_scores,
    clique_max_product,
    clique_sum_product,
    eliminate,
)

__all__ = [
    "WIDE",
    "WIDEST",
    "clique_max_product",
    "clique_sum_product",
    "eliminate",
    "max_product",
    "order",
    "sum_product",
]


def order(offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray, n_jobs: int) -> tuple[int | np.ndarray, ...]:
    """Body of `crfield.kernels.forest.order`: all trees in one set, each from its smallest node."""
    check_ends(offsets, tails, heads)
    nodes = int(offsets[-1])
    meets: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for e, (tail, head) in enumerate(zip(tails.tolist(), heads.tolist())):
        meets[tail].append((e, head))
        meets[head].append((e, tail))
    depth = np.full(nodes, -1, np.int64)
    above: list[int] = [-1] * nodes
    links: list[list[int]] = [[] for _ in range(nodes)]
    loops: list[int] = []
    for root in range(nodes):
        if depth[root] >= 0:
            continue
        depth[root] = 0
        queue = deque([root])
        while queue:
            n = queue.popleft()
            for e, other in meets[n]:
                if other == above[n]:
                    links[n].append(e)
                elif depth[other] < 0:
                    depth[other], above[other] = depth[n] + 1, n
                    queue.append(other)
                elif above[other] != n:
                    loops.append(n)
    if loops:
        first = int(np.searchsorted(offsets, min(loops), side="right")) - 1
        return (first,)
    # a stable sort by depth puts siblings apart from nobody: within a level, nodes follow the order of their trees
    node = np.argsort(depth, kind="stable")
    place = np.empty(nodes, np.int64)
    place[node] = np.arange(nodes)
    parent = np.array([-1 if above[n] < 0 else place[above[n]] for n in node.tolist()], np.int64)
    level = np.searchsorted(depth[node], np.arange(int(depth.max(initial=-1)) + 2)).astype(np.int64)
    link_ptr = np.concatenate([[0], np.cumsum([len(links[n]) for n in node.tolist()])]).astype(np.int64)
    link = np.array([e for n in node.tolist() for e in links[n]], np.int64)
    return -1, node, parent, level, link_ptr, link


class _Swept:
    """A forest on its way through a sweep, by positions of its order."""

    def __init__(
        self,
        order_: tuple[np.ndarray, ...],
        scores: tuple[np.ndarray, ...],
    ) -> None:
        self.node_of, self.parent, level, self.link_ptr, self.link = order_
        self.offsets, self.tails, _, self.table, node, self.edge = scores
        check_graph_scores(*scores)
        self._check(level, len(node))
        self.levels = [slice(int(a), int(b)) for a, b in pairwise(level)]
        self.a = node[self.node_of]  # (N, L)
        self.graph = np.searchsorted(self.offsets, self.node_of, side="right") - 1
        self.roots = self.parent < 0

    def _check(self, level: np.ndarray, nodes: int) -> None:
        if len(self.node_of) != nodes or len(self.parent) != nodes or len(self.link_ptr) != nodes + 1:
            raise ValueError("the order does not fit the nodes")
        if not np.array_equal(np.sort(self.node_of), np.arange(nodes)):
            raise ValueError("the order must name every node once")
        if len(level) < 1 or level[0] != 0 or level[-1] != nodes or (np.diff(level) < 0).any():
            raise ValueError("levels must divide the positions")
        if self.link_ptr[0] != 0 or self.link_ptr[-1] != len(self.link) or (np.diff(self.link_ptr) < 0).any():
            raise ValueError("links must divide the edges")
        if len(self.link) and (self.link.min() < 0 or self.link.max() >= len(self.tails)):
            raise ValueError("a link names an edge that does not exist")
        depth = np.repeat(np.arange(len(level) - 1), np.diff(level))
        inner = np.flatnonzero(self.parent >= 0)
        if (self.parent < -1).any() or (self.parent >= nodes).any():
            raise ValueError("a parent is no position")
        roots = np.bincount(depth, weights=self.parent < 0, minlength=len(level) - 1)
        if (depth[self.parent[inner]] != depth[inner] - 1).any() or ((roots > 0) & (roots < np.diff(level))).any():
            raise ValueError("a parent must lie in the level before")

    def joint(self, rows: slice) -> np.ndarray:
        """(rows, L, L) scores of each position with its parent: the parent's label first."""
        edges = self.link[self.link_ptr[rows.start] : self.link_ptr[rows.stop]]
        owner = self.owner(rows)
        tables = self.edge[self.table[edges]]
        turned = self.tails[edges] == self.node_of[rows.start + owner]
        tables[turned] = tables[turned].transpose(0, 2, 1)
        out = np.zeros((rows.stop - rows.start, *self.edge.shape[1:]))
        np.add.at(out, owner, tables)
        return out

    def owner(self, rows: slice) -> np.ndarray:
        """For each link of the rows the row it belongs to, counted from the first."""
        return np.repeat(np.arange(rows.stop - rows.start), np.diff(self.link_ptr[rows.start : rows.stop + 1]))

    def add_pairs(self, rows: slice, pairs: np.ndarray, edge_out: np.ndarray) -> None:
        """Add marginals (rows, L, L) of positions with their parents to those of their tables."""
        edges = self.link[self.link_ptr[rows.start] : self.link_ptr[rows.stop]]
        owner = self.owner(rows)
        out = pairs[owner]
        turned = self.tails[edges] == self.node_of[rows.start + owner]
        out[turned] = out[turned].transpose(0, 2, 1)
        np.add.at(edge_out, self.table[edges], out)

    def totals(self, shifts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """(B,) exactly rounded sums of the shifts of every position and the ends of every root."""
        parts: list[list[float]] = [[] for _ in range(len(self.offsets) - 1)]
        for b, shift in zip(self.graph.tolist(), shifts.tolist()):
            parts[b].append(shift)
        for b, end in zip(self.graph[self.roots].tolist(), ends.tolist()):
            parts[b].append(end)
        return np.array([fsum(p) for p in parts])


def _shifted(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a maximum of zero, and what they were shifted by."""
    top = np.max(a, axis=1, initial=-np.inf)
    return a - np.where(np.isneginf(top), 0.0, top)[:, None], top


def sum_product(
    node_of: np.ndarray,
    parent: np.ndarray,
    level: np.ndarray,
    link_ptr: np.ndarray,
    link: np.ndarray,
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    table: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    node_out: np.ndarray,
    edge_out: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.forest.sum_product`; results go to the last arrays."""
    s = _Swept((node_of, parent, level, link_ptr, link), (offsets, tails, heads, table, node, edge))
    up, shifts = np.zeros_like(s.a), np.zeros(len(s.a))
    for rows in reversed(s.levels):
        s.a[rows], shifts[rows] = _shifted(s.a[rows])
        if rows.start < rows.stop and not s.roots[rows.start]:
            up[rows] = log_sum(s.joint(rows) + s.a[rows][:, None, :], axis=2)
            np.add.at(s.a, parent[rows], up[rows])
    total[:] = s.totals(shifts, log_sum(s.a[s.roots], axis=1))

    possible = np.isfinite(total)[s.graph]
    p = np.zeros_like(s.a)
    edge_out[:] = 0.0
    for rows in s.levels:
        if rows.start == rows.stop:
            continue
        if s.roots[rows.start]:
            p[rows] = _normalised(s.a[rows], axes=(1,)) * possible[rows][:, None]
            continue
        shift = np.where(np.isneginf(up[rows]), 0.0, up[rows])
        pairs = np.exp(s.joint(rows) + s.a[rows][:, None, :] - shift[:, :, None]) * p[parent[rows]][:, :, None]
        # Conditionals of large scores add up to one but for the rounding of those scores: not to let that add up
        # over the depth, every pair is normalised.
        mass = pairs.sum(axis=(1, 2), keepdims=True)
        pairs = np.divide(pairs, mass, out=np.zeros_like(pairs), where=mass > 0)
        p[rows] = pairs.sum(axis=1)
        s.add_pairs(rows, pairs, edge_out)
    node_out[node_of] = p


def max_product(
    node_of: np.ndarray,
    parent: np.ndarray,
    level: np.ndarray,
    link_ptr: np.ndarray,
    link: np.ndarray,
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    table: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    labels: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.forest.max_product`: the same with max for log-sum, and the best label coming down."""
    s = _Swept((node_of, parent, level, link_ptr, link), (offsets, tails, heads, table, node, edge))
    back, shifts = np.zeros(s.a.shape, np.int32), np.zeros(len(s.a))
    for rows in reversed(s.levels):
        s.a[rows], shifts[rows] = _shifted(s.a[rows])
        if rows.start < rows.stop and not s.roots[rows.start]:
            choices = s.joint(rows) + s.a[rows][:, None, :]
            back[rows] = np.argmax(choices, axis=2)
            np.add.at(s.a, parent[rows], np.max(choices, axis=2))
    total[:] = s.totals(shifts, np.zeros(int(s.roots.sum())))
    best = np.argmax(s.a, axis=1).astype(np.int32)
    for rows in s.levels:
        if rows.start < rows.stop and not s.roots[rows.start]:
            best[rows] = np.take_along_axis(back[rows], best[parent[rows]][:, None], axis=1)[:, 0]
    labels[node_of] = best
