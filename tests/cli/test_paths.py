"""No verb writes to a file that it reads, nor two things to one file: walked through typer's own tree of commands."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

import crfield
from crfield.cli.main import VERBS, app, loaded
from crfield.cli.paths import FILLS, READS, READS_THEN_FILLS, Use, uses
from crfield.errors import InputError, ModelFileError
from tests.cases.command_line import QUICK, Files, run, works

COMMANDS: dict[str, Any] = {name: loaded(name) for name in VERBS}
CRFIELD: Any = typer.main.get_command(app)
WORDS = {"NAME", "WHERE", "LABEL", "SCHEME", "LIST", "TEXT", "A,B,…", "X,Y,…"}  # texts that are no paths
REQUIRED = {"world": "tag", "name": "letters"}
TEXT = "2 d B-QTY\ncups x B-UNIT\n"


def parameters(verb: Any) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in verb.params}


def is_text(hint: Any) -> bool:
    """Whether a value is free text, alone or in a list; choices have types of their own."""
    return hint is str or any(map(is_text, get_args(hint)[: 1 if hasattr(hint, "__metadata__") else None]))


@pytest.mark.parametrize("verb", VERBS)
def test_every_text_is_a_path_or_known_to_be_none(verb: str) -> None:
    command = COMMANDS[verb]
    known = uses(command.callback)
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    for name, parameter in parameters(command).items():
        if name in hints and is_text(hints[name]) and name not in known:
            assert parameter.metavar in WORDS, f"crfield {verb}: say in its annotation what {name} does with a path"


def pairs() -> Iterator[tuple[str, str, str]]:
    """(verb, parameter that writes, another that names a file)."""
    for verb, command in COMMANDS.items():
        known = uses(command.callback)
        names = list(known)
        for at, name in enumerate(names):
            if known[name] is READS_THEN_FILLS:
                yield verb, name, name
            elif known[name] is not READS:
                later = names[at + 1 :]
                yield from ((verb, name, other) for other in names if known[other] is READS or other in later)


def command_line(verb: str, chosen: dict[str, str]) -> list[str]:
    """The shortest command with these values; what else is required gets names of its own."""
    command, unused, words = COMMANDS[verb], count(), [verb]
    for name, parameter in parameters(command).items():
        if name in chosen:
            value = chosen[name]
        elif parameter.required:
            value = REQUIRED.get(name, f"other-{next(unused)}")
        else:
            continue
        option = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
        words += [*option, *([value, chosen["last"]] if "last" in chosen and name in chosen else [value])]
    return words


def spellings(folder: Path) -> Iterator[tuple[str, str]]:
    """Two names of one file, in every manner there is."""
    (folder / "real.txt").write_text(TEXT)
    (folder / "sub").mkdir()
    os.symlink("real.txt", folder / "link.txt")
    os.link(folder / "real.txt", folder / "hard.txt")
    os.symlink(folder, folder / "sub" / "up")
    os.symlink("unborn.txt", folder / "dangling.txt")
    yield "real.txt", "real.txt"
    yield "real.txt", "link.txt"
    yield "hard.txt", "real.txt"
    yield str(folder / "real.txt"), "sub/../real.txt"
    yield "sub/up/real.txt", "./real.txt"
    yield "unborn.txt", "sub/up/unborn.txt"
    yield "dangling.txt", str(folder / "unborn.txt")


@pytest.mark.parametrize(("verb", "writes", "other"), list(pairs()))
def test_the_same_file_is_refused(
    verb: str, writes: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for one, two in spellings(tmp_path):
        chosen = {writes: one, "last": two} if writes == other else {writes: one, other: two}
        before = sorted(tmp_path.iterdir())
        with pytest.raises(typer.BadParameter, match="are the same file"):
            CRFIELD.main(command_line(verb, chosen), standalone_mode=False)
        assert (tmp_path / "real.txt").read_text() == TEXT
        assert sorted(tmp_path.iterdir()) == before


def test_the_walk_sees_what_was_lost_before() -> None:
    found = set(pairs())
    assert {("train", "model", "data"), ("train", "model", "checkpoint"), ("tag", "output", "data")} <= found
    assert {verb for verb, *_ in found} >= {"tune", "convert", "encode", "simulate", "compare-trainers", "reproduce"}
    assert uses(COMMANDS["reproduce"].callback)["out"] is FILLS
    assert all(isinstance(use, Use) for verb in COMMANDS.values() for use in uses(verb.callback).values())


def test_what_the_command_says(files: Files, tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_bytes((files / "train.txt").read_bytes())
    for more in ((data, "-m", data), (data, "-m", tmp_path / "m", "--checkpoint", tmp_path / "m")):
        result = run("train", *more)
        assert result.exit_code == 2
        assert "are the same file" in " ".join(result.stderr.replace("│", " ").split())
    assert data.read_bytes() == (files / "train.txt").read_bytes()
    assert os.listdir(tmp_path) == ["data.txt"]


def test_reading_twice_and_devices_are_no_conflict(files: Files, tmp_path: Path) -> None:
    data = files / "test.txt"
    works("train", data, "-m", tmp_path / "m", "--dev", data, "--max-iter", 3, "-q", *QUICK)
    works("tag", "-m", tmp_path / "m", data, "-o", "/dev/null")


def test_a_file_of_the_folder_that_is_read(files: Files, tmp_path: Path) -> None:
    folder = tmp_path / "coded"
    works("encode", files / "test.txt", folder, "-q")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in before:
        result = run("train", "--encoded", folder, "-m", folder / name)
        assert result.exit_code == 2
        assert "a folder that is read" in " ".join(result.stderr.replace("│", " ").split())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    os.symlink(folder, tmp_path / "also")
    assert run("train", "--encoded", folder, "-m", tmp_path / "also" / min(before)).exit_code == 2


@contextmanager
def redirected(stream: int, path: Path, flags: int) -> Iterator[None]:
    """What a shell does for ``< path``, ``> path`` and ``>> path``."""
    before, file = os.dup(stream), os.open(path, flags)
    try:
        os.dup2(file, stream)
        yield
    finally:
        os.dup2(before, stream)
        os.close(before)
        os.close(file)


def test_redirected_streams_are_files_too(files: Files, tmp_path: Path) -> None:
    data = tmp_path / "in.txt"
    data.write_bytes((files / "bare.txt").read_bytes())
    tag = ["tag", "-m", str(files / "columns.crfield")]
    with redirected(1, data, os.O_WRONLY | os.O_APPEND):
        result = run(*tag, data)
    assert result.exit_code == 2
    assert "standard output and DATA" in " ".join(result.stderr.replace("│", " ").split())
    with redirected(0, data, os.O_RDONLY):
        result = run(*tag, "-o", data)
    assert result.exit_code == 2
    assert "and standard input are" in " ".join(result.stderr.replace("│", " ").split())
    assert data.read_bytes() == (files / "bare.txt").read_bytes()
    with redirected(1, tmp_path / "out.txt", os.O_WRONLY | os.O_CREAT):
        works(*tag, data, "-o", "/dev/stdout")
    assert (tmp_path / "out.txt").read_text().splitlines()[0].count(" ") == 2


def test_a_model_is_not_saved_over_its_checkpoint(tmp_path: Path) -> None:
    X, y = [[["a"], ["b"]]], [["A", "B"]]
    for kept, saved in (("run", "run"), ("run", "./sub/../run")):
        (tmp_path / "sub").mkdir(exist_ok=True)
        model = crfield.ChainCRF(checkpoint=tmp_path / kept).fit(X, y)
        before = (tmp_path / kept).read_bytes()
        with pytest.raises(InputError, match="is the file of checkpoint="):
            model.save(f"{tmp_path}/{saved}")
        assert (tmp_path / kept).read_bytes() == before
    model.save(tmp_path / "model.crfield")
    other = crfield.ChainCRF(checkpoint=tmp_path / "model.crfield")
    with pytest.raises(ModelFileError, match="is no checkpoint"):
        other.fit(X, y)
    assert crfield.load(tmp_path / "model.crfield").predict(X)[0].tolist() == y[0]
