"""A script written for sklearn-crfsuite runs on `crfield.compat.sklearn_crfsuite`, to the same optimum."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score

import crfield
from crfield import make_phrases
from crfield.compat import sklearn_crfsuite
from crfield.compat.sklearn_crfsuite import CRF, metrics, scorers
from crfield.errors import CrfieldWarning, InputError, NotFittedError


def word_features(sentence: list[str], at: int) -> dict[str, Any]:
    """A word, its ending and shape, and its neighbours, in the manner of the tutorial."""
    word = sentence[at]
    features: dict[str, Any] = {
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-2:]": word[-2:],
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
    }
    if at > 0:
        features["-1:word.lower()"] = sentence[at - 1].lower()
    else:
        features["BOS"] = True
    if at < len(sentence) - 1:
        features["+1:word.lower()"] = sentence[at + 1].lower()
    else:
        features["EOS"] = True
    return features


@pytest.fixture(scope="module")
def data() -> tuple[Any, ...]:
    phrases = make_phrases(90, random_state=1)
    X = [[word_features(list(tokens), t) for t in range(len(tokens))] for tokens in phrases.tokens]
    y = [list(map(str, labels)) for labels in phrases.labels]
    return X[:60], y[:60], X[60:], y[60:]


def test_the_tutorial(data: tuple[Any, ...]) -> None:
    """Train, score, search, look at the weights: what a first script does."""
    X_train, y_train, X_test, y_test = data
    crf = sklearn_crfsuite.CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True)
    crf.fit(X_train, y_train)
    labels = list(crf.classes_)
    labels.remove("O")
    y_pred = crf.predict(X_test)
    f1 = metrics.flat_f1_score(y_test, y_pred, average="weighted", labels=labels)
    assert 0.5 < f1 <= 1.0
    report = metrics.flat_classification_report(y_test, y_pred, labels=sorted(labels), digits=3)
    assert all(label in report for label in labels)
    f1_scorer = make_scorer(metrics.flat_f1_score, average="weighted", labels=labels)
    search = RandomizedSearchCV(
        CRF(algorithm="lbfgs", max_iterations=20, all_possible_transitions=True),
        {"c1": [0.0, 0.3], "c2": [0.05, 1.0]},
        cv=2,
        n_iter=2,
        scoring=f1_scorer,
        random_state=0,
    )
    search.fit(X_train, y_train)
    best = search.best_estimator_
    assert set(search.best_params_) == {"c1", "c2"}
    assert 0.5 < search.best_score_ <= 1.0
    assert best.size_ > 2000
    strongest = sorted(best.transition_features_.items(), key=lambda item: -item[1])[0]
    assert set(strongest[0]) <= set(best.classes_)
    (name, label), _ = max(best.state_features_.items(), key=lambda item: item[1])
    assert name in best.attributes_
    assert label in best.classes_


@pytest.mark.parametrize(
    "settings",
    [
        {"c1": 0.0, "c2": 0.5},
        {"c1": 0.2, "c2": 0.1, "all_possible_transitions": True},
        {"c2": 1.0, "all_possible_states": True, "all_possible_transitions": True},
        {"c2": 0.2, "min_freq": 3.0},
    ],
    ids=["l2", "elastic", "all", "min_freq"],
)
def test_the_optimum_is_that_of_crfsuite(settings: dict[str, Any], data: tuple[Any, ...], tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    X, y, _, _ = data
    names = {"min_freq": "feature.minfreq"} | {
        f"all_possible_{what}": f"feature.possible_{what}" for what in ("states", "transitions")
    }
    params = {names.get(key, key): value for key, value in settings.items()}
    trainer = pycrfsuite.Trainer(verbose=False, params={**params, "delta": 1e-12, "epsilon": 1e-9})
    for x, labels in zip(X, y):
        trainer.append(pycrfsuite.ItemSequence(x), labels)
    trainer.train(str(tmp_path / "m"))
    ours = CRF(**settings, delta=1e-8).fit(X, y)
    theirs = trainer.logparser.last_iteration["loss"]
    assert ours.training_log_.last_iteration["loss"] == pytest.approx(theirs, rel=2e-6)
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "m"))
    info = tagger.info()
    assert ours.classes_ == tagger.labels()
    if not settings.get("c1"):
        assert set(ours.attributes_) == set(info.attributes)
        assert set(ours.transition_features_) == set(info.transitions)
        assert ours.state_features_ == pytest.approx(info.state_features, abs=5e-3)
        assert len(ours.state_features_) == len(info.state_features)


def test_outputs_are_arrays_and_marginals_are_dicts(data: tuple[Any, ...]) -> None:
    X, y, X_test, y_test = data
    crf = CRF(c2=0.1).fit(X, y)
    equal = [x[:2] for x in X_test if len(x) >= 2]
    found = crf.predict(equal)
    assert found.shape == (len(equal), 2)
    assert all(type(label) is str for labels in found for label in labels)
    assert crf.predict_single(equal[0]) == found[0].tolist()
    unequal = crf.predict([equal[0], equal[0][:1]])
    assert unequal.shape == (2,)
    assert [type(labels) for labels in unequal] == [list, list]
    assert crf.predict_marginals(equal).shape == (len(equal), 2)
    assert crf.predict([[]]).shape == (1, 0)
    assert crf.predict_single([]) == []
    marginals = crf.predict_marginals(equal[:1])[0].tolist()
    assert list(marginals[0]) == crf.classes_
    assert sum(marginals[1].values()) == pytest.approx(1.0)
    assert crf.predict_marginals_single(equal[0]) == marginals
    assert crf.score(X_test, y_test) == metrics.flat_accuracy_score(y_test, crf.predict(X_test))
    tagger = crf.tagger_
    assert tagger.tag(equal[0]) == found[0].tolist()
    assert tagger.marginal(crf.classes_[0], 1) == marginals[1][crf.classes_[0]]
    assert 0 < tagger.probability(found[0]) <= 1
    assert tagger.info().transitions == crf.transition_features_


def test_labels_stand_in_the_order_of_their_first_occurrence() -> None:
    crf = CRF().fit([[["a"], ["b"], ["c"]]], [["Z", "A", "M"]])
    assert crf.classes_ == ["Z", "A", "M"]
    partly = CRF().fit([[["a"], ["b"], ["c"]]], [np.array(["Z", None, "M"], dtype=object)])
    assert partly.classes_ == ["Z", "M"]
    arrays = CRF().fit([[["a"], ["b"]]], [np.array(["Z", "A"])])
    assert [type(label) for label in arrays.classes_] == [str, str]


def test_a_feature_whose_values_are_negative_keeps_its_weights() -> None:
    """CRFsuite drops it, since it adds up values where it counts occurrences."""
    X = [[{"x": -1.0}, {"x": -3.0}, {"x": -1.2}, {"x": -2.9}]] * 5
    y = [["near", "far", "near", "far"]] * 5
    crf = CRF(c2=0.01).fit(X, y)
    assert set(crf.state_features_) == {("x", "near"), ("x", "far")}
    assert crf.predict(X).tolist() == y


def test_model_filename_is_written_and_read(data: tuple[Any, ...], tmp_path: Path) -> None:
    X, y, X_test, _ = data
    path = os.fspath(tmp_path / "model.crfsuite")
    trained = CRF(c2=0.5, model_filename=path).fit(X, y)
    assert Path(path).stat().st_size == trained.size_
    found = CRF(model_filename=path)
    assert found.predict(X_test).tolist() == trained.predict(X_test).tolist()
    assert found.state_features_ == trained.state_features_


def test_before_fit_there_is_nothing() -> None:
    crf = CRF()
    assert crf.classes_ is crf.tagger_ is crf.state_features_ is crf.size_ is crf.training_log_ is None
    assert (crf.attributes_, crf.num_attributes_, crf.transition_features_) == (None, None, None)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        crf.predict([[["a"]]])


def test_scikit_learn_tools_work(data: tuple[Any, ...]) -> None:
    X, y, X_test, _ = data
    crf = CRF(c2=0.5, max_iterations=10)
    assert clone(crf).get_params() == crf.get_params()
    for scorer in (scorers.flat_accuracy, scorers.sequence_accuracy):
        assert 0 <= cross_val_score(crf, X, y, scoring=scorer, cv=2).min() <= 1
    search = GridSearchCV(crf, {"c2": [0.1, 10.0]}, cv=2, scoring=scorers.flat_accuracy).fit(X, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert again.predict(X_test).tolist() == search.predict(X_test).tolist()
    assert "max_iterations=10" in repr(crf)


def test_held_out_data_are_scored(data: tuple[Any, ...]) -> None:
    X, y, X_test, y_test = data
    crf = CRF(c2=0.5, max_iterations=5).fit(X, y, X_test, y_test)
    last = crf.training_log_.last_iteration
    assert len(crf.training_log_.iterations) == last["num"] <= 5
    assert last["item_accuracy_float"] == crf.score(X_test, y_test)
    assert last["instance_accuracy_float"] == metrics.sequence_accuracy_score(y_test, crf.predict(X_test))
    with pytest.raises(InputError, match="X_dev and y_dev together"):
        CRF().fit(X, y, X_dev=X_test)


def test_parameters_without_a_meaning_are_told_once() -> None:
    X, y = [[["a"], ["b"]]], [["N", "V"]]
    with pytest.warns(CrfieldWarning, match="have no meaning here.*num_memories, linesearch, trainer_cls") as told:
        CRF(num_memories=3, linesearch="Backtracking", max_linesearch=20, trainer_cls=object, epsilon=1e-5).fit(X, y)
    assert len(told) == 1
    CRF(linesearch="MoreThuente", num_memories=6, period=5, delta=1e-4, keep_tempfiles=True).fit(X, y)


def test_parameters_of_another_algorithm_are_refused() -> None:
    X, y = [[["a"], ["b"]]], [["N", "V"]]
    with pytest.raises(InputError, match="algorithm='ap' has no parameter c1, c2; it has epsilon and max_iterations"):
        CRF(algorithm="ap", c1=0.1, c2=0.1).fit(X, y)
    with pytest.raises(InputError, match="algorithm must be one of 'lbfgs', 'l2sgd'"):
        CRF(algorithm="sgd").fit(X, y)


@pytest.mark.parametrize(
    ("algorithm", "solver", "settings"),
    [
        ("l2sgd", "sgd", {"c2": 0.1, "max_iterations": 30}),
        ("ap", "perceptron", {"max_iterations": 20}),
        ("pa", "passive_aggressive", {"max_iterations": 20, "pa_type": 1, "c": 1.0, "averaging": True}),
        ("arow", "arow", {"max_iterations": 20, "variance": 1.0, "gamma": 1.0}),
    ],
)
def test_other_algorithms(algorithm: str, solver: str, settings: dict[str, Any], data: tuple[Any, ...]) -> None:
    X, y, X_test, y_test = data
    crf = CRF(algorithm=algorithm, **settings)
    assert crf.fit(X, y).score(X_test, y_test) > 0.6
    assert crf.chain_.solver == solver
    assert 1 <= len(crf.training_log_.iterations) <= settings["max_iterations"]
    assert clone(crf).fit(X, y).predict(X_test).tolist() == crf.predict(X_test).tolist()


def test_metrics_agree_with_scikit_learn_on_flat_labels() -> None:
    y_true, y_pred = [["A", "B"], ["B"]], np.array([["A", "A"], ["B"]], dtype=object)
    assert metrics.flat_accuracy_score(y_true, y_pred) == 2 / 3
    assert metrics.flat_precision_score(y_true, y_pred, average="macro") == 0.75
    assert metrics.flat_recall_score(y_true, y_pred, pos_label="B") == 0.5
    assert metrics.flat_fbeta_score(y_true, y_pred, 1.0, pos_label="B") == pytest.approx(2 / 3)
    assert metrics.flat_f1_score(y_true, y_pred, pos_label="B") == pytest.approx(2 / 3)
    assert metrics.sequence_accuracy_score(y_true, y_pred) == 0.5
    assert metrics.sequence_accuracy_score([], []) == 0.0
    assert (
        metrics.sequence_accuracy_score(
            [["A"], ["B"]], crfield.ChainCRF().fit([[["a"]]] * 2, [["A"], ["B"]]).predict([[["a"]]] * 2)
        )
        == 0.5
    )


def test_variance_and_gamma_of_arow_are_one_number() -> None:
    X, y = [[["a", "c"], ["b"]], [["b"], ["a"]]], [["N", "V"], ["V", "N"]]
    one, two = (CRF(algorithm="arow", variance=v, gamma=4 * v, max_iterations=3).fit(X, y) for v in (1.0, 0.5))
    assert one.chain_.solver_options["r"] == 4.0
    assert one.state_features_ == two.state_features_


def test_pa_type_must_be_one_of_three() -> None:
    with pytest.raises(InputError, match="pa_type must be 0, 1 or 2, got 3"):
        CRF(algorithm="pa", pa_type=3).fit([[["a"]]], [["N"]])


def test_long_names_of_algorithms_are_python_crfsuites(data: tuple[Any, ...]) -> None:
    X, y, X_test, _ = data
    for long, short in (("averaged-perceptron", "ap"), ("passive-aggressive", "pa")):
        one, two = (CRF(name, max_iterations=5).fit(X[:20], y[:20]) for name in (long, short))
        assert one.predict(X_test).tolist() == two.predict(X_test).tolist()
        assert (one.algorithm, one.chain_.solver) == (long, two.chain_.solver)
        assert pickle.loads(pickle.dumps(one)).state_features_ == two.state_features_


FORMS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "bytes values": lambda: ([[{"w": b"x"}, {"w": "не светит".encode()}]], [["N", "V"]]),
    "bytes names": lambda: ([[{b"w": 1.0}, {"m": {b"k": 2.0}}]], [["N", "V"]]),
    "bytes features": lambda: ([[[b"w"], ["m", b"k"]]], [["N", "V"]]),
    "bytes in lists": lambda: ([[{"w": [b"x", "y"]}, {"w": {b"z"}}]], [["N", "V"]]),
    "bytes labels": lambda: ([[{"w": 1}, {"m": 1}]], [[b"N", "V"]]),
    "keys of a step": lambda: ([[{"w": 1}.keys(), {"m": 1}.keys()]], [["N", "V"]]),
    "values of a dict": lambda: ({"a": [{"w": 1}, {"m": 1}]}.values(), {"a": ["N", "V"]}.values()),
    "keys as labels": lambda: ([[{"w": 1}, {"m": 1}]], [{"N": 0, "V": 0}.keys()]),
    "iterators": lambda: (iter([iter([{"w": 1}, {"m": 1}])]), iter([iter(["N", "V"])])),
    "dicts, sets": lambda: ([[{"w": {"x": 1, "y": ["u", "v"]}}, {"m": {"c", "d"}}]], [["N", "V"]]),
    "an array": lambda: (np.array([[{"w": 1}, {"m": 1}]], dtype=object), np.array([["N", "V"]])),
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_python_crfsuite_reads_is_read(form: str, tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, labels in zip(*FORMS[form]()):
        trainer.append(x, labels)
    trainer.train(str(tmp_path / "m"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "m"))
    crf = CRF().fit(*FORMS[form]())
    assert sorted(crf.attributes_) == sorted(tagger.info().attributes)
    assert crf.classes_ == tagger.labels()
    X, y = FORMS[form]()
    assert crf.predict(X).tolist() == [["N", "V"]]
    X, y = FORMS[form]()
    assert crf.score(X, y) == 1.0
    x = next(iter(FORMS[form]()[0]))
    assert crf.predict_single(x) == ["N", "V"]
    x = next(iter(FORMS[form]()[0]))
    crf.tagger_.tag(x)
    x = next(iter(FORMS[form]()[0]))
    assert [set(step) for step in crf.predict_marginals_single(x)] == [{"N", "V"}] * 2


def test_sequences_of_python_crfsuite_and_bytes_that_are_no_text() -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    crf = CRF().fit([pycrfsuite.ItemSequence([{"w": 1.0}, {"m": "k"}])], [["N", "V"]])
    assert sorted(crf.attributes_) == ["m:k", "w"]
    odd = CRF().fit([[{"w": b"\xff"}, {"w": b"\xfe"}]], [["N", "V"]])
    assert sorted(odd.attributes_) == ["w:\\xfe", "w:\\xff"]


def test_utils_flatten() -> None:
    assert sklearn_crfsuite.utils.flatten([["N", "V"], ["N"]]) == ["N", "V", "N"]


ALIAS = """
import sys
import crfield.compat.sklearn_crfsuite as ours

for name in ("", ".metrics", ".scorers", ".utils", ".estimator"):
    sys.modules["sklearn_crfsuite" + name] = sys.modules[ours.__name__ + name]
"""


def test_the_packages_own_tests_pass(tmp_path: Path) -> None:
    """All of them, unchanged, with our modules under the package's name."""
    source = os.environ.get("CRFIELD_SKLEARN_CRFSUITE")
    if source is None:
        pytest.skip(
            "CRFIELD_SKLEARN_CRFSUITE is no source archive of sklearn-crfsuite: "
            "pip download --no-binary :all: --no-deps sklearn-crfsuite"
        )
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (tests,) = tmp_path.glob("*/tests")
    (tmp_path / "under_its_name.py").write_text(ALIAS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "under_its_name", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(
        [*command, "--import-mode=importlib", "--rootdir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"4\d passed", done.stdout), done.stdout
