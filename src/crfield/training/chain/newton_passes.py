"""Numeric data that come again, part by part: a step of Newton's method after every pass.

Stochastic steps over the same n sequences again and again are left with the noise of the sequence before: after k passes
about d / 2k above the minimum, where d is the number of weights that the data decide (Bach & Moulines 2011,
*Non-asymptotic analysis of stochastic approximation algorithms*), and columns that overlap make it worse. A pass in which
every part tells its loss and its slope at one point v knows those of all; and where weights are few, the curvature of all
is a matrix that parts add up to as well. It is the covariance of the counts of features of labellings drawn from the
model (Lehmann & Casella 1998, *Theory of point estimation*, § 2.5), so some draws of each sequence stand for it:

    v ← v − (H + penalty)⁻¹ ∇F(v)          at the end of a pass; halfway back where F turns out to have risen

The size of the parts and their order do not matter, and no noise stays: draws make only the matrix rough, so an error
shrinks to a fraction with each pass. The first pass is of stochastic steps (`training.chain.partial_fit`), which gives v;
the second hears of it, and from its end on weights are those of Newton's steps.

Cost: one evaluation of a part for each call, ``ROWS`` W² products for each pass, and a matrix of W² numbers. So it is for
few weights, and for numeric columns, of which stochastic steps know least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.chain import ChainEngine
from crfield.kernels import linear
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.training.column_basis import numeric_blocks
from crfield.training.likelihood import FusedChain

MOST_WEIGHTS = 1_000
ROWS, FEWEST, MOST = 12, 2, 16  # drawn pieces for each weight; draws of a piece
LONGEST = 128  # steps of a piece
LEAST = 1e-9  # of the largest curvature: what has none


def suits(problem: Any, penalty: Penalty) -> bool:
    """Whether a problem is a likelihood with few weights, of numeric columns in the main, without an l1 penalty."""
    if not isinstance(problem, FusedChain) or penalty.l1 or problem.n_weights > MOST_WEIGHTS or problem.unit:
        return False
    layout = problem.layout
    dense, node = layout.part["dense"], layout.part["node"]
    plain = not (layout.n_edge_columns or layout.n_edge_dense or problem.partial) and layout.fixed is None
    return bool(plain and layout.n_labels > 1 and dense.stop - dense.start >= node.stop - node.start)


@dataclass(eq=False)
class NewtonPasses:
    """The point v of the pass, what was heard of it so far, and the point before."""

    point: np.ndarray  # (W,)
    slope: np.ndarray  # (W,) Σ of the parts, without the penalty
    bend: np.ndarray  # (W, W)
    value: float = 0.0
    count: float = 0.0  # sequences that were heard
    before: tuple[np.ndarray, float] | None = None  # the last point that lay below all others, and F there

    @classmethod
    def at(cls, point: np.ndarray, before: tuple[np.ndarray, float] | None = None) -> NewtonPasses:
        """A pass at a point, of which nothing was heard yet."""
        size = len(point)
        return cls(point.copy(), np.zeros(size), np.zeros((size, size)), before=before)

    def hear(self, problem: FusedChain, batch: Batch, weight: np.ndarray | None, rng: np.random.Generator) -> None:
        """One more part."""
        slope = np.empty(len(self.point))
        self.value += problem.evaluate(self.point, slope)
        self.slope += slope
        self.bend += drawn_curvature(problem.layout, batch, weight, self.point, rng)
        self.count += batch.topology.n_sequences

    def over(self, n: float) -> bool:
        """Whether all n sequences were heard."""
        return self.count >= n * (1 - 1e-9)

    def ended(self, penalty: Penalty, n: float) -> NewtonPasses:
        """The next pass."""
        size, scale = len(self.point), n / self.count
        ridge = penalty.ridge(size)
        value = self.value * scale + 0.5 * float(ridge @ self.point**2)
        if self.before is not None and not value <= self.before[1]:
            return NewtonPasses.at(0.5 * (self.point + self.before[0]), self.before)
        bend = self.bend * scale
        bend[np.diag_indices(size)] += ridge + LEAST * float(np.diag(bend).max(initial=0.0)) + 1e-300
        step = np.linalg.solve(bend, self.slope * scale + ridge * self.point)
        return NewtonPasses.at(self.point - step, (self.point, value))


def drawn_curvature(
    layout: Layout, batch: Batch, weight: np.ndarray | None, weights: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(W, W) about the second derivative of the loss of all sequences, from draws of their labellings.

    Long sequences are drawn in pieces, each on its own: what one says of the next is left out.
    """
    topology, labels, part = batch.topology, layout.n_labels, layout.part
    count = -(-topology.lengths // LONGEST)
    start = np.repeat(topology.offsets[:-1], count)
    start = start + LONGEST * (np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count))
    stop = np.minimum(start + LONGEST, np.repeat(topology.offsets[1:], count))
    chains = Chains.from_lengths(stop - start)
    draws = int(np.clip(-(-ROWS * layout.n_weights // max(len(start), 1)), FEWEST, MOST))
    drawn = draw_labels(layout, weights, Batch(chains, batch.node), draws, rng)
    table = _table(batch.node)
    by_piece = np.ones(len(start)) if weight is None else np.repeat(weight, count)
    column, label = layout.node_features()
    pairs = np.arange(labels**2) if layout.pairs is None else layout.pairs
    bend, eye = np.zeros((layout.n_weights, layout.n_weights)), np.eye(labels)
    for a, b, own in zip(start.tolist(), stop.tolist(), by_piece.tolist()):
        codes = drawn[:, a:b]
        ones = eye[codes]  # (draws, T, L)
        sums = np.einsum("tc,dtl->dcl", table[a:b], ones, optimize=True)
        out = np.zeros((draws, layout.n_weights))
        out[:, part["node"]] = sums[:, column, label]
        out[:, part["dense"]] = sums[:, layout.n_columns :].reshape(draws, -1)
        if layout.bias:
            out[:, part["bias"]] = ones.sum(axis=1)
        if layout.boundaries:
            out[:, part["start"]], out[:, part["end"]] = ones[:, 0], ones[:, -1]
        keys = codes[:, :-1] * labels + codes[:, 1:] + labels**2 * np.arange(draws)[:, None]
        met = np.bincount(keys.ravel(), minlength=draws * labels**2).reshape(draws, -1)
        out[:, part["transitions"]] = met[:, pairs]
        out -= out.mean(axis=0)
        bend += (own / (draws - 1)) * (out.T @ out)
    return bend


def draw_labels(
    layout: Layout, weights: np.ndarray, batch: Batch, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """(draws, N) labels of every sequence, drawn from the chain.

    For every step and draw a table says which label follows each label; labels then follow these tables.
    """
    chains, labels = batch.topology, layout.n_labels
    scores = Potentials(*linear.Tagger(layout, weights).scores(batch), chains)
    single, pairs = ChainEngine().infer(scores, Semiring.LOG).node, ChainEngine().edge_marginals(scores)
    chance = np.repeat(single[:, None], labels, axis=1)  # (N, label before, label)
    chance[chains.heads] = pairs
    below = np.cumsum(chance, axis=2)
    below /= np.maximum(below[..., -1:], 1e-300)
    chosen = rng.random((draws, chains.n_nodes, 1))
    follows = np.zeros((draws, chains.n_nodes, labels), np.int16)  # (draws, N, label before)
    for label in range(labels - 1):
        follows += chosen >= below[..., label]
    drawn, at = np.zeros((draws, chains.n_nodes), np.int64), np.arange(draws)[:, None]
    order = np.argsort(-chains.lengths, kind="stable")
    starts, running = chains.offsets[:-1][order], -np.sort(-chains.lengths)
    last = np.zeros((draws, len(starts)), np.int16)
    for step in range(int(running.max(initial=0))):
        active = int(np.searchsorted(-running, -step))
        nodes = starts[:active] + step
        last = follows[at, nodes, last[:, :active]]
        drawn[:, nodes] = last
    return drawn


def _table(columns: Columns) -> np.ndarray:
    """(N, C) all columns, the sparse ones before the dense ones."""
    if columns.values is None and columns.width:
        columns = Columns(columns.indptr, columns.indices, columns.width, np.ones(len(columns.indices)), columns.dense)
    none = np.zeros((0, columns.width + columns.n_dense))
    return np.concatenate([none, *(rows for rows, _ in numeric_blocks(columns, np.arange(columns.width)))])
