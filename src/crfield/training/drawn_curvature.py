"""The curvature of a likelihood as a matrix, from labellings that the model draws.

The second derivative of −Σ c_s log p(y | x) is the covariance of what features count in labellings drawn from p
(Lehmann & Casella 1998, *Theory of point estimation*, § 2.5). Some draws of each sequence stand for it:

    H ≈ Σ_s c_s / (K − 1) Σ_k (f_sk − f̄_s)(f_sk − f̄_s)ᵀ        f_sk: the counts of draw k of K, f̄_s: their mean

It is right on average, no eigenvalue is negative, and it costs a matrix product. With a dozen draws for each weight
it is rough, and good enough for Newton's steps. Long sequences are drawn in pieces, each on its own: what one says
of the next is left out. Where there are more pieces than are needed, some chosen at random stand for all.

Pieces are drawn a chunk at a time: memory stays below some 100 MB whatever the size of the data.
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

LONGEST = 128  # steps of a piece
COUNTS, CHANCES = 1_000_000, 2_000_000  # numbers in a chunk's table of counts; in that of what follows what


def n_pieces(chains: Chains) -> int:
    """The pieces that sequences are drawn in.

    >>> n_pieces(Chains.from_lengths([0, 5, 128, 129]))
    4
    """
    return int((-(-chains.lengths // LONGEST)).sum())


def drawn_curvature(
    layout: Layout,
    batch: Batch,
    weight: np.ndarray | None,
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    draws: int,
    pieces: int | None = None,
    index: np.ndarray | None = None,
) -> np.ndarray:
    """(m, m) about the second derivative of the loss of all sequences, by the m weights of ``index`` (None: all W).

    ``draws`` are those of a piece; ``pieces`` how many pieces are drawn, at most. The columns are those of nodes.
    """
    count = Counter(layout, np.arange(layout.n_weights) if index is None else index)
    offsets = batch.topology.offsets
    of_each = -(-batch.topology.lengths // LONGEST)
    owner = np.repeat(np.arange(len(of_each)), of_each)  # (K,) the sequence of each piece
    start = offsets[owner] + LONGEST * (np.arange(len(owner)) - (np.cumsum(of_each) - of_each)[owner])
    stop, total = np.minimum(start + LONGEST, offsets[owner + 1]), len(owner)
    if pieces is not None and pieces < total:
        chosen = np.sort(rng.choice(total, pieces, replace=False))
        owner, start, stop = owner[chosen], start[chosen], stop[chosen]
    first, last = start == offsets[owner], stop == offsets[owner + 1]  # whether a sequence begins, or ends, there
    own = np.full(len(owner), total / max(len(owner), 1)) * (1.0 if weight is None else weight[owner])
    chains = Chains.from_lengths(stop - start)
    rows = take_rows(batch.node, np.arange(chains.n_nodes) + np.repeat(start - chains.offsets[:-1], chains.lengths))
    node, edge = linear.Tagger(layout, weights).scores(Batch(chains, rows))
    bend = np.zeros((count.size, count.size))
    for a, b in _chunks(chains.lengths, draws * (count.size + 1), layout.n_labels):
        nodes, some = slice(chains.offsets[a], chains.offsets[b]), Chains.from_lengths(chains.lengths[a:b])
        drawn = draw_from(Potentials(node[nodes], edge, some), draws, rng)
        columns = take_rows(rows, np.arange(nodes.start, nodes.stop))
        met = count(columns, some, drawn, first[a:b], last[a:b])  # (b − a, draws, m)
        met -= met.mean(axis=1, keepdims=True)
        met *= np.sqrt(own[a:b] / (draws - 1))[:, None, None]
        flat = met.reshape(-1, count.size)
        bend += flat.T @ flat
    return bend


def _chunks(lengths: np.ndarray, numbers: int, labels: int) -> list[tuple[int, int]]:
    """Runs of pieces that fit into a chunk, one piece at least; ``numbers`` are counts of a piece."""
    cost = np.cumsum(np.maximum(numbers / COUNTS, lengths * (labels**2 / CHANCES)))
    cuts = (np.flatnonzero(np.diff(cost.astype(np.int64))) + 1).tolist()
    return [(a, b) for a, b in zip([0, *cuts], [*cuts, len(lengths)]) if b > a]


class Counter:
    """Counts the features of some weights in labellings of pieces.

    Tables say which of the m weights is that of a column and a label, or of a pair of labels: m for none of them.
    """

    def __init__(self, layout: Layout, index: np.ndarray) -> None:
        self.size, labels, part = len(index), layout.n_labels, layout.part
        place = np.full(layout.n_weights, self.size)
        place[index] = np.arange(self.size)
        column, label = layout.node_features()
        wanted = place[part["node"]] < self.size
        known = np.unique(column[wanted])
        self.row = np.full(layout.n_columns, -1)  # of a column in the table
        self.row[known] = np.arange(len(known))
        self.node = np.full((len(known), labels), self.size)
        self.node[self.row[column[wanted]], label[wanted]] = place[part["node"]][wanted]
        self.dense = place[part["dense"]].reshape(-1, labels)
        none = np.full(labels, self.size)
        self.bias = place[part["bias"]] if layout.bias else none
        self.start = place[part["start"]] if layout.boundaries else none
        self.end = place[part["end"]] if layout.boundaries else none
        self.pairs = np.full((labels, labels), self.size)
        self.pairs.flat[layout.pairs] = place[part["transitions"]]

    def __call__(
        self, columns: Columns, chains: Chains, drawn: np.ndarray, first: np.ndarray, last: np.ndarray
    ) -> np.ndarray:
        """(B, draws, m) counts in B pieces of labels (draws, N).

        ``first`` and ``last`` (B,) bool say which pieces begin and end a sequence.
        """
        draws, wide = len(drawn), self.size + 1
        own = chains.sequence_of_node * draws + np.arange(draws)[:, None]  # (draws, N) the row of the table below
        counts = np.zeros(chains.n_sequences * draws * wide)

        def add(nodes: np.ndarray, place: np.ndarray, values: np.ndarray | None = None) -> None:
            """Count at the places (draws, K) of K nodes."""
            by = None if values is None else np.broadcast_to(values, place.shape).ravel()
            np.add(counts, np.bincount((own[:, nodes] * wide + place).ravel(), by, len(counts)), out=counts)

        row = self.row[columns.indices]
        known = np.flatnonzero(row >= 0)
        nodes = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))[known]
        values = None if columns.values is None else columns.values[known]
        add(nodes, self.node[row[known], drawn[:, nodes]], values)
        every = np.arange(columns.n_rows)
        for number, place in enumerate(self.dense):
            if columns.dense is not None and (place < self.size).any():
                add(every, place[drawn], columns.dense[:, number])
        heads, tails = chains.offsets[:-1][first], chains.offsets[1:][last] - 1
        for nodes, place in ((every, self.bias), (heads, self.start), (tails, self.end)):
            if (place < self.size).any():
                add(nodes, place[drawn[:, nodes]])
        add(chains.heads, self.pairs[drawn[:, chains.tails], drawn[:, chains.heads]])
        return counts.reshape(chains.n_sequences, draws, wide)[:, :, : self.size]


def draw_labels(
    layout: Layout, weights: np.ndarray, batch: Batch, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """(draws, N) labels of every sequence, drawn from the chain."""
    return draw_from(Potentials(*linear.Tagger(layout, weights).scores(batch), batch.topology), draws, rng)


def draw_from(scores: Potentials, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, N) labels of every sequence, drawn from the chain of these scores.

    For every step and draw a table says which label follows each label; labels then follow these tables.
    """
    chains, labels = scores.topology, scores.n_labels
    assert isinstance(chains, Chains)
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
