"""Logistic and maximum-entropy models: scikit-learn's answers, constraints, slopes, every solver and form of X."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import crfield
from crfield import ChainCRF, MaxentClassifier
from crfield.errors import ConvergenceWarning, FeatureError, InputError, ModelFileError, NotFittedError, ShapeError
from crfield.optimize.penalty import Penalty
from crfield.training.rows.newton import fit_newton
from crfield.training.rows.softmax import ColumnRows, FunctionRows
from tests.cases.model_file_fuzz import edited

ROOT = Path(__file__).parents[3]
solvers = pytest.mark.parametrize("solver", ["newton", "lbfgs", "sgd"])


def numbers(n: int = 200, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X @ rng.normal(size=(4, classes)) + rng.gumbel(size=(n, classes))).argmax(axis=1)


@parametrize_with_checks([MaxentClassifier()])
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


def answers_or_refuses(data: bytes, X: Any, times: int = 150) -> None:
    """A file edited at random is refused with ModelFileError, or is a model that answers."""
    rng, refused = random.Random(0), 0
    for _ in range(times):
        changed = edited(data, rng)
        if changed is None:
            continue
        try:
            model = crfield.load(io.BytesIO(changed))
        except ModelFileError:
            refused += 1
            continue
        with contextlib.suppress(InputError, ShapeError, ValueError), np.errstate(all="ignore"):
            model.predict(X)
    assert refused > times // 4


# ---------------------------------------------------------------------------------------------- against others


@solvers
def test_many_classes_are_scikit_learns(solver: str) -> None:
    X, y = numbers()
    rival = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    model = MaxentClassifier(l2=2.0, solver=solver, tol=1e-13, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(model.coef_, rival.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, rival.intercept_ - rival.intercept_.mean(), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), rival.predict_proba(X), atol=1e-6)
    assert model.solver_ == solver


@solvers
def test_two_classes_are_scikit_learns_with_twice_the_penalty(solver: str) -> None:
    X, y = numbers(classes=2)
    rival = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    model = MaxentClassifier(l2=4.0, solver=solver, tol=1e-13, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), rival.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(model.coef_[1] - model.coef_[0], rival.coef_[0], atol=1e-6)


@solvers
@pytest.mark.parametrize("l2", [0.0, 2.0], ids=["lasso", "net"])
def test_l1_and_the_elastic_net_are_scikit_learns(solver: str, l2: float) -> None:
    X, y = numbers(n=120)
    l1 = 5.0
    rival = LogisticRegression(C=1 / (l1 + l2), l1_ratio=l1 / (l1 + l2), solver="saga", tol=1e-9, max_iter=20_000)
    if rival.get_params()["penalty"] != "deprecated":
        rival.set_params(penalty="elasticnet")
    rival.fit(X, y)
    model = MaxentClassifier(l1=l1, l2=l2, solver=solver, tol=1e-13, max_iter=3000).fit(X, y)
    np.testing.assert_allclose(model.coef_, rival.coef_, atol=1e-6)
    assert ((model.coef_ == 0) == (np.abs(rival.coef_) < 1e-9)).all()
    assert (model.coef_ == 0).any()


def test_a_row_is_a_chain_of_length_one() -> None:
    X, y = numbers(n=60)
    chain = ChainCRF(l2=0.7, tol=1e-13, max_iter=2000, boundaries=False).fit([x[None] for x in X], [[k] for k in y])
    model = MaxentClassifier(l2=0.7, penalize_intercepts=True, tol=1e-14).fit(X, y)
    assert model.objective_ == pytest.approx(chain.objective_, rel=1e-10)
    np.testing.assert_allclose(
        model.predict_proba(X), np.concatenate(list(chain.predict_proba([x[None] for x in X]))), atol=1e-6
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "functions", "hinge"])
def test_slopes_and_second_derivatives(kind: str) -> None:
    rng = np.random.default_rng(1)
    X, y = numbers(n=12)
    weight = rng.uniform(0.5, 2.0, 12)
    if kind == "functions":
        rows: Any = FunctionRows(rng.normal(size=(3, 12, 3)), y, weight=weight)
    else:
        options = {"cost": 1.0, "temperature": 0.3} if kind == "hinge" else {}
        rows = ColumnRows(csr_array(X) if kind == "sparse" else X, y, 3, weight=weight, **options)
    at, slope, ahead, back = rng.normal(size=rows.n_weights), *np.empty((3, rows.n_weights))
    rows.evaluate(at, slope)
    matrix = rows.hessian(at)
    for k in range(rows.n_weights):
        moved = at.copy()
        moved[k] += 1e-5
        high = rows.evaluate(moved, ahead)
        moved[k] -= 2e-5
        low = rows.evaluate(moved, back)
        assert slope[k] == pytest.approx((high - low) / 2e-5, abs=1e-6)
        np.testing.assert_allclose(matrix[k], (ahead - back) / 2e-5, atol=1e-5)
    np.testing.assert_allclose(rows.pull(rows.residual(at)), slope, atol=1e-12)
    some = np.array([1, 5, 7])
    np.testing.assert_allclose(rows.scores(at, some), rows.scores(at)[some], atol=1e-12)


# ----------------------------------------------------------------------------------------- the chords of the tutorial


@pytest.mark.parametrize(("solver", "close"), [("newton", 1e-8), ("lbfgs", 1e-8), ("sgd", 1e-4)])
def test_expected_counts_are_the_observed_ones(solver: str, close: float) -> None:
    chords = runpy.run_path(str(ROOT / "examples" / "chords.py"))
    notes, played = chords["sample"]()
    model = chords["model_of"](3, solver=solver)
    model = (model.set_params(tol=1e-7) if solver == "sgd" else model).fit(notes, played)
    counts = model.feature_counts(notes, played)
    assert [c.name for c in counts] == list(chords["facts"]())
    assert [c.observed for c in counts] == [40.0, 12.0, 5.0]
    np.testing.assert_allclose([c.expected for c in counts], [c.observed for c in counts], rtol=0, atol=40 * close)
    assert chords["violation"](model) < close


def test_the_tutorials_probabilities() -> None:
    chords = runpy.run_path(str(ROOT / "examples" / "chords.py"))
    notes, played = chords["sample"]()
    one, two, three = (chords["model_of"](k).fit(notes, played) for k in (1, 2, 3))
    np.testing.assert_allclose(one.predict_proba([("C", "G")]), 1 / 6, atol=1e-12)
    found = dict(zip(two.classes_.tolist(), two.predict_proba([("C", "G")])[0], strict=True))
    wanted = {chord: 3 / 20 if chord in ("Cmaj", "Fmaj") else 7 / 40 for chord in chords["CHORDS"]}
    assert found == pytest.approx(wanted, abs=1e-10)
    place = three.classes_.tolist().index("Cmaj")
    assert three.predict_proba([("C", "E")])[0, place] == pytest.approx(0.5, abs=1e-10)


def test_columns_meet_their_constraints_too() -> None:
    X, y = numbers(n=80)
    model = MaxentClassifier(l2=0.0, tol=1e-18).fit(X, y)
    counts = model.feature_counts(X, y)
    np.testing.assert_allclose([c.expected for c in counts], [c.observed for c in counts], rtol=0, atol=1e-8)
    assert counts[0].name == "x[0] & 0"
    assert len(counts) == 15
    with pytest.raises(InputError, match="classes"):
        model.feature_counts(X, np.full(80, 9))


# ------------------------------------------------------------------------------------------------- forms of X


def test_records_are_their_columns() -> None:
    words = [["a", "b"], ["b"], ["c"], [], ["a", "c"], ["b", "c"]] * 5
    y = ["x", "y", "x", "y", "x", "y"] * 5
    table = np.array([[float(letter in word) for letter in "abc"] for word in words])
    model = MaxentClassifier(tol=1e-13).fit(words, y)
    assert model.feature_names_ == ["a", "b", "c"]
    np.testing.assert_allclose(model.coef_, MaxentClassifier(tol=1e-13).fit(table, y).coef_, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba([["a", "unseen"], []])[1], model.predict_proba([["unseen"]])[0])
    dicts = MaxentClassifier().fit([{"word": "a", "size": 2.0}, {"word": "b", "size": 1.0}], [0, 1])
    assert set(dicts.feature_names_) == {"word=a", "word=b", "size"}
    assert dicts.predict([{"word": "a", "size": 2.0}]).tolist() == [0]


def test_functions_may_be_a_list_and_see_anything() -> None:
    def ends_with(o: str, y: str) -> bool:
        return o.endswith(y)

    model = MaxentClassifier([ends_with], l2=0.1).fit(["ba", "bb", "aa", "ab"], ["a", "b", "a", "b"])
    assert model.feature_names_ == ["ends_with"]
    assert model.coef_.shape == (1,)
    assert model.predict(["xa", "xb"]).tolist() == ["a", "b"]
    assert model.predict_proba([]).shape == (0, 2)
    with pytest.raises(InputError, match="joblib"):
        model.save("nowhere.crfield")

    def breaks(o: str, y: str) -> float:
        return 1 / 0

    with pytest.raises(FeatureError, match="breaks"):
        MaxentClassifier([breaks]).fit(["a"], ["x"])
    for bad in ("f", [], [1], {"f": 1}):
        with pytest.raises(InputError, match="functions"):
            MaxentClassifier(bad).fit(["a"], ["x"])  # type: ignore[arg-type]


def test_one_class_constant_columns_and_weights() -> None:
    X, y = numbers(n=40)
    assert MaxentClassifier().fit(X, np.zeros(40)).predict_proba(X).tolist() == [[1.0]] * 40
    constant = MaxentClassifier(tol=1e-12).fit(np.ones((40, 1)), y)
    np.testing.assert_allclose(constant.predict_proba([[1.0]])[0], np.bincount(y) / 40, atol=1e-9)
    weight = np.arange(40) % 3
    twice = MaxentClassifier(tol=1e-12).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    once = MaxentClassifier(tol=1e-12).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(once.coef_, twice.coef_, atol=1e-8)
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        MaxentClassifier().fit(X, y, sample_weight=np.zeros(40))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            MaxentClassifier().fit(np.full((4, 1), bad), [0, 1, 0, 1])
    apart = MaxentClassifier(l2=0.0).fit([[-1.0], [1.0]], [0, 1])
    assert apart.predict([[-2.0], [2.0]]).tolist() == [0, 1]
    assert np.isfinite(apart.coef_).all()


def test_files_pickles_and_tools(tmp_path: Path) -> None:
    X, y = numbers(n=60)
    names = np.array(["no", "yes", "or"])
    path = tmp_path / "m.crfield"
    for data, labels, options in (
        (X, y, {"l1": 0.5}),
        (csr_array(X), names[y], {"intercept": False}),
        ([[f"w{k}"] for k in y], y.astype(bool), {"solver": "lbfgs"}),
    ):
        model = MaxentClassifier(**options).fit(data, labels)
        model.save(path)
        for copy in (crfield.load(path), pickle.loads(pickle.dumps(model))):
            assert copy.get_params() == model.get_params()
            assert copy.predict_proba(data).tolist() == model.predict_proba(data).tolist()
            assert copy.classes_.dtype == model.classes_.dtype
            assert copy.feature_names_ == model.feature_names_
    answers_or_refuses(path.read_bytes(), [["w1"], ["w0"]])
    search = GridSearchCV(clone(model).set_params(solver="auto"), {"l2": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    with pytest.raises(NotFittedError):
        MaxentClassifier().coef_
    with pytest.raises(ValueError, match="read-only"):
        model.coef_[0] = 1.0


def test_training_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = numbers()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        MaxentClassifier(solver="lbfgs", max_iter=1, tol=1e-12).fit(X, y)
    seen: list[int] = []
    model = MaxentClassifier(callback=lambda step, weights: seen.append(step.n_iter) or len(seen) == 2).fit(X, y)
    assert (seen, model.stop_reason_, model.converged_) == ([1, 2], "callback", False)
    with pytest.raises(InputError, match="l1"):
        MaxentClassifier(l1=-1.0).fit(X, y)
    one, other = (MaxentClassifier(solver="sgd", random_state=3).fit(X, y).coef_ for _ in range(2))
    assert one.tolist() == other.tolist()


def test_newton_with_nothing_to_learn() -> None:
    rows = FunctionRows(np.ones((2, 5, 3)), np.array([0, 1, 2, 0, 1]))
    found = fit_newton(rows, Penalty(), tol=1e-20)
    assert found.converged
    np.testing.assert_allclose(found.weights, 0.0, atol=1e-12)
