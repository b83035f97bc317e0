"""Feature dicts and lists of feature strings to column numbers: the contract.

One call encodes a whole list of sequences. The compiled body walks the Python objects through the C API,
hashes the bytes of the strings where they lie and looks a step's features up together, so that the cache
misses of one string overlap with those of the others; no Python object is made per feature. What a step may
hold and how its features become keys is told in `record_items`. The whole table is five arrays
(`RecordTable.to_arrays`), which a model file stores as they are and `RecordTable.from_arrays` checks before
it believes them.

Cost: about 50 ns for each feature string with a table of 336,000 strings, which no cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from crfield.errors import FeatureError, ModelFileError, ShapeError
from crfield.kernels import choice
from crfield.kernels.joined_items import joined_steps
from crfield.kernels.record_items import MARK, refuse, sequences_of, split_key, steps_of

__all__ = ["EncodedRecords", "RecordTable"]

ARRAYS = ("pool", "offsets", "slot_pool", "slot_offsets", "slot_widths")


class EncodedRecords(NamedTuple):
    """B sequences of N steps in all, with nnz sparse features and D dense columns."""

    offsets: np.ndarray  # (B + 1,) int64, first step of each sequence
    indptr: np.ndarray  # (N + 1,) int64, first feature of each step
    indices: np.ndarray  # (nnz,) int32
    values: np.ndarray | None  # (nnz,) float64, None when all are one
    dense: np.ndarray | None  # (N, D) float64, None when D = 0


class RecordTable:
    """The alphabet of features: keys to sparse columns, names of vectors to slots of the dense block.

    >>> table = RecordTable()
    >>> encoded = table.encode([[{"word": "dog", "speed": -2.0}, {"word": "cat"}], [["speed"]]], grow=True)
    >>> encoded.offsets.tolist(), encoded.indices.tolist(), encoded.values.tolist()
    ([0, 2, 3], [0, 1, 2, 1], [1.0, -2.0, 1.0, 1.0])
    >>> [table.name(k) for k in range(table.n_columns)]
    ['word=dog', 'speed', 'word=cat']
    """

    def __init__(self) -> None:
        self._body = choice.body("records")
        self._table = self._body.RecordTable()

    @property
    def n_columns(self) -> int:
        """K, the number of sparse columns."""
        return int(self._table.n_columns)

    @property
    def n_dense(self) -> int:
        """D, the width of the dense block."""
        return int(self._table.n_dense)

    def encode(self, sequences: Any, *, grow: bool, first_step: int = 0, joined: bool = False) -> EncodedRecords:
        """Columns of a list of sequences; with ``grow`` new features get columns, else they are dropped.

            column(key) = number of different keys that came before it
            dense[n, start(name) + i] = vector_n(name)[i],  zero where step n has no such vector

        With ``joined``, dicts are read as `joined_items` writes them out. FeatureError or ShapeError name the
        sequence, step and feature that cannot be used; they count steps from ``first_step``.
        """
        if not isinstance(sequences, list | tuple):
            sequences = sequences_of(sequences)
        try:
            return EncodedRecords(*self._table.encode(sequences, grow, joined))
        except self._body.Refused as place:
            sequence, step = place.args
        widths = {name: width for name, _, width in self.slots()}
        if joined and step >= 0:
            sequences = [*sequences[:sequence], joined_steps(steps_of(sequences[sequence], sequence))]
        refuse(sequences, sequence, step, widths, first_step=first_step)

    def columns_of(
        self, pool: np.ndarray, offsets: np.ndarray, *, grow: bool, wanted: np.ndarray | None = None
    ) -> np.ndarray:
        """(n,) int32: columns of n strings, −1 where a string is unknown or not wanted.

        String i is ``pool[offsets[i]:offsets[i + 1]]`` in UTF-8; it stands for the same feature as in a
        list of feature strings.

        >>> table = RecordTable()
        >>> table.columns_of(np.frombuffer(b"aba", np.uint8), np.array([0, 1, 2, 3]), grow=True).tolist()
        [0, 1, 0]
        """
        pool = np.ascontiguousarray(pool, np.uint8)
        offsets = np.ascontiguousarray(offsets, np.int64)
        try:
            _check_text(pool, offsets, offsets[:-1], "the attribute names")
        except ModelFileError as error:
            raise FeatureError(str(error)) from None
        wanted = np.ones(len(offsets) - 1, bool) if wanted is None else np.ascontiguousarray(wanted, bool)
        if wanted.shape != (len(offsets) - 1,):
            raise ShapeError(
                f"wanted must have one entry for each of {len(offsets) - 1} strings, got {wanted.shape}."
            )
        return self._table.columns_of(pool, offsets, wanted, grow)

    def parts(self, column: int) -> tuple[str, str | None]:
        """(name, value) of an indicator, (name, None) of a named column."""
        if not 0 <= column < self.n_columns:
            raise IndexError(f"column {column} of {self.n_columns}")
        return split_key(self._table.key(column))

    def name(self, column: int) -> str:
        """``name=value`` of an indicator, ``name`` of a named column."""
        name, value = self.parts(column)
        return name if value is None else f"{name}={value}"

    def all_parts(self) -> list[tuple[str, str | None]]:
        """`parts` of every column in order; for questions about all names at once."""
        arrays = self.to_arrays()
        pool, offsets = arrays["pool"].tobytes(), arrays["offsets"].tolist()
        return [split_key(pool[start:end]) for start, end in pairwise(offsets)]

    def slots(self) -> list[tuple[str, int, int]]:
        """(name, start, width) of every vector in the dense block, in order."""
        _, _, pool, offsets, widths = self._table.arrays()
        data, starts = pool.tobytes(), np.cumsum(widths) - widths
        return [
            (
                data[offsets[k] : offsets[k + 1]].decode("utf-8", "surrogatepass"),
                int(starts[k]),
                int(widths[k]),
            )
            for k in range(len(widths))
        ]

    def subset(self, keep: np.ndarray) -> RecordTable:
        """The same table with only the sparse columns where ``keep`` (K,) bool is true, renumbered in order.

        >>> table = RecordTable()
        >>> _ = table.encode([[["a", "b", "c"]]], grow=True)
        >>> smaller = table.subset(np.array([True, False, True]))
        >>> smaller.encode([[["a", "b", "c"]]], grow=False).indices.tolist()
        [0, 1]
        """
        arrays = self.to_arrays()
        lengths = np.diff(arrays["offsets"])
        arrays["pool"] = arrays["pool"][np.repeat(keep, lengths)]
        arrays["offsets"] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[keep])])
        return self.from_arrays(arrays)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """pool, offsets (K + 1,) of the keys; slot_pool, slot_offsets, slot_widths of the dense block."""
        return dict(zip(ARRAYS, self._table.arrays()))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RecordTable:
        """The table whose `to_arrays` this is; ModelFileError when the arrays cannot be one."""
        missing = [name for name in ARRAYS if name not in arrays]
        if missing:
            raise ModelFileError(f"the feature table lacks the arrays {missing}. Was the file cut or edited?")
        dtypes = (np.uint8, np.int64, np.uint8, np.int64, np.int64)
        parts = []
        for name, dtype in zip(ARRAYS, dtypes):
            array = np.asarray(arrays[name])
            if array.dtype != dtype or array.ndim != 1:
                raise ModelFileError(
                    f"the array {name!r} of the feature table must be 1-D {np.dtype(dtype)}, got "
                    f"{array.ndim}-D {array.dtype}. Was the file edited?"
                )
            parts.append(np.ascontiguousarray(array))
        pool, offsets, slot_pool, slot_offsets, widths = parts
        _check_keys(pool, offsets)
        _check_text(slot_pool, slot_offsets, slot_offsets[:-1], "the names of the dense block")
        if len(widths) != len(slot_offsets) - 1 or (len(widths) and widths.min() < 1) or widths.sum() >= 2**31:
            raise ModelFileError("the widths of the dense block do not fit its names. Was the file damaged?")
        table = cls()
        try:
            table._table = table._body.RecordTable.restore(*parts)
        except ValueError as error:
            raise ModelFileError(
                f"the feature table names a feature twice ({error}). Was the file damaged?"
            ) from None
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordTable.from_arrays, (self.to_arrays(),)


def _check_pool(pool: np.ndarray, offsets: np.ndarray, what: str) -> None:
    """Refuse offsets that do not cut a pool of bytes into strings."""
    if (
        len(offsets) < 1
        or offsets[0] != 0
        or offsets[-1] != len(pool)
        or (offsets[1:] < offsets[:-1]).any()
        or len(offsets) > 2**31 - 1
    ):
        raise ModelFileError(
            f"{what} are damaged: offsets must rise from 0 to the {len(pool)} bytes of the pool. "
            "Was the file cut or edited?"
        )


def _check_text(pool: np.ndarray, offsets: np.ndarray, starts: np.ndarray, what: str) -> None:
    _check_pool(pool, offsets, what)
    inside = pool[starts[starts < len(pool)]]
    try:
        pool.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{what} are not UTF-8 text: {error}. Was the file damaged?") from None
    if ((inside & 0xC0) == 0x80).any():
        raise ModelFileError(f"{what} are cut inside a character. Was the file damaged?")


def _check_keys(pool: np.ndarray, offsets: np.ndarray) -> None:
    """Every key is UTF-8 text, or FF, the length of a name, and two texts: checked all at once."""
    what = "the names of the features"
    _check_pool(pool, offsets, what)
    marked = np.flatnonzero(pool == MARK[0])
    owner = np.searchsorted(offsets, marked, side="right") - 1
    heads = offsets[:-1][owner] == marked if len(marked) else np.zeros(0, bool)
    # A byte FF may also be part of a length, so only marks at the start of a key count; any other FF that is
    # not in a header fails the decoding below.
    starts, ends = marked[heads], offsets[1:][owner[heads]]
    if (ends - starts < 5).any():
        raise ModelFileError(f"{what} are damaged: a key ends inside its header. Was the file cut?")
    header = starts[:, None] + np.arange(1, 5)
    lengths = (pool[header].astype(np.int64) << np.array([0, 8, 16, 24])).sum(axis=1)
    if (lengths > ends - starts - 5).any():
        raise ModelFileError(f"{what} are damaged: a name is longer than its key. Was the file edited?")
    text = pool.copy()
    text[starts[:, None] + np.arange(5)] = ord(" ")
    values = starts + 5 + lengths
    firsts = np.concatenate([offsets[:-1], values[values < ends], starts + 5])
    _check_text(text, offsets, firsts, what)
