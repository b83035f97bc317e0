"""The linear scorer on graphs: weights times columns, and its adjoint.

    node_n(j)    = Σ_c x_nc W_k(c, j) + bias_k(j)                for a node n of kind k, −∞ for labels k does not have
    edge_e(i, j) = U_r0(i, j) + Σ_c x_ec U_rc(i, j)              for an edge e of relation r, −∞ where forbidden

Edges without features share one table for their relation, whatever their number, so plain relations cost nothing. All
the rest is a handful of matrix products: dense columns by BLAS, sparse ones by SciPy. Tied weights are spread over
the cells of their tables before the product and gathered after it, on matrices as small as the weights.

What does not depend on the weights is found once by `prepare`: rows of each kind, matrices, tables of the edges.
Hand the prepared batch to `score` and `pull` where they are called many times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, take_rows
from crfield.errors import ShapeError
from crfield.scoring.graph_layout import GraphLayout

__all__ = ["GraphScorer", "PreparedGraphs", "inverse_curvature"]

ROWS = 64  # added to together
FLAT = 1e-9  # of the largest curvature: no weight is taken to be flatter


@dataclass(frozen=True, eq=False)
class _Matrix:
    """Columns ready for products: X = [sparse | dense]."""

    sparse: Any  # scipy CSR (R, K), or None
    dense: np.ndarray | None  # (R, D), of double or of single precision

    @classmethod
    def of(cls, columns: Columns, sparse: tuple[int, int], dense: tuple[int, int]) -> _Matrix:
        """Of a range of the sparse columns and one of the dense, from rows that have no other."""
        table = block = None
        if sparse[1] > sparse[0]:
            from scipy.sparse import csr_array

            values = np.ones(len(columns.indices)) if columns.values is None else columns.values
            small = np.int32 if len(values) < 2**31 else np.int64
            entries = (values, (columns.indices - sparse[0]).astype(small), columns.indptr.astype(small))
            table = csr_array(entries, shape=(columns.n_rows, sparse[1] - sparse[0]))
        if dense[1] > dense[0] and columns.dense is not None:
            block = np.ascontiguousarray(columns.dense[:, dense[0] : dense[1]])
        return cls(table, block)

    def times(self, sparse: np.ndarray, dense: np.ndarray, out: np.ndarray) -> None:
        """out = X · [sparse; dense], matrices (K, M) and (D, M)."""
        if self.dense is None:
            out[...] = 0.0
        elif self.dense.dtype == out.dtype:
            np.dot(self.dense, dense, out=out)
        else:
            out[...] = self.dense @ dense.astype(self.dense.dtype)
        if self.sparse is not None:
            out += self.sparse @ sparse

    def transposed(self, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Xᵀ · gradient, its sparse (K, M) and its dense part (D, M)."""
        none = np.zeros((0, gradient.shape[1]))
        return (
            none if self.sparse is None else self.sparse.T @ gradient,
            none if self.dense is None else self.dense.T @ gradient.astype(self.dense.dtype, copy=False),
        )


@dataclass(frozen=True, eq=False)
class PreparedGraphs:
    """A batch with all that its scores need besides weights; see `GraphScorer.prepare`."""

    topology: Graphs
    rows: tuple[Any, ...]  # for each kind the numbers of its nodes, or a slice where they lie together
    node: tuple[_Matrix, ...]  # for each kind
    edge: tuple[_Matrix | None, ...]  # for each relation; None: one table for all of its edges
    first: np.ndarray  # (R + 1,) where the tables of each relation begin, and how many there are
    table: np.ndarray | None  # (E,) table of each edge, as in `Potentials`

    @property
    def n_tables(self) -> int:
        """T, at least one, since engines expect a table even where there are no edges."""
        return max(1, int(self.first[-1]))

    def single(self) -> PreparedGraphs:
        """The same with dense node columns of single precision: half the memory, and products in half the time.

        Scores and gradients are then exact to about six digits of the largest, which does for a tolerance of 1e-4.
        """
        node = (
            replace(some, dense=None if some.dense is None else some.dense.astype(np.float32)) for some in self.node
        )
        return replace(self, node=tuple(node))


@dataclass(frozen=True, eq=False)
class GraphScorer:
    """Scores of graphs that are sums of weights.

    ``score`` is linear in the weights (where it is finite) and ``pull`` is its transpose: for every direction v and
    gradient g, ⟨score(v), g⟩ = ⟨v, pull(g)⟩.

    >>> import numpy as np
    >>> from crfield.data.graphs.batch import GraphSchema, NodeKind, Relation
    >>> schema = GraphSchema((NodeKind("node", columns=(0, 2)),), (Relation("same", symmetric=True),))
    >>> batch = GraphBatch(Graphs([0, 2], [0], [1]), Columns.from_rows([[0], [1]], width=2), [0, 0], [0], (None,))
    >>> scorer = GraphScorer(GraphLayout.full(schema, [2], bias=False))
    >>> scores = scorer.score(np.arange(1.0, 8.0), batch)
    >>> scores.node.tolist(), scores.edge.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [[[5.0, 6.0], [6.0, 7.0]]])
    >>> scorer.pull(scores.node, np.array([[[0.25, 0.5], [0.125, 0.0]]]), batch)
    array([1.   , 2.   , 3.   , 4.   , 0.25 , 0.625, 0.   ])
    """

    layout: GraphLayout

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    def prepare(self, batch: GraphBatch | PreparedGraphs) -> PreparedGraphs:
        """The part of the work that does not depend on the weights; a prepared batch is returned as it is."""
        if isinstance(batch, PreparedGraphs):
            return batch
        schema = self.layout.schema
        self._check(batch)
        rows: list[Any] = []
        node = []
        for number, kind in enumerate(schema.kinds):
            if len(schema.kinds) == 1:
                rows.append(slice(0, len(batch.kind)))
                columns = batch.node
            else:
                at = batch.nodes_of(number)
                rows.append(slice(at[0], at[-1] + 1) if len(at) and at[-1] - at[0] + 1 == len(at) else at)
                columns = take_rows(batch.node, at)
            node.append(_Matrix.of(columns, kind.columns, kind.dense))
        counts: list[int] = []
        edge: list[_Matrix | None] = []
        table = np.zeros(batch.topology.n_edges, np.int64)
        for number, (relation, some) in enumerate(zip(schema.relations, batch.edge)):
            at = batch.edges_of(number)
            table[at] = sum(counts)
            if relation.has_features and some is not None:
                edge.append(_Matrix.of(some, (0, relation.n_columns), (0, relation.n_dense)))
                table[at] += np.arange(len(at))
                counts.append(len(at))
            else:
                edge.append(None)
                counts.append(1)
        first = np.cumsum([0, *counts])
        plain = first[-1] <= 1 or (first[-1] == len(table) and np.array_equal(table, np.arange(len(table))))
        return PreparedGraphs(batch.topology, tuple(rows), tuple(node), tuple(edge), first, None if plain else table)

    def score(self, weights: np.ndarray, batch: GraphBatch | PreparedGraphs) -> Potentials:
        """Potentials of a batch: node (N, L), and T edge tables, one for each plain relation and each other edge."""
        work = self.prepare(batch)
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        if weights.shape != (self.n_weights,):
            raise ShapeError(f"there must be {self.n_weights} weights, got an array of shape {weights.shape}.")
        return Potentials(
            self._node_scores(weights, work), self._edge_scores(weights, work), work.topology, work.table
        )

    def pull(self, node: np.ndarray, edge: np.ndarray, batch: GraphBatch | PreparedGraphs) -> np.ndarray:
        """A gradient in the shape of the potentials, as a gradient of the weights (W,).

        What stands in cells that score −∞ is never looked at, so it may be anything.
        """
        work, layout = self.prepare(batch), self.layout
        labels = layout.n_labels
        if node.shape != (work.topology.n_nodes, labels) or edge.shape != (work.n_tables, labels, labels):
            raise ShapeError(
                f"the gradient must be ({work.topology.n_nodes}, {labels}) and "
                f"({work.n_tables}, {labels}, {labels}), got {node.shape} and {edge.shape}."
            )
        out = np.zeros(self.n_weights)
        for kind, inner, cells, rows, matrix in zip(
            layout.schema.kinds, layout.nodes, layout.cells, work.rows, work.node
        ):
            some = np.ascontiguousarray(node[rows, : inner.n_labels])
            sparse, dense = matrix.transposed(some)
            if cells is not None:
                sparse = sparse.reshape(-1)[cells]
            out[layout.part[f"{kind.name}/node"]] = sparse.reshape(-1)
            out[layout.part[f"{kind.name}/dense"]] = dense.reshape(-1)
            if inner.bias:
                out[layout.part[f"{kind.name}/bias"]] = np.ones(len(some)) @ some
        flat = edge.reshape(work.n_tables, labels * labels)
        for number, features in enumerate(work.edge):
            name = layout.schema.relations[number].name
            some = flat[work.first[number] : work.first[number + 1]]
            # Each cell is a sum of its own, so that NaN in a forbidden one stays there and is left behind.
            with np.errstate(invalid="ignore", over="ignore"):
                parts = {"table": np.ones((1, len(some))) @ some}
                if features is not None:
                    parts["edge"], parts["edge_dense"] = features.transposed(some)
            for part, sums in parts.items():
                out[layout.part[f"{name}/{part}"]] = self._gathered(number, sums).reshape(-1)
        return out

    def _node_scores(self, weights: np.ndarray, work: PreparedGraphs) -> np.ndarray:
        layout = self.layout
        several = len(layout.nodes) > 1
        scores = np.full((work.topology.n_nodes, layout.n_labels), -np.inf) if several else None
        for kind, inner, cells, rows, matrix in zip(
            layout.schema.kinds, layout.nodes, layout.cells, work.rows, work.node
        ):
            labels = inner.n_labels
            sparse = weights[layout.part[f"{kind.name}/node"]]
            if cells is not None:
                spread = np.zeros(inner.n_columns * labels)
                spread[cells] = sparse
                sparse = spread
            sparse = sparse.reshape(inner.n_columns, labels)
            dense = weights[layout.part[f"{kind.name}/dense"]].reshape(inner.n_dense, labels)
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            some = np.empty((count, labels))
            matrix.times(sparse, dense, some)
            if inner.bias:
                _add_to_rows(some, weights[layout.part[f"{kind.name}/bias"]])
            if scores is None:
                return some
            scores[rows, :labels] = some
        return scores if scores is not None else np.zeros((0, layout.n_labels))

    def _edge_scores(self, weights: np.ndarray, work: PreparedGraphs) -> np.ndarray:
        layout, labels = self.layout, self.layout.n_labels
        scores = np.zeros((work.n_tables, labels * labels))
        for number, (relation, features) in enumerate(zip(layout.schema.relations, work.edge)):
            some = scores[work.first[number] : work.first[number + 1]]
            if features is not None:
                sparse = self._spread(number, weights[layout.part[f"{relation.name}/edge"]], relation.n_columns)
                dense = self._spread(number, weights[layout.part[f"{relation.name}/edge_dense"]], relation.n_dense)
                features.times(sparse, dense, some)
            _add_to_rows(some, self._spread(number, weights[layout.part[f"{relation.name}/table"]], 1)[0])
            closed = layout.tables[number].forbidden
            if closed.any():
                tail, head = np.nonzero(closed)
                some[:, tail * labels + head] = -np.inf
        return scores.reshape(work.n_tables, labels, labels)

    def _spread(self, relation: int, tied: np.ndarray, columns: int) -> np.ndarray:
        """Weights (C · P,) of C columns as cells (C, L · L), zero where a cell has no weight."""
        table, labels = self.layout.tables[relation], self.layout.n_labels
        tail, head = np.nonzero(table.tie >= 0)
        cells = np.zeros((columns, labels * labels))
        cells[:, tail * labels + head] = tied.reshape(columns, table.n_weights)[:, table.tie[tail, head]]
        return cells

    def _gathered(self, relation: int, cells: np.ndarray) -> np.ndarray:
        """The adjoint of `_spread`: (C, L · L) to (C, P), sums of the cells that share a weight."""
        table, labels = self.layout.tables[relation], self.layout.n_labels
        tail, head = np.nonzero(table.tie >= 0)
        tied = np.zeros((table.n_weights, len(cells)))
        np.add.at(tied, table.tie[tail, head], cells[:, tail * labels + head].T)
        return tied.T

    def _check(self, batch: GraphBatch) -> None:
        schema = self.layout.schema
        width = max((kind.columns[1] for kind in schema.kinds), default=0)
        n_dense = max((kind.dense[1] for kind in schema.kinds), default=0)
        if (batch.node.width, batch.node.n_dense) != (width, n_dense):
            raise ShapeError(
                f"the batch has {batch.node.width} sparse and {batch.node.n_dense} dense node columns, expected "
                f"{width} and {n_dense}. Was it made by another encoder?"
            )
        if len(batch.kind) and batch.kind.max() >= len(schema.kinds):
            raise ShapeError(f"the batch has nodes of kind {batch.kind.max()}, the model {len(schema.kinds)} kinds.")
        if len(batch.edge) != len(schema.relations):
            raise ShapeError(f"the batch has {len(batch.edge)} relations, expected {len(schema.relations)}.")
        for relation, columns in zip(schema.relations, batch.edge):
            found = (0, 0) if columns is None else (columns.width, columns.n_dense)
            if found != (relation.n_columns, relation.n_dense):
                raise ShapeError(
                    f"the edges of relation {relation.name!r} have {found[0]} sparse and {found[1]} dense columns, "
                    f"expected {relation.n_columns} and {relation.n_dense}. Was the batch made by another encoder?"
                )


def _add_to_rows(rows: np.ndarray, row: np.ndarray) -> None:
    """Add (M,) to every row of a contiguous (R, M), many rows at a stroke: NumPy is slow at loops of a few turns."""
    whole = len(rows) - len(rows) % ROWS
    strokes = rows[:whole].reshape(-1, ROWS * len(row))
    strokes += np.tile(row, ROWS)
    rows[whole:] += row


def inverse_curvature(scorer: GraphScorer, batch: GraphBatch, weights: np.ndarray, l2: float) -> np.ndarray:
    """(W,) 1 / (diagonal of the second derivative + l2) of independent nodes with the given weights.

        node weight (c, i)      Σ_n x_nc² p_n(i) (1 − p_n(i))
        edge weight (c, i, j)   Σ_e z_ec² q_e(i, j) (1 − q_e(i, j))        q_e(i, j) = p_tail(i) p_head(j)

    With it colours from 0 to 255 and tables of pairs are learnt at the same pace.
    """
    potentials = scorer.score(weights, batch)
    node = np.where(np.isfinite(potentials.node), potentials.node, -np.inf)
    p = np.exp(node - node.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    topology, tables = potentials.topology, potentials.tables
    q, count = np.zeros_like(potentials.edge), np.bincount(tables, minlength=len(potentials.edge))
    own = np.flatnonzero(count[tables] == 1)
    each = p[topology.tails[own]][:, :, None] * p[topology.heads[own]][:, None, :]
    q[tables[own]] = each * (1 - each)
    for table in np.flatnonzero(count > 1):
        shared = tables == table
        tail, head = p[topology.tails[shared]], p[topology.heads[shared]]
        q[table] = tail.T @ head - (tail**2).T @ head**2
    squares = replace(batch, node=_squared(batch.node), edge=tuple(c and _squared(c) for c in batch.edge))
    found = scorer.pull(p * (1 - p), q, squares) + l2
    return np.asarray(1.0 / np.maximum(found, FLAT * max(1.0, float(found.max(initial=0.0)))))


def _squared(columns: Columns) -> Columns:
    values = None if columns.values is None else columns.values**2
    dense = None if columns.dense is None else columns.dense**2
    return Columns(columns.indptr, columns.indices, columns.width, values, dense)
