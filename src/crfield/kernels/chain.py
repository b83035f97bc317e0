"""Contract of the chain kernels: sum-product and max-product over ragged batches.

Both take ``offsets`` (B + 1,) of sequences lying end to end, ``node`` scores (N, L) and ``edge`` scores, either
one shared table (1, L, L) or one for every edge (E, L, L). Scores are finite or −∞. Nothing is kept between
calls, so many threads may call at once.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels import choice


def _arrays(offsets: np.ndarray, node: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments as the kernels read them; outputs are then made in the same order of memory."""
    offsets = np.ascontiguousarray(offsets, np.int64)
    return offsets, np.ascontiguousarray(node, np.float64), np.ascontiguousarray(edge, np.float64)


def sum_product(
    offsets: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    *,
    each: bool = False,
    weight: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log Z of every sequence, node marginals and edge marginals.

        total_s = log Σ_y exp(Σ_t node_t(y_t) + Σ_t edge_t(y_{t-1}, y_t))

    Returns ``total`` (B,), ``node`` (N, L) and ``edge``: with one shared table the expected number of uses of
    each pair over the whole batch (1, L, L), otherwise, or with ``each``, the marginals of every edge (E, L, L).
    A sequence in which every path is forbidden has the total −∞ and marginals of zero. With ``weight`` (B,), finite,
    all marginals of sequence s are multiplied by ``weight[s]``: the gradient of Σ_s weight_s total_s.

    >>> import numpy as np
    >>> total, p, pairs = sum_product(np.array([0, 2]), np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)))
    >>> float(np.exp(total[0]).round(12)), p.round(12).tolist()
    (8.0, [[0.25, 0.75], [0.5, 0.5]])
    """
    offsets, node, edge = _arrays(offsets, node, edge)
    labels = node.shape[1]
    lengths = np.diff(offsets)
    edges = int(np.maximum(lengths - 1, 0).sum())
    each = each or len(edge) != 1
    total = np.empty(len(offsets) - 1)
    node_out = np.empty_like(node)
    edge_out = np.zeros((edges if each else 1, labels, labels))
    weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
    choice.body("chain").sum_product(offsets, node, edge, total, node_out, edge_out, each, max(1, n_jobs), weight)
    return total, node_out, edge_out


def max_product(
    offsets: np.ndarray, node: np.ndarray, edge: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Score and labels of the best path of every sequence: ``total`` (B,), ``path`` (N,) int32.

    Of several best paths the one is taken whose last label is smallest, then the one before it, and so on.

    >>> import numpy as np
    >>> max_product(np.array([0, 2]), np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[[2.0, 0.0], [0.0, 0.0]]]))
    (array([2.]), array([0, 0], dtype=int32))
    """
    offsets, node, edge = _arrays(offsets, node, edge)
    total = np.empty(len(offsets) - 1)
    path = np.zeros(len(node), dtype=np.int32)
    choice.body("chain").max_product(offsets, node, edge, total, path, max(1, n_jobs))
    return total, path
