"""A part of the steps that candidates are computed on: what is trained on, and what is held out.

Candidates belong to whole recordings, since windows and lags look back over them. A split of the recordings, or of
one long recording in time, must therefore not cut the candidates: a `View` names spans of steps, each within one
sequence, that count as chains of their own. Columns are taken from it by row, and a gradient on the view is written
back to the steps and edges of the whole, with zeros elsewhere, before all candidates are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import LazyColumns, Places


class View:
    """Some spans of a candidate set with their labels; all of it without ``spans``.

    ``spans`` (n, 2) are first and end steps in the flat run of all sequences, each within one of them.

    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> columns = MatrixColumns(np.arange(5.0)[:, None], chains=Chains.from_lengths([3, 2]), n_labels=2)
    >>> view = View(columns, Target(columns.chains, 2, np.array([0, 1, 1, 0, 0])), spans=[(1, 3), (3, 5)])
    >>> view.chains.lengths.tolist(), view.target.labels.tolist(), view.heads.tolist()
    ([2, 2], [1, 1, 0, 0], [2, 4])
    """

    def __init__(self, candidates: LazyColumns, target: Target, *, spans: Any = None) -> None:
        if target.topology.n_nodes != candidates.chains.n_nodes or target.n_labels != candidates.n_labels:
            raise ShapeError(
                f"the target has {target.topology.n_nodes} steps and {target.n_labels} labels, the candidates "
                f"{candidates.chains.n_nodes} and {candidates.n_labels}. Do they belong to the same recordings?"
            )
        self.candidates = candidates
        self.rows: np.ndarray | None = None
        self.chains, self.target = candidates.chains, target
        if spans is not None:
            self._cut(np.asarray(spans, dtype=np.int64).reshape(-1, 2))

    def _cut(self, spans: np.ndarray) -> None:
        whole, target = self.candidates.chains, self.target
        first, end = spans[:, 0], spans[:, 1]
        if len(spans) and (first.min() < 0 or (end < first).any() or end.max() > whole.n_nodes):
            raise InputError(
                f"spans must be pairs (first, end) within 0 … {whole.n_nodes}, got {spans.tolist()[:3]}."
            )
        owner = np.searchsorted(whole.offsets, first, side="right") - 1
        filled = end > first
        if (end[filled] > whole.offsets[np.minimum(owner[filled] + 1, whole.n_sequences)]).any():
            raise InputError("a span must lie within one sequence: cut it where a sequence ends.")
        parts = [np.arange(a, b) for a, b in spans.tolist()]
        self.rows = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        self.chains = Chains.from_lengths(end - first)
        weight = None if target.weight is None else target.weight[np.minimum(owner, whole.n_sequences - 1)]
        allowed = None if target.allowed is None else target.allowed[self.rows]
        self.target = Target(self.chains, target.n_labels, target.labels[self.rows], allowed, weight)

    @property
    def n_labels(self) -> int:
        """L."""
        return self.candidates.n_labels

    @cached_property
    def heads(self) -> np.ndarray:
        """(e,) the step of the whole at which a transition-linked column is read, for each edge of the view."""
        return self.chains.heads if self.rows is None else self.rows[self.chains.heads]

    @cached_property
    def edges(self) -> np.ndarray:
        """(e,) numbers of the view's edges among those of the whole."""
        number = np.full(self.candidates.chains.n_nodes, -1, np.int64)
        number[self.candidates.chains.heads] = np.arange(self.candidates.chains.n_edges)
        return number[self.heads]

    @cached_property
    def node_weight(self) -> np.ndarray | None:
        """(n,) weight of every step, None where all are one."""
        weight = self.target.weight
        return None if weight is None else weight[self.chains.sequence_of_node]

    @cached_property
    def edge_weight(self) -> np.ndarray | None:
        """(e,) weight of every edge, None where all are one."""
        weight = self.target.weight
        return None if weight is None else weight[self.chains.sequence_of_edge]

    def values(self, places: Places) -> list[np.ndarray]:
        """Raw values of some candidates, (n,) for those linked to labels and (e,) for those linked to pairs."""
        columns, back = np.unique(places.column, return_inverse=True)
        found: list[np.ndarray] = []
        chunk = self.candidates.chunk(columns) if len(columns) else np.zeros((self.candidates.chains.n_nodes, 0))
        for k, previous in zip(back.tolist(), places.previous.tolist(), strict=True):
            rows = self.rows if previous < 0 else self.heads
            found.append(chunk[:, k].copy() if rows is None else chunk[rows, k])
        return found

    def scores(self, node: np.ndarray, edge: np.ndarray, *, n_jobs: int = 1) -> np.ndarray:
        """(n_candidates,) inner products of the raw columns with a gradient (n, L), (e, L, L) on the view."""
        if self.rows is not None:
            whole = self.candidates.chains
            wide_node = np.zeros((whole.n_nodes, self.n_labels))
            wide_edge = np.zeros((whole.n_edges, self.n_labels, self.n_labels))
            wide_node[self.rows] = node
            wide_edge[self.edges] = edge
            node, edge = wide_node, wide_edge
        return self.candidates.scores(node, edge, n_jobs=n_jobs)


def spans_of(chains: Chains, sequences: Sequence[int] | np.ndarray) -> np.ndarray:
    """(n, 2) the spans of whole sequences.

    >>> spans_of(Chains.from_lengths([3, 2, 4]), [2, 0]).tolist()
    [[5, 9], [0, 3]]
    """
    chosen = np.asarray(sequences, dtype=np.int64)
    return np.stack([chains.offsets[chosen], chains.offsets[chosen + 1]], axis=1)
