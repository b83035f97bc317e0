"""Weights that many sequences have, when these come part by part: Newton's steps that know how old the rest is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crfield.data.batch import Batch
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.training.chain.drawn_curvature import ROWS, drawn_curvature

SHARE, MOST = 0.3, 500  # of the sequences that have a frequent weight, at least; such weights, at most
MOST_LABELS = 47  # more have tables of what follows what that are too large to draw from
LEAST = 1e-9  # of the largest curvature: what has none
CALM = 0.0
POINTS = 64  # of a pass, about


@dataclass(eq=False)
class FrequentWeights:
    """The m most frequent weights, their curvature, and where each sequence was when it was visited."""

    index: np.ndarray  # (m,)
    bend: np.ndarray  # (m, m) of this pass so far
    visit: np.ndarray  # (B,) the point of each sequence
    points: dict[int, np.ndarray] = field(default_factory=dict)  # (m,) each
    newton: np.ndarray | None = None  # (m, m) of the pass before; None in the first

    @classmethod
    def of(cls, counts: np.ndarray, n: int, weights: np.ndarray) -> FrequentWeights:
        order = np.argsort(-counts, kind="stable")[:MOST]
        index = np.sort(order[counts[order] >= SHARE * n])
        made = cls(index, np.zeros((len(index), len(index))), np.zeros(n, np.int64))
        made.points[0] = weights[index]
        return made

    def heard(self, layout: Layout, batch: Batch, weight: np.ndarray | None, weights: np.ndarray, n: float, rng: np.random.Generator) -> None:
        rows = ROWS * len(self.index) * batch.topology.n_sequences / n
        self.bend += drawn_curvature(layout, batch, weight, weights, rng, index=self.index, rows=rows)

    def over(self, scale: float) -> None:
        self.newton = self.bend * scale
        self.bend[:] = 0.0

    def visited(self, own: np.ndarray, weights: np.ndarray) -> None:
        number = max(self.points) + 1
        self.visit[own] = number
        self.points[number] = weights[self.index]
        left = set(np.unique(self.visit).tolist())
        self.points = {k: v for k, v in self.points.items() if k in left}

    def step(self, weights: np.ndarray, dual: np.ndarray, penalty: Penalty) -> None:
        assert self.newton is not None
        names, counts = np.unique(self.visit, return_counts=True)
        mean = counts @ np.stack([self.points[k] for k in names.tolist()]) / len(self.visit)
        here = weights[self.index]
        ridge = penalty.ridge(len(weights))[self.index]
        slope = dual[self.index] + self.newton @ (here - mean) + ridge * here
        bend = self.newton.copy()
        bend[np.diag_indices(len(bend))] += ridge + LEAST * float(np.diag(bend).max(initial=0.0)) + 1e-300
        weights[self.index] = here - np.linalg.solve(bend, slope)
