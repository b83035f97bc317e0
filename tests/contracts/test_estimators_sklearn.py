"""Estimators among scikit-learn's tools: search, cross-validation, pipelines, several processes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    train_test_split,
)
from sklearn.pipeline import Pipeline, make_pipeline

from crfield.errors import InputError
from crfield.metrics import label_f1_scorer, sequence_accuracy_scorer, span_f1_scorer, token_accuracy_scorer
from tests.cases.estimators import (
    KINDS,
    SEQUENCE_ESTIMATORS,
    Kind,
    as_dicts,
    as_rows,
    as_strings,
    exact,
    same,
    world,
)

each_estimator = pytest.mark.parametrize("estimator", SEQUENCE_ESTIMATORS, ids=lambda e: e.__name__)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)


class Words(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows of columns to lists of feature strings; it learns which words are frequent."""

    def __init__(self, *, window: int = 1, least: int = 1) -> None:
        self.window = window
        self.least = least

    def fit(self, X: Any, y: Any = None) -> Self:
        words, counts = np.unique([row[0] for x in X for row in x], return_counts=True)
        self.words_ = set(words[counts >= self.least].tolist())
        return self

    def transform(self, X: Any) -> list[list[list[str]]]:
        out = []
        for x in X:
            words = [row[0] if row[0] in self.words_ else "rare" for row in x]
            reach = range(-self.window, self.window + 1)
            out.append([[f"{d}:{words[t + d]}" for d in reach if 0 <= t + d < len(words)] for t in range(len(words))])
        return out


@each_estimator
def test_tags_say_what_it_is(estimator: type[Any]) -> None:
    tags = estimator().__sklearn_tags__()
    assert tags.target_tags.required
    assert not tags.input_tags.two_d_array
    assert tags.no_validation
    assert not is_classifier(estimator())  # its y is not a column of classes


@each_kind
def test_grid_search_over_every_input(kind: Kind) -> None:
    X, y = kind.data(18)
    search = GridSearchCV(kind.model(tol=1e-5), {"l2": [0.01, 1.0, 100.0]}, cv=3, scoring=token_accuracy_scorer)
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert same(search.predict(X), search.best_estimator_.predict(X))
    again = clone(search.best_estimator_).fit(X, y)
    assert np.array_equal(again.coef_, search.best_estimator_.coef_)


@each_estimator
def test_grid_search_in_two_processes(estimator: type[Any]) -> None:
    X, y = world(18)
    grid = {"l2": [0.1, 1.0], "decode": ["viterbi", "marginal"]}
    found = [
        GridSearchCV(estimator(), grid, cv=3, n_jobs=n_jobs).fit(as_dicts(X), y).cv_results_["mean_test_score"]
        for n_jobs in (1, 2)
    ]
    assert found[0].tolist() == found[1].tolist()


@each_estimator
def test_a_search_meets_bad_values_with_our_words(estimator: type[Any]) -> None:
    X, y = world(6)
    with pytest.raises(InputError, match="l2 must be a finite number ≥ 0"):
        GridSearchCV(estimator(), {"l2": [-1.0]}, cv=2, error_score="raise").fit(as_strings(X), y)


@each_kind
def test_cross_val_predict_keeps_order_and_form(kind: Kind) -> None:
    X, y = kind.data(12)
    found = cross_val_predict(kind.model(tol=1e-5), X, y, cv=3)
    assert found.dtype == object
    assert found.shape == (12,)
    assert [len(labels) for labels in found] == [len(labels) for labels in y]
    train, test = next(iter(KFold(3).split(np.arange(12))))
    raw, _ = world(12)
    model = kind.model(tol=1e-5).fit(kind.write([raw[k] for k in train]), [y[k] for k in train])
    assert same(found[test], model.predict(kind.write([raw[k] for k in test])))


@each_estimator
def test_cross_val_predict_with_sequences_of_one_length(estimator: type[Any]) -> None:
    raw, y = world(30)
    X = [x[:2] for x in as_strings(raw) if len(x) >= 2]
    y = [labels[:2] for labels in y if len(labels) >= 2]
    found = cross_val_predict(estimator(), X, y, cv=2)
    assert found.shape == (len(X),)
    assert all(labels.shape == (2,) for labels in found)
    arrays = np.empty(len(y), dtype=object)
    arrays[:] = [np.array(labels) for labels in y]
    assert same(cross_val_predict(estimator(), X, arrays, cv=2), found)


@each_estimator
def test_probabilities_of_every_fold_need_a_loop(estimator: type[Any]) -> None:
    """As docs/guides/scikit-learn.md says. Should scikit-learn learn it one day, that page can be shorter."""
    raw, y = world(12)
    X = as_strings(raw)
    arrays = np.empty(len(y), dtype=object)
    arrays[:] = [np.array(labels) for labels in y]
    for given in (y, arrays):
        with pytest.raises((ValueError, TypeError)):
            cross_val_predict(estimator(), X, given, cv=3, method="predict_proba")
    labels = cross_val_predict(estimator(decode="marginal"), X, y, cv=3)
    for train, test in KFold(3).split(X):
        model = clone(estimator()).fit([X[k] for k in train], [y[k] for k in train])
        for k, steps in zip(test, model.predict_marginals([X[k] for k in test])):
            assert [max(step, key=step.__getitem__) for step in steps] == labels[k].tolist()


@each_estimator
def test_cross_validate_with_the_scorers_of_metrics(estimator: type[Any]) -> None:
    X, y = world(15)
    y = [[f"B-{label}" for label in labels] for labels in y]
    scoring = {
        "token": token_accuracy_scorer,
        "sequence": sequence_accuracy_scorer,
        "span": span_f1_scorer(),
        "label": label_f1_scorer(average="macro"),
    }
    found = cross_validate(estimator(), as_strings(X), y, cv=3, scoring=scoring, return_estimator=True)
    own = cross_val_score(estimator(), as_strings(X), y, cv=3)
    assert found["test_token"].tolist() == own.tolist()
    for name in scoring:
        assert ((found[f"test_{name}"] >= 0) & (found[f"test_{name}"] <= 1)).all()
    assert found["test_sequence"].mean() < found["test_token"].mean()


@each_estimator
def test_pipeline_with_a_transformer_of_sequences(estimator: type[Any]) -> None:
    X, y = world(18)
    rows = as_rows(X)
    pipe = make_pipeline(Words(), estimator()).fit(rows, y)
    assert isinstance(pipe, Pipeline)
    assert same(pipe.predict(rows), pipe[-1].predict(pipe[0].transform(rows)))
    assert pipe.score(rows, y) == pipe[-1].score(pipe[0].transform(rows), y)
    assert pipe.predict_proba(rows).shape == (18,)
    weighted = make_pipeline(Words(), estimator())
    weighted.fit(rows, y, **{f"{estimator.__name__.lower()}__sample_weight": np.full(18, 2.0)})
    assert not np.array_equal(weighted[-1].coef_, pipe[-1].coef_)
    search = GridSearchCV(
        Pipeline([("words", Words()), ("model", estimator())]),
        {"words__window": [0, 1], "words__least": [1, 2], "model__l2": [0.1, 1.0]},
        cv=2,
    ).fit(rows, y)
    assert len(search.cv_results_["params"]) == 8
    assert search.best_estimator_.predict(rows).shape == (18,)


@each_estimator
def test_splits_and_learning_curves(estimator: type[Any]) -> None:
    X, y = world(20)
    train_X, test_X, train_y, test_y = train_test_split(as_strings(X), y, random_state=0)
    assert estimator().fit(train_X, train_y).score(test_X, test_y) > 0.3
    sizes, _, scores = learning_curve(estimator(), as_strings(X), y, cv=2, train_sizes=[0.5, 1.0])
    assert sizes.tolist() == [5, 10]
    assert np.isfinite(scores).all()


def test_sample_weights_reach_the_search() -> None:
    """Weights are cut with the data; a fold of zero weights would be an error, so these are positive."""
    X, y = world(12)
    weight = np.linspace(0.5, 2.0, 12)
    search = GridSearchCV(exact(), {"l2": [1.0]}, cv=3).fit(as_strings(X), y, sample_weight=weight)
    alone = exact(l2=1.0).fit(as_strings(X), y, sample_weight=weight)
    assert np.array_equal(search.best_estimator_.coef_, alone.coef_)
