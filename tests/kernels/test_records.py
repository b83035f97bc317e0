"""Feature records to columns: both bodies agree, states survive, damage and bad input are told apart."""

from __future__ import annotations

import collections
import copy
import fractions
import numbers
import pickle
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.errors import FeatureError, InputError, ModelFileError, ShapeError
from crfield.kernels import choice
from crfield.kernels.record_items import indicator_key, split_key
from crfield.kernels.records import RecordTable

NAMES = st.text(st.characters(exclude_categories=()), max_size=3)  # lone surrogates included
NUMBERS = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.sampled_from([np.float32(1.5), np.int16(-3), np.bool_(True), np.bool_(False), np.uint8(7)])
    | st.sampled_from([fractions.Fraction(1, 4), np.float64(1), np.longdouble(2)])
)
VECTORS = st.sampled_from(
    [
        np.array([1.0, -2.0]),
        np.array([1, 2], np.float32),
        np.array([3, 4], np.int64),
        np.arange(4.0)[::2],
        np.array([True, False]),
        np.array([1.0, 2.0], ">f8"),
        np.zeros(0),
        [0.5, 1],
        (True, -1.0),
        [],
        np.array(["a", "ü"]),
    ]
)
STRINGS = st.lists(NAMES, max_size=3)
VALUES = st.recursive(
    NAMES | NUMBERS | VECTORS | STRINGS | STRINGS.map(tuple) | STRINGS.map(frozenset),
    lambda inner: (
        st.dictionaries(NAMES, inner, max_size=3) | st.dictionaries(NAMES, inner).map(types.MappingProxyType)
    ),
    max_leaves=5,
)
ITEMS = (
    st.dictionaries(NAMES, VALUES, max_size=4)
    | st.dictionaries(NAMES, VALUES, max_size=2).map(collections.OrderedDict)
    | STRINGS
    | STRINGS.map(tuple)
    | STRINGS.map(set)
)
SEQUENCES = st.lists(ITEMS, max_size=4) | st.lists(ITEMS, max_size=2).map(collections.deque)


def as_text(encoded: Any) -> list[Any]:
    return [None if part is None else (part.dtype, part.shape, part.tolist()) for part in encoded]


def outcome(body: str, train: Any, test: Any) -> Any:
    with choice.use(body):
        table = RecordTable()
        results = []
        for X, grow in ((train, True), (test, False)):
            try:
                results.append(as_text(table.encode(X, grow=grow)))
            except InputError as error:
                return type(error), str(error)
        arrays = {name: array.tolist() for name, array in table.to_arrays().items()}
        names = [table.parts(k) for k in range(table.n_columns)]
        assert names == table.all_parts()
        return results, arrays, names, table.slots(), table.n_dense


@settings(max_examples=300, deadline=None)
@given(train=st.lists(SEQUENCES, max_size=3), test=st.lists(SEQUENCES, max_size=3))
def test_bodies_agree(train: Any, test: Any) -> None:
    try:
        choice._load("records", "native")
    except ImportError:
        pytest.skip("the compiled kernels are not built here")
    assert outcome("native", train, test) == outcome("numpy", train, test)


def test_what_each_kind_becomes(body: str) -> None:
    table = RecordTable()
    item = {
        "s": "x",
        "n": -2.0,
        "zero": 0,
        "yes": True,
        "no": False,
        "v": np.array([1.0, 2.0]),
        "many": ["p", "q"],
        "in": {"s": "x", "n": 3},
        "numpy": np.float32(0.5),
    }
    encoded = table.encode([[item, {"v": [5, 6]}, {}], [], [["n", "s=x"]]], grow=True)
    names = [table.name(k) for k in encoded.indices]
    assert names == ["s=x", "n", "zero", "yes", "many=p", "many=q", "in:s=x", "in:n", "numpy", "n", "s=x"]
    assert encoded.values is not None
    assert encoded.values.tolist() == [1, -2, 0, 1, 1, 1, 1, 3, 0.5, 1, 1]
    assert encoded.offsets.tolist() == [0, 3, 3, 4]
    assert encoded.indptr.tolist() == [0, 9, 9, 9, 11]
    assert encoded.dense is not None
    assert encoded.dense.tolist() == [[1, 2], [5, 6], [0, 0], [0, 0]]
    assert table.slots() == [("v", 0, 2)]
    # "n" as a feature string is the numeric column; "s=x" as a string is not the indicator {"s": "x"}.
    assert encoded.indices[-2] == encoded.indices[1]
    assert encoded.indices[-1] != encoded.indices[0]


def test_names_never_meet(body: str) -> None:
    items = [
        {"a": "b=c"},
        {"a=b": "c"},
        {"a": 1.0},
        {"a": "1.0"},
        {"a\x1f": "b"},
        {"a": "\x1fb"},
        {"": "ab"},
        ["ab"],
    ]
    table = RecordTable()
    table.encode([items], grow=True)
    assert table.n_columns == len(items)
    assert split_key(indicator_key("", "")) == ("", "")


def test_locked_drops_unknown(body: str) -> None:
    table = RecordTable()
    table.encode([[{"a": "x", "v": [1.0]}]], grow=True)
    encoded = table.encode([[{"b": "x", "a": "y", "w": [1.0, 2.0]}, {"a": "x"}, ["new"]]], grow=False)
    assert table.n_columns == 1
    assert encoded.indptr.tolist() == [0, 0, 1, 1]
    assert encoded.values is None
    assert encoded.dense is not None
    assert encoded.dense.tolist() == [[0], [0], [0]]


def test_ones_need_no_values_until_another_comes(body: str) -> None:
    table = RecordTable()
    assert table.encode([[["a", "b"], {"c": 1.0, "d": True}]], grow=True).values is None
    late = table.encode([[["a", "b"], {"c": 2.0}, ["a"]]], grow=False).values
    assert late is not None
    assert late.tolist() == [1, 1, 2, 1]


def test_sets_are_ordered(body: str) -> None:
    words = {f"w{i}" for i in range(50)}
    table = RecordTable()
    table.encode([[words]], grow=True)
    assert [table.name(k) for k in range(50)] == sorted(words)


def test_lone_surrogates_survive(body: str) -> None:
    strange = "a\udc80ü\U0001f600"
    table = RecordTable()
    table.encode([[["x", strange, "y", strange], {strange: strange, "v" + strange: [1.0]}]], grow=True)
    again = RecordTable.from_arrays(table.to_arrays())
    assert [again.name(k) for k in range(4)] == ["x", strange, "y", f"{strange}={strange}"]
    assert again.slots() == [("v" + strange, 0, 1)]
    assert again.encode([[[strange]]], grow=False).indices.tolist() == [1]


def test_objects_accepted_as_sequences(body: str) -> None:
    plain = [[["a", "b"], ["c"]], [["a"]]]
    holder = np.empty(2, object)
    holder[:] = [np.array([["a", "b"], ["c"]], object), (("a",),)]
    table = RecordTable()
    expected = as_text(table.encode(plain, grow=True))
    assert as_text(table.encode(tuple(tuple(map(tuple, s)) for s in plain), grow=False)) == expected
    assert as_text(table.encode(holder, grow=False)) == expected
    assert as_text(table.encode(collections.deque(map(collections.deque, plain)), grow=False)) == expected
    assert as_text(table.encode([[np.array(["a", "b"]), ["c"]], [["a"]]], grow=False)) == expected


def test_many_strings_on_one_step(body: str) -> None:
    words = [f"{'é' * (i % 3)}{i}" for i in range(1000)]
    table = RecordTable()
    assert table.encode([[words, {w: 1 for w in words}]], grow=True).indices.tolist() == [*range(1000)] * 2
    assert table.encode([[words[::-1] + ["new"]]], grow=False).indices.tolist() == [*range(999, -1, -1)]


@pytest.mark.parametrize("filling", ["x", "é", "猫", "\udc80", "xé"])
@pytest.mark.parametrize("form", ["dicts", "joined", "strings", "rows"])
def test_keys_of_every_length(body: str, form: str, filling: str) -> None:
    """Strings are read as blocks that end with them, of which a mask leaves their own bytes."""
    words = [(filling * n)[:n] + end for n in range(40) for end in "ab"]
    columns = list(range(len(words)))
    if form == "rows":
        interner = choice.body("columns").Interner()
        assert interner.rows([[(word,) for word in words]], True)[1].tolist() == columns
        assert interner.rows([[[word] for word in words]], False)[1].tolist() == columns
        return
    names = [word[:k] for k, word in zip(list(range(20)) * 4, words)]
    steps: list[Any] = words if form == "strings" else [{name: word} for name, word in zip(names, words)]
    X = [[[word] for word in words]] if form == "strings" else [steps]
    table = RecordTable()
    assert table.encode(X, grow=True, joined=form == "joined").indices.tolist() == columns
    assert table.encode(X, grow=False, joined=form == "joined").indices.tolist() == columns
    again = RecordTable.from_arrays(table.to_arrays())
    assert again.encode(X, grow=False, joined=form == "joined").indices.tolist() == columns
    between = {"joined": ":", "dicts": "="}
    wanted = words if form == "strings" else [f"{n}{between[form]}{w}" for n, w in zip(names, words)]
    assert [table.name(k) for k in columns] == wanted


def test_what_is_not_plain_may_come_anywhere(body: str) -> None:
    """A step whose first features are taken at once and the rest one by one has the columns of one by one."""
    odd = ["\udc80", 2**2000, np.float32(2), ["p", "q"], {"in": "side"}, True, 7, 1.5, "text", frozenset({"s"})]
    for joined in (False, True):
        for at in range(3):
            for value in odd[:1] + odd[2:]:
                step = {f"n{k}": "v" for k in range(3)}
                step = dict([*list(step.items())[:at], ("odd", value), *list(step.items())[at:]])
                once, again = RecordTable(), RecordTable()
                together = once.encode([[step, ["a"], step, {"z": "\udc80", **step}]], grow=True, joined=joined)
                apart = again.encode([[collections.UserDict(step), ("a",)]], grow=True, joined=joined)
                first = together.indptr[1]
                assert together.indices[:first].tolist() == apart.indices[: apart.indptr[1]].tolist()
                assert together.indices[first + 1 : together.indptr[3]].tolist() == list(range(first))
                assert [once.parts(k) for k in range(first)] == [again.parts(k) for k in range(first)]
    with pytest.raises(FeatureError):
        RecordTable().encode([[{"a": "b", "odd": odd[1]}]], grow=True)


def test_columns_of_a_pool(body: str) -> None:
    table = RecordTable()
    table.encode([[["b", {"n": 1}.__class__.__name__]]], grow=True)
    pool, offsets = np.frombuffer(b"abc", np.uint8), np.array([0, 1, 2, 3])
    wanted = np.array([True, True, False])
    assert table.columns_of(pool, offsets, grow=False).tolist() == [-1, 0, -1]
    assert table.columns_of(pool, offsets, grow=True, wanted=wanted).tolist() == [2, 0, -1]
    for bad_pool, bad in ((pool, [0, 2, 1, 3]), (pool, [0, 1]), (np.array([255], np.uint8), [0, 1])):
        with pytest.raises(FeatureError):
            table.columns_of(bad_pool, np.array(bad), grow=True)
    with pytest.raises(ShapeError):
        table.columns_of(pool, offsets, grow=True, wanted=wanted[:1])


NESTED: dict[str, Any] = {}
NESTED["again"] = NESTED


class Changing:
    """A number that empties the list it lies in while it is being read."""

    def __init__(self, holder: list[Any]) -> None:
        self.holder = holder

    def __float__(self) -> float:
        self.holder.clear()
        return 1.0


numbers.Real.register(Changing)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"f": None}, ["feature 'f'", "NoneType", "Leave the feature out"]),
        ({"f": b"x"}, ["feature 'f'", "bytes", "Decode"]),
        ({"f": 1j}, ["feature 'f'", "complex", "real and the imaginary"]),
        ({"f": object}, ["feature 'f'", "type", "Convert"]),
        ({"f": np.nan}, ["feature 'f'", "nan", "finite", "leave the feature out"]),
        ({"f": -np.inf}, ["feature 'f'", "-inf", "finite"]),
        ({"f": 10**400}, ["feature 'f'", "finite"]),
        ({"in": {"f": np.float32("nan")}}, ["feature 'in:f'", "finite"]),
        ({"f": np.array([0, np.nan])}, ["feature 'f[1]'", "nan", "finite"]),
        ({"f": [1.0, np.inf]}, ["feature 'f[1]'", "inf", "finite"]),
        ({"f": [1.0, "x"]}, ["feature 'f'", "list of str only or of numbers only", "'x'"]),
        ({"f": ["x", 1.0]}, ["feature 'f'", "list of str only or of numbers only", "1.0"]),
        ({"f": ["x", None]}, ["feature 'f'", "None", "Leave the feature out"]),
        ({"f": {1, 2}}, ["set", "'f'", "only str", "int"]),
        ({"f": np.zeros((2, 2))}, ["feature 'f'", "1-D", "(2, 2)", "ravel"]),
        ({"f": np.zeros(2, complex)}, ["feature 'f'", "complex"]),
        ({3: "x"}, ["name must be a str", "3", "int", "str()"]),
        ({"in": {3: "x"}}, ["name must be a str", "inside 'in'"]),
        (["a", 3], ["only str", "3", "int", "dict"]),
        ({"a", 3}, ["only str", "3", "int"]),
        ("word", ["a step must be a dict or a list", "'word'", "in a list"]),
        (None, ["a step must be a dict or a list", "NoneType", "empty dict"]),
        (4.0, ["a step must be a dict or a list", "float"]),
        (NESTED, ["nested more than", "contain itself"]),
        ({"v": [1.0, 2.0, 3.0]}, ["feature 'v'", "width 2", "got width 3", "Pad or cut"]),
        ({"f": np.timedelta64(3, "s")}, ["feature 'f'", "timedelta64"]),
    ],
)
@pytest.mark.parametrize("grow", [True, False])
def test_errors_name_the_place(body: str, item: Any, words: list[str], grow: bool) -> None:
    table = RecordTable()
    table.encode([[{"v": [1.0, 2.0]}]], grow=True)
    with pytest.raises(InputError) as caught:
        table.encode([[], [{}, {"ok": 1}, item]], grow=grow)
    for word in ["sequence 1, step 2", *words]:
        assert word in str(caught.value)
    with pytest.raises(InputError, match="sequence 1, step 3"):
        table.encode([[], [{}, {"ok": 1}, item]], grow=grow, first_step=1)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ("text", ["X must be a list of sequences", "str"]),
        ({"a": 1}, ["X must be a list of sequences", "dict"]),
        (None, ["X must be a list of sequences", "NoneType"]),
        ([{"a": 1}], ["sequence 0 must be a list of steps", "dict", "[X]"]),
        ([[], "text"], ["sequence 1 must be a list of steps", "str"]),
        ([{"a", "b"}], ["sequence 0 must be a list of steps", "set"]),
        ([iter([])], ["sequence 0 must be a list of steps", "iterator"]),
    ],
)
def test_errors_about_whole_sequences(body: str, X: Any, words: list[str]) -> None:
    with pytest.raises(FeatureError) as caught:
        RecordTable().encode(X, grow=True)
    for word in words:
        assert word in str(caught.value)


def test_objects_that_change_while_read(body: str) -> None:
    values: list[Any] = [1.0]
    values += [Changing(values), 3.0]
    steps: list[Any] = []
    steps += [{"n": Changing(steps)}, {"m": 1.0}]
    encoded = RecordTable().encode([[{"f": values}], steps], grow=True)
    assert encoded.dense is not None
    assert encoded.dense[0].tolist() == [1, 1, 3]
    assert encoded.offsets[1] == 1
    features: Any = {}
    features |= {"n": Changing(features), "m": 2}
    with pytest.raises(RuntimeError, match="changed size"):
        RecordTable().encode([[features]], grow=True)


def test_exceptions_of_objects_pass_through(body: str) -> None:
    class Broken(Changing):
        def __float__(self) -> float:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RecordTable().encode([[{"f": Broken([])}]], grow=True)


def fitted() -> RecordTable:
    table = RecordTable()
    table.encode([[{"word": "Ärger", "speed": 2, "v": [1.0, 2.0], "ü": np.ones(3)}, ["a", "b", "日本"]]], grow=True)
    return table


def test_state_survives(body: str) -> None:
    table = fitted()
    X = [[{"word": "Ärger", "speed": 3.0, "v": [0.0, 4.0], "new": 1.0}, ["日本", "c"]]]
    expected = as_text(table.encode(X, grow=False))
    for again in (
        RecordTable.from_arrays(table.to_arrays()),
        pickle.loads(pickle.dumps(table)),
        copy.deepcopy(table),
        table.subset(np.ones(table.n_columns, bool)),
    ):
        assert as_text(again.encode(X, grow=False)) == expected
        assert again.all_parts() == table.all_parts()
        assert again.slots() == table.slots()


def test_subset_renumbers(body: str) -> None:
    table = fitted()
    keep = np.array([False, True, True, False, True])
    smaller = table.subset(keep)
    assert [smaller.name(k) for k in range(3)] == ["speed", "a", "日本"]
    assert smaller.slots() == table.slots()


DAMAGE: list[tuple[str, Any]] = [
    ("offsets", lambda a: a[::-1].copy()),
    ("offsets", lambda a: a[:-1]),
    ("offsets", lambda a: a[:0]),
    ("offsets", lambda a: a + 1),
    ("offsets", lambda a: a.astype(np.int32)),
    ("offsets", lambda a: a.reshape(1, -1)),
    ("offsets", lambda a: np.where(np.arange(len(a)) == 1, 3, a)),  # ends inside a header
    ("pool", lambda a: a[:-1]),
    ("pool", lambda a: a.astype(np.int8)),
    (
        "pool",
        lambda a: np.where(np.arange(len(a)) == 1, 200, a).astype(np.uint8),
    ),  # a name longer than its key
    ("pool", lambda a: np.where(np.arange(len(a)) == 1, 5, a).astype(np.uint8)),  # cut inside a character
    ("pool", lambda a: np.where(np.arange(len(a)) == 7, 255, a).astype(np.uint8)),  # FF inside a name
    ("pool", lambda a: np.where(a == ord("b"), ord("a"), a).astype(np.uint8)),  # a key twice
    ("slot_offsets", lambda a: a * 2),
    ("slot_pool", lambda a: a | 128),
    ("slot_widths", lambda a: a - 2),
    ("slot_widths", lambda a: a[:-1]),
    ("slot_widths", lambda a: a + 2**31),
    ("slot_widths", lambda a: a.astype(float)),
]


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_damage_is_refused(body: str, number: int) -> None:
    name, change = DAMAGE[number]
    arrays = fitted().to_arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ModelFileError):
        RecordTable.from_arrays(arrays)
    del arrays[name]
    with pytest.raises(ModelFileError, match=name):
        RecordTable.from_arrays(arrays)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_damage_never_crashes(data: st.DataObject) -> None:
    arrays = fitted().to_arrays()
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name].copy()
    place = data.draw(st.integers(0, len(array) - 1))
    limits = np.iinfo(array.dtype)
    array[place] = data.draw(st.integers(int(limits.min), int(limits.max)))
    arrays[name] = array
    try:
        table = RecordTable.from_arrays(arrays)
    except ModelFileError:
        return
    assert len(table.all_parts()) == table.n_columns
    if table.n_dense < 1000:
        table.encode([[{"word": "Ärger"}, ["a"]]], grow=False)


def test_compiled_body_checks_for_itself() -> None:
    native = pytest.importorskip("crfield.kernels._records")
    pool, zero = np.zeros(0, np.uint8), np.zeros(1, np.int64)
    none = np.zeros(0, np.int64)
    for bad in (np.array([0, 5]), np.array([1]), none, np.array([0, -1, 0])):
        with pytest.raises(ValueError):
            native.RecordTable.restore(pool, bad, pool, zero, none)
        with pytest.raises(ValueError):
            native.RecordTable.restore(pool, zero, pool, bad, none)
        with pytest.raises(ValueError):
            native.RecordTable().columns_of(pool, bad, np.zeros(0, bool), True)
    with pytest.raises(ValueError):
        native.RecordTable.restore(pool, zero, pool, np.array([0, 0]), np.array([-1]))
    with pytest.raises(IndexError):
        native.RecordTable().key(0)
    with pytest.raises(TypeError):
        native.RecordTable().encode(3, True)
