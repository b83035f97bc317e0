"""Likelihood by sampling: persistent contrastive divergence.

The gradient of the negative log-likelihood is what the model expects minus what the data shows,

    ∇ = E_{y ~ p(y | x, w)} [features(y)] − features(truth)

and where no engine can take the expectation, Gibbs chains can. They are not run to equilibrium for each step: a few
*fantasy* labellings of each graph persist, and a sweep or two follows each change of the weights (Younes 1989;
Tieleman 2008). As steps become smaller the chains keep up better, and the weights settle where likelihood's do. What
a sweep saw enters as the probabilities that labels were drawn from, which are less noisy than the labels.

Steps are those of `averaged_steps`. The result is their average over the latter part of the run; a single iterate is
noisy. Nothing here knows the value of the likelihood, so values are NaN. A run counts as converged when twice the
rounds moved the average by no more than STABLE of its length (sampling noise makes smaller tolerances meaningless):
that is a sign, not a proof, and chains that mix badly can fake it.

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
from crfield.inference.feasible import possible_labelling
from crfield.inference.gibbs import Advanced, advance
from crfield.inference.labellings import one_hot, path_scores
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.averaged_steps import AveragedSteps
from crfield.training.full_batch import Scorer
from crfield.training.graph_by_graph import prepared

STABLE = 0.02  # change of the average, relative to its length, that counts as none
FEWEST = 64  # rounds before that is taken for a sign
MEMORY = 0.98  # of the size of gradients: about the last fifty

Callback = Callable[[Step, np.ndarray], bool | None]


class Sampler(Protocol):
    """Whatever moves labellings (C, N) on and tells what they saw, as `inference.gibbs.advance` does."""

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

    ``rate`` is about how far a weight moves in its first step. The same generator gives the same weights, whatever
    ``n_jobs``. Ctrl-C, and a callback that gives True, end it with the average so far.

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
    if n_chains < 1 or n_sweeps < 2 or n_sweeps % 2 or not rate > 0:
        raise InputError(
            "contrastive divergence needs n_chains >= 1, an even n_sweeps >= 2 and rate > 0, got "
            f"{n_chains}, {n_sweeps}, {rate}."
        )
    began = time.perf_counter()
    weights = np.zeros(scorer.n_weights) if start is None else np.asarray(start, dtype=np.float64)
    slope = _Slope(
        scorer, batch, target, weights, n_chains=n_chains, n_sweeps=n_sweeps, n_jobs=n_jobs, sampler=sampler
    )
    pace = AveragedSteps(weights, penalty, rate=rate, memory=MEMORY)
    steps: list[Step] = []
    settled, change, reason = weights.copy(), math.inf, MAX_ITER
    try:
        for round_ in range(1, max_iter + 1):
            gradient = slope.at(pace.weights, rng)
            pace.take(gradient)
            due = pace.end_round()
            if due or (round_ == max_iter and _long_enough(pace)):
                change = _distance(pace.average, settled)
            active = int(np.count_nonzero(pace.weights)) if penalty.l1 else len(weights)
            norm, seconds = float(np.linalg.norm(gradient)), time.perf_counter() - began
            steps.append(Step(round_, round_, math.nan, norm, rate, active, seconds, change))
            if (due or round_ == max_iter) and round_ >= FEWEST and change <= max(tol, STABLE):
                reason = TOLERANCE
                break
            if callback is not None and callback(steps[-1], pace.average):
                reason = CALLBACK
                break
            if due:
                settled = pace.average
                pace.restart()
    except KeyboardInterrupt:
        reason = INTERRUPTED
    result = pace.average if _long_enough(pace) else settled
    return Result(result, math.nan, len(steps), len(steps), reason == TOLERANCE, reason, steps)


def _long_enough(pace: AveragedSteps) -> bool:
    """Whether the average holds a third of the run; one that has only just begun is noisier than the last."""
    return pace.n_averaged > 0 and 3 * pace.n_averaged >= pace.n_rounds


def _distance(here: np.ndarray, there: np.ndarray) -> float:
    return float(np.linalg.norm(here - there)) / max(float(np.linalg.norm(here)), 1e-12)


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
        truth = _possible_truth(scorer.score(weights, self.batch), target)
        self.fantasies = np.repeat(truth[None], n_chains, axis=0)
        self.clamped = None if target.complete.all() else self.fantasies.copy()

    def at(self, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(W,) at these weights."""
        scores, target = self.scorer.score(weights, self.batch), self.target
        # A shared table sums over graphs before they can be weighed.
        potentials = scores if target.weight is None else scores.each()
        self.fantasies, node, edge = self._moved(potentials, self.fantasies, rng)
        if self.clamped is None:
            true_node, true_edge = one_hot(potentials, target.labels)
        else:
            masked = replace(potentials, node=np.where(target.mask, potentials.node, -np.inf))
            self.clamped, true_node, true_edge = self._moved(masked, self.clamped, rng)
        node, edge = node - true_node, edge - true_edge
        if target.weight is not None:
            topology = potentials.topology
            node *= target.weight[topology.sequence_of_node][:, None]
            each = edge * target.weight[topology.sequence_of_edge][:, None, None]
            edge = np.zeros_like(scores.edge)
            np.add.at(edge, scores.tables, each)
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
                "Correct its labels, or forbid less."
            )
        labels[topology.offsets[graph] : topology.offsets[graph + 1]] = found
    return labels
