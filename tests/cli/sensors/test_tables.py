"""Tables in, labels out: rows find their steps, roles are remembered, and what cannot be read is named."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import crfield
from crfield.cli.model import roles_of
from crfield.cli.sensors.roles import Roles
from tests.cases.command_line import run, works
from tests.cli.sensors.conftest import QUICK
from tests.stored.test_stored import STORED


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_is_a_step(folder: Path) -> None:
    rows = rows_of(works("tag", folder / "days.csv", "-m", folder / "days.crfield", "--marginals").stdout)
    model = crfield.load(folder / "days.crfield")
    X = [np.array([[float(r["speed"]), float(r["turn"])] for r in rows[k : k + 24]]) for k in range(0, 96, 24)]
    assert [row["predicted"] for row in rows] == np.concatenate(model.predict(X)).tolist()
    chances = np.concatenate(list(model.predict_proba(X)))
    best = [chances[k, model.classes_.tolist().index(row["predicted"])] for k, row in enumerate(rows)]
    assert [row["probability"] for row in rows] == [f"{chance:.6f}" for chance in best]
    assert model.score(X, [[row["label"] for row in rows[k : k + 24]] for k in range(0, 96, 24)]) > 0.8
    assert [item.name for item in model.top_features(1)] == ["speed"]


def test_rows_may_be_mixed_where_times_sort_them(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "days.csv").read_text().splitlines()
    timed = [f"{line},{k}" for k, line in enumerate(lines[1:])]
    mixed = np.random.default_rng(1).permutation(timed).tolist()
    for name, own in (("sorted", timed), ("mixed", mixed)):
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0] + ",when", *own]) + "\n")
    ask = ("--group", "day", "--time", "when", *QUICK)
    works("train", tmp_path / "mixed.csv", "-m", tmp_path / "m", *ask)
    works("train", tmp_path / "sorted.csv", "-m", tmp_path / "s", *ask)
    np.testing.assert_allclose(crfield.load(tmp_path / "m").coef_, crfield.load(tmp_path / "s").coef_, rtol=1e-9)
    said = {}
    for name in ("mixed", "sorted"):
        rows = rows_of(works("tag", tmp_path / f"{name}.csv", "-m", tmp_path / "m").stdout)
        said[name] = {row["when"]: row["predicted"] for row in rows}
        assert [row["when"] for row in rows] == [line.split(",")[-1] for line in (timed, mixed)[name == "mixed"]]
    assert said["mixed"] == said["sorted"]
    wrong = run("train", tmp_path / "mixed.csv", "-m", tmp_path / "n", "--group", "day")
    assert wrong.exit_code == 1
    assert "goes on after another one began" in wrong.stderr


def test_windows_of_samples(folder: Path) -> None:
    model = crfield.load(folder / "people.crfield")
    features, chain = model[0], model[-1]
    assert (features.rate, features.axes, features.n_features_out_) == (20.0, ["x", "y"], 6)
    rows = rows_of(works("tag", folder / "people.csv", "-m", folder / "people.crfield").stdout)
    X = [np.array([[float(r["x"]), float(r["y"])] for r in rows if r["who"] == who]) for who in ("ann", "bob")]
    predicted = model.predict(X)
    assert [len(own) for own in predicted] == [10, 10]
    want = [[*own.repeat(20), *[""] * 5] for own in predicted]  # the last quarter of a second is no step
    assert [row["predicted"] for row in rows] == np.concatenate(want).tolist()
    scores = json.loads(works("evaluate", folder / "people.csv", "-m", folder / "people.crfield", "--json").stdout)
    assert [own["recording"] for own in scores["recordings"]] == ["ann", "bob"]
    assert scores["tokens"] == 20
    gold = features.labels([[r["activity"] for r in rows if r["who"] == who] for who in ("ann", "bob")])
    assert scores["token_accuracy"] == model.score(X, gold)
    assert chain.top_features(1)[0].name in features.get_feature_names_out()


def test_times_may_be_dates(folder: Path, tmp_path: Path) -> None:
    """Seconds since 1970 have too few digits: a sample at 9.95 s must not fall before its place."""
    head, *lines = (folder / "people.csv").read_text().splitlines()
    parts = [line.split(",", 2) for line in lines]
    dated = [f"{who},2021-05-01T10:00:{float(t):09.6f},{rest}" for who, t, rest in parts]
    (tmp_path / "dated.csv").write_text("\n".join([head, *dated]) + "\n")
    said = [
        [row["predicted"] for row in rows_of(works("tag", path, "-m", folder / "people.crfield").stdout)]
        for path in (folder / "people.csv", tmp_path / "dated.csv")
    ]
    assert said[0] == said[1]


def test_a_gap_ends_a_recording_of_samples(folder: Path, tmp_path: Path) -> None:
    """Samples 60 … 119 are lost: windows do not reach across, and rows know their part."""
    lines = (folder / "people.csv").read_text().splitlines()
    kept = [lines[0], *lines[1:61], *lines[121:206]]
    (tmp_path / "gap.csv").write_text("\n".join(kept) + "\n")
    rows = rows_of(works("tag", tmp_path / "gap.csv", "-m", folder / "people.crfield").stdout)
    values = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    first, second = crfield.load(folder / "people.crfield").predict([values[:60], values[60:]])
    assert [row["predicted"] for row in rows] == [*first.repeat(20), *second.repeat(20), *[""] * 5]


def test_tracks_find_their_rows(folder: Path, tmp_path: Path) -> None:
    """Rows in any order, one agent away for a while, and a table without labels and groups."""
    rows = rows_of((folder / "games.csv").read_text())[:900]
    left = [row for k, row in enumerate(rows) if not (row["agent"] == "robot1" and 300 <= k < 600)]
    order = np.random.default_rng(0).permutation(len(left))
    lines = ["time,agent,x,y", *(",".join(left[k][name] for name in ("time", "agent", "x", "y")) for k in order)]
    (tmp_path / "some.csv").write_text("\n".join(lines) + "\n")
    told = works("tag", tmp_path / "some.csv", "-m", folder / "tracks.crfield")
    assert "no column 'game': it is one recording" in told.stderr
    tracks = crfield.read_tracks(
        tmp_path / "some.csv", time="time", agent="agent", agents=["robot0", "robot1", "robot2"]
    )
    labels = crfield.load(folder / "tracks.crfield").predict(tracks)[0]
    for row in rows_of(told.stdout):
        assert row["predicted"] == labels[round(float(row["time"]) * 60)]


def test_only_some_recordings(folder: Path) -> None:
    rows = rows_of(works("tag", folder / "days.csv", "-m", folder / "days.crfield", "--only", "tue,thu").stdout)
    assert [row["day"] for row in rows] == ["tue"] * 24 + ["thu"] * 24
    wrong = run("tag", folder / "days.csv", "-m", folder / "days.crfield", "--only", "tuesday")
    assert wrong.exit_code == 1
    assert "which holds mon, tue, wed, thu; got tuesday." in wrong.stderr


def test_columns_of_other_names(folder: Path, tmp_path: Path) -> None:
    other = (folder / "days.csv").read_text().replace("day,speed,turn,label", "who,v,w,what", 1)
    (tmp_path / "other.csv").write_text(other)
    named = ("--group", "who", "--label", "what", "--columns", "v,w", "--json")
    there = works("evaluate", tmp_path / "other.csv", "-m", folder / "days.crfield", *named).stdout
    assert there == works("evaluate", folder / "days.csv", "-m", folder / "days.crfield", "--json").stdout


def test_what_was_tagged_can_be_tagged_again(folder: Path, tmp_path: Path) -> None:
    once = works("tag", folder / "days.csv", "-m", folder / "days.crfield").stdout
    twice = works("tag", "-", "-m", folder / "days.crfield", stdin=once).stdout
    assert twice.splitlines()[0] == "day,speed,turn,label,predicted,predicted2"
    assert all(row["predicted"] == row["predicted2"] for row in rows_of(twice))


def test_parquet_where_something_reads_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "days.parquet").write_bytes(b"PAR1rows")
    rows = rows_of((folder / "days.csv").read_text())
    table: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    table |= {name: np.array(table[name], float) for name in ("speed", "turn")}
    for name in ("pyarrow", "pyarrow.parquet", "polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    ask = ("train", tmp_path / "days.parquet", "--group", "day", "-m", tmp_path / "m", *QUICK)
    wrong = run(*ask)
    assert wrong.exit_code == 1
    assert "pyarrow, polars or pandas" in wrong.stderr
    stand_in = ModuleType("polars")
    stand_in.read_parquet = lambda source: table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", stand_in)
    works(*ask)
    assert (crfield.load(tmp_path / "m").coef_ == crfield.load(folder / "days.crfield").coef_).all()
    tagged = works("tag", tmp_path / "days.parquet", "-m", tmp_path / "m").stdout
    assert rows_of(tagged)[5]["predicted"] in ("go", "stay")


def test_select_says_what_it_chose(folder: Path, tmp_path: Path) -> None:
    facts = json.loads(
        works("select", folder / "days.csv", "--group", "day", "-m", tmp_path / "m", "--json", "--threads", 1).stdout
    )
    assert {item["name"] for item in facts["features"]} == {"speed"}
    assert facts["candidates"] == 4
    assert crfield.load(tmp_path / "m").source_ == crfield.load(folder / "days.crfield").source_


ROLES = Roles("table", ("a, b", "ü"), time="t", unit="ms", rate=20.0)


def test_roles_are_what_a_model_keeps() -> None:
    assert Roles.of_source(ROLES.source) == ROLES
    stored = next(folder / f"{case.name}.crfield" for folder, case in STORED if case.name == "selected-table")
    assert roles_of(crfield.load(stored)) == Roles("table", ("speed", "turn"), group="day", label="label")
    assert Roles.of_source({"format": "conllu", "columns": "form", "label": "upos"}) is None


@pytest.mark.parametrize("verb", ["explain", "compare-inference"])
def test_verbs_of_text_say_who_reads_tables(folder: Path, verb: str) -> None:
    words = ("-m", folder / "days.crfield", folder / "days.csv")
    result = run(verb, *(words if verb == "explain" else (folder / "days.crfield", folder / "days.csv")))
    assert result.exit_code == 2
    assert "was trained on a table, columns speed, turn; group day; label" in result.stderr
    assert "a table, columns speed" in works("inspect", folder / "days.crfield").stdout


def told(*arguments: object) -> tuple[int, str]:
    result = run(*arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (
            ("--group", "dya"),
            1,
            "days.csv: there is no column 'dya'; there are day, speed, turn, label. Did you mean",
        ),
        (("--label", "labels"), 1, "Did you mean 'label'?"),
        (("--columns", "speed,trun"), 1, "Did you mean 'turn'?"),
        (("--columns", "speed,label"), 1, "'label' cannot be a reading and have another role too"),
        (("--columns", "day"), 1, "days.csv, line 2: expected a number in column 'day', got 'mon'"),
        (("--time", "day"), 1, "days.csv, line 2: expected a time, a number or an ISO date, got 'mon'"),
        (("--features", "sensor"), 2, "Did you mean 'sensors'?"),
        (("--features", "nowhere.spec"), 1, "nowhere.spec: No such file"),
        (("--features", "sensors"), 1, "name the column of times, --time, or --rate"),
        (("--features", "sensors", "--rate", "2", "--hop", "100"), 1, "shorter than a step of 100 s"),
        (("--window", "1,x"), 2, "expected numbers above 0"),
        (("--hop", "2"), 2, "--hop goes with --features sensors"),
        (("--rate", "2"), 2, "a row of a plain table is a step"),
        (("--longest-gap", "2"), 2, "--longest-gap needs times"),
        (("--agent", "day"), 2, "tracks need features"),
        (("--position", "speed,turn"), 2, "--position is for tracks"),
        (("--team", "us"), 2, "--team must be a name and its members"),
        (("--unit", "sec"), 2, "expected one of s, ms"),
        (("--features", "text", "--group", "day"), 2, "a table of numbers has no words"),
        (("--time", "speed", "--template", "t"), 2, "leave out --template"),
        (("--time", "speed", "--format", "columns"), 2, "--time is for tables"),
        (("--encoded", "--group", "day"), 2, "--encoded is for what crfield encode wrote"),
    ],
)
def test_options_that_do_not_fit(
    folder: Path, options: tuple[str, ...], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found, words = told("train", "days.csv", "-m", tmp_path / "m", *options)
    assert found == code, words
    assert says in words
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a table with a header and rows"),
        ("speed,turn,label\n", "expected a table with a header and rows"),
        ("speed,turn,label\n1,,go\n", "line 2: the column 'turn' has no value"),
        ("speed,turn,label\n1,2,go\n1,x,go\n", "line 3: expected a number in column 'turn', got 'x'"),
        ("speed,turn,label\n1,2\n", "line 2: expected 3 cells"),
        (
            "speed,trun,label\n1,2,go\n",
            "there is no column 'turn'; there are speed, trun, label. Did you mean 'trun'?",
        ),
        ("speed,turn\n1,2\n", "there is no column 'label'"),
    ],
)
def test_tables_that_cannot_be_read(folder: Path, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    code, words = told("evaluate", tmp_path / "t.csv", "-m", folder / "days.crfield")
    assert code == 1
    assert says in words
    if "'label'" in says:
        works("tag", tmp_path / "t.csv", "-m", folder / "days.crfield")


def test_tracks_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    rows = [f"{t / 30},robot{k},0,0,robot0" for t in range(5) for k in range(3)]
    (tmp_path / "slow.csv").write_text("\n".join(["time,agent,x,y,label", *rows]))
    (tmp_path / "nobody.csv").write_text("time,agent,x,y,label\n0,,1,1,robot0\n")
    (tmp_path / "each.csv").write_text("time,agent,x,y,label\n0,robot0,1,1,a\n0,robot1,1,1,b\n1,robot0,1,1,a\n")
    for name, says in (
        ("slow", "was trained on 60 steps a second"),
        ("nobody", "line 2: the column 'agent' says nothing"),
        ("each", "rows of one time have different labels"),
    ):
        code, words = told("evaluate", tmp_path / f"{name}.csv", "-m", folder / "tracks.crfield")
        assert code == 1
        assert says in words


def test_options_of_text_and_of_tables_are_kept_apart(folder: Path) -> None:
    table = ("-m", folder / "days.crfield", folder / "days.csv")
    for more in (("--n-best", "2"), ("--spans",), ("--strict",), ("--format", "columns")):
        code, words = told("tag", *table, *more)
        assert code == 2, words
        assert "was trained on a table" in words
    assert told("select", folder / "tag.spec", "-m", "m")[0] == 2
    assert told("tune", folder / "days.csv", "--features", "sensors")[0] == 2


def test_reports_of_tables_show_recordings(folder: Path, tmp_path: Path) -> None:
    for name, signals, seconds in (("days", ["speed", "turn"], None), ("people", ["x", "y"], 1.0)):
        out = tmp_path / f"{name}.html"
        works("report", folder / f"{name}.crfield", folder / f"{name}.csv", "-o", out)
        items = json.loads(out.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])["items"]
        assert {item["look"] for item in items} == {"time"}
        assert {item["name"] for item in items} == (
            {"mon", "tue", "wed", "thu"} if name == "days" else {"ann", "bob"}
        )
        assert [signal["name"] for signal in items[0]["signals"]] == signals
        assert items[0]["seconds"] == seconds
    works("report", folder / "tracks.crfield", folder / "games.csv", "-o", tmp_path / "games.html")
