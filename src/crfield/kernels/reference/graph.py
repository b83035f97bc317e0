"""The graph kernels to read: belief propagation in plain logs, one graph after the other.

`Field` is one graph with its messages, and `Field.arriving` is the update of the contract's essay for any set of
messages. The three schedules differ only in which messages they update and in which order. The compiled body gets
the same answers mostly in probabilities; see ``native/graph/scaled.cpp`` for when that is allowed.
"""

from __future__ import annotations

from collections import deque

import numpy as np

INF = np.inf


class Field:
    """One graph: scores, messages (e, 2, L), and what follows from them.

    Message 2 e goes to the head of edge e, message 2 e + 1 to its tail.
    """

    def __init__(
        self,
        node: np.ndarray,
        score: np.ndarray,
        ends: np.ndarray,
        rho: np.ndarray,
        messages: np.ndarray,
        maximise: bool,
    ) -> None:
        self.node, self.rho, self.maximise = node, rho, maximise
        self.score = score / rho[:, None, None]  # (e, L, L), rows for the tail
        self.source = ends  # (e, 2): message 2 e comes from the tail, 2 e + 1 from the head
        self.messages = messages
        self.out: list[list[int]] = [[] for _ in node]  # messages that leave each node, in the order of edges
        for message, n in enumerate(self.source.ravel().tolist()):
            self.out[n].append(message)
        self.n_messages = 2 * len(rho)

    def add(self, x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
        """Log Σ exp or max along axes, −∞ where everything is −∞."""
        top = np.max(x, axis=axis, keepdims=True)
        if self.maximise:
            return np.asarray(np.squeeze(top, axis=axis))
        shift = np.where(np.isneginf(top), 0.0, top)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.sum(np.exp(x - shift), axis=axis)) + np.squeeze(shift, axis=axis))

    def beliefs(self) -> np.ndarray:
        """(n, L) b_n = node_n + Σ ρ μ."""
        b = self.node.copy()
        arriving = self.rho[:, None, None] * self.messages
        np.add.at(b, self.source[:, ::-1].ravel(), arriving.reshape(self.n_messages, b.shape[1]))
        return b

    def belief(self, n: int) -> np.ndarray:
        """(L,) the belief of one node."""
        b = self.node[n].copy()
        for message in self.out[n]:
            e, side = divmod(message, 2)
            b += self.rho[e] * self.messages[e, 1 - side]
        return b

    def arriving(self, message: np.ndarray, source: np.ndarray, damping: float) -> np.ndarray:
        """(k, L) what the given messages become, ``source`` (k, L) being the beliefs of the nodes they leave."""
        e, side = np.divmod(message, 2)
        cavity = without(source, self.messages[e, 1 - side])
        to_head = self.score[e]
        table = np.where((side == 0)[:, None, None], to_head, np.swapaxes(to_head, 1, 2))
        new = shifted(self.add(table + cavity[:, :, None], axis=1))
        if damping:
            new = shifted((1 - damping) * new + damping * self.messages[e, side])
        return new

    def update(self, message: np.ndarray, source: np.ndarray, damping: float) -> float:
        """Replace messages; the largest change."""
        e, side = np.divmod(message, 2)
        new = self.arriving(message, source, damping)
        change = changes(new, self.messages[e, side])
        self.messages[e, side] = new
        return float(change.max(initial=0.0))


def shifted(x: np.ndarray) -> np.ndarray:
    """Rows shifted to a maximum of zero, or all −∞."""
    top = np.max(x, axis=-1, keepdims=True)
    return np.asarray(x - np.where(np.isneginf(top), 0.0, top))


def without(b: np.ndarray, message: np.ndarray) -> np.ndarray:
    """B − μ, −∞ where b is."""
    dead = np.isneginf(b)
    return np.where(dead, -INF, b - np.where(dead, 0.0, message))


def changes(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """(k,) largest |new − old| of each row; −∞ twice is no change."""
    same = np.isneginf(new) & np.isneginf(old)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(same, 0.0, np.abs(new - old)).max(axis=-1, initial=0.0))


def breadth_first(ends: np.ndarray, nodes: int) -> list[int]:
    """All nodes, each component from its smallest on, neighbours in the order of edges."""
    others: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head in ends.tolist():
        others[tail].append(head)
        others[head].append(tail)
    order: list[int] = []
    met = [False] * nodes
    for root in range(nodes):
        queue = deque([] if met[root] else [root])
        met[root] = True
        while queue:
            n = queue.popleft()
            order.append(n)
            for other in others[n]:
                if not met[other]:
                    met[other] = True
                    queue.append(other)
    return order


def is_forest(ends: np.ndarray, nodes: int) -> bool:
    """Whether no edge closes a loop; of two edges between the same nodes the second does."""
    root = list(range(nodes))
    for a, b in ends.tolist():
        while root[a] != a:
            a = root[a] = root[root[a]]
        while root[b] != b:
            b = root[b] = root[root[b]]
        if a == b:
            return False
        root[a] = b
    return True


# ------------------------------------------------------------------------------------------------- schedules


def synchronous(field: Field, damping: float, max_sweeps: int, tol: float) -> tuple[float, int]:
    """Every message from those before; the last residual and the number of sweeps."""
    every, residual = np.arange(field.n_messages), 0.0
    for sweep in range(1, max_sweeps + 1):
        source = field.beliefs()[field.source.ravel()]
        residual = field.update(every, source, damping)
        if residual <= tol:
            return residual, sweep
    return residual, max_sweeps


def sweeps(field: Field, damping: float, max_sweeps: int, tol: float) -> tuple[float, int]:
    """From the last node to the first and back, each sending to those that come after it on the way."""
    order = breadth_first(field.source, len(field.node))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    target = field.source[:, ::-1].ravel()
    onward: list[list[np.ndarray]] = [[], []]
    for n in range(len(order)):
        out = np.array(field.out[n], np.int64)
        later = place[target[out]] > place[n]
        onward[0].append(out[~later])
        onward[1].append(out[later])
    residual = 0.0
    for sweep in range(1, max_sweeps + 1):
        residual = 0.0
        for way, nodes in ((0, order[::-1]), (1, order)):
            for n in nodes:
                message = onward[way][n]
                if len(message):
                    source = np.broadcast_to(field.belief(n), (len(message), field.node.shape[1]))
                    residual = max(residual, field.update(message, source, damping))
        if residual <= tol:
            return residual, sweep
    return residual, max_sweeps


def by_residual(field: Field, damping: float, max_sweeps: int, tol: float) -> tuple[float, int]:
    """Always the message that would change most; the first of equals.

    What is left at the end are many changes of up to ``tol``, and beliefs add them up. Where there is no loop, one
    sweep in order is exact, so it follows.
    """
    source = field.beliefs()[field.source.ravel()]
    candidate = field.arriving(np.arange(field.n_messages), source, damping)
    flat = field.messages.reshape(field.n_messages, -1)
    residual = changes(candidate, flat)
    target = field.source[:, ::-1].ravel()
    updates = 0
    while residual.max() > tol and updates < max_sweeps * field.n_messages:
        best = int(np.argmax(residual))
        flat[best] = candidate[best]
        updates += 1
        for n, which in (
            (int(field.source.ravel()[best]), [best]),
            (int(target[best]), field.out[int(target[best])]),
        ):
            again = np.array(which, np.int64)
            source = np.broadcast_to(field.belief(n), (len(again), flat.shape[1]))
            candidate[again] = field.arriving(again, source, damping)
            residual[again] = changes(candidate[again], flat[again])
    if residual.max() <= tol and not damping and is_forest(field.source, len(field.node)):
        sweeps(field, damping, 1, tol)
    return float(residual.max()), -(-updates // field.n_messages)


RUNS = {"synchronous": synchronous, "sweeps": sweeps, "residual": by_residual}

# ---------------------------------------------------------------------------------------------------- answers


def answers(field: Field) -> tuple[float, np.ndarray, np.ndarray]:
    """Total, node beliefs (n, L) and edge beliefs (e, L, L) of the messages as they are."""
    b, rho = field.beliefs(), field.rho
    tail, head = field.source[:, 0], field.source[:, 1]
    pair = field.score + without(b[tail], field.messages[:, 1])[:, :, None]
    pair = pair + without(b[head], field.messages[:, 0])[:, None, :]
    of_node, of_edge = field.add(b, axis=1), field.add(pair, axis=(1, 2))
    if np.isneginf(of_node).any() or np.isneginf(of_edge).any():
        return -INF, np.zeros_like(b), np.zeros_like(pair)
    total = float(of_node.sum() + (rho * (of_edge - of_node[tail] - of_node[head])).sum())
    return total, probabilities(b, (1,)), probabilities(pair, (1, 2))


def probabilities(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """exp(x) / Σ exp(x)."""
    y = np.exp(x - np.max(x, axis=axes, keepdims=True))
    return np.asarray(y / np.sum(y, axis=axes, keepdims=True))


def check(
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    messages: np.ndarray,
) -> np.ndarray:
    """Refuse what does not fit; (B + 1,) the first edge of each graph."""
    if len(offsets) < 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ValueError("offsets must start at 0 and not fall")
    nodes, edges = int(offsets[-1]), len(tails)
    if node.ndim != 2 or len(node) != nodes or node.shape[1] < 1:
        raise ValueError("node scores do not fit")
    if edge.ndim != 3 or edge.shape[1:] != (node.shape[1],) * 2:
        raise ValueError("edge scores do not fit the labels")
    if len(heads) != edges or len(tables) != edges or messages.shape != (edges, 2, node.shape[1]):
        raise ValueError("tails, heads, tables and messages must have one entry for each edge")
    for ends, most in ((tails, nodes), (heads, nodes), (tables, len(edge))):
        if edges and (ends.min() < 0 or ends.max() >= most):
            raise ValueError("an edge names a node or a table that does not exist")
    owner = np.searchsorted(offsets, tails, side="right") - 1
    if (tails == heads).any() or (owner != np.searchsorted(offsets, heads, side="right") - 1).any():
        raise ValueError("an edge must join two different nodes of one graph")
    if (np.diff(owner) < 0).any():
        raise ValueError("edges must be sorted by graph")
    return np.searchsorted(owner, np.arange(len(offsets)))


def propagate(
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    rho: np.ndarray | None,
    damping: np.ndarray,
    messages: np.ndarray,
    node_out: np.ndarray,
    edge_out: np.ndarray,
    total: np.ndarray,
    residual: np.ndarray,
    sweeps_done: np.ndarray,
    maximise: bool,
    schedule: str,
    max_sweeps: int,
    tol: float,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.graph.propagate`; ``messages`` are the start and then, as all after, the result."""
    first = check(offsets, tails, heads, tables, node, edge, messages)
    weight = np.ones(len(tails)) if rho is None else rho
    edge_out[:] = 0.0
    for b in range(len(offsets) - 1):
        nodes, edges = slice(offsets[b], offsets[b + 1]), slice(first[b], first[b + 1])
        ends = np.stack([tails[edges], heads[edges]], axis=1) - offsets[b]
        field = Field(node[nodes], edge[tables[edges]], ends, weight[edges], messages[edges], maximise)
        residual[b], sweeps_done[b] = 0.0, 0
        if len(ends):
            residual[b], sweeps_done[b] = RUNS[schedule](field, float(damping[b]), max_sweeps, tol)
        total[b], node_out[nodes], pairs = answers(field)
        np.add.at(edge_out, tables[edges], pairs)


def decode(
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    rho: np.ndarray | None,
    messages: np.ndarray,
    labels: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.graph.decode`."""
    first = check(offsets, tails, heads, tables, node, edge, messages)
    weight = np.ones(len(tails)) if rho is None else rho
    labels[:] = -1
    at: list[list[int]] = [[] for _ in node]
    for e, (tail, head) in enumerate(zip(tails.tolist(), heads.tolist())):
        at[tail].append(e)
        at[head].append(e)
    for b in range(len(offsets) - 1):
        edges = slice(first[b], first[b + 1])
        ends = np.stack([tails[edges], heads[edges]], axis=1) - offsets[b]
        for n in breadth_first(ends, int(offsets[b + 1] - offsets[b])):
            n += int(offsets[b])
            score = node[n].copy()
            for e in at[n]:
                is_head = int(heads[e] == n)
                other = int(tails[e] if is_head else heads[e])
                if labels[other] < 0:
                    score += weight[e] * messages[e, 1 - is_head]
                elif is_head:
                    score += edge[tables[e], labels[other]]
                else:
                    score += edge[tables[e], :, labels[other]]
            labels[n] = int(np.argmax(score))
