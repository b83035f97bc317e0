"""Classifiers whose probabilities are too flat for a chain: the exponent of inner folds, and when there is none."""

from __future__ import annotations

import io
from collections.abc import Callable

import joblib
import numpy as np
import pytest
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import crfield
from crfield import ClassifierHMM, make_activity_days
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import DataWarning, InputError, ModelFileError
from crfield.estimators.markov.step_calibration import StepCalibration, StepJudge, best_calibration, calibrate_steps
from crfield.storage.archive import read_archive, write_archive

DAYS = make_activity_days(12, n_labels=3, n_days=20, length=60, n_informative=8, random_state=3)
X, y = DAYS.features, DAYS.labels


def boosting() -> AdaBoostClassifier:
    return AdaBoostClassifier(n_estimators=12, random_state=0)


def test_a_flat_classifier_is_put_right() -> None:
    model = ClassifierHMM(boosting()).fit(X[:12], y[:12])
    told = model.calibration_
    plain = ClassifierHMM(boosting(), calibrate=None).fit(X[:12], y[:12])
    chances = plain.classifier_.predict_proba(np.concatenate(X[12:]))
    truth = np.searchsorted(model.classes_, np.concatenate(y[12:]))
    alone = (chances.argmax(axis=1) == truth).mean()
    assert chances.max(axis=1).mean() < alone - 0.2, "right far more often than it says"
    assert plain.score(X[12:], y[12:]) < alone - 0.1
    assert model.score(X[12:], y[12:]) > alone + 0.02
    assert (told.folds, plain.calibration_) == (3, StepCalibration())
    assert told.exponent > 3
    assert told.plain + 0.02 < told.scaled
    # Bayes' rule with the power
    node = told.exponent * np.log(chances[: len(X[12])]) - np.log(told.means)
    node[0] += np.log(model.start_probabilities_)
    np.testing.assert_allclose(model.potentials(X[12:13]).node, node, atol=1e-9)
    stream = model.stream()
    for t in range(4):
        now = stream.push(X[12][t]).probabilities
    np.testing.assert_allclose(now, model.predict_proba([X[12][:4]])[0][-1], atol=1e-9)
    kept = io.BytesIO()
    joblib.dump(model, kept)
    kept.seek(0)
    assert joblib.load(kept).calibration_ == told


@pytest.mark.parametrize("classifier", [GaussianNB(), LogisticRegression(), None])
def test_others_are_left_alone(classifier: object) -> None:
    model = ClassifierHMM(classifier).fit(X[:6], y[:6])
    assert str(model.calibration_) == "p(label | x) as the classifier says it"
    plain = ClassifierHMM(classifier, calibrate=None).fit(X[:6], y[:6])
    np.testing.assert_array_equal(model.potentials(X[6:]).node, plain.potentials(X[6:]).node)


def test_the_exponent_is_of_largest_likelihood() -> None:
    rng = np.random.default_rng(0)
    logs = np.log(rng.dirichlet(np.ones(3), 200))
    labels = np.array([rng.choice(3, p=np.exp(3 * row) / np.exp(3 * row).sum()) for row in logs])
    target = Target(Chains.from_lengths([200]), 3, labels)
    told = best_calibration(logs, target, np.arange(200))
    found = told.exponent
    powers = np.exp(found * logs)
    np.testing.assert_allclose(told.means, (powers / powers.sum(axis=1, keepdims=True)).mean(axis=0))

    def likelihood(exponent: float) -> float:
        scores = exponent * logs
        return float((scores[np.arange(200), labels] - np.log(np.exp(scores).sum(axis=1))).sum())

    assert 2 < found < 4.5
    assert likelihood(found) > max(likelihood(0.98 * found), likelihood(1.02 * found))


def test_groups_stay_together_and_a_chain_that_stays_worse_is_told_of() -> None:
    """Eight sequences of one group alternate, as no other group does: left out, the chain overrules right steps."""
    lengths = [10] * 8 + [6, 6]
    labels = np.concatenate([np.tile([0, 1], 5)] * 8 + [np.zeros(6, int), np.ones(6, int)])
    target = Target(Chains.from_lengths(lengths), 2, labels)
    groups = ["ann"] * 8 + ["bob", "cy"]
    of_step = np.repeat(groups, lengths)
    logs = np.log(np.where(np.eye(2, dtype=bool)[labels], 0.6, 0.4))
    logs[-3:] = logs[-3:, ::-1]  # no exponent is infinite
    taught: list[set[str]] = []

    def teach(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        taught.append(set(of_step[rows]))
        return lambda here: logs[here]

    judge = StepJudge(target, 1.0, 1.0, "viterbi", 1)
    half = np.full((2, 2), 0.5)
    with pytest.warns(DataWarning, match=r"right by itself and 0\.\d+ inside the chain.*CalibratedClassifierCV"):
        told = calibrate_steps(judge, logs, (half[0], half, half[0]), teach, groups, always=False)
    assert taught == [{"bob", "cy"}, {"ann", "cy"}, {"ann", "bob"}]
    assert told.alone > told.plain + 0.3
    with pytest.raises(InputError, match="one entry for each of 10 sequences"):
        calibrate_steps(judge, logs, (half[0], half, half[0]), teach, groups[1:], always=True)
    assert ClassifierHMM(GaussianNB()).fit(X[:4], y[:4], [1, 0, 1, 1], groups=[1, 2, 3, 1]).calibration_.folds == 0


def test_one_sequence_cannot_be_left_out() -> None:
    whole, labels = [np.concatenate(X[:4])], [np.concatenate(y[:4])]
    with pytest.warns(DataWarning, match="too few sequences"):
        assert ClassifierHMM(boosting()).fit(whole, labels).calibration_.exponent == 1.0
    with pytest.raises(InputError, match="at least two sequences"):
        ClassifierHMM(GaussianNB(), calibrate="temperature").fit(whole, labels)
    with pytest.raises(InputError, match="calibrate"):
        ClassifierHMM(GaussianNB(), calibrate="isotonic").fit(X, y)


def test_files(tmp_path: object) -> None:
    path = f"{tmp_path}/model.crfield"
    model = ClassifierHMM(LogisticRegression(), calibrate="temperature").fit(X[:6], y[:6])
    assert model.calibration_.exponent != 1.0
    model.save(path)
    loaded = crfield.load(path)
    assert loaded.calibration_ == model.calibration_
    np.testing.assert_array_equal(loaded.potentials(X[6:]).node, model.potentials(X[6:]).node)
    archive = read_archive(path)
    arrays = {name: np.array(archive.arrays[name]) for name in archive.arrays}
    good = archive.header["calibration"]
    for bad in (
        {},
        3,
        {**good, "exponent": 0.0},
        {**good, "exponent": 1e9},
        {**good, "alone": "much"},
        {**good, "means": [1]},
    ):
        write_archive(path, {**archive.header, "calibration": bad}, arrays)
        with pytest.raises(ModelFileError, match="calibration"):
            crfield.load(path)
    ClassifierHMM(LogisticRegression()).fit(X[:6], y[:6]).save(path)
    assert "calibration" not in read_archive(path).header
