"""Labels of the steps before as columns, and greedy decoding with them.

Data that are steps of sequences may look at the labels of the ``left`` steps before: columns [y_{t−k} = c] for each k
and class c, and one for "no such step". In training the labels are the true ones; in prediction they are the model's
own answers, made from the left to the right, one step of all sequences at a time (Carreras, Màrquez & Padró 2003, *A
simple named entity extractor using AdaBoost*). An early mistake may so bring others: a chain model would not decide
before it has seen the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError


def check_lengths(lengths: Any, n_data: int) -> np.ndarray:
    """(B,) lengths of the sequences that N steps are made of; one sequence where None."""
    if lengths is None:
        return np.array([n_data], dtype=np.int64)
    found = np.asarray(lengths)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise InputError("lengths must be integers, the number of steps of each sequence, such as [3, 5].")
    if (found < 0).any() or int(found.sum()) != n_data:
        raise ShapeError(f"lengths must add up to the {n_data} rows of X, got {int(found.sum())}.")
    return found.astype(np.int64)


def positions(lengths: np.ndarray) -> np.ndarray:
    """(N,) the step of each datum in its sequence.

    >>> positions(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)


def left_columns(labels: np.ndarray, place: np.ndarray, rows: np.ndarray, *, left: int, n_labels: int) -> Any:
    """(len(rows), left (Y + 1)) sparse columns of the labels before the given rows; the last of each Y + 1: none.

    >>> left_columns(np.array([1, 0]), np.array([0, 1]), np.arange(2), left=1, n_labels=2).toarray().tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    from scipy.sparse import csr_array

    back = np.arange(1, left + 1)
    there = place[rows][:, None] >= back
    before = np.where(there, labels[np.maximum(rows[:, None] - back, 0)], n_labels)
    at = (before + (back - 1) * (n_labels + 1)).ravel()
    shape = (len(rows), left * (n_labels + 1))
    return csr_array((np.ones(len(at)), at, np.arange(len(rows) + 1) * left), shape)


def left_scores(labels: np.ndarray, place: np.ndarray, rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """(Y, len(rows)) what `left_columns` of the rows score with their weights, ``table`` (left, Y + 1, Y).

    >>> table = np.arange(6.0).reshape(1, 3, 2)
    >>> left_scores(np.array([1, 0]), np.array([0, 1]), np.arange(2), table).T.tolist()
    [[4.0, 5.0], [2.0, 3.0]]
    """
    left, width = table.shape[:2]
    back = np.arange(1, left + 1)
    there = place[rows][:, None] >= back
    found = np.where(there, labels[np.maximum(rows[:, None] - back, 0)], width - 1)
    return np.asarray(table[back - 1, found].sum(axis=1).T)


def steps(place: np.ndarray) -> Iterator[np.ndarray]:
    """The rows that can be decided together: all first steps, all second steps, …

    >>> [rows.tolist() for rows in steps(np.array([0, 1, 0]))]
    [[0, 2], [1]]
    """
    order = np.argsort(place, kind="stable")
    bounds = np.flatnonzero(np.diff(place[order], prepend=-1, append=-1))
    for start, stop in pairwise(bounds.tolist()):
        yield order[start:stop]
