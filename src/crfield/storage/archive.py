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

import io
import mmap as memory_map
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn, cast

import numpy as np

from crfield.errors import InputError
from crfield.storage.archive_front import DTYPES, Entry, Front, aligned, pack, read_front, refuse
from crfield.storage.files import replacing

_CHUNK = 1 << 20

Place = str | os.PathLike[str] | BinaryIO


@dataclass(frozen=True, eq=False)
class Seal:
    """What is known of a file that was looked through: which one it was, and what is where in it."""

    version: tuple[int, ...]  # device, inode, size, times: another one for whatever happens to the file
    front: Front

    @property
    def changed(self) -> int:
        """When the file was last changed, in nanoseconds of the system's clock."""
        return max(self.version[3:])


@dataclass(frozen=True, eq=False)
class Archive:
    """The caller's header and the arrays by name.

    >>> stream = io.BytesIO()
    >>> write_archive(stream, {"kind": "demo"}, {"weights": np.arange(3.0)})
    >>> _ = stream.seek(0)
    >>> archive = read_archive(stream)
    >>> archive.header, archive.arrays["weights"].tolist()
    ({'kind': 'demo'}, [0.0, 1.0, 2.0])
    """

    header: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    seal: Seal | None = None  # of a mapped file


def write_archive(
    target: Place, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, durable: bool = True
) -> None:
    """Write a header of JSON values and named arrays, to a path (atomically) or a binary stream.

    Tuples in the header come back as lists. Arrays of no elements and of no dimensions are kept as they are. A file
    that can be made again need not be ``durable``: then nobody waits for the disk, and a loss of power may lose it.

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
        table.append({**row, "nbytes": data.nbytes, "crc32": zlib.crc32(_bytes_of(data))})
        end = aligned(end) + data.nbytes
    front = pack(dict(header), table, end)
    if _is_stream(target):
        _write(cast(BinaryIO, target), front, arrays)
        return
    with replacing(cast("str | os.PathLike[str]", target), durable=durable) as stream:
        _write(stream, front, arrays)


def read_archive(source: Place, *, mmap: bool = False, seal: Seal | None = None) -> Archive:
    """Read an archive from a path or a binary stream.

    Every checksum is checked at once. With ``mmap=True`` (paths only) the arrays are views of the file, which
    the system loads as they are used and shares between processes; the checksum of an array is then checked
    when it is first asked for, and `ModelFileError` comes at that moment. The header is always checked.

    Who maps a file over and over hands in the ``seal`` of the archive whose arrays it has all looked at: as long as
    it is the same file, the archive comes with that very seal, and nothing is checked again.
    """
    if _is_stream(source):
        if mmap:
            raise InputError("mmap=True needs the path of a file, got a stream: pass the path, or mmap=False.")
        stream = cast(BinaryIO, source)
        return _read(stream, str(getattr(stream, "name", "<stream>")), None)
    path = os.fspath(cast("str | os.PathLike[str]", source))
    with open(path, "rb") as stream:
        # A pipe or a device has no size beforehand.
        about = os.fstat(stream.fileno())
        size = about.st_size if os.path.isfile(path) else None
        if not mmap:
            return _read(stream, path, size)
        if size is None:
            raise InputError(f"mmap=True needs a regular file, and {path} is none: use mmap=False.")
        version = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        trusted = seal is not None and seal.version == version
        if seal is None or not trusted:
            seal = Seal(version, read_front(lambda count: _take(stream, count), path, size))
        data = memory_map.mmap(stream.fileno(), 0, access=memory_map.ACCESS_READ)
        return Archive(seal.front.header, _MappedArrays(data, seal.front.entries, path, trusted), seal)


class _MappedArrays(Mapping[str, np.ndarray]):
    """Arrays of a mapped file; each is checked when first asked for, once, whatever the number of threads."""

    def __init__(self, data: memory_map.mmap, entries: tuple[Entry, ...], path: str, trusted: bool) -> None:
        self._data, self._path, self._trusted = data, path, trusted
        self._entries = {entry.name: entry for entry in entries}
        self._checked: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> np.ndarray:
        with self._lock:
            if name not in self._checked:
                entry = self._entries[name]
                raw = np.frombuffer(self._data, np.uint8, entry.nbytes, entry.start) if entry.nbytes else _nothing()
                self._checked[name] = (_shaped if self._trusted else _array)(raw, entry, self._path)
            return self._checked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _write(stream: BinaryIO, front: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    stream.write(front)
    written = 0
    for name, array in arrays.items():
        data = _bytes_of(_storable(name, array))
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


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _nothing() -> np.ndarray:
    return np.zeros(0, np.uint8)


def _is_stream(thing: Any) -> bool:
    if isinstance(thing, str | os.PathLike):
        return False
    if isinstance(thing, io.TextIOBase):
        raise InputError("an archive needs a binary stream, got a text stream: open it with mode 'rb' or 'wb'.")
    if hasattr(thing, "read") or hasattr(thing, "write"):
        return True
    raise InputError(f"expected a path or a binary stream, got {type(thing).__name__}.")


def _take(stream: BinaryIO, count: int) -> bytes:
    """``count`` bytes, or fewer when the stream ends before."""
    parts = []
    while count > 0:
        part = stream.read(min(count, _CHUNK))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _read(stream: BinaryIO, name: str, size: int | None) -> Archive:
    front = read_front(lambda count: _take(stream, count), name, size)
    position = front.nbytes
    arrays: dict[str, np.ndarray] = {}
    for entry in front.entries:
        while position < entry.start:
            skipped = len(_take(stream, min(_CHUNK, entry.start - position)))
            if not skipped:
                _refuse_cut(entry, position, name)
            position += skipped
        raw = _read_raw(stream, entry, position, name, known=size is not None)
        position += entry.nbytes
        arrays[entry.name] = _array(raw, entry, name)
    return Archive(front.header, MappingProxyType(arrays))


def _read_raw(stream: BinaryIO, entry: Entry, position: int, name: str, *, known: bool) -> np.ndarray:
    """The bytes of one array.

    From a stream, whose length nobody knows, memory grows with what really comes: a header that claims 10¹⁸
    bytes must not cost them.
    """
    try:
        if known:
            raw = np.empty(entry.nbytes, np.uint8)
            filled = cast(io.BufferedReader, stream).readinto(raw.data)
        else:
            buffer = bytearray()
            while len(buffer) < entry.nbytes:
                part = stream.read(min(_CHUNK, entry.nbytes - len(buffer)))
                if not part:
                    break
                buffer += part
            raw, filled = np.frombuffer(buffer, np.uint8), len(buffer)
    except MemoryError:
        refuse(name, f"array {entry.name!r} needs {entry.nbytes:,} bytes of memory", "Use mmap=True.")
    if filled < entry.nbytes:
        _refuse_cut(entry, position + filled, name)
    return raw


def _refuse_cut(entry: Entry, position: int, name: str) -> NoReturn:
    end = entry.start + entry.nbytes
    refuse(
        name,
        f"the file is cut: array {entry.name!r} should end at byte {end:,}, the file ends at {position:,}",
    )


def _array(raw: np.ndarray, entry: Entry, name: str) -> np.ndarray:
    """The read-only array that the bytes are, once their checksum is right."""
    if zlib.crc32(raw.data) != entry.crc32:
        refuse(name, f"the file is damaged: the checksum of array {entry.name!r} does not match")
    if entry.dtype.kind == "b" and len(raw) and raw.max() > 1:
        refuse(name, f"array {entry.name!r} holds truth values other than 0 and 1")
    return _shaped(raw, entry, name)


def _shaped(raw: np.ndarray, entry: Entry, _: str) -> np.ndarray:
    array = raw.view(entry.dtype).reshape(entry.shape)
    if not entry.dtype.isnative:
        array = array.astype(entry.dtype.newbyteorder("="))
    array.flags.writeable = False
    return array
