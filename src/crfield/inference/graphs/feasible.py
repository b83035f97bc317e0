"""A feasible labelling, or the proof that there is none.

Where pairs of labels are forbidden, a sampler or a climber must start from a labelling that obeys them. Most models
are easy, and a noisy climb finds one (`inference.graphs.ladder`); this is for the rest. Labels that have lost their
support at some neighbour are struck out until nothing changes (arc consistency: Mackworth 1977), then the node with
the fewest labels left tries them in the order of its scores, and so on, with a step back where a node is left without
any (Haralick & Elliott 1980, *Increasing tree search efficiency for constraint satisfaction problems*).

On forests striking out alone decides. In general the problem is NP-complete, so the search gives up after a number
of trials; each costs a few passes over the edges, O(E L²).
"""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.errors import InputError

TRIALS = 2000


def forbids_pairs(potentials: Potentials) -> bool:
    """Whether any edge forbids a pair of labels.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> forbids_pairs(Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2])))
    False
    """
    if not np.isneginf(potentials.edge).any():
        return False
    return bool(np.isneginf(potentials.edge[np.unique(potentials.tables)]).any())


def possible_labelling(potentials: Potentials, graph: int, *, trials: int = TRIALS) -> np.ndarray | None:
    """Labels of the nodes of one graph that nothing forbids; None if it is proved that there are none.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)[None]
    >>> path = Graphs(np.array([0, 3]), np.array([0, 1]), np.array([1, 2]))
    >>> possible_labelling(Potentials(np.array([[0.0, 1.0], [0, 0], [0, 0]]), differ, path), 0).tolist()
    [1, 0, 1]
    >>> triangle = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> possible_labelling(Potentials(np.zeros((3, 2)), differ, triangle), 0)
    """
    topology = potentials.topology
    first, last = (int(n) for n in topology.offsets[graph : graph + 2])
    edges = np.arange(topology.edge_offsets[graph], topology.edge_offsets[graph + 1])
    allows = ~np.isneginf(potentials.edge[potentials.tables[edges]])
    edges, allows = edges[~allows.all(axis=(1, 2))], allows[~allows.all(axis=(1, 2))]
    ends = topology.tails[edges] - first, topology.heads[edges] - first
    scores = potentials.node[first:last]
    left = _strike_out(~np.isneginf(scores), *ends, allows)
    open_ends: list[tuple[np.ndarray, int, int]] = []  # labels left, node, label to try there
    while True:
        if left is not None:
            count = left.sum(axis=1)
            undecided = np.flatnonzero(count > 1)
            if not len(undecided) or not len(edges):
                return np.where(left, scores, -np.inf).argmax(axis=1).astype(np.int32)
            node = int(undecided[np.argmin(count[undecided])])
            # the last one pushed is tried first
            for label in np.argsort(scores[node], kind="stable").tolist():
                if left[node, label]:
                    open_ends.append((left, node, label))
        if not open_ends:
            return None
        trials -= 1
        if trials < 0:
            raise InputError(
                f"no possible labelling of graph {graph} was found, nor a proof that there is none. Use an exact "
                "engine (JunctionTreeEngine), or replace scores of -inf by large negative ones."
            )
        before, node, label = open_ends.pop()
        tried = before.copy()
        tried[node] = False
        tried[node, label] = True
        left = _strike_out(tried, *ends, allows)


def _strike_out(left: np.ndarray, tails: np.ndarray, heads: np.ndarray, allows: np.ndarray) -> np.ndarray | None:
    """Labels (n, L) that have support at every neighbour; None if some node has none left."""
    left = left.copy()
    while left.any(axis=1).all():
        count = int(left.sum())
        np.logical_and.at(left, tails, (allows & left[heads][:, None, :]).any(axis=2))
        np.logical_and.at(left, heads, (allows & left[tails][:, :, None]).any(axis=1))
        if int(left.sum()) == count:
            return left
    return None
