"""The fused training problem: linear scorer, exact chains, likelihood, in one compiled call.

It keeps the data packed for the kernel (columns regrouped by sequence length, weights in hybrid rows). Every call
works in scratch of its own, so two threads may evaluate one problem at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.kernels import linear
from crfield.scoring.constraints import refuse_illegal
from crfield.scoring.layout import Layout


class FusedChain:
    """Negative log-likelihood of a linear chain model on a labelled batch.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Columns
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> target = Target(batch.topology, 2, np.array([0, 1]))
    >>> layout = Layout.observe(batch, target)
    >>> problem = FusedChain(layout, batch, target)
    >>> gradient = np.empty(layout.n_weights)
    >>> round(problem.evaluate(np.zeros(layout.n_weights), gradient), 6)
    1.386294
    """

    def __init__(self, layout: Layout, batch: Batch, target: Target, *, n_jobs: int = 1) -> None:
        self.layout, self.n_jobs = layout, n_jobs
        if layout.fixed is not None:
            refuse_illegal(layout.fixed, target)
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        self._problem = linear.Problem(layout, batch, target.labels, target.allowed, target.weight)

    def packed(self) -> dict[str, np.ndarray]:
        """The data as they were packed, for a file; `restore` makes the same problem of them."""
        return self._problem.packed()

    @classmethod
    def restore(
        cls,
        layout: Layout,
        workspace: linear.Workspace,
        arrays: dict[str, np.ndarray],
        *,
        n_jobs: int = 1,
        check: bool = True,
    ) -> Self:
        """The problem that was `packed`; ValueError where the arrays do not fit (`linear.Problem.restore`)."""
        made = cls.__new__(cls)
        made.layout, made.n_jobs, made.columns, made.moments = layout, n_jobs, None, None
        made._problem = linear.Problem.restore(workspace, arrays, check=check)
        return made

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    @property
    def n_groups(self) -> int:
        """Number of groups of sequences that one stochastic step uses."""
        return self._problem.n_groups

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        return self._problem.evaluate(weights, gradient, n_jobs=self.n_jobs)

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative."""
        return self._problem.curvature(weights, n_jobs=self.n_jobs)

    def descend(
        self, weights: np.ndarray, order: np.ndarray, *, step: float, done: float, horizon: float, l2: float
    ) -> float:
        """Stochastic steps over the groups in ``order``; changes the weights, gives the loss met on the way."""
        return self._problem.descend(weights, order, step=step, done=done, horizon=horizon, l2=l2)


class FusedSums:
    """One value and gradient over many fused problems of one workspace, which come one after the other."""

    def __init__(self, workspace: linear.Workspace, *, n_jobs: int = 1) -> None:
        self._sums = linear.Sums(workspace, n_jobs=n_jobs)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray, problems: Iterable[Any]) -> float:
        """Value; the gradient is written to ``gradient``."""
        return self._sums.evaluate((problem._problem for problem in problems), weights, gradient)
