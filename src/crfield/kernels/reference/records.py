"""Feature dicts and lists of feature strings to column numbers: the readable body.

`record_items` reads a step into keys and vectors; a Python dict numbers the keys in order of first
appearance. Later features may arrive while earlier rows are already written, so vectors are kept aside
until the width of the dense block is known.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.kernels.joined_items import joined_steps
from crfield.kernels.record_items import Item, check_width, sequences_of, steps_of, utf8
from crfield.kernels.reference.linear import Tagger, best_labels
from crfield.kernels.tagging import few_known

Encoded = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]


class Refused(ValueError):
    """Something cannot be used; ``args = (sequence, step)``, −1 where X or a whole sequence is meant.

    Why is said by `record_items.refuse`, which looks at the place again.
    """


class RecordTable:
    """Keys to column numbers and named slots of the dense block; the contract is in `records.RecordTable`."""

    def __init__(self) -> None:
        self._columns: dict[bytes, int] = {}
        self._slots: dict[str, tuple[int, int]] = {}  # name: (start, width)

    @classmethod
    def restore(
        cls,
        pool: np.ndarray,
        offsets: np.ndarray,
        slot_pool: np.ndarray,
        slot_offsets: np.ndarray,
        slot_widths: np.ndarray,
    ) -> RecordTable:
        """The table whose `arrays` these are; ValueError when a key or a name comes twice."""
        table = cls()
        keys, names = _strings_of(pool, offsets), _strings_of(slot_pool, slot_offsets)
        table._columns = {key: k for k, key in enumerate(keys)}
        starts = np.cumsum(slot_widths) - slot_widths
        table._slots = {
            name.decode("utf-8", "surrogatepass"): (int(start), int(width))
            for name, start, width in zip(names, starts, slot_widths)
        }
        if len(table._columns) != len(keys) or len(table._slots) != len(names):
            raise ValueError("a key comes twice")
        return table

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """pool, offsets, slot_pool, slot_offsets, slot_widths."""
        widths = np.array([width for _, width in self._slots.values()], np.int64)
        return (*_pooled(list(self._columns)), *_pooled([utf8(name) for name in self._slots]), widths)

    @property
    def n_columns(self) -> int:
        """The number of keys."""
        return len(self._columns)

    @property
    def n_dense(self) -> int:
        """The width of the dense block."""
        return sum(width for _, width in self._slots.values())

    def key(self, column: int) -> bytes:
        """The key of a column."""
        return list(self._columns)[column]

    def encode(self, sequences: Any, grow: bool, joined: bool) -> Encoded:
        """offsets, indptr, indices, values or None, dense or None."""
        lengths: list[int] = []
        counts: list[int] = []
        indices: list[int] = []
        values: list[float] = []
        blocks: list[tuple[int, int, np.ndarray]] = []  # row, start, vector
        s = t = -1
        try:
            for s, sequence in enumerate(sequences_of(sequences)):
                t = -1
                steps = steps_of(sequence, s)
                steps = joined_steps(steps) if joined else steps
                lengths.append(len(steps))
                for t, step in enumerate(steps):
                    item = Item(s, t).read(step)
                    columns = [(self._number_of(key, grow), value) for key, value in item.keys]
                    known = [(column, value) for column, value in columns if column >= 0]
                    indices += [column for column, _ in known]
                    values += [value for _, value in known]
                    for name, vector in item.vectors:
                        if grow:
                            self._slots.setdefault(name, (self.n_dense, len(vector)))
                        if name in self._slots:
                            start, width = self._slots[name]
                            check_width(item.where, name, len(vector), width)
                            blocks.append((len(counts), start, vector))
                    counts.append(len(known))
        except InputError:
            raise Refused(s, t) from None
        dense = np.zeros((len(counts), self.n_dense)) if self._slots else None
        for row, start, vector in blocks:
            dense[row, start : start + len(vector)] += vector  # type: ignore[index]
        numbers = np.array(values, np.float64)
        return (
            _ends(lengths),
            _ends(counts),
            np.array(indices, np.int32),
            None if (numbers == 1).all() else numbers,
            dense,
        )

    def columns_of(self, pool: np.ndarray, offsets: np.ndarray, wanted: np.ndarray, grow: bool) -> np.ndarray:
        """Column of every named key of a pool of strings, −1 where it is unknown or not wanted."""
        return np.array(
            [self._number_of(text, grow) if want else -1 for text, want in zip(_strings_of(pool, offsets), wanted)],
            np.int32,
        )

    def _number_of(self, key: bytes, grow: bool) -> int:
        if grow:
            return self._columns.setdefault(key, len(self._columns))
        return self._columns.get(key, -1)


class SequenceTagger:
    """Encode, decode and name the labels of one sequence; the contract is in `tagging`."""

    def __init__(
        self, table: RecordTable, tagger: Tagger, labels: tuple[Any, ...], joined: bool, largest: float
    ) -> None:
        if (tagger.model.columns, tagger.model.n_dense) != (table.n_columns, table.n_dense):
            raise ValueError("the weights do not fit the table")
        self._parts = table, tagger, labels
        self._joined, self._largest = joined, largest

    def tag(self, steps: Any) -> list[Any] | None:
        """The labels, or None where the sequence is not a usual one."""
        table, tagger, labels = self._parts
        if not isinstance(steps, list | tuple):
            return None
        try:
            _, indptr, indices, values, dense = table.encode([steps], False, self._joined)
        except Refused:
            return None
        cells = [part for part in (values, dense) if part is not None]
        if few_known(indptr, indices) or any((np.abs(part) > self._largest).any() for part in cells):
            return None
        return best_labels(tagger, labels, (indptr, indices, values), dense, (None, None, None))


def _strings_of(pool: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    data, ends = pool.tobytes(), offsets.tolist()
    return [data[a:b] for a, b in pairwise(ends)]


def _pooled(strings: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(strings), np.uint8), _ends([len(text) for text in strings])


def _ends(lengths: list[int]) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
