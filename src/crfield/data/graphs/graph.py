"""The user's record of one graph: nodes with features, and pairs of nodes that are related.

A `Graph` says nothing about labels or weights. Its *nodes* have the features that a chain's steps have: a matrix,
a sparse matrix, dicts or lists of strings. Nodes may be of several *kinds*, each with features and labels of its
own (motion states and places, words and documents). Its *edges* belong to named *relations*; all edges of a relation
share their weights, in every graph. A relation is directed (the score of "a left of b" is not that of "b left of a")
or symmetric, joins nodes of one kind or leads from one kind to another, and may have features on its edges.

What can be wrong is found here, where the user still sees the line that made the graph: numbers of nodes that do not
exist, self loops, rows that do not fit, NaN (unless nodes were said to have ``missing`` values, which models of
stumps and trees read). Checking costs one pass over the arrays; what lies inside dicts and
strings is read later, once, by the encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.core.checks import flag
from crfield.errors import FeatureError, InputError, ShapeError

KIND = "node"  # the kind of all nodes where the user names none
RELATION = "edge"  # the relation of all edges where the user names none
FORMS = (
    "Features are a 2-D array (rows, columns), a scipy CSR matrix, a list with one dict per row, or a list with one "
    "list of feature strings per row"
)


@dataclass(frozen=True, eq=False)
class Edges:
    """The M edges of one relation in one graph.

    ``pairs`` are numbers of nodes (tail, head); with ``between=(kind, other)`` tails are counted within the first
    kind and heads within the second, both from 0. ``features`` have one row per pair. The two ends of a ``symmetric``
    relation are alike: list each pair once, in either order.

    >>> Edges([(0, 1), (1, 2)], symmetric=True)
    Edges(2 pairs, symmetric)
    """

    pairs: np.ndarray  # (M, 2) int64
    features: Any = None
    symmetric: bool = False
    between: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", _pairs(self.pairs))
        flag("symmetric", self.symmetric)
        object.__setattr__(self, "symmetric", bool(self.symmetric))
        if self.between is not None:
            between = self.between
            if isinstance(between, str) or len(between) != 2 or not all(isinstance(name, str) for name in between):
                raise InputError(
                    f"between must be the kinds of tails and heads, such as ('state', 'place'), got {between!r}."
                )
            object.__setattr__(self, "between", tuple(between))

    @property
    def n_edges(self) -> int:
        """M."""
        return len(self.pairs)

    def __repr__(self) -> str:
        more = "" if features_form(self.features) == "none" else ", with features"
        return f"Edges({len(self.pairs)} pairs{', symmetric' if self.symmetric else ''}{more})"


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes with features and the relations between them.

    ``nodes`` are the features of N nodes; or a dict ``{kind: features}``, whose nodes are numbered kind after kind in
    the order of the dict; an int stands for so many nodes without features. ``kinds`` names the kind of every node
    where nodes of several kinds lie mixed in one table. ``edges`` is a dict ``{relation: pairs}`` or
    ``{relation: Edges(pairs, features, symmetric)}``; a bare list of pairs is one relation called "edge". With
    ``missing=True`` NaN in a matrix of nodes is a missing value, for models that can do with it.

    >>> import numpy as np
    >>> Graph(np.eye(3), {"next": [(0, 1), (1, 2)], "same": Edges([(0, 2)], symmetric=True)})
    Graph(3 nodes, 3 edges: next 2, same 1 symmetric)
    >>> day = Graph({"state": [["fast"], ["slow"]], "place": 2},
    ...             {"at": Edges([(0, 0), (1, 1)], between=("state", "place"))})
    >>> day, day.edges["at"].pairs.tolist(), day.kind_of_node.tolist()
    (Graph(4 nodes of 2 kinds: state 2, place 2; 2 edges: at 2), [[0, 2], [1, 3]], [0, 0, 1, 1])
    >>> Graph(2, [(0, 2)])
    Traceback (most recent call last):
    crfield.errors.ShapeError: relation 'edge', row 0: node 2 does not exist; the graph has 2 nodes, 0 … 1. ...
    """

    nodes: Any  # {kind: features or None}
    edges: Any = None  # {relation: Edges}, numbers of nodes of the whole graph
    kinds: Any = None  # (names of the kinds, in their order)
    missing: bool = False  # whether features of nodes may be NaN
    kind_of_node: np.ndarray = field(init=False)  # (N,) int32, place of the node's kind in ``kinds``

    def __post_init__(self) -> None:
        flag("missing", self.missing)
        nodes, kinds, kind_of_node = _nodes(self.nodes, self.kinds, missing=bool(self.missing))
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "kind_of_node", kind_of_node)
        edges = {} if self.edges is None else self.edges
        if not isinstance(edges, Mapping):
            edges = {RELATION: edges}
        object.__setattr__(self, "edges", {_name(name, "relation"): self._edges(name, edges[name]) for name in edges})

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.kind_of_node)

    @property
    def n_edges(self) -> int:
        """E, the number of edges of all relations."""
        return sum(edges.n_edges for edges in self.edges.values())

    def nodes_of(self, kind: str) -> np.ndarray:
        """Numbers of the nodes of a kind.

        >>> Graph(3, kinds=["a", "b", "a"]).nodes_of("a").tolist()
        [0, 2]
        """
        if kind not in self.kinds:
            raise InputError(f"the graph has no nodes of kind {kind!r}; its kinds are {list(self.kinds)}.")
        return np.flatnonzero(self.kind_of_node == self.kinds.index(kind))

    def ends(self, relation: str) -> tuple[str, str] | None:
        """Kinds of the tails and of the heads of a relation; None where it has no edge here and says nothing.

        >>> Graph({"a": 1, "b": 1}, {"of": [(0, 1)]}).ends("of")
        ('a', 'b')
        """
        edges = self.edges[relation]
        if edges.n_edges:
            tail, head = self.kind_of_node[edges.pairs[0]]
            return self.kinds[tail], self.kinds[head]
        return edges.between

    def _edges(self, name: str, given: Any) -> Edges:
        where = f"relation {name!r}"
        try:
            edges = given if isinstance(given, Edges) else Edges(given)
        except InputError as error:
            raise type(error)(f"{where}: {error}") from None
        pairs = edges.pairs
        limits = [self.n_nodes, self.n_nodes]
        if edges.between is not None:
            numbers = [self.nodes_of(kind) for kind in edges.between]
            limits = [len(some) for some in numbers]
        for side, limit in enumerate(limits):
            wrong = (pairs[:, side] < 0) | (pairs[:, side] >= limit)
            if wrong.any():
                row = int(np.argmax(wrong))
                what = "the graph has" if edges.between is None else f"kind {edges.between[side]!r} has"
                raise ShapeError(
                    f"{where}, row {row}: node {pairs[row, side]} does not exist; {what} {limit} nodes"
                    f"{f', 0 … {limit - 1}' if limit else ''}. Are the nodes numbered from 0?"
                )
        if edges.between is not None:
            pairs = np.stack([some[pairs[:, side]] for side, some in enumerate(numbers)], axis=1)
        loops = pairs[:, 0] == pairs[:, 1]
        if loops.any():
            row = int(np.argmax(loops))
            raise ShapeError(
                f"{where}, row {row} joins node {pairs[row, 0]} to itself; self-loops are not allowed. "
                "Make it a feature of the node instead."
            )
        self._check_ends(where, pairs, edges.symmetric)
        features = checked_features(edges.features, len(pairs), where, "edges")
        return Edges(pairs, features, edges.symmetric, None if len(pairs) else edges.between)

    def _check_ends(self, where: str, pairs: np.ndarray, symmetric: bool) -> None:
        if len(self.kinds) < 2 or not len(pairs):
            return
        ends = self.kind_of_node[pairs]
        other = (ends != ends[0]).any(axis=1)
        if other.any():
            row = int(np.argmax(other))
            said = [tuple(self.kinds[kind] for kind in ends[at]) for at in (0, row)]
            raise InputError(
                f"{where} leads from {said[0][0]!r} to {said[0][1]!r} in row 0 and from {said[1][0]!r} to "
                f"{said[1][1]!r} in row {row}. A relation joins the same kinds everywhere: use one for each."
            )
        if symmetric and ends[0, 0] != ends[0, 1]:
            raise InputError(
                f"{where} is symmetric but joins two kinds, {self.kinds[ends[0, 0]]!r} and "
                f"{self.kinds[ends[0, 1]]!r}, whose labels differ. Leave out symmetric=True."
            )

    def __repr__(self) -> str:
        counts = np.bincount(self.kind_of_node, minlength=len(self.kinds))
        nodes = f"{self.n_nodes} nodes"
        if self.kinds != (KIND,):
            listed = ", ".join(f"{kind} {count}" for kind, count in zip(self.kinds, counts))
            nodes += f" of {len(self.kinds)} kind{'s' if len(self.kinds) > 1 else ''}: {listed};"
        else:
            nodes += ","
        listed = ", ".join(
            f"{name} {edges.n_edges}{' symmetric' if edges.symmetric else ''}" for name, edges in self.edges.items()
        )
        return f"Graph({nodes} {self.n_edges} edges{': ' if listed else ''}{listed})"


def features_form(features: Any) -> str:
    """How features are written: "none", "dense", "sparse" or "records".

    >>> features_form(None), features_form([{"word": "dog"}]), features_form([[1.0, 2.0]])
    ('none', 'records', 'dense')
    """
    if features is None or isinstance(features, int | np.integer):
        return "none"
    if hasattr(features, "tocsr") and hasattr(features, "nnz"):
        return "sparse"
    if hasattr(features, "__array__"):
        return "dense"
    for row in features:
        if isinstance(row, Mapping | set | frozenset):
            return "records"
        if hasattr(row, "__len__") and not isinstance(row, str) and len(row):
            return "records" if isinstance(next(iter(row)), str) else "dense"
        if not hasattr(row, "__len__"):
            return "dense"
    return "records" if len(features) else "none"


def checked_features(features: Any, rows: int | None, where: str, what: str, *, missing: bool = False) -> Any:
    """Features of ``rows`` rows as an array, a CSR matrix or a list of records; None where there are none.

    With ``missing`` numbers may be NaN.

    >>> checked_features([[1, 2]], 1, "graph 0", "nodes")
    array([[1., 2.]])
    """
    if isinstance(features, int | np.integer) and what == "nodes":
        return None
    if isinstance(features, str | bytes | Mapping) or (
        features is not None and not hasattr(features, "__len__") and not hasattr(features, "shape")
    ):
        raise FeatureError(f"{where}: features of the {what} cannot be a {type(features).__name__}. {FORMS}.")
    form = features_form(features)
    if form == "none":
        return None
    if form == "sparse":
        features = features.tocsr()
        numbers = features.data
    elif form == "dense":
        features = numbers = _matrix(features, where, what)
    count = features.shape[0] if form != "records" else len(features)
    if rows is not None and count != rows:
        raise ShapeError(f"{where}: there are {rows} {what} but {count} rows of features. Give each its own row.")
    if form == "records":
        return features
    if features.ndim != 2:
        raise ShapeError(
            f"{where}: features of the {what} must be 2-D (rows, columns), got shape {features.shape}. "
            "Write x.reshape(-1, 1) for one feature each, or a builder such as grid(image) for an image."
        )
    if numbers.dtype.kind not in "biuf":
        raise FeatureError(
            f"{where}: features of the {what} must be real numbers, got an array of type {numbers.dtype}. {FORMS}."
        )
    bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
    if bad.any():
        if form == "sparse":
            place = int(np.argmax(bad))
            row, column = int(np.searchsorted(features.indptr, place, side="right")) - 1, features.indices[place]
        else:
            row, column = divmod(int(np.argmax(bad)), features.shape[1])
        raise FeatureError(
            f"{where}, row {row}: column {column} must be a finite number, got {features[row, column]}. Fill in "
            "missing values first, and mark them in a column of their own; models of stumps and trees read NaN, "
            "Graph(…, missing=True)."
        )
    return features if features.shape[1] else None


def _matrix(features: Any, where: str, what: str) -> np.ndarray:
    try:
        matrix = np.asarray(features)
        return matrix.astype(np.float64) if matrix.dtype.kind in "Obiu" else matrix
    except (ValueError, TypeError) as error:
        raise ShapeError(
            f"{where}: features of the {what} cannot be made a matrix: {error}. Are all rows equally long? {FORMS}."
        ) from None


def _pairs(pairs: Any) -> np.ndarray:
    try:
        array = np.asarray(pairs)
    except ValueError:
        array = np.zeros(1, object)
    if array.size == 0:
        return np.zeros((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        hint = " Transpose it." if array.ndim == 2 and len(array) == 2 else ""
        raise ShapeError(f"pairs must be (M, 2), a tail and a head in each row, got shape {array.shape}.{hint}")
    if array.dtype.kind not in "iu":
        raise InputError(f"pairs must be integers, the numbers of nodes, got an array of type {array.dtype}.")
    return np.ascontiguousarray(array, dtype=np.int64)


def _nodes(nodes: Any, kinds: Any, *, missing: bool) -> tuple[dict[str, Any], tuple[str, ...], np.ndarray]:
    if isinstance(nodes, Mapping):
        if kinds is not None:
            raise InputError("nodes given as a dict name their kinds themselves. Leave out kinds.")
        if not nodes:
            raise InputError("nodes are an empty dict. Write 0 for a graph without nodes.")
        counts = [_count(nodes[kind], f"kind {kind!r}") for kind in nodes]
        made = {
            _name(kind, "kind"): checked_features(nodes[kind], count, f"kind {kind!r}", "nodes", missing=missing)
            for kind, count in zip(nodes, counts)
        }
        return made, tuple(made), np.repeat(np.arange(len(made), dtype=np.int32), counts)
    count = _count(nodes, "nodes")
    features = checked_features(nodes, count, "nodes", "nodes", missing=missing)
    if kinds is None:
        return {KIND: features}, (KIND,), np.zeros(count, np.int32)
    if isinstance(kinds, str) or not hasattr(kinds, "__len__") or len(kinds) != count:
        got = f"a {type(kinds).__name__}" if not hasattr(kinds, "__len__") else f"{len(kinds)}"
        raise ShapeError(f"kinds must name the kind of each of {count} nodes, got {got}.")
    number: dict[str, int] = {}
    codes = np.fromiter(
        (number.setdefault(_name(kind, "kind"), len(number)) for kind in kinds), dtype=np.int32, count=count
    )
    if not number:
        return {KIND: None}, (KIND,), codes
    made = {kind: _rows(features, np.flatnonzero(codes == code)) for kind, code in number.items()}
    return made, tuple(number), codes


def _count(nodes: Any, where: str) -> int:
    if isinstance(nodes, int | np.integer) and not isinstance(nodes, bool):
        if nodes < 0:
            raise ShapeError(f"{where}: the number of nodes cannot be {nodes}.")
        return int(nodes)
    if hasattr(nodes, "shape") and len(nodes.shape):
        return int(nodes.shape[0])
    if isinstance(nodes, Sequence) and not isinstance(nodes, str | bytes):
        return len(nodes)
    raise FeatureError(f"{where}: nodes cannot be a {type(nodes).__name__}. {FORMS}, or an int: so many nodes.")


def _rows(features: Any, rows: np.ndarray) -> Any:
    if features is None:
        return None
    return features[rows] if hasattr(features, "shape") else [features[row] for row in rows]


def _name(name: Any, what: str) -> str:
    if not isinstance(name, str | np.str_) or not name:
        raise InputError(f"a {what} is named by a non-empty string, got {name!r}.")
    return str(name)
