"""No selection: all candidates at once, for comparison and for sets that somebody has chosen already."""

from __future__ import annotations

import numpy as np

from crfield.selection.methods.grafting import Watch
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder


def everything(
    problem: SelectionProblem, *, l2: float = 1.0, tol: float = 1e-6, max_iter: int = 300, watch: Watch | None = None
) -> SelectionPath:
    """A path of one round, with every candidate whose column is not constant, under a ridge.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> chains = Chains.from_lengths([4])
    >>> columns = MatrixColumns(np.array([[0.0, 1], [0, 1], [1, 1], [2, 1]]), chains=chains, n_labels=2)
    >>> path = everything(SelectionProblem(columns, Target(chains, 2, np.array([0, 0, 1, 1]))))
    >>> [one.n_features for one in path], path[0].added
    ([2], ('s0 | 0', 's0 | 1'))
    """
    record = Recorder(problem, "all", watch=watch)
    chosen = np.flatnonzero(problem.usable)
    record.add(problem.fit(chosen, l2=l2, tol=tol, max_iter=max_iter), added=chosen)
    record.stop("everything is in")
    return record.path()
