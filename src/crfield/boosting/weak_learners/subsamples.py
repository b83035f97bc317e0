"""Part of the rows and columns of `Candidates`: what one round of stochastic boosting searches.

A tree grown on half of the rows costs half as much, and trees that saw different rows and columns err in different
places, so that their sum errs less (Friedman 2002, *Stochastic gradient boosting*). Bins stay as they were cut on all
rows. Columns that are left out stay in the joint codes they share with others, so dropping columns makes trees
different but hardly cheaper.

Joint codes of many columns pay where many rows are added up. In the lower nodes of a deep tree a table of a thousand
joint bins is emptied and read for a few hundred rows; `regrouped` makes the tables smaller.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crfield.boosting.weak_learners.candidates import Candidates
from crfield.kernels.boost import packed


def some_rows(candidates: Candidates, rows: np.ndarray) -> Candidates:
    """Candidates of the given rows, rising and each at most once.

    >>> cut = Candidates.of([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    >>> part = some_rows(cut, np.array([0, 2]))
    >>> part.n_rows, part.packed.column(0).tolist()
    (2, [0, 2])
    """
    old = candidates.packed
    place = np.full(old.n_rows, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    kept = place[old.entries] >= 0
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    return Candidates(
        replace(
            old,
            n_rows=len(rows),
            joint=np.ascontiguousarray(old.joint[:, rows]),
            indptr=ends[old.indptr],
            entries=place[old.entries[kept]],
            codes=old.codes[kept],
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
    old = candidates.packed
    bins = np.diff(old.offsets)[columns]
    sparse = np.flatnonzero(np.isin(old.sparse, columns))
    entries = [np.arange(old.indptr[s], old.indptr[s + 1]) for s in sparse.tolist()]
    taken = np.concatenate([np.zeros(0, np.int64), *entries])
    return Candidates(
        replace(
            old,
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(bins)]).astype(np.int64),
            word=np.ascontiguousarray(old.word[columns]),
            stride=np.ascontiguousarray(old.stride[columns]),
            sparse=np.searchsorted(columns, old.sparse[sparse]).astype(np.int64),
            indptr=np.concatenate([[0], np.cumsum([len(own) for own in entries])]).astype(np.int64),
            entries=old.entries[taken],
            codes=old.codes[taken],
            zero=old.zero[sparse],
        ),
        [candidates.thresholds[f] for f in columns.tolist()],
        candidates.discrete[columns],
        candidates.missing[columns],
    )


def regrouped(candidates: Candidates, *, joint_bins: int) -> Candidates:
    """The same candidates with joint codes of at most so many bins (or one column, if that has more).

    >>> cut = Candidates.of([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    >>> regrouped(cut, joint_bins=2).packed.sizes.tolist(), cut.packed.sizes.tolist()
    ([2, 3], [6])
    """
    old = candidates.packed
    dense = np.flatnonzero(old.word >= 0)
    codes = np.empty((len(dense), old.n_rows), np.uint8)
    for k, f in enumerate(dense.tolist()):
        codes[k] = old.column(f)
    new = packed(
        old.n_rows,
        np.diff(old.offsets),
        codes,
        dense,
        indptr=old.indptr,
        entries=old.entries,
        entry_codes=old.codes,
        zero=old.zero,
        joint_bins=joint_bins,
    )
    return Candidates(new, candidates.thresholds, candidates.discrete, candidates.missing)
