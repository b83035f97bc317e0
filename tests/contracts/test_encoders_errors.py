"""What encoders say when the data do not fit: expected, got, where, what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, InputError, ModelFileError, ShapeError
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.functions import FunctionEncoder
from crfield.features.matrices import MatrixEncoder
from crfield.features.records import RecordEncoder


def says(call: Any, kind: type[Exception], *words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


@pytest.mark.parametrize(
    ("X", "kind", "words"),
    [
        (np.zeros((3, 2)), ShapeError, ["list of matrices", "(3, 2)", "[X]"]),
        (sp.csr_array((3, 2)), ShapeError, ["list of matrices", "(3, 2)", "[X]"]),
        ([np.zeros((1, 2)), np.zeros(3)], ShapeError, ["sequence 1", "2-D", "(3,)", "reshape(-1, 1)"]),
        ([np.zeros((1, 2, 3))], ShapeError, ["sequence 0", "3 dimensions"]),
        ([np.float64(3)], ShapeError, ["sequence 0", "0 dimensions"]),
        ([np.zeros((1, 2)), np.zeros((4, 3))], ShapeError, ["sequence 1 has 3", "expected 2", "transposed"]),
        ([[[1, 2], [3]]], ShapeError, ["sequence 0", "equally long"]),
        ([[["a", "b"]]], FeatureError, ["sequence 0", "real numbers", "<U1", "lists of feature strings"]),
        ([np.array([[None, {}]])], ShapeError, ["sequence 0", "numbers"]),
        ([np.zeros((1, 1), complex)], FeatureError, ["real numbers", "complex128"]),
        ([sp.csr_array((1, 1), dtype=complex)], FeatureError, ["real numbers", "complex128"]),
        ([np.zeros((1, 2)), sp.csr_array((1, 2))], FeatureError, ["sequence 1 is a sparse", "x.toarray()"]),
        ([sp.csr_array((1, 2)), np.zeros((1, 2))], FeatureError, ["sequence 1 is a dense", "csr_array(x)"]),
        ([], ShapeError, ["at least one matrix"]),
        ([[], np.zeros((2, 0))], ShapeError, ["at least one matrix", "2 sequences"]),
        (7, FeatureError, ["list of matrices", "int"]),
    ],
)
def test_matrices(X: Any, kind: type[Exception], words: list[str]) -> None:
    says(lambda: MatrixEncoder().fit(X), kind, *words)


def test_matrices_of_another_width_or_kind_at_encode() -> None:
    dense, sparse = MatrixEncoder(), MatrixEncoder()
    dense.fit([np.ones((2, 3))])
    sparse.fit([sp.csr_array(np.ones((2, 3)))])
    says(
        lambda: dense.encode([np.ones((2, 3)), np.ones((2, 4))]),
        ShapeError,
        "sequence 1 has 4",
        "expected 3 as in fit",
    )
    says(lambda: dense.encode([np.ones((0, 4))]), ShapeError, "sequence 0 has 4")
    says(lambda: sparse.encode([sp.csr_array((2, 4))]), ShapeError, "sequence 0 has 4", "expected 3 as in fit")
    says(lambda: sparse.encode([np.ones((2, 3))]), FeatureError, "dense matrix, expected sparse", "as in fit")
    assert dense.encode([[], np.ones((0, 3))]).topology.lengths.tolist() == [0, 0]
    assert dense.encode([]).node.dense.shape == (0, 3)  # type: ignore[union-attr]
    assert sparse.encode([[]]).node.width == 3
    says(
        lambda: MatrixEncoder(feature_names="ab").fit([np.ones((1, 3))]),
        ShapeError,
        "3 columns",
        "got 2 names",
    )
    says(lambda: MatrixEncoder(transition_features=[3]).fit([np.ones((1, 3))]), InputError, "column 3", "0 … 2")
    says(
        lambda: MatrixEncoder(transition_features=["q"]).fit([np.ones((1, 3))]),
        InputError,
        "'q'",
        "feature_names",
    )
    says(lambda: dense.edge_name(0), InputError, "transition_features")
    says(lambda: dense.node_name(0), InputError, "dense_name")


def test_places_of_bad_numbers_in_matrices() -> None:
    X = [np.ones((2, 3)), np.ones((0, 3)), np.ones((4, 3), np.float32)]
    X[2][3, 1] = np.nan
    says(lambda: MatrixEncoder().fit(X), FeatureError, "sequence 2, step 3", "'x[1]'", "nan", "Fill in")
    named = MatrixEncoder(feature_names=["a", "b", "c"])
    says(lambda: named.fit([sp.csr_array(x) for x in X]), FeatureError, "sequence 2, step 3", "'b'", "nan")
    X[2][3, 1] = -np.inf
    named.fit(X[:1])
    says(lambda: named.encode(X), FeatureError, "sequence 2, step 3", "'b'", "-inf")
    huge = np.full((4, 3), 1e308)  # finite, though the sum is not
    assert MatrixEncoder().fit([huge]).node.dense is not None


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [([0, 1, 1], [5]), ([0, 1, 1], [-1]), ([0, 2, 1], [0, 1]), ([0, 0, 3], [0]), ([1, 1, 1], [0])],
)
def test_csr_matrices_put_together_wrongly(indptr: list[int], indices: list[int]) -> None:
    matrix = sp.csr_array((2, 3))
    matrix.indptr, matrix.indices = np.array(indptr, np.int32), np.array(indices, np.int32)
    matrix.data = np.ones(len(indices))
    says(
        lambda: MatrixEncoder().fit([matrix]),
        ShapeError,
        "sequence 0 is not a valid CSR matrix",
        "check_format",
    )


def test_records_name_the_place(body: str) -> None:
    encoder = RecordEncoder()
    encoder.fit([[{"v": [1.0, 2.0]}]])
    says(
        lambda: encoder.encode([[{}, {"v": [1.0]}]]),
        ShapeError,
        "sequence 0, step 1",
        "'v'",
        "width 2",
        "width 1",
    )
    says(lambda: encoder.fit([[{"a": float("nan")}]]), FeatureError, "sequence 0, step 0", "'a'")
    assert encoder.dense_name(1) == "v[1]"  # a fit that failed left the encoder as it was
    with pytest.raises(IndexError):
        encoder.node_name(0)
    with pytest.raises(IndexError):
        encoder.dense_name(2)


def fails(x: Any, t: int) -> Any:
    return x[t + 1]


def nothing_good(x: Any, t: int) -> Any:
    return object() if t == 2 else 1.5


def test_functions(body: str) -> None:
    X = [[0, 1, 2], [0]]
    with pytest.raises(FeatureError) as caught:
        FunctionEncoder([fails]).fit(X)
    assert isinstance(caught.value.__cause__, IndexError)
    says(
        lambda: FunctionEncoder([fails]).fit(X),
        FeatureError,
        "sequence 0, step 2",
        "'fails'",
        "IndexError",
        "0 … 2",
    )
    says(
        lambda: FunctionEncoder([nothing_good]).fit(X),
        FeatureError,
        "sequence 0, step 2",
        "'nothing_good'",
        "object",
    )
    edges = FunctionEncoder([("one", lambda x, t: 1)], transition_functions=[nothing_good])
    says(lambda: edges.fit(X), FeatureError, "sequence 0, step 2", "'nothing_good'")
    says(lambda: FunctionEncoder([fails, fails]), InputError, "two functions called 'fails'", "('other', f)")
    says(lambda: FunctionEncoder([("a", fails), ("a", nothing_good)]), InputError, "two functions called 'a'")
    says(lambda: FunctionEncoder([]), InputError, "at least one")
    says(lambda: FunctionEncoder(fails), InputError, "list of functions", "[f]")  # type: ignore[arg-type]
    says(lambda: FunctionEncoder(["f"]), InputError, "pairs (name, f)", "'f'")  # type: ignore[list-item]
    says(lambda: FunctionEncoder([(1, fails)]), InputError, "must be a str", "1")  # type: ignore[list-item]
    says(lambda: FunctionEncoder([fails]).fit([3]), FeatureError, "sequence 0", "length", "int")
    says(lambda: FunctionEncoder([fails]).fit("abc"), FeatureError, "list of sequences", "[X]")


def test_functions_must_be_given_again(body: str) -> None:
    encoder = FunctionEncoder([nothing_good], transition_functions=[("g", lambda x, t: t)])
    X = [[0, 1], [0]]
    batch = encoder.fit(X)
    loaded: Any = encoder_from_state(*encoder.state())
    says(lambda: loaded.encode(X), FeatureError, "holds no code", "nothing_good", "'g'", "attach(functions)")
    says(lambda: loaded.attach([fails]), InputError, "['nothing_good']", "['fails']", "same order")
    says(lambda: loaded.attach([nothing_good]), InputError, "transition_functions", "['g']")
    ready = encoder_from_state(
        *encoder.state(), functions=[nothing_good], transition_functions=[("g", lambda x, t: t)]
    )
    assert ready.encode(X).edge.values == batch.edge.values  # type: ignore[union-attr]
    records = RecordEncoder()
    records.fit([[["a"]]])
    says(lambda: encoder_from_state(*records.state(), functions=[fails]), InputError, "'records'")


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ("some text", ["X is a str", "'some text'", "readers"]),
        ([], ["X is empty"]),
        ([[], []], ["2 sequences, all of them empty"]),
        ({"a": 1}, ["type dict", "list of sequences"]),
        (5, ["type int", "list of sequences"]),
        ([{"a": 1}, {"a": 2}], ["one sequence of 2 dicts", "[X]"]),
        (["a sentence"], ["list of str", "'a sentence'"]),
        ([["a", "b"]], ["sequence 0, step 0 is the str 'a'", "{'word': w}", "[X]"]),
        ([[1.0, 2.0]], ["sequence 0 is a list of numbers", "[[v] for v in sequence]"]),
        ([None], ["sequence 0", "NoneType"]),
        ([[["a"]], np.zeros((2, 2))], ["mixes kinds", "sequence 0 holds records", "sequence 1 matrices"]),
        ([sp.csr_array((1, 1)), [{"a": 1}]], ["mixes kinds", "dicts, {"]),
    ],
)
def test_encoder_for(X: Any, words: list[str]) -> None:
    says(lambda: encoder_for(X), FeatureError, *words)


def test_options_that_do_not_go_together() -> None:
    tokens = TokenColumns.from_sequences([[("a", "b")]])
    says(lambda: encoder_for(tokens), InputError, "no template", "template=")
    says(lambda: encoder_for([], functions=[fails], template="U"), InputError, "functions and a template")
    says(
        lambda: encoder_for([], functions=[fails], transition_features="all"),
        InputError,
        "transition_functions",
    )
    says(lambda: encoder_for([], template="U:%x[0,0]", transition_features="all"), InputError, "B lines")
    says(lambda: encoder_for([], transition_functions=[fails]), InputError, "functions=[f, …]")
    says(lambda: encoder_from_state({"kind": "later"}, {}), ModelFileError, "'later'", "newer version")
    says(lambda: encoder_from_state([], {}), ModelFileError, "None")  # type: ignore[arg-type]
    for min_count in (-1, 1.5, True, "2"):
        says(
            lambda m=min_count: RecordEncoder().fit([[["a"]]], min_count=m),
            InputError,
            "min_count",
            repr(min_count),
        )
