"""One small fitted model of every kind that can be saved, with data to ask it about.

Model files are edited and then loaded; a model that loads is asked all that it may be asked. `saved_models` is held
to `crfield.estimators.base.load.KINDS` by a test, so that a new kind of file joins the corpus.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from crfield import (
    BestChain,
    ChainCRF,
    ClassifierHMM,
    ContinuousCRF,
    HiddenCRF,
    IncompleteBoost,
    KernelLogistic,
    LogitBoost,
    MaxentClassifier,
    ReadingFeatures,
    Readings,
    SelectedCRF,
    SensorFeatures,
    Specification,
    StumpEncoder,
    StumpSelector,
    TextFeatures,
    make_tag,
    save,
)
from crfield.errors import CrfieldError
from crfield.storage.archive import read_archive
from tests.cases.estimators import FRONT_DOOR, KINDS, some_chains, some_numbers, world

CATALOGUE = "slow state : speed(a) | for a in robots | test <,> 100,500 | win all 1\n"
QUESTIONS = ("predict", "predict_proba", "predict_log_proba", "predict_marginals", "decision_function", "transform")
REPORTS = ("coef_", "transitions_", "rounds_", "path_", "features_", "feature_names_in_")


@dataclass(frozen=True)
class Saved:
    """A model file, what kind it says it is, and data of the form that the model reads."""

    kind: str
    data: bytes
    X: Any
    options: tuple[tuple[str, Any], ...] = ()  # of load


def saved_models() -> list[Saved]:
    """The corpus; a few seconds of training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_made())


def _made() -> Iterator[Saved]:
    for kind in KINDS:
        if kind.saved:
            X, y = kind.data(5)
            yield _saved(kind.model(tol=1e-3).fit(X, y), X, tuple(kind.load_options().items()))
    for front in FRONT_DOOR[1:]:
        X, y = front.data(8, 0)
        options = {name: value for name, value in front.options if name != "forbidden"}
        yield _saved(front.estimator(**options).fit(X, y), X[:4])
    for model, data in _plain():
        yield _saved(model.fit(*data), data[0])


def _plain() -> Iterator[tuple[Any, tuple[Any, Any]]]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (30, 4)).astype(float)
    marks = np.where(rows[:, 0] + rng.normal(size=30) > 4, "in", "out")
    X, y = some_numbers(10, 0)
    whole = ["long" if len(x) > 3 else "short" for x in X]
    strings = some_chains(8, 0)
    yield ContinuousCRF(), (X, [np.cumsum(x[:, 0]) for x in X])
    yield HiddenCRF(n_states=2, max_iter=5), (X, whole)
    yield IncompleteBoost(), (rows, marks)
    yield IncompleteBoost(structure="bag", loss="joint", l2=0.1), (rows, marks)
    yield KernelLogistic(), (rows, marks)
    yield LogitBoost(n_rounds=5), (rows, marks)
    yield LogitBoost(n_rounds=3, learner="tree"), (rows, marks)
    yield MaxentClassifier(), (rows, marks)
    yield StumpEncoder(), (X, y)
    yield StumpSelector(), (X, y)
    yield ClassifierHMM(LogisticRegression(), window=1, calibrate="temperature"), (X, y)
    yield ClassifierHMM(LogitBoost(n_rounds=3), window=1), strings
    yield BestChain(candidates=("logistic regression", "Gaussian")), (X, y)
    yield ChainCRF(order=2, tol=1e-3), strings
    yield SelectedCRF(), strings
    games = [make_tag(0.05, scheme="unconstrained", random_state=seed, pause=0.5) for seed in range(3)]
    catalogue = Specification.parse(CATALOGUE).expand(labels=3, agents=3)
    chosen = SelectedCRF(features=catalogue, rate=60.0, validation=None, options={"max_features": 2})
    yield chosen, ([game.positions for game in games], [game.labels for game in games])
    words = [[word for word, _, _ in x] for x in world(8)[0]]
    yield ChainCRF(features=TextFeatures(), tol=1e-2), (words, world(8)[1])
    yield make_pipeline(TextFeatures(), ChainCRF(tol=1e-2)), (words, world(8)[1])
    yield TextFeatures(), (words, None)
    yield SensorFeatures(rate=10.0), ([np.cumsum(rng.normal(size=(60, 3)), axis=0)], None)
    heard = Readings(np.arange(20.0), rng.normal(size=(20, 3)), rng.integers(0, 3, 20), rng.normal(size=20))
    yield ReadingFeatures(radii=(2.0,)), ([heard], None)


def _saved(model: Any, X: Any, options: tuple[tuple[str, Any], ...] = ()) -> Saved:
    stream = io.BytesIO()
    save(model, stream)
    kind = read_archive(io.BytesIO(stream.getvalue())).header["kind"]
    return Saved(kind, stream.getvalue(), X, options)


def ask(model: Any, X: Any) -> None:
    """Everything a loaded model may be asked; `ValueError` of NaN where an answer holds one.

    A model may refuse a question with an error of crfield: data of another width, a question it knows no answer to.
    """
    for name in QUESTIONS:
        method: Callable[[Any], Any] | None = getattr(model, name, None)
        if method is None:
            continue
        try:
            refuse_nan(method(X), name)
        except CrfieldError:
            continue
        except ValueError as error:
            if "features as input" not in str(error):  # scikit-learn's words for a table of another width
                raise
    for name in REPORTS:
        with suppress(CrfieldError, AttributeError):
            repr(getattr(model, name))
    repr(model)
    with suppress(CrfieldError):
        save(model, io.BytesIO())


class Damage(Exception):
    """An answer that is none: silent damage."""


def refuse_nan(answer: Any, name: str) -> None:
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple) or (isinstance(answer, np.ndarray) and answer.dtype.kind == "O"):
        for part in answer:
            refuse_nan(part, name)
    elif (
        isinstance(answer, float | np.ndarray | np.generic)
        and np.asarray(answer).dtype.kind == "f"
        and np.isnan(answer).any()
    ):
        raise Damage(f"{name} answers NaN")
