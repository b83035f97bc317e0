"""Who is next to whom: a ragged batch of chains.

B sequences lie end to end in one flat run of N nodes; sequence s owns the nodes ``offsets[s]:offsets[s+1]``.
A sequence of length T has T − 1 edges, and edges are numbered in the same order as nodes, so that sequence s
owns the edges ``edge_offsets[s]:edge_offsets[s+1]`` and edge ``edge_offsets[s] + t`` joins its steps t and
t + 1. Sequences may be empty; they own nothing and have a total of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.errors import ShapeError


class EndToEnd:
    """What follows from ``offsets`` alone, for chains and graphs that lie end to end in one run of nodes."""

    offsets: np.ndarray  # (B + 1,) int64

    @property
    def n_sequences(self) -> int:
        """B, the number of chains or graphs."""
        return len(self.offsets) - 1

    @property
    def n_nodes(self) -> int:
        """N, the number of nodes of all of them."""
        return int(self.offsets[-1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """(B,) nodes of each."""
        return np.diff(self.offsets)

    @cached_property
    def sequence_of_node(self) -> np.ndarray:
        """(N,) the chain or graph that each node belongs to."""
        return np.repeat(np.arange(self.n_sequences), self.lengths)


@dataclass(frozen=True, eq=False)
class Chains(EndToEnd):
    """B chains lying end to end.

    >>> chains = Chains.from_lengths([3, 0, 1, 2])
    >>> chains.n_sequences, chains.n_nodes, chains.n_edges
    (4, 6, 3)
    >>> chains.edge_offsets.tolist(), chains.heads.tolist()
    ([0, 2, 2, 2, 3], [1, 2, 5])
    """

    offsets: np.ndarray  # (B + 1,) int64

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise ShapeError(
                "offsets must be a 1-D array that starts at 0 and never falls, "
                f"got shape {offsets.shape} starting {offsets[:3].tolist()}."
            )
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def from_lengths(cls, lengths: np.ndarray | list[int]) -> Chains:
        """Chains of the given lengths, in order."""
        lengths = np.asarray(lengths, dtype=np.int64)
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    @property
    def n_edges(self) -> int:
        """E, the number of edges of all chains."""
        return int(self.edge_offsets[-1])

    @cached_property
    def edge_offsets(self) -> np.ndarray:
        """(B + 1,) first edge of each chain."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(self.lengths - 1, 0))])

    @cached_property
    def heads(self) -> np.ndarray:
        """(E,) the later node of each edge."""
        keep = np.ones(self.n_nodes, dtype=bool)
        keep[self.offsets[:-1][self.lengths > 0]] = False
        return np.flatnonzero(keep)

    @cached_property
    def tails(self) -> np.ndarray:
        """(E,) the earlier node of each edge."""
        return self.heads - 1

    @cached_property
    def sequence_of_edge(self) -> np.ndarray:
        """(E,) the chain each edge belongs to."""
        return np.repeat(np.arange(self.n_sequences), np.maximum(self.lengths - 1, 0))
