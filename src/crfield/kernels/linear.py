"""Contract of the linear kernels: weights times columns, fused with inference on chains.

A *layout* says where each weight lives in one flat vector; any object with these attributes will do:

    n_labels, n_columns, n_dense, bias, boundaries, feature_ptr | None, feature_label | None, pairs,
    n_edge_columns, edge_ptr | None, edge_pair | None, n_edge_dense, n_weights, fixed | None

    [ node features | dense (D, L) | bias (L) | start (L) | end (L) | transitions (P) | edge features |
      edge dense (DE, L, L) ]

Node features are pairs (column, label), all of them when ``feature_ptr`` is None, else the labels
``feature_label[feature_ptr[k]:feature_ptr[k+1]]`` of column k. ``pairs`` are the transitions i·L + j that have a
weight, sorted; the others score 0. A *batch* has ``topology.offsets``, ``node`` and ``edge`` columns.

Scores are sums:

    node_n(j) = Σ_k x_nk W(k, j) + Σ_d X_nd V(d, j) + bias(j) + [n first] start(j) + [n last] end(j)
    edge_e(i, j) = T(i, j) + Σ_k x_ek U(k, i, j) + Σ_d X_ed Q(d, i, j)

plus the constants ``fixed.start`` (L,), ``fixed.end`` (L,) and ``fixed.edge`` (L, L), each finite or −∞, where there
are some. `pull` is the adjoint of the sums without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from crfield.errors import ShapeError
from crfield.kernels import choice


def layout_parts(layout: Any) -> tuple[Any, ...]:
    """A layout as the compiled models take it."""
    parts = (
        layout.n_labels,
        layout.n_columns,
        layout.feature_ptr,
        layout.feature_label,
        layout.n_dense,
        layout.bias,
        layout.boundaries,
        layout.pairs,
        layout.n_edge_columns,
        layout.edge_ptr,
        layout.edge_pair,
        layout.n_edge_dense,
    )
    return parts if layout.fixed is None else (*parts, layout.fixed.edge, layout.fixed.start, layout.fixed.end)


def batch_parts(batch: Any) -> tuple[Any, ...]:
    """A batch as the compiled models take it."""
    node, edge = batch.node, batch.edge
    ends = (None,) * 4 if edge is None else (edge.indptr, edge.indices, edge.values, edge.dense)
    return (batch.topology.offsets, node.indptr, node.indices, node.values, node.dense, *ends)


def _compile(layout: Any) -> Any:
    return choice.body("linear").Model(*layout_parts(layout))


def _arrays(batch: Any) -> Any:
    return choice.body("linear").BatchArrays(*batch_parts(batch))


def _check_output(name: str, x: np.ndarray, size: int) -> None:
    """Results written to a converted copy would be lost without a word."""
    if not isinstance(x, np.ndarray) or x.shape != (size,) or x.dtype != np.float64 or not x.flags.carray:
        raise ShapeError(
            f"{name} must be a writable, contiguous float64 array of shape ({size},) because results are written "
            f"to it, got {getattr(x, 'dtype', type(x).__name__)} of shape {np.shape(x)}."
        )


class Tagger:
    """A layout with weights, ready to score and decode; immutable, so several threads may share one."""

    def __init__(self, layout: Any, weights: np.ndarray) -> None:
        self._n_labels = layout.n_labels
        self._each = layout.n_edge_columns > 0 or layout.n_edge_dense > 0
        self._tagger = choice.body("linear").Tagger(_compile(layout), np.ascontiguousarray(weights, np.float64))

    def decode(self, batch: Any, *, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Best path of every sequence: ``path`` (N,) int32 and ``total`` (B,)."""
        path = np.zeros(batch.topology.n_nodes, dtype=np.int32)
        total = np.zeros(batch.topology.n_sequences)
        self._tagger.decode(_arrays(batch), path, total, max(1, n_jobs))
        return path, total

    def scores(self, batch: Any, *, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """``node`` (N, L) and ``edge`` (1, L, L), or (E, L, L) when edges have features."""
        labels = self._n_labels
        node = np.empty((batch.topology.n_nodes, labels))
        edge = np.empty((batch.topology.n_edges if self._each else 1, labels, labels))
        self._tagger.scores(_arrays(batch), node, edge, max(1, n_jobs))
        return node, edge


def pull(layout: Any, batch: Any, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """The adjoint of `Tagger.scores`: a gradient in the shape of the scores, pulled back to the weights (W,)."""
    out = np.zeros(layout.n_weights)
    choice.body("linear").pull(_compile(layout), _arrays(batch), node, edge, out)
    return out


class Workspace:
    """A compiled layout and the memory of calls, for problems of one layout that are made again and again."""

    def __init__(self, layout: Any) -> None:
        self.n_weights: int = layout.n_weights
        self._workspace = choice.body("linear").Workspace(_compile(layout))
        self.packing: str = self._workspace.packing  # which body packs, and the version of what it makes


class Problem:
    """Negative log-likelihood of a labelled batch, score, inference and gradient fused.

        value(w) = Σ_s weight_s (log Z_s − log Z_s restricted to the allowed labels)

    ``labels`` (N,) int32 with −1 where row n of ``allowed`` (N, L) decides; ``weight`` (B,) or None. Where fixed
    scores forbid all that is allowed there is no finite value: do not ask.
    """

    def __init__(
        self,
        layout: Any,
        batch: Any,
        labels: np.ndarray,
        allowed: np.ndarray | None,
        weight: np.ndarray | None,
    ) -> None:
        self.n_weights: int = layout.n_weights
        self.n_labels, self.n_pairs = int(layout.n_labels), len(layout.pairs)
        allowed = None if allowed is None else np.ascontiguousarray(allowed, dtype=np.uint8)
        # Many labels with few weighted transitions run sixteen sequences side by side, others eight.
        width = 16 if layout.n_labels >= 48 else 8
        self._problem = choice.body("linear").Problem(
            _compile(layout), _arrays(batch), labels, allowed, weight, width
        )

    def packed(self) -> dict[str, np.ndarray]:
        """What the batch became when it was packed: named flat arrays, which share the memory of the problem."""
        return dict(self._problem.packed())

    @classmethod
    def restore(cls, workspace: Workspace, arrays: dict[str, np.ndarray], *, check: bool = True) -> Self:
        """The problem that was `packed`, on these arrays and without a copy; ValueError where they do not fit.

        Without ``check`` only sizes are looked at: for arrays that were checked before and have not changed since.
        """
        made = cls.__new__(cls)
        made.n_weights = workspace.n_weights
        made._problem = choice.body("linear").Problem.restore(workspace._workspace, arrays, check)
        return made

    @property
    def body(self) -> Any:
        """The body of the problem, for kernels that share its packed data."""
        return self._problem

    @property
    def n_groups(self) -> int:
        """Number of groups of sequences; one stochastic step uses one."""
        return int(self._problem.n_groups)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray, *, n_jobs: int = 1) -> float:
        """The value; the gradient (W,) is overwritten."""
        _check_output("gradient", gradient, self.n_weights)
        return float(self._problem.evaluate(weights, gradient, max(1, n_jobs)))

    def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray, *, n_jobs: int = 1) -> tuple[float, float]:
        """`evaluate` in single precision but for sums: the value, and about how far off it may be.

        For columns that are there or not, and transitions spread over at most 30 nats; else, and in the NumPy body,
        everything is done in double precision, and the second number is zero.
        """
        _check_output("gradient", gradient, self.n_weights)
        value, error = self._problem.evaluate_single(weights, gradient, max(1, n_jobs))
        return float(value), float(error)

    def curvature(self, weights: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """About the diagonal of the second derivative (W,): Σ x² p (1 − p) for node features."""
        out = np.empty(self.n_weights)
        self._problem.curvature(weights, out, max(1, n_jobs))
        return out

    def descend(
        self,
        weights: np.ndarray,
        order: np.ndarray,
        *,
        step: float,
        done: float,
        horizon: float,
        l2: float,
    ) -> float:
        """Stochastic steps over the groups in ``order``, changing ``weights``; gives the loss met on the way.

        Step number n (counted from ``done``) has the size step / (1 + n / horizon) and works on the loss of one
        group plus its share l2 / n_groups of the ridge.
        """
        _check_output("weights", weights, self.n_weights)
        order = np.ascontiguousarray(order, dtype=np.int64)
        return float(self._problem.descend(weights, order, step, done, horizon, l2))


class Sums:
    """Evaluations over many problems of one workspace that come one after the other, such as shards.

    Weights are laid out once for all of them, and the gradient is put together once: Σ_p value_p(w) and its gradient.
    """

    def __init__(self, workspace: Workspace, *, n_jobs: int = 1) -> None:
        self._n_weights = workspace.n_weights
        self._sums = choice.body("linear").Sums(workspace._workspace, max(1, n_jobs))

    def evaluate(self, problems: Iterable[Problem], weights: np.ndarray, gradient: np.ndarray) -> float:
        """The value; the gradient (W,) is overwritten. ValueError for a problem of another workspace."""
        _check_output("gradient", gradient, self._n_weights)
        weights = np.ascontiguousarray(weights, np.float64)
        self._sums.begin(weights, gradient)
        for problem in problems:
            self._sums.add(problem._problem)
        return float(self._sums.end())


def observed(
    indptr: np.ndarray,
    indices: np.ndarray,
    rows: np.ndarray,
    items: np.ndarray,
    *,
    n_columns: int,
    n_items: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Which items each column is met with.

    Row ``rows[k]`` of the sparse rows (indptr, indices) is met with ``items[k]``. Returns ``ptr`` (n_columns + 1,)
    int64 and the sorted, different items of each column, int32.

    >>> import numpy as np
    >>> ptr, items = observed(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([0, 1, 1]),
    ...                       np.array([2, 0, 2], np.int32), n_columns=2, n_items=3)
    >>> ptr.tolist(), items.tolist()
    ([0, 1, 3], [2, 0, 2])
    """
    ptr, met = choice.body("linear").observed(
        np.ascontiguousarray(indptr, np.int64),
        np.ascontiguousarray(indices, np.int32),
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(items, np.int32),
        n_columns,
        n_items,
    )
    return ptr, met
