"""Data of which a model knows nothing are told; what is new in the everyday sense is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import (
    HMM,
    MEMM,
    ChainCRF,
    ClassifierHMM,
    Graph,
    GraphCRF,
    HiddenCRF,
    LatentDynamicCRF,
    MaxentClassifier,
    SelectedCRF,
    SemiMarkovCRF,
    TreeCRF,
    VirtualEvidenceBoosting,
)
from crfield.data.texts.crfsuite import parse_crfsuite
from crfield.errors import DataWarning, FeatureError

WORDS = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["the", "cat", "barks"], ["a", "dog", "sleeps"]]
LABELS = [["D", "N", "V"]] * 4
TOLD = "no feature that the model knows"


def dicts(key: str, words: list[list[str]] = WORDS) -> list[list[dict[str, Any]]]:
    return [[{key: word} for word in row] for row in words]


def strings(prefix: str, words: list[list[str]] = WORDS) -> list[list[list[str]]]:
    return [[[f"{prefix}{word}"] for word in row] for row in words]


def chain(X: Any, **options: Any) -> ChainCRF:
    return ChainCRF(max_iter=50, **options).fit(X, LABELS)


def silent(model: Any, X: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.predict(X)


def of_graphs(key: str) -> list[Graph]:
    return [Graph({"word": row}, {"next": [(0, 1), (1, 2)]}) for row in dicts(key)]


ESTIMATORS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "ChainCRF": (ChainCRF, dicts, LABELS),
    "order 2": (lambda: ChainCRF(order=2), dicts, LABELS),
    "MEMM": (MEMM, dicts, LABELS),
    "SemiMarkovCRF": (lambda: SemiMarkovCRF(max_length=2), dicts, LABELS),
    "LatentDynamicCRF": (lambda: LatentDynamicCRF(n_states=1, random_state=0), dicts, LABELS),
    "HMM": (HMM, dicts, LABELS),
    "ClassifierHMM": (ClassifierHMM, dicts, LABELS),
    "TreeCRF": (lambda: TreeCRF(n_rounds=3), dicts, LABELS),
    "SelectedCRF": (SelectedCRF, dicts, LABELS),
    "HiddenCRF": (lambda: HiddenCRF(random_state=0), dicts, ["x", "y", "x", "y"]),
    "MaxentClassifier": (MaxentClassifier, lambda key: [row[1] for row in dicts(key)], ["x", "y", "y", "x"]),
    "GraphCRF": (GraphCRF, of_graphs, [{"word": row} for row in LABELS]),
    "VirtualEvidenceBoosting": (
        lambda: VirtualEvidenceBoosting(n_rounds=3),
        of_graphs,
        [{"word": r} for r in LABELS],
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_tells_of_a_misspelt_key(name: str) -> None:
    make, data, y = ESTIMATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few sentences do not always converge
        model = make().fit(data("word"), y)
    silent(model, data("word"))
    with pytest.warns(
        DataWarning, match=f"{TOLD}.*'wrod'.*known are .*'word'.*Did you mean 'word' instead of 'wrod'"
    ):
        model.predict(data("wrod"))
    with crfield.strict(), pytest.raises(FeatureError, match=TOLD):
        model.predict(data("wrod"))


def test_dicts_where_strings_were_learnt_and_the_reverse() -> None:
    with pytest.warns(DataWarning, match="dicts of texts came: is 'word=the' meant"):
        chain(strings("word=")).predict(dicts("word"))
    with pytest.warns(DataWarning, match="The model was fitted on dicts, and feature strings came"):
        chain(dicts("word")).predict(strings("word="))
    with pytest.warns(DataWarning, match=r"they have 'wrod=the'.*Did you mean 'word' instead of 'wrod'"):
        chain(strings("word=")).predict(strings("wrod="))
    numbers = ChainCRF().fit([[{"speed": 1.0}, {"speed": -1.0}]], [["A", "B"]])
    with pytest.warns(DataWarning, match="Did you mean 'speed' instead of 'sped'"):
        numbers.predict([[{"sped": 1.0}]])
    vectors = ChainCRF().fit([[{"vector": np.ones(2)}, {"vector": -np.ones(2)}]], [["A", "B"]])
    with pytest.warns(DataWarning, match="{'vectr': vector}"):
        vectors.predict([[{"vectr": np.ones(2)}]])


def test_one_step_is_enough_for_a_key_and_too_few_for_a_value() -> None:
    model = chain(dicts("word"))
    with pytest.warns(DataWarning, match=TOLD):
        model.predict([[{"wrod": "dog"}]])
    for X in (
        [[{"word": "unheard"}]],
        dicts("word", [["quite", "unheard", "of"]]),
        [[{"word": "unheard", "more": "of it"}]],
        [[{}]],
        [[{}, {}, {}]],
        [[{"word": False}]],
        [[]],
        [],
    ):
        silent(model, X)
    silent(chain(strings("word=")), strings("word=", [["unheard"]]))
    silent(chain(strings("")), strings("", [["unheard", "12:30", "a=b"]]))
    silent(chain([[{word: True} for word in row] for row in WORDS]), [[{"the": True}, {"unheard": 1}]])


def test_many_steps_of_new_values_are_told() -> None:
    model = chain(dicts("word"))
    new = [[f"new{k}" for k in range(19)]]
    silent(model, dicts("word", new))
    with pytest.warns(DataWarning, match=r"the steps of X have no .*Are their values written as in fit\?"):
        model.predict(dicts("word", [*new, ["NEW"]]))
    with pytest.warns(DataWarning, match="most steps of X"):
        model.predict(dicts("word", [[f"new{k}" for k in range(21)] + ["the"] * 20]))
    silent(model, dicts("word", [[f"new{k}" for k in range(21)] + ["the"] * 21]))


def test_a_bias_is_no_feature_that_is_known() -> None:
    def biased(key: str, words: list[list[str]] = WORDS) -> list[list[dict[str, Any]]]:
        return [[{"bias": 1.0, key: word} for word in row] for row in words]

    model = chain(biased("word"))
    with pytest.warns(DataWarning, match="model knows but 'bias': they have {'wrod': 'the'}.*Did you mean 'word'"):
        model.predict(biased("wrod"))
    silent(model, biased("word"))
    silent(model, biased("word", [["quite", "unheard", "of"]]))
    silent(model, [[{"bias": 1.0}] * 30])
    silent(model, [[{"word": "the"}] * 30])
    silent(model, [[{"bias": 1.0, "more": str(k)} for k in range(3)] + biased("word")[0] + biased("word")[1]])
    with pytest.warns(DataWarning, match="model knows but 'bias'"):
        chain([[["bias", f"word={word}"] for word in row] for row in WORDS]).predict(biased("word"))
    with pytest.warns(DataWarning, match="Are their values written as in fit"):
        model.predict(biased("word", [[f"new{k}" for k in range(20)]]))


def test_steps_without_features_do_not_count() -> None:
    model = chain(dicts("word"))
    silent(model, [[{"word": "dog"}, *({} for _ in range(50)), {"wrod": "dog"}]])
    with pytest.warns(DataWarning, match="most steps of X"):
        model.predict([[{"word": "dog"}, *({} for _ in range(50)), {"wrod": "dog"}, {"wrod": "cat"}]])


def test_large_calls_are_told_by_a_sample() -> None:
    model = chain(dicts("word"))
    known, strange = dicts("word")[0], dicts("wrod")[0]
    silent(model, [known] * 501 + [strange] * 500)
    with pytest.warns(DataWarning, match="most steps of X"):
        model.predict([known] * 400 + [strange] * 600)


def test_attributes_of_a_file() -> None:
    X, y, _ = parse_crfsuite(b"D\tw=the\nN\tw=dog\tnoun\n\nD\tw=a\nN\tw=cat\tnoun\n")
    model = ChainCRF().fit(X, y)
    silent(model, X)
    columns, _, _ = parse_crfsuite(b"the\tDT\tD\ndog\tNN\tN\n")
    with pytest.warns(DataWarning, match="they have 'DT', 'D', 'NN'; known are 'w=the', 'noun'"):
        model.predict(columns)


def test_tokens_by_a_template() -> None:
    rows = [[(word, word[0]) for word in row] for row in WORDS]
    model = ChainCRF(template="U0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nU3:\nB").fit(rows, LABELS)
    silent(model, rows)
    silent(model, [[("unheard", "u")] * 8])
    new, swapped = ([[(f"{w}!", "x") for w in row] for row in WORDS * 2], [[("x", w) for w in r] for r in WORDS * 2])
    for X in (new, swapped, [[row] for row in swapped[0]] * 8):
        with pytest.warns(DataWarning, match=r"known are 'U0:the', .*Are the columns as in fit\?"):
            model.predict(X)
    silent(ChainCRF(template="U3:\nB").fit(rows, LABELS), [[("unheard", "u")] * 30])


def test_it_is_told_once_for_a_line_of_a_program() -> None:
    model = chain(dicts("word"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for word in ("dog", "cat", "barks"):
            model.predict([[{"wrod": word}, {"wrod": "the"}]])
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_going_on_with_new_features_is_no_surprise() -> None:
    model = ChainCRF().fit(dicts("word"), LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(dicts("other"), LABELS)
    silent(model, dicts("other"))


def test_strict_ends_with_its_block() -> None:
    model = chain(dicts("word"))
    with crfield.strict():
        with pytest.raises(FeatureError, match="12 of 12 steps have no feature"):
            model.predict(dicts("wrod"))
        with crfield.strict(False), pytest.warns(DataWarning, match=TOLD):
            model.predict(dicts("wrod"))
        silent(model, dicts("word"))
    with pytest.warns(DataWarning, match=TOLD):
        model.predict(dicts("wrod"))


def test_models_from_files_tell_too(tmp_path: Any) -> None:
    chain(dicts("word")).save(tmp_path / "model")
    with pytest.warns(DataWarning, match="Did you mean 'word'"):
        crfield.load(tmp_path / "model").predict(dicts("wrod"))
