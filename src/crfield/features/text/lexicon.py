"""Lexicons (gazetteers) and word clusters as features.

A *lexicon* (a gazetteer) is a list of entries of one or more words. In a sentence the longest entry that begins at a
step is marked there, its first word B and the others I, and the search goes on behind it:

    entries "San Sebastián", "San"        San Sebastián y San     →     B I · B

Entries are kept by their first word, longest first, so that a step costs a look at one dict, and only where some
entry begins with its word a few comparisons.

*Clusters* are bit strings of words, as Brown et al. (1992) make them: words that share the first bits are of one
kind, the more bits the finer. Cut at a few lengths they serve as classes (Miller, Guinness & Zamanian 2004; Turian,
Ratinov & Bengio 2010). Any other class fits as well, as long as it is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crfield.data.alphabet import Alphabet
from crfield.errors import InputError, ModelFileError

__all__ = ["Lexicon", "cluster_of", "cluster_prefix", "clusters_from_arrays", "clusters_to_arrays"]

FIRST, INSIDE, OUTSIDE = "B", "I", None


class Lexicon:
    """Entries of one or more words; which of them a sentence holds.

    An entry is a text, whose words are parted by spaces, or a sequence of words.

    >>> places = Lexicon(["San Sebastián", "San", ("Nueva", "York")])
    >>> places.mark("Ana vive en San Sebastián".split())
    [None, None, None, 'B', 'I']
    >>> places.mark(["NUEVA", "YORK"]), Lexicon(["Nueva York"], ignore_case=True).mark(["NUEVA", "YORK"])
    ([None, None], ['B', 'I'])
    """

    def __init__(self, entries: Iterable[Any], *, ignore_case: bool = False, name: str = "lexicon") -> None:
        self.ignore_case = ignore_case
        if isinstance(entries, str | bytes) or not isinstance(entries, Iterable):
            raise InputError(
                f"{name!r} must be a collection of entries, got {entries!r:.40}. crfield.read_lexicon reads a file."
            )
        found: dict[str, set[tuple[str, ...]]] = {}
        for entry in entries:
            words = self._words(entry, name)
            if words:
                found.setdefault(words[0], set()).add(words)
        self._by_first = {first: sorted(ways, key=lambda way: (-len(way), way)) for first, ways in found.items()}

    def _words(self, entry: Any, name: str) -> tuple[str, ...]:
        if isinstance(entry, str):
            words = tuple(entry.split())
        elif isinstance(entry, Sequence) and all(isinstance(word, str) for word in entry):
            words = tuple(entry)
        else:
            raise InputError(f"an entry of {name!r} must be a text or a sequence of words, got {entry!r:.40}.")
        return tuple(map(str.casefold, words)) if self.ignore_case else words

    def __deepcopy__(self, memo: Any) -> Lexicon:
        return self  # never changed: scikit-learn's clone need not copy it

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lexicon):
            return NotImplemented
        return (self.ignore_case, self._by_first) == (other.ignore_case, other._by_first)

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return sum(map(len, self._by_first.values()))

    @property
    def longest(self) -> int:
        """Words of the longest entry; 1 where there is none."""
        return max((len(ways[0]) for ways in self._by_first.values()), default=1)

    def __repr__(self) -> str:
        return f"Lexicon({len(self)} entries{', ignore_case=True' if self.ignore_case else ''})"

    def mark(self, words: Sequence[str]) -> list[str | None]:
        """B and I where entries stand, None elsewhere; from the left, the longest first, without overlaps."""
        if self.ignore_case:
            words = [word.casefold() for word in words]
        out: list[str | None] = [OUTSIDE] * len(words)
        t, known = 0, self._by_first
        while t < len(words):
            for way in known.get(words[t], ()):
                if len(way) == 1 or tuple(words[t : t + len(way)]) == way:
                    out[t] = FIRST
                    out[t + 1 : t + len(way)] = [INSIDE] * (len(way) - 1)
                    t += len(way)
                    break
            else:
                t += 1
        return out

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The entries as codes of an alphabet of their words, end to end, and where each begins.

        >>> {name: array.tolist() for name, array in Lexicon(["La Paz", "La"]).to_arrays().items() if name != "pool"}
        {'offsets': [0, 2, 5], 'codes': [0, 1, 0], 'starts': [0, 2, 3]}
        """
        entries = [way for first in sorted(self._by_first) for way in self._by_first[first]]
        words = Alphabet()
        codes = words.encode([word for entry in entries for word in entry], add=True)
        pool, offsets = words.to_arrays()
        starts = np.cumsum([0, *map(len, entries)]).astype(np.int64)
        return {"pool": pool, "offsets": offsets, "codes": codes, "starts": starts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, ignore_case: bool, name: str = "lexicon") -> Lexicon:
        """The lexicon whose `to_arrays` this is; ModelFileError where the arrays cannot be one.

        >>> Lexicon.from_arrays(Lexicon(["La Paz"]).to_arrays(), ignore_case=False).mark(["La", "Paz"])
        ['B', 'I']
        """
        words = stored_texts(arrays, "", f"the lexicon {name!r}")
        codes = stored_numbers(arrays, "codes", len(words), f"the lexicon {name!r}")
        starts = stored_numbers(arrays, "starts", len(codes) + 1, f"the lexicon {name!r}")
        if not len(starts) or starts[0] != 0 or starts[-1] != len(codes) or (np.diff(starts) < 1).any():
            raise ModelFileError(f"the entries of the lexicon {name!r} in the file do not lie end to end.")
        texts, ends = [words[code] for code in codes.tolist()], starts.tolist()
        return cls((texts[a:b] for a, b in pairwise(ends)), ignore_case=ignore_case, name=name)


def clusters_to_arrays(clusters: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Words, bit strings, and which of these each word has.

    >>> clusters_from_arrays(clusters_to_arrays({"Madrid": "0110", "Lima": "0110"}))
    {'Lima': '0110', 'Madrid': '0110'}
    """
    words, bits = Alphabet(), Alphabet()
    listed = sorted(clusters)
    words.encode(listed, add=True)
    codes = bits.encode([cluster_of(clusters, word) for word in listed], add=True)
    made = {"codes": codes}
    for prefix, alphabet in (("word_", words), ("bits_", bits)):
        made[f"{prefix}pool"], made[f"{prefix}offsets"] = alphabet.to_arrays()
    return made


def clusters_from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The clusters whose `clusters_to_arrays` this is; ModelFileError where the arrays cannot be any."""
    words, bits = (stored_texts(arrays, prefix, "the clusters") for prefix in ("word_", "bits_"))
    codes = stored_numbers(arrays, "codes", len(bits), "the clusters")
    if len(codes) != len(words):
        raise ModelFileError(f"the file has clusters of {len(codes)} words, expected {len(words)}.")
    return {word: bits[code] for word, code in zip(words, codes.tolist())}


def stored_texts(arrays: Mapping[str, np.ndarray], prefix: str, what: str) -> list[str]:
    """The different texts that a file holds in two arrays; ModelFileError where they are damaged."""
    pool, offsets = arrays.get(f"{prefix}pool"), arrays.get(f"{prefix}offsets")
    if pool is None or offsets is None or pool.dtype != np.uint8 or offsets.dtype != np.int64:
        raise ModelFileError(f"{what} in the file lacks its texts: the file is damaged.")
    try:
        return list(Alphabet.from_arrays(pool, offsets))
    except (InputError, ValueError, IndexError, UnicodeDecodeError) as error:
        raise ModelFileError(f"the texts of {what} in the file are damaged: {error}") from None


def stored_numbers(arrays: Mapping[str, np.ndarray], name: str, size: int, what: str) -> np.ndarray:
    """An array of integers in 0 … size − 1 that a file holds; ModelFileError for any other."""
    found = arrays.get(name)
    if found is None or found.ndim != 1 or found.dtype.kind != "i":
        raise ModelFileError(f"{what} in the file lacks {name!r}, a 1-D array of integers: the file is damaged.")
    if len(found) and not 0 <= found.min() <= found.max() < size:
        raise ModelFileError(f"{name!r} of {what} in the file must lie in 0 … {size - 1}: the file is damaged.")
    return found


def cluster_of(clusters: Any, word: str) -> str:
    """The bits of a word, "" for one that has none.

    >>> cluster_of({"Madrid": "1011"}, "Madrid"), cluster_of({}, "Lima")
    ('1011', '')
    >>> cluster_of({"Madrid": 1011}, "Madrid")
    Traceback (most recent call last):
    crfield.errors.InputError: clusters must map words to bit strings, got 'Madrid': 1011. Leading zeros ...
    """
    if not isinstance(clusters, Mapping):
        raise InputError(
            f"clusters must map words to bit strings, got {clusters!r:.40}. crfield.read_clusters reads a file."
        )
    bits = clusters.get(word, "")
    if not isinstance(bits, str):
        raise InputError(
            f"clusters must map words to bit strings, got {word!r}: {bits!r}. Leading zeros count: write '0101'."
        )
    return bits


def cluster_prefix(bits: str, size: int) -> str | None:
    """The first bits, None where there are fewer and a shorter prefix says it already.

    >>> cluster_prefix("101101", 4), cluster_prefix("10", 4)
    ('1011', None)
    """
    return bits[:size] if len(bits) >= size else None
