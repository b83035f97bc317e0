"""Contract of the flow kernels: the smallest cut of a network, and the best of two labels for every node by one.

The compiled body grows trees from both ends of a network of doubles (Boykov & Kolmogorov 2004); the NumPy one hands
integers to SciPy's Dinic in rounds. Both say how far the cut they found can be from the smallest: what is called the
best is proven to be, up to the rounding of the sums.

Cost: on grids a little more than the number of arcs, and most of it in the first few paths; no threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.kernels import choice


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
    side = np.zeros(len(excess), np.uint8)
    gap = choice.body("flow").minimum_cut(
        *(np.ascontiguousarray(x, kind) for x, kind in ((excess, np.float64), (starts, np.int64), (ends, np.int64))),
        *(np.ascontiguousarray(x, np.float64) for x in (forward, back)),
        side,
    )
    return Cut(side.astype(bool), float(gap))


def best_states(
    node: np.ndarray, edge: np.ndarray, tables: np.ndarray, tails: np.ndarray, heads: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, float, float] | None:
    """The best of two labels (N, 2) for every node where all edges attract, by one cut; None where it is not so.

        max_x  Σ_n node_n(labels_n[x_n]) + Σ_e edge_{tables_e}(labels_tail[x_tail], labels_head[x_head])

    ``node`` (N, L) and ``edge`` (T, L, L) are read at the two labels only, where they must be finite; edge e has the
    table ``tables`` (E,). A node with one label twice has state 0. Comes with how far the score may be from the best,
    and the sum of the absolute values of all scores that were read.

    >>> import numpy as np
    >>> node, edge = np.array([[0.0, 3.0], [1.0, 0.0]]), np.array([[[2.0, 0.0], [0.0, 2.0]]])
    >>> both = np.array([[0, 1], [0, 1]])
    >>> found = best_states(node, edge, np.array([0]), np.array([0]), np.array([1]), both)
    >>> found[0].tolist(), found[1:]
    ([1, 1], (0.0, 8.0))
    >>> best_states(node, -edge, np.array([0]), np.array([0]), np.array([1]), both) is None
    True
    """
    state = np.zeros(len(node), np.uint8)
    simple, gap, magnitude = choice.body("flow").best_states(
        np.ascontiguousarray(node, np.float64),
        np.ascontiguousarray(edge, np.float64),
        *(np.ascontiguousarray(x, np.int64) for x in (tables, tails, heads, labels)),
        state,
    )
    return (state, float(gap), float(magnitude)) if simple else None
