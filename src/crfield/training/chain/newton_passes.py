"""Numeric data that come again, part by part: a step of Newton's method after every pass.

Stochastic steps over the same n sequences again and again are left with the noise of the sequence before: after k
passes about d / 2k above the minimum, where d is the number of weights that the data decide (Bach & Moulines 2011,
*Non-asymptotic analysis of stochastic approximation algorithms*), and columns that overlap make it worse. A pass in
which every part tells its loss and its slope at one point v knows those of all; and where weights are few, the
curvature of all is a matrix that parts add up to as well, about, from labellings that the model draws
(`training.drawn_curvature`):

    v ← v − t (H + penalty)⁻¹ ∇F(v)          at the end of a pass

How far to go, t, is not known before the next pass has been heard: so that hears of the points of several t, and the
lowest is the next v. The model has the weights of the lowest point that all parts have told of. The size of the
parts and their order do not matter, and no noise stays: draws make only the matrix rough, so an error shrinks to a
fraction with each pass. The first pass is of stochastic steps (`training.chain.partial_fit`), which gives v, and the
second hears of it.

Cost: five evaluations of a part for each call and as many curvatures, ``ROWS`` W² products for each pass and point,
and five matrices of W² numbers. So it is for few weights, and for numeric columns, of which stochastic steps know
least. The shares t were chosen by the objective after ten passes on generated recordings and on an accelerometer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.data.batch import Batch
from crfield.optimize.penalty import Penalty
from crfield.training.drawn_curvature import drawn_curvature, n_pieces
from crfield.training.likelihood import FusedChain

MOST_WEIGHTS = 500
ROWS, FEWEST, MOST = 12, 2, 16  # drawn pieces for each weight; draws of a piece
SHARES = (3.0, 1.5, 0.7, 0.3, 0.12)  # of Newton's step
LEAST = 1e-9  # of the largest curvature: what has none


def suits(problem: FusedChain, penalty: Penalty) -> bool:
    """Whether a problem is a likelihood with few weights, of numeric columns in the main, without an l1 penalty."""
    if penalty.l1 or problem.n_weights > MOST_WEIGHTS:
        return False
    layout = problem.layout
    dense, node = layout.part["dense"], layout.part["node"]
    plain = not (layout.n_edge_columns or layout.n_edge_dense or problem.partial) and layout.fixed is None
    return bool(plain and layout.n_labels > 1 and dense.stop - dense.start >= node.stop - node.start)


@dataclass(eq=False)
class NewtonPasses:
    """The points of a pass and what was heard of them so far, and the lowest point of the passes before."""

    points: np.ndarray  # (K, W)
    slopes: np.ndarray  # (K, W) Σ of the parts, without the penalty
    values: np.ndarray  # (K,) likewise
    bends: np.ndarray  # (K, W, W) the curvature there
    count: float = 0.0  # sequences that were heard
    lowest: np.ndarray | None = None  # (W,)
    least: float = np.inf  # F there
    step: np.ndarray | None = None  # (W,) that the points are shares of

    @classmethod
    def at(cls, points: np.ndarray) -> NewtonPasses:
        """A pass at some points (K, W), of which nothing was heard yet."""
        size = points.shape[1]
        return cls(points.copy(), np.zeros(points.shape), np.zeros(len(points)), np.zeros((len(points), size, size)))

    def hear(self, problem: FusedChain, batch: Batch, weight: np.ndarray | None, rng: np.random.Generator) -> float:
        """One more part; gives its loss at the first point."""
        size = self.points.shape[1]
        slope, losses = np.empty(size), []
        draws = int(np.clip(-(-ROWS * size // max(n_pieces(batch.topology), 1)), FEWEST, MOST))
        for number, point in enumerate(self.points):
            losses.append(problem.evaluate(point, slope))
            self.slopes[number] += slope
            self.bends[number] += drawn_curvature(problem.layout, batch, weight, point, rng, draws=draws)
        self.values += losses
        self.count += batch.topology.n_sequences
        return float(losses[0])

    def over(self, n: float) -> bool:
        """Whether all n sequences were heard."""
        return self.count >= n * (1 - 1e-9)

    def ended(self, penalty: Penalty, n: float) -> NewtonPasses:
        """The next pass."""
        size, scale = self.points.shape[1], n / self.count
        ridge = penalty.ridge(size)
        values = self.values * scale + 0.5 * (self.points**2 @ ridge)
        best = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        if not values[best] < self.least and self.lowest is not None and self.step is not None:
            return self._next(self.lowest, self.least, 0.1 * self.step)  # all were too far: the same way, less of it
        lowest, bend = self.points[best], self.bends[best] * scale
        bend[np.diag_indices(size)] += ridge + LEAST * float(np.diag(bend).max(initial=0.0)) + 1e-300
        step = np.linalg.solve(bend, self.slopes[best] * scale + ridge * lowest)
        return self._next(lowest, float(values[best]), step)

    @classmethod
    def _next(cls, lowest: np.ndarray, least: float, step: np.ndarray) -> NewtonPasses:
        made = cls.at(lowest - np.multiply.outer(SHARES, step))
        made.lowest, made.least, made.step = lowest, least, step
        return made
