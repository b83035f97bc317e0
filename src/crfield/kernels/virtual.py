"""Contract of the virtual-evidence kernels: one synchronous sweep of messages, and what couplings would gain by it.

Message s arrives at the node whose *place* it is: node n meets the places ``indptr[n]:indptr[n+1]``, ``other[s]`` is
the node it comes from, ``mate[s]`` the place of the message the other way, and ``group[s]`` says which table it is
read through, rows for the sender's label d, columns for the receiver's c. `advance` is one step of belief propagation

    λ_s(d) ∝ exp total_other(d) / μ_mate(d)                       what the neighbour believes without n
    μ_s(c) ∝ Σ_d exp table_group(d, c) λ_s(d)                     (max_d when maximising), at least 1e-30
    total_n(c) = local_n(c) + Σ_s log μ_s(c)        beliefs_n = softmax total_n

and `couple` the sums of a regression of responses z on the neighbours of each group, with C_n = Σ_s λ_s:

    moment_g(c, d) = Σ_n w_nc z_nc C_n(d)           mass_g(c, d) = Σ_n w_nc C_n(d)
    square_g(c, d, e) = Σ_n w_nc (C_n(d) C_n(e) − Σ_s λ_s(d) λ_s(e))

A sweep costs O(E L²), `couple` O(E L² + N L³) with squares. Reference: Liao, Choudhury, Fox & Kautz (2007, *Training
conditional random fields using virtual evidence boosting*), equations 6 to 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels.choice import body

FLOOR = 1e-30  # least share of a message, so that it can be divided out again


@dataclass(frozen=True, eq=False)
class Wiring:
    """Who hears whom: the messages of all edges, both ways, listed by the node at which they arrive."""

    indptr: np.ndarray  # (N + 1,) int64
    other: np.ndarray  # (M,) int64, the sender
    mate: np.ndarray  # (M,) int64, the place of the message the other way
    group: np.ndarray  # (M,) int64

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def n_messages(self) -> int:
        """M = 2 E."""
        return len(self.other)


class Sweep(NamedTuple):
    """What `advance` found."""

    evidence: np.ndarray  # (M, L) λ
    messages: np.ndarray  # (M, L) μ, each summing to one
    total: np.ndarray  # (N, L)
    beliefs: np.ndarray  # (N, L)


class Sums(NamedTuple):
    """What `couple` found; ``square`` is None where it was not asked for."""

    moment: np.ndarray  # (G, L, L)
    mass: np.ndarray  # (G, L, L)
    square: np.ndarray | None  # (G, L, L, L)


def wire(n_nodes: int, tails: np.ndarray, heads: np.ndarray, to_head: np.ndarray, to_tail: np.ndarray) -> Wiring:
    """The messages of edges (E,); ``to_head`` and ``to_tail`` (E,) are the groups of each edge's two messages.

    >>> wiring = wire(3, np.array([0, 1]), np.array([1, 2]), np.array([0, 0]), np.array([1, 1]))
    >>> wiring.other.tolist(), wiring.mate.tolist(), wiring.group.tolist()
    ([1, 0, 2, 1], [1, 0, 3, 2], [1, 0, 1, 0])
    """
    tails, heads = np.asarray(tails, np.int64), np.asarray(heads, np.int64)
    ends = np.concatenate([heads, tails])
    if len(ends) and (ends.min() < 0 or ends.max() >= n_nodes):
        raise ShapeError(f"edges must join nodes 0 … {n_nodes - 1}, got {ends.min()} … {ends.max()}.")
    if not len(tails) == len(heads) == len(to_head) == len(to_tail):
        raise ShapeError(f"{len(tails)} edges need as many heads and groups.")
    order = np.argsort(ends, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    twin = np.concatenate([place[len(tails) :], place[: len(tails)]])
    group = np.concatenate([np.asarray(to_head, np.int64), np.asarray(to_tail, np.int64)])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ends, minlength=n_nodes))])
    other = np.concatenate([tails, heads])
    return Wiring(indptr.astype(np.int64), other[order], twin[order].astype(np.int64), group[order])


def advance(
    wiring: Wiring,
    local: np.ndarray,
    total: np.ndarray,
    messages: np.ndarray,
    tables: np.ndarray,
    *,
    maximise: bool = False,
    n_jobs: int = 1,
) -> Sweep:
    """One synchronous sweep from the totals (N, L) and messages (M, L) of the last, with tables (G, L, L) in logs.

    >>> wiring = wire(2, np.array([0]), np.array([1]), np.array([0]), np.array([0]))
    >>> local = np.log([[3.0, 1.0], [1.0, 1.0]])
    >>> sweep = advance(wiring, local, local, np.full((2, 2), 0.5), np.log([[[4.0, 1.0], [1.0, 4.0]]]))
    >>> sweep.evidence.tolist(), sweep.beliefs.round(3).tolist()
    ([[0.5, 0.5], [0.75, 0.25]], [[0.75, 0.25], [0.65, 0.35]])
    """
    local, total, messages, tables = (np.ascontiguousarray(x, np.float64) for x in (local, total, messages, tables))
    if local.ndim != 2 or len(local) != wiring.n_nodes or local.shape[1] < 1 or total.shape != local.shape:
        raise ShapeError(
            f"local and total scores must be ({wiring.n_nodes}, n_labels), got {local.shape} and {total.shape}."
        )
    labels = local.shape[1]
    if messages.shape != (wiring.n_messages, labels):
        raise ShapeError(f"messages must be ({wiring.n_messages}, {labels}), got {messages.shape}.")
    _check_groups(wiring, len(tables))
    if tables.ndim != 3 or tables.shape[1:] != (labels, labels):
        raise ShapeError(f"tables must be (n_groups, {labels}, {labels}), got {tables.shape}.")
    out = Sweep(np.empty_like(messages), np.empty_like(messages), np.empty_like(local), np.empty_like(local))
    body("virtual").advance(
        *_arrays(wiring), local, total, messages, np.exp(tables), *out, bool(maximise), max(1, int(n_jobs))
    )
    return out


def couple(
    wiring: Wiring,
    evidence: np.ndarray,
    weight: np.ndarray,
    response: np.ndarray,
    n_groups: int,
    *,
    squares: bool = False,
    n_jobs: int = 1,
) -> Sums:
    """The sums of the module's essay over all nodes, for each group, from weights and responses (N, L).

    >>> wiring = wire(2, np.array([0]), np.array([1]), np.array([0]), np.array([0]))
    >>> sums = couple(wiring, np.array([[1.0, 0.0], [0.75, 0.25]]), np.ones((2, 2)), np.array([[1.0, -1], [0, 0]]), 1)
    >>> sums.moment.tolist(), sums.mass.tolist()
    ([[[1.0, 0.0], [-1.0, 0.0]]], [[[1.75, 0.25], [1.75, 0.25]]])
    """
    evidence, weight, response = (np.ascontiguousarray(x, np.float64) for x in (evidence, weight, response))
    labels = weight.shape[1] if weight.ndim == 2 else 0
    if labels < 1 or len(weight) != wiring.n_nodes or response.shape != weight.shape:
        raise ShapeError(
            f"weight and response must be ({wiring.n_nodes}, n_labels), got {weight.shape} and {response.shape}."
        )
    if evidence.shape != (wiring.n_messages, labels):
        raise ShapeError(f"evidence must be ({wiring.n_messages}, {labels}), got {evidence.shape}.")
    _check_groups(wiring, n_groups)
    moment, mass = np.zeros((n_groups, labels, labels)), np.zeros((n_groups, labels, labels))
    square = np.zeros((n_groups, labels, labels, labels)) if squares else None
    body("virtual").couple(*_arrays(wiring), evidence, weight, response, moment, mass, square, max(1, int(n_jobs)))
    return Sums(moment, mass, square)


def _arrays(wiring: Wiring) -> tuple[np.ndarray, ...]:
    return wiring.indptr, wiring.other, wiring.mate, wiring.group


def _check_groups(wiring: Wiring, n_groups: int) -> None:
    if wiring.n_messages and not 0 <= wiring.group.min() <= wiring.group.max() < n_groups:
        raise ShapeError(f"there are {n_groups} tables, but messages ask for {wiring.group.max()}.")
