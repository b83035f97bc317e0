"""Spans read strictly: only tags that follow the scheme make one.

Conlleval's rules (`chunks`) make the best of ill-formed tags: an I after an O begins a span. Here a span must begin,
go on and end as its scheme writes it, or it is none: in iob2 it needs its B, in bioes its E or S too. The rules are
those of seqeval's ``mode="strict"`` (Nakayama 2018), for ill-formed tags as well, so that figures of both can be
compared. Each scheme has three tables over the previous prefix (rows) and the current one (columns), which also look
at whether the two kinds are equal (``=``), differ (``/``), or do not matter (``x``):

    begins     a span may begin at the current tag
    goes on    the span of the previous tag goes on with the current one
    ends       a span may end before the current tag

A span begins at the first tag that may begin one, lasts as long as the tags go on, and counts if it may end there.
seqeval's table of ioe1 misses spans of one step that another of their kind follows (E after O or another kind begins
nothing); that is kept, for the sake of equal figures.

On whole arrays: cut the tags wherever one does not go on; in each piece at most one span begins, at the first tag
that may, and it lasts to the end of the piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import LabelError
from crfield.metrics.chunks import BILOU_SPELLING, OUTSIDE, PREFIXES, Reading


@dataclass(frozen=True)
class Rules:
    """The tables of a scheme, over its prefixes."""

    letters: str  # rows and columns
    begins: tuple[str, ...]
    goes_on: tuple[str, ...]
    ends: tuple[str, ...]


_FIVE = Rules(
    "BIESO",
    ("x . . x .",) * 5,
    (". = = . .", ". = = . .", ". . . . .", ". . . . .", ". . . . ."),
    (". . . . .", ". . . . .", "x x x x x", "x x x x x", ". . . . ."),
)
RULES: dict[str, Rules] = {
    "iob1": Rules("BIO", ("= x .", "= / .", ". x ."), (". = .", ". = .", ". . ."), ("= / x", "x / x", ". . .")),
    "iob2": Rules("BIO", ("x . .", "x . .", "x . ."), (". = .", ". = .", ". . ."), ("x / x", "x / x", ". . .")),
    "ioe1": Rules("IEO", ("/ . .", "x = .", "x . ."), ("= = .", ". . .", ". . ."), ("/ / x", "= = .", ". . .")),
    "ioe2": Rules("IEO", ("/ / .", "x x .", "x x ."), ("= = .", ". . .", ". . ."), (". . .", "x x x", ". . .")),
    "bioes": _FIVE,
    "bilou": _FIVE,  # L is read as E, U as S
}


def strict_spans(reading: Reading, scheme: str) -> tuple[np.ndarray, np.ndarray]:
    """First slot and the slot after the last one of every span that the scheme's rules allow, in order.

    >>> from crfield.core.topology import Chains
    >>> from crfield.metrics.chunks import read_tags, split_tags
    >>> parts = split_tags(["B-NP", "I-NP", "O"])
    >>> reading = read_tags(np.array([1, 2, 0, 1]), Chains.from_lengths([4]), parts)
    >>> [slots.tolist() for slots in strict_spans(reading, "iob2")]
    [[2], [4]]
    """
    size = len(reading.prefix)
    before, kind_before = np.full(size, OUTSIDE), np.zeros(size, dtype=np.int64)
    before[1:], kind_before[1:] = reading.prefix[:-1], reading.kind[:-1]
    same = reading.kind == kind_before
    begins, goes_on, ends = (
        np.where(same, equal[before, reading.prefix], differ[before, reading.prefix])
        for equal, differ in _tables(RULES[scheme])
    )
    pieces = np.cumsum(~goes_on) - 1  # the first slot has an O before it and never goes on
    stops = np.append(np.flatnonzero(~goes_on)[1:], size)
    may = np.flatnonzero(begins)
    piece, at = np.unique(pieces[may], return_index=True)
    first, stop = may[at], stops[piece]
    allowed = ends[np.minimum(stop, size - 1)] & (stop < size)  # the last slot is a closing O, which begins nothing
    return first[allowed], stop[allowed]


def refuse_foreign(tags: Sequence[Any], scheme: str) -> None:
    """LabelError where a tag has a prefix that the scheme does not have.

    >>> refuse_foreign(["B-NP", "S-NP"], "iob2")
    Traceback (most recent call last):
    crfield.errors.LabelError: the tag 'S-NP' is not of the scheme iob2, whose tags begin with B, I or O; ...
    """
    letters = "BILUO" if scheme == "bilou" else RULES[scheme].letters
    for tag in tags:
        if str(tag).partition("-")[0] not in letters:
            raise LabelError(
                f"the tag {tag!r} is not of the scheme {scheme}, whose tags begin with {', '.join(letters[:-1])} or "
                "O; strict scores read no others. Pass the scheme that the tags are written in (see guess_scheme), "
                "or leave out mode='strict'."
            )


def _tables(rules: Rules) -> list[tuple[np.ndarray, np.ndarray]]:
    """For begins, goes on and ends: (previous, current) over PREFIXES, of equal kinds and of kinds that differ."""
    at = [PREFIXES.index(BILOU_SPELLING.get(letter, letter)) for letter in rules.letters]
    out = []
    for rows in (rules.begins, rules.goes_on, rules.ends):
        marks = np.array([row.split() for row in rows])
        pair = []
        for mark in "=/":
            table = np.zeros((len(PREFIXES), len(PREFIXES)), dtype=bool)
            table[np.ix_(at, at)] = (marks == "x") | (marks == mark)
            pair.append(table)
        out.append((pair[0], pair[1]))
    return out
