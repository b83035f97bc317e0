"""hmmlearn's names: the same likelihoods step by step from the same start; labels and missing values besides."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from crfield.compat.hmmlearn import hmm
from crfield.compat.hmmlearn.gaussian import normal_densities

RNG = np.random.RandomState(7)
STATES = np.repeat(RNG.randint(3, size=24), 6)
LENGTHS = [60, 40, 44]
NUMBERS = np.array([[0.0, 2.0], [3.0, -1.0], [-2.0, -2.0]])[STATES] + RNG.normal(size=(144, 2))
COUNTS = RNG.poisson(np.array([[1.0, 6.0], [4.0, 1.0], [9.0, 9.0]])[STATES])
SYMBOLS = np.array([RNG.choice(4, p=p) for p in np.eye(4)[STATES] * 0.6 + 0.1])[:, None]
DRAWS = np.array([RNG.multinomial(6, p) for p in np.eye(3)[STATES] * 0.7 + 0.1])

KINDS = ("diag", "spherical", "full", "tied")
PRIORS = {"means_prior": 0.5, "means_weight": 2.0}
MIXED = {"weights_prior": 1.5, "means_weight": 1.0, "means_prior": 0.2, "covars_prior": 2.0, "covars_weight": 1.0}
CASES: dict[str, tuple[str, dict[str, Any], np.ndarray]] = {
    **{f"gaussian {kind}": ("GaussianHMM", {"covariance_type": kind}, NUMBERS) for kind in KINDS},
    "gaussian priors": ("GaussianHMM", {**PRIORS, "covars_prior": 0.3, "covars_weight": 4}, NUMBERS),
    "full priors": ("GaussianHMM", {**PRIORS, "covariance_type": "full", "covars_weight": 5}, NUMBERS),
    **{f"mixture {kind}": ("GMMHMM", {"covariance_type": kind, "n_mix": 2}, NUMBERS) for kind in KINDS},
    "mixture priors": ("GMMHMM", {"n_mix": 2, "transmat_prior": 2.0, **MIXED}, NUMBERS),
    "categorical": ("CategoricalHMM", {"startprob_prior": 1.5}, SYMBOLS),
    "categorical prior": ("CategoricalHMM", {"emissionprob_prior": 2.0}, SYMBOLS),
    "multinomial": ("MultinomialHMM", {"n_trials": 6}, DRAWS),
    "poisson": ("PoissonHMM", {"lambdas_prior": 0.5, "lambdas_weight": 0.1}, COUNTS),
}


@pytest.mark.parametrize("name", CASES)
def test_likelihoods_step_by_step(name: str) -> None:
    theirs = pytest.importorskip("hmmlearn.hmm")
    kind, options, X = CASES[name]
    both = []
    for module in (theirs, hmm):
        model = getattr(module, kind)(n_components=3, n_iter=8, tol=-np.inf, random_state=3, **options)
        both.append(model.fit(X, LENGTHS))
    old, new = both
    np.testing.assert_allclose(list(new.monitor_.history), list(old.monitor_.history), rtol=1e-8, atol=1e-8)
    for attribute in ("startprob_", "transmat_", "means_", "covars_", "weights_", "emissionprob_", "lambdas_"):
        if attribute == "covars_" and name == "gaussian spherical":
            attribute = "_covars_"  # of which hmmlearn makes six matrices for three states
        if hasattr(old, attribute):
            np.testing.assert_allclose(
                getattr(new, attribute), getattr(old, attribute), rtol=1e-6, atol=1e-9, err_msg=attribute
            )
    assert new.score(X, LENGTHS) == pytest.approx(old.score(X, LENGTHS), rel=1e-8)
    np.testing.assert_allclose(new.predict_proba(X, LENGTHS), old.predict_proba(X, LENGTHS), atol=1e-7)
    for algorithm in ("viterbi", "map"):
        (found, path), (expected, states) = (model.decode(X, LENGTHS, algorithm) for model in (new, old))
        assert found == pytest.approx(expected, rel=1e-8)
        assert path.tolist() == states.tolist()
    assert new.aic(X, LENGTHS) == pytest.approx(old.aic(X, LENGTHS), rel=1e-8)
    assert new.bic(X, LENGTHS) == pytest.approx(old.bic(X, LENGTHS), rel=1e-8)
    (drawn, path), (rows, states) = (model.sample(20, random_state=5) for model in (new, old))
    assert path.tolist() == states.tolist()
    if kind != "MultinomialHMM" and name != "gaussian spherical":  # drawn in another order; from wrong matrices
        np.testing.assert_allclose(drawn, rows, rtol=1e-6)
    np.testing.assert_allclose(new.get_stationary_distribution(), old.get_stationary_distribution(), atol=1e-8)


def test_likelihood_by_enumeration() -> None:
    model = hmm.GaussianHMM(n_components=2, random_state=0, n_iter=2).fit(NUMBERS)
    X = NUMBERS[:5]
    total = []
    for path in product(range(2), repeat=5):
        chance = np.log(model.startprob_[path[0]]) + sum(np.log(model.transmat_[a, b]) for a, b in pairwise(path))
        chance += sum(stats.multivariate_normal.logpdf(x, model.means_[s], model.covars_[s]) for x, s in zip(X, path))
        total.append(chance)
    assert model.score(X) == pytest.approx(np.logaddexp.reduce(total), abs=1e-9)
    assert model.decode(X)[0] == pytest.approx(max(total), abs=1e-9)


@pytest.mark.parametrize("kind", ["diag", "spherical", "full", "tied"])
def test_missing_cells_are_integrated_out(kind: str) -> None:
    model = hmm.GaussianHMM(n_components=3, covariance_type=kind, random_state=0).fit(NUMBERS, LENGTHS)
    X = NUMBERS[:4].copy()
    X[1, 0] = X[2, 1] = np.nan
    X[3] = np.nan
    found = normal_densities(X, model.means_, model._covars_, kind)
    for t, d in ((1, 1), (2, 0)):
        expected = stats.norm.logpdf(X[t, d], model.means_[:, d], np.sqrt(model.covars_[:, d, d]))
        np.testing.assert_allclose(found[t], expected, rtol=1e-9)
    assert (found[3] == 0).all()
    gaps = NUMBERS.copy()
    gaps[np.random.RandomState(1).rand(*gaps.shape) < 0.15] = np.nan
    again = hmm.GaussianHMM(
        n_components=3, covariance_type=kind, random_state=0, n_iter=40, tol=1e-6, covars_prior=0.0
    ).fit(gaps, LENGTHS)
    history = np.array(again.monitor_.history)
    assert (np.diff(history) > -1e-7 * np.abs(history[1:])).all(), "EM never falls"
    counts = hmm.PoissonHMM(n_components=2, random_state=0).fit(np.where(np.isnan(gaps), np.nan, COUNTS))
    assert np.isfinite(counts.score(np.where(np.isnan(gaps), np.nan, COUNTS)))


def test_states_that_are_known() -> None:
    labels = np.where(np.arange(144) % 3 == 0, STATES, -1)
    model = hmm.GaussianHMM(n_components=3, random_state=0, n_iter=30).fit(NUMBERS, LENGTHS, labels=labels)
    assert (model.predict(NUMBERS, LENGTHS) == STATES).mean() > 0.9, "states have the numbers that they were given"
    whole = hmm.GaussianHMM(n_components=3, random_state=0, n_iter=2, covars_prior=0.0, covars_weight=0).fit(
        NUMBERS, LENGTHS, labels=STATES
    )
    np.testing.assert_allclose(whole.means_, [NUMBERS[s == STATES].mean(axis=0) for s in range(3)])
    for wrong in (STATES[:5], STATES + 1, STATES * 0.5):
        with pytest.raises(ValueError, match="labels must hold a state"):
            hmm.GaussianHMM(n_components=3).fit(NUMBERS, LENGTHS, labels=wrong)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="doesn't sum"):
        hmm.GaussianHMM().fit(NUMBERS, [3])
    with pytest.raises(ValueError, match="Unknown decoder"):
        hmm.GaussianHMM().fit(NUMBERS).decode(NUMBERS, algorithm="beam")
    with pytest.raises(ValueError, match="covariance_type"):
        hmm.GaussianHMM(covariance_type="round").fit(NUMBERS)
    with pytest.raises(ValueError, match="Symbols should be integers"):
        hmm.CategoricalHMM().fit(NUMBERS[:, :1])
    with pytest.raises(ValueError, match="Largest symbol is 3"):
        hmm.CategoricalHMM(n_features=2).fit(SYMBOLS)
    with pytest.raises(ValueError, match="number of trials"):
        hmm.MultinomialHMM(n_trials=2).fit(DRAWS)
    model = hmm.GaussianHMM(n_components=2).fit(NUMBERS)
    model.startprob_ = np.array([0.7, 0.7])
    with pytest.raises(ValueError, match="must sum to 1"):
        model.score(NUMBERS)
    with pytest.raises(ValueError, match="positive"):
        model.covars_ = -np.ones((2, 2))
    assert clone(hmm.GMMHMM(n_mix=3)).get_params()["n_mix"] == 3


def mixture(kind: str) -> hmm.GMMHMM:
    return hmm.GMMHMM(n_components=3, n_mix=2, covariance_type=kind, random_state=3, n_iter=6, tol=-np.inf).fit(
        NUMBERS, LENGTHS
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_by_its_formula(kind: str) -> None:
    model = mixture(kind)
    assert np.ptp(model.monitor_.history) > 0
    full = {
        "diag": lambda s, k: np.diag(model.covars_[s, k]),
        "spherical": lambda s, k: np.eye(2) * model.covars_[s, k],
        "full": lambda s, k: model.covars_[s, k],
        "tied": lambda s, k: model.covars_[s],
    }[kind]
    for x in NUMBERS[:3]:
        chance = sum(
            model.startprob_[s]
            * model.weights_[s, k]
            * stats.multivariate_normal.pdf(x, model.means_[s, k], full(s, k))
            for s in range(3)
            for k in range(2)
        )
        assert model.score(x[None]) == pytest.approx(np.log(chance), abs=1e-9)
    model.startprob_, model.transmat_ = np.eye(3)[0], np.eye(3)  # a game that stays where it began
    drawn, path = model.sample(4000, random_state=0)
    assert set(path.tolist()) == {0}
    mean = model.weights_[0] @ model.means_[0]
    spread = sum(
        w * (full(0, k) + np.outer(m - mean, m - mean))
        for k, (w, m) in enumerate(zip(model.weights_[0], model.means_[0]))
    )
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(spread) / 4000)).all()
    np.testing.assert_allclose(np.cov(drawn.T), spread, atol=0.15 * np.diag(spread).max())


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("diag", {"weights_": np.full((3, 3), 1 / 3)}, r"weights_ must have shape \(n_components, n_mix\)"),
        ("diag", {"weights_": np.full((3, 2), 0.6)}, "weights_ rows must sum to 1"),
        ("diag", {"means_": np.zeros((3, 2, 1))}, r"means_ must have shape"),
        ("diag", {"covars_": np.ones((3, 2))}, r"'diag' mixture covars must have shape \(3, 2, 2\)"),
        ("spherical", {"covars_": -np.ones((3, 2))}, "must be non-negative"),
        ("tied", {"covars_": np.tile([[1.0, 2.0], [0.0, 1.0]], (3, 1, 1))}, "state #0 is not symmetric"),
        (
            "full",
            {"covars_": np.tile([[1.0, 2.0], [2.0, 1.0]], (3, 2, 1, 1))},
            "state #0, mixture #0 is not positive",
        ),
    ],
)
def test_mixtures_that_are_none(kind: str, changes: dict[str, Any], words: str) -> None:
    model = mixture(kind)
    for name, value in changes.items():
        setattr(model, name, value)
    with pytest.raises(ValueError, match=words):
        model.score(NUMBERS)


def test_mixtures_of_no_known_form() -> None:
    with pytest.raises(ValueError, match="covariance_type must be one of"):
        mixture("round")


@pytest.mark.parametrize(
    ("kind", "covars", "words"),
    [
        ("diag", np.zeros((3, 2, 2)), "Degenerate mixture covariance"),
        ("tied", np.tile(np.diag([1.0, 0.0]), (3, 1, 1)), "Covariance of state #2 has a null eigenvalue"),
    ],
)
def test_mixtures_without_a_spread_are_told(
    kind: str, covars: np.ndarray, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = mixture(kind)
    model.covars_ = covars
    model._validate()
    assert words in caplog.text
