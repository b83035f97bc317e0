"""The gallery runs, says what its page says, and draws."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crfield.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


@cache
def printed(name: str) -> list[dict[str, Any]]:
    """The rows of one picture of the gallery, run once."""
    ran = CliRunner().invoke(app, ["gallery", name, "--json"])
    assert ran.exit_code == 0, ran.output
    rows: list[dict[str, Any]] = json.loads(ran.stdout)[name]["rows"]
    return rows


@pytest.mark.parametrize(("name", "row", "column"), [
    ("skip-chain", "skip-chain", "names right"),
    ("skip-chain", "chain", "names right"),
    ("wearable", "motion, two layers", "steps right"),
    ("wearable", "context, two layers", "steps right"),
    ("tags", "as a tree", "tags right"),
])  # fmt: skip
def test_the_page_says_what_the_command_prints(name: str, row: str, column: str) -> None:
    found = {item["model"]: item[column] for item in printed(name)}[row]
    said = re.search(rf"^{re.escape(row)} +([\d.]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert found == pytest.approx(float(said.group(1)), abs=0.01)


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "made" / "on the way"
    ran = CliRunner().invoke(app, ["gallery", "wearable", "--out", str(folder)])
    assert ran.exit_code == 0, ran.output
    assert (folder / "layers.png").read_bytes()[:4] == b"\x89PNG"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["gallery", "roses"])
    assert ran.exit_code == 2
    assert "roses" in ran.output
    (tmp_path / "file").write_text("no folder")
    ran = CliRunner().invoke(app, ["gallery", "tags", "--out", str(tmp_path / "file")])
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"error: {tmp_path / 'file'}: File exists")
