"""From the user's X to candidates, and from chosen candidates back to a model that reads X."""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.data.large import ROOM, refuse_large
from crfield.errors import InputError
from crfield.estimators.base.sequences import check_weights
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.selected.model import (
    ChosenColumns,
    column_model,
    encoded_candidates,
    fit_encoder,
    recordings_of,
    with_labels,
)
from crfield.features.detect import encoder_for
from crfield.features.lazy_columns import LazyColumns
from crfield.features.matrices import MatrixEncoder
from crfield.features.relational.catalogue import Catalogue
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair
from crfield.selection.problem import SelectionModel, SelectionProblem


class Candidates:
    """Candidates of X, and the way from chosen ones to a model."""

    def __init__(self, owner: Any, X: Any, coder: LabelCoder) -> None:
        self.coder, self.rate = coder, float(owner.rate)
        self.catalogue: Catalogue | None = None
        self.candidates: LazyColumns
        if owner.features is not None:
            self.catalogue = with_labels(owner.features, coder.labels)
            recordings = recordings_of(X, self.rate)
            self.rate = recordings.rate
            self.candidates = self.catalogue.on(recordings)
            return
        self.encoder = encoder_for(X, transition_features=owner.transition_features)
        if owner.feature_names is not None:
            if not isinstance(self.encoder, MatrixEncoder):
                raise InputError("feature_names are for columns of arrays; these data bring their own names.")
            self.encoder.feature_names = [str(name) for name in owner.feature_names]
        self.batch = fit_encoder(self.encoder, X)
        refuse_large(self.batch, self.encoder, most=ROOM)  # columns are standardised before they are squared
        self.candidates = encoded_candidates(self.encoder, self.batch, coder.labels)

    def on(self, X: Any) -> LazyColumns:
        """The same candidates on other data."""
        if self.catalogue is not None:
            return self.catalogue.on(recordings_of(X, self.rate))
        return encoded_candidates(self.encoder, self.encoder.encode(X), self.coder.labels)

    def target(self, chains: Chains, y: Any, sample_weight: Any) -> Target:
        """Labels of all steps."""
        labels, allowed = self.coder.encode(y, chains.lengths)
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        return Target(chains, self.coder.n_labels, labels, allowed, weight)

    def finished(
        self, problem: SelectionProblem, chosen: SelectionModel
    ) -> tuple[ColumnModel | ChosenColumns, FeatureList, np.ndarray]:
        """A model to keep, its features with weights in the units of the data, and their strengths."""
        base, weights = problem.raw(chosen)
        places, labels = self.candidates.places(chosen.active), self.coder.labels
        order = np.argsort(-np.abs(chosen.weights), kind="stable")
        items = [
            FeatureWeight(
                self.candidates.column_name(int(places.column[k])),
                labels[places.label[k]]
                if places.previous[k] < 0
                else LabelPair(labels[places.previous[k]], labels[places.label[k]]),
                float(weights[k]),
            )
            for k in order
        ]
        model: ColumnModel | ChosenColumns
        if self.catalogue is not None:
            model = ChosenColumns.of(self.catalogue, problem.base, base, places, weights, self.rate)
        else:
            model = column_model(self.encoder, self.batch, problem.base, base, places, weights, self.coder.n_labels)
        return model, FeatureList(items), chosen.weights[order]
