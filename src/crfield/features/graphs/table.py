"""One table of features over many graphs: those of a kind's nodes or of a relation's edges.

The encoders of this room know sequences of steps. A graph's nodes of one kind, or its edges of one relation, are rows
just as well, so a `FeatureTable` hands each graph to the encoder as a sequence and translates its complaints.
A table may also have no features at all; then its nodes have a bias only, and its edges share one score table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from crfield.data.batch import Columns
from crfield.data.graphs.graph import features_form
from crfield.errors import FeatureError, InputError, ModelFileError, ShapeError
from crfield.features.matrices import MatrixEncoder
from crfield.features.records import RecordEncoder

__all__ = ["FeatureTable", "side_by_side"]

_ENCODERS: dict[str, Any] = {"records": RecordEncoder, "dense": MatrixEncoder, "sparse": MatrixEncoder}
_WORDS = {"none": "no features", "records": "records", "dense": "a dense matrix", "sparse": "a sparse matrix"}

Rows = tuple[Any, int]  # features of one graph as `Graph` holds them, and the number of rows


class FeatureTable:
    """The columns of one table of features, whose rows are called ``row`` ("node" or "edge").

    >>> table = FeatureTable("nodes of kind 'word'", "node")
    >>> table.fit([([["a"], ["b"]], 2), (None, 0), ([["a"]], 1)], standardize=False, min_count=1).indices.tolist()
    [0, 1, 0]
    >>> table.encode([([{"a": float("nan")}], 1)])
    Traceback (most recent call last):
    crfield.errors.FeatureError: nodes of kind 'word': graph 0, node 0: ...
    """

    def __init__(self, what: str, row: str, *, missing: bool = False) -> None:
        self.what, self.row, self.missing = what, row, missing
        self.form = "none"
        self.encoder: Any = None
        self.width = self.n_dense = 0

    def fit(self, features: list[Rows], standardize: bool, min_count: int) -> Any:
        """Learn the columns of (features, number of rows) of each graph, and encode them."""
        forms = {features_form(some): number for number, (some, rows) in reversed(list(enumerate(features))) if rows}
        if len(forms) > 1:
            (one, first), (other, second) = sorted(forms.items(), key=lambda item: item[1])[:2]
            raise FeatureError(
                f"{self.what}: graph {first} has {_WORDS[one]}, graph {second} {_WORDS[other]}. Give all in one form."
            )
        self.form = next(iter(forms), "none")
        if self.form == "none":
            return self._empty(features)
        options = {"missing": True} if self.missing and self.form != "records" else {}
        self.encoder = _ENCODERS[self.form](standardize=standardize, **options)
        self.encoder.row = self.row
        if self.form != "records":
            widths = [some.shape[1] for some, rows in features if rows]
            self._check_widths(features, widths[0])
        columns = self._run(lambda: self.encoder.fit(self._filled(features), min_count=min_count).node)
        self.width, self.n_dense = columns.width, columns.n_dense
        return columns

    def encode(self, features: list[Rows]) -> Any:
        """Encode the features of other graphs."""
        for number, (some, rows) in enumerate(features):
            form = features_form(some)
            if form != self.form and rows:
                raise FeatureError(
                    f"graph {number}: the {self.what} have {_WORDS[form]}, expected {_WORDS[self.form]} as in fit."
                )
        if self.encoder is None:
            return self._empty(features)
        if self.form != "records":
            self._check_widths(features, self.encoder.state()[0]["width"])
        return self._run(lambda: self.encoder.encode(self._filled(features)).node)

    def _empty(self, features: list[Rows]) -> Columns | None:
        if self.row == "edge":
            return None
        rows = sum(rows for _, rows in features)
        return Columns(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), 0)

    def _filled(self, features: list[Rows]) -> list[Any]:
        nothing: Any = [] if self.form == "records" else np.zeros((0, 0))
        return [some if rows else nothing for some, rows in features]

    def _check_widths(self, features: list[Rows], width: int) -> None:
        for number, (some, rows) in enumerate(features):
            if rows and some.shape[1] != width:
                raise ShapeError(
                    f"graph {number}: the {self.what} have {some.shape[1]} columns, expected {width} as in fit. "
                    "All graphs must have the same columns; is one missing?"
                )

    def _run(self, work: Callable[[], Columns]) -> Columns:
        try:
            return work()
        except InputError as error:
            self._refuse(error)

    def _refuse(self, error: InputError) -> NoReturn:
        """The encoder speaks of sequences and steps, which are graphs and rows here."""
        said = re.sub(r"\bsequence (\d+)", r"graph \1", re.sub(r"\bstep (\d+)", rf"{self.row} \1", str(error)))
        raise type(error)(f"{self.what}: {said}") from None

    def state(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Header; the arrays are put into ``arrays`` under names that start with ``prefix``."""
        if self.encoder is None:
            return {"form": "none", "encoder": None}
        header, own = self.encoder.state()
        arrays |= {prefix + name: array for name, array in own.items()}
        return {"form": self.form, "encoder": header, "width": self.width, "n_dense": self.n_dense}

    @classmethod
    def from_state(
        cls, what: str, row: str, header: dict[str, Any], prefix: str, arrays: Mapping[str, np.ndarray]
    ) -> FeatureTable:
        """The table whose ``state`` this is."""
        table = cls(what, row)
        form, inner = header.get("form"), header.get("encoder")
        if form == "none":
            return table
        sizes = [header.get("width"), header.get("n_dense")]
        if (
            not isinstance(form, str)
            or form not in _ENCODERS
            or not isinstance(inner, dict)
            or any(type(size) is not int or not 0 <= size < 2**31 for size in sizes)
        ):
            raise ModelFileError(f"the {what}: the encoder in the model file is damaged, form {form!r}.")
        own = {name: arrays[name] for name in arrays if name.startswith(prefix)}
        table.form = form
        table.encoder = _ENCODERS[form].from_state(inner, {name[len(prefix) :]: own[name] for name in own})
        table.encoder.row = table.row
        # What the encoder makes of no rows tells the widths that it believes in.
        columns = table.encoder.encode([[] if form == "records" else np.zeros((0, 0))]).node
        if [columns.width, columns.n_dense] != sizes:
            raise ModelFileError(f"the {what}: the encoder has {columns.width} columns, the file says {sizes}.")
        table.width, table.n_dense = sizes
        return table


def side_by_side(tables: list[Columns], kind: np.ndarray) -> Columns:
    """Rows of all kinds in the order of the nodes, ``kind`` (N,), each kind in columns of its own.

    >>> tables = [Columns.from_rows([[0], [1]], width=2), Columns.from_rows([[0]], width=1)]
    >>> side_by_side(tables, np.array([0, 1, 0])).indices.tolist()
    [0, 2, 1]
    """
    if len(tables) == 1:
        return tables[0]
    width, n_dense = (sum(sizes) for sizes in zip(*((table.width, table.n_dense) for table in tables)))
    rows = [np.flatnonzero(kind == number) for number in range(len(tables))]
    lengths = np.zeros(len(kind), np.int64)
    for at, table in zip(rows, tables):
        lengths[at] = np.diff(table.indptr)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    indices = np.zeros(indptr[-1], np.int32)
    values = np.ones(indptr[-1]) if any(table.values is not None for table in tables) else None
    dense = np.zeros((len(kind), n_dense)) if n_dense else None
    first = first_dense = 0
    for at, table in zip(rows, tables):
        entries = np.arange(len(table.indices)) + np.repeat(indptr[at] - table.indptr[:-1], np.diff(table.indptr))
        indices[entries] = table.indices + np.int32(first)
        if values is not None and table.values is not None:
            values[entries] = table.values
        if dense is not None and table.dense is not None:
            dense[at, first_dense : first_dense + table.n_dense] = table.dense
        first, first_dense = first + table.width, first_dense + table.n_dense
    return Columns(indptr, indices, width, values, dense)
