"""Contract of the graph kernels: belief propagation on any graph, and decoding from its messages.

Every edge carries two messages, one to its head and one to its tail, in logs and shifted to a maximum of zero. With
the weight ρ_e of an edge (1 in ordinary belief propagation, the probability that a random spanning tree holds the
edge in the tree-reweighted kind) and ``add`` = log Σ exp or max,

    b_n(i) = node_n(i) + Σ_{e at n} ρ_e μ_{e→n}(i)
    b_e(i, j) = edge_e(i, j) / ρ_e + b_tail(i) − μ_{e→tail}(i) + b_head(j) − μ_{e→head}(j)
    μ_{e→head}(j) ← add_i [ edge_e(i, j) / ρ_e + b_tail(i) − μ_{e→tail}(i) ]      and likewise to the tail
    total = Σ_n add b_n + Σ_e ρ_e [ add b_e − add b_tail − add b_head ]

Where messages no longer change, the beliefs exp b (normalised) are the gradient of the total, and the total does not
move with the messages to first order, so that its error is the square of theirs. Whatever the messages are,
Σ_n b_n + Σ_e ρ_e (b_e − b_tail − b_head) is the score that was handed in.

A label that any message excludes (−∞) is excluded at its node altogether. That is what the edge would find out in
the next sweep anyhow, and it keeps −∞ − (−∞) out of the sums.

Cost O(E L²) a sweep. References: Pearl (1988); Yedidia, Freeman & Weiss, *Constructing free-energy approximations*
(2005); Wainwright, Jaakkola & Willsky, *A new class of upper bounds on the log partition function* (2005); Elidan,
McGraw & Koller, *Residual belief propagation* (2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice

SCHEDULES = ("synchronous", "sweeps", "residual")
SEMIRINGS = ("log", "max")
# A message at the start lies no further below its best label than this, nor further than its edge could push it:
# any start is allowed, but one that excludes a label could never take it back.
FLOOR = 50.0


@dataclass(frozen=True, eq=False)
class Propagation:
    """Where belief propagation ended, graph by graph."""

    messages: np.ndarray  # (E, 2, L) in logs, to the head and to the tail
    node: np.ndarray  # (N, L) beliefs
    edge: np.ndarray  # (T, L, L) beliefs, summed over the edges that use a table
    total: np.ndarray  # (B,)
    residual: np.ndarray  # (B,) largest change of a message in the last sweep
    sweeps: np.ndarray  # (B,) int64


def propagate(
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    *,
    semiring: str = "log",
    rho: np.ndarray | None = None,
    schedule: str = "synchronous",
    damping: float | np.ndarray = 0.0,
    max_sweeps: int = 100,
    tol: float = 1e-8,
    messages: np.ndarray | None = None,
    n_jobs: int = 1,
) -> Propagation:
    """Belief propagation on B graphs, each until no message changes by more than ``tol`` or ``max_sweeps`` are done.

    Graph b owns nodes ``offsets[b]:offsets[b+1]``; edges ``tails``, ``heads`` (E,) are sorted by graph; edge e has
    the scores ``edge[tables[e]]`` of (T, L, L). Parallel edges are separate edges here, and form a loop.

    ``schedule``: "synchronous" makes every message from those before; "sweeps" visits the nodes in breadth-first
    order, from the last to the first and back, and so is done after one sweep on forests; "residual" always updates
    the message that would change most (2 E updates count as a sweep), and ends with one sweep in order where there is
    no loop, which makes it exact. ``damping`` d, one number or (B,), mixes logs: (1 − d) new + d old. ``rho`` (E,) in
    (0, 1]. ``messages`` (E, 2, L) are those to start from, zeros by default.

    A graph in which some node has no label left has the total −∞ and beliefs of zero.

    >>> import numpy as np
    >>> done = propagate(np.array([0, 2]), np.array([0]), np.array([1]), np.array([0]),
    ...                  np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)))
    >>> float(np.exp(done.total[0]).round(12)), done.node.round(12).tolist(), int(done.sweeps[0])
    (8.0, [[0.25, 0.75], [0.5, 0.5]], 1)
    """
    offsets, tails, heads, tables = (np.ascontiguousarray(x, np.int64) for x in (offsets, tails, heads, tables))
    node, edge = np.ascontiguousarray(node, np.float64), np.ascontiguousarray(edge, np.float64)
    _check_option("semiring", semiring, SEMIRINGS)
    _check_option("schedule", schedule, SCHEDULES)
    graphs, edges, labels = len(offsets) - 1, len(tails), node.shape[1] if node.ndim == 2 else 0
    mixed = np.array(np.broadcast_to(np.asarray(damping, np.float64), (max(graphs, 0),)))
    wrong = mixed[~((mixed >= 0) & (mixed < 1))]
    if len(wrong):
        raise InputError(f"damping must lie in [0, 1), got {wrong[0]}.")
    if max_sweeps < 1:
        raise InputError(f"max_sweeps must be ≥ 1, got {max_sweeps}.")
    if not tol >= 0:
        raise InputError(f"tol must be ≥ 0, got {tol}.")
    if rho is not None:
        rho = np.ascontiguousarray(rho, np.float64)
        if rho.shape != (edges,) or not ((rho > 0) & (rho <= 1)).all():
            raise InputError(f"rho must be {edges} numbers in (0, 1], one for each edge, got shape {rho.shape}.")
    start = np.zeros((edges, 2, labels))
    if messages is not None:
        start[...] = _started(messages, start.shape, edge, tables, rho)
    done = Propagation(
        start,
        np.zeros_like(node),
        np.zeros_like(edge),
        *(np.zeros(max(graphs, 0), t) for t in (float, float, np.int64)),
    )
    choice.body("graph").propagate(
        offsets,
        tails,
        heads,
        tables,
        node,
        edge,
        rho,
        mixed,
        done.messages,
        done.node,
        done.edge,
        done.total,
        done.residual,
        done.sweeps,
        semiring == "max",
        schedule,
        int(max_sweeps),
        float(tol),
        max(1, n_jobs),
    )
    return done


def decode(
    offsets: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    messages: np.ndarray,
    *,
    rho: np.ndarray | None = None,
    n_jobs: int = 1,
) -> np.ndarray:
    """(N,) int32 labels read off max messages, node after node in breadth-first order:

        y_n = argmax_i [ node_n(i) + Σ_{labelled neighbours m} edge(i, y_m) + Σ_{others} ρ_e μ_{e→n}(i) ]

    Taking the best label of each node by itself would mix labellings where several are equally good; here a node
    agrees with those before it, and on a forest the labelling is the best one. Ties go to the smallest label.

    >>> import numpy as np
    >>> pair = (np.array([0, 2]), np.array([0]), np.array([1]), np.array([0]), np.zeros((2, 2)), -np.eye(2)[None])
    >>> decode(*pair, propagate(*pair, semiring="max").messages).tolist()
    [0, 1]
    """
    offsets, tails, heads, tables = (np.ascontiguousarray(x, np.int64) for x in (offsets, tails, heads, tables))
    node, edge = np.ascontiguousarray(node, np.float64), np.ascontiguousarray(edge, np.float64)
    labels = np.zeros(len(node), np.int32)
    if rho is not None:
        rho = np.ascontiguousarray(rho, np.float64)
    messages = np.ascontiguousarray(messages, np.float64)
    choice.body("graph").decode(offsets, tails, heads, tables, node, edge, rho, messages, labels, max(1, n_jobs))
    return labels


def _check_option(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")


def _started(
    messages: np.ndarray, shape: tuple[int, ...], edge: np.ndarray, tables: np.ndarray, rho: np.ndarray | None
) -> np.ndarray:
    """Messages to start from: shifted to a maximum of zero, no label excluded."""
    messages = np.asarray(messages, np.float64)
    if messages.shape != shape:
        raise ShapeError(
            f"messages must be (n_edges, 2, n_labels) = {shape}, got {messages.shape}. Are they of other graphs?"
        )
    if np.isnan(messages).any() or np.isposinf(messages).any():
        raise InputError("messages must be finite or -inf, got NaN or +inf.")
    if not messages.size:
        return messages
    top = messages.max(axis=2, keepdims=True)
    shifted = messages - np.where(np.isneginf(top), 0.0, top)
    with np.errstate(invalid="ignore"):
        spread = (edge.max(axis=(1, 2)) - edge.min(axis=(1, 2)))[tables]
    floor = np.fmin(spread if rho is None else spread / rho, FLOOR)
    return np.asarray(np.maximum(shifted, -floor[:, None, None]))
