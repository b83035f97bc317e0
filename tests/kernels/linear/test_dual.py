"""Primal–dual epochs: the compiled body against the NumPy one, the table against its formulas, planes below."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from crfield.core.constraints import FixedScores
from crfield.kernels import choice
from crfield.kernels.dual import PrimalDual, Table
from crfield.kernels.linear import Problem
from crfield.training.chain.partial_fit import take_sequences
from crfield.training.chain.plan import ChainParts
from crfield.training.likelihood import FusedChain
from tests.cases.chains import EACH_OPTION, LinearCase, Options, linear_case, native_level, needs_native

LENGTHS = (4, 0, 1, 6, 2, 3, 1, 5, 3, 2, 7, 4, 4, 9, 2)
CASES = [
    replace(o, lengths=LENGTHS)
    for o in EACH_OPTION
    if not (o.partial or o.edge_columns or o.edge_dense) and len(o.lengths) > 2
] + [Options(labels=22, columns=60, bias=True), Options(labels=50, columns=20, lengths=(3, 5, 2, 8))]
every_case = pytest.mark.parametrize("o", CASES, ids=str)


def problem_of(case: LinearCase) -> Problem:
    """The kernel's problem of a case."""
    return Problem(case.layout, case.batch, case.target.labels, None, case.target.weight)


def after_epochs(
    case: LinearCase, epochs: int = 3, *, penalised: np.ndarray | None = None, l1: float = 0.0
) -> PrimalDual:
    """A run of AdaGrad, fill and up to three epochs."""
    state, rng = PrimalDual(problem_of(case), penalised, width=4), np.random.default_rng(3)
    state.set_steps(np.ones(case.layout.n_weights))
    state.epoch(rng.permutation(state.n_blocks), adagrad=0.3, l1=l1, l2=0.7)
    state.fill()
    state.set_steps(1 / (1 + np.sqrt(state.curvature())))
    for lengths in (True, False, True)[:epochs]:
        state.epoch(rng.permutation(state.n_blocks), l1=l1, l2=0.7, lengths=lengths, curvature=lengths)
    return state


def close(one: PrimalDual, other: PrimalDual, within: float = 1e-4) -> None:
    """Whether two states are the same but for single precision, which each epoch passes on to the next.

    Small differences from the table are known to few digits, and lengths are quotients of them.
    """
    for name in ("weights", "dual", "steps", "counts", "curvature"):
        here, there = getattr(one, name)(), getattr(other, name)()
        np.testing.assert_allclose(here, there, rtol=within, atol=within, err_msg=name)
    table, other_table = one.table(), other.table()
    for name in ("node", "pairs"):
        np.testing.assert_allclose(getattr(table, name), getattr(other_table, name), atol=within, err_msg=name)
    np.testing.assert_allclose(table.told, other_table.told, rtol=20 * within, atol=20 * within)


def fixed(case: LinearCase) -> LinearCase:
    """The case with constants, two pairs forbidden that gold does not have."""
    n = case.layout.n_labels
    gold, chains = case.target.labels, case.batch.topology
    edge = 0.3 * np.random.default_rng(5).standard_normal((n, n))
    met = {(int(gold[h - 1]), int(gold[h])) for h in chains.heads}
    for i, j in [(i, j) for i in range(n) for j in range(n) if (i, j) not in met][:2]:
        edge[i, j] = -np.inf
    scores = FixedScores(edge, 0.2 * np.arange(n), np.full(n, -0.1))
    return replace(case, layout=replace(case.layout, fixed=scores))


@lru_cache(1)  # the same for all levels, which follow each other
def read_slowly(o: Options) -> tuple[LinearCase, dict[int, PrimalDual]]:
    """A case, and runs of the NumPy body by their number of epochs."""
    case = linear_case(np.random.default_rng(1), o)
    with choice.use("numpy"):
        return case, {epochs: after_epochs(case, epochs) for epochs in (0, 1, 3)}


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
@every_case
def test_the_bodies_agree(o: Options, level: int) -> None:
    case, runs = read_slowly(o)
    for epochs, within in ((0, 1e-5), (1, 1e-4), (3, 3e-3)):
        read = runs[epochs]
        with native_level(level):
            close(after_epochs(case, epochs), read, within)


@needs_native
def test_the_bodies_agree_with_fixed_scores_an_l1_penalty_and_free_intercepts() -> None:
    case = linear_case(np.random.default_rng(2), Options(labels=4, bias=True, lengths=LENGTHS))
    free = (~case.layout.intercepts).astype(np.uint8)
    for given, options in ((fixed(case), {}), (case, {"l1": 0.4}), (case, {"penalised": free})):
        with choice.use("numpy"):
            read = after_epochs(given, 1, **options)  # type: ignore[arg-type]
        with choice.use("native"):
            close(after_epochs(given, 1, **options), read)  # type: ignore[arg-type]


@needs_native
def test_transitions_that_spread_too_far_for_a_common_sweep() -> None:
    case = linear_case(np.random.default_rng(4), Options(labels=3, transition_pairs="all", lengths=LENGTHS))
    weights = np.zeros(case.layout.n_weights)
    weights[case.layout.part["transitions"]] = np.linspace(-400, 400, len(case.layout.pairs))
    states = []
    for name in ("numpy", "native"):
        with choice.use(name):
            state = PrimalDual(problem_of(case))
            state.set_weights(weights)
            state.fill()
            states.append(state)
    close(*states)


@every_case
def test_planes_lie_below_and_touch(o: Options, body: str) -> None:
    rng = np.random.default_rng(6)
    case = linear_case(rng, o)
    for given in (case, fixed(case)) if o.labels < 50 else (case,):
        problem = FusedChain(given.layout, given.batch, given.target)
        gradient = np.empty(given.layout.n_weights)
        state = PrimalDual(problem.compiled)
        weights = given.weights(rng).astype(np.float32).astype(float)
        state.set_weights(weights)
        state.fill()
        slope, height = state.plane()
        value = problem.evaluate(weights, gradient)
        np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-4)
        assert slope @ weights + height == pytest.approx(value, rel=1e-5, abs=1e-5)
        state.set_steps(np.full(len(weights), 0.3))
        state.epoch(np.arange(state.n_blocks), l2=1.0)
        slope, height = state.plane()
        np.testing.assert_allclose(slope, state.dual(), rtol=1e-3, atol=1e-3)
        for _ in range(5):
            there = given.weights(rng, scale=1.0)
            assert problem.evaluate(there, gradient) >= slope @ there + height - 1e-4


def test_the_curvature_is_that_of_the_problem(body: str) -> None:
    case = linear_case(np.random.default_rng(7), Options(labels=5, values=True, dense=2, bias=True, weighted=True))
    problem = problem_of(case)
    state = PrimalDual(problem)
    weights = case.weights(np.random.default_rng(8)).astype(np.float32).astype(float)
    state.set_weights(weights)
    state.fill()
    np.testing.assert_allclose(state.curvature(), problem.curvature(weights), rtol=1e-4, atol=1e-5)


def test_a_restored_run_goes_on_with_the_same_bits(body: str) -> None:
    case = linear_case(np.random.default_rng(9), Options(labels=4, bias=True, weighted=True))
    first = after_epochs(case)
    second = PrimalDual(problem_of(case), width=4)
    second.restore(first.weights(), first.dual(), first.steps(), first.table())
    for state in (first, second):
        state.epoch(np.arange(state.n_blocks), l2=0.7, lengths=False)
    assert (first.weights() == second.weights()).all()
    assert (first.table().node == second.table().node).all()


@pytest.mark.parametrize(
    ("o", "words"), [(Options(edge_columns=2), "edge features"), (Options(partial=True), "one known label")], ids=str
)
def test_what_it_cannot_do_is_refused(o: Options, words: str, body: str) -> None:
    case = linear_case(np.random.default_rng(0), o)
    problem = Problem(case.layout, case.batch, case.target.labels, case.target.allowed, None)
    with pytest.raises(ValueError, match=words):
        PrimalDual(problem)


def test_wrong_sizes_are_refused(body: str) -> None:
    case = linear_case(np.random.default_rng(0), Options())
    state = PrimalDual(problem_of(case))
    with pytest.raises(ValueError, match="block out of range"):
        state.epoch(np.array([state.n_blocks]))
    with pytest.raises(ValueError, match="does not fit"):
        state.set_weights(np.zeros(3))
    table = state.table()
    with pytest.raises(ValueError, match="table does not fit"):
        state.restore(state.weights(), state.dual(), state.steps(), replace(table, node=table.node[1:]))
    with pytest.raises(ValueError, match="width"):
        PrimalDual(problem_of(case), width=0)


def test_a_part_with_the_counts_of_the_whole_steps_like_the_whole(body: str) -> None:
    case = linear_case(np.random.default_rng(10), Options(labels=4, bias=True, weighted=True, lengths=LENGTHS))
    whole = PrimalDual(problem_of(case), width=1)
    whole.set_weights(case.weights(np.random.default_rng(11)))
    whole.fill()
    whole.set_steps(np.full(case.layout.n_weights, 0.2))
    chosen = np.array([3, 8, 13])
    taken = take_sequences(ChainParts.columns(case.layout, case.batch, case.target), chosen)
    part = PrimalDual(Problem(taken.layout, taken.batch, taken.target.labels, None, taken.target.weight), width=1)
    at = {int(s): k for k, s in enumerate(whole.sequences())}
    own = np.array([at[int(chosen[s])] for s in part.sequences()])
    lengths, table = case.batch.topology.lengths[whole.sequences()], whole.table()
    first = np.cumsum(lengths) - lengths
    node = np.concatenate([table.node[first[k] : first[k] + lengths[k]] for k in own])
    part.restore(whole.weights(), whole.dual(), whole.steps(), Table(node, table.pairs[own], table.told[own]))
    part.set_counts(whole.counts())
    np.testing.assert_array_equal(part.counts(), whole.counts())
    loss, other = part.epoch(np.arange(3), l2=0.7), whole.epoch(own, l2=0.7)
    assert loss == pytest.approx(other, rel=1e-6)
    np.testing.assert_allclose(part.weights(), whole.weights(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(part.dual(), whole.dual(), rtol=1e-5, atol=1e-5)
