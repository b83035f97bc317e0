"""One sequence at a time: both bodies give the same labels, and the same sequences to the general way."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.core.constraints import FixedScores
from crfield.errors import InputError
from crfield.features.templates.encoder import TemplateEncoder
from crfield.kernels import choice
from crfield.kernels.linear import Tagger
from crfield.kernels.records import RecordTable
from crfield.kernels.tagging import record_tagger
from crfield.scoring.layout import Layout
from tests.kernels.test_records import SEQUENCES, as_text

LABELS = ["A", ("B", 1), 3]
LARGEST = 1e4


def needs_native(group: str) -> None:
    try:
        choice._load(group, "native")
    except ImportError:
        pytest.skip("the compiled kernels are not built here")


def weights_of(layout: Layout, seed: int = 0) -> Tagger:
    """Eighths, whose sums are exact: where paths tie, both bodies must see it."""
    return Tagger(layout, np.random.default_rng(seed).integers(-40, 40, layout.n_weights) / 8)


def pairs() -> np.ndarray:
    return np.arange(len(LABELS) ** 2, dtype=np.int32)


def tagged(body: str, train: Any, test: list[Any], joined: bool) -> Any:
    with choice.use(body):
        table = RecordTable()
        try:
            table.encode(train, grow=True, joined=joined)
        except InputError as error:
            return type(error), str(error)
        layout = Layout(len(LABELS), table.n_columns, n_dense=table.n_dense, boundaries=True, pairs=pairs())
        tagger = record_tagger(table, weights_of(layout), LABELS, joined=joined, largest=LARGEST)
        assert tagger is not None
        return [tagger.tag(list(steps)) for steps in test]


@settings(max_examples=200, deadline=None)
@given(train=st.lists(SEQUENCES, max_size=3), test=st.lists(SEQUENCES, max_size=3), joined=st.booleans())
def test_records_are_tagged_alike_by_both_bodies(train: Any, test: Any, joined: bool) -> None:
    needs_native("records")
    test = [*train, *test]  # so that some of it is known
    assert tagged("native", train, test, joined) == tagged("numpy", train, test, joined)


@settings(max_examples=300, deadline=None)
@given(train=st.lists(SEQUENCES, max_size=3), test=st.lists(SEQUENCES, max_size=3))
def test_joined_dicts_are_read_alike_by_both_bodies(train: Any, test: Any) -> None:
    needs_native("records")

    def outcome(body: str) -> Any:
        with choice.use(body):
            table, out = RecordTable(), []
            for X, grow in ((train, True), (test, False)):
                try:
                    out.append(as_text(table.encode(X, grow=grow, joined=True)))
                except InputError as error:
                    return type(error), str(error)
            return out, {name: array.tolist() for name, array in table.to_arrays().items()}

    assert outcome("native") == outcome("numpy")


def test_joined_names_that_meet_are_added_up(body: str) -> None:
    table = RecordTable()
    step = {"a": "b", "a:b": 2.0, "x": ["y", "y"], "n": {"o": {"p": 1.5}}, "n:o:p": 3, "t": True, "f": False}
    encoded = table.encode([[step, ["a:b"], step]], grow=True, joined=True)
    found = dict(zip([table.name(k) for k in range(table.n_columns)], np.asarray(encoded.values).tolist()))
    assert found == {"a:b": 3.0, "x:y": 2.0, "n:o:p": 4.5, "t": 1.0}
    assert encoded.indptr.tolist() == [0, 4, 5, 9]


def test_many_rows_end_where_they_should(body: str) -> None:
    """Keys of several dicts are looked up together: short rows, empty ones, strings between and rows of many keys."""
    table, rng = RecordTable(), np.random.default_rng(3)
    sizes = rng.choice([0, 1, 3, 20, 64, 65, 130], size=60)
    steps: list[Any] = [{f"k{i}": "v" for i in range(n)} if n % 2 else [f"s{i}" for i in range(n)] for n in sizes]
    for joined in (False, True):
        encoded = table.encode([steps[:25], [], steps[25:]], grow=True, joined=joined)
        assert np.diff(encoded.indptr).tolist() == sizes.tolist()
        again = [table.encode([[step]], grow=False, joined=joined).indices.tolist() for step in steps]
        assert [encoded.indices[a:b].tolist() for a, b in zip(encoded.indptr, encoded.indptr[1:])] == again


def test_what_is_not_usual_is_left_to_the_general_way(body: str) -> None:
    table = RecordTable()
    table.encode([[{"w": "a", "v": [1.0]}, {"w": "b", "n": 2.0}, {"bias": True}]], grow=True)
    layout = Layout(3, table.n_columns, n_dense=1, pairs=pairs())
    tagger = record_tagger(table, weights_of(layout), LABELS, joined=False, largest=LARGEST)
    assert tagger is not None
    good = [{"w": "a"}, {"w": "b"}]
    usual = tagger.tag(good)
    assert usual is not None
    assert tagger.tag(tuple(good)) == usual
    assert tagger.tag([]) == []
    assert tagger.tag([{"n": -LARGEST}]) is not None
    for steps in (
        iter(good),
        None,
        "ab",
        {"w": "a"},
        [{"w": "new"}, {"w": "newer"}, {"w": "a"}],  # most of it unknown
        [{"bias": True}, {"bias": True}, {"bias": True}],
        [{"n": 2 * LARGEST}],
        [{"v": [2 * LARGEST]}],
        [{"v": [1.0, 2.0]}],
        [{"n": float("nan")}],
        [{"w": None}],
        [{1: "a"}],
        [["a", 1]],
    ):
        assert tagger.tag(steps) is None, steps
    assert tagger.tag(good) == usual, "what was half read before must be forgotten"


def test_no_path_is_left_to_the_general_way(body: str) -> None:
    table = RecordTable()
    table.encode([[["a"]]], grow=True)
    layout = Layout(2, 1, pairs=np.zeros(0, np.int32))
    fixed = FixedScores(np.full((2, 2), -np.inf), np.zeros(2), np.zeros(2))
    tagger = record_tagger(table, weights_of(replace(layout, fixed=fixed)), ["A", "B"], joined=False, largest=1.0)
    assert tagger is not None
    assert tagger.tag([["a"]]) in (["A"], ["B"])
    assert tagger.tag([["a"], ["a"]]) is None


def test_weights_for_other_columns_are_refused(body: str) -> None:
    table = RecordTable()
    table.encode([[["a", "b"]]], grow=True)
    with pytest.raises(ValueError, match="fit"):
        record_tagger(table, weights_of(Layout(3, 3)), LABELS, joined=False, largest=1.0)


WORDS = st.sampled_from(["a", "b", "ü", "_B-1", "new", "\ud800"])
ROWS = st.lists(st.tuples(WORDS, WORDS), max_size=5)
ODD = st.lists(
    st.tuples(WORDS, WORDS)
    | st.lists(WORDS, max_size=3)
    | st.sampled_from([("a",), "ab", None, ("a", 1), ("a", "b", "c")]),
    max_size=4,
)
TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]/%x[1,0]\nU2\nB\nB1:%x[0,1]\n"


@settings(max_examples=150, deadline=None)
@given(train=st.lists(ROWS, min_size=1, max_size=3), test=st.lists(ODD, max_size=4), edges=st.booleans())
def test_rows_are_tagged_alike_by_both_bodies(train: Any, test: Any, edges: bool) -> None:
    needs_native("columns")
    test = [*train, *test, [("zz", "zz")] * 30, [("zz", "zz")] * 30 + [("a", "b")] * 40]

    def outcome(body: str) -> Any:
        with choice.use(body):
            encoder = TemplateEncoder(TEMPLATE if edges else TEMPLATE.replace("B1:%x[0,1]\n", "").replace("B\n", ""))
            batch = encoder.fit(train)
            edge = 0 if batch.edge is None else batch.edge.width
            layout = Layout(3, batch.node.width, n_edge_columns=edge, bias=True, pairs=pairs())
            tagger = encoder.sequence_tagger(weights_of(layout), LABELS, largest=LARGEST)
            assert tagger is not None
            return [tagger.tag(steps) for steps in test]

    assert outcome("native") == outcome("numpy")


def test_a_reader_may_be_entered_again(body: str) -> None:
    """Reading a step may run Python code that tags with the same tagger."""
    table = RecordTable()
    table.encode([[["a", "b"]]], grow=True)
    tagger = record_tagger(table, weights_of(Layout(3, 2)), LABELS, joined=False, largest=1.0)
    assert tagger is not None
    inside = []

    class Late(dict[str, Any]):
        def __iter__(self) -> Any:
            inside.append(tagger.tag([["b"], ["a"]]))
            return super().__iter__()

        def keys(self) -> Any:
            inside.append(tagger.tag([["b"], ["a"]]))
            return super().keys()

    found = tagger.tag([["a"], MappingProxyType(Late(a=True)), ["b"]])
    assert found == tagger.tag([["a"], ["a"], ["b"]])
    assert all(labels == tagger.tag([["b"], ["a"]]) for labels in inside)
