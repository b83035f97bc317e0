"""Scorers inside scikit-learn: grid search, cross validation, pickles and copies."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from crfield.errors import InputError
from crfield.metrics import (
    label_f1,
    label_f1_scorer,
    sequence_accuracy_scorer,
    span_f1,
    span_f1_scorer,
    token_accuracy_scorer,
)

SCORERS = [
    token_accuracy_scorer,
    sequence_accuracy_scorer,
    span_f1_scorer(scheme="bilou"),
    label_f1_scorer(average="macro", labels=["B-X", "I-X"]),
]


class Repeater(BaseEstimator):
    """Predicts the tags it is given, with every ``spoil``-th sequence set to O."""

    def __init__(self, spoil: int = 1) -> None:
        self.spoil = spoil

    def fit(self, X: list[list[str]], y: list[list[str]]) -> Repeater:
        return self

    def predict(self, X: list[list[str]]) -> list[list[str]]:
        return [["O"] * len(row) if s % self.spoil == 0 else row for s, row in enumerate(X)]


Y = [["B-X", "I-X", "O"][:n] for n in (1, 2, 3, 3, 2, 1, 3, 3, 2)]


@pytest.mark.parametrize("scorer", SCORERS, ids=str)
def test_grid_search_and_copies(scorer: Any) -> None:
    search = GridSearchCV(Repeater(), {"spoil": [1, 2, 3]}, scoring=scorer, cv=3, error_score="raise")
    search.fit(Y, Y)
    assert search.best_params_ == {"spoil": 3}
    assert clone(search).scoring == scorer
    assert pickle.loads(pickle.dumps(scorer)) == scorer
    assert 0 < search.best_score_ < 1


def test_scorers_equal_their_metrics() -> None:
    model = Repeater(2)
    assert span_f1_scorer()(model, Y, Y) == span_f1(Y, model.predict(Y))
    assert token_accuracy_scorer(Repeater(100), Y, Y) == 19 / 20
    assert token_accuracy_scorer(model, Y, [[None] * len(row) for row in Y[:-1]] + [["O", "I-X"]]) == 0.5
    assert label_f1_scorer()(model, Y, Y) == label_f1(Y, model.predict(Y)) != label_f1(model.predict(Y), Y)
    assert sequence_accuracy_scorer(Repeater(100), Y, Y) == 8 / 9
    assert cross_val_score(model, Y, Y, scoring=span_f1_scorer(), cv=3).shape == (3,)


def test_options_are_checked_when_the_scorer_is_made() -> None:
    with pytest.raises(InputError, match="scheme"):
        span_f1_scorer(scheme="none")
    with pytest.raises(InputError, match="average"):
        label_f1_scorer(average="none")


def test_the_room_imports_numpy_alone() -> None:
    code = "import crfield.metrics, sys; print(sorted({'sklearn', 'scipy', 'pandas'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
