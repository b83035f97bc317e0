"""Encoded graphs: columns and a topology, without labels.

What `Batch` is for chains. All nodes of all graphs lie in one flat run, whatever their kind; ``kind`` tells them
apart, and each kind has its own range of columns in the one column space. All edges of a graph lie together, in the
order of the relations, and each relation that has edge features has `Columns` of its own, with a row for each of its
edges.

What the numbers mean stands in a `GraphSchema`: it is learnt once by the encoder, and batches of new graphs share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.data.batch import Columns
from crfield.data.flat import chosen_sequences
from crfield.errors import InputError, ShapeError


@dataclass(frozen=True)
class NodeKind:
    """A kind of nodes, and the columns that are its own: sparse ``columns`` and ``dense`` ones, as (start, stop)."""

    name: str
    columns: tuple[int, int] = (0, 0)
    dense: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        """How many columns it has, sparse and dense."""
        return self.columns[1] - self.columns[0] + self.dense[1] - self.dense[0]


@dataclass(frozen=True)
class Relation:
    """A relation from nodes of kind number ``tail`` to nodes of kind number ``head``, and its edge columns."""

    name: str
    tail: int = 0
    head: int = 0
    symmetric: bool = False
    n_columns: int = 0
    n_dense: int = 0

    @property
    def has_features(self) -> bool:
        """Whether its edges have columns, so that every edge has a score table of its own."""
        return self.n_columns + self.n_dense > 0


@dataclass(frozen=True)
class GraphSchema:
    """The kinds and relations that a model knows, in the order of their numbers.

    >>> schema = GraphSchema((NodeKind("node", dense=(0, 3)),), (Relation("next"), Relation("same", symmetric=True)))
    >>> schema.kind("node"), schema.relation("same")
    (0, 1)
    >>> schema.relation("near")
    Traceback (most recent call last):
    crfield.errors.InputError: unknown relation 'near': the model knows 'next', 'same'. ...
    """

    kinds: tuple[NodeKind, ...]
    relations: tuple[Relation, ...] = ()

    def kind(self, name: str) -> int:
        """Number of a kind."""
        return _number(name, [kind.name for kind in self.kinds], "kind")

    def relation(self, name: str) -> int:
        """Number of a relation."""
        return _number(name, [relation.name for relation in self.relations], "relation")


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """B graphs as columns.

    >>> import numpy as np
    >>> topology = Graphs(np.array([0, 3, 5]), tails=np.array([0, 1, 3]), heads=np.array([1, 2, 4]))
    >>> batch = GraphBatch(topology, Columns.from_rows([[0], [1], [0], [], [1]], width=2),
    ...                    kind=np.zeros(5, int), relation=np.array([0, 1, 0]), edge=(None, None))
    >>> batch.n_graphs, batch.edges_of(0).tolist(), batch.take([1]).topology.heads.tolist()
    (2, [0, 2], [1])
    """

    topology: Graphs
    node: Columns  # N rows
    kind: np.ndarray  # (N,) int32
    relation: np.ndarray  # (E,) int32, rising within each graph
    edge: tuple[Columns | None, ...]  # one per relation, with a row for each of its edges in the order of the batch

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", np.ascontiguousarray(self.kind, dtype=np.int32))
        object.__setattr__(self, "relation", np.ascontiguousarray(self.relation, dtype=np.int32))
        nodes, edges = self.topology.n_nodes, self.topology.n_edges
        if self.node.n_rows != nodes:
            raise ShapeError(f"node columns have {self.node.n_rows} rows for {nodes} nodes.")
        if self.kind.shape != (nodes,):
            raise ShapeError(f"kind must have one entry for each of {nodes} nodes, got {self.kind.shape}.")
        if self.relation.shape != (edges,):
            raise ShapeError(f"relation must have one entry for each of {edges} edges, got {self.relation.shape}.")
        if nodes and self.kind.min() < 0:
            raise ShapeError("kinds are numbered from 0.")
        if edges and not 0 <= self.relation.min() <= self.relation.max() < len(self.edge):
            raise ShapeError(
                f"relations must lie in 0 … {len(self.edge) - 1}, got {self.relation.min()} … {self.relation.max()}."
            )
        for number, columns in enumerate(self.edge):
            if columns is not None and columns.n_rows != len(self.edges_of(number)):
                raise ShapeError(
                    f"edge columns of relation {number} have {columns.n_rows} rows for "
                    f"{len(self.edges_of(number))} edges."
                )

    @property
    def n_graphs(self) -> int:
        """B."""
        return self.topology.n_sequences

    @cached_property
    def _edges_by_relation(self) -> tuple[np.ndarray, ...]:
        return tuple(np.flatnonzero(self.relation == number) for number in range(len(self.edge)))

    def edges_of(self, relation: int) -> np.ndarray:
        """Numbers of the edges of a relation, in the order of the rows of its columns."""
        return self._edges_by_relation[relation]

    def nodes_of(self, kind: int) -> np.ndarray:
        """Numbers of the nodes of a kind."""
        return np.flatnonzero(self.kind == kind)

    def take(self, indices: Any) -> GraphBatch:
        """The chosen graphs (an integer, a slice, or an array of integers or booleans) in the given order."""
        chosen = np.atleast_1d(chosen_sequences(indices, self.n_graphs))
        topology = self.topology
        nodes, offsets = _spans(topology.offsets, chosen)
        edges, edge_offsets = _spans(topology.edge_offsets, chosen)
        move = np.repeat(offsets[:-1] - topology.offsets[chosen], np.diff(edge_offsets))
        picked = Graphs(offsets, topology.tails[edges] + move, topology.heads[edges] + move)
        relation = self.relation[edges]
        columns: list[Columns | None] = []
        for number, rows in enumerate(self.edge):
            if rows is None:
                columns.append(None)
                continue
            at = np.searchsorted(self.edges_of(number), edges[relation == number])
            columns.append(take_rows(rows, at))
        return GraphBatch(picked, take_rows(self.node, nodes), self.kind[nodes], relation, tuple(columns))

    def induced(self, nodes: np.ndarray) -> GraphBatch:
        """The chosen nodes (N,) bool, and the edges that have both ends among them; graphs keep their numbers.

        >>> topology = Graphs(np.array([0, 3]), tails=np.array([0, 1]), heads=np.array([1, 2]))
        >>> batch = GraphBatch(topology, Columns.from_rows([[0], [], [1]], width=2),
        ...                    kind=np.zeros(3, int), relation=np.zeros(2, int), edge=(None,))
        >>> batch.induced(np.array([False, True, True])).topology.heads.tolist()
        [1]
        """
        topology = self.topology
        number = np.concatenate([np.zeros(1, np.int64), np.cumsum(nodes)])
        kept = nodes[topology.tails] & nodes[topology.heads]
        part = Graphs(number[topology.offsets], number[topology.tails[kept]], number[topology.heads[kept]])
        columns = tuple(
            None if rows is None else take_rows(rows, np.flatnonzero(kept[self.edges_of(relation)]))
            for relation, rows in enumerate(self.edge)
        )
        own = np.flatnonzero(nodes)
        return GraphBatch(part, take_rows(self.node, own), self.kind[own], self.relation[kept], columns)

    def __repr__(self) -> str:
        return (
            f"GraphBatch({self.n_graphs} graphs, {self.topology.n_nodes} nodes, {self.topology.n_edges} edges, "
            f"{self.node.width} + {self.node.n_dense} columns)"
        )


def take_rows(columns: Columns, rows: np.ndarray) -> Columns:
    """The given rows, in the given order.

    >>> take_rows(Columns.from_rows([[0], [1, 2]], width=3), np.array([1, 0])).indices.tolist()
    [1, 2, 0]
    """
    entries, indptr = _spans(columns.indptr, rows)
    values = None if columns.values is None else columns.values[entries]
    dense = None if columns.dense is None else columns.dense[rows]
    return Columns(indptr, columns.indices[entries], columns.width, values, dense)


def _spans(offsets: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in the chosen spans offsets[c]:offsets[c+1], end to end, and where each span ends up."""
    lengths = offsets[chosen + 1] - offsets[chosen]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.arange(ends[-1]) + np.repeat(offsets[chosen] - ends[:-1], lengths), ends


def _number(name: str, names: list[str], what: str) -> int:
    if name not in names:
        known = ", ".join(map(repr, names)) if names else "none"
        raise InputError(f"unknown {what} {name!r}: the model knows {known}. Name it so, or train with it.")
    return names.index(name)
