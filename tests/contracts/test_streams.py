"""Streams and exports: every estimator of sequences has them, or says why not and what to use instead."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crfield import (
    ChainCRFCV,
    ContinuousCRF,
    DenseCRF,
    DiscriminativeRandomField,
    FactorialCRF,
    GridCRF,
    HiddenCRF,
    KernelCRF,
    MarkovRandomField,
    SemiMarkovCRF,
)
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, NotFittedError
from tests.cases.estimators import CELLS, FRONT_DOOR, Front

every = pytest.mark.parametrize("front", FRONT_DOOR, ids=lambda front: front.estimator.__name__)

# what has no order in time, or no label before its end
WHOLE = {SemiMarkovCRF, DenseCRF, GridCRF, DiscriminativeRandomField, MarkovRandomField}
NOT_EXPORTED = {KernelCRF}
SENTENCE = r"cannot stream|not exported|only models of plain numbers|chains over time"
OPTIONS: dict[str, Any] = {"n_rounds": 5, "max_iter": 5, "n_init": 1, "decode": "marginal"}


@cache
def fitted(front: Front, *, numbers: bool) -> tuple[Any, Any]:
    """A model with few rounds or steps, and its data: in the form that it is known for, or in plain numbers."""
    X, y = front.cells(None) if numbers else front.data(6, 0)
    model = front.estimator()
    model.set_params(**{name: value for name, value in OPTIONS.items() if name in model.get_params()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        return model.fit(X, y), X


def steps_of(x: Any) -> list[Any]:
    """The observations of a sequence, or of a graph that is one."""
    return list(x.nodes["node"] if isinstance(x, Graph) else x)


@every
@pytest.mark.parametrize("numbers", [False, True], ids=["usual", "numbers"])
def test_a_stream_ends_as_predict_says_or_a_sentence_says_why_not(front: Front, numbers: bool) -> None:
    model, X = fitted(front, numbers=numbers)
    if front.estimator in WHOLE:
        with pytest.raises(InputError, match=rf"({SENTENCE}).*predict"):
            model.stream()
        with pytest.raises(InputError, match=rf"({SENTENCE}).*predict"):
            model.streams(2)
        return
    x = max(X, key=lambda one: one.n_nodes if isinstance(one, Graph) else len(one))
    stream, told = model.stream(viterbi=True), []
    for step in steps_of(x):
        now = stream.push(step)
        told += now.committed
        assert now.label in stream.classes_.tolist()
    end = stream.finish()
    assert len(told) + len(end.committed) == len(steps_of(x))
    shares = model.predict_proba([x])[0]
    if isinstance(model, FactorialCRF):
        joint = end.smoothed[-1].reshape(model._coder.sizes)
        np.testing.assert_allclose(joint.sum(axis=1), shares[model.layers_[0]][-1], rtol=0, atol=1e-9)
    else:
        np.testing.assert_allclose(end.smoothed[-1], shares[-1], rtol=0, atol=1e-9)


@every
def test_numbers_are_exported_or_a_sentence_says_why_not(front: Front, tmp_path: Path) -> None:
    model, X = fitted(front, numbers=True)
    path = tmp_path / "robot.py"
    if front.estimator in WHOLE | NOT_EXPORTED:
        with pytest.raises(InputError, match=SENTENCE):
            model.export(path)
        assert not path.exists()
        return
    model.export(path)
    model.export(tmp_path / "robot.h")
    made: dict[str, Any] = {}
    exec(path.read_text(), made)
    ours, theirs = made["Stream"](), model.stream(viterbi=True)
    for step in steps_of(X[0]):
        now, then = ours.push(step.tolist()), theirs.push(step)
        np.testing.assert_allclose(now["probabilities"], then.probabilities, rtol=0, atol=1e-12)
        assert (now["label"], tuple(now["committed"])) == (then.label, then.committed)


@every
def test_other_forms_are_not_exported(front: Front, tmp_path: Path) -> None:
    model, _ = fitted(front, numbers=False)
    if front.data(1, 0)[0][0] is None or hasattr(front.data(2, 0)[0][0], "dtype"):
        return  # numbers already
    with pytest.raises(InputError, match=SENTENCE):
        model.export(tmp_path / "robot.h")
    assert not list(tmp_path.iterdir())


@every
def test_nothing_streams_that_is_not_fitted(front: Front, tmp_path: Path) -> None:
    for ask in (lambda: front.estimator().stream(), lambda: front.estimator().export(tmp_path / "robot.h")):
        with pytest.raises(NotFittedError):
            ask()


@pytest.mark.parametrize("estimator", [HiddenCRF, ContinuousCRF])
def test_models_of_whole_sequences_say_so(estimator: type[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(max_iter=3).fit(*CELLS[estimator](None))
    with pytest.raises(InputError, match=r"cannot stream.*predict"):
        model.stream()


def test_a_search_streams_by_its_best_model() -> None:
    X, y = CELLS[ChainCRFCV](None)
    search = ChainCRFCV(l2s=[1.0, 0.1], cv=2, scoring="accuracy").fit(X, y)
    told = [search.stream().push(step).label for step in X[0]]
    assert told == [search.best_estimator_.stream().push(step).label for step in X[0]]
