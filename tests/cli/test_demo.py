"""The demo, on fewer phrases than it has by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import crfield
from crfield.cli.verbs import demo
from tests.cases.command_line import run, works


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The text of one run, and the model it kept."""
    path = tmp_path_factory.mktemp("demo") / "kept.crfield"
    return works("demo", "--phrases", 400, "--seed", 1, "--keep", path).stdout, path


def test_the_demo_shows_every_part(shown: tuple[str, Path]) -> None:
    text, _ = shown
    headings = re.findall(r"^== (.*) ==$", text, re.MULTILINE)
    assert headings[:4] == ["Data", "Training", "Scores on the test phrases", "Saved and loaded again"]
    assert headings[4:7] == ["Lines that nobody generated", "Transitions", "Strongest features"]
    assert headings[7].startswith("How sure it is")
    assert "400 ingredient phrases" in text
    assert "320 to learn from, 80 to test on" in text
    assert "the same labels as before: yes" in text
    assert "\x1b" not in text


def test_the_scores_are_good(shown: tuple[str, Path]) -> None:
    text, _ = shown
    found = re.search(r"token accuracy ([\d.]+), sequence accuracy [\d.]+, span F1 ([\d.]+)", text)
    assert found is not None
    assert float(found[1]) > 0.82
    assert float(found[2]) > 0.78


def test_typed_lines_are_labelled(shown: tuple[str, Path]) -> None:
    text, _ = shown
    at = text.index("3    cloves  garlic  ,  minced\n")
    assert text[at:].splitlines()[1].split() == ["QTY", "UNIT", "NAME", "COMMENT"]
    marginals = text[text.index("How sure it is") :].splitlines()[1:]
    chances = [float(line.split()[2]) for line in marginals if re.match(r"\S+ +(?:[BI]-[A-Z]+|O) ", line)]
    assert len(chances) > 2
    assert 0 < min(chances) <= 1


def test_the_model_is_kept(shown: tuple[str, Path]) -> None:
    model = crfield.load(shown[1])
    features = [crfield.phrase_features(["2", "cups", "sugar"])]
    assert model.predict(features)[0].tolist() == ["B-QTY", "B-UNIT", "B-NAME"]


def test_own_lines_and_a_dialogue(tmp_path: Path) -> None:
    lines = ("--lines", "2 cups flour", "--lines", " ")
    text = works("demo", "--phrases", 60, *lines, "--interactive", stdin="3 cups milk\n\nnever read\n").stdout
    assert "  2    cups  flour\n" in text
    assert all(line not in text for line in demo.LINES)
    assert "3    cups  milk" in text[text.index("Your lines") :]
    assert "never" not in text
    assert works("demo", "--phrases", 60, "--interactive", stdin="").stdout
    assert run("demo", "--phrases", 5).exit_code == 2


def test_long_lines_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    long = " , ".join(["2 cups flour"] * 20)
    text = works("demo", "--phrases", 60, "--lines", long).stdout
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    folded = plain[plain.index("Lines that nobody generated") : plain.index("Transitions")]
    assert max(map(len, folded.splitlines())) <= 60
    assert folded.count("flour") == 20
