"""Which features go into an exported file, and whether they can.

``features=`` of `export` takes what `stream` takes: a stream of a catalogue's columns; or fitted `SensorFeatures`, or
a stream of them. The number of columns must be that of the model.
"""

from __future__ import annotations

from typing import Any

from crfield.errors import InputError, ShapeError
from crfield.estimators.export.features.cost import model_operations
from crfield.estimators.export.features.header import FeatureCode, feature_header
from crfield.estimators.export.features.relational_c import relational_code
from crfield.estimators.export.features.relational_python import relational_module
from crfield.estimators.export.step_scores import StepScorer
from crfield.features.relational.catalogue import Catalogue
from crfield.features.relational.stream import FeatureStream


def with_features(model: str, features: Any, scorer: StepScorer, *, suffix: str, name: str, n_labels: int) -> str:
    """The text of a file that computes features for the model in ``model``, the text of its own file."""
    n_columns = int(scorer.n_columns)  # type: ignore[attr-defined]  # what has been exported has columns
    code = _code(features)
    _fit(len(features.columns), n_columns)
    if suffix == ".py":
        return relational_module(model, features)
    operations = model_operations(scorer, n_labels)
    return feature_header(model, code, name=name, n_columns=n_columns, operations=operations)


def _code(features: Any) -> FeatureCode:
    if isinstance(features, FeatureStream):
        return relational_code(features)
    if isinstance(features, Catalogue):
        raise InputError(
            "features is a catalogue, and the file needs to know which of its columns the model was trained on: pass "
            "catalogue.stream(columns, rate=…), as for stream."
        )
    raise InputError(
        f"features must be a stream of a catalogue's columns, catalogue.stream(columns, rate=…), got "
        f"{type(features).__name__}."
    )


def _fit(given: int, wanted: int) -> None:
    if given != wanted:
        raise ShapeError(
            f"the features have {given} columns and the model was trained on {wanted}. Pass those of its training, "
            "in their order."
        )
