"""Strings to codes and token columns, on both bodies."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.data.tokens import TokenColumns
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.kernels import columns as kernel

pytestmark = pytest.mark.usefixtures("body")
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Surrogates included: any Python string must survive.
anything = st.text(st.characters(codec=None, categories=None), max_size=12)
SENTENCES = [[("He", "PRP"), ("runs", "VBZ")], [], [("Stop", "VB")], [("He", "PRP")]]


@quick
@given(st.lists(anything, max_size=30), st.lists(anything, max_size=10))
def test_codes_are_first_appearances_and_strings_survive(strings: list[str], others: list[str]) -> None:
    alphabet = Alphabet()
    codes = alphabet.encode(strings, add=True)
    numbers = {text: i for i, text in enumerate(dict.fromkeys(strings))}
    assert codes.dtype == np.int32
    assert codes.tolist() == [numbers[text] for text in strings]
    assert alphabet.texts(codes) == strings
    assert list(alphabet) == list(numbers)
    assert alphabet.encode(others).tolist() == [numbers.get(text, -1) for text in others]
    again = Alphabet.from_arrays(*alphabet.to_arrays())
    assert list(again) == list(alphabet)
    assert again.encode(strings).tolist() == codes.tolist()
    other = Alphabet(others)
    assert alphabet.translate(other).tolist() == [*alphabet.encode(list(other)).tolist(), -1]


def test_many_strings_grow_the_table() -> None:
    strings = [f"w{i}" * (1 + i % 4) for i in range(20_000)]
    alphabet = Alphabet(strings)
    assert alphabet.texts(alphabet.encode(strings)) == strings
    chosen = np.array([5, 0, 19_000])
    assert list(alphabet.subset(chosen)) == alphabet.texts(chosen)


@pytest.mark.parametrize(
    ("pool", "offsets", "reason"),
    [
        (b"ab", [0, 1], "offsets"),
        (b"ab", [0, 3], "offsets"),
        (b"ab", [1, 2], "offsets"),
        (b"ab", [0, 2, 1, 2], "offsets"),
        (b"ab", [], "offsets"),
        (b"ab", [0, -5, 2], "offsets"),
        (b"aa", [0, 1, 2], "twice"),
        (b"a\xff", [0, 1, 2], "UTF-8"),
        (b"\xc3\xa9", [0, 1, 2], "UTF-8"),
    ],
)
def test_damaged_alphabets_are_refused(pool: bytes, offsets: list[int], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Alphabet.from_arrays(np.frombuffer(pool, np.uint8), np.array(offsets, np.int64))


@quick
@given(st.binary(max_size=6), st.lists(st.integers(-2, 8), max_size=5))
def test_random_alphabet_arrays_never_crash(pool: bytes, offsets: list[int]) -> None:
    try:
        made = Alphabet.from_arrays(np.frombuffer(pool, np.uint8), np.array(offsets, np.int64))
    except InputError:
        return
    assert b"".join(text.encode("utf-8", "surrogatepass") for text in made) == pool


def test_alphabet_locks_and_pickles() -> None:
    alphabet = Alphabet(["a", "é", "\ud800"]).lock()
    with pytest.raises(InputError, match="locked"):
        alphabet.encode(["b"], add=True)
    for again in (pickle.loads(pickle.dumps(alphabet)), copy.deepcopy(alphabet)):
        assert list(again) == ["a", "é", "\ud800"]
        assert again.locked
        assert "é" in again
        assert "b" not in again
    with pytest.raises(IndexError):
        alphabet[3]
    with pytest.raises(IndexError):
        alphabet[-1]
    with pytest.raises(FeatureError, match="got int at position 1"):
        alphabet.encode(["a", 3])


rows = st.integers(1, 3).flatmap(lambda c: st.lists(st.lists(st.tuples(*[anything] * c), max_size=4), max_size=5))


@quick
@given(rows)
def test_rows_round_trip(sequences: list[list[tuple[str, ...]]]) -> None:
    tokens = TokenColumns.from_sequences(sequences)
    assert len(tokens) == len(sequences)
    assert [tokens[i] for i in range(len(tokens))] == sequences
    assert list(tokens) == sequences
    flat = [text for sequence in sequences for row in sequence for text in row]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(flat))}
    assert tokens.codes.ravel().tolist() == [numbers[text] for text in flat]
    offsets, codes = Alphabet(flat[::2]).encode_rows(sequences)
    assert (codes.ravel() == Alphabet(flat[::2]).encode(flat)).all()
    assert offsets.tolist() == tokens.topology.offsets.tolist()


def test_rows_of_other_containers() -> None:
    want = TokenColumns.from_sequences(SENTENCES)
    arrays = [np.array(s, dtype=object).reshape(-1, 2) for s in SENTENCES]
    for given_x in (tuple(map(tuple, SENTENCES)), arrays, iter([list(map(list, s)) for s in SENTENCES])):
        got = TokenColumns.from_sequences(given_x)
        assert list(got) == list(want)
    text = np.array([["a", "b"], ["c", "d"]])
    assert TokenColumns.from_sequences([text])[0] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([["He", "runs"]], FeatureError, r"bare string 'He' \(sequence 0, step 0\).*pass \[X\]"),
        ([("He", "PRP"), ("runs", "VBZ")], FeatureError, r"bare string 'He'"),
        ([[("a", "b")], [("c", "d"), ("e",)]], ShapeError, r"2 columns .* got 1 \(sequence 1, step 1\)"),
        ([[()]], ShapeError, r"at least one column, got 0 \(sequence 0, step 0\)"),
        ([[("a", 3)]], FeatureError, r"got int in column 1 \(sequence 0, step 0\)"),
        ([[("a",), (b"b",)]], FeatureError, r"got bytes in column 0 \(sequence 0, step 1\)"),
        ([[("a",), 7]], FeatureError, r"got int \(sequence 0, step 1\)"),
        ([[{"w": "a"}]], FeatureError, r"got dict \(sequence 0, step 0\)"),
        ([[("a",)], "word"], FeatureError, r"got str \(sequence 1\)"),
        ([None], FeatureError, r"got NoneType \(sequence 0\)"),
        ("word", FeatureError, "got str"),
        (5, FeatureError, "got int"),
    ],
)
def test_rows_that_are_refused(bad: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TokenColumns.from_sequences(bad)


def test_an_iterable_that_changes_the_list_it_lies_in() -> None:
    outer: list[object] = []

    class Trap:
        def __iter__(self) -> object:
            outer.clear()
            return iter([("a",)])

    outer += [Trap(), [("b",)]]
    assert Alphabet().encode_rows(outer, add=True)[1].tolist() == [[0]]


def test_tokens_are_chosen_and_split() -> None:
    tokens = TokenColumns.from_sequences(SENTENCES)
    assert list(tokens[1:3]) == SENTENCES[1:3]
    assert list(tokens[np.array([3, 0, 0])]) == [SENTENCES[3], SENTENCES[0], SENTENCES[0]]
    assert list(tokens[np.array([True, False, False, True])]) == [SENTENCES[0], SENTENCES[3]]
    assert list(tokens[[]]) == []
    assert tokens[[]].width == 2
    assert tokens[-1] == SENTENCES[-1]
    for bad in (4, -5):
        with pytest.raises(IndexError):
            tokens[bad]
    with pytest.raises(TypeError):
        tokens["a"]
    words, tags = tokens.split_column(1)
    assert [t.tolist() for t in tags] == [[row[1] for row in s] for s in SENTENCES]
    assert all(t.dtype == object for t in tags)
    assert list(words) == [[row[:1] for row in s] for s in SENTENCES]
    with pytest.raises(ShapeError, match="column 2 was asked of tokens with 2"):
        tokens.split_column(2)
    with pytest.raises(ShapeError, match="another alphabet"):
        TokenColumns(np.array([[5]]), Chains.from_lengths([1]), Alphabet(["a"]))
    assert list(pickle.loads(pickle.dumps(tokens))) == SENTENCES


HOLDERS: dict[str, Callable[[], Any]] = {
    "tokens": lambda: TokenColumns.from_sequences(SENTENCES),
    "attributes": lambda: AttributeSequences(
        Chains.from_lengths([2, 0, 1, 1]),
        np.array([0, 2, 2, 5, 6]),
        np.array([0, 1, 2, 2, 0, 1]),
        None,
        Alphabet(["a", "b", "c"]),
    ),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_flat_holders_behave_like_their_list(name: str) -> None:
    holder = HOLDERS[name]()
    plain = [holder[k] for k in range(4)]
    assert len(holder) == 4
    assert holder.shape == (4,)
    assert list(holder) == plain
    assert list(reversed(holder)) == plain[::-1]
    assert plain[2] in holder
    assert holder.index(plain[3]) == 3
    for key in (slice(None), slice(1, 3), slice(None, None, -2), slice(3, 1), slice(-9, 9)):
        assert type(holder[key]) is type(holder)
        assert list(holder[key]) == plain[key]
    several: list[tuple[list[Any], list[int]]] = [
        ([], []),
        ([2, 0, 0], [2, 0, 0]),
        ([-1, 1], [3, 1]),
        ([True, False, False, True], [0, 3]),
    ]
    for chosen, numbers in several:
        for form in (chosen, np.array(chosen), (chosen, ...)):
            assert type(holder[form]) is type(holder)
            assert list(holder[form]) == [plain[k] for k in numbers]
            assert list(holder[form][::-1]) == [plain[k] for k in numbers[::-1]]
    for bad in (4, -5, [4], [True]):
        with pytest.raises(IndexError):
            holder[bad]
    for wrong in ("a", 1.0, [0.5], [[0, 1]]):
        with pytest.raises(TypeError, match="chosen by an integer, a slice"):
            holder[wrong]


def test_scikit_learn_splits_tokens_without_making_lists() -> None:
    from sklearn.model_selection import KFold, train_test_split
    from sklearn.utils import _safe_indexing

    tokens = TokenColumns.from_sequences(SENTENCES)
    assert isinstance(_safe_indexing(tokens, np.array([2, 0])), TokenColumns)
    assert list(_safe_indexing(tokens, [2, 0])) == [SENTENCES[2], SENTENCES[0]]
    first, second, a, b = train_test_split(tokens, [0, 1, 2, 3], test_size=2, random_state=0)
    assert list(first) == [SENTENCES[i] for i in a]
    assert list(second) == [SENTENCES[i] for i in b]
    for train, test in KFold(2).split(tokens):
        assert len(tokens[train]) + len(tokens[test]) == 4


def test_attributes_are_chosen() -> None:
    names = Alphabet(["a", "b", "c"])
    chains = Chains.from_lengths([2, 0, 1])
    indptr, indices = np.array([0, 2, 2, 5]), np.array([0, 1, 2, 2, 0])
    plain = AttributeSequences(chains, indptr, indices, None, names)
    assert list(plain) == [[["a", "b"], []], [], [["c", "c", "a"]]]
    assert list(plain[[2, 0]]) == [plain[2], plain[0]]
    valued = AttributeSequences(chains, indptr, indices, np.array([1, 2, 3, 4, 5.0]), names)
    assert list(valued[[2]]) == [[{"c": 7.0, "a": 5.0}]]
    with pytest.raises(ShapeError, match="alphabet"):
        AttributeSequences(chains, indptr, indices + 1, None, names)
    with pytest.raises(ShapeError, match="indptr"):
        AttributeSequences(chains, indptr[1:], indices, None, names)


def test_kernel_checks_shapes() -> None:
    table = kernel.templates(
        radix=4,
        skeleton=np.array([0]),
        holes=np.array([0, 1]),
        macros=np.array([[0, 1]]),
        marks=np.zeros((2, 0), int),
    )
    for codes, offsets, message in (
        (np.zeros((2, 1)), [0, 2], "need 2 columns, got 1"),
        (np.full((2, 2), 4), [0, 2], "below 4"),
        (np.zeros((2, 2)), [0, 3], "offsets"),
        (np.zeros((2, 2)), [0, 2, 1, 2], "never fall"),
    ):
        with pytest.raises(ShapeError, match=message):
            kernel.apply(table, codes, np.array(offsets))
    with pytest.raises(ShapeError, match="marks"):
        kernel.templates(
            radix=4,
            skeleton=np.array([0]),
            holes=np.array([0, 1]),
            macros=np.array([[-2, 1]]),
            marks=np.zeros((2, 1), int),
        )


def test_threads_may_read_while_one_grows(body: str) -> None:
    rng = np.random.default_rng(0)
    table = kernel.templates(
        radix=50,
        skeleton=np.array([0]),
        holes=np.array([0, 3]),
        macros=np.array([[0, 0], [0, 1], [0, 2]]),
        marks=np.zeros((2, 0), int),
    )
    if body == "numpy":
        pytest.skip("the readable body makes no promise about growing in one thread and reading in another")
    codes = rng.integers(0, 50, (20_000, 3))
    offsets = np.arange(0, 20_001, 20)
    failed: list[BaseException] = []

    def work(grow: bool) -> None:
        try:
            for _ in range(5):
                kernel.apply(table, codes, offsets, grow=grow, n_jobs=2)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert table.size() == len(np.unique(codes, axis=0))
