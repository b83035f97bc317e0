"""Primal–dual epochs to the end: the optimum of L-BFGS, gaps that are proved, the same bits, and who chooses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import crfield
from crfield.errors import InputError, ModelFileError
from crfield.kernels import choice
from crfield.optimize.history import INTERRUPTED, MAX_ITER, TOLERANCE, Result
from crfield.optimize.penalty import Penalty
from crfield.training import likelihood
from crfield.training.chain import primal_dual
from crfield.training.likelihood import FusedChain
from tests.cases.chains import LinearCase, Options, linear_case, needs_native

pytestmark = needs_native
RIDGE = Penalty(l2=1.0)
FREE = Options(labels=4, columns=40, bias=True, lengths=(5, 3, 8, 1, 4, 6, 2) * 60)


@pytest.fixture(autouse=True)
def compiled() -> Any:
    """The solver is for compiled kernels."""
    with choice.use("native"):
        yield


def learnable(o: Options = FREE, seed: int = 0) -> LinearCase:
    """A case whose labels follow its columns, but not always."""
    rng = np.random.default_rng(seed)
    case = linear_case(rng, o)
    table = 2.0 * rng.standard_normal((o.columns, o.labels))
    node = case.batch.node
    ones = np.ones(len(node.indices))
    score = csr_matrix((ones, node.indices, node.indptr), shape=(len(node.indptr) - 1, o.columns)) @ table
    labels = (score + 2.0 * rng.gumbel(size=score.shape)).argmax(axis=1).astype(np.int32)
    return replace(case, target=replace(case.target, labels=labels))


def problem_of(case: LinearCase) -> FusedChain:
    """Its likelihood."""
    return FusedChain(case.layout, case.batch, case.target)


def fitted(
    problem: FusedChain, penalty: Penalty, solver: str = "primal_dual", *, seed: int = 0, **options: Any
) -> Result:
    """A run with a seed."""
    rng = np.random.default_rng(seed)
    return likelihood.fit_likelihood(problem, penalty, solver=solver, rng=rng, **options)


class Kept:
    """A `RunState` that keeps every state of a phase, and gives one back."""

    def __init__(self, given: Any = None) -> None:
        self.given, self.states = given, list[Any]()

    def found(self, phase: str) -> Any:
        return None if self.given is None or self.given[0] != phase else self.given[1]

    def offer(self, phase: str, state: Callable[[], Any]) -> None:
        header, arrays = state()
        self.states.append((phase, (header, {name: part.copy() for name, part in arrays.items()})))


@pytest.mark.parametrize("l2", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_optimum_is_that_of_lbfgs(l2: float, weighted: bool) -> None:
    problem = problem_of(learnable(replace(FREE, weighted=weighted)))
    best = fitted(problem, Penalty(l2=l2), "lbfgs", tol=1e-10, max_iter=2000)
    found = fitted(problem, Penalty(l2=l2), tol=1e-4)
    assert found.converged
    assert found.reason == TOLERANCE
    assert -1e-9 <= found.value / best.value - 1 <= 1e-4
    exact = fitted(problem, Penalty(l2=l2), tol=1e-9, max_iter=2000)  # L-BFGS takes over for the last digits
    assert exact.converged
    assert "L-BFGS" in exact.how
    np.testing.assert_allclose(exact.weights, best.weights, atol=2e-3)
    assert exact.value == pytest.approx(best.value, rel=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_proved_is_never_below_the_true_gap(seed: int) -> None:
    problem, penalty = problem_of(learnable(seed=seed)), Penalty(l2=0.5 + seed)
    best = fitted(problem, penalty, "lbfgs", tol=1e-11, max_iter=3000).value
    seen = []

    def watch(step: Any, weights: np.ndarray) -> None:
        seen.append((run.proved, run.value / best - 1, run.bound))

    run = primal_dual._Run(
        problem, penalty, tol=1e-6, n_jobs=1, rng=np.random.default_rng(seed), callback=watch, run_state=None
    )
    run.begin(None)
    run.go(60)
    assert len(seen) > 5
    assert all(proved >= true - 1e-7 for proved, true, _ in seen)
    assert all(bound <= best * (1 + 1e-7) for _, _, bound in seen)
    assert seen[-1][0] < 1e-4


def test_the_same_seed_gives_the_same_bits() -> None:
    problem = problem_of(learnable())
    one, two = (fitted(problem, Penalty(l2=1.0), seed=5) for _ in range(2))
    assert (one.weights == two.weights).all()
    other = fitted(problem, Penalty(l2=1.0), seed=5, n_jobs=2)
    assert (one.weights == other.weights).all()
    assert not (one.weights == fitted(problem, Penalty(l2=1.0), seed=6).weights).all()


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_a_resumed_run_ends_with_the_same_bits(l1: float) -> None:
    problem, penalty = problem_of(learnable()), Penalty(l1=l1, l2=1.0)
    whole = Kept()
    ended = fitted(problem, penalty, run_state=whole)
    phases = [phase for phase, _ in whole.states]
    assert phases[0] == primal_dual.PHASE
    assert ("lbfgs" in phases) == (l1 > 0)
    for at in (0, len(phases) // 2, phases.count(primal_dual.PHASE) - 1):
        again = fitted(problem, penalty, run_state=Kept(whole.states[at]), seed=99)
        assert (again.weights == ended.weights).all()
        assert again.n_iter == ended.n_iter or l1


def test_a_damaged_state_is_refused() -> None:
    problem, penalty = problem_of(learnable()), Penalty(l2=1.0)
    whole = Kept()
    fitted(problem, penalty, run_state=whole)
    phase, (header, arrays) = whole.states[-1]
    for name, part in (
        ("node", arrays["node"][1:]),
        ("weights", arrays["weights"] * np.nan),
        ("best", arrays["best"] + 1),
    ):
        with pytest.raises(ModelFileError, match="cannot be resumed"):
            fitted(problem, penalty, run_state=Kept((phase, (header, arrays | {name: part}))))
    with pytest.raises(ModelFileError, match="cannot be resumed"):
        fitted(problem, penalty, run_state=Kept((phase, (header | {"epoch": "many"}, arrays))))


def test_ctrl_c_and_callbacks_keep_the_best_so_far() -> None:
    problem, penalty = problem_of(learnable()), Penalty(l2=1.0)

    def interrupt(step: Any, weights: np.ndarray) -> None:
        if step.n_iter == 4:
            raise KeyboardInterrupt

    stopped = fitted(problem, penalty, callback=interrupt)
    assert stopped.reason == INTERRUPTED
    assert not stopped.converged
    gradient = np.empty(problem.n_weights)
    value = problem.evaluate(stopped.weights, gradient) + 0.5 * float(stopped.weights @ stopped.weights)
    assert stopped.value == pytest.approx(value)
    ended = fitted(problem, penalty, callback=lambda step, weights: step.n_iter >= 3)
    assert ended.reason == "callback"
    assert ended.n_iter == 3
    assert not ended.converged
    short = fitted(problem, penalty, max_iter=2)
    assert short.reason == MAX_ITER
    assert short.n_iter == 2
    assert not short.converged


def test_with_an_l1_penalty_owlqn_ends_it() -> None:
    problem, penalty = problem_of(learnable()), Penalty(l1=1.0, l2=0.1)
    best = fitted(problem, penalty, "lbfgs", tol=1e-9, max_iter=3000)
    found = fitted(problem, penalty, tol=1e-5, max_iter=3000)
    assert found.converged
    assert "OWL-QN" in found.how
    assert "primal–dual" in found.how
    assert found.value <= best.value * (1 + 1e-5)
    assert np.count_nonzero(found.weights) < 0.9 * len(found.weights)


def test_weights_without_a_ridge_leave_the_end_to_lbfgs() -> None:
    case = learnable()
    penalty = Penalty(l2=1.0, penalised=~case.layout.intercepts)
    found = fitted(problem_of(case), penalty, tol=1e-6, max_iter=2000)
    best = fitted(problem_of(case), penalty, "lbfgs", tol=1e-9, max_iter=2000)
    assert found.converged
    assert "L-BFGS" in found.how
    assert found.value == pytest.approx(best.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_few_sequences_are_not_swept_together(seed: int) -> None:
    # eight of these at the same weights overshoot together: 100 epochs and more
    made = crfield.make_phrases(1000)
    X = [crfield.phrase_features(tokens) for tokens in made.tokens]
    best = crfield.ChainCRF(solver="lbfgs", l2=10.0, tol=1e-8, max_iter=2000).fit(X, made.labels)
    found = crfield.ChainCRF(solver="primal_dual", l2=10.0, random_state=seed).fit(X, made.labels)
    assert found.converged_
    assert found.n_iter_ <= 16
    assert found.objective_ <= best.objective_ * (1 + 1e-4)


@pytest.mark.parametrize("l2", [0.05, 0.3, 1.0])
def test_claims_hold_on_slow_runs_too(l2: float) -> None:
    for data_seed in range(3):
        problem, penalty = problem_of(learnable(seed=data_seed)), Penalty(l2=l2)
        best = fitted(problem, penalty, "lbfgs", tol=1e-10, max_iter=3000).value
        for tol in (1e-3, 1e-4, 1e-5):
            found = fitted(problem, penalty, seed=data_seed, tol=tol, max_iter=2000)
            assert found.converged
            assert found.value <= best * (1 + tol), (data_seed, tol)


@pytest.mark.parametrize("seed", range(3))
def test_claims_after_a_hand_over_hold(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # what the epochs left falls away at once: after ten steps that was taken for the end, 1.27 tolerances away
    monkeypatch.setattr(primal_dual, "FIRST_CHECK", 40)
    monkeypatch.setattr(primal_dual, "PATIENCE", 0)
    made = crfield.make_phrases(300)
    X = [crfield.phrase_features(tokens) for tokens in made.tokens]
    best = crfield.ChainCRF(solver="lbfgs", l2=0.3, tol=1e-9, max_iter=3000).fit(X, made.labels).objective_
    found = crfield.ChainCRF(solver="primal_dual", l2=0.3, tol=1e-5, random_state=seed).fit(X, made.labels)
    assert found.converged_
    assert "L-BFGS; 40 primal–dual epochs" in str(found.plan_)
    assert found.objective_ <= best * (1 + 1e-5)


def test_states_of_older_versions_are_gone_on_with() -> None:
    # which had blocks of eight whatever the data, planes in double precision, and asked the table at every look
    problem, penalty = problem_of(learnable()), Penalty(l2=1.0)
    best = fitted(problem, penalty, "lbfgs", tol=1e-9, max_iter=2000)
    whole = Kept()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(primal_dual, "BLOCKS", 1)
        fitted(problem, penalty, run_state=whole, max_iter=10, tol=1e-9)
    phase, (header, arrays) = whole.states[-1]
    older = {name: x for name, x in header.items() if name not in ("width", "errors", "looks", "ask_table")}
    assert header["width"] == 8
    found = fitted(problem, penalty, run_state=Kept((phase, (older, arrays))))
    assert found.converged
    assert found.value <= best.value * (1 + 1e-4)


def test_from_given_weights() -> None:
    problem, penalty = problem_of(learnable()), Penalty(l2=1.0)
    best = fitted(problem, penalty, "lbfgs", tol=1e-8, max_iter=2000)
    again = fitted(problem, penalty, start=best.weights)
    assert again.converged
    assert again.value <= best.value * (1 + 1e-5)


def test_auto_chooses_by_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(o: Options, penalty: Penalty = RIDGE, n_jobs: int = 1) -> str:
        case = learnable(o) if not (o.partial or o.dense) else linear_case(np.random.default_rng(0), o)
        problem = FusedChain(case.layout, case.batch, case.target)
        return likelihood.choose("auto", problem, start=None, penalty=penalty, n_jobs=n_jobs)

    assert chosen(FREE) == chosen(FREE, n_jobs=2) == "primal_dual"
    assert chosen(FREE, n_jobs=4) == "warm"
    assert chosen(replace(FREE, labels=48, lengths=(2,) * 700)) == "warm"
    assert chosen(replace(FREE, partial=True)) == "warm"
    assert chosen(replace(FREE, columns=0, dense=3)) == "lbfgs"
    assert chosen(replace(FREE, values=True)) == "warm"  # numbers, not only what is there
    assert chosen(replace(FREE, lengths=(4,) * 30)) == "lbfgs"
    assert chosen(FREE, Penalty()) == "warm"
    assert chosen(FREE, Penalty(l2=0.1)) == "warm"  # a weak ridge makes epochs slow
    assert chosen(FREE, Penalty(l1=1.0)) == "primal_dual"
    monkeypatch.setattr(primal_dual, "LARGEST", 1000)
    assert chosen(FREE) == "warm"


def test_what_it_cannot_train_is_refused_with_words() -> None:
    case = linear_case(np.random.default_rng(0), Options(edge_columns=2))
    with pytest.raises(InputError, match="edge features"):
        fitted(FusedChain(case.layout, case.batch, case.target), Penalty(l2=1.0))
    case = linear_case(np.random.default_rng(0), replace(FREE, columns=0, dense=3))
    with pytest.raises(InputError, match="columns must be there or not"):
        fitted(FusedChain(case.layout, case.batch, case.target), Penalty(l2=1.0))
    with pytest.raises(InputError, match="must be a penalty"):
        fitted(problem_of(learnable()), Penalty())


def test_chaincrf_says_what_it_ran_and_agrees_with_lbfgs() -> None:
    made = crfield.make_phrases(500)
    X = [crfield.phrase_features(tokens) for tokens in made.tokens]
    auto = crfield.ChainCRF().fit(X, made.labels)
    assert "primal–dual epochs" in str(auto.plan_)
    assert auto.converged_
    plain = crfield.ChainCRF(solver="lbfgs", tol=1e-7, max_iter=2000).fit(X, made.labels)
    assert auto.objective_ <= plain.objective_ * (1 + 1e-4)
