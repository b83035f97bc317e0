"""Part of the rows and columns of `Candidates`: what one round of stochastic boosting searches.

A tree grown on half of the rows costs half as much, and trees that saw different rows and columns err in different
places, so that their sum errs less (Friedman 2002, *Stochastic gradient boosting*). Bins stay as they were cut on all
rows. Columns that are left out stay in the joint codes they share with others, so dropping columns makes trees
different but hardly cheaper.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crfield.boosting.candidates import Candidates


def some_rows(candidates: Candidates, rows: np.ndarray) -> Candidates:
    """Candidates of the given rows, rising and each at most once.

    >>> cut = Candidates.of([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    >>> part = some_rows(cut, np.array([0, 2]))
    >>> part.n_rows, part.packed.column(0).tolist()
    (2, [0, 2])
    """
    packed = candidates.packed
    place = np.full(packed.n_rows, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    kept = place[packed.entries] >= 0
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    return Candidates(
        replace(
            packed,
            n_rows=len(rows),
            joint=np.ascontiguousarray(packed.joint[:, rows]),
            indptr=ends[packed.indptr],
            entries=place[packed.entries[kept]],
            codes=packed.codes[kept],
        ),
        candidates.thresholds,
        candidates.discrete,
        candidates.missing,
    )


def some_columns(candidates: Candidates, columns: np.ndarray) -> Candidates:
    """Candidates of the given columns, rising; their numbers then count within ``columns``.

    >>> cut = Candidates.of([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    >>> part = some_columns(cut, np.array([1]))
    >>> part.n_columns, part.packed.column(0).tolist()
    (1, [0, 0, 1])
    """
    packed = candidates.packed
    bins = np.diff(packed.offsets)[columns]
    sparse = np.flatnonzero(np.isin(packed.sparse, columns))
    entries = [np.arange(packed.indptr[s], packed.indptr[s + 1]) for s in sparse.tolist()]
    taken = np.concatenate([np.zeros(0, np.int64), *entries])
    return Candidates(
        replace(
            packed,
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(bins)]).astype(np.int64),
            word=np.ascontiguousarray(packed.word[columns]),
            stride=np.ascontiguousarray(packed.stride[columns]),
            sparse=np.searchsorted(columns, packed.sparse[sparse]).astype(np.int64),
            indptr=np.concatenate([[0], np.cumsum([len(own) for own in entries])]).astype(np.int64),
            entries=packed.entries[taken],
            codes=packed.codes[taken],
            zero=packed.zero[sparse],
        ),
        [candidates.thresholds[f] for f in columns.tolist()],
        candidates.discrete[columns],
        candidates.missing[columns],
    )
