"""The front of an archive: what it holds and where, packed, and checked when unpacked.

Reading goes from cheap to dear and believes nothing that was not checked before: magic, version, length of
the file, length of the header, checksum, how many values its JSON has and how deep, the JSON itself, and at
last each row of the table of arrays against the types that exist, its own shape, the file and its
neighbours. All trouble is `ModelFileError`.

The layout stands in `crfield.storage.archive`.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.storage.foreign.tools import looks_like

MAGIC = b"\x89CRF\r\n\x1a\n"
VERSION = 1
ALIGNMENT = 64
MAX_HEADER = 1 << 26
MAX_DEPTH = 64
MAX_VALUES = 1 << 21  # of JSON, some sixty bytes each
MAX_DIMENSIONS = 32  # NumPy 1's limit
MAX_BYTES = 1 << 62
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")

_PRELUDE = struct.Struct("<8sIIQQ")
_LOOK = 512
_AGAIN = "Copy the file again from where it was saved, or save the model again."


@dataclass(frozen=True)
class Entry:
    """One array of an archive; ``start`` counts from the beginning of the file."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    nbytes: int
    crc32: int


@dataclass(frozen=True)
class Front:
    """The caller's header, the arrays in the order of their place, and the bytes read so far."""

    header: dict[str, Any]
    entries: tuple[Entry, ...]
    nbytes: int


def aligned(position: int) -> int:
    """The next multiple of 64.

    >>> aligned(0), aligned(1), aligned(64)
    (0, 64, 64)
    """
    return -(-position // ALIGNMENT) * ALIGNMENT


def refuse(name: str, problem: str, advice: str = _AGAIN) -> NoReturn:
    """Raise the error that says which file, what is wrong with it and what to do."""
    raise ModelFileError(f"{name}: {problem}. {advice}")


def json_problem(value: Any) -> str | None:
    """Why a value cannot be a header, or None: not JSON, not finite, nested too deep, or too many values.

    >>> json_problem({"a": [1, float("nan")]})
    'a number in it is nan'
    """
    # A stack of iterators, not of values: a list of a million empty lists must not cost a second million.
    stack: list[Iterator[Any]] = [iter((value,))]
    count = 0
    while stack:
        for item in stack[-1]:
            count += 1
            if item is None or isinstance(item, str | bool):
                continue
            if isinstance(item, int):
                # Python itself refuses to read longer decimal numbers.
                if item.bit_length() > 14_000:
                    return "an integer in it has more than 4,000 digits"
            elif isinstance(item, float):
                if not math.isfinite(item):
                    return f"a number in it is {item}"
            elif isinstance(item, dict | list | tuple):
                if len(stack) > MAX_DEPTH:
                    return f"it is nested more than {MAX_DEPTH} deep"
                if isinstance(item, dict):
                    keys = [key for key in item if not isinstance(key, str)]
                    if keys:
                        return f"a key in it is {keys[0]!r}, not a string"
                    item = item.values()
                stack.append(iter(item))
                break
            else:
                return f"it holds a {type(item).__name__}"
        else:
            stack.pop()
    return f"it has more than {MAX_VALUES:,} values" if count > MAX_VALUES else None


def text_problem(packed: bytes) -> str | None:
    """Why the text of a header must not be parsed, or None: it would make too many values, or nest them too deep.

    A value takes some sixty bytes when it is built and two in the text, so it is counted first: brackets and commas
    outside of strings. Costs a few passes over the bytes.

    >>> text_problem(b'{"a": [1, "x, [y"]}'), text_problem(b"[" * 100)
    (None, 'it is nested more than 64 deep')
    """
    plain = packed.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in packed else packed
    inside, depth, values = False, 0, 1
    for at in range(0, len(plain), _PIECE):
        piece = np.frombuffer(plain, np.uint8, min(_PIECE, len(plain) - at), at)
        quoted = np.logical_xor.accumulate(piece == _QUOTE) ^ inside
        inside = bool(quoted[-1])
        outside = np.where(quoted, 0, piece)
        turn = _TURN[outside]
        level = depth + np.cumsum(turn, dtype=np.int64)
        if level.max() > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        depth = int(level[-1])
        values += int(np.count_nonzero((turn > 0) | (outside == _COMMA)))
        if values > MAX_VALUES:
            return f"it has more than {MAX_VALUES:,} values"
    return None


_PIECE = 1 << 20
_QUOTE, _COMMA = ord('"'), ord(",")
_TURN = np.zeros(256, np.int8)  # +1 where a value opens, -1 where it closes
_TURN[[ord("["), ord("{")]] = 1
_TURN[[ord("]"), ord("}")]] = -1


def pack(header: dict[str, Any], table: list[dict[str, Any]], data_bytes: int) -> bytes:
    """The front, padded to where the first array begins."""
    problem = json_problem(header)
    if problem:
        raise InputError(f"the header of an archive must be JSON: {problem}.")
    text = json.dumps({"header": header, "arrays": table}, ensure_ascii=False, separators=(",", ":"))
    # Not as \u escapes: a lone surrogate survives both ways, but two of them in a row would merge on reading.
    packed = text.encode("utf-8", errors="surrogatepass")
    if len(packed) > MAX_HEADER:
        raise InputError(
            f"the header of an archive may have {MAX_HEADER:,} bytes, got {len(packed):,}. "
            "Put long lists into arrays."
        )
    first = aligned(_PRELUDE.size + len(packed))
    sizes = (len(packed), first + data_bytes)
    prelude = _PRELUDE.pack(MAGIC, VERSION, _checksum(VERSION, *sizes, packed), *sizes)
    return (prelude + packed).ljust(first, b"\0")


def read_front(read: Callable[[int], bytes], name: str, size: int | None) -> Front:
    """Read and check all that stands before the arrays.

    ``read(n)`` gives n bytes, fewer at the end; ``size`` is that of the file, or None for a stream.
    """
    prelude = read(_PRELUDE.size)
    if prelude[: len(MAGIC)] != MAGIC[: len(prelude)] or not prelude:
        _refuse_foreign(name, prelude + read(_LOOK - _PRELUDE.size))
    if len(prelude) < _PRELUDE.size:
        refuse(name, f"the file is cut: it has {len(prelude)} bytes, its beginning alone needs {_PRELUDE.size}")
    _, version, checksum, header_bytes, file_bytes = _PRELUDE.unpack(prelude)
    if not 1 <= version <= VERSION:
        refuse(
            name,
            f"the file has format version {version}; this crfield reads version {VERSION} and older",
            "Update crfield if a newer one wrote it; otherwise the file is damaged: copy or save it again.",
        )
    if size is not None and size != file_bytes:
        how = "cut" if size < file_bytes else "damaged"
        refuse(name, f"the file is {how}: it should have {file_bytes:,} bytes and has {size:,}")
    if header_bytes > MAX_HEADER or _PRELUDE.size + header_bytes > file_bytes:
        refuse(name, f"the file is damaged: a header of {header_bytes:,} bytes in a file of {file_bytes:,}")
    packed = read(header_bytes)
    if len(packed) < header_bytes:
        refuse(name, f"the file is cut: it should have {file_bytes:,} bytes and ends within the header")
    if _checksum(version, header_bytes, file_bytes, packed) != checksum:
        refuse(name, "the file is damaged: the checksum of its header does not match")
    content = _parse(packed, name)
    first = aligned(_PRELUDE.size + header_bytes)
    entries = tuple(_entry(row, first, name) for row in content["arrays"])
    _check_places(entries, file_bytes, name)
    return Front(content["header"], tuple(sorted(entries, key=_place)), _PRELUDE.size + header_bytes)


def _checksum(version: int, header_bytes: int, file_bytes: int, packed: bytes) -> int:
    return zlib.crc32(packed, zlib.crc32(struct.pack("<IQQ", version, header_bytes, file_bytes)))


def _refuse_foreign(name: str, start: bytes) -> NoReturn:
    if not start:
        refuse(name, "the file is empty")
    if b"CRF" in start[1:6] and start[:1] in (b"\x89", b"\xc2", b"\xef", b"\t"):
        refuse(
            name,
            "the file was a crfield model and was changed as if it were text",
            "Transfer it again in binary mode (for git, mark it as binary in .gitattributes).",
        )
    refuse(name, f"not a crfield model: this looks like {looks_like(start)}", "Check the path.")


def _parse(packed: bytes, name: str) -> dict[str, Any]:
    problem = text_problem(packed)
    if problem:
        refuse(name, f"the header is not JSON that crfield wrote: {problem}")
    try:
        content = json.loads(packed.decode("utf-8", errors="surrogatepass"))
    except (ValueError, RecursionError, MemoryError) as error:
        refuse(name, f"the header is not JSON that crfield wrote ({type(error).__name__}: {str(error)[:100]})")
    problem = json_problem(content)
    if problem:
        refuse(name, f"the header cannot be used: {problem}")
    if not isinstance(content, dict):
        refuse(name, f"the header must be a JSON object, got {type(content).__name__}")
    for key, kind in (("header", dict), ("arrays", list)):
        if not isinstance(content.get(key), kind):
            refuse(name, f"the header must hold {key!r} as a {kind.__name__}, got {str(content.get(key))[:40]}")
    return content


def _entry(row: Any, first: int, name: str) -> Entry:
    """A row of the table, each value in its range; whole numbers only (and a JSON true is none)."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        refuse(name, f"a row of the table of arrays has no name: {str(row)[:60]}")
    what = f"array {row['name'][:60]!r}"
    if row.get("dtype") not in DTYPES:
        refuse(
            name,
            f"{what} has type {str(row.get('dtype'))[:20]!r}, expected one of {', '.join(DTYPES)}",
            "Update crfield if a newer one wrote the file; otherwise save the model again.",
        )
    dtype = np.dtype(row["dtype"])
    shape = row.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        refuse(name, f"{what} has shape {str(shape)[:60]}, expected at most {MAX_DIMENSIONS} lengths")
    numbers = [*shape, row.get("offset"), row.get("nbytes"), row.get("crc32")]
    if any(type(number) is not int or not 0 <= number <= MAX_BYTES for number in numbers):
        refuse(
            name,
            f"{what} has a size, offset or checksum that is no integer in range: {str(numbers)[:80]}",
        )
    # Zeros apart, so that (10¹⁸, 10¹⁸, 0) is refused here and not by an overflow later.
    if math.prod(length or 1 for length in shape) * dtype.itemsize > MAX_BYTES:
        refuse(name, f"{what} has shape {str(shape)[:60]}, which no memory can hold")
    if math.prod(shape) * dtype.itemsize != row["nbytes"]:
        refuse(
            name,
            f"{what} of shape {str(shape)[:60]} and type {row['dtype']} cannot have {row['nbytes']} bytes",
        )
    if row["offset"] % ALIGNMENT:
        refuse(name, f"{what} lies at {row['offset']}, which is no multiple of {ALIGNMENT}")
    return Entry(row["name"], dtype, tuple(shape), first + row["offset"], row["nbytes"], row["crc32"])


def _place(entry: Entry) -> tuple[int, int]:
    return entry.start, entry.nbytes


def _check_places(entries: tuple[Entry, ...], file_bytes: int, name: str) -> None:
    if len({entry.name for entry in entries}) < len(entries):
        refuse(name, "the table of arrays has two of one name")
    for entry in entries:
        end = entry.start + entry.nbytes
        if end > file_bytes:
            refuse(name, f"array {entry.name[:60]!r} would end at byte {end:,} of a file of {file_bytes:,}")
    for before, after in pairwise(sorted(entries, key=_place)):
        if before.start + before.nbytes > after.start:
            refuse(name, f"arrays {before.name[:60]!r} and {after.name[:60]!r} overlap")
