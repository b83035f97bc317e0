"""Incremental learning of layouts: more features and labels, and weights that follow.

New columns, labels and pairs get places; the old ones keep their weights, and new weights are zero, so that no score
of the old data changes (a new label starts with the score 0). Labels are added behind the old ones, columns wherever
the encoder put them (`features.growth`). The same union gives the layout of data that come in parts.

Cost: sorting the pairs (feature, label) that occur, O(F log F).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crfield.errors import ShapeError
from crfield.scoring.layout import Layout

Places = Mapping[str, np.ndarray]  # new places of old columns, by "node", "dense", "edge" and "edge_dense"


def joined(old: Layout, new: Layout, places: Places | None = None) -> Layout:
    """The features of both, with the sizes of ``new``, which has at least the columns and labels of ``old``.

    >>> import numpy as np
    >>> few = Layout(1, 1, feature_ptr=np.array([0, 1]), feature_label=np.array([0], np.int32), bias=True)
    >>> more = Layout(2, 2, feature_ptr=np.array([0, 0, 1]), feature_label=np.array([1], np.int32), bias=True)
    >>> both = joined(few, more)
    >>> both.feature_ptr.tolist(), both.feature_label.tolist()
    ([0, 1, 2], [0, 1])
    """
    _check(old, new, places)
    labels, square = new.n_labels, new.n_labels**2
    ptr = label = edge_ptr = edge_pair = None
    if old.feature_label is not None and new.feature_label is not None:
        keys = _union(_node_keys(old, new, places), _node_keys(new, new, None))
        ptr, label = _by_column(keys, new.n_columns, labels)
    if old.edge_pair is not None and new.edge_pair is not None:
        keys = _union(_edge_keys(old, new, places), _edge_keys(new, new, None))
        edge_ptr, edge_pair = _by_column(keys, new.n_edge_columns, square)
    return replace(
        new,
        feature_ptr=ptr,
        feature_label=label,
        pairs=_union(_pair_keys(old, labels), new.pairs).astype(np.int32),
        edge_ptr=edge_ptr,
        edge_pair=edge_pair,
    )


def _union(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The different keys of both, sorted; a stable sort only merges what is sorted already."""
    keys = np.sort(np.concatenate([one, other]), kind="stable")
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def carried(weights: np.ndarray, old: Layout, new: Layout, places: Places | None = None) -> np.ndarray:
    """(W,) weights of ``new``: those of ``old`` at their new places, zeros elsewhere.

    >>> few = Layout(1, 1, bias=True)
    >>> carried(np.array([3.0, 5.0]), few, Layout(2, 2, bias=True)).tolist()
    [3.0, 0.0, 0.0, 0.0, 5.0, 0.0]
    """
    _check(old, new, places)
    if weights.shape != (old.n_weights,):
        raise ShapeError(f"weights must have shape ({old.n_weights},) as in the layout, got {weights.shape}.")
    out, before, labels = np.zeros(new.n_weights), old.n_labels, new.n_labels
    take, put = old.part, new.part
    for name, keys, own, items in (
        ("node", _node_keys(old, new, places), _node_keys(new, new, None), new.feature_label),
        ("edge", _edge_keys(old, new, places), _edge_keys(new, new, None), new.edge_pair),
    ):
        at = keys if items is None else np.searchsorted(own, keys)
        out[put[name]][at] = weights[take[name]]
    for name in ("bias", "start", "end"):
        size = take[name].stop - take[name].start
        out[put[name]][:size] = weights[take[name]]
    out[put["transitions"]][np.searchsorted(new.pairs, _pair_keys(old, labels))] = weights[take["transitions"]]
    block = out[put["dense"]].reshape(new.n_dense, labels)
    block[_places(places, "dense", old.n_dense), :before] = weights[take["dense"]].reshape(old.n_dense, before)
    pairs = out[put["edge_dense"]].reshape(new.n_edge_dense, labels, labels)
    own_pairs = weights[take["edge_dense"]].reshape(old.n_edge_dense, before, before)
    pairs[_places(places, "edge_dense", old.n_edge_dense), :before, :before] = own_pairs
    return out


def _places(places: Places | None, name: str, size: int) -> np.ndarray:
    return np.arange(size) if places is None or name not in places else np.asarray(places[name], dtype=np.int64)


def _node_keys(layout: Layout, sizes: Layout, places: Places | None) -> np.ndarray:
    """column · L + label of every node feature, in the sizes of another layout."""
    column, label = layout.node_features()
    return _places(places, "node", layout.n_columns)[column] * np.int64(sizes.n_labels) + label


def _edge_keys(layout: Layout, sizes: Layout, places: Places | None) -> np.ndarray:
    """column · L² + pair of every edge feature, in the sizes of another layout."""
    column, pair = layout.edge_features()
    pair = _moved_pairs(np.asarray(pair, dtype=np.int64), layout.n_labels, sizes.n_labels)
    return _places(places, "edge", layout.n_edge_columns)[column] * np.int64(sizes.n_labels**2) + pair


def _pair_keys(layout: Layout, labels: int) -> np.ndarray:
    return _moved_pairs(layout.pairs.astype(np.int64), layout.n_labels, labels)


def _moved_pairs(pairs: np.ndarray, before: int, labels: int) -> np.ndarray:
    return pairs // before * labels + pairs % before


def _by_column(keys: np.ndarray, columns: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    ptr = np.searchsorted(keys, np.arange(columns + 1, dtype=np.int64) * width)
    return ptr.astype(np.int64), (keys % width).astype(np.int32)


def _check(old: Layout, new: Layout, places: Places | None) -> None:
    fits = (old.bias, old.boundaries) == (new.bias, new.boundaries) and old.n_labels <= new.n_labels
    for name, before, after in (
        ("node", old.n_columns, new.n_columns),
        ("dense", old.n_dense, new.n_dense),
        ("edge", old.n_edge_columns, new.n_edge_columns),
        ("edge_dense", old.n_edge_dense, new.n_edge_dense),
    ):
        moved = _places(places, name, before)
        fits &= moved.shape == (before,) and (not before or bool(moved.min() >= 0 and moved.max() < after))
        fits &= len(np.unique(moved)) == before
    if not fits:
        raise ShapeError(
            f"a layout of {old.n_labels} labels and {old.n_columns} columns cannot be carried over to one of "
            f"{new.n_labels} and {new.n_columns}: columns, labels or intercepts would be lost."
        )
