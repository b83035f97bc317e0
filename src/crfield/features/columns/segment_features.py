"""What a segment says as a whole: columns of its text.

The steps of a sequence carry symbols (words, shapes, any strings), and a segment's *text* is its run of symbols:
"Banco de España" is a feature that no step of it has. There are N · D candidate segments, nearly all of which were
never seen as a gold segment and have no column; to look each of them up as a string would cost far more than
inference. So texts are the paths of a prefix tree (a trie): all positions walk down it together, one symbol at a
time, and those that fall out of it stop. On text that is a few steps for most positions, whatever D is, and no string
is ever joined.

Several runs of symbols may be read side by side (say words, and their shapes); each has a trie of its own, and the
columns of all are numbered through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, InputError, ModelFileError
from crfield.kernels.segments import Marks

Symbol = str | int | Callable[[Any, int], Any]


def symbols_of(X: Any, source: Symbol) -> list[str]:
    """The symbol of every step of every sequence, end to end: a dict's entry, a row's column, or f(x, t).

    A dict without the entry has the empty symbol.

    >>> symbols_of([[{"word": "New"}, {"word": "York"}], [{}]], "word")
    ['New', 'York', '']
    >>> symbols_of([[("New", "NNP")]], 1), symbols_of([["New", "York"]], lambda x, t: x[t].lower())
    (['NNP'], ['new', 'york'])
    """
    if callable(source):
        return [str(source(x, t)) for x in X for t in range(len(x))]
    if isinstance(source, int) and isinstance(X, TokenColumns):
        return [str(text) for column in X.column(source) for text in column]
    try:
        if isinstance(source, str):
            return [str(step.get(source, "")) for x in X for step in x]
        return [str(step[source]) for x in X for step in x]
    except _WRONG:
        _refuse_step(X, source)


_WRONG = (AttributeError, TypeError, IndexError, KeyError)


def _refuse_step(X: Any, source: str | int) -> NoReturn:
    wanted = f"a dict with the entry {source!r}" if isinstance(source, str) else f"a column {source}"
    where = ""
    for number, x in enumerate(X):
        for t, step in enumerate(x):
            try:
                step.get(source, "") if isinstance(source, str) else step[source]
            except _WRONG:
                where = where or f", got {step!r:.40} in sequence {number}, step {t}"
    raise FeatureError(
        f"segment_text={source!r} needs {wanted} at every step{where}. Name an entry of the dicts, a column of the "
        "rows, or give a function f(x, t)."
    ) from None


def check_symbols(sources: Any) -> tuple[Symbol, ...]:
    """The sources of segment texts as a tuple; InputError where they are none.

    >>> check_symbols(["word", 2])
    ('word', 2)
    """
    if isinstance(sources, str | int) or callable(sources) or not isinstance(sources, Iterable):
        raise InputError(
            f"segment_text must be a list of entries, columns or functions, got {sources!r}. Write [{sources!r}]."
        )
    listed = tuple(sources)
    for source in listed:
        if isinstance(source, bool) or not (isinstance(source, str | int) or callable(source)):
            raise InputError(
                f"segment_text must name dict entries (str), columns of rows (int) or be functions, got {source!r}."
            )
    return listed


@dataclass(frozen=True, eq=False)
class Trie:
    """Texts that have a column, as a prefix tree over the codes of an alphabet.

    Node 0 is the root; ``keys`` are parent · size + code, sorted, and ``children`` the node each leads to; ``column``
    is −1 at nodes that only lead on.

    >>> chains = Chains.from_lengths([4])
    >>> gold = Segmentation(chains, [0, 2, 3], [2, 3, 4], [1, 0, 0])
    >>> trie, columns = Trie.learn(["New", "York", "in", "York"], gold)
    >>> columns.tolist(), [trie.text(k) for k in range(trie.n_columns)]
    ([2, 1, 0], ['York', 'in', 'New York'])
    >>> [found.tolist() for found in trie.find(["New", "York", "New", "York"], chains, 3)]
    [[1, 1, 3, 3], [2, 1, 2, 1], [2, 0, 2, 0]]
    """

    alphabet: Alphabet
    keys: np.ndarray  # (V,) int64, rising
    children: np.ndarray  # (V,) int32
    column: np.ndarray  # (V + 1,) int32

    @classmethod
    def learn(cls, symbols: Sequence[str], gold: Segmentation, *, min_count: int = 1) -> tuple[Trie, np.ndarray]:
        """The trie of the texts of gold segments, and the column (M,) of each (−1: under ``min_count`` of them)."""
        alphabet = Alphabet()
        codes = alphabet.encode(symbols, add=True).astype(np.int64)
        size, state = max(len(alphabet), 1), np.zeros(len(gold.start), np.int64)
        keys, n_nodes = [], 1
        for depth in range(int(gold.lengths.max(initial=0))):
            inside = np.flatnonzero(gold.lengths > depth)
            found, number = np.unique(state[inside] * size + codes[gold.start[inside] + depth], return_inverse=True)
            keys.append(found)
            state[inside] = n_nodes + number.ravel()
            n_nodes += len(found)
        count = np.bincount(state, minlength=n_nodes)
        ends = np.zeros(n_nodes, dtype=bool)
        ends[state] = True
        kept = ends & (count >= min_count)
        column = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        # Nodes are numbered level by level in the order of their keys, and keys of a later level are larger.
        joined = np.concatenate(keys) if keys else np.zeros(0, np.int64)
        return cls(alphabet.lock(), joined, np.arange(1, n_nodes, dtype=np.int32), column), column[state]

    @property
    def n_columns(self) -> int:
        """K."""
        return int(self.column.max(initial=-1)) + 1

    def find(self, symbols: Sequence[str], topology: Chains, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Last node, number of steps and column of every segment of at most ``most`` steps that has a column.

        Sorted by last node, longest first.
        """
        codes = self.alphabet.encode(symbols).astype(np.int64)
        size = max(len(self.alphabet), 1)
        stop = np.repeat(topology.offsets[1:], topology.lengths)
        start, state = np.arange(topology.n_nodes), np.zeros(topology.n_nodes, np.int64)
        ends, steps, columns = [], [], []
        for depth in range(most):
            alive = np.flatnonzero(start + depth < stop[start]) if len(start) else np.zeros(0, np.int64)
            start, state = start[alive], state[alive]
            code = codes[start + depth]
            key = np.where(code >= 0, state * size + code, -1)
            place = np.searchsorted(self.keys, key)
            known = np.flatnonzero(np.take(self.keys, place, mode="clip") == key) if len(self.keys) else place[:0]
            if not len(known):
                break
            start, state = start[known], self.children[place[known]].astype(np.int64)
            column = self.column[state]
            hit = np.flatnonzero(column >= 0)
            ends.append(start[hit] + depth)
            steps.append(np.full(len(hit), depth + 1, np.int32))
            columns.append(column[hit])
        if not ends:
            return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        end, step, item = np.concatenate(ends), np.concatenate(steps), np.concatenate(columns)
        order = np.lexsort((-step, end))
        return end[order], step[order], item[order]

    def text(self, column: int) -> str:
        """The symbols of a column, a space between."""
        if not 0 <= column < self.n_columns:
            raise IndexError(f"text {column} of {self.n_columns}")
        node, size, words = int(np.flatnonzero(self.column == column)[0]), max(len(self.alphabet), 1), []
        while node:
            parent, code = divmod(int(self.keys[np.flatnonzero(self.children == node)[0]]), size)
            words.append(self.alphabet[code])
            node = parent
        return " ".join(reversed(words))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a model file."""
        pool, ends = self.alphabet.to_arrays()
        return {"pool": pool, "ends": ends, "keys": self.keys, "column": self.column}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Trie:
        """The trie whose `to_arrays` this is; ModelFileError when it cannot be one."""
        try:
            alphabet = Alphabet.from_arrays(arrays["pool"], arrays["ends"]).lock()
            keys, column = arrays["keys"], arrays["column"]
        except (KeyError, InputError) as error:
            raise ModelFileError(f"the texts of segments in the model file are damaged: {error}.") from None
        size, nodes = max(len(alphabet), 1), len(keys) + 1
        good = keys.dtype == np.int64 and keys.ndim == 1 and column.dtype == np.int32 and column.shape == (nodes,)
        if good and len(keys):
            # A parent has a smaller number than its child, so every path ends at the root.
            good = bool(keys[0] >= 0 and (np.diff(keys) > 0).all() and (keys // size <= np.arange(len(keys))).all())
        if good:
            held = column[column >= 0]
            good = bool(column[0] < 0 and np.array_equal(held, np.arange(len(held))) and column.min(initial=-1) >= -1)
        if not good:
            raise ModelFileError("the texts of segments in the model file are damaged: no prefix tree.")
        return cls(alphabet, keys, np.arange(1, nodes, dtype=np.int32), column)


def marks_of(
    tries: Sequence[Trie],
    sources: Sequence[Symbol],
    X: Any,
    topology: Chains,
    *,
    most: int,
    items: tuple[np.ndarray, np.ndarray],
) -> Marks:
    """Where the segments with a text stand, columns of all tries numbered through; ``items`` are ptr and labels.

    >>> chains = Chains.from_lengths([2])
    >>> trie, _ = Trie.learn(["New", "York"], Segmentation(chains, [0], [2], [0]))
    >>> items = (np.array([0, 1]), np.array([0], np.int32))
    >>> marks = marks_of([trie], ["w"], [[{"w": "New"}, {"w": "York"}]], chains, most=2, items=items)
    >>> marks.ptr.tolist(), marks.steps.tolist(), marks.item.tolist()
    ([0, 0, 1], [2], [0])
    """
    found, base = [], 0
    for trie, source in zip(tries, sources, strict=True):
        symbols = symbols_of(X, source)
        if len(symbols) != topology.n_nodes:
            raise FeatureError(f"segment_text={source!r} gives {len(symbols)} symbols for {topology.n_nodes} steps.")
        end, steps, column = trie.find(symbols, topology, most)
        found.append((end, steps, column + np.int32(base)))
        base += trie.n_columns
    if not found:
        return Marks.none(topology.n_nodes)
    end, steps, item = (np.concatenate(parts) for parts in zip(*found))
    order = np.argsort(end, kind="stable")
    ptr = np.searchsorted(end[order], np.arange(topology.n_nodes + 1))
    return Marks(ptr, steps[order], item[order], *items)
