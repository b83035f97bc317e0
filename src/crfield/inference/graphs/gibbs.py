"""Gibbs sampling: marginals by drawing labels, with an estimate of their error.

Each sweep draws every node anew given its neighbours (Geman & Geman 1984). It needs no tree and no clique, only
time, and its answers are as good as the number of *independent* draws. So the answers come with diagnostics:

- Several chains run from starts of their own (`inference.graphs.ladder`), and *split R-hat* (Gelman & Rubin 1992;
  Gelman et al. 2013) compares them and their halves with each other: near one where all saw the same distribution.
  Above ``max_r_hat`` at any node the result says ``converged=False``.
- *Standard errors* are those of the means of batches of consecutive sweeps, or of half chains where these are larger,
  as they are when chains stay on one side for longer than a batch.
- The *effective sample size* is the number of independent draws that would have had that standard error.

Marginals average the distributions that labels were drawn from, not the labels (Rao–Blackwell: Gelfand & Smith 1990),
which is never worse. The total is the ladder's estimate.

What no diagnostic sees: a mode that no chain has met. And where forbidden pairs leave no way between two labellings
by changes of one node at a time, chains stay on their side; the starts then decide, and R-hat usually tells.

A sweep costs O(N L + E L) and an exponential for each label of each node. Chains run in parallel (``n_jobs``); the
result does not depend on how many do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.inference.graphs.ladder import around, climb
from crfield.inference.labellings import check_scores, one_hot, path_scores
from crfield.kernels import sites

BATCHES = 20  # of each chain, for standard errors
CLIMBERS = 4  # chains on the ladder for each chain that goes on from there


@dataclass(frozen=True, eq=False)
class Samples:
    """What the chains saw: marginals, their errors, and the best labelling met.

    Rows of nodes in graphs where nothing is possible are zeros.
    """

    node: np.ndarray  # (N, L) marginals
    edge: np.ndarray  # (T, L, L) marginals of pairs, summed over edges that share a table
    total: np.ndarray  # (B,) estimate of log Z
    total_error: np.ndarray  # (B,) its standard error as the spread of the chains tells it
    standard_error: np.ndarray  # (N, L) of ``node``
    effective_size: np.ndarray  # (N, L) independent draws that would do as well, at most those made
    r_hat: np.ndarray  # (N, L)
    labels: np.ndarray  # (C, N) int32, where the chains ended
    best: np.ndarray  # (N,) int32, the best labelling met
    best_score: np.ndarray  # (B,)
    trace: np.ndarray  # (C, S) score of the labelling of all graphs after each sweep, burn-in included
    n_draws: int  # sweeps kept, of all chains
    converged: bool


class Advanced(NamedTuple):
    """Chains that were continued: where they are now, and the mean of what they saw in the shape of the scores."""

    labels: np.ndarray  # (C, N) int32
    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (T, L, L)


@dataclass(frozen=True)
class GibbsEngine:
    """Marginals from ``n_chains`` chains of ``n_sweeps`` kept sweeps each, after ``burn_in`` more.

    ``n_rungs`` is the number of sweeps that lead to each chain's start; the total comes from those, four times
    as many climbing as go on. Of ``n_sweeps``, what is
    left over when they are divided into batches joins the burn-in. Under MAX the answer is the best labelling met.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> beliefs = GibbsEngine(n_sweeps=100).infer(scores, Semiring.LOG)
    >>> beliefs.node.round(12).tolist(), beliefs.exact, beliefs.bound
    ([[0.25, 0.75], [0.5, 0.5]], False, 'estimate')
    """

    n_sweeps: int = 1000
    burn_in: int = 100
    n_chains: int = 4
    n_rungs: int = 200
    max_r_hat: float = 1.05
    random_state: int = 0
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.n_sweeps < 4 or self.n_chains < 1 or self.burn_in < 0 or self.n_rungs < 2:
            raise InputError(
                "Gibbs sampling needs n_sweeps ≥ 4, n_chains ≥ 1, burn_in ≥ 0 and n_rungs ≥ 2, got "
                f"{self.n_sweeps}, {self.n_chains}, {self.burn_in}, {self.n_rungs}."
            )

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Estimated total and marginals, or the best labelling met."""
        samples = self.sample(potentials)
        sweeps = self.n_rungs + samples.trace.shape[1]
        if semiring is Semiring.MAX:
            total = samples.best_score
            node, edge = one_hot(potentials, samples.best, possible=~np.isneginf(total))
            return Beliefs(total, node, edge, False, samples.converged, sweeps, "lower")
        return Beliefs(samples.total, samples.node, samples.edge, False, samples.converged, sweeps, "estimate")

    def sample(self, potentials: Potentials) -> Samples:
        """Run the chains.

        >>> import numpy as np
        >>> from crfield.core.graphs import Graphs
        >>> triangle = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
        >>> scores = Potentials(np.zeros((3, 2)), np.array([[[1.0, 0.0], [0.0, 1.0]]]), triangle)
        >>> samples = GibbsEngine().sample(scores)
        >>> samples.converged, bool((abs(samples.node - 0.5) < 5 * samples.standard_error).all())
        (True, True)
        """
        check_scores(potentials)
        first, second = np.random.SeedSequence(self.random_state).generate_state(2, np.uint64)
        climbers = CLIMBERS * self.n_chains
        ladder = climb(potentials, n_chains=climbers, n_rungs=self.n_rungs, seed=int(first), n_jobs=self.n_jobs)
        batches = BATCHES if self.n_sweeps >= 2 * BATCHES else 2
        kept = self.n_sweeps // batches * batches
        ones = np.ones(self.burn_in + self.n_sweeps)
        walk = sites.gibbs(
            potentials.topology.offsets,
            around(potentials),
            potentials.node,
            potentials.edge,
            ladder.labels[: self.n_chains],
            node_scale=ones,
            edge_scale=ones,
            burn_in=len(ones) - kept,
            n_batches=batches,
            seed=int(second),
            n_jobs=self.n_jobs,
        )
        draws = self.n_chains * kept
        node = walk.conditional.sum(axis=(0, 1)) / draws
        halves = walk.conditional.reshape(2 * self.n_chains, *node.shape) * (2 / kept)
        error = np.maximum(
            _standard_error(node, walk.batch_square.sum(axis=0), self.n_chains * batches),
            _standard_error(node, (halves**2).sum(axis=0), len(halves)),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(error > 0, node * (1 - node) / error**2, draws)
        alive = ladder.possible[potentials.topology.sequence_of_node]
        r_hat = np.where(alive[:, None], _split_r_hat(walk.drawn, kept // 2), 1.0)
        best = _best(potentials, walk)
        return Samples(
            node=node,
            edge=walk.pairs.sum(axis=0) / draws,
            total=ladder.total,
            total_error=ladder.error,
            standard_error=error,
            effective_size=np.clip(size, 1.0, draws),
            r_hat=r_hat,
            labels=walk.labels,
            best=best,
            best_score=np.where(ladder.possible, path_scores(potentials, best), -np.inf),
            trace=walk.trace,
            n_draws=draws,
            converged=bool(r_hat.max(initial=1.0) <= self.max_r_hat),
        )


def advance(
    potentials: Potentials, labels: np.ndarray, *, n_sweeps: int = 1, random_state: int = 0, n_jobs: int = 1
) -> Advanced:
    """Continue chains (C, N) for some sweeps, and what they see: for chains that persist while scores change.

    The means run over all sweeps and chains. Every call needs another ``random_state``.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([1]))
    >>> advance(scores, np.zeros((5, 1)), n_sweeps=2).node.round(12).tolist()
    [[0.25, 0.75]]
    """
    check_scores(potentials)
    if n_sweeps < 1:
        raise InputError(f"n_sweeps must be ≥ 1 to continue the chains, got {n_sweeps}.")
    ones = np.ones(n_sweeps)
    walk = sites.gibbs(
        potentials.topology.offsets,
        around(potentials),
        potentials.node,
        potentials.edge,
        labels,
        node_scale=ones,
        edge_scale=ones,
        burn_in=0,
        seed=random_state,
        n_jobs=n_jobs,
    )
    draws = max(1, len(walk.labels)) * n_sweeps
    return Advanced(walk.labels, walk.conditional.sum(axis=(0, 1)) / draws, walk.pairs.sum(axis=0) / draws)


def _standard_error(mean: np.ndarray, squares: np.ndarray, n_batches: int) -> np.ndarray:
    """Of the mean of all batches, from the sum of the squares of their means."""
    spread = np.maximum(squares - n_batches * mean**2, 0.0) / max(1, n_batches - 1)
    # what rounding leaves of a difference of equal numbers is no spread
    spread[spread <= 1e-15 * mean**2] = 0.0
    return np.sqrt(spread / n_batches)


def _split_r_hat(drawn: np.ndarray, length: int) -> np.ndarray:
    """(N, L) from counts (C, 2, N, L) in half chains of that many sweeps; ∞ where halves never change but differ."""
    share = drawn.reshape(2 * len(drawn), *drawn.shape[2:]) / length
    within = (share * (1 - share)).mean(axis=0) * length / max(1, length - 1)
    between = share.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt((length - 1) / length + between / within)
    return np.where(between == 0, 1.0, r_hat)


def _best(potentials: Potentials, walk: sites.Walk) -> np.ndarray:
    """(N,) the best labelling of each graph over all chains."""
    chain = walk.best_score.argmax(axis=0)[potentials.topology.sequence_of_node]
    return walk.best[chain, np.arange(walk.best.shape[1])]
