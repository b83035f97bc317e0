"""The hidden Markov model: densities, counting, training for the labels, answers, files."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import crfield
from crfield import HMM, ChainCRF
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import ConvergenceWarning, FeatureError, InputError, LabelError, ModelFileError, ShapeError
from crfield.scoring.densities.gaussian import DiagonalGaussian, family_named
from crfield.storage.archive import read_archive, write_archive
from crfield.training.markov.counting import counted
from crfield.training.markov.gradient import MarkovConditional
from tests.cases.estimators import as_arrays, as_csr, as_strings, world


def numbers(n: int = 30, seed: int = 0) -> tuple[list[np.ndarray], list[list[str]]]:
    X, y = world(n, seed=seed)
    return as_arrays(X), y


# ------------------------------------------------------------------------------------------------------- densities


def test_densities_are_those_of_normal_columns() -> None:
    rng = np.random.default_rng(0)
    family = DiagonalGaussian(rng.normal(size=(3, 4)), rng.uniform(0.2, 3.0, (3, 4)))
    rows = rng.normal(size=(7, 4))
    wanted = norm.logpdf(rows[:, None], family.mean, family.deviation).sum(axis=2)
    np.testing.assert_allclose(family.log_density(rows), wanted, rtol=1e-12)
    natural, offset = family.natural()
    np.testing.assert_allclose(family.statistics(rows) @ natural + offset, wanted, rtol=1e-10)
    np.testing.assert_allclose(
        family.widened(2.0).log_density(rows),
        norm.logpdf(rows[:, None], family.mean, 2 * family.deviation).sum(axis=2),
        rtol=1e-12,
    )
    shift, unit = rng.normal(size=4), rng.uniform(0.5, 2, 4)
    np.testing.assert_allclose(
        family.moved(shift, unit).log_density((rows - shift) / unit), wanted + np.log(unit).sum(), rtol=1e-10
    )


def test_the_gradient_in_free_parameters() -> None:
    rng = np.random.default_rng(1)
    family = DiagonalGaussian(rng.normal(size=(2, 3)), rng.uniform(0.3, 2.0, (2, 3)))
    g_natural, g_offset = rng.normal(size=(6, 2)), rng.normal(size=2)

    def value(free: np.ndarray) -> float:
        natural, offset = family.with_free(free).natural()
        return float((g_natural * natural).sum() + g_offset @ offset)

    here, step = family.free(), 1e-6
    slope = [(value(here + step * e) - value(here - step * e)) / (2 * step) for e in np.eye(len(here))]
    np.testing.assert_allclose(family.pull(g_natural, g_offset), slope, rtol=1e-6, atol=1e-6)


def test_fits_are_weighted_and_safe() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(50, 2)) + 1e6
    soft = rng.dirichlet([1, 1], 50)
    family = DiagonalGaussian.fit(rows, soft)
    for c in range(2):
        np.testing.assert_allclose(family.mean[c], np.average(rows, axis=0, weights=soft[:, c]), rtol=1e-12)
        spread = np.average((rows - family.mean[c]) ** 2, axis=0, weights=soft[:, c])
        np.testing.assert_allclose(family.deviation[c] ** 2, spread, rtol=1e-6)
    hard = np.eye(2)[[0, 0, 1]]
    few = DiagonalGaussian.fit(np.array([[0.0, 5.0], [1.0, 5.0], [7.0, 5.0]]), hard)
    assert few.deviation[1, 0] == pytest.approx(1e-3 * np.std([0, 1, 7])), "one step: the floor"
    assert few.deviation[:, 1].tolist() == [1.0, 1.0], "a constant column says nothing"
    with pytest.raises(LabelError, match="label number 1"):
        DiagonalGaussian.fit(rows, np.eye(2)[np.zeros(50, int)])
    with pytest.raises(InputError, match="> 0"):
        DiagonalGaussian(np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(ShapeError, match="rows must be"):
        family.log_density(np.zeros((3, 5)))
    with pytest.raises(InputError, match="emissions must be one of"):
        family_named("weibull")


# -------------------------------------------------------------------------------------------------------- counting


def test_counting() -> None:
    chains = Chains.from_lengths([3, 0, 2, 1])
    target = Target(chains, 2, np.array([0, 1, 1, 0, 0, 1]), None, np.array([1.0, 1.0, 2.0, 0.5]))
    start, transition, part = counted(target, smoothing=0.0)
    np.testing.assert_allclose(start, [3 / 3.5, 0.5 / 3.5])
    np.testing.assert_allclose(transition, [[2 / 3, 1 / 3], [0, 1]])
    np.testing.assert_allclose(part, [5 / 7.5, 2.5 / 7.5])
    some = Target(chains, 2, np.array([0, -1, 1, 0, 0, 1]), np.ones((6, 2), bool))
    np.testing.assert_allclose(counted(some, smoothing=0.0)[1], [[1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(counted(some, smoothing=1.0)[1], [[2 / 3, 1 / 3], [0.5, 0.5]])


def test_the_model_is_the_joint_probability() -> None:
    """log p(x) and p(y | x) by enumeration of all labellings."""
    X, y = numbers(20)
    model = HMM(smoothing=0.5).fit(X, y)
    x = np.random.default_rng(1).normal(size=(4, 2))
    density = np.exp(model.emissions_.log_density(x))
    joint = {}
    for path in product(range(3), repeat=4):
        p = model.start_probabilities_[path[0]] * density[0, path[0]]
        for t in range(1, 4):
            p *= model.transition_probabilities_[path[t - 1], path[t]] * density[t, path[t]]
        joint[path] = p
    total = sum(joint.values())
    assert model.log_likelihood([x])[0] == pytest.approx(np.log(total), rel=1e-12)
    found = model.predict_proba([x])[0]
    for t, c in product(range(4), range(3)):
        assert found[t, c] == pytest.approx(sum(p for path, p in joint.items() if path[t] == c) / total, rel=1e-10)
    best = max(joint, key=lambda path: joint[path])
    assert model.set_params(decode="viterbi").predict([x])[0].tolist() == [model.classes_[c] for c in best]
    named = [model.classes_[c] for c in best]
    assert model.log_prob([x], [named])[0] == pytest.approx(np.log(joint[best] / total), rel=1e-9)


def test_widening_is_after_counting() -> None:
    X, y = numbers()
    plain, wide = HMM().fit(X, y), HMM(deviation_factor=3.0).fit(X, y)
    np.testing.assert_allclose(wide.emissions_.deviation, 3 * plain.emissions_.deviation)
    np.testing.assert_array_equal(wide.emissions_.mean, plain.emissions_.mean)


def test_other_input_unknown_labels_and_weights() -> None:
    X, y = world(30)
    for write in (as_strings, as_csr):
        assert HMM().fit(write(X), y).score(write(X), y) > 0.6
    arrays = as_arrays(X)
    weight = np.where(np.arange(30) % 2, 2.0, 1.0)
    twice = HMM().fit(arrays + arrays[1::2], y + y[1::2])
    heavy = HMM().fit(arrays, y, sample_weight=weight)
    np.testing.assert_allclose(heavy.emissions_.mean, twice.emissions_.mean)
    np.testing.assert_allclose(heavy.transition_probabilities_, twice.transition_probabilities_)
    hidden = [[None, *labels[1:]] for labels in y]
    assert HMM().fit(arrays, hidden).score(arrays, y) > 0.5
    with pytest.raises(LabelError, match="'C' is on no step"):
        HMM().fit(arrays[:1], [[{"A", "C"}] + ["A"] * (len(y[0]) - 1)])
    with pytest.raises(FeatureError, match="finite"):
        HMM().fit([np.array([[np.inf]])], [["a"]])
    only = HMM().fit([np.zeros((2, 1)), np.zeros((0, 1))], [["a", "a"], []])
    assert only.predict([np.ones((1, 1))])[0].tolist() == ["a"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"emissions": "cauchy"}, "emissions"),
        ({"training": "spectral"}, "training"),
        ({"deviation_factor": 0.0}, "deviation_factor"),
        ({"smoothing": -1.0}, "smoothing"),
        ({"l2": np.nan}, "l2"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"decode": "best"}, "decode"),
        ({"verbose": -1}, "verbose"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        HMM(**options).fit(*numbers(4))


# ----------------------------------------------------------------------------------------- trained for the labels


@pytest.mark.parametrize("partial", [False, True])
def test_the_gradient_of_the_conditional_likelihood(partial: bool) -> None:
    rng = np.random.default_rng(3)
    chains = Chains.from_lengths([4, 1, 6])
    rows, labels = rng.normal(size=(11, 2)), rng.integers(3, size=11)
    allowed = None
    if partial:
        labels = np.where(np.arange(11) % 3, labels, -1)
        allowed = np.ones((11, 3), bool)
    target = Target(chains, 3, labels, allowed)
    family = DiagonalGaussian(rng.normal(size=(3, 2)), rng.uniform(0.5, 2, (3, 2)))
    tables = rng.dirichlet([1, 1, 1]), rng.dirichlet([1, 1, 1], 3)
    problem = MarkovConditional(rows, target, *tables, family)
    here, slope = 0.1 * rng.normal(size=problem.n_weights), np.empty(problem.n_weights)
    problem.evaluate(here, slope)
    step, unused = 1e-6, np.empty(problem.n_weights)
    for k in range(problem.n_weights):
        move = step * np.eye(problem.n_weights)[k]
        ends = [problem.evaluate(here + s * move, unused) for s in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope[k], rel=1e-5, abs=1e-6)
    start, transition, _ = problem.tables(here)
    np.testing.assert_allclose([start.sum(), *transition.sum(axis=1)], 1.0)


def test_training_for_labels_beats_counting_and_nears_the_field() -> None:
    """Copies of one column: counting takes them for independent, training does not."""
    rng = np.random.default_rng(5)
    X, y = [], []
    for _ in range(30):
        labels = np.repeat(rng.integers(2, size=5), 6)
        seen = labels + rng.normal(size=30)
        X.append(np.stack([seen] * 4 + [seen + 0.1 * rng.normal(size=30)], axis=1) + rng.normal(size=(30, 5)) * 1e-3)
        y.append(labels)
    counting = HMM().fit(X[:20], y[:20])
    trained = HMM(training="discriminative").fit(X[:20], y[:20])
    log_prob = [model.log_prob(X[20:], y[20:]).sum() for model in (counting, trained)]
    assert log_prob[1] > log_prob[0] + 50
    squares = [np.concatenate([x, x**2], axis=1) for x in X]
    field = ChainCRF(standardize=True, decode="marginal").fit(squares[:20], y[:20])
    assert trained.score(X[20:], y[20:]) > field.score(squares[20:], y[20:]) - 0.03
    assert trained.objective_ < -counting.log_prob(X[:20], y[:20]).sum()


def test_the_pull_towards_counting() -> None:
    X, y = numbers()
    counting = HMM().fit(X, y)
    held = HMM(training="discriminative", l2=1e8).fit(X, y)
    np.testing.assert_allclose(held.emissions_.mean, counting.emissions_.mean, atol=1e-4)
    np.testing.assert_allclose(held.transition_probabilities_, counting.transition_probabilities_, atol=1e-4)


def test_stopping_early_is_told_of() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = HMM(training="discriminative", max_iter=2, l2=0.01).fit(*numbers())
    assert model.converged_ is False


# ----------------------------------------------------------------------------------------------- samples and files


def test_samples_come_from_the_model() -> None:
    model = HMM().fit(*numbers(60))
    X, y = model.sample([400] * 5, random_state=3)
    again = HMM(smoothing=0.0).fit(X, y)
    np.testing.assert_allclose(again.emissions_.mean, model.emissions_.mean, atol=0.15)
    np.testing.assert_allclose(again.emissions_.deviation, model.emissions_.deviation, atol=0.15)
    np.testing.assert_allclose(again.transition_probabilities_, model.transition_probabilities_, atol=0.08)
    same, labels = model.sample([400] * 5, random_state=3)
    np.testing.assert_array_equal(same[0], X[0])
    assert labels[0].tolist() == y[0].tolist()
    assert model.sample(0)[0][0].shape == (0, 2)
    with pytest.raises(InputError, match="lengths"):
        model.sample([-1])


def test_damaged_files(tmp_path: Path) -> None:
    model = HMM().fit(*numbers())
    model.save(tmp_path / "good.crfield")
    archive = read_archive(tmp_path / "good.crfield")
    arrays = {name: np.array(archive.arrays[name]) for name in archive.arrays}
    for name, values in (
        ("transition_probabilities_", np.full((3, 3), 0.5)),
        ("start_probabilities_", np.array([1.5, -0.5, 0.0])),
        ("emissions/deviation", -arrays["emissions/deviation"]),
        ("emissions/mean", arrays["emissions/mean"][:2]),
        ("emissions/mean", np.zeros((3, 7))),
    ):
        broken = {**arrays, name: values}
        if values.shape == (3, 7):
            broken["emissions/deviation"] = np.ones((3, 7))
        write_archive(tmp_path / "bad.crfield", archive.header, broken)
        with pytest.raises(ModelFileError):
            crfield.load(tmp_path / "bad.crfield")
