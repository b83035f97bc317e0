"""Which columns stay: rare ones are dropped and the rest renumbered.

A column counts by the rows it appears on, never by its summed value: a numeric feature that is often
negative or zero is as common as one that is often large. The choice is one table, ``remap``, from old
column numbers to new ones with −1 for the dropped; the order of the kept columns does not change. An
encoder keeps the table and applies it to everything it encodes later (`renumber`), or rebuilds its alphabet
with it. Dense blocks have no rare columns and pass untouched.

Counting costs one pass over the non-zeros when ``min_count`` is 1. Above that a row that names a column
twice must count once, which is one transposition of the sparse part (linear as well, through scipy).
"""

from __future__ import annotations

import numpy as np

from crfield.core.checks import integer
from crfield.data.batch import Columns

__all__ = ["check_min_count", "drop_rare", "keep_columns", "renumber", "row_counts", "take_rows", "unless_ones"]


def check_min_count(min_count: int) -> int:
    """``min_count`` as an int ≥ 0, or an error that says so.

    >>> check_min_count(2)
    2
    """
    hint = "Use 1 to keep every feature that was seen, 2 to drop those seen on one step only."
    integer(0, hint=hint)("min_count", min_count)
    return int(min_count)


def row_counts(columns: Columns) -> np.ndarray:
    """(width,) int64: the number of rows on which each sparse column appears, whatever its value.

    >>> row_counts(Columns.from_rows([[0, 0, 2], [2]], width=3)).tolist()
    [1, 0, 2]
    """
    from scipy.sparse import csr_array

    ones = np.ones(len(columns.indices), np.int8)
    shape = (columns.n_rows, columns.width)
    by_column = csr_array((ones, columns.indices, columns.indptr), shape=shape).tocsc()
    rows, starts = by_column.indices, by_column.indptr
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    first[starts[:-1][starts[:-1] < len(rows)]] = True
    seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(first)])
    return seen[starts[1:]] - seen[starts[:-1]]


def drop_rare(columns: Columns, min_count: int) -> tuple[Columns, np.ndarray]:
    """Columns seen on at least ``min_count`` rows, renumbered, and the table (width,) int32 that did it.

        remap[k] = |{j < k : count(j) ≥ min_count}|  if count(k) ≥ min_count  else  −1

    The columns handed in are returned as they are when nothing is dropped. With ``min_count`` 0 even
    columns that never appear are kept.

    >>> kept, remap = drop_rare(Columns.from_rows([[0, 2], [2, 3], [3]], width=5), 2)
    >>> remap.tolist(), kept.width, kept.indices.tolist()
    ([-1, -1, 0, 1, -1], 2, [0, 0, 1, 1])
    """
    min_count = check_min_count(min_count)
    if min_count <= 1:
        counts = np.bincount(columns.indices, minlength=columns.width)
    else:
        counts = row_counts(columns)
    keep = counts >= min_count
    if keep.all():
        return columns, np.arange(columns.width, dtype=np.int32)
    remap = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    return renumber(columns, remap), remap


def renumber(columns: Columns, remap: np.ndarray, width: int | None = None) -> Columns:
    """The same rows with column k called ``remap[k]``, and without those where that is −1.

    The new width is the number of columns kept, unless ``width`` says otherwise.

    >>> import numpy as np
    >>> columns = renumber(Columns.from_rows([[0, 1], [1, 2]], width=3), np.array([0, -1, 1], np.int32))
    >>> columns.indptr.tolist(), columns.indices.tolist(), columns.width
    ([0, 1, 2], [0, 1], 2)
    """
    return _renamed(columns, remap[columns.indices], int((remap >= 0).sum()) if width is None else width)


def keep_columns(columns: Columns, kept: np.ndarray) -> Columns:
    """The given columns only, in the given rising order; memory goes with what is there, not with the width.

    >>> import numpy as np
    >>> columns = keep_columns(Columns.from_rows([[0, 1], [1, 2]], width=2**31 - 1), np.array([0, 2]))
    >>> columns.indptr.tolist(), columns.indices.tolist(), columns.width
    ([0, 1, 2], [0, 1], 2)
    """
    place = np.searchsorted(kept, columns.indices).astype(np.int32)
    found = place < len(kept)
    found[found] = np.asarray(kept)[place[found]] == columns.indices[found]
    return _renamed(columns, np.where(found, place, np.int32(-1)), len(kept))


def _renamed(columns: Columns, indices: np.ndarray, width: int) -> Columns:
    """The same rows with new column numbers, without those where that is −1."""
    keep = indices >= 0
    if keep.all():
        return Columns(columns.indptr, indices, width, unless_ones(columns.values), columns.dense)
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep)])
    values = None if columns.values is None else unless_ones(columns.values[keep])
    return Columns(kept[columns.indptr], indices[keep], width, values, columns.dense)


def take_rows(columns: Columns, rows: np.ndarray) -> Columns:
    """The given rows, in the given order.

    >>> import numpy as np
    >>> columns = take_rows(Columns.from_rows([[0], [1, 2], [2]], width=3), np.array([2, 1]))
    >>> columns.indptr.tolist(), columns.indices.tolist()
    ([0, 1, 3], [2, 1, 2])
    """
    starts, lengths = columns.indptr[rows], columns.indptr[rows + 1] - columns.indptr[rows]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
    values = None if columns.values is None else unless_ones(columns.values[entries])
    dense = None if columns.dense is None else columns.dense[rows]
    return Columns(indptr, columns.indices[entries], columns.width, values, dense)


def unless_ones(values: np.ndarray | None) -> np.ndarray | None:
    """The values, or None when all of them are one and need not be stored.

    >>> unless_ones(np.ones(3)) is None
    True
    """
    return None if values is None or (values == 1).all() else values
