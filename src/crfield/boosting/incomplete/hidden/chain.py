"""A chain of hidden tags: the parts of speech of the words in a window.

A datum has up to T places, each with a tag that is known, hidden, or outside (the window reaches beyond the text).
Columns are indicators of the tag of each place and, if wished, of the tags of each two neighbouring places:

    s(x, h, y) = Σ_d λ[d, h_d, y] + Σ_d μ[d, h_d, h_{d+1}, y]
    q₀(h | x)  ∝ Π_d node_d(h_d) Π_d link(h_d, h_{d+1})

Both are products along a chain, so sums over all tag sequences are forward–backward sweeps of `ChainEngine`, one for
each label: O(N Y T S²) instead of S^T. A known tag forbids all others at its place. Windows overlap, and each is
summed on its own: they are data of a classifier, not a model of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine

OUTSIDE = "<outside>"
HIDDEN, NO_PLACE = -1, -2


def tag_windows(sequences: Any, *, before: int = 2, after: int = 2) -> np.ndarray:
    """(N, before + 1 + after) tags around every step of some sequences; ``OUTSIDE`` beyond their ends.

    A sequence of None instead of tags is hidden: an integer gives its length.

    >>> tag_windows([["D", "N"], 1], before=1, after=1).tolist()
    [['<outside>', 'D', 'N'], ['D', 'N', '<outside>'], ['<outside>', None, '<outside>']]
    """
    rows: list[list[Any]] = []
    for tags in sequences:
        known = [None] * tags if isinstance(tags, int | np.integer) else list(tags)
        padded = [OUTSIDE] * before + known + [OUTSIDE] * after
        rows += [padded[t : t + before + 1 + after] for t in range(len(known))]
    out = np.empty((len(rows), before + 1 + after), dtype=object)
    for i, row in enumerate(rows):
        out[i] = row
    return out


@dataclass(frozen=True, eq=False)
class ChainPart:
    """Windows of tags: codes (N, T), log prior of nodes (N or 1, T, S) and of links (S, S).

    Codes are tags from 0, or ``HIDDEN``, or ``NO_PLACE``, which is allowed at both ends of a window only.
    """

    codes: np.ndarray  # (N, T) int64
    log_node: np.ndarray  # (N or 1, T, S)
    log_link: np.ndarray  # (S, S)
    pairs: bool = False
    n_jobs: int = 1

    @property
    def n_tags(self) -> int:
        """S."""
        return len(self.log_link)

    @property
    def n_places(self) -> int:
        """T."""
        return int(self.codes.shape[1])

    @property
    def n_columns(self) -> int:
        """T S indicators of tags, then (T − 1) S² of pairs."""
        return column_count(self.n_places, self.n_tags, self.pairs)

    @property
    def mass(self) -> np.ndarray:
        """(N,) places of each datum, and its neighbouring pairs where they are columns."""
        places = self._chains.lengths
        return places + (np.maximum(places - 1, 0) if self.pairs else 0.0)

    @property
    def observed(self) -> np.ndarray:
        """(N,) whether no tag of a datum is hidden."""
        return (self.codes != HIDDEN).all(axis=1)

    @cached_property
    def _chains(self) -> Chains:
        there = self.codes != NO_PLACE
        edges = np.diff(np.pad(there, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        broken = np.flatnonzero((edges == 1).sum(axis=1) > 1)
        if len(broken):
            raise InputError(f"hidden[{int(broken[0])}]: places outside may stand at the ends of a window only.")
        return Chains.from_lengths(there.sum(axis=1))

    @cached_property
    def _place(self) -> np.ndarray:
        """(nodes,) the place of each node of the chains in its window."""
        return np.nonzero(self.codes != NO_PLACE)[1]

    @cached_property
    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Log prior of the nodes (nodes, S), known tags only where they are known, and log of its sum (N,)."""
        owner, place = self._chains.sequence_of_node, self._place
        node = np.array(self.log_node[owner if len(self.log_node) > 1 else 0, place], dtype=np.float64)
        known = self.codes[owner, place]
        node[(known[:, None] >= 0) & (known[:, None] != np.arange(self.n_tags))] = -np.inf
        # A known tag is an observation, whatever the prior thought of it.
        at = np.flatnonzero(known >= 0)
        node[at, known[at]] = np.where(np.isneginf(node[at, known[at]]), 0.0, node[at, known[at]])
        total = self._infer(node, self.log_link[None]).total
        impossible = np.flatnonzero(np.isneginf(total))
        if len(impossible):
            raise InputError(f"hidden[{int(impossible[0])}]: every sequence of tags has prior probability 0.")
        return node, total

    def _infer(self, node: np.ndarray, edge: np.ndarray, table: np.ndarray | None = None) -> Beliefs:
        return ChainEngine(self.n_jobs).infer(Potentials(node, edge, self._chains, table), Semiring.LOG)

    def sums(self, table: np.ndarray, labels: np.ndarray | None = None) -> ChainSums:
        """Sums over all tag sequences for a table of weights (D₂, Y)."""
        prior, total = self._prior
        owner, single = self._chains.sequence_of_node, self.n_places * self.n_tags
        tags = table[:single].T.reshape(-1, self.n_places, self.n_tags)  # (Y, T, S)
        links = table[single:].T.reshape(-1, self.n_places - 1, self.n_tags, self.n_tags) if self.pairs else None
        logs = np.empty((len(tags), len(total)))
        nodes, edges = [], []
        for y in range(len(tags)):
            node = prior + tags[y, self._place]
            if labels is not None:
                node -= tags[labels[owner], self._place]
            if links is None:
                found = self._infer(node, self.log_link[None])
            else:
                at = self._edge_place
                edge = self.log_link + links[y, at]
                if labels is not None:
                    edge -= links[labels[self._chains.sequence_of_edge], at]
                found = self._infer(node, edge, np.arange(len(at)))
                edges.append(found.edge)
            logs[y] = found.total - total
            nodes.append(found.node)
        return ChainSums(self, logs, nodes, edges)

    @cached_property
    def _edge_place(self) -> np.ndarray:
        return self._place[self._chains.tails]

    def prior_columns(self) -> Any:
        """(N, D₂) expected columns under the prior."""
        from scipy.sparse import csr_array

        node, _ = self._prior
        found = self._infer(node, self.log_link[None])
        at = (self._place[:, None] * self.n_tags + np.arange(self.n_tags)).ravel()
        rows, values = np.repeat(self._chains.sequence_of_node, self.n_tags), [found.node.ravel()]
        rows_all, columns = [rows], [at]
        if self.pairs:
            edges = self._infer(
                node,
                np.broadcast_to(self.log_link, (len(self._edge_place), *self.log_link.shape)),
                np.arange(len(self._edge_place)),
            )
            size = self.n_tags**2
            first = self.n_places * self.n_tags
            columns.append((first + self._edge_place[:, None] * size + np.arange(size)).ravel())
            rows_all.append(np.repeat(self._chains.sequence_of_edge, size))
            values.append(edges.edge.ravel())
        shape = (len(self.codes), self.n_columns)
        return csr_array((np.concatenate(values), (np.concatenate(rows_all), np.concatenate(columns))), shape)


@dataclass(frozen=True, eq=False)
class ChainSums:
    """Sums over the tag sequences of windows."""

    part: ChainPart
    logs: np.ndarray  # (Y, N)
    nodes: list[np.ndarray]  # Y of (nodes, S)
    edges: list[np.ndarray]  # Y of (edges, S, S), or none

    def expected(self, weight: np.ndarray, *, by_label: np.ndarray | None = None) -> np.ndarray:
        """(D₂, Y) Σ_i weight(y, i) · E[columns | i, y], gathered by y or by the label of i."""
        part, labels = self.part, len(weight)
        single, size = part.n_places * part.n_tags, part.n_tags**2
        out = np.zeros((labels, part.n_columns))
        of_node, of_edge = part._chains.sequence_of_node, part._chains.sequence_of_edge
        for y in range(labels):
            for_node = np.full(len(of_node), y) if by_label is None else by_label[of_node]
            place = for_node * part.n_places + part._place
            found = _gather(place, self.nodes[y] * weight[y][of_node][:, None], labels * part.n_places)
            out[:, :single] += found.reshape(labels, single)
            if self.edges:
                for_edge = np.full(len(of_edge), y) if by_label is None else by_label[of_edge]
                place = for_edge * (part.n_places - 1) + part._edge_place
                flat = self.edges[y].reshape(-1, size) * weight[y][of_edge][:, None]
                out[:, single:] += _gather(place, flat, labels * (part.n_places - 1)).reshape(labels, -1)
        return out.T


def _gather(place: np.ndarray, rows: np.ndarray, n_places: int) -> np.ndarray:
    """(n_places, S) sums of the rows (n, S) that have the same place."""
    if not len(rows):
        return np.zeros((n_places, rows.shape[1]))
    return np.stack([np.bincount(place, column, n_places) for column in rows.T], axis=1)


def column_count(n_places: int, n_tags: int, pairs: bool) -> int:
    """D₂ of a window of T places and S tags.

    >>> column_count(5, 3, False), column_count(5, 3, True)
    (15, 51)
    """
    return n_places * n_tags + (max(n_places - 1, 0) * n_tags**2 if pairs else 0)


def check_windows(hidden: Any, n_data: int) -> np.ndarray:
    """``hidden`` as an object array (N, T), one row of tags for each datum; a datum of None is hidden everywhere.

    >>> check_windows([["D", None], None], 2).tolist()
    [['D', None], [None, None]]
    """
    rows = list(hidden)
    if len(rows) != n_data:
        raise ShapeError(f"hidden must have one window of tags for each of {n_data} data, got {len(rows)}.")
    lengths = {len(row) for row in rows if row is not None and not isinstance(row, str)}
    if any(isinstance(row, str) for row in rows) or len(lengths) > 1:
        raise ShapeError(
            "every window of hidden must be a list of tags of one length, None where a tag is hidden and "
            f"{OUTSIDE!r} beyond the text, got "
            + ("a string." if len(lengths) <= 1 else f"lengths {sorted(lengths)}.")
        )
    out = np.full((n_data, lengths.pop() if lengths else 0), None, dtype=object)
    for i, row in enumerate(rows):
        if row is not None:
            for d, tag in enumerate(row):
                out[i, d] = tag
    return out
