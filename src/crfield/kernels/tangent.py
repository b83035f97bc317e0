"""How beliefs of chains change with the scores: the contract.

Marginals are expectations of indicators, and the derivative of an expectation along a direction d of the scores is a
covariance,

    dp_t(j) = Cov(1[y_t = j], D(y))        dq_t(i, j) = Cov(1[y_{t-1} = i, y_t = j], D(y))
    D(y) = Σ_t node_dot_t(y_t) + Σ_t edge_dot_t(y_{t-1}, y_t)

so the result is symmetric: ⟨e, tangent(d)⟩ = ⟨d, tangent(e)⟩. That makes one sweep serve two ends. Along a direction
of the weights it is a product with the second derivative of log Z (Pearlmutter 1994, *Fast exact multiplication by
the Hessian*); along a function of single labels it is the gradient of that function's expectation.

The marginals themselves tell all that is needed, since given them the labels are a Markov chain:

    a_t(j) = node_dot_t(j) + Σ_i q_t(i, j) (a_{t-1}(i) + edge_dot_t(i, j)) / p_t(j)
    b_{t-1}(i) = Σ_j q_t(i, j) (edge_dot_t(i, j) + node_dot_t(j) + b_t(j)) / p_{t-1}(i)
    dq_t(i, j) = q_t(i, j) (a_{t-1}(i) + edge_dot_t(i, j) + node_dot_t(j) + b_t(j) − mean)

Here a_t(j) is the expectation of D up to step t given y_t = j, and b_t(j) that of the rest. Any constant may be taken
off a and b, so both are kept centred and chains of any length lose no digits. O(E L²) time; forbidden labels and
pairs have no probability and take no part.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels import choice


def belief_tangent(
    offsets: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    node_dot: np.ndarray,
    edge_dot: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    each: bool = False,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of marginals ``node`` (N, L) and ``edge`` (E, L, L) along finite directions of the scores.

    ``edge_dot`` is (E, L, L), or (1, L, L) for all edges. ``weight`` (B,) multiplies what belongs to each sequence.
    Returns (N, L) and, with ``each``, (E, L, L), otherwise the sum over all edges (1, L, L).

    >>> p, q = np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([[[0.25, 0.25], [0.0, 0.5]]])
    >>> dp, dq = belief_tangent(np.array([0, 2]), p, q, np.array([[1.0, 0.0], [0.0, 0.0]]), np.zeros((1, 2, 2)))
    >>> dp.tolist(), dq.tolist()
    ([[0.25, -0.25], [0.125, -0.125]], [[[0.125, 0.125], [0.0, -0.25]]])
    """
    offsets = np.ascontiguousarray(offsets, np.int64)
    node, edge, node_dot, edge_dot = (np.ascontiguousarray(x, np.float64) for x in (node, edge, node_dot, edge_dot))
    weight = np.ones(max(len(offsets) - 1, 0)) if weight is None else np.ascontiguousarray(weight, np.float64)
    if node.ndim != 2 or edge.ndim != 3 or node_dot.ndim != 2 or edge_dot.ndim != 3 or weight.ndim != 1:
        raise ValueError("marginals and directions must be (N, L) and (E, L, L), and weights (B,)")
    node_out = np.zeros_like(node)
    edge_out = np.zeros((len(edge) if each else 1, *edge.shape[1:]))
    choice.body("tangent").belief_tangent(
        offsets, node, edge, node_dot, edge_dot, weight, node_out, edge_out, each, max(1, int(n_jobs))
    )
    return node_out, edge_out


def pair_marginals(
    offsets: np.ndarray, score: np.ndarray, table: np.ndarray, node: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Marginals of every pair (E, L, L), from node scores (N, L), one table (L, L) and node marginals (N, L).

        q_t(i, j) = p_t(j) α_{t-1}(i) e^table(i, j) / Σ_i' α_{t-1}(i') e^table(i', j)

    which takes no exponential for each pair. Also ``hard`` (B,) bool: where scores lie so far apart that α leaves the
    range of doubles; the pairs of those sequences are not valid.

    >>> q, hard = pair_marginals(np.array([0, 2]), np.zeros((2, 2)), np.log([[2.0, 1.0], [1.0, 2.0]]),
    ...                          np.full((2, 2), 0.5))
    >>> q.round(6).tolist(), hard.tolist()
    ([[[0.333333, 0.166667], [0.166667, 0.333333]]], [False])
    """
    offsets = np.ascontiguousarray(offsets, np.int64)
    score, table, node = (np.ascontiguousarray(x, np.float64) for x in (score, table, node))
    if score.ndim != 2 or table.ndim != 2 or node.ndim != 2 or offsets.ndim != 1 or len(offsets) < 1:
        raise ValueError("scores and marginals do not fit the chains")
    edges = int(np.maximum(np.diff(offsets) - 1, 0).sum())
    out, hard = np.empty((edges, node.shape[1], node.shape[1])), np.zeros(len(offsets) - 1, dtype=np.uint8)
    choice.body("tangent").pair_marginals(offsets, score, table, node, out, hard, max(1, int(n_jobs)))
    return out, hard.astype(bool)
