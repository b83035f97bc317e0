"""Single steps of Baum–Welch by enumeration, weights as copies, and starts side by side."""

from __future__ import annotations

import time
from itertools import product
from typing import Any

import numpy as np
import pytest

from crfield import HMM
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import LabelError
from crfield.estimators.markov import hmm_fit
from crfield.optimize.history import CALLBACK, INTERRUPTED, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.scoring.densities.categorical import Categorical
from crfield.scoring.densities.full import FullGaussian
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting, family_of_kind
from crfield.training.markov import em_starts
from crfield.training.markov.durations import Durations
from crfield.training.markov.em import Markov, expected, first_model, fit_em, log_prior, maximised
from tests.cases.estimators import as_arrays, same, world


def two_labels(durations: Durations | None = None) -> Markov:
    densities = DiagonalGaussian(np.array([[0.0], [1.0]]), np.ones((2, 1)))
    return Markov(np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.5, 0.5]]), densities, durations)


@pytest.mark.parametrize("least", [(1, 1), (3, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("known", [None, (2, 1)], ids=str)
def test_a_step_against_enumeration(least: tuple[int, int], known: tuple[int, int] | None) -> None:
    """Every labelling, weighed by hand: a label passes from step to step freely once it has lasted long enough."""
    model = two_labels(None if least == (1, 1) else Durations(np.array(least)))
    rows = np.random.default_rng(0).normal(size=(6, 1))
    density = np.exp(model.emissions.log_density(rows))
    total, start, pairs, share = 0.0, np.zeros(2), np.zeros((2, 2)), np.zeros((6, 2))
    for path in product(range(2), repeat=6):
        if known is not None and path[known[0]] != known[1]:
            continue
        p, age, free = model.start[path[0]] * density[0, path[0]], 1, np.zeros((2, 2))
        for t in range(1, 6):
            before, now = path[t - 1], path[t]
            if age >= least[before]:
                p *= model.transition[before, now]
                free[before, now] += 1
            else:
                p *= before == now
            p *= density[t, now]
            age = age + 1 if before == now else 1
        total += p
        start[path[0]] += p
        pairs += p * free
        share[np.arange(6), path] += p
    chains, labels = Chains.from_lengths([6]), np.full(6, -1)
    if known is not None:
        labels[known[0]] = known[1]
    found = expected(model, rows, Target(chains, 2, labels, np.ones((6, 2), bool)), chains)
    assert found.total == pytest.approx(np.log(total), rel=1e-12)
    np.testing.assert_allclose(found.start, start / total, rtol=1e-10)
    np.testing.assert_allclose(found.pairs, pairs / total, rtol=1e-10)
    np.testing.assert_allclose(found.responsibility, share / total, rtol=1e-10)
    better = maximised(model, rows, found, smoothing=0.7, fitting=Fitting(floor=0.0))
    np.testing.assert_allclose(better.start, (start / total + 0.7) / 2.4, rtol=1e-10)
    smooth = pairs / total + 0.7
    np.testing.assert_allclose(better.transition, smooth / smooth.sum(axis=1, keepdims=True), rtol=1e-10)
    mean = share.T @ rows[:, 0] / share.sum(axis=0)
    assert isinstance(better.emissions, DiagonalGaussian)
    np.testing.assert_allclose(better.emissions.mean[:, 0], mean, rtol=1e-9)


def test_only_free_steps_are_counted() -> None:
    """Of three steps that a label must last, only what comes after them was chosen."""
    X = [np.arange(6.0)[:, None]]
    y = [["a", "a", "a", "a", "b", "b"]]
    plain = HMM(smoothing=0.0).fit(X, y)
    lasting = HMM(smoothing=0.0, min_duration={"a": 3}).fit(X, y)
    np.testing.assert_allclose(plain.transition_probabilities_, [[0.75, 0.25], [0.0, 1.0]], rtol=1e-12)
    np.testing.assert_allclose(lasting.transition_probabilities_, [[0.5, 0.5], [0.0, 1.0]], rtol=1e-12)


def test_a_label_after_an_unknown_step_may_have_begun_before() -> None:
    lasting = Durations(np.array([3, 1]))
    labels, allowed = np.array([-1, 0, 1, 0, 0]), np.ones((5, 2), bool)
    free = lasting.free_edges(Target(Chains.from_lengths([3, 2]), 2, labels, allowed))
    assert free.tolist() == [False, True, False]
    with pytest.raises(LabelError, match="ends after 1 steps at step 0 of sequence 1"):
        lasting.free_edges(Target(Chains.from_lengths([1, 2]), 2, np.array([1, 0, 1])))


def test_the_best_labelling_of_lasting_labels() -> None:
    """States of a label are that label, and a step that looks like another one does not end it."""
    X = [np.array([[0.0], [0.1], [4.0], [0.2], [4.1], [3.9], [4.0]])]
    y = [["a", "a", "a", "a", "b", "b", "b"]]
    model = HMM(min_duration=3, decode="viterbi").fit(X, y)
    assert model.predict(X)[0].tolist() == y[0]
    total, labels = model.best_labellings(X)
    assert labels[0].tolist() == y[0]
    assert total[0] <= model.log_likelihood(X)[0]


def test_refits_do_not_depend_on_where_they_begin() -> None:
    """Moments are taken about the means so far, and put right."""
    rng = np.random.default_rng(3)
    rows, share = rng.normal(size=(30, 2)) + 5.0, rng.dirichlet(np.ones(2), 30)
    for at in (0.0, 5.0, 9.0):
        full = FullGaussian(np.full((2, 2), at), np.stack([np.eye(2)] * 2)).refit(rows, share, Fitting(floor=0.0))
        plain = DiagonalGaussian(np.full((2, 2), at), np.ones((2, 2))).refit(rows, share, Fitting(floor=0.0))
        for c in range(2):
            mean, table = np.average(rows, axis=0, weights=share[:, c]), np.cov(rows.T, aweights=share[:, c], ddof=0)
            np.testing.assert_allclose(full.mean[c], mean, rtol=1e-12)
            np.testing.assert_allclose(full.covariance[c], table, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(plain.mean[c], mean, rtol=1e-12)
            np.testing.assert_allclose(plain.deviation[c] ** 2, np.diag(table), rtol=1e-10)


@pytest.mark.parametrize("kind", ["gaussian", "full", "mixture", "categorical"])
def test_a_label_that_no_row_speaks_for_keeps_its_density(kind: str) -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 3, (40, 2)).astype(float) if kind == "categorical" else rng.normal(size=(40, 2))
    family = family_of_kind(kind).fit(rows, rng.dirichlet(np.ones(2), 40), Fitting(n_components=2))
    again = family.refit(rows, np.tile([1.0, 0.0], (40, 1)), Fitting(n_components=2))
    before, after = family.log_density(rows), again.log_density(rows)
    np.testing.assert_allclose(after[:, 1], before[:, 1], rtol=1e-12)
    assert np.abs(after[:, 0] - before[:, 0]).max() > 1e-3
    wide = family.widened(3.0).to_arrays()
    for name, power in {"deviation": 1, "covariance": 2}.items():
        if name in wide:
            np.testing.assert_allclose(wide[name], 3.0**power * family.to_arrays()[name], rtol=1e-12)


@pytest.mark.parametrize("weight", [(2, 2, 2), (1, 3, 2)], ids=str)
def test_a_weight_is_a_number_of_copies(weight: tuple[int, ...]) -> None:
    lengths, rng = [5, 1, 4], np.random.default_rng(1)
    rows = [rng.normal(size=(n, 1)) for n in lengths]
    chains = Chains.from_lengths(lengths)
    free = Target(chains, 2, np.full(10, -1), np.ones((10, 2), bool), np.array(weight, float))
    weighed = expected(two_labels(), np.concatenate(rows), free, chains)
    several = [x for x, n in zip(rows, weight, strict=True) for _ in range(n)]
    copies = expected(two_labels(), np.concatenate(several), None, Chains.from_lengths([len(x) for x in several]))
    assert weighed.total == pytest.approx(copies.total, rel=1e-12)
    np.testing.assert_allclose(weighed.start, copies.start, rtol=1e-12)
    np.testing.assert_allclose(weighed.pairs, copies.pairs, rtol=1e-12)
    np.testing.assert_allclose(weighed.responsibility.sum(axis=0), copies.responsibility.sum(axis=0), rtol=1e-12)


def test_the_objective_has_the_priors() -> None:
    """Smoothing is a Dirichlet prior of both tables and, for symbols, of the shares."""
    starts, rows, free = climbs(1)
    model, fitting = starts[0]
    prior = 0.7 * (np.log(model.start).sum() + np.log(model.transition).sum())
    assert log_prior(model, 0.7, fitting) == pytest.approx(prior, rel=1e-12)
    assert log_prior(model, 0.0, fitting) == 0.0
    shares = Categorical(np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([0, 2]))
    symbols = Markov(model.start, model.transition, shares)
    counted = log_prior(symbols, 0.7, Fitting(smoothing=2.0)) - prior
    assert counted == pytest.approx(2.0 * np.log([0.2, 0.8, 0.5, 0.5]).sum(), rel=1e-12)
    found, result = fit_em(model, rows, free, smoothing=0.7, fitting=fitting, max_iter=4, tol=1e-12)
    total = expected(found, rows, free, Chains.from_lengths([12])).total
    assert -result.value == pytest.approx(total + log_prior(found, 0.7, fitting), rel=1e-12)


class Worse(DiagonalGaussian):
    """A fit that is not of maximum likelihood, as that of a foreign estimator may be."""

    def refit(self, rows: np.ndarray, responsibility: np.ndarray, fitting: Fitting = Fitting()) -> Worse:  # noqa: B008
        return Worse(self.mean + 5.0, self.deviation)


def test_a_step_down_is_not_taken() -> None:
    starts, rows, free = climbs(1)
    model = starts[0][0]
    assert isinstance(model.emissions, DiagonalGaussian)
    densities: Any = Worse(model.emissions.mean, model.emissions.deviation)
    worse = Markov(model.start, model.transition, densities)
    found, result = fit_em(worse, rows, free)
    assert (result.reason, result.n_iter, result.converged) == (NO_IMPROVEMENT, 0, True)
    assert found is worse


# ------------------------------------------------------------------------------------------------------------ starts


@pytest.mark.parametrize(("emissions", "seed"), [("gaussian", 7), ("mixture", 7), ("categorical", 5)])
def test_starts_side_by_side_have_the_same_bits(emissions: str, seed: int) -> None:
    X = as_arrays(world(8)[0])
    X = [np.abs(x).astype(int) for x in X] if emissions == "categorical" else X
    one, *others = (
        HMM(emissions, training="em", n_states=3, n_init=3, tol=1e-3, random_state=seed, n_jobs=jobs).fit(X)
        for jobs in (1, 2, 3)
    )
    assert one.start_objectives_.argmin() > 0, "the best is not the first"
    for other in others:
        assert other.start_objectives_.tobytes() == one.start_objectives_.tobytes()
        assert other.transition_probabilities_.tobytes() == one.transition_probabilities_.tobytes()
        assert same(other.predict_proba(X), one.predict_proba(X))
    assert one.objective_ == one.start_objectives_.min()


def test_where_starts_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first at what is known, where every label is known somewhere; the others are drawn; none where all is."""
    X, y = as_arrays(world(12)[0]), world(12)[1]
    few = [labels if k < 5 else [None] * len(labels) for k, labels in enumerate(y)]
    begun: list[tuple[Markov, Fitting]] = []

    def each(starts: Any, *args: Any, **options: Any) -> Any:
        begun.extend(starts)
        return em_starts.fit_each(starts, *args, **options)

    monkeypatch.setattr(hmm_fit, "fit_each", each)
    HMM(training="em", n_init=3, tol=1.0, n_jobs=2).fit(X, few)
    assert {fitting.n_jobs for _, fitting in begun} == {1}, "sums over threads would have other bits"
    counted = HMM().fit(X[:5], y[:5])
    away = [np.abs(first.emissions.mean - counted.emissions_.mean).max() for first, _ in begun]  # type: ignore[attr-defined]
    assert away[0] < 1e-12
    assert min(away[1:]) > 1e-3
    assert len({fitting.seed for _, fitting in begun}) == len(begun) == 3
    begun.clear()
    HMM(training="em", n_init=3, deviation_factor=1.0).fit(X, y)
    assert len(begun) == 1
    wide, plain = (HMM(training="em", n_init=1, tol=1.0, deviation_factor=f).fit(X, few) for f in (2.0, 1.0))
    np.testing.assert_allclose(wide.emissions_.deviation, 2.0 * plain.emissions_.deviation, rtol=1e-12)


@pytest.mark.parametrize("known", ["some", "sets"])
def test_a_drawn_start_keeps_to_what_is_known(known: str) -> None:
    """Rows about 10 belong to label 0 and rows about 0 to label 1, which a few labels or the sets say."""
    rng = np.random.default_rng(2)
    rows = np.concatenate([10.0 + rng.normal(size=(20, 1)), rng.normal(size=(20, 1))])
    chains, labels, allowed = Chains.from_lengths([40]), np.full(40, -1), np.ones((40, 2), bool)
    if known == "some":
        labels[[3, 5]], labels[[23, 25]] = 0, 1
    else:
        allowed[:20, 1] = allowed[20:, 0] = False
    target = Target(chains, 2, labels, allowed)
    for seed in range(6):
        first = first_model(
            DiagonalGaussian,
            rows,
            target,
            smoothing=1.0,
            fitting=Fitting(),
            durations=None,
            rng=np.random.default_rng(seed),
            known_only=False,
        )
        assert isinstance(first.emissions, DiagonalGaussian)
        assert first.emissions.mean[0, 0] > 8.0
        assert first.emissions.mean[1, 0] < 2.0


def climbs(n: int) -> tuple[list[tuple[Markov, Fitting]], np.ndarray, Target]:
    rows = np.random.default_rng(0).normal(size=(12, 1))
    free = Target(Chains.from_lengths([12]), 2, np.full(12, -1), np.ones((12, 2), bool))
    return [(two_labels(), Fitting(seed=k)) for k in range(n)], rows, free


@pytest.mark.parametrize("jobs", [2, 3])
def test_an_interrupt_ends_all_starts(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start ends and Ctrl-C comes; the second runs until it is told to stop, a third may not begin."""
    starts, rows, free = climbs(3)
    step = Step(1, 2, 0.0, 0.0, 1.0, 4, 0.0)

    def climb(first: Markov, *args: Any, fitting: Fitting, callback: Any, **options: Any) -> tuple[Markov, Result]:
        if fitting.seed == 0:
            return first, Result(np.zeros(0), 1.0, 1, 2, True, TOLERANCE, [step])
        for _ in range(5_000):
            if callback(step, np.zeros(0)):
                return first, Result(np.zeros(0), 2.0, 1, 2, False, CALLBACK, [step])
            time.sleep(0.001)
        raise AssertionError("nobody said to stop")

    def watch(step: Step) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(em_starts, "fit_em", climb)
    found = em_starts.fit_each(starts, rows, free, n_jobs=jobs, watch=watch)
    reasons = [result.reason for _, result in found]
    assert reasons[0] == TOLERANCE
    assert set(reasons[1:]) <= {INTERRUPTED}
    assert 1 <= len(reasons) <= 3


def test_an_interrupt_ends_the_starts_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, rows, free = climbs(3)
    begun = []

    def climb(first: Markov, *args: Any, fitting: Fitting, **options: Any) -> tuple[Markov, Result]:
        begun.append(fitting.seed)
        return first, Result(np.zeros(0), 1.0, 1, 2, False, INTERRUPTED if fitting.seed == 1 else TOLERANCE, [])

    monkeypatch.setattr(em_starts, "fit_em", climb)
    assert len(em_starts.fit_each(starts, rows, free)) == 2
    assert begun == [0, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_start_cannot_do_is_told(jobs: int) -> None:
    starts, rows, free = climbs(2)
    never = Markov(np.array([1.0, 0.0]), np.eye(2), two_labels().emissions)
    labels = np.full(12, -1)
    labels[-1] = 1
    known = Target(free.topology, 2, labels, np.ones((12, 2), bool))
    with pytest.raises(LabelError, match="impossible"):
        em_starts.fit_each([*starts, (never, Fitting())], rows, known, n_jobs=jobs)


def test_jobs_are_shared_among_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def climb(*args: Any, n_jobs: int, **options: Any) -> tuple[Markov, Result]:
        given.append(n_jobs)
        return fit_em(*args, n_jobs=n_jobs, **options)

    monkeypatch.setattr(em_starts, "fit_em", climb)
    for jobs, share in ((1, 1), (2, 1), (5, 2), (8, 4)):
        given.clear()
        starts, rows, free = climbs(2)
        seen: list[Step] = []
        assert len(em_starts.fit_each(starts, rows, free, n_jobs=jobs, watch=seen.append, max_iter=3)) == 2
        assert given == [share, share]
        assert seen
