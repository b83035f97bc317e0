"""Which cliques a kernel model is made of: greedy selection by the functional gradient.

By the representer theorem the best scores of a kernel field are sums over the cliques of the training data,

    f(x, y) = Σ_c α_c(y) k(x_c, x)

with as many terms as there are training nodes. Most of them are not needed. Lafferty, Zhu & Liu (2004, *Kernel
conditional random fields: representation and clique selection*) take them up one after another: the clique whose
kernel points most steeply downhill joins, the coefficients are fitted again, and so on. Here a clique is a node, and
takes all its labels along.

The slope of the penalised loss along k(c, ·) for label y is

    s_c(y) = Σ_n G_n(y) k(x_n, c) + l2 f_y(c)              G the gradient of the loss in the node scores

Only the part of k(c, ·) outside the present span is new. With φ the orthonormal columns of the span, which grow by
Gram and Schmidt (an incomplete Cholesky factor: Fine & Scheinberg 2001), the slope along it is

    Σ_n G_n(y) k(x_n, c) − φ(c) · Σ_n φ(x_n) G_n(y)        divided by its length, √(k(c, c) − ‖φ(c)‖²)

At the optimum of the span the two slopes are the same; short of it the first also shows what is left to gain within
the span, and over a small length that would look like much: cliques that are nearly there already would join.

A round looks at a sample of candidates and takes ``per_round`` of them one by one; each takes from the others' slopes
what it has in common with them, so that they are not all of a kind. Cost of a round: a Gram block of candidates and
nodes, and a fit from where the last one ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crfield.errors import InputError
from crfield.features.columns.random_features import Landmarks, distinct

SPENT = 1e-8  # a clique with less than this share of its squared length outside the span is in it


class Similar(Protocol):
    """A kernel with its diagonal."""

    def gram(self, rows: Any, others: Any) -> np.ndarray:
        """(R, M) similarities."""
        ...

    def diagonal(self, rows: Any) -> np.ndarray:
        """(R,) of each row and itself."""
        ...


@dataclass(frozen=True, eq=False)
class Refit:
    """A model fitted on the present columns: its objective, and the gradient of its loss in the node scores."""

    value: float
    node: np.ndarray  # (N, L)
    state: Any = None  # whatever the next fit starts from


@dataclass(frozen=True)
class CliqueRound:
    """A round: its number, the objective before it, the steepest slope met, and the nodes that joined."""

    number: int
    objective: float
    slope: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Cliques:
    """What was selected: the nodes in the order they joined, their map, and the history."""

    nodes: np.ndarray  # (M,)
    landmarks: Landmarks
    rounds: list[CliqueRound]


def select_cliques(
    similarity: Similar,
    rows: Any,
    refit: Callable[[np.ndarray, Any], Refit],
    *,
    n_cliques: int,
    per_round: int = 1,
    n_candidates: int = 500,
    rng: np.random.Generator,
    watch: Callable[[CliqueRound], bool | None] | None = None,
) -> Cliques:
    """Up to ``n_cliques`` of the rows (N, K), greedily.

    ``refit(columns, state)`` fits a model on columns (N, D), starting from the state of the last fit (None at first).
    ``watch`` is told of every round and ends the selection by returning True.

    >>> class Plain:
    ...     def gram(self, rows, others):
    ...         return rows @ others.T
    ...     def diagonal(self, rows):
    ...         return (rows**2).sum(axis=1)
    >>> rows, wanted = np.eye(3), np.array([[0.0], [3.0], [1.0]])
    >>> def squares(columns, state):
    ...     coef = np.linalg.lstsq(columns, wanted, rcond=None)[0]
    ...     left = columns @ coef - wanted
    ...     return Refit(float((left**2).sum()), left)
    >>> select_cliques(Plain(), rows, squares, n_cliques=2, rng=np.random.default_rng(0)).nodes.tolist()
    [1, 2]
    """
    if min(n_cliques, per_round, n_candidates) < 1:
        raise InputError(
            f"the numbers of cliques, cliques per round and candidates must be ≥ 1, got {n_cliques}, {per_round} and "
            f"{n_candidates}."
        )
    n = rows.shape[0]
    pool = distinct(rows)
    most = min(n_cliques, len(pool))
    columns, chosen = np.zeros((n, most)), np.zeros(0, np.int64)
    diary: list[CliqueRound] = []
    found = refit(columns[:, :0], None)
    while len(chosen) < most and len(pool):
        size = len(chosen)
        some = np.sort(rng.permutation(pool)[:n_candidates])
        own = similarity.diagonal(rows[some])
        outside = own - np.einsum("pd,pd->p", columns[some, :size], columns[some, :size])
        least = SPENT * np.maximum(own, 1e-300)
        spent = outside <= least
        if spent.any():
            pool = np.setdiff1d(pool, some[spent])
            some, outside, least = some[~spent], outside[~spent], least[~spent]
            if not len(some):
                continue
        block = similarity.gram(rows[some], rows)  # (P, N)
        slope = block @ found.node - columns[some, :size] @ (columns[:, :size].T @ found.node)
        joined, steepest = _joined(
            columns, size, some, block, slope, outside, least, most=min(per_round, most - size)
        )
        if not len(joined):
            pool = np.setdiff1d(pool, some)
            continue
        diary.append(CliqueRound(len(diary) + 1, found.value, steepest, tuple(joined.tolist())))
        chosen = np.concatenate([chosen, joined])
        pool = np.setdiff1d(pool, joined)
        if watch is not None and watch(diary[-1]):
            break
        if len(chosen) < most:
            found = refit(columns[:, : len(chosen)], found.state)
    lower = columns[chosen, : len(chosen)]
    whiten = np.linalg.inv(lower).T if len(chosen) else np.zeros((0, 0))
    return Cliques(chosen, Landmarks(similarity, rows[chosen], np.ascontiguousarray(whiten)), diary)


def _joined(
    columns: np.ndarray,
    size: int,
    some: np.ndarray,
    block: np.ndarray,
    slope: np.ndarray,
    outside: np.ndarray,
    least: np.ndarray,
    *,
    most: int,
) -> tuple[np.ndarray, float]:
    """Take up to ``most`` of the candidates ``some`` (P,) by their slopes (P, L) over lengths √``outside`` (P,).

    A candidate with no more than ``least`` (P,) outside the span is in it. ``block`` (P, N) is their Gram rows; their
    orthonormal columns are written behind the first ``size``. Returns the nodes that joined and the steepest slope.
    """
    slope, outside = slope.copy(), outside.copy()
    taken: list[int] = []
    steepest = 0.0
    for _ in range(most):
        left = outside > least
        steepness = np.where(left, (slope**2).sum(axis=1) / np.where(left, outside, 1.0), -1.0)
        best = int(steepness.argmax())
        if steepness[best] < 0:
            break
        node = int(some[best])
        new = block[best] - columns[:, :size] @ columns[node, :size]
        if new[node] <= least[best]:
            outside[best] = 0.0  # by rounding: it is in the span
            continue
        if not taken:
            steepest = float(np.sqrt(steepness[best]))
        columns[:, size] = new / np.sqrt(new[node])
        there = columns[some, size]
        slope -= np.outer(there, slope[best] / there[best])
        outside -= there**2
        outside[best] = 0.0
        taken.append(node)
        size += 1
    return np.array(taken, dtype=np.int64), steepest
