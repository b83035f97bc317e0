"""Names of parameters that do not exist: an error says which was meant, or which is used here."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

import crfield
from crfield.compat.sklearn_crfsuite import CRF
from crfield.core.estimator import FOREIGN, Estimator
from crfield.errors import CrfieldError, ParameterError
from tests.cases.estimators import ESTIMATORS

# Pipelines take the names of their steps as parameters, by scikit-learn's own rules.
EVERY = [
    *(maker for maker in ESTIMATORS if not issubclass(maker, Pipeline)),
    crfield.TextFeatures,
    crfield.SensorFeatures,
    crfield.ReadingFeatures,
    crfield.PlaceShift,
    CRF,
]
every = pytest.mark.parametrize("estimator", EVERY, ids=lambda estimator: estimator.__name__)

MEANT = [
    ({"max_itre": 5}, "Did you mean 'max_iter'?"),
    ({"L2": 1.0}, "Did you mean 'l2'"),
    ({"l3": 1.0}, "'l1'"),
    ({"n_job": 1}, "Did you mean 'n_jobs'?"),
    ({"c1": 0.1}, "Here it is l1=c1."),
    ({"c2": 0.1}, "Here it is l2=2*c2, with intercept=False and boundaries=False"),
    ({"max_iterations": 5}, "Here it is max_iter."),
    ({"all_possible_transitions": True}, 'transition_pairs="all"'),
    ({"all_possible_states": True}, 'feature_pairs="all"'),
    ({"algorithm": "ap"}, '"ap" is "perceptron"'),
    ({"feature.minfreq": 2}, "min_count"),
    ({"rho2": 2.0}, "l2=rho2"),
    ({"cost": 2.0}, "l2=1/cost"),
    ({"seed": 1}, "random_state"),
    ({"xyzzy": 1}, "It has 'l1', 'l2'"),
]


@pytest.mark.parametrize(("options", "words"), MEANT, ids=lambda v: "" if isinstance(v, str) else next(iter(v)))
def test_the_name_to_use_is_said(options: dict[str, Any], words: str) -> None:
    name = next(iter(options))
    for call in (lambda: crfield.ChainCRF(**options), lambda: crfield.ChainCRF().set_params(**options)):
        with pytest.raises(ParameterError, match=re.escape(f"ChainCRF has no parameter {name!r}. ")) as told:
            call()
        assert words in str(told.value)
        assert isinstance(told.value, TypeError)
        assert isinstance(told.value, ValueError)
        assert isinstance(told.value, CrfieldError)


@every
def test_every_estimator_answers(estimator: type[Any]) -> None:
    assert issubclass(estimator, Estimator)
    name = list(inspect.signature(estimator).parameters)[-1]
    slip = name[:-1] + name[-1] * 2
    with pytest.raises(TypeError, match=f"{estimator.__name__} has no parameter '{slip}'. Did you mean .*{name}"):
        estimator(**{slip: 1})
    with pytest.raises(ValueError, match=f"{estimator.__name__} has no parameter '{slip}'. Did you mean .*{name}"):
        estimator().set_params(**{slip: 1})


@every
def test_signatures_clones_and_pickles_are_as_before(estimator: type[Any]) -> None:
    names = list(inspect.signature(estimator).parameters)
    assert names == list(inspect.signature(estimator.__init__).parameters)[1:]
    model = estimator()
    assert sorted(names) == sorted(BaseEstimator.get_params(model, deep=False))
    for twin in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(twin) is estimator
        assert repr(twin) == repr(model)


@pytest.mark.parametrize(
    "name", [n for n in inspect.signature(CRF).parameters if n not in ("n_jobs", "random_state")]
)
def test_every_parameter_of_sklearn_crfsuite_is_known(name: str) -> None:
    if name == "verbose":
        return
    with pytest.raises(ParameterError, match="Here it is"):
        crfield.ChainCRF(**{name: None})


def test_hints_name_parameters_that_exist() -> None:
    """No hint points to a parameter that no estimator has, and none is in the way of a parameter of that name."""
    known = {name for estimator in ESTIMATORS for name in inspect.signature(estimator).parameters}
    for name, hints in FOREIGN.items():
        assert set(hints) <= known, name
        assert not re.search(r"[^\w]", name)


def test_parts_and_searches_say_so_too() -> None:
    with pytest.raises(ParameterError, match=r"LogitBoost has no parameter 'n_round'. Did you mean 'n_rounds'"):
        crfield.ClassifierHMM(crfield.LogitBoost()).set_params(classifier__n_round=3)
    search = GridSearchCV(crfield.ChainCRF(), {"c2": [1.0]}, cv=2, error_score="raise")
    with pytest.raises(ValueError, match=re.escape("Here it is l2=2*c2")):
        search.fit([[["a"]], [["b"]]], [["A"], ["B"]])


def test_a_subclass_may_take_any_names() -> None:
    class Mine(crfield.ChainCRF):
        def __init__(self, depth: int = 1, **more: Any) -> None:
            super().__init__(**more)
            self.depth = depth

    assert Mine(depth=2, l2=3.0).l2 == 3.0
    with pytest.raises(TypeError):
        Mine(c2=3.0)


def test_other_mistakes_are_pythons() -> None:
    with pytest.raises(TypeError, match="positional"):
        crfield.ChainCRF(1.0)
