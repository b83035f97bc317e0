"""What a model file holds of any classifier of rows: classes, columns, parameters, the report of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import ModelFileError
from crfield.estimators.graph.file import set_report, stored_parameters

REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
    "solver_": str,
}
_DAMAGED = "The file is damaged."


def classifier_state(model: Any) -> dict[str, Any]:
    """What the header says of any classifier of rows."""
    names = getattr(model, "feature_names_in_", None)
    return {
        "kind": model.file_kind,
        "parameters": stored_parameters(model),
        "classes": [label_to_json(label) for label in model.classes_.tolist()],
        "numbers": str(model.classes_.dtype) if model.classes_.dtype.kind in "biuf" else None,
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "report": {name: kind(getattr(model, name)) for name, kind in REPORT.items()},
    }


def restore_classifier(model: Any, header: dict[str, Any], report: Mapping[str, type]) -> None:
    """Classes, names of columns and report of a header."""
    set_report(model, header, report)
    model.history_ = []
    given, numbers = header.get("classes"), header.get("numbers")
    if not isinstance(given, list) or not given:
        raise ModelFileError(f"the model file lacks its classes. {_DAMAGED}")
    model.classes_ = LabelCoder.from_classes([label_from_json(label) for label in given]).classes_
    if numbers is not None:
        try:
            kind = np.dtype(str(numbers))
            model.classes_ = model.classes_.astype(kind if kind.kind in "biuf" else "V")
        except (TypeError, ValueError):
            raise ModelFileError(f"the model file's classes are not {numbers!r:.20}. {_DAMAGED}") from None
    width, names = header.get("n_features_in"), header.get("feature_names_in")
    if width is not None:
        if type(width) is not int or width < 1:
            raise ModelFileError(f"the model file does not say how many columns it reads. {_DAMAGED}")
        model.n_features_in_ = width
    if names is not None:
        if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"the model file's names of columns do not fit its {width} columns. {_DAMAGED}")
        model.feature_names_in_ = np.array(names, dtype=object)


def finite_floats(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """An array of finite numbers; ModelFileError where it is none."""
    found = arrays.get(name)
    if found is None or found.dtype != np.float64 or not np.isfinite(found).all():
        raise ModelFileError(f"the model file's array {name} does not hold finite numbers. {_DAMAGED}")
    if shape is not None and found.shape != shape:
        raise ModelFileError(f"the model file's array {name} must be {shape}, got {found.shape}. {_DAMAGED}")
    return np.ascontiguousarray(found)
