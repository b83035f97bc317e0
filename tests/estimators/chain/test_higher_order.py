"""`ChainCRF(order=2)` and up: objective, gradient and answers against enumeration; order 1 is the plain chain."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import crfield
from crfield import ChainCRF
from crfield.core.constraints import FixedScores
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.kernels import linear
from crfield.scoring.higher_order import HigherOrderLayout, LabelRuns, higher_order_from_state
from crfield.scoring.layout import Layout
from crfield.training.chain.higher_order import HigherOrderChain
from crfield.training.likelihood import FusedChain
from tests.cases.chains import INF, LinearCase, Options, linear_case


def turns(n: int, seed: int, *, noise: float = 0.7) -> tuple[list[Any], list[list[str]]]:
    """Made data of second order: what comes after two labels depends on both, and the two-step past says nothing."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        codes = list(rng.integers(0, 2, 2))
        while len(codes) < 14:
            codes.append((codes[-1] ^ codes[-2]) if rng.random() < 0.98 else 1 - (codes[-1] ^ codes[-2]))
        X.append(np.array(codes)[:, None] + rng.normal(0, noise, (14, 1)))
        y.append(["ab"[k] for k in codes])
    return X, y


def longer(case: LinearCase, order: int) -> LinearCase:
    return replace(case, layout=HigherOrderLayout.extend(case.layout, LabelRuns.observe(case.target, order)))


OPTIONS = [
    Options(labels=2),
    Options(labels=3, bias=True, partial=True, weighted=True),
    Options(labels=2, values=True, dense=2, weighted=True, transition_pairs="none"),
    Options(labels=3, partial=True, feature_pairs="all", transition_pairs="all", boundaries=False),
]


def written_out(case: LinearCase, weights: np.ndarray, s: int) -> dict[tuple[int, ...], float]:
    """Score of every labelling of a sequence from the definition: weights of runs looked up in the labels."""
    layout: Any = case.layout
    plain = replace(layout.plain, fixed=None)
    node, edge = linear.Tagger(plain, weights[: plain.n_weights]).scores(case.batch)
    own = weights[layout.part["runs"]]
    flat = {tuple(run): own[k] for k, run in enumerate(run for part in layout.runs.runs for run in part.tolist())}
    chains, fixed = case.batch.topology, layout.fixed
    first, length = int(chains.offsets[s]), int(chains.lengths[s])
    out = {}
    for path in product(range(layout.n_labels), repeat=length):
        score = sum(node[first + t, y] for t, y in enumerate(path))
        for t in range(1, length):
            score += edge[0][path[t - 1], path[t]]
            score += sum(flat.get(path[t - r : t + 1], 0.0) for r in range(2, layout.runs.order + 1) if t >= r)
        out[path] = score + (0.0 if fixed is None or not length else fixed.of_path(list(path)))
    return out


@pytest.mark.parametrize("o", OPTIONS, ids=str)
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("costs", [False, True], ids=["likelihood", "margin"])
def test_value_by_enumeration_and_gradient_by_differences(body: str, o: Options, order: int, costs: bool) -> None:
    rng = np.random.default_rng(1)
    case = longer(linear_case(rng, replace(o, lengths=(4, 1, 0, 5, 3, 4))), order)
    target = case.target
    if costs:
        target = replace(target, cost=np.where(target.mask, 0.0, rng.uniform(0, 2, target.mask.shape)))
    weights = case.weights(rng)
    problem = HigherOrderChain(case.layout, case.batch, target, costs=costs)  # type: ignore[arg-type]
    gradient, spare = np.empty(len(weights)), np.empty(len(weights))
    value, expected = problem.evaluate(weights, gradient), 0.0
    chains = case.batch.topology
    for s in np.flatnonzero(chains.lengths).tolist():
        found = written_out(case, weights, s)
        first = int(chains.offsets[s])
        cost = np.zeros(target.mask.shape) if target.cost is None else target.cost
        raised = [v + sum(cost[first + t, y] for t, y in enumerate(p)) for p, v in found.items()]
        inside = [v for p, v in found.items() if all(target.mask[first + t, y] for t, y in enumerate(p))]
        size = 1.0 if target.weight is None else target.weight[s]
        expected += size * (np.logaddexp.reduce(raised) - np.logaddexp.reduce(inside))
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for direction in [*rng.standard_normal((3, len(weights))), *np.eye(len(weights))[-3:]]:
        up = problem.evaluate(weights + 1e-4 * direction, spare)
        down = problem.evaluate(weights - 1e-4 * direction, spare)
        np.testing.assert_allclose((up - down) / 2e-4, gradient @ direction, rtol=1e-6, atol=2e-6)


def test_without_runs_it_is_the_fused_problem(body: str) -> None:
    rng = np.random.default_rng(2)
    case = linear_case(rng, Options(partial=True, weighted=True, bias=True))
    weights = case.weights(rng)
    one, two = np.empty(len(weights)), np.empty(len(weights))
    plain = FusedChain(case.layout, case.batch, case.target).evaluate(weights, one)
    long = HigherOrderChain(
        HigherOrderLayout.extend(case.layout, LabelRuns(3, ())), case.batch, case.target
    ).evaluate(weights, two)
    np.testing.assert_allclose(long, plain, rtol=1e-12)
    np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-11)


def test_order_one_is_the_plain_chain_to_the_bit() -> None:
    X, y = turns(20, 3)
    plain, one = ChainCRF().fit(X, y), ChainCRF(order=1).fit(X, y)
    np.testing.assert_array_equal(plain.coef_, one.coef_)
    assert type(one._fitted.layout) is Layout


# -------------------------------------------------------------------------------------------------- the estimator


def test_second_order_data_need_the_second_order() -> None:
    """Labels that are the exclusive or of the two before: one label back says nothing, two say nearly all."""
    X, y = turns(150, 4)
    test, truth = turns(100, 5)
    scores = {order: ChainCRF(order=order, decode="marginal").fit(X, y).score(test, truth) for order in (1, 2, 3)}
    assert scores[1] < 0.8
    assert scores[2] > 0.9
    assert scores[3] > 0.9


@pytest.fixture(scope="module")
def fitted() -> tuple[ChainCRF, list[Any], list[list[str]]]:
    X, y = turns(40, 6)
    y = [[*tags[:5], "c", *tags[6:]] for tags in y]
    return ChainCRF(order=2, l2=0.5).fit(X, y), X, y


def test_answers_equal_enumeration(fitted: tuple[ChainCRF, list[Any], list[list[str]]]) -> None:
    model, X, _ = fitted
    labels = model.classes_.tolist()
    for x in (X[0][:4], X[1][:1], X[2][3:9]):
        batch = model._fitted.encode([x])
        case = LinearCase(model._fitted.layout, batch, None)  # type: ignore[arg-type]
        found = written_out(case, model._fitted.weights, 0)
        values = np.array(list(found.values()))
        chances = np.exp(values - np.logaddexp.reduce(values))
        best = max(found, key=found.__getitem__)
        assert model.predict([x])[0].tolist() == [labels[k] for k in best]
        np.testing.assert_allclose(
            model.log_prob([x], [[labels[k] for k in best]])[0], np.log(chances.max()), rtol=1e-9
        )
        expected = np.zeros((len(x), 3))
        for path, chance in zip(found, chances):
            expected[np.arange(len(x)), path] += chance
        np.testing.assert_allclose(model.predict_proba([x])[0], expected, rtol=1e-9, atol=1e-12)
        known: list[Any] = [None] * len(x)
        known[-1] = {"a", "c"}
        allowed = {p: c for p, c in zip(found, chances) if labels[p[-1]] != "b"}
        np.testing.assert_allclose(model.log_prob([x], [known])[0], np.log(sum(allowed.values())), rtol=1e-9)
        best = max(allowed, key=allowed.__getitem__)
        assert model.predict([x], known=[known])[0].tolist() == [labels[k] for k in best]


def test_potentials_are_those_of_states(fitted: tuple[ChainCRF, list[Any], list[list[str]]]) -> None:
    model, X, _ = fitted
    scores = model.potentials(X[:3])
    assert scores.n_labels > 3
    pairs, table = model.predict_pairs(X[:3])[0], model.predict_proba(X[:3])[0]
    np.testing.assert_allclose(pairs.sum(axis=2), table[:-1], atol=1e-12)
    np.testing.assert_allclose(pairs.sum(axis=1), table[1:], atol=1e-12)


def test_files_pickles_and_warm_starts(fitted: tuple[ChainCRF, list[Any], list[list[str]]], tmp_path: Path) -> None:
    model, X, y = fitted
    model.save(tmp_path / "model.crf")
    for again in (crfield.load(tmp_path / "model.crf"), pickle.loads(pickle.dumps(model))):
        assert again.order == 2
        np.testing.assert_array_equal(again.coef_, model.coef_)
        np.testing.assert_allclose(again.log_prob(X, y), model.log_prob(X, y), rtol=1e-13)
    warm = crfield.load(tmp_path / "model.crf").set_params(warm_start=True).fit(X, y)
    assert warm.n_iter_ <= model.n_iter_
    np.testing.assert_allclose(warm.objective_, model.objective_, rtol=1e-4)
    more = [[*tags[:3], "c", *tags[4:]] for tags in y]
    grown = warm.fit(X, more)
    assert len(grown.coef_) > len(model.coef_)
    header, arrays = model._fitted.layout.state()
    plain = Layout.from_state(header, arrays)
    for damage in (
        {"runs_2": np.array([[0, 0, 9]], np.int32)},
        {"runs_2": np.array([[1, 0, 0], [0, 0, 0]], np.int32)},
    ):
        with pytest.raises(ModelFileError, match="damaged"):
            higher_order_from_state(plain, header, {**arrays, **damage})
    with pytest.raises(ModelFileError, match="damaged"):
        higher_order_from_state(plain, {**header, "order": 9}, arrays)


def test_constraints_hold_in_higher_orders() -> None:
    X, y = turns(30, 7)
    y = [["b" if t and tags[t - 1] == "a" else tag for t, tag in enumerate(tags)] for tags in y]
    y = [["b" if t and tags[t - 1] == "a" else tag for t, tag in enumerate(tags)] for tags in y]
    legal = [all((a, b) != ("a", "a") for a, b in pairwise(tags)) for tags in y]
    X, y = [x for x, good in zip(X, legal) if good], [tags for tags, good in zip(y, legal) if good]
    for decode in ("viterbi", "marginal"):
        model = ChainCRF(order=2, constraints=[("a", "a")], decode=decode).fit(X, y)
        assert all((a, b) != ("a", "a") for tags in model.predict(turns(30, 8)[0]) for a, b in pairwise(tags))
        assert model.log_prob([X[0][:2]], [["a", "a"]])[0] == -INF
    with pytest.raises(LabelError, match="sequence 0, step"):
        ChainCRF(order=2, constraints=[("a", "b")]).fit([X[0][:2]], [["a", "b"]])
    rng = np.random.default_rng(9)
    case = linear_case(rng, Options(labels=2, lengths=(3, 2)))
    fixed = FixedScores(np.array([[0.5, -1.0], [0.0, 2.0]]), np.array([0.3, 0.0]), np.array([0.0, -0.7]))
    case = longer(replace(case, layout=replace(case.layout, fixed=fixed)), 2)
    weights, gradient = case.weights(rng), np.empty(case.layout.n_weights)
    value = HigherOrderChain(case.layout, case.batch, case.target).evaluate(weights, gradient)  # type: ignore[arg-type]
    expected = 0.0
    for s in range(2):
        found = written_out(case, weights, s)
        first = int(case.batch.topology.offsets[s])
        gold = tuple(case.target.labels[first : first + int(case.batch.topology.lengths[s])].tolist())
        expected += np.logaddexp.reduce(list(found.values())) - found[gold]
    np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_partial_labels_held_out_data_and_costs_go_with_it() -> None:
    rng = np.random.default_rng(10)
    X, y = turns(60, 11)
    hidden = [[None if rng.random() < 0.3 else tag for tag in tags] for tags in y]
    test, truth = turns(40, 12)
    assert ChainCRF(order=2).fit(X, hidden).score(test, truth) > ChainCRF(order=1).fit(X, y).score(test, truth)
    early = ChainCRF(order=2, validation_fraction=0.25, patience=2).fit(X, y)
    assert early.score(test, truth) > 0.7
    costly = ChainCRF(order=2, class_weight={"a": 3.0}).fit(X, y)
    assert np.isfinite(costly.objective_)
    clone(costly)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0}, "order must be"),
        ({"order": 1.5}, "order must be"),
        ({"order": True}, "order must be"),
        ({"order": 2, "solver": "warm"}, "values and gradients"),
        ({"order": 2, "solver": "perceptron"}, "order > 1"),
        ({"order": 2, "objective": "pseudo_likelihood"}, "order > 1 trains"),
        ({"order": 2, "transition_features": "all"}, "do not depend on x"),
        ({"order": 2, "label_functions": [lambda a, b, x, t: 1.0]}, "models of columns"),
    ],
    ids=["zero", "fraction", "flag", "warm", "online", "objective", "edges", "functions"],
)
def test_what_does_not_go_with_it(options: dict[str, Any], words: str) -> None:
    X, y = turns(5, 13)
    with pytest.raises(InputError, match=words):
        ChainCRF(**options).fit(X, y)


def test_a_stream_remembers_runs(
    fitted: tuple[ChainCRF, list[Any], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X, _ = fitted
    x = max(X, key=len)
    stream = model.stream(lag=1, viterbi=True)
    path = [label for step in x for label in stream.push(step).committed]
    end = stream.finish()
    np.testing.assert_allclose(end.smoothed, model.predict_proba([x])[0][-2:], rtol=0, atol=1e-10)
    assert [*path, *end.committed] == model.predict([x])[0].tolist()
    monkeypatch.setattr("crfield.estimators.export.states.MOST_STATES", 3)
    with pytest.raises(InputError, match=r"order=\d.* runs of labels are more than the 3 states.*predict"):
        model.stream()


def test_partial_fit_says_no(fitted: tuple[ChainCRF, list[Any], list[list[str]]]) -> None:
    model, X, y = fitted
    with pytest.raises(InputError, match="order 1"):
        clone(model).partial_fit(X, y)
    with pytest.raises(InputError, match="MEMM has no parameter 'order'"):
        crfield.MEMM(order=2).fit(X, y)
