"""Tables: cells with their lines, and rows of long tables that find their steps."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import crfield
from crfield.data.clocks.long_table import tracks_of_table
from crfield.data.tables import Table, parse_table, table_of
from crfield.errors import FormatError, InputError, ShapeError
from crfield.storage.tables import read_table


def test_lines_are_those_of_the_file() -> None:
    text = '\ufeffname,x\r\n\r\n"two\r\nlines",1\r\nthree,oops\r\n'
    table = parse_table(text, file="log.csv")
    assert (table.names, list(table.lines or ()), table.cells["name"]) == (
        ("name", "x"),
        [3, 5],
        ["two\r\nlines", "three"],
    )
    with pytest.raises(FormatError, match=r"log\.csv, line 5: expected a number in column 'x', got 'oops'"):
        table.numbers("x")
    assert table.part(np.array([1])).lines == [5]
    with pytest.raises(FormatError, match="row 1: the column 'who' says nothing"):
        table_of({"who": ["ann", None]}).owners("who")
    with pytest.raises(FormatError, match="column names must differ"):
        parse_table("a,a\n1,2\n")
    with pytest.raises(FormatError, match="line 2: the table cannot be read"):
        parse_table("a\n" + "x" * 200_000 + "\n")
    with pytest.raises(ShapeError, match="equally long"):
        table_of({"a": [1], "b": [1, 2]})


def test_what_holds_numbers() -> None:
    table = parse_table("a,b,c,d\n1,x,,2021-01-01\n,2,,2021-01-02\n")
    assert [name for name in table.names if table.is_numeric(name)] == ["a"]
    assert table_of({"n": np.arange(3), "w": np.array(["1", "b", "3"])}).is_numeric("n")


def test_dates_do_not_mix_with_numbers() -> None:
    with pytest.raises(FormatError, match="line 3: expected a time, a date as in the rows before, got '7'"):
        parse_table("t\n2021-01-01\n7\n").times("t")
    with pytest.raises(FormatError, match="line 3: expected a time"):
        parse_table("t\n7\n2021-01-01\n").times("t")
    seconds, origin = parse_table("t\n2021-05-01T10:00:09.95\n2021-05-01T12:00:00+02:00\n").times("t")
    assert (seconds.tolist(), origin) == ([9.95, 0.0], 1619863200.0)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(FormatError, match=r"t\.csv, line 2: the line is not valid UTF-8"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("dated", [False, True])
def test_every_row_goes_to_the_step_that_has_it(dated: bool) -> None:
    """Two games whose clocks begin anew, rows in any order, somebody who comes late, a gap, and jitter."""
    rng = np.random.default_rng(3)
    start = np.datetime64("2021-05-01T10:00:00", "ns")
    rows = []
    for game in ("a", "b"):
        for step in [*range(40), *range(80, 110)]:
            for agent in ("p", "q")[: 1 + (step > 5)]:
                seconds = (step + rng.uniform(-0.2, 0.2)) / 10 if step else 0.0
                moment = start + np.timedelta64(round(seconds * 1e9), "ns")
                rows.append((game, moment if dated else seconds, agent, *rng.normal(size=2)))
    order = rng.permutation(len(rows))
    names = ("game", "t", "id", "x", "y")
    table = table_of({name: np.array([rows[k][at] for k in order]) for at, name in enumerate(names)})
    tracks, steps = tracks_of_table(table, group="game", rate=10.0)
    assert tracks.groups == tuple(g for g in dict.fromkeys(table.cells["game"].tolist()) for _ in range(2))
    who = [tracks.agents.index(agent) for agent in table.cells["id"].tolist()]
    assert (tracks.positions[steps, who, 0] == table.cells["x"]).all()
    assert tracks.present.sum() == len(rows)
    games = np.repeat(tracks.groups, tracks.lengths)
    assert (games[steps] == table.cells["game"]).all()


def test_groups_of_tracks_in_files() -> None:
    text = "game,t,id,x,y,what\na,0,1,0,0,go\na,1,1,0,0,go\nb,0,1,0,0,stay\nb,1,1,0,0,stay\n"
    tracks = crfield.read_tracks([io.StringIO(text), io.StringIO(text)], group="game", label="what")
    assert tracks.groups == ("a", "b", "a", "b")
    assert tracks[1].groups == ("b",)
    assert [set(labels.tolist()) for labels in tracks.y] == [{"go"}, {"stay"}] * 2
    with pytest.raises(InputError, match="game b: no agent has two rows"):
        crfield.read_tracks(io.StringIO("game,t,id,x,y\na,0,1,0,0\na,1,1,0,0\nb,0,1,0,0\n"), group="game")


def test_an_empty_table() -> None:
    assert len(parse_table("")) == len(Table({})) == 0
