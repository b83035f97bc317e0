"""Parameters of `SelectedCRF`, looked at before any work is done; the loader of model files uses the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.features.relational.catalogue import Catalogue
from crfield.inference.decode import check_decoder
from crfield.selection.choice import automatic_method, method_options
from crfield.selection.path import CRITERIA

_FLAGS = ("standardize", "intercept", "transitions", "boundaries")


def check_selected_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter makes sense.

    >>> from crfield import SelectedCRF
    >>> check_selected_parameters({**SelectedCRF().get_params(), "method": "luck"})
    Traceback (most recent call last):
    crfield.errors.InputError: method must be one of 'auto', ... got 'luck'.
    """
    if parameters["options"] is not None and not isinstance(parameters["options"], Mapping):
        raise InputError(f"options must be a dict of keywords of the method, got {parameters['options']!r}.")
    method, options = parameters["method"], parameters["options"]
    method_options(automatic_method(Chains.from_lengths([]), options) if method == "auto" else method, options)
    check_decoder(parameters["decode"])
    if parameters["criterion"] not in ("auto", *CRITERIA):
        raise InputError(f"criterion must be 'auto', 'error' or 'nll', got {parameters['criterion']!r}.")
    features = parameters["features"]
    if features is not None and not isinstance(features, Catalogue):
        raise InputError(
            "features must be a catalogue, Specification.parse(text).expand(labels=…, agents=…), got "
            f"{type(features).__name__}."
        )
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    rate, count, verbose = parameters["rate"], parameters["min_count"], parameters["verbose"]
    if not isinstance(rate, Real) or isinstance(rate, bool) or not (np.isfinite(float(rate)) and float(rate) > 0):
        raise InputError(f"rate must be a number of steps a second above 0, got {rate!r}.")
    for name, value, least in (("min_count", count, 1), ("verbose", verbose, 0)):
        if not isinstance(value, Integral) or (name == "min_count" and isinstance(value, bool)) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    _check_validation(parameters["validation"])
    ridge = parameters["refit_l2"]
    good = ridge is None or (isinstance(ridge, str) and ridge == "auto")
    if isinstance(ridge, Real) and not isinstance(ridge, bool):
        good = bool(np.isfinite(float(ridge))) and float(ridge) >= 0
    if not good:
        raise InputError(f"refit_l2 must be 'auto', a number of at least 0 or None, got {ridge!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of a round or None, got {parameters['callback']!r}.")
    resolve_jobs(parameters["n_jobs"])
    random_generator(parameters["random_state"])


def _check_validation(value: Any) -> None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, tuple | list):
        good = len(value) == 2
    elif isinstance(value, Integral) and not isinstance(value, bool):
        good = int(value) >= 2
    else:
        good = isinstance(value, float) and 0 < value < 1
    if not good:
        raise InputError(
            "validation must be 'auto', a share between 0 and 1, a number of folds of at least 2, a pair (X, y) of "
            f"held-out data or None, got {value!r:.80}."
        )
