"""Parameters of `HMM`, looked at before any work is done, in ``fit`` and by the loader of model files."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.checks import random_generator
from crfield.estimators.jobs import resolve_jobs
from crfield.inference.decode import check_decoder
from crfield.scoring.densities.gaussian import family_named
from crfield.training.markov.durations import check_durations

TRAININGS = ("counting", "em", "discriminative")
_NUMBERS = {  # whether it must be above 0
    "deviation_factor": True,
    "tol": True,
    "smoothing": False,
    "emission_smoothing": False,
    "variance_floor": False,
    "l2": False,
}
_COUNTS = {"max_iter": 1, "verbose": 0, "n_init": 1, "n_components": 1}


def check_hmm(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `HMM` has a value that can be used.

    >>> from crfield.estimators.markov.hmm import HMM
    >>> check_hmm(HMM(deviation_factor=0).get_params(deep=False))
    Traceback (most recent call last):
    crfield.errors.InputError: deviation_factor must be a finite number above 0, got 0.
    """
    family_named(parameters["emissions"])
    training = parameters["training"]
    if not isinstance(training, str) or training not in TRAININGS:
        raise InputError(f"training must be one of {', '.join(map(repr, TRAININGS))}, got {training!r}.")
    for name, positive in _NUMBERS.items():
        value = parameters[name]
        number = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
        if not number or value < 0 or (positive and value == 0):
            bound = "above 0" if positive else "of at least 0"
            raise InputError(f"{name} must be a finite number {bound}, got {value!r}.")
    for name, least in _COUNTS.items():
        value = parameters[name]
        if (isinstance(value, bool) and name != "verbose") or not isinstance(value, Integral) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    states = parameters["n_states"]
    if states is not None:
        if isinstance(states, bool) or not isinstance(states, Integral) or states < 1:
            raise InputError(f"n_states must be None or a whole number of at least 1, got {states!r}.")
        if training != "em":
            raise InputError(
                f"n_states is for data without labels, which only training='em' can use, got {training!r}."
            )
    check_durations(parameters["min_duration"])
    lasting = parameters["min_duration"]
    if training == "discriminative" and (isinstance(lasting, Mapping) or lasting != 1):
        raise InputError("min_duration must be 1 in discriminative training; use 'counting' or 'em' with others.")
    check_decoder(parameters["decode"])
    resolve_jobs(parameters["n_jobs"])
    random_generator(parameters["random_state"])
