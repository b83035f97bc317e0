"""Parameters and reports of models to a model file and back, for estimators that keep a module for their files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.estimators.graph.parameters import engine_from_json, engine_to_json, pairs_from_json, pairs_to_json
from crfield.storage.checked import section


def stored_parameters(model: Any) -> dict[str, Any]:
    """The parameters of a model as JSON values; code among them becomes None, an engine of one's own "auto"."""
    parameters = model.get_params(deep=False)
    return {name: _stored(name, value) for name, value in parameters.items() if name != "callback"}


def restored_model(maker: type, header: dict[str, Any], check: Callable[[Mapping[str, Any]], None]) -> Any:
    """A model that is not fitted yet, with the parameters of a header."""
    parameters = header.get("parameters")
    if not isinstance(parameters, dict):
        raise ModelFileError(f"the model file lacks its parameters. It was not written by {maker.__name__}.save.")
    known = maker().get_params(deep=False)
    try:
        model = maker(**{name: _restored(name, value) for name, value in parameters.items() if name in known})
        check(model.get_params(deep=False))
    except (InputError, TypeError) as error:
        raise ModelFileError(f"the model file's parameters cannot be used: {error} Was the file edited?") from None
    return model


def set_report(model: Any, header: dict[str, Any], names: Mapping[str, type]) -> None:
    """What a header says of training."""
    report = section(header, "report")
    for name, kind in names.items():
        value = report.get(name)
        if kind is float and value is None:
            value = math.nan
        if not isinstance(value, kind):
            raise ModelFileError(f"the model file's report of training lacks {name}.")
        setattr(model, name, value)


def _stored(name: str, value: Any) -> Any:
    return pairs_to_json(value) if name == "forbidden" else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if callable(getattr(value, "infer", None)):
        return engine_to_json(value)
    return value if value is None or isinstance(value, bool | int | float | str) else None


def _restored(name: str, value: Any) -> Any:
    if name in ("engine", "map_engine"):
        return engine_from_json(value)
    return pairs_from_json(value) if name == "forbidden" else value


def own_arrays(arrays: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: arrays[name] for name in arrays if name.startswith(prefix)}
