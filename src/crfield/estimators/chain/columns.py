"""Columns, layout and first weights of a chain model: learnt from the data, or grown from a model that was trained.

A model that goes on learning keeps what it knows. Features that are new in the data get columns, labels that are new
get codes behind the others, new pairs of both get weights of zero; old weights go along to their new places
(`features.growth`, `scoring.layout_growth`). Nothing is taken away, and where nothing is new nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.large import refuse_large
from crfield.estimators.chain.model import ColumnModel
from crfield.features.detect import encoder_for
from crfield.features.growth import grow
from crfield.features.templates.encoder import TemplateEncoder
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import carried, joined
from crfield.storage.exchange import template_text

MakeTarget = Callable[[Chains], Target]


def fresh_columns(
    parameters: Mapping[str, Any], X: Any, make_target: MakeTarget
) -> tuple[ColumnModel, Batch, Target]:
    """The columns and layout that X and its target ask for, with weights of zero."""
    encoder = encoder_for(
        X,
        template=template_text(parameters["template"]),
        functions=parameters["functions"],
        transition_features=parameters["transition_features"],
        transition_functions=parameters["transition_functions"],
        standardize=parameters["standardize"],
        features=parameters["features"],
    )
    batch = encoder.fit(X, min_count=parameters["min_count"])
    refuse_large(batch, encoder)
    target = make_target(batch.topology)
    layout = observe_layout(parameters, encoder, batch, target, parameters["intercept"], parameters["boundaries"])
    return ColumnModel(encoder, layout, np.zeros(layout.n_weights)), batch, target


def grown_columns(
    parameters: Mapping[str, Any], X: Any, make_target: MakeTarget, before: ColumnModel
) -> tuple[ColumnModel, Batch, Target, dict[str, np.ndarray]]:
    """A trained model with columns and pairs for all that is new in X, and the places of the old columns."""
    before.encode([])  # refuses an encoder and weights of a file that do not belong together
    grown = grow(before.encoder, X, min_count=parameters["min_count"])
    refuse_large(grown.batch, grown.encoder)
    target = make_target(grown.batch.topology)
    old = before.layout
    places = {name: getattr(grown, name) for name in ("node", "dense", "edge", "edge_dense")}
    seen = observe_layout(parameters, grown.encoder, grown.batch, target, old.bias, old.boundaries)
    layout = joined(old, seen, places)
    if _same(old, layout):
        return ColumnModel(grown.encoder, old, before.weights), grown.batch, target, places
    weights = carried(before.weights, old, layout, places)
    return ColumnModel(grown.encoder, layout, weights), grown.batch, target, places


def observe_layout(
    parameters: Mapping[str, Any], encoder: Any, batch: Batch, target: Target, bias: bool, boundaries: bool
) -> Layout:
    """The layout that a batch and its target ask for; a template without a ``B`` line has no transitions."""
    transitions = parameters["transition_pairs"]
    if isinstance(encoder, TemplateEncoder) and not encoder.template.transitions:
        transitions = "none"
    return Layout.observe(
        batch,
        target,
        feature_pairs=parameters["feature_pairs"],
        transition_pairs=transitions,
        bias=bias,
        boundaries=boundaries,
    )


def _same(old: Layout, new: Layout) -> bool:
    """Whether the joined layout has nothing that the old one had not (then the two are equal)."""
    sizes = ("n_labels", "n_columns", "n_dense", "n_edge_columns", "n_edge_dense", "n_weights")
    return all(getattr(old, name) == getattr(new, name) for name in sizes)
