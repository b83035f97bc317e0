"""``crfield explain``: one step, a sequence, errors, importances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import crfield
from crfield import ChainCRF, write_columns, write_crfsuite
from tests.cases.command_line import run, works

WORDS = [["the", "dog", "barks"], ["a", "dog"], ["the", "cat", "naps"]]
TAGS = [["D", "N", "V"], ["D", "N"], ["D", "N", "V"]]
TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]\nB"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explain")
    rows = [[(word,) for word in words] for words in WORDS]
    named = [[[f"w={word}"] for word in words] for words in WORDS]
    ChainCRF(template=TEMPLATE, l2=0.1).fit(rows, TAGS).save(place / "columns.crfield")
    ChainCRF(l2=0.1).fit(named, TAGS).save(place / "named.crfield")
    write_columns(place / "bare.txt", rows)
    write_columns(
        place / "wrong.txt", [[(w, t) for w, t in zip(*both)] for both in zip(WORDS, [*TAGS[:2], ["D", "V", "V"]])]
    )
    write_crfsuite(place / "named.txt", named, TAGS)
    return place


def told(folder: Path, *arguments: object) -> Any:
    return json.loads(works("explain", *arguments, "--threads", 1, "--json").stdout)


def test_one_step_is_that_of_python(folder: Path) -> None:
    asked = (folder / "bare.txt", "-m", folder / "columns.crfield", "--sequence", 2, "--step", 1)
    model = crfield.load(folder / "columns.crfield")
    expected = model.explain([(word,) for word in WORDS[2]], 1)
    assert works("explain", *asked).stdout == f"{expected}\n"
    facts = told(folder, *asked)
    assert (facts["sequence"], facts["label"], facts["margin"]) == (2, "N", expected.margin)
    assert [c["name"] for c in facts["contributions"]] == [c.name for c in expected.contributions]
    assert sum(c["amount"] for c in facts["contributions"]) == pytest.approx(expected.margin, abs=1e-9)
    assert facts["flip"]["becomes"] == expected.flip.becomes
    other = told(folder, *asked, "--label", "V", "--against", "D")
    assert (other["label"], other["other"], other["flip"]) == ("V", "D", None)


def test_a_sequence_has_a_line_for_each_step(folder: Path) -> None:
    shown = works(
        "explain", folder / "named.txt", "-m", folder / "named.crfield", "--sequence", 0
    ).stdout.splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["0", "w=the", "D", "not"], ["1", "w=dog", "N", "not"], ["2", "w=barks", "V", "not"],
    ]  # fmt: skip
    facts = told(folder, folder / "named.txt", "-m", folder / "named.crfield", "--sequence", 0)
    assert [one["label"] for one in facts["steps"]] == TAGS[0]


def test_importances(folder: Path) -> None:
    asked = (folder / "bare.txt", "-m", folder / "columns.crfield")
    listed = told(folder, *asked, "--top", 3)["features"]
    model = crfield.load(folder / "columns.crfield")
    found = model.feature_importance([[(word,) for word in words] for words in WORDS], 3)
    assert [item["name"] for item in listed] == [item.name for item in found]
    assert "U0" in works("explain", *asked, "--by-field").stdout.split()


def test_errors_with_examples(folder: Path) -> None:
    asked = (folder / "wrong.txt", "-m", folder / "columns.crfield", "--errors")
    shown = works("explain", *asked).stdout
    assert shown.splitlines()[0] == "1 of 8 steps are wrong (12.5%)"
    assert "sequence 2, step 1: the [cat] naps" in shown
    facts = told(folder, *asked)
    assert (facts["errors"], facts["groups"][0]["gold"], facts["groups"][0]["predicted"]) == (1, "V", "N")
    assert facts["groups"][0]["examples"][0]["strongest"]


def test_questions_that_make_no_sense(folder: Path) -> None:
    asked = ("explain", folder / "bare.txt", "-m", folder / "columns.crfield")
    for more in (("--step", 1), ("--errors", "--sequence", 1), ("--sequence", 1, "--label", "N"), ("--sequence", -1)):
        assert run(*asked, *more).exit_code == 2, more
    for more, said in (
        (("--sequence", 3), "sequences 0 … 2, got --sequence 3"),
        (("--sequence", 0, "--step", 3), "steps 0 … 2, got 3"),
        (("--sequence", 0, "--step", 0, "--label", "X"), "no label 'X'; it has D, N, V"),
        (("--format", "crfsuite"), "--format crfsuite cannot be used"),
    ):
        failed = run(*asked, *more)
        assert failed.exit_code == 1, (more, failed.output)
        assert said in failed.stderr
    assert run("explain", "-", "-m", folder / "columns.crfield", stdin="\n").exit_code == 1
