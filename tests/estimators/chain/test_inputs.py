"""Every form of input end to end: the same data in two forms is the same model, and each option does its work."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crfield import ChainCRF, Template
from crfield.errors import DataWarning
from tests.cases.estimators import (
    KINDS,
    LABELS,
    Kind,
    Sequence,
    as_arrays,
    as_attributes,
    as_columns,
    as_csr,
    as_dicts,
    as_rows,
    as_strings,
    exact,
    same,
    same_word,
    speed,
    stays,
    word,
    world,
)

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)


def fitted(X: Any, y: Any, **options: Any) -> ChainCRF:
    return exact(**{"tol": 1e-13, **options}).fit(X, y)


def alike(one: ChainCRF, other: ChainCRF, X: Any, other_X: Any, *, rel: float = 1e-10) -> None:
    """Two models of the same data: as many weights, the same optimum, the same probabilities."""
    assert len(one.coef_) == len(other.coef_)
    assert one.objective_ == pytest.approx(other.objective_, rel=rel)
    for a, b in zip(one.predict_proba(X), other.predict_proba(other_X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@each_kind
def test_every_input_learns_and_generalises(kind: Kind) -> None:
    """On new sequences, among them features never seen, better than the commonest label everywhere."""
    X, y = kind.data(60)
    new, gold = kind.data(60, seed=1)
    model = kind.model().fit(X, y)
    flat = [label for labels in gold for label in labels]
    assert model.converged_
    assert model.score(new, gold) > max(flat.count(label) for label in LABELS) / len(flat) + 0.1
    odd = kind.write([[("neverseen", "?", np.zeros(2))]])
    assert model.predict(odd)[0].tolist()[0] in LABELS


@each_kind
def test_sequences_do_not_touch_each_other(kind: Kind) -> None:
    raw, y = world()
    model = kind.model().fit(kind.write(raw), y)
    together = model.predict_proba(kind.write(raw))
    for x, table in zip(raw, together, strict=True):
        np.testing.assert_allclose(model.predict_proba(kind.write([x]))[0], table, atol=1e-12)
    assert same(model.predict(kind.write(raw[::-1])), model.predict(kind.write(raw))[::-1])


@each_kind
def test_every_input_names_its_features(kind: Kind) -> None:
    X, y = kind.data()
    model = kind.model().fit(X, y)
    if kind.name == "label_functions":
        with pytest.raises(ValueError, match="see coef_"):
            model.top_features()
        return
    names = {item.name for item in model.top_features(1000)}
    expected = {
        "dicts": {"word=w00", "speed", "known", "vector[1]", "mass", "(bias)", "(start)"},
        "dicts_scaled": {"word=w00", "speed", "vector[0]"},
        "strings": {"word=w00", "shape=z"},
        "arrays": {"x[0]", "x[1]"},
        "arrays_edges": {"x[0]", "x[1]"},
        "csr": {"x[0]", "x[12]", "x[13]"},
        "rows": {"U00:w00", "U01:_B-1/w", "B01:z"},
        "columns": {"U00:w00", "U01:_B-1/w", "B01:z"},
        "attributes": {"word=w00", "speed", "mass"},
        "text": {"word=w00", "word[-1]=<rare>", "tag=z", "lexicon.low=B", "cluster4=0110", "end[+2]"},
        "functions": {"word=w00", "speed", "near=z", "same_word"},
    }
    assert expected[kind.name] <= names
    pairs = [item for item in model.top_features(1000) if isinstance(item.label, tuple)]
    assert bool(pairs) == (model._fitted.layout.n_edge_columns + model._fitted.layout.n_edge_dense > 0)


# ----------------------------------------------------------------------- equivalences


def test_strings_are_indicators_in_csr() -> None:
    raw, y = world(30)
    strings = as_strings(raw)
    names = sorted({name for x in strings for step in x for name in step})
    tables = [sp.csr_array([[float(name in step) for name in names] for step in x]) for x in strings]
    for options in ({}, {"feature_pairs": "all"}, {"transition_features": "all"}, {"min_count": 4}):
        alike(fitted(strings, y, **options), fitted(tables, y, **options), strings, tables)


def test_dicts_of_words_are_lists_of_strings() -> None:
    raw, y = world(30)
    strings = as_strings(raw)
    dicts = [[dict(feature.split("=") for feature in step) for step in x] for x in strings]
    numbers = [[dict.fromkeys(step, 1) for step in x] for x in strings]
    flags = [[dict.fromkeys(step, True) for step in x] for x in strings]
    model = fitted(strings, y)
    for other in (dicts, numbers, flags):
        alike(model, fitted(other, y), strings, other)
    alike(model, model, strings, numbers)  # a string is a key of value one, for one fitted model as well


def test_numbers_in_dicts_matrices_and_files_are_the_same() -> None:
    raw, y = world(30)
    dicts = [[{"a": float(v[0]), "b": float(v[1]), w: 1} for w, _, v in x] for x in raw]
    attributes = as_attributes(raw)
    tables = as_csr(raw)
    model = fitted(dicts, y)
    alike(model, fitted(attributes, y), dicts, attributes)
    alike(model, fitted(tables, y), dicts, tables)


@pytest.mark.parametrize("options", [{}, {"transition_features": "all"}, {"standardize": True}], ids=str)
def test_dense_sparse_and_vectors_in_dicts_are_the_same(options: dict[str, Any]) -> None:
    raw, y = world(30)
    dense = as_arrays(raw)
    sparse = [sp.csr_array(x) for x in dense]
    lists = [x.tolist() for x in dense]
    vectors = [[{"v": row} for row in x] for x in dense]
    model = fitted(dense, y, feature_pairs="all", **options)
    for other in (sparse, lists, vectors):
        alike(model, fitted(other, y, feature_pairs="all", **options), dense, other)


def test_arrays_of_sequences_are_lists_of_them() -> None:
    raw, y = world(30)
    square = [x[:2] for x in as_arrays(raw) if len(x) >= 2]
    labels = [part[:2] for part in y if len(part) >= 2]
    block = np.array(square)
    objects = np.empty(len(square), dtype=object)
    for k, x in enumerate(square):
        objects[k] = x
    model = fitted(square, labels)
    for other in (block, objects, tuple(square)):
        alike(model, fitted(other, np.array(labels), tol=1e-13), square, other)


def test_token_columns_are_rows() -> None:
    raw, y = world(30)
    for text in ("U00:%x[0,0]\nB", "U00:%x[0,0]/%x[-1,1]\nU01:%x[2,0]\nB\nB01:%x[0,1]/%x[-1,0]", "B01:%x[0,1]"):
        one = fitted(as_rows(raw), y, template=text)
        other = fitted(as_columns(raw), y, template=Template(text))
        alike(one, other, as_rows(raw), as_columns(raw))
        alike(one, one, as_rows(raw), as_columns(raw))


def shape(x: Sequence, t: int) -> str:
    return x[t][1]


def test_templates_are_feature_functions() -> None:
    """U lines are functions of the steps, B lines with macros functions of the edges, B plain transitions."""
    raw, y = world(30)
    template = "U00:%x[0,0]\nB01:%x[0,1]\nB\n"
    one = fitted(as_rows(raw), y, template=template)
    other = fitted(raw, y, functions=[word], transition_functions=[shape])
    alike(one, other, as_rows(raw), raw)
    without = fitted(as_rows(raw), y, template="U00:%x[0,0]\nB01:%x[0,1]\n")
    assert np.isnan(without.transitions_.weights).all()
    alike(without, fitted(raw, y, functions=[word], transition_functions=[shape], transition_pairs="none"),
          as_rows(raw), raw)  # fmt: skip


def test_functions_are_dicts() -> None:
    raw, y = world(30)
    dicts = [[{"word": word(x, t), "speed": speed(x, t)} for t in range(len(x))] for x in raw]
    alike(fitted(raw, y, functions=[word, speed]), fitted(dicts, y), raw, dicts)
    linked = fitted(raw, y, functions=[word, speed], transition_functions=[speed])
    alike(linked, fitted(dicts, y, transition_features=["speed"]), raw, dicts)


def test_label_functions_are_columns_written_out() -> None:
    """One indicator for each (word, label) and each (label, label) is the linear model of words, weight by weight."""
    raw, y = world(12)
    words = sorted({w for x in raw for w, _, _ in x})

    def emission(name: str, label: str) -> Any:
        return lambda before, now, x, t: x[t][0] == name and now == label

    def transition(first: str, second: str) -> Any:
        return lambda before, now, x, t: (before, now) == (first, second)

    functions = [emission(name, label) for name in words for label in LABELS]
    functions += [transition(a, b) for a, b in itertools.product(LABELS, repeat=2)]
    strings = [[[w] for w, _, _ in x] for x in raw]
    options = {"intercept": False, "boundaries": False, "feature_pairs": "all", "transition_pairs": "all"}
    columns = fitted(strings, y, **options)
    written_out = fitted(raw, y, label_functions=functions)
    alike(columns, written_out, strings, raw)
    order = list(dict.fromkeys(w for x in raw for w, _, _ in x))
    place = [len(LABELS) * order.index(name) + k for name in words for k in range(len(LABELS))]
    place += list(range(len(place), len(place) + 9))
    np.testing.assert_allclose(written_out.coef_, columns.coef_[place], atol=1e-5)


def test_one_label_function_has_one_weight() -> None:
    raw, y = world(30)
    model = fitted(raw, y, label_functions=[stays])
    assert model.coef_.shape == (1,)
    assert model.coef_[0] > 0.3


# ------------------------------------------------------------------ numbers keep weights


def weights_of(model: ChainCRF, name: str) -> dict[Any, float]:
    return {item.label: item.weight for item in model.top_features(1000) if item.name == name}


@pytest.mark.parametrize("form", ["dicts", "attributes", "csr", "arrays"])
def test_an_all_negative_column_keeps_its_weights(form: str) -> None:
    """CRFsuite counts a feature by its summed value and so drops one that is never positive."""
    rng = np.random.default_rng(0)
    y = [[LABELS[k] for k in rng.integers(2, size=8)] for _ in range(30)]
    values = [[-3.0 + (label == "B") + 0.3 * float(rng.normal()) for label in labels] for labels in y]
    assert max(v for x in values for v in x) < 0
    write: dict[str, Any] = {
        "dicts": [[{"x[0]": v} for v in x] for x in values],
        "csr": [sp.csr_array(np.array(x)[:, None]) for x in values],
        "arrays": [np.array(x)[:, None] for x in values],
    }
    write["attributes"] = as_attributes([[("w", "w", np.array([v, v])) for v in x] for x in values])
    model = fitted(write[form], y, l2=0.1)
    found = weights_of(model, "speed" if form == "attributes" else "x[0]")
    assert found["A"] < -0.5
    assert found["B"] > 0.5
    assert model.score(write[form], y) > 0.9


def test_a_centred_column_keeps_both_weights() -> None:
    """CRFsuite's case: class means −1 and +1; the label with the negative mean loses its weight there."""
    rng = np.random.default_rng(1)
    y = [[LABELS[k] for k in rng.integers(2, size=8)] for _ in range(30)]
    X = [[{"sensor": float(rng.normal(1.0 if label == "B" else -1.0, 0.5))} for label in labels] for labels in y]
    found = weights_of(fitted(X, y), "sensor")
    assert found["A"] == pytest.approx(-found["B"], rel=1e-3)
    assert found["B"] > 1


def test_a_column_of_zeros_counts_by_occurrence() -> None:
    raw, y = world()
    X = [[{"zero": 0.0, "one": 1.0} for _ in x] for x in raw]
    model = fitted(X, y, min_count=5)
    assert len(model.coef_) == len(fitted([[{"one": 1.0, "two": 1.0} for _ in x] for x in raw], y).coef_)
    assert not weights_of(model, "zero")  # present, but nothing to learn from


# ---------------------------------------------------------------------------- options


def test_standardize_makes_the_unit_irrelevant() -> None:
    raw, y = world(30)
    metres = as_arrays(raw)
    other = [x * [1000.0, 0.01] + [5.0, -3.0] for x in metres]
    model = fitted(metres, y, standardize=True)
    alike(model, fitted(other, y, standardize=True), metres, other, rel=1e-9)
    assert model.objective_ != pytest.approx(fitted(metres, y).objective_, rel=1e-4)
    with pytest.warns(DataWarning, match=r"numeric features differ widely in size.*standardize=True"):
        exact(tol=0.5).fit(other, y)


def test_min_count_drops_rare_features() -> None:
    raw, y = world(30)
    X = as_strings(raw)
    X[0][0].append("once")
    X[1][0] += ["twice", "twice"]
    names = {item.name for item in fitted(X, y).top_features(1000)}
    assert {"once", "twice"} <= names
    names = {item.name for item in fitted(X, y, min_count=2).top_features(1000)}
    assert not {"once", "twice"} & names
    assert "word=w00" in names


def test_pairs_of_features_and_of_labels() -> None:
    X = [[["x"], ["y"]], [["x"]]]
    y = [["A", "B"], ["C"]]

    def count(**options: Any) -> int:
        return len(fitted(X, y, intercept=False, boundaries=False, **options).coef_)

    assert count(transition_pairs="none") == 3
    assert count() == 3 + 1
    assert count(transition_pairs="all") == 3 + 9
    assert count(feature_pairs="all", transition_pairs="none") == 6
    assert count(feature_pairs="all", transition_pairs="all") == 6 + 9
    table = fitted(X, y).transitions_.weights
    assert np.isfinite(table).sum() == 1
    assert table[0, 1] > 0
    assert np.isfinite(fitted(X, y, transition_pairs="all").transitions_.weights).all()
    assert np.isnan(fitted(X, y, transition_pairs="none").transitions_.weights).all()


def test_transition_features_on_arrays() -> None:
    """A switch that tells whether the label changes is worthless on the steps and decisive on the edges."""
    rng = np.random.default_rng(2)
    X, y = [], []
    for _ in range(40):
        change = rng.random(12) < 0.5
        codes = (rng.integers(2) + np.cumsum(change)) % 2
        X.append(np.column_stack([change * 2.0 - 1.0, rng.normal(size=12)]))
        y.append([LABELS[k] for k in codes])
    plain, linked = fitted(X, y), fitted(X, y, transition_features=[0])
    assert len(linked.coef_) == len(plain.coef_) + 4
    assert len(fitted(X, y, transition_features="all").coef_) == len(plain.coef_) + 8
    assert fitted(X, y, transition_features=[-2]).objective_ == linked.objective_
    assert linked.objective_ < 0.3 * plain.objective_
    found = weights_of(linked, "x[0]")
    assert found["A", "B"] > 1 > -1 > found["A", "A"]


def test_intercepts_and_boundaries() -> None:
    raw, y = world(30)
    X = as_strings(raw)
    bare = fitted(X, y, intercept=False, boundaries=False)
    assert len(fitted(X, y).coef_) == len(bare.coef_) + 9
    assert len(fitted(X, y, boundaries=False).coef_) == len(bare.coef_) + 3
    assert len(fitted(X, y, intercept=False).coef_) == len(bare.coef_) + 6
    names = {item.name for item in fitted(X, y).top_features(1000)}
    assert {"(bias)", "(start)", "(end)"} <= names
    assert not {"(bias)", "(start)", "(end)"} & {item.name for item in bare.top_features(1000)}


@pytest.mark.parametrize("penalty", [{"l2": 3.0}, {"l1": 1.0, "l2": 0.0}, {"l1": 0.5, "l2": 0.5}], ids=str)
def test_free_intercepts_match_the_counts_exactly(penalty: dict[str, float]) -> None:
    """Without a penalty on them their gradient is zero: expected and observed numbers of labels agree."""
    raw, y = world(40)
    X = as_strings(raw)
    free = fitted(X, y, penalize_intercepts=False, **penalty)
    tied = fitted(X, y, **penalty)
    expected = {name: np.zeros(3) for name in ("all", "first", "last")}
    observed = {name: np.zeros(3) for name in expected}
    for table, labels in zip(free.predict_proba(X), y, strict=True):
        codes = np.eye(3)[[LABELS.index(label) for label in labels]]
        for source, sums in ((table, expected), (codes, observed)):
            sums["all"] += source.sum(axis=0)
            sums["first"] += source[0]
            sums["last"] += source[-1]
    for name, sums in expected.items():
        np.testing.assert_allclose(sums, observed[name], atol=2e-3)
    counted = sum(table.sum(axis=0) for table in tied.predict_proba(X))
    assert abs(counted - observed["all"]).max() > 0.05
    assert free.objective_ < tied.objective_


def test_same_word_is_called_from_the_second_step_on() -> None:
    raw, y = world()
    model = fitted(raw, y, functions=[word], transition_functions=[same_word])
    assert model.converged_  # same_word reads x[t - 1], which would wrap around at t = 0


def test_dicts_may_lack_what_others_have() -> None:
    raw, y = world(20)
    X = as_dicts(raw)
    for x in X[::2]:
        for step in x:
            del step["vector"], step["speed"]
    model = fitted(X, y)
    assert model.predict(X).shape == (20,)
    with pytest.warns(DataWarning, match=r"no feature that the model knows: they have {'other': 1}"):
        assert model.predict([[{}, {"other": 1}]])[0].shape == (2,)
