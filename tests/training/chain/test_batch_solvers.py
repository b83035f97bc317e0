"""Batch solvers of a chain: the optimum of L-BFGS by every other way, callbacks, ends, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield import MEMM, ChainCRF, load
from crfield.errors import ConvergenceWarning, InputError
from crfield.optimize.conjugate_gradient import UPDATES, minimize_cg
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER
from crfield.optimize.lbfgs import minimize
from crfield.optimize.newton_cg import minimize_newton_cg
from crfield.optimize.penalty import Penalty
from crfield.optimize.projected_cg import minimize_projected_cg
from crfield.training.chain.iterative_scaling import scaling_step
from tests.cases import optimize_problems
from tests.cases.estimators import as_arrays, as_dicts, as_strings, exact, world

RAW, Y = world()
X = as_strings(RAW)
SOLVERS = ("cg", "newton_cg", "projected_cg", "gis")
PARTIAL: list[list[Any]] = [
    [None if (s + t) % 3 == 0 else label for t, label in enumerate(y)] for s, y in enumerate(Y)
]
WEIGHT = np.linspace(0.5, 2.0, len(Y))


class CurvedQuadratic(optimize_problems.Quadratic):
    def curvature_at(self, weights: np.ndarray) -> tuple[Any, np.ndarray]:
        return (lambda vector: self.matrix @ vector), np.diag(self.matrix).copy()


@pytest.mark.parametrize("update", UPDATES)
def test_conjugate_gradients_solve_a_quadratic(update: str) -> None:
    problem, penalty = optimize_problems.Quadratic(seed=1, n=30), Penalty(l2=0.5)
    result = minimize_cg(problem, np.zeros(30), penalty, update=update, tol=1e-12, max_iter=500)
    best = np.linalg.solve(problem.matrix + 0.5 * np.eye(30), problem.linear)
    assert result.converged
    np.testing.assert_allclose(result.weights, best, atol=1e-5)


def test_newton_takes_one_step_on_a_quadratic() -> None:
    problem = CurvedQuadratic(seed=2, n=20)
    free = np.array([False] * 5 + [True] * 15)
    result = minimize_newton_cg(problem, np.ones(20), Penalty(l2=3.0, penalised=free), tol=1e-12)
    best = np.linalg.solve(problem.matrix + 3.0 * np.diag(free.astype(float)), problem.linear)
    assert result.converged
    assert result.n_iter <= 8
    np.testing.assert_allclose(result.weights, best, atol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_projected_gradients_meet_owlqn(l2: float) -> None:
    """Same value, same zeros, also where some weights have no penalty."""
    problem = optimize_problems.dense(seed=3)
    penalty = Penalty(l1=4.0, l2=l2, penalised=np.arange(30) >= 3)
    best = minimize(problem, np.zeros(30), penalty, tol=1e-12, max_iter=2000)
    result = minimize_projected_cg(problem, np.full(30, 0.1), penalty, tol=1e-10, max_iter=3000)
    assert result.value == pytest.approx(best.value, rel=1e-8)
    np.testing.assert_array_equal(result.weights == 0, best.weights == 0)
    assert 0 < np.count_nonzero(result.weights == 0) < 27
    assert result.history[-1].n_active == np.count_nonzero(result.weights)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("labels", ["complete", "partial"])
def test_every_solver_meets_lbfgs(solver: str, labels: str) -> None:
    """With sequence weights; partial labels have one optimum here that all of them reach from zero."""
    y = Y if labels == "complete" else PARTIAL
    data, options = X, {"l2": 1.0}
    if solver == "gis":  # with few features a step, so that it ends within a second
        data, options = [[step[:1] for step in x] for x in X], {"l2": 2.0, "intercept": False, "boundaries": False}
    best = exact(**options, solver="lbfgs").fit(data, y, sample_weight=WEIGHT)
    tol = 1e-7 if solver == "gis" else 1e-9
    model = ChainCRF(**options, solver=solver, tol=tol, max_iter=6000).fit(data, y, sample_weight=WEIGHT)
    assert model.converged_
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-7 if solver == "gis" else 1e-8)
    assert model.n_iter_ == len(model.history_)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=0.02 if solver == "gis" else 2e-3)


@pytest.mark.parametrize("solver", ["cg", "projected_cg", "newton_cg"])
@pytest.mark.parametrize("objective", ["softmax_margin", "pseudo_likelihood", "label_likelihood"])
def test_other_objectives_have_one_answer(objective: str, solver: str) -> None:
    if solver == "newton_cg" and objective != "softmax_margin":
        pytest.skip("no second derivative")
    best = exact(objective=objective).fit(X, Y, sample_weight=WEIGHT)
    model = ChainCRF(objective=objective, solver=solver, tol=1e-9, max_iter=3000).fit(X, Y, sample_weight=WEIGHT)
    assert model.objective_ == pytest.approx(best.objective_, rel=1e-8)
    assert best.converged_
    assert (best.predict(X)[0] == model.predict(X)[0]).all()


def test_numeric_columns_edge_features_and_functions_of_two_labels() -> None:
    """Whatever is scored can be trained by solvers that look at value, gradient and products."""

    def stays(before: Any, label: Any, x: Any, t: int) -> float:
        return float(before == label)

    def shape(before: Any, label: Any, x: Any, t: int) -> float:
        return float(x[t][1] == "w" and label == "A")

    for options, data in (
        ({"standardize": True}, as_arrays(RAW)),
        ({"transition_features": ["known"], "penalize_intercepts": False}, as_dicts(RAW)),
        ({"label_functions": [stays, shape]}, RAW),
    ):
        best = exact(**options).fit(data, Y)
        for solver in ("cg", "newton_cg"):
            model = ChainCRF(**options, solver=solver, tol=1e-9, max_iter=3000).fit(data, Y)
            assert model.objective_ == pytest.approx(best.objective_, rel=1e-8)


def test_scaling_of_functions_and_edges() -> None:
    def stays(before: Any, label: Any, x: Any, t: int) -> float:
        return 0.5 * float(before == label)

    best = exact(label_functions=[stays], l2=0.0).fit(RAW, Y)
    model = ChainCRF(label_functions=[stays], l2=0.0, solver="gis", tol=1e-10, max_iter=3000).fit(RAW, Y)
    np.testing.assert_allclose(model.coef_, best.coef_, rtol=1e-4)


def test_scaling_steps_are_roots() -> None:
    rng = np.random.default_rng(0)
    weights, ridge = rng.standard_normal(50), rng.uniform(0.0, 2.0, 50)
    observed, expected = rng.uniform(0, 30, 50), rng.uniform(1e-9, 30, 50)
    observed[:5] = 0.0
    step = scaling_step(weights, observed, expected, ridge, 25.0)
    left = observed - expected * np.exp(25.0 * step) - ridge * (weights + step)
    np.testing.assert_allclose(left, 0.0, atol=1e-9)


def test_refusals() -> None:
    for solver in ("cg", "newton_cg", "gis"):
        with pytest.raises(
            InputError, match=rf"solver='{solver}' has no l1 penalty.*'lbfgs', 'warm', 'primal_dual', 'projected_cg'"
        ):
            ChainCRF(solver=solver, l1=0.1).fit(X, Y)
    for minimiser in (minimize_cg, minimize_newton_cg):
        with pytest.raises(InputError, match="smooth functions"):
            minimiser(CurvedQuadratic(seed=0, n=2), np.zeros(2), Penalty(l1=1.0))
    with pytest.raises(InputError, match="update must be one of"):
        minimize_cg(CurvedQuadratic(seed=0, n=2), np.zeros(2), update="fletcher")
    with pytest.raises(InputError, match=r"not negative.*At step \d+ of the data there is -"):
        ChainCRF(solver="gis").fit(as_arrays(RAW), Y)
    with pytest.raises(InputError, match=r"not negative.*function of two labels gave -1"):
        ChainCRF(solver="gis", label_functions=[lambda before, label, x, t: -1.0]).fit(RAW, Y)
    with pytest.raises(InputError, match=r"never occur with their label.*l2 > 0"):
        ChainCRF(solver="gis", l2=0.0, feature_pairs="all").fit(X, Y)
    with pytest.raises(InputError, match="solver='gis' trains 'likelihood', not 'softmax_margin'"):
        ChainCRF(solver="gis", objective="softmax_margin").fit(X, Y)
    with pytest.raises(InputError, match="must be finite at the start"):
        minimize_cg(CurvedQuadratic(seed=0, n=2), np.full(2, np.inf))


@pytest.mark.parametrize("solver", SOLVERS)
def test_callbacks_limits_and_interrupts(solver: str) -> None:
    seen: list[float] = []

    def watch(step: Any, weights: np.ndarray) -> bool:
        assert not weights.flags.writeable
        seen.append(step.value)
        return len(seen) == 3

    model = ChainCRF(solver=solver, callback=watch, tol=1e-12).fit(X, Y)
    assert (model.stop_reason_, model.n_iter_, len(seen)) == (CALLBACK, 3, 3)
    assert seen == sorted(seen, reverse=True)
    with pytest.warns(ConvergenceWarning, match="max_iter, 2 steps"):
        short = ChainCRF(solver=solver, max_iter=2, tol=1e-12).fit(X, Y)
    assert short.stop_reason_ == MAX_ITER
    assert short.objective_ == pytest.approx(seen[1], rel=1e-12)

    def stop(step: Any, weights: np.ndarray) -> bool:
        raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="best weights so far are kept"):
        broken = ChainCRF(solver=solver, callback=stop, tol=1e-12).fit(X, Y)
    assert broken.stop_reason_ == INTERRUPTED
    assert broken.objective_ == pytest.approx(seen[0], rel=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_starts_and_nothing_to_learn(solver: str) -> None:
    model = ChainCRF(solver=solver, warm_start=True, tol=1e-5, max_iter=3000).fit(X, Y)
    assert model.fit(X, Y).n_iter_ <= 12
    one = ChainCRF(solver=solver).fit([[["a"], ["b"]]], [["only", "only"]])
    assert one.predict([[["a"]]])[0].tolist() == ["only"]
    assert one.objective_ == 0.0


def test_label_accuracy_starts_at_the_likelihood() -> None:
    likely = ChainCRF(tol=1e-8).fit(X, Y)
    model = ChainCRF(objective="label_accuracy", l2=0.1, tol=1e-6).fit(X, Y)
    assert model.converged_

    def wrong(fitted: ChainCRF) -> float:
        return sum(1 - p[label] for x, y in zip(fitted.predict_marginals(X), Y) for p, label in zip(x, y))

    assert wrong(model) < wrong(likely)
    assert model.objective_ == pytest.approx(wrong(model) + 0.05 * float(model.coef_ @ model.coef_), rel=1e-9)


@pytest.mark.parametrize("end", ["asked", "interrupted"])
def test_an_early_end_tells_the_objective_asked_for(end: str) -> None:
    """Also while the likelihood is still being climbed for a start."""

    def stop(step: Any, weights: np.ndarray) -> bool:
        if end == "interrupted":
            raise KeyboardInterrupt
        return True

    model = ChainCRF(objective="label_accuracy", callback=stop)
    if end == "interrupted":
        with pytest.warns(ConvergenceWarning):
            model.fit(X, Y)
    else:
        model.fit(X, Y)
    assert model.stop_reason_ == (INTERRUPTED if end == "interrupted" else CALLBACK)
    assert model.n_iter_ == 1
    wrong = sum(1 - p[label] for x, y in zip(model.predict_marginals(X), Y) for p, label in zip(x, y))
    assert model.objective_ == pytest.approx(wrong + 0.5 * float(model.coef_ @ model.coef_), rel=1e-9)


def test_memm_has_a_few_solvers() -> None:
    best = MEMM(tol=1e-10, max_iter=3000).fit(X, Y)
    for solver in ("cg", "projected_cg"):
        assert MEMM(solver=solver, tol=1e-9, max_iter=3000).fit(X, Y).objective_ == pytest.approx(best.objective_)
    for solver in ("warm", "newton_cg", "gis"):
        with pytest.raises(InputError, match="solver must be one of 'auto', 'lbfgs', 'cg', 'projected_cg'"):
            MEMM(solver=solver).fit(X, Y)
    with pytest.raises(InputError, match=r"MEMM has no parameter 'objective'"):
        MEMM(objective="softmax_margin").fit(X, Y)


def test_files_keep_objective_and_solver(tmp_path: Any) -> None:
    model = ChainCRF(objective="softmax_margin", solver="cg").fit(X, Y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.objective, again.solver) == ("softmax_margin", "cg")
    assert all((a == b).all() for a, b in zip(again.predict(X), model.predict(X)))
