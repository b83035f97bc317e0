"""Graphs on which exact inference is too large: couplings that may not make the answers worse.

Pseudo-likelihood sees the true labels around a node, which nobody has when labels are inferred, and its couplings are
too strong then: predictions may be far worse than those of the same model without edges. What is trained instead:

1. w₀, the model without edges: every node a row of a logistic regression, in one compiled call.
2. w₁, the likelihood whose log Z is bounded by trees (`inference.graphs.tree_reweighted`), from w₀. The bound is
   convex in the weights, so there is one answer, small changes of weights make small changes of beliefs, and where
   the same convex engine fits and predicts, its errors partly cancel (Wainwright 2006, *Estimating the "wrong"
   graphical model*, JMLR 7). Messages are kept from one evaluation to the next, so ten sweeps each are enough.
3. A strength s in {0, ¼, ½, ¾, 1}, of w(s) = w₀ + s (w₁ − w₀), on graphs that neither fit had seen: the surest
   gain in mean log-probability of the labels, among the strengths that are not less accurate than s = 0. Accuracy
   alone is noisy where graphs are few, log-probability alone may prefer a model that predicts worse.
4. w₀ and w₁ again on all graphs, and w = w₀ + s (w₁ − w₀). With s = 0 the couplings are exactly zero.

Each graph is held out once, in four folds or, where a fit takes long, in two; of a single graph a connected quarter
of its nodes is held out, and the edges across are left out.

Messages never stand still where couplings are strong, for those of all but impossible labels go on falling; value and
beliefs do. So `converged` rests on a certificate: from a cold start, the value after 100 sweeps, after 200, and the
one that training saw must agree to a thousandth, besides the tolerance of the optimiser. The value is convex where
all labels are known; with partial labels it is a difference of two bounds, and what is certified is a stationary
point.

For graphs too large for that (`graph_plan.SECONDS`) w₁ is the pseudo-likelihood solution and beliefs are those of
loopy propagation; the path from w₀ to it and the choice on it are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs, link_matrix
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import UNKNOWN, Target
from crfield.data.graphs.batch import GraphBatch
from crfield.inference.graphs.tree_reweighted import TreeReweightedEngine
from crfield.objectives.contrast import Contrast
from crfield.objectives.local import PseudoLikelihood
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.scoring.graph_linear import GraphScorer, inverse_curvature
from crfield.training.full_batch import FullBatch
from crfield.training.gradient_check import UNSETTLED
from crfield.training.graph.alone import FEW, LEAST, Callback, fit_alone
from crfield.training.graph.by_graph import take_target
from crfield.training.graph.plan import STRENGTHS, HeldOut, Plan, answering_engine

SWEEPS = 10  # of an evaluation in training, from the messages of the one before
STEPS = 12  # of w₁, in hundredths of the limit: each costs inference
CERTIFIED = 1e-3  # relative difference of values that may be called the same
SMALLEST = 200  # nodes of a single graph of which a quarter may be held out
FOLDS = 4
CHEAP = 5.0  # seconds, estimated, of one fit: up to there a graph is left out of only a quarter of the fits
SURE = 1.5  # standard errors that a gain must have over it, so that noise buys no couplings


# ---------------------------------------------------------------------------------------------------- with edges


@dataclass
class KeptMessages:
    """An engine that goes on from its messages of last time, apart for each question of an evaluation.

    An evaluation asks once about everything and, with partial labels, once about what they allow.
    """

    engine: TreeReweightedEngine
    messages: list[np.ndarray | None] = field(default_factory=lambda: [None, None])
    asked: int = 0

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Beliefs after a few more sweeps."""
        beliefs, messages = self.engine.run(potentials, semiring, self.messages[self.asked])
        # Messages may be -inf (a label is excluded) but a NaN would stay for ever.
        self.messages[self.asked] = None if np.isnan(messages).any() else messages
        self.asked += 1
        return beliefs


class BoundedLikelihood(FullBatch):
    """The likelihood bounded by trees, with messages kept from one evaluation to the next."""

    def __init__(
        self, scorer: GraphScorer, batch: Any, target: Target, *, sweeps: int = SWEEPS, n_jobs: int = 1
    ) -> None:
        self.kept = KeptMessages(TreeReweightedEngine(damping=0.3, max_sweeps=sweeps, tol=1e-3, n_jobs=n_jobs))
        super().__init__(scorer, batch, target, objective=Contrast(), engine=self.kept)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        self.kept.asked = 0
        return super().evaluate(weights, gradient)


@dataclass(frozen=True, eq=False)
class Setting:
    """What all fits of one training have in common."""

    scorer: GraphScorer
    penalty: Penalty
    plan: Plan
    tol: float
    max_iter: int
    n_jobs: int

    def alone(self, batch: GraphBatch, target: Target, **options: Any) -> Result:
        """w₀."""
        return fit_alone(
            self.scorer,
            batch,
            target,
            self.penalty,
            tol=10 * self.tol,
            max_iter=self.max_iter,
            n_jobs=self.n_jobs,
            **options,
        )

    def problem(self, batch: Any, target: Target) -> FullBatch:
        """The function whose minimum is w₁."""
        if self.plan.objective == "likelihood":
            return BoundedLikelihood(self.scorer, batch, target, n_jobs=self.n_jobs)
        return FullBatch(self.scorer, batch, target, objective=PseudoLikelihood(), engine=None)

    def joint(
        self,
        batch: GraphBatch,
        target: Target,
        alone: np.ndarray,
        start: np.ndarray,
        callback: Callback | None = None,
    ) -> tuple[Result, Any]:
        """w₁ from ``start``, and the batch with what its scores need."""
        work = self.scorer.prepare(batch)
        found = minimize(
            self.problem(work, target),
            start,
            self.penalty,
            diagonal=inverse_curvature(self.scorer, batch, alone, self.penalty.l2),
            tol=10 * self.tol,
            max_iter=-(-self.max_iter * STEPS // 100),
            n_jobs=self.n_jobs,
            callback=callback,
        )
        return found, work


def fit_guarded(
    scorer: GraphScorer,
    batch: GraphBatch,
    target: Target,
    penalty: Penalty,
    plan: Plan,
    *,
    start: np.ndarray | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    rng: np.random.Generator,
    callback: Callback | None = None,
) -> tuple[Result, Plan]:
    """Train as the module's essay says; the result, and the plan with what was found out.

    Fits end at ten times ``tol``, and w₁ after 12 % of ``max_iter`` steps, for each costs inference. ``callback``
    sees the steps of the fits on all graphs.
    """
    setting = Setting(scorer, penalty, plan, tol, max_iter, n_jobs)
    alone = setting.alone(batch, target, start=start, callback=callback)
    if alone.reason in (INTERRUPTED, CALLBACK):
        return alone, replace(plan, strength=0.0)
    try:
        held_out, first, evaluations = judged_strengths(setting, batch, target, alone.weights, rng)
    except KeyboardInterrupt:
        return replace(alone, converged=False, reason=INTERRUPTED), replace(plan, strength=0.0)
    strength = 1.0 if held_out is None else held_out.strength
    plan = replace(plan, strength=strength, held_out=held_out)
    evaluations += alone.n_evaluations
    if strength == 0:
        return replace(alone, n_evaluations=evaluations), plan
    begin = next(some for some in (first, start, alone.weights) if some is not None)
    joint, work = setting.joint(batch, target, alone.weights, begin, callback)
    evaluations += joint.n_evaluations
    weights = joint.weights if strength == 1 else alone.weights + strength * (joint.weights - alone.weights)
    result = replace(joint, weights=weights, n_evaluations=evaluations)
    if joint.reason in (INTERRUPTED, CALLBACK) or plan.objective != "likelihood":
        return result, plan
    value = certified_value(scorer, work, target, penalty, joint, n_jobs)
    if value is None:
        return replace(result, converged=False, reason=UNSETTLED), plan
    return replace(result, converged=joint.converged and alone.converged), plan


def certified_value(
    scorer: GraphScorer, work: Any, target: Target, penalty: Penalty, found: Result, n_jobs: int
) -> float | None:
    """The value after 200 sweeps from a cold start, or None where 100 or training itself say another one."""
    problem = BoundedLikelihood(scorer, work, target, sweeps=100, n_jobs=n_jobs)
    function, there = Penalised(problem, penalty), Point(found.weights.copy(), np.empty_like(found.weights))
    values = []
    for _ in range(2):
        function.evaluate(there)
        values.append(there.value)
    value = values[1]
    same = all(abs(other - value) <= CERTIFIED * abs(value) for other in (values[0], found.value))
    return value if same and math.isfinite(value) else None


# ----------------------------------------------------------------------------------------------- how strong


def judged_strengths(
    setting: Setting, batch: GraphBatch, target: Target, alone: np.ndarray, rng: np.random.Generator
) -> tuple[HeldOut | None, np.ndarray | None, int]:
    """What every strength does on what was held out (None where nothing can be), w₁ on average, and evaluations."""
    found, evaluations = [], 0
    parts = held_out_parts(batch, target, rng, folds=FOLDS if setting.plan.seconds <= CHEAP else 2)
    right, logs, graphs = [], [], 0
    for learn, judge in parts:
        first = setting.alone(*learn, start=alone)
        if first.reason == INTERRUPTED:
            raise KeyboardInterrupt
        full, _ = setting.joint(*learn, first.weights, first.weights)
        if full.reason == INTERRUPTED:
            raise KeyboardInterrupt
        found.append(full.weights)
        evaluations += first.n_evaluations + full.n_evaluations
        kept = judged_nodes(learn[1], judge[1])
        told = [node_scores(setting, first.weights + s * (full.weights - first.weights), *judge) for s in STRENGTHS]
        right.append(np.array([some[0][kept] for some in told]))
        logs.append(np.array([some[1][kept] for some in told]))
        graphs += judge[0].n_graphs
    if sum(some.shape[1] for some in right) < FEW:
        return None, np.mean(found, axis=0) if found else None, evaluations
    return chosen_strength(np.hstack(right), np.hstack(logs), graphs), np.mean(found, axis=0), evaluations


def held_out_parts(
    batch: GraphBatch, target: Target, rng: np.random.Generator, *, folds: int
) -> list[tuple[tuple[GraphBatch, Target], tuple[GraphBatch, Target]]]:
    """Graphs to learn from and graphs to judge by: folds of the graphs, or a connected quarter of a single one."""
    if batch.n_graphs == 1:
        if batch.topology.n_nodes < SMALLEST:
            return []
        away = connected_quarter(batch.topology, rng)
        return [(part_of(batch, target, ~away), part_of(batch, target, away))]
    folds = min(folds, batch.n_graphs)
    best: list[np.ndarray] = []
    fewest = math.inf
    for _ in range(10):  # so that, if that can be, each label is left wherever it is learnt
        fold = np.empty(batch.n_graphs, np.int64)
        fold[rng.permutation(batch.n_graphs)] = np.arange(batch.n_graphs) % folds
        node = fold[target.topology.sequence_of_node]
        all_labels = len(np.unique(target.labels[target.labels != UNKNOWN]))
        left = [np.unique(target.labels[(node != k) & (target.labels != UNKNOWN)]) for k in range(folds)]
        missing = sum(all_labels - len(some) for some in left)
        if missing < fewest:
            fewest, best = missing, [np.flatnonzero(fold == k) for k in range(folds)]
        if not missing:
            break
    parts = []
    for away in best:
        learn = np.setdiff1d(np.arange(batch.n_graphs), away)
        both = [(some, batch.take(some)) for some in (learn, away)]
        one, other = ((piece, take_target(target, some, piece.topology)) for some, piece in both)
        parts.append((one, other))
    return parts


def connected_quarter(topology: Graphs, rng: np.random.Generator) -> np.ndarray:
    """(N,) bool, a quarter of the nodes: those met first from some node on, breadth first."""
    from scipy.sparse.csgraph import breadth_first_order

    n = topology.n_nodes
    links = link_matrix(topology.tails, topology.heads, n)
    away = np.zeros(n, bool)
    while away.sum() < n // 4:
        start = int(rng.choice(np.flatnonzero(~away)))
        met = breadth_first_order(links, start, directed=False, return_predecessors=False)
        met = met[~away[met]]
        away[met[: n // 4 - int(away.sum())]] = True
    return away


def part_of(batch: GraphBatch, target: Target, nodes: np.ndarray) -> tuple[GraphBatch, Target]:
    """The chosen nodes with the edges among them, and their truth."""
    part = batch.induced(nodes)
    allowed = None if target.allowed is None else target.allowed[nodes]
    return part, Target(part.topology, target.n_labels, target.labels[nodes], allowed, target.weight)


def judged_nodes(learnt: Target, judged: Target) -> np.ndarray:
    """(N,) bool: nodes of which something is known, no label of which was never met in learning."""
    met = np.zeros(learnt.n_labels, bool)
    met[np.unique(learnt.labels[learnt.labels != UNKNOWN])] = True
    known = judged.labels != UNKNOWN
    return known & met[np.where(known, judged.labels, 0)]


def node_scores(
    setting: Setting, weights: np.ndarray, batch: GraphBatch, target: Target
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) whether the label of greatest belief is the true one, and the log of the true one's belief."""
    engine = answering_engine(setting.plan, n_jobs=setting.n_jobs)
    node = engine.infer(setting.scorer.score(weights, batch), Semiring.LOG).node
    truth = np.maximum(target.labels, 0)
    return node.argmax(axis=1) == truth, np.log(np.maximum(node[np.arange(len(node)), truth], LEAST))


def chosen_strength(right: np.ndarray, logs: np.ndarray, n_graphs: int) -> HeldOut:
    """Accuracy and log-probability (strengths, nodes) to the strength that is taken.

    Among strengths that are not less accurate than s = 0, the one whose gain in log-probability less `SURE` standard
    errors is greatest; 0 where none gains.

    >>> even = np.tile([0.0, -1.0], 50)
    >>> chosen_strength(np.ones((5, 100)), even + np.arange(5)[:, None], 2).strength
    1.0
    """

    def sure(values: np.ndarray, k: int) -> tuple[float, float]:
        gain = values[k] - values[0]
        return float(gain.mean()), float(gain.std() / math.sqrt(len(gain)))

    def worth(k: int) -> float:
        mean, error = sure(logs, k)
        return mean - SURE * error

    right = right.astype(np.float64)
    fine = [k for k in range(len(STRENGTHS)) if sure(right, k)[0] >= 0]
    best = max(fine, key=worth)
    mean, error = sure(right, len(STRENGTHS) - 1)
    return HeldOut(
        n_graphs,
        right.shape[1],
        STRENGTHS[best],
        tuple(map(float, right.mean(axis=1))),
        tuple(map(float, logs.mean(axis=1))),
        misfit=mean < -2 * error,
    )
