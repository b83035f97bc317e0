"""``crfield choose``: the table, the model, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield.storage.datasets.recordings import read_recordings
from tests.cases.command_line import run, works

OPTIONS = ("--label", "what", "--group", "who", "--candidates", "logistic regression, Gaussian", "--quiet")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six people who walk and sit, with a step that nobody knows."""
    rng, lines = np.random.default_rng(1), ["t,who,a,b,what"]
    for person in range(6):
        words = np.repeat(rng.permutation(["sit", "walk"]), 12).tolist()
        for step, word in enumerate(words):
            a, b = rng.normal(scale=0.5, size=2) + [word == "walk", word == "sit"]
            lines.append(f"{step},p{person},{a:.4f},{b:.4f},{'' if step == 5 else word}")
    path = tmp_path_factory.mktemp("people") / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_table_and_the_model(table: Path, tmp_path: Path) -> None:
    shown = works("choose", table, *OPTIONS, "--model", tmp_path / "best.crfield").stdout
    model = crfield.load(tmp_path / "best.crfield")
    assert shown.strip() == str(model.table_)
    assert "6 groups in 3 folds" in shown
    frames = read_recordings(table, time="t", label="what", recording="who")
    same = crfield.choose(
        [frame.values for frame in frames],
        [frame.labels.tolist() for frame in frames],
        candidates=["logistic regression", "Gaussian"],
    )
    X = [frame.values for frame in frames]
    assert all(map(np.array_equal, same.predict(X), model.predict(X)))
    told = json.loads(works("choose", table, *OPTIONS, "--columns", "a", "--budget", "0", "--json").stdout)
    assert told["chosen"].startswith("logistic regression")
    assert [row["reason"] for row in told["rows"] if row["name"] == "Gaussian"] == ["budget: nothing is left"]


def test_what_is_refused(table: Path) -> None:
    failed = run("choose", table, "--label", "what", "--group", "who", "--candidates", "bosting")
    assert failed.exit_code == 1
    assert "candidates must be 'all' or some of" in failed.stderr
    assert run("choose", table, "--label", "nothing").exit_code == 1
    assert "two groups" in run("choose", table, "--label", "what", "--columns", "a,b").stderr
