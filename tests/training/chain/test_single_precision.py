"""Training that begins in single precision: where it is offered, the same optimum, the same bits again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.kernels import choice
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.training import likelihood
from crfield.training.likelihood import FusedChain, fit_likelihood
from tests.cases.chains import needs_native
from tests.kernels.linear.test_side_by_side import skewed

pytestmark = needs_native


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single precision from the first step on."""
    monkeypatch.setattr(likelihood, "ROUGH_STEPS", 1)
    monkeypatch.setattr(likelihood, "ROUGH_WEIGHTS", 1)


def learnable(seed: int = 0) -> tuple[Layout, Batch, Target]:
    """Labels that columns tell something of."""
    rng = np.random.default_rng(seed)
    batch, target = skewed(rng, rng.integers(2, 25, size=300).tolist(), 7, columns=300)
    told = [int(row[0]) % 7 if len(row) else 0 for row in np.split(batch.node.indices, batch.node.indptr[1:-1])]
    labels = np.where(rng.random(len(told)) < 0.8, told, target.labels).astype(np.int32)
    target = Target(batch.topology, 7, labels)
    return Layout.observe(batch, target, bias=True), batch, target


class Counted(FusedChain):
    """A problem that counts its evaluations in single precision."""

    single = 0

    def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
        self.single += 1
        return super().evaluate_single(weights, gradient)


def trained(penalty: Penalty, solver: str, *, n_jobs: int = 1, tol: float = 1e-4) -> tuple[Result, Counted]:
    with choice.use("native"):
        problem = Counted(*learnable(), n_jobs=n_jobs)
        rng = np.random.default_rng(3)
        found = fit_likelihood(problem, penalty, solver=solver, tol=tol, max_iter=2000, n_jobs=n_jobs, rng=rng)
    return found, problem


PENALTIES = [Penalty(l2=1.0), Penalty(l1=0.5), Penalty(l1=0.2, l2=0.2)]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("solver", ["lbfgs", "warm"])
@pytest.mark.parametrize("penalty", PENALTIES, ids=["ridge", "l1", "both"])
def test_the_same_optimum_within_the_tolerance(
    penalty: Penalty, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, problem = trained(penalty, solver)
    assert problem.single > 3
    assert found.converged
    assert "single precision" in found.how
    monkeypatch.setattr(likelihood, "ROUGH_STEPS", 10**9)
    best, plain = trained(penalty, solver, tol=1e-9)
    assert plain.single == 0
    assert "single precision" not in best.how
    assert (found.value - best.value) / best.value <= 1e-4
    gradient = np.empty_like(found.weights)
    value = problem.evaluate(found.weights, gradient)
    value += penalty.l1 * float(np.abs(found.weights).sum()) + 0.5 * penalty.l2 * float(found.weights @ found.weights)
    assert found.value == pytest.approx(value, rel=1e-13)


@pytest.mark.usefixtures("eager")
def test_one_and_two_threads_train_to_the_same_bits() -> None:
    one, two = (trained(Penalty(l2=1.0), "lbfgs", n_jobs=n)[0] for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert one.value == two.value


def test_small_problems_and_numpy_bodies_are_in_double() -> None:
    layout, batch, target = learnable()
    problem = FusedChain(layout, batch, target)
    assert not problem.rough


@pytest.mark.usefixtures("eager")
def test_only_columns_that_are_there_or_not() -> None:
    layout, batch, target = learnable()
    with choice.use("native"):
        assert FusedChain(layout, batch, target).rough
        numbers = replace(batch.node, values=np.full(len(batch.node.indices), 0.5))
        assert not FusedChain(layout, replace(batch, node=numbers), target).rough
    with choice.use("numpy"):
        assert not FusedChain(layout, batch, target).rough


def test_planes_are_for_known_labels_and_dear_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, batch, target = learnable()
    problem = FusedChain(layout, batch, target)
    assert not problem.planes_pay
    size = problem.n_steps * layout.n_labels - problem.n_weights
    monkeypatch.setattr(likelihood, "PLANES_FROM", size)
    assert problem.planes_pay
    problem.partial = True
    assert not problem.planes_pay
    problem.partial = False
    monkeypatch.setattr(likelihood, "PLANES_FROM", size + 1)
    assert not problem.planes_pay
