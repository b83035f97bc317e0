"""The model archive: what goes in comes out, the name holds a whole file or the old one, threads agree."""

from __future__ import annotations

import base64
import gzip
import io
import os
import stat
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crfield.errors import InputError, ModelFileError
from crfield.storage import archive as archive_module
from crfield.storage import archive_reading
from crfield.storage.archive import Archive, read_archive, write_archive
from crfield.storage.archive_reading import DTYPES

HEADER: dict[str, Any] = {
    "kind": "chain",
    "labels": ["O", "B-größe", "日本", "lone \ud800", "pair \ud83d\ude00", "raw \udc80", 'nul \0 quote " \\'],
    "l2": 0.1,
    "tiny": 5e-324,
    "big": 2**200,
    "nested": {"empty": {}, "list": [None, True, False, -1, []]},
}


def some_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {f"of {dtype}": rng.integers(0, 2, 7).astype(dtype) for dtype in DTYPES}
    return {
        **arrays,
        "weights": rng.normal(size=(5, 3)),
        "special": np.array([np.nan, np.inf, -np.inf, -0.0]),
        "scalar": np.array(1.5),
        "nothing": np.zeros(0),
        "flat nothing": np.zeros((3, 0, 2), np.int32),
        "größe \ud800": np.array([1], np.int8),
        "columns": np.asfortranarray(rng.normal(size=(4, 6))),
        "every other": np.arange(20)[::2],
        "big endian": np.arange(4, dtype=">f8"),
        "last nothing": np.zeros(0, bool),
    }


def same(archive: Archive, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    if archive.header != header or list(archive.arrays) != list(arrays):
        return False
    for name, array in arrays.items():
        got = archive.arrays[name]
        if got.shape != array.shape or got.dtype != array.dtype.newbyteorder("="):
            return False
        if got.tobytes() != array.astype(got.dtype).tobytes():
            return False
    return True


@pytest.mark.parametrize("mmap", [False, True])
def test_round_trip_through_a_file(tmp_path: Path, mmap: bool) -> None:
    write_archive(tmp_path / "m.crf", HEADER, some_arrays())
    archive = read_archive(str(tmp_path / "m.crf"), mmap=mmap)
    assert same(archive, HEADER, some_arrays())
    for array in archive.arrays.values():
        assert not array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.aligned
    assert "weights" in archive.arrays
    assert "absent" not in archive.arrays
    with pytest.raises(KeyError):
        archive.arrays["absent"]


def test_mapped_arrays_lie_at_multiples_of_64(tmp_path: Path) -> None:
    write_archive(tmp_path / "m.crf", {}, some_arrays())
    for array in read_archive(tmp_path / "m.crf", mmap=True).arrays.values():
        assert not array.size or array.ctypes.data % 64 == 0


def test_round_trip_through_streams() -> None:
    stream = io.BytesIO()
    write_archive(stream, HEADER, some_arrays())
    write_archive(stream, {"second": 1}, {})
    stream.seek(0)
    assert same(read_archive(stream), HEADER, some_arrays())
    packed = gzip.compress(stream.getvalue())
    with gzip.open(io.BytesIO(packed)) as unpacked:
        assert same(read_archive(unpacked), HEADER, some_arrays())  # type: ignore[arg-type]


def test_streams_may_give_few_bytes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 7))

    stream = io.BytesIO()
    write_archive(stream, HEADER, some_arrays())
    assert same(read_archive(Slow(stream.getvalue())), HEADER, some_arrays())


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(
    header=st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    arrays=st.dictionaries(
        st.text(st.characters(codec=None), min_size=1, max_size=5),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=4,
    ),
)
def test_any_content_round_trips(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    stream = io.BytesIO()
    write_archive(stream, header, arrays)
    stream.seek(0)
    assert same(read_archive(stream), header, arrays)


def test_same_content_gives_the_same_bytes() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_archive(first, HEADER, some_arrays())
    write_archive(second, HEADER, some_arrays())
    assert first.getvalue() == second.getvalue()


VERSION_1 = (
    "eNrrdA5y4+WS4mJkYGCYK6j94g4DBHgwQuhqpYzUxJTUIiWraqXszLwUJSullNTcfCUdpZzEpNScYiWraCUnIM9TKbZWRymx"
    "qCixEiRWrZSXmJsKVFwOlEspqSwAsW3SLIC84oxEEC/aSMcoVkcpPy2tOLVEycpARykvqbIkFajZ2EhHKbko2dhIycrE0MTA"
    "3MLSxNy4VgduZDaykZkmyEYiGWhmgjDRAm6gobGlsZm5kaG5aW1sLQMcPLCH0B/2QwUcGIgEzEAMCioAlDNHjA=="
)


def test_a_stored_file_of_version_1_stays_readable() -> None:
    archive = read_archive(io.BytesIO(zlib.decompress(base64.b64decode(VERSION_1))))
    assert archive.header == {"kind": "demo", "labels": ["B", "I"]}
    assert archive.arrays["w"].tolist() == [[0.5, -1.0], [2.0, 0.0]]
    assert archive.arrays["k"].tolist() == [3, 1]


def test_the_old_file_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.crf"
    write_archive(path, {"old": True}, {"w": np.ones(3)})
    before = path.read_bytes()

    def full(stream: Any, front: bytes, arrays: Any) -> None:
        stream.write(front[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive_module, "_write", full)
    with pytest.raises(OSError, match="No space"):
        write_archive(path, {"new": True}, {"w": np.ones(3)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.crf"]


def test_a_failed_replacement_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: str, target: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "m.crf", {}, {})
    assert os.listdir(tmp_path) == []


def test_missing_folder_and_missing_file_are_the_systems_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "no" / "m.crf", {}, {})
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "no.crf")


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_links_and_permissions_survive(tmp_path: Path) -> None:
    real, link = tmp_path / "real.crf", tmp_path / "link.crf"
    write_archive(real, {"n": 1}, {})
    assert stat.S_IMODE(real.stat().st_mode) & 0o077 != 0 or os.umask(os.umask(0)) & 0o077
    real.chmod(0o640)
    link.symlink_to(real)
    write_archive(link, {"n": 2}, {})
    assert link.is_symlink()
    assert read_archive(real).header == {"n": 2}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="devices of POSIX")
def test_a_device_is_written_not_replaced() -> None:
    write_archive("/dev/null", {}, {"w": np.ones(3)})
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_can_carry_an_archive(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_archive, args=(pipe, HEADER, some_arrays()))
    writer.start()
    assert same(read_archive(pipe), HEADER, some_arrays())
    writer.join()


def test_overwriting_leaves_mapped_readers_their_file(tmp_path: Path) -> None:
    path = tmp_path / "m.crf"
    write_archive(path, {}, {"w": np.zeros(10_000)})
    mapped = read_archive(path, mmap=True)
    write_archive(path, {}, {"w": np.ones(5)})
    assert mapped.arrays["w"].sum() == 0


def test_mapped_arrays_are_checked_once_and_by_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(tmp_path / "m.crf", {}, {"w": np.arange(100_000.0)})
    archive = read_archive(tmp_path / "m.crf", mmap=True)
    calls = []
    true_check = archive_reading._array

    def slow_check(*parts: Any) -> np.ndarray:
        calls.append(1)
        time.sleep(0.01)
        return true_check(*parts)

    monkeypatch.setattr(archive_reading, "_array", slow_check)
    got: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: got.append(archive.arrays["w"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len({id(array) for array in got}) == 1
    assert len(calls) == 1


def test_a_damaged_array_is_found_when_it_is_first_used(tmp_path: Path) -> None:
    path = tmp_path / "m.crf"
    write_archive(path, {"kind": "demo"}, {"good": np.arange(10.0), "bad": np.arange(10.0)})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"m\.crf: the file is damaged: the checksum of array 'bad'"):
        read_archive(path)
    mapped = read_archive(path, mmap=True)
    assert mapped.arrays["good"].sum() == 45
    for _ in range(2):
        with pytest.raises(ModelFileError, match="'bad'"):
            mapped.arrays["bad"]


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"a": float("nan")}, {}, "nan"),
        ({"a": {1: 2}}, {}, "not a string"),
        ({"a": {"b", "c"}}, {}, "holds a set"),
        ({"a": np.int64(1)}, {}, "holds a int64"),
        ({"a": 10**5000}, {}, "4,000 digits"),
        ([], {}, "must be a dict"),
        ({}, {"": np.zeros(1)}, "non-empty"),
        ({}, {1: np.zeros(1)}, "non-empty"),
        ({}, {"w": [1.0]}, "must be a NumPy array"),
        ({}, {"w": np.array(["a"])}, "UTF-8"),
        ({}, {"w": np.array([{}])}, "dtype object"),
        ({}, {"w": np.zeros(2, complex)}, "complex128"),
    ],
)
def test_what_cannot_be_stored_is_refused(header: Any, arrays: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_archive(io.BytesIO(), header, arrays)


def test_deep_and_circular_headers_are_refused() -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(InputError, match="nested more than"):
        write_archive(io.BytesIO(), {"a": deep}, {})


def test_a_header_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crfield.storage.archive.MAX_HEADER", 100)
    with pytest.raises(InputError, match="Put long lists into arrays"):
        write_archive(io.BytesIO(), {"a": "x" * 100}, {})


def test_wrong_places() -> None:
    with pytest.raises(InputError, match="binary stream, got a text stream"):
        write_archive(io.StringIO(), {}, {})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mmap=True needs the path"):
        read_archive(io.BytesIO(), mmap=True)
    with pytest.raises(InputError, match="a path or a binary stream, got int"):
        read_archive(3)  # type: ignore[arg-type]
