"""`LogitBoost` and the stump encoders to a model file and back.

All steps lie in a few flat arrays, whatever their kind. A stump is a tree of one cut, so nodes are stored alike: the
column of each (−1 at a leaf), threshold, the leaf of missing values, its categories and its children. Regressors are
code, and a model of them is refused with a word on what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.file import restored_model
from crfield.estimators.selected.stump_columns import Question, StumpColumns
from crfield.estimators.selected.stump_encoder import StumpEncoder
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

_DAMAGED = "The file is damaged."


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
