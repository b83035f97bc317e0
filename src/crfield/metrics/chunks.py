"""Where spans begin and end in a run of tags: the rules of conlleval, on whole arrays.

A tag is a prefix and a kind, as in ``B-NP``: the prefix is what stands before the first hyphen, the kind
what follows it, so that kinds may hold hyphens, and a tag without a hyphen has the empty kind. The scoring
script of the CoNLL shared tasks (Tjong Kim Sang & Buchholz 2000) decides between each two neighbours
whether a span ends there and whether one begins, from nothing but the two prefixes and whether the kinds
are equal. It thereby reads *any* tags, ill-formed ones too: a kind that changes ends one span and begins
another (B-NP I-VP is two spans), and an I after an O begins one. Its rules for the prefixes, with rows for
the previous tag:

    ends before     B I O E S [ ]          begins at     B I O E S [ ]
    B               x . x . x . .          B             x . . . x x x
    I               x . x . x . .          I             x . . . x x x
    O               . . . . . . .          O             x x . x x x x
    E               x x x x x x x          E             x x . x x x x
    S               x x x x x x x          S             x x . x x x x
    [ and ]         x x x x x x x          [ and ]       x . . . x x x

and, if the kinds differ, a span ends before anything that follows a prefix other than O, and begins at any
prefix other than O. Brackets mark spans of one step. What concerns S, and B after E or a bracket, is as in
the later ports of the script that read BIOES; on tags of B, I and O, of I, E and O, or of brackets and O
the original of 2004 says the same.

Here the two tables are looked up for all steps at once. Every sequence is followed by one closing O, as the
script sees it at an empty line, so that a span never crosses into the next sequence and always ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import LabelError

PREFIXES = "BIOES[]"
OUTSIDE = PREFIXES.index("O")
BILOU_SPELLING = {"L": "E", "U": "S"}


def _table(*rows: str) -> np.ndarray:
    return np.array([[mark == "x" for mark in row.split()] for row in rows])


ENDS_BEFORE = _table(  # (previous, current), columns as PREFIXES
    "x . x . x . .",  # B
    "x . x . x . .",  # I
    ". . . . . . .",  # O
    "x x x x x x x",  # E
    "x x x x x x x",  # S
    "x x x x x x x",  # [
    "x x x x x x x",  # ]
)
BEGINS_AT = _table(
    "x . . . x x x",  # B
    "x . . . x x x",  # I
    "x x . x x x x",  # O
    "x x . x x x x",  # E
    "x x . x x x x",  # S
    "x . . . x x x",  # [
    "x . . . x x x",  # ]
)


@dataclass(frozen=True, eq=False)
class TagParts:
    """Prefix and kind of each distinct tag, as codes.

    >>> parts = split_tags(["B-NP", "I-NP", "O"])
    >>> [PREFIXES[p] for p in parts.prefix], [parts.kinds[k] for k in parts.kind]
    (['B', 'I', 'O'], ['NP', 'NP', ''])
    """

    prefix: np.ndarray  # (U,) int64, into PREFIXES
    kind: np.ndarray  # (U,) int64, into kinds
    kinds: tuple[str, ...]  # sorted; the first is the empty kind


@dataclass(frozen=True, eq=False)
class Reading:
    """What stands at each of the N + B slots, the steps and one closing O after each sequence.

    >>> parts = split_tags(["B-NP", "I-NP", "O"])
    >>> reading = read_tags(np.array([0, 1, 1, 2]), Chains.from_lengths([2, 2]), parts)
    >>> reading.begins.astype(int).tolist(), reading.ends.astype(int).tolist()
    ([1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0])
    """

    prefix: np.ndarray  # (N + B,)
    kind: np.ndarray  # (N + B,)
    begins: np.ndarray  # (N + B,) bool, whether a span begins at this slot
    ends: np.ndarray  # (N + B,) bool, whether a span ended just before this slot


def split_tags(tags: Sequence[Hashable], *, bilou: bool = False) -> TagParts:
    """Split distinct tags into prefix and kind; with ``bilou`` L and U are read as E and S.

    >>> split_tags(["U-LOC"], bilou=True).kinds
    ('', 'LOC')
    """
    prefixes, kinds = [], []
    for tag in tags:
        if not isinstance(tag, str):
            raise LabelError(
                f"span scores need tags such as 'B-NP' or 'O', got the label {tag!r} ({type(tag).__name__}). "
                "For plain labels use label_report."
            )
        prefix, _, kind = tag.partition("-")
        if bilou:
            prefix = BILOU_SPELLING.get(prefix, prefix)
        if len(prefix) != 1 or prefix not in PREFIXES:
            hint = (
                "Pass scheme='bilou'."
                if prefix in BILOU_SPELLING
                else "For plain labels without a prefix use label_report."
            )
            raise LabelError(
                f"the label {tag!r} is not a tag: expected 'O', or one of {' '.join(PREFIXES)} before a "
                f"hyphen and a kind, such as 'B-NP'. {hint}"
            )
        prefixes.append(PREFIXES.index(prefix))
        kinds.append(kind)
    distinct = tuple(sorted({"", *kinds}))
    number = {kind: k for k, kind in enumerate(distinct)}
    return TagParts(
        np.array(prefixes, dtype=np.int64),
        np.array([number[kind] for kind in kinds], dtype=np.int64),
        distinct,
    )


def read_tags(codes: np.ndarray, topology: Chains, parts: TagParts) -> Reading:
    """Apply the rules between every two neighbours; ``codes`` (N,) are rows of ``parts``."""
    slots = slots_of(topology)
    size = topology.n_nodes + topology.n_sequences
    prefix, kind = np.full(size, OUTSIDE), np.zeros(size, dtype=np.int64)
    prefix[slots], kind[slots] = parts.prefix[codes], parts.kind[codes]
    before, kind_before = np.full(size, OUTSIDE), np.zeros(size, dtype=np.int64)
    before[1:], kind_before[1:] = prefix[:-1], kind[:-1]
    begins, ends = _turns(before, kind_before, prefix, kind)
    return Reading(prefix, kind, begins, ends)


def tag_turns(parts: TagParts) -> tuple[np.ndarray, np.ndarray]:
    """Whether a span begins at tag j that follows tag i, and whether one ends between them: (U + 1, U + 1) bool each.

    Row and column U stand for what lies beyond a sequence, the closing O.

    >>> begins, ends = tag_turns(split_tags(["B-NP", "I-NP", "O"]))
    >>> begins.astype(int).tolist()
    [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    >>> ends[0].astype(int).tolist()
    [1, 0, 1, 1]
    """
    prefix, kind = np.append(parts.prefix, OUTSIDE), np.append(parts.kind, 0)
    return _turns(prefix[:, None], kind[:, None], prefix[None, :], kind[None, :])


def _turns(
    before: np.ndarray, kind_before: np.ndarray, prefix: np.ndarray, kind: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where a span begins and where one ended just before, by the tables and by whether the kinds differ."""
    differ = kind != kind_before
    begins = BEGINS_AT[before, prefix] | (differ & (prefix != OUTSIDE))
    ends = ENDS_BEFORE[before, prefix] | (differ & (before != OUTSIDE))
    return begins, ends


def slots_of(topology: Chains) -> np.ndarray:
    """(N,) the slot of each step: its own number plus the closing slots before it.

    >>> slots_of(Chains.from_lengths([2, 1])).tolist()
    [0, 1, 3]
    """
    places: np.ndarray = np.arange(topology.n_nodes) + topology.sequence_of_node
    return places


def spans_of(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """First slot and the slot after the last one of every span, in order.

    A bracket begins a span without ending an open one; that one then stops where the new one begins.
    """
    first = np.flatnonzero(reading.begins)
    turns = np.flatnonzero(reading.begins | reading.ends)
    return first, turns[np.searchsorted(turns, first, side="right")]
