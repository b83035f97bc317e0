"""Files on their way to the disk: rights, leftovers of killed processes, the folder's sync; and how far gzip goes."""

from __future__ import annotations

import gzip
import io
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import crfield
from crfield.cli.main import app
from crfield.errors import FormatError, InputError
from crfield.storage import files, limits
from crfield.storage.archive import write_archive
from crfield.storage.blocks import read_blocks
from crfield.storage.encoded import DatasetWriter
from crfield.storage.files import remove_leftovers, replacing, temporary_name, write_bytes

WRITER = """
import sys
from crfield.storage.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    sys.stdin.read()
"""


def writer(path: Path) -> subprocess.Popen[bytes]:
    """A process that has written half a file and waits."""
    command = [sys.executable, "-c", WRITER, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"half\n"
    return child


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_save_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "m.crfield"
    killed, living = writer(path), writer(path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(names(tmp_path)) == 2
    write_archive(path, {"kind": "x"}, {"w": np.zeros(2)})
    assert names(tmp_path) == [name for name in names(tmp_path) if f".{living.pid}." in name or name == path.name]
    assert len(names(tmp_path)) == 2
    living.communicate()
    assert names(tmp_path) == ["m.crfield"]
    assert path.read_bytes() == b"half"


def test_only_files_of_ours_whose_writer_is_gone_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    target = tmp_path / "run"
    mine = Path(temporary_name(str(target)))  # another thread of this process is writing it
    kept = [".other.tmp", f".run.{os.getppid()}.0123abcd.tmp", f".run2.{dead.pid}.0123abcd.tmp", mine.name]
    # A container gives every run the same process number: a file of mine that I do not know is of one before me.
    gone = [f".run.{dead.pid}.0123abcd.tmp", f".run.{os.getpid()}.0123abcd.tmp"]
    for name in kept + gone:
        (tmp_path / name).write_bytes(b"half")
    remove_leftovers(target)
    assert names(tmp_path) == sorted(kept)


def test_a_file_that_somebody_holds_stays_whatever_its_number_says(tmp_path: Path) -> None:
    """A process of another container has a number that nobody here has."""
    child = writer(tmp_path / "run")
    (found,) = names(tmp_path)
    foreign = found.replace(f".{child.pid}.", ".4194303.")
    (tmp_path / found).rename(tmp_path / foreign)
    remove_leftovers(tmp_path / "run")
    assert names(tmp_path) == [foreign]
    child.kill()
    child.wait()
    remove_leftovers(tmp_path / "run")
    assert names(tmp_path) == []


def test_windows_is_not_asked_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal 0 is Ctrl-C there, and goes to all programs of a console."""

    def kill(*_: int) -> None:
        raise AssertionError("a signal was sent")

    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        windows.setattr(os, "kill", kill)
        others, own = files._alive(os.getppid()), files._alive(os.getpid())
    assert others
    assert not own


def test_leftovers_of_data_sets_are_folders(tmp_path: Path) -> None:
    (tmp_path / f".data.{os.getpid()}.0123abcd.tmp").mkdir()
    with DatasetWriter(tmp_path / "data", crfield.data.labels.LabelCoder.from_classes(["A"])) as other:  # type: ignore[attr-defined]
        DatasetWriter(tmp_path / "data", other.coder).__exit__()
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == []


def test_a_private_file_is_private_while_it_is_written(tmp_path: Path) -> None:
    path, before = tmp_path / "m.crfield", os.umask(0o022)
    try:
        for rights in (0o600, 0o640, 0o444):
            path.unlink(missing_ok=True)
            path.write_bytes(b"old")
            path.chmod(rights)
            with replacing(path) as file:
                file.write(b"new")
                file.flush()
                (temporary,) = [name for name in names(tmp_path) if name != path.name]
                assert stat.S_IMODE((tmp_path / temporary).stat().st_mode) == 0o600
            assert stat.S_IMODE(path.stat().st_mode) == rights
        path.unlink()
        write_bytes(path, b"new")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644  # as any new file of this user
    finally:
        os.umask(before)


def test_the_folder_is_synced_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def replaced(*arguments: Any) -> None:
        done.append("rename")
        replace(*arguments)

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(files.os, "replace", replaced)
    monkeypatch.setattr(files.os, "fsync", synced)
    write_bytes(tmp_path / "a", b"x")
    assert done == ["file", "rename", "folder"]


# ------------------------------------------------------------------------------------------------------------ gzip


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte instead of 256, so that the tests stay small."""
    monkeypatch.setattr(limits, "FLOOR", 1 << 20)
    monkeypatch.setattr("crfield.storage.blocks.FLOOR", 1 << 20)


BOMB = gzip.compress(b"a A\n" * (1 << 20))  # 4 MB in 4 kB, one sequence


@pytest.mark.usefixtures("low")
def test_gzip_unfolds_only_so_far(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(BOMB)
    for source in (io.BytesIO(BOMB), tmp_path / "bomb.gz"):
        with pytest.raises(FormatError, match=r"expand to more than .*crfield\.file_growth\(None\)"):
            crfield.read_columns(source)
    with pytest.raises(FormatError, match="expand to more than"):
        list(read_blocks(tmp_path / "bomb.gz"))
    with crfield.file_growth(None):
        assert len(crfield.read_columns(io.BytesIO(BOMB))[0]) == 1 << 20
        assert sum(len(block.data) for block in read_blocks(tmp_path / "bomb.gz")) == 4 << 20
    with crfield.file_growth(2000), crfield.file_growth(1100):
        crfield.read_columns(io.BytesIO(BOMB))
    with pytest.raises(FormatError), crfield.file_growth(100):
        crfield.read_columns(io.BytesIO(BOMB))


@pytest.mark.usefixtures("low")
def test_blocks_of_many_sequences_have_no_limit(tmp_path: Path) -> None:
    """They pass through a few megabytes whatever the file unfolds to."""
    (tmp_path / "long.gz").write_bytes(gzip.compress(b"a A\n\n" * (1 << 20)))
    assert sum(len(block.data) for block in read_blocks(tmp_path / "long.gz")) == 5 << 20


def test_text_that_packs_well_is_no_bomb() -> None:
    assert len(crfield.read_columns(io.BytesIO(BOMB))[0]) == 1 << 20


@pytest.mark.usefixtures("low")
def test_the_command_line_has_the_same_limit_and_lifts_it(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a A A\n" * (1 << 18) + b"\nb B B\n"))
    command = ["evaluate", "--predicted", str(tmp_path / "bomb.gz")]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "expand to more than" in result.output + result.stderr) == (1, True)
    for lifted in ("0", "5000"):
        result = CliRunner().invoke(app, ["--max-growth", lifted, *command])
        assert (result.exit_code, "expand" in result.output + result.stderr) == (0, False), result.output
    limits.set_growth(limits.TIMES)


def test_a_limit_is_a_number_of_times() -> None:
    for wrong in (0, -1, float("nan")):
        with pytest.raises(InputError, match=r"a number ≥ 1 .*or None"), crfield.file_growth(wrong):
            pass
