"""`IncompleteBoost` to a model file and back.

The file holds the weights, the classes, the values of the hidden part, the arrays of a learnt prior, the parameters
and the report of training. Arrays given as prior, reference or class_mass are parameters and are stored; functions
are code and are not: the loaded model has the default in their place until ``set_params`` gives them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.incomplete.hidden_chain import column_count
from crfield.boosting.incomplete.structures import Bag, Draws, Form, Prior, Values, Windows, names_of
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.boosted.incomplete_boost import IncompleteBoost
from crfield.estimators.boosted.incomplete_checks import check_incomplete_parameters
from crfield.estimators.boosted.incomplete_model import IncompleteModel
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

_REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
}
_DEFAULTS = {"prior": "constant", "reference": None}
_MOST_COLUMNS = 2**40


def save_incomplete(model: IncompleteBoost, path: Any) -> None:
    """Write a fitted model; see `IncompleteBoost.save`."""
    inner = model._fitted
    parameters = stored_parameters(model)
    for name, default in _DEFAULTS.items():
        if callable(getattr(model, name)):
            parameters[name] = default
    values = parameters.pop("hidden_values")
    header = {
        "kind": model.file_kind,
        "parameters": parameters,
        "hidden_values": values is not None,
        "labels": [label_to_json(label) for label in inner.classes.tolist()],
        "label_type": inner.classes.dtype.str if inner.classes.dtype.kind != "O" else "O",
        "n_features": model.n_features_in_,
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])],
        "form": _form_state(inner.form),
        "model": {
            "intercept": inner.intercept,
            "scaled": inner.scaled,
            "left": inner.left,
            "n_samples": inner.draws.n_samples,
            "seed": inner.draws.seed,
            "n_prior": None if inner.learnt is None else len(inner.learnt),
        },
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
    }
    arrays = {"weights": inner.weights, "shares": inner.shares}
    arrays |= {f"prior/{k}": np.ascontiguousarray(array) for k, array in enumerate(inner.learnt or [])}
    write_archive(path, header, arrays)


def load_incomplete(archive: Archive) -> IncompleteBoost:
    """The model that an archive holds."""
    header, arrays = archive.header, archive.arrays
    model = restored_model(IncompleteBoost, header, check_incomplete_parameters)
    set_report(model, header, _REPORT)
    classes = _classes(header)
    width = _whole(header, "n_features", least=1)
    form = _form(header.get("form"), width)
    facts = section(header, "model")
    if header.get("hidden_values") is True:
        values = names_of(form)
        model.hidden_values = values if model.structure == "attributes" else values[0] if values else None
    left = _whole(facts, "left")
    columns = (
        width + bool(facts.get("intercept")) + left * (len(classes) + 1) + (0 if form is None else form.n_columns)
    )
    if columns > _MOST_COLUMNS:
        raise ModelFileError("the model file claims more columns than can be: the file is damaged.")
    samples = facts.get("n_samples")
    if samples is not None:
        samples = _whole(facts, "n_samples", least=1)
    weights = _floats(arrays, "weights", (columns * len(classes),))
    weights.flags.writeable = False
    model._model = IncompleteModel(
        classes,
        form,
        weights,
        _prior(facts.get("n_prior"), own_arrays(arrays, "prior/"), form, width + bool(facts.get("intercept"))),
        _floats(arrays, "shares", (len(classes),)),
        intercept=bool(facts.get("intercept")),
        scaled=bool(facts.get("scaled")),
        left=left,
        draws=Draws(samples, _whole(facts, "seed")),
    )
    model.classes_, model.hidden_classes_, model.n_features_in_ = classes, names_of(form), width
    names = header.get("feature_names")
    if isinstance(names, list) and len(names) == width:
        model.feature_names_in_ = np.array(names, dtype=object)
    model.history_ = []
    return model


def _form_state(form: Form | None) -> dict[str, Any] | None:
    if form is None:
        return None
    state: dict[str, Any] = {"kind": form.kind}
    if isinstance(form, Values):
        state |= {
            "values": [coder.to_json() for coder in form.coders],
            "several": form.several,
            "interactions": list(form.interactions),
        }
    elif isinstance(form, Windows):
        state |= {"tags": form.coder.to_json(), "n_places": form.n_places, "pairs": form.pairs}
    return state


def _form(state: Any, width: int) -> Form | None:
    if state is None:
        return None
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind == "bag":
        return Bag(width)
    if kind == "chain":
        coder, places = LabelCoder.from_json(state.get("tags")), _whole(state, "n_places", least=1)
        if column_count(places, coder.n_labels, True) > _MOST_COLUMNS:
            raise ModelFileError("the model file claims a window of too many places: the file is damaged.")
        return Windows(coder, places, bool(state.get("pairs")))
    values, chosen = (state.get("values"), state.get("interactions")) if kind == "value" else (None, None)
    if not isinstance(values, list) or not values or not isinstance(chosen, list):
        raise ModelFileError("the model file does not say what is hidden: the file is damaged.")
    if not all(type(column) is int and 0 <= column < width for column in chosen):
        raise ModelFileError("the interactions of the model file are no columns of X: the file is damaged.")
    coders = tuple(LabelCoder.from_json(value) for value in values)
    return Values(coders, bool(state.get("several")), tuple(chosen))


def _prior(count: Any, arrays: Mapping[str, np.ndarray], form: Form | None, width: int) -> Prior | None:
    """The arrays of a learnt prior, of the shapes that the form asks for."""
    if count is None:
        return None
    if isinstance(form, Values):
        shapes: list[tuple[int, ...]] = [(width, coder.n_labels) for coder in form.coders]
    elif isinstance(form, Windows):
        tags = form.coder.n_labels
        shapes = [*([(width, tags)] * form.n_places), (tags, tags)]
    else:
        shapes = [(form.n_words,)] if isinstance(form, Bag) else []
    if count != len(shapes):
        raise ModelFileError("the learnt prior of the model file does not fit its hidden part: the file is damaged.")
    return [_floats(arrays, str(k), shape) for k, shape in enumerate(shapes)]


def _classes(header: dict[str, Any]) -> np.ndarray:
    spelt, kind = header.get("labels"), header.get("label_type")
    if not isinstance(spelt, list) or not spelt or not isinstance(kind, str):
        raise ModelFileError("the model file lacks its labels: the file is damaged.")
    labels = [label_from_json(item) for item in spelt]
    try:
        if kind == "O":
            out = np.empty(len(labels), dtype=object)
            out[:] = labels
            return out
        dtype = np.dtype(kind)
        if dtype.kind not in "biufU" or dtype.itemsize > 4096:
            raise InputError(f"labels cannot be of type {kind!r}.")
        return np.array(labels, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"the labels of the model file cannot be used: {error}") from None


def _whole(header: dict[str, Any], name: str, *, least: int = 0) -> int:
    value = header.get(name)
    if type(value) is not int or not least <= value < 2**40:
        raise ModelFileError(f"the model file must say {name} as a whole number: the file is damaged.")
    return value


def _floats(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    found = arrays.get(name)
    if (
        not isinstance(found, np.ndarray)
        or found.dtype != np.float64
        or found.shape != shape
        or not np.isfinite(found).all()
    ):
        raise ModelFileError(f"the array {name!r} of the model file does not fit: the file is damaged.")
    return np.array(found)
