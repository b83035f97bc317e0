"""What one word shows by itself: its shape, beginnings and endings, capitals, digits and marks.

Named-entity recognisers have read these since the first shared tasks (Bikel et al. 1997; Borthwick 1999; Nadeau &
Sekine 2007 for a survey), for words that training never saw. Everything here is a function of one word, so that
`TextFeatures` asks once for every *different* word of its input.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["FLAGS", "length_bucket", "shape", "short_shape", "word_flags"]

RUN = 4  # letters of one kind that a shape shows one after another
BUCKETS = (1, 2, 3, 4, 6, 9, 14)
FLAGS = ("capital", "caps", "mixed", "digit", "number", "year", "hyphen", "point", "initial", "roman", "mark")
_ROMAN = frozenset("IVXLCDM")


def shape(word: str) -> str:
    """Letters and digits by kind, each kind at most four times in a row.

    >>> [shape(word) for word in ("Coruña", "EFE", "25-M", "McDonald's", "extraordinario")]
    ['Xxxxx', 'XXX', 'dd-X', "XxXxxxx'x", 'xxxx']
    """
    out: list[str] = []
    run = 0
    for kind in _kinds(word):
        run = run + 1 if out and out[-1] == kind else 1
        if run <= RUN:
            out.append(kind)
    return "".join(out)


def short_shape(word: str) -> str:
    """The same with every run as a single sign.

    >>> [short_shape(word) for word in ("Coruña", "EFE", "25-M", "McDonald's", "3.000")]
    ['Xx', 'X', 'd-X', "XxXx'x", 'd.d']
    """
    out: list[str] = []
    for kind in _kinds(word):
        if not out or out[-1] != kind:
            out.append(kind)
    return "".join(out)


def _kinds(word: str) -> Iterator[str]:
    for sign in word:
        if sign.isupper():
            yield "X"
        elif sign.isalpha():  # scripts without capitals too
            yield "x"
        else:
            yield "d" if sign.isdigit() else sign


def word_flags(word: str) -> list[str]:
    """Which of `FLAGS` the word has.

    >>> [word_flags(word) for word in ("Madrid", "EFE", "iPod", "1998", "3,5", "J.", "XIV", "--", "casa")]
    [['capital'], ['capital', 'caps'], ['mixed'], ['digit', 'number', 'year'], ['digit', 'number'],
     ['capital', 'point', 'initial'], ['capital', 'caps', 'roman'], ['hyphen', 'mark'], []]
    """
    letters = [sign for sign in word if sign.isalpha()]
    digit = any(sign.isdigit() for sign in word)
    bare = "".join(sign for sign in word if sign not in ".,:/-")
    has = {
        "capital": word[:1].isupper(),
        "caps": len(letters) > 1 and all(sign.isupper() for sign in letters),
        "mixed": any(sign.isupper() for sign in word[1:]) and any(sign.islower() for sign in word),
        "digit": digit,
        "number": digit and bare.isdigit(),
        "year": len(word) == 4 and word.isdigit() and word[:2] in ("17", "18", "19", "20"),
        "hyphen": "-" in word,
        "point": word.endswith(".") and len(word) > 1,
        "initial": len(word) == 2 and word[0].isupper() and word[1] == ".",
        "roman": len(word) > 1 and _ROMAN.issuperset(word),
        "mark": bool(word) and not any(sign.isalnum() for sign in word),
    }
    return [name for name in FLAGS if has[name]]


def length_bucket(word: str) -> str:
    """How long a word is, roughly.

    >>> [length_bucket(word) for word in ("a", "sol", "Madrid", "extraordinario", "")]
    ['1', '3', '5–6', '10–14', '0']
    """
    n, before = len(word), 0
    for most in BUCKETS:
        if n <= most:
            return str(n) if n == 0 or before + 1 == most else f"{before + 1}–{most}"
        before = most
    return f"{before + 1}+"
