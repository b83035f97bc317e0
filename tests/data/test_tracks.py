"""Tracks of agents that come and go: arrays, clock, gaps and labels are those of a slow program on made tables."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import read_tracks
from crfield.errors import CrfieldError, FormatError, InputError

RATE = 25.0


def table(seed: int, *, jitter: float = 0.0, start: float = 100.0) -> tuple[str, dict[tuple[int, str], Any]]:
    """A CSV text in mixed order, and what is known of each step and agent; a gap of 4 s after step 40."""
    rng = np.random.default_rng(seed)
    known: dict[tuple[int, str], Any] = {}
    lines = []
    for step in range(80):
        when = start + step / RATE + (4.0 if step > 40 else 0.0)
        if step in (10, 55):
            continue  # a frame that was lost
        for name in ("ann", "bob", "eve"):
            if rng.random() < 0.25 and step not in (0, 40, 41, 79):
                continue
            place, lacking = np.round(rng.normal(size=2), 3), rng.random() < 0.1
            cells = ["", ""] if lacking else [f"{x}" for x in place]
            noise = rng.uniform(-jitter, jitter) if step not in (0, 41) else 0.0
            lines.append(f"{when + noise:.5f},{name},{','.join(cells)},{'go' if step % 20 < 9 else 'stay'}")
            known[step, name] = None if lacking else tuple(place)
    order = rng.permutation(len(lines))
    return "\n".join(["t,id,x,y,what", *(lines[k] for k in order)]) + "\n", known


@pytest.mark.parametrize("jitter", [0.0, 0.004])
def test_arrays_are_those_of_a_slow_program(jitter: float) -> None:
    text, known = table(1, jitter=jitter)
    tracks = read_tracks(io.StringIO(text), label="what", agents=["ann", "bob", "eve", "never"])
    assert tracks.rate == pytest.approx(RATE, rel=2e-3)
    assert tracks.lengths == (41, 39)
    assert tracks.agents == ("ann", "bob", "eve", "never")
    for step in range(80):
        for r, name in enumerate(tracks.agents):
            place = known.get((step, name))
            assert tracks.present[step, r] == (place is not None)
            if place is None:
                assert np.isnan(tracks.positions[step, r]).all()
            else:
                assert tuple(tracks.positions[step, r]) == place
        heard = any(at == step for at, _ in known)
        assert tracks.labels is not None
        assert tracks.labels[step] == (("go" if step % 20 < 9 else "stay") if heard else None)
        assert tracks.times[step] == pytest.approx(100 + step / RATE + (4.0 if step > 40 else 0.0), abs=0.01)
    (clock,) = tracks.clock
    assert (clock.n_steps, clock.silent, clock.crowded) == (80, 80 - len({step for step, _ in known}), 0)
    assert clock.missing == sum(place is None for place in known.values())
    assert "split into 2 recordings" in tracks.report
    assert f"nobody was seen at {clock.silent}" in tracks.report
    assert [len(own) for own in tracks.y] == [41, 39]
    assert [own.lengths for own in tracks] == [(41,), (39,)]


def test_dates_units_files_and_bridges(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows = (("00.5", "b", 1), ("00", "a", 0), ("01.5", "b", 3), ("00.5", "a", 5))
    dated = "when;who;x\n" + "".join(f"2024-05-01T10:00:{second};{who};{x}\n" for second, who, x in rows)
    roles: dict[str, Any] = {"time": "when", "agent": "who", "position": ["x"]}
    tracks = read_tracks(io.StringIO(dated), rate=2.0, **roles)
    assert tracks.times.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert tracks.present.tolist() == [[False, True], [True, True], [False, False], [True, False]]
    bridged = read_tracks(io.StringIO(dated), rate=2.0, bridge=0.5, **roles)
    assert bridged.positions[:, bridged.agents.index("b"), 0].tolist()[1:] == [1.0, 2.0, 3.0]
    assert bridged.clock[0].bridged == 1
    (tmp_path / "one.csv").write_text("t,id,x,y\n0,a,0,0\n100,a,1,1\n", encoding="utf-8")
    (tmp_path / "two.csv").write_text("t,id,x,y\n0,b,0,0\n100,b,1,1\n200,a,1,1\n", encoding="utf-8")
    both = read_tracks([tmp_path / "one.csv", tmp_path / "two.csv"], unit="ms")
    assert (both.lengths, both.agents, both.rate) == ((2, 3), ("a", "b"), 10.0)
    assert both.present.tolist() == [[True, False], [True, False], [False, True], [False, True], [True, False]]
    own = read_tracks(io.StringIO("t,id,x,y,do\n0,a,0,0,run\n0,b,0,0,sit\n1,a,0,0,run\n"), label="do")
    assert own.labels is None
    assert own.agent_labels is not None
    assert own.agent_labels.tolist() == [["run", "sit"], ["run", None]]
    with pytest.raises(InputError, match="agent_labels"):
        own.y


def test_parquet_asks_for_what_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet", "polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FormatError, match="pyarrow, polars or pandas"):
        read_tracks(io.BytesIO(b"PAR1rows"))
    stand_in = ModuleType("polars")
    columns = {"t": [0.0, 0.5], "id": [7, 7], "x": [1.0, 2.0], "y": [1.0, 2.0]}
    stand_in.read_parquet = lambda source: columns  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", stand_in)
    assert read_tracks(io.BytesIO(b"PAR1rows")).agents == ("7",)


def test_features_of_what_was_read() -> None:
    tracks = read_tracks(io.StringIO(table(2)[0]), label="what")
    spec = crfield.Specification.parse("fast state : speed(a) | for a in robots | test > 10,20 | win any 1,5")
    columns = spec.expand(labels=["go", "stay"], agents=tracks.agents).on(tracks)
    assert columns.recordings.rate == tracks.rate
    assert columns.chunk(np.arange(4)).shape == (80, 4)
    assert columns.chains.lengths.tolist() == [41, 39]


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("t,id,x,y\n", {}, "no rows"),
        ("t,id,x,y\n0,a,0,0\n", {}, "Say rate="),
        ("t,id,x,y\n0,a,0,0\n0,a,1,1\n1,a,0,0\n", {}, "two rows at 0 s"),
        ("t,id,x,y\n0,a,0,0\n1,,1,1\n", {}, "whose it is"),
        ("t,id,x\n0,a,0\n", {}, "no column 'y'"),
        ("t,id,x,y\n0,a,0,0\n1,b,0,0\n", {"agents": ["a"], "rate": 1.0}, "missing: \\['b'\\]"),
        ("t,id,x,y\n0,a,0,0\n1,a,0,0\n", {"rate": -1.0}, "rate must be"),
        ("t,id,x,y\n0,a,0,0\n1,a,0,0\n", {"bridge": -1.0}, "bridge"),
        ("t,id,x,y\n" + "".join(f"{t * 0.9 + (t % 3) * 0.4},a,0,0\n" for t in range(40)), {}, "not regular"),
    ],
)
def test_what_cannot_be(text: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(CrfieldError, match=match):
        read_tracks(io.StringIO(text), **options)
