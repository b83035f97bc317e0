"""From the user's X to candidates, and from chosen candidates back to a model that reads X.

X is either anything that an encoder reads, and then its columns are the candidates; or recordings, and then a
catalogue of the relational language is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.data.batch import Batch, Columns, matrix_of
from crfield.data.labels import LabelCoder
from crfield.data.large import ROOM, refuse_large
from crfield.errors import DataWarning, InputError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.selected.model import ChosenColumns, recordings_of
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.features.lazy_columns import LazyColumns, MatrixColumns, Places
from crfield.features.matrices import MatrixEncoder
from crfield.features.relational.catalogue import Catalogue
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair
from crfield.scoring.layout import Layout
from crfield.selection.active import Base
from crfield.selection.problem import SelectionModel, SelectionProblem


class Candidates:
    """Candidates of X, and the way from chosen ones to a model."""

    def __init__(
        self,
        X: Any,
        labels: LabelCoder,
        *,
        catalogue: Catalogue | None,
        rate: float | None,
        transition_features: str | Sequence[Any] | None,
        feature_names: Sequence[str] | None,
    ) -> None:
        self.labels, self.rate, self.catalogue = labels, rate, catalogue
        self.columns: LazyColumns
        if catalogue is not None:
            self.catalogue = with_labels(catalogue, labels.labels)
            recordings = recordings_of(X, rate)
            self.rate = recordings.rate
            self.columns = self.catalogue.on(recordings)
            return
        self.encoder = encoder_for(X, transition_features=transition_features)
        if feature_names is not None:
            if not isinstance(self.encoder, MatrixEncoder):
                raise InputError("feature_names are for columns of arrays; these data bring their own names.")
            self.encoder.feature_names = [str(name) for name in feature_names]
        with warnings.catch_warnings():  # columns of different size are standardised later
            warnings.simplefilter("ignore", DataWarning)
            self.batch = self.encoder.fit(X)
        refuse_large(self.batch, self.encoder, most=ROOM)  # columns are standardised before they are squared
        self.columns = encoded_candidates(self.encoder, self.batch, labels.labels)

    def on(self, X: Any) -> LazyColumns:
        """The same candidates on other data."""
        if self.catalogue is not None:
            return self.catalogue.on(recordings_of(X, self.rate))
        return encoded_candidates(self.encoder, self.encoder.encode(X), self.labels.labels)

    def finished(
        self, problem: SelectionProblem, chosen: SelectionModel
    ) -> tuple[ColumnModel | ChosenColumns, FeatureList, np.ndarray]:
        """A model to keep, its features with weights in the units of the data, and their strengths."""
        base, weights = problem.raw(chosen)
        places, labels = self.columns.places(chosen.active), self.labels.labels
        order = np.argsort(-np.abs(chosen.weights), kind="stable")
        items = [
            FeatureWeight(
                self.columns.column_name(int(places.column[k])),
                labels[places.label[k]]
                if places.previous[k] < 0
                else LabelPair(labels[places.previous[k]], labels[places.label[k]]),
                float(weights[k]),
            )
            for k in order
        ]
        model: ColumnModel | ChosenColumns
        if self.catalogue is not None:
            model = ChosenColumns.of(self.catalogue, problem.base, base, places, weights, self.rate)
        else:
            layout, flat = chosen_weights(self.batch, problem.base, base, places, weights, self.labels.n_labels)
            model = ColumnModel(self.labels, self.encoder, layout, flat)
        return model, FeatureList(items), chosen.weights[order]


def with_labels(catalogue: Catalogue, labels: Sequence[Hashable]) -> Catalogue:
    """The same templates and agents, expanded over the labels that were met in training."""
    words = tuple(str(label) for label in labels)
    if len(set(words)) != len(words):
        raise InputError(f"labels must differ as text for the feature language, got {list(labels)}.")
    if catalogue.words.labels == words:
        return catalogue
    return catalogue.specification.over(replace(catalogue.words, labels=words))


def encoded_candidates(encoder: Encoder, batch: Batch, labels: Sequence[Hashable]) -> MatrixColumns:
    """The columns of a batch as candidates: sparse ones first, then dense ones, of steps and then of edges."""
    chains = batch.topology
    names = _names(batch.node, encoder.node_name, encoder.dense_name)
    transition, edge_names = None, None
    if batch.edge is not None:
        transition = _at_steps(_stacked(batch.edge), chains.heads, chains.n_nodes)
        edge_names = _names(batch.edge, encoder.edge_name, encoder.edge_dense_name)
    return MatrixColumns(
        _stacked(batch.node),
        chains=chains,
        n_labels=len(labels),
        transition=transition,
        names=names,
        transition_names=edge_names,
        labels=labels,
    )


def _names(columns: Columns, sparse: Callable[[int], str], dense: Callable[[int], str]) -> list[str]:
    return [*map(sparse, range(columns.width)), *map(dense, range(columns.n_dense))]


def _stacked(columns: Columns) -> Any:
    """Sparse and dense columns side by side, a plain array where all are dense; every cell once."""
    matrix = matrix_of(columns)
    if not isinstance(matrix, np.ndarray):
        matrix.sum_duplicates()
    return matrix


def _at_steps(rows: Any, heads: np.ndarray, steps: int) -> Any:
    """Rows of edges as rows of steps: an edge stands at its later step."""
    if isinstance(rows, np.ndarray):
        out = np.zeros((steps, rows.shape[1]))
        out[heads] = rows
        return out
    from scipy.sparse import csr_array

    place = csr_array((np.ones(len(heads)), (heads, np.arange(len(heads)))), shape=(steps, len(heads)))
    return csr_array(place @ rows)


def chosen_weights(
    batch: Batch,
    base: Base,
    weights_of_base: np.ndarray,
    places: Places,
    weights: np.ndarray,
    n_labels: int,
) -> tuple[Layout, np.ndarray]:
    """A layout of the chosen features of a batch, and their weights (W,), in the units of the columns."""
    node, edge, size = batch.node, batch.edge, n_labels
    width, dense = node.width, node.n_dense
    edge_width = 0 if edge is None else edge.width
    edge_dense = 0 if edge is None else edge.n_dense
    column, pair = places.column, places.previous * size + places.label
    of_step = places.previous < 0
    at = column - np.where(of_step, 0, width + dense)
    ptr, label, order = _listed(at, places.label, of_step & (at < width), width)
    edge_ptr, edge_pair, edge_order = _listed(at, pair, ~of_step & (at < edge_width), edge_width)
    bias, table, first, last = base.parts(weights_of_base, size)
    layout = Layout(
        n_labels=size,
        n_columns=width,
        n_dense=dense,
        bias=True,
        boundaries=True,
        feature_ptr=ptr,
        feature_label=label,
        pairs=np.arange(size * size, dtype=np.int32),
        n_edge_columns=edge_width,
        n_edge_dense=edge_dense,
        edge_ptr=edge_ptr,
        edge_pair=edge_pair,
    )
    flat = np.zeros(layout.n_weights)
    flat[layout.part["node"]] = weights[order]
    flat[layout.part["edge"]] = weights[edge_order]
    here = of_step & (at >= width)
    flat[layout.part["dense"]].reshape(dense, size)[at[here] - width, places.label[here]] = weights[here]
    there = ~of_step & (at >= edge_width)
    flat[layout.part["edge_dense"]].reshape(edge_dense, size * size)[at[there] - edge_width, pair[there]] = weights[
        there
    ]
    for name, values in (("bias", bias), ("transitions", table), ("start", first), ("end", last)):
        flat[layout.part[name]] = values.ravel()
    return layout, flat


def _listed(
    column: np.ndarray, item: np.ndarray, chosen: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pointers, items and the numbers of the features, sorted by column and item."""
    at = np.flatnonzero(chosen)
    at = at[np.lexsort((item[at], column[at]))]
    counts = np.bincount(column[at], minlength=width)[:width] if width else np.zeros(0, np.int64)
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
    return ptr, item[at].astype(np.int32), at
