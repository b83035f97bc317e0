"""Parameters and sample weights of a chain model, looked at before any work is done.

``__init__`` only stores what it is given, as scikit-learn asks; ``fit`` calls these checks, and so does the loader
of model files, whose parameters may have been edited.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.core.checks import Check, number, one_of, random_generator, resolve_jobs
from crfield.errors import InputError
from crfield.estimators.chain.constraints import check_rules
from crfield.estimators.chain.higher_order import check_order
from crfield.features.templates.template import Template
from crfield.inference.decode import DECODERS
from crfield.training.chain.plan import OBJECTIVES, SOLVERS, check_solver_options, plan_chain

SCORES = ("log_likelihood", "accuracy", "f1")  # of held-out sequences
_CHOICES: dict[str, tuple[str, ...]] = {
    "feature_pairs": ("observed", "all"),
    "transition_pairs": ("observed", "all", "none"),
    "objective": OBJECTIVES,
    "solver": SOLVERS,
    "decode": DECODERS,
}
PENALTY = number(0, meaning="the strength of a penalty")
TOLERANCE = number(
    above=0,
    meaning="the fraction of the optimum to stop within",
    hint="Use a small one such as 1e-8 for a nearly exact optimum.",
)
TEMPLATE = Check(
    "the text of one, the path of its file, a Template or None",
    lambda value: value is None or isinstance(value, str | os.PathLike | Template),
)
SCORE = one_of(*SCORES) | Check("a function of (estimator, X, y)", callable)
_FLAGS = ("standardize", "intercept", "boundaries", "penalize_intercepts", "warm_start")
_COUNTS = {
    "max_iter": "the most steps of the optimiser",
    "min_count": "the fewest steps a feature must be seen on; 1 keeps all",
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless every parameter of `ChainCRF` has a value that can be used.

    >>> from crfield.estimators.chain.crf import ChainCRF
    >>> check_parameters(ChainCRF(l2=-1.0).get_params())
    Traceback (most recent call last):
    crfield.errors.InputError: l2 must be a finite number of at least 0, the strength of a penalty, got -1.0.
    """
    check_numbers(parameters)
    for name, choices in _CHOICES.items():
        if not isinstance(parameters[name], str) or parameters[name] not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {parameters[name]!r}.")
    check_rules(parameters)
    check_order(parameters)
    costs = any(parameters.get(name) is not None for name in ("class_weight", "costs"))
    plan_chain(parameters["objective"], parameters["solver"], costs=costs)
    check_solver_options(parameters["solver"], parameters.get("solver_options"))
    for name in _FLAGS:
        if not isinstance(parameters[name], bool | np.bool_):
            raise InputError(f"{name} must be True or False, got {parameters[name]!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    check_template(parameters["template"])
    check_checkpoint(parameters["checkpoint"], parameters["checkpoint_every"])
    check_held_out(parameters["validation_fraction"], parameters["validation_score"], parameters["patience"])
    resolve_jobs(parameters["n_jobs"])
    random_generator(parameters["random_state"])


def check_template(template: Any) -> None:
    """InputError unless a template is given in a way that can be read.

    >>> check_template(3)
    Traceback (most recent call last):
    crfield.errors.InputError: template must be the text of one, the path of its file, a Template or None, got 3.
    """
    if template is not None and not isinstance(template, str | os.PathLike | Template):
        raise InputError(
            f"template must be the text of one, the path of its file, a Template or None, got {template!r:.60}."
        )


def check_numbers(parameters: Mapping[str, Any]) -> None:
    """InputError unless penalties, tolerance and counts are numbers that make sense.

    >>> check_numbers({"l1": 0.0, "l2": 1.0, "tol": 1e-4, "max_iter": 0, "min_count": 1})
    Traceback (most recent call last):
    crfield.errors.InputError: max_iter must be a whole number of at least 1, the most steps of the optimiser, got 0.
    """
    for name in ("l1", "l2"):
        if not _is_number(parameters[name]) or parameters[name] < 0:
            raise InputError(
                f"{name} must be a finite number of at least 0, the strength of a penalty, got {parameters[name]!r}."
            )
    if not _is_number(parameters["tol"]) or parameters["tol"] <= 0:
        raise InputError(
            f"tol must be a finite number above 0, the fraction of the optimum to stop within, "
            f"got {parameters['tol']!r}. Use a small one such as 1e-8 for a nearly exact optimum."
        )
    for name, meaning in _COUNTS.items():
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, {meaning}, got {value!r}.")


def check_checkpoint(path: Any, every: Any) -> None:
    """InputError unless the two parameters of a checkpoint can be used.

    >>> check_checkpoint("run.checkpoint", -1)
    Traceback (most recent call last):
    crfield.errors.InputError: checkpoint_every must be a number of seconds of at least 0, got -1.
    """
    if path is not None and not isinstance(path, str | os.PathLike):
        raise InputError(f"checkpoint must be the path of a file, or None, got {path!r:.60}.")
    good = isinstance(every, Real) and not isinstance(every, bool) and isfinite(every) and float(every) >= 0
    if not good:
        raise InputError(f"checkpoint_every must be a number of seconds of at least 0, got {every!r}.")


def check_held_out(fraction: Any, score: Any, patience: Any) -> None:
    """InputError unless the parameters of held-out data can be used.

    >>> check_held_out(1.5, "accuracy", 5)
    Traceback (most recent call last):
    crfield.errors.InputError: validation_fraction must be a number between 0 and 1, or None, got 1.5.
    """
    if fraction is not None and (
        not isinstance(fraction, Real) or isinstance(fraction, bool) or not 0 < float(fraction) < 1
    ):
        raise InputError(f"validation_fraction must be a number between 0 and 1, or None, got {fraction!r}.")
    if not callable(score) and (not isinstance(score, str) or score not in SCORES):
        raise InputError(
            f"validation_score must be one of {', '.join(map(repr, SCORES))} or a function of (estimator, X, y), "
            f"got {score!r}."
        )
    if isinstance(patience, bool) or not isinstance(patience, Integral) or patience < 1:
        raise InputError(
            f"patience must be a whole number of at least 1, the steps without a better score, got {patience!r}."
        )


def check_label_functions(parameters: Mapping[str, Any]) -> list[Any]:
    """The label functions as a list; InputError where they are none, or stand beside other features."""
    functions = parameters["label_functions"]
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise InputError(f"label_functions must be a list of functions, got {functions!r}. Write [f] for one.")
    functions = list(functions)
    for function in functions:
        if not callable(function):
            raise InputError(f"label_functions must hold functions f(y_before, y, x, t), got {function!r}.")
    if not functions:
        raise InputError("label_functions must hold at least one function f(y_before, y, x, t), got none.")
    for name in ("features", "template", "functions", "transition_functions", "transition_features"):
        given = parameters[name]
        if given is not None and not (isinstance(given, tuple | list) and not given):
            raise InputError(f"label_functions stand alone, since they see everything: leave {name} out.")
    return functions


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
