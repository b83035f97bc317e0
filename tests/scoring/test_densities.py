"""Families of emissions: densities, fits, gradients, files; the kernel of normal columns on both bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import multivariate_normal, norm
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

import crfield
from crfield import HMM
from crfield.errors import FeatureError, InputError, LabelError, ModelFileError, ShapeError
from crfield.kernels import choice, emission
from crfield.scoring.densities.categorical import Categorical, Words
from crfield.scoring.densities.full import FullGaussian
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting, family_named, family_of_kind
from crfield.scoring.densities.mixture import GaussianMixtures
from crfield.scoring.densities.poisson import Poisson
from crfield.storage.archive import read_archive, write_archive
from tests.cases.chains import native_level
from tests.cases.estimators import as_arrays, as_strings, same, world

NAMED = ("gaussian", "full", "mixture", "categorical", "poisson")


def data(emissions: Any, n: int = 30, seed: int = 0) -> tuple[Any, Any]:
    X, y = world(n, seed=seed)
    arrays = as_arrays(X)
    return ([np.abs(x).astype(int) for x in arrays] if emissions in ("categorical", "poisson") else arrays), y


# ---------------------------------------------------------------------------------------------------------- kernel


@pytest.mark.parametrize("labels", [1, 3, 8, 11])
def test_kernel_of_normal_columns(body: str, labels: int) -> None:
    rng = np.random.default_rng(labels)
    rows, mean = rng.normal(size=(601, 3)), rng.normal(size=(labels, 3))
    inverse, bias = rng.uniform(0.5, 2, (labels, 3)), rng.normal(size=labels)
    wanted = bias - 0.5 * (((rows[:, None] - mean) * inverse) ** 2).sum(axis=2)
    weights = rng.dirichlet(np.ones(labels), 601)
    away = rows[:, None] - mean
    for jobs in (1, 3):
        scores = emission.normal_scores(rows, mean, inverse, bias, n_jobs=jobs)
        np.testing.assert_allclose(scores, wanted, rtol=1e-12, atol=1e-13)
        mass, first, second = emission.normal_moments(rows, weights, mean, n_jobs=jobs)
        np.testing.assert_allclose(mass, weights.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(first, np.einsum("nc,ncd->cd", weights, away), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(second, np.einsum("nc,ncd->cd", weights, away**2), rtol=1e-10)
    assert emission.normal_scores(rows[:0], mean, inverse, bias).shape == (0, labels)
    assert emission.normal_moments(rows[:0], weights[:0], mean)[0].tolist() == [0.0] * labels
    assert (
        emission.normal_scores(np.zeros((2, 0)), np.zeros((1, 0)), np.zeros((1, 0)), np.ones(1)).tolist() == [[1]] * 2
    )


@pytest.mark.parametrize("level", [2, 3, 4])
def test_levels_agree(level: int) -> None:
    rng = np.random.default_rng(0)
    rows, mean, weights = rng.normal(size=(300, 4)), rng.normal(size=(5, 4)), rng.random((300, 5))
    inverse, bias = np.ones((5, 4)), np.zeros(5)
    with choice.use("numpy"):
        wanted = emission.normal_moments(rows, weights, mean)
        scores = emission.normal_scores(rows, mean, inverse, bias)
    with native_level(level):
        for a, b in zip(emission.normal_moments(rows, weights, mean), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(emission.normal_scores(rows, mean, inverse, bias), scores, rtol=1e-12, atol=1e-13)


def test_the_kernel_refuses_what_does_not_fit(body: str) -> None:
    rows = np.zeros((4, 2))
    for bad in (np.zeros((2, 3)), np.zeros((0, 2)), np.zeros(2)):
        with pytest.raises(ShapeError):
            emission.normal_scores(rows, bad, bad, np.zeros(len(bad)))
        with pytest.raises(ShapeError):
            emission.normal_moments(rows, np.zeros((4, len(bad))), bad)
    with pytest.raises(ShapeError, match="responsibility"):
        emission.normal_moments(rows, np.zeros((3, 2)), np.zeros((2, 2)))
    if body == "native":
        raw = choice.body("emission")
        with pytest.raises((ValueError, TypeError)):
            raw.normal_scores(rows, np.zeros((2, 2)), np.zeros((2, 3)), np.zeros(2), np.zeros((4, 2)), 1)
        with pytest.raises((ValueError, TypeError)):
            raw.normal_moments(rows, np.zeros((4, 2)), np.zeros((2, 2)), np.zeros(1), rows[:2], rows[:2], 1)


# -------------------------------------------------------------------------------------------------------- families


def test_full_densities() -> None:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 3, 3))
    family = FullGaussian(rng.normal(size=(2, 3)), roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(3))
    rows = rng.normal(size=(9, 3))
    wanted = np.stack(
        [multivariate_normal(m, c).logpdf(rows) for m, c in zip(family.mean, family.covariance, strict=True)], axis=1
    )
    np.testing.assert_allclose(family.log_density(rows), wanted, rtol=1e-10)
    natural, offset = family.natural()
    np.testing.assert_allclose(family.statistics(rows) @ natural + offset, wanted, rtol=1e-9)
    np.testing.assert_allclose(family.with_free(family.free()).covariance, family.covariance, rtol=1e-9)
    shift, unit = rng.normal(size=3), rng.uniform(0.5, 2, 3)
    np.testing.assert_allclose(
        family.moved(shift, unit).log_density((rows - shift) / unit), wanted + np.log(unit).sum(), rtol=1e-9
    )
    drawn = family.sample(np.ones(20_000, int), rng)
    np.testing.assert_allclose(np.cov(drawn.T), family.covariance[1], rtol=0.1, atol=0.15)


def test_full_fits() -> None:
    rng = np.random.default_rng(1)
    rows, soft = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3)) + 1e4, rng.dirichlet([1, 1], 80)
    family = FullGaussian.fit(rows, soft)
    for c in range(2):
        np.testing.assert_allclose(family.mean[c], np.average(rows, axis=0, weights=soft[:, c]), rtol=1e-12)
        np.testing.assert_allclose(
            family.covariance[c], np.cov(rows.T, aweights=soft[:, c], bias=True), rtol=1e-5, atol=1e-6
        )
    line = np.column_stack([np.arange(5.0), np.arange(5.0), np.full(5, 7.0)])
    flat = FullGaussian.fit(line, np.ones((5, 1)), Fitting(floor=0.1))
    unit = flat.covariance[0][:2, :2] / line[:, 0].var()
    assert np.linalg.eigvalsh(unit).min() == pytest.approx(0.1), "the floor holds in every direction"
    np.testing.assert_allclose(flat.covariance[0][2], [0, 0, 1], atol=1e-12)
    with pytest.raises(LabelError):
        FullGaussian.fit(line, np.eye(2)[np.zeros(5, int)])
    with pytest.raises(InputError, match="positive definite"):
        FullGaussian(np.zeros((1, 2)), np.array([[[1.0, 2.0], [2.0, 1.0]]]))


def test_mixtures() -> None:
    rng = np.random.default_rng(2)
    family = GaussianMixtures(rng.dirichlet([1, 1, 1], 2), rng.normal(size=(2, 3, 2)), rng.uniform(0.5, 2, (2, 3, 2)))
    rows = rng.normal(size=(7, 2))
    parts = norm.pdf(rows[:, None, None], family.mean, family.deviation).prod(axis=3)
    np.testing.assert_allclose(family.log_density(rows), np.log((parts * family.weight).sum(axis=2)), rtol=1e-10)
    # refit never lowers the likelihood, and ends where scikit-learn's ends from the same start
    rows = np.concatenate([rng.normal(-3, 0.5, (60, 2)), rng.normal(3, 1.0, (40, 2))])
    found = GaussianMixtures.fit(rows, np.ones((100, 1)))
    other = GaussianMixture(2, covariance_type="diag", tol=1e-8, reg_covar=0, random_state=0).fit(rows)
    assert found.log_density(rows).mean() == pytest.approx(other.score(rows), abs=1e-4)
    one = GaussianMixtures.fit(rows, np.ones((100, 1)), Fitting(n_components=1))
    plain = DiagonalGaussian.fit(rows, np.ones((100, 1)))
    np.testing.assert_allclose(one.log_density(rows), plain.log_density(rows), rtol=1e-8)
    drawn = found.sample(np.zeros(20_000, int), rng)
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.1)
    with pytest.raises(InputError, match="sum to one"):
        GaussianMixtures(np.full((1, 2), 0.9), np.zeros((1, 2, 1)), np.ones((1, 2, 1)))


def test_symbols() -> None:
    rows = np.array([[0, 3], [1, 3], [1, 0], [1, 0]], float)
    hard = np.eye(2)[[0, 0, 1, 1]]
    family = Categorical.fit(rows, hard, Fitting(smoothing=0.5))
    np.testing.assert_allclose(family.probability[:, :2], [[0.5, 0.5], [1 / 6, 5 / 6]])
    np.testing.assert_allclose(family.probability[:, 2:], [[1 / 6, 0, 0, 5 / 6], [5 / 6, 0, 0, 1 / 6]], atol=1e-15)
    wanted = np.log(family.probability[:, 1]) + np.log(family.probability[:, 5])
    np.testing.assert_allclose(family.log_density(np.array([[1.0, 3.0]]))[0], wanted)
    assert family.log_density(np.array([[9.0, 1.0], [-1.0, 0.5]])).tolist() == [[0.0, 0.0]] * 2, "never seen"
    natural, offset = family.natural()
    np.testing.assert_allclose(family.statistics(rows) @ natural + offset, family.log_density(rows))
    np.testing.assert_allclose(family.refit(rows, hard, Fitting(smoothing=0.5)).probability, family.probability)
    hardest = Categorical.fit(rows, hard, Fitting(smoothing=0.0))
    assert hardest.log_density(rows)[2].tolist() == [-np.inf, 0.0]
    drawn = family.sample(np.zeros(4000, int), np.random.default_rng(0))
    assert set(drawn[:, 1]) == {0.0, 3.0}
    assert (drawn[:, 1] == 3).mean() == pytest.approx(5 / 6, abs=0.03)
    for bad in ([[0.5]], [[-1.0]], [[1e9]]):
        with pytest.raises(FeatureError, match="integers ≥ 0"):
            Categorical.fit(np.array(bad), np.ones((1, 1)))
    with pytest.raises(FeatureError, match="negative"):
        Words.fit(np.array([[-1.0]]), np.ones((1, 1)))
    with pytest.raises(InputError, match="sum to one"):
        Words(np.array([[0.3, 0.3]]), np.array([0, 2]))


@pytest.mark.parametrize("kind", ["full", "categorical", "words", "poisson"])
def test_gradients_in_free_parameters(kind: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(3, size=(20, 2)).astype(float) if kind != "full" else rng.normal(size=(20, 3))
    family = family_of_kind(kind).fit(rows, rng.dirichlet([1, 1], 20))
    natural, offset = (rng.normal(size=part.shape) for part in family.natural())

    def value(free: np.ndarray) -> float:
        there = family.with_free(free).natural()
        return float((natural * there[0]).sum() + offset @ there[1])

    here, step = family.free(), 1e-6
    slope = [(value(here + step * e) - value(here - step * e)) / (2 * step) for e in np.eye(len(here))]
    np.testing.assert_allclose(family.pull(natural, offset), slope, rtol=1e-5, atol=1e-5)


def test_narrow_densities_keep_their_digits() -> None:
    """A precision that has no Cholesky factor any more once it was inverted and inverted back."""
    free = np.array([0.0, 0.0, 0.0, -3.0, 294.0, -12.0, 644.0, -230.0, 12.0])
    narrow = FullGaussian(np.zeros((1, 3)), np.eye(3)[None]).with_free(free)
    np.testing.assert_allclose(narrow.free(), free, rtol=1e-12)
    natural, offset = narrow.natural()
    assert np.isfinite(narrow.pull(natural, offset)).all()
    assert offset[0] == pytest.approx(-3.0 - 1.5 * np.log(2 * np.pi), rel=1e-12)


# --------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("emissions", NAMED)
def test_every_family_learns_samples_and_is_stored(emissions: str, tmp_path: Path) -> None:
    X, y = data(emissions)
    model = HMM(emissions).fit(X, y)
    assert model.score(X, y) > 0.45
    drawn, labels = model.sample([300, 100], random_state=1)
    again = HMM(emissions).fit(drawn, labels)
    np.testing.assert_allclose(again.transition_probabilities_, model.transition_probabilities_, atol=0.15)
    model.save(tmp_path / "model.crfield")
    loaded = crfield.load(tmp_path / "model.crfield")
    assert same(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.log_likelihood(X), model.log_likelihood(X))
    if emissions == "poisson":
        with pytest.raises(InputError, match="no width"):
            HMM(emissions, deviation_factor=3.0).fit(X, y)
    else:
        wider = HMM(emissions, deviation_factor=3.0).fit(X, y)
        assert np.abs(np.concatenate(list(wider.predict_proba(X))) - 1 / 3).mean() < (
            np.abs(np.concatenate(list(model.predict_proba(X))) - 1 / 3).mean()
        )
    if emissions != "mixture":
        trained = HMM(emissions, training="discriminative").fit(X, y)
        assert trained.log_prob(X, y).sum() > model.log_prob(X, y).sum()


def test_poisson_rates() -> None:
    """Against scipy's mass function, with cells that were not observed, and by EM from no labels."""
    rng = np.random.default_rng(0)
    rows = rng.poisson([2.0, 300.0], size=(50, 2)).astype(float)
    family = Poisson.fit(rows, rng.dirichlet([1, 1, 1], 50))
    expected = sum(stats.poisson.logpmf(rows[:, [d]], family.rate[:, d]) for d in range(2))
    np.testing.assert_allclose(family.log_density(rows), expected, rtol=1e-10)
    rows[3, 1] = np.nan
    np.testing.assert_allclose(family.log_density(rows)[3], stats.poisson.logpmf(rows[3, 0], family.rate[:, 0]))
    np.testing.assert_allclose(Poisson.fit(rows, np.ones((50, 1))).rate[0], np.nanmean(rows, axis=0))
    assert (Poisson.fit(np.zeros((4, 1)), np.ones((4, 1))).rate > 0).all()
    states = np.repeat(rng.permutation(np.tile([0, 1], 20)), 25)
    counts = rng.poisson(np.array([[1.0], [7.0]])[states])
    found = HMM("poisson", training="em", n_states=2).fit([counts])
    np.testing.assert_allclose(np.sort(found.emissions_.rate.ravel()), [1.0, 7.0], rtol=0.15)
    for wrong in (-1.0, 0.5, 1e300):
        with pytest.raises(FeatureError, match="integers ≥ 0"):
            Poisson.fit(np.array([[wrong]]), np.ones((1, 1)))


def test_words_have_one_distribution() -> None:
    X, y = world(40)
    words = [[[w] for w, _, _ in x] for x in X]
    model = HMM("categorical").fit(words, y)
    assert model.emissions_.kind == "words"
    np.testing.assert_allclose(model.emissions_.probability.sum(axis=1), 1.0)
    assert model.score(words, y) > 0.7
    assert model.predict([[["never seen"]]])[0].shape == (1,)
    assert HMM("categorical").fit(as_strings(X), y).score(as_strings(X), y) > 0.7


def test_any_density(tmp_path: Path) -> None:
    X, y = data("gaussian", 60)
    for density in (KernelDensity(bandwidth=0.5), GaussianMixture(2, random_state=0)):
        model = HMM(density).fit(X, y)
        assert model.score(X, y) > 0.55
        assert model.sample(5, random_state=0)[0][0].shape == (5, 2)
        assert model.sample(5, random_state=0)[0][0].tolist() == model.sample(5, random_state=0)[0][0].tolist()
        with pytest.raises(InputError, match="joblib"):
            model.save(tmp_path / "code.crfield")
        with pytest.raises(InputError, match="log-linear"):
            model.to_crf()
        with pytest.raises(InputError, match="gradient"):
            HMM(density, training="discriminative").fit(X, y)
    few = [[None, *labels[1:]] for labels in y]
    assert HMM(KernelDensity(), training="em", n_init=1, max_iter=3, tol=1.0).fit(X, few).score(X, y) > 0.5
    with pytest.raises(InputError, match="sample_weight"):
        HMM(GaussianMixture(2), training="em", n_init=1).fit(X, few)
    with pytest.raises(InputError, match="deviation_factor"):
        HMM(KernelDensity(), deviation_factor=2.0).fit(X, y)
    with pytest.raises(InputError, match="score_samples"):
        HMM(KernelDensity).fit(X, y)


@pytest.mark.parametrize("emissions", ["full", "mixture", "categorical", "poisson"])
def test_damaged_densities(emissions: str, tmp_path: Path) -> None:
    X, y = data(emissions)
    HMM(emissions).fit(X, y).save(tmp_path / "good.crfield")
    archive = read_archive(tmp_path / "good.crfield")
    arrays = {name: np.array(archive.arrays[name]) for name in archive.arrays}
    for name in [n for n in arrays if n.startswith("emissions/")]:
        for values in (arrays[name][:-1], -arrays[name] - 1, arrays[name].astype(np.float32)):
            if name == "emissions/mean" and values.shape == arrays[name].shape and values.dtype == np.float64:
                continue  # other means are other densities
            write_archive(tmp_path / "bad.crfield", archive.header, {**arrays, name: values})
            with pytest.raises(ModelFileError):
                crfield.load(tmp_path / "bad.crfield")
    write_archive(tmp_path / "bad.crfield", {**archive.header, "family": "cauchy"}, arrays)
    with pytest.raises(ModelFileError, match="cauchy"):
        crfield.load(tmp_path / "bad.crfield")


def test_families_by_name() -> None:
    assert [family_named(name).kind for name in NAMED] == list(NAMED)
