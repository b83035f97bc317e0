"""A labelling and its score, on chains and on graphs alike.

    score(y) = Σ_n node_n(y_n) + Σ_e edge_{table(e)}(y_tail, y_head)

and the labelling written as zeros and ones in the shape of the scores, which is the gradient of that score.
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.errors import InputError


def check_scores(potentials: Potentials) -> None:
    """Refuse NaN and +∞: the first has no meaning, the second no total."""
    for name, scores in (("node", potentials.node), ("edge", potentials.edge)):
        # One pass: a sum is NaN or +∞ only if an entry is, or if finite entries overflow.
        if scores.size and not scores.max() < np.inf:
            place = np.argwhere(~(scores < np.inf))[0].tolist()
            raise InputError(
                f"{name} scores must be finite or -inf (forbidden), got {scores[tuple(place)]} at {place}. "
                "Check the features and weights they come from."
            )


def path_scores(potentials: Potentials, path: np.ndarray) -> np.ndarray:
    """(B,) Σ_n node_n(y_n) + Σ_e edge_e(y_tail, y_head) for given labels (N,).

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> scores = Potentials(np.eye(2), np.full((1, 2, 2), 0.5), Chains.from_lengths([2]))
    >>> path_scores(scores, np.array([0, 1])).tolist()
    [2.5]
    """
    topology = potentials.topology
    local = segment_sums(potentials.node[np.arange(topology.n_nodes), path], topology.offsets)
    joint = potentials.edge[potentials.tables, path[topology.tails], path[topology.heads]]
    return local + segment_sums(joint, topology.edge_offsets)


def segment_sums(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(B,) sums of consecutive stretches, zero for empty ones; each stretch is summed on its own."""
    out = np.zeros(len(offsets) - 1)
    filled = np.diff(offsets) > 0
    if filled.any():
        out[filled] = np.add.reduceat(x, offsets[:-1][filled])
    return out


def one_hot(
    potentials: Potentials, path: np.ndarray, *, possible: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A labelling as zeros and ones in the shape of the scores; all zeros where it is not ``possible`` (B,)."""
    topology, labels = potentials.topology, potentials.n_labels
    nodes, edges = np.arange(topology.n_nodes), np.arange(topology.n_edges)
    if possible is not None and not possible.all():
        nodes, edges = nodes[possible[topology.sequence_of_node]], edges[possible[topology.sequence_of_edge]]
    node = np.zeros_like(potentials.node)
    node[nodes, path[nodes]] = 1.0
    before, after = path[topology.tails[edges]].astype(np.int64), path[topology.heads[edges]]
    place = (potentials.tables[edges] * labels + before) * labels + after
    edge = np.bincount(place, minlength=potentials.edge.size).astype(np.float64)
    return node, edge.reshape(potentials.edge.shape)
