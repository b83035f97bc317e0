"""Weights that many sequences have, where these come part by part: Newton's steps that know how old d is.

While one part is visited, d, the sum of the table of `training.chain.remembered_passes`, has of all others what they
said at weights of up to a pass ago. For a rare weight that is nothing: whoever has it is here. A weight that most
sequences have is driven by a part until the part's own slope cancels what is left in d, and by the next part again.
With K parts alike in curvature and e_t how far the weights are off after part t, that is

    e_t + e_{t−1} + … + e_{t−K+1} = 0        whose roots all have the size 1: a circle that no pass makes smaller

and only the mean over a pass is near the optimum. What is missing is that the slopes of the others change with the
weights. With w_i the weights at which sequence i was visited last, and H the curvature of all, shared alike,

    ∇F(w) ≈ d + H (w − w̄) + R w        w̄ = Σ_i w_i / B,   R: the ridge
    w     = w̄ − (H + R)⁻¹ (d + R w̄)    where that is nothing

This is the incremental Newton method (Rodomanov & Kropotov 2016, *A superlinearly-convergent proximal Newton-type
method for the optimization of finite sums*) with one H for all. Here it is for the m most frequent weights alone, at
most ``MOST``, which ``SHARE`` of the sequences have: they go to that w behind each sweep of a part, and at visits of
sequences make ``CALM`` of the steps that others make. H comes from draws (`training.drawn_curvature`) in the
first pass after the table is full, in which steps are as they are for all weights; it is made again in the third,
the ninth and so on.

Curvature is not quite alike. Where one sequence has all there is in some direction and its rows are off by e, the
weights are driven to w̄ − e, w̄ follows them, and after a pass they are at −e · exp 1. A visit that takes the rows a
share γ of the way there leaves (1 − 3.7 γ) e, which shrinks below γ = 0.54. Two sweeps with the damping of `fit`
were above that: two of 1,000 sequences of names, long ones that can be read in two ways, swung for ever, and a
gap was left after any number of passes. So γ is damped by ``DAMPING`` once H is there.

Cost: ``ROWS`` drawn pieces for each weight in a pass that makes H, where a sequence is one piece unless it is long,
and a product with m² numbers behind each sweep. Memory: two such matrices (4 MB), and w_i: equal ones are kept once,
and calls of less than a share 1 / ``POINTS`` of the sequences share theirs, so that there are some hundreds at most.
Constants were chosen on 2,000 sentences of a chunking corpus and 1,000 of a corpus of names by the objective after
ten passes. With half the draws, a curvature 1.4 times as high, or H made once only, little changed; 300 weights left
more of the names than 500.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.training.drawn_curvature import drawn_curvature, n_pieces

SHARE, MOST = 0.3, 500  # of the sequences, at least, that have a frequent weight; such weights, at most
ROWS, DRAWS = 12, 8  # drawn pieces for each weight in a pass; draws of a piece, at least
CALM, DAMPING = 0.1, 0.35  # of the step sizes at visits; of their γ
RENEW = 3  # H is made in passes 1, 3, 9, …
POINTS = 64  # w_i of a pass, about
LEAST = 1e-9  # of the largest curvature: what has none


@dataclass(eq=False)
class FrequentWeights:
    """The m most frequent weights, what is known of their curvature, and where each sequence was visited."""

    index: np.ndarray  # (m,)
    bend: np.ndarray  # (m, m) H of this pass so far
    point: np.ndarray  # (B,) the number of w_i
    points: dict[int, np.ndarray]  # (m,) each: the different w_i
    members: dict[int, int]  # sequences of each
    inverse: np.ndarray | None = None  # (m, m) (H + R)⁻¹; None before there is one
    n_passes: int = 1  # this one included

    @classmethod
    def of(cls, weights: np.ndarray, counts: np.ndarray, n: int) -> FrequentWeights:
        """At weights (W,) at which n sequences were visited; ``counts`` (W,) of those that have them."""
        order = np.argsort(-counts, kind="stable")[:MOST]
        index = np.sort(order[counts[order] >= SHARE * n])
        return cls(index, np.zeros((len(index), len(index))), np.zeros(n, np.int64), {0: weights[index]}, {0: n})

    def calmed(self, steps: np.ndarray) -> np.ndarray:
        """Step sizes (W,) at the visits of sequences."""
        made = steps.copy()
        made[self.index] *= CALM
        return made

    @property
    def moved(self) -> bool:
        """Whether Newton's steps move these weights."""
        return self.inverse is not None

    def hear(
        self,
        layout: Layout,
        batch: Batch,
        weight: np.ndarray | None,
        weights: np.ndarray,
        n: float,
        rng: np.random.Generator,
    ) -> None:
        """The curvature of a part of n sequences, in the passes that are asked for it."""
        chains: Chains = batch.topology
        if not self._renewed or not len(self.index) or not chains.n_nodes:
            return
        rows = ROWS * len(self.index) * chains.n_sequences / n
        pieces = min(max(int(rows / DRAWS), 1), n_pieces(chains))
        draws = max(-(-int(rows) // pieces), DRAWS)
        self.bend += drawn_curvature(
            layout, batch, weight, weights, rng, draws=draws, pieces=pieces, index=self.index
        )

    @property
    def _renewed(self) -> bool:
        number = self.n_passes
        while number % RENEW == 0:
            number //= RENEW
        return number == 1

    def end_pass(self, penalty: Penalty, n_weights: int, scale: float) -> None:
        """A pass is over; ``scale``: all sequences by those that came."""
        if self._renewed and len(self.index):
            bend = scale * self.bend
            most = float(np.diag(bend).max())
            bend[np.diag_indices(len(bend))] += penalty.ridge(n_weights)[self.index] + LEAST * most + 1e-300
            self.inverse = np.linalg.inv(bend)
            self.bend[:] = 0.0
        self.n_passes += 1

    def visited(self, sequences: np.ndarray, weights: np.ndarray) -> None:
        """Sequences (b,) were visited at these weights."""
        if not len(sequences):
            return
        left, counts = np.unique(self.point[sequences], return_counts=True)
        for old, count in zip(left.tolist(), counts.tolist()):
            self.members[old] -= count
        number, here = max(self.points), weights[self.index]
        if self.members[number] * POINTS >= len(self.point):
            number += 1  # else others share the last point with these
        known, before = self.members.get(number, 0), self.points.get(number, here)
        self.members[number] = known + len(sequences)
        self.points[number] = before + (here - before) * (len(sequences) / self.members[number])
        self.point[sequences] = number
        for old in left.tolist():
            if not self.members[old]:
                del self.members[old], self.points[old]

    def step(self, weights: np.ndarray, dual: np.ndarray, penalty: Penalty) -> None:
        """Move the weights (W,) of ``index`` to where the slope of all is about nothing; ``dual`` (W,) is d."""
        assert self.inverse is not None
        total = sum(count * self.points[number] for number, count in self.members.items())
        mean = total / len(self.point)  # w̄
        ridge = penalty.ridge(len(weights))[self.index]
        weights[self.index] = mean - self.inverse @ (dual[self.index] + ridge * mean)
