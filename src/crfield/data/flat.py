"""Sequences that lie end to end in flat tables and still behave like a list.

A file of a million tokens is a few arrays and an alphabet; nobody wants it as a million Python objects. But users
index their data, slice it, and hand it to scikit-learn, which cuts it into folds by arrays of numbers. So a flat
holder is a `collections.abc.Sequence`: one number gives one sequence written out in Python objects, anything else
gives another flat holder, made by gathering rows of the tables. What is chosen costs what is chosen.

A holder says only how one sequence is written out (`_sequence`) and how the rows of some nodes are gathered
(`_gather`); everything a list can do is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self, TypeVar, overload

import numpy as np

from crfield.core.topology import Chains

Item = TypeVar("Item")


class FlatSequences(Sequence[Item]):
    """B sequences on the chains ``topology``; ``Item`` is one of them written out.

    Indexed by an integer it gives an item; by a slice, or by a 1-D array or list of integers or booleans, a holder of
    the chosen sequences in that order.

    >>> from crfield.data.tokens import TokenColumns
    >>> tokens = TokenColumns.from_sequences([[("a",)], [("b",), ("c",)], []])
    >>> len(tokens), tokens.shape, tokens[-2], list(tokens[[2, 0]]), list(tokens[1:])
    (3, (3,), [('b',), ('c',)], [[], [('a',)]], [[('b',), ('c',)], []])
    """

    topology: Chains

    @abstractmethod
    def _sequence(self, number: int) -> Item:
        """Sequence ``number``, from 0 to B − 1, written out."""

    @abstractmethod
    def _gather(self, topology: Chains, nodes: np.ndarray) -> Self:
        """A holder on the chains ``topology`` whose nodes are the given ones (N',) of this."""

    @property
    def shape(self) -> tuple[int]:
        """(B,): by it scikit-learn sees that many sequences can be chosen at once."""
        return (len(self),)

    def __len__(self) -> int:
        return self.topology.n_sequences

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> Self: ...
    def __getitem__(self, key: Any) -> Item | Self:
        chosen = chosen_sequences(key, len(self))
        if isinstance(chosen, int):
            return self._sequence(chosen)
        return self._gather(*chosen_nodes(self.topology, chosen))


def chosen_sequences(key: Any, count: int) -> int | np.ndarray:
    """What an index stands for: one sequence (an int) or several (an array of numbers).

    Understands integers, slices, integer and boolean arrays, and ``(key, ...)`` as scikit-learn writes it.

    >>> chosen_sequences(-1, 3), chosen_sequences(slice(1, None), 3).tolist()
    (2, [1, 2])
    """
    if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
        key = key[0]
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not -count <= key < count:
            raise IndexError(f"sequence {key} of {count}")
        return int(key) % count
    if isinstance(key, slice):
        return np.arange(count)[key]
    chosen = np.asarray(key)
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        if chosen.size:
            raise TypeError("sequences are chosen by an integer, a slice, or a 1-D array of integers or booleans.")
        chosen = chosen.astype(np.int64).ravel()
    return np.arange(count)[chosen]


def chosen_nodes(topology: Chains, chosen: np.ndarray) -> tuple[Chains, np.ndarray]:
    """The chains of the chosen sequences, and the nodes they take along, both in the given order.

    >>> import numpy as np
    >>> picked, nodes = chosen_nodes(Chains.from_lengths([2, 1, 3]), np.array([2, 0]))
    >>> picked.lengths.tolist(), nodes.tolist()
    ([3, 2], [3, 4, 5, 0, 1])
    """
    lengths = topology.lengths[chosen]
    picked = Chains.from_lengths(lengths)
    nodes = np.arange(picked.n_nodes) + np.repeat(topology.offsets[chosen] - picked.offsets[:-1], lengths)
    return picked, nodes
