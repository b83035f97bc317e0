"""Encoders of records, matrices and functions: what they encode, keep and restore."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.data.batch import Batch, Columns
from crfield.errors import DataWarning, InputError, ModelFileError, NotFittedError
from crfield.features.columns.select import drop_rare, renumber, row_counts, take_rows
from crfield.features.columns.standardise import Scale
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.functions import FunctionEncoder
from crfield.features.matrices import MatrixEncoder
from crfield.features.records import RecordEncoder
from crfield.features.text.lexicon import Lexicon
from crfield.features.text.transformer import TextFeatures


def matrix(columns: Columns) -> np.ndarray:
    """The sparse part as a full matrix, repeated entries added."""
    full = np.zeros((columns.n_rows, columns.width))
    rows = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))
    np.add.at(full, (rows, columns.indices), 1.0 if columns.values is None else columns.values)
    return full


def same(one: Batch, other: Batch) -> bool:
    def parts(columns: Columns | None) -> Any:
        if columns is None:
            return None
        dense = None if columns.dense is None else columns.dense.tolist()
        values = None if columns.values is None else columns.values.tolist()
        return columns.indptr.tolist(), columns.indices.tolist(), columns.width, values, dense

    return one.topology.offsets.tolist() == other.topology.offsets.tolist() and all(
        parts(a) == parts(b) for a, b in ((one.node, other.node), (one.edge, other.edge))
    )


def word(x: Any, t: int) -> str:
    return x[t]


def size(x: Any, t: int) -> int:
    return len(x[t])


def shape(x: Any, t: int) -> Any:
    return {"first": x[t][0], "upper": x[t].isupper()}


def before(x: Any, t: int) -> Any:
    return None if t == 0 else x[t - 1]


def both(x: Any, t: int) -> np.ndarray:
    return np.array([len(x[t]), t], float)


DICTS = [
    [
        {"word": "a", "speed": 2.0, "v": [1.0, 2.0]},
        {"word": "b", "speed": -1.0},
        {"word": "a", "v": [3.0, 5.0]},
    ],
    [],
    [{"word": "c", "speed": 0.0, "tags": ["x", "y"]}],
    [{"word": "b"}, {"word": "a", "speed": 4.0}],
]
ARRAYS = [np.array([[1.0, 20.0, 5.0], [3.0, -40.0, 5.0]]), np.zeros((0, 3)), np.array([[2, 60, 5]])]
SPARSE = [
    sp.csr_array(np.array([[0, 2.0, 0], [1, -1.0, 0]])),
    sp.csr_array((0, 3)),
    sp.csc_matrix([[1, 0, 0]]),
]
WORDS = [["the", "Dog"], [], ["A"], ["the", "A", "end"]]
LISTED = TextFeatures(word=1, lexicons={"some": Lexicon(["the A"])}, clusters={"the": "xy"}, cluster_bits=(2,))

CASES: dict[str, tuple[Any, Any]] = {
    "records": (lambda: RecordEncoder(), DICTS),
    "records, all edges": (lambda: RecordEncoder(transition_features="all"), DICTS),
    "records, some edges": (lambda: RecordEncoder(transition_features=["speed", "v", "word=a"]), DICTS),
    "records, standardized": (lambda: RecordEncoder(transition_features=["v[1]"], standardize=True), DICTS),
    "strings, standardized": (lambda: RecordEncoder(standardize=True), [[["a", "b"], ["a"]]]),
    "matrix": (lambda: MatrixEncoder(feature_names="xyz"), ARRAYS),
    "matrix, edges": (lambda: MatrixEncoder(transition_features=[2, 0], standardize=True), ARRAYS),
    "sparse": (lambda: MatrixEncoder(transition_features="all"), SPARSE),
    "sparse, standardized": (lambda: MatrixEncoder(transition_features=[-2], standardize=True), SPARSE),
    "transformed": (lambda: encoder_for(WORDS, features=LISTED), WORDS),
    "transformed, edges": (lambda: encoder_for(WORDS, features=TextFeatures(), transition_features="all"), WORDS),
    "functions": (lambda: FunctionEncoder([word, size, shape, before, both]), WORDS),
    "functions, edges": (
        lambda: FunctionEncoder([word], transition_functions=[before, ("n", size), both], standardize=True),
        WORDS,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    make, X = CASES[request.param]
    return make(), X


def names(encoder: Any, batch: Batch) -> Any:
    node = [encoder.node_name(k) for k in range(batch.node.width)]
    dense = [encoder.dense_name(k) for k in range(batch.node.n_dense)]
    if batch.edge is None:
        return node, dense
    edge = [encoder.edge_name(k) for k in range(batch.edge.width)]
    return node, dense, edge, [encoder.edge_dense_name(k) for k in range(batch.edge.n_dense)]


@pytest.mark.parametrize("min_count", [1, 2])
def test_contract(body: str, case: tuple[Any, Any], min_count: int) -> None:
    encoder, X = case
    with pytest.raises(NotFittedError, match=r"fit\(X\)"):
        encoder.encode(X)
    with pytest.raises(NotFittedError):
        encoder.state()
    with pytest.raises(InputError, match="min_count"):
        encoder.fit(X, min_count=-1)
    batch = encoder.fit(X, min_count=min_count)
    assert batch.topology.lengths.tolist() == [len(x) if isinstance(x, list) else x.shape[0] for x in X]
    assert same(encoder.encode(X), batch)
    found = names(encoder, batch)
    for part in found:
        assert len(set(part)) == len(part)
    header, arrays = encoder.state()
    header = json.loads(json.dumps(header))
    again = encoder_from_state(header, {name: array.copy() for name, array in arrays.items()})
    assert names(again, batch) == found
    edge = (0, 0) if batch.edge is None else (batch.edge.width, batch.edge.n_dense)
    assert encoder.widths == again.widths == (batch.node.width, batch.node.n_dense, *edge)
    if isinstance(encoder, FunctionEncoder):
        with pytest.raises(InputError, match="given again"):
            again.encode(X)
        again.attach(encoder._functions.items(), transition_functions=encoder._transitions.items())  # type: ignore
    for copy in (again, pickle.loads(pickle.dumps(encoder))):
        assert same(copy.encode(X), batch)
        assert same(copy.encode(X[:1]), encoder.encode(X[:1]))
        assert repr(copy) == repr(encoder)
    # a second fit forgets the first
    encoder.fit(X[:1])
    assert same(encoder.fit(X, min_count=min_count), batch)


@pytest.mark.parametrize("change", ["cut", "type", "shape", "less", "gone"])
def test_damaged_states_are_refused(body: str, case: tuple[Any, Any], change: str) -> None:
    encoder, X = case
    encoder.fit(X)
    header, arrays = encoder.state()
    for name, array in arrays.items():
        choice = name.rpartition("/")[2].removeprefix("node_") in ("edge_columns", "edge_dense", "kept")
        if (change == "cut" and (choice or not len(array))) or (change == "less" and not array.size):
            continue  # a shorter choice of columns is a choice too
        if change == "less" and "mean" in name:
            continue  # so is another mean
        changed = {
            "cut": array[:-1],
            "type": array.astype(np.float16),
            "shape": array.reshape(1, -1),
            "less": array - array.dtype.type(200),
            "gone": None,
        }[change]
        rest = {key: array for key, array in arrays.items() if key != name}
        with pytest.raises(ModelFileError):
            encoder_from_state(header, rest if changed is None else rest | {name: changed})


def test_damaged_headers_are_refused(body: str, case: tuple[Any, Any]) -> None:
    encoder, X = case
    encoder.fit(X)
    header, arrays = encoder.state()
    vital = {"kind", "functions", "transition_functions", "node", "edge", "width", "transition_features"}
    for key in vital & set(header):
        with pytest.raises(ModelFileError):
            encoder_from_state({other: value for other, value in header.items() if other != key}, arrays)
        with pytest.raises(ModelFileError):
            encoder_from_state(header | {key: 2.5}, arrays)


def test_records_and_edges(body: str) -> None:
    encoder = RecordEncoder(transition_features=["speed", "v", "word=a"])
    batch = encoder.fit(DICTS)
    assert names(encoder, batch)[2:] == (["speed", "word=a"], ["v[0]", "v[1]"]) or names(encoder, batch)[2:] == (
        ["word=a", "speed"],
        ["v[0]", "v[1]"],
    )
    edge = batch.edge
    assert edge is not None
    by_name = dict(zip(names(encoder, batch)[2], matrix(edge).T.tolist()))
    assert by_name == {"speed": [-1, 0, 4], "word=a": [0, 1, 1]}
    assert edge.dense is not None
    assert edge.dense.tolist() == [[0, 0], [3, 5], [0, 0]]
    assert batch.node.dense is not None
    assert batch.node.dense[0].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"\['sped'\].*Known are for example"):
        RecordEncoder(transition_features=["speed", "sped"]).fit(DICTS)
    with pytest.raises(InputError, match=r"Write \['speed'\]"):
        RecordEncoder(transition_features="speed")
    plain = RecordEncoder()
    plain.fit(DICTS)
    with pytest.raises(InputError, match="transition_features"):
        plain.edge_name(0)


def test_negative_and_zero_numbers_are_kept(body: str) -> None:
    X = [[{"n": -1.0}, {"n": 1.0}, {"n": 0.0}, {"z": 0}, {"z": 0}]]
    encoder = RecordEncoder()
    batch = encoder.fit(X, min_count=2)
    assert names(encoder, batch)[0] == ["n", "z"]
    assert batch.node.values is not None
    assert batch.node.values.tolist() == [-1, 1, 0, 0, 0]


def test_min_count_counts_rows(body: str) -> None:
    encoder = RecordEncoder(transition_features="all")
    batch = encoder.fit([[["a", "b", "b"], ["a", "c"]], [["c", "d"]]], min_count=2)
    assert names(encoder, batch)[0] == ["a", "c"]
    assert batch.edge is not None
    assert batch.edge.width == 0
    assert encoder.encode([[["b", "d", "c"]]]).node.indices.tolist() == [1]


def test_attributes_mean_the_same_as_lists(body: str) -> None:
    alphabet = Alphabet(["unused", "b", "ü=1", "a"])
    lists = AttributeSequences(
        Chains.from_lengths([2, 0, 1]), np.array([0, 2, 3, 5]), np.array([3, 2, 2, 1, 3]), None, alphabet
    )
    encoder = RecordEncoder()
    batch = encoder.fit(lists)
    assert names(encoder, batch)[0] == ["b", "ü=1", "a"]
    assert same(encoder.encode([[["a", "ü=1"], ["ü=1"]], [], [["b", "a"]]]), batch)
    values = AttributeSequences(
        lists.topology,
        lists.indptr,
        lists.indices,
        np.array([1, 0.5, -2, 1, 1]),
        Alphabet(["q", "b", "ü=1", "new"]),
    )
    encoded = encoder.encode(values).node
    assert matrix(encoded).tolist() == [[0, 0.5, 0], [0, -2, 0], [1, 0, 0]]
    bad = AttributeSequences(lists.topology, lists.indptr, lists.indices, np.array([1, 1, 1, np.nan, 1]), alphabet)
    with pytest.raises(InputError, match="sequence 2, step 0: attribute 'b' must have a finite value, got nan"):
        encoder.fit(bad)


def test_attributes_in_a_model_with_vectors(body: str) -> None:
    encoder = RecordEncoder()
    encoder.fit([[{"a": 1, "v": [1.0, 2.0]}]])
    only = AttributeSequences(Chains.from_lengths([1]), np.array([0, 1]), np.array([0]), None, Alphabet(["a"]))
    assert encoder.encode(only).node.dense.tolist() == [[0, 0]]  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, bool, object])
def test_matrices_of_any_real_type(dtype: Any) -> None:
    arrays = [np.array([[1, 0], [0, 1]]).astype(dtype), np.array([[1, 1]]).astype(dtype)]
    for X in (arrays, [a.tolist() for a in arrays], tuple(arrays), [np.asfortranarray(a) for a in arrays]):
        batch = MatrixEncoder().fit(X)
        assert batch.node.dense is not None
        assert batch.node.dense.tolist() == [[1, 0], [0, 1], [1, 1]]
        assert batch.node.width == 0


def test_a_cube_is_a_list_of_matrices() -> None:
    cube = np.arange(12.0).reshape(2, 3, 2)
    assert same(MatrixEncoder().fit(cube), MatrixEncoder().fit(list(cube)))


def test_encoded_matrices_are_copies() -> None:
    X = [np.ones((2, 2))]
    batch = MatrixEncoder().fit(X)
    X[0][:] = 7
    assert batch.node.dense is not None
    assert (batch.node.dense == 1).all()


def test_sparse_matrices_keep_explicit_zeros_and_drop_unseen_columns() -> None:
    one = sp.csr_array((np.array([0.0, 2.0]), np.array([3, 1]), np.array([0, 1, 2])), shape=(2, 5))
    encoder = MatrixEncoder(feature_names="abcde")
    batch = encoder.fit([one, sp.coo_matrix(([1], ([0], [1])), shape=(1, 5))])
    assert names(encoder, batch)[0] == ["b", "d"]
    assert batch.node.values is not None
    assert batch.node.values.tolist() == [0, 2, 1]
    assert matrix(encoder.encode([sp.csr_array([[9.0, 8, 7, 6, 5]])]).node).tolist() == [[8, 6]]
    assert MatrixEncoder().fit([sp.csr_array(np.eye(2, dtype=bool))]).node.values is None


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=6),
    min_count=st.integers(0, 4),
)
def test_drop_rare(rows: list[list[int]], min_count: int) -> None:
    columns = Columns.from_rows(rows, width=5)
    counts = [sum(k in row for row in rows) for k in range(5)]
    assert row_counts(columns).tolist() == counts
    kept, remap = drop_rare(columns, min_count)
    wanted = [k for k in range(5) if counts[k] >= min_count]
    assert [k for k in range(5) if remap[k] >= 0] == wanted
    assert kept.width == len(wanted)
    assert (matrix(kept) == matrix(columns)[:, wanted]).all()
    assert (matrix(renumber(columns, remap)) == matrix(kept)).all()
    order = np.arange(len(rows))[::-1]
    assert (matrix(take_rows(columns, order)) == matrix(columns)[order]).all()


def test_standardised_dense_columns() -> None:
    rng = np.random.default_rng(0)
    block = np.column_stack([rng.normal(5, 3, 40), np.full(40, 0.1), np.ones(40), 1e200 * rng.normal(size=40)])
    encoder = MatrixEncoder(standardize=True)
    dense = encoder.fit([block[:30], block[30:]]).node.dense
    assert dense is not None
    np.testing.assert_allclose(dense[:, [0, 3]].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(dense[:, [0, 3]].std(axis=0), 1)
    assert (dense[:, 1] == 0).all()  # constant: centred, deviation one
    assert (dense[:, 2] == 1).all()  # an intercept stays
    np.testing.assert_allclose(
        encoder.encode([block[:1] * 2]).node.dense[0, 0],
        (block[0, 0] * 2 - block[:, 0].mean()) / block[:, 0].std(),
    )  # type: ignore[index]


def test_standardised_sparse_columns(body: str) -> None:
    # "full" is there on every row and is centred; "part" is not, and is only scaled; "word" is an indicator.
    X = [
        [
            {"full": 300.0, "part": 4.0, "word": "a"},
            {"full": 302.0, "c": 5},
            {"full": 301.0, "part": -4.0, "c": 5},
        ]
    ]
    encoder = RecordEncoder(standardize=True)
    node = encoder.fit(X).node
    by_name = dict(zip(names(encoder, Batch(Chains.from_lengths([3]), node))[0], matrix(node).T.round(6).tolist()))
    assert by_name == {
        "full": [-1.224745, 1.224745, 0],
        "part": [1, 0, -1],
        "word=a": [1, 0, 0],
        "c": [0, 1, 1],
    }
    assert matrix(encoder.encode([[{"part": 2.0}]]).node).round(6).tolist() == [[0, 0.5, 0, 0]]
    assert matrix(encoder.encode([[{"full": 1}]]).node)[0, 0] == pytest.approx((1 - 301) / np.sqrt(2 / 3))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.floats(-1e300, 1e300) | st.integers(0, 1), min_size=3, max_size=3), max_size=8))
def test_standardised_values_are_always_finite(rows: list[list[float]]) -> None:
    dense = np.array(rows, float).reshape(-1, 3)
    columns = Columns(np.arange(len(dense) + 1) * 3, np.tile(np.arange(3), len(dense)), 3, dense.ravel(), dense)
    scale = Scale.learn(columns)
    done = scale.apply(columns)
    assert np.isfinite(done.dense).all()  # type: ignore[call-overload]
    assert done.values is None or np.isfinite(done.values).all()
    np.testing.assert_array_equal(matrix(done), done.dense)


def test_a_warning_when_sizes_differ(body: str) -> None:
    with pytest.warns(DataWarning, match=r"'big' has deviation .*, 'v\[0\]' .*standardize=True"):
        RecordEncoder().fit([[{"big": 1e5, "v": [0.5]}, {"big": -1e5, "v": [1.5]}]])
    with pytest.warns(DataWarning, match=r"x\[1\]"):
        MatrixEncoder().fit([np.array([[1.0, 1e5], [2.0, 2e5]])])
    with pytest.warns(DataWarning, match="'b'"):
        MatrixEncoder(feature_names="ab").fit([sp.csr_array([[2.0, 1e5], [3.0, 2e5]])])
    # constants, indicators and single columns say nothing about scales
    RecordEncoder().fit([[{"big": 1e5, "one": 1, "w": "x"}, {"big": -1e5, "one": 1}]])
    RecordEncoder(standardize=True).fit([[{"big": 1e5, "v": [0.5]}, {"big": -1e5, "v": [1.5]}]])


def test_functions_give_what_dicts_give(body: str) -> None:
    encoder = FunctionEncoder([word, shape, before, both], transition_functions=[before])
    batch = encoder.fit(WORDS)
    records = [
        [
            {"word": w, "shape": shape(x, t), "both": both(x, t)} | ({} if t == 0 else {"before": x[t - 1]})
            for t, w in enumerate(x)
        ]
        for x in WORDS
    ]
    plain = RecordEncoder()
    assert set(names(encoder, batch)[0]) == set(names(plain, plain.fit(records))[0])
    assert batch.node.dense is not None
    assert batch.node.dense[:, 1].tolist() == [0, 1, 0, 0, 1, 2]
    assert batch.edge is not None
    assert [encoder.edge_name(k) for k in batch.edge.indices] == ["before=the", "before=the", "before=A"]


def test_encoder_for() -> None:
    attributes = AttributeSequences(Chains.from_lengths([0]), np.array([0]), np.array([], int), None, Alphabet())
    for X, kind in (
        (DICTS, "records"),
        ([[], [["a"]]], "records"),
        ([[[], []]], "records"),
        ([({"a", "b"},)], "records"),
        (attributes, "records"),
        (ARRAYS, "matrix"),
        (SPARSE, "matrix"),
        ([[[1.0, 2], [3, 4]]], "matrix"),
        (np.zeros((2, 3, 4)), "matrix"),
    ):
        assert encoder_for(X).kind == kind
    assert encoder_for(WORDS, functions=[word]).kind == "functions"
    assert encoder_for([[("a", "b")]], template="U00:%x[0,0]").kind == "template"
    made: Any = encoder_for(DICTS, transition_features=["speed"], standardize=True)
    assert made.transition_features == ["speed"]
    assert made.standardize
