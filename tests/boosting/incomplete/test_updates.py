"""Parallel and sequential updates: they never raise the loss, they end where L-BFGS ends, and they are what they were
before anything was hidden: the updates of Lebanon & Lafferty (2002), and AdaBoost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield.boosting.incomplete.cells import Cells
from crfield.boosting.incomplete.enumerated import EnumeratedLoss
from crfield.boosting.incomplete.updates import parallel, sequential
from crfield.errors import InputError, ShapeError
from crfield.kernels import choice, incomplete
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from tests.cases.chains import needs_native
from tests.cases.incomplete import COUNTED, World, world

counted = pytest.mark.parametrize("loss", [*COUNTED, "exp-mean"])
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "parallel": (parallel, {}),
    "parallel, l2": (parallel, {"l2": 0.5}),
    "printed": (sequential, {"tight": False}),
    "printed, l2": (sequential, {"tight": False, "l2": 0.5}),
    "tight": (sequential, {"tight": True}),
    "tight, l2": (sequential, {"tight": True, "l2": 0.5}),
}


def rises(start: float, history: list[Any]) -> float:
    """The largest relative rise of the objective from one pass to the next."""
    values = np.array([start, *(step.value for step in history)])
    return float((np.diff(values) / np.abs(values[:-1])).max())


@counted
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["unit", "signed", "large"])
def test_the_objective_never_rises(loss: str, way: str, kind: str, body: str) -> None:
    w = world(24, 4, 2, 3, seed=1, signed=kind == "signed")
    if kind == "large":
        w.X *= 3.0
    problem = w.loss(loss)
    solve, options = WAYS[way]
    weights = np.random.default_rng(0).normal(scale=0.5, size=problem.n_weights)
    result = solve(problem, weights, tol=-1.0, max_iter=6, **options)
    before = problem.value(weights) + 0.5 * options.get("l2", 0.0) * float(weights @ weights)
    assert len(result.history) == 6
    assert rises(before, result.history) <= 1e-13
    assert result.value < before


@pytest.mark.parametrize("loss", ["jensen", "joint", "exp", "exp-mean"])
def test_all_solvers_meet_at_convex_optima(loss: str) -> None:
    w = world(40, 4, 2, 2, seed=3)
    problem = w.loss(loss)
    start = np.zeros(problem.n_weights)
    best = minimize(problem, start, Penalty(l2=0.3), tol=1e-14, max_iter=2000)
    one = parallel(problem, start, l2=0.3, tol=1e-12, max_iter=20_000)
    each = sequential(problem, start, l2=0.3, tol=1e-14, max_iter=3000)
    assert one.converged
    assert each.converged
    assert one.value == pytest.approx(best.value, rel=2e-6)
    assert each.value == pytest.approx(best.value, rel=1e-8)
    np.testing.assert_allclose(each.weights, best.weights, atol=1e-4)
    printed = sequential(problem, start, tight=False, l2=0.3, tol=0.0, max_iter=300)
    assert best.value - 1e-9 <= printed.value <= best.value * 1.02


def test_literal_algorithm_1_minimises_another_loss() -> None:
    """With the prior of h where its posterior belongs, as printed, the updates go down *jensen* and up the likelihood
    from its own optimum: every step from the optimum of *mix* raises it.
    """
    w = world(60, 4, 3, 2, seed=7, hidden=0.9)
    mix, jensen, ridge = w.loss("mix"), w.loss("jensen"), Penalty(l2=0.1)
    start = np.random.default_rng(1).normal(scale=0.5, size=mix.n_weights)

    def objective(weights: np.ndarray) -> float:
        return mix.value(weights) + 0.05 * float(weights @ weights)

    best = minimize(mix, start, ridge, tol=1e-14, max_iter=3000).weights
    weights, values = best, [objective(best)]
    for _ in range(60):
        weights = parallel(jensen, weights, l2=0.1, tol=-1.0, max_iter=1).weights
        values.append(objective(weights))
    assert (np.diff(values) > 0).all()
    assert values[-1] > values[0] * 1.005
    end = minimize(jensen, weights, ridge, tol=1e-13, max_iter=3000).weights  # where those steps lead
    gradients = np.empty((2, mix.n_weights))
    jensen.evaluate(end, gradients[0])
    mix.evaluate(end, gradients[1])
    gradients += 0.1 * end
    assert np.abs(gradients[0]).max() < 1e-5
    assert np.abs(gradients[1]).max() > 0.1
    assert parallel(mix, end, l2=0.1, tol=1e-7, max_iter=500).value < objective(end) * 0.995


# ---------------------------------------------------------------------------------------- nothing hidden


def by_hand(X: np.ndarray, y: np.ndarray, n_labels: int, passes: int, normalised: bool) -> np.ndarray:
    """Parallel updates of Lebanon & Lafferty (2002), feature by feature."""
    n, d = X.shape
    table = np.zeros((d, n_labels))
    C = 2 * X.sum(axis=1).max()
    for _ in range(passes):
        S = X @ table
        q = np.exp(S - S[np.arange(n), y][:, None])
        if normalised:
            q /= q.sum(axis=1, keepdims=True)
        step = np.zeros_like(table)
        for a in range(d):
            for k in range(n_labels):
                up = sum(X[i, a] * q[i, k] for i in range(n) if y[i] != k)
                down = sum(X[i, a] * q[i, m] for i in range(n) if y[i] == k for m in range(n_labels) if m != k)
                step[a, k] = (np.log(down) - np.log(up)) / (2 * C)
        table += step
    return table


@pytest.mark.parametrize("loss", [*COUNTED])
def test_nothing_hidden_is_lebanon_lafferty(loss: str, body: str) -> None:
    w = world(20, 3, seed=5)
    X = w.X + 0.05
    problem = EnumeratedLoss(X, Cells.nothing_hidden(20), w.y, loss=loss, n_labels=3)
    result = parallel(problem, np.zeros(9), smoothing=0.0, tol=-1.0, max_iter=10)
    wanted = by_hand(X, w.y, 3, 10, loss != "exp")
    np.testing.assert_allclose(result.weights.reshape(3, 3), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("tight", [True, False])
def test_sequential_updates_of_weak_learners_are_adaboost(tight: bool, body: str) -> None:
    """±1 weak learners, two labels: both bounds are exact, and every step is ½ log of right over wrong weight."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], size=200)
    learners = np.stack([np.where(rng.random(200) < 0.3, -signs, signs) for _ in range(4)], axis=1)
    problem = EnumeratedLoss(learners, Cells.nothing_hidden(200), (signs > 0).astype(int), loss="exp", n_labels=2)
    weights, margin = np.zeros(8), np.zeros(200)
    for _ in range(5):
        found = sequential(problem, weights, tight=tight, smoothing=0.0, tol=-1.0, max_iter=1).weights
        steps = (found - weights).reshape(4, 2)
        for k in range(4):
            D = np.exp(-signs * margin)
            right = learners[:, k] == signs
            alpha = 0.5 * np.log(D[right].sum() / D[~right].sum())
            assert steps[k, 1] - steps[k, 0] == pytest.approx(alpha, abs=3e-15)
            margin += alpha * learners[:, k]
        weights = found


# ---------------------------------------------------------------------------------------- kernels


def test_steps_solve_their_equation(body: str) -> None:
    rng = np.random.default_rng(0)
    plus, minus = rng.exponential(size=(2, 400)) * rng.choice([0.0, 1e-8, 1.0, 1e4], size=(2, 400))
    weights = rng.normal(scale=3.0, size=400)
    for scale in (0.3, 1.0, 36.0):
        for l2 in (1e-3, 1.0, 50.0):
            d = incomplete.map_step(plus, minus, weights, scale, l2=l2)
            left = plus * np.exp(scale * d) + np.maximum(l2 * (weights + d), 0)
            right = minus * np.exp(-scale * d) + np.maximum(-l2 * (weights + d), 0)
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-11)
        d = incomplete.map_step(plus, minus, weights, scale)
        assert (np.abs(d) <= 2.0).all()
        both = (plus > 1e-7) & (minus > 1e-7)
        exact = np.log(minus[both] / plus[both]) / (2 * scale)
        np.testing.assert_allclose(d[both], np.clip(exact, -2, 2), rtol=1e-2, atol=1e-2)


def test_a_count_of_zero_is_a_finite_step(body: str) -> None:
    """A column seen with one label only: infinite without a ridge, as the paper leaves it."""
    X = np.eye(3)
    problem = EnumeratedLoss(X, Cells.nothing_hidden(3), np.array([0, 1, 1]), loss="exp", n_labels=2)
    for solve in (parallel, sequential):
        for l2 in (0.0, 1.0):
            assert np.isfinite(solve(problem, np.zeros(6), l2=l2, max_iter=20, tol=0.0).weights).all()
        best = minimize(problem, np.zeros(6), Penalty(l2=1.0), tol=1e-12).value
        assert solve(problem, np.zeros(6), l2=1.0, max_iter=500, tol=1e-15).value == pytest.approx(best, rel=1e-10)
    with pytest.raises(InputError, match="hcrf"):
        parallel(world(5).loss("hcrf"), np.zeros(1))


@needs_native
@pytest.mark.parametrize("loss", [*COUNTED])
@pytest.mark.parametrize("tight", [True, False])
def test_both_bodies_sweep_alike(loss: str, tight: bool) -> None:
    for seed, l2, signed in ((0, 0.0, False), (1, 0.7, True)):
        w = world(30, 5, 3, 3, seed=seed, signed=signed)
        problem = w.loss(loss)
        found = {}
        for name in ("native", "numpy"):
            with choice.use(name):
                found[name] = sequential(problem, np.zeros(problem.n_weights), tight=tight, l2=l2, tol=-1, max_iter=4)
        np.testing.assert_allclose(found["native"].weights, found["numpy"].weights, rtol=1e-10, atol=1e-12)
        assert found["native"].value == pytest.approx(found["numpy"].value, rel=1e-12)
    with choice.use("native"):
        again = sequential(problem, np.zeros(problem.n_weights), tight=tight, l2=0.7, tol=-1, max_iter=4)
    np.testing.assert_array_equal(again.weights, found["native"].weights)


def sweep_arguments(w: World) -> dict[str, Any]:
    problem = w.loss("mix")
    cells = problem.cells
    return {
        "columns": problem.columns.rows.tocsc(),
        "row_offsets": cells.offsets,
        "cell_offsets": cells.offsets,
        "labels": w.y,
        "prior": cells.prior,
        "weight": w.c,
        "scores": np.zeros((cells.n_cells, w.n_labels)),
        "heavy": np.full((cells.n_cells, w.n_labels), 0.1),
        "table": np.zeros((w.X.shape[1], w.n_labels)),
        "loss": "mix",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", np.full(12, 3)),
        ("labels", np.zeros(11, int)),
        ("cell_offsets", np.arange(13) * 1000),
        ("row_offsets", np.arange(13)[::-1].copy()),
        ("prior", np.ones(2)),
        ("table", np.zeros((9, 3))),
        ("scores", np.zeros((5, 3))),
        ("loss", "hcrf"),
        ("columns", sp.csc_array(np.ones((40, 5)))),
    ],
)
def test_sweeps_check_what_they_are_given(name: str, value: Any, body: str) -> None:
    arguments = sweep_arguments(world(12))
    incomplete.sweep(**arguments)
    with pytest.raises((ShapeError, InputError)):
        incomplete.sweep(**{**arguments, name: value})


@needs_native
def test_the_compiled_body_checks_again() -> None:
    """Whoever calls it past the contract gets an exception, not a crash."""
    from crfield.kernels import _incomplete as native

    w = world(12)
    given = sweep_arguments(w)
    columns = given["columns"]
    cells = given["cell_offsets"]
    good = [
        columns.indptr.astype(np.int64),
        columns.indices.astype(np.int64),
        columns.data,
        cells,
        cells,
        np.repeat(np.arange(12), np.diff(cells)),
        given["labels"].astype(np.int64),
        given["prior"],
        given["weight"],
        given["scores"],
        given["heavy"],
        given["table"],
        3,
        0.0,
        1e-10,
        2.0,
        True,
    ]
    native.sweep(*good)
    for at, bad in (
        (0, good[0] - 1),
        (1, good[1] + 100),
        (3, cells + 1),
        (5, good[5] + 1),
        (6, good[6] - 9),
        (12, 7),
    ):
        with pytest.raises(ValueError, match=r"."):
            native.sweep(*[bad if k == at else value for k, value in enumerate(good)])
    with pytest.raises(ValueError, match="alike"):
        native.map_step(np.ones(2), np.ones(3), np.ones(3), 1.0, 0.0, 0.0, 1.0, np.ones(3))
