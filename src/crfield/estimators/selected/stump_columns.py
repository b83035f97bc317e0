"""What encoders by stumps share: questions about columns, for flat rows, for sequences and for graphs.

Data of any form are split into tables of rows with their labels, the questions are learnt from all rows laid end to
end, and answers come back in the form that came in: an array for flat rows, a list of arrays for sequences, graphs
for graphs (each kind of nodes with questions of its own; edges stay as they are). So the encoders stand before any
estimator of fields in a pipeline of scikit-learn, which hands the labels through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

from crfield.boosting.weak_learners.stumps import values_of
from crfield.core.estimator import TransformerMixin
from crfield.data.graphs.graph import Graph
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, NotFittedError, ShapeError

ONE_KIND = ""  # rows that are no nodes of graphs


class _NotFitted(NotFittedError, SklearnNotFittedError):
    """As scikit-learn's tools expect it, and ours."""


class _NotNumbers(ShapeError, TypeError):
    """Cells that are no numbers: a TypeError where Python and scikit-learn raise one."""


class Question:
    """Whether a column exceeds a threshold.

    >>> Question(2, 0.5).name()
    'x[2] > 0.5'
    """

    __slots__ = ("column", "threshold")

    def __init__(self, column: int, threshold: float) -> None:
        self.column, self.threshold = int(column), float(threshold)

    def name(self, names: Any = None) -> str:
        """As people read it."""
        column = f"x[{self.column}]" if names is None else str(names[self.column])
        return f"{column} is missing" if np.isinf(self.threshold) else f"{column} > {self.threshold:.6g}"

    def ask(self, table: Any) -> np.ndarray:
        """1.0 where the answer is yes (N,); a missing value says no, unless that is the question."""
        values = values_of(table, self.column)
        if np.isinf(self.threshold):
            return np.isnan(values).astype(np.float64)
        return (values > self.threshold).astype(np.float64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and (self.column, self.threshold) == (other.column, other.threshold)

    def __hash__(self) -> int:
        return hash((self.column, self.threshold))

    def __repr__(self) -> str:
        return f"Question({self.name()})"


class StumpColumns(TransformerMixin):
    """What encoders by stumps share: flat rows, sequences and graphs in and out.

    A subclass learns the questions of a kind of rows, and what each is worth: ``_choose``.
    """

    _questions: dict[str, list[Question]]
    _worth: dict[str, np.ndarray]
    _widths: dict[str, int]

    def _choose(self, table: Any, codes: np.ndarray, n_classes: int) -> tuple[list[Question], np.ndarray]:
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Self:
        """Learn questions from labelled rows (N, F) and (N,), or from lists of arrays or graphs and their labels.

        Labels that are unknown (None, or a set of several) are left out.
        """
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it chooses by the labels, "
                "so fit(X, y) needs y."
            )
        form, parts = _parts(X)
        if form == "graphs":
            kinds: dict[str, tuple[list[Any], list[Any]]] = {}
            for k, (graph, labels) in enumerate(zip(parts, _listed(y, len(parts)), strict=True)):
                for kind, own in _labels_by_kind(graph, labels, k).items():
                    if _numeric(graph.nodes[kind]):
                        tables, answers = kinds.setdefault(kind, ([], []))
                        tables.append(graph.nodes[kind])
                        answers.append(own)
            if not kinds:
                raise InputError(f"{type(self).__name__} needs graphs whose nodes have numeric features.")
        else:
            if form == "flat":
                _refuse_empty(parts[0])
            answers = [_column_of(y, parts[0])] if form == "flat" else list(_listed(y, len(parts)))
            kinds = {ONE_KIND: (parts, answers)}
        found = {kind: self._fit_kind(tables, answers) for kind, (tables, answers) in kinds.items()}
        self._questions = {kind: one[0] for kind, one in found.items()}
        self._worth = {kind: one[1] for kind, one in found.items()}
        self._widths = {kind: one[2] for kind, one in found.items()}
        names = getattr(X, "columns", None) if form == "flat" else None
        self._names = None if names is None else [str(name) for name in names]
        return self

    @property
    def questions_(self) -> Any:
        """The questions, or a dict of them by kind of nodes."""
        return self._fitted.get(ONE_KIND, self._fitted)

    @property
    def gains_(self) -> Any:
        """What each question is worth (n,), or a dict of it by kind of nodes."""
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        return self._worth.get(ONE_KIND, self._worth)

    @property
    def n_features_in_(self) -> int:
        """Columns of the rows that were seen; of the first kind of nodes, where there are several."""
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        return next(iter(self._widths.values()))

    @property
    def _fitted(self) -> dict[str, list[Question]]:
        if not hasattr(self, "_questions"):
            raise _NotFitted(f"this {type(self).__name__} is not fitted yet. Call fit(X, y) first.")
        return self._questions

    def _fit_kind(self, tables: list[Any], answers: list[Any]) -> tuple[list[Question], np.ndarray, int]:
        coder = LabelCoder().fit(answers)
        codes, _ = coder.encode(answers, [table.shape[0] for table in tables])
        widths = {table.shape[1] for table in tables if table.shape[0]} or {table.shape[1] for table in tables}
        if len(widths) != 1:
            raise ShapeError(f"all parts of X must have the same number of columns, got {sorted(widths)}.")
        whole = _stacked([table for table in tables if table.shape[0]] or tables[:1])
        known = codes >= 0
        if not known.any():
            raise LabelError("no row has a label that is known.")
        questions, worth = self._choose(whole[np.flatnonzero(known)], codes[known], coder.n_labels)
        return questions, worth, widths.pop()

    def transform(self, X: Any) -> Any:
        """0/1 columns, in the form that X has: an array for flat rows, a list for sequences or graphs."""
        fitted = self._fitted
        form, parts = _parts(X)
        if form == "graphs":
            return [self._graph(graph) for graph in parts]
        if ONE_KIND not in fitted:
            raise InputError("this encoder was fitted on graphs, and transforms graphs.")
        made = [self._table(part, ONE_KIND) for part in parts]
        return made[0] if form == "flat" else made

    def _table(self, table: Any, kind: str) -> np.ndarray:
        questions, width = self._questions[kind], self._widths[kind]
        if table.shape[1] != width:
            raise ShapeError(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {width} features as input."
            )
        return np.stack([one.ask(table) for one in questions], axis=1) if questions else np.zeros((table.shape[0], 0))

    def _graph(self, graph: Graph) -> Graph:
        nodes = {
            kind: self._table(features, kind) if kind in self._questions and _numeric(features) else features
            for kind, features in graph.nodes.items()
        }
        counts = np.bincount(graph.kind_of_node, minlength=len(graph.kinds))
        bare = {kind: int(counts[k]) if nodes[kind] is None else nodes[kind] for k, kind in enumerate(graph.kinds)}
        in_order = bool((np.diff(graph.kind_of_node) >= 0).all())
        if in_order:
            return Graph(bare, dict(graph.edges))
        raise InputError("nodes of several kinds that lie mixed cannot be encoded; give nodes as a dict of kinds.")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The questions, by names of columns if given; those of a graph's kinds one after the other."""
        fitted = self._fitted
        given = self._names if input_features is None else list(input_features)
        found = []
        for kind, questions in fitted.items():
            head = "" if len(fitted) == 1 else f"{kind}: "
            found += [head + one.name(given) for one in questions]
        return np.array(found, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_questions")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.two_d_array = True
        return tags


# ------------------------------------------------------------------------------------------ forms of data


def _numeric(features: Any) -> bool:
    return hasattr(features, "tocsr") or (isinstance(features, np.ndarray) and features.dtype.kind in "biuf")


def _parts(X: Any) -> tuple[str, list[Any]]:
    """'flat' with one table, 'sequences' with several, or 'graphs'."""
    if hasattr(X, "tocsr"):
        return "flat", [X.tocsr()]
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        return "flat", [_table(X.to_numpy(), "X")]
    if isinstance(X, np.ndarray) and X.dtype != object:
        return "flat", [_table(X, "X")]
    if hasattr(X, "__array__") and not hasattr(X, "__iter__"):
        return "flat", [_table(X, "X")]
    parts = list(X)
    if parts and all(isinstance(part, Graph) for part in parts):
        return "graphs", parts
    if parts and any(_is_table(part) for part in parts):
        made = [p.tocsr() if hasattr(p, "tocsr") else _table(p, f"sequence {k}") for k, p in enumerate(parts)]
        return "sequences", made
    if not parts:
        return "sequences", []
    return "flat", [_table(X, "X")]


def _is_table(part: Any) -> bool:
    try:
        return hasattr(part, "tocsr") or np.ndim(part) == 2
    except ValueError:  # ragged
        return False


def _table(given: Any, where: str) -> np.ndarray:
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


def _refuse_empty(table: Any) -> None:
    for axis, what in enumerate(("sample", "feature")):
        if table.shape[axis] == 0:
            raise ShapeError(f"X has 0 {what}(s) (shape={table.shape}) while a minimum of 1 is required.")


def _listed(y: Any, n: int) -> list[Any]:
    labels = list(y)
    if len(labels) != n:
        raise ShapeError(f"y must have labels for each of {n} parts of X, got {len(labels)}.")
    return labels


def _column_of(y: Any, table: Any) -> Any:
    labels = np.asarray(y)
    if labels.shape != table.shape[:1]:
        raise ShapeError(f"y must have one label for each of {table.shape[0]} rows, got {labels.shape}.")
    return labels.tolist()


def _labels_by_kind(graph: Graph, labels: Any, k: int) -> dict[str, Any]:
    if isinstance(labels, Mapping):
        return {kind: list(labels[kind]) for kind in graph.kinds if kind in labels}
    flat = np.asarray(labels, dtype=object).reshape(-1)
    if len(flat) != graph.n_nodes:
        raise ShapeError(f"graph {k} has {graph.n_nodes} nodes, but y has {len(flat)} labels for it.")
    return {kind: flat[graph.nodes_of(kind)].tolist() for kind in graph.kinds}


def _stacked(tables: list[Any]) -> Any:
    if any(hasattr(table, "tocsr") for table in tables):
        from scipy import sparse

        return sparse.vstack(tables).tocsr()
    return np.concatenate(tables)
