"""Agents that come and go: columns, scores and streams are those of a slow program that goes step by step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from crfield import SelectedCRF
from crfield.data.clocks.tracks import Tracks
from crfield.errors import FeatureError, ShapeError
from crfield.features.relational import Catalogue, Recordings, Specification
from tests.features.relational.test_columns import by_columns, gradients

RATE, R = 4.0, 3
TEXT = """
near    state : dist(a,b)                  | for a in robots, b in robots | where a < b | test <,>= 2,4 | win all 1,3
apart   trans : not (dist(a,b) < 3)        | for a in robots, b in robots | where a < b
pace    trans : speed(a)                   | for a in robots | test <,> 3,9 | win any 3 | win mean 2 | lag 0,2
change  state : delta(dist(a,b), 2)        | for a in robots, b in robots | where a < b | pow 1,2
crowd   state : count(dist(a,o) < 3 for o in robots if o != a)          | for a in robots
every   state : all(dist(a,o) > 1 for o in robots if o != a)            | for a in robots
some    state : any(dist(a,o) > 4 for o in robots if o != a)            | for a in robots
nearest state : closest(a, robots)         | for a in robots | win min 3
middle  trans : mean(comp(pos(o),x) for o in robots) + sum(comp(pos(o),x) for o in robots)
chase   state : select_min((dist(k,j), dot(rel(k,j),vel(k))) for j in robots if j != k) | for k in robots
here    state : present(a)                 | for a in robots | lag 0,1
jolt    state : norm(acc(a))               | for a in robots
smooth  state : past_mean(speed(a), 3)     | for a in robots
weary   state : charge(a) + lag(clock, 1)  | for a in robots
"""
Value = Callable[[int], float | None]


def made(seed: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions with NaN where an agent is absent, who is present, and two channels."""
    rng = np.random.default_rng(seed)
    positions = np.round(rng.normal(0, 0.7, (length, R, 2)).cumsum(axis=0) * 4) / 4
    away = np.zeros((length, R), bool)
    for r in range(R):
        for start in rng.integers(0, max(length, 1), 4):
            away[start : start + int(rng.integers(1, 6)), r] = True
    away[length // 2 : length // 2 + 2] = True  # nobody at all
    charge = np.where(away, np.nan, rng.normal(size=(length, R)))
    return np.where(away[:, :, None], np.nan, positions), ~away, rng.normal(size=length), charge


class Slow:
    """Every expression as a function of a step that gives a number, or None where it has no value."""

    def __init__(self, positions: np.ndarray, present: np.ndarray, clock: np.ndarray, charge: np.ndarray) -> None:
        self.p, self.here, self.clock, self.charge = positions, present, clock, charge

    @staticmethod
    def first(f: Value, t: int) -> int:
        """Where the run of values that t is in begins."""
        while t > 0 and f(t - 1) is not None:
            t -= 1
        return t

    def ago(self, f: Value, t: int, k: int) -> float | None:
        return None if f(t) is None else f(max(t - k, self.first(f, t)))

    def window(self, f: Value, t: int, width: int) -> list[float]:
        return [f(u) for u in range(max(t - width + 1, self.first(f, t)), t + 1)]  # type: ignore[misc]

    def dist(self, a: int, b: int) -> Value:
        return lambda t: math.dist(self.p[t, a], self.p[t, b]) if self.here[t, a] and self.here[t, b] else None

    def velocity(self, t: int, a: int) -> tuple[float, float]:
        if t == 0 or not self.here[t - 1, a]:
            return 0.0, 0.0
        return tuple((self.p[t, a] - self.p[t - 1, a]) * RATE)  # type: ignore[return-value]

    def speed(self, a: int) -> Value:
        return lambda t: math.hypot(*self.velocity(t, a)) if self.here[t, a] else None

    def jolt(self, t: int, a: int) -> float | None:
        if not self.here[t, a]:
            return None
        if t == 0 or not self.here[t - 1, a]:
            return 0.0
        (x, y), (u, v) = self.velocity(t, a), self.velocity(t - 1, a)
        return math.hypot(x - u, y - v) * RATE

    def others(self, t: int, a: int) -> list[float] | None:
        if not self.here[t, a]:
            return None
        return [math.dist(self.p[t, a], self.p[t, o]) for o in range(R) if o != a and self.here[t, o]]

    def row(self, t: int) -> list[float]:
        """The columns of a step, in the order of the catalogue."""
        pairs, out = [(0, 1), (0, 2), (1, 2)], []

        def say(value: float | bool | None) -> None:
            out.append(0.0 if value is None else float(value))

        for a, b in pairs:
            for width in (1, 3):
                known = self.dist(a, b)(t) is not None
                seen = self.window(self.dist(a, b), t, width) if known else []
                for k in (2, 4):
                    say(known and all(d < k for d in seen))
                for k in (2, 4):
                    say(known and all(d >= k for d in seen))
        for a, b in pairs:
            d = self.dist(a, b)(t)
            say(None if d is None else not d < 3)
        for a in range(R):
            for kind, width in (("any", 3), ("mean", 2)):
                for lag in (0, 2):
                    f = self.speed(a)
                    if f(t) is None:
                        out += [0.0] * 4
                        continue
                    seen = self.window(f, max(t - lag, self.first(f, t)), width)
                    mean = sum(seen) / len(seen)
                    out += [float(min(seen) < k if kind == "any" else mean < k) for k in (3, 9)]
                    out += [float(max(seen) > k if kind == "any" else mean > k) for k in (3, 9)]
        for a, b in pairs:
            f = self.dist(a, b)
            changed = None if f(t) is None else f(t) - self.ago(f, t, 2)  # type: ignore[operator]
            say(changed)
            say(None if changed is None else changed**2)
        for made in (
            lambda near: sum(d < 3 for d in near),
            lambda near: all(d > 1 for d in near),
            lambda near: any(d > 4 for d in near),
        ):
            for a in range(R):
                near = self.others(t, a)
                say(None if near is None else made(near))
        for a in range(R):

            def closest(u: int, a: int = a) -> float | None:
                near = self.others(u, a)
                return min(near) if near else None

            say(None if closest(t) is None else min(self.window(closest, t, 3)))
        xs = [self.p[t, o, 0] for o in range(R) if self.here[t, o]]
        say(sum(xs) / len(xs) + sum(xs) if xs else None)
        for k in range(R):
            there = [j for j in range(R) if j != k and self.here[t, j]]
            if not self.here[t, k] or not there:
                say(None)
                continue
            j = min(there, key=lambda j: math.dist(self.p[t, k], self.p[t, j]))
            say(float(np.dot(self.p[t, j] - self.p[t, k], self.velocity(t, k))))
        for a in range(R):
            say(self.here[t, a])
            say(self.here[max(t - 1, 0), a])
        for a in range(R):
            say(self.jolt(t, a))
        for a in range(R):
            f = self.speed(a)
            say(None if f(t) is None else sum(self.window(f, t, 3)) / len(self.window(f, t, 3)))
        for a in range(R):
            say(self.charge[t, a] + self.clock[max(t - 1, 0)] if self.here[t, a] else None)
        return out


def catalogue() -> Catalogue:
    spec = Specification.parse(TEXT)
    return spec.expand(labels=2, agents=R, channels=["clock"], agent_channels=["charge"])


def test_columns_scores_and_streams_are_those_of_a_slow_program(body: str) -> None:
    games = [made(seed, length) for seed, length in ((0, 60), (1, 1), (2, 45))]
    positions, present, clocks, charges = (list(part) for part in zip(*games, strict=True))
    played = Recordings.of(
        positions, rate=RATE, present=present, channels={"clock": clocks}, agent_channels={"charge": charges}
    )
    words = catalogue()
    columns = words.on(played)
    everything = np.arange(words.n_columns)
    found = columns.chunk(everything)
    slow = np.concatenate([[Slow(*game).row(t) for t in range(len(game[0]))] for game in games])
    assert found.shape == slow.shape
    for k in everything:
        np.testing.assert_allclose(found[:, k], slow[:, k], atol=1e-12, err_msg=words.column_name(int(k)))
    assert 0.1 < (~np.concatenate(present)).mean() < 0.6
    node, edge = gradients(columns)
    assert np.abs(columns.scores(node, edge) - by_columns(columns, node, edge)).max() < 1e-9
    stream, at = words.stream(everything, rate=RATE), 0
    for game in games:
        stream.reset()
        for t, (place, here) in enumerate(zip(game[0], game[1], strict=True)):
            if t == 30:  # carried over in the middle
                stream = words.stream(everything, rate=RATE).restore(json.loads(json.dumps(stream.state())))
            row = stream.push(
                place, present=here, channels={"clock": game[2][t]}, agent_channels={"charge": game[3][t]}
            )
            np.testing.assert_allclose(row, found[at], atol=1e-12)
            at += 1


def test_whoever_is_always_there_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    positions, charge, clock = rng.normal(size=(30, R, 2)), rng.normal(size=(30, R)), rng.normal(size=30)
    more = {"rate": RATE, "channels": {"clock": clock}, "agent_channels": {"charge": charge}}
    words = catalogue()
    everything = np.arange(words.n_columns)
    plain = words.on(Recordings.of(positions, **more)).chunk(everything)  # type: ignore[arg-type]
    full = Recordings.of(positions, present=np.ones((30, R), bool), **more)  # type: ignore[arg-type]
    assert np.array_equal(words.on(full).chunk(everything), plain)


def test_a_model_of_tracks_and_its_stream(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import crfield

    spec = Specification.parse("near state : dist(a,b) | for a in robots, b in robots | where a < b | test < 1:6:1")
    parts = []
    for seed in range(6):
        positions, present, _, _ = made(seed, 60)
        labels = np.where(
            np.nan_to_num(np.linalg.norm(positions[:, 0] - positions[:, 1], axis=1), nan=9.0) < 3, "in", "out"
        )
        parts.append((positions, present, labels))
    tracks = Tracks(
        np.concatenate([p for p, _, _ in parts]),
        np.concatenate([here for _, here, _ in parts]),
        np.arange(360) / RATE,
        (60,) * 6,
        ("0", "1", "2"),
        ("x", "y"),
        RATE,
        np.concatenate([y for _, _, y in parts]).astype(object),
    )
    model = SelectedCRF(features=spec.expand(labels=2, agents=tracks.agents), method="grafting", refit_l2=1.0)
    model.fit(tracks, tracks.y)
    assert model.score(tracks, tracks.y) > 0.9
    model.save(tmp_path / "near.crfield")
    again = crfield.load(tmp_path / "near.crfield")
    assert np.array_equal(again.predict(tracks)[2], model.predict(list(tracks))[2])
    stream = again.stream()
    for place, here in zip(tracks.places[0], tracks.presences[0], strict=True):
        step = stream.push(place, present=here)
    assert step.label in ("in", "out")


def test_what_cannot_be() -> None:
    positions, present, _, _ = made(0, 20)
    near = Specification.parse("near state : dist(a,b) | for a in robots, b in robots | where a < b").expand(
        labels=2, agents=R
    )
    with pytest.raises(FeatureError, match="present="):
        near.on(positions)
    with pytest.raises(ShapeError, match="present must be"):
        Recordings.of(positions, present=present[:, :2])
    with pytest.raises(FeatureError, match="NaN"):
        Recordings.of(positions, present=np.ones_like(present))
    with pytest.raises(ShapeError, match="each of 3 agents"):
        near.stream([0]).push(np.zeros((3, 2)), present=[True])
