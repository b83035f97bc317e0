"""Recordings with time stamps: CSV, frames, units, gaps; and folds by group, with a timeline of what came out."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, GroupKFold

from crfield import ChainCRF
from crfield.data.gaps import gap_places, resampled, split_at_gaps
from crfield.data.timed_frames import TimedFrame, frames_of, join_frames, parse_timed
from crfield.errors import FormatError, InputError, ShapeError
from crfield.estimators.tuning.group_folds import predict_by_group
from crfield.report.displays.timeline import plot_timeline
from crfield.storage.datasets.recordings import read_chest, read_recordings

TEXT = "time,x,y,who,what\n0.00,1,2,ann,sit\n0.02,1.5,,ann,sit\n5.0,3,4,bob,\n0.04,2,3,ann,walk\n"


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table, self.columns = table, list(table)

    def __getitem__(self, name: str) -> Any:
        return self._table[name]


def test_a_table_of_two_people() -> None:
    ann, bob = parse_timed(TEXT, time="time", label="what", recording="who")
    assert (ann.name, bob.name, ann.columns) == ("ann", "bob", ("x", "y"))
    assert ann.seconds.tolist() == [0.0, 0.02, 0.04]
    assert np.isnan(ann.values[1, 1])
    assert ann.labels is not None
    assert bob.labels is not None
    assert (ann.labels.tolist(), bob.labels.tolist()) == (["sit", "sit", "walk"], [None])


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_marks_and_line_ends(separator: str) -> None:
    text = "\ufeff" + TEXT.replace(",", separator).replace("\n", "\r\n") + "\r\n"
    assert len(parse_timed(text, time="time", label="what", recording="who")) == 2


def test_numbered_columns_without_a_header() -> None:
    frame = parse_timed("0,1,2,7\n10,3,4,8\n", label=3, unit="ms")[0]
    assert frame.seconds.tolist() == [0.0, 0.01]
    assert frame.values.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert frame.labels is not None
    assert frame.labels.tolist() == ["7", "8"]


def test_rows_are_sorted_by_time_and_equal_times_keep_their_order() -> None:
    frame = parse_timed("t,x\n2,1\n1,2\n1,3\n", time="t")[0]
    assert frame.values[:, 0].tolist() == [2.0, 3.0, 1.0]


def test_dates() -> None:
    text = "t,x\n2024-03-01T10:00:00,1\n2024-03-01T10:00:00.500,2\n2024-03-01 10:01:00,3\n"
    assert parse_timed(text, time="t")[0].seconds == pytest.approx([0.0, 0.5, 60.0])
    moments = np.array(["2024-03-01T10:00:00", "2024-03-01T10:00:02"], dtype="datetime64[ns]")
    assert frames_of({"t": moments, "x": [1, 2]}, time="t")[0].seconds.tolist() == [0.0, 2.0]
    assert datetime.fromisoformat("2024-03-01").year == 2024


def test_frames_need_no_pandas() -> None:
    table = {"t": np.array([0.0, 1.0]), "x": np.array([1.0, np.inf]), "what": np.array(["a", None], dtype=object)}
    for frame in (Frame(table), table):
        found = frames_of(frame, time="t", label="what")[0]
        assert np.isnan(found.values[1, 0])
        assert found.labels is not None
        assert found.labels.tolist() == ["a", None]
    assert join_frames([found])[0][0].shape == (2, 1)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("t,x\n0,1\n1\n", {}, "line 3: expected 2 cells"),
        ("t,x\n0,1\nsoon,2\n", {"time": "t"}, "line 3: expected a time"),
        ("t,x\n0,1\n1,fast\n", {"time": "t"}, "line 3: expected a number in column 'x'"),
        ("t,x\n0,1\n", {"time": "when"}, "no column 'when'; there are t, x"),
        ("t,t\n0,1\n", {"time": "t"}, "names must differ"),
        ("t,x\n0,1\n", {"time": "t", "unit": "h"}, "unit must be"),
    ],
    ids=["cells", "time", "number", "column", "twice", "unit"],
)
def test_mistakes_in_a_file_are_named(text: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_timed(text, **options)


def test_other_mistakes() -> None:
    assert parse_timed("") == []
    with pytest.raises(InputError, match="frame with columns"):
        frames_of(3, time="t")
    with pytest.raises(ShapeError, match="equally long"):
        frames_of({"t": [0.0, 1.0], "x": [1.0]}, time="t")
    with pytest.raises(InputError, match="never fall"):
        TimedFrame("a", np.array([1.0, 0.0]), np.zeros((2, 1)), ("x",))


# ---------------------------------------------------------------------------------------------------------- gaps


def uneven(labels: bool = True) -> TimedFrame:
    seconds = np.array([0.0, 0.1, 0.35, 0.5, 4.0, 4.2, 4.4])
    words = np.array(["a", "a", "b", "b", "c", "c", "c"], dtype=object)
    return TimedFrame("r", seconds, 10.0 * seconds[:, None], ("x",), words if labels else None)


def test_a_gap_splits() -> None:
    assert gap_places(uneven().seconds, 1.0).tolist() == [4]
    assert [len(part) for part in split_at_gaps(uneven())] == [4, 3]
    parts = resampled(uneven(), 10.0)
    assert [part.seconds.round(6).tolist() for part in parts] == [
        [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
        [4.0, 4.1, 4.2, 4.3, 4.4],
    ]
    for part in parts:
        assert part.values[:, 0] == pytest.approx(10.0 * part.seconds)
    assert parts[0].labels is not None
    assert parts[0].labels.tolist() == ["a", "a", "a", "a", "b", "b"]


def test_a_gap_is_filled_without_labels() -> None:
    (part,) = resampled(uneven(), 2.0, gaps="fill")
    assert part.seconds.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    assert part.values[:, 0] == pytest.approx(10.0 * part.seconds)
    assert part.labels is not None
    assert part.labels.tolist() == ["a", "b", None, None, None, None, None, None, "c"]
    held = resampled(uneven(labels=False), 2.0, gaps="fill", how="hold")[0]
    assert held.labels is None
    assert held.values[:, 0].tolist() == [0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 40.0]


def test_means_on_a_coarse_grid() -> None:
    (part,) = resampled(uneven(), 1.0, gaps="fill", how="mean")
    assert part.values[0, 0] == pytest.approx(10.0 * np.mean([0.0, 0.1, 0.35]))


def test_missing_readings_are_bridged_and_missing_columns_are_not() -> None:
    frame = TimedFrame(
        "r", np.arange(4.0), np.array([[0.0, np.nan], [np.nan, np.nan], [2.0, 5.0], [3.0, 5.0]]), ("x", "y")
    )
    assert resampled(frame, 1.0)[0].values.tolist() == [[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
    with pytest.raises(InputError, match="no reading of 'y' from 0 to 1 s"):
        resampled(frame.part(0, 2), 1.0)
    assert resampled(frame.part(0, 2), 1.0, fill=7.0)[0].values[:, 1].tolist() == [7.0, 7.0]


def test_empty_and_single_rows() -> None:
    assert resampled(uneven().part(0, 0), 10.0) == []
    assert resampled(uneven().part(0, 0), 10.0, gaps="fill") == []
    assert resampled(uneven().part(2, 3), 10.0)[0].values.tolist() == [[3.5]]


@pytest.mark.parametrize(
    "options", [{"gaps": "drop"}, {"how": "cubic"}, {"longest_gap": 0.0}, {"rate": -1.0}], ids=str
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        resampled(uneven(), **{"rate": 10.0, **options})


# --------------------------------------------------------------------------------------------------------- files


def test_files(tmp_path: Path) -> None:
    (tmp_path / "ann.csv").write_text("t,x\n0,1\n")
    (tmp_path / "bob.csv").write_text("t,x\n0,2\n")
    frames = read_recordings([tmp_path / "ann.csv", str(tmp_path / "bob.csv")], time="t")
    assert [frame.name for frame in frames] == ["ann", "bob"]
    with pytest.raises(FormatError, match=r"ann\.csv"):
        read_recordings(tmp_path / "ann.csv", time="when")
    assert len(read_recordings(io.StringIO(TEXT), time="time", label="what", recording="who")) == 2


def test_chest_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "chest_acc_01.npz", xyz=np.ones((3, 3), np.int16), label=np.array([1, 7, 0]))
    (frame,) = read_chest(tmp_path, people=[1])
    assert frame.labels is not None
    assert frame.labels.tolist() == ["computer", "talk, standing", None]
    np.savez(tmp_path / "chest_acc_02.npz", xyz=np.ones((3, 3)), label=np.array([1, 9, 0]))
    (tmp_path / "chest_acc_03.npz").write_bytes(b"PK nothing")
    for person in (2, 3):
        with pytest.raises(FormatError, match=f"chest_acc_0{person}"):
            read_chest(tmp_path, people=[person])


# --------------------------------------------------------------------------------------------------------- folds


def people() -> tuple[list[np.ndarray], list[list[str]], list[str]]:
    rng = np.random.default_rng(0)
    y = [["a"] * 6 + ["b"] * 6 for _ in range(6)]
    X = [rng.normal(size=(12, 1)) + np.array([[0.0]] * 6 + [[3.0]] * 6) for _ in y]
    return X, y, ["ann", "ann", "bob", "bob", "cy", "cy"]


def test_no_group_is_in_its_own_training_data() -> None:
    X, y, groups = people()
    met: list[set[float]] = []

    class Spy(ChainCRF):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            met.append({float(x[0, 0]) for x in X})
            return super().fit(X, y, sample_weight)

    found = predict_by_group(Spy(), X, y, groups)
    assert len(met) == 3
    for k, name in enumerate(["ann", "bob", "cy"]):
        own = {float(x[0, 0]) for x, group in zip(X, groups, strict=True) if group == name}
        assert not own & met[k]
    assert found.scores()["macro F1"]["ann"] > 0.7
    assert "mean" in str(found)
    assert found.segments().gold == 12


def test_a_search_gets_the_groups() -> None:
    X, y, groups = people()
    search = GridSearchCV(ChainCRF(), {"l2": [0.1, 1.0]}, cv=GroupKFold(2))
    found = predict_by_group(search, X, y, groups, folds=3, random_state=1)
    assert all(set(chosen) == {"l2"} for chosen in found.chosen)
    assert all(labels is not None for labels in found.predicted)


def test_folds_that_cannot_be() -> None:
    X, y, groups = people()
    with pytest.raises(InputError, match="folds must lie in 2 … 3"):
        predict_by_group(ChainCRF(), X, y, groups, folds=4)
    with pytest.raises(InputError, match="equally long"):
        predict_by_group(ChainCRF(), X, y, groups[1:])


def test_a_timeline_shows_truth_above_predictions() -> None:
    truth, said = ["a", "a", None, "b"], ["a", "b", "b", "b"]
    figure = plot_timeline(truth, {"one": said, "two": said}, probability=np.full((4, 2), 0.5), seconds=2.0)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["truth", "one", "two"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.get_xlim() == (0.0, 8.0)
    bars = [(p.get_x(), p.get_width()) for p in axes.patches if p.get_y() < 0.0]
    assert bars == [(0.0, 4.0), (6.0, 2.0)]  # the unknown step stays white
    with pytest.raises(ShapeError, match="'predicted' has 3 steps"):
        plot_timeline(truth, said[:3])
    with pytest.raises(InputError, match="no steps"):
        plot_timeline([], [])


def test_the_legend_of_a_timeline_has_the_colours_of_the_bars() -> None:
    for n in (2, 10, 15, 30):
        names = [f"label {k}" for k in range(n)]
        axes = plot_timeline(names, names[::-1]).axes[0]
        legend = axes.get_legend()
        shown = {
            text.get_text(): handle.get_facecolor()
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
        }
        bars = {round(p.get_x()): p.get_facecolor() for p in axes.patches if p.get_y() < 0.0}
        assert [shown[name] for name in sorted(names)] == [bars[names.index(name)] for name in sorted(names)]
        assert len(set(shown.values())) == n


def test_a_timeline_shows_labels_as_they_are() -> None:
    names = ["_hidden", "$x^", "\x1b[31m", "[red]"]
    figure = plot_timeline(names, names)
    figure.savefig(io.BytesIO(), format="png")
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert len(texts) == 4
    assert not any("\x1b" in text for text in texts)


def test_a_timeline_of_several_sequences_has_a_panel_for_each() -> None:
    truth, said = [["a", "a", "b"], ["b", "c"]], [np.array(["a", "b", "b"]), np.array(["b", "b"])]
    figure = plot_timeline(truth, {"one": said, "two": said}, title="days")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["days: sequence 0", "days: sequence 1"]
    assert [axes.get_xlim() for axes in figure.axes] == [(0.0, 3.0), (0.0, 2.0)]
    of_b = [{p.get_facecolor() for p in axes.patches if p.get_y() < 0} for axes in figure.axes]
    assert len(of_b[0] & of_b[1]) == 1  # the label that both have has one colour in both
    tables = [np.full((3, 3), 0.3), np.full((2, 3), 0.3)]
    assert len(plot_timeline(truth, said, probability=tables, seconds=[[0.0, 1.0, 4.0], 2.0]).axes) == 4
    with pytest.raises(ShapeError, match="'predicted' has 1 sequences, the truth has 2"):
        plot_timeline(truth, said[:1])
    with pytest.raises(ShapeError, match="sequence 1 of 'predicted' has 1 steps, the truth has 2"):
        plot_timeline(truth, [said[0], said[1][:1]])
    with pytest.raises(InputError, match="holds sequences of labels"):
        plot_timeline(truth[0], said)
    with pytest.raises(InputError, match="sequence 0 of 'predicted' is 'a', expected the labels"):
        plot_timeline(truth, ["a", "b"])
    with pytest.raises(InputError, match="sequence 1 of 'truth' has no steps"):
        plot_timeline([["a"], []], [["a"], []])
    with pytest.raises(InputError, match="60 sequences cannot be drawn"):
        plot_timeline([["a"]] * 60, [["a"]] * 60)
    with pytest.raises(InputError, match="cannot be a label"):
        plot_timeline([{}, {}], ["a", "b"])
