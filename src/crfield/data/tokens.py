"""Tokens with columns, as in a CoNLL file: every token has a word, a part of speech, … and all are strings.

The strings are codes of one alphabet for all columns, so that templates can compare a word here with a word
there, and the table (N, C) of codes is all that templates read. A `TokenColumns` behaves like the list of
sequences of token rows it stands for: it can be indexed, sliced, and split by scikit-learn's cross-validation
without a string being made.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.flat import FlatSequences
from crfield.errors import ShapeError

Row = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TokenColumns(FlatSequences[list[Row]]):
    """Token columns, as in a CoNLL file: B sequences of tokens with C strings each.

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

    def _sequence(self, number: int) -> list[Row]:
        first, last = self.topology.offsets[number : number + 2]
        texts = iter(self.alphabet.texts(self.codes[first:last]))
        return list(zip(*[texts] * self.width))

    def _gather(self, topology: Chains, nodes: np.ndarray) -> TokenColumns:
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
