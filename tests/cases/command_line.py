"""Small files for the tests of the command line, and a way to run it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from typer import testing
from typer.testing import CliRunner, Result

from crfield import make_phrases, write_columns, write_crfsuite
from crfield.cli.main import app

TEMPLATE = "# word and shape\nU00:%x[-1,0]\nU01:%x[0,0]\nU02:%x[1,0]\nU03:%x[0,1]\nU04:%x[-1,1]/%x[0,1]\nB\n"
QUICK = ("--tol", "1e-3", "--threads", "1")


# Most of a quick command is typer reading the options from the verb's function; here it does so once for all.
read_once = cache(testing._get_command)


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """The outcome of ``crfield arguments`` within this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", read_once)
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def works(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """The same, with the demand that it went well."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def shape(word: str) -> str:
    """A second column."""
    return "d" if word[0].isdigit() else "X" if word[0].isupper() else "x" if word.isalpha() else "."


@dataclass(frozen=True)
class Files:
    """A folder with train and test data in both formats, a template, and a model of each format."""

    folder: Path
    tokens: list[list[tuple[str, str]]]  # of the test data
    gold: list[list[str]]

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


def make_files(folder: Path) -> Files:
    """150 phrases to train on, 40 to test on."""
    phrases = make_phrases(190, random_state=3)
    rows = [[(word, shape(word)) for word in phrase] for phrase in phrases.tokens]
    labels = phrases.labels
    full = [[(*row, label) for row, label in zip(a, b)] for a, b in zip(rows, labels)]
    attributes = [[[f"w={word}", f"s={kind}"] for word, kind in phrase] for phrase in rows]
    write_columns(folder / "train.txt", full[:150])
    write_columns(folder / "test.txt", full[150:], separator=" ")
    write_columns(folder / "bare.txt", rows[150:], separator=" ")
    write_crfsuite(folder / "train.crfsuite", attributes[:150], labels[:150])
    write_crfsuite(folder / "test.crfsuite", attributes[150:], labels[150:])
    (folder / "words.template").write_text(TEMPLATE)
    for name in ("train.txt", "test.txt", "train.crfsuite", "test.crfsuite"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    works(
        "train", folder / "train.txt", "-m", folder / "columns.crfield", "-t", folder / "words.template", "-q", *QUICK
    )
    works("train", folder / "train.crfsuite", "-m", folder / "attributes.crfield", "-q", *QUICK)
    return Files(folder, rows[150:], labels[150:])
