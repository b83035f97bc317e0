"""Training comes to its end with default options: raw units, correlated columns, long chains, l1 of many columns."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import HMM, MEMM, ChainCRF, MaxentClassifier, SemiMarkovCRF, encode_dataset
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import ConvergenceWarning, InputError
from crfield.kernels import choice, vectors
from crfield.optimize.basis import Basis, graded_root, whitening
from crfield.optimize.dense_newton import minimize_dense
from crfield.optimize.lasso import lasso_step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.latent import ClassScorer
from crfield.scoring.layout import Layout
from crfield.training.column_basis import Moments, measured
from crfield.training.latent.best import fit_start
from crfield.training.latent.classes import HiddenClasses
from crfield.training.likelihood import FusedChain, fit_likelihood
from tests.cases.optimize_problems import dense

pytestmark = pytest.mark.filterwarnings("ignore:numeric features differ widely")
TOL = 1e-4
World = tuple[list[np.ndarray], list[np.ndarray]]


def recordings(seed: int, *, mean: float = 1e5, least: float = -3.0, most: float = 4.0, columns: int = 6) -> World:
    """Correlated columns whose level follows three labels; deviations from 10^least to 10^most around a far mean."""
    rng = np.random.default_rng(seed)
    deviation = 10.0 ** np.linspace(least, most, columns)
    centre = mean * rng.choice([-1.0, 1.0], columns)
    level, mix = rng.standard_normal((3, columns)), np.eye(columns) + 0.4 * rng.standard_normal((columns, columns))
    X, y = [], []
    for _ in range(20):
        labels = np.repeat(rng.integers(0, 3, 12), 5)
        X.append((level[labels] + rng.standard_normal((60, columns)) @ mix) * deviation + centre)
        y.append(labels)
    return X, y


def standardised(X: list[np.ndarray]) -> list[np.ndarray]:
    whole = np.concatenate(X)
    return [(x - whole.mean(axis=0)) / whole.std(axis=0) for x in X]


def records(X: list[np.ndarray]) -> list[list[dict[str, float]]]:
    return [[{f"c{k}": float(v) for k, v in enumerate(row)} for row in x] for x in X]


def fitted(model: Any, X: Any, y: Any, **options: Any) -> Any:
    """Fitted without a word of warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return model.fit(X, y, **options)


MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    "default": (ChainCRF, {}),
    "no intercept": (ChainCRF, {"intercept": False}),
    "intercepts without a penalty": (ChainCRF, {"penalize_intercepts": False}),
    "weak ridge": (ChainCRF, {"l2": 0.01}),
    "no penalty": (ChainCRF, {"l2": 0.0}),
    "transitions too": (ChainCRF, {"transition_features": [0, 3]}),
    "two labels back": (ChainCRF, {"order": 2}),
    "softmax margin": (ChainCRF, {"objective": "softmax_margin"}),
    "two threads": (ChainCRF, {"n_jobs": 2}),
    "local": (MEMM, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_columns_in_raw_units_come_to_the_optimum(name: str) -> None:
    kind, options = MODELS[name]
    for seed in (0, 1):
        X, y = recordings(seed)
        model = fitted(kind(**options), X, y)
        with warnings.catch_warnings():  # at 1e-8 rounding may end the run before the proof
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = kind(**options, tol=1e-8, max_iter=2000).fit(X, y)
        assert model.converged_
        assert model.objective_ <= best.objective_ * (1 + TOL), (model.objective_, best.objective_)
        assert model.n_evaluations_ <= 600


def test_it_is_the_optimum_of_the_penalty_that_was_asked_for() -> None:
    """Columns that other solvers manage as they are: the same weights as theirs."""
    X, y = recordings(3, mean=3.0, least=-0.5, most=0.5)
    for options in ({}, {"penalize_intercepts": False}, {"intercept": False}):
        ours = fitted(ChainCRF(tol=1e-10, **options), X, y)
        theirs = ChainCRF(solver="newton_cg", tol=1e-12, **options).fit(X, y)
        assert ours.objective_ == pytest.approx(theirs.objective_, rel=1e-9)
        of_columns = slice(None, 18)  # intercepts without a penalty are known up to a constant only
        np.testing.assert_allclose(ours.coef_[of_columns], theirs.coef_[of_columns], atol=1e-4)


def test_second_derivatives_only_where_the_end_is_further_than_they_cost() -> None:
    """One of 54 weights would cost more than the whole run."""
    for seed in (0, 1, 2):
        X, y = recordings(seed, mean=3.0, least=-0.5, most=0.5, columns=12)
        for tol in (1e-4, 1e-7, 1e-10):
            model = fitted(ChainCRF(tol=tol, n_jobs=1), standardised(X), y)
            assert model.converged_
            assert model.n_evaluations_ <= 40


def test_newton_steps_end_where_they_should() -> None:
    """A second derivative, and a step or two; not an estimate of rates that begins anew."""
    for seed in (0, 1, 2):
        X, y = recordings(seed)
        for tol in (1e-4, 1e-7):
            assert fitted(ChainCRF(tol=tol, n_jobs=1), X, y).n_evaluations_ <= 75


def test_units_do_not_matter_without_a_penalty() -> None:
    X, y = recordings(0)
    raw, even = (fitted(ChainCRF(l2=0.0), columns, y) for columns in (X, standardised(X)))
    assert raw.objective_ == pytest.approx(even.objective_, rel=2 * TOL)


def test_dicts_weights_partial_labels_and_shards(tmp_path: Path) -> None:
    X, y = recordings(5)
    labels: list[Any] = [list(one) for one in y]
    labels[3] = [None, *labels[3][1:]]
    labels[4] = [{0, 1}, *labels[4][1:]]
    weight = np.linspace(0.5, 2.0, len(y))
    table = fitted(ChainCRF(), X, labels, sample_weight=weight)
    best = ChainCRF(tol=1e-8, max_iter=2000).fit(X, labels, sample_weight=weight)
    assert table.objective_ <= best.objective_ * (1 + TOL)
    assert fitted(ChainCRF(), records(X), labels, sample_weight=weight).objective_ <= best.objective_ * (1 + TOL)
    parts = [(X[k : k + 4], labels[k : k + 4], weight[k : k + 4]) for k in range(0, 20, 4)]
    dataset = encode_dataset(parts, tmp_path / "data", shard_bytes=4000)
    assert dataset.n_shards >= 3
    sharded = fitted(ChainCRF(), dataset, None)
    assert sharded.objective_ <= best.objective_ * (1 + TOL)


def test_rows_in_raw_units() -> None:
    X, y = recordings(6)
    rows, labels = np.concatenate(X), np.concatenate(y)
    for options in ({"solver": "lbfgs", "l2": 1.0}, {"solver": "newton", "l2": 1.0}):
        model = fitted(MaxentClassifier(**options), rows, labels)
        assert model.converged_
        best = MaxentClassifier(**{**options, "solver": "newton"}, tol=1e-10).fit(rows, labels)
        assert model.objective_ <= best.objective_ * (1 + TOL)


def raw_units(seed: int, *, noise: float = 0.0) -> World:
    """Four columns, one of them in ten thousands around a million, one around a hundred, one in hundredths."""
    X, y = recordings(seed, mean=0.0, least=0.0, most=0.0, columns=4)
    rng = np.random.default_rng(seed)
    X = [x + noise * rng.standard_normal(x.shape) for x in X]
    return [x * [1.0, 1e4, 1.0, 1e-2] + [0.0, 1e6, 100.0, 5.0] for x in standardised(X)], y


@pytest.mark.parametrize("options", [{}, {"l2": 10.0}, {"penalize_intercepts": False}, {"length_features": "none"}])
def test_segments_of_columns_in_raw_units(options: dict[str, Any]) -> None:
    for seed in (0, 1):
        X, y = raw_units(seed)
        model = fitted(SemiMarkovCRF(max_length=30, **options), X, y)
        best = SemiMarkovCRF(max_length=30, **options, tol=1e-8, max_iter=3000).fit(X, y)
        assert model.converged_
        assert model.objective_ <= best.objective_ * (1 + TOL)


def test_segments_are_the_same_in_other_units_where_the_penalty_is_next_to_none() -> None:
    X, y = raw_units(2, noise=6.0)  # labels that columns cannot tell apart have an optimum without a penalty
    options: dict[str, Any] = {"max_length": 30, "length_features": [1, 6, 11, 16, 21], "l2": 1e-7}
    raw, even = (fitted(SemiMarkovCRF(**options), columns, y) for columns in (X, standardised(X)))
    assert even.objective_ > 100
    assert raw.objective_ == pytest.approx(even.objective_, rel=2 * TOL)


def test_hidden_states_of_columns_in_raw_units_end_at_a_minimum() -> None:
    for seed in (0, 1):
        X, y = raw_units(seed)
        chains = Chains.from_lengths([len(x) for x in X])
        table = np.concatenate(X)
        batch = Batch(chains, Columns(np.zeros(len(table) + 1), np.zeros(0), 0, dense=table))
        scorer = ClassScorer.of_batch(batch, n_classes=3, n_states=3)
        allowed = np.eye(3, dtype=bool)[[np.bincount(labels).argmax() for labels in y]]
        problem = HiddenClasses(scorer, batch, allowed)
        start = 0.1 * np.random.default_rng(0).standard_normal(problem.n_weights)
        run = partial(fit_start, problem, Penalty(l2=0.1), training="gradient", max_iter=500)
        found = run(start=start, tol=TOL)
        assert found.converged
        assert run(start=found.weights, tol=1e-9).value >= found.value * (1 - TOL)


def test_one_long_sequence() -> None:
    rng = np.random.default_rng(7)
    labels = np.repeat(rng.integers(0, 4, 60), 100)
    signal = np.array([1900.0, 2100.0, 2350.0, 1500.0])[labels, None] + 90 * rng.standard_normal((6000, 3))
    model = fitted(ChainCRF(), [signal], [labels])
    best = ChainCRF(tol=1e-8, max_iter=3000).fit([signal], [labels])
    assert model.objective_ <= best.objective_ * (1 + TOL)


@pytest.mark.parametrize("share", [0.25, 0.4, 0.6, 0.95])
def test_a_run_goes_on_with_the_same_bits(share: float, tmp_path: Path) -> None:
    """Before the second derivative was computed, and after; how many steps there are depends on the processor."""
    X, y = recordings(8, columns=10, mean=1e4)
    options: dict[str, Any] = {"l2": 1e-3, "tol": 1e-9, "n_jobs": 1}
    whole = ChainCRF(**options).fit(X, y)
    step = int(share * whole.n_iter_)
    assert 10 < step < whole.n_iter_
    kept = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 0}
    ChainCRF(**options, **kept, callback=lambda done, _: done.n_iter == step).fit(X, y)
    again = ChainCRF(**options, **kept).fit(X, y)
    assert again.coef_.tobytes() == whole.coef_.tobytes()
    assert (again.n_iter_, again.n_evaluations_) == (whole.n_iter_, whole.n_evaluations_)


def test_callbacks_see_the_users_weights() -> None:
    X, y = recordings(9)
    seen: list[np.ndarray] = []
    model = ChainCRF(callback=lambda _, weights: seen.append(weights.copy())).fit(X, y)
    assert np.array_equal(seen[-1], model.coef_)


# ------------------------------------------------------------------------------------------------ with l1

SPARSE: dict[str, tuple[type, dict[str, Any]]] = {
    "both penalties": (ChainCRF, {"l1": 1.0}),
    "l1 alone": (ChainCRF, {"l1": 1.0, "l2": 0.0}),
    "weak": (ChainCRF, {"l1": 0.01, "l2": 0.0}),
    "intercepts without a penalty": (ChainCRF, {"l1": 1.0, "l2": 0.0, "penalize_intercepts": False}),
    "no intercept": (ChainCRF, {"l1": 1.0, "intercept": False}),
    "two labels back": (ChainCRF, {"l1": 1.0, "order": 2}),
    "local": (MEMM, {"l1": 1.0}),
}


def at_length(model: Any, X: Any, y: Any) -> Any:
    """Fitted as far as rounding lets it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


@pytest.mark.parametrize("options", [{"l1": 1.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.01, "l2": 0.0}])
def test_what_an_l1_run_claims_is_so_at_any_tolerance(options: dict[str, Any]) -> None:
    for world in (recordings(0), recordings(2, mean=0.0, most=6.0)):
        best = at_length(ChainCRF(**options, tol=1e-9, max_iter=300, n_jobs=1), *world).objective_
        for tol in (1e-3, 1e-4, 1e-6):
            model = fitted(ChainCRF(**options, tol=tol, n_jobs=1), *world)
            assert model.objective_ / best - 1 <= min(tol, model.history_[-1].gap + 1e-8)


@pytest.mark.parametrize("name", SPARSE)
def test_l1_of_columns_in_raw_units_comes_to_the_optimum(name: str) -> None:
    """Up to deviations of a billionth of the mean; claims are held against a run to 1e-7, or as far as digits go."""
    kind, options = SPARSE[name]
    for world in (recordings(0), recordings(1, mean=1e6, most=6.0), recordings(2, mean=0.0, most=6.0)):
        model = fitted(kind(**options, n_jobs=1), *world)
        best = at_length(kind(**options, tol=1e-7, max_iter=300, n_jobs=1), *world)
        assert model.converged_
        assert model.n_iter_ <= 300
        assert model.objective_ <= best.objective_ * (1 + TOL), (model.objective_, best.objective_)
        assert "proximal Newton" in str(model.plan_)


def test_l1_has_the_weights_that_another_method_finds() -> None:
    """Columns that projected gradients manage as they are."""
    X, y = recordings(3, mean=3.0, least=-0.5, most=0.5)
    for options in ({"l1": 2.0}, {"l1": 2.0, "l2": 0.1}):
        ours = fitted(ChainCRF(tol=1e-10, n_jobs=1, **options), X, y)
        theirs = at_length(ChainCRF(solver="projected_cg", tol=1e-12, max_iter=20_000, **options), X, y)
        assert ours.objective_ == pytest.approx(theirs.objective_, rel=1e-8)
        assert ours.objective_ <= theirs.objective_ * (1 + 1e-10)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


def test_l1_in_units_is_a_penalty_for_each_weight() -> None:
    """Columns times s under l1 are the columns themselves under l1 / s: solved there, to 1e-10, by another method."""
    X, y = recordings(4, mean=0.0, least=0.0, most=0.0, columns=4)
    units = np.array([1e-3, 1.0, 1e3, 1e6])
    even, raw = (flat_problem([x * s for x in X], y) for s in (np.ones(4), units))
    strength = np.ones(even.n_weights)
    strength[even.layout.part["dense"]] /= np.repeat(units, 3)
    start = np.zeros(even.n_weights)
    far = minimize_dense(even.evaluate, start, hessian=np.eye(len(start)), l1=strength, gap=1e-13, max_iter=3000)
    found = fit_likelihood(raw, Penalty(l1=1.0), tol=1e-10, max_iter=1000, rng=np.random.default_rng(0))
    assert found.converged
    assert found.value == pytest.approx(far.value, rel=1e-9)
    np.testing.assert_allclose(
        found.weights[raw.layout.part["dense"]] * np.repeat(units, 3),
        far.weights[even.layout.part["dense"]],
        rtol=1e-3,
        atol=1e-4,
    )


def flat_problem(X: list[np.ndarray], y: list[np.ndarray]) -> FusedChain:
    table, chains = np.concatenate(X), Chains.from_lengths([len(x) for x in X])
    batch = Batch(chains, Columns(np.zeros(len(table) + 1), np.zeros(0), 0, dense=table))
    target = Target(chains, 3, np.concatenate(y).astype(np.int32))
    return measured(
        FusedChain(layout := Layout.observe(batch, target, bias=True), batch, target), layout, batch, target
    )


@pytest.mark.parametrize("step", [5, 31, 36])
def test_a_sparse_run_goes_on_with_the_same_bits(step: int, tmp_path: Path) -> None:
    X, y = recordings(0)
    options: dict[str, Any] = {"l1": 1.0, "l2": 0.0, "tol": 1e-6, "n_jobs": 1}
    whole = ChainCRF(**options).fit(X, y)
    kept = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 0}
    ChainCRF(**options, **kept, callback=lambda done, _: done.n_iter == step).fit(X, y)
    again = ChainCRF(**options, **kept).fit(X, y)
    assert again.coef_.tobytes() == whole.coef_.tobytes()
    assert (again.n_iter_, again.n_evaluations_) == (whole.n_iter_, whole.n_evaluations_)


def test_the_lasso_of_columns_far_from_zero() -> None:
    """Slopes of weights that are not zero are −l1 · sign, of the others within l1."""
    rng = np.random.default_rng(0)
    for mean in (0.0, 1e3, 1e6):
        rows = rng.standard_normal((80, 40)) + mean * (np.arange(40) < 20)
        across, root = np.linalg.qr(rows)
        residual, l1 = -across.T @ rng.standard_normal(80) * 3, np.full(40, 6.0)
        step, lower = lasso_step(root, residual, np.zeros(40), np.zeros(40), l1)
        left = residual + root @ step
        slope = root.T @ left
        assert np.abs(slope + l1 * np.sign(step))[step != 0].max() <= 1e-9 * max(mean, 1.0) ** 2
        assert np.abs(slope)[step == 0].max() <= 6.0 * (1 + 1e-3)
        value = 0.5 * (residual @ residual - left @ left) - l1 @ np.abs(step)
        assert lower == pytest.approx(value, rel=1e-6)
        assert 0 < np.count_nonzero(step) < 40


def test_a_lasso_that_no_weight_wishes_to_leave_stays() -> None:
    """Also where columns are the same, so that not all of them could be let go at once."""
    step, lower = lasso_step(np.ones((1, 2)), np.array([-1.0]), np.zeros(2), np.zeros(2), np.full(2, 9.0))
    assert step.tolist() == [0.0, 0.0]
    assert lower == 0.0


def test_directions_without_curvature_are_kept_apart() -> None:
    """Differences are rough, but at right angles to what never changes; their mean with the transpose is not."""
    rng = np.random.default_rng(1)
    flat = np.linalg.qr(rng.standard_normal((8, 2)))[0]
    half = rng.standard_normal((8, 8)) @ (np.eye(8) - flat @ flat.T)
    rough = half.T @ half + 1e-3 * rng.standard_normal((8, 8)) @ (np.eye(8) - flat @ flat.T)
    root, found = graded_root(rough, 1e-10)
    np.testing.assert_allclose(found @ found.T, flat @ flat.T, atol=1e-9)
    assert np.abs(root @ flat).max() < 1e-6


def test_discriminative_markov_models_come_to_an_end() -> None:
    for seed, emissions in ((0, "gaussian"), (1, "gaussian"), (1, "full")):
        X, y = recordings(seed)
        model = fitted(HMM(emissions, training="discriminative", l2=0.01), X, y)
        best = HMM(emissions, training="discriminative", l2=0.01, tol=1e-8, max_iter=2000).fit(X, y)
        assert model.converged_
        assert model.objective_ <= best.objective_ * (1 + TOL)


# ------------------------------------------------------------------------------------------------ the parts


def test_whitened_columns_are_round() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 4)) * [1.0, 50.0, 0.01, 3.0] + 700.0
    batch = Batch(Chains.from_lengths([100, 200]), Columns(np.zeros(301), np.zeros(0), 0, dense=table))
    weight = np.array([2.0, 0.5])
    rows = np.repeat(weight, [100, 200])
    moments = Moments.of(batch, weight)
    extended = np.column_stack([table, np.ones(300)])
    for centred, X in ((True, extended), (False, table)):
        ridge = rng.uniform(0.1, 2.0, X.shape[1])
        turn = whitening(moments.mean, moments.gram, moments.count, ridge=ridge, intercepts=int(centred))
        bend = X.T @ (rows[:, None] * X) + np.diag(ridge)
        np.testing.assert_allclose(turn.T @ bend @ turn, np.eye(X.shape[1]), atol=1e-6)
    parts = [
        Batch(Chains.from_lengths([len(t)]), Columns(np.zeros(len(t) + 1), np.zeros(0), 0, dense=t))
        for t in (table[:100], table[100:])
    ]
    merged = Moments.of(parts[0], weight[:1]).merged(Moments.of(parts[1], weight[1:]))
    np.testing.assert_allclose(merged.gram, moments.gram, rtol=1e-9)
    np.testing.assert_allclose(merged.mean, moments.mean, rtol=1e-12)


def test_columns_of_ones_are_let_be() -> None:
    """Words in dicts that hold numbers too: only numbers are centred and mixed, however many words there are."""
    rng = np.random.default_rng(4)
    numbers = rng.standard_normal((700, 2)) * [1.0, 1e3] + 1e4
    rows = [[(k, 1.0), (700, a), (701, b)] for k, (a, b) in enumerate(numbers.tolist())]
    indices, values = ([cell[part] for row in rows for cell in row] for part in (0, 1))
    columns = Columns(3 * np.arange(701), np.array(indices), 702, np.array(values))
    moments = Moments.of(Batch(Chains.from_lengths([300, 400]), columns))
    assert moments.sparse.tolist() == [700, 701]
    np.testing.assert_allclose(moments.mean, numbers.mean(axis=0))
    np.testing.assert_allclose(moments.gram, 699 * np.cov(numbers.T), rtol=1e-9)


def test_a_basis_goes_out_and_in() -> None:
    rng = np.random.default_rng(1)
    block = (np.array([[1, 3], [4, 0]]), rng.standard_normal((2, 2)))
    basis = Basis(rng.uniform(0.5, 2.0, 5), (block,))
    w, g = rng.standard_normal((2, 5))
    np.testing.assert_allclose(basis.outward(basis.inward(w)), w, rtol=1e-10)
    assert g @ basis.outward(w) == pytest.approx(basis.pull(g) @ w)
    turn = rng.standard_normal((5, 5))
    np.testing.assert_allclose(basis.renewed(turn).outward(w), basis.outward(turn @ w), rtol=1e-10)
    again = Basis.from_state(basis.state(), 5)
    assert np.array_equal(again.outward(w), basis.outward(w))
    for damaged in ({"scale": np.ones(4)}, {"places0": block[0] + 9}, {"matrix0": np.full((2, 2), np.nan)}):
        with pytest.raises(ValueError, match="no basis"):
            Basis.from_state(basis.state() | damaged, 5)


@pytest.mark.parametrize("name", ["native", "numpy"])
def test_a_trusted_history_keeps_its_scale(name: str) -> None:
    if name == "native":
        pytest.importorskip("crfield.kernels._vectors")
    with choice.use(name):
        history = vectors.History(2, 5, trusted=True)
        history.push(np.array([1e-3, 0.0]), np.zeros(2), np.array([1e-8, 0.0]), np.zeros(2))
        out = np.empty(2)
        history.direction(np.array([0.0, 1.0]), out)
        assert out.tolist() == [0.0, -1.0]


def test_other_coordinates_are_not_for_l1() -> None:
    problem = dense(seed=21)
    with pytest.raises(InputError, match="l1"):
        minimize(problem, np.zeros(problem.n_weights), Penalty(l1=1.0), renew=True)
