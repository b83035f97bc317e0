"""Columns made of stumps: questions about the columns of flat rows, of sequences or of graphs, and their answers.

Data of any form are split into tables of rows with their labels, the questions are learnt from all rows laid end to
end, and answers come back in the form that came in: an array for flat rows, a list of arrays for sequences, graphs
for graphs (each kind of nodes with questions of its own; edges stay as they are). So encoders by stumps stand before
any estimator of fields in a pipeline of scikit-learn, which hands the labels through unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crfield.boosting.weak_learners.candidates import Table
from crfield.boosting.weak_learners.stumps import side_names, values_of
from crfield.data.graphs.graph import Graph, features_form
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ShapeError
from crfield.storage.state import State, refuse

Labels: TypeAlias = Sequence[Hashable]  # of some rows
ONE_KIND = ""  # rows that are no nodes of graphs


class _NotNumbers(ShapeError, TypeError):
    """Cells that are no numbers: a TypeError where Python and scikit-learn raise one."""


@dataclass(frozen=True, repr=False)
class Question:
    """Whether a column exceeds a threshold, and what a missing value (NaN) answers.

    >>> Question(2, 0.5).name(), Question(2, 0.5, missing=True).name()
    ('x[2] > 0.5', 'x[2] > 0.5 or missing')
    >>> Question(0, 0.5, missing=True).ask(np.array([[0.0], [1.0], [np.nan]])).tolist()
    [0.0, 1.0, 1.0]
    """

    column: int
    threshold: float  # +∞ asks whether the value is missing
    missing: bool = False  # what a missing value answers; no where none was met in training

    def name(self, names: Sequence[str] | None = None) -> str:
        """As people read it."""
        column = f"x[{self.column}]" if names is None else str(names[self.column])
        return side_names(column, self.threshold, 1 if self.missing else None)[1]

    def ask(self, table: Table) -> np.ndarray:
        """1.0 where the answer is yes (N,)."""
        values = values_of(table, self.column)
        yes = values > self.threshold
        if self.missing or np.isposinf(self.threshold):
            yes |= np.isnan(values)
        return yes.astype(np.float64)

    def __repr__(self) -> str:
        return f"Question({self.name()})"


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions about rows of one kind, what each is worth, and how many columns such rows have."""

    asked: list[Question]
    worth: np.ndarray  # (n,)
    width: int

    def answers(self, table: Table, asker: str) -> np.ndarray:
        """0/1 columns (N, n) of rows (N, F)."""
        if table.shape[1] != self.width:
            raise ShapeError(
                f"X has {table.shape[1]} features, but {asker} is expecting {self.width} features as input."
            )
        columns = [one.ask(table) for one in self.asked]
        return np.stack(columns, axis=1) if columns else np.zeros((table.shape[0], 0))


@dataclass(frozen=True, eq=False)
class StumpColumns:
    """Questions by kind of rows, and the names of the columns of a data frame.

    >>> columns = StumpColumns({ONE_KIND: Questions([Question(1, 0.5)], np.ones(1), 2)})
    >>> columns.transform([[0.0, 1.0], [1.0, 0.0]], "it").tolist(), columns.names_out(["a", "b"])
    ([[1.0], [0.0]], ['b > 0.5'])
    """

    kinds: Mapping[str, Questions]
    names: list[str] | None = None

    def transform(self, X: Any, asker: str) -> np.ndarray | list[np.ndarray] | list[Graph]:
        """0/1 columns in the form that X has; errors name the ``asker``."""
        form, parts = split_data(X)
        if form == "graphs":
            return [self._graph(graph, asker) for graph in parts]
        if ONE_KIND not in self.kinds:
            raise InputError("this encoder was fitted on graphs, and transforms graphs.")
        made = [self.kinds[ONE_KIND].answers(part, asker) for part in parts]
        return made[0] if form == "flat" else made

    def _graph(self, graph: Graph, asker: str) -> Graph:
        if (np.diff(graph.kind_of_node) < 0).any():
            raise InputError(
                "nodes of several kinds that lie mixed cannot be encoded; give nodes as a dict of kinds."
            )
        counts, nodes = np.bincount(graph.kind_of_node, minlength=len(graph.kinds)).tolist(), {}
        for kind, count in zip(graph.kinds, counts):
            features = graph.nodes[kind]
            if kind in self.kinds and _numeric(features):
                features = self.kinds[kind].answers(features, asker)
            nodes[kind] = count if features is None else features
        return Graph(nodes, dict(graph.edges))

    def names_out(self, given: Sequence[str] | None = None) -> list[str]:
        """The questions, by names of columns if given; those of a graph's kinds one after the other."""
        names, several = self.names if given is None else given, len(self.kinds) > 1
        return [
            (f"{kind}: " if several else "") + one.name(names)
            for kind, questions in self.kinds.items()
            for one in questions.asked
        ]

    def state(self) -> State:
        """Header and arrays."""
        kinds = [[kind, questions.width, len(questions.asked)] for kind, questions in self.kinds.items()]
        every = [one for questions in self.kinds.values() for one in questions.asked]
        arrays: dict[str, np.ndarray] = {
            "column": np.array([one.column for one in every], np.int64),
            "threshold": np.array([one.threshold for one in every], np.float64),
            "worth": np.concatenate([np.zeros(0), *(questions.worth for questions in self.kinds.values())]),
        }
        if any(one.missing for one in every):
            arrays["missing"] = np.array([one.missing for one in every], np.int8)
        return State({"kinds": kinds, "names": self.names}, arrays)

    @classmethod
    def from_state(cls, state: State, parameters: Mapping[str, object]) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        rows, names = state.listed("kinds"), state.header.get("names")
        for row in rows:
            if not isinstance(row, list) or [type(part) for part in row] != [str, int, int] or min(row[1:]) < 0:
                refuse("the model file does not say what it encodes")
        if names is not None and (not isinstance(names, list) or not all(isinstance(name, str) for name in names)):
            refuse("the model file's names of columns cannot be read")
        total, first, kinds = sum(row[2] for row in rows), 0, {}
        column, worth = state.array("column", (total,), np.int64), state.array("worth", (total,))
        threshold = state.array("threshold", (total,), finite=False)
        # Without the array missing values answer no, as in all files of before.
        missing = state.array("missing", (total,), np.int8) if "missing" in state.arrays else np.zeros(total, np.int8)
        if not rows or np.isnan(threshold).any() or not np.isin(missing, (0, 1)).all():
            refuse("the model file holds no questions, or one about no number")
        for kind, width, count in rows:
            own = slice(first, first + count)
            if count and not 0 <= column[own].min() <= column[own].max() < width:
                refuse("a question of the model file reads a column that is not there")
            if names is not None and len(names) != width:
                refuse(f"the model file's names do not fit its {width} columns")
            parts = (column[own].tolist(), threshold[own].tolist(), missing[own].astype(bool).tolist())
            asked = [Question(*told) for told in zip(*parts)]
            kinds[kind], first = Questions(asked, worth[own], width), first + count
        return cls(kinds, names)


# --------------------------------------------------------------------------------------------- forms of data


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """Rows of one kind whose labels are known, laid end to end."""

    rows: Table  # (N, F)
    codes: np.ndarray  # (N,)
    n_classes: int

    @classmethod
    def of(cls, tables: Sequence[Table], answers: Sequence[Labels]) -> LabelledTable:
        """The rows of tables whose labels are one and known; those of several or none are left out."""
        coder = LabelCoder().fit(answers)
        codes, _ = coder.encode(answers, [table.shape[0] for table in tables])
        some = [table for table in tables if table.shape[0]] or list(tables[:1])
        widths = {table.shape[1] for table in some}
        if len(widths) != 1:
            raise ShapeError(f"all parts of X must have the same number of columns, got {sorted(widths)}.")
        known = np.flatnonzero(codes >= 0)
        if not len(known):
            raise LabelError("no row has a label that is known.")
        return cls(_stacked(some)[known], codes[known], coder.n_labels)


def labelled_tables(X: Any, y: Any) -> tuple[dict[str, LabelledTable], list[str] | None]:
    """The rows of X with their labels by kind, and the names of columns that a data frame has.

    >>> tables, _ = labelled_tables([[0.0], [1.0], [2.0]], ["a", None, "b"])
    >>> tables[ONE_KIND].rows.tolist(), tables[ONE_KIND].codes.tolist()
    ([[0.0], [2.0]], [0, 1])
    """
    form, parts = split_data(X)
    if form == "flat":
        _refuse_empty(parts[0])
        names = getattr(X, "columns", None)
        table = LabelledTable.of(parts, [_column_of(y, parts[0])])
        return {ONE_KIND: table}, None if names is None else [str(name) for name in names]
    answers = _listed(y, len(parts))
    if form == "sequences":
        return {ONE_KIND: LabelledTable.of(parts, answers)}, None
    kinds: dict[str, tuple[list[Table], list[Labels]]] = {}
    for k, (graph, labels) in enumerate(zip(parts, answers)):
        for kind, own in _labels_by_kind(graph, labels, k).items():
            if _numeric(graph.nodes[kind]):
                tables, told = kinds.setdefault(kind, ([], []))
                tables.append(graph.nodes[kind])
                told.append(own)
    if not kinds:
        raise InputError("stumps need graphs whose nodes have numeric features.")
    return {kind: LabelledTable.of(*own) for kind, own in kinds.items()}, None


def _numeric(features: object) -> bool:
    return features_form(features) in ("dense", "sparse")


def split_data(X: Any) -> tuple[str, list[Any]]:
    """'flat' with one table, 'sequences' with several, or 'graphs'."""
    if hasattr(X, "tocsr"):
        return "flat", [X.tocsr()]
    frame = hasattr(X, "columns") and hasattr(X, "to_numpy")
    numbers = isinstance(X, np.ndarray) and X.dtype != object
    if frame or numbers or (hasattr(X, "__array__") and not hasattr(X, "__iter__")):
        return "flat", [_table(X, "X")]
    parts = list(X)
    if parts and all(isinstance(part, Graph) for part in parts):
        return "graphs", parts
    if not parts or any(_is_table(part) for part in parts):
        made = [p.tocsr() if hasattr(p, "tocsr") else _table(p, f"sequence {k}") for k, p in enumerate(parts)]
        return "sequences", made
    return "flat", [_table(X, "X")]


def _is_table(part: ArrayLike | Table) -> bool:
    try:
        return hasattr(part, "tocsr") or np.ndim(part) == 2
    except ValueError:  # ragged
        return False


def _table(given: object, where: str) -> np.ndarray:
    try:
        raw = np.asarray(given)
        if raw.dtype.kind == "c":
            raise ShapeError(f"{where} must be real numbers. Complex data not supported: give the parts as columns.")
        table = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, ShapeError):
            raise
        told = f"{where} must be numbers of shape (n_rows, n_columns); stumps read no dicts and no strings: {error}."
        raise (_NotNumbers if isinstance(error, TypeError) else ShapeError)(told) from None
    if table.ndim != 2:
        raise ShapeError(
            f"{where} must be (n_rows, n_columns), got {table.shape}. Reshape your data: X.reshape(-1, 1) for a "
            "single column."
        )
    return table


def _refuse_empty(table: Table) -> None:
    for axis, what in enumerate(("sample", "feature")):
        if table.shape[axis] == 0:
            raise ShapeError(f"X has 0 {what}(s) (shape={table.shape}) while a minimum of 1 is required.")


def _listed(y: Iterable[Any], n: int) -> list[Any]:
    labels = list(y)
    if len(labels) != n:
        raise ShapeError(f"y must have labels for each of {n} parts of X, got {len(labels)}.")
    return labels


def _column_of(y: ArrayLike, table: Table) -> Labels:
    labels = np.asarray(y)
    if labels.shape != table.shape[:1]:
        raise ShapeError(f"y must have one label for each of {table.shape[0]} rows, got {labels.shape}.")
    return list(labels.tolist())


def _labels_by_kind(graph: Graph, labels: object, k: int) -> dict[str, Labels]:
    if isinstance(labels, Mapping):
        return {kind: list(labels[kind]) for kind in graph.kinds if kind in labels}
    flat = np.asarray(labels, dtype=object).reshape(-1)
    if len(flat) != graph.n_nodes:
        raise ShapeError(f"graph {k} has {graph.n_nodes} nodes, but y has {len(flat)} labels for it.")
    return {kind: flat[graph.nodes_of(kind)].tolist() for kind in graph.kinds}


def _stacked(tables: list[Table]) -> Table:
    if any(hasattr(table, "tocsr") for table in tables):
        from scipy import sparse

        return sparse.vstack(tables).tocsr()
    return np.concatenate(tables)
