"""Sensors of different clocks on common steps: windows, splits and reports are those of a slow program."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import SensorFeatures, align
from crfield.data.gaps import resampled
from crfield.data.timed_frames import TimedFrame, parse_timed
from crfield.errors import DataWarning, InputError

HOP, RATES = 0.5, {"acc": 50.0, "gps": 1.0, "heart": 4.0}


def frame(name: str, seconds: np.ndarray, seed: int, width: int, labels: bool = False) -> TimedFrame:
    values = np.random.default_rng(seed).normal(size=(len(seconds), width))
    words = np.array([f"part {int(t // 7)}" for t in seconds], dtype=object) if labels else None
    return TimedFrame(name, seconds, values, tuple("xyz"[:width]), words)


def made(seed: int = 0) -> dict[str, TimedFrame]:
    """A fast sensor with a gap of 12 s and incomplete rows, a slow one that begins late, one that gives up early."""
    rng = np.random.default_rng(seed)
    acc = np.arange(0.0, 60.0, 0.02) + rng.uniform(0, 0.004, 3000)
    acc = acc[(acc < 20.3) | (acc > 32.1)]
    gps = np.arange(3.21, 75.0, 1.0) + rng.uniform(0, 0.05, 72)
    gps = np.delete(gps, [10, 40, 41, 42, 43, 44])  # one reading lost, and five in a row
    heart = np.arange(1.0, 48.0, 0.25)
    frames = {
        "acc": frame("acc", acc, 1, 3, labels=True),
        "gps": frame("gps", gps, 2, 2),
        "heart": frame("h", heart, 3, 1),
    }
    frames["acc"].values[100:110, 1] = np.nan
    return frames


class Slow:
    """The same, a reading and a step at a time."""

    def __init__(self, frames: dict[str, TimedFrame], required: list[str]) -> None:
        self.rows = {
            name: [
                (float(t), row, None if own.labels is None else own.labels[k])
                for k, (t, row) in enumerate(zip(own.seconds, own.values, strict=True))
                if not np.isnan(row).any()
            ]
            for name, own in frames.items()
        }
        self.runs = {name: self.run(name) for name in frames}
        heard = [(max(r[0] for r in combo), min(r[1] for r in combo)) for combo in self.combos(required)]
        self.heard = sorted(span for span in heard if span[1] > span[0])
        self.first = self.heard[0][0]

    def run(self, name: str) -> list[tuple[float, float]]:
        times = [t for t, _, _ in self.rows[name]]
        apart = sorted(b - a for a, b in pairwise(times))
        middle = len(apart) // 2
        period = apart[middle] if len(apart) % 2 else (apart[middle - 1] + apart[middle]) / 2
        runs, begin = [], times[0]
        for a, b in pairwise(times):
            if b - a > max(HOP, 3 * period):
                runs.append((begin, a + period))
                begin = b
        return [*runs, (begin, times[-1] + period)]

    def combos(self, names: list[str]) -> list[list[tuple[float, float]]]:
        found: list[list[tuple[float, float]]] = [[]]
        for name in names:
            found = [[*so_far, run] for so_far in found for run in self.runs[name]]
        return found

    def recordings(self) -> list[list[float]]:
        """Where the steps of each recording begin."""
        out: list[list[float]] = []
        before = None
        for k in range(200):
            low, high = self.first + k * HOP, self.first + (k + 1) * HOP
            inside = any(a <= low + 1e-9 and high <= b + 1e-9 for a, b in self.heard)
            if inside and before != k - 1:
                out.append([])
            if inside:
                out[-1].append(low)
                before = k
        return out

    def window(self, name: str, low: float) -> list[tuple[float, np.ndarray, Any]]:
        return [row for row in self.rows[name] if low - 1e-9 <= row[0] < low + HOP - 1e-9]


@pytest.mark.parametrize("required", [["acc", "gps", "heart"], ["acc", "gps"], ["acc"]])
def test_steps_windows_and_labels_are_those_of_a_slow_program(required: list[str]) -> None:
    frames = made()
    aligned, slow = align(frames, hop=HOP, required=required), Slow(frames, required)
    expected = slow.recordings()
    assert [one.times.round(6).tolist() for one in aligned] == [[round(t, 6) for t in own] for own in expected]
    assert len(expected) >= 2
    for one, steps in zip(aligned, expected, strict=True):
        for name in frames:
            for found, low in zip(one.windows(name), steps, strict=True):
                assert np.array_equal(
                    found, np.array([row for _, row, _ in slow.window(name, low)]).reshape(found.shape)
                )
        assert one.labels is not None
        for label, low in zip(one.labels, steps, strict=True):
            said = [label for _, _, label in slow.window("acc", low)]
            assert label == (max(dict.fromkeys(said), key=said.count) if said else None)


def test_the_report_accounts_for_all_time_and_rows() -> None:
    frames = made()
    aligned = align(frames, hop=HOP)
    report = aligned.report
    assert sum(report.steps) * HOP + report.dropped_seconds == pytest.approx(75.21 - 0.0, abs=0.1)
    for use in report.sensors:
        assert use.rows - use.unused == sum(int(one.counts(use.name).sum()) for one in aligned)
    assert report.sensors[0].incomplete == 10
    told = str(report)
    assert re.search(r"20\.\d+ to 32\.\d+ s \(1\d\.?\d* s\): no acc", told)
    assert re.search(r"no acc and no gps and no heart", told)
    assert "dropped" in repr(aligned)
    assert f"in {len(aligned)} recordings" in told


def test_samples_never_cross_a_gap_and_go_into_sensor_features() -> None:
    frames = made()
    aligned = align(frames, hop=HOP)
    X = aligned.samples(RATES)
    for one, own in zip(aligned, X, strict=True):
        for name, rate in RATES.items():
            grid = one.times[0] + np.arange(len(own[name])) / rate
            assert len(grid) == round(len(one) * HOP * rate)
            known = ~np.isnan(frames[name].values).any(axis=1)
            seconds, values = frames[name].seconds[known], frames[name].values[known]
            for t, row in zip(grid[:: max(len(grid) // 20, 1)], own[name][:: max(len(grid) // 20, 1)], strict=True):
                right = int(np.searchsorted(seconds, t, side="right"))
                a, b = max(right - 1, 0), min(right, len(seconds) - 1)
                share = (
                    0.0 if a == b or seconds[b] - seconds[a] > 3.5 else (t - seconds[a]) / (seconds[b] - seconds[a])
                )
                np.testing.assert_allclose(row, values[a] + share * (values[b] - values[a]), atol=1e-9)
    features = SensorFeatures(sensors=RATES, hop=HOP, measures=["mean"]).fit(X)
    assert (
        [len(rows) for rows in features.transform(X)] == [len(one) for one in aligned] == [len(y) for y in aligned.y]
    )
    optional = align(frames, hop=HOP, required=["acc"])
    assert np.isnan(optional.samples({"gps": 1.0})[0]["gps"][0]).all()
    assert np.isfinite(optional.samples({"gps": 1.0}, fill=0.0, how="hold")[0]["gps"]).all()


def test_dates_meet_on_the_wall_clock() -> None:
    one = parse_timed("t,x\n" + "".join(f"2024-03-01T10:00:{s:02d},1\n" for s in range(10)), time="t")[0]
    two = parse_timed("t,x\n" + "".join(f"2024-03-01T10:00:{s:02d},2\n" for s in range(5, 20)), time="t")[0]
    aligned = align({"one": one, "two": two}, hop=1.0)
    assert aligned[0].times.tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert len(align({"one": one, "two": two}, hop=1.0, on="start")[0]) == 10
    moments = np.datetime64("2024-03-01T10:00:05") + np.arange(15).astype("timedelta64[s]")
    (three,) = crfield.data.timed_frames.frames_of({"t": moments, "x": np.ones(15)}, time="t")
    assert three.epoch == two.epoch
    with pytest.raises(InputError, match="no clock in common"):
        align({"one": one, "acc": made()["acc"]})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hop": 0.0}, "hop"),
        ({"on": "day"}, "on must be"),
        ({"required": ["gyro"]}, "required"),
        ({"required": []}, "required"),
        ({"longest_gap": {"gyro": 1.0}}, "no sensors"),
        ({"longest_gap": {"gps": 0.1}}, "at least"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        align(made(), **options)


def test_other_things_that_cannot_be() -> None:
    with pytest.raises(InputError, match="TimedFrame"):
        align({"acc": np.zeros((3, 3))})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="at least one"):
        align({})
    empty = align({"a": frame("a", np.arange(5.0), 0, 1), "b": frame("b", np.arange(50.0, 55.0), 0, 1)})
    assert (len(empty), empty.report.dropped_seconds) == (0, 55.0)
    assert "0 steps" in str(empty.report)


# ------------------------------------------------------------------------------------- what used to go wrong


def test_sensors_of_different_length_are_told_of() -> None:
    """60 s of one sensor and 8 s of another used to become 8 steps without a word."""
    X = [{"acc": np.zeros((3000, 3)), "gps": np.zeros((8, 2))}]
    features = SensorFeatures(sensors={"acc": 50.0, "gps": 1.0}, measures=["mean"]).fit(X)
    with pytest.warns(DataWarning, match=r"acc 60 s, gps 8 s\), so 52 of 60 steps are lost.*crfield\.align"):
        assert len(features.transform(X)[0]) == 8
    features.transform(
        [{"acc": np.zeros((3000, 3)), "gps": np.zeros((59, 2))}]
    )  # a step at the end is nobody's fault


def test_a_column_that_is_silent_splits_a_recording() -> None:
    """One file of two sensors: a gap of 12 s in one column was bridged by a line, or refused."""
    seconds = np.arange(0.0, 40.0, 0.5)
    values = np.column_stack([seconds, np.where(np.arange(80) % 2 == 0, seconds, np.nan)])
    values[(seconds > 10.0) & (seconds < 22.0), 0] = np.nan
    parts = resampled(TimedFrame("r", seconds, values, ("x", "lat")), 2.0, gaps="split", longest_gap=1.0)
    assert [(part.seconds[0], part.seconds[-1]) for part in parts] == [(0.0, 10.0), (22.0, 39.5)]
    late = np.delete(np.arange(80), np.arange(21, 79))  # after the gap a single row, which lacks the second column
    parts = resampled(TimedFrame("r", seconds[late], values[late], ("x", "lat")), 2.0, gaps="split")
    assert [(part.seconds[0], part.seconds[-1]) for part in parts] == [(0.0, 10.0)]
    (whole,) = resampled(TimedFrame("r", seconds, values, ("x", "lat")), 2.0, gaps="fill")
    assert len(whole) == 80
