"""`LogitBoost` and the stump encoders to a model file and back.

All steps lie in a few flat arrays, whatever their kind. A stump is a tree of one cut, so nodes are stored alike: the
column of each (−1 at a leaf), threshold, the leaf of missing values, its categories and its children. Regressors are
code, and a model of them is refused with a word on what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.logit_rounds import AdditiveLogit
from crfield.boosting.round_table import RoundTable
from crfield.boosting.weak_learners.state import steps_from_state, steps_state
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.boosted.boost_checks import check_boost_parameters
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.graph.file import restored_model
from crfield.estimators.selected.stump_columns import Question, StumpColumns
from crfield.estimators.selected.stump_encoder import StumpEncoder
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section, whole
from crfield.storage.state import State

_DAMAGED = "The file is damaged."


# ------------------------------------------------------------------------------------------------ LogitBoost


def save_logit_boost(model: LogitBoost, path: Any) -> None:
    """Write a fitted model; see `LogitBoost.save`."""
    inner = model._additive
    names = getattr(model, "feature_names_in_", None)
    header = {
        "kind": model.file_kind,
        "parameters": _parameters(model),
        "classes": [label_to_json(_python(label)) for label in model.classes_],
        "numbers": str(model.classes_.dtype) if model.classes_.dtype.kind in "biuf" else None,
        "n_features_in": int(model.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "evidence": [[name, width] for name, width in model._evidence.items()],
    }
    rounds = model.rounds_.state()
    header |= rounds.header
    arrays = {"start": inner.start, **rounds.arrays}
    arrays |= steps_state(inner.steps, len(inner.start), list(model._evidence)).arrays
    write_archive(path, header, arrays)


def load_logit_boost(archive: Archive) -> LogitBoost:
    """The model that an archive holds."""
    header, arrays = archive.header, archive.arrays
    model: LogitBoost = restored_model(LogitBoost, header, check_boost_parameters)
    model.classes_ = _classes(header)
    _check_discrete(model.discrete)
    width, names = whole(header, "n_features_in", least=1), header.get("feature_names_in")
    if names is not None:
        if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"the model file's names of columns do not fit its {width} columns. {_DAMAGED}")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.n_features_in_ = width
    model._evidence = _widths(header)
    start = _floats(arrays, "start", (len(model.classes_),))
    steps = steps_from_state(State(header, arrays), len(start), width, model._evidence)
    model._model, model.n_iter_ = AdditiveLogit(start, steps), len(steps)
    model.rounds_ = RoundTable.from_state(State(header, arrays))
    return model


def _check_discrete(discrete: Any) -> None:
    if not isinstance(discrete, list) or any(type(one) not in (int, str) for one in discrete):
        raise ModelFileError(f"the model file's discrete columns are no list of numbers or names. {_DAMAGED}")


def _parameters(model: Any) -> dict[str, Any]:
    stored = {}
    for name, value in model.get_params(deep=False).items():
        plain = _python(value)
        if name == "learner" and not isinstance(plain, str):
            raise InputError(
                f"a model of {type(value).__name__} cannot be written to a model file, which holds no code. "
                "Use joblib for it, or learner='stump' or 'tree'."
            )
        if name == "discrete":
            plain = [_python(one) for one in plain]
        # a generator of random numbers is not stored: it has been used up
        stored[name] = plain if plain is None or isinstance(plain, bool | int | float | str | list) else None
    return stored


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _classes(header: Mapping[str, Any]) -> np.ndarray:
    given, numbers = header.get("classes"), header.get("numbers")
    if not isinstance(given, list) or not given:
        raise ModelFileError(f"the model file lacks its classes. {_DAMAGED}")
    found = LabelCoder.from_classes([label_from_json(label) for label in given]).classes_
    if numbers is None:
        return found
    try:
        kind = np.dtype(str(numbers))
        if kind.kind not in "biuf":
            raise TypeError
        return found.astype(kind)
    except (TypeError, ValueError):
        raise ModelFileError(f"the model file's classes are not {numbers!r:.20}. {_DAMAGED}") from None


def _widths(header: Mapping[str, Any]) -> dict[str, int]:
    given = header.get("evidence")
    if not isinstance(given, list):
        raise ModelFileError(f"the model file does not say which evidence it reads. {_DAMAGED}")
    found = {}
    for row in given:
        if (
            not isinstance(row, list)
            or len(row) != 2
            or not isinstance(row[0], str)
            or type(row[1]) is not int
            or not 0 <= row[1] < 2**31
        ):
            raise ModelFileError(f"the model file's evidence cannot be read. {_DAMAGED}")
        found[row[0]] = row[1]
    return found


# ---------------------------------------------------------------------------------------------------- encoders


def save_encoder(model: Any, path: Any) -> None:
    """Write a fitted `StumpEncoder` or `StumpSelector`."""
    fitted = model._fitted
    header = {
        "kind": model.file_kind,
        "parameters": _parameters(model),
        "kinds": [[kind, model._widths[kind], len(fitted[kind])] for kind in fitted],
        "names": model._names,
    }
    every = [one for questions in fitted.values() for one in questions]
    arrays = {
        "column": np.array([one.column for one in every], np.int64),
        "threshold": np.array([one.threshold for one in every], np.float64),
        "worth": np.concatenate([np.zeros(0), *model._worth.values()]),
    }
    write_archive(path, header, arrays)


def load_stump_encoder(archive: Archive) -> StumpEncoder:
    """The encoder that an archive holds."""
    return _load_encoder(StumpEncoder, archive)


def load_stump_selector(archive: Archive) -> StumpSelector:
    """The selector that an archive holds."""
    return _load_encoder(StumpSelector, archive)


def _load_encoder(maker: type[Any], archive: Archive) -> Any:
    header, arrays = archive.header, archive.arrays
    section(header, "parameters")
    model: StumpColumns = restored_model(maker, header, lambda _: None)
    rows, names = header.get("kinds"), header.get("names")
    if not isinstance(rows, list) or not rows or not all(_is_kind(row) for row in rows):
        raise ModelFileError(f"the model file does not say what it encodes. {_DAMAGED}")
    if names is not None and (not isinstance(names, list) or not all(isinstance(name, str) for name in names)):
        raise ModelFileError(f"the model file's names of columns cannot be read. {_DAMAGED}")
    total = sum(row[2] for row in rows)
    column, worth = _whole(arrays, "column", total), _floats(arrays, "worth", (total,))
    threshold = _floats(arrays, "threshold", (total,), finite=False)
    if np.isnan(threshold).any():
        raise ModelFileError(f"a threshold of the model file is no number. {_DAMAGED}")
    model._questions, model._worth, model._widths, model._names = {}, {}, {}, names
    first = 0
    for kind, width, count in rows:
        part = slice(first, first + count)
        if count and not 0 <= column[part].min() <= column[part].max() < width:
            raise ModelFileError(f"a question of the model file reads a column that is not there. {_DAMAGED}")
        if names is not None and len(names) != width:
            raise ModelFileError(f"the model file's names do not fit its {width} columns. {_DAMAGED}")
        pairs = zip(column[part], threshold[part], strict=True)
        model._questions[kind] = [Question(int(f), float(t)) for f, t in pairs]
        model._worth[kind], model._widths[kind] = worth[part], width
        first += count
    return model


def _is_kind(row: Any) -> bool:
    return isinstance(row, list) and [type(part) for part in row] == [str, int, int] and row[1] >= 0 and row[2] >= 0


# ------------------------------------------------------------------------------------------------------ arrays


def _floats(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], *, finite: bool = True
) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype != np.float64 or array.shape != shape:
        raise ModelFileError(f"the model file must hold numbers {shape} as {name!r}. {_DAMAGED}")
    if finite and not np.isfinite(array).all():
        raise ModelFileError(f"{name!r} in the model file is not finite. {_DAMAGED}")
    return array


def _whole(arrays: Mapping[str, np.ndarray], name: str, length: int | None) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype.kind != "i" or array.ndim != 1 or (length is not None and len(array) != length):
        raise ModelFileError(f"the model file must hold {length} whole numbers as {name!r}. {_DAMAGED}")
    return array.astype(np.int64)


def _counts(arrays: Mapping[str, np.ndarray], name: str, length: int) -> np.ndarray:
    array = _whole(arrays, name, length)
    if len(array) and (array.min() < 0 or array.max() > 1 << 40):
        raise ModelFileError(f"{name!r} in the model file holds no counts. {_DAMAGED}")
    return array
