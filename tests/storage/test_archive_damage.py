"""Damaged, cut, foreign and hostile archives: an error that helps or the same content, nothing else."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield.errors import ModelFileError
from crfield.storage.archive import Archive, read_archive, write_archive

PRELUDE = struct.Struct("<8sIIQQ")


def valid() -> bytes:
    stream = io.BytesIO()
    arrays = {
        "weights": np.linspace(-1, 1, 40).reshape(8, 5),
        "columns": np.arange(9, dtype=np.int32),
        "flags": np.array([True, False, True]),
        "none": np.zeros((0, 4)),
    }
    write_archive(stream, {"kind": "chain", "labels": ["B", "I", "O"], "l2": 0.5}, arrays)
    return stream.getvalue()


def content(archive: Archive) -> tuple[Any, ...]:
    rows = [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in archive.arrays.items()]
    return json.dumps(archive.header, sort_keys=True), sorted(rows)


def sealed(packed: bytes, data: bytes, *, version: int = 1, size: int | None = None) -> bytes:
    """An archive of the given header bytes with a right checksum, as a hostile writer would make it."""
    first = -(-(PRELUDE.size + len(packed)) // 64) * 64
    size = first + len(data) if size is None else size
    checksum = zlib.crc32(packed, zlib.crc32(struct.pack("<IQQ", version, len(packed), size)))
    front = PRELUDE.pack(b"\x89CRF\r\n\x1a\n", version, checksum, len(packed), size) + packed
    return front.ljust(first, b"\0") + data


def taken_apart(archive: bytes) -> tuple[dict[str, Any], bytes]:
    length = PRELUDE.unpack_from(archive)[3]
    first = -(-(PRELUDE.size + length) // 64) * 64
    return json.loads(archive[PRELUDE.size : PRELUDE.size + length]), archive[first:]


def damage(good: bytes, rng: random.Random) -> bytes:
    bad = bytearray(good)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(bad)) if bad else 0
        what = rng.randrange(6)
        if what <= 1 and bad:
            bad[place] ^= 1 << rng.randrange(8)
        elif what == 2 and bad:
            bad[place] = rng.randrange(256)
        elif what == 3:
            bad[place:place] = rng.randbytes(rng.choice([1, 3, 64]))
        elif what == 4:
            del bad[place : place + rng.choice([1, 3, 64])]
        else:
            del bad[place:]
    return bytes(bad)


def test_random_damage_is_harmless() -> None:
    good, rng, refused = valid(), random.Random(0), 0
    wanted = content(read_archive(io.BytesIO(good)))
    for _ in range(6000):
        try:
            assert content(read_archive(io.BytesIO(damage(good, rng)))) == wanted
        except ModelFileError:
            refused += 1
    assert refused > 4000


@pytest.mark.parametrize("mmap", [False, True])
def test_random_damage_of_files_is_harmless(tmp_path: Path, mmap: bool) -> None:
    good, rng, refused = valid(), random.Random(1), 0
    wanted = content(read_archive(io.BytesIO(good)))
    path = tmp_path / "m.crf"
    for _ in range(800):
        path.unlink(missing_ok=True)
        path.write_bytes(damage(good, rng))
        try:
            assert content(read_archive(path, mmap=mmap)) == wanted
        except ModelFileError:
            refused += 1
    assert refused > 500


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    good, path = valid(), tmp_path / "m.crf"
    for length in range(len(good)):
        with pytest.raises(ModelFileError):
            read_archive(io.BytesIO(good[:length]))
    for length in range(0, len(good), 50):
        path.write_bytes(good[:length])
        with pytest.raises(ModelFileError, match=r"m\.crf"):
            read_archive(path, mmap=True)


def test_a_cut_file_says_how_many_bytes_are_missing(tmp_path: Path) -> None:
    good, path = valid(), tmp_path / "m.crf"
    path.write_bytes(good[:-10])
    with pytest.raises(ModelFileError, match=rf"cut: it should have {len(good):,} bytes and has {len(good) - 10:,}"):
        read_archive(path)
    path.write_bytes(good + b"more")
    with pytest.raises(ModelFileError, match=rf"should have {len(good):,} bytes and has {len(good) + 4:,}"):
        read_archive(path)
    with pytest.raises(ModelFileError, match="array 'flags' should end at byte"):
        read_archive(io.BytesIO(good[:-64]))


HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 3, 63, 64, 65, 2**31, 2**32, 2**62, 2**63, 2**64, 10**18, 10**30, 1.5, 1e300, "",
    "x", "|O", "<f8", ">f8", "O", [], [-1], [0], [10**18], [2**32, 2**32], [10**18, 10**18, 0], [2**62, 4],
    [1] * 40, [True], [1.0], ["1"], {}, [[]], {"a": 1},
]  # fmt: skip


def test_random_hostile_headers_are_harmless(tmp_path: Path) -> None:
    """With the checksum made right, only the checks of each value stand between the table and the memory."""
    good, rng = valid(), random.Random(2)
    refused = 0
    for turn in range(4000):
        table, data = taken_apart(good)
        for _ in range(rng.choice([1, 1, 2])):
            row = rng.choice(table["arrays"])
            row[rng.choice(list(row))] = rng.choice(HOSTILE)
        bad = sealed(json.dumps(table).encode(), data)
        try:
            if turn % 10:
                read_archive(io.BytesIO(bad))
            else:
                path = tmp_path / f"{turn}.crf"
                path.write_bytes(bad)
                list(read_archive(path, mmap=True).arrays.values())
        except ModelFileError:
            refused += 1
    assert refused > 3000


def changed(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda table: table["arrays"][0].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(shape=[10**18], nbytes=8 * 10**18), "no integer in range"),
        (changed(shape=[10**18]), "no memory can hold"),
        (changed(shape=[10**17], nbytes=8 * 10**17), "would end at byte"),
        (changed(shape=[2**32, 2**32], nbytes=0), "no memory can hold"),
        (changed(shape=[10**18, 10**18, 0], nbytes=0), "no memory can hold"),
        (changed(shape=[-8, -5]), "no integer in range"),
        (changed(shape=[8, True]), "no integer in range"),
        (changed(shape=[8.0, 5]), "no integer in range"),
        (changed(shape=[8, 6]), "cannot have 320 bytes"),
        (changed(shape=40), "expected at most 32 lengths"),
        (changed(shape=[1] * 33), "expected at most 32 lengths"),
        (changed(nbytes=321), "cannot have 321 bytes"),
        (changed(offset=-64), "no integer in range"),
        (changed(offset=8), "no multiple of 64"),
        (changed(offset=2**40), "would end at byte"),
        (lambda table: table["arrays"][1].update(offset=256), "'weights' and 'columns' overlap"),
        (changed(dtype="|O"), "has type '|O'"),
        (changed(dtype=["<f8"]), "has type"),
        (changed(dtype=">f8"), "has type '>f8'"),
        (changed(dtype="|b1", shape=[320]), "truth values other than 0 and 1"),
        (changed(dtype="<i8", crc32=0), "checksum of array 'weights'"),
        (changed(name="columns"), "two of one name"),
        (changed(name=""), "has no name"),
        (changed(name=None), "has no name"),
        (lambda table: table["arrays"].append(3), "has no name"),
        (lambda table: table["arrays"][0].pop("crc32"), "no integer in range"),
        (lambda table: table.pop("arrays"), "must hold 'arrays' as a list"),
        (lambda table: table.update(header=[1]), "must hold 'header' as a dict"),
    ],
)
def test_each_check_has_its_message(change: Callable[[dict[str, Any]], object], message: str) -> None:
    table, data = taken_apart(valid())
    change(table)
    before = time.perf_counter()
    with pytest.raises(ModelFileError) as caught:
        read_archive(io.BytesIO(sealed(json.dumps(table).encode(), data)))
    assert message in str(caught.value)
    assert time.perf_counter() - before < 1


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"[" * 1_000_000, "not JSON"),
        (b'{"header":{},"arrays":' + b"[" * 500 + b"]" * 500 + b"}", "nested more than"),
        (b'{"header":{"a":NaN},"arrays":[]}', "a number in it is nan"),
        (b'{"header":{"a":1e999},"arrays":[]}', "a number in it is inf"),
        (b'{"header":{"a":' + b"9" * 10_000 + b'},"arrays":[]}', "not JSON"),
        (b"[]", "must be a JSON object, got list"),
        (b"null", "must be a JSON object, got NoneType"),
        (b"\xff\xfe", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_headers_that_are_no_headers(packed: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read_archive(io.BytesIO(sealed(packed, b"")))


def test_claims_of_size_cost_nothing(tmp_path: Path) -> None:
    """Sizes that no machine has, of an array and of the header, in a file and in a stream."""
    table, data = taken_apart(valid())
    last = max(table["arrays"], key=lambda row: row["offset"])
    last.update(shape=[10**17], nbytes=8 * 10**17, dtype="<f8")
    bad = sealed(json.dumps(table).encode(), data, size=10**18)
    path = tmp_path / "m.crf"
    path.write_bytes(bad)
    before = time.perf_counter()
    with pytest.raises(ModelFileError, match="the file is cut"):
        read_archive(io.BytesIO(bad))
    with pytest.raises(ModelFileError, match="should have 1,000,000,000,000,000,000 bytes"):
        read_archive(path)
    huge = PRELUDE.pack(b"\x89CRF\r\n\x1a\n", 1, 0, 2**63, 2**64 - 1)
    with pytest.raises(ModelFileError, match=r"a header of 9,223,372"):
        read_archive(io.BytesIO(huge))
    assert time.perf_counter() - before < 1


def test_newer_versions_and_newer_keys() -> None:
    table, data = taken_apart(valid())
    table["later"] = {"x": 1}
    table["arrays"][0]["later"] = "y"
    packed = json.dumps(table).encode()
    assert content(read_archive(io.BytesIO(sealed(packed, data)))) == content(read_archive(io.BytesIO(valid())))
    with pytest.raises(ModelFileError, match=r"format version 2; this crfield reads version 1.*Update crfield"):
        read_archive(io.BytesIO(sealed(packed, data, version=2)))
    with pytest.raises(ModelFileError, match="format version 0"):
        read_archive(io.BytesIO(sealed(packed, data, version=0)))


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", "b")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"", "the file is empty"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (zipped(), "zip archive"),
        (pickle.dumps({"a": 1}), "a pickle"),
        (b"lCRF\x10\x20\x00\x00FOMC", "a model of CRFsuite"),
        (b"\x93NUMPY\x01\x00", "NumPy .npy"),
        (b"#mdl#2#0\n", "Wapiti"),
        (b"version: 100\ncost-factor: 1\n", "CRF++"),
        ("Größe NN B-NP\nx y z\n".encode(), "a text file that starts with 'Größe NN B-NP'"),
        (b"\n", "a text file"),
        (b"\n\nword NN\n", "a text file"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (valid().replace(b"\r\n", b"\n", 1), "changed as if it were text"),
        (valid().decode("latin-1").encode(), "changed as if it were text"),
        (valid().decode("utf-8", errors="replace").encode(), "changed as if it were text"),
        (b"\x00\x01\x02\x03", "unknown kind of data that starts with 00 01 02 03"),
        (b"\x80", "unknown kind of data"),
        (b"\x89CR", "the file is cut: it has 3 bytes"),
    ],
)
def test_foreign_files_are_named(tmp_path: Path, start: bytes, name: str) -> None:
    (tmp_path / "m.crf").write_bytes(start)
    for mmap in (False, True):
        with pytest.raises(ModelFileError) as caught:
            read_archive(tmp_path / "m.crf", mmap=mmap)
        assert name in str(caught.value)
        assert "m.crf" in str(caught.value)
