"""The candidates of a problem as its models see them: standardised, and on the training part alone.

Scores that are not inner products with a gradient (gains, squares of blocks, information) need columns. This is the
same door as that of the candidates, `LazyColumns`, so that whatever is written for raw columns works on standardised
ones too.
"""

from __future__ import annotations

import numpy as np

from crfield.core.topology import Chains
from crfield.features.lazy_columns import Places
from crfield.selection.problem import SelectionProblem


class StandardisedColumns:
    """`LazyColumns` over the training part of a problem.

    >>> from crfield.core.target import Target
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> columns = MatrixColumns(np.array([[1.0], [3.0], [9.0]]), chains=Chains.from_lengths([3]), n_labels=2)
    >>> problem = SelectionProblem(columns, Target(columns.chains, 2, np.array([0, 1, 1])), spans=[(0, 2)])
    >>> StandardisedColumns(problem).chunk(np.array([0])).ravel().tolist()
    [-1.0, 1.0]
    """

    def __init__(self, problem: SelectionProblem) -> None:
        self._problem = problem

    @property
    def chains(self) -> Chains:
        """The training part."""
        return self._problem.train.chains

    @property
    def n_labels(self) -> int:
        """L."""
        return self._problem.n_labels

    @property
    def n_columns(self) -> int:
        """Distinct columns."""
        return self._problem.candidates.n_columns

    @property
    def n_candidates(self) -> int:
        """Candidates."""
        return self._problem.n_candidates

    @property
    def link(self) -> np.ndarray:
        """(n_columns,) 0 for state-linked, 1 for transition-linked columns."""
        return self._problem.candidates.link

    def name(self, candidate: int) -> str:
        """Name of a candidate."""
        return self._problem.candidates.name(candidate)

    def column_name(self, column: int) -> str:
        """Name of a column."""
        return self._problem.candidates.column_name(column)

    def places(self, candidates: np.ndarray | None = None) -> Places:
        """Column and labels of some candidates, or of all."""
        return self._problem.candidates.places(candidates)

    def chunk(self, columns: np.ndarray) -> np.ndarray:
        """(n, len(columns)) standardised values on the training part; 0 for columns that cannot be chosen."""
        view, scale = self._problem.train, self._problem.scale
        values = view.candidates.chunk(columns)
        if view.rows is not None:
            values = values[view.rows]
        values = (values - scale.mean[columns]) / scale.deviation[columns]
        values[:, ~scale.usable[columns]] = 0.0
        return values

    def scores(self, node: np.ndarray | None, edge: np.ndarray | None, *, n_jobs: int = 1) -> np.ndarray:
        """(n_candidates,) inner products with a gradient of the training part; the problem says how many jobs."""
        chains, labels = self.chains, self.n_labels
        node = np.zeros((chains.n_nodes, labels)) if node is None else node
        edge = np.zeros((chains.n_edges, labels, labels)) if edge is None else edge
        return self._problem.scores(node, edge)
