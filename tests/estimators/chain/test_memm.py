"""The maximum-entropy Markov model: enumeration, slopes, special cases, streams, label bias."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import crfield
from crfield import MEMM, ChainCRF, make_rib_rob
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.chain import ChainEngine
from crfield.inference.labellings import path_scores
from crfield.objectives.gold_past import GoldPast, next_totals, normalised
from crfield.simulate.label_bias import five_states
from studies.models.label_bias import CRF, LOCAL, ORIGINAL
from studies.models.label_bias import STUDY as label_bias
from tests.cases.chains import random_potentials, random_target
from tests.cases.estimators import KINDS, Kind, as_arrays, as_strings, world

LENGTHS = [3, 0, 2, 1]
tables = pytest.mark.parametrize("shared", [True, False], ids=["shared", "each"])
saved_kinds = pytest.mark.parametrize("kind", [k for k in KINDS if k.saved], ids=lambda kind: kind.name)


def step_by_step(scores: Potentials, s: int, path: tuple[int, ...]) -> float:
    """Π_t p(y_t | y_{t-1}) of one labelling of chain s, as the formula says."""
    first, edge, chance = int(scores.topology.offsets[s]), int(scores.topology.edge_offsets[s]), 1.0
    for t, label in enumerate(path):
        row = scores.node[first + t].copy()
        if t:
            row += scores.edge[scores.tables[edge + t - 1], path[t - 1]]
        chance *= float(np.exp(row[label]) / np.exp(row).sum())
    return chance


@tables
def test_normalised_scores_are_log_probabilities(shared: bool) -> None:
    scores = random_potentials(np.random.default_rng(0), LENGTHS, 3, shared=shared)
    made = normalised(scores)
    assert made.edge is scores.edge  # no table for each edge is written out
    np.testing.assert_allclose(ChainEngine().infer(made, Semiring.LOG).total, 0.0, atol=1e-12)
    every = [list(product(range(3), repeat=n)) for n in LENGTHS]
    for k in range(27):
        paths = [some[k % len(some)] for some in every]
        wanted = [step_by_step(scores, s, path) for s, path in enumerate(paths)]
        np.testing.assert_allclose(np.exp(path_scores(made, np.concatenate(paths).astype(int))), wanted, rtol=1e-12)


@tables
@pytest.mark.parametrize("partial", [False, True], ids=["complete", "partial"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_value_by_enumeration_and_slopes(shared: bool, partial: bool, weighted: bool) -> None:
    rng = np.random.default_rng(3)
    scores = random_potentials(rng, LENGTHS, 3, shared=shared)
    target = random_target(rng, scores.topology, 3, partial=partial, weighted=weighted)
    result = GoldPast().evaluate(scores, target)
    wanted = 0.0
    for s, length in enumerate(LENGTHS):
        mask = target.mask[scores.topology.offsets[s] : scores.topology.offsets[s + 1]]
        kept = [p for p in product(range(3), repeat=length) if all(mask[t, label] for t, label in enumerate(p))]
        weight = 1.0 if target.weight is None else target.weight[s]
        wanted -= weight * np.log(sum(step_by_step(scores, s, path) for path in kept))
    assert result.value == pytest.approx(wanted, rel=1e-12)
    for name in ("node", "edge"):
        given, slope = getattr(scores, name), getattr(result, name)
        for place in np.ndindex(given.shape):
            ends = []
            for size in (1e-5, -1e-5):
                moved = {"node": scores.node.copy(), "edge": scores.edge.copy()}
                moved[name][place] += size
                ends.append(GoldPast().evaluate(Potentials(**moved, topology=scores.topology), target).value)
            assert slope[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-8)


def test_partial_labels_that_are_complete_agree_with_the_quick_way() -> None:
    rng = np.random.default_rng(1)
    scores = random_potentials(rng, [3, 2], 3, shared=True)
    labels = np.array([0, 2, 1, 1, -1])
    allowed = np.ones((5, 3), bool)
    one = GoldPast().evaluate(scores, Target(scores.topology, 3, labels, allowed))
    cut = Potentials(scores.node[:4], scores.edge, Chains.from_lengths([3, 1]))
    other = GoldPast().evaluate(cut, Target(cut.topology, 3, labels[:4]))
    assert one.value == pytest.approx(other.value, rel=1e-12)  # what comes after and is unknown tells nothing
    np.testing.assert_allclose(one.node[:4], other.node, atol=1e-12)
    np.testing.assert_allclose(one.edge, other.edge, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 300.0, 5000.0], ids=str)
def test_normalisers_of_large_and_forbidden_scores(scale: float) -> None:
    rng = np.random.default_rng(2)
    node, edge = rng.normal(size=(9, 4)) * scale, rng.normal(size=(1, 4, 4)) * scale
    node[rng.random(node.shape) < 0.2], edge[0, 2, :3] = -np.inf, -np.inf
    node[4], edge[0, 0] = [0.0, -scale, -np.inf, -scale], [-2 * scale, 0.0, 0.0, -np.inf]
    scores = Potentials(node, edge, Chains.from_lengths([9]))
    wanted = np.logaddexp.reduce(node[1:, None, :] + edge, axis=2)
    np.testing.assert_allclose(next_totals(scores), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(next_totals(scores.each()), wanted, rtol=1e-12, atol=1e-12)


def test_a_forbidden_truth_is_named() -> None:
    chains = Chains.from_lengths([1, 2])
    edge = np.array([[[0.0, -np.inf], [0.0, 0.0]]])
    sure = np.array([[1, 0], [1, 0], [0, 1]], bool)
    for target in (Target(chains, 2, np.array([0, 0, 1])), Target(chains, 2, np.array([0, 0, -1]), sure)):
        with pytest.raises(LabelError, match="sequence 1"):
            GoldPast().evaluate(Potentials(np.zeros((3, 2)), edge, chains), target)


# ------------------------------------------------------------------------------------------------- the estimator


def test_without_neighbours_it_is_the_crf() -> None:
    """Chains of length one, and chains without transitions, have nothing to normalise differently."""
    X, y = world(30, seed=1)
    X, y = as_strings(X), [list(labels) for labels in y]
    options: dict[str, Any] = {"tol": 1e-12, "max_iter": 3000, "boundaries": False}
    alone, alone_y = [[step] for x in X for step in x], [[label] for labels in y for label in labels]
    for data, labels, more in ((alone, alone_y, {}), (X, y, {"transition_pairs": "none"})):
        one = MEMM(**options, **more).fit(data, labels)
        other = ChainCRF(**options, **more).fit(data, labels)
        assert one.objective_ == pytest.approx(other.objective_, rel=1e-10)
        np.testing.assert_allclose(
            np.concatenate(list(one.predict_proba(data))), np.concatenate(list(other.predict_proba(data))), atol=1e-5
        )


def test_training_is_a_logistic_regression_told_the_label_before() -> None:
    X, y = world(60, seed=2)
    X, codes = as_arrays(X), [np.array(["ABC".index(label) for label in labels]) for labels in y]
    model = MEMM(l2=1.0, tol=1e-13, max_iter=3000, transition_pairs="all", boundaries=False, intercept=False)
    model.fit(X, codes)
    before = [np.vstack([np.zeros((min(len(c), 1), 3)), np.eye(3)[c[:-1]]]) for c in codes]
    rows, labels = np.hstack([np.concatenate(X), np.concatenate(before)]), np.concatenate(codes)
    rival = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000, fit_intercept=False).fit(rows, labels)
    part = model._fitted.layout.part
    np.testing.assert_allclose(model.coef_[part["dense"]].reshape(2, 3), rival.coef_[:, :2].T, atol=1e-5)
    np.testing.assert_allclose(model.transitions_.weights, rival.coef_[:, 2:].T, atol=1e-5)


def test_beliefs_do_not_look_back_from_later_steps() -> None:
    """In a directed model what is observed later tells nothing of a label, so cutting a sequence changes nothing."""
    X, y = world(20, seed=3)
    X = as_arrays(X)
    model = MEMM().fit(X, y)
    x = max(X, key=len)
    whole = model.predict_proba([x])[0]
    for t in range(1, len(x)):
        np.testing.assert_allclose(model.predict_proba([x[:t]])[0], whole[:t], atol=1e-12)
    assert not np.allclose(
        ChainCRF().fit(X, y).predict_proba([x[:1]])[0], ChainCRF().fit(X, y).predict_proba([x])[0][:1]
    )


@saved_kinds
def test_every_form_of_input_files_and_probabilities(kind: Kind, tmp_path: Path) -> None:
    X, y = kind.data()
    model = MEMM(**{**dict(kind.options), "tol": 1e-6}).fit(X, y)
    assert model.score(X, y) > 0.6
    np.testing.assert_allclose(model.log_prob(X, y), np.log(_steps(model, X, y)), atol=1e-9)
    model.save(tmp_path / "m.crfield")
    loaded = crfield.load(tmp_path / "m.crfield", **kind.load_options())
    assert isinstance(loaded, MEMM)
    assert [a.tolist() for a in loaded.predict(X)] == [a.tolist() for a in model.predict(X)]


def _steps(model: MEMM, X: Any, y: Any) -> list[float]:
    scores = model._fitted.potentials(X, n_jobs=1)
    classes = model.classes_.tolist()
    return [step_by_step(scores, s, tuple(classes.index(label) for label in labels)) for s, labels in enumerate(y)]


def test_functions_of_two_labels() -> None:
    X, y = [[1.0, 2.0, 3.0], [3.0, 1.0]], [["a", "b", "b"], ["b", "a"]]
    functions = [lambda before, label, x, t: x[t] * (label == "b"), lambda before, label, x, t: before == label]
    model = MEMM(label_functions=functions, l2=0.1).fit(X, y)
    scores = model._fitted.potentials(X, n_jobs=1)
    np.testing.assert_allclose(np.exp(model.log_prob(X, y)[1]), step_by_step(scores, 1, (1, 0)), rtol=1e-9)


@pytest.mark.parametrize("write", [as_arrays, as_strings], ids=["arrays", "strings"])
def test_streams_are_the_offline_answers(write: Any, tmp_path: Path) -> None:
    X, y = world(20, seed=4)
    X = write(X)
    model = MEMM(l2=0.5).fit(X, y)
    x = max(X, key=len)
    wanted = model.predict_proba([x])[0]
    stream = model.stream(viterbi=True)
    for t, step in enumerate(x):
        np.testing.assert_allclose(stream.push(step).probabilities, wanted[t], atol=1e-10)
    if write is as_strings:
        with pytest.raises(InputError, match="plain numbers can be exported"):
            model.export(tmp_path / "model.h")
        return
    model.export(tmp_path / "model.py")
    made: dict[str, Any] = {}
    exec((tmp_path / "model.py").read_text(), made)
    robot = made["Stream"]()
    for t, step in enumerate(x.tolist()):
        np.testing.assert_allclose(robot.push(step)["probabilities"], wanted[t], atol=1e-10)


def test_a_last_step_has_no_score_of_its_own() -> None:
    X, y = world(20, seed=5)
    model = MEMM().fit(as_strings(X), y)
    part = model._fitted.layout.part
    assert not model.coef_[part["end"]].any()
    assert model.coef_[part["start"]].any()


def test_unknown_labels_help() -> None:
    X, y = world(30, seed=6)
    X = as_strings(X)
    holes = [[None if (s + t) % 4 == 0 else label for t, label in enumerate(labels)] for s, labels in enumerate(y)]
    model = MEMM().fit(X, holes)
    assert model.converged_
    assert model.score(X, y) > 0.7


def test_the_warm_solver_is_refused() -> None:
    with pytest.raises(InputError, match="solver"):
        MEMM(solver="warm").fit([[["a"]]], [["x"]])


# -------------------------------------------------------------------------------------------------- label bias


def test_five_states_are_those_of_the_lecture() -> None:
    scores = five_states()
    products = [float(np.exp(path_scores(scores, np.array(p)))[0]) for p in ([0] * 4, [1] * 4, [0, 1, 0, 1])]
    np.testing.assert_allclose(products, [0.09, 0.018, 0.06], rtol=1e-12)
    raised, engine = five_states(against_chance=True), ChainEngine()
    np.testing.assert_allclose(normalised(raised).node[:3, :2], normalised(scores).node[:3, :2] - np.log([2, 5]))
    assert engine.best_path(normalised(scores))[1].tolist() == [0, 0, 0, 0]
    assert engine.best_path(normalised(raised))[1].tolist() == [0, 0, 0, 0]  # factors of rows are lost on it
    assert engine.best_path(raised)[1].tolist() == [0, 1, 1, 1]  # 1 goes to 2 and 2 stays, as observed


def test_rib_or_rob() -> None:
    found = label_bias(seeds=(0, 1), n_words=400, n_test=400)
    assert found.verdict == "all 4 claims hold"
    assert found[CRF, "wrong words"].mean < 0.1
    assert found[LOCAL, "wrong words"].mean > 0.45
    assert found[ORIGINAL, "wrong words"].mean > 0.45


def test_the_branch_is_chosen_by_the_first_letter_whatever_follows() -> None:
    learn = make_rib_rob(500)
    options: dict[str, Any] = {"l2": 0.1, "feature_pairs": "all", "transition_pairs": "all"}
    word = [[["r"], [letter], ["b"]] for letter in "io"]
    local = MEMM(**options).fit(learn.letters, learn.labels)
    assert len({tuple(labels) for labels in local.predict(word)}) == 1
    field = ChainCRF(**options).fit(learn.letters, learn.labels)
    assert [labels.tolist() for labels in field.predict(word)] == [["1", "2", "3"], ["4", "5", "3"]]


def test_the_machine_refuses_nonsense() -> None:
    for options in ({"n_words": -1}, {"p_rib": 1.5}, {"noise": -0.1}):
        with pytest.raises(InputError):
            make_rib_rob(**options)  # type: ignore[arg-type]
    assert make_rib_rob(0).bayes_labels() == []
