"""`State`: a part of a model as a JSON header and arrays, checked when read back.

Every part of a model has ``state() -> State`` and ``from_state(State)``; a model's state holds those of its parts,
their headers under a name and their arrays under ``name/``.

A file with right checksums can still say anything. So what a reader takes out is checked on the way: shape and type
of an array, kind and range of a number, numbers of a size that can be added up, a table that is not larger than the
file warrants. Whatever does not fit is a `ModelFileError`; and `reading` stands around all readers, so that a value
nobody thought of ends in the same error and not in one of Python's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.storage import limits

Header = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

LARGEST = 1e100  # numbers of models: products and squares of such still have room
# Where numbers are compared and never added up, they may be of any size: cuts are values of the user's own columns.
_COMPARED = ("threshold", "categories", "gain", "worth", "nll", "held_out", "objective", "loss", "value", "violation")
_DAMAGED = "The file is damaged or was edited: copy it again, or save the model again."


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


def refuse(problem: str) -> NoReturn:
    """Raise the error of a file that cannot be used."""
    raise ModelFileError(f"{problem}. {_DAMAGED}")


@contextmanager
def reading(name: str, *, given: bool = False) -> Iterator[None]:
    """Whatever goes wrong within is the fault of the file ``name``, and is told as `ModelFileError`.

    Where the user has ``given`` parts of the model (functions are code, which no file holds), an `InputError` stays
    what it is: they may not be those of the model.

    >>> with reading("m.crfield"):
    ...     {}["weights"]
    Traceback (most recent call last):
    crfield.errors.ModelFileError: m.crfield: the model in it cannot be used (KeyError: 'weights'). ...
    """
    try:
        yield
    except ModelFileError:
        raise
    except MemoryError as error:
        raise ModelFileError(f"{name}: the model needs more memory than there is ({error}).") from None
    except InputError as error:
        if given:
            raise
        raise ModelFileError(f"{name}: the model in it cannot be used: {error} {_DAMAGED}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
        raise ModelFileError(f"{name}: the model in it cannot be used ({problem}). {_DAMAGED}") from error


def check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays with finite numbers so large that sums and products of them are none any more.

    >>> check_numbers({"weights": np.array([1.0, -1e308])})
    Traceback (most recent call last):
    crfield.errors.ModelFileError: array 'weights' holds -1e+308; no number of a model is beyond 1e+100. ...
    """
    for name in arrays:
        array = arrays[name]
        if array.dtype != np.float64 or not array.size or name.rpartition("/")[2] in _COMPARED:
            continue
        large = np.isfinite(array) & (np.abs(array) > LARGEST)
        if large.any():
            refuse(f"array {name!r} holds {array[large].flat[0]:g}; no number of a model is beyond {LARGEST:g}")


def check_table(n_bytes: int, held: int, what: str) -> None:
    """Refuse a table of ``n_bytes`` that a file describes with ``held`` bytes, where that is out of all proportion.

    >>> check_table(8 * 20_000**2, 853_000, "the transitions of 20,000 labels")
    Traceback (most recent call last):
    crfield.errors.ModelFileError: the transitions of 20,000 labels need 3,200,000,000 bytes of memory, and the ...
    """
    if n_bytes > limits.FLOOR and n_bytes > limits.allowed(held):
        raise ModelFileError(
            f"{what} need {n_bytes:,} bytes of memory, and the file describes them with {held:,}. If you trust the "
            "file, lift the limit: with crfield.file_growth(None), or crfield --max-growth 0 on the command line."
        )


def whole(header: Mapping[str, Any], name: str, *, least: int = 0, most: int = 2**31 - 1) -> int:
    """An integer of a header in its range; a JSON true is none.

    >>> whole({"n_states": 3}, "n_states")
    3
    """
    value = header.get(name)
    if type(value) is not int or not least <= value <= most:
        refuse(f"{name!r} must be an integer from {least:,} to {most:,}, the file has {str(value)[:40]}")
    return value


def section(header: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of a header that is an object itself.

    >>> section({"layout": {"bias": True}}, "layout")
    {'bias': True}
    """
    value = header.get(name)
    if not isinstance(value, dict):
        raise ModelFileError(f"the model file lacks its {name}: the file is damaged.")
    return value
