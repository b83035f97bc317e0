"""Likelihood by sampling: persistent contrastive divergence.

The gradient of the negative log-likelihood is what the model expects minus what the data shows,

    ∇ = E_{y ~ p(y | x, w)} [features(y)] − features(truth)

and where no engine can take the expectation, Gibbs chains can. They are not run to equilibrium for each step: a few
*fantasy* labellings of each graph persist, and a sweep or two follows each change of the weights (Younes 1989;
Tieleman 2008). As steps become smaller the chains keep up better, and the weights settle where likelihood's do. What
a sweep saw enters as the probabilities that labels were drawn from, which are less noisy than the labels.

With up to CURVED weights and no l1 penalty the fantasies also tell the curvature, and steps are Newton's
(`averaged_steps`): a few hundred rounds then come within a few percent of exact likelihood, whatever the scale of
the features. The run counts as converged when twice the rounds moved the average by no more than STABLE of its
length; sampling noise makes smaller tolerances meaningless, and chains that mix badly can fake it: a sign, not a
proof. Otherwise steps know the gradient alone. Directions in which weights make up for each other can then creep so
slowly that standing still proves nothing, so such a run never calls itself converged.

The result is the average over the latter part of the run; a single iterate is noisy. Nothing here knows the value of
the likelihood, so values are NaN.

Where labels are partly unknown a second set of chains, clamped to what is allowed, stands for the truth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.errors import InputError, LabelError
from crfield.inference.graphs.feasible import possible_labelling
from crfield.inference.graphs.gibbs import Advanced, advance
from crfield.inference.labellings import one_hot, path_scores
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.full_batch import Scorer
from crfield.training.graph.averaged_steps import AdaptiveSteps, CurvedSteps
from crfield.training.graph.by_graph import prepared

STABLE = 0.02  # change of the average, relative to its length, that counts as none
FEWEST = 64  # rounds before that is taken for a sign
CURVED = 1000  # weights up to which steps follow the curvature

Callback = Callable[[Step, np.ndarray], bool | None]


class Sampler(Protocol):
    """Whatever moves labellings (C, N) on and tells what they saw, as `inference.graphs.gibbs.advance` does."""

    def __call__(
        self, potentials: Potentials, labels: np.ndarray, *, n_sweeps: int, random_state: int, n_jobs: int
    ) -> Advanced:
        """Labels after some sweeps, and means in the shape of the scores."""
        ...


def fit_contrastive(
    scorer: Scorer,
    batch: Any,
    target: Target,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    tol: float = STABLE,
    max_iter: int = 500,
    n_chains: int = 10,
    n_sweeps: int = 2,
    rate: float = 0.2,
    rng: np.random.Generator,
    n_jobs: int = 1,
    callback: Callback | None = None,
    sampler: Sampler = advance,
) -> Result:
    """Weights that make likelihood large, by ``max_iter`` rounds of ``n_sweeps`` of ``n_chains`` chains a graph.

    ``rate`` is the farthest that a weight moves in a round (about, where there is no curvature). The same generator
    gives the same weights, whatever ``n_jobs``. Ctrl-C, and a callback that gives True, end it with the average so
    far.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> class Bias:  # one weight, which scores label 1 of every node
    ...     n_weights = 1
    ...
    ...     def score(self, weights, batch):
    ...         return Potentials(np.outer(np.ones(8), [0, weights[0]]), np.zeros((1, 2, 2)), batch)
    ...
    ...     def pull(self, node, edge, batch):
    ...         return node[:, 1:].sum(axis=0)
    >>> graph = Graphs(np.array([0, 8]), np.arange(7), np.arange(1, 8))
    >>> target = Target(graph, 2, np.array([1, 1, 0, 1, 1, 0, 1, 1]))  # 6 of 8: log 3 = 1.0986 is the most likely
    >>> result = fit_contrastive(Bias(), graph, target, Penalty(), rng=np.random.default_rng(0))
    >>> result.weights.round(2).tolist(), result.converged
    ([1.1], True)
    """
    if n_chains < 2 or n_sweeps < 2 or n_sweeps % 2 or not rate > 0:
        raise InputError(
            "contrastive divergence needs n_chains ≥ 2, an even n_sweeps ≥ 2 and rate > 0, got "
            f"{n_chains}, {n_sweeps}, {rate}."
        )
    began = time.perf_counter()
    weights = np.zeros(scorer.n_weights) if start is None else np.asarray(start, dtype=np.float64)
    slope = _Slope(
        scorer, batch, target, weights, n_chains=n_chains, n_sweeps=n_sweeps, n_jobs=n_jobs, sampler=sampler
    )
    curved = len(weights) <= CURVED and penalty.l1 == 0
    pace: AdaptiveSteps | CurvedSteps = (CurvedSteps if curved else AdaptiveSteps)(weights, penalty, rate=rate)
    steps: list[Step] = []
    trail, change, reason = pace.trail, math.inf, MAX_ITER
    try:
        for round_ in range(1, max_iter + 1):
            gradient = slope.at(pace.weights, rng)
            if isinstance(pace, CurvedSteps):
                pace.take(gradient, slope.features())
            else:
                pace.take(gradient)
            due = trail.end_round()
            if due or round_ == max_iter:
                length = float(np.linalg.norm(trail.best))
                change = float(np.linalg.norm(trail.best - trail.last)) / max(length, 1e-12)
            active = int(np.count_nonzero(pace.weights)) if penalty.l1 else len(weights)
            norm, seconds = float(np.linalg.norm(gradient)), time.perf_counter() - began
            steps.append(Step(round_, round_, math.nan, norm, rate, active, seconds, change))
            still = trail.best is not trail.last and change <= max(tol, STABLE)
            if (due or round_ == max_iter) and curved and round_ >= FEWEST and still:
                reason = TOLERANCE
                break
            if callback is not None and callback(steps[-1], trail.best):
                reason = CALLBACK
                break
            if due:
                trail.restart()
    except KeyboardInterrupt:
        reason = INTERRUPTED
    return Result(trail.best, math.nan, len(steps), len(steps), reason == TOLERANCE, reason, steps)


class _Slope:
    """The gradient of the negative log-likelihood as the chains see it; each look moves them on."""

    def __init__(
        self,
        scorer: Scorer,
        batch: Any,
        target: Target,
        weights: np.ndarray,
        *,
        n_chains: int,
        n_sweeps: int,
        n_jobs: int,
        sampler: Sampler,
    ) -> None:
        self.scorer, self.batch, self.target = scorer, prepared(scorer, batch), target
        self.n_sweeps, self.n_jobs, self.sampler = n_sweeps, n_jobs, sampler
        self.scores = scorer.score(weights, self.batch)
        truth = _possible_truth(self.scores, target)
        self.fantasies = np.repeat(truth[None], n_chains, axis=0)
        self.clamped = None if target.complete.all() else self.fantasies.copy()

    def at(self, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(W,) at these weights."""
        scores, target = self.scorer.score(weights, self.batch), self.target
        # A shared table sums over graphs before they can be weighed.
        potentials = scores if target.weight is None else scores.each()
        self.scores = scores
        self.fantasies, node, edge = self._moved(potentials, self.fantasies, rng)
        if self.clamped is None:
            true_node, true_edge = one_hot(potentials, target.labels)
        else:
            masked = replace(potentials, node=np.where(target.mask, potentials.node, -np.inf))
            self.clamped, true_node, true_edge = self._moved(masked, self.clamped, rng)
        return self._pull(node - true_node, edge - true_edge, target.weight)

    def features(self) -> np.ndarray:
        """(C, W) of each set of fantasies; graphs count by the root of their weight, so covariances by the weight."""
        weight = self.target.weight
        scores = self.scores if weight is None else self.scores.each()
        root = None if weight is None else np.sqrt(weight)
        return np.array([self._pull(*one_hot(scores, labels), root) for labels in self.fantasies])

    def _pull(self, node: np.ndarray, edge: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """(W,) of node (N, L) and edge scores: (T, L, L), or (E, L, L) where graphs have a ``weight`` (B,)."""
        if weight is not None:
            topology = self.scores.topology
            node = node * weight[topology.sequence_of_node][:, None]
            each = edge * weight[topology.sequence_of_edge][:, None, None]
            edge = np.zeros_like(self.scores.edge)
            np.add.at(edge, self.scores.tables, each)
        return self.scorer.pull(node, edge, self.batch)

    def _moved(self, potentials: Potentials, labels: np.ndarray, rng: np.random.Generator) -> Advanced:
        seed = int(rng.integers(2**63))
        return self.sampler(potentials, labels, n_sweeps=self.n_sweeps, random_state=seed, n_jobs=self.n_jobs)


def _possible_truth(potentials: Potentials, target: Target) -> np.ndarray:
    """(N,) a labelling that the target allows and the scores do not forbid; LabelError where there is none."""
    topology, mask = potentials.topology, target.mask
    masked = replace(potentials, node=np.where(mask, potentials.node, -np.inf))
    labels = masked.node.argmax(axis=1)
    for graph in np.flatnonzero(np.isneginf(path_scores(masked, labels))):
        found = possible_labelling(masked, int(graph))
        if found is None:
            raise LabelError(
                f"the target must allow a labelling that the scores do not forbid, but graph {graph} has none. "
                "Correct its labels, or forbid fewer pairs."
            )
        labels[topology.offsets[graph] : topology.offsets[graph + 1]] = found
    return labels
