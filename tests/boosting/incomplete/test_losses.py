"""Losses of incomplete information against their definitions, and what binds them together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import EnumeratedLoss
from crfield.errors import InputError
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from tests.cases.incomplete import COUNTED, LOSSES, Direct, World, central_differences, world

every_loss = pytest.mark.parametrize("loss", LOSSES)
counted = pytest.mark.parametrize("loss", COUNTED)


def weights_for(problem: EnumeratedLoss, seed: int = 3, size: float = 0.7) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=size, size=problem.n_weights)


@every_loss
@pytest.mark.parametrize("signed", [False, True])
def test_values_are_the_definitions(loss: str, signed: bool) -> None:
    w = world(25, signed=signed)
    weights = weights_for(w.loss(loss))
    assert w.loss(loss).value(weights) == pytest.approx(Direct(w).value(loss, weights), rel=1e-13)


@every_loss
def test_gradients_are_central_differences(loss: str) -> None:
    w = world(30, 4)
    problem = w.loss(loss)
    weights = weights_for(problem, size=0.4)
    gradient = np.empty(problem.n_weights)
    value = problem.evaluate(weights, gradient)
    assert value == problem.value(weights)
    found = central_differences(problem.value, weights)
    np.testing.assert_allclose(gradient, found, rtol=0, atol=2e-8)


@counted
@pytest.mark.parametrize("signed", [False, True])
def test_counts_are_equations_5_to_8(loss: str, signed: bool) -> None:
    w = world(25, signed=signed)
    problem = w.loss(loss)
    weights = weights_for(problem)
    value, plus, minus = problem.counts(weights)
    wanted_plus, wanted_minus = Direct(w).counts(loss, weights)
    size = max(1.0, float(wanted_plus.max()))
    np.testing.assert_allclose(plus, wanted_plus, rtol=0, atol=2e-14 * size)
    np.testing.assert_allclose(minus, wanted_minus, rtol=0, atol=2e-14 * size)
    gradient = np.empty(problem.n_weights)
    assert value == problem.evaluate(weights, gradient)
    np.testing.assert_allclose(plus - minus, gradient, rtol=0, atol=1e-13 * size)
    assert problem.scale == pytest.approx(Direct(w).scale(), rel=1e-14)


def test_harmonic_geometric_arithmetic() -> None:
    """mix ≤ jensen ≤ joint, and all three are one where nothing is hidden."""
    for seed in range(5):
        w = world(seed=seed)
        weights = weights_for(w.loss("mix"), seed)
        mix, jensen, joint = (w.loss(name).value(weights) for name in ("mix", "jensen", "joint"))
        assert mix < jensen < joint
        seen = world(seed=seed, hidden=0.0)
        values = [seen.loss(name).value(weights) for name in ("mix", "jensen", "joint", "hcrf")]
        np.testing.assert_allclose(values, values[0], rtol=1e-13)


def test_exp_mean_is_below_exp() -> None:
    w = world()
    weights = weights_for(w.loss("exp"))
    assert w.loss("exp-mean").value(weights) < w.loss("exp").value(weights)
    assert w.loss("joint").value(weights) <= w.c.sum() * np.log(w.loss("exp").value(weights) / w.c.sum()) + 1e-9


@every_loss
def test_a_reference_measure(loss: str) -> None:
    w = world(20)
    log_r = np.random.default_rng(5).normal(size=(20, 3))
    problem = w.loss(loss, log_reference=np.ascontiguousarray(log_r.T))
    weights = weights_for(problem, size=0.4)
    assert problem.value(weights) == pytest.approx(Direct(w, log_r).value(loss, weights), rel=1e-13)
    gradient = np.empty(problem.n_weights)
    problem.evaluate(weights, gradient)
    np.testing.assert_allclose(gradient, central_differences(problem.value, weights), rtol=0, atol=2e-8)


@every_loss
def test_large_scores_do_no_harm(loss: str) -> None:
    w = world(10)
    problem = w.loss(loss)
    weights = weights_for(problem, size=400.0)
    gradient = np.empty(problem.n_weights)
    with np.errstate(all="raise", under="ignore"):
        value = problem.evaluate(weights, gradient)
    if loss.startswith("exp"):
        assert value > 1e30  # too large for a number: the optimiser then takes a shorter step
    else:
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_a_prior_of_a_point_mass_is_an_observation() -> None:
    w = world(20)
    sure = World(w.X, np.full_like(w.codes, -1), np.eye(3)[np.maximum(w.codes[:, 0], 0)], w.y, w.c, 3)
    seen = World(w.X, np.maximum(w.codes, 0), w.Q, w.y, w.c, 3)
    for loss in LOSSES:
        weights = weights_for(sure.loss(loss))
        assert sure.cells().n_cells == 20
        assert sure.loss(loss).value(weights) == seen.loss(loss).value(weights)
    with pytest.raises(InputError, match="datum 1 has no possible value"):
        World(w.X[:2], w.codes[:2] * 0 - 1, np.array([[1.0, 0, 0], [0, 0, 0]]), w.y[:2], w.c[:2], 3).cells()


# ---------------------------------------------------------------------------------------------- theorem 1 and 2


def divergence(p: np.ndarray, r: np.ndarray, Q: np.ndarray) -> float:
    """Extended KL(p ‖ r) of theorem 1, with the reference measure inside the sum over labels."""
    safe = np.maximum(p, 1e-300)
    return float((Q[:, None] * (p * (np.log(safe / r) - 1) + r)).sum())


@pytest.mark.parametrize("loss", ["exp", "jensen"])
def test_the_dual_gap_of_the_theorems_closes(loss: str) -> None:
    """min KL(p ‖ r) over p that meets the constraints, found without the model, is what the loss at its optimum says.

    Theorem 1 (exp) has p ≥ 0 with Σ Q p (f − f(ỹ)) = 0; theorem 2 (jensen) also Σ_y p = 1 for each x and h.
    """
    w = world(14, 2, 2, 2, seed=4)
    w.c[:] = 1.0
    w.interactions = False
    direct = Direct(w)
    log_r = np.random.default_rng(0).normal(scale=0.3, size=(14, 2))
    problem = w.loss(loss, log_reference=np.ascontiguousarray(log_r.T))
    result = minimize(problem, np.zeros(problem.n_weights), Penalty(), tol=1e-14, max_iter=2000)
    pairs = [(i, h, q) for i in range(14) for h, q in direct.values(i)]
    Q = np.array([q for *_, q in pairs])
    r = np.exp(log_r)[[i for i, *_ in pairs]]
    own = w.y[[i for i, *_ in pairs]]
    G = np.array([[direct.feature(i, h, y) - direct.feature(i, h, int(w.y[i])) for y in (0, 1)] for i, h, _ in pairs])
    A = (Q[:, None, None] * G).reshape(-1, G.shape[2]).T
    M, right = A, np.zeros(len(A))
    if loss == "jensen":
        M = np.vstack([A, np.kron(np.eye(len(pairs)), np.ones((1, 2)))])
        right = np.concatenate([right, np.ones(len(pairs))])
    # Constraints of a column for both labels are one: keep independent ones.
    U, size, V = np.linalg.svd(M, full_matrices=False)
    kept = size > 1e-10 * size[0]
    V, right = V[kept], (U.T @ right)[kept] / size[kept]
    constraints = [{"type": "eq", "fun": lambda p: V @ p - right, "jac": lambda p: V}]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        p = flat.reshape(r.shape)
        return divergence(p, r, Q), (Q[:, None] * np.log(np.maximum(p, 1e-300) / r)).ravel()

    scores = np.array([[G[k, y] @ result.weights for y in (0, 1)] for k in range(len(pairs))])
    q = r * np.exp(scores)
    start = np.full_like(r, 0.5)
    primal = scipy_minimize(
        objective,
        start.ravel(),
        jac=True,
        method="SLSQP",
        bounds=[(1e-12, None)] * r.size,
        constraints=constraints,
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert primal.success
    if loss == "exp":
        dual = float((Q[:, None] * r).sum()) - result.value
        best = q
    else:
        dual = (
            float((Q[:, None] * r).sum()) - len(w.y) - (result.value + float(Q @ np.log(r[np.arange(len(own)), own])))
        )
        best = q / q.sum(axis=1, keepdims=True)
    assert primal.fun == pytest.approx(dual, abs=1e-6)
    np.testing.assert_allclose(primal.x.reshape(r.shape), best, atol=1e-4)
    np.testing.assert_allclose(A @ best.ravel(), 0.0, atol=1e-6)


# ---------------------------------------------------------------------------------------------- nothing hidden


def test_nothing_hidden_is_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    w = world(80, 5, seed=2)
    cells = Cells.nothing_hidden(80)
    rival = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-12, max_iter=5000).fit(w.X, w.y)
    for loss in ("mix", "jensen", "joint", "hcrf"):
        problem = EnumeratedLoss(w.X, cells, w.y, loss=loss, n_labels=3)
        result = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=1.0), tol=1e-15, max_iter=2000)
        np.testing.assert_allclose(problem.mixture(result.weights), rival.predict_proba(w.X), atol=1e-7)
        at_rival = np.ascontiguousarray(rival.coef_.T).ravel()
        assert result.value == pytest.approx(problem.value(at_rival) + 0.5 * float(at_rival @ at_rival), rel=1e-12)
