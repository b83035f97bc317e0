"""Data without any known feature: warned about, not labelled in silence.

What training never saw has no column and is dropped, which is right for a new word and wrong for a misspelt key, for
dicts where lists of strings were learnt, for a file of another kind: there every step ends up without a feature, and
its label comes from the intercepts and transitions alone. So encoders look, after ``encode``, at the steps that are
left empty. More than half of those that have features at all must be

- *strange*: no feature has a name that training knew. A name is the key of a dict, or what stands before the first
  ``=`` or ``:`` of a feature string; a known name with a new value is an everyday matter. One such step is enough;
- or *new*: not a single value is known, on 20 steps or more. A call of a few new words is normal.

Then there is a `DataWarning` with what came, what is known and the nearest name, or within ``crfield.strict()`` a
`FeatureError`. Steps without features are nobody's mistake and do not count. The text is the same for the same
strangeness, so that Python shows it once for a line of the user's program, however many sentences pass.

Cost: one comparison of the offsets of the rows. Names are looked at only where most rows are empty, a hundred rows at
most, and those of the model are collected once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from crfield.data.attributes import AttributeSequences
from crfield.data.batch import Columns
from crfield.errors import DataWarning, FeatureError
from crfield.kernels.record_items import DICT, MAPPING, Item, kind_of, split_key
from crfield.kernels.records import RecordTable
from crfield.kernels.tagging import alone

MANY = 20  # steps on which not one value is known
_LOOKED_AT = 100  # rows of a call
_VOCABULARY = 100  # more plain names than this are words, not names of features
_SHOWN = 3
_LONGEST = 40

_strict: ContextVar[bool] = ContextVar("crfield_strict", default=False)


@contextmanager
def strict(on: bool = True) -> Iterator[None]:
    """Within the block, data without any known feature are an error instead of a warning.

    >>> import crfield
    >>> model = crfield.ChainCRF().fit([[{"word": "dog"}, {"word": "barks"}]], [["N", "V"]])
    >>> with crfield.strict():
    ...     model.predict([[{"wrod": "dog"}]])
    Traceback (most recent call last):
    crfield.errors.FeatureError: 1 of 1 steps have no feature that the model knows: they have {'wrod': 'dog'}; known
    are {'word': 'dog'}. Did you mean 'word' instead of 'wrod'?
    """
    before = _strict.set(bool(on))
    try:
        yield
    finally:
        _strict.reset(before)


def tell(
    unknown: int, given: int, row: str, came: Sequence[str], known: Sequence[str], advice: str, *, but: str = ""
) -> None:
    """The warning, or the error, that so many of the given rows have no known feature."""
    said = f"have no feature that the model knows{but}: they have {', '.join(came)}; known are {', '.join(known)}."
    said += advice
    if _strict.get():
        raise FeatureError(f"{unknown:,} of {given:,} {row}s {said}")
    which = "the" if unknown == given else "most"
    warnings.warn(
        f"{which} {row}s of X {said} Their labels come from the other scores alone; crfield.strict(), or "
        "--strict-features, makes this an error.",
        DataWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """The stack level, for the caller, of the first frame outside this package: the user's own line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("crfield."):
        level, frame = level + 1, frame.f_back
    return level


@dataclass
class _Names:
    """The names in an alphabet of features, by the form in which they were learnt."""

    valued: dict[str, str] = field(default_factory=dict)  # {name: text}, with the first of its texts
    prefixes: dict[str, str] = field(default_factory=dict)  # "name=…" or "name:…", with the first of them
    plain: dict[str, str] = field(
        default_factory=dict
    )  # without a separator: keys of numbers, or words; some of them
    n_plain: int = 0
    n_prefixed: int = 0
    vectors: set[str] = field(default_factory=set)  # {name: array}
    examples: dict[Any, list[str]] = field(default_factory=dict)  # what was shown for a strangeness

    def know(self, name: str, value: str | None, number: float, keyed: bool) -> bool:
        """Whether a feature without a column has a name that was met, or is a word like others that were."""
        if value is not None:
            return name in self.valued
        stem = _stem(name)
        if stem != name and stem in self.prefixes:
            return True
        if keyed:  # the key of a number
            return number == 1.0 and self.n_plain > _VOCABULARY
        if stem != name and self.n_prefixed > self.n_plain:
            return False
        return self.n_plain > _VOCABULARY or (self.n_plain > 0 and not self.n_prefixed and not self.valued)

    def shown(self) -> list[str]:
        """Some of what is known, of different names."""
        some = [f"{{{name!r}: {_short(value)!r}}}" for name, value in self.valued.items()]
        some += [repr(_short(name)) for names in (self.prefixes, self.plain) for name in names.values()]
        return (some + [f"{{{name!r}: vector}}" for name in sorted(self.vectors)])[:_SHOWN]

    def advice(self, came: Sequence[tuple[str, str | None, bool]]) -> str:
        """What was probably meant."""
        texts = [(name, value) for name, value, _ in came if value is not None]
        if texts and not self.valued and not self.vectors:
            return (
                f" The model knows feature strings, and dicts of texts came: is '{texts[0][0]}={texts[0][1]}' meant?"
            )
        if self.valued and not any(keyed for _, _, keyed in came):
            return " The model was fitted on dicts, and feature strings came: write them as dicts."
        known = [*self.valued, *self.vectors, *self.prefixes, *self.plain]
        for name, value, _ in came:
            own = name if value is not None else _stem(name)
            near = get_close_matches(own, [one for one in known if one != own], n=1)
            if near:
                return f" Did you mean {near[0]!r} instead of {own!r}?"
        return ""


_names: WeakKeyDictionary[RecordTable, _Names] = WeakKeyDictionary()


def _names_of(table: RecordTable) -> _Names:
    """The names of a table, collected once."""
    made = _names.get(table)
    if made is None:
        made = _Names(vectors={name for name, _, _ in table.slots()})
        for name, value in table.all_parts():
            if value is not None:
                made.valued.setdefault(name, value)
            elif (stem := _stem(name)) != name:
                made.n_prefixed += 1
                made.prefixes.setdefault(stem, name)
            else:
                made.n_plain += 1
                if made.n_plain <= _VOCABULARY:
                    made.plain[name] = name
        _names[table] = made
    return made


def _stem(name: str) -> str:
    """What stands before the first = or : of a name; all of it without any.

    >>> _stem("word=dog"), _stem("next:word=dog"), _stem("bias"), _stem("=")
    ('word', 'next', 'bias', '=')
    """
    places = [at for at in (name.find("=", 1), name.find(":", 1)) if at > 0]
    return name[: min(places)] if places else name


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def check_records(table: RecordTable, X: Any, node: Columns, *, row: str = "step") -> None:
    """Tell when most rows of X that have features have none that the table knows; for those of `few_known`.

    A feature that most rows have alone, a bias, says nothing about any of them and does not count as known.

    >>> table = RecordTable()
    >>> encoded = table.encode([[{"word": "dog"}]], grow=True)
    >>> check_records(table, [[{"word": "cat"}]], Columns(np.zeros(2, np.int64), np.zeros(0, np.int32), 1))
    """
    if not (table.n_columns or table.n_dense):
        return
    empty = node.indptr[1:] == node.indptr[:-1]
    bias = alone(node.indptr, node.indices, node.n_rows // 2) if node.n_rows > 1 else None
    if bias is not None:
        single = node.indptr[1:] == node.indptr[:-1] + 1
        empty[single] = node.indices[node.indptr[:-1][single]] == bias
    if 2 * np.count_nonzero(empty) <= len(empty):
        return
    shared = None if bias is None else table.parts(bias)
    names, rows, count = _names_of(table), np.flatnonzero(empty), int(np.count_nonzero(empty))
    if len(rows) > _LOOKED_AT:
        rows = rows[np.linspace(0, len(rows) - 1, _LOOKED_AT).astype(np.int64)]
    given = new = strange = 0
    came: dict[tuple[str, bool], tuple[str, str | None, bool]] = {}  # a feature of every name, in order
    shown = []
    for item in _items(X, rows):
        read, keyed = Item(0, 0).read(item), kind_of(type(item)) in (DICT, MAPPING)
        own = [(*split_key(key), number) for key, number in read.keys if split_key(key) != shared]
        own += [(name, None, np.nan) for name, _ in read.vectors]
        given += bool(own)
        if any(name in names.vectors for name, _ in read.vectors):
            continue
        new += bool(own)
        strange += bool(own) and not any(names.know(*feature, keyed) for feature in own)
        for name, value, number in own:
            form = (name if value is not None else _stem(name), value is None)
            if form not in came and len(came) < _SHOWN:
                came[form] = (name, value, keyed)
                shown.append(_written(name, value, number, keyed))
    share = count / len(rows)
    total = len(empty) - count + given * share
    kind = "strange" if 2 * strange * share > total else "new" if 2 * new * share > total else ""
    if not kind or (kind == "new" and new * share < MANY):
        return
    advice = names.advice(list(came.values())) if kind == "strange" else " Are their values written as in fit?"
    # The first examples of a strangeness stand for all: Python tells a text once for a line of the program.
    shown = names.examples.setdefault((kind, *came), shown)
    but = "" if shared is None else f" but {_written(*shared, 1.0, False)}"
    tell(round(new * share), round(total), row, shown, names.shown(), advice, but=but)


def _written(name: str, value: str | None, number: float, keyed: bool) -> str:
    """A feature as its user wrote it."""
    if not keyed:
        return repr(_short(name))
    what = repr(_short(value)) if value is not None else "vector" if np.isnan(number) else f"{number:g}"
    return f"{{{_short(name)!r}: {what}}}"


def _items(X: Any, rows: np.ndarray) -> Iterator[Any]:
    """The items of some rows of X, which rise."""
    if isinstance(X, AttributeSequences):
        for row in rows.tolist():
            start, end = X.indptr[row : row + 2].tolist()
            yield X.alphabet.texts(X.indices[start:end])
        return
    wanted, first = rows.tolist()[::-1], 0
    for sequence in X:
        end = first + len(sequence)
        steps = list(sequence) if wanted and wanted[-1] < end else []
        while wanted and wanted[-1] < end:
            yield steps[wanted.pop() - first]
        first = end
