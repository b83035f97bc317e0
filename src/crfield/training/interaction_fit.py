"""Fitting the interaction of a discriminative random field, the local classifier being given.

The scores are smooth but not linear in the weights (`scoring.interaction`), so the objective is not concave and the
optimum found is the one nearest to the start: equal parts of both halves of the interaction and no opinion. With a
handful of weights that has been no trouble; `find_fault` of `training.honest` is not needed with pseudo-likelihood,
whose value and gradient are exact.
"""

from __future__ import annotations

import numpy as np

from crfield.core.target import Target
from crfield.scoring.interaction import InteractionScorer, Sites
from crfield.training.full_batch import Objective


class InteractionProblem:
    """An objective of a discriminative random field as one function of its weights.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> from crfield.inference.brute import BruteEngine
    >>> from crfield.objectives.contrast import Contrast
    >>> graph = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    >>> sites = Sites(graph, np.log(np.full((2, 2), 0.5)), np.zeros((1, 0)))
    >>> problem = InteractionProblem(sites, Target(graph, 2, np.array([1, 1])), Contrast(), BruteEngine())
    >>> round(problem.evaluate(np.zeros(3), np.empty(3)), 4)
    1.0064
    """

    def __init__(self, sites: Sites, target: Target, objective: Objective, engine: object = None) -> None:
        self.scorer = InteractionScorer(sites.between.shape[1])
        self.sites, self.target, self.objective, self.engine = sites, target, objective, engine

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        result = self.objective.evaluate(self.scorer.score(weights, self.sites), self.target, self.engine)
        gradient[:] = self.scorer.pull_at(weights, result.node, result.edge, self.sites)
        return result.value
