"""Lines of numbers in, labels out, each at its time; the same as `stream()` of the library says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield.estimators.base.fitted import fitted_of
from crfield.storage.blocks import read_lines
from tests.cases.command_line import run, works
from tests.cli.sensors.conftest import line
from tests.stored.test_stored import STORED


def numbers(path: Path, columns: slice) -> list[list[float]]:
    return [[float(cell) for cell in line.split(",")[columns]] for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("lag", [0, 1, 30])
def test_columns_and_lags(folder: Path, lag: int) -> None:
    rows, model = numbers(folder / "days.csv", slice(1, 3))[:48], crfield.load(folder / "days.crfield")
    stream, want = model.stream(lag=lag), []
    for part in (rows[:24], rows[24:]):
        steps = [stream.push(row) for row in part]
        told = [step.smoothed for step in steps if step.smoothed is not None]
        rest = stream.finish().smoothed
        told += list(rest[1:] if len(part) > lag else rest) if lag else []
        want += [f"{model.classes_[row.argmax()]}\t{row.max():.6f}" for row in told] + [""]
    lines = ["\t".join(map(str, row)) for row in rows]
    text = "\n".join([*lines[:24], "", *lines[24:]])
    said = works("stream", folder / "days.crfield", "--lag", lag, "--probabilities", stdin=text).stdout
    assert said.splitlines() == want[:-1]


def test_a_header_says_which_column_is_which(folder: Path) -> None:
    whole = (folder / "days.csv").read_text().splitlines()[:25]
    bare = "\n".join(" ".join(line.split(",")[1:3]) for line in whole[1:])
    turned = "\n".join(";".join(line.split(",")[k] for k in (3, 2, 1)) for line in whole)
    plain = works("stream", folder / "days.crfield", stdin=bare).stdout
    assert works("stream", folder / "days.crfield", stdin="\n".join(whole)).stdout == plain
    assert works("stream", folder / "days.crfield", stdin=turned).stdout == plain
    assert plain.count("\n") == 24
    wrong = run("stream", folder / "days.crfield", "--go-on", stdin="speed,trun\n1,2\n")
    assert wrong.exit_code == 1
    assert "<stdin>, line 1: the header must name the model's columns speed, turn; 'turn' is not" in wrong.stderr
    assert "Did you mean 'trun'?" in wrong.stderr


def test_positions_of_agents(folder: Path) -> None:
    game, model = crfield.make_tag(0.02, random_state=5), crfield.load(folder / "tracks.crfield")
    stream, want, lines = model.stream(), [], []
    for t, places in enumerate(game.positions.round(3)):
        away = t % 7 == 3
        want.append(stream.push(places, present=[True, not away, True]).label)
        cells = [str(value) for value in places.ravel().tolist()]
        lines.append(",".join(cells if not away else [*cells[:2], "", "", *cells[4:]]))
    assert works("stream", folder / "tracks.crfield", stdin="\n".join(lines)).stdout.splitlines() == want
    played = line("simulate tag --minutes 0.02 --seed 5 -q").stdout  # wide, with a header
    assert len(works("stream", folder / "tracks.crfield", stdin=played).stdout.splitlines()) == len(game)


def test_windows_answer_when_they_are_full(folder: Path) -> None:
    samples = numbers(folder / "people.csv", slice(2, 4))[:205]
    model = crfield.load(folder / "people.crfield")
    stream, rows = model[-1].stream(), model[0].transform([samples])[0]
    want = [stream.push(row).label for row in rows]
    lines = [f"{x} {y}" for x, y in samples]
    text = "\n".join([*lines, "", *lines[:20], "", *lines[:19]])
    said = works("stream", folder / "people.crfield", stdin=text).stdout.splitlines()
    assert said[:10] == want
    assert said[10:] == ["", want[0], ""]


def test_lines_that_cannot_be_read(folder: Path) -> None:
    text = "1 2\n1\n1 x\n\n3 nan\n3 4\n"
    wrong = run("stream", folder / "days.crfield", stdin=text)
    assert wrong.exit_code == 1
    assert wrong.stderr.splitlines()[-1] == "error: <stdin>, line 2: expected 2 numbers, speed, turn, got 1."
    assert wrong.stdout.count("\n") == 1
    going = works("stream", folder / "days.crfield", "--go-on", stdin=text)
    assert [line in ("?", "") for line in going.stdout.splitlines()] == [False, True, True, True, True, False]
    assert going.stderr.splitlines() == [
        "warning: <stdin>, line 2: expected 2 numbers, speed, turn, got 1.",
        "warning: <stdin>, line 3: expected a number for 'turn', got 'x'.",
        "warning: <stdin>, line 5: expected a number for 'turn', got 'nan'.",
    ]
    assert works("stream", folder / "days.crfield", stdin="\n\n").stdout == ""


@pytest.mark.parametrize("name", ["chain-arrays", "hmm-gaussian", "selected-grafting", "selected-games"])
def test_models_made_in_python(name: str) -> None:
    path = next(folder / f"{case.name}.crfield" for folder, case in STORED if case.name == name)
    model = crfield.load(path)
    games = name == "selected-games"
    shape = (len(model.features.words.agents), 2) if games else (fitted_of(model).encoder.state()[0]["width"],)
    rows = np.random.default_rng(0).normal(size=(5, *shape))
    stream = model.stream()
    want = [str(stream.push(row).label) for row in rows]
    text = "\n".join(",".join(map(repr, row.ravel().tolist())) for row in rows)
    assert works("stream", path, stdin=text).stdout.splitlines() == want


def test_a_line_is_there_as_soon_as_it_was_written() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source:
        lines = read_lines(source)
        for number, text in enumerate(("1 2", "3 4"), 1):
            os.write(write, f"{text}\n".encode())
            assert next(lines) == (number, text)  # would wait for ever otherwise
        os.close(write)
        assert list(lines) == []
