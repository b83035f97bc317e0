"""`model.stream()`: every form of data, many streams, features in front, saved states, what is refused."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

from crfield import HMM, ChainCRF, ClassifierHMM, Recordings, Specification, TreeCRF, make_tag
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import FeatureError, InputError, NotFittedError, ShapeError
from crfield.inference.chain import ChainEngine


def signals(seed: int = 0, columns: int = 6) -> tuple[list[np.ndarray], list[list[str]]]:
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(4):
        states = np.repeat(rng.integers(3, size=12), rng.integers(2, 9, size=12))
        X.append(rng.normal(size=(len(states), columns)) * 2 + states[:, None] * np.arange(columns) + 1e3)
        y.append([("sit", "walk", "run")[k] for k in states])
    return X, y


def as_records(X: list[np.ndarray]) -> list[list[dict[str, Any]]]:
    return [[{"a": float(r[1]), "b": str(r[2] > 1002), "v": r[3:5]} for r in x] for x in X]


def as_strings(X: list[np.ndarray]) -> list[list[list[str]]]:
    return [[[f"a{int(r[1]) % 5}", f"b{r[2] > 1002}"] for r in x] for x in X]


def as_tokens(X: list[np.ndarray]) -> list[list[tuple[str, str]]]:
    return [[(f"{int(r[1]) % 5}", f"{r[2] > 1002}") for r in x] for x in X]


def before(x: Any, t: int) -> float:
    return float(x[t][1] - x[max(t - 2, 0)][1])


def here(x: Any, t: int) -> float:
    return float(x[t][5] / 1000)


MODELS: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "matrix": ({}, list, {}),
    "matrix, scaled": ({"standardize": True}, list, {}),
    "matrix, edges": ({"standardize": True, "transition_features": [1, 4]}, list, {}),
    "matrix, no boundaries": ({"boundaries": False, "intercept": False}, list, {}),
    "records": ({"standardize": True}, as_records, {}),
    "records, edges": ({"standardize": True, "transition_features": "all"}, as_records, {}),
    "strings": ({"transition_features": ["a1"]}, as_strings, {}),
    "template": ({"template": "U0:%x[0,0]\nU1:%x[-2,0]/%x[0,1]\nB\nB1:%x[-1,1]"}, as_tokens, {}),
    "functions": ({"functions": [before, here], "transition_functions": [before]}, list, {"history": 2}),
}


def fitted(case: str, **more: Any) -> tuple[Any, Any, dict[str, Any]]:
    options, form, opened = MODELS[case]
    X, y = signals()
    model = ChainCRF(l2=1.0, tol=1e-2, **{"standardize": False, **options}, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of different size are part of the matter
        model.fit(form(X), y)
    return model, form(signals(1)[0]), opened


@pytest.mark.parametrize("case", MODELS)
def test_a_model_streams_as_it_predicts(case: str) -> None:
    model, X, opened = fitted(case)
    stream = model.stream(lag=2, viterbi=True, **opened)
    scorer = model._step_scorer(**opened)
    labels = model.classes_.tolist()
    for x in X[:2]:
        potentials = model.potentials([x])
        free = Potentials(potentials.node.copy(), potentials.edge, potentials.topology, potentials.table)
        free.node[-1] -= scorer.end
        path: list[Any] = []
        for t, step in enumerate(x):
            now = stream.push(step)
            # a prefix whose last node has lost the score of the end
            cut = Chains.from_lengths([t + 1])
            edge = free.edge if free.shared else free.edge[:t]
            seen = Potentials(free.node[: t + 1], edge if t else free.edge[:1], cut)
            beliefs = ChainEngine().infer(seen, Semiring.LOG).node
            np.testing.assert_allclose(now.probabilities, beliefs[-1], rtol=0, atol=1e-10)
            assert now.step == t
            assert now.label == labels[int(np.argmax(now.probabilities))]
            if t < 2:
                assert now.smoothed is None
            else:
                np.testing.assert_allclose(now.smoothed, beliefs[t - 2], rtol=0, atol=1e-10)
            path += now.committed
            assert now.forced == 0
        end = stream.finish()
        np.testing.assert_allclose(end.smoothed, model.predict_proba([x])[0][-3:], rtol=0, atol=1e-10)
        assert [*path, *end.committed] == model.predict([x])[0].tolist()


@pytest.mark.parametrize("case", ["matrix, edges", "records, edges", "template", "functions"])
def test_many_streams_are_many_single_ones(case: str) -> None:
    model, X, opened = fitted(case)
    many, single = (
        model.streams(3, lag=1, viterbi=True, **opened),
        [model.stream(lag=1, viterbi=True, **opened) for _ in range(3)],
    )
    rng = np.random.default_rng(0)
    for t in range(20):
        which = np.flatnonzero(rng.random(3) < 0.8).tolist() or [0]
        if t == 10:
            many.reset([1])
            single[1].reset()
        together = many.push([X[b][t] for b in which], which=which)
        for k, b in enumerate(which):
            alone = single[b].push(X[b][t])
            np.testing.assert_allclose(together.probabilities[k], alone.probabilities, rtol=0, atol=1e-12)
            assert (together.steps[k], together.labels[k]) == (alone.step, alone.label)
            assert (together.committed[k], together.forced[k]) == (alone.committed, alone.forced)
            if alone.smoothed is None:
                assert np.isnan(together.smoothed[k]).all()
            else:
                np.testing.assert_allclose(together.smoothed[k], alone.smoothed, rtol=0, atol=1e-12)
    for b in range(3):
        ours, theirs = many.finish(b), single[b].finish()
        np.testing.assert_allclose(ours.smoothed, theirs.smoothed, rtol=0, atol=1e-12)
        assert ours.committed == theirs.committed


@pytest.mark.parametrize("case", ["matrix, edges", "template"])
def test_a_saved_state_goes_on_bit_for_bit(case: str) -> None:
    model, X, opened = fitted(case)
    options = {"lag": 3, "viterbi": True, "max_lag": 6, **opened}
    first = model.stream(**options)
    for step in X[0][:11]:
        first.push(step)
    state = json.loads(json.dumps(first.state(), allow_nan=False))
    second = model.stream(**options).restore(state)
    for step in X[0][11:]:
        ours, theirs = second.push(step), first.push(step)
        assert ours.probabilities.tobytes() == theirs.probabilities.tobytes()
        assert ours.smoothed is not None
        assert ours.smoothed.tobytes() == theirs.smoothed.tobytes()
        assert ours[0:2] + ours[4:] == theirs[0:2] + theirs[4:]
    assert second.finish().committed == first.finish().committed


def test_states_of_others_are_refused() -> None:
    model, X, _ = fitted("matrix")
    other, _, _ = fitted("matrix", l1=0.1)
    stream = model.stream(viterbi=True, max_lag=5)
    stream.push(X[0][0])
    state = stream.state()
    with pytest.raises(InputError, match="another model"):
        other.stream(viterbi=True, max_lag=5).restore(state)
    for options in ({}, {"viterbi": True}, {"viterbi": True, "max_lag": 5, "lag": 1}):
        with pytest.raises(InputError, match="of other streams"):
            model.stream(**options).restore(state)
    with pytest.raises(InputError, match="not the state"):
        model.stream().restore({})
    fresh = model.stream(viterbi=True, max_lag=5)
    for name, value in (
        ("back", [9] * 18),
        ("back", [0.5] * 18),
        ("alpha", [float("nan")] * 3),
        ("alpha", ["x"] * 3),
        ("alpha", []),
        ("steps", [2**70]),
        ("oldest", [99]),
        ("total", None),
    ):
        with pytest.raises(InputError, match="damaged"):
            fresh.restore({**state, "chains": {**state["chains"], name: value}})
    assert fresh.push(X[0][0]).step == 0
    with pytest.raises(InputError, match="damaged"):
        fresh.restore({**state, "pasts": [[1, 2]]})


def test_what_cannot_stream_says_why() -> None:
    X, y = signals()
    with pytest.raises(NotFittedError):
        ChainCRF().stream()
    ahead = ChainCRF(template="U0:%x[0,0]\nU1:%x[1,0]", tol=1e-2).fit(as_tokens(X), y)
    with pytest.raises(InputError, match="looks 1 steps ahead"):
        ahead.stream()
    model, _, _ = fitted("functions")
    with pytest.raises(InputError, match="history=k"):
        model.stream()
    plain = ChainCRF(label_functions=[lambda b, a, x, t: float(a == b)], tol=1e-2).fit(["ab"], [["A", "B"]])
    with pytest.raises(InputError, match="functions of two labels"):
        plain.stream()
    trees = TreeCRF(n_rounds=2, window=1).fit(X, y)
    with pytest.raises(InputError, match="1 steps ahead"):
        trees.stream()


def test_observations_that_do_not_fit() -> None:
    model, X, _ = fitted("matrix")
    stream = model.stream()
    with pytest.raises(ShapeError, match="6 numbers"):
        stream.push([1.0, 2.0])
    with pytest.raises(FeatureError, match=r"column 2 .* got nan"):
        stream.push([1.0, 2.0, np.nan, 1.0, 1.0, 1.0])
    with pytest.raises(FeatureError, match="6 numbers"):
        stream.push(["a"] * 6)
    with pytest.raises(InputError, match="features="):
        stream.push(X[0][0], velocities=1)
    assert stream.push(X[0][0]).step == 0
    streams = model.streams(2)
    for observations, which in ((X[0][:1], None), (X[0][:2], [1, 0]), (X[0][:1], [2]), (X[0][:1], [0.5]), ([], [])):
        with pytest.raises(InputError):
            streams.push(observations, which=which)
    for options in ({"lag": -1}, {"max_lag": 1.5}, {"lag": True}):
        with pytest.raises(InputError, match="must be an integer ≥"):
            model.stream(**options)


def test_one_class_and_unseen_words() -> None:
    model = ChainCRF(tol=1e-2).fit([[["a"], ["b"]]], [["only", "only"]])
    stream = model.stream(viterbi=True)
    now = stream.push(["never seen"])
    assert (now.label, now.probabilities.tolist(), now.committed) == ("only", [1.0], ("only",))
    assert stream.finish().committed == ()
    assert stream.finish().smoothed.shape == (0, 1)


@pytest.mark.parametrize("name", ["trees", "trees on edges", "classifier", "hmm", "hmm of dicts"])
def test_other_chains_stream_too(name: str) -> None:
    from sklearn.linear_model import LogisticRegression

    X, y = signals()
    model: Any = {
        "trees": TreeCRF(n_rounds=3),
        "trees on edges": TreeCRF(n_rounds=3, transitions="trees"),
        "classifier": ClassifierHMM(LogisticRegression(), standardize=True, smoothing=0.0),
        "hmm": HMM(decode="viterbi", smoothing=0.0),
        "hmm of dicts": HMM(decode="viterbi"),
    }[name]
    form = as_records if name == "hmm of dicts" else list
    model.fit(form(X), y)
    stream, x = model.stream(lag=1, viterbi=True), form(signals(1)[0])[0]
    path = [label for step in x for label in stream.push(step).committed]
    end = stream.finish()
    np.testing.assert_allclose(end.smoothed, model.predict_proba([x])[0][-2:], rtol=0, atol=1e-10)
    assert [*path, *end.committed] == model.predict([x])[0].tolist()
    state = json.loads(json.dumps(stream.state()))
    assert model.stream(lag=1, viterbi=True).restore(state).push(x[0]).step == 0


def test_trajectories_in_labels_out() -> None:
    """A feature stream in front of a model: raw positions are pushed, and it goes on after a save."""
    game = make_tag(0.5, random_state=1)
    text = "chase state : cosang(rel(a,b),vel(a)) | for a in robots, b in robots | where a<b | win mean 9 | lag 0"
    catalogue = Specification.parse(text).expand(labels=3, agents=3)
    columns = np.arange(catalogue.n_columns)
    table = catalogue.on(Recordings.of(game.positions, rate=60.0)).chunk(columns)
    model = ChainCRF(standardize=True, transition_features=[0], tol=1e-2).fit([table], [game.labels])
    stream = model.stream(lag=5, features=catalogue.stream(columns, rate=60.0))
    shown = [stream.push(step).probabilities for step in game.positions[:200]]
    columns_only = model.stream(lag=5)
    np.testing.assert_allclose(shown, [columns_only.push(row).probabilities for row in table[:200]], atol=1e-9)
    state = json.loads(json.dumps(stream.state()))
    again = model.stream(lag=5, features=catalogue.stream(columns, rate=60.0)).restore(state)
    for step in game.positions[200:240]:
        assert stream.push(step).probabilities.tobytes() == again.push(step).probabilities.tobytes()
    with pytest.raises(InputError, match="features="):
        model.stream(lag=5).restore(state)
    stream.reset()
    np.testing.assert_array_equal(stream.push(game.positions[0]).probabilities, shown[0])


def test_memory_does_not_grow() -> None:
    """Neither objects nor arrays are left behind; the million is in ``python -m benchmarks streaming``."""
    model, X, _ = fitted("matrix, edges")
    stream, x = model.stream(lag=3, viterbi=True, max_lag=20), np.concatenate(X)

    def run(steps: int) -> None:
        for t in range(steps):
            stream.push(x[t % len(x)])

    run(500)
    tracemalloc.start()
    run(500)
    before = tracemalloc.get_traced_memory()[0]
    run(4_000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 2_000
    assert len(json.dumps(stream.state())) < 10_000
