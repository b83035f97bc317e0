"""Lists of names and classes of words: what somebody else knows about words, as features.

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
from typing import Any

from crfield.errors import InputError

__all__ = ["Lexicon", "cluster_of", "cluster_prefix"]

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

    def __len__(self) -> int:
        return sum(map(len, self._by_first.values()))

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
