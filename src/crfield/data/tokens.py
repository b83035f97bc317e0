"""Tokens with columns, as in a CoNLL file: every token has a word, a part of speech, … and all are strings.

The strings are codes of one alphabet for all columns, so that templates can compare a word here with a word
there, and the table (N, C) of codes is all that templates read. A `TokenColumns` behaves like the list of
sequences of token rows it stands for: it can be indexed, sliced, and split by scikit-learn's cross-validation
without a string being made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.errors import ShapeError

Row = tuple[str, ...]


def chosen_nodes(topology: Chains, chosen: np.ndarray) -> tuple[Chains, np.ndarray]:
    """The chains of the chosen sequences, and the nodes they take along, both in the given order."""
    lengths = topology.lengths[chosen]
    picked = Chains.from_lengths(lengths)
    nodes = np.arange(picked.n_nodes) + np.repeat(topology.offsets[chosen] - picked.offsets[:-1], lengths)
    return picked, nodes


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


@dataclass(frozen=True, eq=False)
class TokenColumns(Sequence[list[Row]]):
    """B sequences of tokens with C string columns each.

    >>> tokens = TokenColumns.from_sequences([[("He", "PRP"), ("runs", "VBZ")], [("Stop", "VB")]])
    >>> len(tokens), tokens.width, tokens[1], tokens[:1][0][1]
    (2, 2, [('Stop', 'VB')], ('runs', 'VBZ'))
    >>> words, tags = tokens.split_column(-1)
    >>> words[0], [t.tolist() for t in tags]
    ([('He',), ('runs',)], [['PRP', 'VBZ'], ['VB']])
    """

    codes: np.ndarray  # (N, C) int32
    topology: Chains
    alphabet: Alphabet

    def __post_init__(self) -> None:
        codes = np.ascontiguousarray(self.codes, dtype=np.int32)
        if codes.ndim != 2 or len(codes) != self.topology.n_nodes:
            raise ShapeError(f"codes must be ({self.topology.n_nodes}, columns), got {codes.shape}.")
        if codes.size and not 0 <= codes.min() <= codes.max() < len(self.alphabet):
            raise ShapeError(
                f"codes must lie in 0 … {len(self.alphabet) - 1}, got {codes.min()} … {codes.max()}. "
                "Do they belong to another alphabet?"
            )
        object.__setattr__(self, "codes", codes)

    @classmethod
    def from_sequences(cls, sequences: Any) -> TokenColumns:
        """Tokens from a list of sequences, each a list of rows of strings; all rows have the same width."""
        if isinstance(sequences, TokenColumns):
            return sequences
        alphabet = Alphabet()
        offsets, codes = alphabet.encode_rows(sequences, add=True)
        return cls(codes, Chains(offsets), alphabet)

    @property
    def width(self) -> int:
        """C, the number of columns."""
        return int(self.codes.shape[1])

    @property
    def shape(self) -> tuple[int]:
        """(B,): by it scikit-learn sees that many sequences can be chosen at once."""
        return (len(self),)

    def __len__(self) -> int:
        return self.topology.n_sequences

    @overload
    def __getitem__(self, key: int) -> list[Row]: ...
    @overload
    def __getitem__(self, key: slice) -> TokenColumns: ...
    def __getitem__(self, key: Any) -> list[Row] | TokenColumns:
        chosen = chosen_sequences(key, len(self))
        if isinstance(chosen, int):
            first, last = self.topology.offsets[chosen : chosen + 2]
            texts = iter(self.alphabet.texts(self.codes[first:last]))
            return list(zip(*[texts] * self.width))
        topology, nodes = chosen_nodes(self.topology, chosen)
        return TokenColumns(self.codes[nodes], topology, self.alphabet)

    def column(self, c: int) -> list[np.ndarray]:
        """Column c as one object array of strings per sequence."""
        if not -self.width <= c < self.width:
            raise ShapeError(f"column {c} was asked of tokens with {self.width} columns.")
        used, inverse = np.unique(self.codes[:, c], return_inverse=True)
        texts = np.array(self.alphabet.texts(used), dtype=object)[inverse.ravel()]
        offsets = self.topology.offsets.tolist()
        return [texts[a:b] for a, b in pairwise(offsets)]

    def split_column(self, c: int) -> tuple[TokenColumns, list[np.ndarray]]:
        """The tokens without column c (usually the labels, −1), and that column by sequence."""
        labels = self.column(c)
        rest = TokenColumns(np.delete(self.codes, c, axis=1), self.topology, self.alphabet)
        return rest, labels

    def __repr__(self) -> str:
        return f"TokenColumns({len(self)} sequences, {len(self.codes)} tokens, {self.width} columns)"
