"""Latent states of labels: enumeration, slopes, the plain chain as a special case, EM that never falls back."""

from __future__ import annotations

import contextlib
import io
import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import crfield
from crfield import ChainCRF, LatentDynamicCRF, make_sub_structure
from crfield.core.states import StateSpace, count_for_each
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import ConvergenceWarning, CrfieldError, InputError, LabelError, ModelFileError
from crfield.optimize.history import CALLBACK
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.latent.best import fit_best
from crfield.training.latent.chain import LatentChain
from crfield.training.latent.em import fit_em
from tests.cases.estimators import KINDS, Kind, as_arrays, as_strings, world
from tests.cases.model_file_fuzz import edited

saved_kinds = pytest.mark.parametrize("kind", [k for k in KINDS if k.saved], ids=lambda kind: kind.name)


def small_problem(*, partial: bool = False, weighted: bool = False, edges: bool = False) -> LatentChain:
    """Labels of 2, 1 and 2 states on chains of lengths 3, 1, 0 and 2, with sparse and dense columns."""
    rng = np.random.default_rng(4)
    chains = Chains.from_lengths([3, 1, 0, 2])
    node = Columns(
        np.arange(0, 13, 2), rng.integers(0, 4, 12).astype(np.int32), 4, rng.normal(size=12), rng.normal(size=(6, 2))
    )
    edge = Columns(np.zeros(4, np.int64), np.zeros(0, np.int32), 0, None, rng.normal(size=(3, 1))) if edges else None
    batch = Batch(chains, node, edge)
    labels = np.array([0, 2, 1, 0, -1 if partial else 2, 0])
    allowed = None
    if partial:
        allowed = np.zeros((6, 3), bool)
        allowed[np.arange(6), np.maximum(labels, 0)] = True
        allowed[4] = [True, False, True]
    target = Target(chains, 3, labels, allowed, np.array([0.5, 2.0, 1.0, 1.5]) if weighted else None)
    states = StateSpace.repeated(np.array([2, 1, 2])).target(target)
    layout = Layout.observe(batch, states, feature_pairs="all", transition_pairs="all", bias=True)
    return LatentChain(layout, batch, states)


def enumerated(problem: LatentChain, weights: np.ndarray) -> tuple[float, float]:
    """Both halves by a sum over every path of states."""
    scores = LinearScorer(problem.layout).score(weights, problem.batch)
    chains, mask, tables = scores.topology, problem.target.mask, scores.edge[scores.tables]
    weight = np.ones(chains.n_sequences) if problem.target.weight is None else problem.target.weight
    halves = np.zeros(2)
    for s, (start, stop) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:])):
        every: list[float] = []
        own: list[float] = []
        for path in product(range(scores.n_labels), repeat=int(stop - start)):
            score = sum(scores.node[start + t, h] for t, h in enumerate(path))
            first = int(chains.edge_offsets[s])
            score += sum(tables[first + t][path[t], path[t + 1]] for t in range(len(path) - 1))
            every.append(float(score))
            if all(mask[start + t, h] for t, h in enumerate(path)):
                own.append(float(score))
        halves += weight[s] * np.array([np.logaddexp.reduce(every), np.logaddexp.reduce(own)])
    return float(halves[0]), float(halves[1])


def slopes_along(function: Any, weights: np.ndarray, directions: np.ndarray, *, step: float = 1e-5) -> np.ndarray:
    """Slopes of a function of (weights, spare gradient) along some directions, by central differences."""
    spare = np.empty_like(weights)
    ends = [[function(weights + sign * step * d, spare) for sign in (1, -1)] for d in directions]
    return np.array([(above - below) / (2 * step) for above, below in ends])


# ------------------------------------------------------------------------------------------------------ mathematics


@pytest.mark.parametrize(
    ("partial", "weighted", "edges"),
    [(False, False, False), (True, False, False), (True, True, False), (False, False, True), (True, True, True)],
    ids=["gold", "partial", "weighted", "edges", "everything"],
)
def test_halves_equal_enumeration_and_slopes_their_differences(partial: bool, weighted: bool, edges: bool) -> None:
    problem = small_problem(partial=partial, weighted=weighted, edges=edges)
    rng = np.random.default_rng(0)
    weights, directions = rng.normal(size=problem.n_weights), rng.normal(size=(6, problem.n_weights))
    free, clamped = enumerated(problem, weights)
    gradient = np.empty(problem.n_weights)
    for function, wanted in (
        (problem.free, free),
        (problem.clamped, clamped),
        (problem.evaluate, free - clamped),
    ):
        assert function(weights, gradient) == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(directions @ gradient, slopes_along(function, weights, directions), atol=1e-6)


def test_states_of_labels() -> None:
    states = StateSpace.repeated(count_for_each(["a", "b", "c"], {"b": 3}, "n_states"))
    assert states.label_of_state.tolist() == [0, 1, 1, 1, 2]
    target = states.target(Target(Chains.from_lengths([3]), 3, np.array([0, 1, 2])))
    assert target.labels.tolist() == [0, -1, 4]
    assert target.mask.astype(int).tolist() == [[1, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]
    node = np.random.default_rng(0).random((4, 5))
    wanted = np.stack([node[:, 0], node[:, 1:4].sum(axis=1), node[:, 4]], axis=1)
    np.testing.assert_allclose(states.label_sums(node), wanted, rtol=1e-15)


@saved_kinds
@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_one_state_for_each_label_is_the_plain_chain(kind: Kind) -> None:
    X, y = kind.data()
    plain = kind.model().fit(X, y)
    model = LatentDynamicCRF(n_states=1, **{"tol": 1e-10, "max_iter": 3000, **dict(kind.options)}).fit(X, y)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-10)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-10)
    for one, other in zip(model.predict_proba(X), plain.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    np.testing.assert_allclose(model.log_prob(X, y), plain.log_prob(X, y), atol=1e-10)
    model.set_params(decode="viterbi")
    assert [a.tolist() for a in model.predict(X)] == [a.tolist() for a in plain.predict(X)]


@pytest.mark.parametrize("l1", [0.0, 0.05], ids=["ridge", "lasso"])
def test_em_never_falls_back_and_ends_where_gradients_do(l1: float) -> None:
    problem, penalty = small_problem(weighted=True), Penalty(l1=l1, l2=0.1)
    start = np.random.default_rng(1).normal(size=problem.n_weights)
    result = fit_em(problem, penalty, start, tol=1e-12, max_iter=300, m_steps=3)
    values = np.array([step.value for step in result.history])
    assert len(values) > 20
    assert (np.diff(values) <= 0).all()
    gradient = np.empty(problem.n_weights)
    problem.evaluate(result.weights, gradient)
    gradient += 0.1 * result.weights
    inside = result.weights != 0
    np.testing.assert_allclose(gradient[inside] + l1 * np.sign(result.weights[inside]), 0, atol=2e-4)
    assert (np.abs(gradient[~inside]) <= l1 + 2e-4).all()
    assert (~inside).any() == (l1 > 0)


def test_em_trains_the_estimator_too() -> None:
    X, y = world(20, seed=2)
    both = {
        way: LatentDynamicCRF(training=way, n_init=1, tol=1e-8, max_iter=2000).fit(as_strings(X), y)
        for way in ("gradient", "em")
    }
    assert both["em"].objective_ == pytest.approx(both["gradient"].objective_, rel=1e-3)
    assert (np.diff([step.value for step in both["em"].history_]) <= 0).all()


# ---------------------------------------------------------------------------------------------------------- answers


def test_marginals_of_labels_are_sums_over_their_states() -> None:
    X, y = world(10, seed=1)
    model = LatentDynamicCRF(n_states={"A": 3, "B": 2}, n_init=1).fit(as_arrays(X), y)
    assert model.states_ == [("A", 0), ("A", 1), ("A", 2), ("B", 0), ("B", 1), ("C", 0)]
    potentials = model.potentials(as_arrays(X)[:1])
    paths = list(product(range(6), repeat=potentials.topology.n_nodes))
    scores = np.array(
        [
            sum(potentials.node[t, h] for t, h in enumerate(path))
            + sum(potentials.edge[0][a, b] for a, b in pairwise(path))
            for path in paths
        ]
    )
    p = np.exp(scores - np.logaddexp.reduce(scores))
    owner = np.array([0, 0, 0, 1, 1, 2])
    table = np.zeros((potentials.topology.n_nodes, 3))
    truth = np.array(["ABC".index(label) for label in y[0]])
    right = 0.0
    for path, probability in zip(paths, p):
        labels = owner[list(path)]
        table[np.arange(len(path)), labels] += probability
        right += probability * bool((labels == truth).all())
    np.testing.assert_allclose(model.predict_proba(as_arrays(X)[:1])[0], table, atol=1e-10)
    assert model.log_prob(as_arrays(X)[:1], y[:1])[0] == pytest.approx(np.log(right), abs=1e-10)
    marginal = model.predict(as_arrays(X))
    assert marginal[0].tolist() == ["ABC"[k] for k in table.argmax(axis=1)]
    path = model.predict_states(as_arrays(X))
    assert path[0].tolist() == list(paths[int(scores.argmax())])
    viterbi = model.set_params(decode="viterbi").predict(as_arrays(X))
    assert viterbi[0].tolist() == ["ABC"[owner[h]] for h in path[0]]


def test_learns_what_a_plain_chain_cannot() -> None:
    learn = make_sub_structure(n_sequences=40)
    test = make_sub_structure(n_sequences=40, random_state=1)
    model = LatentDynamicCRF(n_states=3, l2=0.1, tol=1e-3).fit(learn.features, learn.labels)
    plain = ChainCRF(l2=0.1, decode="marginal").fit(learn.features, learn.labels)
    right = model.score(test.features, test.labels)
    bayes = float((np.concatenate(test.bayes_labels()) == np.concatenate(test.labels)).mean())
    assert right > plain.score(test.features, test.labels) + 0.05
    assert bayes - 0.02 < right
    assert model.start_objectives_.min() == model.objective_
    assert len(model.start_objectives_) == 3


def test_partial_labels_and_empty_sequences() -> None:
    X, y = world(10, seed=3)
    some: list[Any] = [list(labels) for labels in y]
    some[0][0], some[1][0] = None, {"A", "B"}
    model = LatentDynamicCRF(n_init=1).fit([*as_strings(X), []], [*some, []])
    assert model.predict([[]])[0].shape == (0,)
    assert model.log_prob([[]], [[]]).tolist() == [0.0]
    unknown = [[None] * len(labels) for labels in y]
    np.testing.assert_allclose(model.log_prob(as_strings(X), unknown), 0, atol=1e-12)


def test_one_label_and_constant_columns() -> None:
    X = [np.ones((3, 2)), np.ones((1, 2))]
    model = LatentDynamicCRF(standardize=True, n_init=1).fit(X, [["a"] * 3, ["a"]])
    assert model.predict(X)[0].tolist() == ["a"] * 3
    two = LatentDynamicCRF(standardize=True, n_init=1).fit(X, [["a", "b", "a"], ["a"]])
    assert np.isfinite(two.objective_)


def test_names_of_weights() -> None:
    X, y = world(12, seed=0)
    model = LatentDynamicCRF(n_init=1).fit(as_strings(X), y)
    assert {item.label for item in model.top_features(5, state=("A", 1))} == {("A", 1)}
    assert np.asarray(model.transitions_.weights).shape == (6, 6)
    with pytest.raises(LabelError, match="unknown"):
        model.top_features(5, state=("A", 7))


# --------------------------------------------------------------------------------------------------------- training


def test_processes_find_what_one_finds() -> None:
    problem, penalty, rng = small_problem(), Penalty(l2=0.5), np.random.default_rng(0)
    starts = [rng.normal(size=problem.n_weights) for _ in range(2)]
    alone = fit_best(problem, penalty, starts, training="gradient", tol=1e-6, max_iter=200)
    apart = fit_best(problem, penalty, starts, training="gradient", tol=1e-6, max_iter=200, n_jobs=2)
    np.testing.assert_array_equal(apart.values, alone.values)
    np.testing.assert_array_equal(apart.best.weights, alone.best.weights)
    assert problem.n_jobs == 1


def test_seeds_decide_and_callbacks_end() -> None:
    X, y = world(12, seed=0)
    X = as_strings(X)
    one, same, other = (LatentDynamicCRF(random_state=seed, n_init=1).fit(X, y) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert not np.array_equal(one.coef_, other.coef_)
    seen: list[int] = []

    def stop(step: Any, weights: np.ndarray) -> bool:
        seen.append(step.n_iter)
        return len(seen) == 3

    ended = LatentDynamicCRF(callback=stop).fit(X, y)
    assert seen == [1, 2, 3]
    assert ended.stop_reason_ == CALLBACK
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        LatentDynamicCRF(max_iter=2).fit(X, y)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_states": 0}, "n_states"),
        ({"n_states": {"A": 1.5}}, "n_states"),
        ({"n_states": {"Z": 2}}, "'Z'"),
        ({"n_init": 0}, "n_init"),
        ({"start_scale": 0.0}, "start_scale"),
        ({"training": "newton"}, "training"),
        ({"decode": "best"}, "decode"),
        ({"l2": -1.0}, "l2"),
        ({"transition_pairs": "some"}, "transition_pairs"),
        ({"boundaries": "yes"}, "boundaries"),
        ({"standardize": 1}, "standardize"),
        ({"verbose": -1}, "verbose"),
        ({"callback": 3}, "callback"),
        ({"template": 3}, "template"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(options: dict[str, Any], word: str) -> None:
    X, y = world(4)
    with pytest.raises(InputError, match=word):
        LatentDynamicCRF(**options).fit(as_strings(X), y)


def test_searches_over_states() -> None:
    X, y = world(12, seed=0)
    search = GridSearchCV(LatentDynamicCRF(n_init=1), {"n_states": [1, 2]}, cv=2).fit(as_strings(X), y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# ------------------------------------------------------------------------------------------------------------ files


@saved_kinds
@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_every_form_of_input_is_trained_and_stored(kind: Kind, tmp_path: Path) -> None:
    X, y = kind.data()
    options = {"n_states": {"A": 2}, "n_init": 1, "tol": 1e-2}
    model = LatentDynamicCRF(**{**dict(kind.options), **options}).fit(X, y)
    model.save(tmp_path / "model.crfield")
    copy = crfield.load(tmp_path / "model.crfield", **kind.load_options())
    assert copy.n_states == {"A": 2}
    assert copy.states_ == model.states_
    np.testing.assert_array_equal(copy.start_objectives_, model.start_objectives_)
    for one, other in zip(copy.predict_proba(X), model.predict_proba(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_edited_files_are_refused_or_work() -> None:
    """Whatever is in a file, it is refused as damaged, or gives a model that answers or says why it does not."""
    X, y = world(6)
    stream = io.BytesIO()
    LatentDynamicCRF(n_states={"A": 2}, n_init=1, tol=1e-2).fit(as_strings(X), y).save(stream)
    rng, refused = random.Random(0), 0
    for _ in range(80):
        data = edited(stream.getvalue(), rng)
        if data is None:
            continue
        try:
            model = crfield.load(io.BytesIO(data))
        except ModelFileError:
            refused += 1
            continue
        with contextlib.suppress(CrfieldError), np.errstate(all="ignore"):
            model.predict(as_strings(X))
            model.log_prob(as_strings(X), y)
            model.save(io.BytesIO())
    assert refused > 30
