"""`State`: a part of a model as a JSON header and arrays, checked when read back.

Every part of a model has ``state() -> State`` and ``from_state(State)``; a model's state holds those of its parts,
their headers under a name and their arrays under ``name/``. What a reader takes out is checked on the way: shape and
type of an array, kind and range of a number. Whatever does not fit is a `ModelFileError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.errors import ModelFileError
from crfield.storage.checked import refuse, section, whole

Header = dict[str, Any]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class State:
    """A header of JSON values, and arrays by name.

    >>> inner = State({"width": 2}, {"centres": np.zeros((3, 2))})
    >>> outer = State({"kind": "map"}).with_part("basis", inner)
    >>> outer.header, list(outer.arrays)
    ({'kind': 'map', 'basis': {'width': 2}}, ['basis/centres'])
    >>> outer.part("basis").array("centres", (3, 2)).shape
    (3, 2)
    """

    header: Header = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def with_part(self, name: str, part: State | tuple[Any, Arrays], *, arrays: str | None = None) -> State:
        """This state with that of a part under a name; ``arrays`` is the prefix of its arrays where it differs."""
        header, own = (part.header, part.arrays) if isinstance(part, State) else part
        prefix = name if arrays is None else arrays
        return State({**self.header, name: header}, {**self.arrays, **{f"{prefix}/{key}": own[key] for key in own}})

    def part(self, name: str, *, arrays: str | None = None) -> State:
        """The state of a part."""
        return State(section(self.header, name), self.under(name if arrays is None else arrays))

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names begin with ``prefix/``, without it."""
        start = f"{prefix}/"
        return {name[len(start) :]: self.arrays[name] for name in self.arrays if name.startswith(start)}

    def array(
        self, name: str, shape: tuple[int | None, ...] | None, dtype: Any = np.float64, *, finite: bool = True
    ) -> np.ndarray:
        """An array of a shape (None: any length) and type, of finite numbers unless said otherwise."""
        array = self.arrays.get(name)
        if array is None:
            raise ModelFileError(f"the model file lacks its {name}: the file is damaged.")
        fits = shape is None or (
            array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape))
        )
        if not fits or array.dtype != dtype:
            wanted = f"shape {_shape(shape)} and type {np.dtype(dtype)}"
            refuse(f"{name!r} must be of {wanted}, got {array.shape} and {array.dtype}")
        if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            refuse(f"{name!r} holds numbers that are not finite")
        return np.ascontiguousarray(array)

    def probabilities(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """An array whose last axis sums to one."""
        table = self.array(name, shape)
        if not (table >= 0).all() or not np.allclose(table.sum(axis=-1), 1.0):
            refuse(f"{name!r} must hold probabilities")
        return table

    def integer(self, name: str, *, least: int = 0, most: int = 2**31 - 1) -> int:
        """An integer of the header in its range."""
        return whole(self.header, name, least=least, most=most)

    def flag(self, name: str) -> bool:
        """True or False of the header."""
        return self._of(name, bool, "true or false")

    def word(self, name: str, choices: tuple[str, ...] | None = None) -> str:
        """Text of the header, one of the choices if there are any."""
        text = self._of(name, str, "text")
        if choices is not None and text not in choices:
            refuse(f"{name!r} must be one of {', '.join(map(repr, choices))}, the file has {text[:40]!r}")
        return text

    def listed(self, name: str) -> list[Any]:
        """A list of the header."""
        return self._of(name, list, "a list")

    def _of(self, name: str, kind: type, words: str) -> Any:
        value = self.header.get(name)
        if type(value) is not kind:
            refuse(f"{name!r} must be {words}, the file has {str(value)[:40]}")
        return value


def _shape(shape: tuple[int | None, ...] | None) -> str:
    return "any" if shape is None else f"({', '.join('*' if size is None else str(size) for size in shape)})"
