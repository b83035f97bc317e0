"""What training of an estimator promises: weights, partial labels, stopping, seeing, interrupting, repeating."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import ChainCRF
from crfield.errors import ConvergenceWarning
from tests.cases.estimators import (
    KINDS,
    Kind,
    as_arrays,
    as_dicts,
    as_strings,
    exact,
    same,
    world,
)

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)


# ------------------------------------------------------------------- sequence weights


@each_kind
def test_weight_two_means_twice(kind: Kind) -> None:
    """With scaling left aside, which sees a sequence once whatever its weight."""
    raw, y = world()
    weight = np.array([1.0, 2.0] * 7)
    twice_X = [x for x, w in zip(raw, weight, strict=True) for _ in range(int(w))]
    twice_y = [labels for labels, w in zip(y, weight, strict=True) for _ in range(int(w))]
    weighted = kind.model(standardize=False).fit(kind.write(raw), y, sample_weight=weight)
    repeated = kind.model(standardize=False).fit(kind.write(twice_X), twice_y)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)
    np.testing.assert_allclose(
        weighted.log_prob(kind.write(raw), y), repeated.log_prob(kind.write(raw), y), atol=1e-4
    )
    plain = kind.model(standardize=False).fit(kind.write(raw), y)
    assert abs(plain.objective_ - weighted.objective_) > 1


@each_kind
def test_weight_zero_means_left_out(kind: Kind) -> None:
    """Entirely: its labels, features, label pairs and scales leave no trace."""
    raw, y = world()
    odd = [[("wX", "X", np.array([1e5, 1e5]))] * 3]
    X, labels = kind.write(odd + raw), [["A", "Q", "A"], *y]
    weight = np.array([0.0] + [1.5] * len(raw))
    with_zero = kind.model().fit(X, labels, sample_weight=weight)
    without = kind.model().fit(kind.write(raw), y, sample_weight=weight[1:])
    assert with_zero.classes_.tolist() == ["A", "B", "C"]
    assert with_zero.objective_ == pytest.approx(without.objective_, rel=1e-12)
    assert len(with_zero.coef_) == len(without.coef_)
    found, expected = (model.log_prob(kind.write(raw), y) for model in (with_zero, without))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_weights_of_one_change_nothing() -> None:
    raw, y = world()
    plain = exact().fit(as_dicts(raw), y)
    ones = exact().fit(as_dicts(raw), y, sample_weight=[1] * len(raw))
    assert ones.objective_ == pytest.approx(plain.objective_, rel=1e-12)


# --------------------------------------------------------------------- partial labels


@each_kind
def test_steps_without_labels_still_inform(kind: Kind) -> None:
    raw, y = world(20)
    partial: list[Any] = [[label if (s + t) % 3 else None for t, label in enumerate(x)] for s, x in enumerate(y)]
    X = kind.write(raw)
    model = kind.model().fit(X, partial)
    assert model.converged_
    assert model.classes_.tolist() == ["A", "B", "C"]
    assert model.score(X, y) > 0.5
    ridge = 0.5 * model.l2 * float(model.coef_ @ model.coef_)
    assert model.objective_ == pytest.approx(ridge - model.log_prob(X, partial).sum(), rel=1e-9)


def test_sets_of_allowed_labels() -> None:
    raw, y = world(20)
    X = as_strings(raw)
    whole = exact(feature_pairs="all", transition_pairs="all").fit(X, y)
    single = exact(feature_pairs="all", transition_pairs="all").fit(X, [[{label} for label in x] for x in y])
    assert np.array_equal(whole.coef_, single.coef_)
    unsure: list[Any] = [[{label, "A"} if t % 2 else label for t, label in enumerate(x)] for x in y]
    loose = exact(feature_pairs="all", transition_pairs="all").fit(X, unsure)
    ridge = 0.5 * loose.l2 * float(loose.coef_ @ loose.coef_)
    assert loose.objective_ == pytest.approx(ridge - loose.log_prob(X, unsure).sum(), rel=1e-9)
    assert loose.objective_ < whole.objective_
    everything = exact(feature_pairs="all", transition_pairs="all").fit(
        X, y[:5] + [[{"A", "B", "C"}] * len(x) for x in y[5:]]
    )
    alone = exact(feature_pairs="all", transition_pairs="all").fit(X[:5], y[:5])
    assert alone.classes_.tolist() == ["A", "B", "C"]
    assert everything.objective_ == pytest.approx(alone.objective_, rel=1e-8)


# ----------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "names",
    [
        ("A", "B", "C"),
        (0, 1, 2),
        (-5, 7, 2**62),
        ("Ünïcode ✓", "", "\n"),
        (("B", 1), ("I", 1), ("O", 0)),
        (("a",), ("a", "b"), ()),
        (1.5, 2.5, float("inf")),
        ("x", 3, ("y", 2)),
        (True, "true", 0.5),
    ],
    ids=str,
)
def test_labels_are_any_hashables(names: tuple[Any, ...]) -> None:
    raw, y = world()
    X = as_strings(raw)
    code = {"A": names[0], "B": names[1], "C": names[2]}
    renamed = [[code[label] for label in labels] for labels in y]
    model, plain = exact().fit(X, renamed), exact().fit(X, y)
    assert set(model.classes_.tolist()) == set(names)
    expected = [[code[label] for label in labels.tolist()] for labels in plain.predict(X)]
    found = model.predict(X)
    assert [labels.tolist() for labels in found] == expected
    assert [[type(label) for label in labels] for labels in map(np.ndarray.tolist, found)] == [
        [type(label) for label in labels] for labels in expected
    ]
    assert all(labels.ndim == 1 for labels in found)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    assert set(model.predict_marginals(X)[0][0]) == set(names)
    assert model.top_features(1, label=names[1])[0].label == names[1]
    assert model.score(X, renamed) == plain.score(X, y)


def test_label_arrays_are_taken_and_returned() -> None:
    raw, y = world()
    X = as_strings(raw)
    numbers = [np.array(["ABC".index(label) for label in labels], dtype=np.int16) for labels in y]
    model = ChainCRF().fit(X, numbers)
    assert model.classes_.dtype == np.int64
    assert all(labels.dtype == np.int64 for labels in model.predict(X))
    strings = ChainCRF().fit(X, [np.array(labels) for labels in y])
    assert all(labels.dtype == np.dtype("<U1") for labels in strings.predict(X))


# ---------------------------------------------------------------------------- solvers


@pytest.mark.parametrize("options", [{"l1": 0.0}, {"l1": 0.7}, {"l1": 0.7, "l2": 0.0}], ids=str)
def test_every_solver_finds_the_same_optimum(options: dict[str, Any]) -> None:
    raw, y = world(400, seed=3)
    found = [exact(solver=solver, **options).fit(as_strings(raw), y) for solver in ("auto", "lbfgs", "warm")]
    values = [model.objective_ for model in found]
    assert max(values) == pytest.approx(min(values), rel=1e-7)
    if options["l1"]:
        assert (found[0].coef_ == 0).sum() > 10


def test_the_default_tolerance_keeps_its_word() -> None:
    raw, y = world(200, seed=4)
    best = exact().fit(as_strings(raw), y).objective_
    for solver in ("auto", "lbfgs", "warm"):
        for tol in (1e-2, 1e-4):
            model = ChainCRF(solver=solver, tol=tol).fit(as_strings(raw), y)
            assert model.converged_
            assert best <= model.objective_ * (1 + 1e-9)
            assert model.objective_ <= best * (1 + tol)


def test_too_few_steps_are_reported() -> None:
    raw, y = world()
    with pytest.warns(ConvergenceWarning, match=r"max_iter, 2 steps, objective .*Raise max_iter or tol"):
        model = exact(max_iter=2).fit(as_strings(raw), y)
    assert model.converged_ is False
    assert model.stop_reason_ == "max_iter"
    assert model.n_iter_ == 2
    assert model.predict(as_strings(raw)).shape == (14,)


# ------------------------------------------------------------------------ warm starts


@each_kind
def test_warm_start_goes_on_from_the_last_weights(kind: Kind) -> None:
    X, y = kind.data(20)
    cold = kind.model().fit(X, y)
    warm = kind.model(warm_start=True).fit(X, y)
    assert warm.n_iter_ == cold.n_iter_
    warm.fit(X, y)
    assert warm.n_iter_ <= 3 < cold.n_iter_
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-8)
    warm.set_params(l2=1.1).fit(X, y)
    other = kind.model(l2=1.1).fit(X, y)
    assert warm.objective_ == pytest.approx(other.objective_, rel=1e-8)
    assert warm.n_iter_ <= other.n_iter_


def test_warm_start_after_an_interruption_ends_where_one_run_does() -> None:
    raw, y = world(30)
    X = as_strings(raw)
    model = exact(warm_start=True, callback=lambda step, weights: step.n_iter >= 5).fit(X, y)
    assert model.stop_reason_ == "callback"
    model.set_params(callback=None).fit(X, y)
    assert model.objective_ == pytest.approx(exact().fit(X, y).objective_, rel=1e-8)


def test_warm_start_keeps_the_labels_and_features_it_knows() -> None:
    """Fewer labels in the second data must not renumber them; new ones join behind them."""
    raw, y = world(20)
    X = as_strings(raw)
    model = exact(warm_start=True).fit(X, y)
    few = [(x, labels) for x, labels in zip(X, y, strict=True) if "A" not in labels]
    model.fit([x for x, _ in few], [labels for _, labels in few])
    assert model.classes_.tolist() == ["A", "B", "C"]
    assert model.predict_proba(X)[0].shape[1] == 3
    assert len(model.coef_) == len(exact().fit(X, y).coef_)
    model.fit(X[:1], [["Aa"] * len(X[0])])
    assert model.classes_.tolist() == ["A", "B", "C", "Aa"]
    assert model.predict(X[:1])[0].tolist() == ["Aa"] * len(X[0])


# -------------------------------------------------------------- callbacks and progress


def test_the_callback_sees_every_step() -> None:
    raw, y = world()
    steps: list[Any] = []
    sizes = set()

    def look(step: Any, weights: np.ndarray) -> None:
        steps.append(step)
        sizes.add(weights.shape)
        with pytest.raises(ValueError, match="read-only"):
            weights[0] = 7.0

    model = exact(callback=look).fit(as_strings(raw), y)
    assert [step.n_iter for step in steps] == list(range(1, model.n_iter_ + 1))
    assert steps == model.history_
    assert sizes == {model.coef_.shape}
    values = [step.value for step in steps]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))
    assert all(a.seconds <= b.seconds for a, b in pairwise(steps))


def test_the_callback_may_end_training() -> None:
    raw, y = world()
    model = exact(callback=lambda step, weights: step.n_iter == 3).fit(as_strings(raw), y)  # without a warning
    assert model.n_iter_ == 3
    assert model.stop_reason_ == "callback"
    assert model.converged_ is False
    assert model.predict(as_strings(raw)).shape == (14,)


def test_an_error_in_the_callback_is_the_users_own() -> None:
    raw, y = world()

    def fail(step: Any, weights: np.ndarray) -> None:
        raise ZeroDivisionError("mine")

    model = exact(callback=fail)
    with pytest.raises(ZeroDivisionError, match="mine"):
        model.fit(as_strings(raw), y)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("verbose", [1, True, 2])
def test_progress_goes_to_the_standard_error(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    raw, y = world()
    model = exact(verbose=verbose).fit(as_strings(raw), y)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert f"step {model.n_iter_}  objective" in lines[-1]
    assert len(lines) == (model.n_iter_ if verbose == 2 else 1)


def test_silence_is_the_default(capfd: pytest.CaptureFixture[str]) -> None:
    raw, y = world()
    exact().fit(as_strings(raw), y).predict(as_strings(raw))
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------- interruptions


def interrupt_at(number: int) -> Any:
    def callback(step: Any, weights: np.ndarray) -> None:
        if step.n_iter == number:
            raise KeyboardInterrupt

    return callback


@each_kind
def test_an_interruption_leaves_the_best_weights_so_far(kind: Kind) -> None:
    X, y = kind.data()
    with pytest.warns(ConvergenceWarning, match="interrupted, 4 steps"):
        model = kind.model(callback=interrupt_at(4)).fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert model.converged_ is False
    assert model.n_iter_ == 4
    ridge = 0.5 * model.l2 * float(model.coef_ @ model.coef_)
    assert model.objective_ == pytest.approx(ridge - model.log_prob(X, y).sum(), rel=1e-9)
    assert model.objective_ == model.history_[-1].value == min(step.value for step in model.history_)
    assert model.predict(X).shape == (len(y),)


LONG_FIT = """
import signal, warnings
from crfield import ChainCRF
from tests.cases.estimators import as_strings, world

raw, y = world(3000)
X = as_strings(raw)
def ready(step, weights):
    if step.n_iter == 1:
        print("ready", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told us to ignore it
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    model = ChainCRF(solver="lbfgs", l2=1e-9, tol=1e-300, max_iter=10**9, callback=ready).fit(X, y)
print(model.stop_reason_, model.n_iter_ > 0, model.score(X, y) > 0.5, [w.category.__name__ for w in caught])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_real_ctrl_c_ends_a_long_fit() -> None:
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", LONG_FIT], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0, err
    assert out == "interrupted True True ['ConvergenceWarning']\n", err


# -------------------------------------------------------------------- reproducibility


@each_kind
def test_the_same_seed_gives_the_same_bits(kind: Kind) -> None:
    X, y = kind.data(20)
    one, other = kind.model().fit(X, y), kind.model().fit(X, y)
    assert one.coef_.tobytes() == other.coef_.tobytes()
    assert [step.value for step in one.history_] == [step.value for step in other.history_]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_stochastic_start_follows_its_seed(n_jobs: int) -> None:
    raw, y = world(500, seed=5)
    X = as_strings(raw)

    def bits(seed: Any) -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return ChainCRF(solver="warm", max_iter=3, random_state=seed, n_jobs=n_jobs).fit(X, y).coef_.tobytes()

    assert bits(0) == bits(0)
    assert bits(0) != bits(1)
    assert bits(np.random.default_rng(7)) == bits(np.random.default_rng(7)) == bits(7)


@pytest.mark.parametrize("solver", ["lbfgs", "warm"])
def test_threads_do_not_change_the_objective(solver: str) -> None:
    raw, y = world(500, seed=6)
    for write, options in ((as_strings, {}), (as_arrays, {}), (as_strings, {"l1": 0.5})):
        X = write(raw)
        found = [exact(solver=solver, n_jobs=n, **options).fit(X, y) for n in (1, 2)]
        assert found[0].objective_ == pytest.approx(found[1].objective_, rel=1e-8)
        assert same(found[0].predict(X), found[1].predict(X))
