"""crfield encode, and training from what it wrote; checkpoints and early stopping on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crfield
from tests.cases.command_line import Files, run, works

EXACT = ("--tol", "1e-9", "--max-iter", "2000", "--threads", "1", "--json", "--solver", "lbfgs")


@pytest.mark.parametrize("name", ["train.txt", "train.crfsuite"])
def test_from_disk_and_from_memory(files: Files, tmp_path: Path, name: str) -> None:
    options = ("--template", files / "words.template") if name == "train.txt" else ()
    facts = json.loads(works("encode", files / name, tmp_path / "data", *options, "--json").stdout)
    assert (facts["sequences"], facts["shards"]) == (150, 1)
    disk = works("train", tmp_path / "data", "--encoded", "-m", tmp_path / "disk.model", *EXACT)
    memory = works("train", files / name, "-m", tmp_path / "memory.model", *options, *EXACT)
    assert json.loads(disk.stdout)["objective"] == pytest.approx(json.loads(memory.stdout)["objective"], rel=1e-8)
    test = files / name.replace("train", "test")
    tagged = [works("tag", "-m", tmp_path / f"{kind}.model", test).stdout for kind in ("disk", "memory")]
    assert tagged[0] == tagged[1]
    plain = works("train", tmp_path / "data", "--encoded", "--no-packed", "-m", tmp_path / "plain.model", *EXACT)
    assert json.loads(plain.stdout)["objective"] == json.loads(disk.stdout)["objective"]
    assert run("train", files / name, "--no-packed", "-m", tmp_path / "x.model").exit_code == 2


def test_a_checkpoint_is_removed_when_the_model_is_saved(files: Files, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.checkpoint"
    X, y = crfield.read_columns(files / "train.txt").split_column(-1)
    works("train", files / "train.txt", "-m", tmp_path / "a.model", "--checkpoint", checkpoint, "-q")
    assert [path.name for path in tmp_path.iterdir()] == ["a.model"]
    assert crfield.load(tmp_path / "a.model").score(X, y) > 0.9


def test_patience_keeps_the_best_weights(files: Files, tmp_path: Path) -> None:
    arguments = ("train", files / "train.txt", "-m", tmp_path / "a.model", "--l2", "0.001", "--json")
    facts = json.loads(works(*arguments, "--dev", files / "test.txt", "--patience", "2").stdout)
    assert facts["dev"] is not None
    assert "--dev" in run(*arguments, "--patience", "2").output


def test_what_cannot_be_encoded(files: Files, tmp_path: Path) -> None:
    assert run("encode", tmp_path / "data").exit_code == 2
    assert run("encode", "-", tmp_path / "data").exit_code == 2
    (tmp_path / "empty.txt").write_text("\n\n")
    result = run("encode", tmp_path / "empty.txt", tmp_path / "data")
    assert result.exit_code == 1
    assert "nothing but blank lines" in result.output
    result = run("encode", files / "train.txt", tmp_path / "data", "--label-column", "9")
    assert result.exit_code == 1
    assert not (tmp_path / "data").exists()
    result = run("train", tmp_path, "--encoded", "-m", tmp_path / "x.model")
    assert "no encoded data set" in result.output
