"""From a simulated game to a file for the robot in four lines; and what each of them did, by the library alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield.features.relational import Specification
from tests.cases.command_line import run, works
from tests.cli.sensors.conftest import QUICK, SPEC, line


def test_four_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line("simulate tag --games 4 --minutes 0.15 --format tracks -o games.csv")
    chosen = line(
        "select games.csv --group game --only 0,1,2 --features tag-small --max-features 4 -m seeker.crfield"
    )
    assert "3 recordings, 1,620 steps" in chosen.stdout
    assert "of 324 candidates" in chosen.stdout
    scores = json.loads(line("evaluate games.csv -m seeker.crfield --only 3 --json").stdout)
    line("export seeker.crfield seeker.py")

    # the same by the library
    games = [crfield.make_tag(0.15, random_state=k) for k in range(4)]
    names = np.array(["robot0", "robot1", "robot2"])
    model = crfield.load("seeker.crfield")
    places = [np.round(game.positions, 3) for game in games]
    y = [names[game.labels] for game in games]
    assert scores["token_accuracy"] == model.score(places[3:], y[3:])
    assert scores["recordings"] == [
        {
            "recording": "3",
            "steps": 540,
            "token_accuracy": scores["token_accuracy"],
            "segment_f1": scores["segments"]["f1"]["0.5"],
            "edit_score": scores["segments"]["edit"],
        }
    ]
    again = crfield.SelectedCRF(features=model.features, rate=60.0, options={"max_features": 4}).fit(
        places[:3], y[:3]
    )
    assert [item.name for item in again.features_] == [item.name for item in model.features_]
    made: dict[str, Any] = {}
    exec(Path("seeker.py").read_text(), made)
    exported, stream = made["Stream"](), model.stream()
    for position in places[3][:50]:
        assert exported.push(position.tolist())["label"] == stream.push(position).label


def test_every_frame_of_the_games_is_written(folder: Path) -> None:
    lines = (folder / "games.csv").read_text().splitlines()
    game = crfield.make_tag(0.1, random_state=1)
    assert lines[0] == "game,time,agent,x,y,label"
    assert len(lines) == 1 + 3 * 3 * 360
    x, y = game.positions[7, 2]
    assert lines[1 + 3 * (360 + 7) + 2] == f"1,{7 / 60:.4f},robot2,{x:.3f},{y:.3f},robot{game.labels[7]}"
    tracks = crfield.read_tracks(folder / "games.csv", time="time", agent="agent", label="label", group="game")
    assert tracks.groups == ("0", "1", "2")
    assert tracks.rate == 60.0
    np.testing.assert_allclose(tracks.places[1], game.positions, atol=6e-4)


def test_soccer_has_teams_and_a_ball(tmp_path: Path) -> None:
    out = tmp_path / "soccer.csv"
    line(f"simulate soccer --minutes 0.02 --robots 2 --format tracks -q -o {out}")
    spec = tmp_path / "ball.spec"
    spec.write_text("near state : dist(r,k) | for r in us, k in ball | where r != k | test < 200\n")
    teams = ("--team", "us=us0,us1", "--team", "them=them0,them1", "--objects", "ball")
    train = ("train", out, "--features", spec, "-m", tmp_path / "m", *QUICK)
    works(*train, *teams)
    domains = crfield.load(tmp_path / "m").features.words.domains
    assert [len(domains[name]) for name in ("us", "them", "ball", "agents")] == [2, 2, 1, 4]
    wrong = run(*train, "--team", "us=us0,us7", "--objects", "ball")
    assert wrong.exit_code == 1
    assert "must name agents of the column 'agent'" in wrong.stderr
    assert "us7" in wrong.stderr


def test_train_takes_all_features_of_tracks(folder: Path, tmp_path: Path) -> None:
    shown = works(
        *("train", folder / "games.csv", "--group", "game", "--features", folder / "tag.spec"),
        *("-m", tmp_path / "m", "--l2", "3", "--dev", folder / "games.csv", "--threads", "1"),
    ).stdout
    model = crfield.load(tmp_path / "m")
    catalogue = Specification.parse(SPEC).expand(labels=3, agents=3)
    assert model.n_features_ == len(catalogue) == 36
    assert model.refit_l2_ == 3.0
    assert "dev " in shown
    wrong = run(
        *("train", folder / "games.csv", "--group", "game", "--features", folder / "tag.spec"),
        *("-m", tmp_path / "n", "--l1", "2"),
    )
    assert wrong.exit_code == 2
    assert "--l1 is for columns" in wrong.stderr


def test_one_game_a_file_but_for_tracks(tmp_path: Path) -> None:
    wrong = run("simulate", "tag", "--games", 2, "-o", tmp_path / "game.csv")
    assert wrong.exit_code == 2
    assert "a csv file holds one game" in wrong.stderr
