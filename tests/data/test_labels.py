"""Labels and their codes: any hashable, unknown and partly known steps, lists and arrays, exact in JSON."""

from __future__ import annotations

import enum
import json
from collections import namedtuple
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import LabelError, ModelFileError, NotFittedError, ShapeError

labels = st.recursive(
    st.text(st.characters(codec=None), max_size=3)
    | st.integers()
    | st.integers(2**52, 2**54)
    | st.booleans()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner | st.none(), max_size=3).map(tuple),
    max_leaves=5,
)


def exactly(label: Any) -> Any:
    """A value that tells 1 from 1.0 from True and 0.0 from −0.0."""
    if isinstance(label, tuple):
        return tuple(exactly(part) for part in label)
    return type(label), repr(label)


@settings(max_examples=200, deadline=None)
@given(labels)
def test_labels_return_from_json_exactly(label: Any) -> None:
    text = json.dumps(label_to_json(label), ensure_ascii=False)
    assert exactly(label_from_json(json.loads(text))) == exactly(label)


def test_numbers_without_an_end_return_from_json() -> None:
    for label in (float("inf"), float("-inf"), -0.0, 5e-324, 10**5000, -(10**5000), 2**53 + 1):
        again = label_from_json(json.loads(json.dumps(label_to_json(label), allow_nan=False)))
        assert type(again) is type(label)
        assert again == label
    assert str(label_from_json(label_to_json(-0.0))) == "-0.0"
    assert LabelCoder().fit([[10**5000, 1]]).labels == [1, 10**5000]


class Colour(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    THE = "the"


@pytest.mark.parametrize(
    "label",
    [Colour.RED, Word.THE, namedtuple("Point", "x")(1), b"x", frozenset({1}), object(), ("a", Word.THE)],
)
def test_labels_without_a_spelling_are_refused_when_saved(label: Any) -> None:
    with pytest.raises(LabelError, match="cannot be written to a model file"):
        label_to_json(label)


def test_deep_tuples_are_refused_both_ways() -> None:
    label: Any = ()
    for _ in range(5000):
        label = (label,)
    with pytest.raises(LabelError, match="nested more than 32 deep"):
        label_to_json(label)
    value: Any = []
    for _ in range(40):
        value = [value]
    with pytest.raises(ModelFileError, match="not the spelling of a label"):
        label_from_json(value)


@pytest.mark.parametrize(
    "value", [1.5, {}, {"float": 1}, {"float": "x"}, {"int": "zz"}, {"a": "1"}, {"int": "1", "b": 1}]
)
def test_other_json_is_no_label(value: Any) -> None:
    with pytest.raises(ModelFileError, match="not the spelling of a label"):
        label_from_json(value)


@pytest.mark.parametrize("value", [None, [], {}, "AB", ["A", "A"], [1, True], [None], ["A", {"float": "nan"}]])
def test_other_json_is_no_coder(value: Any) -> None:
    with pytest.raises(ModelFileError):
        LabelCoder.from_json(value)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(labels | st.none() | st.frozensets(labels, min_size=1, max_size=3), max_size=4)))
def test_codes_name_their_labels(y: list[list[Any]]) -> None:
    known = {
        label
        for step in chain.from_iterable(y)
        if step is not None
        for label in (step if isinstance(step, frozenset) else [step])
    }
    if not known:
        with pytest.raises(LabelError, match="holds no label"):
            LabelCoder().fit(y)
        return
    coder = LabelCoder().fit(y)
    assert set(coder.labels) == known
    codes, allowed = coder.encode(y, [len(sequence) for sequence in y])
    assert codes.dtype == np.int32
    for code, step, row in zip(codes, chain.from_iterable(y), allowed if allowed is not None else codes, strict=True):
        possible = known if step is None else step if isinstance(step, frozenset) else {step}
        assert (code == -1) == (step is None or len(possible) > 1)
        if code != -1:
            assert {coder.labels[code]} == possible
        if allowed is not None:
            assert {coder.labels[k] for k in np.flatnonzero(row)} == possible
    assert (allowed is None) == bool((codes >= 0).all())
    Target(Chains.from_lengths([len(sequence) for sequence in y]), coder.n_labels, codes, allowed)
    try:
        again = LabelCoder.from_json(json.loads(json.dumps(coder.to_json(), ensure_ascii=False)))
    except LabelError:
        return
    assert [exactly(label) for label in again.labels] == [exactly(label) for label in coder.labels]
    assert again.classes_.dtype == coder.classes_.dtype


@pytest.mark.parametrize(
    ("y", "classes", "dtype"),
    [
        ([["O", "B"], ["I"]], ["B", "I", "O"], "<U1"),
        ([[10, 2], [-1]], [-1, 2, 10], "<i8"),
        ([[2**70, 1]], [1, 2**70], "O"),
        ([["b\0", "a"]], ["a", "b\0"], "O"),
        ([[True, False]], [False, True], "O"),
        ([[0.5, -1.0]], [-1.0, 0.5], "O"),
        ([[("B", 2), ("B", 10)]], [("B", 2), ("B", 10)], "O"),
        ([[("B", 2), ("B", None)]], [("B", 2), ("B", None)], "O"),
        ([["b", 10, 9, "a", 1.5]], [1.5, 10, 9, "a", "b"], "O"),
        ([[Colour.RED]], [Colour.RED], "O"),
        (np.array([[3, 1], [2, 1]]), [1, 2, 3], "<i8"),
        ([np.array(["b", "a"]), np.array(["ccc"])], ["a", "b", "ccc"], "<U3"),
        ([np.array([1, 2], np.uint8), np.array([3], np.uint64)], [1, 2, 3], "<i8"),
        ([np.array([1, 2]), np.array(["1"])], [1, 2, "1"], "O"),
        ([np.array([2**63], np.uint64), np.array([-1])], [-1, 2**63], "O"),
        ([np.array([True, False])], [False, True], "O"),
        ([np.array([1.5, 0.5], np.float32)], [0.5, 1.5], "O"),
        ([np.array(["a", None], object), ["b"]], ["a", "b"], "<U1"),
        ([[np.str_("a"), np.str_("b")], ["a"]], ["a", "b"], "<U1"),
        ([[np.int64(1), 2, np.int8(3)]], [1, 2, 3], "<i8"),
        ([["a"], ()], ["a"], "<U1"),
        ([[{np.str_("a"), "b"}]], ["a", "b"], "<U1"),
    ],
)
def test_classes(y: Any, classes: list[Any], dtype: str) -> None:
    coder = LabelCoder().fit(y)
    assert [exactly(label) for label in coder.labels] == [exactly(label) for label in classes]
    assert coder.classes_.dtype == np.dtype(dtype)
    assert coder.classes_.tolist() == classes
    assert coder.n_labels == len(classes)


def test_arrays_and_lists_get_the_same_codes() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 5, length) for length in (4, 0, 7, 1)]
    for kind in (np.int64, np.uint8, np.float64, np.str_, bool):
        typed = [array.astype(kind) for array in arrays]
        lists = [array.tolist() for array in typed]
        first, second = LabelCoder().fit(typed), LabelCoder().fit(lists)
        assert first.labels == second.labels
        codes = first.encode(typed, [4, 0, 7, 1])[0]
        assert codes.dtype == np.int32
        assert np.array_equal(codes, second.encode(lists, [4, 0, 7, 1])[0])
        assert np.array_equal(codes, first.encode([*typed[:2], *lists[2:]], [4, 0, 7, 1])[0])


def test_order_does_not_depend_on_the_data() -> None:
    values = ["b", 1, "a", ("x", 1), ("x", None), 2.5, "c", 10, 2]
    rng = np.random.default_rng(0)
    first = LabelCoder().fit([values]).labels
    for _ in range(20):
        assert LabelCoder().fit([[values[k] for k in rng.permutation(len(values))]]).labels == first


@pytest.mark.parametrize("y", [[], [[]], [[], []], [[None, None]], [np.zeros(0)]])
def test_fit_needs_a_label(y: Any) -> None:
    with pytest.raises(LabelError, match="holds no label"):
        LabelCoder().fit(y)


def test_decoding_has_one_shape() -> None:
    for y in (
        [["a", "b"], ["b"], []],
        [["a", "b"], ["b", "a"]],
        [[("a", 1), ("b", 2)], [("a", 1), ("b", 2)]],
    ):
        coder = LabelCoder().fit(y)
        lengths = [len(sequence) for sequence in y]
        codes, _ = coder.encode(y, lengths)
        out = coder.decode(codes, np.concatenate([[0], np.cumsum(lengths)]))
        assert out.dtype == object
        assert out.shape == (len(y),)
        for got, wanted in zip(out, y, strict=True):
            assert got.dtype == coder.classes_.dtype
            assert got.shape == (len(wanted),)
            assert got.tolist() == wanted
    assert coder.decode([], [0]).shape == (0,)


def test_decoding_checks_its_input() -> None:
    coder = LabelCoder().fit([["a", "b"]])
    for codes, offsets in (([0, 1], [0, 1]), ([0, 1], [1, 2]), ([0, 1], [0, 2, 1, 2]), ([0], [])):
        with pytest.raises(ShapeError, match="offsets must rise"):
            coder.decode(codes, offsets)
    for codes in ([2], [-1]):
        with pytest.raises(LabelError, match="codes must lie in 0 … 1"):
            coder.decode(codes, [0, 1])
    with pytest.raises(NotFittedError):
        LabelCoder().decode([], [0])
    with pytest.raises(NotFittedError):
        LabelCoder().encode([], [])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("BIO", "got str"),
        (3, "got int"),
        (None, "got NoneType"),
        (np.array("a"), "without dimensions"),
        ((letter for letter in "ab"), "can be read only once"),
        (["B", "I"], r"y\[0\] is a string, 'B', not a list of labels.*pass \[y\]"),
        ([["B"], "BI"], r"y\[1\] is a string"),
        (np.array(["B", "I"]), r"y\[0\] is a string"),
        ([1, 2], r"y\[0\] is 1 of type int, not a list of labels.*pass \[y\]"),
        (np.array([1, 2]), r"y\[0\] is .*pass \[y\]"),
        ([["B"], None], r"y\[1\] is None .*\[None\] \* length"),
        ([{"B", "I"}], r"y\[0\] is .* of type set.*use a list"),
        ([{"B": 1}], r"y\[0\] is .* of type dict"),
        ([iter("ab")], r"y\[0\] is .*use a list"),
        ([["B"], ["I", ["x"]]], r"label \['x'\] at sequence 1, step 1 is a list.*not hashable"),
        ([["B", {"x": 1}]], "sequence 0, step 1 is a dict"),
        ([["B"], [], ["I", set()]], r"set\(\) at sequence 2, step 1.*empty set allows nothing"),
        ([["B", {"I", None}]], "sequence 0, step 1.*None stands alone"),
        ([["B", frozenset({frozenset({1})})]], "cannot be a label"),
        ([["B", float("nan")]], "NaN cannot be a label"),
        ([np.array([0.5, np.nan])], "NaN cannot be a label"),
    ],
)
def test_what_cannot_be_labels(y: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        LabelCoder().fit(y)


def test_an_array_per_step_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"y\[0\] must be 1-D.*\(2, 2\)"):
        LabelCoder().fit(np.zeros((3, 2, 2)))


def test_lengths_must_fit() -> None:
    coder = LabelCoder().fit([["a", "b"]])
    with pytest.raises(ShapeError, match="X has 2 sequences and y has 1"):
        coder.encode([["a"]], [1, 1])
    with pytest.raises(ShapeError, match=r"sequence 1: X\[1\] has 3 steps and y\[1\] has 1 labels\. Give"):
        coder.encode([["a"], ["b"]], [1, 3])
    with pytest.raises(ShapeError, match=r"sequence 0: .* \(2 sequences differ\)"):
        coder.encode([["a"], ["b"]], np.array([2, 3]))


@pytest.mark.parametrize("kind", [list, np.array])
def test_unknown_labels_are_located(kind: Any) -> None:
    coder = LabelCoder().fit([[f"label {k:02}" for k in range(30)]])
    with pytest.raises(LabelError, match=r"unknown label 'x' at sequence 2, step 1: the model knows 'label 00', "):
        coder.encode([kind(["label 00"]), kind([]), kind(["label 01", "x"])], [1, 0, 2])
    with pytest.raises(LabelError, match=r"… \(30 in all\)\. Write None"):
        coder.encode([["x"]], [1])
    with pytest.raises(LabelError, match=r"unknown label 'x' in the set {.*} at sequence 0, step 1"):
        coder.encode([["label 00", {"x", "label 01"}]], [2])
    with pytest.raises(LabelError, match=r"empty set"):
        coder.encode([[set()]], [1])
    with pytest.raises(LabelError, match=r"\['x'\] at sequence 0, step 0 is a list"):
        coder.encode([[["x"]]], [1])


def test_encoding_leaves_the_data_alone() -> None:
    y: list[Any] = [["a", {"a", "b"}, np.str_("b")]]
    coder = LabelCoder().fit(y)
    coder.encode(y, [3])
    assert y == [["a", {"a", "b"}, "b"]]
    assert type(y[0][2]) is np.str_


def test_equal_labels_are_one_label() -> None:
    coder = LabelCoder().fit([[1, 2]])
    assert coder.encode([[1.0, True, np.int8(2)]], [3])[0].tolist() == [0, 0, 1]
    with pytest.raises(LabelError, match="some of them equal"):
        LabelCoder.from_classes([1, True])
    with pytest.raises(LabelError, match="hashable"):
        LabelCoder.from_classes([["a"]])  # type: ignore[list-item]
