"""Hidden Markov models by EM and graphs on a cluster: the same as on one machine, whoever is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KernelDensity

import crfield
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import ClusterWarning, InputError, LabelError
from crfield.scoring.densities.gaussian import DiagonalGaussian, Fitting
from crfield.training.cluster.markov import MarkovPart
from crfield.training.cluster.pool import Faults, InProcessPool
from crfield.training.cluster.steps import ClusterStep
from crfield.training.markov.em import Markov, expected


def recordings(n: int = 8, missing: bool = False) -> tuple[list[np.ndarray], list[list[Any]]]:
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(n):
        labels = rng.integers(0, 2, 30)
        rows = rng.standard_normal((30, 2)) + 3.0 * labels[:, None] * [1.0, -0.5]
        if missing:
            rows[rng.random(rows.shape) < 0.1] = np.nan
        X.append(rows)
        y.append([None if rng.random() < 0.7 else "ab"[label] for label in labels])
    return X, y


def on(pool: Any, model: Any, *data: Any) -> Any:
    with crfield.cluster(pool):
        return clone(model).fit(*data)


@pytest.mark.parametrize("emissions", ["gaussian", "full", "mixture"])
@pytest.mark.parametrize("missing", [False, True])
def test_em_is_that_of_one_machine(emissions: str, missing: bool) -> None:
    X, y = recordings(missing=missing)
    model = crfield.HMM(emissions, training="em", tol=1e-4, n_init=1, max_iter=300)
    weights = np.linspace(0.5, 2.0, len(X))
    alone = clone(model).fit(X, y, weights)
    for n in (1, 3):
        found = on(InProcessPool(n), model, X, y, weights)
        assert found.objective_ == pytest.approx(alone.objective_, rel=1e-9)
        np.testing.assert_allclose(found.transition_probabilities_, alone.transition_probabilities_, rtol=1e-6)
        np.testing.assert_allclose(found.emissions_.mean, alone.emissions_.mean, rtol=1e-6, atol=1e-8)
        assert isinstance(found.history_[-1], ClusterStep)


def test_em_of_symbols_and_durations() -> None:
    rng = np.random.default_rng(1)
    X = [rng.integers(0, 4, (25, 1)).astype(float) for _ in range(6)]
    for options in ({"emissions": "categorical"}, {"min_duration": 2}):
        model = crfield.HMM(training="em", n_states=2, n_init=2, tol=1e-6, max_iter=400, **options)
        alone, found = clone(model).fit(X), on(InProcessPool(2), model, X)
        assert found.objective_ == pytest.approx(alone.objective_, rel=1e-9)
    words = [[["sun"] if rng.random() < 0.5 else ["rain"] for _ in range(9)] for _ in range(6)]
    model = crfield.HMM("categorical", training="em", n_states=2, n_init=1, tol=1e-6, max_iter=400)
    assert on(InProcessPool(2), model, words).objective_ == pytest.approx(
        clone(model).fit(words).objective_, rel=1e-9
    )


def test_em_has_the_same_bits_after_a_loss_and_more_workers_than_sequences_do_no_harm() -> None:
    X, y = recordings(4)
    model = crfield.HMM(training="em", n_init=1, tol=1e-7)
    whole = on(InProcessPool(2), model, X, y)
    for call in (1, 2, 4):
        with pytest.warns(ClusterWarning, match=r"takes over sequences 2 … 3"):
            found = on(InProcessPool(2, faults=Faults(deaths={1: [call]})), model, X, y)
        assert found.objective_ == whole.objective_
        assert np.array_equal(found.emissions_.mean, whole.emissions_.mean)
    assert on(InProcessPool(6), model, X, y).objective_ == pytest.approx(whole.objective_, rel=1e-9)


def test_what_of_hidden_markov_models_does_not_run_there_says_so() -> None:
    X, y = recordings(4)
    full = [["a" if t % 2 else "b" for t in range(30)] for _ in X]
    with pytest.raises(
        InputError, match=r"HMM does not run on a cluster. Those that do are .*HMM with training='em'"
    ):
        on(InProcessPool(2), crfield.HMM(), X, full)
    with pytest.raises(InputError, match=r"estimators of densities .* do not run on a cluster"):
        on(InProcessPool(2), crfield.HMM(KernelDensity(), training="em"), X, y)


def test_an_impossible_sequence_has_its_own_number() -> None:
    """A worker counts from the first of its sequences on."""
    chains = Chains.from_lengths([2, 2])
    model = Markov(np.array([1.0, 0.0]), np.eye(2), DiagonalGaussian(np.zeros((2, 1)), np.ones((2, 1))))
    target = Target(chains, 2, np.array([0, 0, 0, 1]))
    with pytest.raises(LabelError, match="sequence 1 is impossible"):
        expected(model, np.zeros((4, 1)), target, chains)
    part = MarkovPart(np.zeros((4, 1)), target, 7, 1)
    with pytest.raises(LabelError, match="sequence 8 is impossible"):
        part.expected(model, Fitting())


# ------------------------------------------------------------------------------------------------------- graphs


def graphs(n: int = 9, loops: bool = False) -> tuple[list[Any], list[list[str]]]:
    rng = np.random.default_rng(0)
    X, y = [], []
    for k in range(n):
        size = 3 + k % 3
        edges = [(i, i + 1) for i in range(size - 1)] + ([(size - 1, 0)] if loops else [])
        labels = rng.integers(0, 2, size)
        rows = rng.standard_normal((size, 2)) + labels[:, None]
        X.append(crfield.Graph(rows, {"beside": edges}))
        y.append(["on" if label else "off" for label in labels])
    return X, y


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("objective", ["likelihood", "pseudo_likelihood", "piecewise", "softmax_margin"])
def test_graphs_are_those_of_one_machine(objective: str, loops: bool) -> None:
    X, y = graphs(loops=loops)
    model = crfield.GraphCRF(objective=objective, tol=1e-8)
    weight = np.linspace(1.0, 2.0, len(X))
    alone = clone(model).fit(X, y, weight)
    found = on(InProcessPool(2), model, X, y, weight)
    assert found.objective_ == pytest.approx(alone.objective_, rel=1e-7)
    np.testing.assert_allclose(found.coef_, alone.coef_, atol=1e-3)
    assert found.history_[-1].n_workers == 2


def test_a_loss_does_not_change_the_bits_of_graphs() -> None:
    X, y = graphs()
    whole = on(InProcessPool(3), crfield.GraphCRF(), X, y)
    with pytest.warns(ClusterWarning, match=r"graphs"):
        found = on(InProcessPool(3, faults=Faults(deaths={2: [4]})), crfield.GraphCRF(), X, y)
    assert np.array_equal(found.coef_, whole.coef_)


def test_approximate_engines_say_whether_they_settled() -> None:
    X, y = graphs(loops=True)
    model = crfield.GraphCRF(objective="likelihood", engine="loopy", tol=1e-6)
    alone, found = clone(model).fit(X, y), on(InProcessPool(2), model, X, y)
    assert found.objective_ == pytest.approx(alone.objective_, rel=1e-4)
    assert found.converged_ == alone.converged_


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_what_of_graphs_does_not_run_there_says_so() -> None:
    X, y = graphs()
    for objective in ("perceptron", "hinge", "contrastive"):
        with pytest.raises(InputError, match=r"visits graph after graph and does not run on a cluster"):
            on(InProcessPool(2), crfield.GraphCRF(objective=objective), X, y)
    noisy = crfield.make_noisy_images(4, (24, 24))
    with pytest.raises(InputError, match=r"chooses the strength of couplings on held-out graphs"):
        on(InProcessPool(2), crfield.GridCRF(), noisy.images, noisy.labels)
