"""Text that lines up on a terminal, whatever characters it is made of.

Feature names and tokens come from data, so they hold tabs, line ends, escape codes, half characters and
letters twice as wide as others. `printable` makes the first kinds visible; `pad` and `shorten` count the
columns of a terminal and not characters (Unicode Standard Annex 11, *East Asian Width*).
"""

from __future__ import annotations

import unicodedata


def printable(value: object) -> str:
    r"""The value as one line without control characters.

    >>> printable("a\tb\x1b[31m"), printable(("B", 1))
    ('a\\tb\\x1b[31m', "('B', 1)")
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """Columns of the terminal that the text takes.

    >>> width("abc"), width("日本"), width("e\N{COMBINING ACUTE ACCENT}")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(_letter_width(c) for c in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def shorten(text: str, columns: int, *, end: str = "…") -> str:
    """The text, or its beginning and a mark when it takes more than ``columns``.

    >>> shorten("w[-1]=international", 10), shorten("B-NP", 10)
    ('w[-1]=int…', 'B-NP')
    """
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for letter in text:
        used += _letter_width(letter)
        if used > columns - 1:
            break
        kept += letter
    return kept + end


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text filled with blanks to ``columns``; with ``right`` it stands at the right.

    >>> pad("日本", 6) + "|", pad("ab", 4, right=True)
    ('日本  |', '  ab')
    """
    blanks = " " * max(columns - width(text), 0)
    return blanks + text if right else text + blanks
