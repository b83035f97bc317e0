"""`ClassifierHMM`: counts, Bayes' rule, and the figures of activity days."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import crfield
from crfield import ChainCRF, ClassifierHMM, LogitBoost, StumpSelector, make_activity_days
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import CrfieldError, DataWarning, InputError, LabelError, ModelFileError
from crfield.estimators.markov.classifier_hmm import FLOOR
from crfield.inference.graphs.brute import BruteEngine
from crfield.storage.archive import read_archive, write_archive
from crfield.training.markov.counting import counted
from tests.cases.model_file_fuzz import edited


def some_days(n: int = 5, length: int = 30, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    days = make_activity_days(8, n_labels=3, n_days=n, length=length, n_informative=5, random_state=seed)
    return days.features, days.labels


# -------------------------------------------------------------------------------------------------------- counts


def test_transitions_are_counted_and_smoothed() -> None:
    chains = Chains.from_lengths([4, 0, 1, 2])
    labels = np.array([0, 0, 1, 2, 1, -1, 2])
    target = Target(chains, 3, labels, np.ones((7, 3), bool), np.array([2.0, 1.0, 1.0, 1.0]))
    start, transition, shares = counted(target, smoothing=0.5)
    np.testing.assert_allclose(start, np.array([2.5, 1.5, 0.5]) / 4.5)
    np.testing.assert_allclose(transition[0], np.array([2.5, 2.5, 0.5]) / 5.5)
    np.testing.assert_allclose(transition[1], np.array([0.5, 0.5, 2.5]) / 3.5)
    np.testing.assert_allclose(transition[2], np.full(3, 1 / 3), err_msg="nothing follows the last label")
    np.testing.assert_allclose(shares, np.array([4.0, 3.0, 3.0]) / 10)


def test_without_smoothing_what_was_never_seen_is_impossible() -> None:
    X = [np.array([[0.0], [0.1], [1.0], [1.1]])] * 5
    y = [["a", "a", "b", "b"]] * 5
    model = ClassifierHMM(LogisticRegression(), smoothing=0.0).fit(X, y)
    assert model.transition_probabilities_.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    backwards = [np.array([[1.1], [1.0], [0.1]])]
    assert model.predict(backwards)[0].tolist() == ["a", "b", "b"], "the first label is always a, and b never ends"
    assert np.isneginf(model.log_prob(backwards, [["b", "a", "a"]])[0])
    assert (
        ClassifierHMM(LogisticRegression(), smoothing=1.0).fit(X, y).log_prob(backwards, [["b", "a", "a"]])[0] > -20
    )


def test_scores_are_bayes_rule() -> None:
    """The joint density of a hidden Markov model, up to what no label depends on."""
    X, y = some_days()
    model = ClassifierHMM(GaussianNB(), emission_weight=0.5).fit(X, y)
    scores = model.potentials(X[:1])
    flat = np.concatenate(X), np.searchsorted(model.classes_, np.concatenate(y))
    p = np.maximum(GaussianNB().fit(*flat).predict_proba(X[0]), FLOOR)
    node = 0.5 * (np.log(p) - np.log(model.class_shares_))
    node[0] += np.log(model.start_probabilities_)
    np.testing.assert_allclose(scores.node, node, atol=1e-9)
    np.testing.assert_allclose(scores.edge[0], np.log(model.transition_probabilities_))
    short = [X[0][:5]]
    exact = BruteEngine().infer(model.potentials(short), Semiring.LOG)
    np.testing.assert_allclose(model.predict_proba(short)[0], exact.node, atol=1e-9)


def test_with_a_flat_classifier_only_transitions_remain() -> None:
    from sklearn.dummy import DummyClassifier

    X, y = some_days()
    model = ClassifierHMM(DummyClassifier(strategy="prior")).fit(X, y)
    p = model.start_probabilities_
    for row in model.predict_proba(X[:1])[0]:
        np.testing.assert_allclose(row, p, atol=1e-9)
        p = p @ model.transition_probabilities_


# -------------------------------------------------------------------------------------------- classifiers and input


@pytest.mark.parametrize("classifier", [None, RandomForestClassifier(20, random_state=0)])
def test_any_classifier_gains_from_transitions(classifier: Any) -> None:
    X, y = some_days(14, 60)
    model = ClassifierHMM(classifier, standardize=True).fit(X[:8], y[:8])
    flat = np.concatenate(X[8:]), np.concatenate(y[8:])
    table = model._fitted.encoder.encode(X[8:]).node.dense
    alone = (model.classes_[model.classifier_.predict(table)] == flat[1]).mean()
    assert model.score(X[8:], y[8:]) > alone + 0.02
    assert classifier is None or not hasattr(classifier, "classes_"), "the one that was given stays as it was"


def test_steps_of_unknown_label_teach_nothing() -> None:
    X, y = some_days()
    hidden: list[list[Any]] = [[None if t % 3 == 2 else label for t, label in enumerate(labels)] for labels in y]
    model = ClassifierHMM(GaussianNB()).fit(X, hidden)
    kept = [np.arange(len(labels)) % 3 != 2 for labels in y]
    flat = np.concatenate([x[k] for x, k in zip(X, kept)]), np.concatenate([labels[k] for labels, k in zip(y, kept)])
    alone = GaussianNB().fit(*flat)
    np.testing.assert_allclose(model.classifier_.theta_, alone.theta_)
    assert model.score(X, hidden) > 0.6


def test_the_window_reaches_the_classifier() -> None:
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 2, (9, 1)).astype(float) for _ in range(30)]
    y = [np.roll(x[:, 0], 1) * (np.arange(9) > 0) for x in X]
    assert ClassifierHMM(LogisticRegression()).fit(X, y).score(X, y) < 0.8
    assert ClassifierHMM(LogisticRegression(), window=1).fit(X, y).score(X, y) == 1.0
    sparse = [sp.csr_array(x) for x in X]
    assert ClassifierHMM(LogisticRegression(), window=1).fit(sparse, y).score(sparse, y) == 1.0


def test_odd_sequences() -> None:
    X = [np.zeros((0, 1)), np.array([[1.0]]), np.array([[0.0], [1.0]])]
    y: list[list[str]] = [[], ["b"], ["a", "b"]]
    model = ClassifierHMM(GaussianNB()).fit(X, y)
    assert [labels.tolist() for labels in model.predict(X)] == y
    one = ClassifierHMM(GaussianNB()).fit(X, [[], ["a"], ["a", "a"]])
    assert one.predict_proba(X)[2].tolist() == [[1.0], [1.0]]
    assert one.classifier_ is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classifier": LinearSVC()}, "CalibratedClassifierCV"),
        ({"classifier": GaussianNB}, "the class GaussianNB"),
        ({"smoothing": -1.0}, "smoothing"),
        ({"emission_weight": float("inf")}, "emission_weight"),
        ({"standardize": 1}, "standardize"),
        ({"window": 1.5}, "window"),
        ({"decode": "best"}, "decode"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_that_cannot_be(options: dict[str, Any], words: str) -> None:
    X, y = some_days(2)
    with pytest.raises(InputError, match=words):
        ClassifierHMM(**options).fit(X, y)


def test_what_cannot_be_counted_or_weighed() -> None:
    X, y = some_days(3)
    never = [[{"walk", "rest"}, *list(labels[1:])] for labels in y]
    with pytest.raises(LabelError, match="no step whose label is known"):
        ClassifierHMM(GaussianNB()).fit(X, never)
    from sklearn.neighbors import KNeighborsClassifier

    with pytest.warns(DataWarning, match="KNeighborsClassifier"):
        ClassifierHMM(KNeighborsClassifier(3)).fit(X, y, sample_weight=[1.0, 2.0, 3.0])


# ---------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "classifier", [None, LogitBoost(n_rounds=7, learner="tree"), LogisticRegression(), LogitBoost(n_rounds=3)]
)
def test_files(classifier: Any, tmp_path: Path) -> None:
    X, y = some_days()
    model = ClassifierHMM(classifier, smoothing=0.5).fit(X, y)
    model.save(tmp_path / "model.crfield")
    copy = crfield.load(tmp_path / "model.crfield")
    assert np.array_equal(copy.potentials(X).node, model.potentials(X).node)
    assert type(copy.classifier) is type(model.classifier)
    if isinstance(classifier, LogitBoost):
        assert copy.classifier.get_params() == classifier.get_params()
        assert copy.classifier_.rounds_ == model.classifier_.rounds_


def test_files_hold_no_code_and_no_nonsense(tmp_path: Path) -> None:
    X, y = some_days(3)
    with pytest.raises(InputError, match="joblib"):
        ClassifierHMM(GaussianNB()).fit(X, y).save(tmp_path / "no.crfield")
    assert not list(tmp_path.iterdir())
    path = tmp_path / "model.crfield"
    ClassifierHMM(LogitBoost(n_rounds=3)).fit(X, y).save(path)
    archive = read_archive(path)
    for name, change in (
        ("transition_probabilities_", lambda a: a * 2),
        ("class_shares_", lambda a: a * 0),
        ("start_probabilities_", lambda a: a[:1]),
        ("classifier/start", lambda a: a + np.nan),
        ("classifier/node/column", lambda a: a + 100),
    ):
        arrays = {key: archive.arrays[key] for key in archive.arrays}
        arrays[name] = change(arrays[name])
        write_archive(path, archive.header, arrays)
        with pytest.raises(ModelFileError):
            crfield.load(path)
    write_archive(path, {**archive.header, "classifier": {"type": "oracle"}}, archive.arrays)
    with pytest.raises(ModelFileError, match="oracle"):
        crfield.load(path)


@pytest.mark.parametrize("classifier", [LogitBoost(n_rounds=3, learner="tree"), LogisticRegression()])
def test_edited_files_are_refused_or_usable(classifier: Any) -> None:
    X, y = some_days(3, 12)
    stream = io.BytesIO()
    ClassifierHMM(classifier).fit(X, y).save(stream)
    rng, refused = random.Random(1), 0
    for _ in range(80):
        data = edited(stream.getvalue(), rng)
        if data is None:
            continue
        try:
            model = crfield.load(io.BytesIO(data))
        except ModelFileError:
            refused += 1
            continue
        with contextlib.suppress(CrfieldError), np.errstate(all="ignore"):
            model.predict(X)
            model.save(io.BytesIO())
    assert refused > 30


# --------------------------------------------------------------------------------------------------------- figures


def test_figures_of_activity_days() -> None:
    """Mean of four worlds, 12 days to learn from and 30 to test on, best paths: an earlier study's figures ± .03."""
    found: dict[str, list[float]] = {"alone": [], "markov": [], "likelihood": []}
    for seed in (1, 2, 3, 4):
        days = make_activity_days(30, n_days=42, random_state=seed)
        learn = days.features[:12], days.labels[:12]
        test = days.features[12:], days.labels[12:]
        markov = ClassifierHMM(LogitBoost(n_rounds=50, start="zero")).fit(*learn)
        right = markov.classifier_.predict(np.concatenate(test[0])) == np.concatenate(test[1])
        found["alone"].append(float(right.mean()))
        found["markov"].append(markov.score(*test))
        joined = make_pipeline(StumpSelector(n_rounds=50, start="zero"), ChainCRF(l2=5.0)).fit(*learn)
        found["likelihood"].append(joined.score(*test))
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    assert mean["alone"] == pytest.approx(0.737, abs=0.03)
    assert mean["markov"] == pytest.approx(0.858, abs=0.03)
    assert mean["likelihood"] == pytest.approx(0.898, abs=0.03)
