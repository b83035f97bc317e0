"""Training on graphs: a plan carried out.

    F(w) = objective(scores(w), target) + l1 ‖w‖₁ + ½ l2 ‖w‖²

Smooth objectives go to L-BFGS or OWL-QN. Where the totals are approximate the run starts from the pseudo-likelihood
solution, since from zero the first steps of a Bethe likelihood on a loopy graph can lead to couplings at which belief
propagation knows one label only; and what comes of it is checked (`training.gradient_check`). Objectives of the best
labelling are not smooth: the perceptron and the hinge visit graph after graph (`training.graph.structured`), and
contrastive divergence follows noisy gradients (`training.graph.contrastive`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.objectives.contrast import Contrast
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.training.full_batch import FullBatch, Objective, Scorer
from crfield.training.gradient_check import minimize_checked
from crfield.training.graph.plan import Plan

INITIAL = ("auto", "zero", "pseudo_likelihood")
START_TOL = 1e-3  # of the pseudo-likelihood run that only finds a start

Callback = Callable[[Step, np.ndarray], bool | None]
Make = Callable[[str, Any], Any]


def fit_graph(
    scorer: Scorer,
    batch: Any,
    target: Target,
    penalty: Penalty,
    plan: Plan,
    *,
    start: np.ndarray | None = None,
    initial: str = "auto",
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    rng: np.random.Generator,
    callback: Callback | None = None,
    make: Make | None = None,
) -> Result:
    """Minimise F as planned, from ``start`` (W,) or as ``initial`` says: "zero", or the pseudo-likelihood solution.

    ``initial="auto"`` takes the latter for approximate totals of fully labelled graphs and zero otherwise. ``make``
    gives smooth objectives, by name and engine, of graphs that lie elsewhere.
    """
    one_of(*INITIAL)("initial", initial)
    if plan.objective in ("perceptron", "hinge"):
        from crfield.training.graph.structured import fit_structured

        return fit_structured(
            scorer,
            batch,
            target,
            penalty,
            plan.objective,
            plan.engine,
            start=start,
            tol=tol,
            max_iter=max_iter,
            rng=rng,
            callback=callback,
        )
    if plan.objective == "contrastive":
        from crfield.training.graph.contrastive import fit_contrastive

        return fit_contrastive(
            scorer,
            batch,
            target,
            penalty,
            start=start,
            tol=tol,
            max_iter=max_iter,
            rng=rng,
            n_jobs=n_jobs,
            callback=callback,
        )
    if make is None:
        prepare = getattr(scorer, "prepare", None)
        here = batch if prepare is None else prepare(batch)

        def make(objective: str, engine: Any) -> FullBatch:
            return FullBatch(scorer, here, target, objective=smooth_objective(objective), engine=engine)

    problem = make(plan.objective, plan.engine)
    weights = np.zeros(scorer.n_weights) if start is None else start
    if plan.exact:
        return minimize(problem, weights, penalty, tol=tol, max_iter=max_iter, n_jobs=n_jobs, callback=callback)
    complete = bool(target.complete.all())
    if start is None and (initial == "pseudo_likelihood" or (initial == "auto" and complete)):
        easy = make("pseudo_likelihood", None)
        first = minimize(easy, weights, penalty, tol=START_TOL, max_iter=max_iter, n_jobs=n_jobs, callback=callback)
        if first.reason == INTERRUPTED:
            return first
        weights = first.weights
    return minimize_checked(problem, weights, penalty, tol=tol, max_iter=max_iter, n_jobs=n_jobs, callback=callback)


def smooth_objective(name: str) -> Objective:
    """The objective of that name.

    >>> smooth_objective("likelihood")
    Contrast(semiring=<Semiring.LOG: 'log'>)
    """
    if name == "likelihood":
        return Contrast()
    if name == "pseudo_likelihood":
        from crfield.objectives.local import PseudoLikelihood

        return PseudoLikelihood()
    if name == "piecewise":
        from crfield.objectives.piecewise import Piecewise

        return Piecewise()
    if name == "softmax_margin":
        from crfield.objectives.margin import SoftMargin

        return SoftMargin()
    raise InputError(f"{name!r} is not a smooth objective.")
