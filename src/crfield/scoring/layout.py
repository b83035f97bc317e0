"""Where each weight lives in the flat vector that optimisers see.

    [ node features | dense (D, L) | bias (L) | start (L) | end (L) | transitions | edge features |
      edge dense (DE, L, L) ]

A node feature is a pair (column, label). With ``pairs="observed"`` only pairs that occur in the training data have
a weight (on text a tenth of all pairs, and with less to fit, often better); with ``"all"`` every pair has one. The
same choice exists for transitions and for edge features, pairs (column, label before · label). Features count by
occurrence, so a numeric feature whose values are negative keeps its weights.

Scores that are not learnt (rules of which labels may follow, and costs) are no part of the vector: ``fixed`` holds
them, and they are added to the scores that the weights make.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crfield.core.constraints import FIXED, FixedScores
from crfield.core.target import Target
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.kernels import linear

MOST_LABELS = 65535  # of the kernels


@dataclass(frozen=True, eq=False)
class Layout:
    """The parts of the weight vector and their sizes.

    >>> import numpy as np
    >>> layout = Layout(n_labels=2, n_columns=3, pairs=np.arange(4, dtype=np.int32), bias=True)
    >>> layout.n_weights, layout.part["bias"]
    (12, slice(6, 8, None))
    """

    n_labels: int
    n_columns: int = 0
    n_dense: int = 0
    bias: bool = False
    boundaries: bool = False
    feature_ptr: np.ndarray | None = None  # (A + 1,) int64; None: all pairs
    feature_label: np.ndarray | None = None  # (F,) int32
    pairs: np.ndarray = None  # type: ignore[assignment]  # (P,) int32, sorted i·L + j
    n_edge_columns: int = 0
    n_edge_dense: int = 0
    edge_ptr: np.ndarray | None = None
    edge_pair: np.ndarray | None = None
    fixed: FixedScores | None = None

    def __post_init__(self) -> None:
        if self.pairs is None:
            object.__setattr__(self, "pairs", np.zeros(0, np.int32))
        if self.fixed is not None and self.fixed.n_labels != self.n_labels:
            raise ShapeError(f"fixed scores of {self.fixed.n_labels} labels in a layout of {self.n_labels}.")

    @property
    def linear(self) -> Layout:
        """The same without fixed scores, so that scores are linear in the weights: for directional derivatives."""
        return self if self.fixed is None else replace(self, fixed=None)

    @cached_property
    def part(self) -> dict[str, slice]:
        """Slices of the flat vector by name."""
        square = self.n_labels**2
        sizes = {
            "node": self.n_columns * self.n_labels if self.feature_label is None else len(self.feature_label),
            "dense": self.n_dense * self.n_labels,
            "bias": self.n_labels * self.bias,
            "start": self.n_labels * self.boundaries,
            "end": self.n_labels * self.boundaries,
            "transitions": len(self.pairs),
            "edge": self.n_edge_columns * square if self.edge_pair is None else len(self.edge_pair),
            "edge_dense": self.n_edge_dense * square,
        }
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends)}

    @cached_property
    def n_weights(self) -> int:
        """W."""
        return int(self.part["edge_dense"].stop)

    @cached_property
    def intercepts(self) -> np.ndarray:
        """(W,) bool: bias, start and end scores, which look at no feature and no neighbour."""
        mask = np.zeros(self.n_weights, dtype=bool)
        for name in ("bias", "start", "end"):
            mask[self.part[name]] = True
        return mask

    @classmethod
    def observe(
        cls,
        batch: Batch,
        target: Target,
        *,
        feature_pairs: str = "observed",
        transition_pairs: str = "observed",
        bias: bool = False,
        boundaries: bool = True,
    ) -> Layout:
        """The layout for a training set.

        A step with several allowed labels is met with each of them; one where everything is allowed with none.
        """
        if feature_pairs not in ("observed", "all"):
            raise InputError(f"feature_pairs must be 'observed' or 'all', got {feature_pairs!r}.")
        if transition_pairs not in ("observed", "all", "none"):
            raise InputError(f"transition_pairs must be 'observed', 'all' or 'none', got {transition_pairs!r}.")
        labels = target.n_labels
        rows, items = _met_labels(target)
        ptr = label = edge_ptr = edge_pair = None
        if feature_pairs == "observed":
            ptr, label = _observe(batch.node, rows, items, labels)
            if batch.edge is not None:
                edge_ptr, edge_pair = _observe(batch.edge, *_met_pairs(target, rows, items), labels * labels)
        elif batch.edge is None:
            edge_ptr, edge_pair = np.zeros(1, np.int64), np.zeros(0, np.int32)
        if transition_pairs == "observed":
            pairs = _different_pairs(target, rows, items)
        elif transition_pairs == "none":
            pairs = np.zeros(0, np.int32)
        else:
            pairs = np.arange(labels * labels, dtype=np.int32)
        return cls(
            n_labels=labels,
            n_columns=batch.node.width,
            n_dense=batch.node.n_dense,
            bias=bias,
            boundaries=boundaries,
            feature_ptr=ptr,
            feature_label=label,
            pairs=pairs,
            n_edge_columns=0 if batch.edge is None else batch.edge.width,
            n_edge_dense=0 if batch.edge is None else batch.edge.n_dense,
            edge_ptr=edge_ptr,
            edge_pair=edge_pair,
        )

    def transitions(self, weights: np.ndarray) -> np.ndarray:
        """(L, L) transition weights, NaN where a pair has none (and scores 0)."""
        table = np.full(self.n_labels**2, np.nan)
        table[self.pairs] = weights[self.part["transitions"]]
        return table.reshape(self.n_labels, self.n_labels)

    def node_features(self) -> tuple[np.ndarray, np.ndarray]:
        """Column and label of every node feature, (F,) each."""
        return _listed(self.feature_ptr, self.feature_label, self.n_columns, self.n_labels)

    def edge_features(self) -> tuple[np.ndarray, np.ndarray]:
        """Column and label pair i·L + j of every edge feature."""
        return _listed(self.edge_ptr, self.edge_pair, self.n_edge_columns, self.n_labels**2)

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """JSON-able header and arrays for a model file."""
        header: dict[str, object] = {
            "n_labels": self.n_labels,
            "n_columns": self.n_columns,
            "n_dense": self.n_dense,
            "bias": self.bias,
            "boundaries": self.boundaries,
            "n_edge_columns": self.n_edge_columns,
            "n_edge_dense": self.n_edge_dense,
        }
        arrays = {"pairs": self.pairs}
        for name in ("feature_ptr", "feature_label", "edge_ptr", "edge_pair"):
            value = getattr(self, name)
            if value is not None:
                arrays[name] = value
        if self.fixed is not None:
            arrays |= self.fixed.arrays()
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, object], arrays: dict[str, np.ndarray]) -> Layout:
        """The layout whose state this is; everything is checked, since files may be damaged."""
        counts = ("n_labels", "n_columns", "n_dense", "n_edge_columns", "n_edge_dense")
        values = {name: header.get(name) for name in counts}
        flags = {name: header.get(name) for name in ("bias", "boundaries")}
        if any(type(v) is not int or not 0 <= v < 2**31 for v in values.values()) or any(
            type(v) is not bool for v in flags.values()
        ):
            raise ModelFileError(f"the layout of the weights is damaged: {values}, {flags}.")
        try:
            constrained = any(name in arrays for name in FIXED)
            fixed = FixedScores.from_arrays(arrays, values["n_labels"]) if constrained else None  # type: ignore[arg-type]
        except InputError as error:
            raise ModelFileError(f"the layout of the weights is damaged: {error}") from None
        named = {k: arrays.get(k) for k in _ARRAYS}
        layout = cls(**values, **flags, **named, fixed=fixed)  # type: ignore[arg-type]
        layout._check()
        return layout

    def _check(self) -> None:
        square = self.n_labels**2
        ok = 1 <= self.n_labels <= MOST_LABELS
        ok &= self.pairs.dtype == np.int32 and self.pairs.ndim == 1 and _rising(self.pairs, square)
        for ptr, item, columns, limit in (
            (self.feature_ptr, self.feature_label, self.n_columns, self.n_labels),
            (self.edge_ptr, self.edge_pair, self.n_edge_columns, square),
        ):
            if ptr is None or item is None:
                ok &= ptr is None and item is None
                continue
            ok &= ptr.dtype == np.int64 and item.dtype == np.int32 and ptr.shape == (columns + 1,) and item.ndim == 1
            if not ok:
                break
            ok &= bool(ptr[0] == 0 and ptr[-1] == len(item) and (ptr[1:] >= ptr[:-1]).all())
            ok &= len(item) == 0 or bool(item.min() >= 0 and item.max() < limit)
            if ok and len(item) > 1:
                starts = np.zeros(len(item), dtype=bool)
                starts[ptr[:-1][ptr[:-1] < len(item)]] = True
                ok &= bool(((item[1:] > item[:-1]) | starts[1:]).all())
        if not ok:
            raise ModelFileError("the layout of the weights is damaged: lists out of order or out of range.")


_ARRAYS = ("pairs", "feature_ptr", "feature_label", "edge_ptr", "edge_pair")


def _rising(x: np.ndarray, limit: int) -> bool:
    return len(x) == 0 or bool(x[0] >= 0 and x[-1] < limit and (x[1:] > x[:-1]).all())


def _met_labels(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Rows and the labels they are met with."""
    known = np.flatnonzero(target.labels >= 0)
    if target.allowed is None:
        return known, target.labels
    some = np.flatnonzero((target.labels < 0) & ~target.allowed.all(axis=1))
    row, label = np.nonzero(target.allowed[some])
    return np.concatenate([known, some[row]]), np.concatenate([target.labels[known], label]).astype(np.int32)


def _met_pairs(target: Target, rows: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and the label pairs i·L + j they are met with."""
    labels, heads = target.n_labels, target.topology.heads
    if target.allowed is None:
        codes = target.labels.astype(np.int64)
        return np.arange(len(heads)), (codes[heads - 1] * labels + codes[heads]).astype(np.int32)
    met = _met_table(target, rows, items)
    edge, before, after = np.nonzero(met[heads - 1][:, :, None] & met[heads][:, None, :])
    return edge, (before * labels + after).astype(np.int32)


def _met_table(target: Target, rows: np.ndarray, items: np.ndarray) -> np.ndarray:
    """(N, L) bool: the labels that a step is met with."""
    met = np.zeros((len(target.labels), target.n_labels), dtype=bool)
    met[rows, items] = True
    return met


def _different_pairs(target: Target, rows: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The label pairs i·L + j that some edge is met with, sorted; counted by one product of tables."""
    heads = target.topology.heads
    if target.allowed is None:
        return np.unique(_met_pairs(target, rows, items)[1]).astype(np.int32)
    met = _met_table(target, rows, items).astype(np.float32)
    return np.flatnonzero(met[heads - 1].T @ met[heads] > 0).astype(np.int32)


def _observe(columns: Columns, rows: np.ndarray, items: np.ndarray, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    return linear.observed(columns.indptr, columns.indices, rows, items, n_columns=columns.width, n_items=n_items)


def _listed(
    ptr: np.ndarray | None, item: np.ndarray | None, columns: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    if ptr is None or item is None:
        return np.repeat(np.arange(columns), width), np.tile(np.arange(width), columns)
    return np.repeat(np.arange(columns), np.diff(ptr)), item.astype(np.int64)
