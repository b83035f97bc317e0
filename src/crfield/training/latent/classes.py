"""`HiddenClasses`: one label for each sequence and states hidden below, as a problem of a latent training.

A class is a chain of its own over the hidden states, and its probability that of all its paths: the total of a
sequence is pooled over classes (`pooled`), and the slope of a class is that of its chains, each counted by the
probability of the class. Engines that share a table give sums over all edges and have no room for such counts;
`weighed_beliefs` says how one more state makes some.
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.inference.chain import ChainEngine
from crfield.optimize.basis import Basis
from crfield.optimize.penalty import Penalty
from crfield.scoring.latent import ClassScorer
from crfield.training.column_basis import Moments, column_basis, column_places, mixed, numeric


class HiddenClasses:
    """One label for each sequence, states hidden below: K chains of S states for every sequence.

        value = Σ_s weight_s [ log Σ_y Z_y(x_s) − log Σ_{y allowed} Z_y(x_s) ]

    The slope of a class is that of its chains, each counted by the probability of the class (`weighed_beliefs`).
    """

    def __init__(
        self,
        scorer: ClassScorer,
        batch: Batch,
        allowed: np.ndarray,  # (B, K) bool
        weight: np.ndarray | None = None,  # (B,)
        *,
        n_jobs: int = 1,
    ) -> None:
        self.scorer, self.batch, self.allowed, self.n_jobs = scorer, batch, allowed, n_jobs
        self.weight = np.ones(batch.topology.n_sequences) if weight is None else weight

    @property
    def n_weights(self) -> int:
        """W."""
        return self.scorer.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """free − clamped; the gradient is written to ``gradient``."""
        return self._sum(weights, gradient, free=1.0, clamped=-1.0)

    def free(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over everything, and its gradient."""
        return self._sum(weights, gradient, free=1.0, clamped=0.0)

    def clamped(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Σ_s weight_s · total over the classes that are allowed, and its gradient."""
        return self._sum(weights, gradient, free=0.0, clamped=1.0)

    def _sum(self, weights: np.ndarray, gradient: np.ndarray, *, free: float, clamped: float) -> float:
        scorer, chains = self.scorer, self.batch.topology
        shared = scorer.shared(weights, self.batch)
        nodes, edges = scorer.tables(weights)
        totals = class_totals(scorer, weights, self.batch, n_jobs=self.n_jobs)  # (B, K)
        value, slopes = 0.0, (np.zeros_like(shared), np.zeros_like(nodes), np.zeros_like(edges))
        for factor, allowed in ((free, np.ones_like(self.allowed)), (clamped, self.allowed)):
            if not factor:
                continue
            total, share = pooled(np.where(allowed, totals, -np.inf))
            value += factor * float(self.weight @ total)
            for k in range(scorer.n_classes):
                own = np.flatnonzero(allowed[:, k])
                part = self._rows(own)
                node, edge = weighed_beliefs(
                    Potentials(shared[part] + nodes[k], edges[k][None], Chains.from_lengths(chains.lengths[own])),
                    totals[own, k],
                    share[own, k],
                    self.weight[own],
                    n_jobs=self.n_jobs,
                )
                slopes[0][part] += factor * node
                slopes[1][k] += factor * node.sum(axis=0)
                slopes[2][k] += factor * edge
        gradient[:] = scorer.pull(*slopes, self.batch)
        return value

    def _rows(self, sequences: np.ndarray) -> np.ndarray | slice:
        """The steps of some sequences, which rise."""
        chains = self.batch.topology
        if len(sequences) == chains.n_sequences:
            return slice(None)
        inside = np.zeros(chains.n_sequences, bool)
        inside[sequences] = True
        return np.flatnonzero(inside[chains.sequence_of_node])


def class_basis(problem: HiddenClasses, penalty: Penalty) -> Basis | None:
    """Coordinates in which numeric columns are centred and of one size (`training.column_basis`), if there are some.

    Classes share the columns' weights, and each has intercepts θ(y, h): a column's mean goes to those of all classes.
    """
    if penalty.l1 or not numeric(problem.batch):
        return None
    telling = problem.weight * ~problem.allowed.all(axis=1)  # a sequence that may be of any class bends nothing
    scorer, moments = problem.scorer, Moments.of(problem.batch, telling)
    columns, states, size = scorer.columns, scorer.n_states, scorer.n_weights
    if moments.even:
        return None
    own = column_basis(columns, moments, Penalty(l2=penalty.l2)).scale
    bend = np.full(size - len(own), moments.n_edges / (scorer.n_classes * states**2))
    bend[: scorer.n_classes * states] = moments.count / (scorer.n_classes * states)
    intercepts = np.arange(len(own), len(own) + scorer.n_classes * states).reshape(-1, states)
    blocks = mixed(column_places(columns, moments), intercepts, moments, states, penalty.ridge(size))
    scale = np.concatenate([own, 1.0 / np.sqrt(np.maximum(bend + penalty.l2, 1e-3))])
    return Basis(scale, tuple(blocks))


def class_totals(scorer: ClassScorer, weights: np.ndarray, batch: Batch, *, n_jobs: int = 1) -> np.ndarray:
    """(B, K) log Z_y of every sequence and class."""
    engine = ChainEngine(n_jobs)
    return np.stack([engine.infer(p, Semiring.LOG).total for p in scorer.score(weights, batch)], axis=1)


def pooled(totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ_k exp of every row (b,), and the share of each entry (b, K); no row may be −∞ throughout.

    >>> total, share = pooled(np.log([[1.0, 3.0]]))
    >>> total.round(6).tolist(), share.round(6).tolist()
    ([1.386294], [[0.25, 0.75]])
    """
    top = totals.max(axis=1, keepdims=True)
    parts = np.exp(totals - top)
    whole = parts.sum(axis=1, keepdims=True)
    return (top + np.log(whole))[:, 0], parts / whole


def weighed_beliefs(
    potentials: Potentials, total: np.ndarray, share: np.ndarray, weight: np.ndarray, *, n_jobs: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Beliefs of chains that share a table, sequence s counted share_s · weight_s times: (N, S) and, summed, (S, S).

    Where edges share a table, engines give the sum over all of them, which is fast and has no room for weights. So
    each chain gets a way out: one more state, which no other leads to or from, scored so that the paths inside have
    the probability share_s · weight_s / max weight. ``total`` (B,) are the log Z of the chains as they are.

    >>> scores = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2, 1]))
    >>> node, edge = weighed_beliefs(scores, np.log([4.0, 2.0]), np.array([0.5, 1.0]), np.array([1.0, 3.0]))
    >>> node.round(6).tolist(), edge.round(6).tolist()
    ([[0.25, 0.25], [0.25, 0.25], [1.5, 1.5]], [[0.125, 0.125], [0.125, 0.125]])
    """
    chains, states = potentials.topology, potentials.n_labels
    most = float(weight.max(initial=0.0))
    if most == 0:
        return np.zeros_like(potentials.node), np.zeros((states, states))
    some = chains.lengths > 0
    first = chains.offsets[:-1][some]
    node = np.zeros((chains.n_nodes, states + 1))
    node[:, :states] = potentials.node
    with np.errstate(divide="ignore"):
        inside = (share * (weight / most))[some]
        node[first, :states] += np.log(inside)[:, None]
        node[first, states] = total[some] + np.log1p(-np.minimum(inside, 1.0))
    edge = np.full((1, states + 1, states + 1), -np.inf)
    edge[0, :states, :states] = potentials.edge[0]
    edge[0, states, states] = 0.0
    beliefs = ChainEngine(n_jobs).infer(Potentials(node, edge, chains), Semiring.LOG)
    return most * beliefs.node[:, :states], most * beliefs.edge[0, :states, :states]
