"""Handwritten words of the OCR data set, as numpy keeps them.

The file ``letters.npz`` holds images of 16 × 8 pixels packed to bits, one letter each, that lie word after word
(Kassel 1995; cleaned by Taskar, Guestrin & Koller 2004, *Max-margin Markov networks*), with the fold of every word.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from crfield.errors import FormatError
from crfield.storage.files import Source, name_of, read_bytes

PIXELS = 128


@dataclass(frozen=True, eq=False)
class Letters:
    """Words as sequences of letters: pixels (letters, 128) of 0 and 1, labels "a" … "z", and a fold for each word."""

    pixels: list[np.ndarray]
    labels: list[np.ndarray]
    fold: np.ndarray  # (words,)

    def part(self, wanted: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Pixels and labels of the words for which ``wanted`` (words,) is True."""
        chosen = np.flatnonzero(wanted).tolist()
        return [self.pixels[k] for k in chosen], [self.labels[k] for k in chosen]


def read_letters(source: Source) -> Letters:
    """The words of a file; FormatError where it is not what was expected.

    >>> stream = io.BytesIO()
    >>> np.savez(stream, pixels=np.full((3, 16), 255, np.uint8), labels=[2, 0, 19], offsets=[0, 2, 3], fold=[0, 1])
    >>> _ = stream.seek(0)
    >>> words = read_letters(stream)
    >>> [word.tolist() for word in words.labels], words.pixels[0].shape
    ([['c', 'a'], ['t']], (2, 128))
    """
    data = read_bytes(source)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            packed, codes, offsets, fold = (arrays[name] for name in ("pixels", "labels", "offsets", "fold"))
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise FormatError(f"not the letters that were expected: {error}.", file=name_of(source)) from None
    if (
        packed.dtype != np.uint8
        or packed.shape != (len(codes), PIXELS // 8)
        or (len(codes) and not (codes.min() >= 0 and codes.max() < 26))
        or len(offsets) != len(fold) + 1
        or offsets[0] != 0
        or offsets[-1] != len(codes)
        or (np.diff(offsets) < 0).any()
    ):
        raise FormatError("the arrays of the letters do not fit together.", file=name_of(source))
    pixels = np.unpackbits(packed, axis=1)
    names = np.array([chr(ord("a") + k) for k in range(26)])[codes]
    cuts = offsets[1:-1]
    return Letters(np.split(pixels, cuts), np.split(names, cuts), np.asarray(fold, np.int64))
