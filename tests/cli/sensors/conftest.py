"""Small tables for the verbs that read them, and a model of each kind, made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from tests.cases.command_line import works

SPEC = """
still state : speed(a)  | for a in robots | test < 300 | win all 6
close trans : dist(a,b) | for a in robots, b in robots | where a < b | test < 240 | lag 0
"""
TRACKS = ("--group", "game", "--features")
QUICK = ("--threads", "1", "-q")


def line(command: str) -> Result:
    """What comes of a line of the shell."""
    return works(*command.split())


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Games of tag, columns of days, samples of people; and a model of each."""
    made = tmp_path_factory.mktemp("tables")
    (made / "tag.spec").write_text(SPEC)
    works("simulate", "tag", "--games", 3, "--minutes", 0.1, "--format", "tracks", "-o", made / "games.csv", "-q")
    rng = np.random.default_rng(0)
    days = ["day,speed,turn,label"]
    for day in ("mon", "tue", "wed", "thu"):
        for step in range(24):
            label = "go" if step // 6 % 2 else "stay"
            days.append(f"{day},{rng.normal() + 3 * (label == 'go'):.3f},{rng.normal():.3f},{label}")
    (made / "days.csv").write_text("\n".join(days) + "\n")
    people = ["who,t,x,y,note,activity"]
    for who in ("ann", "bob"):
        for sample in range(205):  # 10.25 s at 20 Hz
            label = "walk" if sample // 40 % 2 else "rest"
            x, y = rng.normal(size=2) * (2.0 if label == "walk" else 0.2)
            people.append(f"{who},{sample / 20:.2f},{x:.3f},{y + 1:.3f},hm,{label}")
    (made / "people.csv").write_text("\n".join(people) + "\n")
    works("select", made / "games.csv", *TRACKS, made / "tag.spec", "-m", made / "tracks.crfield", *QUICK)
    works("train", made / "days.csv", "--group", "day", "-m", made / "days.crfield", *QUICK)
    windows = ("--features", "sensors", "--measures", "mean,deviation", "--time", "t", "--label", "activity")
    works("train", made / "people.csv", *windows, "--group", "who", "-m", made / "people.crfield", *QUICK)
    return made
