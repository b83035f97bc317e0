"""The centred M-estimator: a likelihood ratio without a normaliser.

Let q be a reference model whose answers are known and S the scores by which another model differs from it. For a
block b of a chain put

    η_b = ⟨ truth_b − q_b, S_b ⟩          truth and q as zeros, ones and marginals in the shape of the scores

the score of the truth less its mean under q. Then

    value = n log ( 1/n Σ_b exp(−η_b) )

is convex in S. Centring is what makes it work: the plain criterion E exp(−η) + E_q η has its optimum at p = q exp(η)
only if η can take up log Z(x), which no feature of a conditional field can. Centred given x, the optimum over all
functions is p(y | x) ∝ q(y | x) exp S(x, y), whatever q is, and no partition function is ever computed: q is asked
once, after which a step of the optimiser costs one product with the (n, W) table of centred features. The logarithm
profiles out a common factor and cannot overflow.

- q a Markov chain of labels, blocks of some ten steps: one shot, a first guess. What a block's neighbours say is
  left out, so labels come out well and probabilities too sure.
- q the present model (a *refresh*): at S = 0 the gradient is that of −log p(y | x) and the second derivative is the
  scatter of the blocks' gradients, as in Berndt, Hall, Hall & Hausman (1974). So the maximum of the likelihood is the
  fixed point, and grafting's score of a feature is its first-order term.

Whole sequences as blocks are the limit; log p/q grows with length, and about exp(KL(p, q)) sequences are needed.
Single nodes given their neighbours and a uniform q would be interaction screening (Vuffray, Misra, Lokhov & Chertkov
2016). Where labels are partly known, truth_b are the beliefs of q among what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import path_scores


@dataclass(frozen=True, eq=False)
class Blocks:
    """Chains cut into n blocks of about equal length; an edge belongs to the block of its later node.

    >>> blocks = Blocks.cut(Chains.from_lengths([7, 0, 1]), 3)
    >>> blocks.nodes.tolist(), blocks.edges.tolist(), blocks.sequence.tolist()
    ([0, 4, 7, 8], [0, 3, 6, 6], [0, 0, 2])
    """

    nodes: np.ndarray  # (n + 1,) int64, first node of each
    edges: np.ndarray  # (n + 1,) int64, first edge of each
    sequence: np.ndarray  # (n,) int64

    @classmethod
    def cut(cls, chains: Chains, length: int | None) -> Blocks:
        """Blocks of about ``length`` steps, never across two sequences; None takes each sequence whole."""
        if length is not None and length < 1:
            raise InputError(f"a block must have at least one step, got {length}.")
        filled = chains.lengths > 0
        count = filled.astype(np.int64)
        if length is not None:
            count = np.where(filled, np.maximum(np.rint(chains.lengths / length).astype(np.int64), 1), 0)
        sequence = np.repeat(np.arange(chains.n_sequences), count)
        number = np.arange(len(sequence)) - np.repeat(np.cumsum(count) - count, count)
        inside = -((-number * chains.lengths[sequence]) // count[sequence])
        nodes = chains.offsets[sequence] + inside
        edges = chains.edge_offsets[sequence] + np.maximum(inside - 1, 0)
        return cls(np.append(nodes, chains.n_nodes), np.append(edges, chains.n_edges), sequence)

    def __len__(self) -> int:
        return len(self.sequence)


@dataclass(frozen=True, eq=False)
class Centre:
    """truth − q in the shape of the scores, one table for every edge, and log p(truth) under q."""

    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (E, L, L)
    log_prob: np.ndarray  # (B,)

    @classmethod
    def of(cls, reference: Potentials, target: Target, *, n_jobs: int = 1) -> Centre:
        """Ask the reference; chains only, since its marginals must be exact.

        >>> chains = Chains.from_lengths([1])
        >>> q = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains)
        >>> Centre.of(q, Target(chains, 2, np.array([0]))).node.tolist()
        [[0.5, -0.5]]
        """
        chains = reference.topology
        if not isinstance(chains, Chains):
            raise InputError("the M-estimator reads chains, got graphs: their marginals are not exact in general.")
        each, engine = reference.each(), ChainEngine(n_jobs)
        plain = Potentials(each.node, each.edge, chains)
        free = engine.infer(plain, Semiring.LOG)
        if target.complete.all():
            # Minus the beliefs in place, then one at the truth: two passes fewer over the largest array.
            node, edge = np.negative(free.node, out=free.node), np.negative(free.edge, out=free.edge)
            labels = target.labels.astype(np.int64)
            node[np.arange(chains.n_nodes), labels] += 1.0
            edge[np.arange(chains.n_edges), labels[chains.tails], labels[chains.heads]] += 1.0
            total = path_scores(plain, target.labels)
        else:
            masked = Potentials(np.where(target.mask, plain.node, -np.inf), plain.edge, chains)
            clamped = engine.infer(masked, Semiring.LOG)
            node, edge, total = clamped.node - free.node, clamped.edge - free.edge, clamped.total
        return cls(node, edge, np.minimum(total - free.total, 0.0))


@dataclass(frozen=True, eq=False)
class MEstimator:
    """The objective of the module's essay for a target and a reference.

    ``block`` is the length of a block, None for whole sequences. Weights of sequences weigh their blocks.

    >>> chains = Chains.from_lengths([2, 2])
    >>> q = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2)), chains)
    >>> target = Target(chains, 2, np.array([0, 0, 1, 0]))
    >>> found = MEstimator(q, target, block=1).evaluate(q)
    >>> found.value, found.node[0].tolist()  # at the reference itself: the gradient of the likelihood
    (0.0, [-0.5, 0.5])
    """

    reference: Potentials
    target: Target
    block: int | None = 30

    @cached_property
    def centre(self) -> Centre:
        """truth − q, computed once."""
        return Centre.of(self.reference, self.target)

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of the chains."""
        topology = self.reference.topology
        if not isinstance(topology, Chains):
            raise InputError("the M-estimator reads chains, got graphs.")
        return Blocks.cut(topology, self.block)

    def evaluate(self, potentials: Potentials, target: Target | None = None, engine: object = None) -> Evaluation:
        """Value, and gradient in the shape of the potentials; ``target`` and ``engine`` are the reference's."""
        if potentials.node.shape != self.reference.node.shape:
            raise ShapeError(
                f"the potentials must have the shape of the reference, {self.reference.node.shape}, "
                f"got {potentials.node.shape}."
            )
        centre, blocks = self.centre, self.blocks
        tables = potentials.tables
        with np.errstate(invalid="ignore"):  # what is forbidden in both, −∞ − −∞, has no belief and no truth
            node = potentials.node - self.reference.node
            edge = potentials.edge[tables] - self.reference.edge[self.reference.tables]
        node, edge = np.where(centre.node != 0, node, 0.0), np.where(centre.edge != 0, edge, 0.0)
        eta = block_sums(np.einsum("nl,nl->n", centre.node, node), blocks.nodes)
        eta += block_sums(np.einsum("eij,eij->e", centre.edge, edge), blocks.edges)
        value, slope = log_mean_exp(eta, block_weights(blocks, self.target))
        node_slope = np.repeat(slope, np.diff(blocks.nodes))[:, None] * centre.node
        edge_slope = np.repeat(slope, np.diff(blocks.edges))[:, None, None] * centre.edge
        if potentials.table is None and len(potentials.edge) == potentials.topology.n_edges:
            return Evaluation(value, node_slope, edge_slope)
        summed = np.zeros_like(potentials.edge)
        np.add.at(summed, tables, edge_slope)
        return Evaluation(value, node_slope, summed)


def block_weights(blocks: Blocks, target: Target) -> np.ndarray:
    """(n,) the weight of the sequence of each block."""
    return np.ones(len(blocks)) if target.weight is None else target.weight[blocks.sequence]


def log_mean_exp(eta: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """n log(Σ weight exp(−η) / n) with n = Σ weight, and its gradient in η (n,).

    >>> log_mean_exp(np.array([0.0, 0.0]), np.array([1.0, 3.0]))
    (0.0, array([-1., -3.]))
    >>> round(log_mean_exp(np.array([-2000.0, 5.0]), np.ones(2))[0], 3)
    3998.614
    """
    n = float(weight.sum())
    if not n:
        return 0.0, np.zeros(len(eta))
    low = float(eta[weight > 0].min())
    part = weight * np.exp(np.minimum(low - eta, 0.0))
    total = float(part.sum())
    return n * (float(np.log(total / n)) - low), -n * part / total


def block_sums(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n,) sums of consecutive stretches, zero for empty ones.

    >>> block_sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    out = np.zeros(len(starts) - 1)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        out[filled] = np.add.reduceat(x, starts[:-1][filled])
    return out
