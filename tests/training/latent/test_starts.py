"""Starts of latent states: clusters, a race that ends as its winner would have alone, and pauses."""

from __future__ import annotations

import numpy as np
import pytest

from crfield import LatentDynamicCRF
from crfield.core.states import StateSpace
from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import ConvergenceWarning
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.simulate.episodes import N_PHASES, make_episodes
from crfield.training.column_basis import Moments
from crfield.training.latent.best import Trained, fit_best, run_start
from crfield.training.latent.chain import LatentChain
from crfield.training.latent.starts import RACE, RACE_APART, Pause, clustered_states


def two_clouds(n: int = 60) -> tuple[Batch, Target, StateSpace, np.ndarray]:
    """Labels of two states and of one; the steps of the first lie in two clouds."""
    rng = np.random.default_rng(0)
    cloud = rng.integers(0, 2, n)
    dense = np.stack([10.0 * cloud, np.zeros(n)], axis=1) + rng.normal(size=(n, 2))
    chains = Chains.from_lengths([n // 2, n - n // 2])
    none = Columns(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), 0, None, dense)
    labels = rng.integers(0, 2, n)
    labels[:3] = UNKNOWN
    allowed = np.ones((n, 2), bool)
    allowed[np.arange(3, n), 1 - labels[3:]] = False
    space = StateSpace.repeated([2, 1])
    return Batch(chains, none), space.target(Target(chains, 2, labels, allowed)), space, cloud


def test_clusters_are_states_of_the_label() -> None:
    batch, target, space, cloud = two_clouds()
    states = clustered_states(batch, Moments.of(batch), target, space, seed=1)
    assert (states[:3] == UNKNOWN).all()
    assert target.mask[np.arange(3, 60), states[3:]].all()
    own = states[3:] < 2
    together = states[3:][own] == cloud[3:][own]
    assert together.all() or not together.any()
    assert clustered_states(batch, Moments.of(batch), target, space, seed=1).tolist() == states.tolist()


def latent_problem() -> tuple[LatentChain, Penalty, list[np.ndarray | None]]:
    batch, target, space, _ = two_clouds()
    layout = Layout.observe(batch, target, bias=True)
    problem, penalty = LatentChain(layout, batch, target, space=space), Penalty(l2=0.1)
    start, spent = problem.clustered_start(penalty, 3)
    assert 1 <= spent <= 20
    rng = np.random.default_rng(5)
    return problem, penalty, [start, *(rng.normal(size=problem.n_weights) for _ in range(2))]


def test_the_winner_goes_on_as_if_it_had_been_alone() -> None:
    problem, penalty, starts = latent_problem()
    options = {"training": "gradient", "tol": 1e-9, "max_iter": 200}
    raced: Trained = fit_best(problem, penalty, starts, race=True, **options)  # type: ignore[arg-type]
    winner = int(raced.values.argmin())
    assert starts[winner] is not None
    alone, _ = run_start(problem, penalty, starts[winner], 1e-9, 200, Pause(), False)  # type: ignore[arg-type]
    assert alone.n_iter > RACE, "the race must end before its winner does"
    np.testing.assert_array_equal(raced.best.weights, alone.weights)
    assert raced.best.value == raced.values.min() == alone.value
    assert [step.value for step in raced.best.history] == [step.value for step in alone.history]
    others = [k for k in range(3) if k != winner]
    for k in others:
        left, _ = run_start(problem, penalty, starts[k], 1e-9, RACE, Pause(), False)  # type: ignore[arg-type]
        assert raced.values[k] == left.value


def test_processes_give_the_same_race() -> None:
    problem, penalty, starts = latent_problem()
    found = [
        fit_best(problem, penalty, starts, race=True, training="gradient", tol=1e-6, max_iter=40, n_jobs=jobs)
        for jobs in (1, 2)
    ]
    np.testing.assert_allclose(found[0].best.weights, found[1].best.weights, atol=1e-6)
    np.testing.assert_allclose(found[0].values, found[1].values, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_few_steps_are_all_there_are() -> None:
    learn = make_episodes(n_sequences=4, random_state=0)
    model = LatentDynamicCRF(n_states=2, max_iter=5).fit(list(learn.features), learn.labels)
    assert model.n_iter_ == 5
    assert len(model.start_objectives_) == 3
    assert model.objective_ == model.start_objectives_.min()
    with pytest.warns(ConvergenceWarning):
        model.fit(list(learn.features), learn.labels)


def test_starts_by_clusters_are_no_worse_in_the_mean_than_chance() -> None:
    """The objective of three starts that race against that of three random ones run to the end, on fresh worlds."""
    gains = []
    for seed in range(50, 54):
        for switches in ({}, {"phases": True}, {"rings": True}):
            learn = make_episodes(n_sequences=10, random_state=seed, **switches)
            model = LatentDynamicCRF(n_states=N_PHASES, tol=1e-3, random_state=seed)
            raced = model.fit(list(learn.features), learn.labels)
            value, spent = raced.objective_, raced.n_evaluations_
            problem, penalty, starts = _random_starts(model, learn)
            plain = fit_best(problem, penalty, starts, training="gradient", tol=1e-3, max_iter=500)
            gains.append((value / plain.best.value, spent / plain.n_evaluations))
    ratios = np.array(gains)
    assert ratios[:, 0].mean() < 1.0
    assert np.median(ratios[:, 1]) < 0.7


def _random_starts(model: LatentDynamicCRF, learn: object) -> tuple[LatentChain, Penalty, list[np.ndarray | None]]:
    fitted = model._fitted
    batch = fitted.columns.encoder.encode(list(learn.features))  # type: ignore[attr-defined]
    codes = np.concatenate([fitted.labels.encode([y], [len(y)])[0] for y in learn.labels])  # type: ignore[attr-defined]
    target = fitted.states.target(Target(batch.topology, fitted.labels.n_labels, codes))
    problem = LatentChain(fitted.columns.layout, batch, target)
    rng = np.random.default_rng(0)
    return problem, Penalty(l2=model.l2), [rng.normal(scale=0.3, size=problem.n_weights) for _ in range(3)]


def test_races_on_half_of_the_sequences() -> None:
    learn = make_episodes(n_sequences=24, length=30, random_state=3, phases=True)
    model = LatentDynamicCRF(n_states=3, tol=1e-3).fit(list(learn.features), learn.labels)
    problem, penalty, starts = _random_starts(model, learn)
    part, own, every = problem.raced(penalty)
    assert (every, own.l2, part.batch.topology.n_sequences) == (2, penalty.l2 / 2, 12)
    options = {"training": "gradient", "tol": 1e-6, "race": True}
    raced = fit_best(problem, penalty, starts, max_iter=300, **options)  # type: ignore[arg-type]
    left = [run_start(part, own, start, 1e-6, RACE_APART, Pause(), False)[0] for start in starts]  # type: ignore[arg-type]
    winner = min(range(3), key=lambda k: left[k].value)
    alone, _ = run_start(problem, penalty, left[winner].weights, 1e-6, 300 - RACE_APART, Pause(), False)
    np.testing.assert_array_equal(raced.best.weights, alone.weights)
    assert raced.best.converged
    assert raced.values[winner] == alone.value
    half = sum(result.n_evaluations for result in left) // 2
    assert raced.n_evaluations == half + 2 + alone.n_evaluations
    gradient = np.empty(problem.n_weights)
    for k in {0, 1, 2} - {winner}:
        there = left[k].weights
        value = problem.evaluate(there, gradient) + 0.5 * penalty.l2 * float(there @ there)
        assert raced.values[k] == pytest.approx(value, rel=1e-12)
    several = fit_best(problem, penalty, starts, max_iter=300, n_jobs=2, **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(several.values, raced.values, rtol=1e-9)
    few = fit_best(problem, penalty, starts, max_iter=10, **options)  # type: ignore[arg-type]
    assert few.best.n_iter == 10


def test_few_sequences_race_whole() -> None:
    problem, penalty, _ = latent_problem()
    assert problem.raced(penalty) == (problem, penalty, 1)
