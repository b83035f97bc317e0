"""Every label given the true label before it: the objective of maximum-entropy Markov models.

    value = −Σ_n weight_n log p(y_n | y_before, x)        p(j | i, x) = exp(node_n(j) + edge_n(i, j)) / Z_n(i)

Each step is a classifier that is told the label before (McCallum, Freitag & Pereira 2000, *Maximum entropy Markov
models for information extraction and segmentation*), so a batch of complete labels costs O(N L), no more than a
logistic regression, and needs no engine. What a labelling costs as a whole is the product of the steps,

    log p(y | x) = Σ_n node_n(y_n) + Σ_n edge_n(y_before, y_n) − Σ_n log Z_n(y_before)

and the last term, log Z of step n as a function of the label *before* n, is a node score of step n − 1. So the model
is a chain of the same edge tables whose node scores are lowered by the log-normaliser of the next step
(`normalised`), and every engine for chains answers its questions exactly. That the normaliser belongs to the label
before is the label bias: whatever raises all scores of a row alike, evidence that the row's label is right at all,
is divided out again.

Where labels are unknown the sum over what they may be is taken, exactly, by the engine on the normalised scores;
this needs a table for every edge, E L² numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import check_scores

SMALL = 1e-200  # a product of exponentials below this may have lost all its digits


@dataclass(frozen=True)
class GoldPast:
    """The objective of the module's essay, for chains.

    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), chains)
    >>> result = GoldPast().evaluate(scores, Target(chains, 2, np.array([0, 1])))
    >>> round(result.value, 6), result.node.tolist(), result.edge[0].tolist()
    (1.386294, [[-0.5, 0.5], [0.5, -0.5]], [[0.5, -0.5], [0.0, 0.0]])
    """

    def evaluate(self, potentials: Potentials, target: Target, engine: Any = None) -> Evaluation:
        """Value, and gradient in the shape of the potentials; LabelError where the target is impossible.

        ``engine`` is asked only where labels are unknown.
        """
        check_scores(potentials)
        if target.complete.all():
            return _known(potentials, target)
        return _summed(potentials, target, engine or ChainEngine())


def _known(potentials: Potentials, target: Target) -> Evaluation:
    topology, labels = potentials.topology, target.labels.astype(np.int64)
    size, heads, before = potentials.n_labels, topology.heads, labels[topology.tails]
    rows = potentials.node.copy()
    rows[heads] += potentials.edge[potentials.tables, before]
    totals = _log_sums(rows)
    with np.errstate(invalid="ignore"):
        loss = totals - rows[np.arange(len(rows)), labels]
    if not np.isfinite(loss).all():
        raise LabelError(_impossible(potentials, int(np.argmin(np.isfinite(loss)))))
    node = np.exp(rows - totals[:, None])
    node[np.arange(len(rows)), labels] -= 1.0
    if target.weight is not None:
        weight = target.weight[topology.sequence_of_node]
        node *= weight[:, None]
        loss = loss * weight
    place = ((potentials.tables * size + before) * size)[:, None] + np.arange(size)
    edge = np.bincount(place.ravel(), node[heads].ravel(), potentials.edge.size).reshape(potentials.edge.shape)
    return Evaluation(float(loss.sum()), node, edge)


def _summed(potentials: Potentials, target: Target, engine: Any) -> Evaluation:
    """−Σ weight log Σ_{allowed y} p(y | x), with unknown labels summed over."""
    topology = potentials.topology
    each = normalised(potentials).each()
    masked = Potentials(np.where(target.mask, each.node, -np.inf), each.edge, topology, each.table)
    beliefs = engine.infer(masked, Semiring.LOG)
    if not np.isfinite(beliefs.total).all():
        sequence = int(np.argmin(np.isfinite(beliefs.total)))
        raise LabelError(_impossible(potentials, int(topology.offsets[sequence])))
    node, edge = beliefs.node.copy(), beliefs.edge.copy()
    pairs = _conditionals(potentials) * beliefs.node[topology.tails][:, :, None]  # (E, L, L)
    edge -= pairs
    node[topology.heads] -= pairs.sum(axis=1)
    first = _firsts(topology)
    node[first] -= np.exp(potentials.node[first] - _log_sums(potentials.node[first])[:, None])
    total = beliefs.total
    if target.weight is not None:
        node *= target.weight[topology.sequence_of_node][:, None]
        edge *= target.weight[topology.sequence_of_edge][:, None, None]
        total = total * target.weight
    shared = np.zeros_like(potentials.edge)
    np.add.at(shared, potentials.tables, edge)
    return Evaluation(-float(total.sum()), -node, -shared)


def normalised(potentials: Potentials) -> Potentials:
    """The chain whose labellings have the scores log p(y | x) of the locally normalised model.

        node_n(j) − log Z_{n+1}(j), at the first step also − log Z_1;  edges as they are

    Its total is 0. A label after which everything is forbidden is forbidden itself.

    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.log([[1.0, 3.0], [1.0, 1.0]]), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> normalised(scores).node.round(6).tolist() == np.log([[0.125, 0.375], [1.0, 1.0]]).round(6).tolist()
    True
    """
    check_scores(potentials)
    topology = potentials.topology
    node, first = potentials.node.copy(), _firsts(topology)
    node[first] -= _finite(_log_sums(potentials.node[first]))[:, None]
    ahead = next_totals(potentials)
    node[topology.tails] = np.where(np.isneginf(ahead), -np.inf, node[topology.tails] - _finite(ahead))
    return Potentials(node, potentials.edge, topology, potentials.table)


def next_totals(potentials: Potentials) -> np.ndarray:
    """(E, L) log Z of the head of every edge for each label i at its tail: log Σ_j exp(node(j) + edge(i, j)).

    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.zeros((2, 2)), np.log([[[1.0, 2.0], [3.0, 4.0]]]), Chains.from_lengths([2]))
    >>> np.exp(next_totals(scores)).round(9).tolist()
    [[3.0, 7.0]]
    """
    node = potentials.node[potentials.topology.heads]
    if not potentials.shared:
        return _log_sums(node[:, None, :] + potentials.edge[potentials.tables])
    table = potentials.edge[0]
    high, rows = _finite(node.max(axis=1, initial=-np.inf)), _finite(table.max(axis=1, initial=-np.inf))
    sums = np.exp(node - high[:, None]) @ np.exp(table - rows[:, None]).T
    with np.errstate(divide="ignore"):
        out = np.log(sums) + high[:, None] + rows
    lost, label = np.nonzero(sums < SMALL)
    out[lost, label] = _log_sums(node[lost] + table[label])
    return out


def _conditionals(potentials: Potentials) -> np.ndarray:
    """(E, L, L) p(j | i, x)."""
    scores = potentials.node[potentials.topology.heads][:, None, :] + potentials.edge[potentials.tables]
    return np.exp(scores - _finite(_log_sums(scores))[:, :, None])


def _firsts(topology: Any) -> np.ndarray:
    return topology.offsets[:-1][topology.lengths > 0]


def _finite(x: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(x), 0.0, x)


def _log_sums(scores: np.ndarray) -> np.ndarray:
    """log Σ exp over the last axis, −∞ where everything is."""
    high = _finite(scores.max(axis=-1, initial=-np.inf))
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - high[..., None]).sum(axis=-1)) + high


def _impossible(potentials: Potentials, node: int) -> str:
    sequence = int(potentials.topology.sequence_of_node[node])
    step = node - int(potentials.topology.offsets[sequence])
    return (
        f"sequence {sequence}: what the target allows from step {step} on is forbidden (-inf) by the scores, so it "
        "has no probability. Correct the labels or allow the pair."
    )
