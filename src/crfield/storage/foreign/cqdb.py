"""The constant quark database inside CRFsuite's model files: strings to numbers and back.

    byte 0     24 bytes   "CQDB", size of the chunk, flags, 0x62445371, n numbers, where their table lies
         24    2048       256 hash tables: where each lies and how many buckets it has
         2072  …          records: number, length with the closing zero, text, zero
         …                buckets (hash, where the record lies), twice as many as records
         …                for each number where its record lies

(Okazaki, *CQDB*; the hash is Jenkins's lookup3.) Everything counts from the beginning of the chunk, in 32 bits,
least byte first. Reading takes the table of numbers, checks each record against the chunk, and then the hashes: a
model file has no checksum, but a letter that was changed in a name gives it another hash, so that most damage is
found. Hashes of all names are computed together, block by block.
"""

from __future__ import annotations

import struct

import numpy as np

from crfield.errors import InputError, ModelFileError

_HEAD = struct.Struct("<4s5I")
_TABLES = 256
_DATA = _HEAD.size + 8 * _TABLES
_ORDER = 0x62445371
_LONGEST = 1 << 16  # bytes of a name; hashing costs a step of Python for each twelve of the longest


def parse_cqdb(chunk: np.ndarray, count: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The first ``count`` strings of a chunk (uint8): their bytes end to end, and where each begins (count + 1,).

    ``chunk`` may be longer than the database. `ModelFileError` says what of ``what`` is damaged.

    >>> pool, offsets = parse_cqdb(np.frombuffer(build_cqdb([b"N", b"VP"]), np.uint8), 2, "labels")
    >>> bytes(pool), offsets.tolist()
    (b'NVP', [0, 1, 3])
    """
    if len(chunk) < _DATA:
        _refuse(what, f"its {what} need at least {_DATA} bytes and have {len(chunk)}")
    magic, size, _, order, listed, at = _HEAD.unpack(chunk[: _HEAD.size].tobytes())
    if magic != b"CQDB" or order != _ORDER:
        _refuse(what, f"its {what} do not begin as a CQDB in little-endian order does")
    if not _DATA <= size <= len(chunk):
        _refuse(what, f"its {what} claim {size:,} bytes of {len(chunk):,}")
    if count == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    if listed < count or at < _DATA or at + 4 * count > size:
        _refuse(what, f"the table of {count:,} {what} does not lie within them")
    chunk = chunk[:size]
    record = chunk[at : at + 4 * count].view("<u4").astype(np.int64)
    if record.min() < _DATA or record.max() > size - 9:
        _refuse(what, f"a record of its {what} lies outside of them")
    if (words(chunk, record) != np.arange(count)).any():
        _refuse(what, f"a record of its {what} has another number than the table says")
    length = words(chunk, record + 4)
    if length.min() < 1 or length.max() > _LONGEST or (record + 8 + length > size).any() or length.sum() > size:
        _refuse(what, f"a name among its {what} is empty, longer than {_LONGEST:,} bytes, or cut")
    if chunk[record + 8 + length - 1].any():
        _refuse(what, f"a name among its {what} has no end")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length - 1)])
    pool = chunk[np.arange(offsets[-1]) + np.repeat(record + 8 - offsets[:-1], length - 1)]
    if not pool.all():
        _refuse(what, f"a name among its {what} ends too early")
    _check_hashes(chunk, record, hashes(pool, offsets), what)
    return pool, offsets


def build_cqdb(names: list[bytes]) -> bytes:
    """The chunk for these names, numbered in their order.

    >>> len(build_cqdb([])), build_cqdb([b"a"])[:4]
    (2072, b'CQDB')
    """
    for name in names:
        if b"\0" in name or len(name) >= _LONGEST:
            raise InputError(
                f"{name[:40]!r} cannot be a name in a CRFsuite model: zero bytes, or {_LONGEST:,} and more."
            )
    records, where, at = [], [], _DATA
    for number, name in enumerate(names):
        records.append(struct.pack("<II", number, len(name) + 1) + name + b"\0")
        where.append(at)
        at += len(records[-1])
    pool = np.frombuffer(b"".join(names), np.uint8)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(name) for name in names], dtype=np.int64)])
    tables: list[list[tuple[int, int]]] = [[] for _ in range(_TABLES)]
    for value, place in zip(hashes(pool, offsets).tolist(), where):
        tables[value % _TABLES].append((value, place))
    refs, buckets = [], []
    for table in tables:
        refs += [at if table else 0, 2 * len(table)]
        buckets.append(_buckets(table))
        at += len(buckets[-1])
    size = at + 4 * len(names)
    if size >= 1 << 32:
        raise InputError(f"the names need {size:,} bytes; a CRFsuite model can have 4 GB. Drop features of weight 0.")
    head = _HEAD.pack(b"CQDB", size, 0, _ORDER, len(names), at if names else 0)
    parts = [head, struct.pack(f"<{2 * _TABLES}I", *refs), *records, *buckets, struct.pack(f"<{len(where)}I", *where)]
    return b"".join(parts)


def _buckets(table: list[tuple[int, int]]) -> bytes:
    """Open addressing in twice the room: each takes the next free place after its own."""
    room = 2 * len(table)
    placed = [0] * (2 * room)
    for value, place in table:
        k = (value >> 8) % room
        while placed[2 * k + 1]:
            k = (k + 1) % room
        placed[2 * k : 2 * k + 2] = [value, place]
    return struct.pack(f"<{2 * room}I", *placed)


def _check_hashes(chunk: np.ndarray, record: np.ndarray, expected: np.ndarray, what: str) -> None:
    refs = chunk[_HEAD.size : _DATA].view("<u4").astype(np.int64).reshape(_TABLES, 2)
    refs = refs[refs[:, 1] > 0]
    if (
        (refs[:, 0] < _DATA).any()
        or (refs[:, 0] + 8 * refs[:, 1] > len(chunk)).any()
        or refs[:, 1].sum() > len(chunk)
    ):
        _refuse(what, f"a hash table of its {what} lies outside of them")
    tables = [chunk[at : at + 8 * room].view("<u4").reshape(-1, 2) for at, room in refs.tolist()]
    found = np.concatenate([*tables, np.zeros((0, 2), np.uint32)]).astype(np.int64)
    found = found[found[:, 1] != 0]
    found = found[np.argsort(found[:, 1], kind="stable")]
    order = np.argsort(record, kind="stable")
    if len(found) != len(record) or (found != np.column_stack([expected, record])[order]).any():
        _refuse(what, f"the names and the hashes of its {what} do not belong together")


def words(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The 32-bit numbers at these places of the bytes, (n,) int64.

    >>> words(np.array([1, 2, 0, 0, 0], np.uint8), np.array([0, 1])).tolist()
    [513, 2]
    """
    return sum(data[at + k].astype(np.int64) << (8 * k) for k in range(4))


def hashes(pool: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(n,) int64: Jenkins's ``hashlittle`` of each string with its closing zero.

    >>> hashes(np.frombuffer(b"NVP", np.uint8), np.array([0, 1, 3])).tolist() == [hash_of(b"N"), hash_of(b"VP")]
    True
    """
    lengths = np.diff(offsets) + 1
    # Twelve zeros behind each string: blocks can be read whole, and the closing zero is one of them.
    room = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 12)])
    data = np.zeros(room[-1], np.uint8)
    data[np.arange(len(pool)) + np.repeat(room[:-1] - offsets[:-1], np.diff(offsets))] = pool
    state = np.tile((0xDEADBEEF + lengths).astype(np.uint32), (3, 1))
    rounds = (lengths - 1) // 12
    alive = np.arange(len(lengths))
    for step in range(int(rounds.max(initial=0)) + 1):
        alive = alive[rounds[alive] >= step]
        at = room[alive] + 12 * step
        # The last block ends in zeros of our own, which is how the hash itself reads past the end.
        part = state[:, alive] + np.stack([words(data, at + 4 * k) for k in range(3)]).astype(np.uint32)
        last = rounds[alive] == step
        part[:, ~last] = _mix(part[:, ~last])
        part[:, last] = _final(part[:, last])
        state[:, alive] = part
    return state[2].astype(np.int64)


def hash_of(name: bytes) -> int:
    """The hash of one name.

    >>> hex(hash_of(b"B-NP"))
    '0xe10ba755'
    """
    return int(hashes(np.frombuffer(name, np.uint8), np.array([0, len(name)]))[0])


def _rotated(x: np.ndarray, k: int) -> np.ndarray:
    return (x << np.uint32(k)) | (x >> np.uint32(32 - k))


def _mix(state: np.ndarray) -> np.ndarray:
    a, b, c = state
    for k in (4, 6, 8, 16, 19, 4):
        a = (a - c) ^ _rotated(c, k)
        c = c + b
        a, b, c = b, c, a
    return np.stack([a, b, c])


def _final(state: np.ndarray) -> np.ndarray:
    a, b, c = state
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _rotated(b, k)
        a, b, c = b, c, a
    return np.stack([c, a, b])


def _refuse(what: str, problem: str) -> None:
    raise ModelFileError(f"the CRFsuite model is damaged or cut: {problem}. Copy the file again, or train again.")
