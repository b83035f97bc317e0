"""Where the command line reads and writes: gzip, standard input, blocks of sequences, line ends of all kinds."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crfield
from crfield.cli.reading import Format, Text, guess_format
from crfield.errors import FormatError
from crfield.storage.blocks import read_blocks, writing
from tests.cases.command_line import QUICK, Files, works


def test_gzip_and_standard_input_give_the_same(files: Files, tmp_path: Path) -> None:
    template = ("-t", files / "words.template")
    model = files / "columns.crfield"
    for name, source, stdin in (
        ("gzip", files / "train.txt.gz", None),
        ("stdin", "-", (files / "train.txt").read_bytes()),
        ("packed stdin", "-", (files / "train.txt.gz").read_bytes()),
    ):
        path = tmp_path / f"{name}.crfield"
        works("train", source, "-m", path, *template, "-q", *QUICK, stdin=stdin)
        assert (crfield.load(path).coef_ == crfield.load(model).coef_).all()
    plain = works("tag", "-m", model, files / "test.txt").stdout
    assert works("tag", "-m", model, files / "test.txt.gz").stdout == plain
    assert works("tag", "-m", model, stdin=(files / "test.txt").read_bytes()).stdout == plain
    assert works("tag", "-m", model, "-", stdin=(files / "test.txt.gz").read_bytes()).stdout == plain
    works("tag", "-m", model, files / "test.txt", "-o", tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).decode() == plain
    scores = works("evaluate", "-m", model, files / "test.txt", "--json").stdout
    assert works("evaluate", "-m", model, "-", "--json", stdin=(files / "test.txt.gz").read_bytes()).stdout == scores


def test_several_files_are_one(files: Files, tmp_path: Path) -> None:
    sequences = (files / "train.txt").read_text().split("\n\n")
    (tmp_path / "a.txt").write_text("\n\n".join(sequences[:60]))  # without an end of its last line
    (tmp_path / "b.txt").write_text("\ufeff" + "\n\n".join(sequences[60:]))
    path = tmp_path / "m.crfield"
    parts = (tmp_path / "a.txt", tmp_path / "b.txt")
    works("train", *parts, "-m", path, "-t", files / "words.template", "-q", *QUICK)
    assert (crfield.load(path).coef_ == crfield.load(files / "columns.crfield").coef_).all()
    whole = works("tag", "-m", path, files / "train.txt").stdout
    assert works("tag", "-m", path, *parts).stdout == whole
    count = json.loads(works("evaluate", "-m", path, *parts, "--json").stdout)["sequences"]
    assert count == 150


def test_lines_keep_their_ends(files: Files) -> None:
    text = "2 d \r\ncups\tx\r\n\r\n \t \nflour x"
    out = works("tag", "-m", files / "columns.crfield", stdin=text.encode()).stdout_bytes.decode()
    labels = [line.split()[-1] for line in out.split("\n") if line.strip()]
    assert out == f"2 d\t{labels[0]}\r\ncups\tx\t{labels[1]}\r\n\r\n \t \nflour x\t{labels[2]}\n"


def test_odd_characters_stay_one_token(files: Files) -> None:
    text = "a\u2028b x\n\x0b x\n\u00a0 x\n\ufeff\u00e9 x\n"
    out = works("tag", "-m", files / "columns.crfield", stdin=text.encode()).stdout_bytes.decode()
    assert [line.rsplit(" ", 1)[0] for line in out.split("\n") if line] == text.split("\n")[:-1]


def test_nothing_in_nothing_out(files: Files) -> None:
    assert works("tag", "-m", files / "columns.crfield", stdin="").stdout == ""
    assert works("tag", "-m", files / "attributes.crfield", stdin="").stdout == ""
    assert works("tag", "-m", files / "columns.crfield", stdin="\n\n").stdout == "\n\n"


TEXTS = st.text(alphabet="ab \t\r\n", max_size=60)


@given(text=TEXTS, size=st.integers(1, 20), packed=st.booleans())
def test_blocks_are_the_text_cut_between_sequences(text: str, size: int, packed: bool) -> None:
    data = text.encode()
    blocks = list(read_blocks(io.BytesIO(gzip.compress(data) if packed else data), size=size))
    assert b"".join(block.data for block in blocks) == data
    line = 1
    for block, following in zip(blocks, [*blocks[1:], None]):
        assert block.data
        assert block.line == line
        line += block.data.count(b"\n")
        if following is not None:
            end = block.data.removesuffix(b"\n")
            assert block.data != end
            assert not end[end.rfind(b"\n") + 1 :].strip(b" \t\r")


def test_a_long_sequence_is_one_block() -> None:
    data = b"a b\n" * 5_000
    assert [block.data for block in read_blocks(io.BytesIO(data), size=64)] == [data]


def test_cut_gzip_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a b\n" * 1000)[:-10])
    with pytest.raises(FormatError, match=r"cut\.gz: the gzip data is damaged or cut"):
        list(read_blocks(tmp_path / "cut.gz"))


def test_a_failed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(TypeError), writing(path) as stream:
        stream.writelines([b"new", None])  # type: ignore[list-item]
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]
    assert path.read_text() == "old"


def test_lines_of_joined_files_are_found_again(tmp_path: Path) -> None:
    for name, text in (("a", "1\n2\n"), ("b", "1"), ("c", "1\n")):
        (tmp_path / name).write_text(text)
    text = Text([str(tmp_path / name) for name in "abc"])
    found = {line: text.place(number) for number, line in enumerate(text.data.split(b"\n"), 1) if line}
    assert found == {b"1": (str(tmp_path / "c"), 1), b"2": (str(tmp_path / "a"), 2)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"He PRP B-NP\nruns VBZ B-VP\n", Format.columns),
        (b"He\tPRP\tB-NP\nruns\tVBZ\tB-VP\n", Format.columns),
        (b"He\tPRP\tB-NP\nruns\tB-VP\n\nx\ty\tz\n", Format.columns),
        (b"a=b X\n", Format.columns),
        (b"", Format.columns),
        (b"B-NP\tw=He\tpos=PRP\n", Format.crfsuite),
        (b"B-NP\tlong\tbig\nB-NP\tlong\nB-VP\n\nO\ta\tb\tc\n", Format.crfsuite),
        (b"@weight:2\nB-NP\tbig\n", Format.crfsuite),
        (b"N\tsize:0.5\theight:2\n", Format.crfsuite),
    ],
)
def test_formats_are_guessed(text: bytes, expected: Format) -> None:
    assert guess_format(text) is expected
