"""Contract of the virtual-evidence kernel: a sweep of messages, and all that a round of boosting asks of it.

Message s arrives at the node whose *place* it is: node n meets the places ``indptr[n]:indptr[n+1]``, ``other[s]`` is
the node it comes from, ``mate[s]`` the place of the message the other way, and ``group[s]`` says which table it is
read through, rows for the sender's label d, columns for the receiver's c. `listen` is one synchronous step of belief
propagation in probabilities, f being exp of the local scores up to a factor for each node,

    λ_s(d) ∝ b_other(d) / μ_mate(d)                           what the neighbour believes without n
    μ_s(c) ∝ Σ_d exp table_group(d, c) λ_s(d)                 (max_d when maximising), at least 1e-30
    b_n(c) ∝ f_n(c) Π_s μ_s(c)

then the working responses of the new beliefs, as `crfield.boosting.weak_learners.responses` has them,

    w = weight · max(b (1 − b), 1e-6)        z = clip((1[y = c] − b) / max(b (1 − b), 1e-6), ±limit)

(0 for unknown labels), and the sums of their regression on the neighbours of each group, with C_n = Σ_s λ_s:

    moment_g(c, d) = Σ_n w_nc z_nc C_n(d)           mass_g(c, d) = Σ_n w_nc C_n(d)
    square_g(c, d, e) = Σ_n w_nc (C_n(d) C_n(e) − Σ_s λ_s(d) λ_s(e))

All of it is one pass over the nodes, so that a round costs little more than one without neighbours: O(E L²), with
squares O(E L² + N L³), and no exponential or logarithm but those of the loss. Reference: Liao, Choudhury, Fox & Kautz
(2007, *Training conditional random fields using virtual evidence boosting*), equations 6 to 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice

FLOOR = 1e-30  # least share of a message, so that it can be divided out again


@dataclass(frozen=True, eq=False)
class Wiring:
    """Who hears whom: the messages of all edges, both ways, listed by the node at which they arrive."""

    indptr: np.ndarray  # (N + 1,) int64
    other: np.ndarray  # (M,) int32, the sender
    mate: np.ndarray  # (M,) int32, the place of the message the other way
    group: np.ndarray  # (M,) int32

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def n_messages(self) -> int:
        """M = 2 E."""
        return len(self.other)

    @cached_property
    def n_groups(self) -> int:
        """One more than the largest number of a group."""
        return int(self.group.max(initial=-1)) + 1

    @cached_property
    def _wires(self) -> dict[str, Any]:
        return {}

    @property
    def wires(self) -> Any:
        """The same as the chosen body holds it, all numbers looked at; made once."""
        if choice.chosen() not in self._wires:
            try:
                made = choice.body("virtual").Wires(self.indptr, self.other, self.mate, self.group)
            except ValueError as error:
                raise ShapeError(f"the wiring does not fit itself: {error}.") from None
            self._wires[choice.chosen()] = made
        return self._wires[choice.chosen()]


class Heard(NamedTuple):
    """What `listen` found. Of two labels ``pairs`` hold the second alone: the first has the same w and −w z."""

    messages: np.ndarray  # (M, L) μ, each summing to one
    beliefs: np.ndarray  # (N, L)
    pairs: np.ndarray  # (L, N, 2) of (w, w z), or (1, N, 2)
    loss: np.ndarray  # (2,) Σ −weight · log b(y) over taught and over held nodes
    moment: np.ndarray  # (G, L, L)
    mass: np.ndarray  # (G, L, L)
    square: np.ndarray | None  # (G, L, L, L) if asked for


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
    if len(ends) >= 2**31:
        raise ShapeError(f"{len(tails)} edges are more than one batch can hold.")
    group = np.concatenate([np.asarray(to_head, np.int32), np.asarray(to_tail, np.int32)])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ends, minlength=n_nodes))])
    other = np.concatenate([tails, heads])
    numbers = (other[order].astype(np.int32), twin[order].astype(np.int32), group[order])
    return Wiring(indptr.astype(np.int64), *numbers)


def listen(
    wiring: Wiring,
    local: np.ndarray,
    beliefs: np.ndarray,
    messages: np.ndarray,
    tables: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray,
    *,
    held: np.ndarray | None = None,
    limit: float = 4.0,
    maximise: bool = False,
    squares: bool = False,
    out: Heard | None = None,
    n_jobs: int = 1,
) -> Heard:
    """A sweep from the beliefs (N, L) and messages (M, L) of the last, with tables (G, L, L) in logs.

    ``local`` (N, L) are exp of the local scores, 0 for labels that a node does not have. ``labels`` (N,) are codes,
    −1 where unknown, ``weight`` (N,) weights of the nodes; ``held`` (N,) marks those that count in the loss alone.
    The large arrays of ``out``, an answer that is no longer needed, are used again: new memory costs as much time as
    the sweep itself.

    >>> wiring = wire(2, np.array([0]), np.array([1]), np.array([0]), np.array([0]))
    >>> local = np.array([[0.75, 0.25], [0.5, 0.5]])
    >>> found = listen(wiring, local, local, np.full((2, 2), 0.5), np.log([[[4.0, 1.0], [1.0, 4.0]]]),
    ...                np.array([0, 1]), np.ones(2))
    >>> found.messages.round(3).tolist(), found.beliefs.round(3).tolist()
    ([[0.5, 0.5], [0.65, 0.35]], [[0.75, 0.25], [0.65, 0.35]])
    >>> found.pairs.round(3).tolist()
    [[[0.188, -0.25], [0.227, 0.65]]]
    """
    local, beliefs, messages, tables, weight = (
        np.ascontiguousarray(x, np.float64) for x in (local, beliefs, messages, tables, weight)
    )
    nodes = wiring.n_nodes
    if local.ndim != 2 or len(local) != nodes or local.shape[1] < 1 or beliefs.shape != local.shape:
        raise ShapeError(f"local and beliefs must be ({nodes}, n_labels), got {local.shape} and {beliefs.shape}.")
    n_labels = local.shape[1]
    if messages.shape != (wiring.n_messages, n_labels):
        raise ShapeError(f"messages must be ({wiring.n_messages}, {n_labels}), got {messages.shape}.")
    if tables.ndim != 3 or tables.shape[1:] != (n_labels, n_labels):
        raise ShapeError(f"tables must be (n_groups, {n_labels}, {n_labels}), got {tables.shape}.")
    if wiring.n_groups > len(tables):
        raise ShapeError(f"there are {len(tables)} tables, but messages ask for number {wiring.n_groups - 1}.")
    labels = np.ascontiguousarray(labels, np.int64)
    if labels.shape != (nodes,) or weight.shape != (nodes,):
        raise ShapeError(f"labels and weight must be ({nodes},), got {labels.shape} and {weight.shape}.")
    outside = np.zeros(nodes, np.uint8) if held is None else np.ascontiguousarray(held, np.uint8)
    if outside.shape != (nodes,):
        raise ShapeError(f"held must be ({nodes},), got {outside.shape}.")
    if out is None or out.messages.shape != messages.shape or out.beliefs.shape != beliefs.shape:
        shape = (1 if n_labels == 2 else n_labels, nodes, 2)
        large = (np.empty_like(messages), np.empty_like(local), np.empty(shape))
    elif out.messages is messages or out.beliefs is beliefs or out.beliefs is local:
        raise ShapeError("out must not hold the messages or beliefs that are read.")
    else:
        large = out[:3]
    cube = (len(tables), n_labels, n_labels)
    made = Heard(
        *large,
        np.zeros(2),
        np.zeros(cube),
        np.zeros(cube),
        np.zeros((*cube, n_labels)) if squares else None,
    )
    try:
        choice.body("virtual").listen(
            wiring.wires,
            local,
            beliefs,
            messages,
            np.exp(tables),
            labels,
            weight,
            outside,
            *made,
            float(limit),
            bool(maximise),
            max(1, int(n_jobs)),
        )
    except ValueError as error:
        raise ShapeError(
            f"labels must lie in -1 … {n_labels - 1}, got {labels.min()} … {labels.max()} ({error})."
        ) from None
    return made


def scale(local: np.ndarray, beliefs: np.ndarray, codes: np.ndarray, factors: np.ndarray) -> None:
    """Multiply row n of both (N, L) by ``factors[codes[n]]``, in place: one more weak learner.

    >>> local, beliefs = np.ones((2, 2)), np.full((2, 2), 0.5)
    >>> scale(local, beliefs, np.array([1, 0]), np.array([[1.0, 1.0], [3.0, 2.0]]))
    >>> local.tolist(), beliefs.tolist()
    ([[3.0, 2.0], [1.0, 1.0]], [[1.5, 1.0], [0.5, 0.5]])
    """
    factors = np.ascontiguousarray(factors, np.float64)
    codes = np.ascontiguousarray(codes, codes.dtype if codes.dtype == np.uint16 else np.int64)
    if local.shape != beliefs.shape or codes.shape != local.shape[:1] or factors.shape[1:] != local.shape[1:]:
        raise ShapeError(
            f"local, beliefs, codes and factors do not fit: {local.shape}, {beliefs.shape}, {codes.shape} and "
            f"{factors.shape}."
        )
    choice.body("virtual").scale(local, beliefs, codes, factors)
