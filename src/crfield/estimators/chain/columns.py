"""`ColumnChain`: what a chain of weighted columns can say, whoever found the weights.

`ChainCRF`, `MEMM` and `MEstimatedCRF` hold a `ColumnModel` and answer from it. They differ in what is minimised and
in how scores become probabilities.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.parameters import learnt
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Sequences
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.base.fitted import read_only
from crfield.estimators.base.groups import Paired
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.chain import ChainExplanations
from crfield.estimators.explain.weights import strongest_features
from crfield.features.transformed import SENSORS, TransformedEncoder
from crfield.inference.decode import check_decoder
from crfield.kernels.tagging import SequenceTagger
from crfield.report.weights import FeatureList, TransitionTable
from crfield.storage.state import State
from crfield.training.chain.plan import Plan

if TYPE_CHECKING:
    from crfield.estimators.export.step_scores import StepScorer


class ColumnChain(ChainExplanations, Paired[Any], ChainAnswers[Any], group=True):
    """A chain whose scores are weighted columns."""

    lazy = True

    objective_: float = learnt()
    n_iter_: int = learnt()
    n_evaluations_: int = learnt()
    converged_: bool = learnt()
    stop_reason_: str = learnt()
    plan_: Plan = learnt(
        stored="plan", to_json=Plan.to_json, from_json=Plan.from_json, missing=Plan("unknown", "unknown")
    )

    # --------------------------------------------------------------- prediction

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X, for engines and comparisons of your own."""
        return self._fitted.potentials(X, n_jobs=self._jobs)

    def _codes(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        if known is None and check_decoder(self.decode) != "marginal":  # from packed weights, no scores written out
            return self._fitted.best_paths(X, n_jobs=self._jobs)
        return super()._codes(X, known)

    def _only_path(self, X: Sequences) -> list[int] | None:
        model = self._fitted
        if not isinstance(model, ColumnModel) or check_decoder(self.decode) == "marginal":
            return None
        return model.only_path(X)

    def _sequence_tagger(self) -> SequenceTagger | None:
        model = self._fitted
        if check_decoder(self.decode) == "marginal" or not isinstance(model, ColumnModel):
            return None
        return model.sequence_tagger()

    def _forbidden(self) -> np.ndarray | None:
        return self._fitted.forbidden

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        from crfield.estimators.export.columns import column_steps

        return column_steps(self.column_model("stream"), history=history)

    def _exported_parts(self, features: Any) -> tuple[StepScorer, Any]:
        encoder = getattr(self._fitted, "encoder", None)
        if not isinstance(encoder, TransformedEncoder) or getattr(encoder.transformer, "kind", "") != SENSORS:
            return super()._exported_parts(features)
        inside = copy.copy(self)  # the model of the columns that the features of sensors give
        inside._model = replace(self._fitted, encoder=encoder.inner)
        return inside._exported_parts(encoder.transformer if features is None else features)

    # -------------------------------------------------------------- explanation

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; `top_features` and ``transitions_`` give them names."""
        return read_only(self._fitted.weights)

    @property
    def transitions_(self) -> TransitionTable:
        """Transition weights; NaN where a pair of labels has none."""
        model = self.column_model("transitions_")
        return TransitionTable(model.labels.labels, model.layout.transitions(model.weights))

    def top_features(self, n: int = 20, *, label: Hashable | None = None) -> FeatureList:
        """The features of largest absolute weight, with their names; of one label if given.

        Only the names that are shown are made.
        """
        model = self.column_model("top_features")
        return strongest_features(model, model.labels, n, label)

    def explain_plan(self) -> str:
        """What was trained and by which solver, and why, in a sentence or two.

        >>> from crfield import ChainCRF
        >>> print(ChainCRF().fit([[["sunny"], ["rainy"]]], [["walk", "read"]]).explain_plan())
        Objective: likelihood. Solver: L-BFGS.
        """
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        return str(self.plan_)

    def column_model(self, name: str) -> ColumnModel:
        """The fitted columns and weights; InputError, for what is called ``name``, where the model has none."""
        model = self._fitted
        if not isinstance(model, ColumnModel):
            raise InputError(f"{name} is for models with columns; this one has functions of two labels: see coef_.")
        return model

    # ------------------------------------------------------------------ storage

    def _show_header(self, state: State) -> None:
        self.classes_ = LabelCoder.from_json(state.header.get("labels")).classes_
