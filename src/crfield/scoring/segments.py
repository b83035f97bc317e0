"""Weights to scores of segments and back.

A step's columns enter the score of a segment in up to four *roles*, each with weights of its own:

    sum     Σ over the steps of the segment: what a chain's node features are
    mean    their average: independent of how long the segment is
    first   the columns of its first step                    last    those of its last step

All roles read the same columns, so they are one gather of rows P times as wide: a `Layout` whose labels are the pairs
(role, label). In a segment of one step all roles are the same thing, so a label that lasts no longer has sparse
columns in the first role alone: on text most steps are outside of everything, and most weights would be copies.
Beside them stand a chain's intercepts, transitions and edge features (which score two segments that meet), a weight
for each length or bin of lengths and label, and one for each (text, label).

    [ columns (role, label) | bias, start, end, transitions, edge features | length (bins, L) | texts ]

With segments of one step, the role "sum" and no lengths this is a chain's model, weight for weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.segments import Segmentation, SegmentPotentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError, ModelFileError
from crfield.kernels import linear, segments
from crfield.kernels.segments import Marks, Parts
from crfield.scoring.layout import Layout
from crfield.scoring.segment_states import SegmentStates

ROLES = ("sum", "mean", "first", "last")


@dataclass(frozen=True, eq=False)
class SegmentData:
    """Columns of steps and edges, and the segments that carry texts; without labels."""

    batch: Batch
    marks: Marks

    @cached_property
    def columns(self) -> Batch:
        """The batch without its columns of edges."""
        return Batch(self.batch.topology, self.batch.node)

    @cached_property
    def bare(self) -> Batch:
        """The batch without its columns of steps."""
        nodes = self.batch.topology.n_nodes
        empty = Columns(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int32), 0)
        return Batch(self.batch.topology, empty, self.batch.edge)


@dataclass(frozen=True, eq=False)
class SegmentLayout:
    """Where each weight lives in the flat vector.

    ``limit`` (L,) is the most steps of each label, ``bins`` (D,) the bin of each length (−1: no weight). With
    ``runs``, segments are longest runs of one label, or pieces of those that are longer (`scoring.segment_states`).

    >>> steps = Layout(n_labels=2, n_columns=3, edge_ptr=np.zeros(1, np.int64), edge_pair=np.zeros(0, np.int32))
    >>> base = Layout(n_labels=2, bias=True, edge_ptr=np.zeros(1, np.int64), edge_pair=np.zeros(0, np.int32))
    >>> layout = SegmentLayout(("sum",), steps, base, np.array([3, 1]), np.array([0, 1, 1]))
    >>> layout.n_weights, layout.part["length"], layout.max_length
    (12, slice(8, 12, None), 3)
    """

    roles: tuple[str, ...]
    steps: Layout  # of P · L labels, role · L + label
    base: Layout  # of L labels, without columns of steps
    limit: np.ndarray  # (L,) int32
    bins: np.ndarray  # (D,) int32
    item_ptr: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))  # (K + 1,)
    item_label: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # (F,)
    runs: bool = False

    @property
    def n_labels(self) -> int:
        """L."""
        return self.base.n_labels

    @property
    def max_length(self) -> int:
        """D."""
        return len(self.bins)

    def states(self, chains: Chains) -> SegmentStates:
        """What engines see in place of labels."""
        if self.runs:
            return SegmentStates.of_runs(self.limit, longest=int(chains.lengths.max(initial=0)))
        return SegmentStates.of_labels(self.limit)

    @cached_property
    def part(self) -> dict[str, slice]:
        """Slices of the flat vector by name."""
        sizes = {
            "steps": self.steps.n_weights,
            "base": self.base.n_weights,
            "length": (int(self.bins.max(initial=-1)) + 1) * self.n_labels,
            "texts": len(self.item_label),
        }
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends)}

    @property
    def n_weights(self) -> int:
        """W."""
        return int(self.part["texts"].stop)

    @cached_property
    def intercepts(self) -> np.ndarray:
        """(W,) bool: bias, start and end scores."""
        mask = np.zeros(self.n_weights, dtype=bool)
        mask[self.part["base"]] = self.base.intercepts
        return mask

    def lengths(self, weights: np.ndarray) -> np.ndarray:
        """(D, L) score of each length, −∞ beyond the limits."""
        table = np.concatenate(
            [weights[self.part["length"]].reshape(-1, self.n_labels), np.zeros((1, self.n_labels))]
        )
        scores: np.ndarray = table[self.bins]
        scores[np.arange(1, self.max_length + 1)[:, None] > self.limit] = -np.inf
        return scores

    @classmethod
    def observe(
        cls,
        batch: Batch,
        gold: Segmentation,
        *,
        limit: np.ndarray,
        bins: np.ndarray,
        roles: Sequence[str] = ("sum", "first", "last"),
        texts: tuple[np.ndarray, int] | None = None,
        feature_pairs: str = "observed",
        transition_pairs: str = "observed",
        bias: bool = True,
        boundaries: bool = True,
        runs: bool = False,
    ) -> SegmentLayout:
        """The layout for a training set.

        ``texts`` are the columns of the gold segments' texts, (runs, M), −1 for none, and the number of columns.
        Label pairs are those of neighbouring segments; a label that may last several steps may always follow itself.
        """
        if feature_pairs not in ("observed", "all"):
            raise InputError(f"feature_pairs must be 'observed' or 'all', got {feature_pairs!r}.")
        labels, none = len(limit), (np.zeros(1, np.int64), np.zeros(0, np.int32))
        ptr = label = None
        told_apart = _told_apart(len(roles), np.asarray(limit))
        if feature_pairs == "observed":
            met = [_met(gold, role, number * labels) for number, role in enumerate(roles)]
            rows = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in met)])
            items = np.concatenate([np.zeros(0, np.int32), *(items for _, items in met)])
            kept = told_apart[items]
            rows, items = rows[kept], items[kept]
            ptr, label = linear.observed(
                batch.node.indptr,
                batch.node.indices,
                rows,
                items,
                n_columns=batch.node.width,
                n_items=max(len(roles), 1) * labels,
            )
        elif not told_apart.all():
            some = np.flatnonzero(told_apart).astype(np.int32)
            ptr, label = np.arange(batch.node.width + 1) * len(some), np.tile(some, batch.node.width)
        steps = Layout(
            n_labels=max(len(roles), 1) * labels,
            n_columns=batch.node.width if roles else 0,
            n_dense=batch.node.n_dense if roles else 0,
            feature_ptr=ptr if roles else none[0],
            feature_label=label if roles else none[1],
            edge_ptr=none[0],
            edge_pair=none[1],
        )
        base = _base(batch, gold, limit, feature_pairs, transition_pairs, bias, boundaries)
        item_ptr, item_label = none if texts is None else _text_items(*texts, gold.label, labels, feature_pairs)
        return cls(tuple(roles), steps, base, np.asarray(limit, np.int32), bins, item_ptr, item_label, runs)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-able header and arrays for a model file."""
        header: dict[str, Any] = {"roles": list(self.roles), "runs": self.runs}
        arrays = {name: getattr(self, name) for name in ("limit", "bins", "item_ptr", "item_label")}
        for name in ("steps", "base"):
            header[name], own = getattr(self, name).state()
            arrays |= {f"{name}/{key}": value for key, value in own.items()}
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> SegmentLayout:
        """The layout whose state this is; everything is checked, since files may be damaged."""
        roles: Any = header.get("roles")
        runs = header.get("runs", False)  # not in files of before: there any label could follow itself
        made = {}
        for name in ("steps", "base"):
            own = {key.removeprefix(f"{name}/"): value for key, value in arrays.items() if key.startswith(f"{name}/")}
            if not isinstance(header.get(name), dict):
                raise ModelFileError("the layout of the weights is damaged: a part is missing.")
            made[name] = Layout.from_state(header[name], own)
        plain = {name: arrays.get(name) for name in ("limit", "bins", "item_ptr", "item_label")}
        kinds = {"limit": np.int32, "bins": np.int32, "item_ptr": np.int64, "item_label": np.int32}
        good = isinstance(roles, list) and all(isinstance(role, str) and role in ROLES for role in roles)
        good = good and len(set(roles)) == len(roles) and isinstance(runs, bool)
        good = good and all(x is not None and x.dtype == kinds[name] and x.ndim == 1 for name, x in plain.items())
        if not good:
            raise ModelFileError("the layout of the weights is damaged: roles, limits, lengths or texts.")
        layout = cls(tuple(roles), **made, **plain, runs=runs)  # type: ignore[arg-type]
        layout._check()
        return layout

    def _check(self) -> None:
        labels, ptr = self.n_labels, self.item_ptr
        bins = np.unique(self.bins)
        good = (
            self.steps.n_labels == max(len(self.roles), 1) * labels and self.base.n_columns == self.base.n_dense == 0
        )
        good &= self.limit.shape == (labels,) and len(self.bins) >= 1 and len(ptr) >= 1
        good = good and bool(self.limit.min() >= 1 and self.limit.max() <= len(self.bins))
        good = good and bool(bins[0] >= -1 and np.array_equal(bins[bins >= 0], np.arange(int((bins >= 0).sum()))))
        good = good and bool(ptr[0] == 0 and ptr[-1] == len(self.item_label) and (np.diff(ptr) >= 0).all())
        good = good and bool(((self.item_label >= 0) & (self.item_label < labels)).all())
        if not good:
            raise ModelFileError("the layout of the weights is damaged: lists out of order or out of range.")


@dataclass(frozen=True, eq=False)
class SegmentScorer:
    """Scores of segments that are sums of weights; ``pull`` is the transpose of ``score``."""

    layout: SegmentLayout

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    def parts(self, weights: np.ndarray, data: SegmentData, *, n_jobs: int = 1) -> tuple[Parts, np.ndarray]:
        """What the segment scores are summed from, and the edge scores (1 | E, L, L)."""
        layout, labels, part = self.layout, self.layout.n_labels, self.layout.part
        node, edge = linear.Tagger(layout.base, weights[part["base"]]).scores(data.bare, n_jobs=n_jobs)
        roles: dict[str, np.ndarray] = {}
        if layout.roles:
            wide, _ = linear.Tagger(layout.steps, weights[part["steps"]]).scores(data.columns, n_jobs=n_jobs)
            roles = {role: wide[:, k * labels : (k + 1) * labels] for k, role in enumerate(layout.roles)}
        if "sum" in roles:
            node += roles.pop("sum")
        first, last, mean = (roles.get(role) for role in ("first", "last", "mean"))
        return Parts(node, layout.lengths(weights), first, last, mean, weights[part["texts"]]), edge

    def score(self, weights: np.ndarray, data: SegmentData, *, n_jobs: int = 1) -> SegmentPotentials:
        """Potentials over states, N · D · S numbers."""
        chains = data.batch.topology
        states = self.layout.states(chains)
        parts, edge = self.parts(weights, data, n_jobs=n_jobs)
        own, marks = states.parts(parts, data.marks), states.marks(data.marks)
        return SegmentPotentials(
            segments.expand(chains.offsets, states.most, own, marks, n_jobs=n_jobs), states.edge(edge), chains
        )

    def pull(self, parts: Parts, edge: np.ndarray, data: SegmentData) -> np.ndarray:
        """Gradients in the shape of the parts and of the edges, as a gradient of the weights (W,)."""
        layout, out = self.layout, np.zeros(self.n_weights)
        out[layout.part["base"]] = linear.pull(layout.base, data.bare, parts.node, edge)
        if layout.roles:
            named = {"sum": parts.node, "mean": parts.mean, "first": parts.first, "last": parts.last}
            wide = np.concatenate([named[role] for role in layout.roles], axis=1)
            none = np.zeros((1, layout.steps.n_labels, layout.steps.n_labels))
            out[layout.part["steps"]] = linear.pull(layout.steps, data.columns, wide, none)
        lengths = out[layout.part["length"]].reshape(-1, layout.n_labels)
        weighted = np.flatnonzero(layout.bins >= 0)
        np.add.at(lengths, layout.bins[weighted], parts.length[weighted])
        if parts.weight is not None:
            out[layout.part["texts"]] = parts.weight
        return out

    def counts(self, gold: Segmentation, data: SegmentData, *, weight: np.ndarray | None = None) -> np.ndarray:
        """(W,) the gradient of the score of a segmentation: how often each feature is met in it."""
        layout, labels, chains = self.layout, self.layout.n_labels, data.batch.topology
        own = np.ones(chains.n_sequences) if weight is None else weight
        by_node, by_segment = own[chains.sequence_of_node], own[gold.sequence]
        node, first, last, mean = np.zeros((4, chains.n_nodes, labels))
        places = np.arange(chains.n_nodes)
        node[places, gold.node_labels] = by_node
        mean[places, gold.node_labels] = by_node / np.repeat(gold.lengths, gold.lengths)
        first[gold.start, gold.label] = by_segment
        last[gold.stop - 1, gold.label] = by_segment
        length = np.zeros((layout.max_length, labels))
        np.add.at(length, (gold.lengths - 1, gold.label), by_segment)
        later = np.flatnonzero(gold.follows)
        each = layout.base.n_edge_columns > 0 or layout.base.n_edge_dense > 0
        edge = np.zeros((chains.n_edges if each else 1, labels, labels))
        at = np.searchsorted(chains.heads, gold.start[later]) if each else np.zeros(len(later), np.int64)
        np.add.at(edge, (at, gold.label[later - 1], gold.label[later]), by_segment[later])
        parts = Parts(node, length, first, last, mean, self._text_counts(gold, data.marks, by_segment))
        return self.pull(parts, edge, data)

    def _text_counts(self, gold: Segmentation, marks: Marks, by_segment: np.ndarray) -> np.ndarray:
        nodes = len(marks.ptr) - 1
        steps, label, weight = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes)
        steps[gold.stop - 1], label[gold.stop - 1], weight[gold.stop - 1] = gold.lengths, gold.label, by_segment
        place = np.repeat(np.arange(nodes), np.diff(marks.ptr))
        hit = np.flatnonzero(marks.steps == steps[place])
        place, item = place[hit], marks.item[hit]
        count = np.diff(marks.item_ptr)[item]
        number = np.arange(count.sum()) + np.repeat(marks.item_ptr[item] - (np.cumsum(count) - count), count)
        place = np.repeat(place, count)
        same = marks.item_label[number] == label[place]
        return np.bincount(number[same], weight[place[same]], minlength=marks.n_weights)


def _told_apart(n_roles: int, limit: np.ndarray) -> np.ndarray:
    """(P · L,) bool: whether a (role, label) says what no earlier role of the label does."""
    first = np.arange(max(n_roles, 1)) == 0
    return (first[:, None] | (limit > 1)).ravel()


def _met(gold: Segmentation, role: str, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and the (role, label) that they are met with."""
    if role not in ROLES:
        raise InputError(f"step features must be among {', '.join(map(repr, ROLES))}, got {role!r}.")
    if role in ("sum", "mean"):
        return np.arange(gold.topology.n_nodes), (gold.node_labels + base).astype(np.int32)
    return (gold.start if role == "first" else gold.stop - 1), (gold.label + base).astype(np.int32)


def _base(
    batch: Batch,
    gold: Segmentation,
    limit: np.ndarray,
    feature_pairs: str,
    transition_pairs: str,
    bias: bool,
    boundaries: bool,
) -> Layout:
    """Intercepts, transitions and edge features, as a chain has them; pairs are of neighbouring segments."""
    labels, chains = len(limit), gold.topology
    nodes = chains.n_nodes
    empty = Columns(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int32), 0)
    later = np.flatnonzero(gold.follows)
    met = gold.label[later - 1].astype(np.int64) * labels + gold.label[later]
    made = Layout.observe(
        Batch(chains, empty),
        Target(chains, labels, gold.node_labels),
        transition_pairs=transition_pairs,
        bias=bias,
        boundaries=boundaries,
    )
    pairs = made.pairs
    if transition_pairs == "observed":
        again = np.flatnonzero(np.asarray(limit) > 1) * (labels + 1)
        pairs = np.union1d(met, again).astype(np.int32)
    ptr: np.ndarray | None = np.zeros(1, np.int64)
    pair: np.ndarray | None = np.zeros(0, np.int32)
    if batch.edge is not None and feature_pairs == "all":
        ptr = pair = None
    elif batch.edge is not None:
        ptr, pair = linear.observed(
            batch.edge.indptr,
            batch.edge.indices,
            np.searchsorted(chains.heads, gold.start[later]),
            met.astype(np.int32),
            n_columns=batch.edge.width,
            n_items=labels * labels,
        )
    return Layout(
        n_labels=labels,
        bias=bias,
        boundaries=boundaries,
        pairs=pairs,
        feature_ptr=np.zeros(1, np.int64),
        feature_label=np.zeros(0, np.int32),
        n_edge_columns=0 if batch.edge is None else batch.edge.width,
        n_edge_dense=0 if batch.edge is None else batch.edge.n_dense,
        edge_ptr=ptr,
        edge_pair=pair,
    )


def _text_items(
    columns: np.ndarray, n_columns: int, label: np.ndarray, labels: int, feature_pairs: str
) -> tuple[np.ndarray, np.ndarray]:
    if feature_pairs == "all":
        return np.arange(n_columns + 1) * labels, np.tile(np.arange(labels, dtype=np.int32), n_columns)
    known = columns >= 0
    keys = np.unique(columns[known].astype(np.int64) * labels + np.broadcast_to(label, columns.shape)[known])
    ptr = np.searchsorted(keys, np.arange(n_columns + 1, dtype=np.int64) * labels)
    return ptr.astype(np.int64), (keys % labels).astype(np.int32)
