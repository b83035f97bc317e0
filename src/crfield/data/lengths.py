"""One table and a list of lengths, or a list of sequences: the same data in two conventions.

hmmlearn, and others, lay all sequences end to end in one array and say in ``lengths`` where each ends. Here X is a
list with one array for each sequence. `from_lengths` and `to_lengths` go from one to the other; no number is copied
on the way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError


def from_lengths(X: Any, lengths: Sequence[int] | np.ndarray | None = None) -> list[np.ndarray]:
    """The sequences of an array (steps of all, columns) whose lengths are given; without them it is one sequence.

    A 1-D array is read as one column; for labels, pass them through the same call and take the columns away.

    >>> import numpy as np
    >>> [x.shape for x in from_lengths(np.zeros((5, 2)), [3, 2])]
    [(3, 2), (2, 2)]
    >>> from_lengths(np.zeros((5, 2)), [3, 3])
    Traceback (most recent call last):
    crfield.errors.ShapeError: lengths must add up to the 5 rows of X, got 6.
    """
    table = np.asarray(X)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise ShapeError(f"X must be one array (steps, columns), got the shape {table.shape}.")
    if lengths is None:
        return [table]
    listed = list(lengths)
    for length in listed:
        if isinstance(length, bool | np.bool_) or not isinstance(length, Integral) or length < 0:
            raise InputError(f"lengths must be integers ≥ 0, got {length!r}.")
    if sum(listed) != len(table):
        raise ShapeError(f"lengths must add up to the {len(table)} rows of X, got {sum(listed)}.")
    bounds = np.concatenate([[0], np.cumsum(np.array(listed, np.int64))]).tolist()
    return [table[a:b] for a, b in pairwise(bounds)]


def to_lengths(X: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """All sequences end to end, and the length of each.

    >>> import numpy as np
    >>> table, lengths = to_lengths([np.zeros((3, 2)), np.ones((1, 2))])
    >>> table.shape, lengths.tolist()
    ((4, 2), [3, 1])
    """
    if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
        raise InputError(f"X must be a list of sequences, got {type(X).__name__}.")
    arrays = [np.asarray(x) for x in X]
    if not arrays:
        raise InputError("X holds no sequence, so the number of columns is not known.")
    widths = sorted({a.shape[1:] for a in arrays if a.ndim and len(a)})
    if any(a.ndim == 0 for a in arrays) or len(widths) > 1:
        raise ShapeError(f"all sequences must have steps of one shape, got {widths}.")
    filled = [a for a in arrays if len(a)] or arrays[:1]
    return np.concatenate(filled), np.array([len(a) for a in arrays], np.int64)
