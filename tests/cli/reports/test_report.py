"""``crfield report``: a page, a card or JSON of a model of text, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import crfield
from tests.cases.command_line import Files, run, works
from tests.report.page.test_page import Reader, data_of


def test_a_page_of_a_model_of_text(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    told = works(
        "report", files / "columns.crfield", files / "test.txt", "-o", out, "--title", "Phrases", "--shown", 5
    )
    page = out.read_text(encoding="utf-8")
    assert Reader(page).open == []
    assert "<title>Phrases</title>" in page
    assert len(data_of(page)["items"]) == 5
    right = works("evaluate", files / "test.txt", "-m", files / "columns.crfield", "--json").stdout
    assert f"{json.loads(right)['token_accuracy']:.3f}" in told.stdout
    assert str(out) in "".join(told.stdout.split("\n"))


def test_a_card_json_and_standard_output(files: Files, tmp_path: Path) -> None:
    works("report", files / "columns.crfield", files / "test.txt", "-o", tmp_path / "card.md", "--shown", 3)
    assert (tmp_path / "card.md").read_text(encoding="utf-8").startswith("# ChainCRF")
    out = tmp_path / "page.html"
    facts = json.loads(works("report", files / "columns.crfield", files / "test.txt", "-o", out, "--json").stdout)
    assert facts["bytes"] == out.stat().st_size
    assert (facts["sequences"], facts["shown"]) == (40, 40)
    assert facts["span_f1"] > 0.5
    shown = works("report", files / "columns.crfield", files / "test.txt", "-o", "-", "--shown", 3).stdout
    assert shown.startswith("<!DOCTYPE html>")


def test_the_model_is_not_written_over(files: Files, tmp_path: Path) -> None:
    model = tmp_path / "model.crfield"
    model.write_bytes((files / "columns.crfield").read_bytes())
    assert run("report", model, files / "test.txt", "-o", model).exit_code != 0
    crfield.load(model)
