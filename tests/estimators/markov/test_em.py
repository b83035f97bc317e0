"""Baum–Welch, least durations, and the way to a conditional random field."""

from __future__ import annotations

from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import HMM, ChainCRF
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.lengths import from_lengths, to_lengths
from crfield.errors import ConvergenceWarning, InputError, LabelError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting, family_of_kind
from crfield.training.markov.durations import Durations
from crfield.training.markov.em import Markov, expected, first_model, fit_em, maximised
from tests.cases.estimators import as_arrays, same, world


def steps_of(target: Target, seed: int, kind: str = "gaussian") -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(target.topology.n_nodes, 2)) + rng.integers(0, 2, (target.topology.n_nodes, 1)) * 3
    return np.abs(rows).astype(int).astype(float) if kind == "categorical" else rows


def blocks(n: int = 12, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that last at least three steps."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.concatenate([np.full(int(rng.integers(3, 8)), c) for c in rng.permutation([0, 1, 2, 0, 1])])
        X.append(labels[:, None] * 2.0 + rng.normal(size=(len(labels), 1)))
        y.append(np.array(["a", "b", "c"])[labels])
    return X, y


# -------------------------------------------------------------------------------------------------------------- EM


@pytest.mark.parametrize("kind", ["gaussian", "full", "mixture", "categorical"])
@pytest.mark.parametrize("known", ["none", "some", "sets"])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_the_objective_never_falls(kind: str, known: str, smoothing: float) -> None:
    chains = Chains.from_lengths([14, 1, 0, 9, 30])
    rng = np.random.default_rng(1)
    labels = np.full(chains.n_nodes, -1)
    allowed = np.ones((chains.n_nodes, 3), bool)
    if known == "some":
        labels[::4] = rng.integers(0, 3, len(labels[::4]))
    if known == "sets":
        allowed[::3, 1] = False
    target = Target(chains, 3, labels, allowed, rng.uniform(0.5, 2, 5))
    rows = steps_of(target, 0, kind)
    fitting = Fitting(floor=0.05, smoothing=smoothing)
    first = first_model(
        family_of_kind(kind),
        rows,
        target,
        smoothing=smoothing,
        fitting=fitting,
        durations=None,
        rng=rng,
        known_only=False,
    )
    found, result = fit_em(first, rows, target, smoothing=smoothing, fitting=fitting, tol=1e-12, max_iter=25)
    values = [step.value for step in result.history]
    assert len(values) > 3
    assert result.reason != "line search could not improve"
    assert all(b <= a + 1e-9 * abs(a) for a, b in pairwise(values))
    assert values[-1] < values[0]
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0)


def test_expectations_by_enumeration() -> None:
    rng = np.random.default_rng(4)
    chains = Chains.from_lengths([4, 2])
    labels = np.array([-1, 1, -1, -1, -1, 0])
    target = Target(chains, 2, labels, np.ones((6, 2), bool), np.array([1.0, 3.0]))
    rows = rng.normal(size=(6, 1))
    model = Markov(
        np.array([0.3, 0.7]),
        np.array([[0.6, 0.4], [0.1, 0.9]]),
        DiagonalGaussian(np.array([[0.0], [1.0]]), np.array([[1.0], [0.5]])),
    )
    density = np.exp(model.emissions.log_density(rows))
    total, start, pairs, own = 0.0, np.zeros(2), np.zeros((2, 2)), np.zeros((6, 2))
    for s, (a, b) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:], strict=True)):
        weight = target.weight[s]  # type: ignore[index]
        paths = {}
        for path in product(range(2), repeat=int(b - a)):
            if any(labels[a + t] not in (-1, c) for t, c in enumerate(path)):
                continue
            p = model.start[path[0]]
            for t, c in enumerate(path):
                p *= density[a + t, c] * (model.transition[path[t - 1], c] if t else 1.0)
            paths[path] = p
        z = sum(paths.values())
        total += weight * np.log(z)
        for path, p in paths.items():
            start[path[0]] += weight * p / z
            for t, c in enumerate(path):
                own[a + t, c] += weight * p / z
                if t:
                    pairs[path[t - 1], c] += weight * p / z
    found = expected(model, rows, target, chains)
    assert found.total == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(found.start, start, rtol=1e-10)
    np.testing.assert_allclose(found.pairs, pairs, rtol=1e-10)
    np.testing.assert_allclose(found.responsibility, own, rtol=1e-10)
    better = maximised(model, rows, found, fitting=Fitting(floor=0.0))
    np.testing.assert_allclose(better.transition, pairs / pairs.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(better.emissions.mean[:, 0], own.T @ rows[:, 0] / own.sum(axis=0))


def test_all_labels_known_is_counting() -> None:
    X, y = as_arrays(world(30)[0]), world(30)[1]
    counting, climbed = HMM(smoothing=0.0).fit(X, y), HMM(training="em", smoothing=0.0).fit(X, y)
    np.testing.assert_allclose(climbed.transition_probabilities_, counting.transition_probabilities_, rtol=1e-9)
    np.testing.assert_allclose(climbed.emissions_.mean, counting.emissions_.mean, rtol=1e-9)
    np.testing.assert_allclose(climbed.emissions_.deviation, counting.emissions_.deviation, rtol=1e-9)


def test_states_are_found_without_labels() -> None:
    truth = HMM(smoothing=0.0).fit(
        [np.array([[0.0], [0.4], [5.0], [5.2], [5.1], [9.0], [9.5], [0.2]])], [[0, 0, 1, 1, 1, 2, 2, 0]]
    )
    truth.emissions_ = DiagonalGaussian(truth.emissions_.mean, np.full((3, 1), 0.5))
    X, y = truth.sample([200] * 3, random_state=1)
    model = HMM(training="em", n_states=3, smoothing=0.0, n_init=4, random_state=2).fit(X)
    order = model.emissions_.mean.ravel().argsort()
    np.testing.assert_allclose(model.emissions_.mean.ravel()[order], truth.emissions_.mean.ravel(), atol=0.15)
    np.testing.assert_allclose(
        model.transition_probabilities_[np.ix_(order, order)], truth.transition_probabilities_, atol=0.08
    )
    assert len(model.start_objectives_) == 4
    assert model.objective_ == model.start_objectives_.min()
    assert -model.objective_ == pytest.approx(model.log_likelihood(X).sum(), rel=1e-6)
    assert model.classes_.tolist() == [0, 1, 2]
    twin = HMM(training="em", n_states=3, smoothing=0.0, n_init=4, random_state=2).fit(X)
    assert same(twin.predict(X), model.predict(X))
    right = np.concatenate(list(model.predict(X))) == order[np.concatenate(list(y))]
    assert right.mean() > 0.97


def test_a_few_labels_help() -> None:
    X, y = as_arrays(world(120, seed=3)[0]), world(120, seed=3)[1]
    few = [labels if k < 6 else [None] * len(labels) for k, labels in enumerate(y)]
    counted = HMM().fit(X[:6], y[:6])
    helped = HMM(training="em", n_init=1).fit(X, few)
    test = as_arrays(world(200, seed=9)[0]), world(200, seed=9)[1]
    assert helped.log_likelihood(test[0]).sum() > counted.log_likelihood(test[0]).sum()
    assert helped.score(*test) > counted.score(*test) - 0.02
    assert helped.classes_.tolist() == ["A", "B", "C"]


def test_what_em_refuses_and_tells() -> None:
    X, y = as_arrays(world(10)[0]), world(10)[1]
    with pytest.raises(LabelError, match="n_states"):
        HMM(training="em").fit(X)
    with pytest.raises(LabelError, match="Leave one"):
        HMM(training="em", n_states=2).fit(X, y)
    with pytest.raises(InputError, match="only training='em'"):
        HMM(n_states=2).fit(X)
    wrong: list[dict[str, Any]] = [{"n_states": 0}, {"n_init": 0}, {"n_components": 0}, {"variance_floor": -1}]
    for options in [*wrong, {"random_state": "x"}]:
        with pytest.raises(InputError, match=next(iter(options))):
            HMM(training="em", **options).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        HMM(training="em", n_states=3, max_iter=1, tol=1e-12).fit(X)
    hidden = [[None] * len(labels) for labels in y]
    with pytest.raises(LabelError):
        HMM(training="em").fit(X, hidden)
    only = HMM(training="em", n_states=2, n_init=1).fit([np.ones((3, 1)), np.zeros((0, 1)), np.ones((1, 1))])
    assert np.isfinite(only.log_likelihood([np.ones((2, 1))])).all()
    weighted = HMM(training="em", n_states=2, tol=1e-3).fit(X, sample_weight=np.arange(10))
    assert np.isfinite(weighted.objective_)
    impossible = [np.array([[0.0], [1.0]]), np.array([[1.0]])]
    strict = HMM("categorical", training="em", smoothing=0.0, emission_smoothing=0.0)
    with pytest.raises(LabelError, match="impossible"):
        strict.set_params(min_duration=2).fit(impossible, [["a", "b"], ["a"]])


# ------------------------------------------------------------------------------------------------------- durations


def runs(labels: Any) -> list[int]:
    return [len(list(group)) for _, group in groupby(list(labels))]


def test_least_durations_against_enumeration() -> None:
    rng = np.random.default_rng(0)
    least = np.array([3, 1])
    model = Markov(
        np.array([0.6, 0.4]),
        np.array([[0.7, 0.3], [0.5, 0.5]]),
        DiagonalGaussian(np.array([[0.0], [1.0]]), np.ones((2, 1))),
        Durations(least),
    )
    rows = rng.normal(size=(6, 1))
    density = np.exp(model.emissions.log_density(rows))
    total = 0.0
    for path in product(range(2), repeat=6):
        lengths, codes = runs(path), [c for c, _ in groupby(path)]
        if any(n < least[c] for n, c in zip(lengths[:-1], codes[:-1], strict=True)):
            continue
        p, age = model.start[path[0]] * density[0, path[0]], 1
        for t in range(1, 6):
            before, now = path[t - 1], path[t]
            p *= (model.transition[before, now] if age >= least[before] else float(before == now)) * density[t, now]
            age = age + 1 if before == now else 1
        total += p
    scores = model.potentials(rows, Chains.from_lengths([6]))
    assert ChainEngine().infer(scores, Semiring.LOG).total[0] == pytest.approx(np.log(total), rel=1e-12)


@pytest.mark.parametrize("training", ["counting", "em"])
def test_labels_last(training: str, tmp_path: Path) -> None:
    X, y = blocks()
    model = HMM(training=training, min_duration={"a": 3, "b": 3, "c": 2}, decode="viterbi").fit(X, y)
    plain = HMM(decode="viterbi").fit(X, y)
    noisy = [x + np.random.default_rng(5).normal(size=x.shape) for x in X]
    for labels in model.predict(noisy):
        names = [name for name, _ in groupby(labels)]
        assert all(n >= (2 if name == "c" else 3) for n, name in zip(runs(labels)[:-1], names, strict=False))
    assert min(min(runs(labels)[:-1], default=9) for labels in plain.predict(noisy)) < 3
    assert model.log_prob(X, y).sum() > plain.log_prob(X, y).sum()
    for table in model.predict_proba(noisy):
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert (model.log_prob(X, y) < 0).all()
    assert model.log_prob(X[:1], [["a", "b"] + ["c"] * (len(y[0]) - 2)])[0] == -np.inf
    for labels in model.sample([60], random_state=0)[1]:
        assert min(runs(labels)[:-1]) >= 2
    model.save(tmp_path / "lasting.crfield")
    assert same(crfield.load(tmp_path / "lasting.crfield").predict(noisy), model.predict(noisy))
    with pytest.raises(InputError, match="min_duration"):
        model.to_crf()
    stream = model.stream(viterbi=True)
    told = [label for step in noisy[0] for label in stream.push(step).committed]
    end = stream.finish()
    assert min(runs([*told, *end.committed])[:-1]) >= 2
    np.testing.assert_allclose(end.smoothed[-1], model.predict_proba(noisy[:1])[0][-1], rtol=0, atol=1e-10)


def test_durations_that_cannot_be() -> None:
    X, y = blocks(4)
    with pytest.raises(LabelError, match="ends after"):
        HMM(min_duration=9).fit(X, y)
    with pytest.raises(InputError, match="no label"):
        HMM(min_duration={"z": 2}).fit(X, y)
    for bad in (0, 1.5, True, {"a": 0}):
        with pytest.raises(InputError, match="min_duration"):
            HMM(min_duration=bad).fit(X, y)
    with pytest.raises(InputError, match="discriminative"):
        HMM(training="discriminative", min_duration=2).fit(X, y)
    one, plain = HMM(min_duration={"a": 1}).fit(X, y), HMM().fit(X, y)
    np.testing.assert_array_equal(one.log_likelihood(X), plain.log_likelihood(X))


# ------------------------------------------------------------------------------------------------ as a random field


@pytest.mark.parametrize("emissions", ["gaussian", "full", "categorical"])
@pytest.mark.parametrize("training", ["counting", "discriminative"])
def test_the_field_has_equal_conditional_probabilities(emissions: str, training: str, tmp_path: Path) -> None:
    X, y = as_arrays(world(25)[0]), world(25)[1]
    X = [np.abs(x).astype(int) for x in X] if emissions == "categorical" else [x * 3 + 1000 for x in X]
    model = HMM(emissions, training=training).fit(X, y)
    field, columns = model.to_crf(), model.statistics(X)
    assert isinstance(field, ChainCRF)
    for one, other in zip(field.predict_proba(columns), model.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    np.testing.assert_allclose(field.log_prob(columns, y), model.log_prob(X, y), atol=1e-9)
    assert same(field.predict(columns), model.predict(X))
    before = field.log_prob(columns, y).sum()
    field.save(tmp_path / "field.crfield")
    assert same(crfield.load(tmp_path / "field.crfield").predict(columns), model.predict(X))
    freed = field.set_params(l2=1e-3).fit(columns, y)
    assert freed.log_prob(columns, y).sum() > before, "training goes on from here"


def test_no_field_for_probabilities_of_zero() -> None:
    X, labels = as_arrays(world(4)[0]), world(4)[1]
    y = [["A" if k else "B"] * len(own) for k, own in enumerate(labels)]
    with pytest.raises(InputError, match="smoothing"):
        HMM(smoothing=0.0).fit(X, y).to_crf()
    with pytest.raises(InputError, match="log-linear"):
        HMM("mixture").fit(X, y).statistics(X)


# --------------------------------------------------------------------------------------------------------- lengths


def test_lengths_there_and_back() -> None:
    X = [np.arange(6.0).reshape(3, 2), np.zeros((0, 2)), np.ones((2, 2))]
    table, lengths = to_lengths(X)
    back = from_lengths(table, lengths)
    assert all((a == b).all() and a.shape == b.shape for a, b in zip(X, back, strict=True))
    assert from_lengths([1, 2, 3])[0].shape == (3, 1)
    assert np.shares_memory(back[0], table)
    for bad, error in (([4, 4], ShapeError), ([-1, 6], InputError), ([2.5, 2.5], InputError)):
        with pytest.raises(error, match="lengths"):
            from_lengths(table, bad)
    with pytest.raises(ShapeError, match="steps, columns"):
        from_lengths(np.zeros((2, 2, 2)))
    for bad in ([], "ab", 3):
        with pytest.raises(InputError):
            to_lengths(bad)
    with pytest.raises(ShapeError, match="one shape"):
        to_lengths([np.zeros((2, 2)), np.zeros((2, 3))])


def test_the_same_as_hmmlearn() -> None:
    rival = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is not installed")
    X = as_arrays(world(20)[0])
    start = np.array([[-1.0, -1.0], [1.0, -3.0]])
    options = {"init_params": "", "covars_prior": 0, "covars_weight": 0, "min_covar": 0}
    other = rival.GaussianHMM(2, "diag", n_iter=1, tol=-1, **options)
    other.startprob_, other.transmat_ = np.full(2, 0.5), np.full((2, 2), 0.5)
    other.means_, other.covars_ = start, np.ones((2, 2))
    other.fit(*to_lengths(X))
    chains = Chains.from_lengths([len(x) for x in X])
    model = Markov(np.full(2, 0.5), np.full((2, 2), 0.5), DiagonalGaussian(start, np.ones((2, 2))))
    rows = np.concatenate(X)
    found = expected(model, rows, None, chains)
    assert found.total == pytest.approx(other.monitor_.history[-1], rel=1e-10)
    better = maximised(model, rows, found, fitting=Fitting(floor=0.0))
    np.testing.assert_allclose(better.emissions.mean, other.means_, rtol=1e-8)
    np.testing.assert_allclose(better.transition, other.transmat_, rtol=1e-8)
