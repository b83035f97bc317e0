"""Estimators and scikit-learn: nothing of it before it is asked for, all of it after, whichever is imported first."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
import sklearn.base

from crfield import ChainCRF

BEFORE = """
import sys
import crfield
from crfield import ChainCRF, HiddenCRF, TextFeatures
from crfield.core.estimator import ClassifierMixin, Estimator
from crfield.core.parameters import parameter
class Own(Estimator):
    a: int = parameter(default=1)
    part: object = parameter(default=None)
    def fit(self, X, y, sample_weight=None):
        return self
class Constant(ClassifierMixin, Estimator):
    def predict(self, X):
        return ["A"] * len(X)
model = ChainCRF(l2=0.5).fit([[["a"], ["b"]]], [["A", "B"]])
words = TextFeatures()
HiddenCRF, crfield.StumpSelector
assert not [name for name in sys.modules if name.split(".")[0] == "sklearn"]
"""
AFTER = """
import sklearn, sklearn.base, sklearn.exceptions
from sklearn.utils import get_tags
assert isinstance(model, sklearn.base.BaseEstimator) and issubclass(Own, sklearn.base.BaseEstimator)
assert isinstance(words, sklearn.base.TransformerMixin) and issubclass(HiddenCRF, sklearn.base.ClassifierMixin)
assert sklearn.base.clone(model).get_params() == model.get_params()
assert sklearn.base.is_classifier(HiddenCRF()) and not sklearn.base.is_classifier(model)
assert get_tags(model).target_tags.required and get_tags(model).no_validation
assert repr(model) == "ChainCRF(l2=0.5)" and "ChainCRF" in model._repr_html_()
assert "sample_weight" in str(Own().get_metadata_routing().fit.requests)
for each in (ChainCRF, Own, TextFeatures, HiddenCRF, crfield.StumpSelector):
    print(sorted(name for name in dir(each) if not name.startswith("__")))
    print([base.__name__ for base in each.__mro__])
    print({name: type(value).__name__ for name, value in sorted(vars(each).items())})
print(hasattr(TextFeatures.transform, "__wrapped__"), words._sklearn_auto_wrap_output_keys)
try:
    ChainCRF().predict([])
except sklearn.exceptions.NotFittedError as error:
    print(type(error).__mro__)
sklearn.set_config(enable_metadata_routing=True)
print(model.set_fit_request(sample_weight=True).get_metadata_routing().fit.requests)
from sklearn.model_selection import GridSearchCV
X, y = [[["a"], ["b"]]] * 4, [["A", "B"]] * 4
print(GridSearchCV(ChainCRF(), {"l2": [0.5, 1.0]}, cv=2).fit(X, y).best_score_)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_estimator_is_the_same_whether_scikit_learn_came_before_or_after() -> None:
    """Names, order of resolution, wrapped methods, errors, routing and a search, all printed by both."""
    first = BEFORE.replace("import sys\n", "import sys, sklearn.base\n").replace("assert not [", "assert [")
    assert run(BEFORE + AFTER) == run(first + AFTER)


QUESTIONS = [
    "repr(model)",
    "'ChainCRF' in model._repr_mimebundle_()['text/html']",
    "'ChainCRF' in model._repr_html_()",
    "model.__sklearn_tags__().no_validation",
    "str(model.get_metadata_routing())",
    "[list(map(sorted, x)) for x in words.fit_transform([['a', 'b']])]",
    "hasattr(words, 'set_output')",
    "type(crfield.StumpSelector().set_output(transform='default')).__name__",
    "Constant().score([[0], [1]], ['A', 'B'])",
]
ASK = """
import json
def ask(question):
    unasked = "sklearn.base" not in sys.modules
    told = str(eval(question))
    print(json.dumps([question, told, unasked, "sklearn.base" in sys.modules]), flush=True)
"""
FORKS = """
import os
for question in {questions!r}:
    child = os.fork()
    if not child:
        ask(question)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, question
"""


@pytest.fixture(scope="module")
def told() -> dict[str, list[list[object]]]:
    """What is said to every question, and whether scikit-learn was there before and after: without it, and with it.

    Each has a process to itself, which forks from one that has all but scikit-learn, where there is fork.
    """
    answers: dict[str, list[list[object]]] = {question: [] for question in QUESTIONS}
    for first in ("", "import sklearn\n"):
        code = BEFORE + first + ASK
        if hasattr(os, "fork"):
            lines = run(code + FORKS.format(questions=QUESTIONS)).splitlines()
        else:
            lines = [run(f"{code}\nask({question!r})") for question in QUESTIONS]
        for question, *found in map(json.loads, lines):
            answers[question].append(found)
    return answers


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_that_need_scikit_learn_import_it(question: str, told: dict[str, list[list[object]]]) -> None:
    without, after = told[question]
    assert without[1:] == [True, True]
    assert after == [without[0], False, True]


def test_parameters_pickles_and_copies_need_none_of_it() -> None:
    run(
        BEFORE
        + """
import copy, pickle
outer = Own(part=Own(a=3))
assert outer.get_params() == {"a": 1, "part": outer.part, "part__a": 3, "part__part": None}
assert outer.get_params(deep=False) == {"a": 1, "part": outer.part}
assert outer.set_params(part__a=5, a=2) is outer and (outer.a, outer.part.a) == (2, 5)
assert [labels.tolist() for labels in pickle.loads(pickle.dumps(model)).predict([[["a"]]])] == [["A"]]
assert copy.deepcopy(model).l2 == 0.5 and vars(copy.copy(model)).keys() == vars(model).keys()
try:
    ChainCRF().predict([])
except crfield.errors.NotFittedError as error:
    assert isinstance(error, ValueError) and isinstance(error, AttributeError)
try:
    model.set_params(l3=1)
except crfield.errors.ParameterError as error:
    assert "Did you mean" in str(error), error
assert not [name for name in sys.modules if name.split(".")[0] == "sklearn"]
"""
    )


def test_the_watch_leaves_no_trace() -> None:
    run(
        BEFORE
        + """
assert [type(finder).__name__ for finder in sys.meta_path].count("_Watch") == 1
import sklearn.base, inspect
assert [type(finder).__name__ for finder in sys.meta_path].count("_Watch") == 0
assert type(sklearn.base.__loader__) is type(sklearn.__loader__)
assert sklearn.base.__spec__.loader is sklearn.base.__loader__
assert "class BaseEstimator" in inspect.getsource(sklearn.base)
"""
    )


def test_a_pickle_of_one_time_is_read_at_the_other() -> None:
    code = "import pickle, base64\nprint(base64.b64encode(pickle.dumps(model)).decode())"
    for made, read in ((BEFORE, "import sklearn.base\n"), (BEFORE + "\nimport sklearn.base\n", "")):
        text = run(f"{made}\n{code}").strip()
        out = run(
            f"{read}import base64, pickle\nmodel = pickle.loads(base64.b64decode({text!r}))\n"
            "print(model.predict([[['a'], ['b']]])[0].tolist(), model.l2)"
        )
        assert out.strip() == "['A', 'B'] 0.5"


def test_models_of_this_process_are_estimators_of_scikit_learn() -> None:
    model = ChainCRF()
    assert isinstance(model, sklearn.base.BaseEstimator)
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
