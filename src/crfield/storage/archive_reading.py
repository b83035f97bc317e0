"""Reading an archive: what it holds and where, checked before it is believed; arrays in memory or mapped.

The layout stands in `crfield.storage.archive`, which writes it.
"""

from __future__ import annotations

import io
import json
import math
import mmap as memory_map
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn, cast

import numpy as np

from crfield.errors import InputError, ModelFileError
from crfield.storage.foreign.tools import chain_tool, looks_like

MAGIC = b"\x89CRF\r\n\x1a\n"
VERSION = 1
ALIGNMENT = 64
MAX_HEADER = 1 << 26
MAX_DEPTH = 64
MAX_VALUES = 1 << 21  # of JSON, some sixty bytes each
MAX_DIMENSIONS = 32  # NumPy 1's limit
MAX_BYTES = 1 << 62
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")

PRELUDE = struct.Struct("<8sIIQQ")
_LOOK = 512
_AGAIN = "Copy the file again from where it was saved, or save the model again."
_CHUNK = 1 << 20

Place = str | os.PathLike[str] | BinaryIO


@dataclass(frozen=True, eq=False)
class Seal:
    """What is known of a file that was looked through: which one it was, and what is where in it."""

    version: tuple[int, ...]  # device, inode, size, times: another one for whatever happens to the file
    header: dict[str, Any]
    entries: tuple[Entry, ...]

    @property
    def changed(self) -> int:
        """When the file was last changed, in nanoseconds of the system's clock."""
        return max(self.version[3:])


@dataclass(frozen=True, eq=False)
class Archive:
    """The caller's header and the arrays by name.

    >>> from crfield.storage.archive import write_archive
    >>> stream = io.BytesIO()
    >>> write_archive(stream, {"kind": "demo"}, {"weights": np.arange(3.0)})
    >>> _ = stream.seek(0)
    >>> archive = read_archive(stream)
    >>> archive.header, archive.arrays["weights"].tolist()
    ({'kind': 'demo'}, [0.0, 1.0, 2.0])
    """

    header: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    name: str = "<archive>"  # of the file, for messages
    seal: Seal | None = None  # of a mapped file


class NotAnArchive(ModelFileError):
    """A file of another kind; ``tool`` is the one whose chain model it is, if it is one, and ``file`` its name."""

    def __init__(self, message: str, file: str, tool: str | None) -> None:
        super().__init__(message)
        self.file, self.tool = file, tool


def read_archive(source: Place, *, mmap: bool = False, seal: Seal | None = None) -> Archive:
    """Read an archive from a path or a binary stream.

    Every checksum is checked at once. With ``mmap=True`` (paths only) the arrays are views of the file, which
    the system loads as they are used and shares between processes; the checksum of an array is then checked
    when it is first asked for, and `ModelFileError` comes at that moment. The header is always checked.

    Who maps a file over and over hands in the ``seal`` of the archive whose arrays it has all looked at: as long as
    it is the same file, the archive comes with that very seal, and nothing is checked again.
    """
    if is_stream(source):
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
            seal = Seal(version, *_read_front(stream, path, size)[:2])
        data = memory_map.mmap(stream.fileno(), 0, access=memory_map.ACCESS_READ)
        return Archive(seal.header, _MappedArrays(data, seal.entries, path, trusted), path, seal)


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
                empty = np.zeros(0, np.uint8)  # which cannot be mapped
                raw = np.frombuffer(self._data, np.uint8, entry.nbytes, entry.start) if entry.nbytes else empty
                self._checked[name] = (_shaped if self._trusted else _array)(raw, entry, self._path)
            return self._checked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def is_stream(thing: Any) -> bool:
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
    header, entries, position = _read_front(stream, name, size)
    arrays: dict[str, np.ndarray] = {}
    for entry in entries:
        while position < entry.start:
            skipped = len(_take(stream, min(_CHUNK, entry.start - position)))
            if not skipped:
                _refuse_cut(entry, position, name)
            position += skipped
        raw = _read_raw(stream, entry, position, name, known=size is not None)
        position += entry.nbytes
        arrays[entry.name] = _array(raw, entry, name)
    return Archive(header, MappingProxyType(arrays), name)


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
    refuse(name, f"the file is cut: array {entry.name!r} should end at byte {end:,}, the file ends at {position:,}")


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


# ------------------------------------------------------------------------ the front


@dataclass(frozen=True)
class Entry:
    """One array of an archive; ``start`` counts from the beginning of the file."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    nbytes: int
    crc32: int


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
                    if keys := [key for key in item if not isinstance(key, str)]:
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


def _read_front(stream: BinaryIO, name: str, size: int | None) -> tuple[dict[str, Any], tuple[Entry, ...], int]:
    """Read and check all that stands before the arrays: the caller's header, the arrays in the order of their place,
    and the bytes read so far. ``size`` is that of the file, or None for a stream.

    It goes from cheap to dear and believes nothing that was not checked before: magic, version, length of the file,
    length of the header, checksum, how many values its JSON has and how deep, the JSON itself, and at last each row
    of the table of arrays against the types that exist, its own shape, the file and its neighbours.
    """
    prelude = _take(stream, PRELUDE.size)
    if prelude[: len(MAGIC)] != MAGIC[: len(prelude)] or not prelude:
        _refuse_foreign(stream, name, prelude)
    if len(prelude) < PRELUDE.size:
        refuse(name, f"the file is cut: it has {len(prelude)} bytes, its beginning alone needs {PRELUDE.size}")
    _, version, checksum, header_bytes, file_bytes = PRELUDE.unpack(prelude)
    if not 1 <= version <= VERSION:
        refuse(
            name,
            f"the file has format version {version}; this crfield reads version {VERSION} and older",
            "Update crfield if a newer one wrote it; otherwise the file is damaged: copy or save it again.",
        )
    if size is not None and size != file_bytes:
        how = "cut" if size < file_bytes else "damaged"
        refuse(name, f"the file is {how}: it should have {file_bytes:,} bytes and has {size:,}")
    if header_bytes > MAX_HEADER or PRELUDE.size + header_bytes > file_bytes:
        refuse(name, f"the file is damaged: a header of {header_bytes:,} bytes in a file of {file_bytes:,}")
    packed = _take(stream, header_bytes)
    if len(packed) < header_bytes:
        refuse(name, f"the file is cut: it should have {file_bytes:,} bytes and ends within the header")
    if front_checksum(version, header_bytes, file_bytes, packed) != checksum:
        refuse(name, "the file is damaged: the checksum of its header does not match")
    content = _parse(packed, name)
    first = aligned(PRELUDE.size + header_bytes)
    entries = tuple(_entry(row, first, name) for row in content["arrays"])
    _check_places(entries, file_bytes, name)
    return content["header"], tuple(sorted(entries, key=attrgetter("start", "nbytes"))), PRELUDE.size + header_bytes


def front_checksum(version: int, header_bytes: int, file_bytes: int, packed: bytes) -> int:
    return zlib.crc32(packed, zlib.crc32(struct.pack("<IQQ", version, header_bytes, file_bytes)))


def _refuse_foreign(stream: BinaryIO, name: str, start: bytes) -> NoReturn:
    start += _take(stream, _LOOK - len(start))
    if getattr(stream, "seekable", bool)():  # another reader may want it from the beginning
        stream.seek(-len(start), os.SEEK_CUR)
    if not start:
        refuse(name, "the file is empty")
    if b"CRF" in start[1:6] and start[:1] in (b"\x89", b"\xc2", b"\xef", b"\t"):
        refuse(
            name,
            "the file was a crfield model and was changed as if it were text",
            "Transfer it again in binary mode (for git, mark it as binary in .gitattributes).",
        )
    message = f"{name}: not a crfield model: this looks like {looks_like(start)}. Check the path."
    raise NotAnArchive(message, name, chain_tool(start))


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
        refuse(name, f"{what} has a size, offset or checksum that is no integer in range: {str(numbers)[:80]}")
    # Zeros apart, so that (10¹⁸, 10¹⁸, 0) is refused here and not by an overflow later.
    if math.prod(length or 1 for length in shape) * dtype.itemsize > MAX_BYTES:
        refuse(name, f"{what} has shape {str(shape)[:60]}, which no memory can hold")
    if math.prod(shape) * dtype.itemsize != row["nbytes"]:
        told = f"shape {str(shape)[:60]} and type {row['dtype']}"
        refuse(name, f"{what} of {told} cannot have {row['nbytes']} bytes")
    if row["offset"] % ALIGNMENT:
        refuse(name, f"{what} lies at {row['offset']}, which is no multiple of {ALIGNMENT}")
    return Entry(row["name"], dtype, tuple(shape), first + row["offset"], row["nbytes"], row["crc32"])


def _check_places(entries: tuple[Entry, ...], file_bytes: int, name: str) -> None:
    if len({entry.name for entry in entries}) < len(entries):
        refuse(name, "the table of arrays has two of one name")
    for entry in entries:
        end = entry.start + entry.nbytes
        if end > file_bytes:
            refuse(name, f"array {entry.name[:60]!r} would end at byte {end:,} of a file of {file_bytes:,}")
    for before, after in pairwise(sorted(entries, key=attrgetter("start", "nbytes"))):
        if before.start + before.nbytes > after.start:
            refuse(name, f"arrays {before.name[:60]!r} and {after.name[:60]!r} overlap")
