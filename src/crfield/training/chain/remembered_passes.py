"""Text that comes again, part by part: primal–dual steps with a memory of what each sequence said.

Stochastic steps over the same n sequences again and again are left with the noise of the sequence before. `fit` gets
rid of it by a table of the marginals that each sequence had at its last visit (`training.chain.primal_dual`). Parts
of a stream can be trained the same way if the table outlives the call: a sequence that comes again is known by a
digest of its columns, its labels and its weight (BLAKE2b, 128 bits; Aumasson et al. 2013), and finds its rows.

    pass 1    stochastic steps, as for any stream; nothing is kept (`training.chain.partial_fit`)
    pass 2    the same steps; behind each part its marginals go into the table, their sum d and the curvature H into
              vectors as long as the weights, and for every weight the sequences that have its column are counted
    from 3    primal–dual steps of each sequence, ``SWEEPS`` times in random order within the part; step sizes
              1 / (max(l2, 1) + √H) are made again from what each pass has met

A pass is over when n sequences have come, n being what ``n_sequences`` says. Sequences that are equal have a row each
and take them in turn. Where a pass brings a sequence that nobody knows, or one more often than it has rows, the
stream is not one that comes again: all is forgotten, and stochastic steps go on until ``n_sequences`` tells something
else. New features or labels make other tables of it: the memory begins anew.

Cost: a pass is about four evaluations; the second about three. Reading the features of a part costs far more.
Memory: 4 bytes for every step × label and sequence × transition, 40 for every weight and some 200 for every
sequence, and a few MB for frequent weights; a table that would pass ``LARGEST`` is not begun. It goes into pickles,
and not into model files. Below a ridge of ``LEAST_RIDGE`` steps of a table take too many passes, so stochastic ones
go on there.

Parts that come in the same order each time leave the weights inclined to the last of them. So the model gets a mean
of the weights behind each sweep, about ``SPAN`` of a pass long, while steps go on from the last. The two passes
before were chosen by the objective after ten passes on parts of a chunking corpus and of a corpus of names.

While one part is visited the rows of all others are old. Weights that many sequences have would follow each part too
far and go round in circles; they have Newton's steps, which know how old the rows are
(`training.chain.frequent_weights`). A second sweep brings the part's own rows up to date, and ``DRIFT`` of what d and
the ridge ask for at each keeps the two from following the part twice as far. Sweeps, drift and span were chosen on
1,500 generated phrases and on sentences 3,000 to 4,000 of a corpus of names, in ten parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.kernels.dual import PrimalDual, Table
from crfield.optimize.penalty import Penalty
from crfield.training.chain import frequent_weights
from crfield.training.chain.frequent_weights import FrequentWeights
from crfield.training.chain.plan import ChainParts
from crfield.training.chain.primal_dual import DAMPING, compiled, reason_against, table_bytes
from crfield.training.chain.primal_dual import LEAST_RIDGE as LEAST_CURVED
from crfield.training.likelihood import FEW_LABELS, LEAST_RIDGE, FusedChain

LARGEST = 256_000_000  # bytes of a table
DIGEST = 16  # bytes
SPAN = 1.0  # of a pass, that the mean of weights is about
SWEEPS, DRIFT = 2, 0.7  # visits of a part in each pass; the share of what d and the ridge ask for at each of them


def suits(problem: FusedChain, penalty: Penalty, n: float) -> bool:
    """Whether n sequences like those of a problem can be remembered, and primal–dual steps serve them well."""
    if not compiled() or penalty.l1 or penalty.l2 < LEAST_RIDGE or reason_against(problem, penalty) is not None:
        return False
    return table_bytes(problem) * n <= LARGEST * problem.n_sequences


@dataclass(eq=False)
class RememberedPasses:
    """The table of a stream, and the vectors of its primal–dual steps."""

    n: float  # sequences of a pass
    weights: np.ndarray  # (W,) where the next step starts
    mean: np.ndarray  # (W,) of the weights behind the last parts: what the model gets
    dual: np.ndarray  # (W,) d: what the table comes to when it is pulled back
    counts: np.ndarray  # (W,) sequences that have the column of a weight
    curvature: np.ndarray  # (W,) of this pass so far
    node: np.ndarray  # (N, L) float32, and below, as `kernels.dual.Table` has them
    pairs: np.ndarray  # (B, P) float32
    told: np.ndarray  # (B, 2)
    first: np.ndarray  # (B,) where the rows of a sequence begin
    steps: np.ndarray | None = None  # (W,) τ; None while the table is filled
    rows: dict[bytes, list[int]] = field(default_factory=dict)  # sequences of the table by digest, the next one first
    frequent: FrequentWeights | None = None  # likewise; these have Newton's steps
    heard: int = 0  # sequences of this pass
    lost: bool = False  # the stream is not one that comes again

    @classmethod
    def empty(cls, problem: FusedChain, n: float) -> RememberedPasses:
        """A table without rows."""
        layout = problem.layout
        node, pairs = np.empty((0, layout.n_labels), np.float32), np.empty((0, len(layout.pairs)), np.float32)
        weights, mean, dual, counts, curvature = np.zeros((5, layout.n_weights))
        rest = np.empty((0, 2)), np.empty(0, np.int64)
        return cls(n, weights, mean, dual, counts, curvature, node, pairs, *rest)

    @classmethod
    def given_up(cls, n: float) -> RememberedPasses:
        """What is left where a stream did not come again."""
        none = np.empty(0)
        return cls(n, none, none, none, none, none, none, none, none, none, lost=True)

    @property
    def filled(self) -> bool:
        """Whether all sequences have their rows."""
        return self.steps is not None

    def fill(
        self, problem: FusedChain, lengths: np.ndarray, keys: list[bytes], weights: np.ndarray, penalty: Penalty
    ) -> None:
        """Put the marginals of a part at some weights into the table; ``lengths`` and ``keys`` of its sequences."""
        run = PrimalDual(problem.compiled, penalty.penalised, width=1)
        run.set_weights(weights)
        run.fill()
        table, order = run.table(), run.sequences()
        starts = len(self.node) + np.cumsum(lengths[order]) - lengths[order]
        for number, sequence in enumerate(order.tolist(), start=len(self.first)):
            self.rows.setdefault(keys[sequence], []).append(number)
        self.node, self.pairs = np.concatenate([self.node, table.node]), np.concatenate([self.pairs, table.pairs])
        self.told, self.first = np.concatenate([self.told, table.told]), np.concatenate([self.first, starts])
        self.weights = run.weights()
        self.mean = self.weights.copy()
        self.dual += run.dual()
        self.counts += run.counts()
        self._met(run.curvature(), len(keys), penalty)

    def find(self, keys: list[bytes]) -> np.ndarray | None:
        """(b,) the sequences of the table that these are, -1 for empty ones; None if one is not there."""
        found = []
        asked: dict[bytes, int] = {}
        for key in keys:
            if not key:
                found.append(-1)
                continue
            turn, rows = asked.get(key, 0), self.rows.get(key, [])
            if turn >= len(rows):
                return None
            asked[key] = turn + 1
            found.append(rows[turn])
        for key, turns in asked.items():
            rows = self.rows[key]
            self.rows[key] = rows[turns:] + rows[:turns]
        return np.array(found, np.int64)

    def learn(
        self,
        problem: FusedChain,
        parts: ChainParts,
        places: np.ndarray,
        penalty: Penalty,
        rng: np.random.Generator,
    ) -> float:
        """A primal–dual step of each sequence of a part, which are ``places`` of the table; gives the loss met."""
        assert self.steps is not None
        assert self.frequent is not None
        assert parts.layout is not None
        run, frequent, steps = PrimalDual(problem.compiled, penalty.penalised, width=1), self.frequent, self.steps
        own, lengths = places[run.sequences()], parts.batch.topology.lengths[run.sequences()]
        nodes = np.arange(lengths.sum()) + np.repeat(self.first[own] - np.cumsum(lengths) + lengths, lengths)
        damping = DAMPING
        if frequent.moved:
            steps, damping = frequent.calmed(steps), frequent_weights.DAMPING
        run.restore(self.weights, self.dual, steps, Table(self.node[nodes], self.pairs[own], self.told[own]))
        run.set_counts(self.counts / DRIFT)  # the share of d and the ridge in a step is DRIFT / n_f
        weight = min(len(places) / (SPAN * self.n * SWEEPS), 1.0)
        loss, curvature = 0.0, np.zeros_like(self.curvature)
        for sweep in range(SWEEPS):
            order = rng.permutation(run.n_blocks)
            met = run.epoch(order, l2=penalty.l2, damping=damping, curvature=sweep == 0)
            if sweep == 0:
                loss, curvature = met, run.curvature()
            weights = run.weights()
            frequent.visited(own, weights)
            if sweep == SWEEPS - 1:
                frequent.hear(parts.layout, parts.batch, parts.target.weight, weights, self.n, rng)
            if frequent.moved:
                frequent.step(weights, run.dual(), penalty)
                run.set_weights(weights)
            self.mean += weight * (weights - self.mean)
        table = run.table()
        self.node[nodes], self.pairs[own], self.told[own] = table.node, table.pairs, table.told
        self.weights, self.dual = run.weights(), run.dual()
        self._met(curvature, len(places), penalty)
        return loss

    def _met(self, curvature: np.ndarray, count: int, penalty: Penalty) -> None:
        """The curvature of a part; at the end of a pass, step sizes of it."""
        self.curvature += np.maximum(curvature, 0.0)
        self.heard += count
        if self.heard >= self.n * (1 - 1e-9):
            scale = self.n / self.heard
            self.steps = 1.0 / (max(penalty.l2, LEAST_CURVED) + np.sqrt(self.curvature * scale))
            if self.frequent is None:
                counts = self.counts if self.node.shape[1] <= FEW_LABELS else np.zeros_like(self.counts)
                self.frequent = FrequentWeights.of(self.weights, counts, len(self.first))
            else:
                self.frequent.end_pass(penalty, len(self.weights), scale)
            self.curvature[:] = 0.0
            self.heard = 0


def digests(batch: Batch, target: Target) -> list[bytes]:
    """What each sequence is known by: its columns and their values, its labels, its weight; nothing if it is empty.

    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Columns
    >>> batch = Batch(Chains.from_lengths([1, 1, 1]), Columns.from_rows([[0], [1], [0]], width=2))
    >>> one, other, again = digests(batch, Target(batch.topology, 2, np.array([0, 1, 0])))
    >>> one == again, one == other
    (True, False)
    """
    columns, offsets, made = batch.node, batch.topology.offsets.tolist(), []
    labels = np.ascontiguousarray(target.labels, dtype=np.int32)
    for number, (a, b) in enumerate(pairwise(offsets)):
        if a == b:
            made.append(b"")
            continue
        start, stop = int(columns.indptr[a]), int(columns.indptr[b])
        found = blake2b(labels[a:b].tobytes(), digest_size=DIGEST)
        found.update(np.diff(columns.indptr[a : b + 1]).tobytes())
        found.update(columns.indices[start:stop].tobytes())
        if columns.values is not None:
            found.update(columns.values[start:stop].tobytes())
        if columns.dense is not None:
            found.update(columns.dense[a:b].tobytes())
        if target.weight is not None:
            found.update(np.float64(target.weight[number]).tobytes())
        made.append(found.digest())
    return made
