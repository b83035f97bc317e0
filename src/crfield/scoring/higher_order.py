"""Higher-order chains: weights of label n-grams (n ≥ 3), exact, at the cost of the n-grams that occur.

    edge_t(y) = Σ_{r=1}^{order} T_r(y_{t-r}, …, y_t)

T_1 are the plain transitions. T_r has a weight for every run of r + 1 labels that occurs in the training data; a run
that does not occur falls back on the shorter ones it ends in, and scores 0 at its own length. Every labelling stays
possible.

What must be remembered of the past is then not r labels but the longest end of it that some weighted run begins with.
These beginnings are the states: with P the set of all proper beginnings of weighted runs, and every single label, the
state after the labels y_0 … y_t is the longest of their ends that lies in P. P holds the beginnings of its members,
so the state before and the next label determine the state after, and the weighted runs that end in that label. Hence
S states with L edges each instead of L^order: on a treebank or a chunking corpus some hundreds instead of thousands
(Ye, Lee, Chieu & Wu 2009, *Conditional random fields with high-order features for sequence labeling*; Cuong, Ye,
Lee & Chieu 2014; the automaton is that of Aho & Corasick 1975). Inference is `crfield.kernels.tuples`: O(N S L).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.kernels import linear, tuples
from crfield.scoring.layout import Layout

MOST_STATES = 1_000_000


@dataclass(frozen=True, eq=False)
class LabelRuns:
    """The label n-grams that have a weight, by length, and the states that remember their beginnings.

    ``runs[k]`` (n, k + 3) int32 holds the runs of order k + 2, sorted.

    >>> runs = LabelRuns(2, (np.array([[0, 1, 1]]),))
    >>> runs.states, runs.after.tolist(), runs.label.tolist()
    (((0,), (1,), (0, 1)), [[0, 2], [0, 1], [0, 1]], [0, 1, 1])
    """

    n_labels: int
    runs: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        kept = []
        for k, run in enumerate(self.runs):
            run = np.ascontiguousarray(run, np.int32)
            if run.ndim != 2 or run.shape[1] != k + 3:
                raise ShapeError(f"runs of order {k + 2} must be (n, {k + 3}), got {run.shape}.")
            if run.size and (run.min() < 0 or run.max() >= self.n_labels):
                raise ShapeError(f"runs must hold labels of 0 … {self.n_labels - 1}.")
            if len(run) > 1 and not (np.diff(_numbers(run, self.n_labels)) > 0).all():
                raise ShapeError(f"runs of order {k + 2} must be sorted, each once.")
            kept.append(run)
        object.__setattr__(self, "runs", tuple(kept))

    @classmethod
    def observe(cls, target: Target, order: int) -> LabelRuns:
        """The runs of up to ``order`` + 1 neighbouring gold labels; a step without one gold label breaks a run.

        >>> target = Target(Chains.from_lengths([4, 2]), 2, np.array([0, 1, 0, 1, 1, 1]))
        >>> [run.tolist() for run in LabelRuns.observe(target, 2).runs]
        [[[0, 1, 0], [1, 0, 1]]]
        """
        topology, codes = target.topology, target.labels.astype(np.int64)
        if target.n_labels ** (order + 1) >= 2**62:
            raise InputError(f"order {order} is too high for {target.n_labels} labels. Try 2 or 3.")
        place = np.arange(topology.n_nodes) - topology.offsets[:-1][topology.sequence_of_node]
        counts = np.ones(topology.n_nodes, dtype=bool)
        if target.weight is not None:
            counts = target.weight[topology.sequence_of_node] > 0
        out = []
        for r in range(2, order + 1):
            last = np.flatnonzero((place >= r) & counts)
            window = np.stack([codes[last - back] for back in range(r, -1, -1)], axis=1)
            window = window[(window != UNKNOWN).all(axis=1)]
            numbers = np.unique(_numbers(window, target.n_labels))
            powers = target.n_labels ** np.arange(r, -1, -1, dtype=np.int64)
            out.append((numbers[:, None] // powers % target.n_labels).astype(np.int32))
        return cls(target.n_labels, tuple(out))

    @property
    def order(self) -> int:
        """The longest memory that has weights of its own."""
        return len(self.runs) + 1

    @cached_property
    def n_weights(self) -> int:
        """How many runs have a weight."""
        return sum(len(run) for run in self.runs)

    @cached_property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """What each state remembers: single labels first, then longer beginnings of runs."""
        longer = {run[:k] for runs in self.runs for run in map(tuple, runs.tolist()) for k in range(2, len(run))}
        if self.n_labels + len(longer) > MOST_STATES:
            raise InputError(f"{len(longer)} different label n-grams are too many to keep. Use a lower order.")
        return (*((k,) for k in range(self.n_labels)), *sorted(longer, key=lambda run: (len(run), run)))

    @cached_property
    def label(self) -> np.ndarray:
        """(S,) int32, the last label of each state."""
        return np.array([state[-1] for state in self.states], np.int32)

    @cached_property
    def after(self) -> np.ndarray:
        """(S, L) int32, the state after each state and label."""
        place = {state: k for k, state in enumerate(self.states)}
        out = np.empty((len(self.states), self.n_labels), np.int32)
        for s, state in enumerate(self.states):
            for y in range(self.n_labels):
                end = (*state, y)
                while end not in place:
                    end = end[1:]
                out[s, y] = place[end]
        return out

    @cached_property
    def weight_of(self) -> tuple[np.ndarray, ...]:
        """For each order from 2 on (S, L) int64: the number of the run that ends there, among all runs; −1: none."""
        out, first = [], 0
        for runs in self.runs:
            place = {tuple(run): first + k for k, run in enumerate(runs.tolist())}
            first += len(runs)
            size = runs.shape[1] - 1
            found = np.full((len(self.states), self.n_labels), -1, np.int64)
            for s, state in enumerate(self.states):
                if len(state) >= size:
                    for y in range(self.n_labels):
                        found[s, y] = place.get((*state[-size:], y), -1)
            out.append(found)
        return tuple(out)

    def walk(self, labels: np.ndarray, topology: Chains) -> np.ndarray:
        """(N,) int32, the states along labels (N,) of whole sequences."""
        states = labels.astype(np.int32).copy()
        for t in range(1, int(topology.lengths.max(initial=0))):
            at = topology.offsets[:-1][topology.lengths > t] + t
            states[at] = self.after[states[at - 1], labels[at]]
        return states


@dataclass(frozen=True, eq=False)
class HigherOrderLayout(Layout):
    """A layout with weights of label n-grams behind all others.

    >>> layout = HigherOrderLayout(n_labels=2, n_columns=1, runs=LabelRuns(2, (np.array([[0, 1, 1]]),)))
    >>> layout.n_weights, layout.plain.n_weights, layout.part["runs"]
    (3, 2, slice(2, 3, None))
    """

    runs: LabelRuns = None  # type: ignore[assignment]

    @cached_property
    def part(self) -> dict[str, slice]:
        """Slices of the flat vector by name."""
        parts = dict(self.plain.part)
        stop = parts["edge_dense"].stop
        return {**parts, "runs": slice(stop, stop + self.runs.n_weights)}

    @cached_property
    def n_weights(self) -> int:
        """W."""
        return int(self.part["runs"].stop)

    @cached_property
    def plain(self) -> Layout:
        """The layout of the weights before those of the runs."""
        return Layout(**{f.name: getattr(self, f.name) for f in fields(Layout)})

    @classmethod
    def extend(cls, layout: Layout, runs: LabelRuns) -> HigherOrderLayout:
        """A plain layout with runs."""
        if layout.n_edge_columns or layout.n_edge_dense:
            raise InputError(
                "order > 1 needs transitions that do not depend on x: leave transition_features and "
                "transition_functions out, or use order=1."
            )
        return cls(**{f.name: getattr(layout, f.name) for f in fields(Layout)}, runs=runs)

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """JSON-able header and arrays for a model file."""
        header, arrays = super().state()
        return {**header, "order": self.runs.order}, {
            **arrays,
            **{f"runs_{k + 2}": run for k, run in enumerate(self.runs.runs)},
        }

    def tables(self, weights: np.ndarray, edge: np.ndarray) -> np.ndarray:
        """(S, L) scores of all edges: the table (L, L) of the plain transitions and the weights of the runs."""
        score, own = edge[self.runs.label], weights[self.part["runs"]]
        for number in self.runs.weight_of:
            met = number >= 0
            score[met] += own[number[met]]
        return score

    def pull_runs(self, uses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The adjoint of `tables`: a gradient (S, L) as one of the plain table (L, L) and of the runs' weights."""
        edge = np.zeros((self.n_labels, self.n_labels))
        np.add.at(edge, self.runs.label, uses)
        own = np.zeros(self.runs.n_weights)
        for number in self.runs.weight_of:
            met = number >= 0
            own += np.bincount(number[met], uses[met], minlength=len(own))
        return edge, own


def higher_order_from_state(
    layout: Layout, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> HigherOrderLayout:
    """The layout whose state this is, from its plain part; ModelFileError if the runs cannot be used."""
    order = header.get("order")
    names = [f"runs_{k}" for k in range(2, order + 1)] if type(order) is int and 2 <= order < 64 else []
    if not names or any(name not in arrays or arrays[name].dtype != np.int32 for name in names):
        raise ModelFileError(f"the layout of the weights is damaged: label n-grams of order {order!r} are missing.")
    try:
        return HigherOrderLayout.extend(layout, LabelRuns(layout.n_labels, tuple(arrays[name] for name in names)))
    except InputError as error:
        raise ModelFileError(f"the layout of the weights is damaged: {error}") from None


@dataclass(frozen=True, eq=False)
class HigherOrderScores:
    """Scores of labels (N, L) and of edges (S, L): what `crfield.kernels.tuples` reads."""

    node: np.ndarray
    score: np.ndarray
    runs: LabelRuns
    topology: Chains

    @classmethod
    def of(
        cls, layout: HigherOrderLayout, weights: np.ndarray, batch: Batch, *, n_jobs: int = 1
    ) -> HigherOrderScores:
        """The scores of a batch."""
        plain = layout.plain
        node, edge = linear.Tagger(plain, weights[: plain.n_weights]).scores(batch, n_jobs=n_jobs)
        return cls(node, layout.tables(weights, edge[0]), layout.runs, batch.topology)

    def beliefs(
        self, node: np.ndarray | None = None, *, weight: np.ndarray | None = None, n_jobs: int = 1
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Totals (B,), label probabilities (N, L), uses of edges (S, L); of other node scores if given."""
        runs, own = self.runs, self.node if node is None else node
        return tuples.sum_product(
            self.topology.offsets, own, runs.after, runs.label, self.score, weight=weight, n_jobs=n_jobs
        )

    def best(self, node: np.ndarray | None = None, *, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Scores (B,) and labels (N,) of the best labellings."""
        runs, own = self.runs, self.node if node is None else node
        return tuples.max_product(self.topology.offsets, own, runs.after, runs.label, self.score, n_jobs=n_jobs)

    def potentials(self) -> Potentials:
        """The same as scores of states (N, S) and (1, S, S), in which most edges are forbidden."""
        runs, size = self.runs, len(self.runs.label)
        node = self.node[:, runs.label].copy()
        firsts = self.topology.offsets[:-1][self.topology.lengths > 0]
        node[np.ix_(firsts, np.arange(self.node.shape[1], size))] = -np.inf
        edge = np.full((1, size, size), -np.inf)
        edge[0, np.arange(size)[:, None], runs.after] = self.score
        return Potentials(node, edge, self.topology)


def _numbers(runs: np.ndarray, n_labels: int) -> np.ndarray:
    """Runs (n, r) read as numbers to the base of the labels, which sort as they do."""
    numbers = np.zeros(len(runs), np.int64)
    for column in runs.T:
        numbers = numbers * n_labels + column
    return numbers
