"""One file of named arrays and a JSON header; it knows no model.

    byte 0    8 bytes   magic 89 43 52 46 0D 0A 1A 0A: not text, and a transfer in text mode breaks it
         8    4         format version
         12   4         CRC-32 of the version, the two lengths and the header
         16   8         bytes of the header
         24   8         bytes of the whole file
         32   …         header, JSON in UTF-8: {"header": the caller's, "arrays": [row, …]}
                        with row = {"name", "dtype", "shape", "offset", "nbytes", "crc32"}
         …              arrays in C order at multiples of 64; offsets count from the first after the header

Numbers are little-endian everywhere. Nothing in the file can name code to run, as a pickle does, and nothing
is believed before it was checked: the lengths against the file, the header against its checksum, every
offset, shape and type against each other, and only then is an array made. A damaged or hostile file costs at
most its own size in memory and ends in `ModelFileError`. Arrays are read-only, whether read or mapped.

Writing makes two passes over the arrays (checksums stand before the data, so that a pipe can be written) and
copies only those that are not in C order already; the file appears complete or not at all. The reasons stand
in ``docs/design/model-file.md``.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import numpy as np

from crfield.errors import InputError
from crfield.storage.archive_reading import (
    DTYPES,
    MAGIC,
    MAX_HEADER,
    PRELUDE,
    VERSION,
    Archive,
    Place,
    aligned,
    front_checksum,
    is_stream,
    json_problem,
    read_archive,
)
from crfield.storage.files import replacing

__all__ = ["Archive", "read_archive", "write_archive"]


def write_archive(
    target: Place, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, durable: bool = True
) -> None:
    """Write a header of JSON values and named arrays, to a path (atomically) or a binary stream.

    Tuples in the header come back as lists. Arrays of no elements and of no dimensions are kept as they are. A file
    that can be made again need not be ``durable``: then nobody waits for the disk, and a loss of power may lose it.

    >>> import io
    >>> write_archive(io.BytesIO(), {"labels": ["A", "B"]}, {"w": np.zeros((2, 0)), "bias": np.array(1.5)})
    """
    if not isinstance(header, Mapping):
        raise InputError(f"the header of an archive must be a dict, got {type(header).__name__}.")
    table: list[dict[str, Any]] = []
    end = 0
    for name, array in arrays.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"arrays are named by non-empty strings, got {name!r}.")
        data = _storable(name, array)
        row = {"name": name, "dtype": data.dtype.str, "shape": list(data.shape), "offset": aligned(end)}
        table.append({**row, "nbytes": data.nbytes, "crc32": zlib.crc32(data.reshape(-1).view(np.uint8).data)})
        end = aligned(end) + data.nbytes
    front = pack(dict(header), table, end)
    if is_stream(target):
        return _write(cast(BinaryIO, target), front, arrays)
    with replacing(cast("str | os.PathLike[str]", target), durable=durable) as stream:
        _write(stream, front, arrays)


def _write(stream: BinaryIO, front: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    stream.write(front)
    written = 0
    for name, array in arrays.items():
        data = _storable(name, array).reshape(-1).view(np.uint8).data
        stream.write(bytes(aligned(written) - written))
        stream.write(data)
        written = aligned(written) + len(data)


def _storable(name: str, array: np.ndarray) -> np.ndarray:
    """The array in C order and little-endian; itself when it is so already."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"array {name!r} must be a NumPy array, got {type(array).__name__}.")
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in DTYPES:
        raise InputError(
            f"array {name!r} has dtype {array.dtype}; an archive holds {', '.join(DTYPES)}. "
            "Convert it first; text goes in as UTF-8 bytes (uint8) and offsets."
        )
    return np.asarray(array, dtype=dtype, order="C")


def pack(header: dict[str, Any], table: list[dict[str, Any]], data_bytes: int) -> bytes:
    """The front, padded to where the first array begins."""
    problem = json_problem(header)
    if problem:
        raise InputError(f"the header of an archive must be JSON: {problem}.")
    text = json.dumps({"header": header, "arrays": table}, ensure_ascii=False, separators=(",", ":"))
    # Not as \u escapes: a lone surrogate survives both ways, but two of them in a row would merge on reading.
    packed = text.encode("utf-8", errors="surrogatepass")
    if len(packed) > MAX_HEADER:
        found = f"{MAX_HEADER:,} bytes, got {len(packed):,}"
        raise InputError(f"the header of an archive may have {found}. Put long lists into arrays.")
    first = aligned(PRELUDE.size + len(packed))
    sizes = (len(packed), first + data_bytes)
    prelude = PRELUDE.pack(MAGIC, VERSION, front_checksum(VERSION, *sizes, packed), *sizes)
    return (prelude + packed).ljust(first, b"\0")
