"""The exact engine for graphs without loops.

A forest is a chain whose past may fork: one pass from the leaves to the roots and one back give totals and marginals
in O(N L²), for any tree. Trees are split over threads, also those of one graph, so that a graph of many interleaved
chains is as fast as a batch of them. The order of the nodes is found once for a topology and kept as long as the
topology lives. See ``native/forest/sweep.cpp`` for how the recursion stays exact for any finite scores and for
forbidden ones.

Reference: Pearl, *Probabilistic Reasoning in Intelligent Systems* (1988), chapter 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.labellings import check_scores, one_hot
from crfield.kernels import forest
from crfield.kernels.forest import ForestOrder, GraphScores

_orders: WeakKeyDictionary[Chains | Graphs, dict[int, ForestOrder]] = WeakKeyDictionary()


@dataclass(frozen=True)
class ForestEngine:
    """Exact totals and marginals of graphs without loops; edges that join the same two nodes count as one.

    >>> import numpy as np
    >>> star = Graphs(np.array([0, 4]), tails=np.array([0, 2, 0]), heads=np.array([1, 0, 3]))
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), np.zeros((1, 2, 2)), star)
    >>> beliefs = ForestEngine().infer(scores, Semiring.LOG)
    >>> round(float(np.exp(beliefs.total[0])), 12), beliefs.node[0].round(12).tolist(), beliefs.exact
    (32.0, [0.25, 0.75], True)
    """

    n_jobs: int = 1

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total of each graph and its gradient with respect to the scores."""
        if semiring is Semiring.MAX:
            total, labels = self.best_labelling(potentials)
            return Beliefs(total, *one_hot(potentials, labels, possible=~np.isneginf(total)))
        check_scores(potentials)
        order = _order_of(potentials.topology, self.n_jobs)
        return Beliefs(*forest.sum_product(order, graph_scores(potentials), n_jobs=self.n_jobs))

    def best_labelling(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """Score (B,) and labels (N,) of the best labelling of each graph; the score is −∞ where none is possible.

        >>> import numpy as np
        >>> pair = Graphs(np.array([0, 2]), tails=np.array([1]), heads=np.array([0]))
        >>> scores = Potentials(np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([[[0.0, 0.0], [2.0, 0.0]]]), pair)
        >>> ForestEngine().best_labelling(scores)
        (array([2.]), array([0, 1], dtype=int32))
        """
        check_scores(potentials)
        order = _order_of(potentials.topology, self.n_jobs)
        return forest.max_product(order, graph_scores(potentials), n_jobs=self.n_jobs)


def graph_scores(potentials: Potentials) -> GraphScores:
    """The scores as the kernels for graphs read them."""
    topology = potentials.topology
    return GraphScores(
        topology.offsets, topology.tails, topology.heads, potentials.tables, potentials.node, potentials.edge
    )


def _order_of(topology: Chains | Graphs, n_jobs: int) -> ForestOrder:
    known = _orders.setdefault(topology, {})
    if n_jobs not in known:
        loop, order = forest.order(topology.offsets, topology.tails, topology.heads, n_jobs=n_jobs)
        if order is None:
            raise InputError(
                f"the forest engine reads graphs without loops, but graph {loop} has one. Use JunctionTreeEngine for "
                "exact answers if its loops are narrow, or an approximate engine such as loopy belief propagation."
            )
        known[n_jobs] = order
    return known[n_jobs]
