"""Digests: a hash of what a run depends on, so that a later one can tell whether it is the same.

SHA-256 over values and arrays as they lie in memory, with types and shapes, so that nothing can be mistaken for its
neighbour. Dataclasses are read field by field: a part that joins one of them joins its digest. About a second for
each gigabyte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def digest(value: Any) -> str:
    """64 hexadecimal digits for a value made of numbers, texts, arrays, lists, dicts and dataclasses.

    Anything else counts by its type alone.

    >>> digest([1, "a", np.arange(3)])[:8] == digest([1, "a", np.arange(3)])[:8]
    True
    >>> digest({"a": 1.0}) == digest({"a": 1})
    False
    """
    sha = hashlib.sha256()
    _add(sha, value)
    return sha.hexdigest()


def _add(sha: Any, value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        sha.update(f"array {value.dtype.str} {value.shape};".encode())
        sha.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif isinstance(value, np.ndarray | list | tuple):
        sha.update(f"list {len(value)};".encode())
        for item in value:
            _add(sha, item)
    elif isinstance(value, set | frozenset):
        _add(sha, sorted(map(repr, value)))
    elif isinstance(value, Mapping):
        sha.update(f"dict {len(value)};".encode())
        for key, item in value.items():
            _add(sha, key)
            _add(sha, item)
    elif is_dataclass(value) and not isinstance(value, type):
        sha.update(f"{type(value).__name__};".encode())
        for field in fields(value):
            _add(sha, field.name)
            _add(sha, getattr(value, field.name))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        text = repr(value).encode("utf-8", "surrogatepass")
        sha.update(f"{type(value).__name__} {len(text)};".encode() + text)
    else:
        sha.update(f"{type(value).__module__}.{type(value).__qualname__};".encode())
