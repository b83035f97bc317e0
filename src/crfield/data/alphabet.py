"""An alphabet of strings that grows while data is read and is locked afterwards.

Codes are given in order of first appearance, so reading the same data twice gives the same alphabet. A locked
alphabet answers −1 for what it has never seen; that is how an encoder drops unknown features. An alphabet is
stored as two arrays, never as a list of strings, and it pickles and copies by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.kernels import columns as kernel

UNKNOWN = -1


class Alphabet:
    """Strings <-> codes.

    >>> words = Alphabet(["the", "cat"])
    >>> words.encode(["cat", "sat", "the"]).tolist(), words.encode(["sat"], add=True).tolist()
    ([1, -1, 0], [2])
    >>> words.lock()[2], words.get("dog"), len(words)
    ('sat', -1, 3)
    """

    def __init__(self, strings: Iterable[str] = (), *, interner: kernel.Interner | None = None) -> None:
        self._interner = kernel.interner() if interner is None else interner
        self._locked = False
        strings = list(strings)
        if strings:
            self.encode(strings, add=True)

    @property
    def interner(self) -> kernel.Interner:
        """The table of the kernels, for kernels that read strings themselves."""
        return self._interner

    @property
    def locked(self) -> bool:
        """Whether the alphabet refuses new strings."""
        return self._locked

    def lock(self) -> Alphabet:
        """Refuse new strings from now on; returns the alphabet itself."""
        self._locked = True
        return self

    def encode(self, strings: Iterable[str], add: bool = False) -> np.ndarray:
        """(n,) int32 codes; an unknown string is added, or −1 without ``add``."""
        if add:
            self._may_grow()
        return kernel.codes(strings, self._interner, add=add)

    def encode_rows(self, sequences: Any, add: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Offsets (B + 1,) and codes (N, C) of sequences of rows of C strings.

        >>> Alphabet().encode_rows([[("a", "b")], [("b", "b")]], add=True)[1].tolist()
        [[0, 1], [1, 1]]
        """
        if add:
            self._may_grow()
        return kernel.rows(sequences, self._interner, add=add)

    def _may_grow(self) -> None:
        if self._locked:
            raise InputError("the alphabet is locked and takes no new strings. Encode with add=False.")

    def translate(self, other: Alphabet) -> np.ndarray:
        """(len(other) + 1,) int32: the code here of every code of ``other``, −1 where unknown here.

        The last entry is −1, so that the table also maps −1 to −1.

        >>> Alphabet(["b", "c"]).translate(Alphabet(["a", "b"])).tolist()
        [-1, 0, -1]
        """
        return np.append(self._interner.pool_codes(*other.to_arrays()), np.int32(UNKNOWN))

    def subset(self, codes: np.ndarray) -> Alphabet:
        """A new alphabet of the given codes' strings, numbered in the given order.

        >>> list(Alphabet(["a", "b", "c"]).subset(np.array([2, 0])))
        ['c', 'a']
        """
        pool, offsets = self.to_arrays()
        starts, lengths = offsets[codes], offsets[codes + 1] - offsets[codes]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        at = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        return Alphabet.from_arrays(pool[at], ends)

    def texts(self, codes: np.ndarray | Iterable[int]) -> list[str]:
        """The strings of the codes."""
        codes = np.ascontiguousarray(codes, dtype=np.int32).ravel()
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(self):
            raise IndexError(f"codes lie in 0 … {len(self) - 1}, got {codes.min()} … {codes.max()}")
        return self._interner.texts(codes)

    def get(self, text: str) -> int:
        """The code of a string, −1 when it is not there."""
        return int(self.encode([text])[0])

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.get(text) != UNKNOWN

    def __len__(self) -> int:
        return len(self._interner)

    def __getitem__(self, code: int) -> str:
        return self.texts([code])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts(np.arange(len(self), dtype=np.int32)))

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All strings as UTF-8 end to end (uint8), and where each ends (int64, one more than strings)."""
        return self._interner.to_arrays()

    @classmethod
    def from_arrays(cls, pool: np.ndarray, offsets: np.ndarray) -> Alphabet:
        """The alphabet whose ``to_arrays`` this is, unlocked; `InputError` when the arrays are damaged.

        >>> Alphabet.from_arrays(*Alphabet(["é", "b"]).to_arrays())[0]
        'é'
        """
        return cls(interner=kernel.interner_from_arrays(pool, offsets))

    def __reduce__(self) -> tuple[Callable[..., Alphabet], tuple[np.ndarray, np.ndarray, bool]]:
        return _restored, (*self.to_arrays(), self._locked)

    def __repr__(self) -> str:
        return f"Alphabet({len(self)} strings{', locked' if self._locked else ''})"


def _restored(pool: np.ndarray, offsets: np.ndarray, locked: bool) -> Alphabet:
    made = Alphabet.from_arrays(pool, offsets)
    return made.lock() if locked else made
