"""Fitting the interaction of a discriminative random field, the local classifier being given.

The scores are smooth but not linear in the weights (`scoring.interaction`), so the objective is not concave and the
optimum found is the one nearest to the start: equal parts of both halves of the interaction and no opinion. With a
handful of weights that has been no trouble.

Pseudo-likelihood sees the true labels all around a site. Those are not there when images are labelled, and the
strength that suits a site among true labels is a little too great for one among guesses. The likelihood has no such
fault, and with a handful of weights a few dozen propagations on the training data are enough; its totals are
approximate on grids, so it starts from the pseudo-likelihood solution and its end is checked
(`training.gradient_check`).
"""

from __future__ import annotations

import numpy as np

from crfield.core.target import Target
from crfield.objectives.contrast import Contrast, Engine
from crfield.objectives.local import PseudoLikelihood
from crfield.optimize.history import INTERRUPTED, Result
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.interaction import InteractionScorer, Sites
from crfield.training.full_batch import Objective
from crfield.training.gradient_check import minimize_checked


class InteractionProblem:
    """An objective of a discriminative random field as one function of its weights.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> from crfield.inference.graphs.brute import BruteEngine
    >>> from crfield.objectives.contrast import Contrast
    >>> graph = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    >>> sites = Sites(graph, np.log(np.full((2, 2), 0.5)), np.zeros((1, 0)))
    >>> problem = InteractionProblem(sites, Target(graph, 2, np.array([1, 1])), Contrast(), BruteEngine())
    >>> round(problem.evaluate(np.zeros(3), np.empty(3)), 4)
    1.0064
    """

    def __init__(self, sites: Sites, target: Target, objective: Objective, engine: Engine | None = None) -> None:
        self.scorer = InteractionScorer(sites.between.shape[1])
        self.sites, self.target, self.objective, self.engine = sites, target, objective, engine
        self.settled = True

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        result = self.objective.evaluate(self.scorer.score(weights, self.sites), self.target, self.engine)
        gradient[:] = self.scorer.pull_at(weights, result.node, result.edge, self.sites)
        self.settled = result.converged
        return result.value


def fit_interaction(
    sites: Sites, target: Target, penalty: Penalty, engine: Engine | None = None, *, tol: float, max_iter: int
) -> Result:
    """Minimise pseudo-likelihood, and from there, if an engine is given, the likelihood with its totals.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> graph = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    >>> sites = Sites(graph, np.log(np.full((2, 2), 0.5)), np.zeros((1, 0)))
    >>> target = Target(graph, 2, np.array([1, 1]))
    >>> fit_interaction(sites, target, Penalty(l2=1.0), tol=1e-5, max_iter=100).converged
    True
    """
    easy = InteractionProblem(sites, target, PseudoLikelihood())
    first = minimize(easy, np.zeros(easy.n_weights), penalty, tol=tol, max_iter=max_iter)
    if engine is None or first.reason == INTERRUPTED:
        return first
    problem = InteractionProblem(sites, target, Contrast(), engine)
    return minimize_checked(problem, first.weights, penalty, tol=tol, max_iter=max_iter)
