"""What `SelectedCRF` makes candidates of, and what it keeps of them.

X is either anything that an encoder reads, and then its columns are the candidates; or recordings, and then a
catalogue of the relational language is. What is kept differs alike: a model of encoded columns is a `ColumnModel`
like that of `ChainCRF`, with weights for the chosen features alone; a model of recordings computes the few columns
that were chosen and no others (`ChosenColumns`).
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.batch import Batch, Columns
from crfield.data.labels import LabelCoder
from crfield.errors import DataWarning, InputError, ModelFileError, ShapeError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.export.step_scores import DenseSteps
from crfield.features.encoder import Encoder
from crfield.features.lazy_columns import MatrixColumns, Places
from crfield.features.relational.catalogue import Catalogue
from crfield.features.relational.recordings import Recordings
from crfield.scoring.layout import Layout
from crfield.selection.active import Base

TABLES = ("weights", "bias", "transitions", "start", "end", "link_weights")


# ------------------------------------------------------------------------------------------- encoded columns


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


def fit_encoder(encoder: Encoder, X: Any) -> Batch:
    """Learn the columns; a word on numeric columns of different size is not for those who standardise later."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return encoder.fit(X)


def _names(columns: Columns, sparse: Any, dense: Any) -> list[str]:
    return [*map(sparse, range(columns.width)), *map(dense, range(columns.n_dense))]


def _stacked(columns: Columns) -> Any:
    """Sparse and dense columns side by side; a plain array where all are dense."""
    dense = np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense
    if not columns.width:
        return dense
    from scipy.sparse import csr_array, hstack

    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    sparse = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
    sparse.sum_duplicates()
    return sparse if not columns.n_dense else hstack([sparse, csr_array(dense)], format="csr")


def _at_steps(rows: Any, heads: np.ndarray, steps: int) -> Any:
    """Rows of edges as rows of steps: an edge stands at its later step."""
    if isinstance(rows, np.ndarray):
        out = np.zeros((steps, rows.shape[1]))
        out[heads] = rows
        return out
    from scipy.sparse import csr_array

    place = csr_array((np.ones(len(heads)), (heads, np.arange(len(heads)))), shape=(steps, len(heads)))
    return csr_array(place @ rows)


def column_model(
    encoder: Encoder,
    batch: Batch,
    base: Base,
    weights_of_base: np.ndarray,
    places: Places,
    weights: np.ndarray,
    n_labels: int,
) -> ColumnModel:
    """The chosen features of a batch as a linear model of its encoder; weights in the units of the columns."""
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
    return ColumnModel(LabelCoder.from_classes(range(size)), encoder, layout, flat)


def _listed(
    column: np.ndarray, item: np.ndarray, chosen: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pointers, items and the numbers of the features, sorted by column and item."""
    at = np.flatnonzero(chosen)
    at = at[np.lexsort((item[at], column[at]))]
    counts = np.bincount(column[at], minlength=width)[:width] if width else np.zeros(0, np.int64)
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
    return ptr, item[at].astype(np.int32), at


# ------------------------------------------------------------------------------------------------ recordings


def recordings_of(X: Any, rate: float) -> Recordings:
    """One `Recordings` of a list of arrays (T, R, D), or of `Recordings` of one each."""
    if isinstance(X, Recordings):
        raise InputError("X must be a list with one recording for each label sequence. Write [X] for a single one.")
    if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise InputError(f"X must be a list of recordings, arrays (steps, agents, axes), got {type(X).__name__}.")
    items = [X[k] for k in range(len(X))]
    if not any(isinstance(item, Recordings) for item in items):
        return Recordings.of(items, rate=rate)
    if not all(isinstance(item, Recordings) for item in items):
        raise InputError("X must hold arrays or Recordings, not both.")
    rates = {item.rate for item in items}
    if len(rates) > 1 or any(item.chains.n_sequences != 1 for item in items):
        raise ShapeError(f"each Recordings in X must hold one recording, all of one rate, got rates {sorted(rates)}.")
    return Recordings.of(
        [item.positions for item in items],
        rate=rates.pop(),
        velocities=[item.velocities for item in items],
        channels={name: [item.channels[name] for item in items] for name in items[0].channels},
        agent_channels={name: [item.agent_channels[name] for item in items] for name in items[0].agent_channels},
    )


def with_labels(catalogue: Catalogue, labels: Sequence[Hashable]) -> Catalogue:
    """The same templates and agents, expanded over the labels that were met in training."""
    words = tuple(str(label) for label in labels)
    if len(set(words)) != len(words):
        raise InputError(f"labels must differ as text for the feature language, got {list(labels)}.")
    if catalogue.words.labels == words:
        return catalogue
    return catalogue.specification.over(replace(catalogue.words, labels=words))


@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """Some columns of a catalogue with their weights.

    node = x W + bias,  edge = T + Σ_g x_g Q_g,  with start and end at the ends of a recording.
    """

    catalogue: Catalogue
    columns: np.ndarray  # (D,) numbers in the catalogue
    rate: float
    steps: DenseSteps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "steps": replace(self.steps)}  # without what a stream has compiled of it

    @classmethod
    def of(
        cls,
        catalogue: Catalogue,
        base: Base,
        weights_of_base: np.ndarray,
        places: Places,
        weights: np.ndarray,
        rate: float,
    ) -> ChosenColumns:
        """From weights in the units of the columns."""
        size = catalogue.n_labels
        columns, back = np.unique(places.column, return_inverse=True)
        state = places.previous < 0
        table = np.zeros((len(columns), size))
        table[back[state], places.label[state]] = weights[state]
        linked, link = np.unique(back[~state], return_inverse=True)
        link_weights = np.zeros((len(linked), size, size))
        link_weights[link, places.previous[~state], places.label[~state]] = weights[~state]
        bias, transitions, first, last = base.parts(weights_of_base, size)
        names = tuple(catalogue.column_name(int(k)) for k in columns)
        steps = DenseSteps(
            table,
            transitions.copy(),
            bias.copy(),
            first.copy(),
            last.copy(),
            linked=linked.astype(np.int32),
            link_weights=link_weights,
            names=names,
        )
        return cls(catalogue, columns, rate, steps)

    def potentials(self, X: Any, *, n_jobs: int) -> Potentials:
        """Scores of recordings."""
        recordings = recordings_of(X, self.rate)
        chains, steps = recordings.chains, self.steps
        if not chains.n_nodes:
            empty = np.zeros((0, self.catalogue.n_labels))
            return Potentials(empty, steps.transitions[None], chains)
        x = self.catalogue.on(recordings).chunk(self.columns)
        node = x @ steps.weights + steps.bias
        filled = chains.lengths > 0
        node[chains.offsets[:-1][filled]] += steps.start
        node[chains.offsets[1:][filled] - 1] += steps.end
        edge = steps.transitions[None]
        if steps.varied:
            edge = edge + np.tensordot(x[chains.heads][:, steps.linked], steps.link_weights, axes=1)
        return Potentials(node, edge, chains)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and arrays."""
        header = {"catalogue": self.catalogue.state(), "rate": self.rate}
        arrays = {name: np.ascontiguousarray(getattr(self.steps, name), np.float64) for name in TABLES}
        return header, {"columns": self.columns.astype(np.int64), "linked": self.steps.linked, **arrays}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ChosenColumns:
        """The model whose `state` this is; everything is checked, since files may be damaged."""
        if not isinstance(header.get("catalogue"), dict):
            raise ModelFileError("the model file lacks its catalogue of features: the file is damaged.")
        catalogue = Catalogue.from_state(header["catalogue"])
        size, rate = catalogue.n_labels, header.get("rate")
        columns, linked = arrays.get("columns"), arrays.get("linked")
        if (
            not isinstance(rate, float)
            or not 0 < rate < np.inf
            or columns is None
            or linked is None
            or columns.dtype != np.int64
            or linked.dtype != np.int32
            or columns.ndim != 1
            or linked.ndim != 1
            or (len(columns) and not 0 <= columns.min() <= columns.max() < catalogue.n_columns)
            or (len(linked) and not 0 <= linked.min() <= linked.max() < len(columns))
        ):
            raise ModelFileError("the model file's chosen columns are damaged.")
        shapes = {
            "weights": (len(columns), size),
            "bias": (size,),
            "transitions": (size, size),
            "start": (size,),
            "end": (size,),
            "link_weights": (len(linked), size, size),
        }
        for name, shape in shapes.items():
            table = arrays.get(name)
            if table is None or table.dtype != np.float64 or table.shape != shape or not np.isfinite(table).all():
                raise ModelFileError(f"the model file's {name} must be {shape} finite numbers: the file is damaged.")
        names = tuple(catalogue.column_name(int(k)) for k in columns)
        tables = {name: np.array(arrays[name]) for name in TABLES}
        return cls(catalogue, np.array(columns), rate, DenseSteps(**tables, linked=np.array(linked), names=names))
