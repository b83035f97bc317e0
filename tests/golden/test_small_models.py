"""Small models against independent answers: enumeration with scipy, scikit-learn, CRFsuite, stored numbers.

The likelihood here is written down a second time, in the plainest way: every labelling is listed, its score summed
from the weights, and the objective minimised by scipy. Nothing of crfield is used in it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from crfield import ChainCRF, make_phrases, phrase_features
from crfield.kernels import choice

LABELS = "ABC"
SIZE = len(LABELS)


def exact(**options: Any) -> ChainCRF:
    return ChainCRF(**{"tol": 1e-13, "max_iter": 5000, "feature_pairs": "all", "transition_pairs": "all", **options})


def tiny(seed: int = 0, *, lengths: tuple[int, ...] = (3, 1, 2, 4, 3)) -> tuple[list[np.ndarray], list[list[Any]]]:
    """Sequences of three numbers a step, with labels that depend on them a little."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(length, 3)) for length in lengths]
    y: list[list[Any]] = [
        [LABELS[int(np.argmax(row + rng.gumbel(size=3) * 0.7))] for row in x] for x in X
    ]  # fmt: skip
    return X, y


def negative_log_likelihood(w: np.ndarray, X: list[np.ndarray], y: list[list[Any]], weight: np.ndarray) -> float:
    """−Σ weight log p(y | x) by listing all labellings; w = [dense (3, L), bias, start, end, transitions (L, L)]."""
    dense, rest = w[: 3 * SIZE].reshape(3, SIZE), w[3 * SIZE :]
    bias, start, end = rest[: 3 * SIZE].reshape(3, SIZE)
    table = rest[3 * SIZE :].reshape(SIZE, SIZE)
    total = 0.0
    for x, labels, share in zip(X, y, weight, strict=True):
        everything, allowed = [], []
        for path in itertools.product(range(SIZE), repeat=len(x)):
            score = sum(float(row @ dense[:, j]) + bias[j] for row, j in zip(x, path, strict=True))
            score += start[path[0]] + end[path[-1]] + sum(table[i, j] for i, j in itertools.pairwise(path))
            everything.append(score)
            if all(_allows(label, LABELS[j]) for label, j in zip(labels, path, strict=True)):
                allowed.append(score)
        total += share * (logsumexp(everything) - logsumexp(allowed))
    return float(total)


def _allows(given: Any, label: str) -> bool:
    return given is None or (label in given if isinstance(given, set) else given == label)


def best(X: list[np.ndarray], y: list[list[Any]], weight: np.ndarray, l2: np.ndarray) -> Any:
    def objective(w: np.ndarray) -> float:
        return negative_log_likelihood(w, X, y, weight) + 0.5 * float(l2 @ w**2)

    return minimize(objective, np.zeros(len(l2)), method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})


N_WEIGHTS = 3 * SIZE + 3 * SIZE + SIZE**2
INTERCEPTS = np.arange(N_WEIGHTS) // SIZE // 3 == 1


@pytest.fixture(scope="module")
def enumerated() -> Any:
    X, y = tiny(lengths=(3, 1, 2, 2))
    return X, y, best(X, y, np.ones(len(X)), np.full(N_WEIGHTS, 0.5))


@pytest.mark.parametrize("body", ["native", "numpy"])
def test_the_optimum_is_that_of_the_enumerated_likelihood(enumerated: Any, body: str) -> None:
    X, y, found = enumerated
    try:
        with choice.use(body):
            model = exact(l2=0.5).fit(X, y)
    except ImportError:
        pytest.skip("the compiled kernels are not built here")
    assert model.coef_.shape == (N_WEIGHTS,)
    assert model.objective_ == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(model.coef_, found.x, atol=1e-4)


def test_the_value_is_that_of_the_enumerated_likelihood() -> None:
    """At our own weights, so to rounding: gold and partial labels, weights of sequences."""
    X, y = tiny(1)
    partial: list[list[Any]] = [[None if t == 1 else label for t, label in enumerate(labels)] for labels in y]
    partial[0][0] = {"A", "C"}
    weight = np.array([1.0, 0.5, 2.0, 1.5, 3.0])
    for target in (y, partial):
        model = exact(l2=0.3).fit(X, target, sample_weight=weight)
        w = model.coef_
        value = negative_log_likelihood(w, X, target, weight)
        assert model.objective_ == pytest.approx(value + 0.15 * float(w @ w), rel=1e-12)
        singles = [negative_log_likelihood(w, [x], [labels], np.ones(1)) for x, labels in zip(X, target, strict=True)]
        np.testing.assert_allclose(model.log_prob(X, target), -np.array(singles), rtol=1e-10)


@pytest.mark.parametrize("free", [False, True])
def test_the_gradient_vanishes_at_the_optimum(free: bool) -> None:
    """Also with partial labels, whose likelihood is not convex but whose optimum is still flat."""
    X, y = tiny(2)
    y[3][1] = None
    y[4][0] = {"B", "C"}
    model = exact(l2=0.5, penalize_intercepts=not free).fit(X, y)
    l2 = np.where(INTERCEPTS & free, 0.0, 0.5)
    gradient = slope(lambda w: negative_log_likelihood(w, X, y, np.ones(len(X))), model.coef_) + l2 * model.coef_
    assert abs(gradient).max() < 1e-4


def slope(function: Any, w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Gradient by central differences."""
    out = np.empty(len(w))
    for k in range(len(w)):
        shift = np.zeros(len(w))
        shift[k] = step
        out[k] = (function(w + shift) - function(w - shift)) / (2 * step)
    return out


@pytest.mark.parametrize("free", [False, True])
def test_the_optimum_with_l1_is_stationary(free: bool) -> None:
    """|slope| ≤ l1 where the weight is zero, slope = −l1 sign(w) elsewhere, 0 for intercepts left free."""
    X, y = tiny(3)
    model = exact(l1=0.8, l2=0.0, penalize_intercepts=not free).fit(X, y)
    w = model.coef_
    l1 = np.where(INTERCEPTS & free, 0.0, 0.8)
    gradient = slope(lambda v: negative_log_likelihood(v, X, y, np.ones(len(X))), w)
    zero = w == 0
    assert zero.sum() >= 8
    assert (abs(gradient[zero]) <= l1[zero] + 1e-5).all()
    np.testing.assert_allclose(gradient[~zero], -l1[~zero] * np.sign(w[~zero]), atol=1e-4)
    value = negative_log_likelihood(w, X, y, np.ones(len(X)))
    assert model.objective_ == pytest.approx(value + float(l1 @ abs(w)), rel=1e-12)


@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
def test_chains_of_length_one_are_logistic_regression(l2: float) -> None:
    """scikit-learn minimises C Σ loss + ½‖w‖² with intercepts left free: C = 1 / l2."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 4))
    labels = np.array(list(LABELS))[np.argmax(points[:, :3] + rng.gumbel(size=(200, 3)), axis=1)]
    theirs = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(points, labels)
    X = [point[None, :] for point in points]
    ours = exact(l2=l2, boundaries=False, penalize_intercepts=False).fit(X, labels[:, None])
    dense, bias = ours.coef_[: 4 * SIZE].reshape(4, SIZE), ours.coef_[4 * SIZE : 5 * SIZE]
    np.testing.assert_allclose(dense, theirs.coef_.T, atol=1e-4)
    np.testing.assert_allclose(bias - bias.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)
    np.testing.assert_allclose(np.concatenate(ours.predict_proba(X)), theirs.predict_proba(points), atol=1e-5)
    assert np.concatenate(ours.predict(X)).tolist() == theirs.predict(points).tolist()


def test_crfsuite_agrees_where_it_can(tmp_path: Any) -> None:
    """The same features and penalty (its c2 = 1 is l2 = 2): the same probabilities, from its own model file."""
    pycrfsuite = pytest.importorskip("pycrfsuite")
    phrases = make_phrases(150, random_state=3)
    X = [[[f"w={w.lower()}", f"end={w[-2:]}"] for w in tokens] for tokens in phrases.tokens]
    y = phrases.labels
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, labels in zip(X, y, strict=True):
        trainer.append(x, labels)
    trainer.set_params({"c1": 0.0, "c2": 1.0, "epsilon": 1e-9, "delta": 1e-12, "max_iterations": 2000})
    path = str(tmp_path / "theirs.crfsuite")
    trainer.train(path)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    model = ChainCRF(l2=2.0, intercept=False, boundaries=False, tol=1e-12, max_iter=3000).fit(X, y)
    theirs = []
    for x, labels in zip(X, y, strict=True):
        tagger.set(x)
        theirs.append(np.log(tagger.probability(labels)))
    np.testing.assert_allclose(model.log_prob(X, y), theirs, atol=2e-3)
    assert [labels.tolist() for labels in model.predict(X)] == [tagger.tag(x) for x in X]


def test_phrases_reach_their_stored_scores() -> None:
    """A change of these numbers is a change of the model or of the generator: say so in the changelog."""
    train, test = make_phrases(600, random_state=0), make_phrases(200, random_state=1)
    X, new = ([phrase_features(tokens) for tokens in part.tokens] for part in (train, test))
    model = ChainCRF(tol=1e-8, max_iter=2000).fit(X, train.labels)
    assert model.objective_ == pytest.approx(STORED["objective"], rel=1e-6)
    assert len(model.coef_) == STORED["weights"]
    assert model.score(new, test.labels) == pytest.approx(STORED["accuracy"], abs=5e-4)


STORED = {"objective": 572.958334, "weights": 6696, "accuracy": 0.92363}
