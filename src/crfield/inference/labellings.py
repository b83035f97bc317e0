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
    topology, labels = potentials.topology, potentials.n_labels
    local = np.take(potentials.node.reshape(-1), np.arange(topology.n_nodes) * labels + path)
    joint = np.take(potentials.edge.reshape(-1), _pairs(potentials, path))
    return segment_sums(local, topology.offsets) + segment_sums(joint, topology.edge_offsets)


def _pairs(potentials: Potentials, path: np.ndarray) -> np.ndarray:
    """(E,) where the scores of the pairs of labels lie in the tables, written as one row."""
    topology, labels = potentials.topology, potentials.n_labels
    path = path.astype(np.int64, copy=False)
    place = np.take(path, topology.tails) * labels
    place += np.take(path, topology.heads)
    if len(potentials.edge) != 1:
        place += potentials.tables * labels**2
    return place


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
    cell, place = np.arange(topology.n_nodes) * labels + path, _pairs(potentials, path)
    if possible is not None and not possible.all():
        cell, place = cell[possible[topology.sequence_of_node]], place[possible[topology.sequence_of_edge]]
    node = np.zeros(potentials.node.shape)
    node.reshape(-1)[cell] = 1.0
    edge = np.bincount(place, minlength=potentials.edge.size).astype(np.float64)
    return node, edge.reshape(potentials.edge.shape)
