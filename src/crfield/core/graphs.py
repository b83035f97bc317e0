"""Who is next to whom, in general: a batch of graphs.

B graphs lie end to end in one flat run of N nodes, as `Chains` do; graph b owns the nodes
``offsets[b]:offsets[b+1]``. Edges are pairs of node numbers of the flat run, sorted by graph, so that graph b owns
the edges ``edge_offsets[b]:edge_offsets[b+1]``. An edge has a direction, tail → head, which says only how its score
table is read (rows for the tail's label, columns for the head's). Two nodes may be joined by several edges, say one
for each of two relations; no node is joined to itself. Chains are the special case tail = head − 1, and whatever
reads ``offsets``, ``tails`` and ``heads`` serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.topology import Chains, EndToEnd
from crfield.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Graphs(EndToEnd):
    """B graphs lying end to end.

    >>> import numpy as np
    >>> graphs = Graphs(np.array([0, 3, 5]), tails=np.array([0, 1, 3]), heads=np.array([1, 2, 4]))
    >>> graphs.n_sequences, graphs.n_nodes, graphs.n_edges, graphs.edge_offsets.tolist()
    (2, 5, 3, [0, 2, 3])
    >>> graphs.forest.tolist()
    [True, True]
    """

    offsets: np.ndarray  # (B + 1,) int64
    tails: np.ndarray  # (E,) int64
    heads: np.ndarray  # (E,) int64

    def __post_init__(self) -> None:
        offsets = Chains(self.offsets).offsets
        tails = np.ascontiguousarray(self.tails, dtype=np.int64)
        heads = np.ascontiguousarray(self.heads, dtype=np.int64)
        if tails.ndim != 1 or tails.shape != heads.shape:
            raise ShapeError(f"tails and heads must be 1-D and equally long, got {tails.shape} and {heads.shape}.")
        for name, ends in (("tails", tails), ("heads", heads)):
            if len(ends) and (ends.min() < 0 or ends.max() >= offsets[-1]):
                raise ShapeError(
                    f"{name} must name nodes 0 … {offsets[-1] - 1}, got {ends.min()} … {ends.max()}. "
                    "Are the node numbers those of the whole batch?"
                )
        loops = np.flatnonzero(tails == heads)
        if len(loops):
            raise ShapeError(f"edge {loops[0]} joins node {tails[loops[0]]} to itself; self-loops are not allowed.")
        owner = np.searchsorted(offsets, tails, side="right") - 1
        if not np.array_equal(owner, np.searchsorted(offsets, heads, side="right") - 1):
            edge = int(np.flatnonzero(owner != np.searchsorted(offsets, heads, side="right") - 1)[0])
            raise ShapeError(
                f"edge {edge} joins nodes {tails[edge]} and {heads[edge]}, which belong to different graphs."
            )
        if (np.diff(owner) < 0).any():
            raise ShapeError("edges must be sorted by the graph that they belong to.")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "tails", tails)
        object.__setattr__(self, "heads", heads)

    @classmethod
    def from_chains(cls, chains: Chains) -> Graphs:
        """The same chains, each edge from a step to the next.

        >>> Graphs.from_chains(Chains.from_lengths([3, 1])).tails.tolist()
        [0, 1]
        """
        made = cls(chains.offsets, chains.tails, chains.heads)
        filled = np.flatnonzero(chains.lengths)  # what need not be looked for
        made.__dict__["component"] = np.repeat(np.arange(len(filled)), chains.lengths[filled])
        made.__dict__["forest"] = np.ones(chains.n_sequences, dtype=bool)
        return made

    @property
    def n_edges(self) -> int:
        """E, the number of edges of all graphs."""
        return len(self.tails)

    @cached_property
    def edge_offsets(self) -> np.ndarray:
        """(B + 1,) first edge of each graph."""
        return np.searchsorted(self.sequence_of_edge, np.arange(self.n_sequences + 1)).astype(np.int64)

    @cached_property
    def sequence_of_edge(self) -> np.ndarray:
        """(E,) the graph each edge belongs to."""
        return np.searchsorted(self.offsets, self.tails, side="right") - 1

    @cached_property
    def component(self) -> np.ndarray:
        """(N,) number of the connected component of each node."""
        from scipy.sparse.csgraph import connected_components

        links = link_matrix(self.tails, self.heads, self.n_nodes)
        return connected_components(links, directed=False)[1].astype(np.int64)

    @cached_property
    def forest(self) -> np.ndarray:
        """(B,) whether the graph has no loop; edges that join the same two nodes count as one."""
        first = np.unique(self.component, return_index=True)[1]
        n_trees = np.bincount(self.sequence_of_node[first], minlength=self.n_sequences)
        links = np.unique(np.minimum(self.tails, self.heads) * self.n_nodes + np.maximum(self.tails, self.heads))
        owner = np.searchsorted(self.offsets, links // max(1, self.n_nodes), side="right") - 1
        n_links = np.bincount(owner, minlength=self.n_sequences)
        return n_links == self.lengths - n_trees


def link_matrix(tails: np.ndarray, heads: np.ndarray, n_nodes: int, weight: np.ndarray | None = None) -> Any:
    """(N, N) sparse rows of edges, of ones or of weights, for scipy's functions of graphs.

    Indices have 32 bits: before SciPy 1.15 most of these functions take no others.

    >>> link_matrix(np.array([0, 1]), np.array([1, 2]), 3).toarray().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    from scipy.sparse import coo_array

    data = np.ones(len(tails)) if weight is None else weight
    ends = (np.asarray(tails, np.int32), np.asarray(heads, np.int32))
    return coo_array((data, ends), shape=(n_nodes, n_nodes)).tocsr()
