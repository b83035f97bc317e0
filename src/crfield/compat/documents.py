"""Texts with marked spans of characters, as annotation tools have them, and tokens with tags, as models do.

Annotators mark characters; chains label tokens. `tagged` splits a text into words and writes the spans as tags,
`marked` goes back from tags and places to spans. In between lies what goes wrong in practice, and is decided here:

- A span that begins or ends within a word: the word belongs to it as a whole (``unaligned="expand"``), or its tag is
  None, which training takes as unknown (``"unknown"``), or it is an error (``"error"``). How many there were is said
  once.
- Spans that overlap: tags have no way to write both. The longest is kept, of equally long ones the first, and how
many
  were left out is said once.
- Spans of white space alone hold no token and are left out.

Texts and spans are `data.texts.documents`, formats of the tools `data.texts.annotations`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from crfield.core.checks import one_of
from crfield.data.texts.documents import Document, TextSpan
from crfield.errors import DataWarning, InputError, ShapeError
from crfield.metrics.schemes import spans as spans_of
from crfield.metrics.schemes import tags_from_spans

UNALIGNED = ("expand", "unknown", "error")
_WORD = re.compile(r"\w+|[^\w\s]")

Places = list[tuple[int, int]]  # first and last (not in it) character of every token
Tokenizer = Callable[[str], Iterable[tuple[int, int]]]


class Tagged(NamedTuple):
    """Tokens, their tags, and their places in the text, a list for each document."""

    tokens: list[list[str]]
    tags: list[list[str | None]]
    places: list[Places]


def word_places(text: str) -> Places:
    """Words and single signs of a text; the default tokenizer.

    >>> word_places("No, gracias.")
    [(0, 2), (2, 3), (4, 11), (11, 12)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def tagged(
    documents: Iterable[Document],
    *,
    tokenizer: Tokenizer | None = None,
    scheme: str = "iob2",
    unaligned: str = "expand",
) -> Tagged:
    """Tokens, tags and places of documents, for ``fit``.

    ``tokenizer`` gives (first, last) characters of the tokens of a text, in order; words and signs by default.
    ``unaligned`` says what becomes of words that a span cuts: "expand", "unknown" or "error".

    >>> made = tagged([Document("Ana vive en Lima", (TextSpan(0, 3, "PER"), TextSpan(12, 16, "LOC")))])
    >>> made.tokens, made.tags
    ([['Ana', 'vive', 'en', 'Lima']], [['B-PER', 'O', 'O', 'B-LOC']])
    """
    one_of(*UNALIGNED)("unaligned", unaligned)
    out, cut, dropped = Tagged([], [], []), 0, 0
    for number, document in enumerate(documents):
        places = _checked(word_places(document.text) if tokenizer is None else tokenizer(document.text), document)
        spans: list[tuple[int, int, str]] = []
        broken: set[int] = set()
        for first, last, label in sorted(document.spans, key=lambda span: (span.first - span.last, span.first)):
            inside = [k for k, (a, b) in enumerate(places) if a < last and b > first]
            if not inside:
                continue
            outer = [k for k in (inside[0], inside[-1]) if places[k][0] < first or places[k][1] > last]
            if outer and unaligned == "error":
                word = document.text[slice(*places[outer[0]])]
                raise InputError(
                    f"document {number}: the span ({first}, {last}, {label!r}) cuts the word {word!r}. Correct it, "
                    "or use unaligned='expand' or 'unknown', or a tokenizer that splits there."
                )
            cut += bool(outer)
            start, stop = inside[0], inside[-1] + 1
            if any(start < other_stop and stop > other_start for other_start, other_stop, _ in spans):
                dropped += 1
                continue
            spans.append((start, stop, label))
            broken |= set(outer) if unaligned == "unknown" else set()
        tags: list[str | None] = list(tags_from_spans(spans, len(places), scheme))
        out.tokens.append([document.text[a:b] for a, b in places])
        out.tags.append([None if k in broken else tag for k, tag in enumerate(tags)])
        out.places.append(places)
    if cut:
        what = "their words belong to them as a whole"
        if unaligned == "unknown":
            what = "the tags of these words are unknown"
        warnings.warn(f"{cut:,} spans begin or end within a word: {what}.", DataWarning, stacklevel=2)
    if dropped:
        warnings.warn(
            f"{dropped:,} spans overlap longer ones and are left out: a tag belongs to one span only.",
            DataWarning,
            stacklevel=2,
        )
    return out


def marked(
    texts: Iterable[str | Document],
    places: Sequence[Sequence[tuple[int, int]]],
    tags: Sequence[Any],
    *,
    scheme: str = "iob2",
) -> list[Document]:
    """Documents whose spans are those of tags, such as ``predict`` gives; the inverse of `tagged`.

    >>> marked(["Ana vive en Lima"], [[(0, 3), (4, 8), (9, 11), (12, 16)]], [["B-PER", "O", "O", "B-LOC"]])[0].spans
    (TextSpan(first=0, last=3, label='PER'), TextSpan(first=12, last=16, label='LOC'))
    """
    given = [text if isinstance(text, Document) else Document(text) for text in texts]
    if not len(given) == len(places) == len(tags):
        raise ShapeError(f"there are {len(given)} texts, {len(places)} lists of places and {len(tags)} of tags.")
    out = []
    for number, (document, own, labels) in enumerate(zip(given, places, tags)):
        if len(own) != len(labels):
            raise ShapeError(f"document {number} has {len(own)} tokens and {len(labels)} tags.")
        found = [TextSpan(own[a][0], own[b - 1][1], str(kind)) for a, b, kind in spans_of(list(labels), scheme)]
        out.append(Document(document.text, tuple(found), document.name, document.meta))
    return out


def _checked(places: Iterable[tuple[int, int]], document: Document) -> Places:
    """The places as a list, in order and inside of the text."""
    out: Places = [(int(first), int(last)) for first, last in places]
    before = 0
    for first, last in out:
        if not before <= first < last <= len(document.text):
            raise InputError(
                f"a tokenizer must give (first, last) characters in order and within the text, got ({first}, {last}) "
                f"after {before} in {document.text[:40]!r}."
            )
        before = last
    return out
