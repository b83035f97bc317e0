"""Piecewise training: every factor normalised on its own.

    value = −Σ_n w_n log softmax(node_n)[y_n] − Σ_e w_e log softmax(edge_e)[y_tail, y_head]

Each node and each edge is a model of its own labels alone, and the sum of their log-likelihoods is a lower bound of
the likelihood's (Sutton & McCallum 2005, *Piecewise training for undirected models*). It needs no engine and no
neighbours, and with tables that edges share it costs little more than counting. But pieces do not know of each
other: where a node's features and an edge say the same, both learn it in full, and the model put together counts it
twice. Edges with features of their own suffer least.

The softmax of an edge runs over the pairs of labels that its two nodes have at all (node scores above −∞). Where a
node may take several labels, its piece is the sum over those, and so are the pieces of its edges. Edges with the
same table, the same labels and the same allowed labels are one term, weighed by their number. A piece whose target
is forbidden is an error that names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.beliefs import Evaluation
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.errors import LabelError
from crfield.inference.labellings import check_scores


@dataclass(frozen=True)
class Piecewise:
    """The objective of the module's essay.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), chains)
    >>> result = Piecewise().evaluate(scores, Target(chains, 2, np.array([0, 1])))
    >>> round(result.value, 6), result.edge[0].tolist()
    (2.772589, [[0.25, -0.75], [0.25, 0.25]])
    """

    def evaluate(self, potentials: Potentials, target: Target, engine: Any = None) -> Evaluation:
        """Value, and gradient in the shape of the potentials; LabelError where the target is impossible.

        ``engine`` is not used.
        """
        check_scores(potentials)
        topology, tables = potentials.topology, potentials.tables
        has = ~np.isneginf(potentials.node)
        weight = np.ones(topology.n_sequences) if target.weight is None else target.weight
        node_value, node, stuck = _contrast(potentials.node, target.mask, weight[topology.sequence_of_node])
        if stuck.any():
            n = int(np.argmax(stuck))
            raise LabelError(f"what the target allows at node {n} of the batch is forbidden (-inf) there.")

        kinds, kind = np.unique(np.concatenate([has, target.mask & has], axis=1), axis=0, return_inverse=True)
        kind = kind.reshape(-1)
        keys = (tables * len(kinds) + kind[topology.tails]) * len(kinds) + kind[topology.heads]
        keys, place = np.unique(keys, return_inverse=True)
        times = np.bincount(place.reshape(-1), weight[topology.sequence_of_edge], minlength=len(keys))
        table, ends = keys // max(1, len(kinds)) ** 2, keys % max(1, len(kinds)) ** 2
        tail, head = kinds[ends // max(1, len(kinds))], kinds[ends % max(1, len(kinds))]
        labels = potentials.n_labels
        open_pairs = tail[:, :labels, None] & head[:, None, :labels]
        gold_pairs = tail[:, labels:, None] & head[:, None, labels:]
        scores = np.where(open_pairs, potentials.edge[table], -np.inf)
        flat = (len(keys), labels * labels)
        edge_value, pieces, stuck = _contrast(scores.reshape(flat), gold_pairs.reshape(flat), times)
        if stuck.any():
            e = int(np.argmax(stuck[place.reshape(-1)]))
            raise LabelError(
                f"what the target allows at the ends of edge {e} of the batch (nodes {topology.tails[e]} and "
                f"{topology.heads[e]}) is forbidden (-inf) by the edge. Correct the labels or allow the pair."
            )
        edge = np.zeros_like(potentials.edge)
        np.add.at(edge, table, pieces.reshape(scores.shape))
        return Evaluation(node_value + edge_value, node, edge)


def _contrast(scores: np.ndarray, gold: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Σ_r weight_r [log Σ_k exp s_rk − log Σ_{k gold} exp s_rk], its gradient, and rows (R,) that cannot be."""
    free, p = _log_sum(scores)
    clamped, q = _log_sum(np.where(gold, scores, -np.inf))
    fine = clamped > -np.inf
    gap = np.maximum(np.subtract(free, clamped, out=np.zeros(len(scores)), where=fine), 0.0)
    return float(weight @ gap), weight[:, None] * (p - q), ~fine & (weight != 0)


def _log_sum(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-sum-exp (R,) and softmax (R, K) of every row; zeros where all is forbidden."""
    top = scores.max(axis=1, initial=-np.inf)
    possible = top > -np.inf
    p = np.exp(scores - np.where(possible, top, 0.0)[:, None])
    total = np.where(possible, p.sum(axis=1), 1.0)
    return top + np.log(total), p / total[:, None]
