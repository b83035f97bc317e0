"""Pipelines of scikit-learn made of our parts: asked whatever their model can be asked, and kept in one file."""

from __future__ import annotations

import copy
import io
import pickle
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline as Plain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import crfield
from crfield import ChainCRF, Pipeline, SensorFeatures, StumpEncoder, TextFeatures, TreeCRF, load, save
from crfield.errors import CrfieldError, InputError, ModelFileError
from crfield.storage.archive import read_archive, write_archive
from tests.cases.estimators import some_numbers
from tests.cases.model_file_fuzz import edit_arrays, edit_header
from tests.estimators.chain.test_text_models import RICH, sentences


def stored(model: Any) -> bytes:
    stream = io.BytesIO()
    save(model, stream)
    return stream.getvalue()


def test_a_pipeline_of_scikit_learn_is_one_file() -> None:
    X, y = sentences()
    new, _ = sentences(8, seed=1)
    pipe = make_pipeline(clone(RICH), ChainCRF(l2=0.5, constraints="bio", transition_pairs="all"))
    y = [[label.replace("I-", "B-") for label in labels] for labels in y]
    pipe.fit(X, y)
    again = load(io.BytesIO(stored(pipe)))
    assert isinstance(again, Plain)
    assert [name for name, _ in again.steps] == ["textfeatures", "chaincrf"]
    for one, other in zip(again.predict_proba(new), pipe.predict_proba(new), strict=True):
        assert np.array_equal(one, other)
    assert stored(again) == stored(pipe)


def test_every_question_reaches_through() -> None:
    X, y = sentences()
    new, gold = sentences(8, seed=1)
    plain = make_pipeline(clone(RICH), ChainCRF()).fit(X, y)
    given, model = plain[:-1].transform(new), plain[-1]
    for pipe in (Pipeline(plain.steps), load(io.BytesIO(stored(plain)))):
        assert str(pipe.predict_n_best(new, 3)) == str(model.predict_n_best(given, 3))
        assert pipe.predict_spans(new) == model.predict_spans(given)
        assert str(pipe.explain(new[0], 0)) == str(model.explain(given[0], 0))
        assert str(pipe.feature_importance(new)) == str(model.feature_importance(given))
        assert np.array_equal(pipe.log_prob(new, gold), model.log_prob(given, gold))
        assert pipe.predict_marginals(new) == model.predict_marginals(given)
        assert np.array_equal(pipe.entropy(new), model.entropy(given))
        assert str(pipe.predict(new, known=gold)) == str(model.predict(given, known=gold))
        assert list(pipe.top_features(5)) == list(model.top_features(5))
        assert str(pipe.transitions_) == str(model.transitions_)
        assert pipe.classes_.tolist() == model.classes_.tolist()
        assert pipe.calibrated(new, gold).predict(new).shape == (8,)
        assert isinstance(pipe.calibrated(new, gold), Pipeline)
        other = copy.deepcopy(pipe)
        assert other.partial_fit(new, gold) is other
        with pytest.raises(InputError, match=r"pipe\[-1\].stream"):
            pipe.stream()
        with pytest.raises(AttributeError, match="nonsense"):
            pipe.nonsense


def test_it_keeps_the_habits_of_scikit_learn() -> None:
    X, y = sentences()
    pipe = Pipeline([("words", TextFeatures(min_count=2)), ("chain", ChainCRF())])
    copies = [clone(pipe), pickle.loads(pickle.dumps(pipe)), copy.deepcopy(pipe)]
    for one in copies:
        assert type(one) is Pipeline
        assert np.array_equal(one.fit(X, y).coef_, copies[0].fit(X, y).coef_)
    assert "Pipeline(steps=" in repr(pipe)
    search = GridSearchCV(pipe, {"words__word": [0, 1]}, cv=2).fit(X, y)
    assert isinstance(search.best_estimator_, Pipeline)
    assert load(io.BytesIO(stored(search.best_estimator_))).predict(X).shape == (len(X),)
    assert not hasattr(pipe, "predict_quantiles")


def test_other_parts_of_ours() -> None:
    X, y = some_numbers(12, 0)
    for steps in ([StumpEncoder(), ChainCRF()], [StumpEncoder(), TreeCRF(n_rounds=3)], ["passthrough", ChainCRF()]):
        pipe = make_pipeline(*steps).fit(X, y)
        again = load(io.BytesIO(stored(pipe)))
        assert str(again.predict(X)) == str(pipe.predict(X))
    rng = np.random.default_rng(0)
    samples = [rng.normal(size=(100, 2)) for _ in range(4)]
    labels = [["a", "b"] * 5] * 4
    pipe = make_pipeline(SensorFeatures(rate=10.0, measures=("mean",)), ChainCRF()).fit(samples, labels)
    assert str(load(io.BytesIO(stored(pipe))).predict_n_best(samples, 2)) == str(
        Pipeline(pipe.steps).predict_n_best(samples, 2)
    )


def test_features_alone_are_a_file_too() -> None:
    again = load(io.BytesIO(stored(RICH)))
    assert isinstance(again, TextFeatures)
    assert again.get_params() == RICH.get_params()


def test_what_a_file_cannot_hold() -> None:
    X, y = sentences(6)
    strange = make_pipeline(FunctionTransformer(), TextFeatures(), ChainCRF()).fit(X, y)
    with pytest.raises(InputError, match="'functiontransformer' is a FunctionTransformer, which a model file cannot"):
        save(strange, io.BytesIO())
    with pytest.raises(InputError, match="is a pipeline itself"):
        save(make_pipeline(make_pipeline(TextFeatures()), ChainCRF()).fit(X, y), io.BytesIO())
    with pytest.raises(InputError, match="a FunctionTransformer cannot be saved"):
        save(FunctionTransformer(), io.BytesIO())
    with pytest.raises(crfield.errors.NotFittedError):
        save(make_pipeline(TextFeatures(), ChainCRF()), io.BytesIO())


@pytest.mark.parametrize(
    "steps",
    [None, [], [["a"]], [["a", 3]], [["a", {"kind": "pipeline", "steps": []}]], [[3, {"kind": "passthrough"}]], 5]
    + [
        [["a__b", {"kind": "passthrough"}]],
        [["a", {"kind": "passthrough"}]] * 2,
        [["steps", {"kind": "passthrough"}]],
    ]
    + [[["a", {"kind": "nothing"}]], [["a", {"kind": "passthrough"}]] * 1000],
)
def test_damaged_steps(steps: Any) -> None:
    stream = io.BytesIO()
    write_archive(stream, {"kind": "pipeline", "steps": steps}, {})
    stream.seek(0)
    with pytest.raises(ModelFileError):
        load(stream)


@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")  # names that were edited are known to nobody
def test_hostile_pipelines() -> None:
    X, y = sentences(6)
    archive = read_archive(io.BytesIO(stored(make_pipeline(clone(RICH), ChainCRF(tol=1e-2)).fit(X, y))))
    rng, refused = random.Random(1), 0
    for _ in range(150):
        header, arrays = copy.deepcopy(archive.header), {k: a.copy() for k, a in archive.arrays.items()}
        with np.errstate(all="ignore"):
            edit_header(header, rng) if rng.random() < 0.6 else edit_arrays(arrays, rng)
        stream = io.BytesIO()
        try:
            write_archive(stream, header, arrays)
        except InputError:
            continue
        stream.seek(0)
        try:
            pipe = load(stream)
        except ModelFileError:
            refused += 1
            continue
        with suppress(CrfieldError, AttributeError):  # options for other data, or no model at the end
            pipe.predict(X)
    assert refused > 40
