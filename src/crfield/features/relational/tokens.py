"""Words and signs of the feature language, and errors that point at their place.

A specification is text of one template a line; ``#`` begins a comment, and a line whose brackets are open, or whose
next line begins with ``|``, goes on. Every token knows where it stands, so that whatever is wrong with it later, its
meaning included, is shown under the line with a caret. Nothing is ever handed to Python's own parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from crfield.errors import TemplateError

_PATTERN = re.compile(
    r"""(?P<space>[ \t]+)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<text>'[^'\n]*'|"[^"\n]*")
      | (?P<sign><=|>=|==|!=|[-+*/()<>|&~,:])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Place:
    """Where something stands: the whole line, its number from 1, and the span of characters."""

    line: str
    number: int
    start: int
    end: int

    def to(self, other: Place) -> Place:
        """From here to the end of the other, on the same line; else this one."""
        return Place(self.line, self.number, self.start, other.end) if other.number == self.number else self


@dataclass(frozen=True)
class Token:
    """One word or sign; ``kind`` is number, name, text, sign or end."""

    kind: str
    text: str
    place: Place


def fault(message: str, place: Place) -> TemplateError:
    """The error that shows the line and a caret under the place.

    >>> print(fault("there is no such word.", Place("a b c", 3, 2, 3)))
    line 3: there is no such word.
        a b c
          ^
    """
    carets = "^" * max(place.end - place.start, 1)
    return TemplateError(f"line {place.number}: {message}\n    {place.line}\n    {' ' * place.start}{carets}")


def tokenize(text: str) -> list[list[Token]]:
    """The tokens of each template, an ``end`` token last.

    >>> [token.text for token in tokenize("near state : dist(a,b) # how far")[0]]
    ['near', 'state', ':', 'dist', '(', 'a', ',', 'b', ')', '']
    """
    templates: list[list[Token]] = []
    current: list[Token] = []
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.expandtabs(4).rstrip()
        found, change = _line(line, number)
        if not found:
            continue
        if current and depth <= 0 and found[0].text != "|":
            templates.append(_ended(current))
            current = []
        if not current:
            depth = 0
        current += found
        depth += change
    if current:
        templates.append(_ended(current))
    return templates


def _line(line: str, number: int) -> tuple[list[Token], int]:
    found: list[Token] = []
    depth = at = 0
    while at < len(line) and line[at] != "#":
        match = _PATTERN.match(line, at)
        if match is None:
            what = "a text without its end" if line[at] in "'\"" else f"the character {line[at]!r}"
            raise fault(f"{what} cannot be read here.", Place(line, number, at, at + 1))
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match.group(), Place(line, number, at, match.end())))
            depth += {"(": 1, ")": -1}.get(match.group(), 0)
        at = match.end()
    return found, depth


def _ended(tokens: list[Token]) -> list[Token]:
    last = tokens[-1].place
    return [*tokens, Token("end", "", Place(last.line, last.number, last.end, last.end + 1))]
