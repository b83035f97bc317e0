"""Parameters of a kernel model, looked at before any work is done and when a model file is read."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain_checks import check_numbers, random_generator
from crfield.estimators.graph_checks import check_answering
from crfield.scoring.graph_layout import TABLES
from crfield.scoring.similarity import Similarity
from crfield.training.graph_plan import OBJECTIVES

BASES = ("auto", "exact", "nystroem", "fourier", "greedy")
PRECISIONS = ("double", "single")
_FLAGS = ("normalize", "standardize", "intercept", "boundaries", "penalize_intercepts")


def check_kernel_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `KernelCRF` has a value that can be used.

    >>> from crfield.estimators.kernel_crf import KernelCRF
    >>> check_kernel_parameters(KernelCRF(basis="all").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: basis must be one of 'auto', 'exact', 'nystroem', 'fourier', 'greedy', got 'all'.
    """
    check_numbers({**parameters, "l1": 0.0})
    for name, choices in (("basis", BASES), ("objective", OBJECTIVES), ("precision", PRECISIONS)):
        value = parameters[name]
        if not isinstance(value, str) or value not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    for name in ("n_components", "n_candidates"):
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if not callable(parameters["similarity"]):
        gamma = parameters["gamma"]
        if isinstance(gamma, str) and gamma != "scale":
            raise InputError(f"gamma must be 'scale' or a number above 0, got {gamma!r}.")
        Similarity(
            parameters["similarity"],
            1.0 if isinstance(gamma, str) else gamma,
            parameters["degree"],
            parameters["offset"],
        )
    relations = parameters["relations"]
    if relations is not None and (
        not isinstance(relations, Mapping) or any(form not in TABLES for form in relations.values())
    ):
        raise InputError(
            f"relations must be a dict of relation names and forms ({' or '.join(map(repr, TABLES))}), "
            f"got {relations!r}."
        )
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    check_answering(parameters)
    random_generator(parameters["random_state"])
