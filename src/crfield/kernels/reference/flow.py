"""The flow kernels to read: the smallest cut, to the last digit that doubles have, by a max-flow of 32-bit integers.

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

import numpy as np

# Left-over capacity plus returned flow must itself fit 31 bits.
BITS = 30
LARGEST = 2**BITS - 1
ROUNDS = 12
ROOM_FOR_INFINITE = 64.0  # an infinite arc carries this many of the largest finite arcs in one round


def minimum_cut(
    excess: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    forward: np.ndarray,
    back: np.ndarray,
    side: np.ndarray,
) -> float:
    """Body of `crfield.kernels.flow.minimum_cut`: the source's side to the last array, the gap returned."""
    n = len(excess)
    sizes = {len(x) for x in (starts, ends, forward, back)}
    if len(sizes) > 1 or side.shape != (n,):
        raise ValueError("arcs do not fit")
    if not np.isfinite(excess).all():
        raise ValueError("excess must be finite")
    places = np.concatenate([starts, ends])
    if (
        (places < 0).any()
        or (places >= n).any()
        or (starts == ends).any()
        or not (np.minimum(forward, back) >= 0).all()
    ):
        raise ValueError("an arc leads nowhere, to itself, or has a capacity below 0")
    side[:], gap = _cut(excess, starts, ends, forward, back)
    return gap


def _cut(
    excess: np.ndarray, starts: np.ndarray, ends: np.ndarray, forward: np.ndarray, back: np.ndarray
) -> tuple[np.ndarray, float]:
    """(n,) the source's side, and the gap."""
    n = len(excess)
    least = min(float(np.maximum(excess, 0).sum()), float(np.maximum(-excess, 0).sum()))
    if least == 0.0 or not len(starts):
        return _reached_from(excess > 0, starts, ends, forward, back), 0.0
    network = _Network(excess, starts, ends)
    left = network.arrange(excess, forward, back)
    finite = left[np.isfinite(left)]
    enough = 1e-13 * float(finite.sum())
    best, best_gap, can_flow = np.zeros(n, bool), float("inf"), least
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
        if gap < best_gap:
            best, best_gap = inside[:n], gap
        if gap <= enough:
            break
    return best, best_gap


def best_states(
    node: np.ndarray,
    edge: np.ndarray,
    tables: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    labels: np.ndarray,
    state: np.ndarray,
) -> tuple[bool, float, float]:
    """Body of `crfield.kernels.flow.best_states`: whether it is simple, gap and size; states to the last array."""
    n, edges = len(node), len(tails)
    if labels.shape != (n, 2) or state.shape != (n,) or {len(heads), len(tables)} != {edges}:
        raise ValueError("scores, labels and edges do not fit")
    if edge.shape[1:] != (node.shape[1],) * 2:
        raise ValueError("scores, labels and edges do not fit")
    if labels.size and (labels.min() < 0 or labels.max() >= node.shape[1]):
        raise ValueError("a label is out of range")
    places = np.concatenate([tails, heads])
    if edges and (places.min() < 0 or places.max() >= n or tables.min() < 0 or tables.max() >= len(edge)):
        raise ValueError("an edge is out of range")
    if (tails == heads).any():
        raise ValueError("an edge is out of range")
    own = np.take_along_axis(node, labels, axis=1)  # (N, 2)
    pair = edge[tables[:, None, None], labels[tails][:, :, None], labels[heads][:, None, :]]  # (E, 2, 2)
    if not (np.isfinite(own).all() and np.isfinite(pair).all()):
        return False, 0.0, 0.0
    bend = pair[:, 0, 0] + pair[:, 1, 1] - (pair[:, 0, 1] + pair[:, 1, 0])
    rounding = 4 * np.finfo(float).eps * np.abs(pair).max(axis=(1, 2), initial=0.0)
    if (bend < -rounding).any():
        return False, 0.0, 0.0
    fixed = labels[:, 0] == labels[:, 1]
    excess = np.where(fixed, 0.0, own[:, 1] - own[:, 0])
    free = ~fixed[tails] & ~fixed[heads]
    pull = 0.5 * (pair[:, 1, 0] + pair[:, 1, 1] - pair[:, 0, 0] - pair[:, 0, 1])
    push = 0.5 * (pair[:, 0, 1] + pair[:, 1, 1] - pair[:, 0, 0] - pair[:, 1, 0])
    np.add.at(excess, tails[~fixed[tails]], np.where(free, pull, pair[:, 1, 0] - pair[:, 0, 0])[~fixed[tails]])
    np.add.at(excess, heads[~fixed[heads]], np.where(free, push, pair[:, 0, 1] - pair[:, 0, 0])[~fixed[heads]])
    kept = np.flatnonzero(free & (bend > rounding))
    low, high = np.minimum(tails[kept], heads[kept]), np.maximum(tails[kept], heads[kept])
    joints, link = np.unique(low * max(1, n) + high, return_inverse=True)  # parallel edges add up
    half = np.bincount(link, bend[kept] / 2, minlength=len(joints))
    side, gap = _cut(excess, joints // max(1, n), joints % max(1, n), half, half)
    state[:] = side & ~fixed
    return True, gap, float(np.abs(own).sum() + np.abs(pair).sum())


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
    row = np.concatenate([starts[ahead], ends[behind], np.full(len(first), n)]).astype(np.int32)
    column = np.concatenate([ends[ahead], starts[behind], first]).astype(np.int32)
    arcs = coo_array((np.ones(len(row), np.int8), (row, column)), shape=(n + 1, n + 1)).tocsr()
    reached = np.zeros(n + 1, bool)
    reached[breadth_first_order(arcs, n, directed=True, return_predecessors=False)] = True
    return reached[:n]
