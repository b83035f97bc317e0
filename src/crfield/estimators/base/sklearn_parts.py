"""Estimators of scikit-learn as parts of a model: what is asked of them, how they are fitted, what they read.

Such a part is code and arrays at once, and a model file holds no code. Models store those that are a few arrays and a
formula (logistic regression, Gaussian mixtures) and refuse others with a hint; joblib, which trusts its files, stores
any of them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from crfield.core.checks import Check
from crfield.errors import DataWarning, InputError


def estimator_with(method: str, what: str) -> Check:
    """A check for an estimator object that has a method, or None.

    >>> estimator_with("predict_proba", "a classifier")("local", "logistic")
    Traceback (most recent call last):
    crfield.errors.InputError: local must be a classifier object with predict_proba, or None, got 'logistic'.
    """
    return Check(
        f"{what} object with {method}, or None",
        lambda value: value is None or (hasattr(value, method) and not isinstance(value, type)),
    )


def fit_clone(estimator: object, *data: Any, role: str, **options: Any) -> Any:
    """A fitted clone of a scikit-learn estimator; InputError with its own words where it refuses the data.

    >>> from sklearn.mixture import GaussianMixture
    >>> fit_clone(GaussianMixture(), np.zeros((1, 1)), role="the density")
    Traceback (most recent call last):
    crfield.errors.InputError: the density (GaussianMixture) cannot be fitted: Found array with 1 sample(s) ...
    """
    from sklearn.base import clone

    try:
        return clone(estimator).fit(*data, **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"{role} ({type(estimator).__name__}) cannot be fitted: {error}") from error


def node_weights(
    estimator: object, weight: np.ndarray | None, rows: np.ndarray, *, role: str
) -> dict[str, np.ndarray]:
    """Weights (N,) of nodes as an option of ``fit``, if it has one; where it has none they are left out.

    A ``role`` is named in a warning if that matters.

    >>> from sklearn.linear_model import LogisticRegression
    >>> node_weights(LogisticRegression(), np.array([1.0, 2.0, 2.0]), np.array([0, 2]), role="it")
    {'sample_weight': array([1., 2.])}
    """
    from sklearn.utils.validation import has_fit_parameter

    if weight is None:
        return {}
    if has_fit_parameter(estimator, "sample_weight"):
        return {"sample_weight": weight[rows]}
    if role and len(rows) and np.ptp(weight[rows]) > 0:
        warnings.warn(
            f"{role} ({type(estimator).__name__}) takes no sample_weight: all graphs count alike for it, and their "
            "weights apply to what holds neighbours together alone.",
            DataWarning,
            stacklevel=4,
        )
    return {}


def not_stored(what: str, estimator: object, kept: str) -> str:
    """Why an estimator of scikit-learn is not written to a model file, and what to do instead."""
    return (
        f"a model file holds no code, so the {what} must be {kept}, got {type(estimator).__name__}. Store such a "
        "model with joblib.dump(model, path), and read only files that you trust."
    )
