"""`LogitBoost` against the algorithms as written, with hard and with virtual evidence."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeRegressor

import crfield
from crfield import LogitBoost
from crfield.boosting.virtual_evidence.evidence import FORMS, log_expected
from crfield.errors import FeatureError, InputError, ModelFileError, NotFittedError, ShapeError


def rows(seed: int, n: int = 150, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Graded columns, so that every threshold is a candidate."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 9, (n, 5)).astype(float)
    score = x[:, [0]] * np.linspace(-0.5, 0.5, classes) + (x[:, [3]] > 4) * np.arange(classes)
    return x, (score + rng.gumbel(size=score.shape)).argmax(axis=1)


def stump_errors(x: np.ndarray, w: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
    """Least Σ w (z − f)² of all stumps f for responses (N, C), and its values (N, C)."""
    best, kept = np.inf, np.zeros_like(z)
    for f in range(x.shape[1]):
        for t in np.unique(x[:, f])[:-1]:
            values = np.empty_like(z)
            for side in (x[:, f] <= t, x[:, f] > t):
                values[side] = (w * z)[side].sum(axis=0) / w[side].sum(axis=0)
            error = float((w * (z - values) ** 2).sum())
            if error < best * (1 - 1e-10):
                best, kept = error, values
    return best, kept


def paper_rounds(x: np.ndarray, y: np.ndarray, n_rounds: int) -> np.ndarray:
    """F of the binary algorithm: p = e^F / (e^F + e^−F), z = (y − ½) / p(y), w = p (1 − p), F ← F + f."""
    score = np.zeros(len(y))
    for _ in range(n_rounds):
        p = 1.0 / (1.0 + np.exp(-2.0 * score))
        z = np.clip((y - 0.5) / np.where(y == 1, p, 1 - p), -2.0, 2.0)
        w = np.maximum(p * (1 - p), 1e-6)
        score += stump_errors(x, w[:, None], z[:, None])[1][:, 0]
    return score


def many_class_rounds(x: np.ndarray, y: np.ndarray, classes: int, n_rounds: int, start: np.ndarray) -> np.ndarray:
    """Scores (N, K) of algorithm 6 with one stump shared by all classes."""
    scores = np.repeat(start[None], len(y), axis=0)
    for _ in range(n_rounds):
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        w = np.maximum(p * (1 - p), 1e-6)
        z = np.clip(((y[:, None] == np.arange(classes)) - p) / w, -4.0, 4.0)
        f = stump_errors(x, w, z)[1]
        scores += (classes - 1) / classes * (f - f.mean(axis=1, keepdims=True))
    return scores


# ------------------------------------------------------------------------------------ the algorithms as written


def test_two_classes_are_the_binary_algorithm(body: str) -> None:
    x, y = rows(0)
    model = LogitBoost(n_rounds=12, start="zero").fit(x, y)
    np.testing.assert_allclose(model.decision_function(x), 2 * paper_rounds(x, y, 12), rtol=0, atol=1e-12)


def test_the_many_class_form_of_two_classes_is_the_binary_one(body: str) -> None:
    x, y = rows(1)
    many = many_class_rounds(x, y, 2, 12, np.zeros(2))
    np.testing.assert_allclose(many[:, 1] - many[:, 0], 2 * paper_rounds(x, y, 12), rtol=0, atol=1e-12)
    model = LogitBoost(n_rounds=12, start="zero").fit(x, y)
    np.testing.assert_allclose(model.decision_function(x), many[:, 1] - many[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("classes", [3, 4])
def test_many_classes_are_algorithm_six(body: str, classes: int) -> None:
    x, y = rows(2, classes=classes)
    prior = np.log(np.bincount(y) / len(y))
    wanted = many_class_rounds(x, y, classes, 8, prior - prior.mean())
    np.testing.assert_allclose(LogitBoost(n_rounds=8).fit(x, y).decision_function(x), wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_point_mass_is_an_observed_value(body: str, classes: int) -> None:
    """Virtual evidence that is certain gives the classical algorithm."""
    rng = np.random.default_rng(3)
    x, y = rows(3, classes=classes)
    kinds = (y + rng.integers(0, 2, len(y))) % 4
    hard = LogitBoost(n_rounds=15, discrete=[5], ridge=0.3).fit(np.concatenate([x, kinds[:, None]], axis=1), y)
    soft = LogitBoost(n_rounds=15, ridge=0.3).fit(x, y, evidence={"kind": np.eye(4)[kinds]})
    wanted = hard.predict_proba(np.concatenate([x, kinds[:, None]], axis=1))
    np.testing.assert_allclose(soft.predict_proba(x, {"kind": np.eye(4)[kinds]}), wanted, rtol=0, atol=1e-12)
    assert [r.pick.replace("x[5]", "kind") for r in hard.rounds_] == soft.rounds_.picks
    assert "kind" in soft.rounds_.picks
    np.testing.assert_allclose([r.gain for r in hard.rounds_], [r.gain for r in soft.rounds_], rtol=1e-9)


def told(seed: int, y: np.ndarray, n_values: int, strength: float) -> np.ndarray:
    """Distributions (N, n_values) that lean to the first value where y is 1."""
    ve = np.random.default_rng(seed).dirichlet(np.ones(n_values), len(y))
    ve[:, 0] += strength * y
    return ve / ve.sum(axis=1, keepdims=True)


def test_virtual_evidence_is_algorithm_one(body: str) -> None:
    """Liao et al. 2007, algorithm 1, by enumeration of the joint values of two attributes and an observed one."""
    y = np.random.default_rng(4).integers(0, 2, 200)
    seen = (y + np.random.default_rng(5).integers(0, 2, 200)) % 3
    given = {"first": told(6, y, 3, 1.0), "second": told(7, 1 - y, 2, 0.8)}
    joint = np.einsum("na,nb->nab", *given.values()).reshape(200, 6)  # ve(x) of x = (first, second)
    member = {"first": np.repeat(np.eye(3), 2, axis=0), "second": np.tile(np.eye(2), (3, 1))}  # (6, values)
    F = np.zeros((200, 6))  # F(x_i) of every joint value, as in the paper
    picks, probabilities = [], []
    for _ in range(12):
        up, down = (joint * np.exp(F)).sum(axis=1), (joint * np.exp(-F)).sum(axis=1)
        p = np.where(y == 1, up, down) / (up + down)  # equation 4
        w, z = p * (1 - p), np.clip((y - 0.5) / p, -2.0, 2.0)
        found = {}
        observed = np.eye(3)[seen]
        alpha = (w * z) @ observed / (w @ observed)
        found["x[0]"] = (w * (observed @ alpha - z) ** 2).sum(), np.repeat((observed @ alpha)[:, None], 6, axis=1)
        for name, values in member.items():
            counts = joint @ values
            alpha = (w * z) @ counts / (w @ counts)  # equation 9
            f = values @ alpha
            found[name] = (w[:, None] * joint * (f[None] - z[:, None]) ** 2).sum(), np.repeat(f[None], 200, axis=0)
        picks.append(min(found, key=lambda name: found[name][0]))  # equation 5
        F += found[picks[-1]][1]
        up, down = (joint * np.exp(F)).sum(axis=1), (joint * np.exp(-F)).sum(axis=1)
        probabilities.append(up / (up + down))
    assert set(picks) == {"x[0]", "first", "second"}
    x = seen[:, None].astype(float)
    model = LogitBoost(n_rounds=12, start="zero", discrete=[0], evidence_form="potentials").fit(x, y, evidence=given)
    assert model.rounds_.picks == picks
    for wanted, found_p in zip(probabilities, model.staged_predict_proba(x, given), strict=True):
        np.testing.assert_allclose(found_p[:, 1], wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(x, given)[:, 1], probabilities[-1], rtol=0, atol=1e-12)


def test_the_two_forms_of_evidence_are_two() -> None:
    """They agree on point masses alone, and however large scores are."""
    y = np.random.default_rng(4).integers(0, 2, 200)
    given = {"ve": told(6, y, 3, 1.0)}
    x = np.zeros((200, 1))
    scores, potentials = (LogitBoost(n_rounds=1, evidence_form=form).fit(x, y, evidence=given) for form in FORMS)
    gap = np.abs(potentials.predict_proba(x, given) - scores.predict_proba(x, given)).max()
    assert 1e-4 < gap < 0.1
    table = np.array([[800.0, -800.0], [-800.0, 800.0]])
    sure = log_expected(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), table)
    np.testing.assert_allclose(sure, [[800, -800], [-800, 800], [800 - np.log(2), 800 - np.log(2)]])


def test_evidence_by_scores_moves_by_its_expectation(body: str) -> None:
    """α = Σ w z ve / Σ w ve, and the score moves by its expectation."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 200)
    ve = rng.dirichlet([1.0, 1.0, 1.0], 200)
    ve[:, 0] += y
    ve /= ve.sum(axis=1, keepdims=True)
    score = np.zeros(200)
    for _ in range(6):
        p = 1.0 / (1.0 + np.exp(-2.0 * score))
        w, z = p * (1 - p), np.clip((y - 0.5) / np.where(y == 1, p, 1 - p), -2.0, 2.0)
        score += ve @ ((w * z) @ ve / (w @ ve))
    model = LogitBoost(n_rounds=6, start="zero", evidence_form="scores").fit(
        np.zeros((200, 1)), y, evidence={"ve": ve}
    )
    np.testing.assert_allclose(model.decision_function(np.zeros((200, 1)), {"ve": ve}), 2 * score, atol=1e-12)


def test_evidence_must_be_distributions_and_the_same_again() -> None:
    x, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    good = np.full((4, 2), 0.5)
    for bad in (good * 2, -good, good[:3], np.full((4, 2), np.nan), np.array([["a", "b"]] * 4)):
        with pytest.raises((FeatureError, ShapeError), match="evidence 'v'"):
            LogitBoost().fit(x, y, evidence={"v": bad})
    with pytest.raises(InputError, match="dict"):
        LogitBoost().fit(x, y, evidence=good)  # type: ignore[arg-type]
    model = LogitBoost(n_rounds=2).fit(x, y, evidence={"v": good})
    for wrong in (None, {"u": good}, {"v": np.full((4, 4), 0.25)}):
        with pytest.raises(ShapeError, match="fitted with evidence"):
            model.predict(x, wrong)


# ----------------------------------------------------------------------------------------------- what it promises


def test_the_prior_comes_first() -> None:
    y = np.array(["b"] * 30 + ["a"] * 10)
    model = LogitBoost(n_rounds=0).fit(np.zeros((40, 2)), y)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, 2))), [[0.25, 0.75]])
    assert LogitBoost(n_rounds=0, start="zero").fit(np.zeros((40, 2)), y).predict_proba(
        np.zeros((1, 2))
    ).tolist() == [[0.5, 0.5]]
    # a constant column cannot be cut: no round is possible
    assert LogitBoost(n_rounds=9).fit(np.zeros((40, 2)), y).n_iter_ == 0


def test_why_rare_classes_need_bounded_weights() -> None:
    """With nothing to learn, p is to stay at the share of the class.

    At the true share s a clipped response gives Σ w z ∝ s · min(1/s, limit) − 1, which is not zero below 1/limit.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 4)), (np.arange(3000) % 10 == 0).astype(int)
    clipped = LogitBoost(n_rounds=40).fit(x, y).predict_proba(x)[:, 1].mean()
    right = LogitBoost(n_rounds=40, bound="weights").fit(x, y).predict_proba(x)[:, 1].mean()
    assert clipped < 0.02
    assert right == pytest.approx(0.1, abs=0.003)
    # a limit above 1/s leaves the slope as it is
    assert LogitBoost(n_rounds=40, response_limit=20.0).fit(x, y).predict_proba(x)[:, 1].mean() > 0.09


def test_one_class_is_always_answered() -> None:
    model = LogitBoost().fit(np.arange(6.0)[:, None], ["a"] * 6)
    assert model.predict(np.array([[3.0], [np.nan]])).tolist() == ["a", "a"]
    assert model.predict_proba(np.array([[3.0]])).tolist() == [[1.0]]


@pytest.mark.parametrize("learner", ["stump", "tree"])
def test_the_loss_falls_and_is_told(body: str, learner: str) -> None:
    x, y = rows(5, classes=3)
    model = LogitBoost(n_rounds=30, learner=learner, learning_rate=0.5, bound="weights").fit(x, y)
    losses = [r.nll for r in model.rounds_]
    assert (np.diff(losses) < 0).all()
    last = -np.log(model.predict_proba(x)[np.arange(len(y)), y]).mean()
    assert losses[-1] == pytest.approx(last, rel=1e-10)
    stages = list(model.staged_predict_proba(x))
    assert len(stages) == model.n_iter_ == 30
    np.testing.assert_allclose(stages[-1], model.predict_proba(x), atol=1e-12)
    assert -np.log(stages[9][np.arange(len(y)), y]).mean() == pytest.approx(losses[9], rel=1e-10)
    assert list(model.staged_predict(x))[-1].tolist() == model.predict(x).tolist()
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_.argmax() == 0


def test_trees_learn_what_stumps_cannot() -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(0, 2, (400, 5)).astype(float)
    x[:, 4] = rng.normal(size=400)
    y = (x[:, 0] * x[:, 1] + 1.1 * (1 - x[:, 0]) * (1 - x[:, 1]) > 0.5).astype(int)
    x[:20, 0] = 1 - x[:20, 0]
    assert LogitBoost(n_rounds=30).fit(x, y).score(x, y) < 0.75
    assert LogitBoost(n_rounds=30, learner="tree", min_leaf=5).fit(x, y).score(x, y) > 0.94


def test_any_regressor_may_be_the_learner() -> None:
    x, y = rows(7, classes=3)
    for learner in (DecisionTreeRegressor(max_depth=1, random_state=0), LinearRegression()):
        model = LogitBoost(n_rounds=10, learner=learner, learning_rate=0.5, bound="weights").fit(x, y)
        losses = [r.nll for r in model.rounds_]
        assert losses[-1] < losses[0]
        assert model.rounds_.picks == [type(learner).__name__] * 10
        assert model.score(x, y) > 0.6
    two = rows(8)
    mine, theirs = (
        LogitBoost(n_rounds=6, learner=learner).fit(*two)
        for learner in ("stump", DecisionTreeRegressor(max_depth=1, random_state=0))
    )
    np.testing.assert_allclose(mine.predict_proba(two[0]), theirs.predict_proba(two[0]), atol=1e-9)


def test_early_stopping_keeps_the_best_round() -> None:
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(300, 20)), rng.integers(0, 2, 300)
    y[x[:, 0] > 0] = 1
    model = LogitBoost(n_rounds=200, n_iter_no_change=5, random_state=0).fit(x, y)
    held = [r.held_out for r in model.rounds_]
    assert len(held) < 200
    assert model.n_iter_ == int(np.argmin(held)) + 1
    assert [r.kept for r in model.rounds_] == [k < model.n_iter_ for k in range(len(held))]
    again = LogitBoost(n_rounds=200, n_iter_no_change=5, random_state=0).fit(x, y)
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    with pytest.raises(InputError, match="hold out"):
        LogitBoost(n_iter_no_change=2).fit(x[:1], y[:1])


def test_sparse_and_dense_and_weights_and_threads_agree(body: str) -> None:
    x, y = rows(10, n=300, classes=3)
    x[x < 4] = 0.0
    model = LogitBoost(n_rounds=10, learner="tree").fit(x, y)
    thin = LogitBoost(n_rounds=10, learner="tree").fit(sparse.csr_matrix(x), y)
    np.testing.assert_allclose(thin.predict_proba(sparse.csc_matrix(x)), model.predict_proba(x), atol=1e-9)
    jobs = LogitBoost(n_rounds=10, learner="tree", n_jobs=3).fit(x, y)
    np.testing.assert_array_equal(jobs.predict_proba(x), model.predict_proba(x))
    weight = np.random.default_rng(0).integers(0, 3, 300)
    heavy = LogitBoost(n_rounds=10).fit(x, y, sample_weight=weight)
    twice = LogitBoost(n_rounds=10).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(heavy.predict_proba(x), twice.predict_proba(x), atol=1e-9)


def test_rows_without_weight_are_not_there() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    y[x[:, 1] > 0.5] = 1
    weight = np.ones(200)
    weight[150:], y[150:] = 0.0, 2
    x[150:] *= 100.0  # they do not shape the quantiles either
    model, alone = (
        LogitBoost(n_rounds=8).fit(x, y, sample_weight=weight),
        LogitBoost(n_rounds=8).fit(x[:150], y[:150]),
    )
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(model.predict_proba(x), alone.predict_proba(x), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        LogitBoost().fit(x, y, sample_weight=0 * weight)


def test_missing_values_are_values_of_their_own() -> None:
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    x[(y == 1) & (rng.random(400) < 0.8), 1] = np.nan
    model = LogitBoost(n_rounds=5).fit(x, y)
    assert model.rounds_.picks[0] == "x[1] is missing"
    assert model.score(x, y) > 0.85
    with pytest.raises(ValueError, match="infinity"):
        LogitBoost().fit(np.where(np.isnan(x), np.inf, x), y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_rounds": -1}, "n_rounds"),
        ({"n_rounds": 2.5}, "n_rounds"),
        ({"learner": "forest"}, "learner"),
        ({"learner": DecisionTreeRegressor}, "learner"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0"),
        ({"ridge": -1.0}, "ridge must be a finite number ≥ 0"),
        ({"response_limit": float("nan")}, "response_limit"),
        ({"start": "one"}, "start"),
        ({"bound": "both"}, "bound"),
        ({"max_bins": 999}, "max_bins"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"discrete": ["colour"]}, "colour"),
        ({"evidence_form": "beliefs"}, "evidence_form"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        LogitBoost(**options).fit(*rows(0))


def test_a_fit_that_fails_leaves_the_old_model() -> None:
    x, y = rows(12)
    model = LogitBoost(n_rounds=5).fit(x, y)
    before = model.predict_proba(x)
    with pytest.raises(ShapeError):
        model.fit(x, y, evidence={"v": np.ones((3, 1))})
    np.testing.assert_array_equal(model.predict_proba(x), before)


def test_progress_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    LogitBoost(n_rounds=3, verbose=2).fit(*rows(13))
    assert capsys.readouterr().err.count("LogitBoost: step") == 3


# -------------------------------------------------------------------------------------------------- model files


@pytest.mark.parametrize("labels", [np.array(["x", "y", "z"]), np.array([3, 5, 9]), np.array([1.0, 2.0, 4.0])])
@pytest.mark.parametrize(("learner", "form"), [("stump", "potentials"), ("tree", "scores")])
def test_files_and_pickles_answer_the_same(tmp_path: Path, labels: np.ndarray, learner: str, form: str) -> None:
    x, y = rows(14, classes=3)
    x[::9, 0] = np.nan
    ve = {"v": np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], len(y)) * 0.5 + 0.5 * np.eye(3)[y]}
    model = LogitBoost(n_rounds=8, learner=learner, discrete=[3], ridge=0.5, max_depth=3, evidence_form=form)
    model.fit(x, labels[y], evidence=ve)
    path = tmp_path / "model.crfield"
    model.save(path)
    for copy in (crfield.load(path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.predict_proba(x, ve), model.predict_proba(x, ve))
        assert copy.predict(x, ve).dtype == model.predict(x, ve).dtype
        assert copy.rounds_ == model.rounds_
        np.testing.assert_array_equal(copy.feature_importances_, model.feature_importances_)
        assert {**copy.get_params(), "discrete": [3]} == model.get_params()
    crfield.load(path).save(tmp_path / "again.crfield")
    assert (tmp_path / "again.crfield").read_bytes() == path.read_bytes()
    data, refused = bytearray(path.read_bytes()), 0
    for place in range(0, len(data), max(1, len(data) // 60)):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        path.write_bytes(bytes(broken))
        try:  # what lies between arrays is nobody's
            np.testing.assert_array_equal(crfield.load(path).predict_proba(x, ve), model.predict_proba(x, ve))
        except ModelFileError:
            refused += 1
    assert refused > 30


def test_files_that_were_edited_are_refused(tmp_path: Path) -> None:
    """Arrays that fit their checksums and not each other."""
    from crfield.storage.archive import read_archive, write_archive

    x, y = rows(15, classes=3)
    LogitBoost(n_rounds=4, learner="tree").fit(x, y).save(tmp_path / "model.crfield")
    archive = read_archive(tmp_path / "model.crfield")
    changes: list[tuple[str, Any]] = [
        ("node/column", lambda a: a + 100),
        ("node/leaf", lambda a: a + 100),
        ("children", lambda a: a * 0),
        ("children", lambda a: a[:-1]),
        ("values", lambda a: a[:-1]),
        ("values", lambda a: a * np.nan),
        ("node/missing", lambda a: a + 5),
        ("step/nodes", lambda a: -a),
        ("step/kind", lambda a: a + 7),
        ("step/kind", lambda a: a * 0),
        ("start", lambda a: a.astype(np.float32)),
        ("rounds/gain", lambda a: a[:-1]),
    ]
    for name, change in changes:
        write_archive(
            tmp_path / "bad.crfield", archive.header, {**archive.arrays, name: change(archive.arrays[name])}
        )
        with pytest.raises(ModelFileError):
            crfield.load(tmp_path / "bad.crfield")
    for name in ("classes", "n_features_in", "evidence", "rounds", "parameters"):
        write_archive(tmp_path / "bad.crfield", {**archive.header, name: None}, archive.arrays)
        with pytest.raises(ModelFileError):
            crfield.load(tmp_path / "bad.crfield")


def test_regressors_are_code_and_not_stored(tmp_path: Path) -> None:
    model = LogitBoost(n_rounds=2, learner=LinearRegression()).fit(*rows(16))
    with pytest.raises(InputError, match="joblib"):
        model.save(tmp_path / "model.crfield")
    with pytest.raises(NotFittedError, match="not fitted"):
        LogitBoost().save(tmp_path / "model.crfield")


def test_grid_search_and_clone() -> None:
    x, y = rows(17)
    search = GridSearchCV(LogitBoost(), {"n_rounds": [2, 20], "learner": ["stump", "tree"]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.6
    assert clone(LogitBoost(ridge=2.0, discrete=[1])).get_params()["discrete"] == [1]
