"""`BoostedRandomField`: boosting that listens to the neighbours' beliefs, as a scikit-learn estimator.

The rival of virtual evidence boosting (Torralba, Murphy & Freeman 2004; `crfield.boosting.random_field`). It learns
beliefs and no joint model: asked for the best labelling as a whole it gives the best label of each node, and
``log_prob`` takes the nodes as independent given X.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from crfield.boosting.random_field import FIELD_LEARNERS, boost_field
from crfield.boosting.round_table import RoundTable
from crfield.boosting.virtual_evidence.rounds import RoundOptions
from crfield.core.checks import integer, one_of, resolve_jobs
from crfield.core.parameters import parameter
from crfield.errors import InputError
from crfield.estimators.boosted.belief_steps import BeliefSteps, leaves_by_model
from crfield.estimators.boosted.field import NON_NEGATIVE, POSITIVE, STARTS, BoostedGraphs
from crfield.estimators.boosted.model import BeliefModel
from crfield.estimators.graph.steps import dense_kinds, one_step_graphs


class BoostedRandomField(BoostedGraphs[BeliefModel], kind="boosted_field", model=BeliefModel):
    """Boosted random field on sequences or graphs; X and y as in `VirtualEvidenceBoosting`.

    Parameters
    ----------
    n_rounds : int
        Rounds, in training and then in every prediction.
    learner : "linear" or "stump"
        Weak learners on the neighbours' beliefs: a regression on them, or a cut of one of them.
    relations, directed, discrete, max_bins, decode, engine, map_engine, n_jobs, random_state, verbose
        As in `VirtualEvidenceBoosting`. Beliefs are what they are: ``decode`` and the engines change nothing.
    response_limit, ridge, learning_rate : float
        Clip of the responses, weight added to leaves and regressions, share of each step that is taken.
    start : "prior" or "zero"
        Scores before the first round.

    Examples
    --------
    >>> from crfield import BoostedRandomField, make_order_chains
    >>> world = make_order_chains(0.9, n_chains=4, length=300, n_features=10)
    >>> model = BoostedRandomField(n_rounds=20, learner="stump").fit(world.features, world.labels)
    >>> model.score(world.features, world.labels) > 0.6
    True
    """

    n_rounds: int = parameter(integer(1), default=50)
    learner: str = parameter(one_of(*FIELD_LEARNERS), default="linear")
    response_limit: float = parameter(POSITIVE, default=4.0)
    ridge: float = parameter(NON_NEGATIVE, default=5.0)
    learning_rate: float = parameter(POSITIVE, default=1.0)
    start: str = parameter(one_of(*STARTS), default="prior")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rounds from X and the labels y of steps or nodes; ``sample_weight`` has one number per graph."""
        self.check()
        graphs, data = self._read(X, y, sample_weight)
        prior = data.priors()
        if self.start == "zero":
            prior = tuple(np.zeros_like(one) for one in prior)
        options = RoundOptions(
            n_rounds=int(self.n_rounds),
            response_limit=float(self.response_limit),
            ridge=float(self.ridge),
            learning_rate=float(self.learning_rate),
            n_jobs=resolve_jobs(self.n_jobs),
        )
        with self._watched(options.n_rounds) as watch:
            done = boost_field(data, prior, options, learner=self.learner, watch=watch)
        self._end(BeliefModel(graphs.encoder, graphs.labels, done.model, RoundTable(done.rounds)), done.reason)
        return self

    def _step_scorer(self, *, history: int | None = None) -> BeliefSteps:
        model = self._fitted
        if len(model.encoder.schema.kinds) > 1:
            raise InputError(
                "a stream needs nodes of one kind, the steps of a sequence. Train on sequences, or answer whole "
                "graphs with predict."
            )
        leaves = None
        if not dense_kinds(model.encoder):
            leaves = leaves_by_model(model.scores, lambda rows: model.encoder.encode(one_step_graphs(rows)))
        return BeliefSteps(model.scores, model.encoder, leaves)
