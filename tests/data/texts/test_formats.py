"""Column files and CRFsuite files on both bodies: round trips, errors with their lines, random bytes."""

from __future__ import annotations

import gzip
import io
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crfield.data.texts.conll import format_columns, parse_columns
from crfield.data.texts.crfsuite import format_crfsuite, parse_crfsuite
from crfield.errors import FormatError
from crfield.kernels import choice
from crfield.storage import exchange, files

pytestmark = pytest.mark.usefixtures("body")
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

readable = st.characters(codec="utf-8", exclude_characters=" \t\r\n")
fields = st.text(readable, min_size=1, max_size=5) | st.sampled_from(
    ["#", "\ufeff", "\x00", "\u2028", "\x85", "\xa0"]
)
column_rows = st.integers(1, 3).flatmap(
    lambda c: st.lists(st.lists(st.tuples(*[fields] * c), min_size=1, max_size=4), max_size=4)
)


@quick
@given(column_rows, st.sampled_from([" ", "\t", " \t "]), st.sampled_from(["\n", "\r\n"]))
def test_column_files_round_trip(sequences: list[list[tuple[str, ...]]], separator: str, end: str) -> None:
    text = format_columns(sequences, separator=separator)
    data = text.replace("\n", end).encode()
    tokens = parse_columns(data)
    assert list(tokens) == sequences
    flat = [field for sequence in sequences for row in sequence for field in row]
    number = {field: i for i, field in enumerate(dict.fromkeys(flat))}
    assert tokens.codes.ravel().tolist() == [number[field] for field in flat]
    assert list(parse_columns(data.rstrip(b"\r\n"))) == sequences


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", []),
        (b"\n\n \t\n", []),
        (b"a b", [[("a", "b")]]),
        (b"a b\n \t \n\n\nc d\n\n", [[("a", "b")], [("c", "d")]]),
        (b"  a\t\tb  \r\n\r\nc d\r\n", [[("a", "b")], [("c", "d")]]),
        (b"\xef\xbb\xbfa b\n", [[("a", "b")]]),
        (b"# NN\n#x y\n", [[("#", "NN"), ("#x", "y")]]),
        (b"-DOCSTART- -X-\n\nEU NNP\n", [[("-DOCSTART-", "-X-")], [("EU", "NNP")]]),
        ("é ü\n".encode(), [[("é", "ü")]]),
    ],
)
def test_column_files_as_they_come(data: bytes, want: list[Any]) -> None:
    assert list(parse_columns(data)) == want


def test_comments_only_when_asked() -> None:
    data = b"# text = He runs\nHe PRP\n# more\nruns VBZ\n"
    assert list(parse_columns(data, comment="#")) == [[("He", "PRP"), ("runs", "VBZ")]]
    with pytest.raises(FormatError, match="line 2: expected 5 columns as in the lines before, got 2"):
        parse_columns(data, file="f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a b\n\nc\n", r"f\.txt, line 3: expected 2 columns .* got 1"),
        (b"a b\nc d e\n", r"f\.txt, line 2: expected 2 columns .* got 3"),
        (b"a b\nc \xff\n", r"f\.txt, line 2: .*UTF-8"),
        (b"a b\nc \xe2\x82", r"f\.txt, line 2: .*UTF-8"),
        (b"a \xed\xa0\x80\n", r"f\.txt, line 1: .*UTF-8"),
        (b"a \xc0\xaf\n", r"f\.txt, line 1: .*UTF-8"),
        (b"a \xf4\x90\x80\x80\n", r"f\.txt, line 1: .*UTF-8"),
        (b"a \xf0\x80\x80\x80\n", r"f\.txt, line 1: .*UTF-8"),
    ],
)
def test_column_files_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_columns(data, file="f.txt")


@pytest.mark.parametrize("bad", ["", "a b", "a\tb", "a\n", "a\r", "\ud800", 3])
def test_unwritable_fields(bad: object) -> None:
    with pytest.raises(FormatError, match="line 2"):
        format_columns([[("a",), (bad,)]])  # type: ignore[arg-type, list-item]


def test_unwritable_columns() -> None:
    for bad, message in (([[]], "empty"), ([[("a", "b"), ("c",)]], "width"), ([["ab"]], "row")):
        with pytest.raises(FormatError, match=message):
            format_columns(bad)
    with pytest.raises(FormatError, match="separator"):
        format_columns([], separator=",")


names = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n"), min_size=1, max_size=5) | st.sampled_from(
    [":", "\\", "\\:", "a\\", "@x", "#", " ", "\ufeff"]
)
labels = names.filter(lambda name: not name.startswith("@"))
values = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1.0, -0.0, 5e-324, 1e308, 0.1])
dict_steps = st.tuples(labels, st.dictionaries(names, values, max_size=3))
list_steps = st.tuples(labels, st.lists(names, max_size=3))
weights = st.floats(0, 1e300)


@quick
@given(st.lists(st.tuples(weights, st.lists(dict_steps, min_size=1, max_size=3)), max_size=3))
def test_crfsuite_files_with_values_round_trip(data: list[Any]) -> None:
    X = [[dict(step) for _, step in sequence] for _, sequence in data]
    y = [[label for label, _ in sequence] for _, sequence in data]
    given_weights = [weight for weight, _ in data]
    got, labels_, weights_ = parse_crfsuite(format_crfsuite(X, y, weights=given_weights).encode())
    assert [labels.tolist() for labels in labels_] == y
    assert weights_.tolist() == given_weights
    if got.values is None:
        assert all(value == 1.0 for sequence in X for step in sequence for value in step.values())
        assert [[dict.fromkeys(step, 1.0) for step in sequence] for sequence in got] == X
    else:
        assert list(got) == X
        assert format_crfsuite(got, labels_, weights=weights_) == format_crfsuite(X, y, weights=given_weights)


@quick
@given(st.lists(st.lists(list_steps, min_size=1, max_size=3), max_size=3))
def test_crfsuite_files_of_names_round_trip(data: list[Any]) -> None:
    X = [[step for _, step in sequence] for sequence in data]
    y = [[label for label, _ in sequence] for sequence in data]
    got, labels_, weights_ = parse_crfsuite(format_crfsuite(X, y).encode())
    assert got.values is None
    assert list(got) == X
    assert [labels.tolist() for labels in labels_] == y
    assert weights_.tolist() == [1.0] * len(X)


def test_crfsuite_files_as_they_come() -> None:
    data = (
        b"\xef\xbb\xbf@weight:2.5\r\nB-NP\tw=a\\:b\t\tlong:2e-1\t@at:3\ta\\c:\r\nO\r\n\r\n\n"
        b"@weight:0\n\nB-NP\tw=a\\\\\n\n@weight:.5\tO\tx:+1.\n"
    )
    X, y, weights_ = parse_crfsuite(data)
    assert list(X) == [
        [{"w=a:b": 1.0, "long": 0.2, "@at": 3.0, "a\\c": 1.0}, {}],
        [{"w=a\\": 1.0}],
        [{"x": 1.0}],
    ]
    assert [labels.tolist() for labels in y] == [["B-NP", "O"], ["B-NP"], ["O"]]
    assert weights_.tolist() == [2.5, 1.0, 0.5]
    assert len(parse_crfsuite(b"")[0]) == len(parse_crfsuite(b"\n\n")[0]) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"O\ta\n\nO\ta:x\n", "f, line 3: .*finite number, got 'x'"),
        (b"O\ta:b:1\n", "line 1: .*got 'b:1'"),
        (b"O\ta:nan\n", "line 1: .*got 'nan'"),
        (b"O\ta:inf\n", "line 1: .*got 'inf'"),
        (b"O\ta:-1e999\n", "line 1: .*got '-1e999'"),
        (b"O\ta:1e\n", "line 1"),
        (b"O\ta:0x10\n", "line 1"),
        (b"O\ta:1_0\n", "line 1"),
        (b"O\ta: 1\n", "line 1"),
        (b"O\ta:.\n", "line 1"),
        (b"O\ta:+\n", "line 1"),
        ("O\ta:١\n".encode(), "line 1"),
        (b"O\ta\n@group:1\n", "line 2: unknown directive '@group'"),
        (b"@weight:x\n", "line 1: @weight must be"),
        (b"@weight\n", "line 1: @weight must be"),
        (b"@weight:-1\n", "line 1: @weight must be .* got '-1'"),
        (b"@weight:inf\n", "line 1: @weight must be"),
        (b"O\ta\n\tb\n", "line 2: .*expected a label"),
        (b"O:1\ta\n", "line 1: the label 'O:1' has a bare ':'"),
        (b"O\ta\nO\t\xff\n", "line 2: .*UTF-8"),
    ],
)
def test_crfsuite_files_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_crfsuite(data, file="f")


@pytest.mark.parametrize(
    ("X", "y", "weights_", "message"),
    [
        ([[{"a": np.nan}]], [["O"]], None, "finite"),
        ([[{"a": "x"}]], [["O"]], None, "finite"),
        ([[{"a\t": 1}]], [["O"]], None, "cannot be written"),
        ([[[""]]], [["O"]], None, "cannot be written"),
        ([[["a"]]], [["@O"]], None, "begins with '@'"),
        ([[["a"]]], [[3]], None, "cannot be written"),
        ([["a"]], [["O"]], None, "dict or a list"),
        ([[["a"]]], [["O", "O"]], None, "1 steps and 2 labels"),
        ([[]], [[]], None, "empty"),
        ([[["a"]]], [], None, "one entry per sequence"),
        ([[["a"]]], [["O"]], [-1.0], "weight"),
    ],
)
def test_unwritable_crfsuite(X: Any, y: Any, weights_: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        format_crfsuite(X, y, weights=weights_)


@settings(quick, max_examples=400)
@given(st.text("0123456789.eE+-", min_size=1, max_size=24) | values.map(repr) | st.integers().map(str))
@example("9007199254740993")
@example("0.000000000000000000000000000001")
@example("123456789012345678901234567890e-30")
@example("1e-400")
@example("8.5e22")
@example("1.7976931348623159e308")
def test_numbers_are_read_to_the_last_bit(text: str) -> None:
    try:
        want = float(text)
    except ValueError:
        want = np.inf
    if np.isfinite(want):
        X, _, _ = parse_crfsuite(f"O\ta:{text}\tb:7\n".encode())
        assert X.values is not None
        assert X.values[0] == want
        assert np.signbit(X.values[0]) == np.signbit(want)
    else:
        with pytest.raises(FormatError):
            parse_crfsuite(f"O\ta:{text}\n".encode())


# Bytes that mean something to the parsers, and any others.
noise = st.lists(
    st.sampled_from(
        [b"a", b"b", b":", b"\\", b"@", b"@weight:", b"\t", b" ", b"\n", b"\r", b"#", b"1", b"\xef\xbb\xbf"]
    )
    | st.binary(min_size=1, max_size=3),
    max_size=30,
).map(b"".join)


@settings(quick, max_examples=300)
@given(noise)
def test_random_bytes_give_the_same_on_both_bodies(data: bytes) -> None:
    def outcome(parse: Any) -> Any:
        try:
            return parse(data)
        except FormatError as error:
            return str(error)

    def columns(data: bytes) -> Any:
        tokens = parse_columns(data)
        return list(tokens), tokens.codes.tolist(), list(tokens.alphabet)

    def attributes(data: bytes) -> Any:
        X, y, weights_ = parse_crfsuite(data)
        return list(X), [labels.tolist() for labels in y], weights_.tolist(), list(X.alphabet)

    for parse in (columns, attributes):
        got = outcome(parse)
        with choice.use("numpy"):
            assert got == outcome(parse)


def test_paths_streams_and_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = [[("He", "é"), ("runs", "VBZ")], [("Stop", "VB")]]
    for name in ("plain.txt", "packed.gz"):
        exchange.write_columns(tmp_path / name, sequences)
        assert list(exchange.read_columns(str(tmp_path / name))) == sequences
    packed = (tmp_path / "packed.gz").read_bytes()
    assert packed[:2] == b"\x1f\x8b"
    (tmp_path / "packed.txt").write_bytes(packed)
    assert list(exchange.read_columns(tmp_path / "packed.txt")) == sequences
    text = (tmp_path / "plain.txt").read_text(encoding="utf-8")
    streams = [io.BytesIO(packed), io.BytesIO(text.encode()), io.StringIO(text)]
    assert all(list(exchange.read_columns(stream)) == sequences for stream in streams)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert list(exchange.read_columns("-")) == sequences
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out))
    exchange.write_columns("-", sequences)
    assert out.getvalue() == text.encode()
    exchange.write_crfsuite(tmp_path / "a.crfsuite.gz", [[["a"]]], [["O"]], weights=[2])
    X, y, weights_ = exchange.read_crfsuite(tmp_path / "a.crfsuite.gz")
    assert (list(X), y[0].tolist(), weights_.tolist()) == ([[["a"]]], ["O"], [2.0])
    (tmp_path / "template").write_bytes(b"\xef\xbb\xbfU0:%x[0,0]\n")
    assert exchange.read_template(tmp_path / "template") == "U0:%x[0,0]\n"


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a b\nc\n")
    with pytest.raises(FormatError, match=r"bad\.txt, line 2"):
        exchange.read_columns(path)
    path.write_bytes(b"O\ta:x\n")
    with pytest.raises(FormatError, match=r"bad\.txt, line 1"):
        exchange.read_crfsuite(path)
    path.write_bytes(b"U0\n\xff")
    with pytest.raises(FormatError, match=r"bad\.txt, line 2"):
        exchange.read_template(path)
    packed = gzip.compress(b"a b\n" * 100)
    for damage in (packed[:-9], packed[:20] + b"\xff\xff\xff" + packed[23:], b"\x1f\x8b"):
        path.write_bytes(damage)
        with pytest.raises(FormatError, match=r"bad\.txt: the gzip data is damaged"):
            exchange.read_columns(path)
    with pytest.raises(FileNotFoundError, match="absent"):
        exchange.read_columns(tmp_path / "absent.txt")
    with pytest.raises(IsADirectoryError, match="folder"):
        exchange.read_columns(tmp_path)
    with pytest.raises(FormatError, match="got int"):
        exchange.read_columns(3)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="UTF-8"):
        exchange.read_columns(io.StringIO("\ud800"))
    with pytest.raises(FormatError, match="<stream>, line 2"):
        exchange.read_columns(io.StringIO("a b\nc"))


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    files.write_text(path, "old")
    path.chmod(0o640)

    def fail() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link"
    link.symlink_to(path)
    files.write_bytes(link, b"through")
    assert link.is_symlink()
    assert path.read_text() == "through"
    with pytest.raises(FileNotFoundError, match="absent"):
        files.write_text(tmp_path / "absent" / "out.txt", "x")
    with pytest.raises(IsADirectoryError, match="folder"):
        files.write_text(tmp_path, "x")
    files.write_text(os.devnull, "x")
    assert not os.path.isfile(os.devnull)
    with pytest.raises(FormatError, match="got int"):
        files.write_bytes(3, b"")  # type: ignore[arg-type]
