"""What `IncompleteBoost` is given, checked and as arrays: columns, labels, weights, and what is known of h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from crfield.boosting.incomplete.structures import Prior
from crfield.core.estimator import Estimator
from crfield.data.large import refuse_large_rows
from crfield.errors import FeatureError, InputError, LabelError, ShapeError
from crfield.estimators.base.rows import column_names

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Evidence:
    """N data ready for a model: X, the columns that do not depend on h, what is known of h, its prior, and log r."""

    rows: csr_array  # (N, D)
    columns: csr_array  # (N, D₁)
    codes: np.ndarray | None = None
    beliefs: Prior | None = None
    log_reference: np.ndarray | None = None  # (N, Y)

    @property
    def n_data(self) -> int:
        """N."""
        return int(self.rows.shape[0])

    @property
    def measure(self) -> np.ndarray | None:
        """(Y, N) log r."""
        return None if self.log_reference is None else np.ascontiguousarray(self.log_reference.T)

    def some(self, at: np.ndarray) -> Evidence:
        """The data at the given places."""
        n, codes, beliefs = self.n_data, self.codes, self.beliefs
        if codes is not None and codes.ndim == 1:  # a bag: one code for each entry of rows
            from scipy.sparse import csr_array

            codes = csr_array((codes, self.rows.indices, self.rows.indptr), self.rows.shape)[at].data
        elif codes is not None:
            codes = codes[at]
            beliefs = [b[at] if len(b) == n and b.ndim > 1 and not _is_link(b, beliefs) else b for b in beliefs or []]
        reference = None if self.log_reference is None else self.log_reference[at]
        return Evidence(self.rows[at], self.columns[at], codes, beliefs, reference)


def _is_link(array: np.ndarray, beliefs: Prior | None) -> bool:
    """Whether an array of a chain's prior is its table of links, which all data share."""
    return bool(beliefs) and beliefs[0].ndim == 3 and array is beliefs[-1]  # type: ignore[index]


def read_columns(model: Estimator, X: ArrayLike, *, reset: bool) -> csr_array:
    """X as sparse rows of floats; scikit-learn's checks, crfield's errors."""
    from scipy.sparse import csr_array

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


def read_classes(y: ArrayLike | None, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes of the rows ``kept`` (N,) in their order, and the codes (N,) of the labels.

    >>> read_classes(["b", "a", "c"], np.array([True, True, False]))
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    """
    if y is None:
        raise LabelError(
            "IncompleteBoost requires y to be passed, but the target y is None. Give one label for each row of X."
        )
    try:
        given: np.ndarray = column_or_1d(y, warn=True)
        if given.dtype.kind == "O" and any(label is None for label in given):
            raise LabelError("every label must be known, and y holds None. It is h that may be hidden, not y.")
        check_classification_targets(given)
    except LabelError:
        raise
    except ValueError as error:
        raise LabelError(str(error)) from error
    if len(given) != len(kept):
        raise ShapeError(f"X has {len(kept)} rows and y has {len(given)} labels: give one label for each row.")
    try:
        classes = np.unique(given[kept])
        codes = np.searchsorted(classes, given)
    except TypeError as error:
        raise LabelError(f"labels must be of one kind that has an order: {error}.") from None
    return classes, np.minimum(codes, len(classes) - 1)


def read_weights(sample_weight: ArrayLike | None, n_data: int) -> np.ndarray:
    """(N,) weights of the data, ones where None."""
    if sample_weight is None:
        return np.ones(n_data)
    try:
        weight = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), (n_data,)).copy()
    except (TypeError, ValueError):
        raise ShapeError(f"sample_weight must be one number for each of {n_data} rows of X.") from None
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError("sample_weight must hold finite non-negative numbers.")
    if not (weight > 0).any():
        raise InputError("sample_weight is zero for every row: there is nothing to learn from.")
    return weight


def read_codes(y: ArrayLike, classes: np.ndarray, n_data: int) -> np.ndarray:
    """(N,) codes of labels that a model must know.

    >>> read_codes(["b", "a"], np.array(["a", "b"]), 2).tolist()
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


def read_measure(measure: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    """(N, Y) a reference measure, every entry above zero.

    >>> read_measure([1.0, 2.0], (1, 2)).tolist()
    [[1.0, 2.0]]
    """
    try:
        found = np.broadcast_to(np.asarray(measure, dtype=np.float64), shape)
    except (TypeError, ValueError):
        raise ShapeError(f"reference must be of shape {shape[1:]} or {shape}.") from None
    if not np.isfinite(found).all() or (found <= 0).any():
        raise InputError("reference must hold finite numbers > 0: a class of measure 0 could never be learnt.")
    return found
