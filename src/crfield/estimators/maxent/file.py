"""`MaxentClassifier` to a model file and back: classes, columns, weights, parameters, the report of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.maxent.classifier import MaxentClassifier, check_maxent_parameters
from crfield.estimators.maxent.rows import RowReader
from crfield.features.detect import encoder_from_state
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
    "solver_": str,
}
_DAMAGED = "The file is damaged."


def save_maxent(model: MaxentClassifier, path: Any) -> None:
    """Write a fitted model; see `MaxentClassifier.save`."""
    reader = model._fitted
    if reader.kind == "functions":
        raise InputError(
            "a model of functions f(o, y) cannot be written to a model file, which holds no code. Use joblib, or "
            "keep the functions in a module and store coef_."
        )
    header, arrays = classifier_state(model), {"weights": np.ascontiguousarray(model._weights)}
    header |= {"rows": reader.kind, "width": reader.width}
    if reader.encoder is not None:
        header["encoder"], stored = reader.encoder.state()
        arrays |= {f"encoder/{name}": value for name, value in stored.items()}
    write_archive(path, header, arrays)


def load_maxent(archive: Archive) -> MaxentClassifier:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: MaxentClassifier = restored_model(MaxentClassifier, header, check_maxent_parameters)
    restore_classifier(model, header, REPORT)
    kind, width = header.get("rows"), header.get("width")
    if kind not in ("matrix", "records") or type(width) is not int or not 0 <= width < 2**31:
        raise ModelFileError(f"the model file does not say what it reads. {_DAMAGED}")
    reader = RowReader(str(kind), width=width)
    if kind == "records":
        reader.encoder = encoder_from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
        made = reader.encoder.encode([]).node
        if made.width + made.n_dense != width:
            raise ModelFileError(f"the model file's columns do not fit its weights. {_DAMAGED}")
    elif width != getattr(model, "n_features_in_", None):
        raise ModelFileError(f"the model file's columns do not fit its weights. {_DAMAGED}")
    size = len(model.classes_)
    weights = finite_floats(arrays, "weights", None)
    if weights.shape not in ((width * size,), ((width + 1) * size,)):
        raise ModelFileError(f"the model file's weights do not fit {width} columns and {size} classes. {_DAMAGED}")
    model._reader, model._weights = reader, weights
    model.feature_names_ = reader.names(getattr(model, "feature_names_in_", None))
    return model


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
