"""Sentences as columns of numbered texts, and names of features from them, without a string per token.

A sentence corpus repeats itself: 265,000 Spanish tokens are 26,000 different words. So a *text column* holds for each
of N tokens the number of its value, and a list of the values. Whatever is derived from a word is derived from the
values; a feature "word[-1]=de" gets its name once for each value and place, and its occurrences are one gather of
numbers:

    code(n) = names[ column(n + place) ],     absent where n + place lies beyond the sentence

Conjunctions number the tuples that occur. Everything ends in one table (N, features) of codes, −1 where a feature is
absent, from which the rows are read off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, ShapeError

__all__ = ["FeatureTable", "TextColumn", "placed", "read_tokens"]

ABSENT = -1
START, END = "<start>", "<end>"


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A text, or nothing, for each of N tokens.

    >>> words = TextColumn("word", np.array([0, 1, 0]), ["la", "Coruña"])
    >>> words.derived("tail", lambda word: word[-2:] if len(word) > 2 else None)
    TextColumn('tail', 3 tokens, 1 values)
    """

    name: str
    codes: np.ndarray  # (N,) numbers of values, −1 for none
    values: list[str]
    flag: bool = False  # whether there is but one value, which the name says

    def derived(self, name: str, function: Callable[[str], str | None], *, flag: bool = False) -> TextColumn:
        """The column of function(value); the function is asked once for every value."""
        numbers: dict[str, int] = {}
        table = np.full(len(self.values) + 1, ABSENT, dtype=np.int64)
        for k, value in enumerate(self.values):
            made = function(value)
            if made is not None:
                table[k] = numbers.setdefault(made, len(numbers))
        return TextColumn(name, table[self.codes], list(numbers), flag)

    def __repr__(self) -> str:
        return f"TextColumn({self.name!r}, {len(self.codes)} tokens, {len(self.values)} values)"


def placed(name: str, place: int) -> str:
    """The name of what stands some steps away.

    >>> placed("word", -1), placed("word", 0), placed("word", 2)
    ('word[-1]', 'word', 'word[+2]')
    """
    return f"{name}[{place:+d}]" if place else name


class FeatureTable:
    """Features of the tokens of some sentences, gathered one after another.

    >>> words = TextColumn("word", np.array([0, 1, 0]), ["la", "Coruña"])
    >>> table = FeatureTable(Chains.from_lengths([2, 1]))
    >>> table.add(words, (0, -1))
    >>> table.add_conjunction([(words, -1), (words, 0)])
    >>> for sentence in table.rows():
    ...     print(sentence)
    [['word=la', 'word[-1]|word=<start>|la'], ['word=Coruña', 'word[-1]=la', 'word[-1]|word=la|Coruña']]
    [['word=la', 'word[-1]|word=<start>|la']]
    """

    def __init__(self, topology: Chains) -> None:
        self.topology = topology
        self._alphabet = Alphabet()
        self._features: list[np.ndarray] = []
        lengths = topology.lengths
        self._first = np.repeat(topology.offsets[:-1], lengths)
        self._stop = np.repeat(topology.offsets[1:], lengths)
        self._at: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def _places(self, place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N,) which token stands there (any if none does), whether that is before the start, after the end."""
        if place not in self._at:
            there = np.arange(self.topology.n_nodes) + place
            before, after = there < self._first, there >= self._stop
            there[before | after] = 0
            self._at[place] = there, before, after
        return self._at[place]

    def add(self, column: TextColumn, places: Sequence[int]) -> None:
        """The column's value at each of these places."""
        for place in places:
            name = placed(column.name, place)
            names = [name] if column.flag else [f"{name}={value}" for value in column.values]
            numbers = np.append(self._alphabet.encode(names, add=True), np.int32(ABSENT))
            there, before, after = self._places(place)
            codes = numbers[column.codes[there]]
            if place:
                codes[before | after] = ABSENT
            self._features.append(codes)

    def add_borders(self, reach: int) -> None:
        """``start[-k]`` and ``end[+k]`` where the k-th step to that side is no longer in the sentence."""
        for k in range(1, reach + 1):
            for name, place, side in (("start", -k, 1), ("end", k, 2)):
                number = self._alphabet.encode([placed(name, place)], add=True)[0]
                self._features.append(np.where(self._places(place)[side], number, ABSENT).astype(np.int32))

    def add_conjunction(self, terms: Sequence[tuple[TextColumn, int]]) -> None:
        """What several columns say together; absent where one of them says nothing."""
        key = np.zeros(self.topology.n_nodes, dtype=np.int64)
        sizes = [len(column.values) + 2 for column, _ in terms]
        if np.prod([float(size) for size in sizes]) > 2.0**62:
            raise FeatureError(
                f"the conjunction of {[placed(column.name, place) for column, place in terms]} has too many possible "
                "values to number. Use fewer or coarser parts, such as short_shape."
            )
        absent = np.zeros(len(key), dtype=bool)
        for (column, place), size in zip(terms, sizes):
            there, before, after = self._places(place)
            codes = column.codes[there].astype(np.int64)
            codes[before], codes[after] = size - 2, size - 1
            absent |= codes < 0
            key = key * size + codes
        used, inverse = np.unique(key[~absent], return_inverse=True)
        parts = []
        for (column, _), size in reversed(list(zip(terms, sizes))):
            texts = [*column.values, START, END]
            parts.append([texts[code] for code in (used % size).tolist()])
            used = used // size
        name = "|".join(placed(column.name, place) for column, place in terms)
        names = [f"{name}={'|'.join(values)}" for values in zip(*reversed(parts))]
        codes = np.full(len(key), ABSENT, dtype=np.int32)
        codes[~absent] = self._alphabet.encode(names, add=True)[inverse.ravel()]
        self._features.append(codes)

    def rows(self) -> AttributeSequences:
        """The features of each token, in the order in which they were added."""
        n = self.topology.n_nodes
        table = np.stack(self._features, axis=1) if self._features else np.zeros((n, 0), np.int32)
        there = table != ABSENT
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(there.sum(axis=1))])
        return AttributeSequences(self.topology, indptr, table[there], None, self._alphabet)


def read_tokens(X: Any) -> tuple[Chains, list[tuple[np.ndarray, list[str]]]]:
    """The chains of some sentences, and for every column of their tokens the codes (N,) and the values.

    Tokens are texts, or rows of as many texts each; `TokenColumns` are taken as they are.

    >>> topology, [(codes, values)] = read_tokens([["la", "Coruña"], [], ["la"]])
    >>> topology.lengths.tolist(), codes.tolist(), values
    ([2, 0, 1], [0, 1, 0], ['la', 'Coruña'])
    """
    if isinstance(X, TokenColumns):
        return X.topology, [_numbered(X.codes[:, c], X.alphabet) for c in range(X.width)]
    if isinstance(X, str | bytes | dict) or not hasattr(X, "__iter__"):
        raise FeatureError(f"X is {X!r:.40}, expected a list of sentences, each a list of words.")
    sentences = X if isinstance(X, list | tuple) else list(X)
    first = None
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str | bytes):
            raise FeatureError(
                f"sentence {number} is the text {sentence!r:.40}, expected a list of words. Split it first: "
                "[text.split() for text in X], or write [X] if X is one sentence."
            )
        if first is None and len(sentence):
            first = sentence[0]
    if first is not None and not isinstance(first, str):
        tokens = _rows(sentences)
        return tokens.topology, [_numbered(tokens.codes[:, c], tokens.alphabet) for c in range(tokens.width)]
    for number, sentence in enumerate(sentences):
        for step, word in enumerate(sentence):
            if not isinstance(word, str):
                raise FeatureError(
                    f"sentence {number}, step {step} is {word!r:.40} of type {type(word).__name__}, expected a word "
                    "as the steps before it."
                )
    alphabet = Alphabet()
    codes = alphabet.encode([word for sentence in sentences for word in sentence], add=True)
    topology = Chains.from_lengths([len(sentence) for sentence in sentences])
    return topology, [(codes, list(alphabet))]


def _rows(sentences: Sequence[Any]) -> TokenColumns:
    try:
        return TokenColumns.from_sequences(sentences)
    except (TypeError, ShapeError, FeatureError) as error:
        raise FeatureError(f"tokens must be words, or rows of as many texts each: {error}") from None


def _numbered(codes: np.ndarray, alphabet: Alphabet) -> tuple[np.ndarray, list[str]]:
    used, inverse = np.unique(codes, return_inverse=True)
    return inverse.ravel(), alphabet.texts(used)
