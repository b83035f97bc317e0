"""The session in docs/guides/command-line.md, run as it stands there."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from tests.cases.command_line import works

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "command-line.md"
FILE = re.compile(r"^`([\w.]+)`:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def split(command: str) -> tuple[list[str], str | None, str | None]:
    """Arguments without ``crfield``, the file behind ``<``, and the one behind ``>``."""
    words = shlex.split(command)
    source = target = None
    if "<" in words:
        source = words[words.index("<") + 1]
        del words[words.index("<") :]
    if ">" in words:
        target = words[words.index(">") + 1]
        del words[words.index(">") :]
    assert words[0] == "crfield"
    return words[1:], source, target


def test_the_session_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guide = GUIDE.read_text(encoding="utf-8")
    names = [name for name, text in FILE.findall(guide) if Path(name).write_text(text, encoding="utf-8")]
    assert names == ["train.txt", "words.template", "attributes.txt", "new.txt", "walks.csv"]
    steps = [step for session in SESSION.findall(guide) for step in re.split(r"^\$ ", session, flags=re.M) if step]
    assert len(steps) == 19
    for step in steps:
        command, _, expected = step.partition("\n")
        arguments, source, target = split(command)
        shown = works(*arguments, stdin=Path(source).read_bytes() if source else None).stdout
        if target is not None:
            Path(target).write_text(shown)
            shown = ""
        assert doctest.OutputChecker().check_output(expected, shown, doctest.ELLIPSIS), f"{command}\n{shown}"


def test_the_example_template_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train = dict(FILE.findall(GUIDE.read_text(encoding="utf-8")))["train.txt"]
    works("train", "-", "-m", "m", "-t", ROOT / "examples" / "chunking.template", stdin=train)
