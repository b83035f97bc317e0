"""Incremental learning of encoders: new columns after ``fit``, without forgetting the old ones.

`grow` makes a new encoder from a fitted one and more data; the old one is left as it is, so that nothing is half done
when the data turn out to be bad. Old columns stay what they were: their names, their scale, their place among each
other. Where places change all the same (columns of sparse matrices are numbered in the order of the user's columns),
`Grown` says where each old column went, so that weights can follow (`scoring.layout_growth`).

The scale of a numeric column is that of the data in which it was first seen. It is not updated: a weight means
something only together with the scale it was learnt in. ``min_count`` counts within the new data.

Dense matrices have a fixed width and cannot grow; in sparse ones new columns within the width can come.

Cost: the new data are encoded, and the alphabet is copied, about a tenth of a second for each million columns.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import UNKNOWN, Alphabet
from crfield.data.batch import Batch, Columns
from crfield.data.tokens import TokenColumns
from crfield.features.columns.select import check_min_count, keep_columns, renumber, row_counts
from crfield.features.columns.standardise import Scale
from crfield.features.encoder import Encoder
from crfield.features.functions import FunctionEncoder
from crfield.features.matrices import MatrixEncoder, matrices_of
from crfield.features.records import RecordEncoder, _chosen, _encode
from crfield.features.templates.encoder import TemplateEncoder, _selected, _Side, _starts, _without_dropped
from crfield.features.transformed import TransformedEncoder
from crfield.features.transitions import EdgeChoice
from crfield.kernels import columns as kernel
from crfield.kernels.records import RecordTable

Places = np.ndarray  # the new place of every old column


@dataclass(frozen=True, eq=False)
class Grown:
    """An encoder that knows more, the new data in its columns, and where the old columns are now."""

    encoder: Encoder
    batch: Batch
    node: Places  # (K,)
    dense: Places  # (D,)
    edge: Places
    edge_dense: Places


def grow(encoder: Encoder, X: Any, *, min_count: int = 1) -> Grown:
    """The encoder with columns for what is new in X, and X encoded.

    >>> encoder = RecordEncoder()
    >>> _ = encoder.fit([[{"word": "dog"}]])
    >>> grown = grow(encoder, [[{"word": "cat"}, {"word": "dog"}]])
    >>> grown.batch.node.indices.tolist(), grown.encoder.node_name(1), grown.node.tolist()
    ([1, 0], 'word=cat', [0])
    """
    min_count = max(check_min_count(min_count), 1)
    if isinstance(encoder, RecordEncoder):
        return _grow_records(encoder, X, min_count)
    if isinstance(encoder, MatrixEncoder):
        return _grow_matrices(encoder, X, min_count)
    if isinstance(encoder, TemplateEncoder):
        return _grow_template(encoder, X, min_count)
    if isinstance(encoder, FunctionEncoder):
        return _grow_functions(encoder, X, min_count)
    if isinstance(encoder, TransformedEncoder):
        grown = grow(encoder.inner, encoder.transformer.transform(X), min_count=min_count)
        return replace(grown, encoder=encoder.with_inner(grown.encoder))
    batch = encoder.encode(X)
    return _unmoved(encoder, batch, batch)


def _unmoved(encoder: Encoder, batch: Batch, old: Batch) -> Grown:
    """All old columns where they were; ``old`` has their numbers."""
    edge = (0, 0) if old.edge is None else (old.edge.width, old.edge.n_dense)
    node, dense, *edges = (np.arange(n) for n in (old.node.width, old.node.n_dense, *edge))
    return Grown(encoder, batch, node, dense, *edges)


def _grow_records(old: RecordEncoder, X: Any, min_count: int) -> Grown:
    table = RecordTable.from_arrays(old.table.to_arrays())
    columns, dense = table.n_columns, table.n_dense
    topology, node = _encode(table, X, grow=True, first_step=old.first_step, joined=old.joined)
    if min_count > 1 and node.width > columns:
        keep = (row_counts(node) >= min_count) | (np.arange(node.width) < columns)
        if not keep.all():
            node = renumber(node, np.where(keep, np.cumsum(keep) - 1, UNKNOWN).astype(np.int32))
            table = table.subset(keep)
    made = copy.copy(old)
    made._table = table
    made._scale = _grown_scale(old._scale, node, np.arange(columns), dense) if old.standardize else None
    node = node if made._scale is None else made._scale.apply(node)
    edge, places = None, (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if old._edges is not None and old.transition_features is not None:
        made._edges, places = _joined_choice(
            old._edges, _chosen(table, old.transition_features), topology, node, min_count
        )
        edge = made._edges.take(topology, node)
    return Grown(made, Batch(topology, node, edge), np.arange(columns), np.arange(dense), *places)


def _joined_choice(
    old: EdgeChoice, wanted: EdgeChoice, topology: Chains, node: Columns, min_count: int
) -> tuple[EdgeChoice, tuple[Places, Places]]:
    """The old choice and whatever else is wanted and seen on enough edges; and where the old columns are in it."""
    other = EdgeChoice(np.setdiff1d(wanted.columns, old.columns), np.setdiff1d(wanted.dense, old.dense))
    seen, _ = other.learn(topology, node, min_count)
    made = EdgeChoice(np.union1d(old.columns, seen.columns), np.union1d(old.dense, seen.dense))
    return made, (np.searchsorted(made.columns, old.columns), np.searchsorted(made.dense, old.dense))


def _grown_scale(old: Scale | None, node: Columns, places: Places, n_dense: int) -> Scale | None:
    """The old scale for old columns, and that of the new data for new ones."""
    if old is None and node.values is None and node.dense is None:
        return None
    scale = Scale.learn(node)
    mean, deviation = scale.mean.copy(), scale.deviation.copy()
    dense_mean, dense_deviation = scale.dense_mean.copy(), scale.dense_deviation.copy()
    mean[places] = 0.0 if old is None else old.mean
    deviation[places] = 1.0 if old is None else old.deviation
    dense_mean[:n_dense] = 0.0 if old is None else old.dense_mean
    dense_deviation[:n_dense] = 1.0 if old is None else old.dense_deviation
    return Scale(mean, deviation, dense_mean, dense_deviation, scale.varied)


def _grow_matrices(old: MatrixEncoder, X: Any, min_count: int) -> Grown:
    if old._kept is None:
        batch = old.encode(X)
        return _unmoved(old, batch, batch)
    topology, whole = old._stack(matrices_of(X), True, old._width, fitted=True)
    found, counts = np.unique(whole.indices, return_counts=True)
    if min_count > 1:
        narrow = keep_columns(whole, found)
        counts = row_counts(narrow)
    kept = np.union1d(old._kept, found[counts >= min_count]).astype(np.int32)
    places = np.searchsorted(kept, old._kept)
    node = keep_columns(whole, kept)
    made = copy.copy(old)
    made._kept = kept
    made._scale = _grown_scale(old._scale, node, places, 0) if old.standardize else None
    node = node if made._scale is None else made._scale.apply(node)
    nothing = np.zeros(0, np.int64)
    edge, edges = None, (nothing, nothing)
    if old._edges is not None:
        moved = EdgeChoice(places[old._edges.columns], old._edges.dense)
        made._edges, edges = _joined_choice(moved, made._chosen(old._width, kept), topology, node, min_count)
        edge = made._edges.take(topology, node)
    return Grown(made, Batch(topology, node, edge), places, nothing, *edges)


def _grow_template(old: TemplateEncoder, X: Any, min_count: int) -> Grown:
    known, *sides = old._fitted()
    tokens = TokenColumns.from_sequences(X)
    if len(tokens.codes):
        old.template.check_width(tokens.width)
    alphabet = Alphabet.from_arrays(*known.to_arrays())
    used = np.zeros(len(tokens.alphabet), dtype=bool)
    for column in old.template.columns if len(tokens.codes) else ():
        used[tokens.codes[:, column]] = True
    number = np.full(len(used), UNKNOWN, np.int32)
    number[used] = alphabet.encode(tokens.alphabet.texts(np.flatnonzero(used)), add=True)
    codes = number[tokens.codes]
    alphabet.lock()
    made = copy.copy(old)
    grown: list[tuple[_Side, Columns]] = []
    for edges, side in enumerate(sides):
        fresh = made._restored(side.patterns, alphabet, side.skeleton, side.codes)
        indptr, indices = kernel.apply(fresh.table, codes, tokens.topology.offsets, edges=bool(edges), grow=True)
        skeleton, filling = fresh.table.tuples()
        whole = _Side(side.patterns, fresh.table, fresh.samples, skeleton, filling, _starts(fresh.samples, skeleton))
        if min_count > 1 and whole.width > side.width:
            kept = np.bincount(indices, minlength=whole.width) >= min_count
            kept[: side.width] = True
            whole = made._restored(side.patterns, alphabet, *_selected(whole, kept))
            place = np.where(kept, np.cumsum(kept) - 1, UNKNOWN).astype(np.int32)
            indptr, indices = _without_dropped(indptr, place[indices])
        grown.append((whole, Columns(indptr, indices, whole.width)))
    (made._node, node), (made._edge, edge) = grown
    made._alphabet = alphabet
    places = [np.arange(side.width) for side in sides]
    batch = Batch(tokens.topology, node, edge if old.template.bigrams else None)
    nothing = np.zeros(0, np.int64)
    return Grown(made, batch, places[0], nothing, places[1] if old.template.bigrams else nothing, nothing)


def _grow_functions(old: FunctionEncoder, X: Any, min_count: int) -> Grown:
    grown: list[Grown] = []

    def encode(encoder: RecordEncoder, records: Any) -> Batch:
        grown.append(_grow_records(encoder, records, min_count))
        return grown[-1].batch

    batch = old._batch(X, encode)
    made = copy.copy(old)
    made._node = grown[0].encoder  # type: ignore[assignment]
    nothing = np.zeros(0, np.int64)
    if len(grown) == 1:
        return Grown(made, batch, grown[0].node, grown[0].dense, nothing, nothing)
    made._edge = grown[1].encoder  # type: ignore[assignment]
    return Grown(made, batch, grown[0].node, grown[0].dense, grown[1].node, grown[1].dense)


def without_rare(encoder: Encoder, node: np.ndarray, edge: np.ndarray) -> Encoder:
    """The encoder with only those sparse columns of steps, and of edges, where ``node`` and ``edge`` are true.

    >>> encoder = RecordEncoder()
    >>> _ = encoder.fit([[["a", "b"]]])
    >>> without_rare(encoder, np.array([False, True]), np.zeros(0, bool)).node_name(0)
    'b'
    """
    made = copy.copy(encoder)
    if isinstance(made, TransformedEncoder):
        return made.with_inner(without_rare(made.inner, node, edge))
    if isinstance(made, FunctionEncoder):
        made._node = without_rare(made._node, node, np.zeros(0, bool))  # type: ignore[assignment]
        if made.transition_names:
            made._edge = without_rare(made._edge, edge, np.zeros(0, bool))  # type: ignore[assignment]
        return made
    if isinstance(made, TemplateEncoder):
        alphabet, *sides = made._fitted()
        kept = (node, edge if made.template.bigrams else np.zeros(sides[1].width, bool))
        made._node, made._edge = (
            made._restored(side.patterns, alphabet, *_selected(side, keep)) for side, keep in zip(sides, kept)
        )
        return made
    if isinstance(made, RecordEncoder):
        made._table = made.table.subset(node)
    elif isinstance(made, MatrixEncoder) and made._kept is not None:
        made._kept = made._kept[node]
    if isinstance(made, RecordEncoder | MatrixEncoder):
        if made._scale is not None and len(node):
            scale = made._scale
            varied = np.concatenate([scale.varied[: len(node)][node], scale.varied[len(node) :]])
            made._scale = Scale(
                scale.mean[node], scale.deviation[node], scale.dense_mean, scale.dense_deviation, varied
            )
        if made._edges is not None and len(node):
            columns = made._edges.columns[edge]
            made._edges = EdgeChoice((np.cumsum(node) - 1)[columns[node[columns]]], made._edges.dense)
    return made
