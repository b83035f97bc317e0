"""``model.tagger()``: labels, errors and warnings of `predict`, one sequence at a time and from any thread."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF
from crfield.errors import DataWarning, FeatureError, LabelError, NotFittedError
from crfield.estimators.chain.answers import ChainAnswers
from tests.cases.estimators import FRONT_DOOR, KINDS, Front, Kind
from tests.storage.foreign.test_crfpp_and_wapiti import CRFPP, OBSERVATIONS, PATTERNS, WEIGHTS, wapiti
from tests.storage.foreign.test_crfsuite import sequences

QUICK = {"dicts", "rows"}  # forms whose models of KINDS are tagged by the kernel
CHAINS = [front for front in FRONT_DOOR if issubclass(front.estimator, ChainAnswers)]


def test_a_model_that_was_asked_of_one_sequence_is_pickled() -> None:
    X, y = KINDS[0].data()
    model = ChainCRF().fit(X, y)
    before = model.predict(X[:1])[0].tolist()
    for same in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert same.predict(X[:1])[0].tolist() == before


def same_as_predict(model: Any, X: Any) -> None:
    tagger, expected = model.tagger(), [labels.tolist() for labels in model.predict(X)]
    for x, labels in zip(X, expected, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of single sequences more may be unknown
            found, alone = tagger.tag(x), model.predict([x])
        assert (alone.shape, alone.dtype, alone[0].dtype) == ((1,), object, model.predict(X)[0].dtype)
        assert alone[0].tolist() == labels
        assert found == labels
        assert type(found) is list
        assert [type(label) for label in found] == [type(label) for label in labels]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name not in ("attributes", "columns")], ids=lambda k: k.name
)
def test_every_form_of_input(kind: Kind, body: str) -> None:
    X, y = kind.data()
    model = kind.model().fit(X, y)
    assert (model._sequence_tagger() is not None) == (kind.name in QUICK)
    same_as_predict(model, X)
    same_as_predict(model, kind.data(seed=5)[0])


@pytest.mark.parametrize("front", CHAINS, ids=lambda front: front.estimator.__name__)
def test_every_model_of_chains(front: Front) -> None:
    X, y = front.data(20, 0)
    for model in (front.estimator(), front.estimator(**dict(front.options))):
        same_as_predict(model.fit(X, y), X)


@pytest.mark.parametrize(
    "options",
    [{"decode": "marginal"}, {"order": 2}, {"constraints": "bio"}, {"feature_pairs": "all"}, {"intercept": False}],
    ids=str,
)
def test_options_of_the_answer(options: dict[str, Any], body: str) -> None:
    rng = np.random.default_rng(2)
    y = [["O", "B-X", "I-X", "O"], ["B-X", "I-X"], ["O", "O", "B-X"], ["O"]] * 3
    X = [[[f"w={label[0]}{rng.integers(2)}", f"r={rng.integers(3)}"] for label in labels] for labels in y]
    model = ChainCRF(**options).fit(X, y)
    same_as_predict(model, X)
    same_as_predict(model, [[["w=I0"], ["w=I1", "new"], ["w=O0"]], [], [["r=0"]]])


def test_models_read_from_other_tools(tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    trainer = pycrfsuite.Trainer(verbose=False, params={"c2": 0.01, "max_iterations": 30})
    X, y = sequences(60, 0)
    for x, labels in zip(X, y):
        trainer.append(pycrfsuite.ItemSequence(x), labels)
    path = str(tmp_path / "model.crfsuite")
    trainer.train(path)
    rival = pycrfsuite.Tagger()
    rival.open(path)
    model = crfield.load(path)
    assert model._sequence_tagger() is not None
    same_as_predict(model, X)
    tagger = model.tagger()
    assert [tagger.tag(x) for x in X] == [rival.tag(pycrfsuite.ItemSequence(x)) for x in X]

    for name, data in (("crfpp.txt", CRFPP.encode()), ("wapiti.mdl", wapiti(PATTERNS, OBSERVATIONS, WEIGHTS))):
        (tmp_path / name).write_bytes(data)
        model = crfield.load(tmp_path / name)
        assert model._sequence_tagger() is not None
        rows = [[("a", "x"), ("b", "x/y"), ("c", "y")], [("a", "x")], [], [("b", "y"), ("a", "x"), ("a", "x")]]
        same_as_predict(model, rows)


def words_of(call: Any) -> tuple[type[Exception], str]:
    with pytest.raises(Exception) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "x",
    [
        [{"word": None}],
        [{"speed": float("nan")}],
        [{1: "a"}],
        "ab",
        None,
        3,
        [["a", 1]],
        [{"vector": [1.0]}],
        {"word": "a"},
    ],
    ids=repr,
)
def test_errors_are_those_of_predict(x: Any, body: str) -> None:
    kind = KINDS[0]
    model = kind.model().fit(*kind.data())
    tagger = model.tagger()
    assert words_of(lambda: tagger.tag(x)) == words_of(lambda: model.predict([x]))


@pytest.mark.parametrize("x", [[("a",)], [("a", 1)], ["ab"], [("a", "b"), ("a",)], None, [()]], ids=repr)
def test_errors_of_rows_are_those_of_predict(x: Any, body: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == "rows")
    model = kind.model().fit(*kind.data())
    tagger = model.tagger()
    assert words_of(lambda: tagger.tag(x)) == words_of(lambda: model.predict([x]))


def test_large_cells_and_labels_without_a_path_are_told() -> None:
    model = ChainCRF().fit([[{"v": 1.0}, {"v": -1.0}]] * 3, [["B-X", "I-X"]] * 3)
    with pytest.raises(FeatureError, match="too large to be scored"):
        model.tagger().tag([{"v": 1e300}])
    model.set_params(
        constraints=crfield.Constraints(forbidden=[("B-X", "B-X"), ("B-X", "I-X"), ("I-X", "B-X"), ("I-X", "I-X")])
    )
    with pytest.raises(LabelError, match="no labelling that the constraints allow"):
        model.tagger().tag([{"v": 1.0}, {"v": 1.0}])


def test_unknown_features_are_warned_about_as_by_predict() -> None:
    model = ChainCRF().fit([[{"word": "dog"}, {"word": "barks"}]], [["N", "V"]])
    tagger = model.tagger()
    with pytest.warns(DataWarning, match="Did you mean 'word'"):
        assert len(tagger.tag([{"wrod": "dog"}])) == 1
    with crfield.strict(), pytest.raises(FeatureError, match="Did you mean 'word'"):
        tagger.tag([{"wrod": "dog"}])


def test_a_tagger_is_a_value() -> None:
    X, y = KINDS[0].data()
    model = ChainCRF().fit(X, y)
    tagger, before = model.tagger(), [labels.tolist() for labels in model.predict(X)]
    model.set_params(decode="marginal", constraints=None, n_jobs=2)
    model.fit(X, [["A"] * len(labels) for labels in y])
    assert model.tagger().tag(X[0]) == ["A"] * len(X[0])
    for same in (tagger, copy.copy(tagger), copy.deepcopy(tagger), pickle.loads(pickle.dumps(tagger))):
        assert [same(x) for x in X] == before
    assert tagger.labels == ["A", "B", "C"]
    assert repr(tagger).startswith("ChainTagger(ChainCRF(")


def test_a_model_that_is_still_on_disk(tmp_path: Path) -> None:
    X, y = KINDS[0].data()
    model = ChainCRF().fit(X, y)
    model.save(tmp_path / "m.crfield")
    assert crfield.load(tmp_path / "m.crfield", mmap=True).tagger().tag(X[0]) == model.tagger().tag(X[0])


def test_nothing_fitted_is_told() -> None:
    with pytest.raises(NotFittedError):
        ChainCRF().tagger()


@pytest.mark.parametrize("name", ["dicts", "rows", "joined"])
def test_many_threads_give_the_answers_of_one(name: str) -> None:
    """Short sequences that keep the GIL and long ones that release it, at once, through one tagger."""
    if name == "joined":
        X, y = sequences(60, 0)
        model = ChainCRF(intercept=False, boundaries=False).fit(X, y)
        model._model.encoder.joined = True  # reads other names than it learnt; what counts is that all read the same
        short = X
    else:
        kind = next(kind for kind in KINDS if kind.name == name)
        X, y = kind.data(30)
        model, short = kind.model().fit(X, y), X
    long = [[step for x in short for step in x] * 120 for _ in range(2)]
    assert len(long[0]) * len(model.classes_) ** 2 > 100_000, "the GIL is not released"
    many = [*short, *long, [], *short[::-1]]
    tagger = model.tagger()
    expected = [tagger.tag(x) for x in many]
    found: dict[int, Any] = {}
    gate = threading.Barrier(8)

    def run(k: int) -> None:
        order = np.random.default_rng(k).permutation(len(many))
        gate.wait()
        found[k] = {int(i): tagger.tag(many[i]) for i in order}

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answers in found.values():
        assert [answers[i] for i in range(len(many))] == expected
    assert len(found) == 8


def test_long_sequences_agree_with_predict() -> None:
    """A sequence that releases the GIL, and vectors beside."""
    X, y = KINDS[0].data(40)
    model = ChainCRF().fit(X, y)
    long = [step for x in X for step in x] * 120
    assert len(long) * 9 > 100_000
    same_as_predict(model, [long])
