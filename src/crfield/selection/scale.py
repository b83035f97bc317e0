"""Means and deviations of columns that are never all in memory.

Slopes of different columns can be compared only on one scale, so selection works with (x − mean) / deviation. For
tests, which are 0 or 1, both follow from the count of ones, and the counts of all tests come from one scoring with a
gradient of ones; other columns are computed, a chunk at a time. A column is measured where it is read: at all steps
if it is linked to labels, at the later steps of edges if it is linked to pairs.

A column that never changes is what the intercept or the transitions already are: it is ``usable`` no more than a test
that holds, or fails, on fewer than ``min_count`` steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.features.lazy_columns import STATE, LazyColumns
from crfield.features.relational.columns import RelationalColumns
from crfield.selection.views import View

CHUNK = 64_000_000  # bytes


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """(n_columns,) each: what a column is centred at and divided by, and whether it may be chosen."""

    mean: np.ndarray
    deviation: np.ndarray
    usable: np.ndarray

    @classmethod
    def of(cls, view: View, *, standardize: bool = True, min_count: int = 1, n_jobs: int = 1) -> ColumnScale:
        """Measured on a view.

        >>> from crfield.core.target import Target
        >>> from crfield.core.topology import Chains
        >>> from crfield.features.lazy_columns import MatrixColumns
        >>> columns = MatrixColumns(np.array([[1.0, 5.0], [3.0, 5.0]]), chains=Chains.from_lengths([2]), n_labels=2)
        >>> scale = ColumnScale.of(View(columns, Target(columns.chains, 2, np.array([0, 1]))))
        >>> scale.mean.tolist(), scale.deviation.tolist(), scale.usable.tolist()
        ([2.0, 5.0], [1.0, 1.0], [True, False])
        """
        candidates = view.candidates
        size = candidates.n_columns
        mean, deviation, usable = np.zeros(size), np.ones(size), np.zeros(size, bool)
        tests = _tests(candidates)
        if tests.any():
            counts, rows = _counts(view, n_jobs)
            share = np.rint(counts) / np.maximum(rows, 1)
            mean[tests] = share[tests]
            usable[tests] = (np.minimum(counts, rows - counts) >= max(min_count, 1) - 0.5)[tests]
            deviation[tests & usable] = np.sqrt((share * (1 - share))[tests & usable])
        others = np.flatnonzero(~tests)
        step = max(1, CHUNK // (8 * max(candidates.chains.n_nodes, 1)))
        for first in range(0, len(others), step):
            some = others[first : first + step]
            chunk = candidates.chunk(some)
            for kind, rows_of_kind in ((True, view.rows), (False, view.heads)):
                here = (candidates.link[some] == STATE) == kind
                if here.any():
                    part = chunk[:, here] if rows_of_kind is None else chunk[rows_of_kind][:, here]
                    mean[some[here]], deviation[some[here]], usable[some[here]] = _measured(part, min_count)
        if not standardize:
            return cls(np.zeros(size), np.ones(size), usable)
        return cls(mean, deviation, usable)


def _tests(candidates: LazyColumns) -> np.ndarray:
    """(n_columns,) bool: columns known to hold nothing but 0 and 1."""
    if not isinstance(candidates, RelationalColumns):
        return np.zeros(candidates.n_columns, bool)
    catalogue = candidates.catalogue
    tested = [bool(block.template.tests) for block in catalogue.blocks]
    return np.repeat(np.array(tested, bool), np.diff(catalogue.column_starts))


def _counts(view: View, n_jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_columns,) sums of the columns where they are read, and the number of these places."""
    candidates, labels = view.candidates, view.n_labels
    sums = view.scores(
        np.ones((view.chains.n_nodes, labels)), np.ones((view.chains.n_edges, labels, labels)), n_jobs=n_jobs
    )
    column = candidates.places().column
    found = np.zeros(candidates.n_columns)
    found[column] = sums
    return found, np.where(candidates.link == STATE, view.chains.n_nodes, view.chains.n_edges)


def _measured(values: np.ndarray, min_count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not len(values):
        return np.zeros(values.shape[1]), np.ones(values.shape[1]), np.zeros(values.shape[1], bool)
    low, high = values.min(axis=0), values.max(axis=0)
    unit = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-300)
    mean = (values / unit).mean(axis=0)
    deviation = np.sqrt((((values / unit) - mean) ** 2).mean(axis=0)) * unit
    # Rounding gives a column of equal numbers a deviation of its own; what matters is whether it changes.
    varied = (high > low) & (deviation > 1e-12 * unit)
    is_high, is_low = (values == high).sum(axis=0), (values == low).sum(axis=0)
    two_valued = is_high + is_low == len(values)
    enough = ~two_valued | (np.minimum(is_high, is_low) >= max(min_count, 1))
    return mean * unit, np.where(varied, deviation, 1.0), varied & enough
