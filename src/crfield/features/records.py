"""Feature dicts, lists of feature strings and attribute files to columns.

The alphabet is a `RecordTable`: names and values become columns in order of first appearance, vectors slots
of the dense block. Rare columns leave the alphabet itself in ``fit``, so that afterwards they are unknown
like any feature never seen, and encoding costs nothing more. Numbers may be standardised, and chosen
features linked to transitions (`EdgeChoice`).

Attribute files come as `AttributeSequences`, already numbered by an alphabet of their own: each of its
strings is looked up once, and the numbers of all occurrences are translated together. A string means the
same whether it came from a file, a list, or as a key with a number in a dict.

With ``joined`` the alphabet is one of joined names, ``word:dog``, and dicts are written out so before they are
looked up: that is how models of CRFsuite are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.attributes import AttributeSequences
from crfield.data.batch import Batch, Columns
from crfield.errors import FeatureError, InputError, ModelFileError, NotFittedError
from crfield.features.columns.select import check_min_count, drop_rare, renumber
from crfield.features.columns.standardise import Scale
from crfield.features.encoder import Widths
from crfield.features.known import check_records
from crfield.features.transitions import EdgeChoice, NamedEdges
from crfield.kernels.joined_items import SEPARATOR, join_items
from crfield.kernels.linear import Tagger
from crfield.kernels.records import RecordTable
from crfield.kernels.tagging import SequenceTagger, few_known, record_tagger

__all__ = ["SEPARATOR", "RecordEncoder"]


class RecordEncoder(NamedEdges):
    """Encoder of sequences of dicts, of lists of feature strings, or of `AttributeSequences`.

    ``transition_features`` is None, "all", or a list of feature names (the keys of the dicts;
    ``"outer:inner"`` in nested ones) or of whole columns (``"word=dog"``, ``"vector[2]"``): those are put on
    the edges too.

    >>> encoder = RecordEncoder(transition_features=["speed"])
    >>> batch = encoder.fit([[{"word": "dog", "speed": 1.5}, {"word": "cat", "speed": -3.0}]])
    >>> [encoder.node_name(k) for k in range(batch.node.width)]
    ['word=dog', 'speed', 'word=cat']
    >>> encoder.edge_name(0), batch.edge.values.tolist()
    ('speed', [-3.0])
    >>> encoder.encode([[{"word": "cow", "speed": 0.5}]]).node.indices.tolist()
    [1]
    """

    kind = "records"

    joined = False  # whether the columns are joined names, as in CRFsuite
    row = "step"  # what a warning calls a row

    def __init__(self, *, transition_features: str | Sequence[str] | None = None, standardize: bool = False) -> None:
        self.transition_features = check_transition_features(transition_features)
        self.standardize = bool(standardize)
        self.first_step = 0  # what errors call the first step; 1 where the rows are edges
        self._table: RecordTable | None = None
        self._scale: Scale | None = None
        self._edges: EdgeChoice | None = None

    def __repr__(self) -> str:
        return f"RecordEncoder(transition_features={self.transition_features!r}, standardize={self.standardize})"

    @property
    def table(self) -> RecordTable:
        """The alphabet of features."""
        if self._table is None:
            raise NotFittedError("this RecordEncoder has no columns yet. Call fit(X) before encode or names.")
        return self._table

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Learn the columns from X and encode it; columns seen on fewer than ``min_count`` rows go."""
        if type(min_count) is not int or min_count != 1:
            min_count = check_min_count(min_count)
        table = RecordTable()
        topology, node = _encode(table, X, grow=True, first_step=self.first_step, joined=self.joined)
        if min_count > 1:
            node, remap = drop_rare(node, min_count)
            if node.width < table.n_columns:
                table = table.subset(remap >= 0)
        scale = None
        if node.values is not None or node.dense is not None:
            scale = Scale.learn(node)
            if self.standardize:
                node = scale.apply(node)
            else:
                scale.warn(table.name, lambda k: _dense_name(table, k))
        edge = edges = None
        if self.transition_features is not None:
            edges, edge = _chosen(table, self.transition_features).learn(topology, node, min_count)
        self._table, self._edges = table, edges
        self._scale = scale if self.standardize else None
        return Batch(topology, node, edge)

    def encode(self, X: Any) -> Batch:
        """Encode X with the columns learnt in ``fit``; features never seen there are dropped."""
        topology, node = _encode(self.table, X, grow=False, first_step=self.first_step, joined=self.joined)
        if len(node.indptr) > 1 and few_known(node.indptr, node.indices):
            named = join_items(X) if self.joined and not isinstance(X, AttributeSequences) else X
            check_records(self.table, named, node, row=self.row)
        if self._scale is not None:
            node = self._scale.apply(node)
        return Batch(topology, node, None if self._edges is None else self._edges.take(topology, node))

    @property
    def widths(self) -> Widths:
        """How many columns it makes."""
        return Widths(self.table.n_columns, self.table.n_dense, *(() if self._edges is None else self._edges.widths))

    def sequence_tagger(
        self, weights: Tagger, labels: Sequence[Hashable], *, largest: float
    ) -> SequenceTagger | None:
        """One call from the steps of a sequence to its labels; None where columns are made from columns."""
        if self._scale is not None or self._edges is not None:
            return None
        return record_tagger(self.table, weights, labels, joined=self.joined, largest=largest)

    def node_name(self, column: int) -> str:
        """Name of a sparse node column: ``name`` or ``name=value``."""
        return self.table.name(column)

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block: ``name[i]``."""
        return _dense_name(self.table, column)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and the arrays from which ``from_state`` makes the same encoder again."""
        header = {
            "kind": self.kind,
            "transition_features": self.transition_features,
            "standardize": self.standardize,
        }
        if self.joined:
            header["joined"] = True
        arrays = self.table.to_arrays()
        if self._edges is not None:
            arrays |= self._edges.to_arrays()
        if self.standardize:
            header["scaled"] = self._scale is not None
            if self._scale is not None:
                arrays |= self._scale.to_arrays()
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> RecordEncoder:
        """The encoder whose ``state`` this is; ModelFileError when it cannot be one."""
        encoder = read_options(cls, header)
        table = RecordTable.from_arrays(arrays)
        sizes = {"width": table.n_columns, "n_dense": table.n_dense}
        if encoder.transition_features is not None:
            encoder._edges = EdgeChoice.from_arrays(arrays, **sizes)
        if header.get("scaled"):
            encoder._scale = Scale.from_arrays(arrays, **sizes)
        encoder._table = table
        encoder.joined = header.get("joined") is True
        return encoder


def check_transition_features(chosen: Any) -> Any:
    """None, "all" or a list, as JSON can hold it."""
    if chosen is None or (isinstance(chosen, str) and chosen == "all"):
        return chosen
    if isinstance(chosen, str) or not isinstance(chosen, Sequence | set | frozenset | np.ndarray):
        raise InputError(
            f"transition_features must be None, 'all' or a list of features, got {chosen!r}. "
            f"Write [{chosen!r}] for a single one."
        )
    items = sorted(chosen) if isinstance(chosen, set | frozenset) else list(chosen)
    return [int(item) if isinstance(item, int | np.integer) else item for item in items]


def read_options(cls: Any, header: dict[str, Any]) -> Any:
    """An unfitted encoder with the options that a header stores."""
    try:
        if header["kind"] != cls.kind:
            raise KeyError(f"kind {header['kind']!r}")
        return cls(
            transition_features=header["transition_features"],
            standardize=header["standardize"],
        )
    except (KeyError, TypeError, InputError) as error:
        raise ModelFileError(
            f"the header is not one of an encoder of kind {cls.kind!r}: {error}. Was the file edited?"
        ) from None


def _encode(table: RecordTable, X: Any, *, grow: bool, first_step: int, joined: bool) -> tuple[Chains, Columns]:
    if isinstance(X, AttributeSequences):
        return _encode_attributes(table, X, grow=grow)
    encoded = table.encode(X, grow=grow, first_step=first_step, joined=joined)
    columns = Columns(encoded.indptr, encoded.indices, table.n_columns, encoded.values, encoded.dense)
    return Chains(encoded.offsets), columns


def _encode_attributes(table: RecordTable, X: AttributeSequences, *, grow: bool) -> tuple[Chains, Columns]:
    pool, offsets = X.alphabet.to_arrays()
    wanted = np.bincount(X.indices, minlength=len(offsets) - 1) > 0
    numbers = table.columns_of(pool, offsets, grow=grow, wanted=wanted)
    if X.values is not None and not np.isfinite(X.values).all():
        entry = int(np.argmin(np.isfinite(X.values)))
        row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
        sequence = int(X.topology.sequence_of_node[row])
        raise FeatureError(
            f"sequence {sequence}, step {row - int(X.topology.offsets[sequence])}: attribute "
            f"{X.alphabet[int(X.indices[entry])]!r} must have a finite value, got {X.values[entry]}. "
            "Correct it or leave it out."
        )
    rows = Columns(X.indptr, X.indices, len(wanted), X.values)
    rows = renumber(rows, numbers, table.n_columns)
    dense = np.zeros((rows.n_rows, table.n_dense)) if table.n_dense else None
    return X.topology, Columns(rows.indptr, rows.indices, rows.width, rows.values, dense)


def _dense_name(table: RecordTable, column: int) -> str:
    for name, start, width in table.slots():
        if start <= column < start + width:
            return f"{name}[{column - start}]"
    raise IndexError(f"dense column {column} of {table.n_dense}")


def _chosen(table: RecordTable, features: str | Sequence[str]) -> EdgeChoice:
    """The columns that belong to the features named, by feature name or by column name."""
    if features == "all":
        return EdgeChoice(np.arange(table.n_columns), np.arange(table.n_dense))
    wanted, found = set(features), set()
    columns = []
    for k, (name, value) in enumerate(table.all_parts()):
        matches = wanted & ({name} if value is None else {name, f"{name}={value}"})
        if matches:
            columns.append(k)
            found |= matches
    dense = []
    for name, start, width in table.slots():
        for i in range(width):
            matches = wanted & {name, f"{name}[{i}]"}
            if matches:
                dense.append(start + i)
                found |= matches
    missing = sorted(map(str, wanted - found))
    if missing:
        some = [table.name(k) for k in range(min(3, table.n_columns))] + [name for name, _, _ in table.slots()[:3]]
        raise FeatureError(
            f"transition_features names {missing}, but no feature of the training data (min_count applied) "
            f"is called so. Known are for example {some}; use the keys of the feature dicts."
        )
    return EdgeChoice(np.array(columns, np.int32), np.array(dense, np.int32))
