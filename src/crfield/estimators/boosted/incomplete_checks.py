"""What `IncompleteBoost` is given: parameters, columns, labels and weights, checked before anything is learnt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import sklearn.exceptions

from crfield.boosting.incomplete.losses import FACTORISING, LOSSES
from crfield.core.checks import resolve_jobs
from crfield.data.large import refuse_large_rows
from crfield.errors import FeatureError, InputError, LabelError, NotFittedError, ShapeError
from crfield.estimators.base.rows import column_names

SOLVERS = ("lbfgs", "parallel", "sequential")
STRUCTURES = ("value", "attributes", "chain", "bag")
BASELINES = (None, "observed_only", "without_hidden", "hidden_crf")
STARTS = ("auto", "zero", "random", "jensen", "joint")
ANSWERS = ("auto", "mixture", "expected", "joint")
BOUNDS = ("tight", "printed")
_CHOICES = {
    "loss": LOSSES,
    "solver": SOLVERS,
    "structure": STRUCTURES,
    "baseline": BASELINES,
    "start": STARTS,
    "answer": ANSWERS,
    "bound": BOUNDS,
}


class NotYetFitted(NotFittedError, sklearn.exceptions.NotFittedError):
    """Both crfield's and scikit-learn's way to say that a model was asked before ``fit``."""


def check_incomplete_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot be meant, each with a word on what is expected."""
    for name, known in _CHOICES.items():
        value = parameters[name]
        if not (value is None or isinstance(value, str)) or value not in known:
            raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
    for name in ("gamma", "l2", "tol", "smoothing"):
        _number(name, parameters[name])
    for name, least in (("max_iter", 1), ("left", 0)):
        _whole(name, parameters[name], least)
    if parameters["n_samples"] is not None:
        _whole("n_samples", parameters["n_samples"], 1)
    prior = parameters["prior"]
    if isinstance(prior, str) and prior not in ("constant", "learnt"):
        raise InputError(f"prior must be 'constant', 'learnt', an array or a function of X, got {prior!r}.")
    reference = parameters["reference"]
    if isinstance(reference, str) and reference != "classes":
        raise InputError(f"reference must be None, 'classes', an array or a function of X, got {reference!r}.")
    if not isinstance(parameters["class_mass"], bool | None):
        try:
            np.asarray(parameters["class_mass"], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("class_mass must be True, False or one number for each class.") from None
    interactions = parameters["interactions"]
    if isinstance(interactions, str) and interactions != "all":
        raise InputError(f"interactions must be None, 'all' or a list of columns of X, got {interactions!r}.")
    resolve_jobs(parameters["n_jobs"])
    _check_together(parameters)


def _check_together(parameters: Mapping[str, Any]) -> None:
    loss, solver, structure = (parameters[name] for name in ("loss", "solver", "structure"))
    if loss == "hcrf" and solver != "lbfgs":
        raise InputError(f"the loss 'hcrf' has no counts A⁺, A⁻ for solver={solver!r}. Use solver='lbfgs'.")
    without = parameters["baseline"] == "without_hidden"
    if structure in ("chain", "bag") and not without:
        samples = structure == "bag" and parameters["n_samples"] is not None
        if loss not in FACTORISING and not samples:
            more = ", or list some drawn foregrounds: n_samples=20" if structure == "bag" else ""
            raise InputError(
                f"the loss {loss!r} needs the normalised model p(y | x, h), which does not factorise over a "
                f"{structure}. Use one of {', '.join(map(repr, FACTORISING))}{more}."
            )
        if solver == "sequential" and loss in ("joint", "exp"):
            raise InputError(
                f"sequential updates need the values of h listed one by one, and those of a {structure} are summed "
                "without a list. Use solver='lbfgs' or 'parallel'."
            )
        if parameters["interactions"] is not None:
            raise InputError(f"interactions are for structure='value' and 'attributes', not for {structure!r}.")
    if parameters["start"] in ("jensen", "joint") and loss not in ("mix", "hcrf"):
        raise InputError(f"start={parameters['start']!r} is for the losses 'mix' and 'hcrf', which are not convex.")


def _number(name: str, value: Any) -> None:
    fine = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fine or value < 0:
        raise InputError(f"{name} must be a finite number of at least 0, got {value!r}.")


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def check_columns(model: Any, X: Any, *, reset: bool) -> Any:
    """X as sparse rows of floats; scikit-learn's checks, crfield's errors."""
    from scipy.sparse import csr_array
    from sklearn.utils.validation import validate_data

    try:
        least = 1 if reset else 0
        X = validate_data(model, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_min_samples=least)
    except ValueError as error:
        raise FeatureError(str(error)) from error
    rows = csr_array(X)
    if not rows.has_canonical_format or (rows.data == 0).any():
        rows = rows.copy()  # the user's own matrix keeps its order and its zeros
        rows.sum_duplicates()
        rows.eliminate_zeros()
    refuse_large_rows(rows, column_names(model), doing="train on" if reset else "be scored")
    return rows


def check_classes(y: Any, n_data: int, kept: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The classes in order and the codes (N,) of the labels; without those of rows not ``kept``."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise LabelError(
            "IncompleteBoost requires y to be passed, but the target y is None. Give one label for each row of X."
        )
    try:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "O" and any(label is None for label in y):
            raise LabelError("every label must be known, and y holds None. It is h that may be hidden, not y.")
        check_classification_targets(y)
    except LabelError:
        raise
    except ValueError as error:
        raise LabelError(str(error)) from error
    if len(y) != n_data:
        raise ShapeError(f"X has {n_data} rows and y has {len(y)} labels: give one label for each row.")
    try:
        classes = np.unique(y if kept is None else y[kept])
        codes = np.searchsorted(classes, y)
    except TypeError as error:
        raise LabelError(f"labels must be of one kind that has an order: {error}.") from None
    return classes, np.minimum(codes, max(len(classes) - 1, 0))


def check_weights(sample_weight: Any, n_data: int) -> np.ndarray:
    """(N,) weights of the data, ones where None."""
    if sample_weight is None:
        return np.ones(n_data)
    try:
        weight = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), (n_data,)).copy()
    except (TypeError, ValueError):
        raise ShapeError(f"sample_weight must be one number for each of {n_data} rows of X.") from None
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError("sample_weight must hold finite numbers of at least 0.")
    if not (weight > 0).any():
        raise InputError("sample_weight is zero for every row: there is nothing to learn from.")
    return weight


def label_codes(y: Any, classes: np.ndarray, n_data: int) -> np.ndarray:
    """(N,) codes of labels that a model must know.

    >>> label_codes(["b", "a"], np.array(["a", "b"]), 2).tolist()
    [1, 0]
    """
    y = np.asarray(y)
    if y.shape != (n_data,):
        raise ShapeError(f"X has {n_data} rows and y has shape {y.shape}: give one label for each row.")
    known = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.array([known.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (codes < 0).any():
        raise LabelError(f"unknown label {y.tolist()[int(np.argmin(codes))]!r}: the model knows {classes.tolist()}.")
    return codes


def check_measure(measure: Any, shape: tuple[int, int]) -> np.ndarray:
    """(N, Y) a reference measure, every entry above zero.

    >>> check_measure([1.0, 2.0], (1, 2)).tolist()
    [[1.0, 2.0]]
    """
    try:
        found = np.broadcast_to(np.asarray(measure, dtype=np.float64), shape)
    except (TypeError, ValueError):
        raise ShapeError(f"reference must be of shape {shape[1:]} or {shape}.") from None
    if not np.isfinite(found).all() or (found <= 0).any():
        raise InputError("reference must hold finite numbers above 0: a class of measure 0 could never be learnt.")
    return found
