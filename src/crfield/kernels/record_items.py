"""What the steps of a sequence may be: feature dicts and lists of feature strings, read into keys.

A step of a sequence is a dict of named features or a list of feature strings. Every feature becomes a key of
bytes with a value, or a named vector:

    feature                       key                                                      value
    "word", {"word": 2.5}         utf8("word")                                             1, 2.5
    {"word": "dog"}               FF · length of the name, 4 bytes · utf8(name) · utf8("dog")   1
    {"vector": array of width d}  no key: a slot of d columns in the dense block

No UTF-8 text contains the byte FF, so a named column and an indicator never meet, and the length keeps
{"a": "b=c"} apart from {"a=b": "c"}. Lone surrogates are kept (``surrogatepass``). A nested dict puts its
name and a colon before the names inside. Zero and negative numbers are features like any other; False and
an empty list are absent.

This module also owns the words: the bodies of `records` only say which step they refuse, and `refuse` walks
that step again here to find the message, so that both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from crfield.errors import FeatureError, ShapeError

DEEPEST = 32  # nested dicts; a dict that contains itself must not exhaust the stack
MARK = b"\xff"

TEXT, FLOAT, INT, BOOL, REAL, ARRAY, LIST, SET, DICT, MAPPING, SEQUENCE, OTHER = range(12)


def kind_of(type_: type) -> int:
    """What a value of this type is taken for; one of the constants above.

    >>> kind_of(np.float32) == REAL, kind_of(np.ndarray) == ARRAY, kind_of(bytes) == OTHER
    (True, True, True)
    """
    for base, kind in (
        (str, TEXT),
        (bool | np.bool_, BOOL),
        (float, FLOAT),
        (int, INT),
        (dict, DICT),
        (list | tuple, LIST),
        (set | frozenset, SET),
        (bytes | bytearray | memoryview, OTHER),
        (np.ndarray, ARRAY),
        (np.timedelta64, OTHER),
        (Real, REAL),
        (np.generic, OTHER),
        (Mapping, MAPPING),
    ):
        if issubclass(type_, base):
            return kind
    if hasattr(type_, "__array__"):
        return ARRAY
    if issubclass(type_, Sequence) or (hasattr(type_, "__getitem__") and hasattr(type_, "__len__")):
        return SEQUENCE
    return OTHER


def utf8(text: str) -> bytes:
    """The bytes of a str, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def indicator_key(name: str, value: str) -> bytes:
    """The key of the feature ``{name: value}`` with a str value."""
    head = utf8(name)
    return MARK + len(head).to_bytes(4, "little") + head + utf8(value)


def split_key(key: bytes) -> tuple[str, str | None]:
    """(name, value) of an indicator, (name, None) of a named column.

    >>> split_key(indicator_key("a=b", "c")), split_key(b"a=b=c")
    (('a=b', 'c'), ('a=b=c', None))
    """
    if key[:1] != MARK:
        return key.decode("utf-8", "surrogatepass"), None
    end = 5 + int.from_bytes(key[1:5], "little")
    return key[5:end].decode("utf-8", "surrogatepass"), key[end:].decode("utf-8", "surrogatepass")


def vector_of(value: Any) -> Any:
    """An array-like as a contiguous float64 vector, a list if it holds no numbers, None if it is not 1-D."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind == "c":
        return None
    if array.dtype.kind in "biuf":
        return np.ascontiguousarray(array, dtype=np.float64)
    return array.tolist()


def steps_of(sequence: Any, number: int) -> Sequence[Any]:
    """The steps of one sequence as a list or tuple."""
    kind = kind_of(type(sequence))
    if kind == LIST:
        return sequence
    if kind in (ARRAY, SEQUENCE):
        return list(sequence)
    advice = "Give each sequence as a list with one dict, or one list of feature strings, per step."
    if kind in (DICT, MAPPING):
        advice = "Is X one sequence rather than a list of sequences? Then write [X]."
    raise FeatureError(
        f"sequence {number} must be a list of steps, got {_shown(sequence)} of type {_type(sequence)}. {advice}"
    )


def sequences_of(sequences: Any) -> Sequence[Any]:
    """The sequences of X as a list or tuple."""
    if kind_of(type(sequences)) in (LIST, ARRAY, SEQUENCE):
        return sequences if isinstance(sequences, list | tuple) else list(sequences)
    raise FeatureError(
        f"X must be a list of sequences, got {_shown(sequences)} of type {_type(sequences)}. "
        "Give a list with one list of steps per sequence; each step is a dict or a list of feature strings."
    )


class Item:
    """The features of one step: keys with their values, and named vectors."""

    def __init__(self, sequence: int, step: int) -> None:
        self.where = f"sequence {sequence}, step {step}"
        self.keys: list[tuple[bytes, float]] = []
        self.vectors: list[tuple[str, np.ndarray]] = []

    def read(self, item: Any) -> Item:
        """Take in a dict, or a list, tuple or set of feature strings."""
        kind = kind_of(type(item))
        if kind in (DICT, MAPPING):
            self._read_dict(item, "", 0)
        elif kind in (LIST, SET, SEQUENCE, ARRAY):
            for text in self._strings(item) if kind == SET else item:
                if not isinstance(text, str):
                    raise FeatureError(
                        f"{self.where}: a list of features must hold only str, got {_shown(text)} of type "
                        f"{_type(text)}. Use a dict {{name: number}} for numeric features, or 2-D arrays for "
                        "X."
                    )
                self.keys.append((utf8(text), 1.0))
        else:
            advice = "Use an empty dict where a step has no features."
            if kind == TEXT:
                advice = "Put the features of each step in a list, [str, …], or a dict, {name: value}."
            raise FeatureError(
                f"{self.where}: a step must be a dict or a list of feature strings, got {_shown(item)} of "
                f"type {_type(item)}. {advice}"
            )
        return self

    def _read_dict(self, features: Mapping[Any, Any], prefix: str, depth: int) -> None:
        if depth > DEEPEST:
            raise FeatureError(
                f"{self.where}: feature {prefix[:40]!r}… is nested more than {DEEPEST} dicts deep. "
                "Does the dict contain itself? Flatten it."
            )
        for name, value in features.items():
            if not isinstance(name, str):
                raise FeatureError(
                    f"{self.where}: a feature's name must be a str, got {_shown(name)} of type {_type(name)}"
                    f"{f' inside {prefix[:-1]!r}' if prefix else ''}. Convert it with str()."
                )
            self._read_feature(prefix + name, value, depth)

    def _read_feature(self, name: str, value: Any, depth: int) -> None:
        kind = kind_of(type(value))
        if kind == TEXT:
            self.keys.append((indicator_key(name, value), 1.0))
        elif kind == BOOL:
            if value:
                self.keys.append((utf8(name), 1.0))
        elif kind in (FLOAT, INT, REAL):
            self.keys.append((utf8(name), self._number(name, value)))
        elif kind in (DICT, MAPPING):
            self._read_dict(value, name + ":", depth + 1)
        elif kind == SET:
            for text in self._strings(value, name):
                self.keys.append((indicator_key(name, text), 1.0))
        elif kind in (LIST, SEQUENCE):
            self._read_list(name, list(value))
        elif kind == ARRAY:
            vector = vector_of(value)
            if vector is None:
                raise ShapeError(
                    f"{self.where}: feature {name!r} must be a 1-D array of real numbers, got shape "
                    f"{np.shape(value)} and type {np.asarray(value).dtype}. Flatten it with .ravel(), or "
                    "give each part a name of its own."
                )
            if isinstance(vector, list):
                self._read_list(name, vector)
            elif len(vector):
                self._add_vector(name, vector)
        else:
            raise FeatureError(
                f"{self.where}: feature {name!r} has the value {_shown(value)} of type {_type(value)}; "
                f"expected a str, number, bool, 1-D array, list of str, or dict. {_advice(value)}"
            )

    def _read_list(self, name: str, values: list[Any]) -> None:
        if not values:
            return
        if isinstance(values[0], str):
            for text in values:
                if not isinstance(text, str):
                    raise self._mixed(name, values, text)
                self.keys.append((indicator_key(name, text), 1.0))
            return
        numbers = np.empty(len(values))
        for i, value in enumerate(values):
            if kind_of(type(value)) not in (BOOL, FLOAT, INT, REAL):
                raise self._mixed(name, values, value)
            numbers[i] = self._number(f"{name}[{i}]", value)
        self._add_vector(name, numbers)

    def _add_vector(self, name: str, vector: np.ndarray) -> None:
        if not np.isfinite(vector).all():
            bad = int(np.argmin(np.isfinite(vector)))
            self._number(f"{name}[{bad}]", vector[bad])
        self.vectors.append((name, vector))

    def _number(self, name: str, value: Any) -> float:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise FeatureError(
                f"{self.where}: feature {name!r} must be a finite number, got {_shown(value)}. Fill in the "
                "missing values, or leave the feature out of the steps where it is unknown."
            )
        return number

    def _strings(self, values: set[Any] | frozenset[Any], name: str | None = None) -> list[str]:
        # Sorted, for the order of a set changes from run to run and column numbers must not.
        for value in values:
            if not isinstance(value, str):
                raise FeatureError(
                    f"{self.where}: a set of features{f' ({name!r})' if name else ''} must hold only str, "
                    f"got {_shown(value)} of type {_type(value)}. Use a dict {{name: number}} for numeric "
                    "features."
                )
        return sorted(values)

    def _mixed(self, name: str, values: list[Any], bad: Any) -> FeatureError:
        return FeatureError(
            f"{self.where}: feature {name!r} must be a list of str only or of numbers only, got a list that "
            f"holds {_shown(bad)} of type {_type(bad)}. {_advice(bad)}"
        )


def check_width(where: str, name: str, width: int, expected: int) -> None:
    """Refuse a vector whose width differs from the one the slot was given."""
    if width != expected:
        raise ShapeError(
            f"{where}: feature {name!r} must be an array of width {expected}, as where it was first seen in "
            f"fit, got width {width}. Pad or cut it, or give it another name."
        )


def refuse(sequences: Any, sequence: int, step: int, widths: dict[str, int], *, first_step: int = 0) -> NoReturn:
    """Walk the step that was refused again and raise the error that says why.

    ``first_step`` is the user's number of the first step, where the sequences handed in begin later than his.
    """
    if sequence < 0:
        sequences_of(sequences)
    elif step < 0:
        steps_of(sequences_of(sequences)[sequence], sequence)
    else:
        steps = steps_of(sequences_of(sequences)[sequence], sequence)
        item = Item(sequence, step + first_step).read(steps[step])
        for name, vector in item.vectors:
            check_width(item.where, name, len(vector), widths.get(name, len(vector)))
    raise FeatureError(
        f"sequence {sequence}, step {step} cannot be read as features, but could a moment later. "
        "Was X changed by another thread while it was being encoded?"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _type(value: Any) -> str:
    return type(value).__name__


def _advice(value: Any) -> str:
    if value is None:
        return "Leave the feature out of the dict where it has no value."
    if isinstance(value, bytes | bytearray):
        return "Decode it to str first."
    if isinstance(value, complex | np.complexfloating):
        return "Give the real and the imaginary part as two features."
    return "Convert it to one of these, for example with str() or float()."
