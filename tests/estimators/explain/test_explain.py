"""Explanations: margins against enumeration, sets of features that flip a label against decoding without them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from crfield import MEMM, ChainCRF, Constraints
from crfield.errors import InputError, LabelError, NotFittedError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.margins import feature_name
from crfield.inference.max_marginals import MaxMarginals
from crfield.report.errors import error_groups
from crfield.report.explain import Explanation
from crfield.scoring.contributions import path_difference

WORDS = [["a", "b", "c", "a"], ["b", "b", "a"], ["c", "a", "b", "c", "c"], ["a"]]
LABELS = [["P", "Q", "R", "P"], ["Q", "Q", "R"], ["R", "P", "Q", "R", "P"], ["P"]]
NUMBER = {"a": 0.5, "b": -1.5, "c": 2.0}


def records() -> list[Any]:
    return [
        [{"word": w, "number": NUMBER[w], "last": t == len(x) - 1, "tags": [w, "all"]} for t, w in enumerate(x)]
        for x in WORDS
    ]


def rows() -> list[Any]:
    return [[(w, "v" if w == "a" else "k") for w in x] for x in WORDS]


def matrices() -> list[Any]:
    return [np.array([[NUMBER[w], w == "a", t] for t, w in enumerate(x)], float) for x in WORDS]


def word(x: list[str], t: int) -> str:
    return x[t]


def double(x: list[str], t: int) -> bool:
    return t > 0 and x[t] == x[t - 1]


PRICES = Constraints(costs={("P", "P"): 0.75, ("Q", "R"): -0.5, (None, "R"): 0.25, ("Q", None): 1.5})
CASES: dict[str, Callable[[], tuple[dict[str, Any], list[Any]]]] = {
    "records": lambda: ({}, records()),
    "all pairs": lambda: ({"feature_pairs": "all", "transition_pairs": "all"}, records()),
    "no constants": lambda: ({"intercept": False, "boundaries": False, "transition_pairs": "none"}, records()),
    "numbers": lambda: ({"standardize": True}, matrices()),
    "sparse": lambda: ({}, [csr_array(x) for x in matrices()]),
    "template": lambda: ({"template": "U0:%x[0,0]\nU1:%x[-1,1]\nB0:%x[0,1]\nB"}, rows()),
    "functions": lambda: ({"functions": [word], "transition_functions": [double]}, WORDS),
    "edge records": lambda: ({"transition_features": "all"}, records()),
    "edge numbers": lambda: ({"transition_features": [0, 2]}, matrices()),
    "forbidden": lambda: ({"constraints": [("P", "P"), ("R", "R")]}, records()),
    "prices": lambda: ({"constraints": PRICES}, records()),
    "order 2": lambda: ({"order": 2}, records()),
    "order 3": lambda: ({"order": 3, "constraints": [("P", "P")]}, records()),
    "marginal": lambda: ({"decode": "marginal"}, records()),
}
each_case = pytest.mark.parametrize("case", CASES)


def fitted(case: str, seed: int = 0) -> tuple[ChainCRF, list[Any]]:
    """A model of the case with random weights: trained ones leave little to doubt."""
    options, X = CASES[case]()
    model = ChainCRF(**options, tol=0.5).fit(X, LABELS)
    return with_weights(model, np.random.default_rng(seed)), X


def with_weights(model: ChainCRF, rng: np.random.Generator, scale: float = 1.0) -> ChainCRF:
    inner = model._fitted
    assert isinstance(inner, ColumnModel)
    model._model = ColumnModel(
        inner.labels, inner.encoder, inner.layout, rng.normal(scale=scale, size=len(inner.weights))
    )
    return model


def total(told: Explanation) -> float:
    return sum(item.amount for item in told.contributions)


@each_case
def test_margins_are_those_of_enumeration(case: str) -> None:
    model, X = fitted(case)
    for x in X:
        length = x.shape[0] if hasattr(x, "shape") else len(x)
        every = list(product("PQR", repeat=length))
        chance = model.log_prob([x] * len(every), every)
        predicted = model.predict([x])[0]
        for t in range(length):
            told = model.explain(x, t, removals=0)
            own = np.array([labels[t] == told.label for labels in every])
            best, other = (np.where(mask, chance, -np.inf) for mask in (own, ~own))
            assert told.label == predicted[t]
            assert told.labels == every[int(best.argmax())]
            assert told.other_labels == every[int(other.argmax())]
            assert told.margin == pytest.approx(best.max() - other.max(), abs=1e-9)
            assert total(told) == pytest.approx(told.margin, abs=1e-9)
            assert sum(told.by_group().values()) == pytest.approx(told.margin, abs=1e-9)
            assert told.probability == pytest.approx(np.exp(chance[own]).sum(), abs=1e-9)
            assert told.flip is None


def test_two_labels_of_choice_are_compared() -> None:
    model, X = fitted("records", seed=3)
    every = list(product("PQR", repeat=4))
    chance = model.log_prob([X[0]] * len(every), every)
    for label, against in (("P", "Q"), ("Q", "P"), ("R", "P")):
        told = model.explain(X[0], 2, label=label, against=against)
        best, other = (max(c for c, y in zip(chance, every) if y[2] == k) for k in (label, against))
        assert (told.label, told.other) == (label, against)
        assert told.margin == pytest.approx(best - other, abs=1e-9)
        assert total(told) == pytest.approx(told.margin, abs=1e-9)
        assert (told.flip is None) == (label != model.predict(X)[0][2])
    assert model.explain(X[0], -1).step == 3


def test_terms_are_weights_by_name() -> None:
    model, X = fitted("records")
    weights = {(item.name, item.label): item.weight for item in model.top_features(10**6)}
    transitions = model.transitions_.to_dict()
    seen = set()
    for t in range(4):
        for item in model.explain(X[0], t, removals=0).contributions:
            seen.add(item.kind)
            if item.kind == "transitions":
                expected = [transitions.get(tuple(pair), 0.0) for pair in (item.label, item.other)]
            else:
                expected = [weights.get((item.name, label), 0.0) for label in (item.label, item.other)]
            assert [item.weight, item.other_weight] == pytest.approx(expected, abs=1e-12)
            if item.name == "number":
                assert item.value == X[0][item.step]["number"]
    assert seen >= {"node", "transitions", "bias"}


# ------------------------------------------------------------------------------------------------ what flips a label


def thinned(x: list[dict[str, Any]], removed: Any) -> list[dict[str, Any]]:
    """The user's sequence without some features, written anew."""
    out = [dict(item) for item in x]
    for item in removed:
        if item.name in out[item.step]:
            del out[item.step][item.name]
        else:
            name, _, value = item.name.partition("=")
            kept = out[item.step][name]
            if isinstance(kept, list):
                out[item.step][name] = [part for part in kept if part != value]
            else:
                del out[item.step][name]
    return out


def label_at(model: ChainCRF, x: Any, t: int) -> Any:
    return model.predict([x])[0][t]


@pytest.mark.parametrize(
    ("case", "more"),
    [("records", 37), ("prices", 3), ("order 2", 33), ("marginal", 3)],  # where more is found than is needed
    ids=["records", "prices", "order 2", "marginal"],
)
def test_a_flip_flips_and_needs_each_of_its_features(case: str, more: int) -> None:
    found, sizes = 0, set()
    for seed in (0, 1, 2, more):
        model, X = fitted(case, seed)
        for x in X[:3]:
            for t in range(len(x)):
                flip = model.explain(x, t, reach=None, removals=30).flip
                assert flip is not None
                if flip.becomes is None:
                    assert not flip.removed
                    continue
                found += 1
                sizes.add(len(flip.removed))
                assert label_at(model, thinned(x, flip.removed), t) == flip.becomes != flip.label
                for kept in flip.removed:
                    less = [item for item in flip.removed if item is not kept]
                    assert label_at(model, thinned(x, less), t) == flip.label
    assert found > 20
    assert len(sizes) > 1


def test_one_feature_that_is_enough_is_found() -> None:
    alone = 0
    for seed in range(6):
        model, X = fitted("records", seed)
        for x in X[:3]:
            for t in range(len(x)):
                told = model.explain(x, t, reach=None)
                assert told.flip is not None
                present = [
                    type("F", (), {"name": name, "step": s})
                    for s, item in enumerate(x)
                    for name in ["word", "number", "last", *(f"tags={part}" for part in item["tags"])]
                ]
                single = [f for f in present if label_at(model, thinned(x, [f]), t) != told.label]
                if single:
                    alone += 1
                    assert len(told.flip.removed) == 1
    assert alone > 10


def test_numbers_are_set_to_zero_and_edges_set_aside() -> None:
    found = 0
    for seed in range(8):
        model, X = fitted("edge numbers", seed)
        for x in X[:3]:
            for t in range(len(x)):
                flip = model.explain(x, t, reach=None).flip
                assert flip is not None
                if not flip.removed or any(item.kind != "dense" for item in flip.removed):
                    continue
                # A number is on edges too here, so only the scores of nodes can be compared.
                found += 1
                node, edge = model.potentials([x]).node.copy(), model.potentials([x]).edge
                weights = model.coef_[model._fitted.layout.part["dense"]].reshape(-1, 3)
                for item in flip.removed:
                    node[item.step] -= item.value * weights[int(item.name[2:-1])]
                scores = MaxMarginals.of(node, edge).labels(t)
                assert "PQR"[int(scores.argmax())] == flip.becomes
    assert found > 3


def test_features_far_away_are_left_alone() -> None:
    model, X = fitted("records", seed=1)
    for reach in (0, 1):
        flip = model.explain(X[2], 2, reach=reach, removals=30).flip
        assert flip is not None
        assert all(abs(item.step - 2) <= reach for item in flip.removed)
        assert flip.n_candidates == 5 * (2 * reach + 1) - (2 * reach + 1)  # "last" is false and has no column


def test_what_nothing_can_change() -> None:
    rule = Constraints.of(lambda before, after: before is not None or after == "P")
    model = ChainCRF(constraints=rule, tol=0.5).fit(records(), [["P", *y[1:]] for y in LABELS])
    told = model.explain(records()[0], 0)
    assert (told.label, told.other, told.margin, told.contributions) == ("P", None, float("inf"), ())
    assert told.flip is not None
    assert told.flip.becomes is None
    assert "no other label is possible" in str(told)
    assert "nothing else is allowed" in str(told)
    assert told.to_dict()["margin"] is None
    with pytest.raises(LabelError, match="cannot be 'Q': the constraints forbid it"):
        model.explain(records()[0], 0, against="Q")
    with pytest.raises(LabelError, match="cannot be 'Q': the constraints forbid it"):
        model.explain(records()[0], 0, label="Q")
    alone = ChainCRF(tol=0.5).fit([[["a"], ["b"]]], [["P", "P"]])
    assert alone.explain([["a"], ["b"]], 1).other is None
    assert len(alone.feature_importance([[["a"]]])) == 0
    bare = ChainCRF(tol=0.5).fit([[["a"], []]], [["P", "Q"]])
    assert "no feature near it speaks for it" in str(bare.explain([[], []], 1).flip)


def test_a_search_that_ends_early_says_so() -> None:
    ended = 0
    for seed in range(3):
        model, X = fitted("records", seed)
        for t in range(4):
            long, short = (model.explain(X[0], t, reach=None, removals=k).flip for k in (30, 1))
            assert long is not None
            assert short is not None
            assert short.n_tried == 1
            if long.becomes is not None and long.n_tried > 1:
                ended += 1
                assert (short.becomes, short.removed) == (None, ())
                assert f"without 1 of the {short.n_candidates} features" in str(short)
    assert ended


# -------------------------------------------------------------------------------------------------------- importance


@pytest.mark.parametrize("case", ["records", "edge records", "order 2", "numbers", "sparse", "template"])
def test_importances_are_means_of_contributions(case: str) -> None:
    model, X = fitted(case)
    chances = np.concatenate(list(model.predict_proba(X)))
    names = np.array(["P", "Q", "R"])
    best, second = names[np.argsort(-chances, axis=1)[:, :2].T]
    columns = named_columns(model, X)
    sums = {name: np.zeros(len(best)) for name in columns}
    for item in model.top_features(10**6):
        if item.label in ("P", "Q", "R") and item.name in sums:
            sign = 1.0 * (best == item.label) - 1.0 * (second == item.label)
            sums[item.name] += columns[item.name] * sign * item.weight
    listed = model.feature_importance(X, None)
    for item in listed:
        if item.kind in ("node", "dense"):
            assert item.importance == pytest.approx(np.abs(sums[item.name]).mean(), rel=1e-9)
    assert sum(item.kind in ("node", "dense") for item in listed) == sum(bool(np.abs(v).sum()) for v in sums.values())
    assert sum(item.share for item in listed) == pytest.approx(1.0)
    assert [item.importance for item in listed] == sorted((item.importance for item in listed), reverse=True)
    assert "transitions" in {item.kind for item in listed}
    grouped = model.feature_importance(X, None, by="field")
    assert sum(item.importance for item in grouped) == pytest.approx(sum(item.importance for item in listed))
    assert len(grouped) <= len(listed)
    assert model.feature_importance(X, None, by=lambda name: "all")[0].name == "all"


def named_columns(model: ChainCRF, X: Any) -> dict[str, np.ndarray]:
    """The columns of the nodes by name."""
    inner = model._fitted
    assert isinstance(inner, ColumnModel)
    columns = inner.encode(X).node
    out = np.zeros((columns.n_rows, columns.width))
    row = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))
    np.add.at(out, (row, columns.indices), 1.0 if columns.values is None else columns.values)
    found = {inner.encoder.node_name(k): out[:, k] for k in range(columns.width)}
    return found | {inner.encoder.dense_name(k): columns.dense[:, k] for k in range(columns.n_dense)}


@pytest.mark.parametrize("case", ["edge records", "edge numbers", "functions", "order 3", "template"])
def test_importances_of_pairs_and_constants(case: str) -> None:
    """Of every kind: the mean size of the terms of a step when its best label gives way to the second."""
    model, X = fitted(case, seed=1)
    inner = model._fitted
    assert isinstance(inner, ColumnModel)
    sums: dict[tuple[str, str], float] = {}
    for x, chances in zip(X, model.predict_proba(X)):
        best, second = np.argsort(-chances, axis=1)[:, :2].T
        for t in range(len(best)):
            other = best.copy()
            other[t] = second[t]
            for term in path_difference(inner.layout, inner.weights, inner.encode([x]), best, other):
                if term.step == t:
                    key = feature_name(inner, term.kind, term.column), term.kind
                    sums[key] = sums.get(key, 0.0) + abs(term.amount)
    steps = sum(map(len, LABELS))
    listed = {(item.name, item.kind): item.importance for item in model.feature_importance(X, None)}
    expected = {key: value / steps for key, value in sums.items() if not key[1].startswith("fixed")}
    assert listed == pytest.approx(expected, rel=1e-9)
    assert {"order 3": "runs", "edge numbers": "edge_dense"}.get(case, "edge") in {kind for _, kind in listed}


@pytest.mark.parametrize("case", ["records", "all pairs", "numbers", "edge numbers", "sparse"])
def test_deviations_times_weights(case: str) -> None:
    model, X = fitted(case)
    found = model.feature_importance(X, None, measure="deviation")
    listed = {item.name: item for item in found if item.kind in ("node", "dense")}
    weights: dict[str, list[float]] = {}
    for item in model.top_features(10**6):
        if item.label in ("P", "Q", "R"):
            weights.setdefault(item.name, []).append(item.weight)
    for name, column in named_columns(model, X).items():
        own = weights[name] + [0.0] * (len(weights[name]) < 3)
        expected = column.std() * (max(own) - min(own))
        if expected > 0:
            assert listed[name].importance == pytest.approx(expected, rel=1e-9)
            assert listed[name].steps == np.count_nonzero(column)
        else:
            assert name not in listed


# ---------------------------------------------------------------------------------------------------------- refusals


def test_questions_that_cannot_be_answered() -> None:
    model, X = fitted("records")
    for step, said in ((4, "steps 0 … 3, got 4"), (-5, "got -5"), (1.0, "got 1.0"), (True, "got True")):
        with pytest.raises(InputError, match=said):
            model.explain(X[0], step)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="which has no steps"):
        model.explain([], 0)
    with pytest.raises(LabelError, match="'Z' is unknown; the model knows"):
        model.explain(X[0], 0, against="Z")
    with pytest.raises(InputError, match="both 'Q': name two different labels"):
        model.explain(X[0], 0, label="Q", against="Q")
    for options in ({"removals": -1}, {"removals": 0.5}, {"reach": -1}, {"removals": None}):
        with pytest.raises(InputError, match="must be an integer ≥ 0"):
            model.explain(X[0], 0, **options)
    for options, said in (({"n": -1}, "n must be"), ({"measure": "gain"}, "measure"), ({"by": "word"}, "by must be")):
        with pytest.raises(InputError, match=said):
            model.feature_importance(X, **options)
    with pytest.raises(InputError, match="no steps at all"):
        model.feature_importance([[]])
    with pytest.raises(NotFittedError):
        ChainCRF().explain(X[0], 0)
    with pytest.raises(InputError, match="normalises its scores step by step"):
        MEMM(tol=0.5).fit(X, LABELS).explain(X[0], 0)
    textbook = ChainCRF(label_functions=[lambda before, now, x, t: float(now == "P")], tol=0.5)
    with pytest.raises(InputError, match="explain is for models with columns"):
        textbook.fit(WORDS, LABELS).explain(WORDS[0], 0)
    with pytest.raises(InputError, match="one list of labels for each of 4"):
        error_groups(model, X, LABELS[:2])
    with pytest.raises(InputError, match="sequence 0 has 4 steps but 1"):
        error_groups(model, X, [["P"], *LABELS[1:]])
    with pytest.raises(InputError, match="context must be"):
        error_groups(model, X, LABELS, context=-1)


def test_frames_need_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = fitted("records", seed=2)
    told, listed, report = model.explain(X[0], 1), model.feature_importance(X), error_groups(model, X, LABELS)
    assert told.flip is not None
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        for result in (told, told.flip, listed, report):
            with pytest.raises(InputError, match="to_frame needs pandas"):
                result.to_frame()
    pytest.importorskip("pandas", reason="pandas is not installed")
    for result in (told, told.flip, listed, report):
        assert len(result.to_frame()) == len(result.rows())
