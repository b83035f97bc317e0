"""The plain training problem: score, evaluate, pull, whatever the parts are.

Any scorer, objective and engine meet here. When they are the plain ones, `training.likelihood` does the same in one
compiled call; a contract test holds the two together.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.objectives.contrast import Engine


class Scorer(Protocol):
    """Weights and a batch in, potentials out, and back."""

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    def score(self, weights: np.ndarray, batch: Any) -> Potentials:
        """Potentials of the batch."""
        ...

    def pull(self, node: np.ndarray, edge: np.ndarray, batch: Any) -> np.ndarray:
        """Gradient of the potentials to gradient of the weights."""
        ...


class Objective(Protocol):
    """Potentials and a target in, value and gradient out."""

    def evaluate(self, potentials: Potentials, target: Target, engine: Any) -> Evaluation:
        """Value, and gradient in the shape of the potentials."""
        ...


class FullBatch:
    """A scorer, a batch, a target, an objective and an engine as one function of the weights.

    ``settled`` tells whether the engine had converged in the last evaluation, ``n_unsettled`` in how many it had not.
    """

    def __init__(
        self, scorer: Scorer, batch: Any, target: Target, *, objective: Objective, engine: Engine | None
    ) -> None:
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        self.scorer, self.batch, self.target = scorer, batch, target
        self.objective, self.engine = objective, engine
        self.settled, self.n_unsettled = True, 0

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the objective; its gradient is written to ``gradient``."""
        potentials = self.scorer.score(weights, self.batch)
        result = self.objective.evaluate(potentials, self.target, self.engine)
        gradient[:] = self.scorer.pull(result.node, result.edge, self.batch)
        self.settled = result.converged
        self.n_unsettled += not result.converged
        return result.value
