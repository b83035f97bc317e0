"""Thermodynamic integration: from independent nodes to the whole model, rung by rung.

    p_β(y) ∝ exp(Σ_n node_n(y_n) + β Σ_e edge_e(y)),      β = 0 … 1

At β = 0 nodes are independent: a sample is exact and log Z₀ = Σ_n log Σ_l exp node_n(l) is known. Each chain then
takes one Gibbs sweep on every rung. Where it ends is a start for sampling the model itself, already near where its
weight lies. And the way there tells the total, by thermodynamic integration (Kirkwood 1935; Gelman & Meng 1998,
*Simulating normalizing constants*):

    d log Z_β / dβ = E_β[edge score]        log Z = log Z₀ + ∫₀¹ E_β[edge score] dβ

by trapezoids between the rungs, each chain for itself; what chains say is averaged as weights, not as logarithms, so
that one that was caught on a poor side counts for as little as it weighs. With the score before each sweep alone in
place of trapezoids these would be the weights of annealed importance sampling (Neal 2001), whose mean is unbiased
for Z; on large graphs they lie far below it, while trapezoids err by a share that does not grow with the graph. So
an *estimate* is what this is, neither an upper nor a lower bound. Its error is that of the mean weight together with
the gap between the two ways of averaging; it is too small where no chain has met what weighs most.

Rungs stand at β = t² for even steps of t: a forbidden pair (−∞) is a very low score on the way, and most of what
it costs happens next to β = 0. Whatever breaks a rule at the top is replaced by another chain's labelling or by a
search (`inference.graphs.feasible`). Time: O((N + E) L) for each rung and chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfield.core.potentials import Potentials
from crfield.inference.graphs.feasible import possible_labelling
from crfield.inference.labellings import path_scores, segment_sums
from crfield.kernels import sites

MARGIN = 30.0  # nats by which breaking a rule must lose against the best that could be gained by it


class Ladder(NamedTuple):
    """Where the chains came out, and log Z as they saw it."""

    labels: np.ndarray  # (C, N) int32; of no meaning in graphs that are not possible
    possible: np.ndarray  # (B,) bool, False where no labelling is allowed
    total: np.ndarray  # (B,), −∞ where nothing is possible
    error: np.ndarray  # (B,) standard error of the total, from the spread of the chains; ∞ for one chain


def around(potentials: Potentials) -> sites.Neighbourhoods:
    """The edges of every node, as the site kernels read them.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> around(Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([3]))).other.tolist()
    [1, 0, 2, 1]
    """
    topology = potentials.topology
    return sites.neighbourhoods(topology.n_nodes, topology.tails, topology.heads, potentials.tables)


def climb(potentials: Potentials, *, n_chains: int, n_rungs: int, seed: int, n_jobs: int = 1) -> Ladder:
    """Take ``n_chains`` chains up ``n_rungs`` rungs.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.zeros((2, 2)), np.array([[[2.0, 0.0], [0.0, 2.0]]]), Chains.from_lengths([2]))
    >>> ladder = climb(scores, n_chains=20, n_rungs=100, seed=0)
    >>> ladder.labels.shape, bool(abs(ladder.total[0] - np.log(2 * np.exp(2) + 2)) < 0.2)
    ((20, 2), True)
    """
    topology, node = potentials.topology, potentials.node
    soft = _softened(potentials)
    beta = np.linspace(0.0, 1.0, max(2, n_rungs)) ** 2
    start = np.zeros((n_chains, topology.n_nodes), np.int32) + node.argmax(axis=1)
    walk = sites.gibbs(
        topology.offsets,
        around(potentials),
        node,
        soft.edge,
        start,
        node_scale=np.ones_like(beta),
        edge_scale=beta,
        burn_in=len(beta),
        seed=seed,
        n_jobs=n_jobs,
    )
    labels, possible = _possible(potentials, walk.labels)
    seen = walk.work.mean(axis=2)  # (C, B)
    top = node.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        local = top + np.log(np.exp(node - top[:, None]).sum(axis=1))
    best = seen.max(axis=0, initial=-np.inf)
    weight = np.exp(seen - best)
    mean = weight.mean(axis=0)
    total = segment_sums(np.where(np.isneginf(top), -np.inf, local), topology.offsets) + best + np.log(mean)
    error = np.full(len(total), np.inf)
    if n_chains > 1:
        gap = best + np.log(mean) - seen.mean(axis=0)
        error = np.hypot(weight.std(axis=0, ddof=1) / (mean * np.sqrt(n_chains)), gap)
    return Ladder(labels, possible, np.where(possible, total, -np.inf), np.where(possible, error, 0.0))


def _softened(potentials: Potentials) -> Potentials:
    """Forbidden pairs get a score so low that breaking one never pays, whatever is gained around it."""
    edge, topology = potentials.edge, potentials.topology
    if not np.isneginf(edge).any():
        return potentials
    degree = np.bincount(np.concatenate([topology.tails, topology.heads]), minlength=1).max()
    loss = MARGIN + spreads(potentials.node).max(initial=0.0) + degree * spreads(edge).max(initial=0.0)
    finite = edge[np.isfinite(edge)]
    lowest = (float(finite.min()) if len(finite) else 0.0) - loss
    return Potentials(potentials.node, np.where(np.isneginf(edge), lowest, edge), topology, potentials.tables)


def spreads(scores: np.ndarray) -> np.ndarray:
    """(R,) the difference between the largest and the smallest finite score of each row or table; 0 if there is none.

    >>> import numpy as np
    >>> spreads(np.array([[1.0, -2.0, -np.inf], [-np.inf, -np.inf, -np.inf]])).tolist()
    [3.0, 0.0]
    """
    flat = scores.reshape(len(scores), int(np.prod(scores.shape[1:])))
    finite = np.isfinite(flat)
    high = np.where(finite, flat, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(finite, flat, np.inf).min(axis=1, initial=np.inf)
    return np.where(finite.any(axis=1), high - low, 0.0)


def _possible(potentials: Potentials, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labellings (C, N) that obey every rule, and whether (B,) there are any."""
    offsets = potentials.topology.offsets
    fine = np.array([path_scores(potentials, y) > -np.inf for y in labels]).reshape(len(labels), len(offsets) - 1)
    possible = np.asarray(fine.any(axis=0))
    dead = np.isneginf(potentials.node).all(axis=1)
    hopeless = segment_sums(dead.astype(float), offsets) > 0
    labels = labels.copy()
    for graph in np.flatnonzero(~fine.all(axis=0) & ~hopeless).tolist():
        mine = slice(offsets[graph], offsets[graph + 1])
        found = labels[int(np.argmax(fine[:, graph])), mine].copy() if possible[graph] else None
        if found is None:
            found = possible_labelling(potentials, graph)
        if found is not None:
            possible[graph] = True
            labels[~fine[:, graph], mine] = found
    return labels, possible
