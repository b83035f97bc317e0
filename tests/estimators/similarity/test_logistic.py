"""Kernel logistic regression: explicit columns, support vector machines, few rows, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import crfield
from crfield import KernelLogistic, MaxentClassifier
from crfield.errors import ConvergenceWarning, InputError, NotFittedError
from crfield.report.displays.losses import margin_losses, plot_losses
from crfield.scoring.similarity import Similarity
from crfield.training.rows.import_vectors import select_imports
from tests.estimators.maxent.test_classifier import answers_or_refuses


def rings(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that no line separates, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, ((X**2).sum(axis=1) + rng.normal(scale=0.5, size=n) > 1.4).astype(int)


@parametrize_with_checks([KernelLogistic()])
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


# ---------------------------------------------------------------------------------------------- against others


def test_a_polynomial_is_logistic_regression_on_its_columns() -> None:
    """(⟨x, z⟩ + 1)² is the inner product of 1, √2 x, and all products."""
    X, y = rings()
    columns = np.column_stack([np.sqrt(2) * X, X**2, np.sqrt(2) * X[:, 0] * X[:, 1], np.ones(len(X))])
    rival = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(columns, y)
    model = KernelLogistic(similarity="polynomial", degree=2, gamma=1.0, l2=1.0, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), rival.decision_function(columns), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), rival.predict_proba(columns), atol=1e-6)


def test_the_linear_kernel_is_the_linear_model() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    y = (X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(120, 3))).argmax(axis=1)
    plain = MaxentClassifier(l2=0.5, tol=1e-13).fit(X, y)
    for data in (X, csr_array(X)):
        model = KernelLogistic(similarity="linear", l2=0.5, tol=1e-13).fit(data, y)
        np.testing.assert_allclose(model.predict_proba(data), plain.predict_proba(X), atol=1e-7)
        assert model.dual_coef_.shape == (120, 3)  # the representer form: every row has its coefficients


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
def test_the_optimum_in_the_space_of_the_kernel(kind: str) -> None:
    """α = (y − p) / l2 at the optimum, whatever the kernel."""
    X, y = rings(80)
    model = KernelLogistic(similarity=kind, gamma=0.7, l2=0.3, tol=1e-14).fit(X, y)
    residual = np.eye(2)[y] - model.predict_proba(X)
    gram = Similarity(kind, gamma=0.7).gram(X, X)
    # directions of the Gram matrix that are nothing but rounding leave the coefficients open, not the function
    np.testing.assert_allclose(gram @ model.dual_coef_, gram @ residual / 0.3, atol=1e-6)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(gram @ model.dual_coef_ + model.intercept_, model._scores(X), atol=1e-9)
    norm = 0.5 * 0.3 * float((model.dual_coef_ * (gram @ model.dual_coef_)).sum())
    loss = -float(np.log(model.predict_proba(X)[np.arange(80), y]).sum())
    assert model.objective_ == pytest.approx(loss + norm, rel=1e-7)


def test_the_hinge_is_a_support_vector_machine() -> None:
    X, y = rings()
    C = 2.0
    rival = SVC(C=C, gamma=0.5, tol=1e-8).fit(X, y)
    model = KernelLogistic(gamma=0.5, loss="hinge", l2=2.0 / C).fit(X, y)
    gram = Similarity("rbf", gamma=0.5).gram(rival.support_vectors_, rival.support_vectors_)
    norm = float(rival.dual_coef_[0] @ gram @ rival.dual_coef_[0])
    side = np.where(y == 1, 1.0, -1.0)
    best = np.maximum(0, 1 - side * rival.decision_function(X)).sum() + 0.5 * norm / C
    assert best <= model.objective_ + 1e-9
    assert model.objective_ <= best * (1 + 2e-3)
    assert (model.predict(X) == rival.predict(X)).mean() > 0.98
    assert not hasattr(model, "predict_proba")
    assert model.converged_


def test_the_hinge_of_many_classes_is_crammer_and_singers() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 3))
    y = (X @ rng.normal(size=(3, 3)) + 0.5 * rng.gumbel(size=(90, 3))).argmax(axis=1)
    rival = LinearSVC(C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=100_000).fit(X, y)
    scores = X @ rival.coef_.T + 1.0
    scores[np.arange(90), y] -= 1.0
    best = (scores.max(axis=1) - scores[np.arange(90), y]).sum() + 0.5 * 2.0 * (rival.coef_**2).sum()
    model = KernelLogistic(similarity="linear", loss="hinge", l2=2.0, intercept=False).fit(X, y)
    assert best - 1e-6 <= model.objective_ <= best * (1 + 2e-3)


# ------------------------------------------------------------------------------------------------------ few rows


def test_landmarks_come_close_and_all_of_them_are_exact() -> None:
    X, y = rings(200)
    exact = KernelLogistic(l2=0.5, tol=1e-12).fit(X, y)
    whole = KernelLogistic(l2=0.5, tol=1e-12, basis="nystroem", n_components=500).fit(X, y)
    np.testing.assert_allclose(whole.predict_proba(X), exact.predict_proba(X), atol=1e-6)
    few = KernelLogistic(l2=0.5, basis="nystroem", n_components=40).fit(X, y)
    assert few.n_components_ == 40
    assert np.abs(few.predict_proba(X) - exact.predict_proba(X)).max() < 0.02
    assert exact.objective_ <= few.objective_ + 1e-6


def test_import_vectors_are_few_and_nearly_as_good() -> None:
    X, y = rings(250, seed=1)
    test, truth = rings(400, seed=2)
    exact = KernelLogistic(l2=0.5).fit(X, y)
    model = KernelLogistic(l2=0.5, basis="import").fit(X, y)
    assert model.n_components_ == len(model.import_vectors_) < 25
    assert (X[model.import_vectors_] == model.centres_).all()
    assert exact.objective_ <= model.objective_ <= 1.02 * exact.objective_
    assert abs(model.score(test, truth) - exact.score(test, truth)) < 0.02
    drawn = KernelLogistic(l2=0.5, basis="nystroem", n_components=model.n_components_, random_state=1).fit(X, y)
    assert model.objective_ < drawn.objective_
    more = KernelLogistic(l2=0.5, basis="import", min_gain=1e-5).fit(X, y)
    assert len(more.import_vectors_) > len(model.import_vectors_)
    assert more.import_vectors_[:5].tolist() == model.import_vectors_[:5].tolist()


def test_every_import_vector_lowers_the_loss_and_the_first_lowers_it_most() -> None:
    X, y = rings(60)
    gram = Similarity("rbf", gamma=0.5).gram(X, X)
    options: dict[str, Any] = {"weight": None, "l2": 0.5, "intercept": True}
    found = select_imports(gram, np.ones(60), np.arange(60), y, 2, most=6, least_gain=0.0, **options)
    assert (np.diff(found.losses) < 0).all()
    alone = []
    for k in range(60):
        only = np.array([k])
        one = select_imports(gram[:, only], np.ones(1), only, y, 2, most=1, least_gain=0.0, **options)
        alone.append(one.losses[-1])
    assert found.losses[1] <= np.quantile(alone, 0.1)


def test_weights_and_candidates_keep_their_numbers() -> None:
    X, y = rings(80)
    weight = np.ones(80)
    weight[:20] = 0.0
    model = KernelLogistic(basis="import", n_candidates=30).fit(X, y, sample_weight=weight)
    assert model.import_vectors_.min() >= 20
    assert (X[model.import_vectors_] == model.centres_).all()


# -------------------------------------------------------------------------------------------------- the front door


def test_files_and_pickles(tmp_path: Path) -> None:
    X, y = rings(60)
    path = tmp_path / "k.crfield"
    for data, options in (
        (X, {"basis": "import", "similarity": "laplacian"}),
        (csr_array(X), {"loss": "hinge"}),
        (X, {"similarity": "polynomial", "normalize": True, "basis": "nystroem", "n_components": 20}),
    ):
        model = KernelLogistic(**options).fit(data, np.array(["in", "out"])[y])
        model.save(path)
        for copy in (crfield.load(path), pickle.loads(pickle.dumps(model))):
            assert copy.get_params() == model.get_params()
            assert copy.decision_function(data).tolist() == model.decision_function(data).tolist()
            assert copy.predict(data).tolist() == model.predict(data).tolist()
            assert np.array_equal(copy.import_vectors_, model.import_vectors_)
    answers_or_refuses(path.read_bytes(), X)
    own = KernelLogistic(similarity=lambda rows, others: rows @ others.T).fit(X, y)
    plain = KernelLogistic(similarity="linear").fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X), plain.predict_proba(X), atol=1e-9)
    with pytest.raises(InputError, match="joblib"):
        own.save(path)


def test_parameters_are_looked_at_first() -> None:
    X, y = rings(20)
    for name, bad in {
        "basis": "all",
        "loss": "square",
        "similarity": "cosine",
        "gamma": "auto",
        "l2": -1.0,
        "n_components": 0,
        "min_gain": 1.5,
        "normalize": "yes",
        "callback": 3,
    }.items():
        with pytest.raises(InputError, match=name):
            KernelLogistic(**{name: bad}).fit(X, y)
    with pytest.raises(NotFittedError):
        KernelLogistic().predict(X)
    with pytest.warns(ConvergenceWarning):
        KernelLogistic(max_iter=1, tol=1e-12).fit(X, y)
    assert KernelLogistic().fit(X, np.ones(20)).predict(X).tolist() == [1.0] * 20
    assert KernelLogistic(basis="import").fit(np.zeros((6, 1)), [0, 1, 0, 1, 0, 1]).n_components_ == 1


def test_the_losses_are_drawn() -> None:
    margin = np.array([-4.0, 0.0, 1.0, 5.0])
    found = margin_losses(margin)
    np.testing.assert_allclose(found["hinge"], [5.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(found["logistic"], np.log1p(np.exp(-margin)))
    pytest.importorskip("matplotlib")
    axes = plot_losses(reach=2.0).axes[0]
    assert axes.get_xlabel().startswith("margin")
    assert len(axes.lines) == 3


@pytest.mark.parametrize("basis", ["exact", "nystroem", "import"])
@pytest.mark.parametrize("shift", [3e5, 1e9])
def test_columns_far_from_zero(basis: str, shift: float) -> None:
    """Unix time, metres on a map: the same answers as for columns that begin at zero."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(120, 2)) * 64) / 64
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    near, far = (KernelLogistic(basis=basis, n_components=40, l2=0.1) for _ in range(2))
    near.fit(X, y), far.fit(X + shift, y)
    assert far._fitted.scored.similarity.gamma == pytest.approx(near._fitted.scored.similarity.gamma)
    np.testing.assert_allclose(far.predict_proba(X + shift), near.predict_proba(X), atol=1e-4)
    weighted = KernelLogistic(basis=basis, n_components=40, l2=0.1).fit(X + shift, y, sample_weight=np.full(120, 2.0))
    assert weighted._fitted.scored.similarity.gamma == pytest.approx(near._fitted.scored.similarity.gamma)
