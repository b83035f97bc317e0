"""Where each weight of a graph model lives in the flat vector that optimisers see.

    [ for each kind k:      node features | dense (D, L_k) | bias (L_k)
      for each relation r:  table (P) | edge features (K, P) | edge dense (D, P) ]

The part of a kind is a `Layout` without transitions: pairs (column, label), all of them or those observed in
training. A relation's score table has a row for each label of its tail's kind and a column for each of its head's.
Its P different numbers are *tied* to the cells of the table:

    full, directed    one weight for each pair (i, j)
    full, symmetric   one weight for (i, j) and (j, i) together
    potts             one weight for equal labels, and none for the others, which score 0

A forbidden pair scores −∞ and has no weight. Where the edges of a relation have features there is one more table for
each edge column. With one kind and one directed relation the vector is that of a chain's `Layout` without boundary
scores, with all transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.target import UNKNOWN, Target
from crfield.data.graphs.batch import GraphBatch, GraphSchema, Relation, take_rows
from crfield.errors import InputError, ModelFileError
from crfield.kernels import linear
from crfield.scoring.layout import Layout

TABLES = ("full", "potts")
PAIRS = ("observed", "all")


@dataclass(frozen=True, eq=False)
class PairTable:
    """Which weight scores each pair of labels of a relation.

    >>> PairTable.of(Relation("same", symmetric=True), 2, 2).tie.tolist()
    [[0, 1], [1, 2]]
    >>> PairTable.of(Relation("next"), 2, 2, forbidden=[(1, 0)]).tie.tolist()
    [[0, 1], [-1, 2]]
    """

    form: str
    tie: np.ndarray  # (L_tail, L_head) int32: the weight of each cell, −1 where it has none
    forbidden: np.ndarray  # (L_tail, L_head) bool

    @property
    def n_weights(self) -> int:
        """P."""
        return int(self.tie.max(initial=-1)) + 1

    @classmethod
    def of(
        cls,
        relation: Relation,
        n_tail: int,
        n_head: int,
        *,
        form: str = "full",
        forbidden: Iterable[tuple[int, int]] = (),
    ) -> PairTable:
        """The table of a relation between kinds of ``n_tail`` and ``n_head`` labels."""
        if form not in TABLES:
            raise InputError(f"relation {relation.name!r}: the table must be 'full' or 'potts', got {form!r}.")
        if form == "potts" and relation.tail != relation.head:
            raise InputError(
                f"relation {relation.name!r} joins two kinds of nodes, whose labels are not the same, so none of "
                "them can be equal. Use the table 'full'."
            )
        cells = np.arange(n_tail * n_head).reshape(n_tail, n_head)
        if form == "potts":
            cells = np.where(np.eye(n_tail, dtype=bool), 0, -1)
        elif relation.symmetric:
            cells = np.minimum(cells, cells.T)
        closed = np.zeros((n_tail, n_head), dtype=bool)
        for i, j in forbidden:
            if not (0 <= i < n_tail and 0 <= j < n_head):
                raise InputError(
                    f"relation {relation.name!r}: the pair ({i}, {j}) cannot be forbidden in a table of "
                    f"{n_tail} × {n_head} labels."
                )
            closed[i, j] = True
            if relation.symmetric:
                closed[j, i] = True
        open_cells = (cells >= 0) & ~closed
        tie = np.full((n_tail, n_head), -1, np.int32)
        tie[open_cells] = np.unique(cells[open_cells], return_inverse=True)[1].reshape(-1)
        return cls(form, tie, closed)


@dataclass(frozen=True, eq=False)
class GraphLayout:
    """The parts of the weight vector of a graph model.

    >>> from crfield.data.graphs.batch import NodeKind
    >>> schema = GraphSchema((NodeKind("node", dense=(0, 3)),), (Relation("same", symmetric=True),))
    >>> layout = GraphLayout.full(schema, [2])
    >>> layout.n_weights, layout.part
    (11, {'node/node': slice(0, 0, None), 'node/dense': slice(0, 6, None), 'node/bias': slice(6, 8, None),
    'same/table': slice(8, 11, None), 'same/edge': slice(11, 11, None), 'same/edge_dense': slice(11, 11, None)})
    """

    schema: GraphSchema
    nodes: tuple[Layout, ...]  # one for each kind
    tables: tuple[PairTable, ...]  # one for each relation

    @property
    def sizes(self) -> tuple[int, ...]:
        """L_k, the number of labels of each kind."""
        return tuple(layout.n_labels for layout in self.nodes)

    @property
    def n_labels(self) -> int:
        """L, the largest number of labels of a kind."""
        return max(self.sizes)

    @cached_property
    def part(self) -> dict[str, slice]:
        """Slices of the flat vector: ``kind/node|dense|bias`` and ``relation/table|edge|edge_dense``."""
        parts: dict[str, slice] = {}
        end = 0
        for kind, layout in zip(self.schema.kinds, self.nodes):
            for name in ("node", "dense", "bias"):
                inner = layout.part[name]
                parts[f"{kind.name}/{name}"] = slice(end + inner.start, end + inner.stop)
            end += layout.n_weights
        for relation, table in zip(self.schema.relations, self.tables):
            for name, rows in (("table", 1), ("edge", relation.n_columns), ("edge_dense", relation.n_dense)):
                parts[f"{relation.name}/{name}"] = slice(end, end + rows * table.n_weights)
                end += rows * table.n_weights
        return parts

    @cached_property
    def n_weights(self) -> int:
        """W."""
        return max((part.stop for part in self.part.values()), default=0)

    @cached_property
    def intercepts(self) -> np.ndarray:
        """(W,) bool: the biases, which look at no feature and no neighbour."""
        mask = np.zeros(self.n_weights, dtype=bool)
        for kind in self.schema.kinds:
            mask[self.part[f"{kind.name}/bias"]] = True
        return mask

    @cached_property
    def cells(self) -> tuple[np.ndarray | None, ...]:
        """For each kind the place column · L_k + label of every node feature; None where all pairs have a weight."""
        listed = [layout.node_features() if layout.feature_label is not None else None for layout in self.nodes]
        return tuple(
            None if pair is None else pair[0] * layout.n_labels + pair[1] for pair, layout in zip(listed, self.nodes)
        )

    @classmethod
    def full(
        cls,
        schema: GraphSchema,
        sizes: Sequence[int],
        *,
        bias: bool = True,
        tables: str | Mapping[str, str] = "full",
        forbidden: Iterable[tuple[int, int, int]] = (),
    ) -> GraphLayout:
        """The layout with a weight for every pair of a column and a label.

        ``sizes`` are the numbers of labels of the kinds. ``tables`` says "full" or "potts", for all relations or by
        name. ``forbidden`` are triples (number of the relation, label of the tail, label of the head).
        """
        nodes = tuple(
            Layout(
                n_labels=size,
                n_columns=kind.columns[1] - kind.columns[0],
                n_dense=kind.dense[1] - kind.dense[0],
                bias=bias,
            )
            for kind, size in zip(schema.kinds, _checked_sizes(schema, sizes))
        )
        return cls(schema, nodes, _pair_tables(schema, sizes, tables, list(forbidden)))

    @classmethod
    def observe(
        cls,
        schema: GraphSchema,
        sizes: Sequence[int],
        batch: GraphBatch,
        target: Target,
        *,
        feature_pairs: str = "observed",
        bias: bool = True,
        tables: str | Mapping[str, str] = "full",
        forbidden: Iterable[tuple[int, int, int]] = (),
    ) -> GraphLayout:
        """The layout for a training set; other arguments as in `full`.

        With ``feature_pairs="observed"`` a sparse column has weights only for the labels that it was met with; dense
        columns, which are met with every label, have all. A node with several allowed labels is met with each of
        them, one where all labels of its kind are allowed with none.
        """
        if feature_pairs not in PAIRS:
            raise InputError(f"feature_pairs must be 'observed' or 'all', got {feature_pairs!r}.")
        made = cls.full(schema, sizes, bias=bias, tables=tables, forbidden=forbidden)
        if feature_pairs == "all":
            return made
        nodes = []
        for number, (kind, layout) in enumerate(zip(schema.kinds, made.nodes)):
            if layout.n_columns:
                rows = batch.nodes_of(number)
                columns = take_rows(batch.node, rows)
                met, labels = _met(target, rows, layout.n_labels)
                ptr, label = linear.observed(
                    columns.indptr,
                    columns.indices - np.int32(kind.columns[0]),
                    met,
                    labels,
                    n_columns=layout.n_columns,
                    n_items=layout.n_labels,
                )
                layout = Layout(
                    n_labels=layout.n_labels,
                    n_columns=layout.n_columns,
                    n_dense=layout.n_dense,
                    bias=bias,
                    feature_ptr=ptr,
                    feature_label=label,
                )
            nodes.append(layout)
        return cls(schema, tuple(nodes), made.tables)

    def table(self, weights: np.ndarray, relation: str) -> np.ndarray:
        """(L_tail, L_head) weights of the plain table of a relation: NaN where a pair has none, −∞ if forbidden."""
        pair = self.tables[self.schema.relation(relation)]
        out = np.where(pair.forbidden, -np.inf, np.nan)
        open_cells = pair.tie >= 0
        out[open_cells] = weights[self.part[f"{relation}/table"]][pair.tie[open_cells]]
        return out

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-able header and arrays for a model file; the schema is stored by the encoder."""
        arrays: dict[str, np.ndarray] = {}
        kinds = []
        for number, layout in enumerate(self.nodes):
            header, own = layout.state()
            kinds.append(header)
            arrays |= {f"kind{number}/{name}": array for name, array in own.items()}
        for number, table in enumerate(self.tables):
            arrays[f"relation{number}/forbidden"] = np.flatnonzero(table.forbidden).astype(np.int32)
        return {"kinds": kinds, "tables": [table.form for table in self.tables]}, arrays

    @classmethod
    def from_state(
        cls,
        header: dict[str, Any],
        arrays: Mapping[str, np.ndarray],
        schema: GraphSchema,
        sizes: Sequence[int] | None = None,
    ) -> GraphLayout:
        """The layout whose ``state`` this is; everything is checked, since files may be damaged.

        ``sizes`` are the labels of each kind, where they are known: tables are then made for so many only.
        """
        kinds = header.get("kinds") if isinstance(header, dict) else None
        forms = header.get("tables") if isinstance(header, dict) else None
        if (
            not isinstance(kinds, list)
            or not isinstance(forms, list)
            or len(kinds) != len(schema.kinds)
            or len(kinds) != len(kinds if sizes is None else sizes)
            or len(forms) != len(schema.relations)
        ):
            raise ModelFileError("the layout of the weights does not fit the kinds and relations of the model.")
        nodes = []
        for number, (kind, inner) in enumerate(zip(schema.kinds, kinds)):
            layout = Layout.from_state(inner if isinstance(inner, dict) else {}, _own(arrays, f"kind{number}/"))
            expected = Layout(
                n_labels=layout.n_labels,
                n_columns=kind.columns[1] - kind.columns[0],
                n_dense=kind.dense[1] - kind.dense[0],
                bias=layout.bias,
            )
            if sizes is not None and layout.n_labels != sizes[number]:
                raise ModelFileError("the labels of the model file do not fit its weights: the file is damaged.")
            if layout.state()[0] != expected.state()[0] or len(layout.pairs):
                raise ModelFileError(
                    f"the weights of kind {kind.name!r} do not fit its columns: the file is damaged."
                )
            nodes.append(layout)
        tables = []
        for number, (relation, form) in enumerate(zip(schema.relations, forms)):
            n_tail, n_head = nodes[relation.tail].n_labels, nodes[relation.head].n_labels
            closed = arrays.get(f"relation{number}/forbidden")
            if not isinstance(closed, np.ndarray) or closed.dtype != np.int32 or closed.ndim != 1:
                raise ModelFileError(f"the forbidden pairs of relation {relation.name!r} are damaged.")
            if len(closed) and not 0 <= closed.min() <= closed.max() < n_tail * n_head:
                raise ModelFileError(f"the forbidden pairs of relation {relation.name!r} are out of range.")
            pairs = [divmod(cell, n_head) for cell in closed.tolist()]
            try:
                tables.append(PairTable.of(relation, n_tail, n_head, form=form, forbidden=pairs))
            except InputError as error:
                raise ModelFileError(f"the layout of the weights is damaged: {error}") from None
        return cls(schema, tuple(nodes), tuple(tables))


def _own(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    names = [name for name in arrays if name.startswith(prefix)]
    return {name[len(prefix) :]: arrays[name] for name in names}


def _checked_sizes(schema: GraphSchema, sizes: Sequence[int]) -> Sequence[int]:
    if len(sizes) != len(schema.kinds) or min(sizes, default=0) < 1:
        raise InputError(
            f"each of {len(schema.kinds)} kinds of nodes needs its number of labels, at least one, got {list(sizes)}."
        )
    return sizes


def _pair_tables(
    schema: GraphSchema,
    sizes: Sequence[int],
    tables: str | Mapping[str, str],
    forbidden: list[tuple[int, int, int]],
) -> tuple[PairTable, ...]:
    names = [relation.name for relation in schema.relations]
    if isinstance(tables, str):
        tables = dict.fromkeys(names, tables)
    for name in tables:
        schema.relation(name)
    return tuple(
        PairTable.of(
            relation,
            sizes[relation.tail],
            sizes[relation.head],
            form=tables.get(relation.name, "full"),
            forbidden=[(i, j) for r, i, j in forbidden if r == number],
        )
        for number, relation in enumerate(schema.relations)
    )


def _met(target: Target, rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of the given rows are met with which labels."""
    labels = target.labels[rows]
    known = np.flatnonzero(labels != UNKNOWN)
    if target.allowed is None:
        return known, labels[known]
    allowed = target.allowed[rows][:, :size]
    some = np.flatnonzero((labels == UNKNOWN) & ~allowed.all(axis=1))
    row, label = np.nonzero(allowed[some])
    return np.concatenate([known, some[row]]), np.concatenate([labels[known], label]).astype(np.int32)
