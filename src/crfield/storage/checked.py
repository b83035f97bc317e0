"""Checked reading of a model file's header and arrays: every reader gets a value in one of these ways.

A file with right checksums can still say anything. Readers ask for what they need (a section, a whole number in a
range, numbers of a size that can be added up, a table that is not larger than the file warrants) and get it or
`ModelFileError`; and `reading` stands around them all, so that a value nobody thought of ends in the same error and
not in one of Python's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.storage import limits

LARGEST = 1e100  # numbers of models: products and squares of such still have room
# Where numbers are compared and never added up, they may be of any size: cuts are values of the user's own columns.
_COMPARED = ("threshold", "categories", "gain", "worth", "nll", "held_out", "objective", "loss", "value", "violation")
_DAMAGED = "The file is damaged or was edited: copy it again, or save the model again."


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
