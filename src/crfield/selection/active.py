"""The likelihood of a chain whose features have one weight each.

A chosen feature is a column linked to one label or to one pair of labels. The layouts of `crfield.scoring` give a
dense column a weight for every label and run through all of them; here columns are kept by *link*, (features,
steps) each, so scoring and pulling are one matrix–vector product for every link in use, and the sweep between them
is the compiled one of `crfield.kernels.chain`. On long recordings this is faster than the fused kernel, with dense
or sparse columns, which is made for many short sequences (`python -m benchmarks selection`). Memory is 8 bytes for
each step of each active feature.

    node_n(j) = bias_j + Σ_k w_k x_k(n) [label_k = j]        edge_e(i, j) = T_ij + Σ_k w_k x_k(e) [link_k = (i, j)]

The *base* (`Base`) stands before the features. Rows of node scores are shifted so that the labels of the training
data score 0: beliefs do not mind, and the total is then the loss itself and not a small difference of large numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import one_hot
from crfield.selection.scale import ColumnScale
from crfield.selection.views import View

COLUMNS_AT_ONCE = 32


class Base(NamedTuple):
    """Which weights every model has.

    An intercept at every step beside transitions would be the same model twice: bias_j + T_ij is T'_ij but for the
    first step, which has no edge. So with transitions the intercept is that of first steps alone; nothing is lost.
    """

    intercept: bool = True
    transitions: bool = True
    boundaries: bool = False

    @property
    def everywhere(self) -> bool:
        """Whether there is an intercept at every step."""
        return self.intercept and not self.transitions

    @property
    def starts(self) -> bool:
        """Whether first steps have scores of their own."""
        return self.boundaries or (self.intercept and self.transitions)

    def _sizes(self, n_labels: int) -> tuple[int, ...]:
        return (
            n_labels * self.everywhere,
            n_labels**2 * self.transitions,
            n_labels * self.starts,
            n_labels * self.boundaries,
        )

    def size(self, n_labels: int) -> int:
        """Number of base weights: bias, transitions, first steps, last steps."""
        return sum(self._sizes(n_labels))

    def parts(self, base: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Views of bias (L,), transitions (L, L), first (L,), last (L,); zeros where there are none."""
        found, at = [], 0
        for size, wanted in zip(self._sizes(n_labels), (n_labels, n_labels**2, n_labels, n_labels), strict=True):
            found.append(base[at : at + size] if size else np.zeros(wanted))
            at += size
        return found[0], found[1].reshape(n_labels, n_labels), found[2], found[3]


class _Link:
    """The columns of one link, row by row in an array that grows."""

    def __init__(self, width: int) -> None:
        self.members: list[int] = []
        self._rows = np.empty((4, width))

    @property
    def rows(self) -> np.ndarray:
        return self._rows[: len(self.members)]

    def add(self, candidate: int, values: np.ndarray) -> None:
        used = len(self.members)
        if used == len(self._rows):
            wider = np.empty((2 * used, self._rows.shape[1]))
            wider[:used] = self._rows
            self._rows = wider
        self._rows[used] = values
        self.members.append(candidate)

    def keep(self, wanted: set[int]) -> None:
        kept = [k for k, candidate in enumerate(self.members) if candidate in wanted]
        if len(kept) < len(self.members):
            self._rows[: len(kept)] = self._rows[kept]
            self.members = [self.members[k] for k in kept]


class ActiveColumns:
    """Columns of the active features on a view, and the likelihood of their weights there.

    Weights are one vector: the base, then one for each active feature in the order of `use`.
    """

    def __init__(self, view: View, scale: ColumnScale, *, base: Base, n_jobs: int = 1) -> None:
        self.view, self.scale, self.base, self.n_jobs = view, scale, base, n_jobs
        self._labels = view.n_labels
        self._links: dict[int, _Link] = {}
        self._known: set[int] = set()
        self._order: list[tuple[int, np.ndarray, np.ndarray]] = []
        self.active = np.zeros(0, np.int64)
        lengths, offsets = view.chains.lengths, view.chains.offsets
        self._first = offsets[:-1][lengths > 0]
        self._last = offsets[1:][lengths > 0] - 1
        self._complete = bool(view.target.complete.all())
        truth = None
        if self._complete:
            blank = np.zeros((view.chains.n_edges, self._labels, self._labels))
            whole = Potentials(np.zeros((view.chains.n_nodes, self._labels)), blank, view.chains)
            truth = self._weighed(*one_hot(whole, view.target.labels))
        self._truth = truth
        self._counts = np.zeros(0) if truth is None else self._base_pull(*truth)

    @property
    def n_base(self) -> int:
        """Number of base weights."""
        return self.base.size(self._labels)

    @property
    def n_weights(self) -> int:
        """Base and active features."""
        return self.n_base + len(self.active)

    def counted_base(self) -> np.ndarray:
        """Base weights from counts of labels: logarithms of shares, which are all but optimal before any feature."""
        if self._truth is None:
            return np.zeros(self.n_base)
        node, edge = self._truth
        found = np.zeros(self.n_base)
        bias, table, first, _ = self.base.parts(found, self._labels)
        bias += _log_shares(node.sum(axis=0))
        table += _log_shares(edge.sum(axis=0))
        first += _log_shares(node[self._first].sum(axis=0))
        return found

    def use(self, active: np.ndarray) -> None:
        """Hold these candidates and no others; columns that are held already are not computed again."""
        active = np.asarray(active, dtype=np.int64)
        if np.array_equal(active, self.active):
            return
        wanted = set(active.tolist())
        for link in self._links.values():
            link.keep(wanted)
        self._known &= wanted
        missing = np.array([k for k in active.tolist() if k not in self._known], np.int64)
        for first in range(0, len(missing), COLUMNS_AT_ONCE):
            self._load(missing[first : first + COLUMNS_AT_ONCE])
        place = {candidate: k for k, candidate in enumerate(active.tolist())}
        self._links = {code: link for code, link in self._links.items() if link.members}
        self._order = [
            (code, np.array([place[c] for c in link.members]) + self.n_base, link.rows)
            for code, link in sorted(self._links.items())
        ]
        self.active = active.copy()
        if self._truth is not None:
            self._counts = self._pull(*self._truth)

    def values(self, candidates: np.ndarray) -> list[np.ndarray]:
        """Standardised values of some candidates, (n,) or (e,) by their link."""
        places = self.view.candidates.places(np.asarray(candidates, np.int64))
        mean, deviation = self.scale.mean[places.column], self.scale.deviation[places.column]
        raw = self.view.values(places)
        return [(x - m) / d for x, m, d in zip(raw, mean, deviation, strict=True)]

    def _load(self, candidates: np.ndarray) -> None:
        places = self.view.candidates.places(candidates)
        codes = np.where(
            places.previous < 0, places.label, self._labels + places.previous * self._labels + places.label
        )
        chains = self.view.chains
        for candidate, code, values in zip(candidates.tolist(), codes.tolist(), self.values(candidates), strict=True):
            width = chains.n_nodes if code < self._labels else chains.n_edges
            self._links.setdefault(code, _Link(width)).add(candidate, values)
            self._known.add(candidate)

    # ---------------------------------------------------------------------------------------- scores and back

    def potentials(self, weights: np.ndarray) -> Potentials:
        """Scores; one table for all edges where no active feature is linked to a pair."""
        bias, table, start, end = self.base.parts(weights[: self.n_base], self._labels)
        node = np.tile(bias, (self.view.chains.n_nodes, 1))
        node[self._first] += start
        node[self._last] += end
        edge = table[None]
        if any(code >= self._labels for code, _, _ in self._order):
            edge = np.repeat(edge, self.view.chains.n_edges, axis=0)
        for code, at, rows in self._order:
            if code < self._labels:
                node[:, code] += weights[at] @ rows
            else:
                edge.reshape(-1, self._labels**2)[:, code - self._labels] += weights[at] @ rows
        return Potentials(node, edge, self.view.chains)

    def _base_pull(self, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
        parts: list[np.ndarray] = []
        if self.base.everywhere:
            parts.append(node.sum(axis=0))
        if self.base.transitions:
            parts.append(edge.sum(axis=0).ravel())
        if self.base.starts:
            parts.append(node[self._first].sum(axis=0))
        if self.base.boundaries:
            parts.append(node[self._last].sum(axis=0))
        return np.concatenate([np.zeros(0), *parts])

    def _pull(self, node: np.ndarray, edge: np.ndarray) -> np.ndarray:
        found = np.empty(self.n_weights)
        found[: self.n_base] = self._base_pull(node, edge)
        pairs = edge.reshape(len(edge), self._labels**2)
        for code, at, rows in self._order:
            side = node[:, code] if code < self._labels else pairs[:, code - self._labels]
            found[at] = rows @ np.ascontiguousarray(side)
        return found

    def _weighed(self, node: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.view.node_weight is None or self.view.edge_weight is None:
            return node, edge
        return node * self.view.node_weight[:, None], edge * self.view.edge_weight[:, None, None]

    def _inferred(self, potentials: Potentials, *, each: bool = False) -> Beliefs:
        own = each or self.view.target.weight is not None
        if own and potentials.shared and self.view.chains.n_edges != 1:
            potentials = Potentials(
                potentials.node, np.repeat(potentials.edge, self.view.chains.n_edges, axis=0), self.view.chains
            )
        return ChainEngine(self.n_jobs).infer(potentials, Semiring.LOG)

    def _clamped(self, potentials: Potentials, *, each: bool = False) -> Beliefs:
        masked = np.where(self.view.target.mask, potentials.node, -np.inf)
        return self._inferred(Potentials(masked, potentials.edge, self.view.chains), each=each)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """−Σ weight · log p(labels); its gradient is written to ``gradient``."""
        potentials = self.potentials(weights)
        if self._complete:
            potentials = self._from_truth(potentials)
        free = self._inferred(potentials)
        weight = self.view.target.weight
        free_total = free.total if weight is None else weight * free.total
        gradient[:] = self._pull(*self._weighed(free.node, free.edge))
        if self._complete:
            gradient -= self._counts
            return max(float(free_total.sum()), 0.0)
        clamped = self._clamped(potentials)
        gradient -= self._pull(*self._weighed(clamped.node, clamped.edge))
        total = clamped.total if weight is None else weight * clamped.total
        return max(float((free_total - total).sum()), 0.0)

    def _from_truth(self, potentials: Potentials) -> Potentials:
        """The same scores, less what the true labels score at each step."""
        labels, chains = self.view.target.labels, self.view.chains
        true = potentials.node[np.arange(chains.n_nodes), labels]
        before, after = labels[chains.tails], labels[chains.heads]
        if potentials.shared:
            true[chains.heads] += potentials.edge[0][before, after]
        else:
            true[chains.heads] += potentials.edge[np.arange(chains.n_edges), before, after]
        return Potentials(potentials.node - true[:, None], potentials.edge, chains)

    def slope(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradient of the loss in the scores, (n, L) and (e, L, L): beliefs less the truth, weighed."""
        potentials = self.potentials(weights)
        free = self._inferred(potentials, each=True)
        node, edge = self._weighed(free.node, free.edge)
        if self._truth is not None:
            return node - self._truth[0], edge - self._truth[1]
        clamped = self._clamped(potentials, each=True)
        known_node, known_edge = self._weighed(clamped.node, clamped.edge)
        return node - known_node, edge - known_edge

    def beliefs(self, weights: np.ndarray) -> Beliefs:
        """Marginals with one table for every edge."""
        return self._inferred(self.potentials(weights), each=True)


def _log_shares(counts: np.ndarray) -> np.ndarray:
    """Logarithms of the shares along the last axis, with a tenth of a count for what was not seen, centred."""
    shares = np.log((counts + 0.1) / (counts + 0.1).sum(axis=-1, keepdims=True))
    return shares - shares.mean()


def as_active(candidates: Sequence[int] | np.ndarray) -> np.ndarray:
    """Candidate numbers as int64 (K,), each once, in the order given.

    >>> as_active([4, 2, 4]).tolist()
    [4, 2]
    """
    return np.array(list(dict.fromkeys(np.asarray(candidates, dtype=np.int64).tolist())), np.int64)
