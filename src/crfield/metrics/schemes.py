"""Tag schemes: how spans are written as one tag per step.

    step       the  little  cat    saw  dogs   cats          spans (0, 3, NP) (4, 5, NP) (5, 6, NP)
    iob1       I-NP I-NP    I-NP   O    I-NP   B-NP     B only where a span follows another of its kind
    iob2       B-NP I-NP    I-NP   O    B-NP   B-NP     B at every first step
    bioes      B-NP I-NP    E-NP   O    S-NP   S-NP     also E at the last step, S for a span of one step
    bilou      B-NP I-NP    L-NP   O    U-NP   U-NP     bioes with L for E and U for S
    ioe1       I-NP I-NP    I-NP   O    E-NP   I-NP     E only where another span of its kind follows
    ioe2       I-NP I-NP    E-NP   O    E-NP   E-NP     E at every last step

(Ramshaw & Marcus 1995, Tjong Kim Sang & Veenstra 1999, Ratinov & Roth 2009.) Reading is forgiving and the
same for all of them: the rules of conlleval, in `chunks`; or strict, by the scheme's own rules (`strict`).
Writing is strict, so ``convert`` also repairs.
Names are accepted in any case, and ``bio``, ``iobes`` and ``biluo`` as other spellings; bioes and bilou
read each other's letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from crfield.core.checks import one_of
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError
from crfield.metrics.chunks import PREFIXES, TagParts, read_tags, slots_of, spans_of, split_tags
from crfield.metrics.coding import UNKNOWN, Coded, code_sequences, place
from crfield.metrics.strict import refuse_foreign, strict_spans

SCHEMES = ("iob1", "iob2", "bioes", "bilou", "ioe1", "ioe2")
MODES = ("conlleval", "strict")
SPELLINGS = {"bio": "iob2", "iobes": "bioes", "biluo": "bilou"}

Span = tuple[int, int, str]
_TAG = re.compile(r"O|[BIESLU]-.+", re.DOTALL)


def check_scheme_name(scheme: str) -> str:
    """The usual spelling of a scheme's name.

    >>> check_scheme_name("BIO")
    'iob2'
    """
    name = scheme.lower() if isinstance(scheme, str) else scheme
    name = SPELLINGS.get(name, name)
    if name not in SCHEMES:
        raise InputError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}, got {scheme!r}.")
    return name


def reads_bilou(scheme: str) -> bool:
    """Whether L and U are read as E and S under this scheme.

    >>> reads_bilou("bioes"), reads_bilou("iob2")
    (True, False)
    """
    return check_scheme_name(scheme) in ("bioes", "bilou")


def check_mode(mode: str) -> str:
    """How tags are read, if there is such a way.

    >>> check_mode("exact")
    Traceback (most recent call last):
    crfield.errors.InputError: mode must be one of 'conlleval', 'strict', got 'exact'.
    """
    one_of(*MODES)("mode", mode)
    return mode


def spans(tags: Iterable[str], scheme: str = "iob2", *, mode: str = "conlleval") -> list[Span]:
    """The spans of one sequence as (start, stop, kind); stop is not in the span.

    They are read by conlleval's rules, which make the best of ill-formed tags, or, with ``mode="strict"``, only where
    the tags keep to the scheme.

    >>> spans(["B-NP", "I-NP", "O", "I-VP", "I-NP"], "iob2")
    [(0, 2, 'NP'), (3, 4, 'VP'), (4, 5, 'NP')]
    >>> spans(["B-NP", "I-NP", "O", "I-VP", "I-NP"], "iob2", mode="strict")
    [(0, 2, 'NP')]
    """
    coded, parts = _coded_tags([tags], scheme)
    reading = read_tags(coded.codes, coded.topology, parts)
    if check_mode(mode) == "strict":
        refuse_foreign(coded.labels, check_scheme_name(scheme))
        first, stop = strict_spans(reading, check_scheme_name(scheme))
    else:
        first, stop = spans_of(reading)
    return [(a, b, parts.kinds[k]) for a, b, k in zip(first.tolist(), stop.tolist(), reading.kind[first].tolist())]


def tags_from_spans(spans: Iterable[Span], length: int, scheme: str = "iob2") -> list[str]:
    """One tag per step for spans that do not overlap; the inverse of `spans`.

    >>> tags_from_spans([(0, 2, "NP"), (3, 4, "VP")], 5, "bioes")
    ['B-NP', 'E-NP', 'O', 'S-VP', 'O']
    """
    name = check_scheme_name(scheme)
    ordered = sorted(spans, key=lambda span: span[:2])
    done = 0
    for start, stop, kind in ordered:
        if not 0 <= start < stop <= length:
            raise ShapeError(
                f"span {(start, stop, kind)} must satisfy 0 ≤ start < stop ≤ {length}, the number of steps."
            )
        if start < done:
            raise ShapeError(f"span {(start, stop, kind)} overlaps the one before it, which stops at {done}.")
        done = stop
    first = np.array([span[0] for span in ordered], dtype=np.int64)
    stop_at = np.array([span[1] for span in ordered], dtype=np.int64)
    kinds = list(dict.fromkeys(span[2] for span in ordered))
    number = {kind: k for k, kind in enumerate(kinds)}
    kind_of = np.array([number[span[2]] for span in ordered], dtype=np.int64)
    return _written(first, stop_at, kind_of, kinds, size=int(length), scheme=name)


def convert(tags: Iterable[str], source: str, target: str) -> list[str]:
    """Rewrite the tags of one sequence in another scheme; ill-formed tags are read by conlleval's rules.

    >>> convert(["I-NP", "I-NP", "B-NP", "O"], "iob1", "bioes")
    ['B-NP', 'E-NP', 'S-NP', 'O']
    """
    return convert_sequences([tags], source, target)[0]


def convert_sequences(y: Iterable[Iterable[str]], source: str, target: str) -> list[list[str]]:
    """`convert` for many sequences at once, as arrays: about 0.2 µs a tag.

    >>> convert_sequences([["B-NP", "I-NP"], ["B-NP"]], "iob2", "bilou")
    [['B-NP', 'L-NP'], ['U-NP']]
    """
    name = check_scheme_name(target)
    coded, parts = _coded_tags(y, source)
    reading = read_tags(coded.codes, coded.topology, parts)
    first, stop = spans_of(reading)
    size = coded.topology.n_nodes + coded.topology.n_sequences
    flat = _written(first, stop, reading.kind[first], parts.kinds, size=size, scheme=name)
    bounds = (coded.topology.offsets + np.arange(coded.topology.n_sequences + 1)).tolist()
    return [flat[a : b - 1] for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Violation:
    """The first place where tags break a scheme.

    >>> str(check_scheme([["O", "I-NP"]], "iob2"))
    "sequence 0, step 1: 'I-NP' may not follow 'O' in iob2"
    """

    sequence: int
    step: int  # the length of the sequence, where its end comes too early
    previous: str | None  # None at the start of the sequence
    tag: str | None  # None at its end
    scheme: str

    def __str__(self) -> str:
        where = f"sequence {self.sequence}, step {self.step}"
        if self.tag is None:
            return f"{where}: a sequence may not end after {self.previous!r} in {self.scheme}"
        if self.previous is None:
            return f"{where}: {self.tag!r} may not begin a sequence in {self.scheme}"
        return f"{where}: {self.tag!r} may not follow {self.previous!r} in {self.scheme}"


def check_scheme(y: Iterable[Iterable[str]], scheme: str = "iob2") -> Violation | None:
    """The first place where the sequences break the scheme, or None if they keep it.

    >>> check_scheme([["B-NP", "I-NP", "O"]], "iob2") is None
    True
    """
    name = check_scheme_name(scheme)
    coded, parts = _coded_tags(y, name)
    broken = np.flatnonzero(_broken(coded, parts, name))
    if not len(broken):
        return None
    slot = int(broken[0])
    # The closing slots shift sequence s by s, as if every sequence were one step longer.
    sequence, step = place(Chains.from_lengths(coded.topology.lengths + 1), slot)
    first, length = int(coded.topology.offsets[sequence]), int(coded.topology.lengths[sequence])

    def tag(t: int) -> str | None:
        return cast(str, coded.labels[coded.codes[first + t]]) if 0 <= t < length else None

    return Violation(sequence, step, tag(step - 1), tag(step), name)


def guess_scheme(y: Iterable[Iterable[str]]) -> str:
    """The scheme that the sequences seem to be written in.

    L or U among the prefixes means bilou; E or S bioes, but E without B and S an ioe scheme. Of iob1 and iob2, and of
    ioe1 and ioe2, it is the one that is broken in fewer places, the one with the 2 when equal.

    >>> guess_scheme([["I-NP", "B-NP", "O"]]), guess_scheme([["S-NP", "O"]]), guess_scheme([["I-NP", "E-NP"]])
    ('iob1', 'bioes', 'ioe2')
    """
    coded = code_sequences(y)
    _refuse_unknown(coded)
    prefixes = {tag.partition("-")[0] for tag in coded.labels if isinstance(tag, str)}
    parts = split_tags(coded.labels, bilou=bool(prefixes & {"L", "U"}))
    if prefixes & {"L", "U"}:
        return "bilou"
    if prefixes & {"E", "S"} and prefixes & {"B", "S"}:
        return "bioes"
    family = "ioe" if "E" in prefixes else "iob"
    first, second = (int(_broken(coded, parts, family + number).sum()) for number in "12")
    return family + ("1" if first < second else "2")


def tag_scheme(y_true: Iterable[Iterable[Any]], y_pred: Iterable[Iterable[Any]] = ()) -> str | None:
    """The scheme of the true tags, or None where not all labels are tags of one, such as B-NP, I-NP and O.

    >>> tag_scheme([["B-NP", "O"]]), tag_scheme([["NP", "O"]]), tag_scheme([["O"]])
    ('iob2', None, None)
    """
    rows = [[row.tolist() if hasattr(row, "tolist") else list(row) for row in part] for part in (y_true, y_pred)]
    labels = {label for part in rows for row in part for label in row}
    if not all(isinstance(label, str) and _TAG.fullmatch(label) for label in labels) or labels <= {"O"}:
        return None
    return guess_scheme(rows[0])


def _coded_tags(y: Iterable[Iterable[Any]], scheme: str) -> tuple[Coded, TagParts]:
    name = check_scheme_name(scheme)
    coded = code_sequences(y, name="tags")
    _refuse_unknown(coded)
    return coded, split_tags(coded.labels, bilou=reads_bilou(name))


def _refuse_unknown(coded: Coded) -> None:
    unknown = np.flatnonzero(coded.codes == UNKNOWN)
    if len(unknown):
        s, t = place(coded.topology, int(unknown[0]))
        raise LabelError(f"the tag at sequence {s}, step {t} is None: spans cannot be read past an unknown step.")


def _written(
    first: np.ndarray, stop: np.ndarray, kind: np.ndarray, kinds: Sequence[str], *, size: int, scheme: str
) -> list[str]:
    """Tags of ``size`` slots for sorted spans that do not overlap."""
    codes = np.zeros(size, dtype=np.int64)  # 0 is O, then four tags for each kind
    lengths = stop - first
    inner = np.repeat(first - np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)[:-1]]), lengths)
    codes[np.arange(len(inner)) + inner] = np.repeat(2 + 4 * kind, lengths)
    if scheme in ("iob1", "ioe1"):
        follows = np.zeros(len(first), dtype=bool)
        follows[1:] = (first[1:] == stop[:-1]) & (kind[1:] == kind[:-1])
        if scheme == "iob1":
            codes[first[follows]] = 1 + 4 * kind[follows]
        else:
            codes[first[follows] - 1] = 3 + 4 * kind[follows]  # the last step of the span that it follows
    elif scheme != "ioe2":
        codes[first] = 1 + 4 * kind
    if scheme in ("bioes", "bilou", "ioe2"):
        codes[stop - 1] = 3 + 4 * kind
    if scheme in ("bioes", "bilou"):
        single = lengths == 1
        codes[first[single]] = 4 + 4 * kind[single]
    letters = "BILU" if scheme == "bilou" else "BIES"
    texts = ["O", *(f"{letter}-{name}" if name else f"{letter}" for name in kinds for letter in letters)]
    return [texts[code] for code in codes.tolist()]


def _broken(coded: Coded, parts: TagParts, scheme: str) -> np.ndarray:
    """(N + B,) whether the slot may not follow the one before it; the closing O of a sequence is a slot."""
    slots = slots_of(coded.topology)
    size = coded.topology.n_nodes + coded.topology.n_sequences
    outside = PREFIXES.index("O")
    now, kind = np.full(size, outside), np.zeros(size, dtype=np.int64)
    now[slots], kind[slots] = parts.prefix[coded.codes], parts.kind[coded.codes]
    before, kind_before = np.full(size, outside), np.zeros(size, dtype=np.int64)
    before[1:], kind_before[1:] = now[:-1], kind[:-1]

    def among(prefix: np.ndarray, letters: str) -> np.ndarray:
        return np.isin(prefix, [PREFIXES.index(letter) for letter in letters])

    continues = among(before, "BI") & (kind == kind_before)
    wrong: np.ndarray
    if scheme == "iob2":
        wrong = ~among(now, "BIO") | (among(now, "I") & ~continues)
    elif scheme == "iob1":
        wrong = ~among(now, "BIO") | (among(now, "B") & ~continues)
    elif scheme in ("ioe1", "ioe2"):
        needs_more = "E" if scheme == "ioe1" else "I"  # what another step of its kind must follow
        follows = among(now, "IE") & (kind == kind_before)
        wrong = ~among(now, "IEO") | (among(before, needs_more) & ~follows)
    else:
        open_before = among(before, "BI")
        inside = among(now, "IE")
        wrong = among(now, "[]") | (inside & ~continues) | (open_before & ~inside)
    return wrong
