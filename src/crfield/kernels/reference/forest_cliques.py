"""The clique kernels to read: orders of elimination, and sums over cliques one at a time.

A clique's table has an axis for each position of its scope, from the last eliminated to the first, and the
eliminated node itself as its last axis. Scopes of children keep that order, so a message is added to its parent's
table by broadcasting and never transposed.

    up      T_k = node_k + Σ edges + Σ messages        μ_k = log Σ_{last axis} exp T_k
    down    p_k = p(scope of k) exp(T_k − μ_k)         p(scope of k) = Σ of the parent's p over what k does not hold

References: Rose, *Triangulated graphs and the elimination process* (1970); Kjærulff, *Triangulation of graphs* (1990)
for min-fill; Cuthill and McKee, *Reducing the bandwidth of sparse symmetric matrices* (1969); Shafer and Shenoy,
*Probability propagation* (1990).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import fsum

import numpy as np

from crfield.kernels.probabilities import log_sum
from crfield.kernels.reference.chain import check_offsets

WIDE = 30  # neighbours above which fill is no longer counted
WIDEST = 256  # neighbours above which elimination is given up


def check_graph_scores(
    offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray, table: np.ndarray, node: np.ndarray, edge: np.ndarray
) -> None:
    """Refuse graphs and scores that do not fit each other."""
    check_ends(offsets, tails, heads)
    labels = node.shape[1]
    if len(node) != offsets[-1] or labels < 1:
        raise ValueError("node scores do not fit")
    if edge.shape[1:] != (labels, labels):
        raise ValueError("edge scores do not fit the labels")
    if len(table) != len(tails) or (len(table) and (table.min() < 0 or table.max() >= len(edge))):
        raise ValueError("a table is out of range")


def check_ends(offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray) -> None:
    """Refuse edges that leave the nodes or join a node to itself or two graphs."""
    check_offsets(offsets)
    if len(tails) != len(heads):
        raise ValueError("tails and heads must have one length")
    for ends in (tails, heads):
        if len(ends) and (ends.min() < 0 or ends.max() >= offsets[-1]):
            raise ValueError("an edge names a node that does not exist")
    owner = np.searchsorted(offsets, tails, side="right")
    if (tails == heads).any() or (owner != np.searchsorted(offsets, heads, side="right")).any():
        raise ValueError("an edge must join two nodes of one graph")


def _components(nodes: int, tails: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """(N,) smallest node of each node's connected component."""
    lead = list(range(nodes))

    def find(n: int) -> int:
        while lead[n] != n:
            lead[n] = lead[lead[n]]
            n = lead[n]
        return n

    for a, b in zip(tails.tolist(), heads.tolist()):
        a, b = find(a), find(b)
        lead[max(a, b)] = min(a, b)
    return np.array([find(n) for n in range(nodes)], np.int64)


def _fill(neighbours: list[set[int]], n: int) -> tuple[int, int, int]:
    """What elimination prefers: edges to add, neighbours, number."""
    around = neighbours[n]
    if len(around) > WIDE:
        return 1 << 40, len(around), n
    missing = sum(len(around) - 1 - len(around & neighbours[m]) for m in around) // 2
    return missing, len(around), n


def eliminate(
    offsets: np.ndarray, tails: np.ndarray, heads: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Body of `crfield.kernels.forest.eliminate`."""
    check_ends(offsets, tails, heads)
    nodes = int(offsets[-1])
    links: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in zip(tails.tolist(), heads.tolist()):
        links[a].add(b)
        links[b].add(a)
    component = _components(nodes, tails, heads)
    when, scopes, filled, hopeless = _min_fill(links, component.tolist())
    members: dict[int, list[int]] = {c: [] for c in filled}
    for n, c in enumerate(component.tolist()):
        if c in members:
            members[c].append(n)
    for c, names in members.items():
        width = WIDEST + 1 if c in hopeless else max(len(scopes[n]) for n in names)
        for order in (names, _breadth_first(names[0], links)):
            found = _scopes_of(order, links, width)
            if found is not None:
                width = max(len(scope) for scope in found)
                hopeless.discard(c)
                for k, (n, scope) in enumerate(zip(order, found)):
                    when[n], scopes[n] = k, scope
    return (*_by_component(component, tails, heads, when, scopes), not hopeless)


def _min_fill(
    links: list[set[int]], component: list[int]
) -> tuple[np.ndarray, list[set[int]], dict[int, None], set[int]]:
    """When each node is eliminated and its scope; components that edges were added to, and those given up."""
    nodes = len(links)
    neighbours = [set(around) for around in links]
    current = [_fill(neighbours, n) for n in range(nodes)]
    heap = list(current)
    heapify(heap)
    when = np.full(nodes, nodes, np.int64)
    scopes: list[set[int]] = [set() for _ in range(nodes)]
    filled: dict[int, None] = {}
    hopeless: set[int] = set()
    step = 0
    while heap:
        key = heappop(heap)
        n = key[2]
        if when[n] < nodes or key != current[n] or component[n] in hopeless:
            continue
        when[n], step = step, step + 1
        scopes[n] = around = neighbours[n]
        if key[0]:
            filled[component[n]] = None
        if len(around) > WIDEST:
            hopeless.add(component[n])
            continue
        touched = set(around)
        for m in around:
            neighbours[m].discard(n)
        if key[0]:
            for m in around:
                for other in around - neighbours[m] - {m}:
                    # whoever has both as neighbours needs one edge less
                    touched |= neighbours[m] & neighbours[other]
                    neighbours[m].add(other)
                    neighbours[other].add(m)
        for m in touched:
            current[m] = _fill(neighbours, m)
            heappush(heap, current[m])
    return when, scopes, filled, hopeless


def _breadth_first(first: int, links: list[set[int]]) -> list[int]:
    """Nodes by their distance from one that lies far out (Cuthill and McKee 1969)."""
    found = [first]
    for _ in range(2):
        found = [found[-1]]
        seen = set(found)
        for n in found:
            near = sorted(links[n] - seen, key=lambda m: (len(links[m]), m))
            seen.update(near)
            found += near
    return found


def _scopes_of(order: list[int], links: list[set[int]], below: int) -> list[set[int]] | None:
    """Scopes of an order that is given, or None if one of them has ``below`` nodes or more.

    A scope is what follows among a node's neighbours and in the scopes whose first node it is.
    """
    place = {n: k for k, n in enumerate(order)}
    waiting: dict[int, set[int]] = {}
    scopes = []
    for n in order:
        scope = {m for m in links[n] if place[m] > place[n]} | waiting.pop(n, set())
        scope.discard(n)
        if len(scope) >= below:
            return None
        if scope:
            parent = min(scope, key=lambda m: place[m])
            waiting[parent] = waiting.get(parent, set()) | scope
        scopes.append(scope)
    return scopes


def _by_component(
    component: np.ndarray, tails: np.ndarray, heads: np.ndarray, when: np.ndarray, scopes: list[set[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cliques of one component after another; nodes that were never eliminated take the last places of theirs."""
    nodes = len(component)
    node = np.lexsort((np.arange(nodes), when, component)).astype(np.int64)
    place = np.empty(nodes, np.int64)
    place[node] = np.arange(nodes)
    scope_of = [sorted((int(place[m]) for m in scopes[n]), reverse=True) for n in node.tolist()]
    scope_ptr = np.concatenate([[0], np.cumsum([len(s) for s in scope_of])]).astype(np.int64)
    scope_flat = np.array([k for s in scope_of for k in s], np.int64)
    clique = np.minimum(place[tails], place[heads])
    edge = np.argsort(clique, kind="stable").astype(np.int64)
    edge_ptr = np.searchsorted(clique[edge], np.arange(nodes + 1)).astype(np.int64)
    cuts = np.flatnonzero(np.diff(component[node])) + 1 if nodes else np.zeros(0, np.int64)
    unit = np.concatenate([[0], cuts, [nodes] if nodes else []]).astype(np.int64)
    return node, scope_ptr, scope_flat, edge_ptr, edge, unit


class _Cliques:
    """Cliques on their way through a sum, with tables over the labels that nodes may take."""

    def __init__(self, plan: tuple[np.ndarray, ...], scores: tuple[np.ndarray, ...], labels: tuple[np.ndarray, ...]):
        self.node_of, scope_ptr, scope, edge_ptr, edges, self.unit = plan
        self.offsets, self.tails, self.heads, self.table, self.node, self.edge = scores
        label_ptr, label = labels
        check_graph_scores(*scores)
        nodes, width = self.node.shape
        if not np.array_equal(np.sort(self.node_of), np.arange(nodes)):
            raise ValueError("the order must name every node once")
        if len(label_ptr) != nodes + 1 or label_ptr[-1] != len(label) or (np.diff(label_ptr) < 1).any():
            raise ValueError("every node needs a label")
        if len(label) and (label.min() < 0 or label.max() >= width):
            raise ValueError("a label is out of range")
        self.labels = [label[label_ptr[n] : label_ptr[n + 1]] for n in self.node_of]
        self.scopes = [scope[a:b].tolist() for a, b in pairwise(scope_ptr)]
        self.edges = [edges[a:b].tolist() for a, b in pairwise(edge_ptr)]
        self.children: list[list[int]] = [[] for _ in range(nodes)]
        for k, s in enumerate(self.scopes):
            if any(m <= k or m >= nodes for m in s) or sorted(s, reverse=True) != s:
                raise ValueError("a scope must name later positions, falling")
            if s:
                if not set(s) <= {s[-1], *self.scopes[s[-1]]}:
                    raise ValueError("a scope must lie in its parent's clique")
                self.children[s[-1]].append(k)
        self.graph = np.searchsorted(self.offsets, self.node_of, side="right") - 1

    def axes(self, k: int) -> list[int]:
        return [*self.scopes[k], k]

    def shape_in(self, axes: list[int], within: list[int]) -> list[int]:
        """Shape that broadcasts a table over ``axes`` to one over ``within``."""
        return [len(self.labels[m]) if m in axes else 1 for m in within]

    def pair(self, e: int, k: int) -> tuple[int, bool]:
        """The other end of an edge of clique k, and whether k is its tail."""
        tail, head = int(self.tails[e]), int(self.heads[e])
        is_tail = tail == self.node_of[k]
        others = [m for m in self.scopes[k] if self.node_of[m] == (head if is_tail else tail)]
        if len(others) != 1 or not (is_tail or head == self.node_of[k]):
            raise ValueError("an edge must lie in its clique")
        return others[0], is_tail

    def local(self, k: int, messages: list[np.ndarray]) -> np.ndarray:
        """T_k: scores of the node, its edges, and what its children said."""
        axes = self.axes(k)
        out = np.zeros([len(self.labels[m]) for m in axes])
        out += self.node[self.node_of[k], self.labels[k]]
        for e in self.edges[k]:
            m, is_tail = self.pair(e, k)
            table = self.edge[self.table[e]]
            table = (
                table[np.ix_(self.labels[k], self.labels[m])].T
                if is_tail
                else table[np.ix_(self.labels[m], self.labels[k])]
            )
            out += table.reshape(self.shape_in([m, k], axes))
        for c in self.children[k]:
            out += messages[c].reshape(self.shape_in(self.scopes[c], axes))
        return out

    def totals(self, parts: list[float]) -> np.ndarray:
        sums: list[list[float]] = [[] for _ in range(len(self.offsets) - 1)]
        for b, part in zip(self.graph.tolist(), parts):
            sums[b].append(part)
        return np.array([fsum(s) for s in sums])


def clique_sum_product(
    node_of: np.ndarray,
    scope_ptr: np.ndarray,
    scope: np.ndarray,
    edge_ptr: np.ndarray,
    edges: np.ndarray,
    unit: np.ndarray,
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    table: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    label_ptr: np.ndarray,
    label: np.ndarray,
    total: np.ndarray,
    node_out: np.ndarray,
    edge_out: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.forest.clique_sum_product`; results go to the last arrays."""
    s = _Cliques(
        (node_of, scope_ptr, scope, edge_ptr, edges, unit),
        (offsets, tails, heads, table, node, edge),
        (label_ptr, label),
    )
    nodes = len(node_of)
    messages: list[np.ndarray] = [np.zeros(0)] * nodes
    p: list[np.ndarray] = [np.zeros(0)] * nodes
    parts = []
    for k in range(nodes):
        local = s.local(k, messages)
        message = log_sum(local, axis=-1)
        p[k] = np.exp(local - np.where(np.isneginf(message), 0.0, message)[..., None])
        top = float(message.max())
        parts.append(top)
        messages[k] = message - (0.0 if np.isneginf(top) else top)
    total[:] = s.totals(parts)
    possible = np.isfinite(total)[s.graph]
    node_out[:] = 0.0
    edge_out[:] = 0.0
    for k in reversed(range(nodes)):
        axes = s.axes(k)
        if not s.scopes[k]:
            p[k] = p[k] * possible[k]
        else:
            upper = s.axes(s.scopes[k][-1])
            missing = tuple(a for a, m in enumerate(upper) if m not in s.scopes[k])
            p[k] = p[k] * p[s.scopes[k][-1]].sum(axis=missing)[..., None]
        node_out[node_of[k], s.labels[k]] = p[k].sum(axis=tuple(range(len(axes) - 1)))
        for e in s.edges[k]:
            m, is_tail = s.pair(e, k)
            pairs = p[k].sum(axis=tuple(a for a, other in enumerate(axes) if other not in (m, k)))
            place = np.ix_(s.labels[k], s.labels[m]) if is_tail else np.ix_(s.labels[m], s.labels[k])
            edge_out[table[e]][place] += pairs.T if is_tail else pairs


def clique_max_product(
    node_of: np.ndarray,
    scope_ptr: np.ndarray,
    scope: np.ndarray,
    edge_ptr: np.ndarray,
    edges: np.ndarray,
    unit: np.ndarray,
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    table: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    label_ptr: np.ndarray,
    label: np.ndarray,
    total: np.ndarray,
    labels: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.forest.clique_max_product`; results go to the last arrays."""
    s = _Cliques(
        (node_of, scope_ptr, scope, edge_ptr, edges, unit),
        (offsets, tails, heads, table, node, edge),
        (label_ptr, label),
    )
    nodes = len(node_of)
    messages: list[np.ndarray] = [np.zeros(0)] * nodes
    back: list[np.ndarray] = [np.zeros(0)] * nodes
    parts = []
    for k in range(nodes):
        local = s.local(k, messages)
        message, back[k] = local.max(axis=-1), local.argmax(axis=-1)
        top = float(message.max())
        parts.append(top)
        messages[k] = message - (0.0 if np.isneginf(top) else top)
    total[:] = s.totals(parts)
    place = np.zeros(nodes, np.int64)
    for k in reversed(range(nodes)):
        place[k] = back[k][tuple(place[m] for m in s.scopes[k])]
        labels[node_of[k]] = s.labels[k][place[k]]
