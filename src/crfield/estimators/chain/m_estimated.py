"""`MEstimatedCRF`: a linear chain whose weights come from the M-estimator instead of the likelihood.

The model, its input, its answers, reports and files are those of `ChainCRF`; only training differs
(`crfield.training.m_estimate`). One round, ``refreshes=0``, costs about as much as two or three evaluations of the
likelihood and gives labels nearly as good; each refresh costs one or two more and leads towards the maximum of the
likelihood. `to_chain` hands the weights to a `ChainCRF`, which goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.core.checks import function, integer, loudness, number, one_of
from crfield.core.parameters import declared_parameters, parameter
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.labels import LabelCoder, sequence_target
from crfield.estimators.base.groups import PENALTY, TOLERANCE, warn_unless_converged
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.columns import ColumnChain
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.training import Watch, run_training
from crfield.inference.decode import DECODERS
from crfield.optimize.history import Result, Step
from crfield.training.chain.plan import Plan
from crfield.training.m_estimate import AUTO, REFERENCES, m_estimate


class MEstimatedCRF(ColumnChain, kind="m_estimated_crf", model=ColumnModel):
    """Linear-chain conditional random field by M-estimation.

    Parameters
    ----------
    refreshes : int
        Rounds after the first, each with the model so far as the reference. 0 is the one-shot estimate.
    block : int, "auto" or None
        Steps of a block, about: 10 for one shot and 30 with refreshes if "auto". None takes each sequence whole,
        which suits short ones.
    reference : "markov" or "uniform"
        The reference of the first round: the chain of the labels alone, or nothing.
    ridge : float or "auto"
        Keeps a round near its reference, on columns of one size; more of it where data are few; 0.01 for one shot
        and 0.1 with refreshes if "auto".
    l2 : float
        Penalty ½ l2 ‖w‖² as in `ChainCRF`; refreshing leads to the optimum of the likelihood with this penalty.
    features, template, functions, transition_functions, transition_features, standardize, min_count, feature_pairs,
    transition_pairs, intercept, boundaries, penalize_intercepts, n_jobs, verbose, callback
        As in `ChainCRF`; a step of the callback is a round.
    tol : float
        Rounds end early when one promises less than this fraction of the objective.
    decode : "marginal" or "viterbi"
        What ``predict`` returns: the best label of each step, or the best labelling as a whole.

    Examples
    --------
    >>> from crfield import make_tag, tag_columns
    >>> game = make_tag(2.0, random_state=1)
    >>> X = [tag_columns(game.positions, "velocities", powers=(1, 2)).values]
    >>> model = MEstimatedCRF(standardize=True).fit(X, [game.labels])
    >>> model.score(X, [game.labels]) > 0.8
    True
    >>> model.stop_reason_
    'rounds'
    """

    refreshes: int = parameter(integer(0), default=6)
    block: int | str | None = parameter(integer(1) | AUTO | None, default=AUTO)
    reference: str = parameter(one_of(*REFERENCES), default="markov")
    ridge: float | str = parameter(number(0) | AUTO, default=AUTO)
    l2: float = parameter(PENALTY, default=1.0)
    tol: float = parameter(TOLERANCE, default=1e-4)
    decode: str = parameter(one_of(*DECODERS), default="marginal")
    verbose: int = parameter(loudness, default=0)
    callback: Callable[[Step, np.ndarray], bool | None] | None = parameter(
        function("(step, weights)"), default=None, stored=False
    )

    def fit(self, X: Sequences, y: Labels, sample_weight: Weights = None) -> Self:
        """Learn the weights from sequences X and their labels y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        labels = LabelCoder().fit(y)
        encoder, batch = self._learn_columns(X)
        target = sequence_target(batch.topology, labels, y, sample_weight)
        layout = self._layout(encoder, batch, target)

        def run(callback: Callable[[Step, np.ndarray], bool | None] | None) -> Result:
            return m_estimate(
                layout,
                batch,
                target,
                reference=self.reference,
                block=self.block,
                ridge=self.ridge,
                l2=float(self.l2),
                penalised=None if self.penalize_intercepts else ~layout.intercepts,
                refreshes=int(self.refreshes),
                tol=float(self.tol),
                n_jobs=self._jobs,
                callback=callback,
            )

        result = run_training(
            run, Watch(self.callback, None, None, self.verbose, 1 + self.refreshes, "MEstimatedCRF")
        )
        self.plan_ = Plan("m_estimate", "newton", result.how or "cheap steps on a table of centred features")
        self._learn(ColumnModel(labels, encoder, layout, result.weights), result)
        warn_unless_converged(result, self.tol)
        return self

    def to_chain(self, **options: Any) -> ChainCRF:
        """A `ChainCRF` with these features, labels and weights, ready to answer, or to go on by likelihood.

        ``options`` are parameters of `ChainCRF`. Its ``warm_start`` is on, so ``fit`` begins at these weights.

        >>> X, y = [[["sunny"], ["rainy"], ["sunny"]]], [["walk", "read", "walk"]]
        >>> chain = MEstimatedCRF(refreshes=0, block=1).fit(X, y).to_chain(l2=0.5)
        >>> chain.predict(X)[0].tolist(), chain.fit(X, y).converged_
        (['walk', 'read', 'walk'], True)
        """
        model = self.column_model("to_chain")
        known = declared_parameters(ChainCRF)
        shared = {k: v for k, v in self.get_params(deep=False).items() if k in known and k != "callback"}
        chain = ChainCRF(**{**shared, "warm_start": True, **options})
        chain.check()
        result = Result(
            model.weights.copy(),
            self.objective_,
            self.n_iter_,
            self.n_evaluations_,
            self.converged_,
            self.stop_reason_,
            self.history_,
        )
        chain.plan_ = self.plan_
        return chain.holding(replace(model, weights=result.weights), result)
