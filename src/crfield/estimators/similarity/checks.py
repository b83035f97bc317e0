"""Parameters of kernel models, looked at before any work is done and when a model file is read.

`KernelCRF` and `KernelLogistic` choose a kernel and a basis in the same words, so what may be said stands here once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.errors import InputError
from crfield.estimators.base.rows import seed_of
from crfield.estimators.chain.checks import check_numbers
from crfield.estimators.graph.checks import check_answering
from crfield.scoring.graph_layout import TABLES
from crfield.scoring.similarity import Similarity
from crfield.training.graph.plan import OBJECTIVES

FIELD_BASES = ("auto", "exact", "nystroem", "fourier", "greedy")
CLASSIFIER_BASES = ("auto", "exact", "nystroem", "import")
PRECISIONS = ("double", "single")
LOSSES = ("logistic", "hinge")
EXACT_ROWS = 1000  # different rows up to which the basis "auto" takes all of them


def check_kernel_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `KernelCRF` has a value that can be used.

    >>> from crfield.estimators.similarity.crf import KernelCRF
    >>> check_kernel_parameters(KernelCRF(basis="all").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: basis must be one of 'auto', 'exact', 'nystroem', 'fourier', 'greedy', got 'all'.
    """
    check_numbers({**parameters, "l1": 0.0})
    _check_choices(parameters, basis=FIELD_BASES, objective=OBJECTIVES, precision=PRECISIONS)
    _check_flags(parameters, "normalize", "standardize", "intercept", "boundaries", "penalize_intercepts")
    _check_kernel(parameters)
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
    check_answering(parameters)
    random_generator(parameters["random_state"])


def check_kernel_logistic(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `KernelLogistic` has a value that can be used.

    >>> from crfield.estimators.similarity.logistic import KernelLogistic
    >>> check_kernel_logistic(KernelLogistic(loss="square").get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: loss must be one of 'logistic', 'hinge', got 'square'.
    """
    check_numbers({**parameters, "l1": 0.0, "min_count": 1})
    _check_choices(parameters, basis=CLASSIFIER_BASES, loss=LOSSES)
    _check_flags(parameters, "normalize", "intercept")
    _check_kernel(parameters)
    gain = parameters["min_gain"]
    if isinstance(gain, bool) or not isinstance(gain, Real) or not 0 <= float(gain) < 1:
        raise InputError(f"min_gain must be a fraction of at least 0 and below 1, got {gain!r}.")
    resolve_jobs(parameters["n_jobs"])
    random_generator(seed_of(parameters["random_state"]))


def _check_choices(parameters: Mapping[str, Any], **choices: Sequence[str]) -> None:
    for name, allowed in choices.items():
        value = parameters[name]
        if not isinstance(value, str) or value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")


def _check_flags(parameters: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")


def _check_kernel(parameters: Mapping[str, Any]) -> None:
    """What both have: the kernel and its numbers, the size of the basis, the callback."""
    for name in ("n_components", "n_candidates"):
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
    if not callable(parameters["similarity"]):
        gamma = parameters["gamma"]
        if isinstance(gamma, str) and gamma != "scale":
            raise InputError(f"gamma must be 'scale' or a number above 0, got {gamma!r}.")
        scale = 1.0 if isinstance(gamma, str) else gamma
        Similarity(parameters["similarity"], scale, parameters["degree"], parameters["offset"])
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
