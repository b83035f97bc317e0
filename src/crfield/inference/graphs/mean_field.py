"""Mean field: the best product of independent nodes, and a lower bound of the total.

    log Z  ≥  E_q[score] + H(q)      for every q(y) = Π_n q_n(y_n)

with equality never on edges that matter, but with a guarantee that belief propagation lacks. Coordinate ascent
sets each q_n to its best given its neighbours, and the bound rises with every step, so it always ends (Jordan et al.
1999, *An introduction to variational methods for graphical models*). Where it ends depends on the start: the bound
has many local optima, above all where neighbours attract strongly. The first start is softmax(node), further
``restarts`` are random, and each graph keeps the one with the highest bound.

A forbidden pair has the score −∞, and a product that gives it any weight the bound −∞. So where pairs are forbidden
one more start is a single possible labelling (`inference.graphs.ladder`), from which only labels that clash with
nothing around them gain weight: correct, though often a loose bound.

Beliefs of edges are products of beliefs of nodes. Under MAX the answer is the most probable label of every node,
improved by changes of one node at a time. A sweep costs O(N L + E L²).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.inference.graphs.feasible import forbids_pairs
from crfield.inference.graphs.ladder import around, climb
from crfield.inference.graphs.site_search import best_of, labelling_beliefs
from crfield.inference.labellings import check_scores
from crfield.kernels import sites

RUNGS = 50  # sweeps towards a possible start


@dataclass(frozen=True)
class MeanFieldEngine:
    """Beliefs of independent nodes, and a lower bound of the total.

    A graph is done when a sweep moves no belief by more than ``tol``.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> beliefs = MeanFieldEngine().infer(scores, Semiring.LOG)
    >>> round(float(np.exp(beliefs.total[0])), 9), beliefs.node[0].round(9).tolist(), beliefs.bound
    (8.0, [0.25, 0.75], 'lower')
    """

    max_sweeps: int = 1000
    tol: float = 1e-8
    restarts: int = 1
    random_state: int = 0
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.max_sweeps < 1 or self.restarts < 1 or not self.tol >= 0:
            raise InputError(
                "mean field needs max_sweeps ≥ 1, restarts ≥ 1 and tol ≥ 0, got "
                f"{self.max_sweeps}, {self.restarts} and {self.tol}."
            )

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Lower bound and beliefs, or the labelling that they suggest."""
        check_scores(potentials)
        topology, lists = potentials.topology, around(potentials)
        beliefs, bounds, sweeps, settled = sites.mean_field(
            topology.offsets,
            lists,
            potentials.node,
            potentials.edge,
            self._starts(potentials),
            max_sweeps=self.max_sweeps,
            tol=self.tol,
            n_jobs=self.n_jobs,
        )
        best, graphs = bounds.argmax(axis=0), np.arange(topology.n_sequences)
        total, owner = bounds[best, graphs], topology.sequence_of_node
        q = beliefs[best[owner], np.arange(topology.n_nodes)]
        converged = bool(settled[best, graphs].all())
        n_sweeps = int(sweeps.max(initial=0))
        if semiring is Semiring.MAX:
            found = q.argmax(axis=1)
            better, _, _ = sites.icm(
                topology.offsets, lists, potentials.node, potentials.edge, found[None], n_jobs=self.n_jobs
            )
            labels = best_of(potentials, np.concatenate([found[None], better]))
            return labelling_beliefs(potentials, labels, converged=converged, sweeps=n_sweeps)
        q[np.isneginf(total)[owner]] = 0.0
        return Beliefs(total, q, edge_products(potentials, q), False, converged, n_sweeps, "lower")

    def _starts(self, potentials: Potentials) -> np.ndarray:
        """(R, N, L): softmax(node), random ones, and a possible labelling where pairs are forbidden."""
        node, rng = potentials.node, np.random.default_rng(self.random_state)
        scores = np.broadcast_to(node, (self.restarts, *node.shape)).copy()
        scores[1:] = np.log(rng.exponential(size=scores[1:].shape)) + np.where(np.isneginf(node), -np.inf, 0.0)
        top = scores.max(axis=2, keepdims=True)
        starts = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
        starts[starts.sum(axis=2) == 0] = 1.0  # a node without any label: its graph has the bound −∞ anyhow
        starts /= starts.sum(axis=2, keepdims=True)
        if not forbids_pairs(potentials):
            return starts
        ladder = climb(potentials, n_chains=1, n_rungs=RUNGS, seed=self.random_state, n_jobs=self.n_jobs)
        return np.concatenate([starts, np.eye(potentials.n_labels)[ladder.labels]])


def edge_products(potentials: Potentials, q: np.ndarray) -> np.ndarray:
    """(T, L, L) Σ_e q_tail(i) q_head(j) over the edges of each table, for beliefs (N, L) of the nodes.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([3]))
    >>> edge_products(scores, np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])).tolist()
    [[[0.75, 0.75], [0.25, 0.25]]]
    """
    topology, tables = potentials.topology, potentials.tables
    order = np.argsort(tables, kind="stable")
    out = np.zeros_like(potentials.edge)
    step = max(1, 2**22 // max(1, potentials.n_labels) ** 2)  # edges whose products are held at once
    for first in range(0, len(order), step):
        edges = order[first : first + step]
        products = q[topology.tails[edges]][:, :, None] * q[topology.heads[edges]][:, None, :]
        begins = np.flatnonzero(np.diff(tables[edges], prepend=-1))
        out[tables[edges[begins]]] += np.add.reduceat(products, begins, axis=0)
    return out
