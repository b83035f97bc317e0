"""Which features go into an exported file, and whether they can.

``features=`` of `export` takes what `stream` takes: a stream of a catalogue's columns; or fitted `SensorFeatures`, or
a stream of them. The number of columns must be that of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.estimators.export.features.header import feature_header
from crfield.estimators.export.features.relational_c import relational_code
from crfield.estimators.export.features.relational_python import relational_module
from crfield.estimators.export.features.sensors import sensor_code
from crfield.estimators.export.step_scores import StepScorer
from crfield.features.relational.catalogue import Catalogue
from crfield.features.relational.stream import FeatureStream
from crfield.features.sensors.stream import SensorStream
from crfield.features.sensors.transformer import SensorFeatures


def with_features(model: str, features: Any, scorer: StepScorer, *, suffix: str, name: str) -> str:
    """The text of a file that computes features for the model in ``model``, the text of its own file."""
    n_columns = int(scorer.n_columns)  # type: ignore[attr-defined]  # what has been exported has columns
    if isinstance(features, SensorStream):
        features = features.features
    if isinstance(features, SensorFeatures):
        if suffix == ".py":
            raise InputError(
                "features of sensors are written to C headers (.h) alone; a Python module takes columns, which "
                "SensorFeatures.stream gives: features=False."
            )
        features._fitted()
        _fit(features.n_features_out_, n_columns)
        read = getattr(scorer, "columns_read", np.ones(n_columns, bool))  # all of them where a scorer does not say
        code = sensor_code(features, read)
    else:
        stream = _checked(features)
        _fit(len(stream.columns), n_columns)
        if suffix == ".py":
            return relational_module(model, stream)
        code = relational_code(stream)
    return feature_header(model, code, name=name, n_columns=n_columns)


def _checked(features: Any) -> FeatureStream:
    if isinstance(features, FeatureStream):
        return features
    if isinstance(features, Catalogue):
        raise InputError(
            "features is a catalogue, and the file needs to know which of its columns the model was trained on: pass "
            "catalogue.stream(columns, rate=…), as for stream."
        )
    raise InputError(
        "features must be a stream of a catalogue's columns, catalogue.stream(columns, rate=…), or fitted "
        f"SensorFeatures, got {type(features).__name__}."
    )


def _fit(given: int, wanted: int) -> None:
    if given != wanted:
        raise ShapeError(
            f"the features have {given} columns and the model was trained on {wanted}. Pass those of its training, "
            "in their order."
        )
