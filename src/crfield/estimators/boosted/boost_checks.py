"""Which parameters of `LogitBoost` can be used; the same for those that a model file holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from crfield.errors import InputError


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def _real(name: str, value: Any, *, above: float | None = None, least: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"{name} must be a number, got {value!r}.")
    if (above is not None and value <= above) or (least is not None and value < least):
        raise InputError(
            f"{name} must be {'above' if above is not None else 'at least'} {above or least or 0:g}, got {value!r}."
        )


def check_boost_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError for parameters of `LogitBoost` that cannot be used."""
    for name, least in (("n_rounds", 0), ("max_depth", 1), ("min_leaf", 1), ("max_bins", 2)):
        _whole(name, parameters[name], least)
    if parameters["n_iter_no_change"] is not None:
        _whole("n_iter_no_change", parameters["n_iter_no_change"], 1)
    for name in ("learning_rate", "response_limit", "validation_fraction"):
        _real(name, parameters[name], above=0.0)
    if parameters["validation_fraction"] >= 1:
        raise InputError(f"validation_fraction must be below 1, got {parameters['validation_fraction']!r}.")
    for name in ("ridge", "tol"):
        _real(name, parameters[name], least=0.0)
    if parameters["bound"] not in ("responses", "weights"):
        raise InputError(f"bound must be 'responses' or 'weights', got {parameters['bound']!r}.")
    if parameters["start"] not in ("prior", "zero"):
        raise InputError(f"start must be 'prior' or 'zero', got {parameters['start']!r}.")
    learner = parameters["learner"]
    if isinstance(learner, type) or (
        learner not in ("stump", "tree") if isinstance(learner, str) else not hasattr(learner, "fit")
    ):
        raise InputError(f"learner must be 'stump', 'tree' or a regressor with fit and predict, got {learner!r}.")
