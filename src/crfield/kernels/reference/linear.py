"""The linear kernels to read: sparse matrices of columns, weights as tables, inference from `chain_numpy`.

The compiled body keeps the same weights in hybrid rows and fuses scoring, inference and the pull-back for a few
sequences at a time; here each step is one NumPy or SciPy expression over the whole batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.kernels.reference import chain as chain_numpy

Part = tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]  # indptr, indices, values of sparse rows


class Model:
    """Where the weights of each part lie, and how flat weights become tables."""

    def __init__(
        self,
        labels: int,
        columns: int,
        feature_ptr: np.ndarray | None,
        feature_label: np.ndarray | None,
        n_dense: int,
        bias: bool,
        boundaries: bool,
        pairs: np.ndarray,
        edge_columns: int,
        edge_ptr: np.ndarray | None,
        edge_pair: np.ndarray | None,
        n_edge_dense: int,
        fixed_edge: np.ndarray | None = None,
        fixed_start: np.ndarray | None = None,
        fixed_end: np.ndarray | None = None,
    ) -> None:
        if labels < 1:
            raise ValueError("the number of labels must be at least one")
        self.fixed = _fixed(labels, fixed_edge, fixed_start, fixed_end)
        _check_lists("feature labels", feature_ptr, feature_label, columns, labels)
        _check_lists("edge feature pairs", edge_ptr, edge_pair, edge_columns, labels * labels)
        _check_lists("transition pairs", np.array([0, len(pairs)]), pairs, 1, labels * labels)
        self.labels, self.columns, self.n_dense = labels, columns, n_dense
        self.edge_columns, self.n_edge_dense = edge_columns, n_edge_dense
        self.bias, self.boundaries, self.pairs = bias, boundaries, np.asarray(pairs)
        square = labels * labels
        self.node_at = _flat_places(feature_ptr, feature_label, columns, labels)
        self.edge_at = _flat_places(edge_ptr, edge_pair, edge_columns, square)
        sizes = {
            "node": len(self.node_at),
            "dense": n_dense * labels,
            "bias": labels * bias,
            "start": labels * boundaries,
            "end": labels * boundaries,
            "pairs": len(self.pairs),
            "edge": len(self.edge_at),
            "edge_dense": n_edge_dense * square,
        }
        self.part: dict[str, slice] = {}
        at = 0
        for name, size in sizes.items():
            self.part[name] = slice(at, at + size)
            at += size
        self.n_weights = at
        self.edge_features = edge_columns > 0 or n_edge_dense > 0

    def node_table(self, w: np.ndarray) -> np.ndarray:
        """(A, L) weights of the sparse columns."""
        table = np.zeros(self.columns * self.labels)
        table[self.node_at] = w[self.part["node"]]
        return table.reshape(self.columns, self.labels)

    def pair_table(self, w: np.ndarray) -> np.ndarray:
        """(L, L) transition scores."""
        table = np.zeros(self.labels * self.labels)
        table[self.pairs] = w[self.part["pairs"]]
        return table.reshape(self.labels, self.labels) + self.fixed[0]

    def edge_table(self, w: np.ndarray) -> np.ndarray:
        """(AE, L·L) weights of the sparse edge columns."""
        square = self.labels * self.labels
        table = np.zeros(self.edge_columns * square)
        table[self.edge_at] = w[self.part["edge"]]
        return table.reshape(self.edge_columns, square)


def _fixed(labels: int, *tables: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Constants of pairs, first and last steps; zeros where there are none."""
    shapes = ((labels, labels), (labels,), (labels,))
    if all(table is None for table in tables):
        return np.zeros(shapes[0]), np.zeros(labels), np.zeros(labels)
    if any(table is None or table.shape != shape for table, shape in zip(tables, shapes)):
        raise ValueError("fixed scores do not fit the labels")
    edge, start, end = (np.asarray(table, dtype=np.float64) for table in tables)
    if not all((table < np.inf).all() for table in (edge, start, end)):
        raise ValueError("fixed scores must be finite or -inf")
    return edge, start, end


def _check_lists(what: str, ptr: np.ndarray | None, item: np.ndarray | None, columns: int, limit: int) -> None:
    """Refuse lists that are not rising numbers below the limit, one list for each column."""
    if (ptr is None) != (item is None):
        raise ValueError(f"{what} come with their offsets")
    if ptr is None or item is None:
        return
    good = len(ptr) == columns + 1 and ptr[0] == 0 and ptr[-1] == len(item) and bool((np.diff(ptr) >= 0).all())
    if good and len(item):
        first = np.zeros(len(item) + 1, dtype=bool)
        first[ptr] = True
        good = bool(item.min() >= 0 and item.max() < limit and (first[1:-1] | (np.diff(item) > 0)).all())
    if not good:
        raise ValueError(f"{what} must be sorted lists inside their range, one per column")


def _flat_places(ptr: np.ndarray | None, item: np.ndarray | None, columns: int, width: int) -> np.ndarray:
    """Place of every listed (column, item) in the full table of columns × width."""
    if ptr is None or item is None:
        return np.arange(columns * width)
    return np.repeat(np.arange(columns, dtype=np.int64), np.diff(ptr)) * width + item


class BatchArrays:
    """The arrays of a batch, with its sparse parts as SciPy matrices."""

    def __init__(
        self,
        offsets: np.ndarray,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray | None,
        dense: np.ndarray | None,
        edge_indptr: np.ndarray | None,
        edge_indices: np.ndarray | None,
        edge_values: np.ndarray | None,
        edge_dense: np.ndarray | None,
    ) -> None:
        chain_numpy.check_offsets(offsets)
        self.offsets = offsets
        self.node: Part = (indptr, indices, values)
        self.edge: Part = (edge_indptr, edge_indices, edge_values)
        self.dense, self.edge_dense = dense, edge_dense
        lengths = np.diff(offsets)
        self.firsts = offsets[:-1][lengths > 0]
        self.lasts = offsets[1:][lengths > 0] - 1
        self.heads = np.setdiff1d(np.arange(offsets[-1]), self.firsts)

    def check(self, model: Model) -> None:
        """Refuse a batch that does not fit the model; SciPy would read past the end of some of them."""
        nodes, edges = int(self.offsets[-1]), len(self.heads)
        parts: list[tuple[Part, int, int]] = [(self.node, nodes, model.columns)]
        if model.edge_columns:
            parts.append((self.edge, edges, model.edge_columns))
        for (indptr, indices, values), rows, columns in parts:
            if indptr is None or indices is None:
                raise ValueError("the model has edge columns, the batch has none")
            chain_numpy.check_rows(indptr, indices, rows, columns)
            if values is not None and values.shape != indices.shape:
                raise ValueError("values do not fit the indices")
        for dense, rows, width in ((self.dense, nodes, model.n_dense), (self.edge_dense, edges, model.n_edge_dense)):
            if width and (dense is None or dense.shape != (rows, width)):
                raise ValueError("a dense block does not fit")

    @staticmethod
    def matrix(part: Part, columns: int):  # type: ignore[no-untyped-def]
        """SciPy CSR matrix of one part."""
        from scipy.sparse import csr_matrix

        indptr, indices, values = part
        data = np.ones(len(indices)) if values is None else values  # type: ignore[arg-type]
        return csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, columns))  # type: ignore[arg-type]


def scores_of(model: Model, batch: BatchArrays, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Node and edge scores, see the contract for the formula."""
    node = batch.matrix(batch.node, model.columns) @ model.node_table(w)
    if model.n_dense:
        node = node + batch.dense @ w[model.part["dense"]].reshape(model.n_dense, model.labels)
    if model.bias:
        node = node + w[model.part["bias"]]
    if model.boundaries:
        node[batch.firsts] += w[model.part["start"]]
        node[batch.lasts] += w[model.part["end"]]
    node[batch.firsts] += model.fixed[1]
    node[batch.lasts] += model.fixed[2]
    edge = model.pair_table(w)[None]
    if model.edge_features:
        square = model.labels * model.labels
        extra = np.zeros((len(batch.heads), square))
        if model.edge_columns:
            extra += batch.matrix(batch.edge, model.edge_columns) @ model.edge_table(w)
        if model.n_edge_dense:
            extra += batch.edge_dense @ w[model.part["edge_dense"]].reshape(model.n_edge_dense, square)
        edge = edge + extra.reshape(-1, model.labels, model.labels)
    return node, edge


def pull(model: Model, batch: BatchArrays, node: np.ndarray, edge: np.ndarray, out: np.ndarray) -> None:
    """Gradient of the scores (same shapes) back to the weights, into ``out``."""
    batch.check(model)
    edges = len(batch.heads) if model.edge_features else 1
    if node.shape != (batch.offsets[-1], model.labels) or edge.shape != (edges, model.labels, model.labels):
        raise ValueError("the gradient does not fit the scores")
    _pull(model, batch, node, edge, out)


def _pull(model: Model, batch: BatchArrays, node: np.ndarray, edge: np.ndarray, out: np.ndarray) -> None:
    part = model.part
    out[part["node"]] = (batch.matrix(batch.node, model.columns).T @ node).reshape(-1)[model.node_at]
    if model.n_dense:
        out[part["dense"]] = (batch.dense.T @ node).reshape(-1)  # type: ignore[union-attr]
    if model.bias:
        out[part["bias"]] = node.sum(axis=0)
    if model.boundaries:
        out[part["start"]] = node[batch.firsts].sum(axis=0)
        out[part["end"]] = node[batch.lasts].sum(axis=0)
    out[part["pairs"]] = edge.sum(axis=0).reshape(-1)[model.pairs]
    flat = edge.reshape(len(edge), model.labels**2)
    if model.edge_columns:
        out[part["edge"]] = (batch.matrix(batch.edge, model.edge_columns).T @ flat).reshape(-1)[model.edge_at]
    if model.n_edge_dense:
        out[part["edge_dense"]] = (batch.edge_dense.T @ flat).reshape(-1)  # type: ignore[union-attr]


class Tagger:
    """Body of `crfield.kernels.linear.Tagger`."""

    def __init__(self, model: Model, w: np.ndarray) -> None:
        if len(w) != model.n_weights:
            raise ValueError("weights do not fit the model")
        self.model, self.w = model, w.copy()

    def decode(self, batch: BatchArrays, path: np.ndarray, total: np.ndarray, n_jobs: int) -> None:
        batch.check(self.model)
        node, edge = scores_of(self.model, batch, self.w)
        chain_numpy.max_product(batch.offsets, node, edge, total, path, n_jobs)

    def scores(self, batch: BatchArrays, node: np.ndarray, edge: np.ndarray, n_jobs: int) -> None:
        batch.check(self.model)
        node[:], edge[:] = scores_of(self.model, batch, self.w)


def best_labels(
    tagger: Tagger, labels: tuple[Any, ...], node: Part, dense: np.ndarray | None, edge: Part
) -> list[Any] | None:
    """Labels along the best path of the one sequence that has these columns; None where there is none."""
    steps = len(node[0]) - 1  # type: ignore[arg-type]
    path, total = np.zeros(steps, np.int32), np.zeros(1)
    tagger.decode(BatchArrays(np.array([0, steps]), *node, dense, *edge, None), path, total, 1)  # type: ignore[arg-type]
    return None if np.isneginf(total[0]) else [labels[code] for code in path.tolist()]


_BATCH = (
    "offsets",
    "indptr",
    "indices",
    "values",
    "dense",
    "edge_indptr",
    "edge_indices",
    "edge_values",
    "edge_dense",
)

_TYPES = {"offsets": "int64", "indptr": "int64", "indices": "int32", "edge_indptr": "int64", "edge_indices": "int32"}
_TYPES |= {"mask": "uint8", "labels": "int32", "width": "int32"}  # all others are doubles


class Workspace:
    """Body of `crfield.kernels.linear.Workspace`; calls work in memory of their own."""

    packing = "numpy 1"

    def __init__(self, model: Model) -> None:
        self.model = model


class Problem:
    """Body of `crfield.kernels.linear.Problem`: free total minus clamped total."""

    def __init__(
        self,
        model: Model,
        batch: BatchArrays,
        labels: np.ndarray,
        allowed: np.ndarray | None,
        weight: np.ndarray | None,
        group_width: int,
    ) -> None:
        batch.check(model)
        self.model, self.batch, self.labels = model, batch, labels
        sequences = len(batch.offsets) - 1
        if labels.shape != (batch.offsets[-1],):
            raise ValueError("labels do not fit the nodes")
        if len(labels) and (labels.min() < -1 or labels.max() >= model.labels):
            raise ValueError("label code out of range")
        if allowed is None and (labels < 0).any():
            raise ValueError("an unknown label needs the table of allowed labels")
        if allowed is not None and allowed.shape != (len(labels), model.labels):
            raise ValueError("allowed does not fit the nodes")
        if weight is not None and weight.shape != (sequences,):
            raise ValueError("weight does not fit the sequences")
        self.weight = np.ones(sequences) if weight is None else weight
        mask = np.zeros((len(labels), model.labels), dtype=bool)
        known = labels >= 0
        mask[known, labels[known]] = True
        if allowed is not None:
            mask[~known] = allowed[~known] != 0
        self.mask = mask
        self.node_weight = np.repeat(self.weight, np.diff(batch.offsets))[:, None]
        edges = np.maximum(np.diff(batch.offsets) - 1, 0)
        self.edge_weight = np.repeat(self.weight, edges)[:, None, None]
        lengths = np.diff(batch.offsets)
        partial = np.zeros(sequences, dtype=bool)
        partial[np.repeat(np.arange(sequences), lengths)[~known]] = True
        self.groups: list[np.ndarray] = []
        for kind in (~partial, partial):  # long sequences first, those of unknown labels apart
            some = np.flatnonzero(kind & (lengths > 0))
            some = some[np.argsort(-lengths[some], kind="stable")]
            self.groups += [some[k : k + group_width] for k in range(0, len(some), group_width)]

    @property
    def n_groups(self) -> int:
        return len(self.groups)

    def packed(self) -> dict[str, np.ndarray]:
        """The arrays as they were handed in, flat; nothing is regrouped here, only what is not there is left out."""
        batch = self.batch
        parts = (batch.offsets, *batch.node, batch.dense, *batch.edge, batch.edge_dense)
        made = {name: part.reshape(-1) for name, part in zip(_BATCH, parts) if part is not None}
        mask = self.mask.astype(np.uint8).reshape(-1)
        width = np.array([max(map(len, self.groups), default=1)], np.int32)
        return made | {"mask": mask, "labels": self.labels, "weight": self.weight, "width": width}

    @classmethod
    def restore(cls, workspace: Workspace, arrays: dict[str, np.ndarray], check: bool) -> Problem:
        """A problem of such arrays; everything is checked, whether asked for or not."""
        model, found = workspace.model, {name: arrays.get(name) for name in _BATCH}
        for name in ("offsets", "indptr", "indices", "mask", "labels", "weight", "width"):
            if name not in arrays:
                raise ValueError(f"packed array {name} is missing")
        for name, array in arrays.items():
            if array.ndim != 1 or array.dtype != _TYPES.get(name, "float64"):
                raise ValueError(f"packed array {name} is of another type")
        for name, columns in (("dense", model.n_dense), ("edge_dense", model.n_edge_dense)):
            block = found[name]
            if block is not None:
                if not columns or len(block) % columns:
                    raise ValueError("a packed dense block does not fit")
                found[name] = block.reshape(-1, columns)
        batch, labels, width = BatchArrays(**found), arrays["labels"], arrays["width"]  # type: ignore[arg-type]
        if len(arrays["mask"]) != len(labels) * model.labels or width.shape != (1,) or not 1 <= width[0] <= 64:
            raise ValueError("packed labels do not fit")
        mask = arrays["mask"].reshape(len(labels), model.labels)
        return cls(model, batch, labels, mask, arrays["weight"], int(width[0]))

    def _infer(self, node: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total = np.empty(len(self.weight))
        node_out = np.empty_like(node)
        edge_out = np.empty((len(self.edge_weight), *edge.shape[1:]))
        chain_numpy.sum_product(self.batch.offsets, node, edge, total, node_out, edge_out, True, 1)
        return total, node_out, edge_out

    def _check_sizes(self, *vectors: np.ndarray) -> None:
        if any(x.shape != (self.model.n_weights,) for x in vectors):
            raise ValueError("weights or gradient do not fit the model")

    def evaluate(self, w: np.ndarray, gradient: np.ndarray, n_jobs: int) -> float:
        self._check_sizes(w, gradient)
        node, edge = scores_of(self.model, self.batch, w)
        total, p, pairs = self._infer(node, edge)
        clamped, q, gold = self._infer(np.where(self.mask, node, -np.inf), edge)
        gradient[:] = 0.0
        _pull(self.model, self.batch, self.node_weight * (p - q), self.edge_weight * (pairs - gold), gradient)
        return float(self.weight @ (total - clamped))

    def evaluate_single(self, w: np.ndarray, gradient: np.ndarray, n_jobs: int) -> tuple[float, float]:
        """`evaluate`, which is the reference of single precision too."""
        return self.evaluate(w, gradient, n_jobs), 0.0

    def curvature(self, w: np.ndarray, out: np.ndarray, n_jobs: int) -> None:
        self._check_sizes(w, out)
        node, edge = scores_of(self.model, self.batch, w)
        _, p, pairs = self._infer(node, edge)
        spread = self.node_weight * (p - p * p)
        squares = BatchArrays(
            self.batch.offsets,
            *(_squared(self.batch.node)),  # type: ignore[arg-type]
            None if self.batch.dense is None else self.batch.dense**2,
            *(_squared(self.batch.edge)),
            None if self.batch.edge_dense is None else self.batch.edge_dense**2,
        )
        _pull(self.model, squares, spread, np.zeros_like(pairs), out)
        # expected transitions into a label share the label's variance in proportion
        counts = (self.edge_weight * pairs).sum(axis=0).reshape(-1)[self.model.pairs]
        variance, later = spread.sum(axis=0), self.model.pairs % self.model.labels
        into = np.bincount(later, counts, minlength=self.model.labels)[later]
        share = np.divide(counts, into, out=np.full(len(counts), 1 / self.model.labels), where=into > 0)
        out[self.model.part["pairs"]] = share * variance[later]
        out[self.model.part["edge"]] = variance.mean()
        out[self.model.part["edge_dense"]] = variance.mean()

    def descend(self, w: np.ndarray, order: np.ndarray, step: float, done: float, horizon: float, l2: float) -> float:
        if self.model.edge_features:
            raise ValueError("stochastic steps do not know edge features")
        self._check_sizes(w)
        if len(order) and (order.min() < 0 or order.max() >= self.n_groups):
            raise ValueError("group out of range")
        loss, gradient = 0.0, np.empty_like(w)
        for k, group in enumerate(order):
            eta = step / (1 + (done + k) / horizon)
            part = self.part(self.groups[group])
            loss += part.evaluate(w, gradient, 1)
            w *= 1 - min(0.5, eta * l2 / self.n_groups)
            w -= eta * gradient
        return loss

    def part(self, sequences: np.ndarray) -> Problem:
        """The same problem on some of its sequences."""
        offsets = self.batch.offsets
        rows = np.concatenate([np.arange(offsets[s], offsets[s + 1]) for s in sequences])
        matrix = self.batch.matrix(self.batch.node, self.model.columns)[rows]
        lengths = np.diff(offsets)[sequences]
        batch = BatchArrays(
            np.concatenate([[0], np.cumsum(lengths)]),
            matrix.indptr,
            matrix.indices,
            matrix.data,
            None if self.batch.dense is None else self.batch.dense[rows],
            None,
            None,
            None,
            None,
        )
        unknown = np.full(len(rows), -1)
        return Problem(self.model, batch, unknown, self.mask[rows], self.weight[sequences], len(sequences))


class Sums:
    """Body of `crfield.kernels.linear.Sums`: one evaluation after the other."""

    def __init__(self, workspace: Workspace, n_jobs: int) -> None:
        self.model, self.n_jobs, self.value = workspace.model, n_jobs, 0.0

    def begin(self, w: np.ndarray, gradient: np.ndarray) -> None:
        self.value, self.w, self.gradient, self.piece = 0.0, w, gradient, np.empty_like(w)
        self.gradient[:] = 0.0

    def add(self, problem: Problem) -> None:
        if problem.model is not self.model:
            raise ValueError("the problem is of another workspace")
        self.value += problem.evaluate(self.w, self.piece, self.n_jobs)
        self.gradient += self.piece

    def end(self) -> float:
        return self.value


def _squared(
    part: Part,
) -> Part:
    indptr, indices, values = part
    return indptr, indices, None if values is None else values**2


def observed(
    indptr: np.ndarray,
    indices: np.ndarray,
    rows: np.ndarray,
    items: np.ndarray,
    n_columns: int,
    n_items: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Body of `crfield.kernels.linear.observed`."""
    chain_numpy.check_rows(indptr, indices, len(indptr) - 1, n_columns)
    for numbers, limit in ((rows, len(indptr) - 1), (items, n_items)):
        if len(numbers) != len(rows) or (len(numbers) and (numbers.min() < 0 or numbers.max() >= limit)):
            raise ValueError("a row or an item is out of range")
    lengths = np.diff(indptr)[rows]
    starts = np.repeat(np.asarray(indptr)[rows] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    columns = indices[starts + np.arange(int(lengths.sum()))].astype(np.int64)
    keys = np.unique(columns * n_items + np.repeat(items, lengths))
    ptr = np.searchsorted(keys, np.arange(n_columns + 1, dtype=np.int64) * n_items)
    return ptr.astype(np.int64), (keys % n_items).astype(np.int32)
