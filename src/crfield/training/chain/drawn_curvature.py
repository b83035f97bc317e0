"""The curvature of a likelihood as a matrix, from labellings drawn from the model.

The second derivative of −Σ log p(y | x) is the covariance of the counts of features of labellings that the model
draws (Lehmann & Casella 1998, *Theory of point estimation*, § 2.5). Some draws of each sequence stand for it:

    H ≈ Σ_s c_s / (S − 1) Σ_k (f_sk − f̄_s)(f_sk − f̄_s)ᵀ        f_sk (W,) features of draw k of S of sequence s

which is right on average, never has a negative eigenvalue, and costs a matrix product. With some twelve draws for each
weight it is rough by a quarter or so, which Newton's steps bear. Long sequences are drawn in pieces, each on its
own: what one says of the next is left out. Draws are made a chunk of pieces at a time, so that memory stays bounded.
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.features.columns.select import take_rows
from crfield.inference.chain import ChainEngine
from crfield.kernels import linear
from crfield.scoring.layout import Layout

ROWS, FEWEST, MOST = 12, 2, 16  # drawn pieces for each weight; draws of a piece
LONGEST = 128  # steps of a piece
CHUNK_ROWS, CHUNK_CHANCES = 2_000, 2_000_000  # of a chunk, about: drawn pieces; numbers in a table of what follows what


def drawn_curvature(
    layout: Layout,
    batch: Batch,
    weight: np.ndarray | None,
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    index: np.ndarray | None = None,
    rows: float | None = None,
) -> np.ndarray:
    """(m, m) about the second derivative of the loss of all sequences, by the m weights of ``index`` (all: None).

    ``rows`` pieces are drawn, about, ``ROWS`` for each weight by default; where that is less than ``FEWEST`` of each
    piece, some pieces are chosen at random and stand for all.
    """
    topology = batch.topology
    places = _Places(layout, np.arange(layout.n_weights) if index is None else index)
    rows = ROWS * places.size if rows is None else rows
    count = -(-topology.lengths // LONGEST)
    owner = np.repeat(np.arange(topology.n_sequences), count)
    start = topology.offsets[:-1][owner] + LONGEST * (np.arange(len(owner)) - (np.cumsum(count) - count)[owner])
    stop = np.minimum(start + LONGEST, topology.offsets[1:][owner])
    chosen, all_pieces = np.arange(len(start)), len(start)
    most = max(int(rows) // FEWEST, 1)
    if index is not None and most < all_pieces:
        chosen = np.sort(rng.choice(all_pieces, most, replace=False))
    draws = int(np.clip(-(-int(rows) // max(len(chosen), 1)), FEWEST, MOST))
    bend = np.zeros((places.size, places.size))
    for some in _chunks(chosen, stop - start, draws, layout.n_labels):
        chains = Chains.from_lengths((stop - start)[some])
        at = np.arange(chains.n_nodes) + np.repeat(start[some] - chains.offsets[:-1], chains.lengths)
        drawn = draw_labels(layout, weights, Batch(chains, take_rows(batch.node, at)), draws, rng)
        ends = start[some] == topology.offsets[owner[some]], stop[some] == topology.offsets[owner[some] + 1]
        met = places.counts(take_rows(batch.node, at), chains, drawn, ends)  # (pieces, draws, m)
        met -= met.mean(axis=1, keepdims=True)
        own = np.full(len(some), 1.0) if weight is None else weight[owner[some]]
        met *= np.sqrt(own / (draws - 1))[:, None, None]
        flat = met.reshape(-1, places.size)
        bend += flat.T @ flat
    bend *= all_pieces / max(len(chosen), 1)
    return bend


def _chunks(chosen: np.ndarray, lengths: np.ndarray, draws: int, labels: int) -> list[np.ndarray]:
    """The chosen pieces in their order, cut into chunks."""
    cost = np.maximum(draws / CHUNK_ROWS, lengths[chosen] * labels**2 / CHUNK_CHANCES)
    return [part for part in np.split(chosen, np.flatnonzero(np.diff(np.cumsum(cost).astype(int))) + 1) if len(part)]


class _Places:
    """Where the features of some weights are counted: m of them, and one place behind for all that do not matter."""

    def __init__(self, layout: Layout, index: np.ndarray) -> None:
        self.size, labels, part = len(index), layout.n_labels, layout.part
        place = np.full(layout.n_weights, self.size)
        place[index] = np.arange(self.size)
        column, label = layout.node_features()
        wanted = place[part["node"]] < self.size
        self.columns = np.unique(column[wanted])
        self.row = np.full(layout.n_columns, -1)  # of a column in the table of places
        self.row[self.columns] = np.arange(len(self.columns))
        self.node = np.full((len(self.columns), labels), self.size)
        self.node[self.row[column[wanted]], label[wanted]] = place[part["node"]][wanted]
        none = np.full(labels, self.size)
        self.dense = place[part["dense"]].reshape(-1, labels)
        self.bias = place[part["bias"]] if layout.bias else none
        self.start = place[part["start"]] if layout.boundaries else none
        self.end = place[part["end"]] if layout.boundaries else none
        self.pairs = np.full(labels**2, self.size)
        self.pairs[layout.pairs] = place[part["transitions"]]
        self.labels = labels

    def counts(
        self, columns: Columns, chains: Chains, drawn: np.ndarray, ends: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """(pieces, draws, m) features of draws (draws, N); ``ends``: which pieces begin and end a sequence."""
        draws, wide = len(drawn), self.size + 1
        piece = np.repeat(np.arange(chains.n_sequences), chains.lengths)
        out = np.zeros(chains.n_sequences * draws * wide)

        def add(nodes: np.ndarray, place: np.ndarray, values: np.ndarray | None = None) -> None:
            """Count features at ``place`` (draws, K) of the nodes (K,)."""
            at = (piece[nodes] * draws + np.arange(draws)[:, None]) * wide + place
            by = None if values is None else np.broadcast_to(values, at.shape).ravel()
            out.__iadd__(np.bincount(at.ravel(), by, minlength=len(out)))

        row = self.row[columns.indices] if len(self.columns) else np.full(len(columns.indices), -1)
        known = np.flatnonzero(row >= 0)
        nodes = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))[known]
        add(nodes, self.node[row[known], drawn[:, nodes]], None if columns.values is None else columns.values[known])
        every = np.arange(columns.n_rows)
        for number, place in enumerate(self.dense):
            if columns.dense is not None and (place < self.size).any():
                add(every, place[drawn], columns.dense[:, number])
        if (self.bias < self.size).any():
            add(every, self.bias[drawn])
        first, last = chains.offsets[:-1][ends[0]], chains.offsets[1:][ends[1]] - 1
        add(first, self.start[drawn[:, first]])
        add(last, self.end[drawn[:, last]])
        later = np.flatnonzero(piece[1:] == piece[:-1]) + 1
        add(later, self.pairs[drawn[:, later - 1] * self.labels + drawn[:, later]])
        return out.reshape(chains.n_sequences, draws, wide)[:, :, : self.size]


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
