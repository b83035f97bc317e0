"""What one column does to the labels of a fitted chain, all other columns being as they are.

    f(v) = 1/N Σ_t  p(label at t | x with x_k = v at every step)              (Friedman 2001, section 8.2)

or the same mean of the scores of single steps, centred over the labels, which say what the column does before
neighbours have a word in it. Thresholds are seen as steps of the curve. The other columns are taken as they come,
also where they could not go with such a value: of two columns that go together neither curve tells the whole.

A value of the grid costs one prediction of X.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import integer, is_integer, one_of
from crfield.core.typing import Sequences
from crfield.errors import InputError
from crfield.estimators.chain.answers import ChainAnswers
from crfield.report.partial_dependence import KINDS, PartialDependence


def partial_dependence(
    model: ChainAnswers[Any], X: Sequences, column: int, *, grid: int = 20, kind: str = "probability"
) -> PartialDependence:
    """Mean probability, or mean score (``kind="score"``), of every label as a function of one column of X.

    X is a list of arrays (steps, columns). The column takes its own values where it has at most ``grid`` of them,
    else so many quantiles; where values of it are missing (NaN), it is also asked what a missing one does.

    >>> from crfield import TreeCRF
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.integers(0, 3, (20, 2)).astype(float) for _ in range(6)]
    >>> model = TreeCRF(n_rounds=20, learning_rate=0.3).fit(X, [np.where(x[:, 1] > 1, "high", "low") for x in X])
    >>> partial_dependence(model, X, 1)
    x[1]   high    low
       0  0.009  0.991
       1  0.009  0.991
       2  0.986  0.014
    """
    integer(2, meaning="how many values the column takes")("grid", grid)
    one_of(*KINDS)("kind", kind)
    tables = arrays_of(X)
    width = max(x.shape[1] for x in tables)
    if not is_integer(column) or not -width <= column < width:
        raise InputError(f"column must be the number of a column, 0 … {width - 1}, got {column!r}.")
    at = int(column) % width
    own = np.concatenate([x[:, at] for x in tables if len(x)])
    known = np.unique(own[~np.isnan(own)])
    if not len(known):
        raise InputError(f"column {at} of X has no known value to begin with.")
    places = known
    if len(known) > grid:
        places = np.unique(np.quantile(own[~np.isnan(own)], np.linspace(0.0, 1.0, int(grid)), method="nearest"))

    def mean(value: float) -> np.ndarray:
        moved = [np.where(np.arange(x.shape[1]) == at, value, x) for x in tables]
        if kind == "probability":
            return np.asarray(np.concatenate(list(model.predict_proba(moved))).mean(axis=0))
        scores = _label_scores(model, moved)
        return np.asarray((scores - scores.mean(axis=1, keepdims=True)).mean(axis=0))

    values = np.array([mean(value) for value in places.tolist()])
    missing = mean(float("nan")) if np.isnan(own).any() else None
    return PartialDependence(column_name(model, at), tuple(model.classes_.tolist()), places, values, missing, kind)


def _label_scores(model: ChainAnswers[Any], X: list[np.ndarray]) -> np.ndarray:
    """(N, L) node scores; of a label with several states that of its best."""
    node, states = model.potentials(X).node, model._states()
    if states is None:
        return np.asarray(node)
    return np.stack([node[:, states.label_of_state == k].max(axis=1) for k in range(states.n_labels)], axis=1)


def arrays_of(X: Sequences) -> list[np.ndarray]:
    """X as arrays (steps, columns) of numbers, of which columns can be set; InputError where it is none.

    >>> arrays_of([[[1, 2]]])
    [array([[1., 2.]])]
    """
    try:
        tables = [np.asarray(x, dtype=np.float64) for x in X]
    except (TypeError, ValueError):
        tables = []
    if not tables or any(x.ndim != 2 for x in tables):
        raise InputError("X must be a list of arrays (steps, columns) of numbers, to set a column of.")
    return tables


def column_name(model: ChainAnswers[Any], column: int) -> str:
    """The name of a column of X."""
    encoder = getattr(model._fitted, "encoder", None)
    return f"x[{column}]" if encoder is None else str(encoder.dense_name(column))
