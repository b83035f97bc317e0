"""Sequences whose steps carry named attributes, some with values: what a CRFsuite file holds.

The attributes of all N nodes are one sparse table (CSR) over an alphabet of names. An attribute may be there
twice at a node; then it counts twice, as in CRFsuite. Like `TokenColumns` this behaves as the list of
sequences it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.flat import FlatSequences
from crfield.errors import ShapeError

Item = list[str] | dict[str, float]


@dataclass(frozen=True, eq=False)
class AttributeSequences(FlatSequences[list[Item]]):
    """B sequences of nodes with named attributes.

    >>> import numpy as np
    >>> names = Alphabet(["bias", "w=a"])
    >>> chains = Chains.from_lengths([2])
    >>> AttributeSequences(chains, np.array([0, 2, 3]), np.array([0, 1, 0]), None, names)[0]
    [['bias', 'w=a'], ['bias']]
    >>> AttributeSequences(chains, np.array([0, 1, 2]), np.array([0, 1]), np.array([0.5, 1]), names)[0]
    [{'bias': 0.5}, {'w=a': 1.0}]
    """

    topology: Chains
    indptr: np.ndarray  # (N + 1,) int64
    indices: np.ndarray  # (nnz,) int32, codes of the alphabet
    values: np.ndarray | None  # (nnz,) float64; None when all are one
    alphabet: Alphabet

    def __post_init__(self) -> None:
        indptr = np.ascontiguousarray(self.indptr, dtype=np.int64)
        indices = np.ascontiguousarray(self.indices, dtype=np.int32)
        nodes = self.topology.n_nodes
        if indptr.shape != (nodes + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ShapeError(f"indptr must hold {nodes + 1} offsets that start at 0 and never fall.")
        if indices.shape != (indptr[-1],):
            raise ShapeError(f"indices must have {indptr[-1]} entries, got {indices.shape}.")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(self.alphabet):
            raise ShapeError(f"indices must lie in 0 … {len(self.alphabet) - 1}. Is the alphabet another one?")
        object.__setattr__(self, "indptr", indptr)
        object.__setattr__(self, "indices", indices)
        if self.values is not None:
            values = np.ascontiguousarray(self.values, dtype=np.float64)
            if values.shape != indices.shape:
                raise ShapeError(f"values must match {indices.shape} indices, got {values.shape}.")
            object.__setattr__(self, "values", values)

    def _sequence(self, number: int) -> list[Item]:
        first, last = self.topology.offsets[number : number + 2]
        ends = self.indptr[first : last + 1].tolist()
        names = self.alphabet.texts(self.indices[ends[0] : ends[-1]])
        spans = [(a - ends[0], b - ends[0]) for a, b in pairwise(ends)]
        if self.values is None:
            return [names[a:b] for a, b in spans]
        values = self.values[ends[0] : ends[-1]].tolist()
        items: list[Item] = []
        for a, b in spans:
            item: dict[str, float] = {}
            for name, value in zip(names[a:b], values[a:b]):
                item[name] = item[name] + value if name in item else value
            items.append(item)
        return items

    def _gather(self, topology: Chains, nodes: np.ndarray) -> AttributeSequences:
        lengths = np.diff(self.indptr)[nodes]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        at = np.arange(indptr[-1]) + np.repeat(self.indptr[nodes] - indptr[:-1], lengths)
        values = None if self.values is None else self.values[at]
        return AttributeSequences(topology, indptr, self.indices[at], values, self.alphabet)

    def __repr__(self) -> str:
        kind = "" if self.values is None else ", with values"
        return (
            f"AttributeSequences({len(self)} sequences, {self.topology.n_nodes} nodes, "
            f"{len(self.alphabet)} attributes{kind})"
        )
