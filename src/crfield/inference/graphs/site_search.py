"""The best labelling by changes of one node at a time: baselines for exact and for clever engines.

*Iterated conditional modes* (Besag 1986, *On the statistical analysis of dirty pictures*) lets every node take its
best label given its neighbours until none would change: a local optimum, reached in a few sweeps, and often a poor
one. *Annealing* (Kirkpatrick, Gelatt & Vecchi 1983; Geman & Geman 1984) draws labels from exp(score / temperature)
while the temperature falls, so that it can leave poor optima early and settles late. Here annealing sets out from
what ICM found and keeps the best labelling met, so that it is never worse than `IcmEngine` with as many restarts and
the same ``random_state``; it ends with ICM.

Both find labellings only: LOG is refused. The first restart begins with every node's own best label, the others with
labels drawn from softmax(node); where pairs are forbidden, from labellings that obey them
(`inference.graphs.ladder`). A sweep costs O(N L + E L).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.inference.graphs.feasible import forbids_pairs
from crfield.inference.graphs.ladder import around, climb, spreads
from crfield.inference.labellings import check_scores, one_hot, path_scores
from crfield.kernels import sites

RUNGS = 50  # sweeps towards a possible start


@dataclass(frozen=True)
class IcmEngine:
    """Iterated conditional modes, the best of several ``restarts``.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> agree = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> scores = Potentials(np.array([[0.0, 3.0], [0.5, 0.0], [0.5, 0.0]]), agree, Chains.from_lengths([3]))
    >>> beliefs = IcmEngine().infer(scores, Semiring.MAX)
    >>> beliefs.total.tolist(), beliefs.exact, beliefs.bound
    ([5.0], False, 'lower')
    """

    restarts: int = 8
    max_sweeps: int = 1000
    random_state: int = 0
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.restarts < 1 or self.max_sweeps < 1:
            raise InputError(f"ICM needs restarts ≥ 1 and max_sweeps ≥ 1, got {self.restarts} and {self.max_sweeps}.")

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """The best of the local optima as zeros and ones, with its score; ``converged`` if all restarts settled."""
        _refuse_sums(semiring, "ICM")
        labels, sweeps, settled = self.climb(potentials)
        return labelling_beliefs(potentials, best_of(potentials, labels), converged=settled, sweeps=sweeps)

    def climb(self, potentials: Potentials) -> tuple[np.ndarray, int, bool]:
        """Where each restart ended (C, N), the sweeps that the longest took, and whether all settled.

        >>> import numpy as np
        >>> from crfield.core.topology import Chains
        >>> scores = Potentials(np.array([[0.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([1]))
        >>> IcmEngine(restarts=2).climb(scores)[0].tolist()
        [[1], [1]]
        """
        check_scores(potentials)
        labels = _starts(potentials, self.restarts, self.random_state, self.n_jobs)
        labels, sweeps, settled = sites.icm(
            potentials.topology.offsets,
            around(potentials),
            potentials.node,
            potentials.edge,
            labels,
            max_sweeps=self.max_sweeps,
            n_jobs=self.n_jobs,
        )
        return labels, int(sweeps.max(initial=0)), bool(settled.all())


@dataclass(frozen=True)
class AnnealingEngine:
    """Simulated annealing: the temperature falls from ``hot`` to ``cold`` by a constant factor over ``n_sweeps``.

    Temperatures are in units of the mean spread of the scores (largest less smallest of a node's row or an edge's
    table), so that they need no change where scores are larger.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    >>> differ = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    >>> AnnealingEngine().infer(Potentials(np.zeros((4, 2)), differ, square), Semiring.MAX).total.tolist()
    [4.0]
    """

    n_sweeps: int = 200
    hot: float = 2.0
    cold: float = 0.02
    restarts: int = 4
    random_state: int = 0
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.n_sweeps < 1 or self.restarts < 1 or not self.hot >= self.cold > 0:
            raise InputError(
                "annealing needs n_sweeps ≥ 1, restarts ≥ 1 and temperatures hot ≥ cold > 0, got "
                f"{self.n_sweeps}, {self.restarts}, {self.hot} and {self.cold}."
            )

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """The best labelling met as zeros and ones, with its score."""
        _refuse_sums(semiring, "annealing")
        icm = IcmEngine(self.restarts, random_state=self.random_state, n_jobs=self.n_jobs)
        starts, _, _ = icm.climb(potentials)
        scale = 1.0 / (_mean_spread(potentials) * np.geomspace(self.hot, self.cold, self.n_sweeps))
        offsets, lists = potentials.topology.offsets, around(potentials)
        walk = sites.gibbs(
            offsets,
            lists,
            potentials.node,
            potentials.edge,
            starts,
            node_scale=scale,
            edge_scale=scale,
            burn_in=self.n_sweeps,
            seed=int(np.random.SeedSequence([self.random_state, 1]).generate_state(1, np.uint64)[0]),
            n_jobs=self.n_jobs,
        )
        ends = np.concatenate([walk.best, walk.labels])
        labels, _, settled = sites.icm(offsets, lists, potentials.node, potentials.edge, ends, n_jobs=self.n_jobs)
        best = best_of(potentials, np.concatenate([starts, labels]))
        return labelling_beliefs(potentials, best, converged=bool(settled.all()), sweeps=self.n_sweeps)


def best_of(potentials: Potentials, labels: np.ndarray) -> np.ndarray:
    """(N,) the labelling with the highest score among (C, N), graph by graph.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.array([[0.0, 1.0], [2.0, 0.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([1, 1]))
    >>> best_of(scores, np.array([[0, 0], [1, 1]])).tolist()
    [1, 0]
    """
    scores = np.array([path_scores(potentials, y) for y in labels])
    which = scores.argmax(axis=0)[potentials.topology.sequence_of_node]
    return labels[which, np.arange(labels.shape[1])]


def labelling_beliefs(potentials: Potentials, labels: np.ndarray, *, converged: bool, sweeps: int) -> Beliefs:
    """A labelling (N,) found by search: its score, a lower bound of the best one, and its zeros and ones.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.array([[0.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([1]))
    >>> labelling_beliefs(scores, np.array([1]), converged=True, sweeps=1).total.tolist()
    [1.0]
    """
    total = path_scores(potentials, labels)
    node, edge = one_hot(potentials, labels, possible=~np.isneginf(total))
    return Beliefs(total, node, edge, False, converged, sweeps, "lower")


def _refuse_sums(semiring: Semiring, what: str) -> None:
    if semiring is not Semiring.MAX:
        raise InputError(
            f"{what} finds a labelling (Semiring.MAX); it has no sum over labellings, so no marginals. "
            "Use GibbsEngine, MeanFieldEngine or a belief propagation engine for Semiring.LOG."
        )


def _starts(potentials: Potentials, restarts: int, random_state: int, n_jobs: int) -> np.ndarray:
    """(C, N) labellings to set out from, possible ones where there are any."""
    seed = int(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0])
    if forbids_pairs(potentials):
        return climb(potentials, n_chains=restarts, n_rungs=RUNGS, seed=seed, n_jobs=n_jobs).labels
    noise = np.random.default_rng(seed).gumbel(size=(restarts, *potentials.node.shape))
    noise[0] = 0.0  # and a Gumbel-perturbed maximum is a draw from softmax(node)
    return (potentials.node + noise).argmax(axis=2).astype(np.int32)


def _mean_spread(potentials: Potentials) -> float:
    """Mean over nodes and edge tables in use of the difference between their largest and smallest finite score."""
    edge = potentials.edge[np.unique(potentials.tables)]
    spread = np.concatenate([spreads(potentials.node), spreads(edge)])
    return float(spread.mean()) if spread.any() else 1.0
