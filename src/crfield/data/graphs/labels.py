"""Labels of the nodes of graphs, and their numbers.

Every kind of nodes has labels of its own, coded 0 … L_k − 1 by a `LabelCoder`; L is the largest L_k, and the codes
from L_k on are never taken by a node of kind k (`states` says which are). As in chains a node may have a label,
``None`` (nobody looked) or a set (one of these).

``y`` has one entry for each graph: the labels in the order of the nodes, as a list or an array (an image of labels
will do, read row by row), or a dict ``{kind: labels}`` with the labels of each kind in the order of its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from crfield.core.target import UNKNOWN
from crfield.core.typing import Labels
from crfield.data.graphs.batch import GraphBatch, GraphSchema
from crfield.data.label_json import shown
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ModelFileError, NotFittedError, ShapeError


class GraphLabels:
    """Numbers for the labels of each kind: learnt by ``fit``, then fixed.

    >>> from crfield.core.graphs import Graphs
    >>> from crfield.data.batch import Columns
    >>> empty = Columns.from_rows([[], [], []], width=0)
    >>> batch = GraphBatch(Graphs([0, 3], [0], [1]), empty, kind=[0, 0, 1], relation=[0], edge=(None,))
    >>> y = [{"state": ["walk", None], "place": ["home"]}]
    >>> labels = GraphLabels(["state", "place"]).fit(y, batch)
    >>> labels.fit([["walk", "ride", "home"]], batch).n_labels
    2
    >>> codes, allowed = labels.encode(y, batch)
    >>> codes.tolist(), allowed.astype(int).tolist(), labels.states(batch).astype(int).tolist()
    ([1, -1, 0], [[0, 1], [1, 1], [1, 0]], [[1, 1], [1, 1], [1, 0]])
    >>> labels.decode([1, 0, 0], batch)
    array([array(['walk', 'ride', 'home'], dtype='<U4')], dtype=object)
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        self._coders: tuple[LabelCoder, ...] = ()

    @classmethod
    def from_coders(cls, coders: Mapping[str, LabelCoder]) -> GraphLabels:
        """Labels whose codes are those of given coders, kind by kind.

        >>> GraphLabels.from_coders({"node": LabelCoder.from_classes(["off", "on"])}).sizes
        (2,)
        """
        made = cls(list(coders))
        made._coders = tuple(coders.values())
        return made

    @property
    def coders(self) -> tuple[LabelCoder, ...]:
        """The coder of each kind."""
        if not self._coders:
            raise NotFittedError("these GraphLabels know no labels yet: call fit(y, batch) first.")
        return self._coders

    @property
    def sizes(self) -> tuple[int, ...]:
        """L_k, the number of labels of each kind."""
        return tuple(coder.n_labels for coder in self.coders)

    @property
    def n_labels(self) -> int:
        """L, the largest number of labels of a kind."""
        return max(self.sizes)

    @property
    def classes(self) -> dict[str, np.ndarray]:
        """The labels of each kind, in the order of their codes."""
        return {kind: coder.classes_ for kind, coder in zip(self.kinds, self.coders)}

    def fit(self, y: Labels, batch: GraphBatch) -> GraphLabels:
        """Learn the labels of every kind."""
        coders = []
        for kind, some in zip(self.kinds, self._by_kind(y, batch)):
            with self._worded(kind):
                coders.append(LabelCoder().fit(some))
        self._coders = tuple(coders)
        return self

    def encode(self, y: Labels, batch: GraphBatch) -> tuple[np.ndarray, np.ndarray | None]:
        """``labels`` (N,) int32 and ``allowed`` (N, L) bool or None, as `Target` wants them."""
        coders = self.coders
        labels = np.full(batch.topology.n_nodes, UNKNOWN, np.int32)
        choices: list[np.ndarray | None] = []
        for number, some in enumerate(self._by_kind(y, batch)):
            with self._worded(self.kinds[number]):
                codes, allowed = coders[number].encode(some, [len(part) for part in some])
            labels[batch.kind == number] = codes
            choices.append(allowed)
        if all(choice is None for choice in choices):
            return labels, None
        table = np.zeros((len(labels), self.n_labels), dtype=bool)
        known = np.flatnonzero(labels != UNKNOWN)
        table[known, labels[known]] = True
        for number, choice in enumerate(choices):
            if choice is not None:
                table[batch.nodes_of(number), : choice.shape[1]] = choice
        return labels, table

    def decode(self, codes: np.ndarray | Sequence[int], batch: GraphBatch) -> np.ndarray:
        """Labels of the codes (N,): an object array (B,) with one 1-D array per graph, in the order of its nodes.

        The inner arrays have NumPy's own type where all labels are str or all are int, else they hold objects.
        """
        codes = np.asarray(codes, dtype=np.int64)
        topology = batch.topology
        if codes.shape != (topology.n_nodes,):
            raise ShapeError(f"there must be one code for each of {topology.n_nodes} nodes, got {codes.shape}.")
        types = {coder.classes_.dtype.kind for coder in self.coders}
        dtype = np.result_type(*(coder.classes_ for coder in self.coders)) if len(types) == 1 else np.dtype(object)
        flat = np.empty(len(codes), dtype=dtype)
        for number, coder in enumerate(self.coders):
            rows = batch.nodes_of(number)
            some = codes[rows]
            if len(some) and not 0 <= some.min() <= some.max() < coder.n_labels:
                raise LabelError(
                    f"codes of kind {self.kinds[number]!r} must lie in 0 … {coder.n_labels - 1}, "
                    f"got {some.min()} … {some.max()}."
                )
            flat[rows] = coder.classes_[some]
        out = np.empty(topology.n_sequences, dtype=object)
        for graph in range(len(out)):
            out[graph] = flat[topology.offsets[graph] : topology.offsets[graph + 1]]
        return out

    def states(self, batch: GraphBatch) -> np.ndarray:
        """(N, L) bool: the labels that each node can have, by its kind."""
        return (np.arange(self.n_labels) < np.asarray(self.sizes)[:, None])[batch.kind]

    def pairs(
        self, forbidden: Iterable[tuple[str, Hashable, Hashable]], schema: GraphSchema
    ) -> list[tuple[int, int, int]]:
        """Forbidden (relation, label of the tail, label of the head) as numbers.

        >>> from crfield.data.graphs.batch import NodeKind, Relation
        >>> schema = GraphSchema((NodeKind("node"),), (Relation("next"),))
        >>> labels = GraphLabels.from_coders({"node": LabelCoder.from_classes(["B", "I", "O"])})
        >>> labels.pairs([("next", "O", "I")], schema)
        [(0, 2, 1)]
        """
        found = []
        for item in forbidden:
            if not isinstance(item, tuple | list) or len(item) != 3:
                raise InputError(f"a forbidden pair is (relation, label, label), got {shown(item)}.")
            number = schema.relation(item[0])
            relation = schema.relations[number]
            codes = [self._code(kind, label) for kind, label in zip((relation.tail, relation.head), item[1:])]
            found.append((number, *codes))
        return found  # type: ignore[return-value]

    def to_json(self) -> list[Any]:
        """Kinds and labels as JSON values, for the header of a model file."""
        return [[kind, coder.to_json()] for kind, coder in zip(self.kinds, self.coders)]

    @classmethod
    def from_json(cls, value: Any) -> GraphLabels:
        """The labels whose `to_json` this is.

        >>> GraphLabels.from_json([["node", ["a", "b"]]]).classes["node"].tolist()
        ['a', 'b']
        """
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in value)
            or len({item[0] for item in value}) != len(value)
        ):
            raise ModelFileError("expected the labels of each kind of nodes: the file is damaged.")
        return cls.from_coders({kind: LabelCoder.from_json(labels) for kind, labels in value})

    def _code(self, kind: int, label: Hashable) -> int:
        coder = self.coders[kind]
        if label not in coder.labels:
            raise LabelError(
                f"a forbidden pair names {shown(label)}, which is no label of kind {self.kinds[kind]!r}: it has "
                f"{', '.join(map(shown, coder.labels[:10]))}."
            )
        return coder.labels.index(label)

    def _by_kind(self, y: Labels, batch: GraphBatch) -> list[list[Any]]:
        """For each kind the labels of its nodes, graph by graph."""
        graphs = _per_graph(y, batch.n_graphs)
        offsets = batch.topology.offsets
        found: list[list[Any]] = [[] for _ in self.kinds]
        for number, labels in enumerate(graphs):
            kinds = batch.kind[offsets[number] : offsets[number + 1]]
            if isinstance(labels, Mapping):
                parts = self._from_dict(number, labels, kinds)
            else:
                parts = self._from_list(number, labels, kinds)
            for some, part in zip(found, parts):
                some.append(part)
        return found

    def _from_list(self, number: int, labels: Any, kinds: np.ndarray) -> list[Any]:
        if isinstance(labels, str | bytes | set | frozenset) or not hasattr(labels, "__len__"):
            raise LabelError(
                f"y[{number}] is {shown(labels)} of type {type(labels).__name__}, not a list of labels; y holds the "
                "labels of the nodes of each graph, such as [['A', 'B'], ['B']]. For a single graph, pass [y]."
            )
        if isinstance(labels, np.ndarray):
            labels = labels.reshape(-1)
        if len(labels) != len(kinds):
            raise ShapeError(
                f"graph {number} has {len(kinds)} nodes and y[{number}] has {len(labels)} labels. Give one label per "
                "node, None where it is unknown."
            )
        if len(self.kinds) == 1:
            return [labels]
        rows = [np.flatnonzero(kinds == kind) for kind in range(len(self.kinds))]
        if isinstance(labels, np.ndarray):
            return [labels[at] for at in rows]
        return [[labels[row] for row in at] for at in rows]

    def _from_dict(self, number: int, labels: Mapping[str, Any], kinds: np.ndarray) -> list[Any]:
        counts = np.bincount(kinds, minlength=len(self.kinds))
        strange = [kind for kind in labels if kind not in self.kinds]
        if strange:
            raise LabelError(
                f"y[{number}] names the kind {strange[0]!r}; the kinds are {', '.join(map(repr, self.kinds))}."
            )
        parts = []
        for kind, count in zip(self.kinds, counts):
            some = labels.get(kind, [])
            if isinstance(some, str | bytes | set | frozenset) or not hasattr(some, "__len__"):
                raise LabelError(f"y[{number}][{kind!r}] is {shown(some)}, not a list of labels.")
            some = some.reshape(-1) if isinstance(some, np.ndarray) else some
            if len(some) != count:
                raise ShapeError(
                    f"graph {number} has {count} nodes of kind {kind!r} and y[{number}] has {len(some)} labels for "
                    "them. Give one label per node, None where it is unknown."
                )
            parts.append(some)
        return parts

    @contextmanager
    def _worded(self, kind: str) -> Iterator[None]:
        """The coder speaks of sequences and steps, which are graphs and nodes here."""
        try:
            yield
        except InputError as error:
            of_kind = "" if len(self.kinds) == 1 else f" of kind {kind!r}"
            said = re.sub(r"\bsequence (\d+), step (\d+)", rf"graph \1, node \2{of_kind}", str(error))
            said = re.sub(r"(\d+) sequences and (\d+) steps", rf"\1 graphs and \2 nodes{of_kind}", said)
            said = said.replace("every step is", "every node is").replace("labelled step.", "labelled node.")
            raise type(error)(said) from None


def _per_graph(y: Any, n_graphs: int) -> list[Any]:
    if (
        isinstance(y, str | bytes | Mapping | set | frozenset)
        or not hasattr(y, "__len__")
        or getattr(y, "ndim", 1) == 0
    ):
        raise LabelError(
            f"y must hold the labels of each graph, such as [['A', 'B'], ['B']], got {type(y).__name__}. For a "
            "single graph, pass [y]."
        )
    if len(y) != n_graphs:
        raise ShapeError(f"there are {n_graphs} graphs and y has {len(y)} entries: give both one entry per graph.")
    return list(y)


def tuple_coder(coders: Sequence[LabelCoder]) -> LabelCoder:
    """The labels of one kind, or the tuples of labels of several, the last changing fastest.

    >>> tuple_coder([LabelCoder.from_classes("ab"), LabelCoder.from_classes([0, 1])]).labels
    [('a', 0), ('a', 1), ('b', 0), ('b', 1)]
    """
    if len(coders) == 1:
        return coders[0]
    made: list[tuple[Any, ...]] = [()]
    for coder in coders:
        made = [(*before, label) for before in made for label in coder.labels]
    return LabelCoder.from_classes(made)
