"""Parameters and sample weights of a chain model, looked at before any work is done.

``__init__`` only stores what it is given, as scikit-learn asks; ``fit`` calls these checks, and so does the loader
of model files, whose parameters may have been edited.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.core.checks import Check, number, one_of
from crfield.errors import InputError
from crfield.features.templates.template import Template
from crfield.inference.decode import DECODERS
from crfield.training.chain.plan import OBJECTIVES, SOLVERS

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


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
