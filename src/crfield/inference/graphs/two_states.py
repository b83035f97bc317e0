"""The best of two states for every node: what cuts can prove, and what they cannot.

    score(x) = Σ_n node_n(x_n) + Σ_e pair_e(x_tail, x_head),   x_n ∈ {0, 1}, scores of −∞ allowed

An edge *attracts* when pair(0,0) + pair(1,1) ≥ pair(0,1) + pair(1,0). If all do, the best x is a smallest cut
(Greig, Porteous & Seheult 1989; Kolmogorov & Zabih 2004). Three steps come before and after:

1. What −∞ implies is followed to its end, as unit clauses are in 2-SAT: one search through the graph of "this state
   forces that one". It finds contradictions, and takes every node with one possible state out of the problem.
2. The two states of a node may change names. If some naming makes every edge attract (no loop has an odd number of
   edges that repel: the graph is *balanced*, Harary 1953), that naming is used and the cut is exact.
3. Otherwise every node gets a twin with the opposite state, and a cut of the doubled graph (roof duality: Hammer,
   Hansen & Simeone 1984; Boros & Hammer 2002) settles the nodes whose twin lies on the other side: those states are
   right whatever the others are, and taking them over never lowers the score of any x. Nodes that stay open climb
   from a given start to a local best.

So the answer is proven best exactly when nothing stayed open and the gap of the cut is rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.graphs import link_matrix
from crfield.kernels.flow import minimum_cut

ROUNDING = 1e-12  # of the scores that a sum is made of
OPEN = -1


@dataclass(frozen=True, eq=False)
class TwoStates:
    """The problem of the essay; no two edges join the same two nodes (`Links` adds parallel ones up)."""

    node: np.ndarray  # (n, 2)
    pair: np.ndarray  # (m, 2, 2)
    tails: np.ndarray  # (m,)
    heads: np.ndarray  # (m,)


@dataclass(frozen=True, eq=False)
class Solution:
    """States, whether they are proven best, and what stood in the way.

    ``impossible`` marks nodes whose graph has no labelling at all as far as ``node`` and ``pair`` tell; ``repelling``
    is an edge on a loop that no naming of the states makes attractive, or −1; ``open`` counts the nodes that roof
    duality left open.
    """

    state: np.ndarray  # (n,) 0 or 1
    exact: bool
    impossible: np.ndarray  # (n,) bool: both states contradicted
    repelling: int = -1
    open: int = 0


@dataclass(frozen=True, eq=False)
class Links:
    """Which edges join the same two nodes, so that their tables can be added up.

    >>> import numpy as np
    >>> links = Links.of(3, np.array([0, 1, 1]), np.array([1, 0, 2]))
    >>> links.tails.tolist(), links.heads.tolist(), links.first.tolist()
    ([0, 1], [1, 2], [0, 2])
    """

    tails: np.ndarray  # (m,)
    heads: np.ndarray  # (m,)
    first: np.ndarray  # (m,) the first edge of each link
    link: np.ndarray  # (E,) the link of each edge
    turned: np.ndarray  # (E,) bool: the edge runs against its link

    @classmethod
    def of(cls, n_nodes: int, tails: np.ndarray, heads: np.ndarray) -> Links:
        """The links of all edges."""
        low, high = np.minimum(tails, heads), np.maximum(tails, heads)
        _, first, link = np.unique(low * max(1, n_nodes) + high, return_index=True, return_inverse=True)
        if len(first) == len(tails):
            edges = np.arange(len(tails))
            return cls(tails, heads, edges, edges, np.zeros(len(tails), bool))
        return cls(tails[first], heads[first], first, link, tails != tails[first][link])

    def add_up(self, pair: np.ndarray) -> np.ndarray:
        """(E, 2, 2) tables of edges to (m, 2, 2) tables of links."""
        if len(self.first) == len(self.link):
            return pair
        out = np.zeros((len(self.first), 2, 2))
        np.add.at(out, self.link, np.where(self.turned[:, None, None], pair.transpose(0, 2, 1), pair))
        return out


def solve(problem: TwoStates, *, roof: bool = True, start: np.ndarray | None = None) -> Solution:
    """The best states, or the best that roof duality finds; with ``roof=False`` it stops at a repelling loop.

    Nodes left open climb from ``start`` (n,), by default from 0, so the score is at least that of ``start``.

    >>> import numpy as np
    >>> attract = np.array([[[2.0, 0.0], [0.0, 2.0]]])
    >>> solution = solve(TwoStates(np.array([[0.0, 3.0], [1.0, 0.0]]), attract, np.array([0]), np.array([1])))
    >>> solution.state.tolist(), solution.exact
    ([1, 1], True)
    """
    forced, impossible = _implied(problem)
    state = np.maximum(forced, 0)
    free = np.flatnonzero(forced == OPEN)
    if not len(free):
        return Solution(state, True, impossible)
    node, pair, tails, heads, edges = _without_forced(problem, forced, free)
    bend = _bend(pair)
    names, repelling = _balance(len(free), tails, heads, bend)
    if repelling >= 0 and not roof:
        return Solution(state, False, impossible, int(edges[repelling]))
    magnitude = _magnitude(node) + _magnitude(pair)
    gain = node[:, 1] - node[:, 0]
    if repelling < 0:
        pull, push, forward, back = _attractive(_renamed(pair, names[tails], names[heads]))
        excess = np.where(names, -gain, gain)
        np.add.at(excess, tails, pull)
        np.add.at(excess, heads, push)
        cut = minimum_cut(excess, tails, heads, forward, back)
        state[free] = cut.source_side ^ names
        return Solution(state, cut.gap <= ROUNDING * magnitude, impossible)
    found, gap = _roof(gain, pair, tails, heads, bend < 0)
    left = found == OPEN
    if left.any():
        first = 0 if start is None else start[free]
        found = _climb(TwoStates(node, pair, tails, heads), np.where(left, first, found), left)
    state[free] = found
    exact = not left.any() and gap <= ROUNDING * magnitude
    return Solution(state, exact, impossible, int(edges[repelling]), int(left.sum()))


def _magnitude(scores: np.ndarray) -> float:
    return float(np.abs(scores[np.isfinite(scores)]).sum())


def _implied(problem: TwoStates) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the only possible state of each node or OPEN, and (n,) whether both are contradicted."""
    from scipy.sparse.csgraph import breadth_first_order

    n, dead = len(problem.node), np.isneginf(problem.pair)
    true = np.zeros((n, 2), bool)  # [n, a]: node n must be in state a
    true[:, ::-1] |= np.isneginf(problem.node)
    for ends, across in ((problem.tails, 2), (problem.heads, 1)):
        np.logical_or.at(true, ends, np.logical_and.reduce(dead, axis=across)[:, ::-1])
    if dead.any() and true.any():
        edge, a, b = np.nonzero(dead)
        tail, head = problem.tails[edge] * 2, problem.heads[edge] * 2
        first = np.flatnonzero(true)
        row = np.concatenate([tail + a, head + b, np.full(len(first), 2 * n)])
        column = np.concatenate([head + 1 - b, tail + 1 - a, first])
        reached = breadth_first_order(
            link_matrix(row, column, 2 * n + 1), 2 * n, directed=True, return_predecessors=False
        )
        true.ravel()[reached[reached < 2 * n]] = True
    forced = np.where(true[:, 1], 1, np.where(true[:, 0], 0, OPEN))
    return forced, true[:, 0] & true[:, 1]


def _without_forced(
    problem: TwoStates, forced: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The problem of the free nodes: node scores, pairs, tails, heads, and the edges that the pairs were."""
    node = problem.node.copy()
    for ends, others, pair in (
        (problem.tails, problem.heads, problem.pair.transpose(0, 2, 1)),
        (problem.heads, problem.tails, problem.pair),
    ):
        half = np.flatnonzero((forced[ends] == OPEN) & (forced[others] != OPEN))
        np.add.at(node, ends[half], pair[half, forced[others[half]]])
    number = np.full(len(forced), OPEN)
    number[free] = np.arange(len(free))
    edges = np.flatnonzero((forced[problem.tails] == OPEN) & (forced[problem.heads] == OPEN))
    return node[free], problem.pair[edges], number[problem.tails[edges]], number[problem.heads[edges]], edges


def _bend(pair: np.ndarray) -> np.ndarray:
    """(m,) pair(0,0) + pair(1,1) − pair(0,1) − pair(1,0): above 0 attracts; rounding counts as 0."""
    alike, unlike = pair[:, 0, 0] + pair[:, 1, 1], pair[:, 0, 1] + pair[:, 1, 0]
    bend = alike - unlike  # never −∞ on both sides: such a table has a state without any partner
    largest = np.abs(np.where(np.isfinite(pair), pair, 0.0)).max(axis=(1, 2), initial=0.0)
    return np.where(np.abs(bend) <= 4 * np.finfo(float).eps * largest, 0.0, bend)


def _balance(n: int, tails: np.ndarray, heads: np.ndarray, bend: np.ndarray) -> tuple[np.ndarray, int]:
    """(n,) whose states change names so that all edges attract, and an edge that repels whatever the names, or −1.

    In the graph of (node, name) an attracting edge joins equal names and a repelling one unlike names; a naming
    exists where no node is connected to itself under the other name.
    """
    from scipy.sparse.csgraph import connected_components

    repel = bend < 0
    if not repel.any():
        return np.zeros(n, bool), -1
    matters = np.flatnonzero(bend != 0)
    shift = n * repel[matters]
    row = np.concatenate([tails[matters], tails[matters] + n])
    column = np.concatenate([heads[matters] + shift, heads[matters] + n - shift])
    part = connected_components(link_matrix(row, column, 2 * n), directed=False)[1]
    torn = part[:n] == part[n:]
    if torn.any():
        return np.zeros(n, bool), int(np.flatnonzero(repel & torn[tails])[0])
    return part[:n] > part[n:], -1


def _renamed(pair: np.ndarray, tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Tables (m, 2, 2) with rows exchanged where ``tail`` (m,) and columns where ``head``."""
    pair = np.where(tail[:, None, None], pair[:, ::-1], pair)
    return np.where(head[:, None, None], pair[:, :, ::-1], pair)


def _attractive(pair: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attracting tables as pair(a, b) = constant + pull·a + push·b − forward·a(1−b) − back·(1−a)b, (m,) each.

    The bend is split evenly between both directions, which leaves the least to flow; where one of the two mixed pairs
    is forbidden the whole of it lies there.
    """
    p00, p01, p10, p11 = pair[:, 0, 0], pair[:, 0, 1], pair[:, 1, 0], pair[:, 1, 1]
    no01, no10 = np.isneginf(p01), np.isneginf(p10)
    some = np.where(no01, np.where(no10, p11, p00 + p11 - p10), p01)  # with it nothing bends where 01 is forbidden
    other = np.where(no10, p00 + p11 - some, p10)
    bend = np.maximum(p00 + p11 - some - other, 0.0)
    pull, push = 0.5 * (other + p11 - p00 - some), 0.5 * (some + p11 - p00 - other)
    return pull, push, np.where(no10, np.inf, bend / 2), np.where(no01, np.inf, bend / 2)


def _roof(
    gain: np.ndarray, pair: np.ndarray, tails: np.ndarray, heads: np.ndarray, repel: np.ndarray
) -> tuple[np.ndarray, float]:
    """(n,) states that roof duality settles, OPEN elsewhere; and the gap of the cut behind them.

    Node n and its twin n + size have opposite states. An attracting edge joins its ends, and their twins the other
    way round; a repelling one joins each end to the other's twin.
    """
    size = len(gain)
    pull, push, forward, back = _attractive(_renamed(pair, np.zeros(len(pair), bool), repel))
    head, twin = np.where(repel, heads + size, heads), np.where(repel, heads, heads + size)
    excess = np.concatenate([gain, -gain])
    for place, change in ((tails, pull), (tails + size, -pull), (head, push), (twin, -push)):
        np.add.at(excess, place, change)
    cut = minimum_cut(
        excess,
        np.concatenate([tails, twin]),
        np.concatenate([head, tails + size]),
        np.concatenate([forward, forward]),
        np.concatenate([back, back]),
    )
    inside, mirrored = cut.source_side[:size], cut.source_side[size:]
    return np.where(inside == mirrored, OPEN, inside.astype(np.int64)), cut.gap / 2


def _climb(problem: TwoStates, state: np.ndarray, movable: np.ndarray) -> np.ndarray:
    """Change single states while that raises the score; of two neighbours only the one that gains more at a time.

    Forbidden scores count as very low ones, so that it also climbs out of what is forbidden.
    """
    low = -1.0 - 2.0 * (_magnitude(problem.node) + _magnitude(problem.pair))
    node, pair = np.maximum(problem.node, low), np.maximum(problem.pair, low)
    state, edges = state.astype(np.int64), np.arange(len(pair))
    tails, heads = problem.tails, problem.heads
    turn = np.arange(len(state))
    while True:
        other = 1 - state
        gain = node[turn, other] - node[turn, state]
        here = pair[edges, state[tails], state[heads]]
        np.add.at(gain, tails, pair[edges, other[tails], state[heads]] - here)
        np.add.at(gain, heads, pair[edges, state[tails], other[heads]] - here)
        gain[~movable] = 0.0
        rank = np.empty(len(state), np.int64)
        rank[np.argsort(gain, kind="stable")] = turn
        chosen = gain > ROUNDING * -low
        np.logical_and.at(chosen, tails, rank[tails] > rank[heads])
        np.logical_and.at(chosen, heads, rank[heads] > rank[tails])
        if not chosen.any():
            return state
        state = np.where(chosen, other, state)
