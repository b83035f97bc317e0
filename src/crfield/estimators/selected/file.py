"""`SelectedCRF` to a model file and back.

The file holds what prediction needs, the parameters, the report, and the whole path with the weights of its rounds. A
catalogue is stored as its text and its words; functions that a user added to the language are code and cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.model import ColumnModel, build_columns
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.estimators.selected.checks import check_selected_parameters
from crfield.estimators.selected.crf import SelectedCRF
from crfield.estimators.selected.model import ChosenColumns
from crfield.report.weights import FeatureList, FeatureWeight, LabelPair
from crfield.selection.path import SelectionPath, SelectionRound
from crfield.selection.problem import SelectionModel
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

KIND = "selected_crf"
_REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_features_": int,
    "converged_": bool,
    "stop_reason_": str,
}
_ROUND = ("held_error", "held_nll", "seconds", "penalty", "largest")
_MODEL = ("loss", "value", "violation")


def save_selected(model: SelectedCRF, path: Any) -> None:
    """Write a fitted model; see `SelectedCRF.save`."""
    inner = model._fitted
    parameters = stored_parameters(model)
    for name in ("features", "validation"):
        value = getattr(model, name)
        parameters[name] = value if value is None or isinstance(value, int | float | str) else None
    parameters["options"] = _options(model.options)
    header: dict[str, Any] = {
        "kind": KIND,
        "parameters": parameters,
        "labels": model._coder.to_json(),
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
        "refit_l2": model.refit_l2_,
        "n_candidates": model.n_candidates_,
        "features": [_feature(item) for item in model.features_],
        "path": path_to_json(model.path_),
    }
    arrays: dict[str, np.ndarray] = {"strengths": np.ascontiguousarray(model.strengths_)}
    if isinstance(inner, ColumnModel):
        encoder_header, encoder_arrays = inner.encoder.state()
        layout_header, layout_arrays = inner.layout.state()
        header |= {"encoder": encoder_header, "layout": layout_header}
        arrays["weights"] = inner.weights
        arrays |= {f"encoder/{name}": value for name, value in encoder_arrays.items()}
        arrays |= {f"layout/{name}": value for name, value in layout_arrays.items()}
    else:
        if inner.catalogue.state()["functions"]:
            raise InputError(
                "features that call functions of your own cannot be saved: functions are code. Keep the model with "
                "joblib, or write the features in the language alone."
            )
        header["chosen"], chosen = inner.state()
        arrays |= {f"chosen/{name}": value for name, value in chosen.items()}
    arrays |= {f"path/{name}": value for name, value in path_arrays(model.path_).items()}
    write_archive(path, header, arrays)


def load_selected(archive: Archive) -> SelectedCRF:
    """The model that an archive holds; ModelFileError for whatever does not fit."""
    header, arrays = archive.header, archive.arrays
    model: SelectedCRF = restored_model(SelectedCRF, header, check_selected_parameters)
    set_report(model, header, _REPORT)
    coder = LabelCoder.from_json(header.get("labels"))
    ridge = header.get("refit_l2")
    if ridge is not None and not isinstance(ridge, float):
        raise ModelFileError("the model file's ridge is no number: the file is damaged.")
    model.refit_l2_ = ridge
    count = header.get("n_candidates", 0)  # files of before it was kept
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ModelFileError("the model file's number of candidates is no number: the file is damaged.")
    model.n_candidates_ = count
    try:
        model.features_ = FeatureList([_feature_from(item) for item in header["features"]])
        model.path_ = path_from_json(header["path"], own_arrays(arrays, "path/"))
        strengths = np.array(arrays["strengths"], np.float64)
        if strengths.shape != (len(model.features_),):
            raise ValueError("strengths")
    except (KeyError, TypeError, ValueError, IndexError, InputError) as error:
        raise ModelFileError(f"the model file's path of selection is damaged: {error}.") from None
    model.strengths_ = strengths
    if "chosen" in header:
        inner = ChosenColumns.from_state(section(header, "chosen"), own_arrays(arrays, "chosen/"))
        if inner.catalogue.n_labels != coder.n_labels:
            raise ModelFileError("the labels of the model file do not fit its features: the file is damaged.")
        model._model = inner
        model.features, model.rate = inner.catalogue, inner.rate
    else:
        section(header, "layout")
        model._model = build_columns(header, arrays, None, (), coder.n_labels)
    model._labels_known, model.classes_ = coder, coder.classes_
    return model


def _options(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Keywords of the method that JSON can hold."""
    if options is None:
        return None
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
    return {str(k): v for k, v in plain.items() if v is None or isinstance(v, bool | int | float | str)}


def _feature(item: FeatureWeight) -> list[Any]:
    pair = isinstance(item.label, LabelPair)
    labels = list(item.label) if pair else [item.label]  # type: ignore[call-overload]
    return [item.name, [label_to_json(label) for label in labels], item.weight]


def _feature_from(item: Any) -> FeatureWeight:
    name, labels, weight = item
    found = [label_from_json(label) for label in labels]
    if not isinstance(name, str) or len(found) not in (1, 2):
        raise ValueError("a feature has a name and one or two labels")
    return FeatureWeight(name, found[0] if len(found) == 1 else LabelPair(*found), float(weight))


def path_to_json(path: SelectionPath) -> dict[str, Any]:
    """All but the arrays of a path."""
    return {
        "method": path.method,
        "criterion": path.criterion,
        "stop_reason": path.stop_reason,
        "chosen": path.chosen,
        "names": {str(candidate): name for candidate, name in path.names.items()},
        "rounds": [
            {
                "added": list(one.added),
                "converged": bool(one.model.converged),
                "n_evaluations": int(one.model.n_evaluations),
                **{name: _finite(getattr(one, name)) for name in _ROUND},
                **{name: _finite(getattr(one.model, name)) for name in _MODEL},
            }
            for one in path
        ],
    }


def path_arrays(path: SelectionPath) -> dict[str, np.ndarray]:
    """The arrays of a path: active candidates and weights of all rounds, end to end."""
    sizes = [one.n_features for one in path]
    return {
        "starts": np.cumsum([0, *sizes]).astype(np.int64),
        "active": np.concatenate([np.zeros(0, np.int64), *(one.model.active for one in path)]).astype(np.int64),
        "weights": np.concatenate([np.zeros(0), *(one.model.weights for one in path)]),
        "base": np.stack([one.model.base for one in path]),
    }


def path_from_json(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SelectionPath:
    """The path whose parts these are; ValueError and its like where they do not fit."""
    starts, active, weights, base = (arrays[name] for name in ("starts", "active", "weights", "base"))
    rows = header["rounds"]
    if (
        starts.shape != (len(rows) + 1,)
        or base.ndim != 2
        or len(base) != len(rows)
        or active.shape != weights.shape
        or starts[0] != 0
        or starts[-1] != len(active)
        or (np.diff(starts) < 0).any()
    ):
        raise ValueError("rounds and weights do not fit")
    rounds = []
    for k, row in enumerate(rows):
        part = slice(int(starts[k]), int(starts[k + 1]))
        loss, value, violation = (_number(row[name]) for name in _MODEL)
        found = SelectionModel(
            np.array(active[part], np.int64),
            np.array(weights[part], np.float64),
            np.array(base[k], np.float64),
            loss,
            value,
            bool(row["converged"]),
            violation,
            int(row["n_evaluations"]),
        )
        numbers = [_number(row[name]) for name in _ROUND]
        rounds.append(SelectionRound(k, tuple(str(name) for name in row["added"]), found, *numbers))
    names = {int(candidate): str(name) for candidate, name in header["names"].items()}
    chosen = header.get("chosen")  # not in files of before it was kept
    return SelectionPath(
        str(header["method"]),
        tuple(rounds),
        str(header["criterion"]),
        str(header["stop_reason"]),
        names,
        None if chosen is None else int(chosen),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
