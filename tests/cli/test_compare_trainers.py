"""``crfield compare-trainers``: the table, the JSON, the picture, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crfield
from crfield.errors import InputError
from tests.cases.command_line import Files, run, works


def test_generated_phrases_as_json() -> None:
    result = works(
        *("compare-trainers", "--demo", "--phrases", 60, "--trainers", "lbfgs,newton_cg,lbfgs:label_accuracy"),
        *("--max-iter", 40, "--tol", "1e-2", "--json"),
    )
    facts = json.loads(result.stdout)
    assert (facts["sequences"], facts["score"]) == (48, "span F1")
    rows = {row["name"]: row for row in facts["trainers"]}
    assert rows["lbfgs:label_accuracy"]["objective"] == "label_accuracy"
    for row in rows.values():
        assert 0.3 < row["score"] <= 1.0
        assert row["value"] == pytest.approx(facts["best_value"] * (1 + row["gap"]))
        assert row["moments"][-1]["value"] == row["value"]
        times = [moment["seconds"] for moment in row["moments"]]
        assert times == sorted(times)
    assert rows["newton_cg"]["gap"] < 0.02
    assert "newton_cg: " in result.stderr


def test_files_a_template_and_a_picture(files: Files, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "trainers.png"
    result = works(
        *("compare-trainers", files / "train.txt", "--dev", files / "test.txt", "-t", files / "words.template"),
        *("--trainers", "cg,lbfgs,gis", "--l1", 0.1, "--max-iter", 30, "--tol", "1e-2", "--relative", "-q"),
        *("--plot", picture),
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("150 sequences, ")
    assert lines[0].endswith("l1 = 0.1, l2 = 1")
    assert lines[2].split()[:4] == ["trainer", "trains", "steps", "time"]
    assert lines[3].split()[0] == "lbfgs"
    assert lines[3].split()[3] == "1.00"
    assert "  cg: solver='cg' has no l1 penalty" in result.stdout
    assert result.stderr == ""


def test_train_takes_any_of_them(files: Files, tmp_path: Path) -> None:
    model = tmp_path / "model.crfield"
    works(
        *(
            "train",
            files / "train.crfsuite",
            "-m",
            model,
            "-q",
            "--objective",
            "softmax_margin",
            "--solver",
            "newton_cg",
        ),
        *("--tol", "1e-2", "--threads", 1),
    )
    made = crfield.load(model)
    assert (made.objective, made.solver, made.converged_) == ("softmax_margin", "newton_cg", True)
    result = run("train", files / "train.crfsuite", "-m", model, "--objective", "accuracy")
    assert result.exit_code == 2
    assert "expected one of auto, likelihood" in " ".join(result.stderr.replace("│", " ").split())


def test_time_is_up() -> None:
    phrases = crfield.make_phrases(30)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    found = crfield.compare_trainers(
        X, phrases.labels, X_test=X, y_test=phrases.labels, trainers=["cg"], time_limit=0.0, tol=1e-9
    )
    assert (found["cg"].ended, found["cg"].n_iter, len(found["cg"].moments)) == ("time limit", 1, 1)
    assert found.score_name == "accuracy"
    with pytest.raises(InputError, match="has no trainer 'lbfgs'; it has cg"):
        found["lbfgs"]


def test_refusals(tmp_path: Path) -> None:
    for arguments, words in (
        ((), "give labelled files, or --demo"),
        (("--demo", "data.txt"), "--demo stands alone"),
        (("--demo", "--plot", "picture.txt"), "ends in none of them"),
    ):
        result = run("compare-trainers", *arguments)
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.replace("│", " ").split())
    result = run("compare-trainers", "--demo", "--phrases", 20, "--trainers", "adam")
    assert result.exit_code == 1
    assert "a trainer is a solver (lbfgs, warm, " in result.stderr
    result = run("compare-trainers", "--demo", "--phrases", 20, "--trainers", "gis:hinge")
    assert "solver='gis' trains 'likelihood', not 'hinge'" in result.stderr
    with pytest.raises(InputError, match="leave label_functions and order out"):
        crfield.compare_trainers([[["a"]]], [["x"]], X_test=[], y_test=[], trainers=["cg"], order=2)
    with pytest.raises(InputError, match="X_test has 1 sequences and y_test 2"):
        crfield.compare_trainers([[["a"]]], [["x"]], X_test=[[["a"]]], y_test=[["x"], ["x"]], trainers=["cg"])
