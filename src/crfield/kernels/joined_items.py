"""Feature dicts written out as plain attribute names, the way python-crfsuite reads them.

    {"word": "dog", "long": True, "speed": 1.5, "near": ["cat", "cow"], "next": {"word": "barks"}}
    →  {"word:dog": 1, "long": 1, "speed": 1.5, "near:cat": 1, "near:cow": 1, "next:word:barks": 1}

Our own alphabet keeps the name and the value of a feature apart. A model that comes from CRFsuite knows joined names
only, so what it is asked about must be joined first; names that meet are added up, as there. Lists of feature strings
hold such names already and pass as they are.

The compiled body of `records` joins dicts of text, numbers, truth values, lists of text and dicts of these itself, as
fast as it reads dicts of ours; for a step that holds anything else, or in which two names meet, it asks `joined`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crfield.kernels.record_items import DEEPEST, sequences_of, steps_of

SEPARATOR = ":"


def join_items(X: Any) -> Any:
    """X with the dicts of its steps joined; everything else is left to the reader to take or to refuse.

    >>> join_items([[{"word": "dog", "near": ["cat"], "long": True}, ["a=b"]]])
    [[{'word:dog': 1.0, 'near:cat': 1.0, 'long': True}, ['a=b']]]
    """
    return [joined_steps(steps_of(sequence, number)) for number, sequence in enumerate(sequences_of(X))]


def joined_steps(steps: Sequence[Any]) -> list[Any]:
    """The steps of one sequence, their dicts joined."""
    return [joined(step) if isinstance(step, Mapping) else step for step in steps]


def joined(step: Mapping[Any, Any]) -> dict[Any, Any]:
    """A dict of joined names and numbers.

    >>> joined({"next": {"word": "barks"}, "speed": 1.5, "next:word": "barks"})
    {'next:word:barks': 2.0, 'speed': 1.5}
    """
    out: dict[Any, Any] = {}
    for name, value in step.items():
        if isinstance(value, str) and isinstance(name, str):
            _add(out, name + SEPARATOR + value, 1.0)
        elif isinstance(value, Mapping | list | tuple | set | frozenset) and isinstance(name, str):
            for inner, number in _inside(value, 0):
                _add(out, name + SEPARATOR + inner, number)
        else:
            _add(out, name, value)
    return out


def _inside(value: Any, depth: int) -> list[tuple[str, Any]]:
    """Names and values inside a nested dict, list or set."""
    if depth > DEEPEST:
        return []
    if not isinstance(value, Mapping):
        return [(item if isinstance(item, str) else str(item), 1.0) for item in value]
    out: list[tuple[str, Any]] = []
    for name, item in value.items():
        if isinstance(item, str):
            out.append((f"{name}{SEPARATOR}{item}", 1.0))
        elif isinstance(item, Mapping | Sequence | set | frozenset):
            out += [(f"{name}{SEPARATOR}{inner}", number) for inner, number in _inside(item, depth + 1)]
        else:
            out.append((str(name), item))
    return out


def _add(out: dict[Any, Any], name: Any, value: Any) -> None:
    try:
        out[name] = out[name] + value if name in out else value
    except TypeError:  # not a number: the reader has the words for it
        out[name] = value
