"""``crfield tune``: the table, the model, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crfield
from crfield import ChainCRFCV
from tests.cases.command_line import run, works


@pytest.fixture
def phrases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.chdir(tmp_path)
    made = crfield.make_phrases(30)
    rows = [list(zip(tokens, labels, strict=True)) for tokens, labels in zip(made.tokens, made.labels, strict=True)]
    crfield.write_columns("train.txt", rows)
    Path("words.template").write_text("U00:%x[0,0]\nU01:%x[-1,0]\nB\n", encoding="utf-8")
    return "train.txt", "words.template"


@pytest.mark.filterwarnings(
    "ignore:most steps:crfield.errors.DataWarning"
)  # fifteen phrases know few words of others
def test_the_best_is_printed_and_written(phrases: tuple[str, str]) -> None:
    data, template = phrases
    options = ("--template", template, "--l2", "4,0.5", "--l1", "0,0.2", "--folds", "2", "--threads", "1")
    shown = works("tune", data, *options, "--model", "best.crf").stdout
    lines = shown.splitlines()
    assert len(lines) == 5
    assert sum("← chosen" in line for line in lines) == 1
    told = json.loads(works("tune", data, *options, "--json").stdout)
    assert told["model"] is None
    model = crfield.load("best.crf")
    assert (model.l1, model.l2) == (told["l1"], told["l2"])
    X, y = crfield.read_columns(data).split_column(-1)
    chain = crfield.ChainCRF(template=Path(template).read_text(encoding="utf-8"))
    search = ChainCRFCV(chain, l1s=(0.0, 0.2), l2s=(4.0, 0.5), cv=2).fit(X, y)
    assert [row["score"] for row in told["rows"]] == [row["score"] for row in search.rows()]


def test_what_cannot_be_used_is_refused(phrases: tuple[str, str]) -> None:
    data, template = phrases
    for options in (("--l2", "x"), ("--l1", "-1"), ("--score", "beauty"), ("--folds", "1")):
        assert run("tune", data, *options).exit_code == 2
    failed = run("tune", data, "--template", template, "--folds", "99")
    assert failed.exit_code == 1
    assert "cv must lie" in failed.stderr
