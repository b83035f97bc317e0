"""Naming the weights of a chain model: only the names that somebody reads are made."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError
from crfield.estimators.chain.model import ColumnModel
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair


def strongest_features(model: ColumnModel, coder: LabelCoder, n: int, label: Hashable | None) -> FeatureList:
    """The n features of largest absolute weight, strongest first.

    Features of a pair of labels carry a `LabelPair` as their label. Transitions without features are left out: they
    have a table of their own.
    """
    if n < 0:
        raise InputError(f"n must not be negative, got {n}.")
    labels = coder.labels
    if label is not None and label not in labels:
        raise LabelError(f"label {label!r} is unknown; the model knows {labels[:20]}.")
    weights, layout, size = model.weights, model.layout, len(labels)
    candidates = np.concatenate([np.arange(s.start, s.stop) for s in _parts(model)])
    code_of = np.full(layout.n_weights, -1)
    column, code = layout.node_features()
    code_of[layout.part["node"]] = code
    for name in ("dense", "bias", "start", "end"):
        part = layout.part[name]
        code_of[part] = np.arange(part.stop - part.start) % size
    edge_column, pair = layout.edge_features()
    code_of[layout.part["edge"]] = pair % size
    code_of[layout.part["edge_dense"]] = np.arange(layout.n_edge_dense * size * size) % size
    if label is not None:
        candidates = candidates[code_of[candidates] == labels.index(label)]
    n = min(n, len(candidates))
    strength = -np.abs(weights[candidates])
    chosen = candidates[np.argpartition(strength, n - 1)[:n]] if n else candidates[:0]
    chosen = chosen[np.lexsort((chosen, -np.abs(weights[chosen])))]
    items = []
    for k in chosen[weights[chosen] != 0.0].tolist():
        name, where = _name(model, k, column, edge_column, pair)
        shown = labels[code_of[k]] if where is None else LabelPair(labels[where // size], labels[where % size])
        items.append(FeatureWeight(name, shown, float(weights[k])))
    return FeatureList(items)


def _parts(model: ColumnModel) -> list[slice]:
    part = model.layout.part
    return [part[name] for name in ("node", "dense", "bias", "start", "end", "edge", "edge_dense")]


def _name(
    model: ColumnModel, k: int, column: np.ndarray, edge_column: np.ndarray, pair: np.ndarray
) -> tuple[str, int | None]:
    """Name of the feature of weight k, and its label pair if it is one of the edges."""
    part, encoder, size = model.layout.part, model.encoder, model.layout.n_labels
    if k < part["node"].stop:
        return encoder.node_name(int(column[k])), None
    if k < part["dense"].stop:
        return encoder.dense_name((k - part["dense"].start) // size), None
    for name in ("bias", "start", "end"):
        if part[name].start <= k < part[name].stop:
            return f"({name})", None
    if k < part["edge"].stop:
        at = k - part["edge"].start
        return encoder.edge_name(int(edge_column[at])), int(pair[at])
    at = k - part["edge_dense"].start
    return encoder.edge_dense_name(at // (size * size)), at % (size * size)
