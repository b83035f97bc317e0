"""The front door: what every estimator promises, each on data of its own form.

`test_estimators` looks closer at sequences, `tests/estimators/graph/test_estimators.py` at graphs.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline as SklearnPipeline
from sklearn.utils.validation import check_is_fitted

import crfield
from crfield.errors import CrfieldError, DataWarning, InputError, ModelFileError, NotFittedError
from tests.cases.estimators import FRONT_DOOR, Front
from tests.stored.cases import CASES as STORED_CASES
from tests.stored.cases import Case
from tests.stored.make import HERE

every = pytest.mark.parametrize("front", FRONT_DOOR, ids=lambda front: front.estimator.__name__)
ANSWERS = ("predict", "predict_proba", "predict_marginals")


@cache
def fitted(front: Front) -> tuple[Any, Any, Any]:
    """The default model and its data, fitted once for all tests that only ask it."""
    X, y = front.data(front.n, 0)
    return front.estimator().fit(X, y), X, y


def arrays(answer: Any) -> list[Any]:
    """The numbers or labels of an answer, whatever holds them."""
    return [np.concatenate(list(a.values()), axis=1) if isinstance(a, dict) else np.asarray(a) for a in answer]


def equal(one: Any, other: Any) -> bool:
    pairs = zip(arrays(one), arrays(other), strict=True)
    return all(a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in pairs)


def wrong(y: Any) -> Any:
    """The labels without the last step or the last row."""
    return [labels[:-1] for labels in y]


@every
def test_init_only_stores(front: Front) -> None:
    names = list(inspect.signature(front.estimator.__init__).parameters)[1:]
    values = {name: object() for name in names}
    assert vars(front.estimator(**values)) == values


@every
def test_parameters_are_named_and_documented(front: Front) -> None:
    parameters = list(inspect.signature(front.estimator.__init__).parameters.values())[1:]
    free = {p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY}
    assert free == set(front.positional)
    ours = [base for base in front.estimator.__mro__ if not base.__module__.startswith("sklearn")]
    told = " ".join(base.__doc__ or "" for base in ours)
    assert not [p.name for p in parameters if p.name not in told]


@every
def test_params_clone_and_repr(front: Front) -> None:
    name = front.estimator.__name__
    assert repr(front.estimator()) == f"{name}()"
    model = front.estimator().set_params(**dict(front.options))
    assert model.get_params() == {**front.estimator().get_params(), **dict(front.options)}
    assert all(option in repr(model) for option, _ in front.options)
    with pytest.raises(ValueError, match="colour"):
        model.set_params(colour=1)
    twin = clone(fitted(front)[0])
    assert vars(twin).keys() == twin.get_params().keys()
    assert pickle.loads(pickle.dumps(twin)).get_params() == twin.get_params()


@every
def test_fit_changes_neither_parameters_nor_data(front: Front) -> None:
    X, y = front.data(front.n, 0)
    model = front.estimator()
    before, data = model.get_params(deep=False), pickle.dumps((X, y))
    assert model.fit(X, y) is model
    model.predict(X)
    assert all(model.get_params(deep=False)[name] is value for name, value in before.items())
    assert pickle.dumps(front.data(front.n, 0)) == data == pickle.dumps((X, y))


@every
def test_learnt_names_end_in_an_underscore(front: Front) -> None:
    model, _, _ = fitted(front)
    learnt = [name for name in vars(model) if name not in model.get_params() and not name.startswith("_")]
    assert learnt
    assert all(name.endswith("_") and not hasattr(front.estimator(), name) for name in learnt)
    assert model.converged_ is True
    assert hasattr(model, "classes_")
    if hasattr(model, "coef_"):
        with pytest.raises(ValueError, match="read-only"):
            model.coef_[0] = 1.0


def ask_everything(model: Any) -> None:
    """What an editor or a debugger asks of a model: its names, its values and all its public properties."""
    names = [name for name in dir(model) if not name.startswith("_")]
    assert {*model.get_params(deep=False), *(name for name in vars(model) if not name.startswith("_"))} <= {*names}
    assert type(model).__name__ in repr(model)
    properties = [name for name in names if isinstance(inspect.getattr_static(type(model), name, None), property)]
    theirs = dir(SklearnPipeline) if isinstance(model, SklearnPipeline) else []  # there or not, as the steps are
    for name in properties:
        getattr(model, name, None) if name in theirs else getattr(model, name)
    assert properties or not hasattr(type(model), "coef_")


@every
def test_editors_may_ask_for_everything(front: Front) -> None:
    ask_everything(fitted(front)[0])


@pytest.mark.parametrize("case", STORED_CASES, ids=lambda case: case.name)
def test_editors_may_ask_stored_models_for_everything(case: Case) -> None:
    ask_everything(crfield.load(HERE / "0.1.0" / f"{case.name}.crfield", **case.load))


@pytest.mark.parametrize("options", [{}, {"left": 2}, {"fit_intercept": False}, {"hidden_values": ["noun", "verb"]}])
def test_editors_may_ask_an_incomplete_boost_for_everything(options: dict[str, Any]) -> None:
    X, y = np.eye(6), ["in", "out"] * 3
    model = crfield.IncompleteBoost(**options).fit(X, y)
    ask_everything(model)
    assert model.left_coef_.shape == (model.left, 3, 2)


@every
def test_nothing_is_answered_before_fit(front: Front) -> None:
    X, y = front.data(3, 0)
    model = front.estimator()
    asked: dict[str, tuple[Any, ...]] = {"log_prob": (X, y), "score": (X, y), "save": ("nowhere.crfield",)}
    for method in (*ANSWERS, *asked):
        with pytest.raises(NotFittedError, match=f"{front.estimator.__name__} is not fitted yet"):
            getattr(model, method)(*asked.get(method, (X,)))
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(model)
    check_is_fitted(fitted(front)[0])


@every
def test_the_same_data_give_the_same_model_whatever_was_before(front: Front) -> None:
    once, X, y = fitted(front)
    other_X, other_y = front.data(min(9, front.n - 1), 5)
    again = front.estimator().fit(other_X, other_y).fit(X, y)
    assert equal(once.predict_proba(X), again.predict_proba(X))
    assert equal(once.predict(X), again.predict(X))


@every
def test_a_fit_that_fails_leaves_the_old_model(front: Front) -> None:
    model, X, y = copy.deepcopy(fitted(front))
    before = model.predict(X), model.predict_proba(X)
    with pytest.raises(CrfieldError):
        model.fit(X, wrong(y))
    with pytest.raises(CrfieldError):
        model.fit(X, None)
    with pytest.raises(CrfieldError):
        model.fit(X[:-1], y)
    assert equal(model.predict(X), before[0])
    assert equal(model.predict_proba(X), before[1])


@every
def test_answers_have_one_form(front: Front) -> None:
    model, X, y = fitted(front)
    for some in (X, X[:1], X[:0]):
        for method in ("predict", "predict_proba"):
            found = getattr(model, method)(some)
            assert isinstance(found, np.ndarray)
            assert found.dtype == object
            assert found.shape == (len(some),)
    for labels, truth in zip(model.predict(X), y, strict=True):
        assert labels.shape == np.shape(truth)
    for table in arrays(model.predict_proba(X)):
        assert ((table >= 0) & (table <= 1)).all()
        total = table.sum(axis=-1)
        np.testing.assert_allclose(total, np.rint(total), rtol=0, atol=1e-9)
    assert (model.log_prob(X, y) <= 0).all()


@every
def test_score_is_the_share_of_right_labels(front: Front) -> None:
    model, X, y = fitted(front)
    right = [np.asarray(a) == np.asarray(b) for a, b in zip(model.predict(X), y, strict=True)]
    assert model.score(X, y) == pytest.approx(np.concatenate([r.ravel() for r in right]).mean(), abs=1e-12)
    assert 0.5 < model.score(X, y) <= 1
    weight = np.arange(len(X), dtype=float)
    share = sum(w * r.sum() for w, r in zip(weight, right)) / sum(w * r.size for w, r in zip(weight, right))
    assert model.score(X, y, sample_weight=weight) == pytest.approx(share, abs=1e-12)


@every
@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_weights_count(front: Front) -> None:
    """A graph of weight 0 is not there at all."""
    X, y = front.data(front.n, 0)
    weight = np.ones(front.n)
    weight[3] = 0.0
    rest = [k for k in range(front.n) if k != 3]
    kept = front.estimator().fit(X, y, sample_weight=weight)
    without = front.estimator().fit([X[k] for k in rest], [y[k] for k in rest])
    assert equal(kept.predict(X), without.predict(X))
    for one, other in zip(arrays(kept.predict_proba(X)), arrays(without.predict_proba(X)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    with pytest.raises(InputError, match="sample_weight"):
        front.estimator().fit(X, y, sample_weight=-weight)


@every
def test_files_and_pickles_answer_the_same(front: Front, tmp_path: Path) -> None:
    X, y = front.data(front.n, 0)
    model = front.estimator(**{k: v for k, v in front.options if k != "forbidden"}).fit(X, y)
    path = tmp_path / "model.crfield"
    model.save(path)
    for twin in (crfield.load(path), crfield.load(path, mmap=True), pickle.loads(pickle.dumps(model))):
        assert type(twin) is type(model)
        assert equal(twin.predict(X), model.predict(X))
        assert equal(twin.predict_proba(X), model.predict_proba(X))
        np.testing.assert_equal(twin.classes_, model.classes_)
        assert twin.converged_ == model.converged_
    crfield.load(path).save(tmp_path / "again.crfield")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError):
        crfield.load(path)


@every
def test_many_threads_may_use_one_model(front: Front) -> None:
    model, X, _ = fitted(front)
    wanted = model.predict_proba(X)
    with ThreadPoolExecutor(4) as pool:
        assert all(equal(found, wanted) for found in pool.map(lambda _: model.predict_proba(X), range(8)))


@every
def test_among_the_tools_of_scikit_learn(front: Front) -> None:
    X, y = front.data(front.n, 0)
    model = front.estimator()
    tags = model.__sklearn_tags__()
    assert tags.target_tags.required
    assert not tags.input_tags.two_d_array
    assert not is_classifier(model)
    search = GridSearchCV(model, {"decode": sorted({model.decode, "marginal"})}, cv=2, refit=False).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    with pytest.raises(InputError, match="decode"):
        GridSearchCV(model, {"decode": ["best"]}, cv=2, error_score="raise").fit(X, y)


# ------------------------------------------------------------------ what fields cannot store or weigh


def test_files_hold_no_code(tmp_path: Path) -> None:
    from sklearn.neighbors import KernelDensity
    from sklearn.tree import DecisionTreeClassifier

    X, y = FRONT_DOOR[-1].data(8, 0)
    for model in (
        crfield.DiscriminativeRandomField(DecisionTreeClassifier(max_depth=2)).fit(X, y),
        crfield.MarkovRandomField(KernelDensity(bandwidth=0.3)).fit(X, y),
    ):
        with pytest.raises(InputError, match="joblib"):
            model.save(tmp_path / "field.crfield")
        assert not list(tmp_path.iterdir())


def test_weights_that_a_density_cannot_take_are_told_of() -> None:
    X, y = FRONT_DOOR[-1].data(8, 0)
    with pytest.warns(DataWarning, match="GaussianMixture"):
        crfield.MarkovRandomField().fit(X, y, sample_weight=np.arange(1.0, 9.0))


def test_weights_reach_the_local_classifier() -> None:
    X, y = FRONT_DOOR[-1].data(8, 0)
    heavy = crfield.DiscriminativeRandomField(cv=1).fit(X, y, sample_weight=[2.0] + [1.0] * 7)
    twice = crfield.DiscriminativeRandomField(cv=1).fit([*X, X[0]], [*y, y[0]])
    np.testing.assert_allclose(heavy.local_.coef_, twice.local_.coef_, atol=1e-4)
