"""Frames to sequences and back: pandas, polars, a dict of lists, and a stand-in with nothing but columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, from_frame, to_frame
from crfield.errors import FeatureError, InputError, ShapeError

TABLE: dict[str, list[Any]] = {
    "doc": ["a", "a", "a", "b", "b"],
    "sent": [1, 1, 2, 1, 1],
    "word": ["He", "runs", "Stop", "She", None],
    "size": [2.0, 4.0, None, 3.0, 1.0],
    "tag": ["P", "V", None, "P", "V"],
}


class Bare:
    """What a frame must have, and no more."""

    def __init__(self, table: dict[str, list[Any]]) -> None:
        self.table, self.columns = table, list(table)

    def __getitem__(self, name: str) -> list[Any]:
        return self.table[name]


def make(kind: str, table: dict[str, list[Any]]) -> Any:
    if kind == "dict":
        return dict(table)
    if kind == "bare":
        return Bare(table)
    library = pytest.importorskip(kind, reason=f"{kind} is not installed")
    return library.DataFrame(table)


every_kind = pytest.mark.parametrize("kind", ["dict", "bare", "pandas", "polars"])


def column(frame: Any, name: str) -> list[Any]:
    values = frame[name]
    return values.to_list() if hasattr(values, "to_list") else list(values)


@every_kind
def test_words_become_dicts_without_what_is_missing(kind: str) -> None:
    X, y = from_frame(make(kind, TABLE), sequence=["doc", "sent"], label="tag")
    assert X == [
        [{"word": "He", "size": 2.0}, {"word": "runs", "size": 4.0}],
        [{"word": "Stop"}],
        [{"word": "She", "size": 3.0}, {"size": 1.0}],
    ]
    assert y == [["P", "V"], [None], ["P", "V"]]
    assert len(ChainCRF().fit(X, y).predict(X)) == 3


@every_kind
def test_numbers_become_arrays(kind: str) -> None:
    table = {"run": ["x", "x", "y"], "a": [1, 2, 3], "flag": [True, False, True], "b": [0.5, None, 1.5]}
    X, y = from_frame(make(kind, table), sequence="run")
    assert y is None
    np.testing.assert_array_equal(X[0], [[1.0, 1.0, 0.5], [2.0, 0.0, np.nan]])
    np.testing.assert_array_equal(X[1], [[3.0, 1.0, 1.5]])
    assert all(x.dtype == np.float64 for x in X)


@every_kind
def test_time_sorts_the_rows_of_each_sequence(kind: str) -> None:
    table = {"who": ["b", "a", "b", "a"], "at": [2, 20, 1, 10], "value": [1.0, 2.0, 3.0, 4.0], "tag": list("wxyz")}
    X, y = from_frame(make(kind, table), sequence="who", label="tag", time="at")
    assert [x.ravel().tolist() for x in X] == [[3.0, 1.0], [4.0, 2.0]]
    assert y == [["y", "w"], ["z", "x"]]
    if kind != "bare":
        back = to_frame(make(kind, table), y, sequence="who", time="at")
        assert column(back, "predicted") == column(back, "tag")


@every_kind
def test_a_sequence_that_is_torn_apart_is_an_error(kind: str) -> None:
    words = r"row 3: sequence 1 continues after another one began.*sequence=\['sent', …\].*time="
    with pytest.raises(InputError, match=words):
        from_frame(make(kind, TABLE), sequence="sent", label="tag")


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars"])
def test_answers_come_back_as_columns_of_the_same_kind(kind: str) -> None:
    frame = make(kind, TABLE)
    X, y = from_frame(frame, sequence=["doc", "sent"], label="tag")
    model = ChainCRF().fit(X, y)
    found = model.predict(X)
    back = to_frame(frame, found, sequence=["doc", "sent"])
    assert type(back) is type(frame)
    assert column(back, "predicted") == [label for labels in found for label in labels.tolist()]
    assert column(back, "word") == column(frame, "word") or kind == "pandas"
    assert "predicted" not in list(getattr(frame, "columns", frame))
    tables = to_frame(frame, model.predict_proba(X), sequence=["doc", "sent"], classes=model.classes_, name="p")
    sums = np.array(column(tables, "p_P")) + np.array(column(tables, "p_V"))
    np.testing.assert_allclose(sums, 1.0)
    assert column(tables, "p_P")[:2] == model.predict_proba(X)[0][:, 0].tolist()


def test_pandas_keeps_its_index_and_reads_its_own_kinds_of_missing() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(TABLE, index=[9, 7, 5, 3, 1]).astype({"word": "category", "size": "Float64"})
    X, y = from_frame(frame, sequence=["doc", "sent"], label="tag", features=["word", "size"])
    assert X[1:] == [[{"word": "Stop"}], [{"word": "She", "size": 3.0}, {"size": 1.0}]]
    assert y[1] == [None]
    assert to_frame(frame, y, sequence=["doc", "sent"]).index.tolist() == [9, 7, 5, 3, 1]
    when = frame.assign(
        when=pandas.to_datetime(["2020-01-02", "2020-01-01", "2020-01-03", "2020-01-05", "2020-01-04"])
    )
    X, _ = from_frame(when, sequence=["doc", "sent"], features=["word"], time="when")
    assert X[0] == [{"word": "runs"}, {"word": "He"}]
    with pytest.raises(FeatureError, match="row 0: the column 'when' holds Timestamp"):
        from_frame(when, sequence=["doc", "sent"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sequence": "sentence"}, "no column 'sentence'; it has doc, sent, word, size, tag"),
        ({"sequence": "doc", "label": "label"}, "no column 'label'"),
        ({"sequence": "doc", "features": ["size", "pos"]}, "no column 'pos'"),
        ({"sequence": "doc", "features": ["size", "tag"], "label": "tag"}, "'tag' holds the labels"),
        ({"sequence": []}, "sequence must name one column or several"),
        ({"sequence": ["doc", "doc"]}, "several different ones"),
        ({"sequence": "doc", "features": []}, "features must name one column"),
        ({"sequence": "doc", "time": "tag"}, "row 2: the column 'tag' must say when the step was, got None"),
        ({"sequence": "tag"}, "row 2: the column 'tag' must say which sequence it belongs to, got None"),
    ],
)
def test_what_cannot_be_read_is_told(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_frame(TABLE, **settings)


def test_nothing_left_for_features_and_odd_frames_are_told() -> None:
    with pytest.raises(InputError, match="no columns left for features"):
        from_frame({"a": [1]}, sequence="a")
    with pytest.raises(InputError, match="expected a frame of pandas or polars, or a dict of columns, got list"):
        from_frame([1, 2], sequence="a")
    with pytest.raises(ShapeError, match=r"different lengths: \[1, 2\]"):
        from_frame({"a": [1], "b": [1, 2]}, sequence="a")
    with pytest.raises(FeatureError, match=r"row 0: the column 'b' holds .* of type set"):
        from_frame({"a": [1, 1], "b": [{"x"}, {"y"}]}, sequence="a")
    with pytest.raises(InputError, match="cannot be added to a Bare"):
        to_frame(Bare({"a": [1]}), [["x"]], sequence="a")


def test_answers_for_other_rows_are_refused() -> None:
    with pytest.raises(
        ShapeError, match="the frame has 3 sequences, the answers are for 2, and they differ at number 2"
    ):
        to_frame(TABLE, [["P", "V"], ["P"]], sequence=["doc", "sent"])
    with pytest.raises(ShapeError, match="they differ at number 0"):
        to_frame(TABLE, [["P"], ["P"], ["P", "P"]], sequence=["doc", "sent"])


def test_an_empty_frame_has_no_sequences() -> None:
    empty: dict[str, list[Any]] = {"a": [], "b": []}
    assert from_frame(empty, sequence="a") == ([], None)
    assert to_frame(empty, [], sequence="a") == {"a": [], "b": [], "predicted": []}


def test_vectors_and_lists_are_features() -> None:
    X, _ = from_frame({"a": [1, 1], "v": [np.zeros(2), np.ones(2)], "w": [["x", "y"], []]}, sequence="a")
    assert X[0][1]["v"].tolist() == [1.0, 1.0]
    assert X[0][0]["w"] == ["x", "y"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_lists_of_frames(library: str) -> None:
    """A frame for each sequence goes through from_frame, and whoever forgets it is told."""
    made = pytest.importorskip(library).DataFrame
    frames = [
        made({"a": [0.1, 2.0], "b": [1.0, 0.0], "tag": ["x", "y"]}),
        made({"tag": ["y"], "a": [1.9], "b": [0.2]}),
    ]
    X, y = crfield.from_frame(frames, label="tag")
    assert [x.tolist() for x in X] == [[[0.1, 1.0], [2.0, 0.0]], [[1.9, 0.2]]]
    assert y == [["x", "y"], ["y"]]
    assert crfield.ChainCRF().fit(X, y).predict(X).shape == (2,)
    for given in (frames, frames[0]):
        for model in (crfield.ChainCRF(), crfield.HMM(), crfield.TreeCRF(), crfield.LatentDynamicCRF()):
            with pytest.raises(crfield.errors.FeatureError, match=r"crfield\.from_frame\("):
                model.fit(given, y)
    with pytest.raises(InputError, match="frame 1 has the columns"):
        crfield.from_frame([frames[0], frames[1][["a"]]])
    with pytest.raises(InputError, match="frame 1 has no rows"):
        crfield.from_frame([frames[0], frames[0][:0]])
    with pytest.raises(InputError, match="leave sequence= out"):
        crfield.from_frame(frames, sequence="a")
    with pytest.raises(InputError, match="tells the sequences of a frame apart"):
        crfield.from_frame(frames[0])
    with pytest.raises(InputError, match="no frames"):
        crfield.from_frame([])
