"""Names that were meant, completion in the shell, and text that a terminal must not obey."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import crfield
from crfield.cli.main import app
from tests.cases.command_line import Files, run, works

CLI = Path(crfield.cli.main.__file__).parent
HOSTILE = "\x1b[31m"  # what makes a terminal write in red, as data
MARKUP = "[red]"


def told(result: Result) -> str:
    """The error without its frame."""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("trian x.txt", "train"),
        ("train x.txt --modle m", "--model"),
        ("tag x.txt -m m --margnials", "--marginals"),
        ("compare-trainer x.txt", "compare-trainers"),
        ("--vresion", "--version"),
        ("train x.txt -m m --solver lbfsg", "lbfgs"),
        ("train x.txt -m m --format colums", "columns"),
        ("simulate tga", "tag"),
        ("experiment letter", "letters"),
        ("reproduce veb-fgi1a", "veb-fig1a"),
        ("tune x.txt --score acuracy", "accuracy"),
        ("select x.csv -m m --method graftign", "grafting"),
        ("train x.csv -m m --features sensor", "sensors"),
    ],
)
def test_the_name_that_was_meant(command: str, meant: str) -> None:
    result = run(*command.split())
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in told(result)


def test_far_away_names_are_not_guessed_at() -> None:
    for command in ("quux", "train x.txt -m m --zzzz"):
        result = run(*command.split())
        assert result.exit_code == 2
        assert "Did you mean" not in result.stderr


def completed(*words: str) -> list[str]:
    """What bash would be offered behind these words, the last of which is not finished."""
    env = {
        "_CRFIELD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["crfield", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return CliRunner().invoke(app, [], env=env).stdout.split()


def test_completion_of_verbs_options_and_names() -> None:
    assert completed("tr") == ["train"]
    assert completed("compare-") == ["compare-inference", "compare-trainers"]
    assert "--checkpoint" in completed("train", "--c")
    assert completed("train", "data.txt", "--solver", "sg") == ["sgd", "sgd_l1"]
    assert completed("train", "data.txt", "--format", "cr") == ["crfsuite"]
    assert completed("experiment", "rfid") == ["rfid-trials", "rfid-activities", "rfid-places"]
    assert completed("models", "Chain") == ["ChainCRF"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import shellingham

    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, f"/bin/{shell}"))
    shown = works("--show-completion").stdout
    assert "_CRFIELD_COMPLETE" in shown
    assert "crfield" in shown


def test_only_one_file_prints() -> None:
    """So that whatever a verb says goes through `visible`."""
    for path in sorted(CLI.rglob("*.py")):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        prints = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
        assert not prints or path.name in ("messages.py", "main.py"), path.name


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a template and models in which everything that has a name is hostile."""
    folder = tmp_path_factory.mktemp(f"{HOSTILE}{MARKUP}")
    row = f"w{HOSTILE}{MARKUP} B-x{HOSTILE}{MARKUP}\nv\x9b31m{HOSTILE} I-x{HOSTILE}{MARKUP}\nz O\n"
    (folder / "data.txt").write_text(f"{row}\n" * 8)
    attributes = f"B-x{HOSTILE}{MARKUP}\tw={HOSTILE}{MARKUP}\nO\tw=v\tb\x9b31m\n\n"
    (folder / "data.crfsuite").write_text(attributes * 8)
    (folder / f"t{HOSTILE}").write_text(f"U{HOSTILE}:%x[0,0]\nB\n")
    works("train", folder / "data.txt", "-t", folder / f"t{HOSTILE}", "-m", folder / f"m{HOSTILE}", "-q")
    works("train", folder / "data.crfsuite", "-m", folder / "attributes", "-q")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "train {}/data.txt -m {}/out",
        "train {}/data.crfsuite -m {}/out --json",
        "tune {}/data.txt --folds 2 --l2 1",
        "evaluate {}/data.txt -m {}/m\x1b[31m --confusion",
        "evaluate {}/data.crfsuite -m {}/attributes --json --confusion",
        "inspect {}/m\x1b[31m",
        "inspect {}/attributes --json",
        "inspect {}/attributes --label B-\x1b[31m",
        "inspect {}/nothing\x1b[31m",
        "explain {}/data.txt -m {}/m\x1b[31m",
        "explain {}/data.txt -m {}/m\x1b[31m --sequence 0",
        "explain {}/data.txt -m {}/m\x1b[31m --sequence 0 --step 0",
        "explain {}/data.crfsuite -m {}/attributes --errors",
        "explain {}/data.crfsuite -m {}/attributes --sequence 0 --json",
        "convert {}/attributes {}/out\x1b[31m",
        "encode {}/data.txt {}/coded\x1b[31m",
        "compare-inference {}/m\x1b[31m {}/data.txt --engines chain,mean_field",
        "compare-trainers {}/data.txt --trainers lbfgs --threads 1",
        "train {}/data.txt -m {}/data.txt",
        "train {}/data.txt -m {}/m --solver \x1b[31m",
        "train {}/data.txt --\x1b[31m",
        "\x1b[31m",
        "tag {}/nothing\x1b[31m -m {}/attributes",
        "tag {}/data.txt -m {}/m\x1b[31m --spans",
    ],
)
def test_no_verb_passes_escapes_on(hostile: Path, command: str) -> None:
    result = run(*(part.replace("{}", str(hostile)) for part in command.split()))
    shown = result.stdout + result.stderr
    assert not isinstance(result.exception, Exception), result.exception
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    if result.exit_code == 0 and "--json" in command:
        assert json.loads(result.stdout)
    if "--json" not in command and "tune" not in command and "trainers" not in command and result.stderr:
        assert "\\x1b[31m" in "".join(shown.replace("│", "").split())


def test_json_gives_the_text_back(hostile: Path) -> None:
    facts = json.loads(works("inspect", hostile / "attributes", "--json").stdout)
    assert facts["labels"] == [f"B-x{HOSTILE}{MARKUP}", "O"]
    spans = works("tag", hostile / "data.txt", "-m", hostile / f"m{HOSTILE}", "--spans").stdout
    assert json.loads(spans.splitlines()[0])["spans"][0]["label"] == f"x{HOSTILE}{MARKUP}"


def test_tagged_data_stay_as_they_are_except_on_a_terminal(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("tag", hostile / "data.txt", "-m", hostile / f"m{HOSTILE}")
    first = f"w{HOSTILE}{MARKUP} B-x{HOSTILE}{MARKUP} B-x{HOSTILE}{MARKUP}"
    assert works(*command).stdout.splitlines()[0] == first
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(written, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", written)
    app([str(word) for word in command], standalone_mode=False)
    shown = written.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert shown.splitlines()[0] == first.replace("\x1b", "\\x1b")
    assert "\x9b" not in shown


def test_usual_tables_are_not_changed(files: Files) -> None:
    report = works("evaluate", files / "test.txt", "-m", files / "columns.crfield").stdout
    assert "\\x" not in report
    assert report.count("\n") > 10
