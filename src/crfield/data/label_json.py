"""Labels in JSON, exactly.

JSON has one kind of number, no tuples and no infinity, so a label is spelt by its type:

    str, bool, None              as in JSON
    int                          a number up to 2⁵³ in size, else {"int": "0x…"}
    float                        {"float": "0x1.8p+1"}: hexadecimal, so every bit returns, and 1.0 is not 1
    tuple                        a list of the above, nested at most 32 deep

Only these exact types are taken. An `Enum` member or a named tuple is refused when a model is saved, for it
could come back only as something else; the message says what to use instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from crfield.errors import LabelError, ModelFileError

MAX_DEPTH = 32
_EXACT_IN_A_DOUBLE = 2**53


def label_to_json(label: Hashable, *, depth: int = 0) -> Any:
    """The JSON value that `label_from_json` turns back into the same label.

    >>> label_to_json(("B", 1, 1.5, True))
    ['B', 1, {'float': '0x1.8000000000000p+0'}, True]
    """
    kind = type(label)
    if kind is tuple:
        if depth >= MAX_DEPTH:
            raise LabelError(
                f"a label of tuples nested more than {MAX_DEPTH} deep cannot be written to a model file. "
                "Use a flatter label, such as a string."
            )
        return [label_to_json(part, depth=depth + 1) for part in label]  # type: ignore[attr-defined]
    if kind is int:
        return label if abs(label) <= _EXACT_IN_A_DOUBLE else {"int": hex(label)}  # type: ignore[arg-type]
    if kind is float:
        return {"float": label.hex()}  # type: ignore[attr-defined]
    if kind in (str, bool) or label is None:
        return label
    raise LabelError(
        f"a label of type {kind.__qualname__} ({shown(label)}) cannot be written to a model file, which "
        "holds str, int, float, bool and tuples of them. Train with such labels instead, for instance "
        "str(label), label.value for an Enum, tuple(label) for a named tuple."
    )


def label_from_json(value: Any, *, depth: int = 0) -> Hashable:
    """The label that `label_to_json` wrote.

    >>> label_from_json(['B', 1, {'float': '0x1.8000000000000p+0'}, True])
    ('B', 1, 1.5, True)
    """
    if isinstance(value, list) and depth < MAX_DEPTH:
        return tuple(label_from_json(part, depth=depth + 1) for part in value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        try:
            if kind == "int" and isinstance(text, str):
                return int(text, 16)
            if kind == "float" and isinstance(text, str):
                return float.fromhex(text)
        except (ValueError, OverflowError):
            pass
    raise ModelFileError(
        f"{shown(value)} is not the spelling of a label. The model file was not written by crfield, or by a "
        "newer version: update crfield, or save the model again."
    )


def counts_to_json(given: int | Mapping[Any, int]) -> Any:
    """A count, or one for each of some labels, which JSON has only where they are text.

    >>> counts_to_json({("B", 1): 3})
    [[['B', 1], 3]]
    """
    if isinstance(given, Mapping):
        return [[label_to_json(label), int(count)] for label, count in given.items()]
    return int(given)


def counts_from_json(found: Any) -> Any:
    """What `counts_to_json` was given."""
    return {label_from_json(label): count for label, count in found} if isinstance(found, list) else found


def shown(value: object) -> str:
    """The ``repr`` of a value, shortened for a message.

    >>> shown("B-NP"), len(shown("x" * 1000))
    ("'B-NP'", 58)
    """
    try:
        text = repr(value)
    except Exception:  # a label's own repr, or an integer too long for Python to print
        return f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "…"
