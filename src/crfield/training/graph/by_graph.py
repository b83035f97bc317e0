"""A training problem that can be looked at one graph at a time.

Stochastic and block-wise methods change the weights after every graph (or few). They need the value and gradient of
a part alone, which is what `Parts` promises and `GraphByGraph` makes of a scorer, a batch that can be cut
(``batch.take(indices)``), a target, an objective and an engine. The sum over all parts is the whole objective, so
the same object also serves optimisers of whole batches.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.objectives.contrast import Engine
from crfield.training.full_batch import Objective, Scorer

MOST_PARTS = 2000  # beyond it several graphs share a part: a visit has a cost of its own


class Parts(Protocol):
    """A function of the weights that is a sum over parts."""

    @property
    def n_weights(self) -> int:
        """W."""
        ...

    @property
    def n_parts(self) -> int:
        """How many parts there are."""
        ...

    @property
    def exact(self) -> bool:
        """Whether every value so far was exact; what is concluded from others is not proven."""
        ...

    def evaluate_part(self, part: int, weights: np.ndarray, gradient: np.ndarray) -> float:
        """The value of one part; its gradient (W,) is written to ``gradient``."""
        ...


class GraphByGraph:
    """A scorer, a batch, a target, an objective and an engine, graph by graph.

    ``graphs_per_part`` graphs are looked at together; by default one, or more where there are thousands. Any batch
    with ``topology`` and ``take(indices)`` will do.

    >>> import numpy as np
    >>> from crfield.inference.graphs.brute import BruteEngine
    >>> from crfield.objectives.margin import Margin
    >>> class Nodes:  # a batch of isolated nodes with one number each
    ...     def __init__(self, x):
    ...         self.x, none = x, np.zeros(0, int)
    ...         self.topology = Graphs(np.arange(len(x) + 1), none, none)
    ...
    ...     def take(self, indices):
    ...         return Nodes(self.x[indices])
    >>> class Slope:  # the number times a weight scores label 1
    ...     n_weights = 1
    ...
    ...     def score(self, weights, batch):
    ...         return Potentials(np.outer(batch.x, [0, weights[0]]), np.zeros((1, 2, 2)), batch.topology)
    ...
    ...     def pull(self, node, edge, batch):
    ...         return np.array([batch.x @ node[:, 1]])
    >>> batch = Nodes(np.array([1.0, -2.0]))
    >>> target = Target(batch.topology, 2, np.array([1, 0]))
    >>> problem = GraphByGraph(Slope(), batch, target, objective=Margin(), engine=BruteEngine())
    >>> gradient = np.empty(1)
    >>> problem.n_parts, problem.evaluate_part(1, np.array([0.1]), gradient), gradient.tolist(), problem.exact
    (2, 0.8, [-2.0], True)
    """

    def __init__(
        self,
        scorer: Scorer,
        batch: Any,
        target: Target,
        *,
        objective: Objective,
        engine: Engine,
        graphs_per_part: int | None = None,
    ) -> None:
        if not callable(getattr(batch, "take", None)):
            raise InputError(
                f"training graph by graph needs a batch that can be cut, got {type(batch).__name__} without "
                "take(indices). Encode the data as graphs."
            )
        graphs = target.topology.n_sequences
        size = graphs_per_part or max(1, -(-graphs // MOST_PARTS))
        self.scorer, self.objective = scorer, objective
        self._engine = _Watched(engine)
        self._all = prepared(scorer, batch), target
        self._parts: list[tuple[Any, Target]] = []
        for first in range(0, graphs, size):
            chosen = np.arange(first, min(first + size, graphs))
            piece = batch.take(chosen)
            goal = take_target(target, chosen, piece.topology)
            self._parts.append((prepared(scorer, piece), goal))

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    @property
    def n_parts(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    @property
    def exact(self) -> bool:
        """Whether the engine said so every time."""
        return self._engine.exact

    def evaluate_part(self, part: int, weights: np.ndarray, gradient: np.ndarray) -> float:
        """The objective of one part; its gradient is written to ``gradient``."""
        return self._evaluate(*self._parts[part], weights, gradient)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """The whole objective in one go, which costs far less than part by part; the gradient as there."""
        return self._evaluate(*self._all, weights, gradient)

    def _evaluate(self, batch: Any, target: Target, weights: np.ndarray, gradient: np.ndarray) -> float:
        result = self.objective.evaluate(self.scorer.score(weights, batch), target, self._engine)
        gradient[:] = self.scorer.pull(result.node, result.edge, batch)
        return result.value


def prepared(scorer: Scorer, batch: Any) -> Any:
    """The batch with the work done that does not depend on the weights, where the scorer offers that."""
    prepare = getattr(scorer, "prepare", None)
    return batch if prepare is None else prepare(batch)


def whole(problem: Parts, weights: np.ndarray, gradient: np.ndarray) -> float:
    """The sum over all parts, in one go where the problem can; its gradient is written to ``gradient``."""
    if isinstance(problem, GraphByGraph):
        return problem.evaluate(weights, gradient)
    value, piece = 0.0, np.empty_like(gradient)
    gradient[:] = 0.0
    for part in range(problem.n_parts):
        value += problem.evaluate_part(part, weights, piece)
        gradient += piece
    return value


def take_target(target: Target, chosen: np.ndarray, topology: Chains | Graphs) -> Target:
    """The target of the chosen graphs, which lie on ``topology`` in the same order.

    >>> import numpy as np
    >>> target = Target(Chains.from_lengths([2, 1, 2]), 3, np.array([0, 1, 2, 2, 0]))
    >>> take_target(target, np.array([2, 1]), Chains.from_lengths([2, 1])).labels.tolist()
    [2, 0, 2]
    """
    starts, lengths = target.topology.offsets[chosen], target.topology.lengths[chosen]
    nodes = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return Target(
        topology,
        target.n_labels,
        target.labels[nodes],
        None if target.allowed is None else target.allowed[nodes],
        None if target.weight is None else target.weight[chosen],
    )


class _Watched:
    """An engine that remembers whether all its answers were exact."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.exact = engine, True

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """What the engine says."""
        beliefs = self.engine.infer(potentials, semiring)
        self.exact &= beliefs.exact
        return beliefs
