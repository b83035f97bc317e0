"""Token and sequence scores against scikit-learn on flattened labels, and at the edges."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from crfield.errors import LabelError, ShapeError
from crfield.metrics import confusion, label_f1, label_report, sequence_accuracy, token_accuracy

LABELS = ["a", "b", "c", "d"]
PAIRS = st.lists(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=6), max_size=5)


def apart(rows: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[g for g, _ in row] for row in rows], [[p for _, p in row] for row in rows]


@settings(deadline=None)
@given(PAIRS, st.sampled_from([None, ["a"], ["b", "z"], ["d", "a", "c"]]), st.sampled_from([0.0, 1.0]))
def test_equal_to_scikit_learn(
    rows: list[list[tuple[str, str]]], labels: list[str] | None, zero_division: float
) -> None:
    y_true, y_pred = apart(rows)
    gold, predicted = list(chain(*y_true)), list(chain(*y_pred))
    if not gold:
        return
    report = label_report(y_true, y_pred, labels=labels, zero_division=zero_division)
    assert report.accuracy == accuracy_score(gold, predicted) == token_accuracy(y_true, y_pred)
    names = labels or sorted({*gold, *predicted})
    assert [row.name for row in report.rows] == names
    options = {"labels": names, "zero_division": zero_division}
    each = np.array(precision_recall_fscore_support(gold, predicted, **options)).T
    mine = [(row.precision, row.recall, row.f1, row.support) for row in report.rows]
    np.testing.assert_allclose(mine, each.astype(float))
    for kind in ("micro", "macro", "weighted"):
        want = precision_recall_fscore_support(gold, predicted, average=kind, **options)[:3]
        row = getattr(report, kind)
        if kind == "weighted" and not row.support:
            continue  # a mean over no support: here zero_division, there version-dependent
        np.testing.assert_allclose((row.precision, row.recall, row.f1), want)
        assert (
            label_f1(y_true, y_pred, average=kind, labels=labels, zero_division=zero_division)
            == getattr(report, kind).f1
        )
    if len(names) > 1 and set(names) & {*gold}:
        table = confusion(y_true, y_pred, labels=labels)
        np.testing.assert_array_equal(table.matrix, confusion_matrix(gold, predicted, labels=names))


@given(PAIRS)
def test_sequence_accuracy_is_all_or_nothing(rows: list[list[tuple[str, str]]]) -> None:
    judged = [row for row in rows if row]
    right = sum(all(g == p for g, p in row) for row in judged)
    assert sequence_accuracy(*apart(rows)) == (right / len(judged) if judged else 0.0)


def test_unknown_gold_steps_are_not_judged() -> None:
    y_true = [["a", None, "b"], [None], ["b"]]
    y_pred = [["a", "b", "a"], ["a"], ["b"]]
    assert token_accuracy(y_true, y_pred) == 2 / 3
    assert label_report(y_true, y_pred).n_tokens == 3
    assert label_report(y_true, y_pred)["b"].predicted == 1
    assert confusion(y_true, y_pred).matrix.sum() == 3
    assert sequence_accuracy(y_true, y_pred) == 0.5
    assert sequence_accuracy([["a", None]], [["a", "b"]]) == 1.0
    with pytest.raises(LabelError, match="y_pred is None at sequence 1, step 0, where y_true is 'b'"):
        token_accuracy([["a"], ["b"]], [["a"], [None]])
    assert token_accuracy([["a", None]], [["a", None]]) == 1.0


def test_containers_and_labels_of_all_sorts() -> None:
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.array(["a", "b"]), np.array(["b"])]
    assert token_accuracy([("a", "a"), ["b"]], ragged) == 2 / 3
    assert token_accuracy(np.array([[1, 2], [2, 2]]), [[1, 2], [2, 1]]) == 0.75
    assert token_accuracy(iter([iter("ab")]), [["a", "b"]]) == 1.0
    labels = label_report([[np.int64(3), (1, 2), "x", 10]], [[3, (1, 2), "x", 9]]).rows
    assert [row.name for row in labels] == [(1, 2), 10, 3, 9, "x"]
    assert type(labels[2].name) is int
    assert [row.name for row in label_report([[10, 9]], [[10, 9]]).rows] == [9, 10]


def test_nothing_to_judge() -> None:
    for y in ([], [[]], [[None]]):
        prediction = [["a"] * len(row) for row in y]
        assert token_accuracy(y, prediction) == sequence_accuracy(y, prediction) == 0.0
        assert token_accuracy(y, prediction, zero_division=1.0) == 1.0
        report = label_report(y, prediction)
        assert (report.n_tokens, report.micro.f1, report.macro.f1, report.weighted.f1) == (0, 0.0, 0.0, 0.0)
        generous = label_report(y, prediction, zero_division=1.0)
        assert (generous.accuracy, generous.micro.f1, generous.macro.f1, generous.weighted.f1) == (1.0,) * 4
        assert confusion(y, prediction).matrix.sum() == 0
        str(report), str(confusion(y, prediction))


def test_refusals_say_where() -> None:
    with pytest.raises(ShapeError, match="sequence 1: y_true has 1 labels but y_pred has 2"):
        token_accuracy([["a"], ["a"]], [["a"], ["a", "b"]])
    with pytest.raises(ShapeError, match="y_true holds 2 sequences but y_pred holds 1"):
        sequence_accuracy([["a"], ["a"]], [["a"]])
    with pytest.raises(ShapeError, match=r"y_true\[0\] must be a sequence of labels, got 'a'.*\[y_true\]"):
        token_accuracy(["a", "b"], ["a", "b"])
    with pytest.raises(ShapeError, match=r"y_pred\[0\].*got .*1"):
        token_accuracy([[1, 2]], np.array([1, 2]))
    with pytest.raises(ShapeError, match="got str"):
        token_accuracy("ab", "ab")
    with pytest.raises(ShapeError, match="got int"):
        token_accuracy(3, [["a"]])
    with pytest.raises(LabelError, match=r"y_true\[1\]\[0\] must be one hashable label, got \{'a'\}"):
        token_accuracy([["a"], [{"a"}]], [["a"], ["a"]])
    with pytest.raises(LabelError, match=r"y_true\[0\]\[1\] must be one hashable label, got \(1, \[\]\)"):
        token_accuracy([["a", (1, [])]], [["a", "a"]])
    with pytest.raises(LabelError, match="NaN"):
        token_accuracy([[float("nan")]], [[1.0]])
    with pytest.raises(LabelError, match="twice"):
        label_report([["a"]], [["a"]], labels=["a", "a"])
    with pytest.raises(LabelError, match=r"write \['a'\]"):
        label_report([["a"]], [["a"]], labels="a")
    with pytest.raises(LabelError, match="no label 'z'"):
        label_report([["a"]], [["a"]])["z"]


def test_most_confused_and_texts() -> None:
    y_true, y_pred = [["a", "a", "b", "b", "b", "c"]], [["b", "a", "a", "a", "c", "c"]]
    table = confusion(y_true, y_pred)
    assert table.most_confused() == [("b", "a", 2), ("a", "b", 1), ("b", "c", 1)]
    assert table.most_confused(1) == [("b", "a", 2)]
    assert table.most_confused(0) == []
    assert str(table).splitlines()[2].split() == ["b", "2", ".", "1"]
    assert len({len(line) for line in str(table).splitlines()}) == 1
    large = confusion([["long label"] * 1234 + [7]], [["long label"] * 1234 + ["long label"]])
    assert str(large).splitlines()[2].split() == ["long", "label", ".", "1,234"]
    data = json.loads(json.dumps(label_report([["1", 1]], [["1", 1]]).to_dict()))
    assert list(data["labels"]) == ["1", "'1'"]
    assert json.loads(json.dumps(table.to_dict()))["matrix"][1] == [2, 0, 1]
