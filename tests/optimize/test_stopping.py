"""The tolerance keeps its word: at the stop, F is within tol of the optimum, and not absurdly closer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.optimize.stopping import Stopping
from crfield.scoring.layout import Layout
from crfield.training.chain import warm_start
from crfield.training.likelihood import FusedChain, choose, fit_likelihood, history_pairs
from tests.cases.optimize_problems import Logistic, correlated, dense, text

CASES: dict[str, tuple[Callable[[], Logistic], Penalty, bool]] = {
    "dense": (lambda: dense(seed=21), Penalty(l2=1.0), False),
    "dense, spread": (lambda: dense(seed=22, spread=2.0), Penalty(l2=1.0), False),
    "dense, wide spread": (lambda: dense(seed=23, spread=4.0), Penalty(l2=0.01), True),
    "dense, extreme spread": (lambda: dense(seed=24, spread=6.0), Penalty(l2=1e-3), True),
    "dense, l1": (lambda: dense(seed=25, spread=2.0), Penalty(l1=3.0), False),
    "correlated": (lambda: correlated(seed=26), Penalty(l2=0.1), False),
    "correlated, no penalty": (lambda: correlated(seed=27), Penalty(), False),
    "correlated, l1": (lambda: correlated(seed=28), Penalty(l1=1.0), False),
    "correlated, weak l1": (lambda: correlated(seed=29), Penalty(l1=0.05), True),
    "text": (lambda: text(seed=30), Penalty(l2=1.0), False),
    "text, weak l2": (lambda: text(seed=31), Penalty(l2=1e-3), False),
    "text, weak l2, diagonal": (lambda: text(seed=32), Penalty(l2=1e-3), True),
    "text, strong l2": (lambda: text(seed=33), Penalty(l2=100.0), False),
    "text, wide": (lambda: text(seed=34, rows=3000, width=100_000), Penalty(l2=0.1), True),
    "text, l1": (lambda: text(seed=35), Penalty(l1=1.0), False),
    "text, l1, diagonal": (lambda: text(seed=36), Penalty(l1=0.3), True),
    "text, wide, both": (lambda: text(seed=37, rows=3000, width=100_000), Penalty(l1=0.3, l2=0.1), True),
}


def test_the_gap_at_the_stop() -> None:
    ratios = {}
    for name, (make, penalty, scaled) in CASES.items():
        problem = make()
        start = np.zeros(problem.n_weights)
        diagonal = (problem.curvature(start) + penalty.l2 + 1e-3) ** -0.7 if scaled else None
        stopped = minimize(problem, start, penalty, diagonal=diagonal)
        assert (stopped.converged, stopped.reason) == (True, "tolerance"), name
        best = minimize(problem, stopped.weights, penalty, diagonal=diagonal, tol=1e-9, max_iter=1500)
        gap = (stopped.value - best.value) / best.value
        assert gap <= 1e-4, f"{name}: {gap:.1e}"
        assert best.value * stopped.history[-1].gap >= 0.0
        ratios[name] = gap / 1e-4
    typical = float(np.median(list(ratios.values())))
    assert typical >= 1 / 30, ratios


def test_from_a_warm_start() -> None:
    """Small first steps, as after a stochastic warm start, are not taken for the end."""
    for seed in range(40, 46):
        problem, penalty = text(seed=seed), Penalty(l2=0.05)
        rng = np.random.default_rng(seed)
        begun = minimize(problem, np.zeros(problem.n_weights), penalty, max_iter=15).weights
        start = begun * (1 + 0.1 * rng.standard_normal(len(begun)))
        diagonal = (problem.curvature(start) + 0.05) ** -0.7
        stopped = minimize(problem, start, penalty, diagonal=diagonal)
        best = minimize(problem, start, penalty, diagonal=diagonal, tol=1e-9)
        assert stopped.converged
        assert (stopped.value - best.value) / best.value <= 1e-4


def test_the_bound_is_a_bound() -> None:
    """With every weight under a ridge, |g|² / (2 l2) is never below the true gap."""
    problem, penalty = dense(seed=46), Penalty(l2=2.0)
    best = minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-13).value
    for step in minimize(problem, np.zeros(problem.n_weights), penalty, tol=1e-10).history:
        assert step.value - best <= step.gradient_norm**2 / (2 * penalty.l2) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
def test_powers_of_time_are_extrapolated(power: float) -> None:
    """F = 100 + 1000 k^-power: three times what is left, whatever the power, but for windows of whole steps."""
    stopping = Stopping(1e-4)
    for k in range(400):
        value = 100 + 1000 * max(k, 1) ** -power
        gap = stopping.update(value, 1.0, -1e-9)
        if k < 6:
            assert gap == np.inf
    assert gap == pytest.approx(3 * (value - 100) / value, rel=0.1)
    assert not stopping.stalled


@pytest.mark.parametrize("rate", [0.6, 0.8, 0.95])
def test_faster_falls_are_not_underrated(rate: float) -> None:
    """F = 100 + rate^k: at least three times what is left, and less than three times what was half-way."""
    stopping = Stopping(1e-4)
    left = [rate**k for k in range(60)]
    gaps = [stopping.update(100 + x, 1.0, -1e-9) for x in left]
    assert all(gap >= 3 * x / (100 + x) * (1 - 1e-6) for gap, x in zip(gaps, left))
    assert gaps[-1] <= 3 * left[len(left) // 2] / 100


@pytest.mark.parametrize("slow", [0.01, 0.02, 0.05])
def test_a_slow_rate_behind_a_fast_one(slow: float) -> None:
    """F = 100 + 0.8^k + slow parts of rates 0.95 and 0.99: the end of the fast fall is not the end."""
    stopping = Stopping(1e-4)
    for k in range(1000):
        left = 0.8**k + slow * 0.95**k + slow * 0.99**k
        if stopping.update(100 + left, 1.0, -1e-9) <= 1e-4:
            break
    assert left / 100 <= 1e-4


def test_steady_falls_are_not_the_end() -> None:
    """A run that falls by the same small amount at every step is not near any end it could know of."""
    stopping = Stopping(1e-4)
    gaps = [stopping.update(100 - 1e-4 * k, 1.0, -1e-9) for k in range(200)]
    assert min(gaps[20:]) > 1e-4


def test_values_that_stay_at_zero_have_stalled() -> None:
    stopping = Stopping(1e-4)
    for _ in range(11):
        assert not stopping.stalled
        stopping.update(value=0.0, squared_norm=1.0, slope=0.0)
    assert stopping.stalled


def test_a_minimum_of_zero_is_met() -> None:
    """Separable data without a penalty: F goes to zero, and that is enough."""
    rows = np.array([[1.0, 0.5], [-1.0, -0.3], [2.0, 1.0]])
    result = minimize(Logistic(rows, np.array([1.0, -1.0, 1.0])), np.zeros(2))
    assert result.value < 1e-6
    assert result.converged


# ------------------------------------------------------------------- chains, trained by default


def sensors(*, seed: int, sequences: int = 48, raw: bool = False, n_columns: int = 9) -> FusedChain:
    """Overlapping numeric columns that follow a sticky chain of five labels; raw: in units far from one."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat(rng.integers(0, 5, 4), 6) for _ in range(sequences)]).astype(np.int32)
    mixing = rng.standard_normal((5 + n_columns, n_columns))
    x = np.concatenate([np.eye(5)[labels], 0.7 * rng.standard_normal((len(labels), n_columns))], axis=1) @ mixing
    if raw:
        x = (x + 1.0) * np.geomspace(1.0, 1000.0, n_columns)
    chains = Chains.from_lengths([24] * sequences)
    columns = Columns(np.zeros(len(x) + 1, np.int64), np.zeros(0, np.int32), 0, dense=x)
    return chain_problem(Batch(chains, columns), labels)


def words(*, seed: int, sequences: int = 400) -> FusedChain:
    """Short chains of four labels with a word, its neighbour and its kind at each step."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, sequences)
    labels = rng.integers(0, 4, lengths.sum()).astype(np.int32)
    word = np.minimum((rng.pareto(0.9, len(labels)) * 4).astype(int), 499) // 2 * 2 + (rng.random(len(labels)) < 0.3)
    kind = (labels + (rng.random(len(labels)) < 0.3)) % 4
    rows = [[w, 500 + k, 504 + v] for w, k, v in zip(word, kind, np.roll(word, 1))]
    batch = Batch(Chains.from_lengths(lengths.tolist()), Columns.from_rows(rows, width=1004))
    return chain_problem(batch, labels)


def chain_problem(batch: Batch, labels: np.ndarray) -> FusedChain:
    target = Target(batch.topology, int(labels.max()) + 1, labels)
    return FusedChain(Layout.observe(batch, target, bias=True), batch, target)


CHAINS: dict[str, Callable[[], FusedChain]] = {
    "sensors": lambda: sensors(seed=50),
    "many sensors": lambda: sensors(seed=51, sequences=330),
    "words": lambda: words(seed=52),
    "few words": lambda: words(seed=53, sequences=60),
}


@pytest.mark.parametrize("name", CHAINS)
def test_training_of_chains(name: str) -> None:
    """Weak and strong ridges, l1, both, intercepts set free, seeds: the default tolerance is kept."""
    problem = CHAINS[name]()
    free = ~problem.layout.intercepts
    penalties = [Penalty(l2=x) for x in (0.02, 0.5, 8.0)]
    penalties += [Penalty(l1=1.0), Penalty(l1=0.4, l2=0.4), Penalty(l2=0.3, penalised=free)]
    for penalty in penalties:
        runs = [
            fit_likelihood(problem, penalty, solver=solver, max_iter=1500, rng=np.random.default_rng(seed))
            for solver, seed in (("auto", 0), ("warm", 1), ("lbfgs", 0))
        ]
        assert all(run.converged for run in runs)
        least = min(runs, key=lambda run: run.value)
        best = fit_likelihood(
            problem, penalty, start=least.weights, tol=1e-8, max_iter=3000, rng=np.random.default_rng(0)
        )
        for run in runs:
            gap = (run.value - best.value) / best.value
            assert gap <= 1e-4, f"{penalty}: {gap:.1e}"


def test_raw_columns_are_no_trap() -> None:
    """Epochs that cannot help leave no trace; the diagonal at the start serves instead, and the optimum is found."""
    problem, penalty = sensors(seed=54, sequences=60, raw=True), Penalty(l2=1.0)
    weights = np.zeros(problem.n_weights)
    assert not warm_start.descend(problem, weights, l2=1.0, epochs=3, rng=np.random.default_rng(0))
    assert not weights.any()
    values = []
    for solver in ("warm", "lbfgs"):
        run = fit_likelihood(problem, penalty, solver=solver, max_iter=2000, rng=np.random.default_rng(0))
        assert run.converged
        values.append(run.value)
    assert values[0] == values[1]
    best = fit_likelihood(problem, penalty, start=run.weights, tol=1e-8, max_iter=4000, rng=np.random.default_rng(0))
    assert (values[0] - best.value) / best.value <= 1e-4
    plain = minimize(problem, weights, penalty, memory=history_pairs(problem.n_weights, penalty), max_iter=run.n_iter)
    assert plain.value > 1.01 * run.value
    even = sensors(seed=54, sequences=60)
    assert warm_start.rescaling(even, np.zeros(even.n_weights), layout=even.layout, l2=1.0) is None


class Diverging:
    """A problem whose passes meet ever larger losses with any step but a small one."""

    n_groups = 80

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        return np.ones_like(weights)

    def descend(self, weights: np.ndarray, order: np.ndarray, *, step: float, **_: float) -> float:
        weights += 1.0
        whole = len(order) == self.n_groups
        return len(order) * (0.5 if step <= 0.1 else 10.0 if whole else 0.4 if step else 1.0)


def test_epochs_that_diverge_are_taken_back() -> None:
    weights = np.zeros(3)
    assert warm_start.descend(Diverging(), weights, l2=0.0, epochs=5, rng=np.random.default_rng(0))
    assert weights.tolist() == [3.0] * 3  # two epochs undone, with steps of 0.8 and 0.2; three kept


def test_what_auto_picks() -> None:
    numeric, text = sensors(seed=55, sequences=330), words(seed=56)
    assert choose("auto", numeric, start=None, penalty=Penalty(l2=1.0)) == "lbfgs"
    assert choose("auto", numeric, start=None, penalty=Penalty(l1=1.0)) == "warm"
    assert choose("auto", text, start=None, penalty=Penalty(l2=1.0)) == "primal_dual"
    assert choose("auto", text, start=None, penalty=Penalty(l2=1.0), n_jobs=8) == "warm"
    assert choose("auto", text, start=np.ones(text.n_weights), penalty=Penalty(l2=1.0)) == "lbfgs"
    assert history_pairs(50, Penalty(l1=1.0)) is None


def test_what_another_solver_began_is_judged_when_it_is_as_old() -> None:
    """Until then only the guarantee counts; a state that was kept knows the age, and one of an older version none."""
    falls = [(2.0 + 0.5**n, 1.0, -(0.5**n)) for n in range(40)]
    for age, waits in ((0, 9), (15, 15), (300, 20)):
        stopping = Stopping(1e-4, age=age)
        known = [bool(stopping.update(*fall) < np.inf) for fall in falls]
        assert known.index(True) == waits, age
        assert all(known[known.index(True) :])
    bounded = Stopping(1e-4, convexity=0.5, age=300)
    assert bounded.update(2.0, 4e-6, -1e-3) == 2e-6
    other = Stopping(1e-4)
    other.remember(bounded.memory())
    assert other.age == 300
    memory = bounded.memory()
    del memory["age"]
    other = Stopping(1e-4)
    other.remember(memory)
    assert other.age == 0
    with pytest.raises(ValueError, match="another solver"):
        other.remember(memory | {"age": [-1.0]})
