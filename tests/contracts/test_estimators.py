"""The fit contract: what every estimator promises, whatever model is inside."""

from __future__ import annotations

import inspect
import itertools
import pickle
import pickletools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

import crfield
from crfield.errors import NotFittedError
from tests.cases.estimators import (
    KINDS,
    SEQUENCE_ESTIMATORS,
    Kind,
    as_strings,
    exact,
    kinds,
    plain_params,
    same,
    world,
)

each_estimator = pytest.mark.parametrize("estimator", SEQUENCE_ESTIMATORS, ids=lambda e: e.__name__)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)

METHODS = (
    "predict",
    "predict_proba",
    "predict_marginals",
    "log_prob",
    "score",
    "save",
    "top_features",
    "transitions_",
    "coef_",
)


def strings(n: int = 14, *, seed: int = 0) -> tuple[Any, list[list[str]]]:
    X, y = world(n, seed=seed)
    return as_strings(X), y


# ------------------------------------------------------------------------ parameters


@each_estimator
def test_init_only_stores(estimator: type[Any]) -> None:
    """Any object at all is taken as it is: checks belong to fit."""
    names = list(inspect.signature(estimator.__init__).parameters)[1:]
    values = {name: object() for name in names}
    model = estimator(**values)
    assert vars(model) == values
    assert all(getattr(model, name) is value for name, value in values.items())


@each_estimator
def test_parameters_are_keyword_only_and_documented(estimator: type[Any]) -> None:
    parameters = list(inspect.signature(estimator.__init__).parameters.values())[1:]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters)
    missing = [p.name for p in parameters if p.name not in (estimator.__doc__ or "")]
    assert not missing, f"the docstring does not explain {missing}"


@each_estimator
def test_get_and_set_params(estimator: type[Any]) -> None:
    model = estimator()
    assert model.set_params(l2=3.0) is model
    assert model.get_params()["l2"] == 3.0
    assert estimator(**model.get_params()).get_params() == model.get_params()
    with pytest.raises(ValueError, match="strength"):
        model.set_params(strength=1)


@each_estimator
def test_clone_has_the_parameters_and_nothing_else(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator(l2=2.5, max_iter=77).fit(X, y)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not [name for name in vars(twin) if name not in model.get_params()]
    with pytest.raises(NotFittedError):
        twin.predict(X)


@each_kind
def test_every_configuration_can_be_cloned(kind: Kind) -> None:
    model = kind.model()
    assert plain_params(clone(model)) == plain_params(model)


@each_estimator
def test_repr_shows_what_is_not_default(estimator: type[Any]) -> None:
    assert repr(estimator()) == f"{estimator.__name__}()"
    assert repr(estimator(l2=0.25, decode="marginal")) == f"{estimator.__name__}(decode='marginal', l2=0.25)"
    X, y = strings()
    assert repr(estimator(l2=0.25).fit(X, y)) == f"{estimator.__name__}(l2=0.25)"
    assert "ChainCRF" in exact(template=crfield.Template("U00:%x[0,0]")).__repr__()


# --------------------------------------------------------------------------- fitting


@each_kind
def test_fit_returns_self_and_leaves_the_parameters_alone(kind: Kind) -> None:
    X, y = kind.data()
    model = kind.model()
    before = model.get_params()
    assert model.fit(X, y) is model
    after = model.get_params()
    assert before.keys() == after.keys()
    assert all(after[name] is before[name] for name in before)


@each_kind
def test_fit_leaves_the_data_alone(kind: Kind) -> None:
    X, y = kind.data()
    before = pickle.dumps(([X[k] for k in range(len(X))], y))
    kind.model().fit(X, y).predict(X)
    assert pickle.dumps(([X[k] for k in range(len(X))], y)) == before


@each_estimator
def test_learnt_names_end_in_an_underscore(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator().fit(X, y)
    learnt = [name for name in vars(model) if name not in model.get_params() and not name.startswith("_")]
    assert learnt
    assert all(name.endswith("_") for name in learnt)
    for name in ("classes_", "coef_", "objective_", "n_iter_", "history_", "converged_", "stop_reason_"):
        assert hasattr(model, name)
        assert not hasattr(estimator(), name)
    assert model.classes_.tolist() == ["A", "B", "C"]
    assert model.n_iter_ == len(model.history_)
    assert model.history_[-1].value == model.objective_
    assert model.converged_ is True
    assert np.isfinite(model.coef_).all()


@each_estimator
def test_the_weights_cannot_be_changed_behind_the_models_back(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator().fit(X, y)
    with pytest.raises(ValueError, match="read-only"):
        model.coef_[0] = 1.0


@each_estimator
def test_a_second_fit_forgets_the_first(estimator: type[Any]) -> None:
    X, y = strings()
    other_y = [[label.lower() for label in labels][::-1] for labels in y]
    fresh = estimator().fit(X, other_y)
    again = estimator().fit(X, y).fit(X, other_y)
    assert again.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(again.coef_, fresh.coef_)
    assert again.objective_ == fresh.objective_
    assert len(again.history_) == len(fresh.history_)


@each_estimator
def test_a_fit_that_fails_leaves_the_old_model(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="steps"):
        model.fit(X, [labels[:-1] for labels in y])
    assert same(model.predict(X), before)


@each_estimator
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_answered_before_fit(estimator: type[Any], method: str) -> None:
    X, y = strings()
    other_arguments: dict[str, Any] = {"save": ("model.crfield",), "log_prob": (X, y), "score": (X, y)}
    arguments = other_arguments.get(method, (X,))
    model = estimator()
    with pytest.raises(NotFittedError, match=rf"{estimator.__name__} is not fitted yet. Call fit\(X, y\) first"):
        getattr(model, method)(*arguments)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(model)
    check_is_fitted(model.fit(X, y))


# ------------------------------------------------------------------------ prediction


def check_predictions(found: Any, lengths: list[int]) -> None:
    assert isinstance(found, np.ndarray)
    assert found.dtype == object
    assert found.shape == (len(lengths),)
    for labels, length in zip(found, lengths, strict=True):
        assert isinstance(labels, np.ndarray)
        assert labels.shape == (length,)


@each_kind
@pytest.mark.parametrize("decode", ["viterbi", "marginal"])
def test_predict_is_an_array_of_label_arrays(kind: Kind, decode: str) -> None:
    """Of the same form for ragged, equal, single, empty and no sequences."""
    raw, y = world(empty=True)
    model = kind.model(decode=decode).fit(kind.write(raw), y)
    square = [x[:2] for x in raw if len(x) >= 2]
    for some in (raw, square, raw[:1], [x[:1] for x in raw if x], [[]], [[], raw[0]], []):
        X = kind.write(some)
        check_predictions(model.predict(X), [len(x) for x in some])
    assert model.predict(kind.write(raw))[0].dtype == model.classes_.dtype


@each_kind
def test_probabilities_agree_with_each_other(kind: Kind) -> None:
    raw, y = world(empty=True)
    X = kind.write(raw)
    model = kind.model(decode="marginal").fit(X, y)
    tables, marginals, labels = model.predict_proba(X), model.predict_marginals(X), model.predict(X)
    assert tables.dtype == object
    assert tables.shape == (len(raw),)
    for x, table, steps, predicted in zip(raw, tables, marginals, labels, strict=True):
        assert table.shape == (len(x), 3)
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert (table >= 0).all()
        assert [list(step) for step in steps] == [["A", "B", "C"]] * len(x)
        assert [list(step.values()) for step in steps] == table.tolist()
        assert model.classes_[table.argmax(axis=1)].tolist() == predicted.tolist()


@each_kind
def test_log_prob_is_a_distribution_over_all_labellings(kind: Kind) -> None:
    raw, y = world()
    model = kind.model().fit(kind.write(raw), y)
    x = max(raw, key=len)[:4]
    labellings = [list(path) for path in itertools.product("ABC", repeat=len(x))]
    logs = model.log_prob(kind.write([x] * len(labellings)), labellings)
    assert logs.shape == (len(labellings),)
    assert (logs < 0).all()
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-12)
    best = labellings[int(np.argmax(logs))]
    assert model.predict(kind.write([x]))[0].tolist() == best
    table = model.predict_proba(kind.write([x]))[0]
    for t, code in itertools.product(range(len(x)), range(3)):
        having = [k for k, path in enumerate(labellings) if path[t] == "ABC"[code]]
        assert np.exp(logs[having]).sum() == pytest.approx(table[t, code], abs=1e-12)


@each_kind
def test_log_prob_of_partial_labels_is_that_of_all_they_allow(kind: Kind) -> None:
    raw, y = world()
    model = kind.model().fit(kind.write(raw), y)
    x = max(raw, key=len)[:3]
    X = kind.write([x])
    allowed: list[Any] = [None, {"A", "C"}, "B"]
    chosen = [[a, b, "B"] for a in "ABC" for b in "AC"]
    parts = np.exp(model.log_prob(kind.write([x] * len(chosen)), chosen)).sum()
    assert np.exp(model.log_prob(X, [allowed]))[0] == pytest.approx(parts, rel=1e-12)
    assert model.log_prob(X, [[None] * 3])[0] == pytest.approx(0.0, abs=1e-12)
    assert model.log_prob(kind.write([[]]), [[]])[0] == 0.0
    assert (model.log_prob(kind.write(raw), [[None] * len(x) for x in raw]) <= 0).all()


@each_estimator
def test_score_is_the_share_of_right_steps(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator().fit(X, y)
    predicted = model.predict(X)
    right = [(a == np.array(b)) for a, b in zip(predicted, y, strict=True)]
    assert model.score(X, y) == np.concatenate(right).mean()
    assert 0.5 < model.score(X, y) < 1.0
    weight = np.arange(len(X), dtype=float)
    expected = sum(w * r.sum() for w, r in zip(weight, right, strict=True)) / sum(
        w * len(r) for w, r in zip(weight, right, strict=True)
    )
    assert model.score(X, y, sample_weight=weight) == pytest.approx(expected, rel=1e-14)


@each_estimator
def test_score_leaves_unknown_steps_out_and_takes_any_allowed_label(estimator: type[Any]) -> None:
    X, y = strings()
    model = estimator().fit(X, y)
    first = model.predict(X[:1])[0].tolist()
    wrong = ["A" if label != "A" else "B" for label in first]
    assert model.score(X[:1], [first[:1] + [None] * (len(first) - 1)]) == 1.0
    assert model.score(X[:1], [wrong[:1] + [None] * (len(first) - 1)]) == 0.0
    assert model.score(X[:1], [[{a, b} for a, b in zip(first, wrong, strict=True)]]) == 1.0
    assert model.score(X[:1], [[None] * len(first)]) == 0.0


def test_the_two_decoders_differ_where_they_should() -> None:
    """p(AA)=.35, p(BA)=.05, p(BB)=.3, p(BC)=.3: the best path is AA, the best first label is B."""
    pairs = {"AA": 35, "BA": 5, "BB": 30, "BC": 30}
    X = [[["x"], ["x"]] for _ in pairs]
    y = [list(pair) for pair in pairs]
    options = {"l2": 1e-6, "feature_pairs": "all", "boundaries": False, "tol": 1e-12}
    fitted = {
        decode: exact(decode=decode, transition_pairs="all", **options).fit(X, y, sample_weight=list(pairs.values()))
        for decode in ("viterbi", "marginal")
    }
    path = fitted["viterbi"]
    found = np.exp(path.log_prob(X, y))
    assert found[0] == max(found)
    table = path.predict_proba(X[:1])[0]
    assert path.predict(X[:1])[0].tolist() == ["A", "A"]
    assert fitted["marginal"].predict(X[:1])[0].tolist() == path.classes_[table.argmax(axis=1)].tolist()
    assert fitted["marginal"].predict(X[:1])[0].tolist() != ["A", "A"]
    assert path.set_params(decode="marginal").predict(X[:1])[0].tolist() != ["A", "A"]


# ------------------------------------------------------------------------- pickling


@each_kind
def test_pickles_predict_the_same(kind: Kind, tmp_path: Path) -> None:
    X, y = kind.data()
    new, _ = kind.data(6, seed=1)
    model = kind.model().fit(X, y)
    before = model.predict(new), model.predict_proba(new)
    joblib.dump(model, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        assert plain_params(copy) == plain_params(model)
        assert same(copy.predict(new), before[0])
        assert all(np.array_equal(a, b) for a, b in zip(copy.predict_proba(new), before[1], strict=True))
        assert np.array_equal(copy.coef_, model.coef_)
        assert copy.history_ == model.history_


@each_kind
def test_pickles_hold_no_compiled_state(kind: Kind) -> None:
    X, y = kind.data()
    model = kind.model().fit(X, y)
    model.predict(X)
    names: set[str] = set()
    previous = [""] * 2
    for operation, argument, _ in pickletools.genops(pickle.dumps(model)):
        if operation.name == "STACK_GLOBAL":
            names.add(".".join(previous))
        if isinstance(argument, str):
            previous = [previous[1], argument]
    assert not [name for name in names if "kernels._" in name or "nanobind" in name], names


@each_estimator
def test_an_unfitted_model_pickles(estimator: type[Any]) -> None:
    assert pickle.loads(pickle.dumps(estimator(l2=4.0))).l2 == 4.0


@pytest.mark.parametrize("kind", list(kinds(saved=True)), ids=lambda k: k.name)
def test_many_threads_may_use_one_model(kind: Kind, tmp_path: Path) -> None:
    """Also the first use of a mapped model, which builds it."""
    X, y = kind.data()
    model = kind.model().fit(X, y)
    wanted = model.predict(X)
    path = tmp_path / "model.crfield"
    model.save(path)
    mapped = crfield.load(path, mmap=True, **kind.load_options())
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: mapped.predict(X), range(16)):
            assert same(found, wanted)


def test_the_explanation_names_what_was_learnt() -> None:
    X, y = strings()
    model = exact().fit(X, y)
    best = model.top_features(5)
    assert len(list(best)) == 5
    assert [abs(item.weight) for item in best] == sorted((abs(item.weight) for item in best), reverse=True)
    only = model.top_features(3, label="B")
    assert {item.label for item in only} == {"B"}
    assert any(item.name.startswith("word=w1") for item in only)
    assert "A" in str(model.transitions_)
