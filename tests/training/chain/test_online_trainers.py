"""`ChainCRF` by online trainers: what they learn, seeds, weights, partial labels, rules, options and ends."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from crfield import ChainCRF, load
from crfield.errors import ConvergenceWarning, InputError, LabelError

X = [
    [{"word": "the"}, {"word": "dog"}, {"word": "barks"}],
    [{"word": "a"}, {"word": "cat"}],
    [],
    [{"word": "the"}, {"word": "cat"}, {"word": "sleeps"}],
    [{"word": "sleeps"}],
]
Y = [["D", "N", "V"], ["D", "N"], [], ["D", "N", "V"], ["V"]]
SOLVERS = ("sgd", "sgd_l1", "adagrad", "perceptron", "passive_aggressive", "arow", "frank_wolfe")
LATENT = tuple(name for name in SOLVERS if name != "frank_wolfe")
MOVED = ("perceptron", "passive_aggressive", "arow")


def fitted(solver: str, *, labels: Any = Y, **options: Any) -> ChainCRF:
    return ChainCRF(solver=solver, **{"l2": 0.1, "tol": 1e-3, **options}).fit(X, labels)


@pytest.mark.parametrize("solver", SOLVERS)
def test_they_learn_what_can_be_learnt(solver: str, tmp_path: Any) -> None:
    model = fitted(solver)
    assert [labels.tolist() for labels in model.predict(X)] == Y
    assert model.converged_
    assert len(model.history_) == model.n_iter_
    assert np.isfinite(model.objective_)
    model.save(tmp_path / "model.crf")
    for copy in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.crf")):
        assert [labels.tolist() for labels in copy.predict(X)] == Y
    assert clone(model).solver == solver


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_seed_decides_and_nothing_else(solver: str) -> None:
    first, again = fitted(solver, random_state=3), fitted(solver, random_state=3, n_jobs=2)
    np.testing.assert_array_equal(first.coef_, again.coef_)


@pytest.mark.parametrize("solver", LATENT)
def test_labels_that_are_partly_known(solver: str) -> None:
    unsure = [["D", None, "V"], ["D", "N"], [], ["D", "N", {"V", "N"}], ["V"]]
    model = fitted(solver, labels=unsure)
    assert [labels.tolist() for labels in model.predict(X)] == Y


def test_the_dual_wants_complete_labels_and_a_ridge() -> None:
    with pytest.raises(InputError, match="one gold label at every step"):
        fitted("frank_wolfe", labels=[["D", None, "V"], *Y[1:]])
    for options in ({"l2": 0.0}, {"penalize_intercepts": False}):
        with pytest.raises(InputError, match="ridge on all weights"):
            fitted("frank_wolfe", **options)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_sees_every_pass_and_may_end_it(solver: str) -> None:
    seen: list[int] = []

    def watch(step: Any, weights: np.ndarray) -> bool:
        seen.append(step.n_iter)
        assert not weights.flags.writeable
        return len(seen) == 2

    model = fitted(solver, callback=watch, tol=1e-12)
    assert seen == [1, 2]
    assert model.stop_reason_ == "callback"


def test_passes_that_are_wanted_and_allowed() -> None:
    assert fitted("sgd", solver_options={"epochs": 4}).n_iter_ == 4
    with pytest.warns(ConvergenceWarning):
        model = fitted("sgd", solver_options={"epochs": 4}, max_iter=3)
    assert (model.n_iter_, model.stop_reason_) == (3, "max_iter")
    assert fitted("perceptron").stop_reason_ == "tolerance"  # a pass without a mistake


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("perceptron", {"variant": "PA"}),
        ("perceptron", {"epochs": 0}),
        ("perceptron", {"averaged": 1}),
        ("passive_aggressive", {"variant": "PA-III"}),
        ("passive_aggressive", {"C": -1.0}),
        ("arow", {"r": float("nan")}),
        ("sgd", {"batch_size": 100}),
        ("sgd_l1", {"decay": 2.0}),
        ("adagrad", {"rate": "fast"}),
        ("frank_wolfe", {"epochs": 3}),
        ("lbfgs", {"epochs": 3}),
    ],
    ids=str,
)
def test_options_that_make_no_sense(solver: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        fitted(solver, solver_options=options)


def test_options_that_do() -> None:
    variants = [
        fitted("passive_aggressive", solver_options={"variant": variant, "C": 0.05})
        for variant in ("PA", "PA-I", "PA-II")
    ]
    assert len({model.coef_.tobytes() for model in variants}) == 3
    last = fitted("perceptron", solver_options={"averaged": False})
    assert np.array_equal(last.coef_, last.coef_.round())  # sums of whole numbers
    assert not np.array_equal(fitted("perceptron").coef_, last.coef_)
    assert [labels.tolist() for labels in fitted("sgd", solver_options={"batch_size": 3}).predict(X)] == Y


@pytest.mark.parametrize("solver", ["sgd", "adagrad", "frank_wolfe"])
def test_weights_of_sequences_stand_for_repeats(solver: str) -> None:
    """Optima of weighted and of repeated sequences are the same; here as near as each trainer comes."""
    objective = "hinge" if solver == "frank_wolfe" else "likelihood"
    options: dict[str, Any] = {"solver": solver, "objective": objective, "l2": 2.0, "tol": 1e-4, "max_iter": 400}
    if solver != "frank_wolfe":
        options["solver_options"] = {"epochs": 200, "rate": 0.5}
    weighted = ChainCRF(**options).fit(X[:2], Y[:2], sample_weight=[3.0, 1.0])
    repeated = ChainCRF(**options).fit([X[0], X[0], X[0], X[1]], [Y[0], Y[0], Y[0], Y[1]])
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-2)
    plain = ChainCRF(**options).fit(X[:2], Y[:2])
    assert weighted.objective_ != pytest.approx(plain.objective_, rel=3e-2)


def test_gradient_trainers_come_near_the_optimum() -> None:
    best = ChainCRF(l2=0.5, solver="lbfgs", tol=1e-8).fit(X, Y).objective_
    for solver, allowed in (("sgd", 0.02), ("adagrad", 0.02), ("sgd_l1", 0.05)):
        found = fitted(solver, l2=0.5, tol=1e-9, solver_options={"epochs": 100}).objective_
        assert best <= found <= best * (1 + allowed), solver


def test_an_l1_penalty_leaves_few_weights() -> None:
    dense, sparse = fitted("sgd_l1", l2=0.0), fitted("sgd_l1", l2=0.0, l1=0.3)
    assert np.count_nonzero(sparse.coef_) < 0.7 * np.count_nonzero(dense.coef_)
    assert sparse.history_[-1].n_active == np.count_nonzero(sparse.coef_)
    dense, small = fitted("adagrad", l2=0.0), fitted("adagrad", l2=0.0, l1=0.3)
    assert np.abs(small.coef_).sum() < 0.6 * np.abs(dense.coef_).sum()
    with pytest.raises(InputError, match="no l1 penalty"):
        fitted("perceptron", l1=0.1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rules_hold_in_training(solver: str) -> None:
    model = fitted(solver, constraints=[("N", "N"), ("V", "D")])
    assert [labels.tolist() for labels in model.predict(X)] == Y


@pytest.mark.parametrize("solver", ["perceptron", "passive_aggressive", "adagrad", "frank_wolfe"])
def test_features_of_edges_and_numbers(solver: str) -> None:
    rng = np.random.default_rng(0)
    states = [np.cumsum(rng.random(8) < 0.4) % 2 for _ in range(12)]
    data = [np.column_stack([s + 0.3 * rng.standard_normal(8), rng.standard_normal(8)]) for s in states]
    model = ChainCRF(solver=solver, transition_features="all", l2=0.5, tol=1e-2).fit(data, states)
    right = np.mean(np.concatenate(list(model.predict(data))) == np.concatenate(states))
    assert right > 0.9


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_label_alone_and_nothing_but_single_steps(solver: str) -> None:
    one = fitted(solver, labels=[["D"] * len(y) for y in Y])
    assert [labels.tolist() for labels in one.predict(X[:2])] == [["D"] * 3, ["D"] * 2]
    short = ChainCRF(solver=solver, tol=1e-2).fit([[{"a"}], [{"b"}]], [[1], [2]])
    assert [labels.tolist() for labels in short.predict([[{"b"}], [{"a"}]])] == [[2], [1]]


@pytest.mark.parametrize("solver", MOVED)
def test_it_goes_on_from_where_it_was(solver: str) -> None:
    model = ChainCRF(solver=solver, warm_start=True).fit(X, Y)
    model.fit(X, Y)
    assert (model.n_iter_, model.stop_reason_) == (1, "tolerance")


def test_steps_that_run_away_say_so() -> None:
    for solver in ("sgd", "adagrad"):
        with pytest.raises(InputError, match="smaller rate"):
            fitted(solver, l2=0.0, solver_options={"rate": 1e308})


def test_labels_that_the_rules_leave_no_way_for() -> None:
    rules = [("D", "N"), ("D", "V"), ("D", "D")]
    unsure = [["D", None, None], [None, "N"], [], ["V", "N", "V"], ["V"]]
    for solver in LATENT:
        with pytest.raises(LabelError):
            fitted(solver, labels=unsure, constraints=rules)


def test_models_without_columns_say_so() -> None:
    functions = [lambda before, label, x, t: float(label == x[t])]
    with pytest.raises(InputError, match="models of columns"):
        ChainCRF(label_functions=functions, solver="perceptron").fit([["D", "N"]], [["D", "N"]])
