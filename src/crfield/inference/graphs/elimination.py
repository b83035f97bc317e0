"""Elimination order and treewidth: the plan of exact inference on graphs with loops, and what it will cost.

Nodes are eliminated one after another. Summing a node out joins all its neighbours, so the table that is summed then
has an axis for the node and for each neighbour it has at that time. The largest number of neighbours met is the width
of the order: a table of L labels has L^(width + 1) entries, which is what decides whether exact inference can be done
at all. The best order is hard to find (Arnborg, Corneil and Proskurowski 1987). The node whose elimination adds the
fewest edges (min-fill, Kjærulff 1990) is a good next one, and is exact for trees, chains of any order and whatever
else needs no edge added. Where edges are added, plain sweeps through the graph are tried as well and the narrowest
order is taken.

A plan can be asked for without running anything. It depends on the graph alone, is found once for a topology and kept
as long as the topology lives; only the bytes depend on how many labels there are. Components of a batch are inferred
one after another, so memory is that of the largest one (for each thread).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import ShapeError
from crfield.kernels import forest
from crfield.kernels.forest import Elimination

_plans: WeakKeyDictionary[Chains | Graphs, Elimination] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class EliminationPlan:
    """What exact inference on a batch of graphs would do and need.

    ``widths`` holds the width of each graph: neighbours of a node when it is eliminated, at most. ``n_bytes`` is the
    memory of the tables of the largest component. Where a graph is hopelessly wide the plan is not worked out to the
    end: then ``complete`` is False, and width and bytes are lower bounds.
    """

    width: int
    widths: np.ndarray  # (B,)
    n_bytes: float
    order: np.ndarray  # (N,) nodes as they are eliminated, component by component
    complete: bool
    widest_graph: int  # the graph of the component that needs most memory, −1 without nodes
    elimination: Elimination

    def cliques(self) -> list[tuple[int, ...]]:
        """The nodes of every clique: the eliminated one, then its neighbours at that time.

        >>> import numpy as np
        >>> square = Graphs(np.array([0, 4]), tails=np.array([0, 1, 2, 3]), heads=np.array([1, 2, 3, 0]))
        >>> plan(square, 2).cliques()
        [(0, 1, 3), (1, 2, 3), (2, 3), (3,)]
        """
        e = self.elimination
        scopes = [e.node[e.scope[a:b][::-1]].tolist() for a, b in pairwise(e.scope_ptr)]
        return [(n, *scope) for n, scope in zip(e.node.tolist(), scopes)]


def plan(topology: Chains | Graphs, n_labels: int | np.ndarray) -> EliminationPlan:
    """The elimination of a topology and what it costs with that many labels, for all nodes or for each (N,).

    >>> import numpy as np
    >>> tails, heads = np.array([0, 2, 1, 3, 0, 2, 4]), np.array([2, 4, 3, 5, 1, 3, 5])
    >>> found = plan(Graphs(np.array([0, 6]), tails, heads), 10)  # a ladder of three rungs
    >>> found.width, found.n_bytes
    (2, 36168.0)
    """
    counts = np.asarray(n_labels, np.int64)
    if counts.ndim and counts.shape != (topology.n_nodes,):
        raise ShapeError(
            f"n_labels must be a number or one for each of {topology.n_nodes} nodes, got {counts.shape}."
        )
    if counts.size and counts.min() < 1:
        raise ShapeError(f"every node needs at least one label, got {counts.min()}.")
    e = elimination_of(topology)
    depth = np.diff(e.scope_ptr)
    bits = np.log2(np.broadcast_to(counts, topology.n_nodes)[e.node].astype(np.float64))
    ends = np.concatenate([[0.0], np.cumsum(bits[e.scope])])
    message_bits = ends[e.scope_ptr[1:]] - ends[e.scope_ptr[:-1]]
    with np.errstate(over="ignore"):
        entries = np.rint(2.0 ** (message_bits + bits)) + np.rint(2.0**message_bits)
    units = len(e.unit) - 1
    unit_of = np.repeat(np.arange(units), np.diff(e.unit))
    n_bytes = 8.0 * np.bincount(unit_of, weights=entries, minlength=units)
    graph = np.searchsorted(topology.offsets, e.node, side="right") - 1
    widths = np.zeros(topology.n_sequences, np.int64)
    np.maximum.at(widths, graph, depth)
    largest = int(np.argmax(n_bytes)) if units else -1
    return EliminationPlan(
        width=int(widths.max(initial=0)),
        widths=widths,
        n_bytes=float(n_bytes[largest]) if units else 0.0,
        order=e.node,
        complete=e.complete,
        widest_graph=int(graph[e.unit[largest]]) if units else -1,
        elimination=e,
    )


def elimination_of(topology: Chains | Graphs) -> Elimination:
    """The cliques of a topology, found once."""
    found = _plans.get(topology)
    if found is None:
        found = forest.eliminate(topology.offsets, topology.tails, topology.heads)
        _plans[topology] = found
    return found


def in_words(n_bytes: float) -> str:
    """Bytes for people.

    >>> in_words(8.0), in_words(36_168.0), in_words(2.5e9), in_words(3e40)
    ('8 bytes', '36.2 kB', '2.5 GB', '3e+31 GB')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"
