"""The smallest cut of a network, to the last digit that doubles have, by a max-flow of 32-bit integers.

SciPy's `maximum_flow` (Dinic 1970) wants 32-bit integers; scores are doubles. One scaling would lose all but nine
digits, and where some arcs are infinite nearly all of them. So the flow is found in rounds: capacities are rounded
*down* to a unit that suits the largest, the flow of that network is a flow of the true one, and the next round works
on what is left of the true capacities, in a unit that suits what can still flow. A cut crosses what is left, and by
how much says how far it can be from the smallest one:

    capacity(cut) − smallest capacity ≤ gap = Σ left over on the arcs that cross the cut

The gap shrinks by about nine digits a round, so one round mostly does and two or three reach the rounding of the
sums themselves. The gap that remained is part of the answer: what is called the best is proven to be.

Cost: a sort of the arcs, then for each round Dinic's algorithm, which on grids grows a little faster than the
number of nodes. No threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Left-over capacity plus returned flow must itself fit 31 bits.
BITS = 30
LARGEST = 2**BITS - 1
ROUNDS = 12
ROOM_FOR_INFINITE = 64.0  # an infinite arc carries this many of the largest finite arcs in one round


@dataclass(frozen=True, eq=False)
class Cut:
    """The nodes on the source's side, and by how much the cut may exceed the smallest one."""

    source_side: np.ndarray  # (n,) bool
    gap: float


def minimum_cut(
    excess: np.ndarray, starts: np.ndarray, ends: np.ndarray, forward: np.ndarray, back: np.ndarray
) -> Cut:
    """The set S of nodes that makes the capacity of what leaves it smallest.

        capacity(S) = Σ_{n ∉ S} max(excess_n, 0) + Σ_{n ∈ S} max(−excess_n, 0)
                      + Σ_{a: start ∈ S, end ∉ S} forward_a + Σ_{a: end ∈ S, start ∉ S} back_a

    ``excess`` (n,) is finite; ``forward`` and ``back`` (m,) are at least 0 and may be +∞. No two arcs join the same
    two nodes. Of several smallest sets it is the one inside all others, up to rounding.

    >>> import numpy as np
    >>> cut = minimum_cut(np.array([3.0, -1.0]), np.array([0]), np.array([1]), np.array([0.5]), np.array([0.5]))
    >>> cut.source_side.tolist(), cut.gap
    ([True, False], 0.0)
    """
    n = len(excess)
    least = min(float(np.maximum(excess, 0).sum()), float(np.maximum(-excess, 0).sum()))
    if least == 0.0 or not len(starts):
        return Cut(_reached_from(excess > 0, starts, ends, forward, back), 0.0)
    network = _Network(excess, starts, ends)
    left = network.arrange(excess, forward, back)
    finite = left[np.isfinite(left)]
    enough = 1e-13 * float(finite.sum())
    best, can_flow = Cut(np.zeros(n, bool), float("inf")), least
    for _ in range(ROUNDS):
        top = float(left[np.isfinite(left)].max(initial=0.0))
        room = top if np.isfinite(left).all() else ROOM_FOR_INFINITE * top
        # Twice what can flow at all: an arc that was cut down to fit is then never full, so no cut crosses it.
        most = min(2.0 * can_flow, room)
        if not most > 0:
            break
        # A power of two, so that what is left is found without rounding.
        unit = math.ldexp(1.0, math.frexp(most)[1] - BITS)
        flow, inside = network.push(np.minimum(left / unit, LARGEST).astype(np.int32))
        left = np.maximum(left - flow * unit, 0.0)
        crossing = inside[network.row] & ~inside[network.column]
        gap = float(left[crossing].sum())
        can_flow = min(gap, can_flow - unit * float(flow[network.row == n].sum(dtype=np.float64)))
        if gap < best.gap:
            best = Cut(inside[:n], gap)
        if gap <= enough:
            break
    return best


class _Network:
    """The arcs in the order of a sparse matrix: nodes 0 … n − 1, the source n and the sink n + 1."""

    def __init__(self, excess: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        n = len(excess)
        self.giving, self.taking = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
        source, sink = np.full(len(self.giving), n), np.full(len(self.taking), n + 1)
        row = np.concatenate([starts, ends, source, self.giving, self.taking, sink]).astype(np.int64)
        column = np.concatenate([ends, starts, self.giving, source, sink, self.taking]).astype(np.int64)
        self.order = np.argsort(row * (n + 2) + column)
        self.row, self.column = row[self.order], column[self.order]
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n + 2))]).astype(np.int32)
        self.indices = self.column.astype(np.int32)
        self.n = n

    def arrange(self, excess: np.ndarray, forward: np.ndarray, back: np.ndarray) -> np.ndarray:
        """Capacities in the order of the arcs."""
        give, take = excess[self.giving], -excess[self.taking]
        return np.concatenate([forward, back, give, np.zeros_like(give), take, np.zeros_like(take)])[self.order]

    def push(self, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The largest flow (arcs,) and the nodes (n + 2,) that the source can still reach beside it."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        shape = (self.n + 2, self.n + 2)
        matrix = csr_array((capacity, self.indices, self.indptr), shape=shape)
        # Every arc has its opposite, so the answer has the same arcs in the same order.
        flow = maximum_flow(matrix, self.n, self.n + 1, method="dinic").flow.data
        open_arcs = csr_array((capacity > flow, self.indices, self.indptr), shape=shape).astype(np.int8)
        open_arcs.eliminate_zeros()
        inside = np.zeros(self.n + 2, bool)
        inside[breadth_first_order(open_arcs, self.n, directed=True, return_predecessors=False)] = True
        return flow, inside


def _reached_from(
    inside: np.ndarray, starts: np.ndarray, ends: np.ndarray, forward: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """(n,) what can be reached from the nodes ``inside`` where nothing flows: no arc is full."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    n, ahead, behind = len(inside), forward > 0, back > 0
    first = np.flatnonzero(inside)
    row = np.concatenate([starts[ahead], ends[behind], np.full(len(first), n)])
    column = np.concatenate([ends[ahead], starts[behind], first])
    arcs = coo_array((np.ones(len(row), np.int8), (row, column)), shape=(n + 1, n + 1)).tocsr()
    reached = np.zeros(n + 1, bool)
    reached[breadth_first_order(arcs, n, directed=True, return_predecessors=False)] = True
    return reached[:n]
