"""`MEstimatedCRF`: a linear chain whose weights come from the M-estimator instead of the likelihood.

The model, its input, its answers, reports and files are those of `ChainCRF`; only training differs
(`crfield.training.m_estimate`). One round, ``refreshes=0``, costs about as much as two or three evaluations of the
likelihood and gives labels nearly as good; each refresh costs one or two more and leads towards the maximum of the
likelihood. `to_chain` hands the weights to a `ChainCRF`, which goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.chain.checks import check_parameters
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.early_stopping import HeldOut
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.estimators.chain.training import Watch, run_training
from crfield.features.templates.template import Template
from crfield.optimize.history import Result, Step
from crfield.training.m_estimate import AUTO, REFERENCES, m_estimate


class MEstimatedCRF(ChainCRF):
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
    template, functions, transition_functions, transition_features, standardize, min_count, feature_pairs,
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

    l1, label_functions, warm_start, random_state = 0.0, None, False, 0
    checkpoint, validation_fraction, validation_score, patience = None, None, "log_likelihood", 3

    def __init__(
        self,
        *,
        refreshes: int = 6,
        block: int | str | None = AUTO,
        reference: str = "markov",
        ridge: float | str = AUTO,
        l2: float = 1.0,
        template: str | Template | None = None,
        functions: Sequence[Any] | None = None,
        transition_functions: Sequence[Any] = (),
        transition_features: str | Sequence[Any] | None = None,
        standardize: bool = False,
        min_count: int = 1,
        feature_pairs: str = "observed",
        transition_pairs: str = "observed",
        intercept: bool = True,
        boundaries: bool = True,
        penalize_intercepts: bool = True,
        tol: float = 1e-4,
        decode: str = "marginal",
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.refreshes = refreshes
        self.block = block
        self.reference = reference
        self.ridge = ridge
        self.l2 = l2
        self.template = template
        self.functions = functions
        self.transition_functions = transition_functions
        self.transition_features = transition_features
        self.standardize = standardize
        self.min_count = min_count
        self.feature_pairs = feature_pairs
        self.transition_pairs = transition_pairs
        self.intercept = intercept
        self.boundaries = boundaries
        self.penalize_intercepts = penalize_intercepts
        self.tol = tol
        self.decode = decode
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def to_chain(self, **options: Any) -> ChainCRF:
        """A `ChainCRF` with these features, labels and weights, ready to answer, or to go on by likelihood.

        ``options`` are parameters of `ChainCRF`. Its ``warm_start`` is on, so ``fit`` begins at these weights.

        >>> X, y = [[["sunny"], ["rainy"], ["sunny"]]], [["walk", "read", "walk"]]
        >>> chain = MEstimatedCRF(refreshes=0, block=1).fit(X, y).to_chain(l2=0.5)
        >>> chain.predict(X)[0].tolist(), chain.fit(X, y).converged_
        (['walk', 'read', 'walk'], True)
        """
        inner = self._fitted
        known = ChainCRF().get_params(deep=False)
        shared = {k: v for k, v in self.get_params(deep=False).items() if k in known and k != "callback"}
        chain = ChainCRF(**{**shared, "warm_start": True, **options})
        chain._check_parameters()
        if not isinstance(inner, ColumnModel):
            raise InputError("only models of columns can be handed on.")
        chain._model = ColumnModel(inner.encoder, inner.layout, inner.weights.copy())
        chain._labels_known, chain._parts, chain.classes_ = self._coder, None, self.classes_
        for name in ("objective_", "n_iter_", "n_evaluations_", "history_", "converged_", "stop_reason_"):
            setattr(chain, name, getattr(self, name))
        return chain

    def _check_parameters(self) -> None:
        parameters = self.get_params(deep=False)
        check_parameters({**ChainCRF().get_params(deep=False), **parameters})
        check_rounds(parameters)

    def _column_problem(
        self, X: Any, y: Any, coder: LabelCoder, sample_weight: Any, before: ColumnModel | FunctionModel | None
    ) -> tuple[Any, ColumnModel | FunctionModel]:
        model, batch, target = self._encoded(X, y, coder, sample_weight, before)
        return (batch, target), model

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, n_sequences: float | None = None
    ) -> Self:
        """There is none: the estimator needs the counts of all data at once."""
        raise InputError("MEstimatedCRF has no stochastic steps: use fit, or go on with to_chain().partial_fit.")

    def _train(
        self, problem: tuple[Batch, Target], model: ColumnModel | FunctionModel, held_out: HeldOut | None = None
    ) -> Result:
        batch, target = problem
        layout = model.layout  # type: ignore[union-attr]

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
                n_jobs=resolve_jobs(self.n_jobs),
                callback=callback,
            )

        return run_training(
            run, Watch(self.callback, held_out, None, self.verbose, 1 + self.refreshes, "MEstimatedCRF")
        )


def check_rounds(parameters: Any) -> None:
    """InputError unless the parameters of the rounds can be used.

    >>> check_rounds(MEstimatedCRF(block=0).get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: block must be a whole number of at least 1, 'auto', or None for whole sequences, got 0.
    """
    block, refreshes, ridge = parameters["block"], parameters["refreshes"], parameters["ridge"]
    auto = isinstance(block, str) and block == AUTO
    if block is not None and not auto and (isinstance(block, bool) or not isinstance(block, Integral) or block < 1):
        raise InputError(
            f"block must be a whole number of at least 1, 'auto', or None for whole sequences, got {block!r}."
        )
    if isinstance(refreshes, bool) or not isinstance(refreshes, Integral) or refreshes < 0:
        raise InputError(f"refreshes must be a whole number of at least 0, got {refreshes!r}.")
    number = isinstance(ridge, Real) and not isinstance(ridge, bool) and isfinite(ridge) and float(ridge) >= 0
    if not number and not (isinstance(ridge, str) and ridge == AUTO):
        raise InputError(f"ridge must be a finite number of at least 0, or 'auto', got {ridge!r}.")
    if not isinstance(parameters["reference"], str) or parameters["reference"] not in REFERENCES:
        raise InputError(
            f"reference must be one of {', '.join(map(repr, REFERENCES))}, got {parameters['reference']!r}."
        )
