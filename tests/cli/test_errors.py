"""What the command line says when it cannot go on: one line, file and line named, and the right exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield.errors import FormatError
from tests.cases.command_line import QUICK, Files, run


def fails(*arguments: object, stdin: str | None = None) -> str:
    """The message of a command that ends with exit code 1."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert "error" not in result.stdout
    return result.stderr[result.stderr.index("error: ") :]


def test_a_ragged_line(files: Files, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("2 d B-QTY\ncups x B-UNIT\n\nflour B-NAME\n")
    for command in (
        ("train", bad, "-m", tmp_path / "m"),
        ("train", files / "test.txt", bad, "-m", tmp_path / "m"),
        ("tag", "-m", files / "columns.crfield", bad),
        ("evaluate", "-m", files / "columns.crfield", bad),
        ("evaluate", "--predicted", bad),
    ):
        assert fails(*command).startswith(f"error: {bad}, line 4: expected 3 columns as in the lines before, got 2.")
    assert not (tmp_path / "m").exists()


def test_files_of_other_widths_do_not_mix(files: Files, tmp_path: Path) -> None:
    message = fails("train", files / "test.txt", files / "bare.txt", "-m", tmp_path / "m")
    assert message.startswith(f"error: {files / 'bare.txt'}, line 1: expected 3 columns")


def test_a_bad_line_far_into_a_stream(files: Files) -> None:
    text = ("2 d\ncups x\n\n" * 40_000) + "flour\n"
    result = run("tag", "-m", files / "columns.crfield", stdin=text)
    assert result.exit_code == 1
    assert "error: <stdin>, line 120001: expected 2 columns" in result.stderr
    assert result.stdout.startswith("2 d B-QTY\n")


def test_a_bad_template(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "bad.template"
    path.write_text("U00:%x[0,0]\n\nU01:%y[0,0]\n")
    message = fails("train", files / "train.txt", "-m", tmp_path / "m", "-t", path)
    assert message.startswith(f"error: {path}: template line 3: expected a macro such as %x[-1,0]")
    path.write_text("U00:%x[0,0]\nU01:%x[0,5]\n")
    message = fails("train", files / "train.txt", "-m", tmp_path / "m", "-t", path)
    assert message.startswith(f"error: {files / 'train.txt'}, line 1: template line 2 (U01:%x[0,5]): %x[0,5] reads")
    path.write_text("U01:%x[0,2]\n")
    message = fails("train", files / "train.txt", "-m", tmp_path / "m", "-t", path)
    assert "the template reads column 2, which holds the labels" in message


def test_a_missing_column(files: Files, tmp_path: Path) -> None:
    narrow = tmp_path / "narrow.txt"
    narrow.write_text("\nflour\n")
    message = fails("tag", "-m", files / "columns.crfield", narrow)
    assert message.startswith(f"error: {narrow}, line 2: template line 5 (U03:%x[0,1]): %x[0,1] reads column 1")
    message = fails("evaluate", "-m", files / "columns.crfield", files / "bare.txt")
    assert "the template reads column 1, which holds the labels (the lines have 2 columns)" in message
    message = fails("train", files / "train.txt", "-m", tmp_path / "m", "--label-column", 7)
    assert message.startswith(
        f"error: {files / 'train.txt'}, line 1: --label-column 7 was asked of lines with 3 columns"
    )
    assert "one column only" in fails("train", narrow, "-m", tmp_path / "m")
    assert f"{narrow}, line 2" in fails("evaluate", "--predicted", narrow)


def test_a_bad_crfsuite_file(files: Files, tmp_path: Path) -> None:
    bad = tmp_path / "bad.crfsuite"
    bad.write_text("B-QTY\tw=2\n\nB-NAME\tw=flour:x\n")
    for command in (("train", bad, "-m", tmp_path / "m"), ("tag", "-m", files / "attributes.crfield", bad)):
        assert fails(*command).startswith(f"error: {bad}, line 3: the value of an attribute must be a finite number")


def test_a_damaged_model(files: Files, tmp_path: Path) -> None:
    whole = (files / "columns.crfield").read_bytes()
    broken = tmp_path / "broken.crfield"
    for data in (whole[: len(whole) // 2], whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], b"", b"2 d B-QTY\n"):
        broken.write_bytes(data)
        for command in (("tag", "-m", broken, files / "test.txt"), ("inspect", broken)):
            assert str(broken) in fails(*command)


def test_missing_and_impossible_files(files: Files, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.txt"
    folder = str(tmp_path)
    assert fails("train", nowhere, "-m", tmp_path / "m") == f"error: {nowhere}: No such file or directory\n"
    assert fails("tag", "-m", nowhere) == f"error: {nowhere}: No such file or directory\n"
    assert fails("tag", "-m", files / "columns.crfield", nowhere) == f"error: {nowhere}: No such file or directory\n"
    assert folder in fails("tag", "-m", files / "columns.crfield", folder)
    assert folder in fails("train", files / "train.txt", "-m", folder, "-q", *QUICK)
    assert "No such file" in fails("train", files / "train.txt", "-m", tmp_path / "no" / "m", "-q", *QUICK)
    assert "nothing but blank lines" in fails("train", "-", "-m", tmp_path / "m", stdin="\n\n")


def test_an_output_that_fails_leaves_nothing(files: Files, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("2 d\n\nflour\n")
    fails("tag", "-m", files / "columns.crfield", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def test_a_model_of_the_other_format(files: Files) -> None:
    assert "--format crfsuite cannot be used" in fails(
        "tag", "-m", files / "columns.crfield", "--format", "crfsuite", files / "test.crfsuite"
    )
    assert "--format columns cannot be used" in fails(
        "evaluate", "-m", files / "attributes.crfield", "--format", "columns", files / "test.txt"
    )


def test_a_file_of_the_other_format(files: Files, tmp_path: Path) -> None:
    tabs = tmp_path / "tabs.txt"
    tabs.write_text("\n" + (files / "test.txt").read_text().replace(" ", "\t"))
    for verb, more in (
        ("tag", ()),
        ("tag", ("--spans",)),
        ("evaluate", ()),
        ("explain", ()),
        ("explain", ("--errors",)),
    ):
        for data, line in ((files / "test.txt", 1), (tabs, 2)):
            message = fails(verb, data, "-m", files / "attributes.crfield", *more)
            assert message.startswith(
                f"error: {data}, line {line}: the model was trained on attributes such as 'w=2'"
            )
            assert "this looks like columns" in message
        message = fails(verb, files / "test.crfsuite", "-m", files / "columns.crfield", *more)
        assert "was trained on token columns by a template, and this looks like attributes" in message
    message = fails("tag", "-m", files / "attributes.crfield", stdin=(files / "test.txt").read_text())
    assert message.startswith("error: <stdin>, line 1: the model was trained on attributes")


def test_features_that_the_model_does_not_know(files: Files, tmp_path: Path) -> None:
    data = tmp_path / "other.crfsuite"
    data.write_text((files / "test.crfsuite").read_text().replace("w=", "word=").replace("s=", "shape="))
    for verb in ("tag", "evaluate", "explain"):
        result = run(verb, data, "-m", files / "attributes.crfield")
        assert result.exit_code == 0
        assert (
            result.stderr.count("warning: the steps of X have no feature that the model knows: they have 'word=") == 1
        )
        message = fails(verb, data, "-m", files / "attributes.crfield", "--strict-features")
        assert "steps have no feature that the model knows" in message
        assert (
            run(verb, files / "test.crfsuite", "-m", files / "attributes.crfield", "--strict-features").stderr == ""
        )
    assert "steps have no feature" in fails("tag", data, "-m", files / "attributes.crfield", "--strict")
    few = run("tag", "-m", files / "attributes.crfield", "--strict-features", stdin="B-NAME\tw=unheard\n\nB-NAME\n")
    assert (few.exit_code, few.stderr) == (0, "")
    bare = tmp_path / "bare.crfsuite"
    bare.write_text("N\tdog\tnoun\nV\tbarks\tverb\n")
    assert run("train", bare, "-m", tmp_path / "m", "--format", "crfsuite", "-q").exit_code == 0
    few = run("tag", "-m", tmp_path / "m", "--strict-features", stdin="N\tcow\tanimal\nV\tmoos\tsound\n")
    assert (few.exit_code, few.stderr) == (0, "")


def test_a_model_that_no_text_file_fits(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "sensor.crfield"
    crfield.ChainCRF().fit([np.eye(3)], [["a", "b", "a"]]).save(path)
    for command in (("tag", "-m", path, files / "test.txt"), ("evaluate", "-m", path, files / "test.txt")):
        assert fails(*command).startswith(f"error: {path} was trained in Python on data of kind 'matrix'")


def test_an_unknown_label(files: Files) -> None:
    assert "the model has no label 'B-COLOUR'; it has B-COMMENT" in fails(
        "inspect", files / "columns.crfield", "--label", "B-COLOUR"
    )


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["teach"],
        ["train", "x.txt"],
        ["train", "x.txt", "-m", "m", "--l2", "-1"],
        ["train", "x.txt", "-m", "m", "--solver", "newton"],
        ["train", "x.txt", "-m", "m", "-t", "t", "--format", "crfsuite"],
        ["train", "-", "-m", "m", "--dev", "-"],
        ["tag", "x.txt"],
        ["evaluate"],
        ["evaluate", "x.txt"],
        ["evaluate", "-m", "m", "--predicted", "x.txt"],
        ["evaluate", "--predicted", "x.txt", "--scheme", "bio3"],
        ["inspect", "m", "--top", "many"],
    ],
)
def test_a_wrong_command_line(command: list[str]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_warnings_are_lines(files: Files, tmp_path: Path) -> None:
    result = run("train", files / "train.txt", "-m", tmp_path / "m", "--max-iter", 2, "--tol", "1e-9", "--quiet")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: training stopped before the tolerance")
    assert "ConvergenceWarning" not in result.stderr
    assert crfield.load(tmp_path / "m").converged_ is False


def test_debugging_shows_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRFIELD_DEBUG", "1")
    result = run("evaluate", "--predicted", "-", stdin="a b\nc\n")
    assert isinstance(result.exception, FormatError)
