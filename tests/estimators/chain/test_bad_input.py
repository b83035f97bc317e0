"""What ChainCRF says to data and parameters that do not fit: expected, got, where, what to do."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield import ChainCRF, TokenColumns, read_crfsuite
from crfield.core.topology import Chains
from crfield.data.alphabet import Alphabet
from crfield.data.attributes import AttributeSequences
from crfield.errors import (
    CrfieldError,
    FeatureError,
    FormatError,
    InputError,
    LabelError,
    NotFittedError,
    ShapeError,
    TemplateError,
)
from tests.cases.estimators import KINDS, TEMPLATE, Kind, exact, fits, word, world

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)

X = [[{"word": "a"}, {"word": "b"}], [{"word": "b"}]]
Y = [["N", "V"], ["V"]]


def named(value: Any) -> str:
    """The value without addresses, which differ from process to process."""
    return re.sub(r" at 0x\w+", "", str(value))


def says(call: Callable[[], Any], kind: type[Exception], *words: str) -> None:
    """The call fails with an error of our tree, and its message has all the words."""
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, CrfieldError)
    assert isinstance(caught.value, ValueError)
    for expected in words:
        assert expected in str(caught.value), f"{expected!r} is not in: {caught.value}"


# ------------------------------------------------------------------------ X against y


@each_kind
def test_ragged_data(kind: Kind) -> None:
    data, y = kind.data()
    y[3] = y[3] + ["A"]
    steps = len(y[3]) - 1
    for call in (lambda: kind.model().fit(data, y), lambda: kind.model().fit(*kind.data()).score(data, y)):
        says(call, ShapeError, f"X[3] has {steps} steps", f"y[3] has {steps + 1} labels", "Give one label per step")
    y = kind.data()[1][:-1]
    for call in (lambda: kind.model().fit(data, y), lambda: kind.model().fit(*kind.data()).log_prob(data, y)):
        says(call, ShapeError, "X has 14 sequences and y has 13", "one entry per sequence")


@pytest.mark.parametrize(
    ("y", "kind", "words"),
    [
        (["N", "V"], LabelError, ["y[0] is a string, 'N'", "one list of labels per sequence", "pass [y]"]),
        ([1, 2], LabelError, ["y[0] is 1 of type int", "pass [y]"]),
        (np.array([1, 2]), LabelError, ["y[0]", "pass [y]"]),
        ("NV", LabelError, ["got str"]),
        (None, LabelError, ["got NoneType"]),
        (np.zeros((2, 1, 1)), ShapeError, ["y[0] must be 1-D", "(1, 1)"]),
        ((labels for labels in Y), LabelError, ["generator", "list(…)"]),
        ([["N", ["V"]], ["V"]], LabelError, ["sequence 0, step 1", "['V']", "hashable", "tuple"]),
        ([["N", float("nan")], ["V"]], LabelError, ["NaN", "Write None"]),
        ([["N", set()], ["V"]], LabelError, ["sequence 0, step 1", "empty set allows nothing", "write None"]),
        ([[None, None], [None]], LabelError, ["no label in 2 sequences and 3 steps", "at least one labelled step"]),
        ([["N", "V"], None], LabelError, ["y[1] is None", "[None] * length"]),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, list) else None,
)
def test_labels_that_are_none(y: Any, kind: type[Exception], words: list[str]) -> None:
    says(lambda: ChainCRF().fit(X, y), kind, *words)


@each_kind
def test_labels_that_the_model_does_not_know(kind: Kind) -> None:
    data, y = kind.data()
    model = kind.model().fit(data, y)
    y[2][0] = "Q"
    for call in (lambda: model.score(data, y), lambda: model.log_prob(data, y)):
        says(
            call, LabelError, "unknown label 'Q'", "sequence 2, step 0", "the model knows 'A', 'B', 'C'", "Write None"
        )
    y[2][0] = {"A", "Q"}  # type: ignore[call-overload]
    says(lambda: model.log_prob(data, y), LabelError, "unknown label 'Q' in the set", "sequence 2, step 0")
    if kind.name != "label_functions":
        says(lambda: model.top_features(label="Q"), LabelError, "'Q'", "the model knows ['A', 'B', 'C']")
        says(lambda: model.top_features(-1), InputError, "must not be negative", "-1")


# ---------------------------------------------------------------------- not sequences


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (X[0], FeatureError, ["X looks like one sequence of 2 dicts", "list of sequences", "Write [X]"]),
        ([["a"], ["b"]], FeatureError, ["sequence 0, step 0 is the str 'a'", "write [X]"]),
        (["a b", "c"], FeatureError, ["'a b'", "expected a list of sequences"]),
        ("train.txt", FeatureError, ["X is a str ('train.txt'", "readers"]),
        (np.eye(2), ShapeError, ["a single matrix of shape (2, 2)", "[X]"]),
        (sp.csr_array(np.eye(2)), ShapeError, ["a single matrix of shape (2, 2)", "[X]"]),
        ([[1.0, 2.0], [1.0]], FeatureError, ["sequence 0 is a list of numbers", "[[v] for v in sequence]"]),
        ([np.arange(2.0), np.arange(1.0)], ShapeError, ["sequence 0", "2-D", "reshape(-1, 1)"]),
        ({"word": "a"}, FeatureError, ["X is of type dict"]),
        (None, FeatureError, ["X is of type NoneType"]),
        ((x for x in X), FeatureError, ["generator"]),
        ([X[0], [np.ones(2)]], FeatureError, ["X mixes kinds", "sequence 0", "sequence 1"]),
        ([X[0], [["word=b"]], 5], FeatureError, ["sequence 2 is 5 of type int"]),
        ([], FeatureError, ["X is empty"]),
        (TokenColumns.from_sequences([[("a",), ("b",)], [("b",)]]), InputError, ["token columns", "template="]),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, list) else None,
)
def test_data_that_are_no_list_of_sequences(data: Any, kind: type[Exception], words: list[str]) -> None:
    says(lambda: ChainCRF().fit(data, Y), kind, *words)


def test_nothing_to_learn_from() -> None:
    says(lambda: ChainCRF().fit([], []), LabelError, "no label in 0 sequences", "at least one labelled step")
    says(lambda: ChainCRF().fit([[], []], [[], []]), LabelError, "no label in 2 sequences and 0 steps")


@each_kind
def test_empty_sequences_are_allowed(kind: Kind) -> None:
    """Beside others, in training and in prediction: they cost nothing and change nothing."""
    raw, y = world()
    model = kind.model().fit(kind.write([[], *raw, []]), [[], *y, []])
    assert model.objective_ == pytest.approx(kind.model().fit(kind.write(raw), y).objective_, rel=1e-9)
    data = kind.write([[], raw[0]])
    assert [labels.shape for labels in model.predict(data)] == [(0,), (len(raw[0]),)]
    assert [table.shape for table in model.predict_proba(data)] == [(0, 3), (len(raw[0]), 3)]
    assert model.log_prob(data, [[], y[0]])[0] == 0.0
    assert model.predict(kind.write([])).shape == (0,)
    assert model.predict_proba(kind.write([])).shape == (0,)
    assert model.predict_marginals(kind.write([])) == []
    assert model.log_prob(kind.write([]), []).shape == (0,)
    assert model.score(kind.write([[]]), [[]]) == 0.0


# ---------------------------------------------------------------------- feature values


def with_value(form: str, value: float) -> Any:
    """Two sequences whose second one has ``value`` at its second step."""
    numbers = [[1.0, 2.0, 3.0], [4.0, value]]
    if form == "dicts":
        return [[{"speed": v} for v in x] for x in numbers]
    if form == "vectors":
        return [[{"speed": np.array([0.0, v])} for v in x] for x in numbers]
    if form == "arrays":
        return [np.array([[0.5, v] for v in x]) for x in numbers]
    if form == "csr":
        return [sp.csr_array([[0.0, v] for v in x]) for x in numbers]
    if form == "attributes":
        flat = np.array([v for x in numbers for v in x])
        names = Alphabet(["speed"])
        return AttributeSequences(Chains.from_lengths([3, 2]), np.arange(6), np.zeros(5, int), flat, names)
    return numbers


def speed(x: Any, t: int) -> float:
    return float(x[t])


def speed_of(before: Any, label: Any, x: Any, t: int) -> float:
    return float(x[t]) if label == "B" else 0.0


OPTIONS = {"functions": {"functions": [speed]}, "label_functions": {"label_functions": [speed_of]}}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", ["dicts", "vectors", "arrays", "csr", "attributes", "functions", "label_functions"])
def test_numbers_that_are_none(form: str, value: float) -> None:
    """At fit and at predict alike, with the place and the name."""
    y = [["A", "B", "A"], ["A", "B"]]
    model = exact(**OPTIONS.get(form, {}))
    good, bad = with_value(form, 5.0), with_value(form, value)
    name = {"arrays": "x[1]", "csr": "x[1]", "vectors": "speed[1]", "label_functions": "speed_of"}.get(form, "speed")
    words = ["sequence 1, step 1", name, "finite", str(value)]
    says(lambda: model.fit(bad, y), FeatureError, *words)
    model.fit(good, y)
    for method in ("predict", "predict_proba", "predict_marginals"):
        says(lambda method=method: getattr(model, method)(bad), FeatureError, *words)  # type: ignore[misc]
    says(lambda: model.score(bad, y), FeatureError, *words)


def test_numbers_that_are_none_in_a_file() -> None:
    text = "A\tspeed:1.0\nB\tspeed:nan\n"
    says(lambda: read_crfsuite(io.StringIO(text)), FormatError, "line 2", "finite number", "'nan'")


def test_numbers_too_large_to_train_on_are_refused() -> None:
    """CRFsuite trains a model of marginals 0.5 / 0.5 without a word on such values."""
    data = [[{"a": 1e300}, {"a": -1e300}]]
    says(lambda: ChainCRF().fit(data, [["A", "B"]]), InputError, "finite")
    large = ChainCRF(max_iter=2000).fit([[{"a": 1e6}, {"a": -1e6}]] * 5, [["A", "B"]] * 5)
    assert large.predict([[{"a": 1e6}, {"a": -1e6}]])[0].tolist() == ["A", "B"]


@pytest.mark.parametrize(
    ("train", "new", "kind", "words"),
    [
        ([np.eye(2)], [np.eye(2), np.eye(3)], ShapeError, ["sequence 1 has 3 features", "expected 2 as in fit"]),
        ([sp.csr_array(np.eye(2))], [sp.csr_array(np.eye(3))], ShapeError, ["has 3 features", "expected 2"]),
        ([np.eye(2)], [sp.csr_array(np.eye(2))], FeatureError, ["sequence 0 is a sparse matrix", "x.toarray()"]),
        ([np.eye(2)], [np.ones(2)], ShapeError, ["sequence 0", "2-D"]),
        (
            [[{"v": np.ones(2)}, {"v": np.zeros(2)}]],
            [[{"v": np.ones(3)}]],
            ShapeError,
            ["sequence 0, step 0", "'v'", "width 2", "got width 3"],
        ),
        ([[{"w": "a"}, {"w": "b"}]], [np.eye(2)], FeatureError, ["sequence 0, step 0"]),
        ([[{"w": "a"}, {"w": "b"}]], [{"w": "a"}], FeatureError, ["sequence 0", "[X]"]),
        ([np.eye(2)], [[{"w": "a"}]], ShapeError, ["sequence 0", "numbers"]),
        ([np.eye(2)], np.eye(2), ShapeError, ["a single matrix", "[X]"]),
        ([[["a"], ["b"]]], [["a"]], FeatureError, ["sequence 0, step 0", "'a'"]),
        ([[["a"], ["b"]]], None, FeatureError, ["list of sequences", "None"]),
        ([[["a"], ["b"]]], [[["a", 5]]], FeatureError, ["sequence 0, step 0", "5"]),
        ([[{"w": "a"}, {"w": "b"}]], [[{"w": object()}]], FeatureError, ["sequence 0, step 0", "'w'", "object"]),
    ],
    ids=range(13),
)
def test_data_at_predict_unlike_those_of_fit(train: Any, new: Any, kind: type[Exception], words: list[str]) -> None:
    model = exact().fit(train, [["A", "B"]])
    says(lambda: model.predict(new), kind, *words)
    says(lambda: model.predict_proba(new), kind, *words)


# -------------------------------------------------------------------------- templates


def test_templates_and_columns_that_do_not_fit() -> None:
    rows = [[("He", "PRP"), ("runs", "VBZ")]]
    narrow = [[(word,) for word, _ in x] for x in rows]
    words = ["template line 3 (U01:%x[-1,0]/%x[0,1])", "column 1", "there is 1 column (0 … 0)"]
    says(lambda: ChainCRF(template=TEMPLATE).fit(narrow, [["A", "B"]]), TemplateError, *words)
    says(lambda: ChainCRF(template=TEMPLATE).fit(TokenColumns.from_sequences(narrow), [["A", "B"]]), TemplateError)
    model = exact(template=TEMPLATE).fit(rows, [["A", "B"]])
    says(lambda: model.predict(narrow), TemplateError, *words, "label column")
    says(lambda: model.predict([["He", "runs"]]), FeatureError, "row of columns", "'He'", "sequence 0, step 0")
    says(lambda: model.predict([[("He", "PRP"), ("runs",)]]), InputError, "2", "1", "sequence 0, step 1")
    says(lambda: model.predict([[("He", 3)]]), InputError, "sequence 0, step 0", "got int in column 1")
    says(lambda: ChainCRF(template="U00:%x[0]").fit(rows, [["A", "B"]]), TemplateError, "line 1", "%x[-1,0]", "^")
    says(lambda: ChainCRF(template="").fit(rows, [["A", "B"]]), TemplateError, "no U or B line")
    says(lambda: ChainCRF(template=5).fit(rows, [["A", "B"]]), InputError, "template must be", "5")


# ------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"l2": -1.0}, ["l2 must be a finite number ≥ 0", "got -1.0"]),
        ({"l2": np.inf}, ["l2 must be a finite number", "got inf"]),
        ({"l2": "1"}, ["l2 must be a finite number", "got '1'"]),
        ({"l2": None}, ["l2 must be a finite number", "got None"]),
        ({"l2": True}, ["l2 must be a finite number", "got True"]),
        ({"l1": np.nan}, ["l1 must be a finite number ≥ 0", "got nan"]),
        ({"l1": -1e-9}, ["l1 must be", "got -1e-09"]),
        ({"tol": 0.0}, ["tol must be a finite number > 0", "got 0.0", "1e-8"]),
        ({"tol": -1e-3}, ["tol must be", "got -0.001"]),
        ({"tol": np.nan}, ["tol must be", "got nan"]),
        ({"max_iter": 0}, ["max_iter must be an integer ≥ 1", "got 0"]),
        ({"max_iter": 10.0}, ["max_iter must be an integer", "got 10.0"]),
        ({"max_iter": True}, ["max_iter must be an integer", "got True"]),
        ({"min_count": 0}, ["min_count must be an integer ≥ 1", "got 0", "1 keeps all"]),
        ({"min_count": -3}, ["min_count", "got -3"]),
        ({"min_count": 1.5}, ["min_count", "got 1.5"]),
        ({"solver": "adam"}, ["solver must be one of 'auto', 'lbfgs', 'warm'", "got 'adam'"]),
        ({"solver": None}, ["solver must be one of", "got None"]),
        ({"objective": "accuracy"}, ["objective must be one of 'auto', 'likelihood'", "got 'accuracy'"]),
        ({"objective": ["hinge"]}, ["objective must be one of", "got ['hinge']"]),
        (
            {"objective": "hinge", "solver": "lbfgs"},
            ["solver='lbfgs' trains 'likelihood'", "not 'hinge'", "Solvers that train it"],
        ),
        ({"solver": "cg", "l1": 0.5}, ["solver='cg' has no l1 penalty, got l1=0.5", "'lbfgs'"]),
        ({"decode": "best"}, ["decode must be one of 'viterbi', 'map', 'marginal'", "got 'best'"]),
        ({"feature_pairs": "some"}, ["feature_pairs must be one of 'observed', 'all'", "got 'some'"]),
        ({"feature_pairs": ["all"]}, ["feature_pairs must be one of", "['all']"]),
        ({"transition_pairs": "some"}, ["transition_pairs must be one of 'observed', 'all', 'none'", "got 'some'"]),
        ({"n_jobs": 0}, ["n_jobs must be a positive integer up to 1024, -1", "got 0"]),
        ({"n_jobs": 10**6}, ["n_jobs must be a positive integer up to 1024", "got 1000000"]),
        ({"n_jobs": 1.5}, ["n_jobs must be", "got 1.5"]),
        ({"n_jobs": "all"}, ["n_jobs must be", "got 'all'"]),
        ({"random_state": -1}, ["random_state must be an integer ≥ 0", "got -1"]),
        ({"random_state": "seed"}, ["random_state must be", "got 'seed'"]),
        ({"verbose": "yes"}, ["verbose must be 0, 1 or 2", "got 'yes'"]),
        ({"verbose": -1}, ["verbose must be", "got -1"]),
        ({"callback": 3}, ["callback must be a function", "got 3"]),
        ({"standardize": "no"}, ["standardize must be True or False", "got 'no'"]),
        ({"intercept": None}, ["intercept must be True or False", "got None"]),
        ({"boundaries": 2}, ["boundaries must be True or False", "got 2"]),
        ({"penalize_intercepts": "x"}, ["penalize_intercepts must be True or False"]),
        ({"warm_start": 1.0}, ["warm_start must be True or False"]),
        ({"template": ["U00"]}, ["template must be the text of one", "['U00']"]),
        ({"transition_features": "word"}, ["transition_features", "'word'", "['word']"]),
        ({"transition_features": ["speed"]}, ["transition_features names ['speed']", "word=a"]),
        ({"transition_features": 3}, ["transition_features", "3"]),
        ({"functions": word}, ["functions must be a list of functions", "Write [f]"]),
        ({"functions": []}, ["functions is empty", "f(x, t)"]),
        ({"functions": ["word"]}, ["functions must hold functions f(x, t)", "'word'"]),
        ({"functions": [word], "template": TEMPLATE}, ["functions and a template cannot be used together"]),
        ({"functions": [word], "transition_features": "all"}, ["cannot be used together", "transition_functions"]),
        ({"transition_functions": [word]}, ["transition_functions need functions beside them"]),
        ({"template": TEMPLATE, "transition_features": "all"}, ["cannot be used together", "B lines"]),
        ({"label_functions": fits}, ["label_functions must be a list", "Write [f]"]),
        ({"label_functions": []}, ["at least one function f(y_before, y, x, t)"]),
        ({"label_functions": ["fits"]}, ["label_functions must hold functions", "'fits'"]),
        ({"label_functions": [fits], "template": TEMPLATE}, ["label_functions stand alone", "leave template out"]),
        ({"label_functions": [fits], "functions": [word]}, ["label_functions stand alone", "leave functions out"]),
        ({"label_functions": [fits], "solver": "warm"}, ["solver='warm' needs stochastic steps", "'lbfgs'"]),
        ({"transition_features": "all", "solver": "warm"}, ["solver='warm'", "edge features", "'auto'"]),
    ],
    ids=lambda value: named(value)[:40] if isinstance(value, dict) else "",
)
def test_parameters_that_cannot_be(parameters: dict[str, Any], words: list[str]) -> None:
    raw, y = world()
    data = raw if "label_functions" in parameters else X
    says(lambda: ChainCRF(**parameters).fit(data, y if data is raw else Y), InputError, *words)


@pytest.mark.parametrize(
    "parameters",
    [
        {"l2": 0},
        {"l2": np.float32(0.5)},
        {"l1": np.float64(0.1), "l2": 0},
        {"max_iter": np.int64(400)},
        {"min_count": np.int32(1)},
        {"n_jobs": np.int64(2)},
        {"n_jobs": -1},
        {"standardize": np.True_},
        {"verbose": False},
        {"random_state": None},
        {"random_state": np.random.default_rng(0)},
        {"random_state": np.int64(3)},
    ],
    ids=named,
)
def test_parameters_that_can_be(parameters: dict[str, Any]) -> None:
    assert exact(**{"tol": 1e-3, **parameters}).fit(X, Y).predict(X)[0].tolist() == ["N", "V"]


def test_a_decoder_set_after_fit_is_checked_when_used() -> None:
    model = exact().fit(X, Y).set_params(decode="best")
    says(lambda: model.predict(X), InputError, "decode must be one of 'viterbi', 'map', 'marginal'", "got 'best'")
    says(lambda: model.score(X, Y), InputError, "got 'best'")


# ---------------------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("weight", "kind", "words"),
    [
        ([1.0], ShapeError, ["each of 2 sequences", "(1,)", "not to steps"]),
        ([1.0, 1.0, 1.0], ShapeError, ["each of 2 sequences", "(3,)"]),
        ([[1.0], [1.0]], ShapeError, ["(2, 1)"]),
        (1.0, ShapeError, ["each of 2 sequences", "()"]),
        ([1.0, -2.0], InputError, ["finite and not negative", "-2.0 for sequence 1"]),
        ([np.nan, 1.0], InputError, ["finite and not negative", "nan for sequence 0"]),
        ([1.0, np.inf], InputError, ["inf for sequence 1"]),
        ([0.0, 0.0], InputError, ["0 for all 2 sequences", "nothing"]),
        (["a", "b"], InputError, ["one number for each sequence"]),
        ([[1.0], [1.0, 2.0]], InputError, ["one number for each sequence"]),
    ],
    ids=str,
)
def test_weights_that_cannot_be(weight: Any, kind: type[Exception], words: list[str]) -> None:
    says(lambda: ChainCRF().fit(X, Y, sample_weight=weight), kind, *words)
    model = exact().fit(X, Y)
    says(lambda: model.score(X, Y, sample_weight=weight), kind, *words)


# -------------------------------------------------------------------------- functions


def test_functions_that_fail_say_where() -> None:
    def neighbour(x: Any, t: int) -> Any:
        return x[t + 1]

    says(
        lambda: ChainCRF(functions=[neighbour]).fit([["a", "b"]], [["A", "B"]]),
        FeatureError,
        "sequence 0, step 1",
        "'neighbour'",
        "IndexError",
        "beyond the ends",
    )

    def broken(before: Any, label: Any, x: Any, t: int) -> float:
        return 1 / 0

    for data in ([["a", "b"]],):
        says(
            lambda data=data: ChainCRF(label_functions=[broken]).fit(data, [["A", "B"]]),  # type: ignore[misc]
            FeatureError,
            "broken failed at sequence 0, step 0, labels (None, 'A')",
            "ZeroDivisionError",
        )
    for data, words in ((5, ["list of sequences", "int"]), ([1, 2], ["sequence 0", "1 of type int", "[X]"])):
        says(lambda data=data: ChainCRF(label_functions=[fits]).fit(data, Y), FeatureError, *words)  # type: ignore[misc]


def test_an_unfitted_model() -> None:
    for call in (
        lambda: ChainCRF().predict(X),
        lambda: ChainCRF().predict_marginals(X),
        lambda: ChainCRF().log_prob(X, Y),
        lambda: ChainCRF().save("nowhere"),
        lambda: ChainCRF().transitions_,
    ):
        says(call, NotFittedError, "this ChainCRF is not fitted yet", "Call fit(X, y) first, or load a model file")
