"""Emissions of rows with missing cells: marginals by scipy, fits from what was observed, kernels on both bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from crfield.kernels import choice, emission
from crfield.scoring.densities.categorical import Categorical
from crfield.scoring.densities.full import FullGaussian
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting, Spread, family_of_kind
from crfield.scoring.densities.mixture import GaussianMixtures
from tests.cases.chains import native_level


def holed(rows: np.ndarray, share: float = 0.3, seed: int = 0) -> np.ndarray:
    """Rows with missing cells; the first lacks all of them, the second none."""
    out = np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)
    out[0], out[1] = np.nan, rows[1]
    return out


def families(seed: int = 0) -> dict[str, Any]:
    """One of each kind that bears missing cells, of two labels and three columns."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(2, 3, 3))
    return {
        "gaussian": DiagonalGaussian(rng.normal(size=(2, 3)), rng.uniform(0.4, 2, (2, 3))),
        "full": FullGaussian(rng.normal(size=(2, 3)), roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(3)),
        "mixture": GaussianMixtures(
            rng.dirichlet([1, 1], 2), rng.normal(size=(2, 2, 3)), rng.uniform(0.4, 2, (2, 2, 3))
        ),
        "categorical": Categorical(
            np.concatenate([rng.dirichlet([1, 1, 1], 2) for _ in range(3)], axis=1), np.array([0, 3, 6, 9])
        ),
    }


def rows_for(kind: str, n: int = 40, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(3, size=(n, 3)).astype(float) if kind == "categorical" else rng.normal(size=(n, 3))


def marginal_log_density(family: Any, row: np.ndarray, c: int) -> float:
    """log p(what of the row was observed | label c), by scipy."""
    seen = np.flatnonzero(~np.isnan(row))
    if not len(seen):
        return 0.0
    if family.kind == "gaussian":
        return float(norm.logpdf(row[seen], family.mean[c, seen], family.deviation[c, seen]).sum())
    if family.kind == "full":
        block = family.covariance[c][np.ix_(seen, seen)]
        return float(multivariate_normal(family.mean[c, seen], block).logpdf(row[seen]))
    if family.kind == "mixture":
        parts = norm.pdf(row[seen], family.mean[c][:, seen], family.deviation[c][:, seen]).prod(axis=1)
        return float(np.log(family.weight[c] @ parts))
    places = family.offsets[seen] + row[seen].astype(int)
    return float(np.log(family.probability[c, places]).sum())


@pytest.mark.parametrize("labels", [1, 3, 11])
def test_kernels_leave_out_missing_cells(body: str, labels: int) -> None:
    rng = np.random.default_rng(labels)
    rows, mean = holed(rng.normal(size=(601, 3))), rng.normal(size=(labels, 3))
    inverse, parts, bias = rng.uniform(0.5, 2, (labels, 3)), rng.normal(size=(labels, 3)), rng.normal(size=labels)
    weights = rng.dirichlet(np.ones(labels), 601)
    seen, away = ~np.isnan(rows), rows[:, None] - mean
    wanted = bias + np.nansum(parts - 0.5 * (away * inverse) ** 2, axis=2)
    for jobs in (1, 3):
        scores = emission.observed_scores(rows, mean, inverse, parts, bias, n_jobs=jobs)
        np.testing.assert_allclose(scores, wanted, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(scores[0], bias)
        mass, first, second = emission.observed_moments(rows, weights, mean, n_jobs=jobs)
        np.testing.assert_allclose(mass, weights.T @ seen, rtol=1e-12)
        np.testing.assert_allclose(first, np.nansum(weights[:, :, None] * away, axis=0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(second, np.nansum(weights[:, :, None] * away**2, axis=0), rtol=1e-10)
    with pytest.raises(ValueError, match="parts"):
        emission.observed_scores(rows, mean, inverse, parts[:, :2], bias)


@pytest.mark.parametrize("level", [2, 3, 4])
def test_levels_agree_on_missing_cells(level: int) -> None:
    rng = np.random.default_rng(0)
    rows, mean, weights = holed(rng.normal(size=(300, 4))), rng.normal(size=(5, 4)), rng.random((300, 5))
    tables = mean, np.ones((5, 4)), rng.normal(size=(5, 4)), np.zeros(5)
    with choice.use("numpy"):
        wanted = [*emission.observed_moments(rows, weights, mean), emission.observed_scores(rows, *tables)]
    with native_level(level):
        found = [*emission.observed_moments(rows, weights, mean), emission.observed_scores(rows, *tables)]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", families())
def test_the_density_is_the_marginal_one(body: str, kind: str) -> None:
    family, whole = families()[kind], rows_for(kind)
    rows = holed(whole)
    found = family.log_density(rows)
    wanted = [[marginal_log_density(family, row, c) for c in range(2)] for row in rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
    complete = ~np.isnan(rows).any(axis=1)
    np.testing.assert_array_equal(found[complete], family.log_density(whole[complete]), err_msg="the same bits")
    np.testing.assert_allclose(found[0], 0.0, atol=1e-15, err_msg="nothing observed: probability 1")


@pytest.mark.parametrize("kind", families())
def test_a_marginal_is_the_integral(kind: str) -> None:
    """The third column summed or integrated out by hand."""
    family, rows = families()[kind], rows_for(kind, 4)
    grid = np.arange(3.0) if kind == "categorical" else np.linspace(-14, 14, 4001)
    step = 1.0 if kind == "categorical" else grid[1] - grid[0]
    for row in rows:
        many = np.column_stack([np.tile(row[:2], (len(grid), 1)), grid])
        wanted = np.log(np.exp(family.log_density(many)).sum(axis=0) * step)
        np.testing.assert_allclose(family.log_density(np.array([[*row[:2], np.nan]]))[0], wanted, rtol=1e-6)


def test_columns_are_fitted_to_what_was_observed(body: str) -> None:
    rng = np.random.default_rng(3)
    rows, soft = holed(rng.normal(size=(60, 3)) + 1e5), rng.dirichlet([1, 1], 60)
    family = DiagonalGaussian.fit(rows, soft)
    spread = Spread.of(rows, np.ones(60))
    for d in range(3):
        seen = ~np.isnan(rows[:, d])
        assert spread.middle[d] == pytest.approx(rows[seen, d].mean(), rel=1e-12)
        for c in range(2):
            mean = np.average(rows[seen, d], weights=soft[seen, c])
            assert family.mean[c, d] == pytest.approx(mean, rel=1e-12)
            variance = np.average((rows[seen, d] - mean) ** 2, weights=soft[seen, c])
            assert family.deviation[c, d] == pytest.approx(np.sqrt(variance), rel=1e-6)
    one = GaussianMixtures.fit(rows, soft, Fitting(n_components=1))
    np.testing.assert_allclose(one.log_density(rows), family.log_density(rows), rtol=1e-6)
    hard = np.eye(2)[np.arange(60) % 2]
    rows[::2, 1] = np.nan
    shared = DiagonalGaussian.fit(rows, hard)
    assert shared.mean[0, 1] == pytest.approx(np.nanmean(rows[:, 1])), "never seen with a label: as for all"
    assert shared.deviation[0, 1] == pytest.approx(np.nanstd(rows[:, 1]))


def test_a_step_of_a_mixture_by_hand(body: str) -> None:
    """Every row counts for the weights, every cell that was observed for its column."""
    family, rows = families()["mixture"], holed(rows_for("mixture"), 0.4)
    soft = np.random.default_rng(6).dirichlet([1, 1], len(rows))
    found = family.refit(rows, soft, Fitting(floor=0.0))
    for c in range(2):
        logs = np.nansum(norm.logpdf(rows[:, None], family.mean[c], family.deviation[c]), axis=2)
        parts = family.weight[c] * np.exp(logs)
        parts *= (soft[:, c] / parts.sum(axis=1))[:, None]
        np.testing.assert_allclose(found.weight[c], parts.sum(axis=0) / parts.sum(), rtol=1e-10)
        for k in range(2):
            for d, seen in enumerate(~np.isnan(rows.T)):
                mean = np.average(rows[seen, d], weights=parts[seen, k])
                assert found.mean[c, k, d] == pytest.approx(mean, rel=1e-9)
                variance = np.average((rows[seen, d] - mean) ** 2, weights=parts[seen, k])
                assert found.deviation[c, k, d] == pytest.approx(np.sqrt(variance), rel=1e-9)


def test_symbols_are_counted_where_they_were_observed() -> None:
    rows = np.array([[0, np.nan], [1, 1], [np.nan, 0], [1, 1]])
    family = Categorical.fit(rows, np.eye(2)[[0, 0, 1, 1]], Fitting(smoothing=0.5))
    np.testing.assert_allclose(family.probability[:, :2], [[1.5 / 3, 1.5 / 3], [0.5 / 2, 1.5 / 2]])
    np.testing.assert_allclose(family.probability[:, 2:], [[0.5 / 2, 1.5 / 2], [1.5 / 3, 1.5 / 3]])
    again = family.refit(rows, np.eye(2)[[0, 0, 1, 1]], Fitting(smoothing=0.5))
    np.testing.assert_allclose(again.probability, family.probability)


@pytest.mark.parametrize("kind", families())
def test_no_refit_lowers_the_likelihood(kind: str) -> None:
    family, rows = families()[kind], holed(rows_for(kind, 50), 0.4)
    soft = np.random.default_rng(4).dirichlet([1, 1], 50)
    before, fitting = -np.inf, Fitting(floor=1e-3, smoothing=0.0)
    for _ in range(8):
        now = float((soft * family.log_density(rows)).sum())
        assert now >= before - 1e-9
        family, before = family.refit(rows, soft, fitting), now


def test_covariances_of_rows_with_holes_are_of_maximum_likelihood() -> None:
    """No small step from the fit raises the likelihood of what was observed; without the holes, the known formula."""
    rng = np.random.default_rng(5)
    whole = rng.normal(size=(70, 3)) @ rng.normal(size=(3, 3)) + 5.0
    rows, one = holed(whole), np.ones((70, 1))
    family = FullGaussian.fit(rows, one, Fitting(floor=0.0))

    def likelihood(free: np.ndarray) -> float:
        return float(family.with_free(free).log_density(rows).sum())

    here = family.free()
    slope = [(likelihood(here + 1e-5 * e) - likelihood(here - 1e-5 * e)) / 2e-5 for e in np.eye(len(here))]
    np.testing.assert_allclose(slope, 0.0, atol=1e-2)
    assert np.abs(np.corrcoef(whole.T)).max() > 0.5
    start = DiagonalGaussian.fit(rows, one)
    assert likelihood(here) > start.log_density(rows).sum() + 5
    np.testing.assert_allclose(
        family_of_kind("full").fit(whole, one, Fitting(floor=0.0)).covariance[0],
        np.cov(whole.T, bias=True),
        rtol=1e-9,
    )
