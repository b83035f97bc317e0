"""--cluster on the command line: encode, train and tag over many files, in processes of this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crfield.storage.encoded import EncodedDataset
from tests.cases.command_line import Files, run, works

EXACT = ("--tol", "1e-9", "--max-iter", "2000", "--json", "--solver", "lbfgs")


def parts_of(path: Path, folder: Path, n: int) -> list[Path]:
    """A file of columns or attributes cut into n files of whole sequences."""
    blocks = path.read_text().strip().split("\n\n")
    made = []
    for k in range(n):
        name = folder / f"{k}-{path.name}"
        name.write_text("\n\n".join(blocks[k * len(blocks) // n : (k + 1) * len(blocks) // n]) + "\n")
        made.append(name)
    return made


def test_encode_train_and_tag_on_a_cluster(files: Files, tmp_path: Path) -> None:
    """One long way, since workers take a second to start each time."""
    parts = parts_of(files / "train.txt", tmp_path, 3)
    options = ("--template", files / "words.template", "--min-count", "2")
    facts = json.loads(
        works("encode", *parts, tmp_path / "data", *options, "--cluster", "local", "--workers", 2, "--json").stdout
    )
    assert (facts["sequences"], facts["shards"]) == (150, 3)
    works("encode", *parts, tmp_path / "alone", *options, "-q")
    there, here = EncodedDataset(tmp_path / "data"), EncodedDataset(tmp_path / "alone")
    assert there.n_columns == here.n_columns
    assert there.labels.tolist() == here.labels.tolist()
    assert not (tmp_path / "data.parts").exists()

    trained = works(
        "train", tmp_path / "data", "-m", tmp_path / "there.model", *EXACT, "--cluster", "local", "--workers", 2
    )
    alone = works("train", tmp_path / "alone", "--encoded", "-m", tmp_path / "here.model", *EXACT)
    assert json.loads(trained.stdout)["objective"] == pytest.approx(json.loads(alone.stdout)["objective"], rel=1e-8)

    inputs = parts_of(files / "test.txt", tmp_path, 3)
    expected = [works("tag", "-m", tmp_path / "there.model", name).stdout for name in inputs]
    on = ("--output-folder", tmp_path / "tagged", "--cluster", "local", "--workers", 2)
    missing = tmp_path / "missing.txt"
    result = run("tag", "-m", tmp_path / "there.model", *inputs[:2], missing, inputs[2], *on)
    assert result.exit_code == 1
    assert "1 of 4 files failed" in result.output.replace("\n", " ")
    assert "missing.txt" in result.output
    written = [(tmp_path / "tagged" / name.name).read_text() for name in inputs]
    assert written == expected, "others are done, in their own files"
    os.remove(tmp_path / "tagged" / inputs[1].name)
    before = (tmp_path / "tagged" / inputs[0].name).stat().st_mtime_ns
    again = works("tag", "-m", tmp_path / "there.model", *inputs, *on[:2])  # goes on, here without a cluster
    assert "2 of 3 files have a result already" in again.output
    assert (tmp_path / "tagged" / inputs[0].name).stat().st_mtime_ns == before
    assert (tmp_path / "tagged" / inputs[1].name).read_text() == expected[1]


def test_files_are_labelled_one_by_one_without_a_cluster(files: Files, tmp_path: Path) -> None:
    inputs = [*parts_of(files / "test.txt", tmp_path, 2), tmp_path / "missing.txt"]
    model = files / "columns.model" if (files / "columns.model").exists() else None
    if model is None:
        works("train", files / "train.txt", "-m", tmp_path / "a.model", "-q")
        model = tmp_path / "a.model"
    result = run("tag", "-m", model, *inputs, "--output-folder", tmp_path / "tagged", "--marginals")
    assert result.exit_code == 1
    assert "missing.txt" in result.output
    assert sorted(path.name for path in (tmp_path / "tagged").iterdir()) == sorted(path.name for path in inputs[:2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "{data}", "-m", "{out}", "--workers", "2"), "--workers are those of a --cluster"),
        (("train", "{data}", "-m", "{out}", "--cluster", "dask"), "local, ray, auto or ray://HOST:PORT"),
        (("tag", "{data}", "-m", "{data}", "--cluster", "local"), "name --output-folder"),
        (("tag", "-m", "{data}", "--output-folder", "{out}"), "is for files: name them"),
        (("tag", "{data}", "{data}", "-m", "{data}", "--output-folder", "{out}"), "two inputs are called"),
    ],
)
def test_wrong_command_lines(files: Files, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    filled = [part.format(data=files / "train.txt", out=tmp_path / "out") for part in arguments]
    result = run(*filled)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())
