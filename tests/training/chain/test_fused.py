"""The fused training problem against score, infer, pull one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.kernels import choice
from crfield.objectives.contrast import Contrast, Engine
from crfield.optimize.penalty import Penalty
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain, choose
from tests.cases.chains import EACH_OPTION, LinearCase, Options, examples, linear_case, options

pytestmark = pytest.mark.usefixtures("body")


def unfused(case: LinearCase, engine: Engine) -> FullBatch:
    return FullBatch(LinearScorer(case.layout), case.batch, case.target, objective=Contrast(), engine=engine)


def assert_fused_is_unfused(case: LinearCase, weights: np.ndarray, *, engine: Engine, n_jobs: int = 1) -> None:
    fused, plain = FusedChain(case.layout, case.batch, case.target, n_jobs=n_jobs), unfused(case, engine)
    assert fused.n_weights == plain.n_weights == len(weights)
    gradient, expected = np.full(len(weights), np.nan), np.full(len(weights), np.nan)
    value, other = fused.evaluate(weights, gradient), plain.evaluate(weights, expected)
    np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("o", EACH_OPTION, ids=str)
def test_fused_equals_unfused(o: Options, n_jobs: int) -> None:
    rng = np.random.default_rng(0)
    case = linear_case(rng, o)
    assert_fused_is_unfused(case, case.weights(rng), engine=ChainEngine(n_jobs), n_jobs=n_jobs)


@examples(40)
@given(options(), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 2**32))
def test_fused_equals_unfused_on_any_mixture(o: Options, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = linear_case(rng, o)
    assert_fused_is_unfused(case, case.weights(rng, scale), engine=ChainEngine())


@pytest.mark.parametrize("o", [x for x in EACH_OPTION if x.labels <= 3], ids=str)
def test_fused_equals_the_oracle(o: Options) -> None:
    rng = np.random.default_rng(1)
    case = linear_case(rng, replace(o, lengths=tuple(min(length, 4) for length in o.lengths)))
    assert_fused_is_unfused(case, case.weights(rng), engine=BruteEngine())


@pytest.mark.parametrize("labels", [22, 50])
def test_fused_equals_unfused_with_many_labels(labels: int) -> None:
    rng = np.random.default_rng(2)
    for o in (Options(columns=200, bias=True), Options(partial=True, weighted=True), Options(edge_columns=2)):
        case = linear_case(rng, replace(o, labels=labels))
        assert_fused_is_unfused(case, case.weights(rng), engine=ChainEngine())


def test_both_forget_the_last_point() -> None:
    """Evaluating elsewhere in between changes nothing: no state is kept from call to call."""
    rng = np.random.default_rng(3)
    case = linear_case(rng, Options(partial=True, values=True, dense=2))
    here, there = case.weights(rng), case.weights(rng, 3.0)
    for problem in (FusedChain(case.layout, case.batch, case.target), unfused(case, ChainEngine())):
        first, second = np.empty(len(here)), np.full(len(here), 1e9)
        value = problem.evaluate(here, first)
        problem.evaluate(there, second)
        if isinstance(problem, FusedChain):
            problem.curvature(there)
            problem.descend(there.copy(), np.array([0]), step=0.1, done=0.0, horizon=1.0, l2=1.0)
        assert problem.evaluate(here, second) == value
        np.testing.assert_array_equal(first, second)


RIDGE = Penalty(l2=1.0)


def test_solvers_are_chosen_by_what_the_problem_can_do() -> None:
    rng = np.random.default_rng(4)
    small = linear_case(rng, Options())
    many = linear_case(rng, Options(lengths=(2,) * 400))
    edges = linear_case(rng, Options(lengths=(2,) * 400, edge_dense=1))
    fused = {name: FusedChain(c.layout, c.batch, c.target) for name, c in (("s", small), ("m", many), ("e", edges))}
    start = np.zeros(fused["m"].n_weights)
    many_sequences = "primal_dual" if choice.chosen() == "native" else "warm"
    assert choose("auto", fused["s"], start=None, penalty=RIDGE) == "lbfgs"
    assert choose("auto", fused["m"], start=None, penalty=RIDGE) == many_sequences
    assert choose("auto", fused["m"], start=start, penalty=RIDGE) == "lbfgs"
    assert choose("auto", fused["e"], start=None, penalty=RIDGE) == "lbfgs"
    assert choose("auto", unfused(many, ChainEngine()), start=None, penalty=RIDGE) == "lbfgs"
    assert choose("lbfgs", fused["m"], start=None, penalty=RIDGE) == "lbfgs"
    for problem in (fused["e"], unfused(many, ChainEngine())):
        with pytest.raises(InputError, match="stochastic steps"):
            choose("warm", problem, start=None, penalty=RIDGE)
    with pytest.raises(InputError, match="'sgd'"):
        choose("sgd", fused["m"], start=None, penalty=RIDGE)
